// SPDX-License-Identifier: Apache-2.0
// One AdamW step of one weight, element by element, in the weight's own order: packing does not matter to it.
#pragma once
#include <cstdint>

#include "rapt/device/kernels.h"

namespace rapt {

struct AdamWArgs {
  std::int64_t elements;
  void* weight;             // real
  const void* gradient;
  void *mean, *variance;    // state
  double rate, beta1, beta2, eps, decay;
  double correction1, correction2;  // 1 - beta^step
  double gradient_scale;    // clipping or accumulation: the gradient is multiplied by it first
};
// m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w -= rate * (decay * w + (m / correction1) / (sqrt(v / correction2) + eps))

}  // namespace rapt
