// SPDX-License-Identifier: Apache-2.0
// The least of MemAvailable, what each group above us leaves (pages of files do not count) and RLIMIT_AS.
#include "rapt/base/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>

namespace rapt {
namespace {

using Bytes = std::uint64_t;
constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

std::optional<Bytes> number_in(const std::string& path) {  // "max" is none
  std::ifstream in(path);
  Bytes n = 0;
  return in >> n ? std::optional(n) : std::nullopt;
}

// The number behind a word of a file of lines "word number …".
std::optional<Bytes> number_after(const std::string& path, const std::string& word) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(word)) {
      const std::size_t at = line.find_first_not_of(" \t", word.size());
      Bytes n = 0;
      if (at != line.npos &&
          std::from_chars(line.data() + at, line.data() + line.size(), n).ec == std::errc{})
        return n;
    }
  return std::nullopt;
}

struct GroupFiles {
  const char *limit, *used, *cache;  // cache: the word in memory.stat
};
constexpr GroupFiles kVersion2{"/memory.max", "/memory.current", "file "},
    kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "cache "};

Bytes left_in_group(const std::string& folder, const GroupFiles& files) {
  const std::optional<Bytes> limit = number_in(folder + files.limit), used = number_in(folder + files.used);
  if (!limit || !used) return kNoLimit;
  const Bytes held = *used - std::min(*used, number_after(folder + "/memory.stat", files.cache).value_or(0));
  return *limit - std::min(*limit, held);
}

// A group's path may not be seen from inside a container, where its limit stands at the top.
Bytes left_in_groups(const std::string& root) {
  Bytes least = kNoLimit;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // 0::/path of version 2, 5:memory:/path of version 1
    const bool second = line.starts_with("0::"), first = line.find(":memory:") != line.npos;
    if (!second && !first) continue;
    const std::string top = root + (second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    std::string path = line.substr(line.find(':', line.find(':') + 1) + 1);
    for (;;) {
      least = std::min(least, left_in_group(top + (path == "/" ? "" : path), second ? kVersion2 : kVersion1));
      if (path.size() < 2) break;
      path.resize(path.find_last_of('/') == path.npos ? 0 : path.find_last_of('/'));
    }
  }
  return least;
}

Bytes left_in_address_space(const std::string& root) {
  struct rlimit limit{};
  const std::optional<Bytes> pages = number_in(root + "/proc/self/statm");
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !pages) return kNoLimit;
  const Bytes all = limit.rlim_cur, used = *pages * static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  return all - std::min(all, used);
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  const std::optional<Bytes> machine = number_after(root + "/proc/meminfo", "MemAvailable:");
  const Bytes least =
      std::min({machine ? *machine * 1024 : kNoLimit, left_in_groups(root), left_in_address_space(root)});
  return least == kNoLimit ? 0 : std::max<Bytes>(least, 1);
}

}  // namespace rapt
