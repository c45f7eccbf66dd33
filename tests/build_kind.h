// SPDX-License-Identifier: Apache-2.0
// What kind of build a test runs in. A sanitizer makes everything ten times slower: some tests do less
// there, and those that show nothing about memory that others do not show already are left out, each saying
// what it is:
//   RAPT_NOT_SANITIZED("a training of 300 steps");
// What trains for long shows it in scripts/test --long lab (RAPT_LONG):
//   RAPT_ONLY_LONG("a training until the verdict turns");
// Known when the program is linked, not when a test is compiled: a release and the address sanitizer share
// the tests' objects.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace rapt::test {

extern const bool kSanitized;         // by the address or the thread sanitizer
extern const bool kThreadsSanitized;  // by the thread sanitizer
extern const std::string kBuildFolder;

}  // namespace rapt::test

#define RAPT_NOT_SANITIZED(what) \
  if (rapt::test::kSanitized) GTEST_SKIP() << "left out under a sanitizer: " << (what)

#define RAPT_ONLY_LONG(what) \
  if (!std::getenv("RAPT_LONG")) GTEST_SKIP() << "left out, scripts/test --long lab runs it: " << (what)
