// SPDX-License-Identifier: Apache-2.0
// Per layer of width d and n tokens: the projections and the feed-forward part take multiply-adds in
// proportion to n d^2, scores and mixing in proportion to n^2 d (half of it behind a causal mask). A
// recurrent layer takes n d^2 as well, in n steps one after the other.
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/attention.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/recurrent.h"

namespace rapt {
namespace {

constexpr Dim kWidth = 256, kHeads = 4;

struct Times {
  double projections = 0, feed_forward = 0, attention = 0, recurrent = 0;  // seconds
};

Times measure(Device& device, Dim n, int rounds, std::uint64_t seed) {
  const DType real = device.real;
  const Weight square = normal_weight(real, kWidth, kWidth, mix_key(seed, 1), 0.06),
               wide = normal_weight(real, 4 * kWidth, kWidth, mix_key(seed, 2), 0.06),
               back = normal_weight(real, kWidth, 4 * kWidth, mix_key(seed, 3), 0.03),
               gates = normal_weight(real, 3 * kWidth, kWidth, mix_key(seed, 4), 0.06);
  Run run(device);
  const Tensor x = normal_tensor(run, {n, kWidth}, mix_key(seed, 5));
  const Tensor heads_of_x = x.reshape({n, kHeads, kWidth / kHeads});
  const RowPlan plan = plan_rows(Mask{.right = 0}, {{Sequence{.first = 0, .count = n}}});
  const AttentionSpec spec{.heads = kHeads,
                           .kv_heads = kHeads,
                           .head_dim = kWidth / kHeads,
                           .v_dim = kWidth / kHeads,
                           .scale = 0.125};
  const AttentionInputs in{.q = heads_of_x, .k = heads_of_x, .v = heads_of_x};
  const Arena::Mark mark = run.arena.mark();
  auto timed = [&](int times, auto&& f) {
    return shortest_time(times, [&] {
      f();
      run.arena.release(mark);
    });
  };
  Times t;
  t.projections = timed(rounds, [&] {
    for (int i = 0; i < 4; ++i) linear(run, x, square);
  });
  t.feed_forward = timed(rounds, [&] { linear(run, linear(run, x, wide), back); });
  t.attention = timed(rounds, [&] { attention(run, spec, in, plan); });
  // A GRU: the inputs' products at once, the states' one by one.
  t.recurrent = timed(std::min(rounds, 2), [&] {
    const Tensor from_input = linear(run, x, gates);
    Tensor h = x.slice(0, 1);
    for (Dim i = 0; i < n; ++i) h = gru(run, from_input.slice(i, 1), linear(run, h, gates), h);
  });
  return t;
}

}  // namespace

LabResult cost(const Lab& lab) {
  LabResult r;
  const Dim most = lab.effort < 0.5 ? 256 : 4096;
  // What threads wait for one another is no part of the law.
  Device one(lab.device.kernels, {.threads = 1});
  Table t{.title = say("lab.cost.table", kWidth),
          .columns = {"n", say("lab.cost.projections"), say("lab.cost.ffn"), say("lab.cost.attention"),
                      say("lab.cost.gru"), "4 n d^2", "8 n d^2", "n^2 d"},
          .rows = {}};
  Chart chart{.title = say("lab.cost.chart", kWidth),
              .x_label = say("lab.cost.tokens"),
              .y_label = say("lab.cost.ms"),
              .curves = {},
              .log_y = true};
  for (const char* name : {"lab.cost.products", "lab.cost.attention", "lab.cost.gru"})
    chart.curves.push_back({.name = say(name), .x = {}, .y = {}});
  std::vector<double> logs, linear_logs, attention_logs;
  double crossing = std::nan(""), projection_crossing = std::nan(""), before_ratio = 0, before_projection = 0,
         before_n = 0, recurrent_short = 0, recurrent_long = 0;
  for (Dim n = 64; n <= most; n *= 2) {
    if (lab.progress)
      lab.progress(say("lab.cost.tokens"), static_cast<double>(n), static_cast<double>(most) * 2);
    const Times s = measure(one, n, lab.effort < 0.5 ? 1 : n <= 512 ? 20 : 4, lab.seed);
    const auto x = static_cast<double>(n), d = static_cast<double>(kWidth);
    t.rows.push_back({Cell(x, 0), Cell(1e3 * s.projections), Cell(1e3 * s.feed_forward),
                      Cell(1e3 * s.attention), Cell(1e3 * s.recurrent, 2), Cell(4 * x * d * d / 1e6, 0),
                      Cell(8 * x * d * d / 1e6, 0), Cell(x * x * d / 1e6, 0)});
    const double values[] = {s.projections + s.feed_forward, s.attention, s.recurrent};
    for (std::size_t i = 0; i < 3; ++i)
      chart.curves[i].x.push_back(x), chart.curves[i].y.push_back(1e3 * values[i]);
    // Where attention overtakes, between two lengths on a logarithmic scale.
    const double ratio = s.attention / values[0], projection = s.attention / s.projections;
    auto cross = [&](double& at, double before, double now) {
      if (std::isnan(at) && before > 0 && before < 1 && now >= 1)
        at = before_n * std::pow(x / before_n, std::log(1 / before) / std::log(now / before));
    };
    cross(crossing, before_ratio, ratio);
    cross(projection_crossing, before_projection, projection);
    before_ratio = ratio, before_projection = projection, before_n = x;
    recurrent_long = s.recurrent / (s.projections + s.attention);
    if (n == kWidth) recurrent_short = recurrent_long;
    if (n >= most / 8)
      logs.push_back(std::log(x)), linear_logs.push_back(std::log(values[0])),
          attention_logs.push_back(std::log(s.attention));
  }
  const double linear_law = slope(logs, linear_logs), attention_law = slope(logs, attention_logs);
  Finding crossed{.what = say("lab.cost.f.crossing"),
                  .measured = std::isnan(projection_crossing) ? 0 : projection_crossing,
                  .unit = "",
                  .expected = say("lab.cost.f.crossing_expected", kWidth),
                  .holds = projection_crossing > 2 * kWidth && projection_crossing < 8 * kWidth,
                  .paper = say("lab.cost.p.table"),
                  .every_seed = false};
  r.findings = {
      above(say("lab.cost.f.attention"), attention_law, 1.5, "", "n^2 d", false),
      below(say("lab.cost.f.products"), linear_law, 1.4, "", "n d^2", false),
      crossed,
      above(say("lab.cost.f.gru"), recurrent_short, 1, "x", say("lab.cost.p.steps"), false),
      below(say("lab.cost.f.gru_long"), recurrent_long, 1, "x", "", false),
  };
  r.verdict = sentences(
      {say("lab.cost.v.laws", digits(attention_law, 2), digits(linear_law, 2)),
       std::isnan(projection_crossing) ? say("lab.cost.v.never")
       : std::isnan(crossing)
           ? say("lab.cost.v.crossing", digits(projection_crossing, 0), 4 * kWidth)
           : say("lab.cost.v.crossings", digits(projection_crossing, 0), 4 * kWidth, digits(crossing, 0)),
       say("lab.cost.v.gru", digits(recurrent_short, 1), kWidth, digits(recurrent_long, 1), most)});
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(chart));
  return r;
}

}  // namespace rapt
