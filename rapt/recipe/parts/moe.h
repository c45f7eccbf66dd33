// SPDX-License-Identifier: Apache-2.0
// The mixture of experts: a router sends each row to a few of many feed-forward nets, and their results are
// added, weighted. Fields, rules, drawing. Built and run by nn/parts/moe; routing in formulas: ops/route.h.
#pragma once
#include <optional>

#include "rapt/recipe/fields.h"
#include "rapt/recipe/parts/ffn.h"
#include "rapt/recipe/parts/part.h"

namespace rapt {

struct GroupsRecipe {
  enum class Score { max, top2 };
  Dim count = 1, used = 1;
  Score score = Score::top2;
  bool operator==(const GroupsRecipe&) const = default;
};
RAPT_NAMES(GroupsRecipe::Score, "max", "top2")

struct RouterRecipe {
  enum class Score { softmax, sigmoid };
  enum class Over { all, chosen };
  enum class Eps { added, least };
  enum class WeightAt { output, input };
  Score score = Score::softmax;
  Over over = Over::all;
  bool bias = false, choice_bias = false;
  std::optional<GroupsRecipe> groups;
  bool renormalise = true;
  double eps = 0;
  Eps eps_as = Eps::added;
  double scale = 1;
  WeightAt weight_at = WeightAt::output;
  bool operator==(const RouterRecipe&) const = default;
};
RAPT_NAMES(RouterRecipe::Score, "softmax", "sigmoid")
RAPT_NAMES(RouterRecipe::Over, "all", "chosen")
RAPT_NAMES(RouterRecipe::Eps, "added", "least")
RAPT_NAMES(RouterRecipe::WeightAt, "output", "input")

struct SharedExpertRecipe {
  Dim width = 0;  // 0: that of an expert
  bool gated = false;
  bool operator==(const SharedExpertRecipe&) const = default;
};

struct MoeRecipe {
  enum class Pooling { layer, stack };
  Dim experts = 0, used = 0;
  // Of one expert, as in FfnRecipe.
  FfnRecipe::Kind kind = FfnRecipe::Kind::glu;
  Act act = Act::silu;
  Dim width = 0;  // 0: 4 * model width
  bool bias = false;
  double clamp = 0, alpha = 1, up_offset = 0;
  double dropout = 0;  // on the hidden layers
  RouterRecipe router;
  std::optional<SharedExpertRecipe> shared;
  double balance = 0;
  Pooling balance_over = Pooling::layer;
  bool operator==(const MoeRecipe&) const = default;
};
RAPT_NAMES(MoeRecipe::Pooling, "layer", "stack")

template <class V>
void fields(Of<GroupsRecipe>, V& v) {
  using T = GroupsRecipe;
  v.about("Groups",
          "Experts in groups of equal size, of which a row uses some (DeepSeek): experts of other groups "
          "cannot be chosen.");
  v.field("count", &T::count, "how many groups; a divisor of experts", kCount);
  v.field("used", &T::used, "of these, how many a row may use", kCount);
  v.field(
      "score", &T::score,
      "of a group: its best expert's (DeepSeek V2; experts of other groups then count as 0), or the sum of "
      "its best two (V3, GLM-4.5; the others count as minus infinity)");
}

template <class V>
void fields(Of<RouterRecipe>, V& v) {
  using T = RouterRecipe;
  v.about("Router",
          "Which experts a row uses and how much each weighs: scores s of the logits z = W x (+ bias), the "
          "`used` largest of s + choice bias, the lowest index where two are equal.");
  v.field("score", &T::score, "s: softmax of z over all experts, or sigmoid of each z");
  v.field(
      "over", &T::over,
      "softmax over all experts, or over the chosen logits alone (Granite, gpt-oss): the same as all with "
      "renormalise, without its rounding");
  v.field("bias", &T::bias, "on the logits");
  v.field("choice_bias", &T::choice_bias,
          "a number per expert that is added to s for the choice and never weighs (DeepSeek V3, GLM-4.5, "
          "ERNIE); gets no gradient");
  v.field("groups", &T::groups, "choose groups of experts first");
  v.field("renormalise", &T::renormalise, "weights are divided by their sum over the chosen");
  v.field("eps", &T::eps, "of that sum", kNotNegative);
  v.field("eps_as", &T::eps_as,
          "sum + eps (DeepSeek V3: 1e-20), or the larger of sum and eps (ERNIE: 1e-12)");
  v.field("scale", &T::scale, "on the weights (DeepSeek: routed_scaling_factor)", kNonzero);
  v.field("weight_at", &T::weight_at,
          "the weight multiplies the expert's output, or its input, and the outputs are added as they are "
          "(Llama 4)");
}

template <class V>
void fields(Of<SharedExpertRecipe>, V& v) {
  using T = SharedExpertRecipe;
  v.about("SharedExpert", "A feed-forward net that every row uses, added to the chosen ones.");
  v.field("width", &T::width, "hidden width; 0: that of an expert", kSize);
  v.field("gated", &T::gated, "times sigmoid(w x), one number per row (Qwen2-MoE)");
}

template <class V>
void fields(Of<MoeRecipe>, V& v) {
  using T = MoeRecipe;
  v.about("Moe",
          "The fields of a `moe` part, beside those of every part. A row uses `used` of `experts` nets.");
  v.field("experts", &T::experts, "how many there are", kCount);
  v.field("used", &T::used, "how many a row uses", kCount);
  body_fields<T>(v);
  v.field("router", &T::router, "which ones, and their weights");
  v.field("shared", &T::shared, "one more that every row uses");
  v.field(
      "balance", &T::balance,
      "training: this times E * sum over experts e of f_e P_e is added to the loss, f_e the share of rows "
      "that chose e, P_e the mean of softmax(z)_e; `used` where all is even. 0: not at all",
      kNotNegative);
  v.field(
      "balance_over", &T::balance_over,
      "f and P of each layer, which adds its own (Switch Transformer), or of all rows of all layers of the "
      "stack together (Hugging Face; layers may then balance each other out)");
}

// What an expert is, by itself.
FfnRecipe expert_of(const MoeRecipe& m);

// ------------------------------------------------------------------------------------------------ as a part
constexpr auto part_names(Of<MoeRecipe>) {
  return std::array{PartName{"moe", "mixture of experts", "experts", "", "mlp"}};
}
inline std::size_t name_index(const MoeRecipe&) { return 0; }
inline void set_name(MoeRecipe&, std::size_t) {}
inline bool is_causal(const MoeRecipe&) { return false; }
inline bool reads_memory(const MoeRecipe&) { return false; }
void resolve(MoeRecipe& m, const PartPlace& place);
void draw(Drawing& d, const MoeRecipe& m, Dim width, const std::string& stream);

}  // namespace rapt
