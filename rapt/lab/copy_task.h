// SPDX-License-Identifier: Apache-2.0
// The Bigram-Backcopy task (Guo et al. 2024): a Markov chain over a few tokens in which three trigger tokens
// are followed by a copy of the token before them. Everything but the copy can be predicted from the last
// token alone, so most queries have nothing to look for, and a trained softmax attention parks their weight
// on the first token: an attention sink.
#pragma once
#include <cstdint>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

class CopyTask {
 public:
  static constexpr int kTokens = 24, kTriggers = 3, kBegin = kTokens, kVocab = kTokens + 1;

  explicit CopyTask(std::uint64_t seed);

  struct Batch {
    // [count * length]; the first token of each is kBegin, targets are the next tokens
    std::vector<std::int32_t> tokens, targets;
    // Per row: the surprise of its target under the chain itself, which nobody beats on average.
    std::vector<double> floor;
    // Per row: 0 idle, 1 trigger (its answer is the token before it), -1 the first token.
    std::vector<int> kind;
  };
  Batch sample(std::uint64_t step, Dim count, Dim length) const;

 private:
  std::uint64_t seed_;
  std::vector<double> chain_;  // [kTokens][kTokens], rows sum to 1
};

}  // namespace rapt
