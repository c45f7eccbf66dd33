// SPDX-License-Identifier: Apache-2.0
// Inside of the server: one connection. It is reading a request, waiting for the handler's reply, streaming
// one, flushing the rest of it, and then reading again; or lingering: our side is shut, and what the other
// side still sends is dropped for a while, since closing at once would take the reply out of its hands.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/clock.h"
#include "rapt/http/message.h"
#include "rapt/http/parser.h"
#include "rapt/http/server.h"
#include "rapt/http/socket.h"
#include "rapt/http/tls.h"

namespace rapt::http {

class Loop;

class Connection {
 public:
  Connection(Loop& loop, std::uint64_t id, Fd fd, const Peer& peer, std::unique_ptr<TlsSession> tls);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  void hear(std::uint32_t events);  // of epoll
  void settle();                    // the end of a turn
  void drain();
  void doom() noexcept;  // destroyed at the end of the turn
  bool doomed() const { return doomed_; }
  void refuse(int status, std::string_view why);
  void failed(std::string_view what) noexcept;  // an exception: a reply 500, or the end where one has begun

  void reply(const Reply& answer);
  void begin(int status, const std::vector<Header>& headers);
  std::size_t write(std::string_view bytes);
  void end();
  void abort();

  const std::uint64_t id;
  const std::string group;  // Peer::group
  Exchange exchange = 0;  // 0: none is under way
  bool shed = false;  // never served: only told why
  Connection* next = nullptr;  // of those to settle
  bool listed = false;

 private:
  enum class Phase { reading, waiting, streaming, flushing, lingering };
  void receive();
  void consume(std::string_view bytes);
  void hear_head(bool more);
  void begin_exchange();
  void end_exchange();
  template <class F>
  void call(F&& f);  // of the handler
  void append_head(int status, const std::vector<Header>& headers, std::string_view framing);
  void append_reply(const Reply& reply);
  void flush();
  std::string& to_send() { return tls_ ? plain_ : out_; }
  std::size_t unsent() const { return out_.size() - sent_ + plain_.size(); }
  void linger();
  void set_deadline(Clock::time_point at);
  void no_deadline();
  void on_deadline();
  void watch();

  Loop& loop_;
  Fd fd_;
  std::unique_ptr<TlsSession> tls_;
  Parser parser_;
  Phase phase_ = Phase::reading;
  bool doomed_ = false;
  bool in_body_ = false;  // the head was read, the body was not
  bool close_after_ = false;  // the reply
  bool no_body_ = false;  // HEAD, 204, 304
  bool chunked_ = false, over_high_ = false, stalled_ = false;
  int requests_ = 0, minor_ = 1;
  std::uint32_t watched_ = 0;  // events that epoll was asked for
  std::string ahead_;  // read, but behind the request that is being answered
  std::string out_;  // for the socket; up to sent_ it has it
  std::size_t sent_ = 0;
  std::string plain_;  // not yet encrypted
  Clock::time_point phase_start_, progress_;
  std::uint64_t lingered_ = 0;
  // One timer, which is set anew only where the deadline moved to before it.
  Clock::time_point deadline_ = Clock::time_point::max(), alarm_ = Clock::time_point::max();
  std::uint64_t timer_ = 0;
};

}  // namespace rapt::http
