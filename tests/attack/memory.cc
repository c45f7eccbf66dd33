// SPDX-License-Identifier: Apache-2.0
#include "tests/attack/memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace rapt::attack {
namespace {

std::atomic<std::size_t> g_live{0}, g_peak{0}, g_limit{~std::size_t{0}};
std::atomic<bool> g_exceeded{false};

void* take(std::size_t size, std::size_t alignment) {
  if (size > g_limit || g_live + size > g_limit) {
    g_exceeded = true;
    return nullptr;
  }
  void* p = nullptr;
  if (alignment <= alignof(std::max_align_t)) p = std::malloc(size);
  else if (posix_memalign(&p, alignment, size) != 0) p = nullptr;
  if (!p) return nullptr;
  const std::size_t now = g_live += malloc_usable_size(p);
  for (std::size_t seen = g_peak; seen < now && !g_peak.compare_exchange_weak(seen, now);) {}
  return p;
}
void* take_or_throw(std::size_t size, std::size_t alignment) {
  if (void* p = take(std::max<std::size_t>(size, 1), alignment)) return p;
  throw std::bad_alloc();
}
void give(void* p) {
  if (!p) return;
  g_live -= malloc_usable_size(p);
  std::free(p);
}

}  // namespace

std::size_t Memory::live() { return g_live; }
std::size_t Memory::peak() { return g_peak; }
void Memory::limit(std::size_t bytes) { g_limit = bytes; }
bool Memory::exceeded() { return g_exceeded; }
void Memory::start() {
  g_peak = g_live.load();
  g_exceeded = false;
}

}  // namespace rapt::attack

using rapt::attack::give;
using rapt::attack::take;
using rapt::attack::take_or_throw;
constexpr std::size_t kPlain = alignof(std::max_align_t);

void* operator new(std::size_t n) { return take_or_throw(n, kPlain); }
void* operator new[](std::size_t n) { return take_or_throw(n, kPlain); }
void* operator new(std::size_t n, std::align_val_t a) {
  return take_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return take_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return take(n, kPlain); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return take(n, kPlain); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return take(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return take(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { give(p); }
void operator delete[](void* p) noexcept { give(p); }
void operator delete(void* p, std::size_t) noexcept { give(p); }
void operator delete[](void* p, std::size_t) noexcept { give(p); }
void operator delete(void* p, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { give(p); }
