// SPDX-License-Identifier: Apache-2.0
// Text out of a model: prompts in chunks, one token after the other, several samples side by side, beams, stop strings, streaming
// windows. Everything runs through forward() and one cache; nothing here computes with weights.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/nn/checkpoint.h"
#include "rapt/use/sampler.h"

namespace rapt {

struct GenerateOptions {
  SamplerOptions sampler;
  Dim max_tokens = -1;                   // of the answer; -1: until the model stops or the context is full
  std::vector<std::string> stops;        // text that ends the answer and is not part of it
  bool ignore_eos = false;
  int samples = 1;
  int beams = 0;                         // > 0: beam search instead of sampling; `samples` best are returned
  double length_penalty = 1;             // beams: score / length^penalty
  int top_logprobs = 0;
  bool logprobs = false;
  Dim chunk = 512;                       // prompt tokens per pass
};

enum class Finish { stop, length, cancelled };

struct Generated {
  std::vector<std::int32_t> ids;
  std::string text;
  std::vector<TokenChoice> tokens;       // where log-probabilities were asked for
  Finish finish = Finish::stop;
  double score = 0;                      // beams: sum of log-probabilities over length^penalty
};

struct GenerateTimes {
  double prompt_seconds = 0, decode_seconds = 0;
  Dim prompt_tokens = 0, reused_tokens = 0, decoded_tokens = 0, dropped_tokens = 0;  // dropped: no longer seen (streaming)
};

// A model with its cache: keeps what was computed, so that a conversation's next turn reads its new tokens only.
class Session {
 public:
  struct Options {
    DType cache = DType::f32;            // f32, f16, bf16, q8_0, q4_0
    Dim context = 0;                     // 0: the model's
    bool stream = false;                 // windows slide (the recipe was changed at load): no limit on the length
  };
  Session(Device& device, const Checkpoint& checkpoint, Options options);
  ~Session();

  // `prompt`: the whole sequence from its first token; the longest beginning that is in the cache is not computed again.
  // Calls back with each sample's new text (whole characters) and id; returns false to stop that sample.
  using OnToken = std::function<bool(int sample, std::int32_t id, std::string_view text)>;
  using OnPrompt = std::function<void(Dim done, Dim of)>;
  std::vector<Generated> generate(std::span<const std::int32_t> prompt, const GenerateOptions& options, const OnToken& on_token = {},
                                  const OnPrompt& on_prompt = {}, const std::atomic<bool>* cancel = nullptr);
  // Encoder-decoder: the source text's tokens; the answer starts from the model's own start token.
  std::vector<Generated> translate(std::span<const std::int32_t> source, const GenerateOptions& options, const OnToken& on_token = {});

  const GenerateTimes& times() const;    // of the last call
  Dim cached() const;                    // tokens of the conversation in the cache

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sentence embeddings [texts][width], pooled and normalised as the checkpoint says.
std::vector<std::vector<float>> embed_texts(Device& device, const Checkpoint& checkpoint, std::span<const std::string> texts,
                                            std::optional<Pool> pool = {}, std::optional<bool> normalize = {},
                                            const std::function<void(Dim done, Dim of)>& progress = {});

// exp of the mean negative log-likelihood. Windows of `context` tokens one after the other (a BOS in the place of each window's first
// token where the tokenizer adds one); the second half of each window counts.
struct Perplexity {
  double perplexity = 0, error = 0, nll = 0;   // error: standard error of the estimate
  Dim chunks = 0, tokens = 0;
};
Perplexity perplexity(Device& device, const Checkpoint& checkpoint, std::span<const std::int32_t> ids, Dim context, Dim chunks,
                      const std::function<void(Dim chunk, Dim of, double so_far)>& progress = {});

}  // namespace rapt
