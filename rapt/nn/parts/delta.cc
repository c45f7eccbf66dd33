// SPDX-License-Identifier: Apache-2.0
// Weights, forward, what can be seen, costs.
#include "rapt/nn/parts/delta.h"

#include <cmath>

#include "rapt/nn/kv_pool.h"
#include "rapt/nn/sites.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/norm.h"
#include "rapt/ops/short_conv.h"

namespace rapt {

Delta build(PartBuilder& builder, const DeltaRecipe& r) {
  WeightTable& table = builder.table;
  const std::string& name = builder.name;
  const Dim C = builder.recipe.width, keys = r.key_heads * r.key_dim, values = r.value_heads * r.value_dim;
  Delta out;
  out.recipe = r;
  out.spec = {r.key_heads,
              r.value_heads,
              r.key_dim,
              r.value_dim,
              1 / std::sqrt(static_cast<double>(r.key_dim)),
              r.share == DeltaRecipe::Share::turns};
  out.q = build_linear(table, name + ".q", keys, C, false);
  out.k = build_linear(table, name + ".k", keys, C, false);
  out.v = build_linear(table, name + ".v", values, C, false);
  out.z = build_linear(table, name + ".z", values, C, false);
  out.b = build_linear(table, name + ".b", r.value_heads, C, false);
  out.a = build_linear(table, name + ".a", r.value_heads, C, false);
  out.q_conv = table.table(name + ".q_conv", keys, r.conv);
  out.k_conv = table.table(name + ".k_conv", keys, r.conv);
  out.v_conv = table.table(name + ".v_conv", values, r.conv);
  out.a_log = table.vector(name + ".a_log", r.value_heads, 0);
  // Half of a state is forgotten after 14 rows at the start.
  out.dt_bias = table.vector(name + ".dt_bias", r.value_heads, -3);
  out.norm = build_norm(table, r.norm, name + ".norm", r.value_dim);
  out.out = build_linear(table, name + ".out", C, values, false);
  out.slot = builder.slots++;
  return out;
}

std::optional<CachedChunks> cached_chunks(const Delta& d) {
  const Dim inputs = d.q.w->rows + d.k.w->rows + d.v.w->rows;
  return CachedChunks{d.slot, inputs, inputs + d.spec.row_values(), d.spec.state_values()};
}

// ------------------------------------------------------------------------------------------------ forward
namespace {

// act(conv(x)): `first` is where x stands among the convolved channels of a row in the cache.
Tensor mixed(Run& run, const Delta& d, const Pass& pass, const Tensor& x, const Weight& conv, Dim first,
             Site site) {
  Tensor before;
  if (pass.cache) {
    before = pass.cache->rows_before(run, d.slot, pass.sequences, first, x[1], conv.cols - 1);
    pass.cache->write_rows(d.slot, pass.sequences, first, x);
  }
  const Tensor y = tap(run, site, short_conv(run, x, conv, nullptr, pass.sequences, before));
  return activation(run, d.recipe.act, y);
}

Tensor of_length_one(Run& run, const Delta& d, const Tensor& x) {
  const GatedDeltaSpec& s = d.spec;
  return norm(run, {NormKind::l2, d.recipe.eps, false}, x.reshape({x[0], s.key_heads, s.key_dim}), nullptr);
}

}  // namespace

Tensor run_part(Run& run, const Delta& d, const Tensor& input, const Pass& pass, Sum& sum) {
  const GatedDeltaSpec& s = d.spec;
  const Tensor x = tap(run, site::delta_in, input);
  const Dim T = x[0], keys = s.key_heads * s.key_dim, values = s.value_heads * s.value_dim;
  Tensor p[6];
  const Projection wide[] = {{d.q.w, nullptr}, {d.k.w, nullptr}, {d.v.w, nullptr}, {d.z.w, nullptr}},
                   narrow[] = {{d.b.w, nullptr}, {d.a.w, nullptr}};
  project(run, x, wide, {p, 4});
  project(run, x, narrow, {p + 4, 2});
  const Tensor q = mixed(run, d, pass, p[0], *d.q_conv, 0, site::delta_q_conv),
               k = mixed(run, d, pass, p[1], *d.k_conv, keys, site::delta_k_conv),
               v = mixed(run, d, pass, p[2], *d.v_conv, 2 * keys, site::delta_v_conv);
  GatedDeltaInputs in;
  in.q = tap(run, site::delta_q, of_length_one(run, d, q));                                    // [T,K,D]
  in.k = tap(run, site::delta_k, of_length_one(run, d, k));
  in.v = tap(run, site::delta_v, v.reshape({T, s.value_heads, s.value_dim}));                  // [T,H,V]
  in.beta = tap(run, site::delta_beta, activation(run, Act::sigmoid, p[4]));                   // [T,H]
  in.g = tap(run, site::delta_decay, decay(run, p[5], *d.a_log, *d.dt_bias));
  ChunkPages pages;
  if (pass.cache) pages = pass.cache->chunk_pages(d.slot);
  const bool shown = run.wants(site::delta_state_norm);
  Tensor norms;
  Tensor o = gated_delta(run, s, in, pass.sequences, pass.cache ? &pages : nullptr, shown ? &norms : nullptr);
  if (shown) tap(run, site::delta_state_norm, norms);
  o = apply(run, d.norm, tap(run, site::delta_read, o));
  const Tensor z = tap(run, site::delta_z, p[3]);
  Tensor y = gate(run, {.act = d.recipe.gate}, o, z).reshape({T, values});
  y = dropout(run, tap(run, site::delta_gated, y), d.recipe.dropout, random_site(run, 1));
  y = last_product(run, d.out, y, sum, site::delta_out);                                       // [T,C]
  return sum.done ? y : tap(run, site::delta_out, y);
}

// ----------------------------------------------------------------------------------------- what can be seen
namespace {

// Axes: K key heads, D key size, H value heads, V value size; q keys and v values of all heads side by side.
// clang-format off
const PartPoint<Delta> kPoints[] = {
  {"delta_norm_scale", site::resid_in, "T1", "", nullptr, PointKind::norm_scale, kComputedBeside},
  {"delta_normalized", site::resid_in, "TC", "", nullptr, PointKind::normalized, kComputedBeside},
  {"delta_in", site::delta_in, "TC", ""},
  {"delta_q_conv", site::delta_q_conv, "Tq", ""},
  {"delta_k_conv", site::delta_k_conv, "Tq", ""},
  {"delta_v_conv", site::delta_v_conv, "Tv", ""},
  {"delta_q", site::delta_q, "TKD", ""},
  {"delta_k", site::delta_k, "TKD", ""},
  {"delta_v", site::delta_v, "THV", ""},
  {"delta_decay", site::delta_decay, "TH", ""},
  {"delta_beta", site::delta_beta, "TH", ""},
  {"delta_state_norm", site::delta_state_norm, "TH", "", nullptr, PointKind::value, kComputedBeside},
  {"delta_read", site::delta_read, "THV", ""},
  {"delta_z", site::delta_z, "Tv", ""},
  {"delta_gated", site::delta_gated, "Tv", ""},
  {"delta_out", site::delta_out, "TC", ""},
  {"delta_out_post", site::part_out, "TC", ""},
};
// clang-format on

}  // namespace

std::span<const PartPoint<Delta>> part_points(Of<Delta>) { return kPoints; }

Dim axis_size(const Delta& d, char axis) {
  const GatedDeltaSpec& s = d.spec;
  switch (axis) {
    case 'K': return s.key_heads;
    case 'D': return s.key_dim;
    case 'H': return s.value_heads;
    case 'V': return s.value_dim;
    case 'q': return s.key_heads * s.key_dim;
    default: return s.value_heads * s.value_dim;
  }
}

// ------------------------------------------------------------------------------------------------ costs
PartCost cost(const Delta& d, Dim) {
  const GatedDeltaSpec& s = d.spec;
  PartCost c;
  for (const LinearLayer* l : {&d.q, &d.k, &d.v, &d.z, &d.b, &d.a, &d.out}) c.matrices += operations(l->w);
  c.matrices += operations(d.q_conv) + operations(d.k_conv) + operations(d.v_conv);
  // Of a row in the middle of its chunk: dots, sums of u, two products with the state, its share of moving
  // it.
  const double before = kChunkRows / 2, state = static_cast<double>(s.state_values());
  c.attention =
      4 * before * static_cast<double>(s.key_heads * s.key_dim + s.value_heads * s.value_dim) + 6 * state;
  const CachedChunks kept = *cached_chunks(d);
  c.state_values = kept.state_values + 2 * kChunkRows * kept.row_values;
  return c;
}

}  // namespace rapt
