// SPDX-License-Identifier: Apache-2.0
// What layers with a state (the gated delta rule) remember of a text: how long the state of each head is
// after every token, how much of it each token leaves, and how much it writes. Numbers, and the document for
// people.
#pragma once
#include <vector>

#include "rapt/inspect/subject.h"
#include "rapt/report/document.h"

namespace rapt {

// Of one delta part, [tokens, heads] each.
struct StateTrace {
  Stack stack = Stack::decoder;
  int layer = 0, number = 0;  // number: of the part in its layer (look.h)
  Dim heads = 0;
  std::vector<double> norm;  // of the state after the token (Frobenius)
  std::vector<double> stays;  // e^g: the share of the state that the token leaves
  std::vector<double> writes;  // beta
  double mean(const std::vector<double>& of, Dim head) const;
  // Tokens after which half of a head's state is forgotten, by the mean of g; infinite: nothing is forgotten.
  double half_life(Dim head) const;
};
// Fails with the reason where the model has no such layer.
std::vector<StateTrace> state_traces(Device& device, const Model& model, Ids ids, Ids source = {});

constexpr const char* kStatesSummary = "layers with a state: its length and its forgetting, head by token";
Document states_document(const Subject& subject);
bool has_states(const Model& model);

}  // namespace rapt
