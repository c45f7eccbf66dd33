// SPDX-License-Identifier: Apache-2.0
// What a page may start under `rapt serve --lab` that takes long: experiments and trainings. One at a time,
// on a thread of its own that gives way to answers; what it says is a list of events which readers follow
// from any number on, also after it has ended. Nothing here writes a file unless --lab-dir names a folder.
//
//   POST   /v1/lab/run, /v1/train/run   {"id": …}; 429 while another one runs
//   GET    /v1/runs                     those that are kept, the newest first, with the seconds they took
//   GET    /v1/runs/{id}?from=N         its events from number N on, as they come; ?once=1: those there are
//   DELETE /v1/runs/{id}                asks it to stop
//   GET    /v1/train/events             as /v1/runs/{id}, of the newest training
//
// An event is one line of JSON with a member "kind"; the last one is {"kind":"end","how":"done" | "stopped" |
// "failed"}, a failed one's with "code" ("out_of_memory" or "failed") and "error" in words.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rapt/base/clock.h"
#include "rapt/base/json.h"

namespace rapt::server {

struct WorkshopRun;

struct WorkshopOptions {
  bool on = false;  // --lab
  std::string folder;  // --lab-dir: where trainings are kept; empty: nowhere
  int threads = 0;  // of what runs
  bool watch = false;  // shows what runs elsewhere (open()), starts and stops nothing
  std::size_t event_bytes = 16 << 20;  // of a run: beyond, the oldest of its events are kept no more
};

class Workshop {
 public:
  // What a run says and asks while it works; of its own thread.
  class Bench {
   public:
    void tell(const Json& event);  // an object with "kind"
    void about(const Json::Object& more);  // members of the run's entry in the list, in the place of others
    bool stopped() const { return stop_; }
    void check() const;  // throws Stopped where it was asked to stop

   private:
    friend class Workshop;
    WorkshopRun* run_ = nullptr;
    Workshop* shop_ = nullptr;
    std::atomic<bool> stop_ = false;
  };
  struct Stopped {};

  explicit Workshop(WorkshopOptions options);
  ~Workshop();  // as shut(); what runs is waited for
  void shut();  // what runs is asked to stop, and nothing more begins: 503
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  const WorkshopOptions& options() const { return options_; }
  // A request that needs no model: its reply as JSON. Throws ApiError. Takes what a worker may take.
  std::string answer(std::string_view route, const Json& body, std::size_t key);

  // `about`: members of the run's entry in the list. Throws ApiError 429 where one runs already.
  std::string begin(std::string kind, Json::Object about, std::size_t key, std::function<void(Bench&)> work);
  // A run whose work is done elsewhere, by who tells of it until close().
  Bench& open(std::string kind, Json::Object about);
  void close(Bench& bench, std::string_view how, const std::string& error = "");
  void stop(std::string_view id, std::size_t key);  // throws ApiError 404
  std::string list(std::size_t key) const;
  std::string newest(std::string_view kind, std::size_t key) const;  // its id, or ""

  struct Part {
    std::vector<std::string> events;
    Dim next = 0;  // number of the one after them
    bool ended = false;  // there are no more, and will be none
  };
  // Those from number `from` on, and no further one after `most_bytes`; where the oldest are kept no more,
  // from the first that is there. Throws ApiError 404.
  Part events(std::string_view id, std::size_t key, Dim from, std::size_t most_bytes = 16 << 20) const;

 private:
  void carry_out(WorkshopRun& run, std::function<void(Bench&)>& work);
  WorkshopRun* find(std::string_view id, std::size_t key) const;  // under lock_; null: not there
  WorkshopRun* add(std::string kind, Json::Object about, std::size_t key);  // under lock_
  void end(WorkshopRun& run, std::string_view how, const std::string& error, std::string_view code = "");
  void drop(std::string_view id);  // a run that could not begin: as if it had never been
  std::string train(const Json& body, std::size_t key);  // workshop_train.cc

  WorkshopOptions options_;
  mutable std::mutex lock_;
  bool shut_ = false;
  std::deque<std::unique_ptr<WorkshopRun>> runs_;  // the newest first
};

}  // namespace rapt::server
