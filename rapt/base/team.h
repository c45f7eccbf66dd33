// SPDX-License-Identifier: Apache-2.0
// The threads of one device. A region hands out numbered tasks to whoever is free; a helper that the machine has not woken in
// time is not waited for, so a busy machine slows the work by its share and not by the longest wait.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

class Team {
 public:
  using Task = void (*)(void* context, Dim task, int worker) noexcept;

  // `pin` binds thread i to the i-th processor the process may use; ignored when there are more threads than processors.
  explicit Team(int threads, bool pin = false);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_; }
  void run(Dim tasks, Task task, void* context);  // returns when every task is done; not re-entrant
  // Memory of one worker, at least `bytes`, aligned to 64, kept between regions. Call it inside a task only.
  std::byte* scratch(int worker, std::size_t bytes);

 private:
  void work(int worker);
  void drain(int worker);

  const int threads_;
  std::vector<std::thread> helpers_;
  struct Scratch {
    std::byte* data = nullptr;
    std::size_t size = 0;
  };
  std::vector<Scratch> scratch_;

  // state_: epoch in the high half, "open" flag, number of helpers inside. A helper enters only while the region is open.
  static constexpr std::uint64_t kOpen = std::uint64_t{1} << 31, kEpoch = std::uint64_t{1} << 32;
  alignas(64) std::atomic<std::uint64_t> state_{0};
  alignas(64) std::atomic<Dim> next_{0};
  alignas(64) std::atomic<std::uint32_t> wake_{0};  // futex word: counts regions
  std::atomic<int> sleepers_{0};
  std::atomic<bool> quit_{false};
  Task task_ = nullptr;
  void* context_ = nullptr;
  Dim tasks_ = 0;
};

// Denormals are flushed on the calling thread from now on: products that underflow would run up to 66 times slower.
void flush_denormals();
// The processors this process may run on.
int processors();

}  // namespace rapt
