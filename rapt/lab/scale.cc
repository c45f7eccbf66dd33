// SPDX-License-Identifier: Apache-2.0
// With independent q and k of unit variance q.k has variance d. Scores of that size saturate a softmax, and
// a saturated softmax passes gradient to few keys only; scores that are too small make it an average.
// Measured on the fused attention: its entropy, the gradient that reaches the scores (that of a dense bias,
// which is added to them), over how many keys it is spread, and the gradient that reaches q.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/attention.h"
#include "rapt/ops/linear.h"

namespace rapt {
namespace {

constexpr Dim kRows = 256, kKeys = 64;

struct Look {
  // Means over rows; gradient: |d loss / d scores| of a row.
  double entropy = 0, strongest = 0, gradient = 0;
  double keys = 0, to_q = 0;  // keys that share it: (sum g^2)^2 / sum g^4; |d loss / d q|
};

Look look(Device& f64, Dim d, double scale_by, std::uint64_t seed) {
  Run run(f64);
  Gradients gradients(f64.real);
  Tape tape(gradients);
  Taps taps;
  run.tape = &tape;
  run.taps = &taps;
  Look l;
  taps.see(site::attn_stats, [&](const Tapped& t) {
    for (Dim i = 0; i < kRows; ++i)
      l.entropy += t.value.at(i * AttentionStat::count + AttentionStat::entropy) / kRows;
  });
  std::vector<Taps::HeadRow> rows;
  for (Dim i = 0; i < kRows; ++i) rows.push_back({0, i});
  taps.want_weights(
      site::attn_weights, [&](const Tapped&) { return rows; },
      [&](const Tapped& t) { l.strongest += largest(values_of(t.value)) / kRows; });
  AttentionInputs in{.q = normal_tensor(run, {kRows, 1, d}, mix_key(seed, 1))};
  in.k = normal_tensor(run, {kKeys, 1, d}, mix_key(seed, 2));
  in.v = normal_tensor(run, {kKeys, 1, 8}, mix_key(seed, 3));
  in.dense_bias = run.upload({1, kRows, kKeys}, std::vector<double>(static_cast<std::size_t>(kRows * kKeys)));
  const Sequence queries{.first = 0, .count = kRows}, keys{.first = 0, .count = kKeys};
  const Tensor out = attention(
      run, {.heads = 1, .kv_heads = 1, .head_dim = d, .v_dim = 8, .scale = scale_by, .bias = Bias::dense}, in,
      plan_cross({{queries}}, {{keys}}));
  backward_from(run, out, mix_key(seed, 4));
  const std::vector<double> g = gradient_of(run, in.dense_bias);
  const std::vector<double> to_q = gradient_of(run, in.q);
  for (Dim i = 0; i < kRows; ++i) {
    double squares = 0, fourth = 0;
    for (Dim j = 0; j < kKeys; ++j) {
      const double square =
          g[static_cast<std::size_t>(i * kKeys + j)] * g[static_cast<std::size_t>(i * kKeys + j)];
      squares += square, fourth += square * square;
    }
    l.gradient += std::sqrt(squares) / kRows;
    l.keys += (fourth > 0 ? squares * squares / fourth : 0) / kRows;
    l.to_q += length({to_q.data() + i * d, static_cast<std::size_t>(d)}) / kRows;
  }
  return l;
}

double score_variance(Device& f64, Dim d, std::uint64_t seed) {
  Run run(f64);
  const Dim n = d <= 128 ? 512 : 256;  // small heads need more draws
  const Weight k = normal_weight(f64.real, n, d, mix_key(seed, 5));
  const std::vector<double> s = values_of(linear(run, normal_tensor(run, {n, d}, mix_key(seed, 6)), k));
  double sum = 0, squares = 0;
  for (double v : s) sum += v, squares += v * v;
  const auto count = static_cast<double>(s.size());
  return squares / count - sum * sum / count / count;
}

}  // namespace

LabResult scale(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  LabResult r;
  const double uniform = std::log(static_cast<double>(kKeys));
  const std::vector<Dim> sizes =
      lab.effort < 0.5 ? std::vector<Dim>{16, 256} : std::vector<Dim>{4, 16, 64, 128, 256, 512, 1024};
  struct Rule {
    const char* name;
    double (*scale)(double d);
  };
  const Rule rules[] = {{"q.k", [](double) { return 1.0; }},
                        {"q.k / sqrt(d)", [](double d) { return 1 / std::sqrt(d); }},
                        {"q.k / d", [](double d) { return 1 / d; }}};
  Table t{.title = say("lab.scale.table"),
          .columns = {"d", say("lab.scale.variance"), say("lab.scale.scaling"), say("lab.scale.entropy_nats"),
                      say("lab.scale.strongest"), say("lab.scale.to_scores"), say("lab.scale.shared"),
                      say("lab.scale.to_q")},
          .rows = {}};
  Chart entropy{.title = say("lab.scale.entropy"),
                .x_label = say("lab.scale.log_size"),
                .y_label = say("lab.scale.entropy_nats")},
      gradient{.title = say("lab.scale.reaches"),
               .x_label = say("lab.scale.log_size"),
               .y_label = say("lab.scale.to_scores"),
               .curves = {},
               .log_y = true};
  for (const Rule& rule : rules) {
    entropy.curves.push_back({.name = rule.name, .x = {}, .y = {}});
    gradient.curves.push_back({.name = rule.name, .x = {}, .y = {}});
  }
  double worst_variance = 0;
  Look last[3], first[3];
  for (Dim d : sizes) {
    const double variance = score_variance(f64, d, lab.seed);
    worst_variance = std::max(worst_variance, std::abs(variance / static_cast<double>(d) - 1));
    for (std::size_t i = 0; i < 3; ++i) {
      const Look l = look(f64, d, rules[i].scale(static_cast<double>(d)), lab.seed);
      if (d == sizes.front()) first[i] = l;
      last[i] = l;
      t.rows.push_back({Cell(static_cast<double>(d), 0), Cell(variance, 1), rules[i].name, Cell(l.entropy),
                        Cell(l.strongest), Cell(l.gradient), Cell(l.keys, 1), Cell(l.to_q)});
      for (Chart* c : {&entropy, &gradient}) c->curves[i].x.push_back(std::log2(static_cast<double>(d)));
      entropy.curves[i].y.push_back(l.entropy);
      gradient.curves[i].y.push_back(l.gradient);
    }
  }
  // The whole model's width instead of the head's: 8 heads of 64 in a model of 512, divided by sqrt(512).
  const Look by_width = look(f64, 64, 1 / std::sqrt(512.0), lab.seed),
             by_head = look(f64, 64, 1 / std::sqrt(64.0), lab.seed);

  const double more = last[0].to_q / last[1].to_q, to_scores = last[0].gradient / last[1].gradient,
               wider = by_width.entropy - by_head.entropy;
  r.findings = {
      below(say("lab.scale.f.variance"), 100 * worst_variance, 10, "%", say("lab.scale.p.variance")),
      below(say("lab.scale.f.unscaled"), last[0].entropy / uniform, 0.25, ""),
      above(say("lab.scale.f.scaled"), last[1].entropy / uniform, 0.75, ""),
      below(say("lab.scale.f.to_scores"), to_scores, 0.7, "x", say("lab.scale.p.small")),
      below(say("lab.scale.f.shared"), last[0].keys / last[1].keys, 0.5, "x"),
      above(say("lab.scale.f.to_q"), more, 1, "x", "", false),
      below(say("lab.scale.f.flat"), std::abs(first[1].entropy - last[1].entropy), 0.4, "nats"),
      above(say("lab.scale.f.by_d"), last[2].entropy / uniform, 0.99, ""),
      above(say("lab.scale.f.by_width"), wider, 0.1, "nats"),
  };
  r.verdict =
      !all_hold(r.findings)
          ? say("lab.scale.v.not")
          : sentences({say("lab.scale.v.half", digits(100 * worst_variance, 1), sizes.back(),
                           digits(to_scores, 2), digits(last[0].keys, 1), digits(last[1].keys, 1)),
                       say(more > 1 ? "lab.scale.v.q_stays" : "lab.scale.v.q_falls", digits(more, 1)),
                       say("lab.scale.v.divisor", digits(wider, 2), digits(last[2].entropy / uniform, 3))});
  r.document.parts.push_back(std::move(entropy));
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(gradient));
  return r;
}

}  // namespace rapt
