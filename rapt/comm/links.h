// SPDX-License-Identifier: Apache-2.0
// A Comm over messages between every two ranks: what MPI and sockets have in common. Before the bytes of a
// call travel, ranks tell each other which call it is and how long its pieces are, so ranks that disagree
// hear which one does what instead of waiting for each other. That costs a message of 32 bytes to each rank.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "rapt/comm/comm.h"

namespace rapt {

class Links {
 public:
  Links() = default;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  virtual ~Links() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // send[r] to each rank r, receive[r] from it, both as long at both ends; nothing to and from oneself.
  // Returns when all is there and what was sent may change.
  virtual void exchange(std::span<const Comm::Bytes> send, std::span<const Comm::Space> receive) = 0;
  // Ends the job. `text` says why, and which rank.
  [[noreturn]] virtual void abort(const std::string& text) = 0;
  virtual void close() = 0;  // the orderly end, when all have agreed to it
  virtual void left() {}     // this rank has ended while others wait for it: they end the job
};

// Its end is a call of all ranks, too, unless an exception or abort() ends it.
std::unique_ptr<Comm> comm_over(std::unique_ptr<Links> links);

}  // namespace rapt
