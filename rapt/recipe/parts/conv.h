// SPDX-License-Identifier: Apache-2.0
// A gated short convolution as a part of a layer (LFM2). Fields, rules, drawing. Built and run by
// nn/parts/conv; in formulas: ops/short_conv.h.
#pragma once
#include "rapt/recipe/parts/part.h"

namespace rapt {

struct ConvRecipe {
  Dim kernel = 3;
  bool bias = false;
  double dropout = 0;  // on what the last matrix reads
  bool operator==(const ConvRecipe&) const = default;
};

template <class V>
void fields(Of<ConvRecipe>, V& v) {
  using T = ConvRecipe;
  v.about(
      "Conv",
      "The fields of a `conv` part, beside those of every part: a gated short convolution. b, c, u = W x, "
      "each as wide as the model; out(c * conv(b * u)), every channel convolved by itself along the rows.");
  v.field("kernel", &T::kernel, "rows that it sees, its own included", Range{1, 64});
  v.field("bias", &T::bias, "on every matrix and the convolution");
  v.field("conv_dropout", &T::dropout, "on what the last matrix reads", kShare);
}

// ------------------------------------------------------------------------------------------------ as a part
constexpr auto part_names(Of<ConvRecipe>) {
  return std::array{PartName{"conv", "short convolution", "convolution", "", "conv"}};
}
inline std::size_t name_index(const ConvRecipe&) { return 0; }
inline void set_name(ConvRecipe&, std::size_t) {}
inline bool is_causal(const ConvRecipe&) { return true; }
inline bool reads_memory(const ConvRecipe&) { return false; }
inline void resolve(ConvRecipe&, const PartPlace&) {}
void draw(Drawing& d, const ConvRecipe& r, Dim width, const std::string& stream);

}  // namespace rapt
