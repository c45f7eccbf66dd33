// SPDX-License-Identifier: Apache-2.0
// Files that tests read but the project does not ship: texts, tokenizer files, small models. RAPT_DATA names
// their folder; without it, ../shared/data beside the source tree. A test that misses its file is skipped,
// and scripts/test lists it:
//   const auto file = data_file("text/tinyshakespeare.txt");
//   if (!file) GTEST_SKIP() << no_data("text/tinyshakespeare.txt");
// Released models (scripts/get-models brings them) lie in the folders that RAPT_MODELS names, with ':'
// between them:
//   const auto model = model_file("gemma-3-270m-q4_k_m.gguf");
//   if (!model) GTEST_SKIP() << no_model("gemma-3-270m-q4_k_m.gguf");
#pragma once
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace rapt::test {

inline std::filesystem::path data_folder() {
  const char* set = std::getenv("RAPT_DATA");
  return set && *set ? std::filesystem::path(set)
                     : std::filesystem::path(RAPT_SOURCE_DIR) / ".." / "shared" / "data";
}

inline std::optional<std::filesystem::path> data_file(const std::string& name) {
  const std::filesystem::path path = data_folder() / name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return path;
}

inline std::string no_data(const std::string& name) {
  return "no " + name + " in the data folder; set RAPT_DATA to where it is";
}

inline std::optional<std::filesystem::path> model_file(const std::string& name) {
  const char* set = std::getenv("RAPT_MODELS");
  std::string folders = set ? set : "";
  while (!folders.empty()) {
    const std::size_t colon = std::min(folders.find(':'), folders.size());
    const std::filesystem::path path = std::filesystem::path(folders.substr(0, colon)) / name;
    std::error_code ignored;
    if (colon > 0 && std::filesystem::exists(path, ignored)) return path;
    folders.erase(0, colon + 1);
  }
  return std::nullopt;
}

inline std::string no_model(const std::string& name) {
  return "no " + name + " in the folders of RAPT_MODELS; scripts/get-models FOLDER brings it";
}

}  // namespace rapt::test
