// SPDX-License-Identifier: Apache-2.0
// Files that tests read but the project does not ship: texts, tokenizer files, small models. RAPT_DATA names their folder; without it,
// ../shared/data beside the source tree. A test that misses its file is skipped, and scripts/test lists it:
//   const auto file = data_file("text/tinyshakespeare.txt");
//   if (!file) GTEST_SKIP() << no_data("text/tinyshakespeare.txt");
#pragma once
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace rapt::test {

inline std::filesystem::path data_folder() {
  const char* set = std::getenv("RAPT_DATA");
  return set && *set ? std::filesystem::path(set) : std::filesystem::path(RAPT_SOURCE_DIR) / ".." / "shared" / "data";
}

inline std::optional<std::filesystem::path> data_file(const std::string& name) {
  const std::filesystem::path path = data_folder() / name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return path;
}

inline std::string no_data(const std::string& name) { return "no " + name + " in the data folder; set RAPT_DATA to where it is"; }

}  // namespace rapt::test
