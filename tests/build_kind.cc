// SPDX-License-Identifier: Apache-2.0
// Compiled with the flags of the library, unlike the tests (cmake/tests.cmake).
#include "tests/build_kind.h"

#if defined(__has_feature)
#define RAPT_HAS(what) __has_feature(what)
#else
#define RAPT_HAS(what) 0
#endif

namespace rapt::test {

#if RAPT_HAS(thread_sanitizer) || defined(__SANITIZE_THREAD__)
const bool kThreadsSanitized = true;
#else
const bool kThreadsSanitized = false;
#endif
#if RAPT_HAS(address_sanitizer) || defined(__SANITIZE_ADDRESS__)
const bool kSanitized = true;
#else
const bool kSanitized = kThreadsSanitized;
#endif
const std::string kBuildFolder = RAPT_BINARY_DIR;

}  // namespace rapt::test

#if RAPT_HAS(thread_sanitizer)  // a child of fork() starts threads: the sanitizer would end it
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif
