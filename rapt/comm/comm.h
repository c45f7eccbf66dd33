// SPDX-License-Identifier: Apache-2.0
// How the ranks of one job hand bytes to each other. Bytes are moved and never added: what is summed over
// ranks is summed by whoever asked for them, in its own order, so no bit depends on a library or a network.
//
// Every call is collective: all ranks make the same calls in the same order. Lengths may be zero. A rank that
// does otherwise (another call, other lengths, it fails or ends while others wait for it) ends the job: each
// rank's present or next call throws an Error that names that rank and says why. One thread of a rank at a
// time calls, not always the same one (of MPI: MPI_THREAD_SERIALIZED).
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "rapt/base/error.h"

namespace rapt {

enum class Phase { starting, reading, computing, exchanging, updating, judging, saving, ending };
struct Doing {
  Phase phase = Phase::starting;
  Dim step = 0, leaf = -1;  // the step that is computed, from 1; a leaf's number, -1: none
};

class Comm {
 public:
  using Bytes = std::span<const std::byte>;
  using Space = std::span<std::byte>;

  Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  virtual ~Comm() = default;

  virtual int rank() const = 0;  // 0 … size() - 1
  virtual int size() const = 0;
  virtual void barrier() = 0;
  // send[r] goes to rank r, receive[r] is what rank r sends here: as long as its send[rank()]. One of each
  // for every rank; none of what is received overlaps anything that is sent.
  virtual void all_to_all(std::span<const Bytes> send, std::span<const Space> receive) = 0;
  // all[r] becomes rank r's `mine`, at every rank: all[r] is as long. all[rank()] may be `mine` itself.
  virtual void all_gather(Bytes mine, std::span<const Space> all) = 0;
  // `bytes` of rank `from`, at every rank.
  virtual void broadcast(Space bytes, int from) = 0;
  // Ends the job for all ranks, for a reason: throws it here, and where others wait or call next. Ranks that
  // are processes may be ended instead, the reason printed once.
  [[noreturn]] virtual void abort(const std::string& why) = 0;
  // What this rank is at, for whoever asks why others wait (heartbeat.h); no call of the others.
  virtual void at(const Doing&) {}
};

// One rank.
std::unique_ptr<Comm> alone();

// f on so many ranks, each a thread of this process; returns when all have. Where ranks fail, an Error with
// the rank and the message of the first one is thrown here, too.
void run_ranks(int ranks, const std::function<void(Comm&)>& f);

}  // namespace rapt
