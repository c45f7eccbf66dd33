// SPDX-License-Identifier: Apache-2.0
// What people see of a training run on a terminal: a small panel that is redrawn, plain lines elsewhere. What
// programs see: use/metrics_file.h.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "rapt/use/train.h"

namespace rapt::cli {

class TrainView {
 public:
  TrainView(Dim steps, bool quiet);
  ~TrainView() { clear(); }
  void step(const StepReport& report);
  void judged(Dim step, const Judgement& judgement);
  void sample(const std::string& text);  // shown under the numbers
  void say(const std::string& text);  // a line that stays
  void clear();  // takes the panel away

 private:
  void draw();
  // seen: steps of this process, skipped and repeated ones too
  Dim steps_, seen_ = 0, skipped_ = 0, printed_ = 0;
  bool quiet_, panel_;
  std::vector<Dim> widths_;  // of the panel's lines as they stand
  StepReport last_;
  std::vector<LayerHealth> health_;
  double smooth_ = 0, rate_ = 0;  // loss, tokens per second: moving averages
  std::vector<double> curve_;  // smoothed losses for the little curve
  std::string judged_, sample_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now(), drawn_{};
};

}  // namespace rapt::cli
