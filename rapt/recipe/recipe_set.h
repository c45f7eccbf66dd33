// SPDX-License-Identifier: Apache-2.0
// Changes to a recipe from the command line: "width=128", "decoder.layers=4", "heads=4".
#pragma once
#include <span>
#include <string>

#include "rapt/base/json.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

// Each setting is KEY=VALUE. A key is a path of recipe.json ("decoder.kinds.L.parts[0].self.window"), or one
// of the short names that reach every place at once: layers, heads, kv_heads, head_dim, ffn, dropout,
// window. A value is JSON, or a word. Fails with the reason.
Recipe with_settings(const Recipe& recipe, std::span<const std::string> settings);

struct Setting {
  std::string key;
  Json value;
};
Setting parse_setting(const std::string& text);  // "a.b=1"

}  // namespace rapt
