// SPDX-License-Identifier: Apache-2.0
// Where two recipes differ, field by field; and other values likewise.
#pragma once
#include <string>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

struct Difference {
  std::string path, a, b;  // values as JSON, or "absent"
};
std::vector<Difference> diff_recipes(const Recipe& a, const Recipe& b);  // name and note do not count
std::vector<Difference> diff_values(const Json& a, const Json& b);

}  // namespace rapt
