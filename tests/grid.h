// SPDX-License-Identifier: Apache-2.0
// The option grid: small recipes in which every two options meet at least once, where the schema allows
// them to.
#pragma once
#include <string>
#include <vector>

#include "rapt/recipe/recipe.h"

namespace rapt::test {

struct GridCase {
  std::string name;  // the options it was made of
  Recipe recipe;     // resolved
};

// At least `count` legal recipes, the same ones every time; every pair of options that some legal recipe can
// hold is in one of them. Under a sanitizer only the first hundred.
const std::vector<GridCase>& option_grid(std::size_t count = 320);

}  // namespace rapt::test
