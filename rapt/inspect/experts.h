// SPDX-License-Identifier: Apache-2.0
// Which experts each token of a text chose: numbers, and the document for people.
#pragma once
#include <cstdint>
#include <vector>

#include "rapt/inspect/expert_load.h"
#include "rapt/inspect/subject.h"
#include "rapt/report/document.h"

namespace rapt {

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
