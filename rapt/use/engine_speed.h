// SPDX-License-Identifier: Apache-2.0
// How fast an engine is on this machine, measured before anybody asks it something.
#pragma once
#include <array>

#include "rapt/use/engine.h"

namespace rapt {

struct EngineSpeed {
  static constexpr std::array<Dim, 6> kRows = {1, 2, 4, 8, 16, 32};
  std::array<double, 6> decode_seconds = {};  // of a pass that writes so many answers; 0: not measured
  double row_seconds = 0;                     // of a prompt row, in a piece of `chunk` of them
  Dim chunk = 0;
  // Answers side by side after which reading the weights once for all no longer pays: what a pass with one
  // row takes, in prompt rows.
  Dim useful_rows = 1;
  Dim running() const;  // answers that a server writes side by side: more only add latency
};

// Requests of its own, which leave nothing behind but what the engine learned from them. The engine must be
// idle. Stops where `seconds` have passed, with one row and a short piece at least.
EngineSpeed measure_speed(Engine& engine, double seconds = 0.8);

}  // namespace rapt
