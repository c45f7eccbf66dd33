// SPDX-License-Identifier: Apache-2.0
// Reading, replying, flushing and lingering of one connection. Nothing here destroys it: doom() asks the loop
// to, at the end of the turn.
#include "rapt/http/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "rapt/base/error.h"
#include "rapt/http/loop.h"

namespace rapt::http {
namespace {

constexpr std::size_t kHeldBuffer = 64 << 10;  // larger ones are given back when they are empty
// Lingering: so long without a byte, so long in all, and so many bytes.
constexpr double kLingerQuiet = 1, kLingerMost = 5;
constexpr std::uint64_t kLingerBytes = 64 << 20;
constexpr double kRateGrace = 2;  // seconds before a body must keep Limits::body_rate

void check_text(std::string_view text) {
  if (text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos)
    fail("a header of a reply has a line break or a zero byte in it: ", text.substr(0, 60));
}

// What was appended is taken back, unless it was all.
class Appended {
 public:
  explicit Appended(std::string& out) : out_(out), before_(out.size()) {}
  Appended(const Appended&) = delete;
  Appended& operator=(const Appended&) = delete;
  ~Appended() {
    if (!whole_) out_.resize(before_);
  }
  void whole() { whole_ = true; }

 private:
  std::string& out_;
  std::size_t before_;
  bool whole_ = false;
};

bool has_no_body(int status) { return status == 204 || status == 304; }

void append_hex(std::string& out, std::size_t n) {
  char digits[16];
  int count = 0;
  do {
    digits[count++] = "0123456789abcdef"[n & 15];
    n >>= 4;
  } while (n != 0);
  while (count > 0) out += digits[--count];
}

}  // namespace

Connection::Connection(Loop& loop, std::uint64_t id_, Fd fd, const Peer& peer,
                       std::unique_ptr<TlsSession> tls)
    : id(id_),
      group(peer.group),
      loop_(loop),
      fd_(std::move(fd)),
      tls_(std::move(tls)),
      parser_({loop.limits.head_bytes, loop.limits.headers, loop.limits.body_bytes}, peer.name) {
  watched_ = EPOLLIN;
  epoll_event event = {.events = watched_, .data = {.u64 = id}};
  if (::epoll_ctl(loop_.epoll(), EPOLL_CTL_ADD, fd_.get(), &event) != 0)
    fail("a connection cannot be watched: errno ", errno);
  set_deadline(Clock::now() + seconds(loop_.limits.head_seconds));
}

Connection::~Connection() { loop_.timers.forget(timer_); }

void Connection::doom() noexcept {
  doomed_ = true;
  loop_.list(*this);
}

// ---- Reading

void Connection::hear(std::uint32_t events) {
  loop_.list(*this);
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) return doom();
  if ((events & EPOLLIN) != 0 && (phase_ == Phase::reading || phase_ == Phase::lingering)) receive();
  if ((events & EPOLLRDHUP) != 0 && exchange != 0) doom();
}

void Connection::receive() {
  const ssize_t n = ::recv(fd_.get(), loop_.buffer.data(), loop_.buffer.size(), 0);
  if (n < 0) {
    if (errno != EAGAIN && errno != EINTR) doom();
    return;
  }
  if (n == 0) return doom();  // no request is under way here
  const std::string_view bytes(loop_.buffer.data(), static_cast<std::size_t>(n));
  loop_.counts.bytes_in += bytes.size();
  if (phase_ == Phase::lingering) {
    lingered_ += bytes.size();
    const Clock::time_point now = Clock::now();
    if (lingered_ > kLingerBytes) return doom();
    return set_deadline(std::min(now + seconds(kLingerQuiet), phase_start_ + seconds(kLingerMost)));
  }
  if (!tls_) return consume(bytes);
  std::string plain;
  const bool goes_on = tls_->receive(bytes, plain, out_);
  if (!plain.empty()) consume(plain);
  if (goes_on || doomed_) return;
  flush();
  doom();
}

void Connection::consume(std::string_view bytes) {
  while (phase_ == Phase::reading) {
    const bool fresh = parser_.untouched();
    const Parser::Result result = parser_.feed(bytes);
    if (fresh && !parser_.untouched() && requests_ > 0)
      set_deadline(Clock::now() + seconds(loop_.limits.head_seconds));
    switch (result) {
      case Parser::Result::head: hear_head(!bytes.empty()); break;
      case Parser::Result::done: begin_exchange(); break;
      case Parser::Result::refused: return refuse(parser_.status(), parser_.why());
      case Parser::Result::more:
        if (in_body_) {
          const double rate = static_cast<double>(loop_.limits.body_rate),
                       got = static_cast<double>(parser_.request().body.size());
          const double most = loop_.limits.body_seconds;
          set_deadline(phase_start_ + seconds(rate > 0 ? std::min(most, kRateGrace + got / rate) : most));
        }
        return;
    }
  }
  if (!close_after_) ahead_ = bytes;
}

void Connection::hear_head(bool more) {
  std::optional<Reply> answer;
  std::string what;
  if (!attempt([&] { answer = loop_.handler.on_head(parser_.request()); }, what)) return refuse(500, what);
  if (answer) {
    answer->close = true;
    no_body_ = parser_.request().method == "HEAD";
    minor_ = parser_.request().minor;
    return append_reply(*answer);
  }
  in_body_ = true;
  phase_start_ = Clock::now();
  if (parser_.wants_continue() && !more) to_send() += "HTTP/1.1 100 Continue\r\n\r\n";
}

void Connection::begin_exchange() {
  exchange = loop_.open_exchange(*this);
  ++requests_;
  ++loop_.counts.requests;
  in_body_ = false;
  close_after_ = !parser_.keeps_alive() || requests_ >= loop_.limits.requests;
  Request request = parser_.take();
  no_body_ = request.method == "HEAD";
  minor_ = request.minor;
  phase_ = Phase::waiting;
  no_deadline();
  call([&] { loop_.handler.on_request(exchange, std::move(request)); });
}

// ---- Replying

template <class F>
void Connection::call(F&& f) {
  std::string what;
  if (!attempt(f, what)) failed(what);
}

void Connection::failed(std::string_view what) noexcept {
  try {
    if (exchange != 0 && !doomed_ && phase_ == Phase::waiting) return refuse(500, what);
  } catch (...) {
    return doom();
  }
  loop_.failed(what);
  if (exchange != 0 && !doomed_) abort();
}

void Connection::refuse(int status, std::string_view why) {
  if (phase_ == Phase::reading) {
    no_body_ = parser_.request().method == "HEAD";
    minor_ = parser_.request().minor;
  }
  Reply answer =
      loop_.refusal(status, why, phase_ == Phase::reading ? parser_.request().path : std::string_view());
  answer.close = true;
  append_reply(answer);
}

void Connection::end_exchange() {
  if (exchange != 0) loop_.close_exchange(exchange);
  exchange = 0;
  over_high_ = false;
  phase_ = Phase::flushing;
  if (close_after_) ahead_.clear();
  loop_.list(*this);
}

void Connection::append_head(int status, const std::vector<Header>& headers, std::string_view framing) {
  if (status < 200 || status > 999) fail("a reply's status is ", status, ": 200 to 999 are");
  for (const Header& header : headers) {
    check_text(header.name);
    check_text(header.value);
  }
  close_after_ = close_after_ || loop_.draining();
  std::string& out = to_send();
  Appended appended(out);
  out += concat("HTTP/1.1 ", status, " ", reason(status), "\r\nDate: ", loop_.date(), "\r\n");
  for (const Header& header : headers) ((out += header.name) += ": ").append(header.value) += "\r\n";
  out += framing;
  if (close_after_) out += "Connection: close\r\n";
  else if (minor_ == 0) out += "Connection: keep-alive\r\n";
  out += "\r\n";
  appended.whole();
}

void Connection::append_reply(const Reply& answer) {
  close_after_ = close_after_ || answer.close;
  Appended appended(to_send());
  append_head(answer.status, answer.headers,
              has_no_body(answer.status) ? "" : concat("Content-Length: ", answer.body.size(), "\r\n"));
  if (!no_body_ && !has_no_body(answer.status)) to_send() += answer.body;
  appended.whole();
  end_exchange();
}

void Connection::reply(const Reply& answer) {
  if (phase_ != Phase::waiting) fail("http: reply() to an exchange whose reply has begun");
  append_reply(answer);
}

void Connection::begin(int status, const std::vector<Header>& headers) {
  if (phase_ != Phase::waiting) fail("http: begin() of a reply that has begun");
  chunked_ = minor_ == 1 && !has_no_body(status);
  if (minor_ == 0) close_after_ = true;  // its end is that of the connection
  append_head(status, headers, chunked_ ? "Transfer-Encoding: chunked\r\n" : "");
  no_body_ = no_body_ || has_no_body(status);
  phase_ = Phase::streaming;
}

std::size_t Connection::write(std::string_view bytes) {
  if (phase_ != Phase::streaming) fail("http: write() to a reply that has not begun");
  if (bytes.empty() || no_body_) return unsent();  // an empty chunk would end the reply
  std::string& out = to_send();
  Appended appended(out);
  if (chunked_) {
    append_hex(out, bytes.size());
    ((out += "\r\n") += bytes) += "\r\n";
  } else {
    out += bytes;
  }
  appended.whole();
  if (unsent() >= loop_.limits.high_mark) {
    flush();
    if (doomed_) return 0;
    over_high_ = over_high_ || unsent() >= loop_.limits.high_mark;
  }
  return unsent();
}

void Connection::end() {
  if (phase_ != Phase::streaming) fail("http: end() of a reply that has not begun");
  if (chunked_ && !no_body_) to_send() += "0\r\n\r\n";
  end_exchange();
}

void Connection::abort() {
  // Of a chunked reply the last chunk is missing. One that ends with its connection must end by a reset.
  const bool reset = phase_ == Phase::streaming && !chunked_, silent = phase_ == Phase::waiting;
  close_after_ = true;
  end_exchange();
  if (reset) {
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  if (reset || silent) doom();
}

// ---- The end of a turn

void Connection::flush() {
  if (!plain_.empty()) {
    if (!tls_->send(plain_, out_)) return doom();
    plain_.clear();
    if (plain_.capacity() > kHeldBuffer) plain_ = std::string();
  }
  bool progress = false;
  while (sent_ < out_.size()) {
    const ssize_t n =
        ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return doom();
    sent_ += static_cast<std::size_t>(n);
    loop_.counts.bytes_out += static_cast<std::uint64_t>(n);
    progress = true;
  }
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
    if (out_.capacity() > kHeldBuffer) out_ = std::string();
    stalled_ = false;
    return;
  }
  if (progress || !stalled_) progress_ = Clock::now();
  stalled_ = true;
  if (sent_ > kHeldBuffer && sent_ > out_.size() / 2) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
}

void Connection::settle() {
  flush();
  if (doomed_) return;
  if (phase_ == Phase::flushing && unsent() == 0) {
    if (close_after_) {
      linger();
    } else if (loop_.draining()) {
      return doom();
    } else {
      phase_ = Phase::reading;
      set_deadline(Clock::now() + seconds(loop_.limits.idle_seconds));
      if (!ahead_.empty()) {
        const std::string ahead = std::exchange(ahead_, {});
        consume(ahead);
      }
    }
  } else if (exchange != 0 && over_high_ && unsent() < loop_.limits.low_mark) {
    over_high_ = false;
    call([&] { loop_.handler.on_room(exchange); });
  }
  if (doomed_) return;
  if (phase_ != Phase::reading && phase_ != Phase::lingering) {
    if (stalled_) set_deadline(progress_ + seconds(loop_.limits.write_seconds));
    else no_deadline();
  }
  watch();
}

void Connection::linger() {
  if (tls_) {
    tls_->end(out_);
    flush();
    if (doomed_) return;
    out_ = plain_ = std::string();
    sent_ = 0;
  }
  ::shutdown(fd_.get(), SHUT_WR);
  phase_ = Phase::lingering;
  phase_start_ = Clock::now();
  set_deadline(phase_start_ + seconds(kLingerQuiet));
}

void Connection::drain() {
  if (phase_ == Phase::reading && parser_.untouched() && unsent() == 0) doom();
}

void Connection::watch() {
  std::uint32_t events = 0;
  if (unsent() > 0) events |= EPOLLOUT;
  if (phase_ == Phase::reading || phase_ == Phase::lingering) events |= EPOLLIN;
  if (exchange != 0) events |= EPOLLRDHUP;
  if (events == watched_) return;
  epoll_event event = {.events = events, .data = {.u64 = id}};
  if (::epoll_ctl(loop_.epoll(), EPOLL_CTL_MOD, fd_.get(), &event) != 0) return doom();
  watched_ = events;
}

// ---- Deadlines

void Connection::no_deadline() { deadline_ = Clock::time_point::max(); }

void Connection::set_deadline(Clock::time_point at) {
  deadline_ = at;
  if (at >= alarm_) return;
  loop_.timers.forget(timer_);
  alarm_ = Clock::time_point::max();
  timer_ = loop_.timers.set(at, [this] {
    alarm_ = Clock::time_point::max();
    try {
      if (deadline_ <= Clock::now()) on_deadline();
      else if (deadline_ != Clock::time_point::max()) set_deadline(deadline_);
    } catch (...) {
      doom();
    }
  });
  alarm_ = at;
}

void Connection::on_deadline() {
  no_deadline();
  if (phase_ != Phase::reading || parser_.untouched()) return doom();
  refuse(408,
         in_body_ ? "the body of the request came too slowly" : "the head of the request came too slowly");
}

}  // namespace rapt::http
