// SPDX-License-Identifier: Apache-2.0
// Text out of a model, one call after the other: what an engine (engine.h) does for many requests, for one
// conversation. Embeddings and perplexity beside it.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/use/engine.h"

namespace rapt {

// A model with its cache: keeps what was computed, so that a conversation's next turn reads its new tokens
// only. One thread at a time uses a session; several sessions, each in a thread of its own, may share a
// device and a checkpoint: their passes take turns, and no bit of an answer depends on the others.
class Session {
 public:
  struct Options {
    DType cache = DType::f32;  // f32, f16, bf16, q8_0, q4_0
    Dim context = 0;  // 0: the model's
    Stream stream = {};  // windows slide: no limit on the length. One that the recipe has stays
    Taps* taps = nullptr;  // watch and change every pass (rapt/inspect/edits.h); must outlive the session
    Speculate speculate = Speculate::off;  // Engine::Options
    const Checkpoint* draft = nullptr;     // … must outlive the session
    bool always_guess = false;             // … for tests
  };
  Session(Device& device, const Checkpoint& checkpoint, Options options);
  ~Session();

  // `prompt`: the whole sequence from its first token; the longest beginning that is in the cache is not
  // computed again.
  // Calls back with each sample's id and new text: whole characters, and nothing that may still turn out
  // to be a stop string. What was held back comes at the end, with id -1; so does all of a beam's text.
  // The callback returns false to stop that sample.
  using OnToken = std::function<bool(int sample, std::int32_t id, std::string_view text)>;
  using OnPrompt = std::function<void(Dim done, Dim of)>;
  std::vector<Generated> generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                  const OnToken& on_token = {}, const OnPrompt& on_prompt = {},
                                  const std::atomic<bool>* cancel = nullptr);
  // What every answer of the generate() that follow must be; null: anything. Made with stops().
  void constrain(std::shared_ptr<const Constraint> constraint);
  const std::vector<std::int32_t>& stops() const;  // ids that end an answer
  // Encoder-decoder: the source text's tokens; the answer starts from the model's own start token.
  std::vector<Generated> translate(std::span<const std::int32_t> source, const GenerateOptions& options,
                                   const OnToken& on_token = {}, const std::atomic<bool>* cancel = nullptr);
  // Many sources side by side, greedy (temperature 0) or with beams: each answer is what translate() gives
  // for that source alone, since no row depends on its neighbours. `rows`: beams that a pass of decoding
  // should have; a source joins when others are done. `on_done` hears of each as it is finished, in
  // any order.
  using OnDone = std::function<void(std::size_t source, const Generated& best)>;
  std::vector<std::vector<Generated>> translate_all(std::span<const std::vector<std::int32_t>> sources,
                                                    const GenerateOptions& options, Dim rows = 64,
                                                    const OnDone& on_done = {},
                                                    const std::atomic<bool>* cancel = nullptr);

  const GenerateTimes& times() const;  // of the last call
  Dim cached() const;  // tokens of the conversation in the cache
  Dim context() const;  // the most tokens of prompt and answer together

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Fails with the reason where a model writes no text, or not with such a context or such windows.
void check_writes(const Checkpoint& checkpoint, Dim context, const Stream& stream);
// What an engine is asked for one source of an encoder-decoder; `ends`: the engine's stops(). `where` names
// the source in messages: "" or " 17".
Request translation_request(const Checkpoint& checkpoint, std::span<const std::int32_t> ends,
                            std::span<const std::int32_t> source, const GenerateOptions& options,
                            const std::string& where = "");

// StreamingLLM, as a change of the recipe before weights are made (LoadOptions::change): every causal
// self-attention without a window of its own sees the first `keep` keys and the last `window`. Fails with
// the reason where positions do not allow it.
void stream_windows(Recipe& recipe, Dim keep, Dim window);

// Sentence embeddings [texts][width], pooled and normalised as the checkpoint says. A text longer than the
// model reads is cut, and counted in `cut`. Decoders with a vocabulary head are pooled from their last
// hidden state, after the final norm.
std::vector<std::vector<float>> embed_texts(Device& device, const Checkpoint& checkpoint,
                                            std::span<const std::string> texts, std::optional<Pool> pool = {},
                                            std::optional<bool> normalize = {},
                                            const std::function<void(Dim done, Dim of)>& progress = {},
                                            Dim* cut = nullptr, Taps* taps = nullptr);

// exp of the mean negative log-likelihood. `ids` as the tokenizer frames the whole text. Windows of n =
// `context` tokens one after the other, the rest left out (a BOS in the place of each window's first token
// where the tokenizer adds one); the tokens n/2 + 1 … n - 1 of each window count, n - n/2 - 1 of them.
// llama-perplexity's definition. chunks < 0: all.
struct Perplexity {
  double perplexity = 0, error = 0, nll = 0;  // error: standard error of the estimate
  Dim chunks = 0, tokens = 0;
};
Perplexity perplexity(Device& device, const Checkpoint& checkpoint, std::span<const std::int32_t> ids,
                      Dim context, Dim chunks,
                      const std::function<void(Dim chunk, Dim of, double so_far)>& progress = {},
                      Taps* taps = nullptr);

}  // namespace rapt
