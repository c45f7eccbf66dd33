// SPDX-License-Identifier: Apache-2.0
// What a recipe amounts to: sizes, costs, a drawing, differences. Computed from the recipe alone, apart from the model's own list of
// weights (a test compares the two).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "rapt/nn/recipe.h"

namespace rapt {

struct ParameterCount {
  std::vector<std::pair<std::string, Dim>> groups;  // "embedding", "encoder attention", …; only those that are there
  Dim total = 0;                                    // a tied matrix counts once; running statistics of batch norm are no parameters
  Dim matrices = 0;                                 // in matrices every token is multiplied with (a tied head included, embedding look-ups not)
};
// Of a resolved recipe; sizes whose product overflows are an error.
ParameterCount count_parameters(const Recipe& recipe);

struct Cost {
  Dim kv_values = 0;         // numbers of keys and values kept per token (all layers, self-attention of the stack that generates)
  Dim kv_bounded = 0;        // … of which in layers that forget (window or chunk)
  Dim memory_values = 0;     // per source token: keys and values of cross-attention
  double flops_matrices = 0; // per token: 2 per weight of a matrix
  double flops_attention = 0;// per token at the given context: scores and weighted sums
};
Cost count_cost(const Recipe& recipe, Dim context);

// The drawing and the numbers, as text for people. `color` adds terminal colours.
std::string draw_recipe(const Recipe& resolved, bool color = false);
// One line per difference: "path: a -> b". Empty where the two are the same; name and note do not count.
std::vector<std::string> diff_recipes(const Recipe& a, const Recipe& b);
// docs/recipe.md: the table of fields.
std::string recipe_schema();

}  // namespace rapt
