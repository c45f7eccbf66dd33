// SPDX-License-Identifier: Apache-2.0
// The files of report/page/, which the build puts into the program (cmake/assets.cmake).
#pragma once
#include <span>
#include <string_view>

namespace rapt {

struct PageFile {
  std::string_view name, text;  // "main.js"
};
std::span<const PageFile> page_files();

}  // namespace rapt
