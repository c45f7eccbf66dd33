// SPDX-License-Identifier: Apache-2.0
// What the gates on attention do: how far they are open, head by head. A gate that multiplies and stays
// below 0.1 shuts its head out; such heads need no sink to park their weight on (Qiu et al. 2025: gate mean
// 0.116 and first-token weight 0.048 where the plain model has 0.467).
#pragma once
#include <array>
#include <vector>

#include "rapt/inspect/look.h"

namespace rapt {

struct GateStats {
  static constexpr std::size_t kBins = 10;
  Stack stack = Stack::decoder;
  int layer = 0, number = 0;  // number: of the attention in its layer (AttentionPlace)
  bool cross = false;
  GateRecipe::At at = GateRecipe::At::sdpa;
  int head = -1;  // -1: one gate for all heads, or on the whole width
  bool constant = false;  // a weight, the same for every token
  Dim values = 0;
  double mean = 0, closed = 0;  // closed: share below 0.1
  std::array<Dim, kBins> histogram{};  // tenths of 0 … 1; values outside are in the first and the last
};

const char* gate_name(GateRecipe::At at);  // "sdpa", "q", …

// Gates by stack, layer, place and head. Fails with the reason where the model has none.
// `edits`: of the same pass.
std::vector<GateStats> gates(Device& device, const Model& model, Ids ids, Ids source = {},
                             const Taps* edits = nullptr);

}  // namespace rapt
