// SPDX-License-Identifier: Apache-2.0
// From logits to a token. The order is fixed and stated: bias, penalties, temperature last before the draw;
// the cuts in between in the order of the fields below. Randomness is keyed by (seed, sequence, position):
// the same draw whatever the batch.
//
// With l the logits of the candidates still there, p = softmax(l) over them, equal logits in the order of
// their ids:
//   bias       l[id] += value
//   penalties  for each id among the last `penalty_last` tokens, c times:
//              l = l > 0 ? l / repeat : l * repeat;  l -= c * frequency + presence
//              (answer_begins: the last two for each id of the answer, all of it)
//   filter     l = -inf for each id that may not come (TokenFilter)
//   top_k      the k largest
//   typical_p  by |-log p - H|, H the entropy of p, nearest first, until their p sum to more than typical_p
//   top_p      the most probable until their p sum to at least top_p
//   min_p      those with p >= min_p * largest p
//   draw       from softmax(l / temperature); temperature 0: the largest logit after bias and penalties
//   mirostat   instead of the cuts, on softmax(l / temperature), with mu = 2 tau at the start and after each
//              draw mu -= eta * (surprise - tau), surprise = -log2 of the drawn token's p after the cut.
//              2: keeps those with -log2 p <= mu (the first always).
//              1: the top k by Zipf's law, s fitted to the 100 most probable, e = s - 1, k = (e * 2^mu /
//              (1 - n^-e))^(1/s), n candidates
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/text/constraint.h"

namespace rapt {

struct SamplerOptions {
  std::vector<std::pair<std::int32_t, float>> bias;  // added to logits; -inf forbids
  double repeat_penalty = 1;  // > 1: logits of seen tokens divided (positive) or multiplied (negative)
  double frequency_penalty = 0, presence_penalty = 0;
  // >= 0: these two look at the history from this token on, all of it (at the answer alone, as OpenAI's do).
  Dim answer_begins = -1;
  Dim penalty_last = 64;  // tokens looked back at; -1: all
  Dim top_k = 40;  // 0: off
  double typical_p = 1;  // 1: off
  double top_p = 0.95;  // 1: off
  double min_p = 0.05;  // 0: off
  double temperature = 0.8;  // 0: greedy
  int mirostat = 0;  // 1 or 2: takes the place of all cuts
  double mirostat_tau = 5, mirostat_eta = 0.1;
  std::uint64_t seed = 0;
  Dim min_keep = 1;
};
void check(const SamplerOptions& options);  // ranges, finiteness; fails with the field's name

struct TokenChoice {
  std::int32_t id = -1;
  float logprob = 0;  // of the model itself: log-softmax of the logits as they came
  // The n most probable with their log-probabilities, where asked.
  std::vector<std::pair<std::int32_t, float>> top;
};

// What may not come, whatever its logit. Log-probabilities do not see it.
struct TokenFilter {
  std::span<const std::uint64_t> allowed = {};  // bit t % 64 of word t / 64; empty: every token
  // What it forbids as well. Where the largest logit is what is wanted, it is asked token by token, and for a
  // mask of all only where the first few are refused: the token is the same.
  Constraint* constraint = nullptr;
};

class Sampler {
 public:
  Sampler(const SamplerOptions& options, std::uint64_t sequence);
  // `history`: prompt and answer so far. `position` numbers the draw. top_logprobs < 0: not even the
  // token's own log-probability. Logits that are not finite are refused.
  TokenChoice choose(std::span<const float> logits, std::span<const std::int32_t> history, Dim position,
                     int top_logprobs = 0, const TokenFilter& filter = {});

 private:
  using Candidate = std::pair<float, std::int32_t>;  // logit, id
  std::int32_t pick(std::span<const float> logits, Dim position);
  std::int32_t pick_filtered(std::span<const float> logits, Dim position, const TokenFilter& filter);
  std::int32_t draw(double temperature, Dim position, double* probability = nullptr) const;
  void cut_typical();
  void cut_top_p();
  void cut_min_p();

  SamplerOptions options_;
  std::uint64_t key_;
  double mirostat_mu_;
  std::vector<float> adjusted_;  // logits after bias, penalties and filter
  std::vector<std::uint64_t> bits_;  // what a constraint allows
  std::vector<Candidate> work_;  // what the cuts have left
};

// Bits of a filter that allows every token, and none behind the last.
std::vector<std::uint64_t> all_tokens(std::size_t vocabulary);
// Every token that is not allowed gets this logit.
void keep_allowed(std::span<float> row, std::span<const std::uint64_t> allowed, float logit);
// The n largest, largest first, equal ones by id: one pass and a heap of n.
std::vector<std::pair<float, std::int32_t>> largest(std::span<const float> values, Dim n);
// log(sum(exp(values))), in double.
double log_sum_exp(std::span<const float> values);

}  // namespace rapt
