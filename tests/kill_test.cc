// SPDX-License-Identifier: Apache-2.0
// A process that saves and saves is killed at random; whatever it had reported must be there afterwards.
// (SIGKILL leaves the page cache as it is, so this finds wrong orders and half-written files; lost syncs are
// for tests/store_crash_test.cc.) RAPT_KILLS: how many kills (300); RAPT_KILL_FOLDER: where it saves (a
// memory file system where there is one: syncs cost nothing there, so the kills fall between more
// different calls).
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "tests/kill_tools.h"
#include "tests/store_tools.h"

namespace rapt::test {
namespace {

namespace disk = std::filesystem;

constexpr std::size_t kLarge = 100'000;

class Kill : public testing::Test {
 protected:
  void SetUp() override {
    const char* set = std::getenv("RAPT_KILL_FOLDER");
    disk::path base = set && *set ? disk::path(set) : disk::path("/dev/shm");
    if (::access(base.c_str(), W_OK) != 0) base = disk::temp_directory_path();
    folder = (base / concat("rapt-kill-", ::getpid())).string();
    disk::remove_all(folder);
  }
  void TearDown() override { disk::remove_all(folder); }

  // The last whole line that the child printed: the number of a save that returned. -1: none; -2:
  // it failed.
  static std::int64_t reported(const Ended& e) {
    if (e.out.find("error") != e.out.npos || !e.killed) return -2;
    const auto end = e.out.rfind('\n');
    if (end == e.out.npos) return -1;
    const auto begin = end == 0 ? e.out.npos : e.out.rfind('\n', end - 1);
    return std::stoll(e.out.substr(begin == e.out.npos ? 0 : begin + 1));
  }
  static void print(int out, std::int64_t n) {
    const std::string line = concat(n, "\n");
    if (::write(out, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(1);
  }
  // Up to about three saves after the start, as long as they take here; the test judges no time, it only
  // wants kills that fall everywhere.
  double delay(int i) const { return random_uniform(11, static_cast<std::uint64_t>(i)) * 3 * one_save; }
  void measure(const auto& save) {
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t n = 0; n < 4; ++n) save(n);
    one_save = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 4;
  }
  void say(int kills, int during, int lost, int invalid, std::int64_t saves) const {
    std::printf(
        "[  COUNTS  ] %d kills, %d of them in the middle of a save, %lld saves: %d lost, %d invalid\n", kills,
        during, static_cast<long long>(saves), lost, invalid);
  }
  std::string folder;
  double one_save = 0;
};

TEST_F(Kill, AtRandomLosesNothing) {
  const int kills = kill_count(300);
  measure([&](std::int64_t n) { Store(folder).save(n, files_of(n, kLarge), state_of(n)); });
  int during = 0, lost = 0, invalid = 0;
  std::int64_t last = 3;
  for (int i = 0; i < kills || (during == 0 && i < 20 * kills); ++i) {
    // Every fourth perhaps while it starts and cleans up.
    const Ended e = run_and_kill(
        [&](int out) -> int {
          Store store(folder);
          store.claim();
          std::int64_t n = number_of(store.latest().value());
          print(out, n);
          for (;;) {
            ++n;
            store.save(n, files_of(n, kLarge), state_of(n));
            print(out, n);
          }
        },
        {.seconds = delay(i), .from_first_output = i % 4 != 0});
    const std::int64_t promised = reported(e);
    ASSERT_NE(-2, promised) << e.out;
    last = std::max(last, promised);
    for (const std::string& name : real_fs().list(folder)) during += name.starts_with(".tmp-");
    const Found found = load_checked(folder, real_fs(), kLarge);
    lost += found.newest < last || found.valid < 2;
    invalid += !found.right || !found.said.empty();
    ASSERT_EQ(0, lost + invalid) << "kill " << i << ": " << last << " was reported, " << found.newest
                                 << " found, " << found.valid << " valid"
                                 << (found.said.empty() ? "" : ": " + found.said[0]);
    // Loading cleared it away.
    for (const std::string& name : real_fs().list(folder)) EXPECT_FALSE(name.starts_with(".tmp-")) << name;
    last = found.newest;
  }
  say(kills, during, lost, invalid, last);
  RecordProperty("kills", kills);
  RecordProperty("during_a_save", during);
  EXPECT_GT(during, 0);  // or the kills fell where they prove nothing
}

// Before every single call of a save with pruning, on the real file system.
TEST_F(Kill, AtEveryCallLosesNothing) {
  int calls = 0;
  for (bool through = false; !through; ++calls) {
    disk::remove_all(folder);
    {
      Store store(folder);
      for (std::int64_t n = 1; n <= 3; ++n) store.save(n, files_of(n), state_of(n));
    }
    const Ended e = run_and_kill(
        [&](int out) -> int {
          int count = 0;
          HookFs fs(real_fs(), [&](const char*, const std::string&) {
            if (count++ == calls) ::raise(SIGKILL);
          });
          Store store(folder, fs);
          store.save(4, files_of(4), state_of(4));
          print(out, 4);
          return 0;
        },
        {.seconds = 60});
    through = !e.killed;
    const Found found = load_checked(folder, real_fs());
    EXPECT_TRUE(found.right && found.said.empty() && found.valid >= 2) << "killed at call " << calls;
    EXPECT_GE(found.newest, e.out.empty() ? 3 : 4) << "killed at call " << calls;
    EXPECT_NO_THROW(Store(folder).save(5, files_of(5), state_of(5))) << "killed at call " << calls;
    EXPECT_EQ(5, load_checked(folder, real_fs()).newest);
  }
  EXPECT_GT(calls, 20);
}

// The same kills on a saver that writes over the only copy.
TEST_F(Kill, CatchesASaverThatWritesInPlace) {
  const int kills = std::min(kill_count(300), 150);
  const auto whole = [](std::int64_t n) {  // the files of save n, under step 1, with their manifest
    CrashFs fs;
    const Stored stored = Store("/x", fs).save(1, files_of(n, kLarge), state_of(n));
    std::vector<StoredFile> files = files_of(n, kLarge);
    files.push_back({"manifest.json", fs.read(stored.folder + "/manifest.json")});
    return files;
  };
  const auto write = [&](std::int64_t n) {
    disk::create_directories(folder + "/step-1");
    for (const StoredFile& f : whole(n)) {
      const int fd =
          ::open((folder + "/step-1/" + f.name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
      for (std::size_t at = 0; at < f.bytes.size(); at += 4096)
        if (::write(fd, f.bytes.data() + at, std::min<std::size_t>(4096, f.bytes.size() - at)) < 0)
          ::_exit(1);
      ::fsync(fd);
      ::close(fd);
    }
  };
  measure(write);
  int failures = 0;
  std::int64_t last = 3;
  int i = 0;
  for (; i < kills || (failures == 0 && i < 20 * kills); ++i) {
    const std::int64_t first = last;
    const Ended e = run_and_kill(
        [&](int out) -> int {
          print(out, first);
          for (std::int64_t n = first + 1;; ++n) write(n), print(out, n);
        },
        {.seconds = delay(i), .from_first_output = true});
    last = std::max(last, reported(e));
    const Found found = load_checked(folder, real_fs(), kLarge);
    if (found.newest >= last && found.right) continue;
    ++failures;
    write(last);
  }
  std::printf("[  COUNTS  ] in place: %d of %d kills destroyed the state\n", failures, i);
  EXPECT_GT(failures, 0);
}

// What the tools themselves promise.
TEST_F(Kill, ToolsSeeHowItEnded) {
  const Ended done = run_and_kill({"sh", "-c", "echo one; echo two; exit 3"}, {.seconds = 60});
  EXPECT_FALSE(done.killed);
  EXPECT_EQ(3, done.code);
  EXPECT_EQ("one\ntwo\n", done.out);
  const Ended killed =
      run_and_kill({"sh", "-c", "echo one; sleep 60; echo two"}, {.from_first_output = true});
  EXPECT_TRUE(killed.killed);
  EXPECT_EQ(SIGKILL, killed.code);
  EXPECT_EQ("one\n", killed.out);
  const Ended asked =
      run_and_kill({"sh", "-c", "trap 'echo bye; exit 0' TERM; echo one; while :; do sleep 0.01; done"},
                   {.from_first_output = true, .signal = SIGTERM});
  EXPECT_FALSE(asked.killed);
  EXPECT_EQ(0, asked.code);
  EXPECT_EQ("one\nbye\n", asked.out);
  EXPECT_EQ(127, run_and_kill({"/no/such/program"}, {.seconds = 60}).code);
}

}  // namespace
}  // namespace rapt::test
