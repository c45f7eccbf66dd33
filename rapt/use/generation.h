// SPDX-License-Identifier: Apache-2.0
// What is asked of an answer, and the answer.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rapt/use/sampler.h"

namespace rapt {

struct GenerateOptions {
  SamplerOptions sampler;
  Dim max_tokens = -1;             // of the answer; -1: until the model stops or the context is full
  std::vector<std::string> stops;  // text that ends the answer and is not part of it
  std::vector<std::int32_t> stop_ids;  // … ids that do, besides the model's own. No beams
  bool ignore_eos = false;  // not of an answer with a constraint: what it allows has an end
  // Control tokens that stand in the answer's text as their names, for who tells answers apart by them.
  std::vector<std::int32_t> shown_ids = {};
  int samples = 1;
  // > 0: beam search instead of sampling; `samples` best are returned. 1: greedy
  int beams = 0;
  // What a beam's sum of log-probabilities is divided by, so that short answers do not win for being
  // short, with p = length_penalty and the ending token counted: length^p (Hugging Face), or ((5 +
  // length) / 6)^p (Google's translation system of 2016).
  enum class PenaltyForm { power, gnmt } penalty_form = PenaltyForm::power;
  double length_penalty = 1;
  // Sequences of ids that no answer holds: their last token is never said behind the others.
  std::vector<std::vector<std::int32_t>> bad_words;
  bool renormalize = false;  // beams: probabilities sum to one again after bias and bad words
  int top_logprobs = 0;
  bool logprobs = false;
  Dim chunk = 512;  // prompt tokens per pass
};

enum class Finish { stop, length, cancelled };

// A hash of what was chosen: FNV-1a of 64 bits over, for every token in its order, the four bytes of its id
// and the four of its own logit as the model gave it (float, before bias, penalties and masks; least
// significant byte first). The token that ended the answer counts. Two answers that differ in one id or in
// one bit of one logit have other hashes.
inline constexpr std::uint64_t kNothingChosen = 14695981039346656037u;
void add_choice(std::uint64_t& hash, std::int32_t id, float logit);

struct Generated {
  std::vector<std::int32_t> ids;  // without the id that ended it
  std::string text;
  std::vector<TokenChoice> tokens;  // where log-probabilities were asked for
  Finish finish = Finish::stop;
  bool stop_text = false;  // one of GenerateOptions::stops ended it
  int stop_number = -1;  // … which one
  std::int32_t stop_id = -1;  // the id that ended it, where one did (not of beams)
  double score = 0;  // beams: sum of log-probabilities over the penalty
  std::uint64_t hash = kNothingChosen;  // add_choice
};

struct GenerateTimes {
  // queue: from add() to the beginning (of one that never began: to its end)
  double queue_seconds = 0, prompt_seconds = 0, decode_seconds = 0;
  // dropped: no longer seen (streaming)
  Dim prompt_tokens = 0, reused_tokens = 0, decoded_tokens = 0, dropped_tokens = 0;
  // Guesses whose rows were computed, and those that were said (use/speculate.h)
  Dim guessed_tokens = 0, right_guesses = 0;
};

void check(const GenerateOptions& options);  // fails with the field's name

// Which tokens may come next: bit t % 64 of word t / 64 is set for every token t of the vocabulary, and those
// that may not come behind `answer` are cleared.
using TokenMask = std::function<void(std::span<const std::int32_t> answer, std::span<std::uint64_t> allowed)>;
// Clears what the mask forbids; without a mask nothing happens. Fails where nothing is left.
void apply_mask(const TokenMask& mask, std::span<const std::int32_t> answer,
                std::span<std::uint64_t> allowed);
// Every token that would complete one of `words` behind `ids` is cleared.
void forbid(std::span<const std::vector<std::int32_t>> words, std::span<const std::int32_t> ids,
            std::span<std::uint64_t> allowed);

}  // namespace rapt
