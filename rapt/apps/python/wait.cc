// SPDX-License-Identifier: Apache-2.0
#include "rapt/apps/python/wait.h"

#include <chrono>
#include <functional>

#include <unistd.h>

namespace rapt::python {
namespace {

// One thread that computes for the main thread; there is one main thread, so there is never a second task.
class Elsewhere {
 public:
  void begin(const std::function<void()>& f) {
    const std::lock_guard lock(mutex_);
    if (process_ != getpid()) {  // the first task, or the first in a child of fork(), which has no such thread
      process_ = getpid();
      std::thread([this] { serve(); }).detach();
    }
    task_ = &f;
    done_ = false;
    error_ = nullptr;
    changed_.notify_all();
  }
  // Whether it is done; waits so long at most.
  bool wait(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return done_; });
  }
  std::exception_ptr error() {
    const std::lock_guard lock(mutex_);
    return std::exchange(error_, nullptr);
  }

 private:
  [[noreturn]] void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return task_ != nullptr; });
      const std::function<void()>* f = std::exchange(task_, nullptr);
      lock.unlock();
      std::exception_ptr error;
      try {
        (*f)();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      done_ = true;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr;
  bool done_ = true;
  std::exception_ptr error_;
  pid_t process_ = 0;
};

}  // namespace

bool on_main_thread() {
  static unsigned long main = 0;
  static pid_t process = 0;
  if (process != getpid()) {  // the thread that forked is the main one of the child
    main = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
    process = getpid();
  }
  return PyThread_get_thread_ident() == main;
}

void run_elsewhere(const std::function<void()>& f, std::atomic<bool>& cancel) {
  // Never destroyed: at the interpreter's exit its thread may still hold on to it.
  static Elsewhere& elsewhere = *new Elsewhere;
  static thread_local bool waiting = false;
  if (waiting) {  // a callback of such a call calls again: the thread is taken, and nobody waits for Ctrl-C
    const nb::gil_scoped_release released;
    return f();
  }
  waiting = true;
  elsewhere.begin(f);
  std::optional<nb::python_error> interrupt;
  while (true) {
    bool done;
    {
      const nb::gil_scoped_release released;
      done = elsewhere.wait(std::chrono::milliseconds(20));
    }
    if (done) break;
    if (!interrupt && PyErr_CheckSignals() != 0) {
      interrupt.emplace();
      cancel = true;
    }
  }
  waiting = false;
  std::exception_ptr error = elsewhere.error();
  if (interrupt) throw std::move(*interrupt);
  if (error) std::rethrow_exception(std::exchange(error, nullptr));
}

}  // namespace rapt::python
