// SPDX-License-Identifier: Apache-2.0
// What shall happen later: functions ordered by their time. No thread and no clock of its own.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "rapt/base/clock.h"

namespace rapt::http {

class Timers {
 public:
  std::uint64_t set(Clock::time_point at, std::function<void()> f) {
    const std::uint64_t id = ++last_;
    const auto entry = queue_.emplace(std::pair(at, id), std::move(f)).first;
    try {
      at_.emplace(id, at);
    } catch (...) {
      queue_.erase(entry);
      throw;
    }
    return id;
  }
  void forget(std::uint64_t id) {
    const auto found = at_.find(id);
    if (found == at_.end()) return;
    queue_.erase({found->second, id});
    at_.erase(found);
  }
  std::optional<Clock::time_point> next() const {
    if (queue_.empty()) return {};
    return queue_.begin()->first.first;
  }
  // The first one whose time has come, taken out; an empty function where there is none.
  std::function<void()> due(Clock::time_point now) {
    if (queue_.empty() || queue_.begin()->first.first > now) return {};
    auto first = queue_.extract(queue_.begin());
    at_.erase(first.key().second);
    return std::move(first.mapped());
  }

 private:
  std::map<std::pair<Clock::time_point, std::uint64_t>, std::function<void()>> queue_;
  std::unordered_map<std::uint64_t, Clock::time_point> at_;
  std::uint64_t last_ = 0;
};

// So long, but never so long that a sum with the clock overflows.
inline Clock::duration seconds(double s) {
  const double bounded = s > 0 ? (s < 1e9 ? s : 1e9) : 0;  // no number: 0
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded));
}

}  // namespace rapt::http
