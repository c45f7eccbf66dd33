// SPDX-License-Identifier: Apache-2.0
// How a model tells places apart, ready to draw: sinusoids, learned vectors, RoPE's angles with their
// scaling, ALiBi's slopes, T5's buckets. Most of it follows from the recipe alone; learned tables need
// the model.
#pragma once
#include <string>
#include <vector>

#include "rapt/inspect/look.h"

namespace rapt {

struct PositionOptions {
  Dim positions = 64;  // rows of sinusoids and of the similarity of learned vectors
  Dim length = 0;  // of the text, where a RoPE scaling depends on it; 0: the model's context
};

struct RopePairs {  // of layers that turn alike
  Stack stack = Stack::decoder;
  std::vector<int> layers;
  RopeSpec spec;
  Dim head_dim = 0, length = 0;
  double magnitude = 1;  // on cos and sin
  std::vector<double> radians;  // per position, one per turned pair
  std::vector<double> unscaled;  // without the scaling
};
struct AlibiSlopes {
  Stack stack = Stack::decoder;
  std::vector<int> layers;
  std::vector<double> slopes;  // by head
};
struct BucketTable {
  Stack stack = Stack::decoder;
  std::vector<int> layers;
  Dim count = 0, max = 0, heads = 0;
  bool both_ways = false;
  std::vector<Dim> distances;  // key - query, ascending: the nearest place of every bucket
  std::vector<std::int32_t> bucket;  // of each
  std::vector<double> bias;  // [distances][heads]; empty without weights
};

// DeBERTa's vectors of distances, one table for a stack.
struct RelativeVectors {
  Stack stack;
  std::vector<int> layers;
  RelativeRecipe recipe;
};

// Transformer-XL's sinusoids of distances: layers that read them.
struct DistanceSinusoids {
  Stack stack;
  std::vector<int> layers;
};

struct Positions {
  bool sinusoid = false, learned = false;
  Dim shown = 0, width = 0;
  std::vector<double> table;  // [shown][width]: sinusoid, or the learned vectors
  std::vector<double> similarity;  // [shown][shown]: cosine of positions i and j
  std::vector<double> norms;  // learned: of every position there is
  std::vector<RopePairs> rope;
  std::vector<AlibiSlopes> alibi;
  std::vector<BucketTable> buckets;
  std::vector<RelativeVectors> relative;
  std::vector<DistanceSinusoids> xl;
  std::vector<std::string> none;  // layers without any sign of place inside attention: "decoder 3"
};

// Of a pair that turns by so much at every place; infinite where it does not turn.
double places_per_turn(double radians);

// `model` may be absent: then tables of weights are left empty.
Positions positions(Device& device, const Recipe& recipe, const Model* model,
                    const PositionOptions& options = {});

}  // namespace rapt
