// SPDX-License-Identifier: Apache-2.0
// Every call is two exchanges: headers of all with all, then the bytes.
#include "rapt/comm/links.h"

#include <cstdint>
#include <cstring>
#include <exception>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {
namespace {

enum class Kind : std::uint32_t { barrier, all_to_all, all_gather, broadcast, end };

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::barrier: return "barrier";
    case Kind::all_to_all: return "all_to_all";
    case Kind::all_gather: return "all_gather";
    case Kind::broadcast: return "broadcast";
    case Kind::end: return "the end";
  }
  return "something unknown";
}

struct Header {
  std::uint64_t call = 0;  // number of the call
  Kind kind = Kind::barrier;
  std::int32_t from = 0;  // broadcast
  std::uint64_t sent = 0, expected = 0;  // bytes to, and from, whom this goes to
};
static_assert(sizeof(Header) == 32);

class LinkComm final : public Comm {
 public:
  explicit LinkComm(std::unique_ptr<Links> links) : links_(std::move(links)) {
    const auto n = static_cast<std::size_t>(size());
    send_.resize(n), receive_.resize(n), mine_.resize(n), theirs_.resize(n);
  }
  ~LinkComm() override {
    if (std::uncaught_exceptions() > exceptions_ || failed_) return;
    try {
      pieces();
      if (agree(Kind::end, 0)) links_->close();
      else links_->left();
    } catch (...) {  // somebody else failed, and said why
    }
  }
  int rank() const override { return links_->rank(); }
  int size() const override { return links_->size(); }

  void barrier() override {
    pieces();
    call(Kind::barrier, 0);
  }
  void all_to_all(std::span<const Bytes> send, std::span<const Space> receive) override {
    check_pieces("all_to_all sends", send.size());
    check_pieces("all_to_all receives", receive.size());
    send_.assign(send.begin(), send.end());
    receive_.assign(receive.begin(), receive.end());
    keep_own("all_to_all", send[own()], receive[own()]);
    call(Kind::all_to_all, 0);
  }
  void all_gather(Bytes mine, std::span<const Space> all) override {
    check_pieces("all_gather receives", all.size());
    send_.assign(all.size(), mine);
    receive_.assign(all.begin(), all.end());
    keep_own("all_gather", mine, all[own()]);
    call(Kind::all_gather, 0);
  }
  void broadcast(Space bytes, int from) override {
    if (from < 0 || from >= size())
      abort(concat("comm: broadcast from rank ", from, "; there are ranks 0 to ", size() - 1));
    pieces();
    if (from == rank()) send_.assign(send_.size(), bytes);
    else receive_[static_cast<std::size_t>(from)] = bytes;
    call(Kind::broadcast, from);
  }
  [[noreturn]] void abort(const std::string& why) override {
    failed_ = true;
    links_->abort(concat("rank ", rank(), " of ", size(), ": ", why));
    std::terminate();  // never: g++ 12 does not take its word for it
  }

 private:
  std::size_t own() const { return static_cast<std::size_t>(rank()); }
  void pieces() {  // none
    send_.assign(send_.size(), {});
    receive_.assign(receive_.size(), {});
  }
  void check_pieces(const char* what, std::size_t pieces) {
    if (pieces != static_cast<std::size_t>(size()))
      abort(concat("comm: ", what, " ", pieces, " pieces; there are ", size(), " ranks"));
  }
  void keep_own(const char* what, Bytes from, Space into) {
    if (from.size() != into.size())
      abort(concat("comm: ", what, ": rank ", rank(), " sends ", from.size(), " bytes to rank ", rank(),
                   ", which expects ", into.size()));
    if (!from.empty() && from.data() != into.data()) std::memcpy(into.data(), from.data(), from.size());
  }

  void call(Kind kind, int from) {
    failed_ = true;  // unless it comes to its end
    agree(kind, from);
    links_->exchange(send_, receive_);
    failed_ = false;
  }

  // Fails where ranks do not make the same call; false: others end too early for it, and hear of it.
  bool agree(Kind kind, int from) {
    send_[own()] = {}, receive_[own()] = {};
    std::vector<Bytes> send;
    std::vector<Space> receive;
    for (std::size_t r = 0; r < mine_.size(); ++r) {
      const std::uint64_t sent = send_[r].size(), room = receive_[r].size();
      mine_[r] = {.call = calls_, .kind = kind, .from = from, .sent = sent, .expected = room};
      send.push_back(std::as_bytes(std::span(&mine_[r], 1)));
      receive.push_back(std::as_writable_bytes(std::span(&theirs_[r], 1)));
    }
    theirs_[own()] = mine_[own()];
    links_->exchange(send, receive);
    ++calls_;
    bool same = true;
    for (const Header& h : theirs_) same = same && h.kind == kind;
    if (kind == Kind::end) return same;
    check_same();
    return true;
  }
  // As all ranks see it, so that all say the same.
  void check_same() const {
    const int n = size();
    const Header& first = theirs_[0];
    for (int r = 0; r < n; ++r)
      if (theirs_[static_cast<std::size_t>(r)].kind == Kind::end)
        fail("comm: rank ", r, " of ", n, " has ended while others wait for it");
    for (int r = 0; r < n; ++r) {
      const Header& h = theirs_[static_cast<std::size_t>(r)];
      if (h.kind != first.kind)
        fail("comm: rank 0 calls ", name_of(first.kind), ", rank ", r, " ", name_of(h.kind));
      if (h.from != first.from)
        fail("comm: broadcast: rank 0 expects it from rank ", first.from, ", rank ", r, " from rank ",
             h.from);
      if (h.call != first.call)
        fail("comm: rank 0 is at its call ", first.call, ", rank ", r, " at ", h.call);
    }
    for (int r = 0; r < n; ++r) {
      const Header &h = theirs_[static_cast<std::size_t>(r)], &m = mine_[static_cast<std::size_t>(r)];
      if (m.sent != h.expected)
        fail("comm: ", name_of(first.kind), ": rank ", rank(), " sends ", m.sent, " bytes to rank ", r,
             ", which expects ", h.expected);
      if (h.sent != m.expected)
        fail("comm: ", name_of(first.kind), ": rank ", r, " sends ", h.sent, " bytes to rank ", rank(),
             ", which expects ", m.expected);
    }
  }

  const std::unique_ptr<Links> links_;
  const int exceptions_ = std::uncaught_exceptions();
  bool failed_ = false;
  std::uint64_t calls_ = 0;
  std::vector<Bytes> send_;
  std::vector<Space> receive_;
  std::vector<Header> mine_, theirs_;
};

}  // namespace

std::unique_ptr<Comm> comm_over(std::unique_ptr<Links> links) {
  return std::make_unique<LinkComm>(std::move(links));
}

}  // namespace rapt
