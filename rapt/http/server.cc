// SPDX-License-Identifier: Apache-2.0
// The face of the server over its loop, and what a handler says that says nothing itself.
#include "rapt/http/server.h"

#include <utility>

#include "rapt/base/json.h"
#include "rapt/http/loop.h"

namespace rapt::http {

// The shape that clients of OpenAI's API know. What an exception says is not for strangers.
Reply Handler::on_refused(int status, std::string_view why, std::string_view /*path*/) {
  Json error;
  error.set("message", status == 500 ? std::string("an error inside the server") : std::string(why));
  error.set("type", status >= 500 ? "server_error" : "invalid_request_error");
  error.set("param", Json());
  error.set("code", Json());
  Json body;
  body.set("error", std::move(error));
  return {.status = status, .headers = {{"Content-Type", "application/json"}}, .body = body.dump(0) + "\n"};
}

struct Server::State : Loop {
  using Loop::Loop;
};

Server::Server(Handler& handler, const Limits& limits) : state_(std::make_unique<State>(handler, limits)) {}
Server::~Server() = default;

int Server::listen(const std::string& host, int port) { return state_->listen(host, port); }
void Server::listen_unix(const std::string& path) { state_->listen_unix(path); }
void Server::use_tls(const std::string& certificate, const std::string& key) {
  state_->use_tls(certificate, key);
}
void Server::reload_tls() { state_->reload_tls(); }
void Server::run() { state_->run(); }
void Server::post(std::function<void()> f) { state_->post(std::move(f)); }
void Server::stop() { state_->stop(); }
void Server::drain() { state_->drain(); }

Server::Counts Server::counts() const {
  const auto& c = state_->counts;
  return {.accepted = c.accepted,
          .refused = c.refused,
          .requests = c.requests,
          .bytes_in = c.bytes_in,
          .bytes_out = c.bytes_out,
          .open = c.open,
          .exchanges = c.exchanges};
}

void Server::reply(Exchange exchange, const Reply& reply) {
  state_->with(exchange, [&](Connection& c) { c.reply(reply); });
}
void Server::begin(Exchange exchange, int status, const std::vector<Header>& headers) {
  state_->with(exchange, [&](Connection& c) { c.begin(status, headers); });
}
std::size_t Server::write(Exchange exchange, std::string_view bytes) {
  std::size_t unsent = 0;
  state_->with(exchange, [&](Connection& c) { unsent = c.write(bytes); });
  return unsent;
}
void Server::end(Exchange exchange) {
  state_->with(exchange, [](Connection& c) { c.end(); });
}
void Server::abort(Exchange exchange) {
  state_->with(exchange, [](Connection& c) { c.abort(); });
}
std::uint64_t Server::after(double s, std::function<void()> f) {
  return state_->timers.set(Clock::now() + seconds(s), std::move(f));
}
void Server::forget(std::uint64_t timer) { state_->timers.forget(timer); }

}  // namespace rapt::http
