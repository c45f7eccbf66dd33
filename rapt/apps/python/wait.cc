// SPDX-License-Identifier: Apache-2.0
// Threads that compute for Python, which waits without its lock and looks at signals.
#include "rapt/apps/python/wait.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace rapt::python {
namespace {

// Threads that wait for something to do. None of this is ever destroyed: at the interpreter's exit threads
// may still hold on to it. A child of fork() has none of them, and begins anew.
struct Idle {
  std::mutex lock;
  std::condition_variable changed;
  std::vector<std::function<void()>> tasks;
  int idle = 0;
};
Idle* idle = new Idle;

[[noreturn]] void serve(Idle& mine) {
  std::unique_lock hold(mine.lock);
  while (true) {
    ++mine.idle;
    mine.changed.wait(hold, [&] { return !mine.tasks.empty(); });
    --mine.idle;
    {
      const std::function<void()> f = std::move(mine.tasks.back());
      mine.tasks.pop_back();
      hold.unlock();
      f();
    }
    hold.lock();
  }
}

std::atomic<bool> ends = false;
std::atomic<int> outside = 0, staying = 0;  // threads
thread_local int depth = 0;

[[noreturn]] void stay() {
  ++staying;
  while (true) pause();
}

}  // namespace

CallsPython::CallsPython(bool main) : counts_(!main && depth == 0) {
  if (counts_) ++depth, ++outside;
}
CallsPython::~CallsPython() {
  if (counts_) --depth, --outside;
}

OutOfPython::OutOfPython(bool main) : counts_(!main), state_(PyEval_SaveThread()) {
  if (!counts_) return;
  if (depth++ == 0) ++outside;
  if (ends) stay();
}
OutOfPython::~OutOfPython() {
  if (counts_ && ends) stay();
  try {
    PyEval_RestoreThread(state_);
  } catch (const abi::__forced_unwind&) {  // pthread_exit()
    stay();
  }
  if (counts_ && --depth == 0) --outside;
}

InPython::InPython() {
  try {
    state_ = PyGILState_Ensure();
  } catch (const abi::__forced_unwind&) {
    stay();
  }
}

nb::object call_python(nb::handle f, const nb::tuple& args) {
  PyObject* result = nullptr;
  try {
    result = PyObject_CallObject(f.ptr(), args.ptr());
  } catch (const abi::__forced_unwind&) {
    stay();
  }
  if (!result) throw nb::python_error();
  return nb::steal(result);
}

std::shared_ptr<nb::object> held(nb::object value) {
  return {new nb::object(std::move(value)), [](nb::object* p) {
            if (OutOfPython::ending()) return;  // the process ends
            const InPython in;
            delete p;
          }};
}

void begin_anew_in_children() {
  pthread_atfork(nullptr, nullptr, [] {
    idle = new Idle;
    outside = staying = 0;
  });
}

bool OutOfPython::ending() { return ends; }
void OutOfPython::stay_if_ending() {
  if (!ends || on_main_thread()) return;
  const OutOfPython out(false);
}
void OutOfPython::end() { ends = true; }
void OutOfPython::wait_for_all() {
  for (int i = 0; i < 200 && staying < outside; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void run_detached(std::function<void()> f) {
  Idle& mine = *idle;
  const std::lock_guard hold(mine.lock);
  mine.tasks.push_back(std::move(f));
  if (mine.idle < static_cast<int>(mine.tasks.size())) std::thread([&mine] { serve(mine); }).detach();
  mine.changed.notify_one();
}

bool on_main_thread() {
  static unsigned long main = 0;
  static pid_t process = 0;
  if (process != getpid()) {  // the thread that forked is the main one of the child
    main = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
    process = getpid();
  }
  return PyThread_get_thread_ident() == main;
}

void run_elsewhere(const std::function<void()>& f, std::atomic<bool>& cancel,
                   const std::function<void()>& tick) {
  struct Task {
    std::mutex lock;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
  };
  const auto task = std::make_shared<Task>();
  run_detached([task, &f] {
    std::exception_ptr error;
    try {
      f();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard hold(task->lock);
    task->error = std::move(error);
    task->done = true;
    task->changed.notify_all();
  });
  const bool main = on_main_thread();
  std::exception_ptr thrown;  // by Ctrl-C, or who listens
  const auto look = [&](bool ticks) {
    if (thrown) return;
    try {
      if (main && PyErr_CheckSignals() != 0) throw nb::python_error();
      if (ticks && tick) tick();
    } catch (...) {
      thrown = std::current_exception();
      cancel = true;
    }
  };
  for (int i = 1;; ++i) {
    bool done;
    {
      const OutOfPython out(main);
      std::unique_lock hold(task->lock);
      done = task->changed.wait_for(hold, std::chrono::milliseconds(20), [&] { return task->done; });
    }
    if (done) break;
    look(i % 5 == 0);
  }
  if (thrown) std::rethrow_exception(thrown);
  if (task->error) std::rethrow_exception(std::exchange(task->error, nullptr));
  if (tick) tick();
}

std::function<void()> Progress::tick() {
  if (!is_on()) return {};
  return [this] {
    const double done = done_.load(std::memory_order_relaxed), of = of_.load(std::memory_order_relaxed);
    if (done == told_ || of <= 0) return;
    told_ = done;
    call_python(listener_, nb::make_tuple(done, of));
  };
}

nb::str text_of(std::string_view text) {
  PyObject* s = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (!s) throw nb::python_error();
  return nb::steal<nb::str>(s);
}

}  // namespace rapt::python
