// SPDX-License-Identifier: Apache-2.0
// The job of one rank: what it sends is what it receives.
#include <cstring>

#include "rapt/base/error.h"
#include "rapt/comm/comm.h"

namespace rapt {
namespace {

class Alone final : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  void all_to_all(std::span<const Bytes> send, std::span<const Space> receive) override {
    if (send.size() != 1 || receive.size() != 1)
      fail("comm: all_to_all: ", send.size(), " pieces to send and ", receive.size(),
           " to receive; one rank sends and receives one of each");
    copy(send[0], receive[0], "all_to_all");
  }
  void all_gather(Bytes mine, std::span<const Space> all) override {
    if (all.size() != 1) fail("comm: all_gather: room for ", all.size(), " pieces; one rank has one");
    copy(mine, all[0], "all_gather");
  }
  void broadcast(Space, int from) override {
    if (from != 0) fail("comm: broadcast from rank ", from, "; the only rank is 0");
  }
  [[noreturn]] void abort(const std::string& why) override { fail("rank 0 of 1: ", why); }

 private:
  static void copy(Bytes from, Space into, const char* what) {
    if (from.size() != into.size())
      fail("comm: ", what, ": ", from.size(), " bytes are sent, ", into.size(), " are to be received");
    if (!from.empty() && from.data() != into.data()) std::memcpy(into.data(), from.data(), from.size());
  }
};

}  // namespace

std::unique_ptr<Comm> alone() { return std::make_unique<Alone>(); }

}  // namespace rapt
