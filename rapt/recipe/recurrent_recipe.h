// SPDX-License-Identifier: Apache-2.0
// Recurrent stacks before they run: rules between fields, and how many weights they name.
#pragma once
#include <string>

#include "rapt/recipe/recipe.h"

namespace rapt {

// Rules between the fields of a recurrent stack and the model; fills in what 0 stands for. Encoder first.
void resolve_recurrent(Recipe& recipe, StackRecipe& stack, const std::string& path, bool decoder);
// Sizes of its matrices and vectors, for show.h.
struct RecurrentSize {
  Dim cells = 0, attention = 0, start = 0;  // parameters; attention: scores, place and readout
  double matrices = 0;                      // multiplications per token, times two
  double source = 0;                        // … per source token (keys)
  Dim memory = 0;                           // values kept per source token
  Dim state = 0;                            // values kept per sequence
};
// Sizes that rules, weights and costs share.
Dim gates_of(const RecurrentRecipe& r);
bool is_additive(const AlignRecipe& a);
Dim memory_width(const Recipe& recipe);
Dim readout_width(const Recipe& recipe, const AlignRecipe& a);
RecurrentSize recurrent_size(const Recipe& recipe, const RecurrentRecipe& r, bool decoder);

}  // namespace rapt
