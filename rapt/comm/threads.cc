// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process. Each says what it calls with and waits; the last one to come compares;
// then each copies what it receives from the others' memory, and nobody leaves before all have.
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/comm/comm.h"

namespace rapt {
namespace {

struct Call {
  enum class Kind { barrier, all_to_all, all_gather, broadcast } kind = Kind::barrier;
  int from = 0;  // broadcast
  std::span<const Comm::Bytes> send = {};  // one for each rank, or one for all
  std::span<const Comm::Space> receive = {};  // one from each rank; broadcast: one
};

const char* name_of(Call::Kind kind) {
  switch (kind) {
    case Call::Kind::barrier: return "barrier";
    case Call::Kind::all_to_all: return "all_to_all";
    case Call::Kind::all_gather: return "all_gather";
    case Call::Kind::broadcast: return "broadcast";
  }
  return "";
}

class Job {
 public:
  explicit Job(int ranks) : calls_(static_cast<std::size_t>(ranks)) {}
  int size() const { return static_cast<int>(calls_.size()); }

  // What `rank` calls with; when it returns, every rank's call can be read until done().
  const std::vector<Call>& begin(int rank, const Call& call) {
    std::unique_lock hold(lock_);
    if (!why_.empty()) throw Error(why_);
    calls_[static_cast<std::size_t>(rank)] = call;
    if (++here_ + ended_ == size()) come_together();
    const std::uint64_t round = round_;
    changed_.wait(hold, [&] { return ready_ > round || !why_.empty(); });
    if (ready_ <= round) throw Error(why_);
    return calls_;
  }
  void done() {
    std::unique_lock hold(lock_);
    const std::uint64_t round = round_;
    if (++copied_ == size()) {
      here_ = copied_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(hold, [&] { return round_ > round; });  // nobody fails meanwhile: all are here
  }
  // The first reason stays.
  void stop(const std::string& why) {
    const std::lock_guard hold(lock_);
    if (!why_.empty()) return;
    why_ = why;
    changed_.notify_all();
  }
  void end(int rank) {
    const std::lock_guard hold(lock_);
    ++ended_, last_ended_ = rank;
    if (here_ > 0 && here_ + ended_ == size()) come_together();
  }
  const std::string& why() const { return why_; }  // when all have ended

 private:
  // Under the lock, when no other rank will come.
  void come_together() {
    if (why_.empty()) why_ = disagreement();
    if (why_.empty()) ready_ = round_ + 1;
    changed_.notify_all();
  }
  std::string disagreement() const {
    if (ended_ > 0)
      return concat("comm: rank ", last_ended_, " of ", size(), " has ended while others wait for it");
    for (int r = 0; r < size(); ++r) {
      const Call &first = calls_[0], &call = calls_[static_cast<std::size_t>(r)];
      if (call.kind != first.kind)
        return concat("comm: rank 0 calls ", name_of(first.kind), ", rank ", r, " ", name_of(call.kind));
      if (call.from != first.from)
        return concat("comm: broadcast: rank 0 expects it from rank ", first.from, ", rank ", r,
                      " from rank ", call.from);
    }
    for (int to = 0; to < size(); ++to)
      for (int from = 0; from < size(); ++from) {
        const std::size_t sent = bytes_sent(from, to), room = bytes_room(from, to);
        if (sent != room)
          return concat("comm: ", name_of(calls_[0].kind), ": rank ", from, " sends ", sent,
                        " bytes to rank ", to, ", which expects ", room);
      }
    return "";
  }
  std::size_t bytes_sent(int from, int to) const {
    const Call& c = calls_[static_cast<std::size_t>(from)];
    switch (c.kind) {
      case Call::Kind::barrier: return 0;
      case Call::Kind::all_to_all: return c.send[static_cast<std::size_t>(to)].size();
      case Call::Kind::all_gather: return c.send[0].size();
      case Call::Kind::broadcast: return from == c.from ? c.receive[0].size() : 0;
    }
    return 0;
  }
  std::size_t bytes_room(int from, int to) const {
    const Call& c = calls_[static_cast<std::size_t>(to)];
    switch (c.kind) {
      case Call::Kind::barrier: return 0;
      case Call::Kind::all_to_all:
      case Call::Kind::all_gather: return c.receive[static_cast<std::size_t>(from)].size();
      case Call::Kind::broadcast: return from == c.from ? c.receive[0].size() : 0;
    }
    return 0;
  }

  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  int here_ = 0, copied_ = 0;  // ranks in the present call, and those that have what they receive
  int ended_ = 0, last_ended_ = 0;
  std::uint64_t round_ = 0, ready_ = 0;  // calls that are over; one more than the present one when all came
  std::string why_;  // the job was ended
};

class Threads final : public Comm {
 public:
  Threads(Job& job, int rank) : job_(job), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return job_.size(); }

  void barrier() override {
    job_.begin(rank_, {});
    job_.done();
  }
  void all_to_all(std::span<const Bytes> send, std::span<const Space> receive) override {
    check_pieces("all_to_all sends", send.size());
    check_pieces("all_to_all receives", receive.size());
    const auto& calls = job_.begin(rank_, {.kind = Call::Kind::all_to_all, .send = send, .receive = receive});
    for (std::size_t r = 0; r < calls.size(); ++r) copy(calls[r].send[own()], receive[r]);
    job_.done();
  }
  void all_gather(Bytes mine, std::span<const Space> all) override {
    check_pieces("all_gather receives", all.size());
    const auto& calls =
        job_.begin(rank_, {.kind = Call::Kind::all_gather, .send = {&mine, 1}, .receive = all});
    for (std::size_t r = 0; r < calls.size(); ++r) copy(calls[r].send[0], all[r]);
    job_.done();
  }
  void broadcast(Space bytes, int from) override {
    if (from < 0 || from >= size())
      abort(concat("comm: broadcast from rank ", from, "; there are ranks 0 to ", size() - 1));
    const auto& calls =
        job_.begin(rank_, {.kind = Call::Kind::broadcast, .from = from, .receive = {&bytes, 1}});
    copy(calls[static_cast<std::size_t>(from)].receive[0], bytes);
    job_.done();
  }
  [[noreturn]] void abort(const std::string& why) override {
    const std::string text = concat("rank ", rank_, " of ", size(), ": ", why);
    job_.stop(text);
    throw Error(text);
  }

 private:
  std::size_t own() const { return static_cast<std::size_t>(rank_); }
  void check_pieces(const char* what, std::size_t pieces) {
    if (pieces != static_cast<std::size_t>(size()))
      abort(concat("comm: ", what, " ", pieces, " pieces; there are ", size(), " ranks"));
  }
  static void copy(Bytes from, Space into) {
    if (!from.empty() && from.data() != into.data()) std::memcpy(into.data(), from.data(), from.size());
  }

  Job& job_;
  const int rank_;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(Comm&)>& f) {
  if (ranks < 1) fail("comm: ", ranks, " ranks; at least one is needed");
  Job job(ranks);
  const auto run = [&](int rank) {
    Threads comm(job, rank);
    const auto stop = [&](const char* why) { job.stop(concat("rank ", rank, " of ", ranks, ": ", why)); };
    try {
      f(comm);
    } catch (const std::exception& e) {
      stop(e.what());
    } catch (...) {
      stop("an exception");
    }
    job.end(rank);
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  } catch (const std::system_error&) {
    job.stop(concat("comm: the system gives ", threads.size(), " threads, ", ranks, " ranks need one each"));
  }
  for (std::thread& t : threads) t.join();
  if (!job.why().empty()) throw Error(job.why());
}

}  // namespace rapt
