// SPDX-License-Identifier: Apache-2.0
// BatchNorm over tokens: one mean and variance per channel over all real tokens of the batch (padding does
// not count) while training, running statistics otherwise. In training a token's result depends on later
// tokens and on other sequences: causal models must allow that explicitly (`leaks_ok`).
#pragma once
#include <cstdint>
#include <span>

#include "rapt/run/run.h"

namespace rapt {

struct BatchNormSpec {
  // running = (1 - momentum) * running + momentum * batch (variance unbiased)
  double eps = 1e-5, momentum = 0.1;
  bool causal = false;                // the model is causal …
  bool leaks_ok = false;              // … and training it with batch statistics is meant
};

// x [T,C]; weight and bias [C] or absent; running [2,C]: mean, variance, updated in training. `valid`: 0
// marks a padded row, empty: none.
Tensor batch_norm(Run& run, const BatchNormSpec& spec, const Tensor& x, const Weight* weight,
                  const Weight* bias, const Weight& running, std::span<const std::uint8_t> valid = {});

struct BatchNormArgs {
  double eps, momentum;
  bool training;
  std::int64_t rows, cols;
  const std::uint8_t* valid;
  const void *x, *weight, *bias;
  void *running, *y, *stats;  // stats [2,C]: mean and 1/deviation used
};
struct BatchNormBackwardArgs {
  bool training;
  std::int64_t rows, cols;
  const std::uint8_t* valid;
  const void *x, *weight, *stats, *dy;
  void *dx, *dweight, *dbias;
};

}  // namespace rapt
