// SPDX-License-Identifier: Apache-2.0
// The threads of one device. A region hands out numbered tasks to whoever is free; a helper that the machine
// has not woken in time is not waited for, so a busy machine slows the work by its share and not by the
// longest wait.
#pragma once
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

// How floating-point numbers are computed on this thread while it lives: rounded to the nearest, denormals
// flushed to zero (products that underflow would run up to 66 times slower), nothing trapped. Afterwards as
// it was before. Every task sees this mode, so no bit depends on who runs it.
class FloatMode {
 public:
  FloatMode();
  ~FloatMode();
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  std::uint64_t before_;
  bool changed_;
};

class Team {
 public:
  using Task = void (*)(void* context, Dim task, int worker) noexcept;

  // `pin` binds thread i to the i-th processor the process may use; ignored when there are more threads
  // than processors. Where the system gives fewer threads than asked for, the team is as small as that:
  // threads() tells.
  explicit Team(int threads, bool pin = false);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_.load(std::memory_order_relaxed); }
  // Returns when every task is done. Any thread may call; it takes a Lease. A task starts no region. A
  // child of fork() may call too: it starts helpers of its own.
  void run(Dim tasks, Task task, void* context) noexcept;
  // f(task) for every task below n. An exception of a task (of several: any one) is thrown here, when all
  // are done.
  template <class F>
  void each(Dim n, const F& f);
  // Memory of one worker, at least `bytes`, aligned to 64, kept between regions; nullptr where there is
  // none, and then starved() tells. Call it inside a task only.
  std::byte* scratch(int worker, std::size_t bytes) noexcept;
  // The bytes that some task asked for in vain since the last call, 0 if none did. Call it under a Lease.
  std::size_t starved() noexcept {
    return starved_.load(std::memory_order_relaxed) ? starved_.exchange(0) : 0;
  }

 private:
  friend class Lease;
  struct Forks;  // what a child of fork() has to know
  struct Helper {
    Team* team;
    int worker;
    pthread_t thread;
  };
  static void* help(void* helper);
  void start_helpers() noexcept;
  void work(int worker);
  void drain(int worker);

  const int wanted_;
  const bool pin_;
  cpu_set_t allowed_;  // the processors of the process when the team was made
  std::atomic<int> threads_{1};
  std::vector<Helper> helpers_;  // wanted_ - 1; those below threads_ - 1 run
  bool lost_ = false;            // a child of fork(): none runs
  struct Scratch {
    std::byte* data = nullptr;
    std::size_t size = 0;
  };
  std::vector<Scratch> scratch_;
  std::atomic<std::size_t> starved_{0};

  // state_: epoch in the high half, "open" flag, number of helpers inside. A helper enters only while the
  // region is open.
  static constexpr std::uint64_t kOpen = std::uint64_t{1} << 31, kEpoch = std::uint64_t{1} << 32;
  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<Dim> next_{0};
  alignas(64) std::atomic<std::uint32_t> wake_{0};  // futex word: counts regions
  std::atomic<int> sleepers_{0};
  std::atomic<bool> quit_{false};
  Task task_ = nullptr;
  void* context_ = nullptr;
  Dim tasks_ = 0;

  // Whose turn it is: numbers are drawn in order, and the holder of number turn_ goes.
  alignas(64) std::atomic<std::uint32_t> turn_{0};  // futex word
  std::atomic<std::uint32_t> drawn_{0};
  std::atomic<pthread_t> holder_{};
  int depth_ = 0;  // leases of the holder

  Team* next_team_ = nullptr;  // list of all teams of the process, for its children
};

// A team is used by one thread at a time: the one that holds a lease. Others wait in the order they came. A
// thread that holds one gets another at once. Also sets the FloatMode. Team::run takes one for a region; who
// holds one for a whole pass computes it in one go.
class Lease {
 public:
  explicit Lease(Team& team) noexcept;
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  Team& team_;
  const FloatMode mode_;
};

template <class F>
void Team::each(Dim n, const F& f) {
  struct Shared {
    const F& f;
    std::mutex lock;
    std::exception_ptr error;
  } shared{f, {}, {}};
  run(
      n,
      [](void* context, Dim task, int) noexcept {
        auto& s = *static_cast<Shared*>(context);
        try {
          s.f(task);
        } catch (...) {
          const std::lock_guard hold(s.lock);
          s.error = std::current_exception();
        }
      },
      &shared);
  if (shared.error) std::rethrow_exception(shared.error);
}

// The processors this process may run on.
int processors();

}  // namespace rapt
