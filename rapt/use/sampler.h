// SPDX-License-Identifier: Apache-2.0
// From logits to a token. The order is fixed and stated: bias, penalties, temperature last before the draw; the cuts in between in the
// order of the fields below. Randomness is keyed by (seed, sequence, position): the same draw whatever the batch.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

struct SamplerOptions {
  std::vector<std::pair<std::int32_t, float>> bias;   // added to logits; -inf forbids
  double repeat_penalty = 1;                          // > 1: logits of seen tokens divided (positive) or multiplied (negative)
  double frequency_penalty = 0, presence_penalty = 0;
  Dim penalty_last = 64;                              // tokens looked back at; -1: all
  Dim top_k = 40;                                     // 0: off
  double typical_p = 1;                               // 1: off
  double top_p = 0.95;                                // 1: off
  double min_p = 0.05;                                // 0: off
  double temperature = 0.8;                           // 0: greedy
  int mirostat = 0;                                   // 1 or 2: takes the place of all cuts
  double mirostat_tau = 5, mirostat_eta = 0.1;
  std::uint64_t seed = 0;
  Dim min_keep = 1;
};
void check(const SamplerOptions& options);  // ranges, finiteness; fails with the field's name

struct TokenChoice {
  std::int32_t id = -1;
  float logprob = 0;                                      // of the model itself: log-softmax of the logits as they came
  std::vector<std::pair<std::int32_t, float>> top;        // the n most probable with their log-probabilities, where asked
};

class Sampler {
 public:
  Sampler(const SamplerOptions& options, std::uint64_t sequence);
  // `history`: prompt and answer so far. `position` numbers the draw.
  TokenChoice choose(std::span<const float> logits, std::span<const std::int32_t> history, Dim position, int top_logprobs = 0);

 private:
  SamplerOptions options_;
  std::uint64_t key_;
  double mirostat_mu_;
  std::vector<std::pair<float, std::int32_t>> work_;
};

}  // namespace rapt
