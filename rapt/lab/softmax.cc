// SPDX-License-Identifier: Apache-2.0
// What a softmax sees: differences of scores. The same number added to all of a row changes nothing, the same
// factor on all of them sharpens or blurs. The engine's attention in double, with scores given as a bias on
// queries and keys of zero and unit vectors as values, so that its output is its weights.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/attention.h"

namespace rapt {
namespace {

// softmax(scores) v, scores [rows][keys]; without values the weights themselves.
std::vector<double> attended(Device& f64, const std::vector<double>& scores, Dim rows, Dim keys,
                             std::vector<double> values = {}) {
  Run run(f64);
  if (values.empty()) {
    values.resize(static_cast<std::size_t>(keys * keys));
    for (Dim i = 0; i < keys; ++i) values[static_cast<std::size_t>(i * keys + i)] = 1;
  }
  const Dim d = static_cast<Dim>(values.size()) / keys;
  const AttentionInputs in{
      .q = run.upload({rows, 1, 4}, std::vector<double>(static_cast<std::size_t>(4 * rows))),
      .k = run.upload({keys, 1, 4}, std::vector<double>(static_cast<std::size_t>(4 * keys))),
      .v = run.upload({keys, 1, d}, values),
      .dense_bias = run.upload({1, rows, keys}, scores)};
  return values_of(attention(
      run, {.heads = 1, .kv_heads = 1, .head_dim = 4, .v_dim = d, .bias = Bias::dense}, in,
      plan_cross({{Sequence{.first = 0, .count = rows}}}, {{Sequence{.first = 0, .count = keys}}})));
}

}  // namespace

LabResult softmax_differences(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  LabResult r;
  auto second = [&](double a, double b) { return attended(f64, {a, b}, 1, 2)[1]; };
  struct Pair {
    double low, high;
  };
  const Pair pairs[] = {{0, 1}, {9, 10}, {99, 100}, {9.9, 10}, {990, 1000}, {12.375, 12.5}};
  Table t{.title = say("lab.softmax.table"),
          .columns = {say("lab.softmax.scores"), say("lab.softmax.difference"), say("lab.softmax.ratio"),
                      say("lab.softmax.lower"), say("lab.softmax.higher")}};
  for (const Pair& p : pairs) {
    const double w = second(p.low, p.high);
    t.rows.push_back({say("lab.softmax.pair", shortest(p.low), shortest(p.high)), Cell(p.high - p.low),
                      p.low > 0 ? Cell(p.high / p.low) : Cell("–"), Cell(1 - w, 5), Cell(w, 5)});
  }
  const double expected = 1 / (1 + std::exp(-1.0));
  double same = 0;
  for (int i = 0; i < 3; ++i) same = std::max(same, std::abs(second(pairs[i].low, pairs[i].high) - expected));
  const double marks = second(99, 100), tenth = second(9.9, 10), tenfold = second(990, 1000);

  // A row of random scores: a constant on all of them, a factor on all of them.
  constexpr Dim kKeys = 16;
  const std::vector<double> row = normal_values(mix_key(lab.seed, 1), kKeys);
  auto changed = [&](double factor, double shift) {
    std::vector<double> s = row;
    for (double& v : s) v = factor * v + shift;
    return attended(f64, s, 1, kKeys);
  };
  const std::vector<double> plain = changed(1, 0);
  const double shifted = largest_difference(changed(1, 1000), plain), sharper = largest(changed(4, 0)),
               flatter = largest(changed(0.25, 0));
  // Without the largest score taken off first, exp overflows: what a float can hold ends at exp(88).
  const float naive = std::exp(static_cast<float>(100)) / (std::exp(99.0F) + std::exp(100.0F));
  const bool breaks = !std::isfinite(naive);

  // alpha = softmax(S) has a column for each key and rows that sum to one; alpha V has a column for each
  // channel and rows that sum to whatever the values do.
  constexpr Dim kScoreRows = 6, kChannels = 4;
  const std::vector<double> s = normal_values(mix_key(lab.seed, 2), kScoreRows * kKeys),
                            v = normal_values(mix_key(lab.seed, 3), kKeys * kChannels);
  const std::vector<double> alpha = attended(f64, s, kScoreRows, kKeys),
                            out = attended(f64, s, kScoreRows, kKeys, v);
  auto off_one = [](const std::vector<double>& m, Dim columns) {  // how far rows are from summing to one
    double most = 0;
    for (std::size_t at = 0; at < m.size(); at += static_cast<std::size_t>(columns)) {
      double sum = -1;
      for (Dim c = 0; c < columns; ++c) sum += m[at + static_cast<std::size_t>(c)];
      most = std::max(most, std::abs(sum));
    }
    return most;
  };
  const double weights_off = off_one(alpha, kKeys), output_off = off_one(out, kChannels);
  double product = 0;  // alpha V by a plain loop
  for (std::size_t i = 0; i < kScoreRows; ++i)
    for (std::size_t c = 0; c < kChannels; ++c) {
      double sum = 0;
      for (std::size_t j = 0; j < kKeys; ++j) sum += alpha[i * kKeys + j] * v[j * kChannels + c];
      product = std::max(product, std::abs(sum - out[i * kChannels + c]));
    }
  Table slip{.title = say("lab.softmax.slip"),
             .columns = {say("lab.softmax.what"), say("lab.softmax.shape"), say("lab.softmax.off")}};
  slip.rows.push_back({"α = softmax(S)", concat("[", kScoreRows, ", ", kKeys, "]"), Cell(weights_off)});
  slip.rows.push_back({"α V", concat("[", kScoreRows, ", ", kChannels, "]"), Cell(output_off)});

  Chart chart{.title = say("lab.softmax.chart"),
              .x_label = say("lab.softmax.low"),
              .y_label = say("lab.softmax.higher"),
              .share = true};
  Curve difference{.name = say("lab.softmax.equal_difference")},
      ratio{.name = say("lab.softmax.equal_ratio")}, share{.name = say("lab.softmax.of_sum")};
  for (double low = 1; low <= 100; low += 1.5) {
    for (Curve* c : {&difference, &ratio, &share}) c->x.push_back(low);
    difference.y.push_back(second(low, low + 1));
    ratio.y.push_back(second(low, 1.1 * low));
    share.y.push_back((low + 1) / (2 * low + 1));
  }
  chart.curves = {difference, ratio, share};
  r.findings = {
      below(say("lab.softmax.f.same"), same, 1e-12, ""),
      below(say("lab.softmax.f.shift"), shifted, 1e-12, ""),
      above(say("lab.softmax.f.factor"), sharper / flatter, 2, "x"),
      above(say("lab.softmax.f.ratio"), marks - tenth, 0.1, ""),
      below(say("lab.softmax.f.weights"), weights_off, 1e-12, ""),
      above(say("lab.softmax.f.output"), output_off, 0.01, ""),
      below(say("lab.softmax.f.product"), product, 1e-12, ""),
  };
  r.verdict = all_hold(r.findings)
                  ? sentences({say("lab.softmax.v.wrong", digits(marks, 3)),
                               say("lab.softmax.v.scaling", digits(tenth, 3), digits(tenfold, 5),
                                   digits(flatter, 2), digits(sharper, 2)),
                               breaks ? say("lab.softmax.v.overflow") : Text(),
                               say("lab.softmax.v.slip", digits(output_off, 2))})
                  : say("lab.softmax.v.not");
  r.document.parts = {std::move(chart), std::move(t), std::move(slip)};
  return r;
}

}  // namespace rapt
