// SPDX-License-Identifier: Apache-2.0
// available_memory over a made-up /proc and /sys/fs/cgroup, compared with numbers worked out by hand.
#include "rapt/base/memory.h"

#include <gtest/gtest.h>

#include "tests/tools.h"

namespace rapt {
namespace {

using test::put_file;
using test::TempFolder;

constexpr std::uint64_t kMiB = 1 << 20;

TEST(AvailableMemory, IsTheLeastOfMachineAndGroups) {
  const TempFolder root;
  for (const char* folder : {"proc/self", "sys/fs/cgroup/jobs/mine", "sys/fs/cgroup/memory/old"})
    std::filesystem::create_directories(root / folder);
  const auto put = [&](const char* name, const std::string& text) { put_file(root / name, text); };
  EXPECT_EQ(available_memory(root.path()), 0u);  // nothing is known
  put("proc/meminfo", "MemTotal:       9000000 kB\nMemFree:  100 kB\nMemAvailable:    4096000 kB\n");
  EXPECT_EQ(available_memory(root.path()), 4000 * kMiB);
  put("proc/self/cgroup", "0::/jobs/mine\n");
  put("sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  put("sys/fs/cgroup/jobs/mine/memory.current", std::to_string(100 * kMiB));
  EXPECT_EQ(available_memory(root.path()), 4000 * kMiB);
  put("sys/fs/cgroup/jobs/memory.max", std::to_string(1000 * kMiB));  // the group above
  put("sys/fs/cgroup/jobs/memory.current", std::to_string(700 * kMiB));
  put("sys/fs/cgroup/jobs/memory.stat", concat("anon 1\nfile_mapped 7\nfile ", 500 * kMiB, "\n"));
  EXPECT_EQ(available_memory(root.path()), 800 * kMiB);  // 500 of the 700 are pages of files
  put("proc/self/cgroup", "5:memory:/old\n");
  put("sys/fs/cgroup/memory/old/memory.limit_in_bytes", std::to_string(300 * kMiB));
  put("sys/fs/cgroup/memory/old/memory.usage_in_bytes", std::to_string(400 * kMiB));
  EXPECT_EQ(available_memory(root.path()), 1u);  // known, and nothing is left
}

TEST(AvailableMemory, IsKnownHere) { EXPECT_GT(available_memory(), kMiB); }

}  // namespace
}  // namespace rapt
