// SPDX-License-Identifier: Apache-2.0
// Frequencies under each scaling (linear, NTK, YaRN, Llama 3 …), tables of angles, the op, sinusoids.
#include "rapt/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rapt {
namespace {

struct RopeTape {
  Tensor x, y, cos, sin;
  RopeLayout layout;
  Dim first;
};

// A rotation's gradient is the rotation back: dx += y's gradient turned by minus the angle.
void rope_backward(Run& run, const RopeTape& s) {
  void* dx = run.grad(s.x);
  if (!dx) return;
  run.call(&Kernels::rope_backward, {.rows = s.x[0],
                                     .heads = s.x[1],
                                     .d = s.x[2],
                                     .first = s.first,
                                     .half = s.cos[1],
                                     .layout = s.layout,
                                     .dy = run.grad(s.y),
                                     .cos = s.cos.data,
                                     .sin = s.sin.data,
                                     .dx = dx});
}

bool depends_on_length(RopeScaling s) { return s == RopeScaling::dynamic || s == RopeScaling::longrope; }

// 1 / base^(2i/r), the frequencies of 2021.
std::vector<double> plain(double base, Dim pairs, double r) {
  std::vector<double> f(static_cast<std::size_t>(pairs));
  for (std::size_t i = 0; i < f.size(); ++i) f[i] = 1 / std::pow(base, 2 * static_cast<double>(i) / r);
  return f;
}

// YaRN: channels that turn more than beta_fast times within the original context keep their frequency, those
// below beta_slow are interpolated (divided by the factor), a ramp over the channel number lies between.
void scale_yarn(const RopeSpec& spec, double r, RopeFrequencies& f) {
  auto channel = [&](double turns) {
    return r * std::log(spec.original / (turns * 2 * std::numbers::pi)) / (2 * std::log(spec.theta));
  };
  double low = channel(spec.beta_fast), high = channel(spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, r - 1);
  if (low == high) high += 0.001;  // a step instead of a division by zero
  for (std::size_t i = 0; i < f.inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    f.inverse[i] *= ramp / spec.factor + (1 - ramp);
  }
  auto growth = [&](double m) { return spec.factor <= 1 ? 1 : 0.1 * m * std::log(spec.factor) + 1; };
  if (spec.attention_factor != 0) f.magnitude = spec.attention_factor;
  else if (spec.mscale != 0 && spec.mscale_all_dim != 0)
    f.magnitude = growth(spec.mscale) / growth(spec.mscale_all_dim);
  else f.magnitude = growth(1);
}

// Llama 3.1: waves shorter than original/high_freq stay, those longer than original/low_freq are divided by
// the factor, and between the two the share of the plain frequency grows with the number of turns.
void scale_llama3(const RopeSpec& spec, RopeFrequencies& f) {
  for (double& w : f.inverse) {
    const double turns = spec.original * w / (2 * std::numbers::pi);  // within the original context
    const double share = std::clamp((turns - spec.low_freq) / (spec.high_freq - spec.low_freq), 0.0, 1.0);
    w = (1 - share) * w / spec.factor + share * w;
  }
}

void scale_longrope(const RopeSpec& spec, Dim length, RopeFrequencies& f) {
  const std::vector<double>& list =
      static_cast<double>(length) > spec.original ? spec.long_factor : spec.short_factor;
  for (std::size_t i = 0; i < f.inverse.size(); ++i) f.inverse[i] /= list[i];
  // One that is given wins.
  const double factor =
      spec.factor != 1 || spec.max_context == 0 ? spec.factor : spec.max_context / spec.original;
  if (spec.attention_factor != 0) f.magnitude = spec.attention_factor;
  else f.magnitude = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(spec.original));
}

void check_spec(const RopeSpec& spec, Dim head_dim, Dim pairs, double r) {
  using enum RopeScaling;
  const RopeScaling s = spec.scaling;
  if (!(spec.theta > 0) || !std::isfinite(spec.theta))
    fail("rope: theta is ", spec.theta, "; a positive number is needed (10000 is usual)");
  if (!(spec.part > 0 && spec.part <= 1))
    fail("rope: part is ", spec.part, "; it is a share of the head's channels: above 0, at most 1");
  if (r < 2 || 2 * pairs > head_dim || (s == proportional && head_dim % 2 != 0))
    fail("rope: part ", spec.part, " of heads of ", head_dim, " channels gives ", r,
         " that turn; channels turn in pairs: choose a part that leaves at least 2, and an even head_dim");
  if (!(spec.factor > 0) || !std::isfinite(spec.factor))
    fail("rope: the scaling factor is ", spec.factor, "; a positive number is needed (1: no change)");
  if ((s == ntk || s == dynamic) && r <= 2)
    fail("rope: NTK scaling changes the base by factor^(R/(R-2)): R = ", r,
         " turned channels are too few, 4 are needed");
  if ((s == yarn || s == llama3 || s == longrope) && !(spec.original > 1))
    fail(
        "rope: this scaling compares wavelengths with the context the model was trained "
        "for: set `original` (it is ",
        spec.original, ")");
  if (s == dynamic && !(spec.original > 0 || spec.max_context > 0))
    fail(
        "rope: dynamic scaling starts where the sequence outgrows the context the model was "
        "trained for: set `original`");
  if (s == yarn && !(spec.theta > 1 && spec.beta_slow > 0 && spec.beta_fast >= spec.beta_slow))
    fail("rope: yarn needs theta above 1 and beta_fast >= beta_slow > 0; got theta ", spec.theta,
         ", beta_fast ", spec.beta_fast, ", beta_slow ", spec.beta_slow);
  if (s == llama3 && !(spec.low_freq > 0 && spec.high_freq > spec.low_freq))
    fail("rope: llama3 scaling needs high_freq > low_freq > 0; got high_freq ", spec.high_freq, ", low_freq ",
         spec.low_freq);
  if (s == longrope)
    for (const auto* list : {&spec.short_factor, &spec.long_factor}) {
      const char* name = list == &spec.short_factor ? "short_factor" : "long_factor";
      if (static_cast<Dim>(list->size()) != pairs)
        fail("rope: longrope's ", name, " has ", list->size(),
             " entries, one per frequency is needed: ", pairs);
      for (double v : *list)
        if (!(v > 0))
          fail("rope: longrope's ", name, " holds ", v,
               "; every entry divides a frequency and must be positive");
    }
}

// f(row) for all rows on the run's threads, in pieces of about 1,000 angles (some 20 microseconds).
template <class F>
void for_rows(Run& run, Dim rows, Dim angles, const F& f) {
  struct Context {
    const F& f;
    Dim rows, grain;
  } context{f, rows, std::max<Dim>(1, 1024 / std::max<Dim>(1, angles))};
  run_tasks(
      run.queue(), (rows + context.grain - 1) / context.grain,
      [](void* p, Dim task, int) noexcept {
        const auto& c = *static_cast<const Context*>(p);
        for (Dim r = task * c.grain; r < std::min(c.rows, (task + 1) * c.grain); ++r) c.f(r);
      },
      &context);
}

}  // namespace

const char* name_of(RopeScaling scaling) {
  static constexpr const char* kNames[] = {"none", "linear", "ntk",      "dynamic",
                                           "yarn", "llama3", "longrope", "proportional"};
  return kNames[static_cast<std::size_t>(scaling)];
}

// R = floor(part * D) channels turn, in ceil(R/2) pairs: an odd R takes one channel more, as
// transformers does.
// proportional (Gemma 4) means something else by `part`: the head has all D/2 pairs, with the exponents 2i/D
// of a full head, but only the first floor(part * D / 2) of them have a frequency; the others have frequency
// 0 and stand still. In the halves layout channel i then turns with i + D/2, where every other scaling pairs
// i with i + R/2.
RopeFrequencies rope_frequencies(const RopeSpec& spec, Dim head_dim, Dim length) {
  const bool proportional = spec.scaling == RopeScaling::proportional;
  const double d = static_cast<double>(head_dim),
               r = proportional ? 2 * std::floor(spec.part * d / 2) : std::floor(spec.part * d);
  const Dim pairs = static_cast<Dim>(std::ceil(r / 2));
  check_spec(spec, head_dim, pairs, r);
  RopeFrequencies f;
  switch (spec.scaling) {
    case RopeScaling::none: f.inverse = plain(spec.theta, pairs, r); break;
    case RopeScaling::linear:
      f.inverse = plain(spec.theta, pairs, r);
      for (double& w : f.inverse) w /= spec.factor;
      break;
    case RopeScaling::ntk:
      f.inverse = plain(spec.theta * std::pow(spec.factor, r / (r - 2)), pairs, r);
      break;
    case RopeScaling::dynamic: {
      // NTK with the factor that this length needs. transformers calls the trained context
      // max_position_embeddings here.
      const double trained = spec.original > 0 ? spec.original : spec.max_context,
                   now = std::max(static_cast<double>(length), trained);
      f.inverse = plain(spec.theta * std::pow(spec.factor * now / trained - (spec.factor - 1), r / (r - 2)),
                        pairs, r);
      break;
    }
    case RopeScaling::yarn:
      f.inverse = plain(spec.theta, pairs, r);
      scale_yarn(spec, r, f);
      break;
    case RopeScaling::llama3:
      f.inverse = plain(spec.theta, pairs, r);
      scale_llama3(spec, f);
      break;
    case RopeScaling::longrope:
      f.inverse = plain(spec.theta, pairs, r);
      scale_longrope(spec, length, f);
      break;
    case RopeScaling::proportional:
      f.inverse = plain(spec.theta, pairs, d);
      for (double& w : f.inverse) w /= spec.factor;
      f.inverse.resize(static_cast<std::size_t>(head_dim / 2));
      break;
  }
  return f;
}

RopeTable rope_table(Run& run, const RopeSpec& spec, Dim head_dim, std::span<const std::int32_t> positions,
                     std::span<const Dim> lengths) {
  const auto rows = static_cast<Dim>(positions.size());
  if (lengths.size() != positions.size() && lengths.size() != 1)
    fail("rope: ", lengths.size(), " lengths for ", rows, " positions: give one per row, or one for all");
  // One set of frequencies per length that occurs; rows of a sequence follow each other, so a change
  // is rare.
  std::vector<RopeFrequencies> sets;
  std::vector<Dim> of_length;
  std::vector<std::size_t> set_of(positions.size());
  for (std::size_t t = 0; t < positions.size(); ++t) {
    const Dim length = depends_on_length(spec.scaling) ? lengths[lengths.size() == 1 ? 0 : t] : 0;
    if (t > 0 && of_length[set_of[t - 1]] == length) {
      set_of[t] = set_of[t - 1];
      continue;
    }
    set_of[t] =
        static_cast<std::size_t>(std::find(of_length.begin(), of_length.end(), length) - of_length.begin());
    if (set_of[t] < sets.size()) continue;
    of_length.push_back(length);
    sets.push_back(rope_frequencies(spec, head_dim, length));
  }
  if (sets.empty()) sets.push_back(rope_frequencies(spec, head_dim, 0));
  const auto half = static_cast<Dim>(sets[0].inverse.size());
  const RopeTable table{run.make({rows, half}).constant(), run.make({rows, half}).constant(), spec.layout};
  for_rows(run, rows, half, [&](Dim t) {
    const RopeFrequencies& f = sets[set_of[static_cast<std::size_t>(t)]];
    for (Dim i = 0; i < half; ++i) {
      const double angle = static_cast<double>(positions[static_cast<std::size_t>(t)]) *
                           f.inverse[static_cast<std::size_t>(i)];
      table.cos.set(t * half + i, std::cos(angle) * f.magnitude);
      table.sin.set(t * half + i, std::sin(angle) * f.magnitude);
    }
  });
  return table;
}

Tensor rope(Run& run, const Tensor& x, const RopeTable& table, Dim first) {
  if (x.rank != 3 || !x.contiguous())
    fail("rope: x ", x.shape(), " must be a contiguous tensor [rows, heads, head_dim]");
  if (table.cos[0] != x[0] || first < 0 || first + 2 * table.cos[1] > x[2])
    fail("rope: a table for ", table.cos[0], " rows and ", 2 * table.cos[1], " channels",
         first > 0 ? concat(" from ", first, " on") : "", " does not fit x ", x.shape(),
         ": make it from the positions of these rows and this head_dim");
  Tensor y = run.like(x);
  run.call(&Kernels::rope, {.rows = x[0],
                            .heads = x[1],
                            .d = x[2],
                            .first = first,
                            .half = table.cos[1],
                            .layout = table.layout,
                            .x = x.data,
                            .cos = table.cos.data,
                            .sin = table.sin.data,
                            .y = y.data});
  run.record(rope_backward, RopeTape{x, y, table.cos, table.sin, table.layout, first});
  return y;
}

Tensor sinusoid(Run& run, SinusoidLayout layout, SinusoidTable table, Dim width,
                std::span<const std::int32_t> positions) {
  const Dim half = width / 2, least = table == SinusoidTable::marian ? 4 : 2;
  if (width < least || width % 2 != 0)
    fail("sinusoid: width ", width, ": sines and cosines come in pairs, so an even width of at least ", least,
         " is needed");
  const auto rows = static_cast<Dim>(positions.size());
  std::vector<double> frequency(static_cast<std::size_t>(half));
  for (std::size_t i = 0; i < frequency.size(); ++i)
    frequency[i] =
        std::pow(10000.0, -static_cast<double>(i) /
                              static_cast<double>(table == SinusoidTable::marian ? half - 1 : half));
  const Tensor y = run.make({rows, width}).constant();
  for_rows(run, rows, half, [&](Dim t) {
    for (Dim i = 0; i < half; ++i) {
      const double angle = static_cast<double>(positions[static_cast<std::size_t>(t)]) *
                           frequency[static_cast<std::size_t>(i)];
      const bool pairs = layout == SinusoidLayout::pairs;
      y.set(t * width + (pairs ? 2 * i : i), std::sin(angle));
      y.set(t * width + (pairs ? 2 * i + 1 : half + i), std::cos(angle));
    }
  });
  return y;
}

}  // namespace rapt
