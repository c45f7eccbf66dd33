// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl, what a training tells programs (docs/training.md), and the curves made of it. How it is read
// again: run_log.h.
#pragma once
#include <span>
#include <string>

#include "rapt/use/train.h"

namespace rapt {

// An object for each layer; figures that it has not are left out, those that are not finite are null.
Json health_json(std::span<const LayerHealth> health);

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

}  // namespace rapt
