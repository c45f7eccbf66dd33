// SPDX-License-Identifier: Apache-2.0
// The files of recipe/presets/ and load/families/, carried inside the program. The tables are generated at
// build time (cmake/presets.cmake).
#pragma once
#include <span>
#include <string_view>

namespace rapt {

struct PresetFile {
  std::string_view name, json;
};
std::span<const PresetFile> preset_files();
std::span<const PresetFile> family_files();  // sorted by name

}  // namespace rapt
