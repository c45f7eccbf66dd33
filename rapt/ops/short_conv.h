// SPDX-License-Identifier: Apache-2.0
// A short convolution along the rows of each sequence, every channel by itself, looking back only
// (Qwen3-Next, LFM2):
//
//   y[t, d] = bias[d] + sum over j < K of w[d, j] x[t - K + 1 + j, d]
//
// with zeros before a sequence's first row. One chain of fused multiply-adds from the oldest row on: a row's
// bits do not depend on how many rows come with it.
#pragma once
#include <span>

#include "rapt/run/batch.h"
#include "rapt/run/run.h"

namespace rapt {

constexpr std::int64_t kMostConvKernel = 64;  // a row looks back into one page of a cache at most

// x [T,D], w [D,K], bias [D] or absent. `before` [sequences, K-1, D]: the rows before each sequence's first
// one here, the nearest last, as many as Sequence::past says (they get no gradient); absent: the sequences
// begin here.
Tensor short_conv(Run& run, const Tensor& x, const Weight& w, const Weight* bias,
                  std::span<const Sequence> sequences, const Tensor& before = {});

struct ShortConvPart {
  std::int64_t first, count;  // rows of one sequence
  std::int64_t past;  // rows of `before` that there are, at most K - 1
};
struct ShortConvArgs {
  std::int64_t channels, kernel, part_count;
  const ShortConvPart* parts;
  const void *x, *w, *bias, *before;
  void* y;
};
struct ShortConvBackwardArgs {
  std::int64_t channels, kernel, part_count;
  const ShortConvPart* parts;
  const void *x, *w, *dy;
  void *dx, *dw, *dbias;  // all are added to; nullptr where nobody wants them
};

}  // namespace rapt
