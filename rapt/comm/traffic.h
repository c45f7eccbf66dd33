// SPDX-License-Identifier: Apache-2.0
// A Comm that counts what its rank hands to others.
#pragma once
#include <cstdint>

#include "rapt/comm/comm.h"

namespace rapt {

struct Traffic {
  // Bytes sent to other ranks, each counted once for every rank that gets it, and calls.
  std::uint64_t all_to_all = 0, all_gather = 0, broadcast = 0, calls = 0;
  std::uint64_t total() const { return all_to_all + all_gather + broadcast; }
};

class CountedComm final : public Comm {
 public:
  explicit CountedComm(Comm& of) : of_(of) {}  // which must outlive it

  int rank() const override { return of_.rank(); }
  int size() const override { return of_.size(); }
  void barrier() override {
    ++sent.calls;
    of_.barrier();
  }
  void all_to_all(std::span<const Bytes> send, std::span<const Space> receive) override {
    ++sent.calls;
    for (std::size_t r = 0; r < send.size(); ++r)
      if (static_cast<int>(r) != rank()) sent.all_to_all += send[r].size();
    of_.all_to_all(send, receive);
  }
  void all_gather(Bytes mine, std::span<const Space> all) override {
    ++sent.calls;
    sent.all_gather += mine.size() * static_cast<std::uint64_t>(size() - 1);
    of_.all_gather(mine, all);
  }
  void broadcast(Space bytes, int from) override {
    ++sent.calls;
    if (from == rank()) sent.broadcast += bytes.size() * static_cast<std::uint64_t>(size() - 1);
    of_.broadcast(bytes, from);
  }
  [[noreturn]] void abort(const std::string& why) override { of_.abort(why); }
  void at(const Doing& doing) override { of_.at(doing); }

  Traffic sent;  // not to be read while a step runs

 private:
  Comm& of_;
};

}  // namespace rapt
