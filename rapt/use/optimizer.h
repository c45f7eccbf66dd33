// SPDX-License-Identifier: Apache-2.0
// AdamW over a model's weights. Weights change only here; state lies in the order of the weight, whatever its packing.
#pragma once
#include <vector>

#include "rapt/nn/model.h"
#include "rapt/run/tape.h"

namespace rapt {

struct AdamWOptions {
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double decay = 0.1;  // on matrices and tables; norms, biases and other vectors do not decay
  double clip = 1;     // largest norm of all gradients together; 0: no limit
};

class Optimizer {
 public:
  Optimizer(Model& model, const AdamWOptions& options) : model_(model), options_(options), state_(model.weights.size()) {}

  // One step with `rate_factor` times the base rate; returns the norm of the gradients before clipping. Where that is not finite
  // nothing changes, and the caller is told by the return value.
  double step(Device& device, const Gradients& gradients, double rate_factor = 1);
  std::int64_t steps() const { return steps_; }

 private:
  struct State {
    Weight mean, variance;
  };
  Model& model_;
  AdamWOptions options_;
  std::vector<State> state_;
  std::int64_t steps_ = 0;
};

// Share of the base rate at a step: linear warm-up, then half a cosine down to `floor`.
double cosine_rate(std::int64_t step, std::int64_t warmup, std::int64_t total, double floor = 0.1);

}  // namespace rapt
