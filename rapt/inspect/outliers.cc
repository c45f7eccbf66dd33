// SPDX-License-Identifier: Apache-2.0
// Two passes: one counts and chooses channels, one rounds the others to int8, scaled with and without them.
#include "rapt/inspect/outliers.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rapt {
namespace {

struct Counting {  // per channel
  Outliers result;
  std::vector<double> rows, layers, largest;
  std::vector<int> last_layer;  // in which it was large
  double all_rows = 0;
};

void count(Counting& c, int layer, bool ffn, const Tensor& x, double magnitude) {
  Outliers& o = c.result;
  o.width = x[1], o.tokens = x[0], o.layers = std::max(o.layers, layer + 1);
  const auto C = static_cast<std::size_t>(o.width);
  for (auto* v : {&c.rows, &c.layers, &c.largest}) v->resize(C);
  c.last_layer.resize(C, -1);
  OutlierInput in{.layer = layer, .ffn = ffn};
  std::vector<bool> large(C);
  with_values(x, [&](auto values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double size = std::abs(static_cast<double>(values[i]));
      const std::size_t channel = i % C;
      c.largest[channel] = std::max(c.largest[channel], size);
      in.largest = std::max(in.largest, size);
      if (size < magnitude) continue;
      c.rows[channel] += 1;
      if (std::exchange(c.last_layer[channel], layer) != layer) c.layers[channel] += 1;
      large[channel] = true;
    }
  });
  c.all_rows += static_cast<double>(x[0]);
  in.large = std::count(large.begin(), large.end(), true);
  o.inputs.push_back(in);
}

// Error of the channels not `apart`, one scale per row: from all channels, or from those alone.
double rounding_error(const Tensor& x, const std::vector<bool>& apart, bool scale_of_all) {
  double error = 0, size = 0;
  const auto C = static_cast<std::size_t>(x[1]);
  with_values(x, [&](auto values) {
    for (std::size_t row = 0; row < values.size(); row += C) {
      double most = 0;
      for (std::size_t c = 0; c < C; ++c)
        if (scale_of_all || !apart[c]) most = std::max(most, std::abs(static_cast<double>(values[row + c])));
      const double scale = most / 127;
      for (std::size_t c = 0; c < C; ++c) {
        if (apart[c]) continue;
        const auto v = static_cast<double>(values[row + c]);
        const double d = scale > 0 ? v - std::nearbyint(v / scale) * scale : 0;
        error += d * d, size += v * v;
      }
    }
  });
  return size > 0 ? std::sqrt(error / size) : 0;
}

void choose_features(Counting& c, const OutlierOptions& options) {
  std::vector<OutlierFeature> all;
  for (std::size_t i = 0; i < c.rows.size(); ++i)
    if (c.rows[i] > 0)
      all.push_back({.channel = static_cast<Dim>(i),
                     .layers = c.layers[i] / c.result.layers,
                     .tokens = c.rows[i] / c.all_rows,
                     .largest = c.largest[i]});
  std::sort(all.begin(), all.end(), [](const OutlierFeature& a, const OutlierFeature& b) {
    return a.tokens != b.tokens ? a.tokens > b.tokens : a.channel < b.channel;
  });
  for (const OutlierFeature& f : all) {
    if (f.layers >= options.layers && f.tokens >= options.tokens) c.result.features.push_back(f);
    else if (c.result.next.size() < 5) c.result.next.push_back(f);
  }
}

// f(stack, layer, ffn, rows) for everything that a self-attention or a feed-forward part reads.
template <class F>
void each_input(Device& device, const Model& model, Ids ids, Ids source, F f) {
  Taps taps;
  for (Site site : {site::attn_in, site::ffn_in})
    taps.see(site, [&, site](const Tapped& t) {
      if (!t.cross) f(t.stack, t.layer, site == site::ffn_in, text_rows(model, t.stack, t.value));
    });
  look(device, model, taps, ids, source);
}

}  // namespace

std::vector<Outliers> outliers(Device& device, const Model& model, Ids ids, Ids source,
                               const OutlierOptions& options) {
  std::vector<Counting> stacks;
  each_input(device, model, ids, source, [&](Stack stack, int layer, bool ffn, const Tensor& x) {
    if (stacks.empty() || stacks.back().result.stack != stack) stacks.push_back({.result = {.stack = stack}});
    count(stacks.back(), layer, ffn, x, options.magnitude);
  });
  if (stacks.empty())
    fail("outliers: model ", model.recipe.name,
         " has no attention or feed-forward layers that read a normed input");
  std::vector<std::vector<bool>> apart;
  for (Counting& c : stacks) {
    choose_features(c, options);
    apart.emplace_back(static_cast<std::size_t>(c.result.width));
    for (const OutlierFeature& f : c.result.features)
      apart.back()[static_cast<std::size_t>(f.channel)] = true;
  }
  // The same text again: which channels to keep apart is known only now, and nothing of size [layers, T,
  // C] is kept.
  std::size_t stack = 0, next = 0;
  each_input(device, model, ids, source, [&](Stack, int, bool, const Tensor& x) {
    if (next == stacks[stack].result.inputs.size()) ++stack, next = 0;
    OutlierInput& in = stacks[stack].result.inputs[next++];
    in.error = rounding_error(x, apart[stack], true);
    in.apart = rounding_error(x, apart[stack], false);
  });
  std::vector<Outliers> out;
  for (Counting& c : stacks) out.push_back(std::move(c.result));
  return out;
}

}  // namespace rapt
