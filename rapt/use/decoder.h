// SPDX-License-Identifier: Apache-2.0
// What generation needs of a model: tokens of some sequences in, logits of each one's last token out. And what it needs of text: stop
// strings that are never half printed. Internal to use/.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "rapt/nn/checkpoint.h"
#include "rapt/use/generate.h"

namespace rapt {

class Decoder {
 public:
  Decoder(Device& device, const Model& model, DType cache_format, Dim opened);

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

// Beam search from the sequence `root` of the cache, whose last token gave `logits`. Score: the sum of the log-probabilities of all tokens,
// the ending one included, over (their number)^length_penalty. At each step 2B candidates (more with several ending ids) are ranked by their sum;
// those that end and stand among the first B are finished, the first B others go on. Over when B are finished and the best that goes on,
// at its present length, is not better than the worst of them. The sequences of the cache are dropped, `root` included.
std::vector<Generated> beam_search(Decoder& decoder, std::uint64_t root, std::span<const float> logits, const DecodeJob& job, Dim& decoded);

}  // namespace rapt
