// SPDX-License-Identifier: Apache-2.0
// Ends passes from outside: while a scope lives, every pass that its thread computes looks at its flag before
// each layer (Run::check_cancelled). For borders that call functions which make runs of their own and must be
// able to stop them: Python's Ctrl-C. Scopes nest; the innermost holds.
#pragma once
#include <atomic>

namespace rapt {

class CancelScope {
 public:
  explicit CancelScope(const std::atomic<bool>& flag) : before_(now_) { now_ = &flag; }
  ~CancelScope() { now_ = before_; }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  static const std::atomic<bool>* now() { return now_; }  // nullptr: nobody's

 private:
  static inline thread_local const std::atomic<bool>* now_ = nullptr;
  const std::atomic<bool>* before_;
};

}  // namespace rapt
