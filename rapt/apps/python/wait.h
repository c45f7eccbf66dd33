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
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "rapt/apps/python/binding.h"
#include "rapt/run/cancel.h"

namespace rapt::python {

// Whether this is Python's main thread. With the GIL.
bool on_main_thread();

// Computes f() on a thread of the module, kept for the next call; waits without the GIL, and looks at signals.
void run_elsewhere(const std::function<void()>& f, std::atomic<bool>& cancel);

// f() without the GIL. f may take it for callbacks (nb::gil_scoped_acquire). Passes inside end before their
// next layer once `cancel` is set; Ctrl-C sets it, and then KeyboardInterrupt is what is thrown.
template <class F>
auto without_gil(std::atomic<bool>& cancel, F&& f) -> std::invoke_result_t<F> {
  using Result = std::invoke_result_t<F>;
  const auto computed = [&]() -> Result {
    const CancelScope scope(cancel);
    return f();
  };
  if (!on_main_thread()) {
    const nb::gil_scoped_release released;
    return computed();
  }
  if constexpr (std::is_void_v<Result>) {
    run_elsewhere([&] { computed(); }, cancel);
  } else {
    std::optional<Result> out;
    run_elsewhere([&] { out.emplace(computed()); }, cancel);
    return std::move(*out);
  }
}
template <class F>
auto without_gil(F&& f) -> std::invoke_result_t<F> {
  std::atomic<bool> cancel{false};
  return without_gil(cancel, std::forward<F>(f));
}

}  // namespace rapt::python
