// SPDX-License-Identifier: Apache-2.0
// The lists of fields for people and for programs: docs/recipe.md, and data that a form is made of.
#pragma once
#include <string>
#include <string_view>

#include "rapt/base/json.h"

namespace rapt {

std::string recipe_schema();  // docs/recipe.md

// {"structs": {"Attention": {"about", "words", "fields": [field …] | "options": [option …]}, …},
//  "parts": {"self": "Attention", …}}       names of parts, and the struct whose fields join those of Part
//   field   {"name", "meaning", "default", "required"} and a shape; default: absent where it is a struct's
//   shape   {"kind": "bool" | "text"} | {"kind": "whole" | "number", "low", "high", "above", "below",
//           "nonzero"} | {"kind": "word", "words"} | {"kind": "struct", "of"} |
//           {"kind": "list", "of": shape} | {"kind": "letters", "of"} | {"kind": "choice", "options"};
//           "absent": null is a value, too
//   option  {"name", "meaning", "form": "word"}, with "inside": shape where form is "number" (the number
//           itself) or "body" ({name: …}), with "fields" where it is "group"
//   words   names that stand for a whole struct
// lang: of the lines of meaning, where recipe/help/ has a line for a field; "en" is what the code says.
Json recipe_schema_data(std::string_view lang = "en");

}  // namespace rapt
