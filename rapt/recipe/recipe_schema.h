// SPDX-License-Identifier: Apache-2.0
// docs/recipe.md, from the lists of fields.
#pragma once
#include <string>

namespace rapt {

std::string recipe_schema();

}  // namespace rapt
