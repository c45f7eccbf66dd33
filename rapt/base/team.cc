// SPDX-License-Identifier: Apache-2.0
#include "rapt/base/team.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rapt {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// About 20 microseconds: a region inside a decode step follows the last one sooner than that, so helpers stay awake within
// a step and sleep between steps.
constexpr int kSpins = 600;

void pin_to(int index) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && index-- == 0) {
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
}

}  // namespace

void flush_denormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
#elif defined(__aarch64__)
  std::uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  asm volatile("msr fpcr, %0" ::"r"(fpcr | (std::uint64_t{1} << 24)));
#endif
}

int processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return std::max(1, CPU_COUNT(&allowed));
}

Team::Team(int threads, bool pin) : threads_(std::max(1, threads)), scratch_(static_cast<std::size_t>(threads_)) {
  pin = pin && threads_ <= processors();
  flush_denormals();
  // Helpers read their processor before the caller is bound: a thread inherits the binding of the one that made it.
  for (int i = 1; i < threads_; ++i)
    helpers_.emplace_back([this, i, pin] {
      if (pin) pin_to(i);
      flush_denormals();
      work(i);
    });
  if (pin && threads_ > 1) {
    // The caller stays where it is unless a helper would share its processor: bind it to the first one.
    pin_to(0);
  }
}

Team::~Team() {
  quit_ = true;
  wake_.fetch_add(1);
  syscall(SYS_futex, &wake_, FUTEX_WAKE_PRIVATE, threads_, nullptr, nullptr, 0);
  for (std::thread& t : helpers_) t.join();
  for (Scratch& s : scratch_) std::free(s.data);
}

void Team::drain(int worker) {
  for (Dim i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;) task_(context_, i, worker);
}

void Team::work(int worker) {
  std::uint64_t seen = 0;
  for (;;) {
    const std::uint32_t word = wake_.load(std::memory_order_acquire);
    for (int spin = 0;; ++spin) {
      if (quit_.load(std::memory_order_relaxed)) return;
      std::uint64_t s = state_.load(std::memory_order_acquire);
      if ((s & kOpen) && s / kEpoch != seen) {
        if (!state_.compare_exchange_weak(s, s + 1, std::memory_order_acq_rel)) continue;
        seen = s / kEpoch;
        drain(worker);
        state_.fetch_sub(1, std::memory_order_release);
        break;
      }
      if (spin < kSpins) {
        pause();
        continue;
      }
      sleepers_.fetch_add(1);
      if (wake_.load() == word) syscall(SYS_futex, &wake_, FUTEX_WAIT_PRIVATE, word, nullptr, nullptr, 0);
      sleepers_.fetch_sub(1);
      break;
    }
  }
}

void Team::run(Dim tasks, Task task, void* context) {
  if (threads_ == 1 || tasks <= 1) {
    for (Dim i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  task_ = task;
  context_ = context;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  state_.store((state_.load(std::memory_order_relaxed) / kEpoch + 1) * kEpoch | kOpen, std::memory_order_release);
  wake_.fetch_add(1);
  if (sleepers_.load() > 0) syscall(SYS_futex, &wake_, FUTEX_WAKE_PRIVATE, threads_, nullptr, nullptr, 0);
  drain(0);
  std::uint64_t inside = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & (kOpen - 1);
  for (int spin = 0; inside != 0; ++spin) {
    if (spin < kSpins) pause();
    else std::this_thread::yield();
    inside = state_.load(std::memory_order_acquire) & (kOpen - 1);
  }
}

std::byte* Team::scratch(int worker, std::size_t bytes) {
  Scratch& s = scratch_[static_cast<std::size_t>(worker)];
  if (s.size < bytes) {
    std::free(s.data);
    s.size = (bytes + 4095) / 4096 * 4096;
    s.data = static_cast<std::byte*>(std::aligned_alloc(4096, s.size));
    if (!s.data) throw std::bad_alloc();
  }
  return s.data;
}

}  // namespace rapt
