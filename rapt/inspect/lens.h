// SPDX-License-Identifier: Apache-2.0
// The logit lens: final norm and head applied to the residual stream after every layer, as if it were the
// last. The last row is the model's own answer. Whatever the head has comes along: BERT's transform, scales,
// biases, Gemma 2's cap; a post-norm model has no final norm, so none is applied.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "rapt/inspect/look.h"

namespace rapt {

struct LensOptions {
  int top = 1;  // most probable tokens kept of each cell
  Dim first = 0, count = -1;  // which tokens of the text; -1: all from `first` on
  const Taps* taps = nullptr;  // edits of the same pass
};

struct Lens {
  Stack stack = Stack::decoder;
  Dim first = 0, tokens = 0;  // tokens of the text looked at
  int rows = 0, top = 0;  // layers + 1
  bool own = false;  // an encoder: the truth is the token itself, not the next one
  std::vector<std::int32_t> ids;  // [rows][tokens][top], most probable first
  std::vector<float> probabilities;  // the same
  std::vector<float> entropy;  // [rows][tokens], nats
  std::vector<float> kl;  // [rows][tokens]: KL(last row || this row), nats
  // [rows][tokens]: of the true token, 1 is the most probable; 0: the text ends here
  std::vector<std::int32_t> rank;
  std::vector<float> truth;  // [rows][tokens]: its probability

  std::size_t cell(int row, Dim token) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(tokens) + static_cast<std::size_t>(token);
  }
};

// What a row of logits says of the next token.
struct NextToken {
  float logprob = 0, entropy = 0;  // of `truth`; nats
  std::int32_t rank = 0;           // of `truth`, 1: the most probable; 0: there is none
  std::vector<std::pair<std::int32_t, float>> top = {};  // ids and log-probabilities, most probable first
};
NextToken next_token(std::span<const float> logits, std::int32_t truth, int top);  // truth -1: none

// The lens over rows of the residual stream that somebody kept: [n,C] of each row, embedding first; truth:
// of each token, -1 for none.
Lens lens_of(Device& device, const Model& model, std::span<const Tensor> rows,
             std::span<const std::int32_t> truth, const LensOptions& options);

// Memory: the residual stream [rows, tokens, C] and a few rows of logits. Fails where the model has no
// vocabulary head.
Lens lens(Device& device, const Model& model, Ids ids, Ids source = {}, const LensOptions& options = {});

}  // namespace rapt
