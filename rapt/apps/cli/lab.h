// SPDX-License-Identifier: Apache-2.0
// The form of `rapt lab` that is no experiment of a table: one training to look at.
#pragma once
#include "rapt/apps/cli/model_args.h"

namespace rapt::cli {

struct SinkOptions {
  Dim steps = 1500, layers = 3;
  std::uint64_t seed = 0;
  bool gate = false;     // a sigmoid gate after the attention (G1)
  bool sigmoid = false;  // sigmoid attention instead of softmax
};
int lab_sink(const SinkOptions& options, const CommonArgs& common, Language language);

}  // namespace rapt::cli
