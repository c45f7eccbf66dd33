// SPDX-License-Identifier: Apache-2.0
// How well a model says what comes: losses and right answers over the targets that count. One way of
// counting for `rapt eval`, for the held-out part of a training, and for whoever else asks.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "rapt/nn/model.h"
#include "rapt/ops/loss.h"
#include "rapt/use/data.h"

namespace rapt {

// The most probable class of a row of logits [rows, classes]; of equal ones the first.
std::int32_t best_class(const Tensor& logits, Dim row);

struct Evaluation {
  double loss = 0;  // sums over the targets that count
  Dim right = 0, counted = 0;
  // Targets below 0 do not count. `losses`: one for each row, as cross_entropy gives them.
  void add(const Tensor& logits, const Tensor& losses, std::span<const std::int32_t> targets);
  // Fails where a loss was no number.
  void need_finite() const;
  double mean() const { return loss / static_cast<double>(counted); }
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(counted); }
};

struct DataEvaluation : Evaluation {
  double commonest = 0;  // accuracy of always saying the commonest target; 0 where none counts
};
// The model on `count` batches: batch(i) makes number i. `done` hears of each. Fails where a loss is
// no number.
DataEvaluation evaluate(Device& device, const Model& model, Dim count,
                        const std::function<TrainBatch(Dim i)>& batch,
                        const std::function<void(Dim done, const Evaluation& sofar)>& done = {},
                        const std::vector<AdapterUse>& adapters = {});

}  // namespace rapt
