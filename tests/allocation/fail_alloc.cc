// SPDX-License-Identifier: Apache-2.0
#include "tests/allocation/fail_alloc.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

// glibc's own functions, under the names that stay when theirs are replaced.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace {

std::atomic<long> count{0}, fails{0};

bool fail_this() {
  if (count.fetch_add(1, std::memory_order_relaxed) + 1 != fails.load(std::memory_order_relaxed))
    return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

// Seen by the C++ library too, whatever the build hides.
#pragma GCC visibility push(default)
extern "C" {
void* malloc(std::size_t bytes) { return fail_this() ? nullptr : __libc_malloc(bytes); }
void* calloc(std::size_t n, std::size_t bytes) { return fail_this() ? nullptr : __libc_calloc(n, bytes); }
void* realloc(void* old, std::size_t bytes) { return fail_this() ? nullptr : __libc_realloc(old, bytes); }
void* memalign(std::size_t alignment, std::size_t bytes) {
  return fail_this() ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return fail_this() ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  void* p = fail_this() ? nullptr : __libc_memalign(alignment, bytes);
  if (!p) return ENOMEM;
  *out = p;
  return 0;
}
}
#pragma GCC visibility pop

namespace rapt::test {

void fail_allocation(long n) {
  count = 0;
  fails = n;
}
long allocations() { return count; }

}  // namespace rapt::test
