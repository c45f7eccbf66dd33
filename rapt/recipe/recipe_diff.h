// SPDX-License-Identifier: Apache-2.0
// Where two recipes differ, field by field.
#pragma once
#include <string>
#include <vector>

#include "rapt/recipe/recipe.h"

namespace rapt {

struct Difference {
  std::string path, a, b;  // values as JSON, or "absent"
};
std::vector<Difference> diff_recipes(const Recipe& a, const Recipe& b);  // name and note do not count

}  // namespace rapt
