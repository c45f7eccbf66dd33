// SPDX-License-Identifier: Apache-2.0
// Inside of the server: the loop over all connections. A turn waits for events, hears them, runs timers and
// what was posted, and then settles every connection that something happened to: bytes are sent once, on_room
// and on_gone are called, and connections that are over are destroyed, nowhere else.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rapt/http/connection.h"
#include "rapt/http/server.h"
#include "rapt/http/socket.h"
#include "rapt/http/timers.h"
#include "rapt/http/tls.h"

namespace rapt::http {

// False where f threw, and `what` is its text: no handler ends the loop.
template <class F>
bool attempt(F&& f, std::string& what) noexcept {
  try {
    f();
    return true;
  } catch (const std::exception& error) {
    try {
      what = error.what();
    } catch (...) {
      what.clear();
    }
  } catch (...) {
    what.clear();
  }
  return false;
}

class Loop {
 public:
  Loop(Handler& handler_, const Limits& limits_);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  int listen(const std::string& host, int port);
  void listen_unix(const std::string& path);
  void use_tls(const std::string& certificate, const std::string& key);
  void reload_tls();
  void run();
  void post(std::function<void()> f);
  void stop() noexcept;
  void drain() noexcept;

  // For connections.
  void list(Connection& connection) noexcept;  // to be settled at the end of the turn
  Exchange open_exchange(Connection& connection);
  void close_exchange(Exchange exchange) noexcept;
  Reply refusal(int status, std::string_view why, std::string_view path);  // the handler's words; counted
  void failed(std::string_view what) noexcept;  // an exception that no reply can tell of
  const std::string& date();  // as the header wants it
  bool draining() const { return draining_; }
  int epoll() const { return epoll_.get(); }

  // f(connection) where the exchange is under way. What it throws ends the exchange and goes no further: the
  // caller may be anybody's timer.
  template <class F>
  void with(Exchange exchange, F&& f) noexcept {
    const auto found = exchanges_.find(exchange);
    if (found == exchanges_.end() || found->second->doomed()) return;
    Connection& connection = *found->second;
    list(connection);
    std::string what;
    if (!attempt([&] { f(connection); }, what)) connection.failed(what);
  }

  Handler& handler;
  const Limits limits;
  Timers timers;
  std::vector<char> buffer;  // for one read
  struct {
    std::atomic<std::uint64_t> accepted = 0, refused = 0, requests = 0, bytes_in = 0, bytes_out = 0;
    std::atomic<int> open = 0, exchanges = 0;
  } counts;

 private:
  struct Listener {
    Fd fd;
    std::unique_ptr<UnixListener> unix_socket;  // has the descriptor where it is one
    int get() const { return unix_socket ? unix_socket->fd.get() : fd.get(); }
  };
  void add_listener(Listener listener);
  int wait_time() const;  // milliseconds until the next timer; -1: none
  void hear(std::uint64_t id, std::uint32_t events) noexcept;
  void accept_from(Listener& listener);
  void admit(Fd fd, const Peer& peer, bool tcp);
  void add(Fd fd, const Peer& peer, bool tcp, int refusal_status, std::string_view why);
  void accept_with_reserve(Listener& listener);
  void pause_listening();
  void resume_listening();
  void watch_listeners(std::uint32_t events) noexcept;
  void run_posts();
  void begin_drain();
  void settle_all() noexcept;
  void destroy(Connection& connection) noexcept;
  void wake_up() noexcept;

  Fd epoll_, wake_;
  Fd reserve_;  // given up for a moment where no other descriptor is left
  bool paused_ = false, draining_ = false;
  std::unordered_map<std::uint64_t, Listener> listeners_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::unordered_map<Exchange, Connection*> exchanges_;
  std::unordered_map<std::string, int> groups_;  // connections by Peer::group
  int shed_ = 0;  // connections that are only told to go away
  std::uint64_t last_id_ = 0;
  Exchange last_exchange_ = 0;
  Connection* listed_ = nullptr;
  std::string date_;
  std::int64_t date_second_ = -1;
  std::string certificate_, key_;
  std::shared_ptr<const TlsContext> tls_;

  std::atomic<bool> stop_ = false, drain_ = false;
  std::mutex posts_mutex_;
  std::vector<std::function<void()>> posts_;
};

}  // namespace rapt::http
