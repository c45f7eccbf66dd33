// SPDX-License-Identifier: Apache-2.0
// How a model's attention feels while it trains: from the statistics that the fused kernel hands out and
// from values that pass by. Nothing of size T x T is made, and the model does not know it is watched.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "rapt/inspect/expert_load.h"
#include "rapt/run/batch.h"
#include "rapt/run/taps.h"

namespace rapt {

// Of the self-attention of one layer; weights as they are before dropout, those of sigmoid attention divided
// by their sum.
struct LayerHealth {
  Stack stack = Stack::decoder;
  int layer = 0;
  bool attends = true;  // has self-attention, or the next three say nothing
  // Share of heads whose mean weight on the first key is above 0.3 (per sequence, then averaged); a row
  // whose window does not reach it gives it 0.
  double sink = 0;
  double entropy = 0;  // nats, mean over heads and rows
  double max_logit = 0;  // largest scaled score before the softmax
  // Largest |activation| of the residual stream after the layer over the median of them all (of some 4,096
  // spread evenly where there are more); of several passes the largest.
  double massive = 0;
  // Share of gate values below 0.1 (sigmoid-like gates), all gates of the layer that read its input;
  // -1: no gate.
  double gate = -1;
  double gate_mean = -1;
  // Of a mixture of experts (expert_load.h; of several in a layer the last); -1: it has none.
  double load_largest = -1, load_entropy = -1, balance = -1;
  // Of a delta rule: the share of its states that a token leaves, mean over heads and rows; -1: it has none.
  double state_stays = -1;
};

class HealthMeter {
 public:
  // Watches every self-attention and delta rule of the passes that `taps` serves from now on. Call start()
  // before each pass, with the sequences that forward() gets; passes between finish() and the next start()
  // are not looked at. Works with recompute: nothing is seen twice.
  HealthMeter(Taps& taps, double sink_threshold = 0.3);
  void start(std::span<const Sequence> sequences, std::span<const Sequence> source = {});
  // Of all passes since the last finish: encoder first, layers in order.
  std::vector<LayerHealth> finish();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace rapt
