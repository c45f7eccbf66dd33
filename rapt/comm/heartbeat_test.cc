// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each with a file of its own: who is named where one lets the others wait, and what the
// next run hears of one that failed or fell silent.
#include "rapt/comm/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class HeartbeatTest : public testing::Test {
 protected:
  void SetUp() override {
    folder = testing::TempDir() + "rapt-heartbeat-" + std::to_string(::getpid());
    std::filesystem::remove_all(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  Heartbeat::Options options() {
    return {.patience = 1, .say = [this](const std::string& text) {
              const std::lock_guard hold(lock);
              said.push_back(text);
            }};
  }
  std::size_t lines() {
    const std::lock_guard hold(lock);
    return said.size();
  }
  std::string folder;
  std::mutex lock;
  std::vector<std::string> said;
};

TEST_F(HeartbeatTest, NamesTheRankThatIsBehindOnceAndSaysWhenItGoesOn) {
  run_ranks(4, [&](Comm& inner) {
    Heartbeat heartbeat(folder, inner.rank(), inner.size(), options());
    const auto comm = watched(inner, heartbeat);
    comm->at({.phase = Phase::exchanging, .step = 7});
    comm->barrier();
    if (comm->rank() == 2) {
      comm->at({.phase = Phase::computing, .step = 7, .leaf = 3});
      while (lines() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    comm->barrier();
    while (comm->rank() == 0 && lines() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    heartbeat.done();
  });
  ASSERT_EQ(said.size(), 2u);
  EXPECT_THAT(said[0],
              AllOf(HasSubstr("others wait"), HasSubstr("for rank 2 of 4 (step 7, leaf 3, computing")));
  EXPECT_THAT(said[1], HasSubstr("rank 2 of 4 goes on after"));
  EXPECT_EQ(last_words(folder), "");
}

TEST_F(HeartbeatTest, TheNextRunHearsWhichRankFailed) {
  EXPECT_EQ(last_words(folder), "");
  EXPECT_THROW(run_ranks(3,
                         [&](Comm& inner) {
                           Heartbeat heartbeat(folder, inner.rank(), inner.size(), options());
                           const auto comm = watched(inner, heartbeat);
                           comm->at({.phase = Phase::saving, .step = 9});
                           comm->barrier();
                           if (comm->rank() == 1) comm->abort("the disk is full");
                           comm->barrier();
                         }),
               Error);
  EXPECT_EQ(last_words(folder),
            "the run before this one ended when rank 1 of 3 failed (step 9, saving): the disk is full");
}

// A rank as a process that is killed: what it noted stays.
TEST_F(HeartbeatTest, TheNextRunHearsWhichRankFellSilent) {
  Heartbeat other(folder, 1, 2, options());
  other.at({.phase = Phase::exchanging, .step = 3});
  const pid_t child = ::fork();
  if (child == 0) {
    Heartbeat heartbeat(folder, 0, 2, {});
    heartbeat.at({.phase = Phase::computing, .step = 3, .leaf = 0});
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // the other goes on
  EXPECT_THAT(last_words(folder),
              AllOf(HasSubstr("ended without a word of rank 0 of 2 (step 3, leaf 0, computing"),
                    HasSubstr(concat("process ", child))));
  // … or was told to end because of it.
  Heartbeat::signalled(SIGTERM);
  EXPECT_THAT(last_words(folder), HasSubstr("without a word of rank 0 of 2"));
}

TEST_F(HeartbeatTest, AFolderThatCannotBeMadeIsSaid) {
  try {
    Heartbeat heartbeat("/proc/nowhere", 0, 2, {});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("/proc/nowhere/rank-0: this rank cannot say"));
  }
}

}  // namespace
}  // namespace rapt
