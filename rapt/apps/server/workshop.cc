// SPDX-License-Identifier: Apache-2.0
// Runs, their events and who may see them. What they compute: workshop_lab.cc, workshop_train.cc.
#include "rapt/apps/server/workshop.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <system_error>

#include "rapt/apps/server/protocol_error.h"
#include "rapt/apps/server/service_state.h"
#include "rapt/apps/server/workshop_parts.h"
#include "rapt/apps/server/workshop_recipe.h"
#include "rapt/base/text.h"
#include "rapt/report/document.h"

namespace rapt::server {

constexpr std::size_t kMostKept = 8;  // runs

struct WorkshopRun {
  std::string id, kind;
  Json::Object about;
  std::size_t key = 0;
  const Clock::time_point began = Clock::now();
  double seconds = 0;  // that it took; once it has ended
  std::deque<std::string> events;
  Dim first = 0;  // number of the first of them
  std::size_t bytes = 0;
  bool ended = false;
  std::string how;
  Workshop::Bench bench;
  std::thread thread;

  // The newest stays, however long it is.
  void add(std::string event, std::size_t most) {
    bytes += event.size();
    events.push_back(std::move(event));
    while (bytes > most && events.size() > 1) {
      bytes -= events.front().size();
      events.pop_front();
      ++first;
    }
  }
};

void Workshop::Bench::tell(const Json& event) {
  std::string line = event.dump(0);
  const std::lock_guard hold(shop_->lock_);
  run_->add(std::move(line), shop_->options_.event_bytes);
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
  shut();
  for (const auto& run : runs_)
    if (run->thread.joinable()) run->thread.join();
}

void Workshop::shut() {
  const std::lock_guard hold(lock_);
  shut_ = true;
  for (const auto& run : runs_) run->bench.stop_ = true;
}

std::string Workshop::begin(std::string kind, Json::Object about, std::size_t key,
                            std::function<void(Bench&)> work) {
  const std::lock_guard hold(lock_);
  if (shut_) throw ApiError(503, "draining", "the server is shutting down; try again in a moment", "", 5);
  for (const auto& other : runs_)
    if (!other->ended)
      throw ApiError(429, "lab_busy",
                     "busy: an experiment or a training runs already, and two would only take each other's "
                     "time; stop it or wait for its end",
                     "", 5);
  WorkshopRun* run = add(std::move(kind), std::move(about), key);
  try {
    run->thread = std::thread([this, run, work = std::move(work)]() mutable { carry_out(*run, work); });
  } catch (const std::system_error&) {
    runs_.pop_front();
    throw ApiError(503, "out_of_memory", "the system gives no further thread now; try again later", "", 5);
  }
  return run->id;
}

void Workshop::carry_out(WorkshopRun& run, std::function<void(Bench&)>& work) {
  (void)!nice(10);  // of this thread and those that it starts: answers come first
  std::string how = "failed", code, error;
  try {
    work(run.bench);
    how = "done";
  } catch (const Stopped&) {
    how = "stopped";
  } catch (const std::bad_alloc&) {
    code = "out_of_memory";
    error = "there is not enough memory for it";
  } catch (const std::exception& e) {
    error = e.what();
  } catch (...) {
    error = "something was thrown that says nothing of itself";
  }
  work = nullptr;  // what it holds is free before others hear of the end
  end(run, how, error, code);
}

Workshop::Bench& Workshop::open(std::string kind, Json::Object about) {
  const std::lock_guard hold(lock_);
  return add(std::move(kind), std::move(about), 0)->bench;
}

void Workshop::close(Bench& bench, std::string_view how, const std::string& error) {
  end(*bench.run_, how, error);
}

void Workshop::end(WorkshopRun& run, std::string_view how, const std::string& error, std::string_view code) {
  const std::lock_guard hold(lock_);
  try {
    Json last = Json::Object{{"kind", "end"}, {"how", how}};
    if (!error.empty())
      last.set("code", code.empty() ? "failed" : code), last.set("error", valid_text(error));
    run.add(last.dump(0), options_.event_bytes);
  } catch (const std::exception&) {  // still no memory: its readers see an end without words
  }
  run.how = how;
  run.seconds = seconds_since(run.began);
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
  // Those that have ended have left the lock behind them: no wait. What somebody still tells of stays.
  for (const auto& run : runs_)
    if (run->ended && run->thread.joinable()) run->thread.join();
  while (runs_.size() >= kMostKept && runs_.back()->ended) runs_.pop_back();
  auto made = std::make_unique<WorkshopRun>();
  made->id = random_id();
  made->kind = std::move(kind);
  made->about = std::move(about);
  made->key = key;
  made->bench.run_ = made.get();
  made->bench.shop_ = this;
  runs_.push_front(std::move(made));
  return runs_.front().get();
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
    Json one = Json::Object{{"id", run->id},
                            {"kind", run->kind},
                            {"running", !run->ended},
                            {"seconds", run->ended ? run->seconds : seconds_since(run->began)}};
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

Workshop::Part Workshop::events(std::string_view id, std::size_t key, Dim from,
                                std::size_t most_bytes) const {
  const std::lock_guard hold(lock_);
  const WorkshopRun* run = find(id, key);
  if (!run) throw ApiError(404, "run_not_found", "there is no such run");
  const Dim end = run->first + static_cast<Dim>(run->events.size());
  Part part;
  part.next = std::max(from, run->first);
  for (std::size_t bytes = 0; part.next < end && bytes < most_bytes; ++part.next) {
    part.events.push_back(run->events[static_cast<std::size_t>(part.next - run->first)]);
    bytes += part.events.back().size();
  }
  part.ended = run->ended && part.next >= end;
  return part;
}

std::string Workshop::answer(std::string_view route, const Json& body, std::size_t key) {
  if (route == "/recipe/show") return recipe_show(body);
  if (route == "/recipe/diff") return recipe_diff(body);
  if (options_.watch)
    throw ApiError(403, "watch_only",
                   "this page watches a training of a terminal and starts none; rapt serve --lab does");
  if (route == "/train/run") return train(body, key);
  if (route == "/lab/run") return run_experiment(*this, body, key);
  throw ApiError(404, "route_not_found", concat("there is no ", route));
}

}  // namespace rapt::server
