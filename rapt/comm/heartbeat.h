// SPDX-License-Identifier: Apache-2.0
// Which rank is behind, and which one died. Every rank keeps a small file up to date, FOLDER/rank-N: how many
// calls of the job it has begun, whether it waits in one, what it is at, and a counter that a thread of it
// moves twenty times a second. A rank that waits too long reads the others' and names those it waits for,
// once, and says when they go on. What a run leaves that did not come to its end tells the next one where
// that was.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "rapt/comm/comm.h"

namespace rapt {

class Heartbeat {
 public:
  struct Options {
    double patience = 30;  // seconds in one call until others are named
    std::function<void(const std::string&)> say = {};  // from a thread of its own
  };
  // The folder is made; its file of an earlier run is overwritten.
  Heartbeat(std::string folder, int rank, int ranks, Options options);
  ~Heartbeat();  // the thread ends; the file stays as it is

  void at(const Doing& doing);
  void begin_call();
  void end_call();
  void failed(const std::string& why);
  void done();  // the orderly end
  // From a signal handler: this process was told to end.
  static void signalled(int signal) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// comm, with every call noted; both must outlive what is returned.
std::unique_ptr<Comm> watched(Comm& comm, Heartbeat& heartbeat);

// Of the files that a run left in the folder: "" where there are none or all came to their end, else which
// rank failed or died, and where.
std::string last_words(const std::string& folder);

// RAPT_RANK_PATIENCE in seconds, or 30.
double rank_patience();

}  // namespace rapt
