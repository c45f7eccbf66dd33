// SPDX-License-Identifier: Apache-2.0
// Beam search. Score: the sum of the log-probabilities of all tokens, the ending one included, over the
// length penalty. At each step 2B candidates (more with several ending ids) are ranked by their sum; those
// that end and stand among the first B are finished, the first B others go on. Over when B are finished and
// the best that goes on, at its present length, is not better than the worst of them. One beam is greedy:
// over at its first end. Hugging Face's generate(num_beams=B) with its early_stopping=False. It knows nothing
// of caches: advance() tells who goes on from whom.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rapt/text/tokenizer/tokenizer.h"
#include "rapt/use/generation.h"

namespace rapt {

class BeamSearch {
 public:
  // `options`, `stops` (ids that end), `mask` and the tokenizer, which may be absent, must outlive it. Every
  // beam has a copy of the constraint.
  // before: the token in front of the answer, whose first word keeps its space; -1: none.
  BeamSearch(const GenerateOptions& options, std::span<const std::int32_t> stops, const Tokenizer* tokenizer,
             std::int32_t before, Dim most, Dim vocab, const TokenMask& mask,
             const Constraint* constraint = nullptr);

  bool over() const { return over_; }
  std::size_t live() const { return live_.size(); }  // at first one, without a token
  std::span<const std::int32_t> ids(std::size_t i) const { return live_[i].ids; }
  // One token further: `logits` [live,V]. Of each that lives now, the number of its parent before.
  std::vector<std::size_t> advance(std::span<const float> logits);
  void cut_off(Finish why);  // what lives becomes an answer
  std::vector<Generated> answers();  // best first, at most `samples`

 private:
  // What may come next in one answer; a copied one stands where that one stood.
  struct Bound {
    std::unique_ptr<Constraint> of;
    explicit Bound(const Constraint* c = nullptr) : of(c ? c->copy() : nullptr) {}
    Bound(const Bound& other) : Bound(other.of.get()) {}
    Bound(Bound&&) noexcept = default;
    Bound& operator=(Bound other) noexcept { return of = std::move(other.of), *this; }
    ~Bound() = default;
  };
  struct Beam {
    std::vector<std::int32_t> ids;
    std::vector<TokenChoice> tokens;
    double sum = 0;
    std::uint64_t hash = kNothingChosen;
    Bound bound = Bound();
  };
  void finish(const Beam& beam, Dim length, Finish why);
  std::string text_of(std::span<const std::int32_t> ids) const;

  const GenerateOptions& options_;
  std::span<const std::int32_t> stops_;
  const Tokenizer* tokenizer_;
  std::int32_t before_;
  Dim most_, vocab_;
  const TokenMask& mask_;
  std::vector<Beam> live_;
  std::vector<Generated> finished_;
  std::vector<float> row_;  // logits of one sequence with bias
  Dim length_ = 0;
  bool over_ = false;
};

// What the sum of log-probabilities of `length` tokens is divided by.
double length_divisor(const GenerateOptions& options, Dim length);

}  // namespace rapt
