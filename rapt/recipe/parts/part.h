// SPDX-License-Identifier: Apache-2.0
// What a kind of part is to the rest of the recipe. Each has a header beside this one, with a struct of its
// fields and
//   fields(Of<X>, visitor)                   its fields (recipe/fields.h)
//   part_names(Of<X>)                        what it is called: one PartName, or one for each way it is used
//   name_index(x), set_name(x, i)            which of them
//   is_causal(x), reads_memory(x)            how it looks at rows
//   resolve(x, place)                        its rules; fills in what 0 stands for
//   draw(drawing, x, width, stream)          its lines of the drawing
//   x.dropout, ==                          its own dropout (0: none), under a key other than the part's
// and its place in AnyPartRecipe (recipe.h). Whoever asks does so through std::visit: a kind that lacks one
// of these does not compile. Its other half, with weights and a forward: nn/parts.
#pragma once
#include <string>
#include <string_view>

#include "rapt/ops/activation.h"
#include "rapt/recipe/fields.h"

namespace rapt {

struct Recipe;
class Drawing;

// softcap and scale of the enum are no activations of a network: a recipe cannot say them.
RAPT_NAMES(Act, "relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "sigmoid", "ns_sigmoid",
           "softplus", "tanh")

struct PartName {
  std::string_view word;          // in JSON and names of weights: "self"
  std::string_view title;         // for people: "self-attention"
  std::string_view group;         // in counts of parameters: "attention"
  std::string_view prefix, stem;  // of its points: cross_q, attn_in (inspect/sites.h)
};

// Where a part stands, for its rules.
struct PartPlace {
  const Recipe& recipe;
  std::string path;  // for messages
  bool decoder;
};

}  // namespace rapt
