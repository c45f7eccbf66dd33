// SPDX-License-Identifier: Apache-2.0
// What a resolved recipe amounts to: parameters and operations, counted from the weights that are built for
// it (without storage).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "rapt/recipe/recipe.h"

namespace rapt {

struct ParameterCount {
  // "embedding", "decoder attention", …; only those that are there
  std::vector<std::pair<std::string, Dim>> groups;
  Dim biases = 0;  // of these, what is added and not multiplied: biases of matrices and norms
  Dim active = 0;  // of these, what one token uses: fewer where it chooses experts
  Dim total = 0;  // a tied matrix counts once; running statistics of batch norm are no parameters
};
ParameterCount count_parameters(const Recipe& recipe);  // fails where there are more than a model can have

struct Cost {  // of one token
  struct Pass {
    double matrices = 0;   // floating-point operations in matrices: 2 per weight
    double attention = 0;  // … in scores and weighted sums, for a token that sees `context` tokens
  };
  Pass token;             // of the stack that gives the result, with the head
  // encoder-decoder: of a token the encoder reads, with the keys and values made of it
  Pass source;
  Dim kv_values = 0;      // keys and values the cache keeps for it, as numbers, in all layers
  Dim kv_forgotten = 0;   // … of which in layers that forget it sooner or later (window, chunk)
  Dim memory_values = 0;  // encoder-decoder: kept per source token
  Dim state_values = 0;   // kept per sequence, whatever its length: recurrent decoders, parts with a state
};
Cost count_cost(const Recipe& recipe, Dim context);

}  // namespace rapt
