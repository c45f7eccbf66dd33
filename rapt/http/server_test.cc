// SPDX-License-Identifier: Apache-2.0
// The server on loopback, against clients of plain sockets: what ordinary ones see, and what slow, rude and
// many ones do. Nothing waits by sleeping: tests wait for what must happen, at most kPatience.
#include "rapt/http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "rapt/base/error.h"

namespace rapt::http::test {
namespace {

constexpr int kPatience = 60;  // seconds until a test gives up

struct ClientReply {
  int status = 0;  // 0: the connection ended before a reply
  std::string head, body;
  bool whole = false;  // framed to its end
  bool has(const std::string& line) const { return head.find("\r\n" + line + "\r\n") != std::string::npos; }
};

class Client {
 public:
  explicit Client(int port, const char* address = "127.0.0.1")
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, address, &to.sin_addr);
    connect_to(reinterpret_cast<sockaddr*>(&to), sizeof to);
  }
  explicit Client(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un to = {};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, path.c_str(), sizeof to.sun_path - 1);
    connect_to(reinterpret_cast<sockaddr*>(&to), sizeof to);
  }
  ~Client() { close(); }
  Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)), got_(std::move(other.got_)) {}

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void reset() {
    const struct linger hard = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // More bytes; false at the end of input.
  bool more() {
    char buffer[64 << 10];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n > 0) got_.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }
  // The next reply, 100 Continue included; of a HEAD there is no body.
  ClientReply reply(bool head_only = false) {
    ClientReply out;
    std::size_t end = 0;
    while ((end = got_.find("\r\n\r\n")) == std::string::npos)
      if (!more()) return out;
    out.head = take(end + 4);
    out.status = std::atoi(out.head.c_str() + 9);
    if (head_only || out.status < 200 || out.status == 204 || out.status == 304) {
      out.whole = true;
    } else if (const std::size_t at = out.head.find("Content-Length: "); at != std::string::npos) {
      const auto size = static_cast<std::size_t>(std::atoll(out.head.c_str() + at + 16));
      while (got_.size() < size && more()) {}
      out.whole = got_.size() >= size;
      out.body = take(size);
    } else if (out.has("Transfer-Encoding: chunked")) {
      out.whole = chunks(out.body);
    } else {
      while (more()) {}
      out.whole = true;
      out.body = take(got_.size());
    }
    return out;
  }
  ClientReply ask(std::string_view bytes) {
    send(bytes);
    return reply();
  }
  // The server closed, and nothing else came.
  bool ended() {
    while (more()) {}
    return got_.empty();
  }
  bool chunk(std::string& body) {
    std::size_t line = 0;
    while ((line = got_.find("\r\n")) == std::string::npos)
      if (!more()) return false;
    const std::size_t size = std::strtoul(got_.c_str(), nullptr, 16);
    while (got_.size() < line + 4 + size)
      if (!more()) return false;
    take(line + 2);
    body += take(size);
    take(2);
    return size > 0;
  }
  int fd() const { return fd_; }
  const std::string& got() const { return got_; }

 private:
  void connect_to(const sockaddr* to, socklen_t size) {
    const timeval patience = {.tv_sec = kPatience, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connected_ = ::connect(fd_, to, size) == 0;
  }
  std::string take(std::size_t n) {
    std::string out = got_.substr(0, n);
    got_.erase(0, n);
    return out;
  }
  bool chunks(std::string& body) {
    while (true) {
      std::size_t line = 0;
      while ((line = got_.find("\r\n")) == std::string::npos)
        if (!more()) return false;
      if (got_.substr(0, line) != "0") {
        if (!chunk(body)) return false;
        continue;
      }
      while (got_.size() < line + 4)
        if (!more()) return false;
      return take(line + 4) == "0\r\n\r\n";
    }
  }
  int fd_;
  bool connected_ = false;
  std::string got_;
};

// A handler of functions, which writes down what it was told.
class TestHandler : public Handler {
 public:
  std::function<void(Exchange, Request)> request;
  std::function<std::optional<Reply>(const Request&)> head;
  std::function<void(Exchange)> room;

  std::optional<Reply> on_head(const Request& r) override { return head ? head(r) : std::nullopt; }
  void on_request(Exchange e, Request r) override {
    note("request " + r.path);
    if (request) request(e, std::move(r));
  }
  void on_gone(Exchange e) override { note("gone " + std::to_string(e)); }
  void on_room(Exchange e) override {
    note("room");
    if (room) room(e);
  }
  Reply on_refused(int status, std::string_view why, std::string_view path) override {
    note("refused " + std::to_string(status));
    return Handler::on_refused(status, why, path);
  }

  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++told_[what];
    changed_.notify_all();
  }
  int told(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return told_[what];
  }
  bool wait(const std::string& what, int times = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(kPatience), [&] { return told_[what] >= times; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> told_;
};

// A server in a thread of its own, on a port of its own.
class HttpServer : public ::testing::Test {
 protected:
  void start(const Limits& limits = {}) {
    server = std::make_unique<Server>(handler, limits);
    port = server->listen("127.0.0.1", 0);
    if (!handler.request)
      handler.request = [this](Exchange e, Request r) {
        server->reply(e, {.body = r.method + " " + r.path + " " + r.body});
      };
    go();
  }
  void go() {
    thread = std::thread([this] { server->run(); });
  }
  void stop() {
    if (!thread.joinable()) return;
    server->stop();
    thread.join();
  }
  void TearDown() override { stop(); }
  // Runs on the server's thread, and waits for it.
  template <class F>
  void there(F&& f) {
    std::mutex mutex;
    std::condition_variable over;
    bool done = false;
    server->post([&] {
      f();
      const std::lock_guard lock(mutex);
      done = true;
      over.notify_all();
    });
    std::unique_lock lock(mutex);
    ASSERT_TRUE(over.wait_for(lock, std::chrono::seconds(kPatience), [&] { return done; }));
  }
  template <class F>
  bool wait_for(F&& f) {
    for (int i = 0; i < kPatience * 100; ++i) {
      if (f()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  TestHandler handler;
  std::unique_ptr<Server> server;
  std::thread thread;
  int port = 0;
};

const std::string kGet = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
std::string put(const std::string& body, const std::string& more = "") {
  return "PUT /b HTTP/1.1\r\nHost: x\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

TEST_F(HttpServer, AnswersAndKeepsTheConnection) {
  start();
  Client client(port);
  for (int i = 0; i < 3; ++i) {
    const ClientReply reply = client.ask(put("hello"));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "PUT /b hello");
    EXPECT_TRUE(reply.head.starts_with("HTTP/1.1 200 OK\r\nDate: ")) << reply.head;
    EXPECT_NE(reply.head.find(" GMT\r\n"), std::string::npos);
    EXPECT_EQ(reply.head.find("Connection:"), std::string::npos);
  }
  const Server::Counts counts = server->counts();
  EXPECT_EQ(counts.accepted, 1u);
  EXPECT_EQ(counts.requests, 3u);
  EXPECT_EQ(counts.exchanges, 0);
  EXPECT_EQ(counts.open, 1);
  EXPECT_EQ(counts.bytes_in, 3 * put("hello").size());
  EXPECT_GT(counts.bytes_out, 0u);
}

TEST_F(HttpServer, ConnectionsEndWhereAskedTo) {
  start({.requests = 2});
  {
    Client client(port);
    EXPECT_TRUE(
        client.ask("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").has("Connection: close"));
    EXPECT_TRUE(client.ended());
  }
  {
    Client client(port);  // as many requests as one connection has
    EXPECT_FALSE(client.ask(kGet).has("Connection: close"));
    EXPECT_TRUE(client.ask(kGet).has("Connection: close"));
    EXPECT_TRUE(client.ended());
  }
  {
    Client client(port);
    EXPECT_TRUE(client.ask("GET / HTTP/1.0\r\n\r\n").has("Connection: close"));
    EXPECT_TRUE(client.ended());
  }
  {
    Client client(port);
    EXPECT_TRUE(client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").has("Connection: keep-alive"));
    EXPECT_EQ(client.ask("GET / HTTP/1.0\r\n\r\n").status, 200);
  }
}

TEST_F(HttpServer, RequestsInTwoPiecesCutAnywhere) {
  start();
  const std::string text =
      "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
  Client client(port);
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    ASSERT_TRUE(client.send(text.substr(0, cut)));
    EXPECT_EQ(client.ask(text.substr(cut)).body, "POST /c hello world") << cut;
    if (cut % 50 != 0) continue;
    Client slow(port);
    for (const char c : text) ASSERT_TRUE(slow.send(std::string_view(&c, 1)));
    EXPECT_EQ(slow.reply().body, "POST /c hello world");
  }
}

TEST_F(HttpServer, RefusesAndClosesSoThatTheReplyIsRead) {
  start({.body_bytes = 1000});
  const auto status = [&](const std::string& text) {
    Client client(port);
    client.send(text);
    const ClientReply reply = client.reply();
    EXPECT_TRUE(reply.has("Connection: close")) << text.substr(0, 100);
    EXPECT_EQ(reply.body.rfind("{\"error\"", 0), 0u) << reply.body;
    EXPECT_TRUE(client.ended());
    return reply.status;
  };
  EXPECT_EQ(status("nonsense\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            400);
  EXPECT_EQ(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(status("GET /" + std::string(17 << 10, 'x')), 431);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nX: " + std::string(10 << 20, 'x')), 431);
  EXPECT_EQ(status(put("a", "Content-Encoding: gzip\r\n")), 415);
  EXPECT_EQ(status(put(std::string(20 << 20, 'x'))), 413);  // all of it is sent before the reply is read
  EXPECT_EQ(handler.told("request /a"), 0);
  EXPECT_EQ(server->counts().requests, 0u);
  EXPECT_EQ(server->counts().refused, 7u);
}

TEST_F(HttpServer, WhatIsSentAheadWaitsAndIsNotReadBehindARefusal) {
  std::vector<Exchange> waiting;
  handler.request = [&](Exchange e, const Request&) { waiting.push_back(e); };
  start();
  Client client(port);
  client.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(handler.wait("request /1"));
  there([] {});
  there([] {});
  EXPECT_EQ(handler.told("request /2"), 0);
  there([&] { server->reply(waiting.at(0), {.body = "one"}); });
  EXPECT_EQ(client.reply().body, "one");
  ASSERT_TRUE(handler.wait("request /2"));
  there([&] { server->reply(waiting.at(1), {.body = "two"}); });
  EXPECT_EQ(client.reply().body, "two");

  Client other(port);
  other.send(
      "POST /3 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 40\r\n\r\n"
      "GET /4 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(other.reply().status, 400);
  EXPECT_TRUE(other.ended());
  Client third(port);
  third.send("GET /5 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /4 HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(handler.wait("request /5"));
  there([&] { server->reply(waiting.at(2), {}); });
  EXPECT_EQ(third.reply().status, 200);
  EXPECT_TRUE(third.ended());
  EXPECT_EQ(handler.told("request /3") + handler.told("request /4"), 0);
}

TEST_F(HttpServer, HundredsOfRequestsSentAhead) {
  start();
  Client client(port);
  std::string all;
  for (int i = 0; i < 500; ++i) all += kGet;
  client.send(all);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(client.reply().body, "GET /a ");
}

TEST_F(HttpServer, SlowClientsAreToldOrClosed) {
  start({.head_seconds = 0.2, .body_seconds = 0.2, .idle_seconds = 0.2});
  Client silent(port), head(port), body(port), idle(port), late(port);
  head.send("GET / HTT");
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(idle.ask(kGet).status, 200);
  EXPECT_EQ(late.ask(kGet).status, 200);
  late.send("GET");
  EXPECT_TRUE(silent.ended());
  EXPECT_TRUE(idle.ended());
  EXPECT_EQ(head.reply().status, 408);
  EXPECT_EQ(body.reply().status, 408);
  EXPECT_EQ(late.reply().status, 408);
  EXPECT_TRUE(wait_for([&] { return server->counts().open == 0; }));
  EXPECT_EQ(server->counts().refused, 3u);
}

TEST_F(HttpServer, AByteNowAndThenDoesNotKeepAHeadAlive) {
  start({.head_seconds = 0.3});
  Client client(port);
  int sent = 0;
  while (sent < 4000 && client.send("x") && server->counts().refused == 0) {
    ++sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(client.reply().status, 408);
}

TEST_F(HttpServer, BodiesMustKeepARate) {
  start({.body_seconds = 1000, .body_rate = 1 << 20});
  Client client(port);
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(client.reply().status, 408);
}

TEST_F(HttpServer, WhoeverLeavesIsReported) {
  std::vector<Exchange> waiting;
  handler.request = [&](Exchange e, const Request& r) {
    waiting.push_back(e);
    if (r.path == "/s") server->begin(e, 200, {});
  };
  start();
  const auto leaves = [&](const std::string& path, auto&& how) {
    const int before = handler.told("request " + path);
    Client client(port);
    client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    ASSERT_TRUE(handler.wait("request " + path, before + 1));
    Exchange e = 0;
    there([&] { e = waiting.back(); });
    how(client);
    EXPECT_TRUE(handler.wait("gone " + std::to_string(e)));
    // Whatever is done to it now does nothing.
    there([&] {
      server->reply(e, {});
      server->begin(e, 200, {});
      EXPECT_EQ(server->write(e, "x"), 0u);
      server->end(e);
      server->abort(e);
    });
    EXPECT_EQ(handler.told("gone " + std::to_string(e)), 1);
  };
  for (const char* path : {"/w", "/s"}) {
    leaves(path, [](Client& c) { c.close(); });
    leaves(path, [](Client& c) { c.half_close(); });
    leaves(path, [](Client& c) { c.reset(); });
    leaves(path, [](Client& c) {
      c.send(kGet);  // unread bytes do not hide that it left
      c.close();
    });
  }
  EXPECT_TRUE(wait_for([&] { return server->counts().open == 0; }));
  EXPECT_EQ(server->counts().exchanges, 0);
  Client idle(port);  // nothing is under way: nobody is told
  idle.send("GET / HT");
  idle.close();
  EXPECT_TRUE(wait_for([&] { return server->counts().accepted == 9 && server->counts().open == 0; }));
}

TEST_F(HttpServer, AHalfClosedClientStillGetsWhatIsAnsweredAtOnce) {
  start();
  Client client(port);
  client.send(kGet);
  client.half_close();
  EXPECT_EQ(client.reply().status, 200);
  EXPECT_TRUE(client.ended());
}

TEST_F(HttpServer, StreamsInChunks) {
  Exchange exchange = 0;
  handler.request = [&](Exchange e, const Request&) {
    exchange = e;
    server->begin(e, 200, {{"Content-Type", "text/event-stream"}});
  };
  start();
  Client client(port);
  client.send(kGet + kGet);
  ASSERT_TRUE(handler.wait("request /a"));
  there([&] {
    server->write(exchange, "hello");
    server->write(exchange, "");
    server->write(exchange, std::string(20, 'x'));
  });
  there([&] { server->end(exchange); });
  const ClientReply reply = client.reply();
  EXPECT_TRUE(reply.whole);
  EXPECT_TRUE(reply.has("Content-Type: text/event-stream"));
  EXPECT_TRUE(reply.has("Transfer-Encoding: chunked"));
  EXPECT_EQ(reply.body, "hello" + std::string(20, 'x'));
  ASSERT_TRUE(handler.wait("request /a", 2));  // and the connection goes on
  there([&] {
    server->write(exchange, "b");
    server->end(exchange);
  });
  EXPECT_EQ(client.reply().body, "b");
}

TEST_F(HttpServer, HeadAndStatusesWithoutABody) {
  handler.request = [&](Exchange e, const Request& r) {
    if (r.path == "/stream") {
      server->begin(e, 200, {});
      server->write(e, "never seen");
      server->end(e);
    } else if (r.path == "/none") {
      server->reply(e, {.status = 204, .body = "never seen"});
    } else if (r.path == "/same") {
      server->reply(e, {.status = 304});
    } else if (r.path == "/stream204") {
      server->begin(e, 204, {});
      server->write(e, "never seen");
      server->end(e);
    } else {
      server->reply(e, {.body = "12345"});
    }
  };
  start();
  Client client(port);
  client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.reply(true).has("Content-Length: 5"));
  client.send("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.reply(true).has("Transfer-Encoding: chunked"));
  for (const char* path : {"/none", "/same", "/stream204"}) {
    const ClientReply reply = client.ask(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(reply.head.find("Transfer-Encoding"), std::string::npos) << path;
    EXPECT_EQ(reply.head.find("Content-Length"), std::string::npos) << path;
  }
  EXPECT_EQ(client.ask(kGet).body, "12345");
  client.send("HEAD / HTTP/1.1\r\n\r\n");  // no host: refused, also without a body
  EXPECT_EQ(client.reply(true).status, 400);
  EXPECT_TRUE(client.ended());
}

TEST_F(HttpServer, Http10StreamsUntilTheEnd) {
  handler.request = [&](Exchange e, const Request& r) {
    server->begin(e, 200, {});
    server->write(e, "one ");
    server->write(e, "two");
    if (r.path == "/broken") server->after(0.05, [this, e] { server->abort(e); });
    else server->end(e);
  };
  start();
  {
    Client client(port);
    const ClientReply reply = client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(reply.body, "one two");
    EXPECT_TRUE(reply.has("Connection: close"));
    EXPECT_EQ(reply.head.find("Transfer-Encoding"), std::string::npos);
  }
  Client client(port);  // one that breaks off must not look like one that is over
  client.send("GET /broken HTTP/1.0\r\n\r\n");
  char buffer[1000];
  ssize_t n = 0;
  while ((n = ::recv(client.fd(), buffer, sizeof buffer, 0)) > 0) {}
  EXPECT_EQ(n, -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(HttpServer, AnAbortedStreamIsNotWhole) {
  handler.request = [&](Exchange e, const Request& r) {
    if (r.path == "/silent") return server->abort(e);
    server->begin(e, 200, {});
    server->write(e, "some");
    server->abort(e);
    server->write(e, "more");
  };
  start();
  Client client(port);
  const ClientReply reply = client.ask(kGet);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "some");
  EXPECT_FALSE(reply.whole);
  Client other(port);
  EXPECT_EQ(other.ask("GET /silent HTTP/1.1\r\nHost: x\r\n\r\n").status, 0);
  EXPECT_EQ(handler.told("gone 1") + handler.told("gone 2"), 0);  // whoever breaks it off knows
}

TEST_F(HttpServer, SlowReadersAreWaitedFor) {
  const std::string block(16 << 10, 'x');
  std::size_t written = 0;
  const std::size_t total = 64 << 20;
  const auto fill = [&](Exchange e) {
    while (written < total) {
      written += block.size();
      if (server->write(e, block) >= (256 << 10)) return handler.note("full");
    }
    server->end(e);
  };
  handler.request = [&](Exchange e, const Request&) {
    server->begin(e, 200, {});
    fill(e);
  };
  handler.room = fill;
  start();
  Client client(port);
  client.send(kGet);
  ASSERT_TRUE(handler.wait("full"));
  there([&] { EXPECT_LT(written, total); });
  const ClientReply reply = client.reply();
  EXPECT_TRUE(reply.whole);
  EXPECT_EQ(reply.body.size(), total);
  EXPECT_GE(handler.told("room"), 1);
}

TEST_F(HttpServer, WhoTakesNothingIsGone) {
  handler.request = [&](Exchange e, const Request&) {
    server->begin(e, 200, {});
    while (server->write(e, std::string(1 << 20, 'x')) < (256 << 10)) {}
  };
  start({.write_seconds = 0.2});
  Client client(port);
  client.send(kGet);
  EXPECT_TRUE(handler.wait("gone 1"));
  EXPECT_TRUE(wait_for([&] { return server->counts().open == 0; }));
}

TEST_F(HttpServer, TwoHundredAtOnce) {
  std::vector<Exchange> waiting;
  handler.request = [&](Exchange e, const Request&) {
    waiting.push_back(e);
    if (waiting.size() < 200) return;
    for (const Exchange w : waiting) server->begin(w, 200, {});
    for (int i = 0; i < 10; ++i)
      for (const Exchange w : waiting) server->write(w, std::to_string(i));
    for (const Exchange w : waiting) server->end(w);
  };
  start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(port));
    ASSERT_TRUE(clients.back()->connected());
    clients.back()->send(kGet);
  }
  for (auto& client : clients) {
    const ClientReply reply = client->reply();
    EXPECT_EQ(reply.body, "0123456789");
    EXPECT_TRUE(reply.whole);
  }
  EXPECT_EQ(server->counts().open, 200);
}

TEST_F(HttpServer, ConnectionsBeyondTheLimitAreToldSo) {
  start({.connections = 3});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(port));
    EXPECT_EQ(clients.back()->ask(kGet).status, 200);
  }
  for (int i = 0; i < 40; ++i) {
    Client more(port);
    more.send(kGet);
    EXPECT_EQ(more.reply().status, 503);
  }
  EXPECT_EQ(clients[0]->ask(kGet).status, 200);
  clients.pop_back();
  EXPECT_TRUE(wait_for([&] { return server->counts().open == 2; }));
  Client next(port);
  EXPECT_EQ(next.ask(kGet).status, 200);
  EXPECT_EQ(server->counts().refused, 40u);
  EXPECT_EQ(server->counts().requests, 5u);
}

TEST_F(HttpServer, ManyBeyondTheLimitAtOnce) {
  start({.connections = 1});
  Client first(port);
  EXPECT_EQ(first.ask(kGet).status, 200);
  std::vector<std::unique_ptr<Client>> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(std::make_unique<Client>(port));
  for (auto& client : crowd) {
    const int status = client->reply().status;
    EXPECT_TRUE(status == 503 || status == 0) << status;
  }
  EXPECT_EQ(first.ask(kGet).status, 200);
}

// An address of this machine that is not loopback: connections to it come from it.
std::string outer_address() {
  std::string found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* a = list; a != nullptr && found.empty(); a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET || (a->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    char text[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(a->ifa_addr)->sin_addr, text, sizeof text);
    found = text;
  }
  ::freeifaddrs(list);
  return found;
}

TEST_F(HttpServer, ConnectionsOfOneAddressAreFew) {
  const std::string address = outer_address();
  if (address.empty()) GTEST_SKIP() << "this machine has no address but loopback";
  start({.per_address = 2});
  for (int i = 0; i < 5; ++i) {  // none for this machine
    Client client(port);
    EXPECT_EQ(client.ask(kGet).status, 200);
  }
  there([&] { port = server->listen(address, 0); });
  auto first = std::make_unique<Client>(port, address.c_str());
  Client second(port, address.c_str());
  EXPECT_EQ(first->ask(kGet).status, 200);
  EXPECT_EQ(second.ask(kGet).status, 200);
  EXPECT_EQ(Client(port, address.c_str()).ask(kGet).status, 429);
  first.reset();
  EXPECT_TRUE(wait_for([&] { return Client(port, address.c_str()).ask(kGet).status == 200; }));
}

TEST_F(HttpServer, AskedBeforeTheBody) {
  handler.head = [](const Request& r) -> std::optional<Reply> {
    EXPECT_TRUE(r.body.empty());
    EXPECT_EQ(r.peer, "127.0.0.1");
    if (r.path != "/b") return Reply{.status = 404, .body = "no"};
    return {};
  };
  start();
  Client client(port);
  client.send("PUT /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(client.reply().status, 100);
  EXPECT_EQ(client.ask("hello").body, "PUT /b hello");
  client.send("PUT /c HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  const ClientReply reply = client.reply();  // and not 100
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.body, "no");
  EXPECT_TRUE(client.ended());
  Client rude(port);  // sends all of it anyway
  rude.send("PUT /c HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + std::string(2000000, 'x'));
  EXPECT_EQ(rude.reply().status, 404);
  EXPECT_EQ(server->counts().refused, 0u);
}

TEST_F(HttpServer, ExceptionsEndTheirExchangeAndNothingElse) {
  handler.head = [](const Request& r) -> std::optional<Reply> {
    if (r.path == "/head") throw std::runtime_error("secret");
    return {};
  };
  handler.request = [&](Exchange e, const Request& r) {
    if (r.path == "/throw") throw std::runtime_error("secret");
    if (r.path == "/memory") throw std::bad_alloc();
    if (r.path == "/number") throw 5;
    if (r.path == "/break") return server->reply(e, {.headers = {{"X", "a\r\nSet-Cookie: b"}}});
    if (r.path == "/status") return server->reply(e, {.status = 42});
    if (r.path == "/order") return server->end(e);
    if (r.path == "/middle") {
      server->begin(e, 200, {});
      server->write(e, "some");
      throw std::runtime_error("secret");
    }
    if (r.path == "/after") {
      server->reply(e, {.body = "fine"});
      throw std::runtime_error("secret");
    }
    if (r.path == "/later") {
      server->post([this, e] { server->reply(e, {.headers = {{"X\n", "a"}}}); });
      return;
    }
    server->reply(e, {.body = "ok"});
  };
  start();
  Client witness(port);
  EXPECT_EQ(witness.ask(kGet).body, "ok");
  for (const char* path :
       {"/head", "/throw", "/memory", "/number", "/break", "/status", "/order", "/later"}) {
    Client client(port);
    const ClientReply reply = client.ask(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(reply.status, 500) << path;
    EXPECT_EQ(reply.body.find("secret"), std::string::npos);
    EXPECT_NE(reply.body.find("\"error\""), std::string::npos);
    EXPECT_TRUE(client.ended());
  }
  Client middle(port);
  EXPECT_FALSE(middle.ask("GET /middle HTTP/1.1\r\nHost: x\r\n\r\n").whole);
  Client after(port);
  EXPECT_EQ(after.ask("GET /after HTTP/1.1\r\nHost: x\r\n\r\n").body, "fine");
  server->post([] { throw std::runtime_error("in a post"); });
  there([&] { server->after(0, [] { throw std::bad_alloc(); }); });
  EXPECT_TRUE(handler.wait("refused 500", 12));
  EXPECT_EQ(witness.ask(kGet).body, "ok");
}

TEST_F(HttpServer, PostsFromManyThreadsInTheirOrder) {
  start();
  std::vector<int> last(8, -1);  // touched by the server's thread alone
  std::atomic<int> ran = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i)
        server->post([&, t, i] {
          EXPECT_EQ(last[static_cast<std::size_t>(t)], i - 1);
          last[static_cast<std::size_t>(t)] = i;
          ++ran;
        });
    });
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(wait_for([&] { return ran == 8 * 500; }));
}

TEST_F(HttpServer, Timers) {
  start();
  there([&] {
    server->after(0.06, [&] { handler.note(handler.told("first") == 1 ? "second" : "wrong"); });
    server->after(0.02, [&] { handler.note("first"); });
    const std::uint64_t never = server->after(0.01, [&] { handler.note("wrong"); });
    server->forget(never);
    server->forget(never);
    server->after(1e300, [&] { handler.note("wrong"); });
  });
  EXPECT_TRUE(handler.wait("second"));
  EXPECT_EQ(handler.told("wrong"), 0);
}

TEST_F(HttpServer, DrainsToNothing) {
  std::vector<Exchange> waiting;
  handler.request = [&](Exchange e, const Request& r) {
    if (r.path == "/a") return server->reply(e, {});
    server->begin(e, 200, {});
    waiting.push_back(e);
  };
  start();
  Client idle(port), fresh(port), streaming(port), half(port);
  EXPECT_EQ(idle.ask(kGet).status, 200);
  streaming.send("GET /s HTTP/1.1\r\nHost: x\r\n\r\n");
  half.send("GET /a HTTP/1.1\r\n");
  ASSERT_TRUE(handler.wait("request /s"));
  ASSERT_TRUE(wait_for([&] { return server->counts().accepted == 4; }));
  const std::uint64_t want = 2 * kGet.size() + std::string("GET /a HTTP/1.1\r\n").size();
  ASSERT_TRUE(wait_for([&] { return server->counts().bytes_in == want; }));
  server->drain();
  EXPECT_TRUE(idle.ended());
  EXPECT_TRUE(fresh.ended());
  EXPECT_FALSE(Client(port).connected());
  EXPECT_TRUE(half.ask("Host: x\r\n\r\n").has("Connection: close"));  // what had begun is answered
  EXPECT_TRUE(half.ended());
  there([&] {
    server->write(waiting.at(0), "still here");
    server->end(waiting.at(0));
  });
  EXPECT_EQ(streaming.reply().body, "still here");
  EXPECT_TRUE(streaming.ended());
  streaming.close();
  half.close();
  EXPECT_TRUE(wait_for([&] { return server->counts().open == 0; }));
}

TEST_F(HttpServer, StopTellsWhoWaits) {
  handler.request = [](Exchange, const Request&) {};
  start();
  Client client(port);
  client.send(kGet);
  ASSERT_TRUE(handler.wait("request /a"));
  stop();
  EXPECT_EQ(handler.told("gone 1"), 1);
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(server->counts().open, 0);
  server->stop();  // before run(): it returns at once
  server->run();
}

TEST_F(HttpServer, AddressesAndNames) {
  handler.request = [this](Exchange e, const Request& r) { server->reply(e, {.body = r.peer}); };
  server = std::make_unique<Server>(handler, Limits{});
  const int named = server->listen("localhost", 0);
  port = server->listen("0.0.0.0", 0);
  EXPECT_NE(named, port);
  try {
    server->listen("127.0.0.1", port);
    ADD_FAILURE() << "listens twice";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:" + std::to_string(port)), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("another"), std::string::npos);
  }
  EXPECT_THROW(server->listen("192.0.2.1", 0), Error);  // of a net that exists in documents only
  EXPECT_THROW(server->listen("no such name", 0), Error);
  EXPECT_THROW(server->listen("127.0.0.1", 70000), Error);
  go();
  Client by_name(named), other(port, "127.0.0.2");
  EXPECT_EQ(by_name.ask(kGet).body, "127.0.0.1");
  EXPECT_EQ(other.ask(kGet).body, "127.0.0.1");
}

TEST_F(HttpServer, UnixSockets) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("rapt_http_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = folder / "socket";
  handler.request = [this](Exchange e, const Request& r) { server->reply(e, {.body = r.peer}); };
  server = std::make_unique<Server>(handler, Limits{});
  server->listen_unix(path);
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  go();
  {
    Client client(path);
    EXPECT_EQ(client.ask(kGet).body, "unix");
    Server second(handler, {});
    EXPECT_THROW(second.listen_unix(path), Error);  // is served
    EXPECT_THROW(second.listen_unix(folder), Error);
    EXPECT_THROW(second.listen_unix(std::string(200, 'x')), Error);
    EXPECT_THROW(second.listen_unix(""), Error);
  }
  stop();
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  {  // what a killed server leaves
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un to = {};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, path.c_str(), sizeof to.sun_path - 1);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    ::close(fd);
  }
  server = std::make_unique<Server>(handler, Limits{});
  server->listen_unix(path);
  go();
  Client client(path);
  EXPECT_EQ(client.ask(kGet).body, "unix");
  there([&] { handler.request = [](Exchange, const Request&) {}; });
  Client leaver(path);
  leaver.send(kGet);
  ASSERT_TRUE(handler.wait("request /a", 3));
  leaver.half_close();
  EXPECT_TRUE(handler.wait("gone 2"));
  stop();
  server.reset();
  std::filesystem::remove_all(folder);
}

Server* signalled_server = nullptr;

// In a process of its own: few descriptors, and SIGTERM ends it.
int serve_with_few_descriptors(int port_pipe) {
  TestHandler handler;
  Server server(handler, {});
  handler.request = [&](Exchange e, const Request&) { server.reply(e, {.body = "ok"}); };
  const int port = server.listen("127.0.0.1", 0);
  const rlimit few = {.rlim_cur = 40, .rlim_max = 40};
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
  signalled_server = &server;
  ::signal(SIGTERM, [](int) { signalled_server->stop(); });
  if (::write(port_pipe, &port, sizeof port) != sizeof port) return 3;
  ::close(port_pipe);
  server.run();
  return server.counts().refused > 0 ? 0 : 4;
}

TEST_F(HttpServer, WithoutDescriptorsClientsAreToldAndItRecovers) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::_exit(serve_with_few_descriptors(ends[1]));
  }
  ::close(ends[1]);
  ASSERT_EQ(::read(ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  ::close(ends[0]);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 60; ++i) {
    clients.push_back(std::make_unique<Client>(port));
    clients.back()->send(kGet);
  }
  int served = 0, told = 0;
  for (auto& client : clients) {
    const int status = client->reply().status;
    served += status == 200;
    told += status == 503;
    if (status != 200) client->close();
  }
  EXPECT_GT(served, 10);
  EXPECT_GT(told, 10);
  EXPECT_EQ(served + told, 60);
  clients.clear();
  bool again = false;
  for (int i = 0; i < kPatience * 20 && !again; ++i) {
    again = Client(port).ask(kGet).status == 200;
    if (!again) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(again);
  ::kill(child, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(HttpServer, TlsSaysWhatIsMissing) {
  Server plain(handler, {});
  try {
    plain.use_tls("no_such_certificate.pem", "no_such_key.pem");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no_such_certificate.pem"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace rapt::http::test
