// SPDX-License-Identifier: Apache-2.0
// Of (q_i + b_q).k_j only b_q.k_j depends on the key, and it does not depend on the query: a bias on the
// queries is a preference among keys that all rows share. Under RoPE, b_q . R_(j-i) k_j, each row has
// its own.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

using Rows = std::vector<std::vector<double>>;

// How much b_q changes the score of each key: log weight with it minus log weight without it, each row's
// mean taken out. Where all rows agree, the spread over rows is 0.
double spread_over_rows(const Rows& with, const Rows& without, double& size) {
  double spread = 0;
  size = 0;
  const std::size_t n = with.size();
  std::vector<std::vector<double>> change(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) change[i].push_back(std::log(with[i][j]) - std::log(without[i][j]));
    size = std::max(size, *std::max_element(change[i].begin(), change[i].end()) -
                              *std::min_element(change[i].begin(), change[i].end()));
  }
  for (std::size_t i = 1; i < n; ++i)  // against the row above it, on the keys both see
    for (std::size_t j = 1; j < i; ++j)
      spread =
          std::max(spread, std::abs((change[i][j] - change[i][0]) - (change[i - 1][j] - change[i - 1][0])));
  return spread;
}

double mean_entropy(const Rows& rows) {
  double sum = 0;
  for (const std::vector<double>& row : rows)
    for (double w : row) sum -= w > 0 ? w * std::log(w) : 0;
  return sum / static_cast<double>(rows.size());
}

// Rows that choose the same key as the last row does, of those that see it. Equal tokens have equal keys, so
// a choice may be a tie.
double agreement(const Rows& rows) {
  const auto last = static_cast<std::size_t>(std::max_element(rows.back().begin(), rows.back().end()) -
                                             rows.back().begin());
  double same = 0, seeing = 0;
  for (std::size_t i = last; i < rows.size(); ++i) same += rows[i][last] > 0.999 * largest(rows[i]), ++seeing;
  return same / seeing;
}

}  // namespace

LabResult query_bias(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  AttnRecipe rope;
  rope.pos.kind = PosRecipe::Kind::rope;
  LabResult r;
  double spread[2], size[2], gradient[2], change = 0, own = 0, key_change = 0;
  for (int k = 0; k < 2; ++k) {
    AttentionRig rig(f64, k ? rope : AttnRecipe{}, lab.seed);
    gradient[k] = largest(rig.gradient("q.bias"));
    const Rows with = rig.weights(0);
    const std::vector<double> whole = rig.out();
    if (k == 0) {
      const std::vector<double> b_k = values_of(rig.weight("k.bias"));
      fill(rig.weight("k.bias"), std::vector<double>(b_k.size()));
      key_change = relative_difference(rig.out(), whole);
      fill(rig.weight("k.bias"), b_k);
    }
    fill(rig.weight("q.bias"), std::vector<double>(static_cast<std::size_t>(rig.weight("q.bias").size())));
    spread[k] = spread_over_rows(with, rig.weights(0), size[k]);
    if (k > 0) continue;
    // Of what b_q changes an output bias can make the mean over rows, and no more.
    const std::size_t width = AttentionRig::kWidth;
    std::vector<double> moved = rig.out(), mean(width);
    for (std::size_t i = 0; i < moved.size(); ++i) {
      moved[i] -= whole[i];
      mean[i % width] += moved[i] * static_cast<double>(width) / static_cast<double>(moved.size());
    }
    const double all = length(moved);
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] -= mean[i % width];
    change = all / length(whole), own = length(moved) / all;
  }

  Chart chart{.title = say("lab.query-bias.chart"),
              .x_label = say("lab.query-bias.log_size"),
              .y_label = say("lab.query-bias.y")};
  Curve entropy{.name = say("lab.query-bias.entropy"), .x = {}, .y = {}},
      agree{.name = say("lab.query-bias.agree"), .x = {}, .y = {}};
  Table t{.title = say("lab.query-bias.table"),
          .columns = {say("lab.query-bias.size"), say("lab.query-bias.entropy"), say("lab.query-bias.agree")},
          .rows = {}};
  AttentionRig rig(f64, {}, lab.seed);
  const std::vector<double> direction = values_of(rig.weight("q.bias"));
  for (double factor = 0; factor <= 4096; factor = factor == 0 ? 1 : factor * 4) {
    std::vector<double> b = direction;
    for (double& v : b) v *= factor;
    fill(rig.weight("q.bias"), b);
    const Rows rows = rig.weights(0);
    const double at = std::log2(1 + factor);
    entropy.x.push_back(at), agree.x.push_back(at);
    entropy.y.push_back(mean_entropy(rows)), agree.y.push_back(agreement(rows));
    t.rows.push_back({Cell(factor, 0), Cell(entropy.y.back()), Cell(agree.y.back(), 2)});
  }

  r.findings = {
      below(say("lab.query-bias.f.spread"), spread[0], 1e-10, "nats"),
      above(say("lab.query-bias.f.size"), size[0], 0.1, "nats"),
      above(say("lab.query-bias.f.rope"), spread[1], 0.01, "nats"),
      above(say("lab.query-bias.f.gradient"), std::min(gradient[0], gradient[1]), 1e-3, ""),
      above(say("lab.query-bias.f.agree"), agree.y.back(), 0.99, ""),
      below(say("lab.query-bias.f.key"), key_change, 1e-10, ""),
      above(say("lab.query-bias.f.own"), own, 0.2, ""),
  };
  r.verdict = all_hold(r.findings)
                  ? sentences({say("lab.query-bias.v.shared", digits(100 * agree.y.back(), 0)),
                               say("lab.query-bias.v.more", digits(100 * change, 0), digits(100 * own, 0))})
                  : say("lab.query-bias.v.not");
  chart.curves = {entropy, agree};
  r.document.parts.push_back(std::move(chart));
  r.document.parts.push_back(std::move(t));
  return r;
}

}  // namespace rapt
