// SPDX-License-Identifier: Apache-2.0
// Weights, forward, what can be seen, costs.
#include "rapt/nn/parts/conv.h"

#include "rapt/nn/kv_pool.h"
#include "rapt/nn/sites.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/short_conv.h"

namespace rapt {

Conv build(PartBuilder& builder, const ConvRecipe& r) {
  WeightTable& table = builder.table;
  const std::string& name = builder.name;
  const Dim C = builder.recipe.width;
  Conv out;
  out.recipe = r;
  out.b = build_linear(table, name + ".b", C, C, r.bias);
  out.c = build_linear(table, name + ".c", C, C, r.bias);
  out.u = build_linear(table, name + ".u", C, C, r.bias);
  out.mix = table.table(name + ".mix", C, r.kernel);
  if (r.bias) out.mix_bias = table.vector(name + ".mix.bias", C, 0);
  out.out = build_linear(table, name + ".out", C, C, r.bias);
  out.slot = builder.slots++;
  return out;
}

std::optional<CachedChunks> cached_chunks(const Conv& c) {
  return CachedChunks{c.slot, c.mix->rows, c.mix->rows, 0};
}

// ------------------------------------------------------------------------------------------------ forward
namespace {

Tensor product(Run& run, const Tensor& x, const Tensor& y) {  // [T,C] each
  return gate(run, {.act = Act::scale}, x.reshape({x[0], 1, x[1]}), y).reshape({x[0], x[1]});
}

}  // namespace

Tensor run_part(Run& run, const Conv& c, const Tensor& input, const Pass& pass, Sum& sum) {
  const Tensor x = tap(run, site::conv_in, input);
  Tensor p[3];
  const Projection parts[] = {{c.b.w, c.b.b}, {c.c.w, c.c.b}, {c.u.w, c.u.b}};
  project(run, x, parts, p);
  const Tensor inputs = tap(run, site::conv_input, product(run, p[0], p[2]));
  Tensor before;
  if (pass.cache) {
    before = pass.cache->rows_before(run, c.slot, pass.sequences, 0, inputs[1], c.mix->cols - 1);
    pass.cache->write_rows(c.slot, pass.sequences, 0, inputs);
  }
  const Tensor mixed =
      tap(run, site::conv_mixed, short_conv(run, inputs, *c.mix, c.mix_bias, pass.sequences, before));
  Tensor y = product(run, mixed, tap(run, site::conv_gate, p[1]));
  y = dropout(run, y, c.recipe.dropout, random_site(run, 1));
  y = last_product(run, c.out, y, sum, site::conv_out);
  return sum.done ? y : tap(run, site::conv_out, y);
}

// ----------------------------------------------------------------------------------------- what can be seen
namespace {

// clang-format off
const PartPoint<Conv> kPoints[] = {
  {"conv_norm_scale", site::resid_in, "T1", "", nullptr, PointKind::norm_scale, kComputedBeside},
  {"conv_normalized", site::resid_in, "TC", "", nullptr, PointKind::normalized, kComputedBeside},
  {"conv_in", site::conv_in, "TC", ""},
  {"conv_input", site::conv_input, "TC", ""},
  {"conv_mixed", site::conv_mixed, "TC", ""},
  {"conv_gate", site::conv_gate, "TC", ""},
  {"conv_out", site::conv_out, "TC", ""},
  {"conv_out_post", site::part_out, "TC", ""},
};
// clang-format on

}  // namespace

std::span<const PartPoint<Conv>> part_points(Of<Conv>) { return kPoints; }

PartCost cost(const Conv& c, Dim) {
  PartCost out;
  for (const LinearLayer* l : {&c.b, &c.c, &c.u, &c.out}) out.matrices += operations(l->w);
  out.matrices += operations(c.mix);
  out.state_values = 2 * kPageKeys * c.mix->rows;
  return out;
}

}  // namespace rapt
