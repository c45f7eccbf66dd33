// SPDX-License-Identifier: Apache-2.0
// How long something took, by the clock that never goes back.
#pragma once
#include <chrono>

namespace rapt {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace rapt
