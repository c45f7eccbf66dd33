// SPDX-License-Identifier: Apache-2.0
// A recipe for people: a block diagram, parameter counts and costs.
#pragma once
#include <string>

#include "rapt/recipe/recipe.h"
#include "rapt/report/text.h"

namespace rapt {

// Of a resolved recipe, in `width` columns of a terminal (at most 100). `color` adds its colours.
std::string draw_recipe(const Recipe& recipe, bool color = false, Dim width = 100);

// The same as a picture: blocks from the embedding to the head, norms, gates and positions where they stand,
// then the heads and groups of each attention.
std::string recipe_svg(const Recipe& recipe, Language language = Language::en);
// The same as formulas to paste into a note: align* blocks (amsmath, amssymb), sizes beside them.
std::string recipe_latex(const Recipe& recipe, Language language = Language::en);

}  // namespace rapt
