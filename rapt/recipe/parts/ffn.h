// SPDX-License-Identifier: Apache-2.0
// The feed-forward part of a layer: fields, rules, drawing. Built and run by nn/parts/ffn.
#pragma once
#include "rapt/ops/activation.h"
#include "rapt/recipe/fields.h"
#include "rapt/recipe/parts/part.h"

namespace rapt {

struct FfnRecipe {
  enum class Kind { mlp, glu };
  Kind kind = Kind::glu;
  Act act = Act::silu;
  Dim width = 0;  // 0: 4 * model width
  bool bias = false;
  double clamp = 0, alpha = 1, up_offset = 0;  // gpt-oss
  double dropout = 0;  // on the hidden layer
  bool operator==(const FfnRecipe&) const = default;
};
RAPT_NAMES(FfnRecipe::Kind, "mlp", "glu")

// The fields of a feed-forward net, which an expert (moe.h) is, too.
template <class T, class V>
void body_fields(V& v) {
  v.field("kind", &T::kind, "down(act(up(x))), or gated: down(act(gate(x)) * up(x))");
  v.field("act", &T::act, "the activation; glu with silu is SwiGLU, with gelu_tanh GeGLU");
  v.field("width", &T::width, "hidden width; 0: 4 * the model's width", kSize);
  v.field("bias", &T::bias, "on every matrix");
  v.field("clamp", &T::clamp, "glu: gate at most this, up within plus and minus this; 0: free (gpt-oss: 7)",
          kNotNegative);
  v.field("alpha", &T::alpha, "glu with silu: x * sigmoid(alpha x) (gpt-oss: 1.702)", kPositive);
  v.field("up_offset", &T::up_offset, "glu: added to up (gpt-oss: 1)", kAnyNumber);
  v.field("ffn_dropout", &T::dropout, "on the hidden layer", kShare);
}
template <class V>
void fields(Of<FfnRecipe>, V& v) {
  v.about("Ffn", "The fields of an `ffn` part, beside those of every part.");
  body_fields<FfnRecipe>(v);
}

// ------------------------------------------------------------------------------------------------ as a part
constexpr auto part_names(Of<FfnRecipe>) {
  return std::array{PartName{"ffn", "feed-forward", "ffn", "", "mlp"}};
}
inline std::size_t name_index(const FfnRecipe&) { return 0; }
inline void set_name(FfnRecipe&, std::size_t) {}
inline bool is_causal(const FfnRecipe&) { return false; }
inline bool reads_memory(const FfnRecipe&) { return false; }
void resolve(FfnRecipe& f, const PartPlace& place);
void draw(Drawing& d, const FfnRecipe& f, Dim width, const std::string& stream);

}  // namespace rapt
