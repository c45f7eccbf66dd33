// SPDX-License-Identifier: Apache-2.0
// The feed-forward part: up, activation or gated unit, down. Fields, rules and drawing: recipe/parts.
#pragma once
#include "rapt/nn/parts/part.h"

namespace rapt {

namespace site {

inline constexpr Site ffn_in{"ffn_in"};          // what it reads, after its norm                   [T,C]
inline constexpr Site ffn_pre{"ffn_pre"};        // before the activation                           [T,F]
inline constexpr Site ffn_linear{"ffn_linear"};  // of a gated unit: the factor without activation  [T,F]
inline constexpr Site ffn_hidden{"ffn_hidden"};  // [T,F]
inline constexpr Site ffn_out{"ffn_out"};        // [T,C]

}  // namespace site

struct Ffn {
  FfnRecipe recipe;
  LinearLayer gate, up, down;
};

inline void build_shared(PartBuilder&, const FfnRecipe&) {}
Ffn build(PartBuilder& builder, const FfnRecipe& f);
inline std::optional<CachedKeys> cached_keys(const Ffn&) { return std::nullopt; }
inline std::optional<CachedChunks> cached_chunks(const Ffn&) { return std::nullopt; }
inline void prepare(Run&, Pass&, const Ffn&) {}
Tensor run_part(Run& run, const Ffn& f, const Tensor& input, const Pass& pass, Sum& sum);
std::span<const PartPoint<Ffn>> part_points(Of<Ffn>);
inline Dim axis_size(const Ffn& f, char) { return f.up.w->rows; }  // F
PartCost cost(const Ffn& f, Dim context);

}  // namespace rapt
