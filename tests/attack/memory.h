// SPDX-License-Identifier: Apache-2.0
// What the program holds on its heap: every operator new of this executable is counted and limited
// (memory.cc).
#pragma once
#include <cstddef>

namespace rapt::attack {

struct Memory {
  static std::size_t live(), peak();
  // More than this at once ends in bad_alloc, and exceeded() says so.
  static void limit(std::size_t bytes);
  static bool exceeded();
  static void start();  // forgets peak and exceeded
};

}  // namespace rapt::attack
