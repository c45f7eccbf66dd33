// SPDX-License-Identifier: Apache-2.0
// Recurrent stacks before they are built: rules between fields, and sizes that follow from them.
#pragma once
#include <string>

#include "rapt/recipe/recipe.h"

namespace rapt {

// Rules between the fields of a recurrent stack and the model; fills in what 0 stands for. Encoder first.
void resolve_recurrent(Recipe& recipe, StackRecipe& stack, const std::string& path, bool decoder);
// Sizes that rules and weights share.
Dim gates_of(const RecurrentRecipe& r);
bool is_additive(const AlignRecipe& a);
Dim memory_width(const Recipe& recipe);
Dim readout_width(const Recipe& recipe, const AlignRecipe& a);

}  // namespace rapt
