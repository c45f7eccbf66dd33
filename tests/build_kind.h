// SPDX-License-Identifier: Apache-2.0
// What kind of build a test runs in. A sanitizer makes everything ten times slower: some tests do less there, and those that show nothing
// about memory that others do not show already are left out, each saying what it is:
//   RAPT_NOT_SANITIZED("a training of 300 steps");
#pragma once
#include <gtest/gtest.h>

namespace rapt::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace rapt::test

#define RAPT_NOT_SANITIZED(what) \
  if (rapt::test::kSanitized) GTEST_SKIP() << "left out under a sanitizer: " << (what)
