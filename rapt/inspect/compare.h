// SPDX-License-Identifier: Apache-2.0
// Two models on the same tokens: a file and its quantized form, two points of a training, gated and plain.
// Where the residual streams part, layer by layer, and what that does to the answers.
#pragma once
#include <vector>

#include "rapt/inspect/look.h"

namespace rapt {

struct ComparedLayer {
  Stack stack = Stack::decoder;
  int row = 0;                     // 0: the embedding, l + 1: after layer l
  double cosine = 0, worst = 0;    // of a's and b's vectors: mean over the tokens, and the smallest
  double error = 0;                // |a - b| / |a| over all tokens
};
struct ComparedHead {
  Stack stack = Stack::decoder;
  int layer = 0, number = 0, head = 0;  // number: of the attention in its layer (AttentionPlace)
  // Of a and b: mean weight on the first token over the rows that see it; nats.
  double first[2] = {}, entropy[2] = {};
};

struct Comparison {
  Dim tokens = 0;
  bool same_shape = false;       // depth and width agree; otherwise `layers` is empty
  std::vector<ComparedLayer> layers;
  bool same_heads = false;       // otherwise `heads` is empty
  std::vector<ComparedHead> heads;
  bool predicts = false;         // both have a vocabulary head of one size; otherwise the rest is empty
  std::vector<double> kl;        // KL(a || b) of each token's answer, nats
  double agree = 0;              // share of tokens with the same most probable answer
  double perplexity[2] = {};     // of the next token (an encoder: of the token itself); NaN: there is none
  double kl_at(double share) const;  // the value that `share` of the tokens do not exceed
};

// Each model on a device of its own or on the same one. The tokens mean the same to both: that is the
// caller's promise.
Comparison compare(Device& device_a, const Model& a, Device& device_b, const Model& b, Ids ids,
                   Ids source = {});

}  // namespace rapt
