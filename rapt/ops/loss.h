// SPDX-License-Identifier: Apache-2.0
// Softmax cross-entropy with label smoothing.
#pragma once
#include <cstdint>
#include <span>

#include "rapt/run/run.h"

namespace rapt {

struct Loss {
  Tensor mean;  // [1]: over the rows that count
  Tensor rows;  // [T], constant: each row's own loss, 0 where ignored
};

// -log softmax(logits)[target], smoothed: (1 - s) * that + s * mean over all classes. Target -1: the row
// does not count.
Loss cross_entropy(Run& run, const Tensor& logits, std::span<const std::int32_t> targets,
                   double smoothing = 0);

struct CrossEntropyArgs {
  std::int64_t rows, classes;
  double smoothing;
  const std::int32_t* targets;
  const void* logits;
  void *row_loss, *stats, *mean;  // [T]; [T][2]: largest logit, 1 / sum of exp(logit - largest); [1]
};
struct CrossEntropyBackwardArgs {
  std::int64_t rows, classes;
  double smoothing;
  const std::int32_t* targets;
  const void *logits, *stats, *dmean;  // dmean [1]
  void* dlogits;
  bool write_dlogits;  // nothing is there yet: write, do not add
};

}  // namespace rapt
