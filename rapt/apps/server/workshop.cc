// SPDX-License-Identifier: Apache-2.0
// Runs, their events and who may see them. What they compute: workshop_lab.cc, workshop_train.cc.
#include "rapt/apps/server/workshop.h"

#include <unistd.h>

#include <algorithm>

#include "rapt/apps/server/protocol_error.h"
#include "rapt/apps/server/service_state.h"
#include "rapt/base/text.h"

namespace rapt::server {
namespace {

constexpr std::size_t kMostKept = 8;               // runs
constexpr std::size_t kMostEventBytes = 16 << 20;  // of a run

}  // namespace

struct WorkshopRun {
  std::string id, kind;
  Json::Object about;
  std::size_t key = 0;
  const Clock::time_point began = Clock::now();
  std::deque<std::string> events;
  Dim first = 0;  // number of the first of them
  std::size_t bytes = 0;
  bool ended = false;
  std::string how;
  Workshop::Bench bench;
  std::thread thread;

  void add(std::string event) {
    bytes += event.size();
    events.push_back(std::move(event));
    while (bytes > kMostEventBytes) {
      bytes -= events.front().size();
      events.pop_front();
      ++first;
    }
  }
};

void Workshop::Bench::tell(const Json& event) {
  std::string line = event.dump(0);
  const std::lock_guard hold(shop_->lock_);
  run_->add(std::move(line));
}

void Workshop::Bench::about(const Json::Object& more) {
  const std::lock_guard hold(shop_->lock_);
  Json all(std::move(run_->about));
  for (const auto& [name, value] : more) all.set(name, value);
  run_->about = all.object();
}

void Workshop::Bench::check() const {
  if (stop_) throw Stopped{};
}

Workshop::Workshop(WorkshopOptions options) : options_(std::move(options)) {}

Workshop::~Workshop() {
  for (const auto& run : runs_) run->bench.stop_ = true;
  for (const auto& run : runs_)
    if (run->thread.joinable()) run->thread.join();
}

std::string Workshop::begin(std::string kind, Json::Object about, std::size_t key,
                            std::function<void(Bench&)> work) {
  const std::lock_guard hold(lock_);
  for (const auto& run : runs_)
    if (!run->ended)
      throw ApiError(429, "lab_busy",
                     "busy: an experiment or a training runs already, and two would only take each other's "
                     "time; stop it or wait for its end",
                     "", 5);
  WorkshopRun* run = add(std::move(kind), std::move(about), key);
  run->thread = std::thread([this, run, work = std::move(work)] {
    (void)!nice(10);  // of this thread and those that it starts: answers come first
    std::string how = "done", error;
    try {
      work(run->bench);
    } catch (const Stopped&) {
      how = "stopped";
    } catch (const std::exception& e) {
      how = "failed";
      error = e.what();
    }
    end(*run, how, error);
  });
  return run->id;
}

Workshop::Bench& Workshop::open(std::string kind, Json::Object about) {
  const std::lock_guard hold(lock_);
  return add(std::move(kind), std::move(about), 0)->bench;
}

void Workshop::close(Bench& bench, std::string_view how, const std::string& error) {
  end(*bench.run_, how, error);
}

void Workshop::end(WorkshopRun& run, std::string_view how, const std::string& error) {
  Json last = Json::Object{{"kind", "end"}, {"how", how}};
  if (!error.empty()) last.set("error", error);
  const std::lock_guard hold(lock_);
  run.add(last.dump(0));
  run.how = how;
  run.ended = true;
}

void Workshop::drop(std::string_view id) {
  std::unique_ptr<WorkshopRun> gone;
  {
    const std::lock_guard hold(lock_);
    const auto it = std::find_if(runs_.begin(), runs_.end(), [&](const auto& r) { return r->id == id; });
    if (it == runs_.end()) return;
    gone = std::move(*it);
    runs_.erase(it);
  }
  if (gone->thread.joinable()) gone->thread.join();
}

WorkshopRun* Workshop::add(std::string kind, Json::Object about, std::size_t key) {
  while (runs_.size() >= kMostKept) {
    if (runs_.back()->thread.joinable()) runs_.back()->thread.join();
    runs_.pop_back();
  }
  runs_.push_front(std::make_unique<WorkshopRun>());
  WorkshopRun* run = runs_.front().get();
  run->id = random_id();
  run->kind = std::move(kind);
  run->about = std::move(about);
  run->key = key;
  run->bench.run_ = run;
  run->bench.shop_ = this;
  return run;
}

WorkshopRun* Workshop::find(std::string_view id, std::size_t key) const {
  const auto it =
      std::find_if(runs_.begin(), runs_.end(), [&](const auto& r) { return r->id == id && r->key == key; });
  return it == runs_.end() ? nullptr : it->get();
}

void Workshop::stop(std::string_view id, std::size_t key) {
  if (options_.watch)
    throw ApiError(403, "watch_only", "this page watches a training of a terminal; it is stopped there");
  const std::lock_guard hold(lock_);
  WorkshopRun* run = find(id, key);
  if (!run) throw ApiError(404, "run_not_found", "there is no such run");
  run->bench.stop_ = true;
}

std::string Workshop::list(std::size_t key) const {
  const std::lock_guard hold(lock_);
  Json::Array all;
  for (const auto& run : runs_) {
    if (run->key != key) continue;
    Json one = Json::Object{{"id", run->id}, {"kind", run->kind}, {"running", !run->ended}};
    if (run->ended) one.set("how", run->how);
    for (const auto& [name, value] : run->about) one.set(name, value);
    all.push_back(std::move(one));
  }
  return Json(Json::Object{{"data", std::move(all)}}).dump(0);
}

std::string Workshop::newest(std::string_view kind, std::size_t key) const {
  const std::lock_guard hold(lock_);
  for (const auto& run : runs_)
    if (run->kind == kind && run->key == key) return run->id;
  return "";
}

Workshop::Part Workshop::events(std::string_view id, std::size_t key, Dim from) const {
  const std::lock_guard hold(lock_);
  const WorkshopRun* run = find(id, key);
  if (!run) throw ApiError(404, "run_not_found", "there is no such run");
  Part part;
  part.next = run->first + static_cast<Dim>(run->events.size());
  for (Dim i = std::max(from, run->first); i < part.next; ++i)
    part.events.push_back(run->events[static_cast<std::size_t>(i - run->first)]);
  part.ended = run->ended;
  return part;
}

std::string Workshop::answer(std::string_view route, const Json& body, std::size_t key) {
  if (options_.watch)
    throw ApiError(403, "watch_only",
                   "this page watches a training of a terminal and starts none; rapt serve --lab does");
  if (route == "/train/run") return train(body, key);
  throw ApiError(404, "route_not_found", concat("there is no ", route));
}

}  // namespace rapt::server
