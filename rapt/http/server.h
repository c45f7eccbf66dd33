// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server on epoll: one thread moves the bytes of all connections and calls the handler. It never
// waits for anybody: a handler that needs time hands the work to another thread and answers later, through
// post(). Why it is written by hand: docs/decisions/0027-http.md.
//
// A connection reads a head (limits below), asks on_head, reads the body, calls on_request, and then reads
// nothing until the reply is sent: requests that were sent ahead wait. An exchange is over with reply(),
// end() or abort(). Whoever leaves before that is told by on_gone: end of input counts as leaving.
//
// What a call of the handler throws ends its exchange (500, or a stream that breaks off) and nothing else;
// the same for replies that cannot be sent (a line break in a header, end() before begin()).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rapt/http/message.h"

namespace rapt::http {

using Exchange = std::uint64_t;  // a request and its reply; never given twice

class Handler {
 public:
  virtual ~Handler() = default;
  // The head is there, the body is not. A reply refuses the request: it is sent and the connection closed.
  virtual std::optional<Reply> on_head(const Request&) { return {}; }
  virtual void on_request(Exchange, Request) = 0;
  // Gone before its reply was over; nothing can be sent any more.
  virtual void on_gone(Exchange) {}
  // write() had returned `high_mark` or more, and now less than `low_mark` is unsent.
  virtual void on_room(Exchange) {}
  // What the server itself refused (framing, limits: 4xx, 503), and exceptions (500, `why` is their text and
  // not for strangers; of a post or a timer nobody gets the reply): its body, where it should have one, and
  // to count it. path: of the request, where so much of it was read; else "".
  virtual Reply on_refused(int status, std::string_view why, std::string_view path);
};

struct Limits {
  int connections = 1024, per_address = 64;  // per address: of loopback and UNIX sockets none
  std::size_t head_bytes = 16 << 10, body_bytes = 2 << 20;
  int headers = 100;
  double head_seconds = 10;  // until the head is whole
  double body_seconds = 30;  // until the body is whole …
  std::size_t body_rate = 1 << 10;  // … and so many bytes a second after the first two seconds
  double idle_seconds = 15;  // between requests
  int requests = 1000;  // on one connection
  double write_seconds = 30;  // without a byte taken by the other side: it is gone
  std::size_t high_mark = 256 << 10, low_mark = 64 << 10;  // unsent bytes of an exchange
};

class Server {
 public:
  Server(Handler& handler, const Limits& limits);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Before run(). Fails with the address and the reason. port 0: any; returns the one it got.
  int listen(const std::string& host, int port);
  void listen_unix(const std::string& path);  // 0600; a socket that nobody serves any more is replaced
  // TLS 1.2 and newer on all TCP listeners (a build with RAPT_TLS). reload_tls() reads the files again, for
  // connections to come; it may be called from post(), and where it fails, the old ones stay.
  void use_tls(const std::string& certificate, const std::string& key);
  void reload_tls();

  // Until stop(); the thread that calls it is the one below. On its way out it closes all connections, with
  // on_gone for exchanges under way.
  void run();
  // From any thread, and stop() and drain() from a signal handler too:
  void post(std::function<void()> f);  // runs on the server's thread; many posts, one wake-up
  void stop();  // run() returns
  void drain();  // no new connections, idle ones close, replies end their connection
  struct Counts {
    std::uint64_t accepted = 0, refused = 0, requests = 0, bytes_in = 0, bytes_out = 0;
    int open = 0, exchanges = 0;
  };
  Counts counts() const;  // any thread

  // The rest on the server's thread only. An exchange that is over or gone: nothing happens.
  void reply(Exchange exchange, const Reply& reply);
  // A reply in pieces, chunked (HTTP/1.0: until the connection ends).
  void begin(Exchange exchange, int status, const std::vector<Header>& headers);
  std::size_t write(Exchange exchange, std::string_view bytes);  // returns what is unsent
  void end(Exchange exchange);
  void abort(
      Exchange exchange);  // the connection breaks off: the other side sees that the reply is not whole
  std::uint64_t after(double seconds, std::function<void()> f);  // a timer; its name
  void forget(std::uint64_t timer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rapt::http
