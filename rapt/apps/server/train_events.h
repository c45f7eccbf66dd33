// SPDX-License-Identifier: Apache-2.0
// What a training says to a page that watches it (workshop.h), whoever runs it: `rapt serve --lab` or
// `rapt train --watch`. Values are those of `rapt train` and `rapt inspect heads`, from the same functions.
//
//   {"kind":"begin","name","steps","parameters","recipe","plan","data","layers","heads",
//    "rows":[{"stack","layer","cross"}],"metrics":[{"key","share"}],"text":{"tokens","ids"},"side"}
//   {"kind":"steps","step":[…],"loss":[…],"norm":[…],"rate":[…],"tokens_per_second"}  ten times a second
//   {"kind":"health","step","layers":[{"stack","layer","sink","entropy","max_logit","massive",…}]}
//   {"kind":"judge","step","loss","accuracy","targets"}       the part that is held out
//   {"kind":"sample","step","text"}                           what the model writes now
//   {"kind":"heads","step","values":{metric: [row][head]},"labels":[row][head],"maps"}
//   {"kind":"note","step","text"}                             what was decided: steps skipped, going back
//
// A step that comes again (the run went back to a saved state) takes the place of what was told of it and of
// all behind it. `maps`: base64 of u8 [rows][heads][side][side], 255 times the weight of the text's first
// tokens on each other; absent where there are too many heads.
#pragma once
#include <string>
#include <vector>

#include "rapt/apps/server/workshop.h"
#include "rapt/inspect/attention_map.h"
#include "rapt/inspect/heads.h"
#include "rapt/use/training.h"

namespace rapt::server {

class TrainTeller {
 public:
  struct Options {
    std::string name, prompt = "\n";
    Dim steps = 1;
    double share = 0.25;  // of the time, that looks at heads and samples may take
  };
  // What it is given stays as long as it.
  TrainTeller(Workshop::Bench& bench, Device& device, const TrainingRun& run, Options options);
  void begin(const Json& plan);
  void earlier(const std::string& metrics_file);  // of a run that goes on: what its log says
  void step(const StepReport& report);
  void judged(Dim step, const Judgement& judgement);
  void say(Dim step, const std::string& text);
  void sample(Dim step, const std::string& text);
  // Heads at the weights as they are, and with `writes` a sample; left out where that would take more than
  // its share of the time, unless it is `due`.
  void look(Dim step, bool writes, bool due = false);
  void flush();  // what was not told yet

 private:
  void heads(Dim step);
  std::vector<HeadMetric> figures() const;
  Workshop::Bench& bench_;
  Device& device_;
  const TrainingRun& run_;
  const Options options_;
  Dim every_ = 1;  // steps; of very long runs not each one is told
  std::vector<std::int32_t> ids_, source_;  // of the text whose heads are looked at
  std::vector<AttentionPlace> rows_;
  Dim heads_ = 0, side_ = 0, looked_ = -1, healthy_ = -1;
  bool gated_ = false;
  Json::Array step_, loss_, norm_, rate_;
  double tokens_ = 0, seconds_ = 0, spent_ = 0;
  Clock::time_point told_{}, began_ = Clock::now();
};

}  // namespace rapt::server
