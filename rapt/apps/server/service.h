// SPDX-License-Identifier: Apache-2.0
// What the server does with requests: routes, admission, the way from a body to tokens of an engine and back
// to bytes. Three kinds of thread, none of which waits for another:
//   the HTTP server's thread  checks, counts, refuses, and writes replies
//   workers                   parse, render templates, tokenise, and hand requests to the engines; one of
//                             them has what follows from texts that were looked at
//   the engines' thread       steps whichever model has work; after each step its events go to the first in
//                             one post
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rapt/apps/server/access.h"
#include "rapt/apps/server/served_model.h"
#include "rapt/apps/server/workshop.h"
#include "rapt/http/server.h"

namespace rapt::server {

struct ServiceOptions {
  Access::Options access;
  // What may wait for its turn: answers, tokens of prompts, and seconds by the engine's own estimate.
  Dim most_waiting = 128, most_waiting_tokens = 262'144;
  double most_wait = 30;
  // After so many seconds without a beginning, a first token, an end.
  double queue_seconds = 30, first_token_seconds = 120, request_seconds = 600;
  double drain_seconds = 30;
  double ping_seconds = 5;  // of silence in a stream
  int workers = 2;
  bool page = true;  // the page at "/"
  bool replay = true;  // answers are kept in memory, to be given again (replay_store.h)
  std::string replay_log;  // … and in this file; "": in none
  WorkshopOptions workshop;
  std::string version;  // of the program
  // One line of JSON for every request that ended; no prompt and no answer is in it. Called on the server's
  // thread.
  std::function<void(const std::string& line)> log;
  // What whoever runs it should know: lines of the replay log that were left out. Any thread.
  std::function<void(const std::string& text)> warn;
};

class Service final : public http::Handler {
 public:
  // Without models only the page and the workshop's runs are there.
  Service(std::vector<std::unique_ptr<ServedModel>> models, ServiceOptions options);
  ~Service() override;

  void start(http::Server& server);  // its threads; before Server::run()
  // From any thread or a signal handler: what runs is finished, the rest refused; then Server::run() returns.
  // A second call ends what runs, too.
  void drain();
  void reload();  // likewise: certificates are read again
  void stop();  // after Server::run(): its threads end
  Workshop& workshop();  // where options.workshop.on

  std::optional<http::Reply> on_head(const http::Request& request) override;
  void on_request(http::Exchange exchange, http::Request request) override;
  void on_gone(http::Exchange exchange) override;
  void on_room(http::Exchange exchange) override;
  http::Reply on_refused(int status, std::string_view why, std::string_view path) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rapt::server
