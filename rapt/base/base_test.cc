// SPDX-License-Identifier: Apache-2.0
// Threads, scratch memory and random numbers: what every pass stands on.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

#include "rapt/base/arena.h"
#include "rapt/base/rng.h"
#include "rapt/base/team.h"

namespace rapt {
namespace {

// ------------------------------------------------------------------------------------------------ Team

// A task cannot throw across threads: its type says so.
static_assert(std::is_same_v<Team::Task, void (*)(void*, Dim, int) noexcept>);

template <class F>
void run_on(Team& team, Dim tasks, const F& f) {
  team.run(
      tasks, [](void* c, Dim task, int worker) noexcept { (*static_cast<const F*>(c))(task, worker); },
      const_cast<F*>(&f));
}

void expect_each_once(Team& team, Dim tasks) {
  // Plain ints: whoever ran a task has finished when run() returns.
  std::vector<int> count(static_cast<std::size_t>(tasks));
  std::atomic<int> strange{0};
  run_on(team, tasks, [&](Dim task, int worker) {
    if (worker < 0 || worker >= team.threads()) ++strange;
    ++count[static_cast<std::size_t>(task)];
  });
  EXPECT_EQ(strange, 0);
  EXPECT_EQ(std::count(count.begin(), count.end(), 1), tasks) << team.threads() << " threads";
}

TEST(Team, RunsEveryTaskOnce) {
  for (int threads : {0, 1, 2, 3, 7}) {
    Team team(threads);
    EXPECT_EQ(team.threads(), std::max(1, threads));
    for (Dim tasks : {0, 1, 2, 3, 100, 10000}) expect_each_once(team, tasks);
  }
}

TEST(Team, RunsManyRegionsInARow) {
  Team team(3);
  std::vector<Dim> sums(64);
  for (int region = 0; region < 20000; ++region)
    run_on(team, 64, [&](Dim task, int) { sums[static_cast<std::size_t>(task)] += task; });
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], 20000 * static_cast<Dim>(i));
}

TEST(Team, WakesHelpersThatFellAsleepAndDoesWithoutThoseThatComeLate) {
  Team team(4);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long past the helpers' patience
    expect_each_once(team, 2 + i);
  }
  // A region so short that helpers find it closed, then one right after: nobody may run a task of the old
  // one or miss the new one.
  for (int i = 0; i < 3000; ++i) {
    int first = 0, second = 0;
    Dim seen[2] = {};
    run_on(team, 2, [&](Dim task, int) { seen[task] = 1 + task; });
    first = static_cast<int>(seen[0] + seen[1]);
    run_on(team, 2, [&](Dim task, int) { seen[task] = 10 * (1 + task); });
    second = static_cast<int>(seen[0] + seen[1]);
    ASSERT_EQ(first, 3);
    ASSERT_EQ(second, 30);
  }
}

// Tasks long enough for helpers to join: the caller runs out of tasks while they are still inside, and must
// wait for them.
TEST(Team, WaitsForTheHelpersThatAreInside) {
  Team team(3);
  std::atomic<int> by_helpers{0};
  for (int region = 0; region < 200 && by_helpers < 20; ++region) {
    std::vector<int> done(6);
    run_on(team, 6, [&](Dim task, int worker) {
      if (worker != 0) ++by_helpers;
      std::this_thread::sleep_for(std::chrono::microseconds(worker != 0 ? 2000 : 200));
      done[static_cast<std::size_t>(task)] = 1;
    });
    ASSERT_EQ(std::count(done.begin(), done.end(), 1), 6);
  }
  EXPECT_GE(by_helpers, 20);
}

TEST(Team, GivesWayWhenThereAreMoreThreadsThanProcessors) {
  Team team(4 * processors() + 1, true);  // too many to pin: ignored
  for (int i = 0; i < 200; ++i) expect_each_once(team, 50);
}

TEST(Team, ManyTeamsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    Team one(2), other(3);
    expect_each_once(one, 5);
    expect_each_once(other, 5);
  }
}

TEST(Team, EveryWorkerHasScratchOfItsOwn) {
  Team team(3);
  for (std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{100}}) {
    std::atomic<int> bad{0};
    run_on(team, 200, [&](Dim task, int worker) {
      std::byte* p = team.scratch(worker, bytes);
      if (reinterpret_cast<std::uintptr_t>(p) % 64 != 0) ++bad;
      std::memset(p, static_cast<int>(task), bytes);
      for (std::size_t i = 0; i < bytes; ++i)
        if (p[i] != static_cast<std::byte>(task)) ++bad;  // somebody else wrote here
    });
    EXPECT_EQ(bad, 0);
  }
}

TEST(Team, FlushesDenormalsOnEveryThread) {
  Team team(3);
  std::atomic<int> kept{0};
  run_on(team, 300, [&](Dim, int) {
    volatile float small = 1e-38f, factor = 0.01f;
    const float product = small * factor;
    if (product != 0) ++kept;
  });
  EXPECT_EQ(kept, 0);
}

TEST(Team, ComputesInOneFloatModeAndLeavesTheCallersAlone) {
  const auto third = [] {
    volatile float one = 1, three = 3;
    return one / three;
  };
  for (int threads : {1, 2}) {
    Team team(threads);
    const float nearest = third();
    ASSERT_EQ(std::fesetround(FE_DOWNWARD), 0);
    const float down = third();
    std::atomic<int> strange{0};
    for (Dim tasks : {1, 100}) run_on(team, tasks, [&](Dim, int) { strange += third() != nearest; });
    EXPECT_EQ(strange, 0);
    EXPECT_EQ(third(), down);
    std::fesetround(FE_TONEAREST);
    EXPECT_NE(down, nearest);
  }
}

TEST(Team, ThrowsWhatATaskThrewWhenAllAreDone) {
  Team team(3);
  std::atomic<int> done{0};
  EXPECT_THROW(team.each(100,
                         [&](Dim task) {
                           ++done;
                           if (task == 40) throw std::out_of_range("forty");
                         }),
               std::out_of_range);
  EXPECT_EQ(done, 100);
}

TEST(Team, OneThreadAtATimeHoldsALease) {
  Team team(2);
  int sum = 0;  // only whoever holds the lease adds
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) {
        const Lease lease(team);
        const int before = sum;
        const Lease again(team);
        expect_each_once(team, 3);
        sum = before + 1;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(sum, 2000);
}

// ------------------------------------------------------------------------------------------------ concat

TEST(Concat, WritesNumbersAsAStreamDoes) {
  std::ostringstream stream;
  std::string ours;
  for (double x : {0.0, -0.0, 1.0, -2.5, 0.1, 1e-5, 123456.0, 1234567.0, 3.14159265, 1e300, -1e-300, 100000.0,
                   0.0001, 12345678.9})
    stream << x << ' ' << static_cast<float>(x) << ' ', ours += concat(x, ' ', static_cast<float>(x), " ");
  for (double x :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), std::nan("")})
    stream << x << ' ', ours += concat(x, ' ');
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  stream << least << most << -7 << 7u << true << 'c' << "text" << std::string("s") << std::string_view("v");
  ours += concat(least, most, -7, 7u, true, 'c', "text", std::string("s"), std::string_view("v"));
  EXPECT_EQ(ours, stream.str());
}

// ------------------------------------------------------------------------------------------------ Arena

TEST(Arena, AlignsAndNeverOverlaps) {
  Arena arena;
  std::vector<std::pair<std::byte*, std::size_t>> taken;
  for (std::size_t bytes : {0, 1, 63, 64, 65, 1000, 5000000, 3, 40000000, 7}) {
    std::byte* p = arena.take(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % Arena::kAlign, 0u);
    std::memset(p, static_cast<int>(taken.size()), bytes);
    taken.emplace_back(p, bytes);
  }
  for (std::size_t i = 0; i < taken.size(); ++i)
    EXPECT_TRUE(std::all_of(taken[i].first, taken[i].first + taken[i].second, [&](std::byte b) {
      return b == static_cast<std::byte>(i);
    })) << i;
}

TEST(Arena, AMarkGivesBackWhatCameAfterIt) {
  Arena arena;
  std::byte* first = arena.take(100);
  const Arena::Mark mark = arena.mark();
  std::byte* second = arena.take(100);
  EXPECT_NE(first, second);
  arena.take(std::size_t{10} << 20);  // into another chunk
  arena.release(mark);
  EXPECT_EQ(arena.take(100), second);
}

TEST(Arena, TheSecondPassGetsTheSameAddressesAndNoNewMemory) {
  Arena arena;
  const std::size_t sizes[] = {100, 3000000, 7, 9000000, 500, 1};
  std::vector<std::byte*> once, again;
  for (std::size_t n : sizes) once.push_back(arena.take(n));
  const std::size_t reserved = arena.reserved();
  EXPECT_GE(reserved, 12000000u);
  for (int pass = 0; pass < 3; ++pass) {
    arena.reset();
    again.clear();
    for (std::size_t n : sizes) again.push_back(arena.take(n));
    EXPECT_EQ(once, again);
    EXPECT_EQ(arena.reserved(), reserved);
  }
}

// ------------------------------------------------------------------------------------------- random numbers

TEST(Random, PhiloxGivesThePublishedNumbers) {
  EXPECT_EQ(philox(0, 0, 0), (Random4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}),
            (Random4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Random4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, UniformFillsItsBinsEvenly) {
  constexpr int kBins = 256, kNumbers = 200000;
  for (std::uint64_t key : {0ull, 1ull, 0xFFFFFFFFFFFFull}) {
    std::vector<double> bins(kBins);
    for (std::uint64_t i = 0; i < kNumbers; ++i) {
      const double u = random_uniform(key, i);
      ASSERT_GE(u, 0);
      ASSERT_LT(u, 1);
      ++bins[static_cast<std::size_t>(u * kBins)];
    }
    double chi2 = 0;
    for (double b : bins) chi2 += std::pow(b - double(kNumbers) / kBins, 2) / (double(kNumbers) / kBins);
    EXPECT_NEAR(chi2, kBins - 1, 5 * std::sqrt(2.0 * kBins)) << key;
  }
}

TEST(Random, NormalHasItsMoments) {
  constexpr int kNumbers = 200000;
  double sum[5] = {};
  for (std::uint64_t i = 0; i < kNumbers; ++i) {
    const double x = random_normal(7, i, 3);
    ASSERT_TRUE(std::isfinite(x));
    for (int p = 1; p <= 4; ++p) sum[p] += std::pow(x, p) / kNumbers;
  }
  const double s = 5 / std::sqrt(double(kNumbers));
  EXPECT_NEAR(sum[1], 0, s);
  EXPECT_NEAR(sum[2], 1, s * std::sqrt(2.0));
  EXPECT_NEAR(sum[3], 0, s * std::sqrt(15.0));
  EXPECT_NEAR(sum[4], 3, s * std::sqrt(96.0));
}

TEST(Random, BelowReachesEveryNumberAndNoOther) {
  std::vector<int> count(7);
  for (std::uint64_t i = 0; i < 7000; ++i) ++count.at(random_below(7, 5, i));
  for (int c : count) EXPECT_NEAR(c, 1000, 5 * std::sqrt(1000.0));
  EXPECT_EQ(random_below(1, 5, 5), 0u);
}

TEST(Random, NumbersAndKeysDependOnEverythingTheyAreMadeFrom) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t a = 0; a < 100; ++a)
    for (std::uint64_t b = 0; b < 100; ++b) keys.insert(mix_key(a, b));
  EXPECT_EQ(keys.size(), 10000u);
  EXPECT_EQ(mix_key(3, 4), mix_key(3, 4));
  EXPECT_NE(mix_key(3, 4), mix_key(4, 3));
  EXPECT_NE(random_uniform(1, 2, 3), random_uniform(2, 2, 3));
  EXPECT_NE(random_uniform(1, 2, 3), random_uniform(1, 3, 3));
  EXPECT_NE(random_uniform(1, 2, 3), random_uniform(1, 2, 4));
}

}  // namespace
}  // namespace rapt
