// SPDX-License-Identifier: Apache-2.0
// What lies in a folder. Not std::filesystem's iterators and remove_all: libstdc++ ends the program where
// they find no memory.
#pragma once
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace rapt {

// Folder/name of everything in it, sorted, without . and ..; empty with an error where it cannot be read.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder, std::error_code& error);
// A file, or a folder and all that is in it; links are removed, not followed. Absent is no error.
void remove_tree(const std::filesystem::path& path, std::error_code& error);

}  // namespace rapt
