// SPDX-License-Identifier: Apache-2.0
// The gated short convolution: out(c * conv(b * u)). Fields, rules and drawing: recipe/parts.
#pragma once
#include "rapt/nn/parts/part.h"

namespace rapt {

namespace site {

inline constexpr Site conv_in{"conv_in"};        // what it reads, after its norm   [T,C]
inline constexpr Site conv_input{"conv_input"};  // b * u                           [T,C]
inline constexpr Site conv_mixed{"conv_mixed"};  // convolved                       [T,C]
inline constexpr Site conv_gate{"conv_gate"};    // c                               [T,C]
inline constexpr Site conv_out{"conv_out"};      // [T,C]

}  // namespace site

struct Conv {
  ConvRecipe recipe;
  LinearLayer b, c, u, out;
  const Weight *mix = nullptr, *mix_bias = nullptr;  // [C, kernel], [C]
  int slot = 0;                                      // where the cache keeps its rows
};

inline void build_shared(PartBuilder&, const ConvRecipe&) {}
Conv build(PartBuilder& builder, const ConvRecipe& r);
inline std::optional<CachedKeys> cached_keys(const Conv&) { return std::nullopt; }
std::optional<CachedChunks> cached_chunks(const Conv& c);
inline void prepare(Run&, Pass&, const Conv&) {}
Tensor run_part(Run& run, const Conv& c, const Tensor& input, const Pass& pass, Sum& sum);
std::span<const PartPoint<Conv>> part_points(Of<Conv>);
inline Dim axis_size(const Conv& c, char) { return c.out.w->rows; }
PartCost cost(const Conv& c, Dim context);

}  // namespace rapt
