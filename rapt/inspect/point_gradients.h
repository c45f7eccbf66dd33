// SPDX-License-Identifier: Apache-2.0
// d metric / d activation at points of a pass, by the tape that training uses: what a small change there
// would do to the metric, element by element.
#pragma once
#include "rapt/inspect/capture.h"
#include "rapt/inspect/metric.h"

namespace rapt {

struct PointGradients {
  Metric metric;  // with its token and its position from the front
  double value = 0;
  Capture tensors;  // the gradients, each in its point's shape
};

// Fails where matrices are stored in blocks (nothing is differentiated through them), and at points that are
// computed beside the pass or never held, such as attention weights.
PointGradients point_gradients(Device& device, const Model& model, std::span<const Asked> asked,
                               const Metric& metric, Ids ids, Ids source = {},
                               double most_bytes = 1024.0 * 1024 * 1024);

}  // namespace rapt
