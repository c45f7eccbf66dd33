// SPDX-License-Identifier: Apache-2.0
// A model computed the plain way, in double, one number at a time: no tiles, no fusion, no cache, a full
// matrix of weights per head. It shares the recipe, the names of weights and the RoPE frequencies with the
// engine, and nothing else.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rapt/nn/model.h"

namespace rapt::test {

struct NaiveSequence {
  std::vector<std::int32_t> tokens, types, source;  // source: encoder-decoder
  Dim prefix = 0;
};

// Attention weights [heads][rows][keys] by the name of their part ("decoder.0.self"); learned slots are
// left out.
using NaiveWeights = std::map<std::string, std::vector<double>>;

// Logits (or hidden states) of every token of one sequence, row after row. No dropout, running statistics
// for batch norm.
std::vector<double> naive_forward(const Model& model, const NaiveSequence& sequence,
                                  NaiveWeights* weights = nullptr);

}  // namespace rapt::test
