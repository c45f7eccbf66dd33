// SPDX-License-Identifier: Apache-2.0
// The files of apps/web/, which the build puts into the program (cmake/assets.cmake).
#pragma once
#include <span>
#include <string_view>

namespace rapt {

struct WebFile {
  std::string_view name, text;  // "main.js", "views/heads.js"
};
std::span<const WebFile> web_files();

}  // namespace rapt
