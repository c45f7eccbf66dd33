// SPDX-License-Identifier: Apache-2.0
// How large the numbers of a checkpoint are, weight by weight, read from its files a few rows at a time: the
// model is not loaded, and what the files store in blocks is looked at as the numbers it stands for.
#pragma once
#include <string>
#include <vector>

#include "rapt/device/device.h"
#include "rapt/tensor/dtype.h"

namespace rapt {

struct WeightSize {
  std::string name;  // "decoder.3.self.k.bias"
  Dim rows = 1, cols = 0;
  bool vector = false;
  DType stored = DType::f32;  // in the file
  // Gains of norms as they multiply: Gemma's files hold them minus one.
  double squares = 0, largest = 0;  // sum of squares; largest magnitude
};

struct CheckpointSizes {
  std::string path, family;
  std::vector<WeightSize> weights;  // in the model's order, without buffers that nothing learns
};
// Fails as open_checkpoint() does: a tensor that is missing, misshapen or read by nobody.
CheckpointSizes checkpoint_sizes(const std::string& path, Device& device);

}  // namespace rapt
