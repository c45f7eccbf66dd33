// SPDX-License-Identifier: Apache-2.0
// What an optimizer does to the numbers of all weights, element by element, in one region: a weight is a
// list of numbers here, in its own order, and its packing does not matter. (Muon, which looks at whole
// matrices: muon.h.) Formulas and their order as torch.optim has them.
#pragma once
#include <cstdint>

#include "rapt/device/kernels.h"

namespace rapt {

constexpr std::int64_t kOptimizePiece = 16384;  // elements of one task, and of one partial sum

struct OptimizePart {     // one weight
  std::int64_t elements;
  std::int64_t tasks;     // kOptimizePiece elements each, of the parts before this one
  void* weight;           // real
  const void* gradient;
  void *first, *second;   // state, see below
  double decay;
};
struct OptimizeParts {
  const OptimizePart* parts;
  std::int64_t count, tasks;  // tasks of all parts
};

// g = gradient_scale * gradient, + decay * w where `l2` (Adam)
// m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w = w (1 - rate * decay) - rate * (m / correction1) /
// (sqrt(v / correction2) + eps) without the factor on w where `l2`. first: m, second: v.
struct AdamWArgs {
  OptimizeParts all;
  double rate, beta1, beta2, eps;
  double correction1, correction2;  // 1 - beta^step
  double gradient_scale;
  bool l2;
};

// g = gradient_scale * gradient + decay * w;  b = momentum * b + g;
// w -= rate * (nesterov ? g + momentum * b : b) first: b, nullptr where there is no momentum (then w -=
// rate * g).
struct SgdArgs {
  OptimizeParts all;
  double rate, momentum, gradient_scale;
  bool nesterov;
};

// a += (1 - factor) * (w - a). first: a.
struct EmaArgs {
  OptimizeParts all;
  double factor;
};

// sums[task] = sum of the squares of its gradients, in double: element i of a piece goes to lane i % 32,
// lanes are added by halves. Squares of f32 are exact in double and cannot overflow, so the sum is finite
// where every element is, and the same on every instruction set.
struct SumSquaresArgs {
  OptimizeParts all;
  double* sums;
};

}  // namespace rapt
