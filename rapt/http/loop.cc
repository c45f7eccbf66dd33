// SPDX-License-Identifier: Apache-2.0
// Turns of the loop, who is let in, and what is done when descriptors run out.
#include "rapt/http/loop.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <limits>

#include "rapt/base/error.h"

namespace rapt::http {
namespace {

constexpr std::uint64_t kWakeId = 0;
constexpr int kAcceptsPerTurn = 64;
constexpr int kMostShed = 16;      // told to go away at the same time; others are just closed
constexpr double kPause = 0.05;    // seconds without listening while there are no descriptors

Fd open_reserve() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Loop::Loop(Handler& handler_, const Limits& limits_)
    : handler(handler_),
      limits(limits_),
      buffer(64 << 10),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      reserve_(open_reserve()) {
  if (!epoll_ || !wake_ || !reserve_)
    fail("the server cannot begin: no file descriptor is left (ulimit -n tells how many there may be)");
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kWakeId}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0)
    fail("the server cannot begin: epoll_ctl failed with errno ", errno);
}

Loop::~Loop() = default;

// ---- Listening

void Loop::add_listener(Listener listener) {
  const std::uint64_t id = ++last_id_;
  const int fd = listener.get();
  listeners_.emplace(id, std::move(listener));
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = id}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    fail("a listening socket cannot be watched: errno ", errno);
}

int Loop::listen(const std::string& host, int port) {
  for (Fd& fd : listen_tcp(host, port)) add_listener({.fd = std::move(fd), .unix_socket = nullptr});
  return port;
}

void Loop::listen_unix(const std::string& path) {
  Listener listener;
  listener.unix_socket = std::make_unique<UnixListener>(path);
  add_listener(std::move(listener));
}

void Loop::use_tls(const std::string& certificate, const std::string& key) {
  tls_ = load_tls(certificate, key);
  certificate_ = certificate;
  key_ = key;
}

void Loop::reload_tls() {
  if (tls_) tls_ = load_tls(certificate_, key_);
}

void Loop::watch_listeners(std::uint32_t events) noexcept {
  for (auto& [id, listener] : listeners_) {
    epoll_event event = {.events = events, .data = {.u64 = id}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener.get(), &event);
  }
}

void Loop::pause_listening() {
  timers.set(Clock::now() + seconds(kPause), [this] { resume_listening(); });
  paused_ = true;
  watch_listeners(0);
}

void Loop::resume_listening() {
  paused_ = false;
  watch_listeners(EPOLLIN);
  if (!reserve_) reserve_ = open_reserve();
  if (!reserve_) pause_listening();
}

void Loop::accept_from(Listener& listener) {
  for (int i = 0; i < kAcceptsPerTurn && !paused_; ++i) {
    sockaddr_storage address = {};
    socklen_t size = sizeof address;
    Fd fd(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&address), &size,
                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      admit(std::move(fd), peer_of(address), !listener.unix_socket);
      continue;
    }
    if (errno == EAGAIN) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      return accept_with_reserve(listener);
    // What is left are failures of that one connection (accept(2): it may be gone, or its network).
  }
}

// No descriptor is left. The one in reserve takes one client at a time, who is told so; the others wait in
// the backlog meanwhile, and the loop does not spin over them.
void Loop::accept_with_reserve(Listener& listener) {
  reserve_.close();
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  Fd fd(
      ::accept4(listener.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd)
    add(std::move(fd), peer_of(address), !listener.unix_socket, 503,
        "the server has no file descriptor left");
  pause_listening();
}

void Loop::admit(Fd fd, const Peer& peer, bool tcp) {
  ++counts.accepted;
  const int served = static_cast<int>(connections_.size()) - shed_;
  if (served >= limits.connections) return add(std::move(fd), peer, tcp, 503, "too many connections");
  if (!peer.group.empty()) {
    const auto found = groups_.find(peer.group);
    if (found != groups_.end() && found->second >= limits.per_address)
      return add(std::move(fd), peer, tcp, 429, "too many connections from this address");
  }
  add(std::move(fd), peer, tcp, 0, "");
}

// refusal_status 0: to be served.
void Loop::add(Fd fd, const Peer& peer, bool tcp, int refusal_status, std::string_view why) {
  if (refusal_status != 0 && (shed_ >= kMostShed || (tcp && tls_))) {
    ++counts.refused;  // of TLS one would have to go through a handshake first
    return;
  }
  if (tcp) set_tcp_options(fd.get());
  const std::uint64_t id = ++last_id_;
  auto connection =
      std::make_unique<Connection>(*this, id, std::move(fd), peer, tcp && tls_ ? tls_->accept() : nullptr);
  Connection& c = *connections_.emplace(id, std::move(connection)).first->second;
  counts.open = static_cast<int>(connections_.size());
  if (refusal_status == 0) {
    if (!c.group.empty()) ++groups_[c.group];
    return;
  }
  c.shed = true;
  ++shed_;
  try {
    c.refuse(refusal_status, why);
  } catch (...) {
    c.doom();
  }
}

// ---- Turns

int Loop::wait_time() const {
  if (listed_ != nullptr) return 0;
  const auto next = timers.next();
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

void Loop::hear(std::uint64_t id, std::uint32_t events) noexcept {
  std::string what;
  if (id == kWakeId) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof count);
  } else if (const auto found = connections_.find(id); found != connections_.end()) {
    if (!found->second->doomed() && !attempt([&] { found->second->hear(events); }, what))
      found->second->doom();
  } else if (const auto door = listeners_.find(id); door != listeners_.end()) {
    if (!attempt([&] { accept_from(door->second); }, what)) failed(what);
  }
}

void Loop::run() {
  std::array<epoll_event, 256> events;
  while (true) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_time());
    if (n < 0 && errno != EINTR) fail("the server's loop cannot go on: epoll_wait failed with errno ", errno);
    for (int i = 0; i < n; ++i)
      hear(events[static_cast<std::size_t>(i)].data.u64, events[static_cast<std::size_t>(i)].events);
    const Clock::time_point now = Clock::now();
    while (const std::function<void()> f = timers.due(now)) {
      std::string what;
      if (!attempt(f, what)) failed(what);
    }
    run_posts();
    if (drain_.exchange(false)) begin_drain();
    settle_all();
    if (stop_.exchange(false)) break;
  }
  listed_ = nullptr;
  while (!connections_.empty()) destroy(*connections_.begin()->second);
}

void Loop::run_posts() {
  std::vector<std::function<void()>> posts;
  {
    const std::lock_guard lock(posts_mutex_);
    posts.swap(posts_);
  }
  for (const std::function<void()>& f : posts) {
    std::string what;
    if (!attempt(f, what)) failed(what);
  }
}

void Loop::begin_drain() {
  draining_ = true;
  listeners_.clear();
  for (auto& [id, connection] : connections_) connection->drain();
}

void Loop::settle_all() noexcept {
  // What is listed meanwhile waits for the next turn, which does not sleep: nobody who reads fast keeps the
  // others waiting.
  for (Connection* c = std::exchange(listed_, nullptr); c != nullptr;) {
    Connection* const next = c->next;
    c->listed = false;
    std::string what;
    if (c->doomed()) destroy(*c);
    else if (!attempt([&] { c->settle(); }, what)) c->doom();
    c = next;
  }
}

void Loop::list(Connection& connection) noexcept {
  if (connection.listed) return;
  connection.listed = true;
  connection.next = std::exchange(listed_, &connection);
}

void Loop::destroy(Connection& connection) noexcept {
  const Exchange exchange = connection.exchange;
  if (exchange != 0) close_exchange(exchange);
  if (connection.shed) {
    --shed_;
  } else if (!connection.group.empty()) {
    const auto found = groups_.find(connection.group);
    if (found != groups_.end() && --found->second <= 0) groups_.erase(found);
  }
  connections_.erase(connection.id);
  counts.open = static_cast<int>(connections_.size());
  std::string what;
  if (exchange != 0 && !attempt([&] { handler.on_gone(exchange); }, what)) failed(what);
}

// ---- What connections ask for

Exchange Loop::open_exchange(Connection& connection) {
  exchanges_.emplace(last_exchange_ + 1, &connection);
  counts.exchanges = static_cast<int>(exchanges_.size());
  return ++last_exchange_;
}

void Loop::close_exchange(Exchange exchange) noexcept {
  exchanges_.erase(exchange);
  counts.exchanges = static_cast<int>(exchanges_.size());
}

Reply Loop::refusal(int status, std::string_view why, std::string_view path) {
  ++counts.refused;
  Reply reply = {.status = status};
  std::string what;
  if (!attempt([&] { reply = handler.on_refused(status, why, path); }, what)) reply = {.status = status};
  if (reply.status < 200 || reply.status > 999) reply.status = status;
  return reply;
}

void Loop::failed(std::string_view what) noexcept {
  std::string more;
  attempt([&] { refusal(500, what, ""); }, more);
}

const std::string& Loop::date() {
  const std::time_t now = std::time(nullptr);
  if (now == date_second_) return date_;
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm t = {};
  ::gmtime_r(&now, &t);
  const auto two = [](int n) {
    return std::string{static_cast<char>('0' + n / 10 % 10), static_cast<char>('0' + n % 10)};
  };
  date_ = concat(kDays[t.tm_wday], ", ", two(t.tm_mday), " ", kMonths[t.tm_mon], " ", 1900 + t.tm_year, " ",
                 two(t.tm_hour), ":", two(t.tm_min), ":", two(t.tm_sec), " GMT");
  date_second_ = now;
  return date_;
}

// ---- From other threads

void Loop::wake_up() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);  // full: it is awake
}

void Loop::post(std::function<void()> f) {
  bool first = false;
  {
    const std::lock_guard lock(posts_mutex_);
    first = posts_.empty();
    posts_.push_back(std::move(f));
  }
  if (first) wake_up();
}

// In a signal handler: errno belongs to whoever was interrupted.
void Loop::stop() noexcept {
  const int before = errno;
  stop_ = true;
  wake_up();
  errno = before;
}

void Loop::drain() noexcept {
  const int before = errno;
  drain_ = true;
  wake_up();
  errno = before;
}

}  // namespace rapt::http
