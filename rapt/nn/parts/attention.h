// SPDX-License-Identifier: Apache-2.0
// Attention around the fused op: project, gate, norm, rotate, cache, attend, gate, project. Fields, rules
// and drawing: recipe/parts.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "rapt/nn/parts/part.h"
#include "rapt/ops/attention.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/rope.h"

namespace rapt {

namespace site {

// what is projected, after the part's norm                          [T,C]
inline constexpr Site attn_in{"attn_in"};
// Projected, with their bias      [T,H,D] [S,K,D] [S,K,Dv]; latent: [T,H,n+r], the latent before its norm
// beside the key that turns [S,1,R+r], none.
inline constexpr Site q_proj{"q_proj"}, k_proj{"k_proj"}, v_proj{"v_proj"};
inline constexpr Site q_normed{"q_normed"}, k_normed{"k_normed"};            // after their norm
// As the attention reads them                                   [T,H,D] [S,K,D] [S,K,Dv].
inline constexpr Site q{"q"}, k{"k"}, v{"v"};
inline constexpr Site latent{"latent"}, q_latent{"q_latent"};  // what keys and values, and queries, are made
    // of, after their norms  [S,R] [T,Q]
inline constexpr Site z{"z"};  // attention result after its gate or norm                       [T,H,Dv]
// After the output projection                                   [T,C].
inline constexpr Site attn_out{"attn_out"};
// Values of the gate at a place: before their activation, and after it (an edit has no effect
// there) [T,…]
constexpr Site gate_in(GateRecipe::At at) {
  constexpr Site kAll[] = {Site{"gate_in.sdpa"}, Site{"gate_in.q"}, Site{"gate_in.k"}, Site{"gate_in.v"},
                           Site{"gate_in.out"}};
  return kAll[static_cast<std::size_t>(at)];
}
constexpr Site gate(GateRecipe::At at) {
  constexpr Site kAll[] = {Site{"gate.sdpa"}, Site{"gate.q"}, Site{"gate.k"}, Site{"gate.v"},
                           Site{"gate.out"}};
  return kAll[static_cast<std::size_t>(at)];
}

}  // namespace site

struct GateLayer {
  GateRecipe::At at = GateRecipe::At::sdpa;
  GateSpec spec;
  const Weight* w = nullptr;  // from the input: [n, C]
  const Weight* value = nullptr;  // constant: [1, n]
};

// Vectors of distances, of which the layer's own projections make keys and queries (DeBERTa).
struct RelativeLayer {
  RelativeRecipe recipe;
  const Weight* table = nullptr;  // [2 * buckets, C], the stack's
  std::optional<NormLayer> norm;
};

// Keys made of the sinusoids of distances, and what queries add before they meet keys of tokens, u, and of
// distances, v (Transformer-XL).
struct DistanceLayer {
  const Weight *keys, *content, *distance;  // [K*D,C]; u and v: [1,H*D]
};

// Latent attention (MLA), absorbed: a head's query takes the head's key matrix, so that the latent itself is
// the key of all heads, and its value. The result of a head is then a sum of latents, of which the head's
// value matrix makes the head's own. [c | k_r] is what the cache keeps.
//   q~_h = W_k,h q_n,h     score = (q~_h . c + q_r,h . k_r) scale     z_h = W_v,h (sum_j p_j c_j)
struct LatentLayer {
  Dim rank, rope_dim, nope, v_dim;  // R, r, n, v
  LinearLayer q_a;  // absent: queries come straight from the input
  std::optional<NormLayer> q_norm, norm;
  std::vector<Projection> k, v;  // of each head: [R,n], [v,R]
};

struct Attention {
  // Of the fused op. Latent: one kv head with keys [c | k_r], whose first channels are the values.
  AttentionSpec spec;
  Mask mask;
  LinearLayer q, k, v, o;  // latent: q of the queries' latent or the input, k makes [c | k_r], no v
  std::optional<LatentLayer> latent;
  std::optional<NormLayer> q_norm, k_norm, v_norm, z_norm;
  bool norm_full = false;  // q_norm and k_norm over the whole projection
  bool norm_after_pos = false;  // … and after RoPE
  bool cosine = false;  // unit q and k
  std::optional<RopeSpec> rope;
  std::optional<double> grid;  // theta of the rotation by a patch's row and column
  std::optional<RelativeLayer> relative;
  std::optional<DistanceLayer> distance;
  std::array<std::optional<GateLayer>, 5> gate;  // by GateRecipe::At
  const Weight *scale = nullptr, *extra_logit = nullptr, *slot_k = nullptr, *slot_v = nullptr,
               *buckets = nullptr;
  const Weight *score = nullptr, *general = nullptr;
  double scale_max = 0;
  double clip = 0;
  std::optional<TemperatureRecipe> temperature;
  Dim turned() const { return latent ? latent->rope_dim : spec.head_dim; }  // channels that RoPE may turn
  // Of a projected query head, and of a head of attention's result.
  Dim q_dim() const { return latent ? latent->nope + latent->rope_dim : spec.head_dim; }
  Dim z_dim() const { return latent ? latent->v_dim : spec.v_dim; }
  int slot = 0;  // its number among the attention parts of the stack: where the cache keeps its keys

  const std::optional<GateLayer>& gate_at(GateRecipe::At at) const {
    return gate[static_cast<std::size_t>(at)];
  }
};

void build_shared(PartBuilder& builder, const AttnRecipe& a);
Attention build(PartBuilder& builder, const AttnRecipe& a);
std::optional<CachedKeys> cached_keys(const Attention& a);
inline std::optional<CachedChunks> cached_chunks(const Attention&) { return std::nullopt; }
void prepare(Run& run, Pass& pass, const Attention& a);
Tensor run_part(Run& run, const Attention& a, const Tensor& input, const Pass& pass, Sum& sum);
std::span<const PartPoint<Attention>> part_points(Of<Attention>);
Dim axis_size(const Attention& a, char axis);
PartCost cost(const Attention& a, Dim context);

void see_gates(Taps& taps, const Taps::See& f);  // whatever their place

// x [T,H,D] * act(W input), x + act(W input), or with a constant in the place of W input.
Tensor apply(Run& run, const std::optional<GateLayer>& gate, const Tensor& input, const Tensor& x,
             Tapped::Rows rows = Tapped::Rows::own);
// W x of queries and of keys, with their biases.
Tensor project_queries(Run& run, const Attention& a, const Tensor& x);
Tensor project_keys(Run& run, const Attention& a, const Tensor& source);
// Projected queries of the rows x, which stand at `position`, and keys of `source`, as the attention reads
// them: gated, normed, turned by `table` (without one: as they are). `kept`, where given, turns the queries
// to where they stand towards the kept first keys: *q_kept.
Tensor finish_queries(Run& run, const Attention& a, const Tensor& x, const Tensor& projected,
                      std::span<const std::int32_t> position, const RopeTable& table,
                      const RopeTable& kept = {}, Tensor* q_kept = nullptr);
Tensor finish_keys(Run& run, const Attention& a, const Tensor& source, const Tensor& projected,
                   const RopeTable& table);

// The terms of relative positions in scores, a dense bias for the attention of rows q to keys k as they
// stand in the plan; absent where the part has none. And queries as keys of tokens meet them: Transformer-XL
// adds a vector of each head.
Tensor relative_bias(Run& run, const Attention& a, const Tensor& q, const Tensor& k, const RowPlan& plan);
Tensor content_queries(Run& run, const Attention& a, const Tensor& q);

// input [T,C] -> z [T, H*Dv], before the output projection.
Tensor attend(Run& run, const Attention& a, const Tensor& input, const Pass& pass);

}  // namespace rapt
