// SPDX-License-Identifier: Apache-2.0
// The gated delta rule: projections, short convolutions, a state per value head, a gated norm. Fields, rules
// and drawing: recipe/parts; formulas: ops/delta.h.
#pragma once
#include "rapt/nn/parts/part.h"
#include "rapt/ops/delta.h"

namespace rapt {

namespace site {

// Axes: K key heads, D their channels, H value heads, V their channels.
inline constexpr Site delta_in{"delta_in"};  // what it reads, after its norm                          [T,C]
// Results of the convolutions, before the activation                                                  [T,KD]
// …
inline constexpr Site delta_q_conv{"delta_q_conv"}, delta_k_conv{"delta_k_conv"},
    delta_v_conv{"delta_v_conv"};
inline constexpr Site delta_q{"delta_q"}, delta_k{"delta_k"};  // of length 1                          [T,K,D]
inline constexpr Site delta_v{"delta_v"};  // [T,H,V]
inline constexpr Site delta_decay{"delta_decay"};  // g: e^g of the state stays            [T,H]
inline constexpr Site delta_beta{"delta_beta"};  // how much of the new is written       [T,H]
inline constexpr Site delta_state_norm{"delta_state_norm"};  // |S| after the row; no edits          [T,H]
inline constexpr Site delta_read{"delta_read"};  // S^T q, scaled                        [T,H,V]
inline constexpr Site delta_z{"delta_z"};  // the gate, before its activation      [T,HV]
inline constexpr Site delta_gated{"delta_gated"};  // what the last matrix reads           [T,HV]
inline constexpr Site delta_out{"delta_out"};  // [T,C]

}  // namespace site

struct Delta {
  DeltaRecipe recipe;
  GatedDeltaSpec spec;
  LinearLayer q, k, v, z, b, a, out;
  const Weight *q_conv = nullptr, *k_conv = nullptr, *v_conv = nullptr;  // [channels, kernel]
  const Weight *a_log = nullptr, *dt_bias = nullptr;  // [H]
  std::optional<NormLayer> norm;
  int slot = 0;  // where the cache keeps its rows and states
};

inline void build_shared(PartBuilder&, const DeltaRecipe&) {}
Delta build(PartBuilder& builder, const DeltaRecipe& r);
inline std::optional<CachedKeys> cached_keys(const Delta&) { return std::nullopt; }
std::optional<CachedChunks> cached_chunks(const Delta& d);
inline void prepare(Run&, Pass&, const Delta&) {}
Tensor run_part(Run& run, const Delta& d, const Tensor& input, const Pass& pass, Sum& sum);
std::span<const PartPoint<Delta>> part_points(Of<Delta>);
Dim axis_size(const Delta& d, char axis);
PartCost cost(const Delta& d, Dim context);

}  // namespace rapt
