// SPDX-License-Identifier: Apache-2.0
// Starts something in a process of its own and kills it at a time of our choice.
//   const Ended e = run_and_kill({program, "train", …}, {.seconds = random_uniform(seed, i) * 0.3,
//                   .from_first_output = true});
//   … open what it left and check it against e.out
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "rapt/base/error.h"
#include "tests/build_kind.h"

namespace rapt::test {

struct KillPlan {
  double seconds = 0;
  bool from_first_output = false;  // count from the first byte it prints, not from the start
  int signal = SIGKILL;  // one that may be caught (SIGTERM): the end is awaited, and seen in `code`
};

struct Ended {
  bool killed = false;  // by a signal; else it ended by itself
  int code = 0;         // exit code, or the signal
  std::string out;      // all it wrote
};

// RAPT_KILLS, or else `otherwise`; a quarter of that with address checks, where a new process takes ten
// times as long.
inline int kill_count(int otherwise) {
  if (kSanitized) otherwise = (otherwise + 3) / 4;
  const char* set = std::getenv("RAPT_KILLS");
  return set && std::atoi(set) > 0 ? std::atoi(set) : otherwise;
}

// `child` runs after fork() and writes to the descriptor it gets; its answer is the exit code. The whole
// process group is killed.
inline Ended run_and_kill(const std::function<int(int out)>& child, const KillPlan& plan) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe: no descriptors left");
  const pid_t pid = ::fork();
  if (pid < 0) fail("fork: no more processes");
  if (pid == 0) {
    ::setpgid(0, 0);
    ::close(ends[0]);
    int code = 125;
    try {
      code = child(ends[1]);
    } catch (const std::exception& e) {
      const std::string text = concat("error: ", e.what(), "\n");
      if (::write(ends[1], text.data(), text.size()) < 0) code = 124;
    }
    ::_exit(code);
  }
  ::setpgid(pid, pid);  // both sides: whoever is first
  ::close(ends[1]);
  using Clock = std::chrono::steady_clock;
  const auto delay = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(plan.seconds));
  auto end = Clock::now() + delay;
  Ended e;
  bool sent = false, armed = !plan.from_first_output;
  for (;;) {
    timespec left{};
    if (armed && !sent) {
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now()).count();
      if (ns <= 0) {
        ::kill(plan.signal == SIGKILL ? -pid : pid, plan.signal);
        sent = true;
      } else {
        left = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
      }
    }
    pollfd look{ends[0], POLLIN, 0};
    const int ready = ::ppoll(&look, 1, armed && !sent ? &left : nullptr, nullptr);
    if (ready < 0 && errno != EINTR) break;
    if (ready <= 0) continue;
    char part[4096];
    const ssize_t n = ::read(ends[0], part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // it has ended
    e.out.append(part, static_cast<std::size_t>(n));
    if (!armed) armed = true, end = Clock::now() + delay;
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  e.killed = WIFSIGNALED(status);
  e.code = e.killed ? WTERMSIG(status) : WEXITSTATUS(status);
  return e;
}

// A command; its standard output comes back, errors go nowhere.
inline Ended run_and_kill(const std::vector<std::string>& command, const KillPlan& plan) {
  return run_and_kill(
      [&](int out) {
        std::vector<char*> words;
        for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
        words.push_back(nullptr);
        const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        if (::dup2(nowhere, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(nowhere, 2) < 0) return 126;
        ::execvp(words[0], words.data());
        return 127;
      },
      plan);
}

}  // namespace rapt::test
