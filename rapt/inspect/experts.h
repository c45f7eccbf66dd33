// SPDX-License-Identifier: Apache-2.0
// Which experts the rows of a text chose, and how evenly: the load of a mixture of experts, from the router's
// logits and choices that pass by.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "rapt/inspect/subject.h"
#include "rapt/report/document.h"

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

// What each token of a text chose.
struct ExpertChoice {
  ExpertLoad load;
  int number = 0;  // of the part in its layer (look.h)
  std::vector<std::int32_t> experts;  // [tokens, used], the heaviest first
  std::vector<double> weights;  // [tokens, used]
};
// Fails with the reason where the model has no experts.
std::vector<ExpertChoice> expert_choices(Device& device, const Model& model, Ids ids, Ids source = {});

constexpr const char* kExpertsSummary = "which experts each token chose, and the load of each layer";
Document experts_document(const Subject& subject);
bool has_experts(const Model& model);

}  // namespace rapt
