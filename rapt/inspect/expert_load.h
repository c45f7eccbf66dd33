// SPDX-License-Identifier: Apache-2.0
// How evenly the experts of a mixture are used, from the router's logits and choices that pass by.
#pragma once
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "rapt/run/taps.h"

namespace rapt {

// Of one mixture of experts, over the rows that were seen.
struct ExpertLoad {
  Stack stack = Stack::decoder;
  int layer = 0, part = 0;
  Dim experts = 0, used = 0, rows = 0;
  std::vector<double> chosen;  // by expert: rows that chose it
  std::vector<double> probability;  // by expert: sum over rows of softmax(logits)
  // E * sum of f P: what the auxiliary loss multiplies (recipe/parts/moe.h); `used` where all is even.
  double balance() const;
  double largest() const;  // the busiest expert's load over the mean: 1 where all is even, E / used at most
  double entropy() const;  // of the load, over its largest value ln E: 1 where all is even
  Dim idle() const;  // experts that nobody chose
};

// Adds up what the passes of `taps` show until finish().
class ExpertMeter {
 public:
  explicit ExpertMeter(Taps& taps);
  void start() { state_->watching = true; }
  std::vector<ExpertLoad> finish();  // encoder first, layers in order

 private:
  struct State {
    bool watching = false;
    std::map<std::tuple<Stack, int, int>, ExpertLoad> loads;
    ExpertLoad& at(const Tapped& t);
  };
  std::shared_ptr<State> state_;
};
// For whoever counts for itself: logits [T,E] first, then choices [T,k] of the same rows.
void add_logits(ExpertLoad& load, const Tensor& logits);
void add_choices(ExpertLoad& load, const Tensor& chosen);

}  // namespace rapt
