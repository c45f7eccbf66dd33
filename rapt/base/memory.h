// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once
#include <cstdint>
#include <string>

namespace rapt {

// The least of what the machine has available, what the process's control groups leave it (version 1 and 2,
// with all groups above; pages of files count as free) and what its limit on address space leaves (ulimit
// -v). 0 where nothing is known. `root` stands before /proc and /sys: a test gives a folder of its own.
std::uint64_t available_memory(const std::string& root = "");

}  // namespace rapt
