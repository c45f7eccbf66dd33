// SPDX-License-Identifier: Apache-2.0
// One step of Muon (Jordan 2024) for one matrix: the momentum, made nearly orthogonal by five steps of a
// Newton-Schulz iteration, is what the weight moves by. With g the gradient [rows, cols]:
//   b = f b + (1 - f) g;  u = f b + (1 - f) g                        (Nesterov)
//   X = u / max(|u|, 1e-7), turned so that it has no more rows than columns
//   five times:  A = X X^T;  X = (3.4445 - 4.7750 A + 2.0315 A^2) X  (singular values end near 1, between
//                                                                    0.7 and 1.2)
//   w = w (1 - rate * decay) - rate * sqrt(max(1, rows / cols)) X
// The last factor gives tall matrices the step that keeps the size of their outputs' change. Products are
// those of `linear`, so bits do not depend on threads.
#pragma once
#include <cstdint>

#include "rapt/ops/linear.h"  // the kernels it calls
#include "rapt/ops/optimize.h"

namespace rapt {

struct MuonArgs {
  std::int64_t rows, cols;
  void* weight;  // all three in panels (tensor/weight.h)
  const void* gradient;
  void* momentum;
  double rate, factor, decay, gradient_scale;
  void* work;  // muon_work() elements of the device's real type
};
// X, its panels, those of its transpose, A with its panels, A^2, and partial sums as doubles.
constexpr std::int64_t muon_work(std::int64_t rows, std::int64_t cols) {
  const std::int64_t m = rows < cols ? rows : cols, n = rows < cols ? cols : rows, m32 = (m + 31) / 32 * 32,
                     n32 = (n + 31) / 32 * 32;
  return m32 * n32 * 3 + m32 * m32 * 3 + 2 * (m32 * n32 / 4096 + 2);
}

}  // namespace rapt
