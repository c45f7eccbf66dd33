// SPDX-License-Identifier: Apache-2.0
// The gated delta rule as a part of a layer (Qwen3-Next, Qwen3.5): a state per head instead of keys and
// values of all tokens. Fields, rules, drawing. Built and run by nn/parts/delta; in formulas: ops/delta.h.
#pragma once
#include "rapt/recipe/norm_recipe.h"
#include "rapt/recipe/parts/part.h"

namespace rapt {

struct DeltaRecipe {
  // Which value heads have key head i, with r of them for each: neighbours, i r to i r + r - 1, or those in
  // turns, i, i + key_heads, i + 2 key_heads, …
  enum class Share { neighbours, turns };
  Dim key_heads = 8, value_heads = 0;  // 0: key_heads
  Share share = Share::neighbours;
  Dim key_dim = 0, value_dim = 0;  // 0: width / key_heads, key_dim
  Dim conv = 4;
  Act act = Act::silu;  // after the convolution
  double eps = 1e-6;  // of the length of q and k
  NormRecipe norm;  // of a head's result
  Act gate = Act::silu;
  double dropout = 0;  // on what the last matrix reads
  bool operator==(const DeltaRecipe&) const = default;
};

RAPT_NAMES(DeltaRecipe::Share, "neighbours", "turns")

template <class V>
void fields(Of<DeltaRecipe>, V& v) {
  using T = DeltaRecipe;
  v.about(
      "Delta",
      "The fields of a `delta` part, beside those of every part: the gated delta rule. q, k, v = act(conv(W "
      "x)), q and k of length 1 per head; a value head's state S [key_dim, value_dim] becomes e^g S + k u^T "
      "with u = sigmoid(b) (v - e^g S^T k) and g = -e^{a_log} softplus(a + dt_bias); the result norm(S^T q / "
      "sqrt(key_dim)) * gate(z) goes through one more matrix. z, b and a are matrices of x.");
  v.field("key_heads", &T::key_heads, "heads of q and k", kCount);
  v.field("value_heads", &T::value_heads, "heads of v, a multiple of key_heads; 0: key_heads", kSize);
  v.field(
      "share", &T::share,
      "which value heads have the same key head: neighbours, or every key_heads-th one (turns: GGUF files "
      "of Qwen3.5)");
  v.field("key_dim", &T::key_dim, "channels of a key; 0: width / key_heads", kSize);
  v.field("value_dim", &T::value_dim, "channels of a value; 0: key_dim", kSize);
  v.field("conv", &T::conv, "rows that the short convolution of q, k and v sees, its own included",
          Range{1, 64});
  v.field("act", &T::act, "after the convolution");
  v.field("eps", &T::eps, "added to the squared length of q and k", kEps);
  v.field("norm", &T::norm, "of each head's result");
  v.field("gate", &T::gate, "activation of z, which multiplies that");
  v.field("delta_dropout", &T::dropout, "on what the last matrix reads", kShare);
}

// ------------------------------------------------------------------------------------------------ as a part
constexpr auto part_names(Of<DeltaRecipe>) {
  return std::array{PartName{"delta", "gated delta rule", "delta rule", "", "delta"}};
}
inline std::size_t name_index(const DeltaRecipe&) { return 0; }
inline void set_name(DeltaRecipe&, std::size_t) {}
inline bool is_causal(const DeltaRecipe&) { return true; }
inline bool reads_memory(const DeltaRecipe&) { return false; }
void resolve(DeltaRecipe& r, const PartPlace& place);
void draw(Drawing& d, const DeltaRecipe& r, Dim width, const std::string& stream);

}  // namespace rapt
