// SPDX-License-Identifier: Apache-2.0
// Who takes the engine's turn, and how events come to those who asked; forks and the end of the interpreter.
#include "rapt/apps/python/shared_engine.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <new>
#include <set>

namespace rapt::python {
namespace {

constexpr double kLook = 0.02;  // seconds between two looks at signals
// Events that may wait for a listener who is slower than the engine; then his request rests.
constexpr std::size_t kMostEvents = 256;

void look_at_signals() {
  const InPython in;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

[[noreturn]] void fail_inside_pass() {
  fail_usage(
      "a function at a point of a pass cannot ask for an answer: whoever is writing one waits for this "
      "pass; it may compute passes (logits, run_with_cache …)");
}

}  // namespace

void Bell::ring() {
  rings_.fetch_add(1);
  if (waiting_.load() > 0) syscall(SYS_futex, &rings_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::wait(std::uint32_t rings, double seconds) {
  timespec most{};
  most.tv_sec = static_cast<time_t>(seconds);
  most.tv_nsec = static_cast<long>((seconds - static_cast<double>(most.tv_sec)) * 1e9);
  waiting_.fetch_add(1);
  syscall(SYS_futex, &rings_, FUTEX_WAIT_PRIVATE, rings, seconds > 0 ? &most : nullptr, nullptr, 0);
  waiting_.fetch_sub(1);
}

// fork() copies one thread. Locks are taken around it, so that the child finds everything whole but for steps
// under way, whose threads it does not have.
struct SharedEngine::Forks {
  static inline std::mutex lock;
  static inline std::set<SharedEngine*> all;

  static void add(SharedEngine& e) {
    static const int once = pthread_atfork(before, after, in_child);
    (void)once;
    const std::lock_guard hold(lock);
    all.insert(&e);
  }
  static void remove(SharedEngine& e) {
    const std::lock_guard hold(lock);
    all.erase(&e);
  }
  static void before() {
    lock.lock();
    for (SharedEngine* e : all) e->lock_.lock();
  }
  static void after() {
    for (SharedEngine* e : all) e->lock_.unlock();
    lock.unlock();
  }
  static void in_child() {
    for (SharedEngine* e : all) {
      new (&e->lock_) std::mutex;
      e->lost_ = e->lost_ || e->taken_;
      for (auto& [id, asked] : e->asked_) asked->waiting = 0;  // threads that waited are not here
    }
    new (&lock) std::mutex;
  }
};

SharedEngine::SharedEngine(ModelPtr model, const Engine::Options& options, ModelPtr draft)
    : model_(std::move(model)),
      draft_(std::move(draft)),
      edited_(model_->edits ? std::make_unique<Edited>(*model_, Passes::many) : nullptr),
      // Before anything is known: all weights are read once for a row, ten gigabytes a second.
      decode_seconds_(static_cast<double>(model_->checkpoint->file_bytes) * 1e-10),
      row_seconds_(decode_seconds_),
      engine_(model_->on(), *model_->checkpoint, options) {
  if (model_->checkpoint->file_bytes == 0)
    decode_seconds_ = row_seconds_ = static_cast<double>(model_->net().parameters()) * 4e-10;
  Forks::add(*this);
}
SharedEngine::~SharedEngine() { Forks::remove(*this); }

void SharedEngine::check_usable() const {
  if (lost_)
    fail("this process was forked while ", model_->checkpoint->path.empty() ? "the model" : "a model (",
         model_->checkpoint->path, model_->checkpoint->path.empty() ? "" : ")",
         " computed in another thread, which is not here; load it again in this process");
  if (OutOfPython::ending()) fail("the interpreter is ending; nothing is computed any more");
}

std::shared_ptr<SharedEngine::Asked> SharedEngine::ask(Request request, bool listens,
                                                       std::shared_ptr<RequestHooks> hooks) {
  if (passes_around > 0) fail_inside_pass();
  auto asked = std::make_shared<Asked>();
  asked->listens = listens;
  asked->of = static_cast<Dim>(request.tokens.size() + request.source.size());
  if (hooks) request.taps = hooks->taps();
  else if (edited_) request.taps = edited_->edits(), request.edits = model_->edits->key;
  asked->hooks = std::move(hooks);
  const std::lock_guard hold(lock_);
  check_usable();
  asked->id = engine_.add(std::move(request));
  asked_.emplace(asked->id, asked);
  ++waited_for_;
  return asked;
}

bool SharedEngine::next(Asked& asked, Event& event, bool main) {
  std::unique_lock hold(lock_);
  auto looked = Clock::now();
  bool mine = false;  // the engine's turn is kept from step to step
  const auto back = [&](bool more) {
    if (mine || !taken_) give_turn();
    return more;
  };
  while (true) {
    if (!asked.events.empty()) {
      event = std::move(asked.events.front());
      asked.events.pop_front();
      return back(true);
    }
    if (asked.over) return back(false);
    if (passes_around > 0) fail_inside_pass();
    if (!mine) check_usable();
    rest(asked, false);
    const bool far = main && expected_seconds() > kLook;
    if (mine && far) mine = false, give_turn();
    if (!taken_ && far) {
      step_elsewhere();
    } else if (mine || !taken_) {
      mine = taken_ = true;
      hold.unlock();
      step();
      hold.lock();
    } else {
      const std::uint32_t rings = asked.bell.rings();
      ++asked.waiting;
      hold.unlock();
      asked.bell.wait(rings, main ? kLook : 0);
      hold.lock();
      --asked.waiting;
    }
    if (!main || seconds_since(looked) < kLook) continue;
    hold.unlock();
    try {
      look_at_signals();
    } catch (...) {
      hold.lock();
      if (mine || !taken_) give_turn();
      throw;
    }
    looked = Clock::now();
    hold.lock();
  }
}

void SharedEngine::leave(Asked& asked) {
  const std::lock_guard hold(lock_);
  asked.events.clear();
  if (asked.over || lost_) return;
  asked.over = true;
  --waited_for_;
  engine_.cancel(asked.id);
  asked.bell.ring();
  // Its memory goes with the next step; where nobody would take one, now.
  if (!taken_ && waited_for_ == 0 && !OutOfPython::ending()) step_elsewhere();
}

void SharedEngine::stop_sample(Asked& asked, int sample) {
  const std::lock_guard hold(lock_);
  if (!asked.over && !lost_) engine_.cancel(asked.id, sample);
}

void SharedEngine::release(std::uint64_t hold) {
  const std::lock_guard locked(lock_);
  if (lost_) return;
  to_release_.push_back(hold);
  if (!taken_) settle();
}

std::uint64_t SharedEngine::new_hold() {
  const std::lock_guard locked(lock_);
  return ++holds_;
}

// A request whose listener is slow, or listens again.
void SharedEngine::rest(Asked& asked, bool on) {
  if (asked.resting == on) return;
  asked.resting = on;
  engine_.suspend(asked.id, on);
}

double SharedEngine::expected_seconds() const {
  Dim rows = 0;
  for (const auto& [id, asked] : asked_) rows += asked->of - asked->read;
  return decode_seconds_ + row_seconds_ * static_cast<double>(std::min<Dim>(rows, 512));
}

// One step by a thread of the module. With the lock; takes the engine's turn, and gives it back.
void SharedEngine::step_elsewhere() {
  taken_ = true;
  run_detached([self = shared_from_this()] {
    self->step();
    const std::lock_guard hold(self->lock_);
    self->give_turn();
  });
}

// The engine's turn to whoever waits. With the lock and the turn, or where nobody has it: one who was woken
// to take it may have gone instead.
void SharedEngine::give_turn() {
  taken_ = false;
  free_.ring();
  for (const auto& [id, asked] : asked_)
    if (asked->waiting > 0 && asked->events.empty() && !asked->over) return asked->bell.ring();
}

// With the engine's turn, without the lock.
void SharedEngine::step() {
  while (true) {
    const auto began = Clock::now();
    std::vector<Event> events;
    std::exception_ptr error;
    try {
      events = engine_.step();
    } catch (...) {
      error = std::current_exception();
    }
    const double seconds = seconds_since(began);
    std::vector<std::shared_ptr<Asked>> done;  // go without the lock: they may take the GIL
    const std::lock_guard hold(lock_);
    take(events, seconds, done);
    if (error)
      for (auto& [id, asked] : asked_) {
        if (!asked->over) --waited_for_;
        asked->over = true;
        asked->error = error;
        asked->bell.ring();
        engine_.cancel(id);
      }
    settle();
    // Those that were left are ended by a step that computes nothing.
    if (error || waited_for_ > 0 || asked_.empty() || engine_.idle()) return;
  }
}

// What waits for the engine's turn. With the lock.
void SharedEngine::settle() {
  for (const std::uint64_t hold : to_release_) engine_.release(hold);
  to_release_.clear();
}

// Events to those who asked. With the lock and the engine's turn.
void SharedEngine::take(std::vector<Event>& events, double seconds,
                        std::vector<std::shared_ptr<Asked>>& done) {
  Dim rows = 0;
  for (Event& e : events) {
    const auto it = asked_.find(e.request);
    if (it == asked_.end()) continue;
    Asked& asked = *it->second;
    switch (e.kind) {
      case Event::Kind::prompt:
        rows += std::max<Dim>(0, e.read - std::max(asked.read, e.reused));
        asked.read = asked.of - (e.of - e.read);
        break;
      case Event::Kind::token:
        asked.read = asked.of;
        if (asked.over || !asked.listens) break;
        asked.events.push_back(std::move(e));
        if (asked.waiting > 0) asked.bell.ring();
        if (asked.events.size() > kMostEvents) rest(asked, true);
        break;
      case Event::Kind::paused: break;
      case Event::Kind::done:
        if (!asked.over) {
          asked.over = true;
          --waited_for_;
          asked.answer = std::move(e.answer);
          asked.error = std::move(e.error);
          const bool whole = !asked.error && (asked.answer->samples.empty() ||
                                              asked.answer->samples[0].finish != Finish::cancelled);
          try {
            if (asked.hooks && whole) asked.hooks->check();
            else if (edited_ && whole) edited_->check();
          } catch (...) {
            asked.error = std::current_exception();
          }
          asked.bell.ring();
        }
        done.push_back(std::move(it->second));
        asked_.erase(it);
    }
  }
  if (events.empty()) return;
  if (rows == 0) decode_seconds_ = seconds;
  else row_seconds_ = std::max(0.0, seconds - decode_seconds_) / static_cast<double>(rows);
}

void SharedEngine::end_all() {
  OutOfPython::end();
  std::vector<std::shared_ptr<SharedEngine>> all;
  {
    const std::lock_guard hold(Forks::lock);
    for (SharedEngine* e : Forks::all)
      if (auto held = e->weak_from_this().lock()) all.push_back(std::move(held));
  }
  for (const auto& e : all) {
    const auto until = Clock::now() + std::chrono::seconds(5);
    std::unique_lock hold(e->lock_);
    if (e->lost_) continue;
    for (const auto& [id, asked] : e->asked_) e->engine_.cancel(id);
    while (e->taken_ && Clock::now() < until) {
      const std::uint32_t rings = e->free_.rings();
      hold.unlock();
      e->free_.wait(rings, 0.1);
      hold.lock();
    }
  }
  OutOfPython::wait_for_all();
}

}  // namespace rapt::python
