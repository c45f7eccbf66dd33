// SPDX-License-Identifier: Apache-2.0
// A norm of a recipe: fields and rules.
#pragma once
#include <optional>

#include "rapt/recipe/fields.h"

namespace rapt {

struct NormRecipe {
  enum class Kind { layer, rms, l2, batch };
  enum class Gain { none, one, plus_one };  // no weight; weight; weight stored minus one (Gemma)
  Kind kind = Kind::rms;
  double eps = 1e-6;
  Gain weight = Gain::one;
  bool bias = false;
  bool leaks_ok = false;  // batch norm in a causal model: training looks ahead, and that is meant
  bool operator==(const NormRecipe&) const = default;
};
RAPT_NAMES(NormRecipe::Kind, "layer", "rms", "l2", "batch")
RAPT_NAMES(NormRecipe::Gain, "none", "one", "plus_one")

inline std::vector<std::pair<std::string_view, NormRecipe>> shorthands(Of<NormRecipe>) {
  using Kind = NormRecipe::Kind;
  return {{"layer", {.kind = Kind::layer}},
          {"rms", {.kind = Kind::rms}},
          {"l2", {.kind = Kind::l2}},
          {"batch", {.kind = Kind::batch}}};
}

template <class V>
void fields(Of<NormRecipe>, V& v) {
  using T = NormRecipe;
  v.about(
      "Norm",
      "A norm of rows. The name of a kind alone stands for that kind with everything else at its default: "
      "`\"rms\"`.");
  v.field("kind", &T::kind,
          "layer: mean and deviation of the row; rms: root of the mean square; l2: length; batch: mean and "
          "deviation of each channel over "
          "the tokens of a batch");
  v.field("eps", &T::eps, "added under the root", kEps);
  v.field("weight", &T::weight, "gain per channel: none, a weight, or a weight stored minus one (Gemma)");
  v.field("bias", &T::bias, "shift per channel");
  v.field("leaks_ok", &T::leaks_ok,
          "batch norm in a causal stack: training then looks ahead, and that is meant");
}

// Fails where a norm cannot be what it says. `per_token`: it works inside one token, so batch norm has no
// sense there.
void check_norm(const NormRecipe& norm, const std::string& path, bool causal, bool per_token = false);
void check_norm(const std::optional<NormRecipe>& norm, const std::string& path, bool causal,
                bool per_token = false);
std::string norm_text(const NormRecipe& norm);  // for people: "rms, eps 1e-06"

}  // namespace rapt
