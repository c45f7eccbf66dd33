// SPDX-License-Identifier: Apache-2.0
// Norms over the last axis, row by row: layer, RMS and L2. Batch statistics: batch_norm.h.
#pragma once
#include "rapt/run/run.h"

namespace rapt {

enum class NormKind : int { layer, rms, l2 };

struct NormSpec {
  NormKind kind = NormKind::rms;
  double eps = 1e-6;
  bool plus_one = false;  // Gemma, Qwen3-Next: the weight is stored as w - 1
};

// layer: (x - mean) / sqrt(var + eps) * w + b;  rms: x / sqrt(mean(x^2) + eps) * w + b;
// l2: x / sqrt(sum(x^2) + eps) * w. x [.., C]. weight absent, [C] (every row the same) or [G*C]: row r takes
// part r % G (per-head weights). bias likewise.
Tensor norm(Run& run, const NormSpec& spec, const Tensor& x, const Weight* weight,
            const Weight* bias = nullptr);

struct NormArgs {
  NormKind kind;
  double eps, offset;  // offset 1 where the weight is stored as w - 1
  std::int64_t rows, cols, groups;
  const void *x, *weight, *bias;
  void *y, *stats;  // stats [rows][2]: mean and 1/deviation, for backward
};
struct NormBackwardArgs {
  NormKind kind;
  double offset;
  std::int64_t rows, cols, groups;
  const void *x, *weight, *stats, *dy;
  void *dx, *dweight, *dbias;
};

}  // namespace rapt
