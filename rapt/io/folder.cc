// SPDX-License-Identifier: Apache-2.0
// opendir and readdir, sorted by name. remove_tree goes depth first; what is gone already is no error.
#include "rapt/io/folder.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

namespace rapt {

std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder, std::error_code& error) {
  error.clear();
  std::vector<std::filesystem::path> out;
  struct Close {
    void operator()(DIR* d) const { ::closedir(d); }
  };
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  errno = open ? 0 : errno;
  while (open) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (!entry) break;
    if (const std::string_view name = entry->d_name; name != "." && name != "..")
      out.push_back(folder / name);
  }
  if (errno != 0) {
    error.assign(errno, std::generic_category());
    return {};
  }
  std::sort(out.begin(), out.end());
  return out;
}

void remove_tree(const std::filesystem::path& path, std::error_code& error) {
  error.clear();
  struct stat info{};
  const bool folder = ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (folder)
    for (const std::filesystem::path& p : paths_in(path, error)) {
      remove_tree(p, error);
      if (error) return;
    }
  if (error && error.value() != ENOENT) return;
  error.clear();
  if ((folder ? ::rmdir(path.c_str()) : ::unlink(path.c_str())) != 0 && errno != ENOENT)
    error.assign(errno, std::generic_category());
}

}  // namespace rapt
