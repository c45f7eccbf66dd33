// SPDX-License-Identifier: Apache-2.0
// Recipes over HTTP, under --lab: what `rapt show` says, as data. No model and no file is needed.
//
//   GET  /v1/recipe       (?lang=zh) {"presets": [{"name", "note", "parameters"}], "schema": recipe_schema.h}
//   POST /v1/recipe/show  a recipe      {"name", "written", "recipe", "whole", "drawing", "svg", "facts"}
//   POST /v1/recipe/diff  {"a", "b"}    {"differences": [{"path", "a", "b"}], "a": facts, "b": facts}
//
// A recipe is one of "text" (of a recipe's JSON; an error names line and column), "recipe" (the object) and
// "preset", with "settings" (["width=128", …]) and "lang" (of the picture). An error is a 400 whose param is
// the path of the field in the recipe, where there is one.
#pragma once
#include <string>
#include <string_view>

#include "rapt/base/json.h"

namespace rapt::server {

const std::string& recipe_catalogue(bool chinese);
std::string recipe_show(const Json& body);
std::string recipe_diff(const Json& body);

}  // namespace rapt::server
