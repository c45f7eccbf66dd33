// SPDX-License-Identifier: Apache-2.0
// sum_j a_ij (v_j + b_v) = sum_j a_ij v_j + b_v sum_j a_ij: where the weights of a row sum to one, a bias on
// the values is a bias on the output, b_o' = b_o + W_O b_v, whatever the attention does.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

void set_size(AttentionRig& rig, const char* name, const std::vector<double>& direction, double factor) {
  std::vector<double> scaled_values = direction;
  for (double& v : scaled_values) v *= factor;
  fill(rig.weight(name), scaled_values);
}

}  // namespace

LabResult value_bias(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  using Rig = AttentionRig;
  LabResult r;

  // Gradients: what b_v learns is what b_o would, seen through W_O.
  Rig rig(f64, {}, lab.seed);
  const std::vector<double> g_v = rig.gradient("v.bias"), g_o = rig.gradient("o.bias");
  std::vector<double> through(g_v.size());
  for (Dim h = 0; h < Rig::kHeads; ++h)
    for (Dim d = 0; d < Rig::kHeadDim; ++d)
      for (Dim c = 0; c < Rig::kWidth; ++c)
        through[static_cast<std::size_t>(h / (Rig::kHeads / Rig::kKvHeads) * Rig::kHeadDim + d)] +=
            rig.weight("o.weight").get(c, h * Rig::kHeadDim + d) * g_o[static_cast<std::size_t>(c)];
  const double same_gradient = largest_difference(g_v, through);

  // Values: plain rows, and rows that do not sum to one.
  struct Kind {
    Text name;
    AttnRecipe attn;
    bool sums_to_one;
  };
  AttnRecipe off, sigmoid, gated, rope;
  off.extra.kind = ExtraRecipe::Kind::zero_logit;
  sigmoid.normal = Normal::sigmoid;
  gated.gate = {{}};
  rope.pos.kind = PosRecipe::Kind::rope;
  const Kind kinds[] = {{say("lab.value-bias.k.softmax"), {}, true},
                        {say("lab.value-bias.k.rope"), rope, true},
                        {say("lab.value-bias.k.off_by_one"), off, false},
                        {say("lab.value-bias.k.sigmoid"), sigmoid, false},
                        {say("lab.value-bias.k.gate"), gated, false}};
  Table t{
      .title = say("lab.value-bias.table"),
      .columns = {say("lab.value-bias.attention"), say("lab.value-bias.sums"), say("lab.value-bias.change")},
      .rows = {}};
  double folds = 0, does_not = HUGE_VAL;
  for (const Kind& k : kinds) {
    Rig one(f64, k.attn, mix_key(lab.seed, 7));
    double low = HUGE_VAL, high = 0;
    for (const std::vector<double>& row : one.weights(0)) {
      double sum = 0;
      for (double w : row) sum += w;
      low = std::min(low, sum), high = std::max(high, sum);
    }
    const std::vector<double> before = one.out();
    one.fold_value_bias();
    const double change = largest_difference(one.out(), before);
    if (k.sums_to_one) folds = std::max(folds, change);
    else does_not = std::min(does_not, change);
    t.rows.push_back({k.name,
                      low > high - 1e-12 ? Text(digits(low, 3))
                                         : say("lab.value-bias.from_to", digits(low, 3), digits(high, 3)),
                      Cell(change)});
  }

  // What each bias does to the output as it grows from nothing, all three in random directions.
  Chart chart{.title = say("lab.value-bias.chart"),
              .x_label = say("lab.value-bias.size"),
              .y_label = say("lab.value-bias.relative")};
  Rig all(f64, {}, mix_key(lab.seed, 9));
  const char* names[] = {"q.bias", "k.bias", "v.bias"};
  std::vector<std::vector<double>> directions;
  for (const char* n : names)
    directions.push_back(values_of(all.weight(n))), set_size(all, n, directions.back(), 0);
  const std::vector<double> without = all.out();
  double at_key[3] = {}, most[3] = {};
  for (std::size_t b = 0; b < 3; ++b) {
    Curve c{.name = concat("b_", names[b][0]), .x = {}, .y = {}};
    for (double size = 0; size <= 16; size = size == 0 ? 0.25 : size * 2) {
      set_size(all, names[b], directions[b], size);
      c.x.push_back(size);
      c.y.push_back(relative_difference(all.out(), without));
      if (size == 2) at_key[b] = c.y.back();
      most[b] = std::max(most[b], c.y.back());
    }
    set_size(all, names[b], directions[b], 0);
    chart.curves.push_back(std::move(c));
  }

  r.findings = {
      below(say("lab.value-bias.f.gradient"), same_gradient, 1e-10, ""),
      below(say("lab.value-bias.f.folds"), folds, 1e-10, ""),
      above(say("lab.value-bias.f.does_not"), does_not, 1e-3, ""),
      above(say("lab.value-bias.f.over_q"), at_key[2] / at_key[0], 1, "x", say("lab.value-bias.p.over_q"),
            false),
      below(say("lab.value-bias.f.key"), most[1], 1e-10, ""),
  };
  r.verdict =
      all_hold(r.findings)
          ? sentences({say("lab.value-bias.v.half"),
                       say("lab.value-bias.v.sizes", digits(100 * at_key[2], 0), digits(100 * at_key[0], 0))})
          : say("lab.value-bias.v.not");
  r.document.parts.push_back(std::move(chart));
  r.document.parts.push_back(std::move(t));
  return r;
}

}  // namespace rapt
