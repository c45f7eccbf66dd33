// SPDX-License-Identifier: Apache-2.0
// What generation needs of a model: tokens of some sequences in, logits of each one's last token out. And
// what it needs of text: stop strings that are never half printed. Internal to use/.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/use/generate.h"

namespace rapt {

class Decoder {
 public:
  Decoder(Device& device, const Model& model, DType cache_format, Dim opened, Taps* taps = nullptr);

  struct Piece {
    std::uint64_t id;
    std::span<const std::int32_t> tokens;
  };
  // Continues each sequence by its tokens. Valid until the next step.
  std::span<const float> step(std::span<const Piece> pieces, const Batch* source = nullptr);  // [pieces,V]
  std::span<const float> row(std::size_t i) const {
    return std::span(logits_).subspan(i * static_cast<std::size_t>(vocab), static_cast<std::size_t>(vocab));
  }

  KvCache cache;
  const Dim vocab;

 private:
  const Model& model_;
  const Dim opened_;
  Run run_;
  std::vector<float> wide_;           // logits of a device that computes in double
  std::span<const float> logits_;
};

// Text with its stop strings: push() hands out what surely comes before any of them.
class StopText {
 public:
  explicit StopText(std::span<const std::string> stops) : stops_(stops) {}
  std::string push(std::string_view text);
  std::string finish();               // what was held back
  bool found() const { return found_; }

 private:
  std::span<const std::string> stops_;
  std::string held_;
  bool found_ = false;
};

// Every token that would complete one of `words` behind `ids` gets this logit.
void forbid(std::span<const std::vector<std::int32_t>> words, std::span<const std::int32_t> ids,
            std::span<float> row, float logit);

// What the loops over tokens share.
struct DecodeJob {
  const Tokenizer* tokenizer;         // may be absent
  std::span<const std::int32_t> prompt;
  std::span<const std::int32_t> stops;  // ids that end
  const GenerateOptions& options;
  Dim most;                           // tokens of an answer
  const Session::OnToken& on_token;
  const std::atomic<bool>* cancel;
  bool cancelled() const { return cancel && cancel->load(std::memory_order_relaxed); }
};

// Beam search from one sequence of a cache. Score: the sum of the log-probabilities of all tokens, the
// ending one included, over the length penalty. At each step 2B candidates (more with several ending ids)
// are ranked by their sum; those that end and stand among the first B are finished, the first B others go
// on. Over when B are finished and the best that goes on, at its present length, is not better than the
// worst of them. One beam is greedy: over at its first end. Hugging Face's generate(num_beams=B) with its
// early_stopping=False.
class BeamSearch {
 public:
  BeamSearch(const DecodeJob& job, Dim vocab, std::uint64_t root);

  bool over() const { return over_; }
  std::vector<Decoder::Piece> pieces() const;  // what the next pass reads; logits come back in this order
  std::size_t live() const { return live_.size(); }
  // One token further: `logits` [live,V] of the live sequences. Their successors take over their pages in
  // the cache; names for them are counted up from next_id.
  void advance(KvCache& cache, std::span<const float> logits, std::uint64_t& next_id);
  void cancel(KvCache& cache);  // what lives becomes an answer that was cut off
  std::vector<Generated> answers();  // best first, at most `samples`; also told to on_token

 private:
  struct Beam {
    std::vector<std::int32_t> ids;
    std::vector<TokenChoice> tokens;
    double sum = 0;
    std::uint64_t id = 0;  // in the cache
  };
  void finish(const Beam& beam, Dim length, Finish why);
  std::string text_of(std::span<const std::int32_t> ids) const;

  const DecodeJob* job_;
  Dim vocab_;
  std::vector<Beam> live_;
  std::vector<Generated> finished_;
  std::vector<float> row_;  // logits of one sequence with bias
  Dim length_ = 0;
  bool over_ = false;
};

// A search alone: the sequence `root` of the cache gave `logits` last. The sequences of the cache are
// dropped, `root` included.
std::vector<Generated> beam_search(Decoder& decoder, std::uint64_t root, std::span<const float> logits,
                                   const DecodeJob& job, Dim& decoded);

// What the sum of log-probabilities of `length` tokens is divided by.
double length_divisor(const GenerateOptions& options, Dim length);

}  // namespace rapt
