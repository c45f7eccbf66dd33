// SPDX-License-Identifier: Apache-2.0
// Ranks over TCP, where no MPI connects them: Kubernetes, torchrun's variables, srun without a plugin. Every
// two ranks have a connection. Rank 0 listens at the address that all know; the others tell it where they
// listen themselves and get everybody's places; then each connects to those below it. For networks that one
// trusts: nothing is encrypted, and the token only keeps jobs apart.
//
// What goes over a connection is frames: kind, length, bytes; a frame is at most kFrame long. A rank that
// ends the job sends its reason as a last frame, so the others can say it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/base/rng.h"
#include "rapt/base/text.h"
#include "rapt/comm/job.h"
#include "rapt/comm/links.h"

namespace rapt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kFrame = 256 << 10, kMostWords = 4096;

// A descriptor that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

struct Place {  // where a rank listens
  sockaddr_storage address{};
  socklen_t length = 0;
};

// Who calls, and whom it takes for its own. Of one size, whatever stands in it.
struct Hello {
  static constexpr std::uint64_t kMagic = 0x3173'6b6e'6172'7470;
  std::uint64_t magic = kMagic, token = 0;
  std::int32_t rank = 0, ranks = 0;
  std::uint16_t port = 0;  // where it listens; its address is that of the connection
  std::array<char, 6> rest{};
};
static_assert(sizeof(Hello) == 32);

struct Frame {
  enum Kind : std::uint32_t { data, reason };
  Kind kind = data;
  std::uint32_t bytes = 0;
};

std::string text_of(const Place& p) {
  std::array<char, 64> host{}, port{};
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&p.address), p.length, host.data(), host.size(),
                port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  return concat(host.data(), " port ", port.data());
}

void set_port(Place& p, std::uint16_t port) {
  if (p.address.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(p.address).sin6_port = htons(port);
  else reinterpret_cast<sockaddr_in&>(p.address).sin_port = htons(port);
}

void set_up(int fd) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  // A machine that is gone is noticed after about two minutes.
  const int idle = 60, pause = 15, times = 4;
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
}

int left_ms(Clock::time_point until) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 1000));
}

// All of the bytes, or false: the other side closed, or the time is over.
template <class Move>
bool move_all(int fd, short event, std::size_t bytes, Clock::time_point until, const Move& move) {
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t n = move(at, bytes - at);
    if (n > 0) {
      at += static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else {
      if (Clock::now() >= until) return false;
      pollfd p{fd, event, 0};
      ::poll(&p, 1, left_ms(until));
    }
  }
  return true;
}
bool send_all(int fd, const void* bytes, std::size_t size, Clock::time_point until) {
  return move_all(fd, POLLOUT, size, until, [&](std::size_t at, std::size_t n) {
    return ::send(fd, static_cast<const char*>(bytes) + at, n, MSG_NOSIGNAL);
  });
}
bool receive_all(int fd, void* bytes, std::size_t size, Clock::time_point until) {
  return move_all(fd, POLLIN, size, until, [&](std::size_t at, std::size_t n) {
    return ::recv(fd, static_cast<char*>(bytes) + at, n, 0);
  });
}

class SocketLinks final : public Links {
 public:
  SocketLinks(const Launch& launch, double patience)
      : launch_(launch),
        until_(Clock::now() +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience))),
        patience_(patience),
        peers_(static_cast<std::size_t>(launch.ranks)) {
    hello_.rank = launch.rank, hello_.ranks = launch.ranks;
    for (const char c : launch.token) hello_.token = mix_key(hello_.token, static_cast<unsigned char>(c));
    if (launch.rank == 0) meet_as_first();
    else meet();
    for (Peer& p : peers_)
      if (p.socket) set_up(p.socket.fd());
  }
  int rank() const override { return launch_.rank; }
  int size() const override { return launch_.ranks; }

  void exchange(std::span<const Comm::Bytes> send, std::span<const Comm::Space> receive) override {
    for (int r = 0; r < size(); ++r) {
      Peer& p = peer(r);
      p.out = r == rank() ? Comm::Bytes{} : send[static_cast<std::size_t>(r)];
      p.in = r == rank() ? Comm::Space{} : receive[static_cast<std::size_t>(r)];
    }
    std::vector<pollfd> waits;
    std::vector<int> whose;
    for (;;) {
      waits.clear(), whose.clear();
      for (int r = 0; r < size(); ++r) {
        Peer& p = peer(r);
        if (!p.socket || !p.busy()) continue;
        push(r);
        if (p.busy()) pull(r);  // else what comes belongs to the next exchange
        if (!p.busy()) continue;
        waits.push_back({p.socket.fd(), static_cast<short>(POLLIN | (p.sending() ? POLLOUT : 0)), 0});
        whose.push_back(r);
      }
      if (waits.empty()) return;
      ::poll(waits.data(), waits.size(), 1000);
    }
  }
  [[noreturn]] void abort(const std::string& text) override {
    if (ended_.empty()) end(text);
    throw Error(ended_);  // for another reason already
  }
  void close() override {
    for (Peer& p : peers_) p.socket = Socket();
  }

 private:
  struct Peer {
    Socket socket;
    Comm::Bytes out;  // still to be sent, but for the frame that is
    Comm::Space in;
    // The frame that is being sent, and that being received: how many bytes of it have moved, head included.
    Frame head_out, head_in;
    std::size_t moved_out = 0, moved_in = 0;
    bool in_frame_out = false;

    bool sending() const { return in_frame_out || !out.empty(); }
    bool busy() const { return sending() || !in.empty(); }
  };
  Peer& peer(int r) { return peers_[static_cast<std::size_t>(r)]; }

  // ---- after all are connected
  void push(int r) {
    Peer& p = peer(r);
    while (p.sending()) {
      if (!p.in_frame_out) {
        p.head_out = {.kind = Frame::data,
                      .bytes = static_cast<std::uint32_t>(std::min(kFrame, p.out.size()))};
        p.moved_out = 0, p.in_frame_out = true;
      }
      // Head and bytes by one call.
      const std::size_t head = sizeof(Frame);
      std::array<iovec, 2> parts{};
      std::size_t n = 0;
      if (p.moved_out < head)
        parts[n++] = {reinterpret_cast<char*>(&p.head_out) + p.moved_out, head - p.moved_out};
      const std::size_t at = p.moved_out > head ? p.moved_out - head : 0;
      parts[n++] = {const_cast<std::byte*>(p.out.data()) + at, p.head_out.bytes - at};
      msghdr message{};
      message.msg_iov = parts.data(), message.msg_iovlen = n;
      const ssize_t moved = ::sendmsg(p.socket.fd(), &message, MSG_NOSIGNAL);
      if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (moved <= 0) lost(r, errno);
      p.moved_out += static_cast<std::size_t>(moved);
      if (p.moved_out == head + p.head_out.bytes) {
        p.out = p.out.subspan(p.head_out.bytes);
        p.in_frame_out = false;
      }
    }
  }
  // Also while nothing is expected but what is sent is not taken: the other side may say why.
  void pull(int r) {
    Peer& p = peer(r);
    for (;;) {
      ssize_t moved = 0;
      if (p.moved_in < sizeof(Frame)) {
        moved = ::recv(p.socket.fd(), reinterpret_cast<char*>(&p.head_in) + p.moved_in,
                       sizeof(Frame) - p.moved_in, 0);
      } else {
        const std::size_t at = p.moved_in - sizeof(Frame);
        moved = ::recv(p.socket.fd(), p.in.data() + at, p.head_in.bytes - at, 0);
      }
      if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (moved <= 0) lost(r, moved < 0 ? errno : 0);
      p.moved_in += static_cast<std::size_t>(moved);
      if (p.moved_in == sizeof(Frame)) check_head(r);
      if (p.moved_in < sizeof(Frame) + p.head_in.bytes || p.moved_in < sizeof(Frame)) continue;
      p.in = p.in.subspan(p.head_in.bytes);
      p.moved_in = 0;
      if (p.in.empty()) return;
    }
  }
  void check_head(int r) {
    Peer& p = peer(r);
    if (p.head_in.kind == Frame::reason) end_with(r);
    if (p.head_in.kind != Frame::data || p.head_in.bytes == 0 || p.head_in.bytes > p.in.size())
      fail("rank ", r, " of ", size(), " sends what rank ", rank(), " does not expect: ", p.head_in.bytes,
           " bytes where ", p.in.size(), " are to come; are both of one build?");
  }
  // Its last words.
  [[noreturn]] void end_with(int r) {
    Peer& p = peer(r);
    std::string text(std::min<std::size_t>(p.head_in.bytes, kMostWords), ' ');
    if (!receive_all(p.socket.fd(), text.data(), text.size(), Clock::now() + std::chrono::seconds(1)))
      text = concat("rank ", r, " of ", size(), " ended the job");
    p.socket = Socket();
    end(text);
  }
  // A connection that ends: where another rank says why within a moment, that is the reason.
  [[noreturn]] void lost(int r, int error) {
    const std::string ended =
        concat("rank ", r, " of ", size(), " has ended", error ? concat(" (", std::strerror(error), ")") : "",
               " while others wait for it: it died, or its machine is cut off");
    peer(r).socket = Socket();
    const auto until = Clock::now() + std::chrono::milliseconds(300);
    while (Clock::now() < until) {
      for (int other = 0; other < size(); ++other) {
        Peer& p = peer(other);
        if (!p.socket || p.moved_in > 0) continue;
        Frame head;
        if (::recv(p.socket.fd(), &head, sizeof head, MSG_PEEK) != sizeof head || head.kind != Frame::reason)
          continue;
        receive_all(p.socket.fd(), &p.head_in, sizeof head, until);
        end_with(other);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    end(ended);
  }
  // For all ranks that can be reached.
  [[noreturn]] void end(const std::string& text) {
    ended_ = text;
    tell_all(text);
    throw Error(text);
  }
  void tell_all(const std::string& text) {
    const auto until = Clock::now() + std::chrono::seconds(1);
    const Frame head{.kind = Frame::reason,
                     .bytes = static_cast<std::uint32_t>(std::min(text.size(), kMostWords))};
    for (Peer& p : peers_) {
      if (!p.socket || p.in_frame_out)
        continue;  // in the middle of a frame: the end of the connection says it
      if (send_all(p.socket.fd(), &head, sizeof head, until))
        send_all(p.socket.fd(), text.data(), head.bytes, until);
      ::shutdown(p.socket.fd(), SHUT_WR);
    }
  }

  // ---- until all are connected
  std::vector<Place> places_of(const std::string& host, int port) const {
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM;
    const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    std::vector<Place> out;
    for (const addrinfo* a = found; a; a = a->ai_next) {
      Place p;
      std::memcpy(&p.address, a->ai_addr, a->ai_addrlen);
      p.length = a->ai_addrlen;
      out.push_back(p);
    }
    if (found) ::freeaddrinfo(found);
    if (error != 0) why_ = ::gai_strerror(error);
    return out;
  }
  Socket listen_at(const Place& place) const {
    Socket s(::socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int one = 1;
    if (s) ::setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!s || ::bind(s.fd(), reinterpret_cast<const sockaddr*>(&place.address), place.length) != 0 ||
        ::listen(s.fd(), 1024) != 0) {
      why_ = std::strerror(errno);
      return Socket();
    }
    return s;
  }
  // The next that says a hello of this job; nothing where the time is over. Others are sent away.
  Socket accept_one(const Socket& listener, Hello& hello, Place* from) const {
    while (Clock::now() < until_) {
      pollfd p{listener.fd(), POLLIN, 0};
      if (::poll(&p, 1, left_ms(until_)) <= 0) continue;
      Place place;
      place.length = sizeof place.address;
      Socket s(::accept4(listener.fd(), reinterpret_cast<sockaddr*>(&place.address), &place.length,
                         SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!s) continue;
      if (!receive_all(s.fd(), &hello, sizeof hello,
                       std::min(until_, Clock::now() + std::chrono::seconds(5))) ||
          hello.magic != Hello::kMagic || hello.token != hello_.token || hello.ranks != size() ||
          hello.rank < 0 || hello.rank >= size() || hello.rank == rank())
        continue;
      if (from) *from = place;
      return s;
    }
    return Socket();
  }
  Socket connect_to(const Place& place) const {
    Socket s(::socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!s) return s;
    if (::connect(s.fd(), reinterpret_cast<const sockaddr*>(&place.address), place.length) != 0) {
      if (errno != EINPROGRESS) {
        why_ = std::strerror(errno);
        return Socket();
      }
      pollfd p{s.fd(), POLLOUT, 0};
      int error = 0;
      socklen_t size = sizeof error;
      if (::poll(&p, 1, left_ms(until_)) <= 0) error = ETIMEDOUT;
      else ::getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error) {
        why_ = std::strerror(error);
        return Socket();
      }
    }
    return s;
  }
  std::string missing() const {
    if (rank() > 0 && !peers_[0].socket) return "rank 0";  // from whom it would hear of the others
    std::vector<std::string> names;
    for (int r = 0; r < size(); ++r)
      if (r != rank() && !peers_[static_cast<std::size_t>(r)].socket) names.push_back(std::to_string(r));
    const std::size_t n = names.size();
    if (n > 8) names.resize(8);
    return concat(n == 1 ? "rank " : "ranks ", join(names), n > 8 ? " …" : "");
  }
  [[noreturn]] void fail_late() const {
    fail(
        "ranks: rank ", rank(), " of ", size(), " has waited ", static_cast<int>(patience_), " s for ",
        missing(), " at ", launch_.address, " port ", launch_.port,
        why_.empty() ? "" : concat(" (", why_, ")"),
        ": are all started, with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT and one build, and may they "
        "connect to each other? RAPT_RANK_CONNECT sets how long they wait, in seconds");
  }

  void meet_as_first() {
    Socket listener;
    for (const Place& p : places_of(launch_.address, launch_.port))
      if (!listener) listener = listen_at(p);
    if (!listener)
      fail("ranks: rank 0 cannot listen at MASTER_ADDR=", launch_.address, ", MASTER_PORT=", launch_.port,
           ": ", why_,
           "; MASTER_ADDR must be a name or address of the machine of rank 0, the port free there");
    std::vector<Place> places(peers_.size());
    for (int n = 1; n < size();) {
      Hello hello;
      Place from;
      Socket s = accept_one(listener, hello, &from);
      if (!s) fail_late();
      Peer& p = peer(hello.rank);
      if (p.socket)
        fail("ranks: two processes say they are rank ", hello.rank, " of ", size(),
             "; the second calls from ", text_of(from), ": each needs a RANK of its own");
      set_port(from, hello.port);
      places[static_cast<std::size_t>(hello.rank)] = from;
      p.socket = std::move(s);
      ++n;
    }
    for (int r = 1; r < size(); ++r)
      if (!send_all(peer(r).socket.fd(), places.data(), places.size() * sizeof(Place), until_)) {
        peer(r).socket = Socket();
        fail_late();
      }
  }
  void meet() {
    // Rank 0 may start later.
    for (bool told = false; !told;) {
      for (const Place& p : places_of(launch_.address, launch_.port)) {
        Socket s = connect_to(p);
        if (!s) continue;
        // The others reach this rank where rank 0 does: it listens at that address.
        Place own;
        own.length = sizeof own.address;
        ::getsockname(s.fd(), reinterpret_cast<sockaddr*>(&own.address), &own.length);
        set_port(own, 0);
        listener_ = listen_at(own);
        if (!listener_) fail("ranks: rank ", rank(), " cannot listen: ", why_);
        ::getsockname(listener_.fd(), reinterpret_cast<sockaddr*>(&own.address), &own.length);
        hello_.port =
            ntohs(own.address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own.address).sin6_port
                                                    : reinterpret_cast<sockaddr_in&>(own.address).sin_port);
        if (!send_all(s.fd(), &hello_, sizeof hello_, until_)) continue;
        peer(0).socket = std::move(s);
        told = true;
        break;
      }
      if (told) break;
      if (Clock::now() >= until_) fail_late();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    std::vector<Place> places(peers_.size());
    if (!receive_all(peer(0).socket.fd(), places.data(), places.size() * sizeof(Place),
                     until_ + std::chrono::seconds(2))) {
      if (Clock::now() >= until_) fail_late();
      fail("ranks: rank 0 of ", size(), " at ", launch_.address, " port ", launch_.port, " sent rank ",
           rank(), " away: it belongs to another job or build, or gave up waiting for others");
    }
    for (int r = 1; r < rank(); ++r) {
      Place& p = places[static_cast<std::size_t>(r)];
      p.length = std::min<socklen_t>(p.length, sizeof p.address);
      peer(r).socket = connect_to(p);
      if (!peer(r).socket || !send_all(peer(r).socket.fd(), &hello_, sizeof hello_, until_)) {
        why_ = concat(text_of(p), ": ", why_);
        peer(r).socket = Socket();
        fail_late();
      }
    }
    for (int n = rank() + 1; n < size(); ++n) {
      Hello hello;
      Socket s = accept_one(listener_, hello, nullptr);
      if (!s || hello.rank < rank()) fail_late();
      peer(hello.rank).socket = std::move(s);
    }
    listener_ = Socket();
  }

  const Launch launch_;
  const Clock::time_point until_;
  const double patience_;
  Hello hello_;
  std::vector<Peer> peers_;
  Socket listener_;
  std::string ended_;  // why the job has
  mutable std::string why_;  // the last thing that did not work
};

double connect_patience() {
  const char* set = std::getenv("RAPT_RANK_CONNECT");
  if (!set || !*set) return 300;
  char* end = nullptr;
  const double s = std::strtod(set, &end);
  if (*end || !(s >= 1) || s > 1e6)
    fail_usage("RAPT_RANK_CONNECT=", set, " in the environment: seconds, from 1 on");
  return s;
}

}  // namespace

std::unique_ptr<Comm> socket_ranks(const Launch& launch) {
  return comm_over(std::make_unique<SocketLinks>(launch, connect_patience()));
}

}  // namespace rapt
