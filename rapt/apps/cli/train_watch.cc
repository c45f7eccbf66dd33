// SPDX-License-Identifier: Apache-2.0
// A server without models on a thread of its own; what it shows is a run of its workshop (server/workshop.h)
// that the training's thread tells of.
#include "rapt/apps/cli/train_watch.h"

#include <chrono>
#include <thread>

#include "rapt/apps/cli/verb.h"
#include "rapt/apps/server/service.h"
#include "rapt/base/text.h"

namespace rapt::cli {
namespace {

constexpr Dim kPort = 8642;
constexpr double kShare = 0.02;  // of the training's time, for looks at its heads

server::ServiceOptions watching() {
  server::ServiceOptions o;
  o.workers = 1;
  o.drain_seconds = 1;
  o.workshop.on = o.workshop.watch = true;
  o.version = version_line();
  return o;
}

}  // namespace

struct TrainWatch::State {
  server::Service service{{}, watching()};
  http::Server server{service, {}};
  std::thread thread;
  server::Workshop::Bench* bench = nullptr;
  std::optional<server::TrainTeller> teller;
};

TrainWatch::TrainWatch(std::optional<Dim> port) : state_(std::make_unique<State>()) {
  int got = 0;
  try {
    got = state_->server.listen("127.0.0.1", static_cast<int>(port.value_or(kPort)));
  } catch (const Error&) {
    if (port) throw;
    got = state_->server.listen("127.0.0.1", 0);
  }
  state_->service.start(state_->server);
  state_->thread = std::thread([s = state_.get()] { s->server.run(); });
  note(concat("watch it at http://127.0.0.1:", got, "/"));
}

TrainWatch::~TrainWatch() {
  end("stopped");
  state_->server.stop();
  state_->thread.join();
  state_->service.stop();
}

server::TrainTeller& TrainWatch::begin(Device& device, const TrainingRun& run, const std::string& name,
                                       Dim steps) {
  end("stopped");
  const Model& model = *run.checkpoint->model;
  state_->bench = &state_->service.workshop().open("train", {{"name", name},
                                                             {"recipe", model.recipe.name},
                                                             {"steps", steps},
                                                             {"saved", true},
                                                             {"parameters", model.parameters()}});
  return state_->teller.emplace(*state_->bench, device, run,
                                server::TrainTeller::Options{.name = name, .steps = steps, .share = kShare});
}

void TrainWatch::end(std::string_view how, const std::string& error) {
  if (!state_->bench) return;
  state_->teller->flush();
  state_->service.workshop().close(*state_->bench, how, error);
  state_->teller.reset();
  state_->bench = nullptr;
  // Pages that watch hear of it: they are told four times a second.
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
}

void TrainWatch::stay(const std::atomic<int>& stop) const {
  while (stop == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace rapt::cli
