// SPDX-License-Identifier: Apache-2.0
// The dictionary in the context (toy.h, lookup_task) from inside: what a question's heads look at, and what
// leaving a head out costs.
#pragma once
#include <vector>

#include "rapt/lab/toy.h"

namespace rapt {

// One or more layers with feed-forward parts and no positions: items are found by what they are.
Recipe lookup_recipe(Dim layers, Dim heads);

// What the heads of layer 0 do at questions, means over all of them.
struct LookupLook {
  struct Head {
    // Shares of its weight: on items of the first key asked for, of the second, and on all the rest.
    double first = 0, second = 0, rest = 0;
    double loss_without = 0;  // of the whole model, this head's part set to 0
  };
  std::vector<Head> heads;
  double loss = 0;
  // How differently two heads attend: half the sum of |a - b| over the keys, 0 where two rows are equal and 1
  // where they have no key in common; mean over the questions and all pairs.
  double apart = 0;
  double wrong = 0;  // share of questions whose largest output is not the answer
  // Of the questions that are answered wrong, means over them and the heads: weight on items of the keys
  // asked for, weight on questions (themselves among them), and how far the right item's logit lies below the
  // largest, in nats. All 0 where none is wrong.
  double wrong_on_item = 0, wrong_on_questions = 0, wrong_gap = 0;
};
LookupLook look_at_lookup(Device& device, const Model& model, const ToyTask& task, Dim sequences, Dim length);

}  // namespace rapt
