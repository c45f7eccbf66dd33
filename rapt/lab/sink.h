// SPDX-License-Identifier: Apache-2.0
// The experiment behind `rapt lab sink`: train a three-layer model on the copy task and watch the attention sink emerge.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rapt/device/device.h"
#include "rapt/nn/recipe.h"

namespace rapt {

struct SinkOptions {
  int steps = 1500, layers = 3, batch = 64, length = 32;
  std::uint64_t seed = 0;
  double rate = 3e-3;
  bool gate = false;     // a sigmoid gate after the attention (G1)
  bool sigmoid = false;  // sigmoid attention instead of softmax
};

struct SinkSnapshot {
  int step = 0;
  double loss = 0, excess = 0;                                  // over fresh data; excess: above what nobody can go below
  std::vector<double> idle, trigger, value_ratio, largest;      // per layer
};

struct SinkReport {
  Dim parameters = 0;
  std::vector<SinkSnapshot> snapshots;                          // the last one is the result
  std::vector<std::int32_t> tokens;                             // of the sequence shown
  std::vector<std::vector<double>> maps;                        // per layer [length][length], head 0
  double seconds = 0;
};

Recipe sink_recipe(const SinkOptions& options);
// `progress` is called after every step: (step, loss of its batch).
SinkReport run_sink(Device& device, const SinkOptions& options, const std::function<void(int step, double loss)>& progress,
                    const std::function<void(const SinkSnapshot&)>& on_snapshot = {});
// Attention maps side by side, dark = much weight; trigger rows are marked.
std::string draw_maps(const SinkReport& report);

}  // namespace rapt
