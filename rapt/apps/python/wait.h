// SPDX-License-Identifier: Apache-2.0
// Long calls from Python: the only place that knows the interpreter's lock (GIL), threads and signals.
//
// Order that cannot deadlock: the GIL is released before a lock of the engine is taken; a callback takes the
// GIL while such a lock is held; nobody waits for a lock with the GIL held.
//
// Python looks at signals on its main thread alone, and only with the GIL. So a call of that thread that can
// last is computed by another one, while it looks every 20 ms whether Ctrl-C was pressed and then sets
// `cancel`, which the engine reads between two layers. What the call belongs to stays usable.
#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "rapt/apps/python/binding.h"
#include "rapt/run/cancel.h"

namespace rapt::python {

// Whether this is Python's main thread. With the GIL.
bool on_main_thread();

// Without the GIL, in the place of nb::gil_scoped_release. While the interpreter ends, its other threads must
// not come back to it: it would end them in the middle of C++. When one of these comes or goes then, the
// thread stays where it is, for ever, unless it is the main one.
class OutOfPython {
 public:
  explicit OutOfPython(bool main);
  ~OutOfPython();
  OutOfPython(const OutOfPython&) = delete;
  OutOfPython& operator=(const OutOfPython&) = delete;

  static bool ending();
  static void stay_if_ending();  // with the GIL
  static void end();  // from now on
  // Without the GIL, on the main thread: waits, though not long, until all are back or stay.
  static void wait_for_all();

 private:
  const bool counts_;
  PyThreadState* const state_;
};

// With the GIL, on a thread that is without it. Where the interpreter is gone, the thread stays here.
class InPython {
 public:
  InPython();
  ~InPython() { PyGILState_Release(state_); }
  InPython(const InPython&) = delete;
  InPython& operator=(const InPython&) = delete;

 private:
  PyGILState_STATE state_;
};

// f(*args), with the GIL; throws what it raises. Threads that run Python when the interpreter ends are ended
// by unwinding (CPython before 3.14), which C++ below them would not survive: they stay here instead.
nb::object call_python(nb::handle f, const nb::tuple& args);

// A Python function, or whatever else, that is let go of with the GIL, from any thread.
std::shared_ptr<nb::object> held(nb::object value);

// For functions that call Python in between: the interpreter's end waits for such a thread, too.
class CallsPython {
 public:
  explicit CallsPython(bool main);
  ~CallsPython();
  CallsPython(const CallsPython&) = delete;
  CallsPython& operator=(const CallsPython&) = delete;

 private:
  const bool counts_;
};

// Passes of this thread that a Python function is called from. They hold the device: what that function
// computes, it computes on this thread; and it must not wait for an engine, whose turn may be with a thread
// that waits for the device.
inline thread_local int passes_around = 0;
struct AroundPass {
  AroundPass() { ++passes_around; }
  ~AroundPass() { --passes_around; }
  AroundPass(const AroundPass&) = delete;
  AroundPass& operator=(const AroundPass&) = delete;
};

// Once, when the module is imported: children of fork() have none of the threads that this file knows.
void begin_anew_in_children();

// Runs f on a thread of the module, kept for later ones. What f throws ends the program.
void run_detached(std::function<void()> f);

// Computes f() on such a thread; waits without the GIL, and looks at signals where this is the main thread.
// `tick`, where there is one, is called with the GIL some times a second while f runs, and once behind it.
void run_elsewhere(const std::function<void()>& f, std::atomic<bool>& cancel,
                   const std::function<void()>& tick = {});

// How far a call is: it sets the two numbers from any thread, and the thread that waits tells `listener`, a
// Python callable of (done, of) or None.
class Progress {
 public:
  explicit Progress(nb::object listener) : listener_(std::move(listener)) {}
  bool is_on() const { return !listener_.is_none(); }
  void set(double done, double of) {
    of_.store(of, std::memory_order_relaxed);
    done_.store(done, std::memory_order_relaxed);
  }
  std::function<void()> tick();  // {} where nobody listens

 private:
  nb::object listener_;
  std::atomic<double> done_{0}, of_{0};
  double told_ = -1;
};

// f() without the GIL. f may take it for callbacks (InPython). Passes inside end before their
// next layer once `cancel` is set; Ctrl-C sets it, and then KeyboardInterrupt is what is thrown.
template <class F>
auto without_gil(std::atomic<bool>& cancel, const std::function<void()>& tick, F&& f)
    -> std::invoke_result_t<F> {
  using Result = std::invoke_result_t<F>;
  const auto computed = [&]() -> Result {
    const CancelScope scope(cancel);
    return f();
  };
  const bool main = on_main_thread();
  if (passes_around > 0 || (!tick && !main)) {
    const OutOfPython out(main);
    return computed();
  }
  if constexpr (std::is_void_v<Result>) {
    run_elsewhere([&] { computed(); }, cancel, tick);
  } else {
    std::optional<Result> out;
    run_elsewhere([&] { out.emplace(computed()); }, cancel, tick);
    return std::move(*out);
  }
}
template <class F>
auto without_gil(std::atomic<bool>& cancel, F&& f) -> std::invoke_result_t<F> {
  return without_gil(cancel, {}, std::forward<F>(f));
}
template <class F>
auto without_gil(Progress& progress, F&& f) -> std::invoke_result_t<F> {
  std::atomic<bool> cancel{false};
  return without_gil(cancel, progress.tick(), std::forward<F>(f));
}
template <class F>
auto without_gil(F&& f) -> std::invoke_result_t<F> {
  std::atomic<bool> cancel{false};
  return without_gil(cancel, {}, std::forward<F>(f));
}

// A text for Python; bytes that are no UTF-8 become U+FFFD.
nb::str text_of(std::string_view text);

}  // namespace rapt::python
