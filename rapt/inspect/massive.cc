// SPDX-License-Identifier: Apache-2.0
// The map takes one pass. The intervention has three losses a window: plain, edited, ordinary values at 0.
#include "rapt/inspect/massive.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace rapt {
namespace {

std::size_t at(Dim row, Dim columns, Dim column) { return static_cast<std::size_t>(row * columns + column); }

// The lower middle of the magnitudes; what is no number stands above all.
template <class Real>
double median_magnitude(std::span<const Real> x) {
  if (x.empty()) return 0;
  std::vector<Real> sizes(x.size());
  std::transform(x.begin(), x.end(), sizes.begin(),
                 [](Real v) { return std::isnan(v) ? std::numeric_limits<Real>::infinity() : std::abs(v); });
  const auto middle = sizes.begin() + (static_cast<std::ptrdiff_t>(sizes.size()) - 1) / 2;
  std::nth_element(sizes.begin(), middle, sizes.end());
  return static_cast<double>(*middle);
}

double ratio_of(double value, double median) { return median > 0 ? std::abs(value) / median : 0; }

Activation activation_at(std::size_t place, Dim width, int row, double value, double median,
                         const MassiveOptions& o) {
  const auto i = static_cast<Dim>(place);
  Activation a{
      .row = row, .token = i / width, .channel = i % width, .value = value, .ratio = ratio_of(value, median)};
  a.massive = std::abs(value) > o.above && a.ratio >= o.ratio;
  return a;
}

// Places of the `count` largest magnitudes, largest first; of equal ones the earlier.
template <class Real>
std::vector<std::size_t> largest_places(std::span<const Real> x, std::size_t count) {
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (best.size() == count && !(std::abs(x[i]) > std::abs(x[best.back()]))) continue;
    auto to = best.end();
    while (to != best.begin() && std::abs(x[i]) > std::abs(x[*(to - 1)])) --to;
    best.insert(to, i);
    if (best.size() > count) best.pop_back();
  }
  return best;
}

struct Gathering {
  Massive result;
  // [rows][width]: per channel the value of the largest magnitude, with its sign
  std::vector<float> peaks;
};

void add_row(Gathering& g, int row, const Tensor& x, const MassiveOptions& options) {
  Massive& m = g.result;
  m.tokens = x[0], m.width = x[1], m.rows = row + 1;
  with_values(x, [&](auto values) {
    m.median.push_back(median_magnitude(values));
    for (std::size_t place : largest_places(values, static_cast<std::size_t>(options.top)))
      m.top.push_back(
          activation_at(place, m.width, row, static_cast<double>(values[place]), m.median.back(), options));
    g.peaks.resize(static_cast<std::size_t>(m.rows * m.width));
    for (Dim t = 0; t < m.tokens; ++t) {
      float largest = 0;
      for (Dim c = 0; c < m.width; ++c) {
        const auto v = static_cast<float>(values[at(t, m.width, c)]);
        float& peak = g.peaks[at(row, m.width, c)];
        if (!(std::abs(v) <= std::abs(peak))) peak = v;
        largest = std::max(largest, std::abs(v));
      }
      m.largest.push_back(largest);
    }
  });
}

// Where the largest activations appear: the first layer that has a massive one, or else the first that comes
// to half of the largest magnitude after any layer.
int appears(const Massive& m) {
  double most = 0;
  for (const Activation& a : m.top)
    if (a.row > 0) most = std::max(most, std::abs(a.value));
  for (const Activation& a : m.top)
    if (a.row > 0 && (m.found ? a.massive : std::abs(a.value) >= most / 2)) return a.row;
  return std::min(1, m.rows - 1);
}

void finish(Gathering& g) {
  Massive& m = g.result;
  for (const Activation& a : m.top) m.found = m.found || (a.row > 0 && a.massive);
  m.first_row = appears(m);
  // Channels by the largest ratio that they reach after a layer.
  std::vector<double> strength(static_cast<std::size_t>(m.width));
  for (int r = std::min(1, m.rows - 1); r < m.rows; ++r)
    for (Dim c = 0; c < m.width; ++c)
      strength[static_cast<std::size_t>(c)] = std::max(
          strength[static_cast<std::size_t>(c)],
          ratio_of(static_cast<double>(g.peaks[at(r, m.width, c)]), m.median[static_cast<std::size_t>(r)]));
  for (std::size_t c : largest_places(std::span<const double>(strength), 4))
    m.channels.push_back(static_cast<Dim>(c));
  for (Dim c : m.channels)
    for (int r = 0; r < m.rows; ++r) m.trace.push_back(g.peaks[at(r, m.width, c)]);
}

}  // namespace

double Massive::log_ratio(int row, Dim token) const {
  const double ratio =
      ratio_of(static_cast<double>(largest[at(row, tokens, token)]), median[static_cast<std::size_t>(row)]);
  return ratio > 0 ? std::log10(ratio) : 0;
}

Massive massive_of(Stack stack, std::span<const Tensor> rows, const MassiveOptions& options) {
  if (options.top < 1) fail_usage("massive: ", options.top, " activations of each layer; give 1 or more");
  Gathering g{.result = {.stack = stack}, .peaks = {}};
  for (std::size_t row = 0; row < rows.size(); ++row) add_row(g, static_cast<int>(row), rows[row], options);
  finish(g);
  return std::move(g.result);
}

std::vector<Massive> massive(Device& device, const Model& model, Ids ids, Ids source,
                             const MassiveOptions& options) {
  if (options.top < 1) fail_usage("massive: ", options.top, " activations of each layer; give 1 or more");
  std::vector<Gathering> stacks;
  Taps taps = options.taps ? *options.taps : Taps{};
  watch_residual(taps, model, [&](Stack stack, int row, const Tensor& x) {
    if (row == 0) stacks.push_back({.result = {.stack = stack}, .peaks = {}});
    add_row(stacks.back(), row, x, options);
  });
  look(device, model, taps, ids, source);
  std::vector<Massive> out;
  for (Gathering& g : stacks) {
    finish(g);
    out.push_back(std::move(g.result));
  }
  return out;
}

// --------------------------------------------------------------------------------------------- intervention
namespace {

struct Spot {
  Dim token, channel;
  double to;
};

// Sum of -log p over the window and how many; spots are set after `layer`.
std::pair<double, Dim> window_loss(Device& device, const Model& model, Ids ids, int layer,
                                   std::span<const Spot> spots) {
  Taps taps;
  const Dim before = model.recipe.embed.sink_tokens;
  if (!spots.empty())
    taps.edit(site::resid_out, [&, layer](const Tapped& t) {
      if (t.layer != layer || t.stack != last_stack(model)) return;
      for (const Spot& s : spots) t.value.set((s.token + before) * t.value[1] + s.channel, s.to);
    });
  const std::vector<double> losses = token_losses(device, model, taps, ids);
  return {std::accumulate(losses.begin(), losses.end(), 0.0), static_cast<Dim>(losses.size())};
}

struct WindowActivations {
  std::vector<Activation> chosen, ordinary;  // to be set; as many of median size
  bool criterion = false;
};

// What to set in one window: all that is massive after the layer, or the largest one.
WindowActivations choose(Device& device, const Model& model, Ids ids, int layer,
                         const MassiveOptions& options) {
  WindowActivations w;
  Taps taps;
  watch_residual(taps, model, [&](Stack stack, int row, const Tensor& x) {
    if (row != layer + 1 || stack != last_stack(model)) return;
    with_values(x, [&](auto values) {
      const double median = median_magnitude(values);
      const auto here = [&](std::size_t i) {
        return activation_at(i, x[1], row, static_cast<double>(values[i]), median, options);
      };
      for (std::size_t i = 0; i < values.size(); ++i)
        if (here(i).massive) w.chosen.push_back(here(i));
      w.criterion = !w.chosen.empty();
      if (!w.criterion) w.chosen.push_back(here(largest_places(values, 1)[0]));
      for (std::size_t i = 0; i < values.size() && w.ordinary.size() < w.chosen.size(); ++i)
        if (std::abs(here(i).ratio - 1) < 0.1) w.ordinary.push_back(here(i));
    });
  });
  look(device, model, taps, ids);
  return w;
}

}  // namespace

MassiveEffect massive_effect(Device& device, const Model& model,
                             std::span<const std::vector<std::int32_t>> windows, const MassiveEdit& edit) {
  need_vocabulary(model, "massive");
  if (!model.decoder || model.encoder)
    fail("massive: model ", model.recipe.name,
         " does not predict the next token of a text, so there is no perplexity to compare; look at "
         "the map without --zero and --mean");
  if (windows.empty() || windows[0].size() < 2)
    fail("massive: an intervention needs a text of two tokens or more");
  const int layers = model.decoder->depth();
  if (edit.layer >= layers)
    fail_usage("massive: there is no layer ", edit.layer, "; the model has layers 0 to ", layers - 1);
  MassiveEffect effect;
  effect.layer =
      edit.layer >= 0 ? edit.layer : massive(device, model, windows[0], {}, edit.which).front().first_row - 1;

  std::vector<WindowActivations> found;
  struct Mean {
    double sum = 0, count = 0;
  };
  std::map<std::pair<bool, Dim>, Mean> means;  // first tokens apart from the others, channel by channel
  for (const std::vector<std::int32_t>& ids : windows) {
    found.push_back(choose(device, model, ids, effect.layer, edit.which));
    effect.criterion = effect.criterion || found.back().criterion;
    for (const Activation& a : found.back().chosen) {
      Mean& m = means[{a.token == 0, a.channel}];
      m.sum += a.value, m.count += 1;
    }
  }
  double before = 0, after = 0, control = 0;
  for (std::size_t w = 0; w < windows.size(); ++w) {
    std::vector<Spot> spots, ordinary;
    for (const Activation& a : found[w].chosen) {
      const Mean& m = means[{a.token == 0, a.channel}];
      spots.push_back({a.token, a.channel, edit.to == MassiveEdit::To::mean ? m.sum / m.count : 0});
      effect.set.push_back(a);
      effect.window.push_back(static_cast<int>(w));
      effect.became.push_back(spots.back().to);
    }
    for (const Activation& a : found[w].ordinary) ordinary.push_back({a.token, a.channel, 0});
    const auto [plain, count] = window_loss(device, model, windows[w], effect.layer, {});
    before += plain;
    effect.predicted += count;
    after += window_loss(device, model, windows[w], effect.layer, spots).first;
    control += window_loss(device, model, windows[w], effect.layer, ordinary).first;
  }
  const auto count = static_cast<double>(effect.predicted);
  effect.before = std::exp(before / count);
  effect.after = std::exp(after / count);
  effect.control = std::exp(control / count);
  return effect;
}

}  // namespace rapt
