// SPDX-License-Identifier: Apache-2.0
// The forms of `rapt lab` that take options of their own; the experiments of the table are in lab.cc.
#pragma once
#include <string>
#include <vector>

#include "rapt/apps/cli/model_args.h"
#include "rapt/lab/streaming.h"

namespace rapt::cli {

struct SinkOptions {
  Dim steps = 1500, layers = 3;
  std::uint64_t seed = 0;
  bool gate = false;     // a sigmoid gate after the attention (G1)
  bool sigmoid = false;  // sigmoid attention instead of softmax
};
int lab_sink(const SinkOptions& options, const CommonArgs& common);
int lab_streaming(const StreamingOptions& options, const CommonArgs& common,
                  const std::vector<std::string>& words);

}  // namespace rapt::cli
