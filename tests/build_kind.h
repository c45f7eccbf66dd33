// SPDX-License-Identifier: Apache-2.0
// What kind of build a test runs in. A sanitizer makes everything ten times slower: some tests do less
// there, and those that show nothing about memory that others do not show already are left out, each saying
// what it is:
//   RAPT_NOT_SANITIZED("a training of 300 steps");
// Known when the program is linked, not when a test is compiled: a release and the address sanitizer share
// the tests' objects.
#pragma once
#include <gtest/gtest.h>

#include <string>

namespace rapt::test {

extern const bool kSanitized;         // by the address or the thread sanitizer
extern const bool kThreadsSanitized;  // by the thread sanitizer
extern const std::string kBuildFolder;

}  // namespace rapt::test

#define RAPT_NOT_SANITIZED(what) \
  if (rapt::test::kSanitized) GTEST_SKIP() << "left out under a sanitizer: " << (what)
