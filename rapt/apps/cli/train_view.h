// SPDX-License-Identifier: Apache-2.0
// What people see of a training run: a small panel that is redrawn on a terminal, plain lines elsewhere,
// metrics.jsonl for programs, curves at the end.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "rapt/report/picture.h"
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

// One JSON object per line. A run that goes on from step N drops what was written about later steps.
class MetricsFile {
 public:
  MetricsFile(std::string path, Dim resume_at);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  // What the run is: its plan (plan_json), the model's recipe, the data in words.
  void begin(Dim step, const Json& plan, const Recipe& recipe, const std::string& data);
  void step(const StepReport& report);
  void judged(Dim step, const Judgement& judgement);
  void event(Dim step, const std::string& what);
  void write_curves(const std::string& folder) const;  // loss.svg, attention.svg, from the whole file

 private:
  void line(const Json& json);
  std::string path_;
  int file_ = -1;
};

}  // namespace rapt::cli
