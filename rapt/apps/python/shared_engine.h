// SPDX-License-Identifier: Apache-2.0
// One engine for all threads of a program that ask the same Python Model: whoever waits for an event steps
// the engine, if nobody does, and hands to others what is theirs. So their texts share passes, a short step
// costs no change of threads, and an answer that nobody waits for any more ends by cancel().
//
// Python's main thread must look at signals: steps that may last (prompts; slow models) it leaves to a thread
// of the module. It may also walk away from one: what it asked for is cancelled, the step ends alone.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rapt/apps/python/hooks.h"
#include "rapt/base/clock.h"
#include "rapt/use/engine.h"

namespace rapt::python {

// Wakes those who wait for something to change. Unlike a condition variable it may be in use when the process
// forks: the child's copy has nobody in it.
class Bell {
 public:
  std::uint32_t rings() const { return rings_.load(); }
  void ring();
  // Until it rang once more than so often, or so many seconds have passed (0: for ever), or for no reason.
  void wait(std::uint32_t rings, double seconds = 0);

 private:
  std::atomic<std::uint32_t> rings_{0}, waiting_{0};
};

class SharedEngine : public std::enable_shared_from_this<SharedEngine> {
 public:
  // A request as its asker sees it. All of it under the engine's lock.
  struct Asked {
    Engine::Id id = 0;
    bool listens = false;  // to tokens; else only the end is told
    std::deque<Event> events = {};
    Dim read = 0, of = 0;  // tokens of the prompt
    bool over = false, resting = false;
    int waiting = 0;  // threads, for an event or the engine's turn
    Bell bell = {};
    std::shared_ptr<Answer> answer = {};  // when it is over, unless it was left
    std::exception_ptr error = {};
    std::shared_ptr<RequestHooks> hooks = {};  // until no pass is its any more
  };

  // `draft`: whose checkpoint is options.draft.
  SharedEngine(ModelPtr model, const Engine::Options& options, ModelPtr draft);
  ~SharedEngine();

  // With the handle's edits on it, or with `hooks`, which have them.
  std::shared_ptr<Asked> ask(Request request, bool listens, std::shared_ptr<RequestHooks> hooks = {});
  // The next event; false when it is over. Without the GIL; throws what a signal handler throws (`main`: this
  // is Python's main thread).
  bool next(Asked& asked, Event& event, bool main);
  void stop_sample(Asked& asked, int sample);  // one of several answers; the rest goes on
  // Nobody waits for it any more. Returns at once.
  void leave(Asked& asked);
  void release(std::uint64_t hold);
  std::uint64_t new_hold();

  const api::ModelState& model() const { return *model_; }
  const ModelPtr& state() const { return model_; }
  Dim context() const { return engine_.context(); }
  const std::vector<std::int32_t>& stops() const { return engine_.stops(); }
  Engine::Status status() const { return engine_.status(); }

  // At the interpreter's end: everything is cancelled, and steps under way are waited for.
  static void end_all();

 private:
  struct Forks;
  void check_usable() const;
  void step();
  void step_elsewhere();
  void give_turn();
  void take(std::vector<Event>& events, double seconds, std::vector<std::shared_ptr<Asked>>& done);
  void settle();
  double expected_seconds() const;
  void rest(Asked& asked, bool on);

  const ModelPtr model_, draft_;
  const std::unique_ptr<Edited> edited_;
  std::mutex lock_;
  Bell free_;
  bool taken_ = false;  // somebody has the engine's turn: steps it, or is about to
  bool lost_ = false;  // a child of fork(), made while a step was under way
  std::unordered_map<Engine::Id, std::shared_ptr<Asked>> asked_;
  Dim waited_for_ = 0;  // of those
  std::vector<std::uint64_t> to_release_;
  std::uint64_t holds_ = 0;
  double decode_seconds_, row_seconds_;  // what was seen last: a step that only writes, a row of a prompt
  Engine engine_;
};

}  // namespace rapt::python
