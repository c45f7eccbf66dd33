// SPDX-License-Identifier: Apache-2.0
// Any bytes as a recipe: they parse or end in rapt::Error, and what parses survives being written and
// read again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rapt/recipe/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const rapt::Recipe recipe = rapt::parse_recipe({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!(rapt::parse_recipe(rapt::recipe_json(recipe), "again") == recipe)) std::abort();
    rapt::resolve(recipe);
  } catch (const rapt::Error&) {}
  return 0;
}
