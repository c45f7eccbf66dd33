// SPDX-License-Identifier: Apache-2.0
// Text out of a model: continued, answered, translated.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rapt/api/model.h"

namespace rapt::RAPT_FACE {

// How a token is chosen; applied in this order, the draw last. Exact definitions: docs/using.md, "Answers".
struct Sampling {
  std::vector<std::pair<Token, float>> bias{};  // added to logits; -infinity forbids
  double repeat_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  std::int64_t penalty_last = 64;  // tokens looked back at; -1: all
  std::int64_t top_k = 40;         // 0: off
  double typical_p = 1, top_p = 0.95, min_p = 0.05;  // 1, 1, 0: off
  double temperature = 0.8;        // 0: always the most probable token
  int mirostat = 0;                // 1 or 2: takes the place of the cuts
  double mirostat_tau = 5, mirostat_eta = 0.1;
  std::uint64_t seed = 0;
};

struct GenerateOptions {
  std::int64_t max_tokens = -1;      // -1: until the model stops or the context is full
  Sampling sampling{};
  std::vector<std::string> stops{};  // text that ends an answer and is not part of it
  bool ignore_eos = false;
  int beams = 0;                     // > 0: beam search instead of sampling
  double length_penalty = 1;         // beams: sum of log-probabilities / length^penalty
  // >= 0: each token's log-probability, and that of so many most probable ones
  int logprobs = -1;
};

struct Choice {
  Token token = -1;
  float logprob = 0;
  std::vector<std::pair<Token, float>> top;  // most probable tokens first
};

enum class Finish { stop, length, cancelled };

struct Answer {
  std::string text;
  std::vector<Token> tokens;  // without the one that ended it
  Finish finish = Finish::stop;
  double score = 0;             // beams
  std::vector<Choice> choices;  // where log-probabilities were asked for
};

// New text of an answer: whole characters, nothing that may still turn out to be a stop text. What was held
// back comes at the end, with token -1; so does all of a beam's text.
struct Piece {
  std::string_view text;
  Token token = -1;
  int sample = 0;
};
using OnPiece = std::function<bool(const Piece&)>;  // false stops that answer

struct TranslateOptions {
  int beams = 4;  // 1: greedy
  double length_penalty = 1;
  std::int64_t max_tokens = 256;
  std::string prefix{};  // before every line ("translate English to German: ")
};

struct SessionOptions {
  std::string cache = "f32";         // how keys and values are kept: f32, f16, bf16, q8_0, q4_0
  std::int64_t context = 0;          // tokens of prompt and answer together; 0: the model's
  // Of every pass: "L5H3:zero", "resid_post.8:add=FILE.npy" (docs/edits.md).
  std::vector<std::string> edits{};
  std::optional<Streaming> streaming{};  // of this session alone; OpenOptions::streaming: of the model
};

struct Times {  // of the last call
  double prompt_seconds = 0, answer_seconds = 0;
  std::int64_t prompt_tokens = 0, reused_tokens = 0, answer_tokens = 0;
};

// Keeps what it has read: a prompt that begins like the last one costs its new tokens only, and gives the
// same bits.
class RAPT_API Session {
 public:
  explicit Session(const Model& model, const SessionOptions& options = {});

  // Continues a text (after BOS where the model wants one), or exactly these tokens.
  Answer generate(std::string_view prompt, const GenerateOptions& options = {}, const OnPiece& on_piece = {});
  Answer generate(std::span<const Token> prompt, const GenerateOptions& options = {},
                  const OnPiece& on_piece = {});
  // The next message, through the model's chat template; what users wrote never becomes a special token.
  // Fails where there is none.
  Answer chat(const std::vector<Message>& messages, const GenerateOptions& options = {},
              const OnPiece& on_piece = {});
  // `count` answers to one prompt, computed together: samples, or the best of a beam search. The first is
  // what generate() gives.
  std::vector<Answer> generate_many(int count, std::span<const Token> prompt,
                                    const GenerateOptions& options = {}, const OnPiece& on_piece = {});
  // Lines through an encoder-decoder, side by side; a line without words stays empty.
  std::vector<std::string> translate_all(const std::vector<std::string>& lines,
                                         const TranslateOptions& options = {});
  std::string translate(const std::string& line, const TranslateOptions& options = {});

  // From any thread: ends what this session is computing now, as Finish::cancelled.
  void cancel();

  Times times() const;
  std::int64_t context() const;
  Model model() const;

 private:
  friend struct Access;
  std::shared_ptr<struct SessionState> state_;
};

}  // namespace rapt::RAPT_FACE
