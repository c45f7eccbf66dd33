// SPDX-License-Identifier: Apache-2.0
// The files of recipe/presets/, recipe/help/ and load/families/, carried inside the program. The tables are
// generated at build time (cmake/presets.cmake).
#pragma once
#include <span>
#include <string_view>

namespace rapt {

struct PresetFile {
  std::string_view name, json;
};
std::span<const PresetFile> preset_files();
// By language: "Struct.field" and what it means, in the words of people who speak it; English is in the code.
std::span<const PresetFile> recipe_help_files();
std::span<const PresetFile> family_files();  // sorted by name

}  // namespace rapt
