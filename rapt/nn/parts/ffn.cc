// SPDX-License-Identifier: Apache-2.0
// Weights, forward, what can be seen, costs.
#include "rapt/nn/parts/ffn.h"

#include "rapt/nn/sites.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/linear.h"

namespace rapt {

Ffn build(PartBuilder& builder, const FfnRecipe& f) {
  const Dim C = builder.recipe.width;
  auto linear = [&](const char* name, Dim rows, Dim cols) {
    return build_linear(builder.table, builder.name + name, rows, cols, f.bias);
  };
  Ffn out;
  out.recipe = f;
  if (f.kind == FfnRecipe::Kind::glu) out.gate = linear(".gate", f.width, C);
  out.up = linear(".up", f.width, C);
  out.down = linear(".down", C, f.width);
  return out;
}

Tensor run_part(Run& run, const Ffn& f, const Tensor& input, const Pass&, Sum& sum) {
  const FfnRecipe& r = f.recipe;
  const Tensor x = tap(run, site::ffn_in, input);
  Tensor hidden;
  if (r.kind == FfnRecipe::Kind::glu) {
    Tensor both[2];
    const Projection parts[] = {{f.gate.w, f.gate.b}, {f.up.w, f.up.b}};
    project(run, x, parts, both);
    hidden = glu(run, {r.act, r.clamp, r.alpha, r.up_offset}, tap(run, site::ffn_pre, both[0]),
                 tap(run, site::ffn_linear, both[1]));
  } else {
    hidden = activation(run, r.act, tap(run, site::ffn_pre, linear(run, x, *f.up.w, f.up.b)));
  }
  hidden = tap(run, site::ffn_hidden, dropout(run, hidden, r.dropout, random_site(run, 1)));
  const Tensor y = last_product(run, f.down, hidden, sum, site::ffn_out);
  return sum.done ? y : tap(run, site::ffn_out, y);
}

// ----------------------------------------------------------------------------------------- what can be seen
namespace {

std::string no_glu(const Ffn& f) {
  return f.recipe.kind == FfnRecipe::Kind::glu ? ""
                                               : "its feed-forward parts have one projection only: mlp_pre";
}

// Axis F: hidden width.
// clang-format off
const PartPoint<Ffn> kPoints[] = {
  {"mlp_norm_scale", site::resid_in, "T1", "", nullptr, PointKind::norm_scale, kComputedBeside},
  {"mlp_normalized", site::resid_in, "TC", "", nullptr, PointKind::normalized, kComputedBeside},
  {"mlp_in", site::ffn_in, "TC", "mlp.hook_in"},
  {"mlp_pre", site::ffn_pre, "TF", "mlp.hook_pre mlp.gate.hook_out"},
  {"mlp_pre_linear", site::ffn_linear, "TF", "mlp.hook_pre_linear mlp.in.hook_out", no_glu},
  {"mlp_act", site::ffn_hidden, "TF", "mlp.hook_post mlp.out.hook_in"},
  {"mlp_out", site::ffn_out, "TC", "mlp.hook_out mlp.out.hook_out"},
  {"mlp_out_post", site::part_out, "TC", "hook_mlp_out"},
};
// clang-format on

}  // namespace

std::span<const PartPoint<Ffn>> part_points(Of<Ffn>) { return kPoints; }

PartCost cost(const Ffn& f, Dim) {
  return {.matrices = operations(f.gate.w) + operations(f.up.w) + operations(f.down.w)};
}

}  // namespace rapt
