// SPDX-License-Identifier: Apache-2.0
// One atomic word opens a region and counts the helpers inside; they spin, then sleep. Leases are tickets.
#include "rapt/base/team.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rapt {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  sched_yield();
#endif
}

// About 20 microseconds: a region inside a decode step follows the last one sooner than that, so helpers
// stay awake within a step and sleep between steps.
constexpr int kSpins = 600;

// Of a helper: kernels need some 100 KiB. The usual 8 MiB for each of 64 threads would be half a gigabyte
// where address space is limited.
constexpr std::size_t kStack = std::size_t{2} << 20;

void pin_to(const cpu_set_t& allowed, int index) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && index-- == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
}

#if defined(__x86_64__)
constexpr std::uint64_t kMode = 0x9fc0;  // MXCSR: all masked, nearest, flush to zero, denormals are zero
std::uint64_t float_mode() { return _mm_getcsr(); }
void set_float_mode(std::uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)
constexpr std::uint64_t kMode = std::uint64_t{1} << 24;  // FPCR: flush to zero, nothing else
std::uint64_t float_mode() {
  std::uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
}
void set_float_mode(std::uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
#else
constexpr std::uint64_t kMode = 0;
std::uint64_t float_mode() { return kMode; }
void set_float_mode(std::uint64_t) {}
#endif

// Asking the processor costs 26 ns, and a step of decoding has 150 regions.
thread_local bool in_float_mode = false;

void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

FloatMode::FloatMode() : before_(0), changed_(!in_float_mode) {
  if (!changed_) return;
  before_ = float_mode();
  set_float_mode(kMode);
  in_float_mode = true;
}
FloatMode::~FloatMode() {
  if (!changed_) return;
  set_float_mode(before_);
  in_float_mode = false;
}

int processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return std::max(1, CPU_COUNT(&allowed));
}

// fork() copies the memory and one thread. In the child no helper runs, and whoever held a lease is gone,
// unless it is the thread that forked. Held here: the list of teams, so that no child gets half of a change
// to it.
struct Team::Forks {
  static inline std::mutex lock;
  static inline Team* first = nullptr;

  static void add(Team& team) {
    static const int once = pthread_atfork([] { lock.lock(); }, [] { lock.unlock(); }, in_child);
    (void)once;
    const std::lock_guard hold(lock);
    team.next_team_ = std::exchange(first, &team);
  }
  static void remove(const Team& team) {
    const std::lock_guard hold(lock);
    Team** at = &first;
    while (*at != &team) at = &(*at)->next_team_;
    *at = team.next_team_;
  }
  static void in_child() {
    for (Team* t = first; t; t = t->next_team_) {
      t->lost_ = t->threads_.load() > 1;
      t->threads_ = 1;
      t->state_ = 0;
      t->sleepers_ = 0;
      const bool held = t->holder_.load() == pthread_self();
      t->turn_ = 0;
      t->drawn_ = held ? 1 : 0;
      if (held) continue;
      t->holder_ = pthread_t{};
      t->depth_ = 0;
    }
    lock.unlock();
  }
};

Team::Team(int threads, bool pin)
    : wanted_(std::max(1, threads)),
      pin_(pin && wanted_ <= processors()),
      helpers_(static_cast<std::size_t>(wanted_ - 1)),
      scratch_(static_cast<std::size_t>(wanted_)) {
  CPU_ZERO(&allowed_);
  sched_getaffinity(0, sizeof allowed_, &allowed_);
  start_helpers();
  // The caller stays where it is unless a helper would share its processor: bind it to the first one.
  if (pin_ && this->threads() > 1) pin_to(allowed_, 0);
  Forks::add(*this);
}

Team::~Team() {
  Forks::remove(*this);
  quit_ = true;
  wake_.fetch_add(1);
  wake_all(wake_);
  for (int i = 0; i + 1 < threads(); ++i) pthread_join(helpers_[static_cast<std::size_t>(i)].thread, nullptr);
  for (Scratch& s : scratch_) std::free(s.data);
}

void* Team::help(void* helper) {
  const auto& [team, worker, thread] = *static_cast<const Helper*>(helper);
  if (team->pin_) pin_to(team->allowed_, worker);
  const FloatMode mode;
  team->work(worker);
  return nullptr;
}

void Team::start_helpers() noexcept {
  lost_ = false;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kStack);
  for (int i = 1; i < wanted_; ++i) {
    Helper& h = helpers_[static_cast<std::size_t>(i - 1)];
    h.team = this;
    h.worker = i;
    if (pthread_create(&h.thread, &small, help, &h) != 0) break;
    threads_ = i + 1;
  }
  pthread_attr_destroy(&small);
}

Lease::Lease(Team& team) noexcept : team_(team) {
  if (team.holder_.load(std::memory_order_relaxed) != pthread_self()) {
    const std::uint32_t mine = team.drawn_.fetch_add(1);
    for (std::uint32_t turn; (turn = team.turn_.load()) != mine;) wait_while(team.turn_, turn);
    team.holder_.store(pthread_self(), std::memory_order_relaxed);
  }
  ++team.depth_;
}

Lease::~Lease() {
  if (--team_.depth_ > 0) return;
  team_.holder_.store(pthread_t{}, std::memory_order_relaxed);
  const std::uint32_t next = team_.turn_.fetch_add(1) + 1;
  if (team_.drawn_.load() != next) wake_all(team_.turn_);
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
      if (wake_.load() == word) wait_while(wake_, word);
      sleepers_.fetch_sub(1);
      break;
    }
  }
}

void Team::run(Dim tasks, Task task, void* context) noexcept {
  const Lease lease(*this);
  if (lost_) start_helpers();
  if (threads() == 1 || tasks <= 1) {
    for (Dim i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  task_ = task;
  context_ = context;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  state_.store((state_.load(std::memory_order_relaxed) / kEpoch + 1) * kEpoch | kOpen,
               std::memory_order_release);
  wake_.fetch_add(1);
  if (sleepers_.load() > 0) wake_all(wake_);
  drain(0);
  std::uint64_t inside = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & (kOpen - 1);
  for (int spin = 0; inside != 0; ++spin) {
    if (spin < kSpins) pause();
    else sched_yield();
    inside = state_.load(std::memory_order_acquire) & (kOpen - 1);
  }
}

std::byte* Team::scratch(int worker, std::size_t bytes) noexcept {
  Scratch& s = scratch_[static_cast<std::size_t>(worker)];
  if (s.size < bytes) {
    s.size = 0;
    std::free(std::exchange(s.data, nullptr));
    const std::size_t size = (bytes + 4095) / 4096 * 4096;
    s.data = static_cast<std::byte*>(std::aligned_alloc(4096, size));
    if (s.data) s.size = size;
    else starved_ = bytes;
  }
  return s.data;
}

}  // namespace rapt
