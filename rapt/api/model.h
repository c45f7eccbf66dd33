// SPDX-License-Identifier: Apache-2.0
// A model with its weights and its tokenizer, and what it says of a text in one pass. Text out of it:
// rapt/api/session.h.
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

#include "rapt/api/device.h"

namespace rapt::RAPT_FACE {

using Token = std::int32_t;  // a number of the vocabulary

// Numbers with a shape, in rows: the last size is that of a row.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;

  std::int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  std::int64_t rows() const {
    return columns() > 0 ? static_cast<std::int64_t>(values.size()) / columns() : 0;
  }
  std::span<const float> row(std::int64_t i) const {
    return std::span(values).subspan(static_cast<std::size_t>(i * columns()),
                                     static_cast<std::size_t>(columns()));
  }
};

// The first `keep` tokens and the last `window` are seen, so that a text may go on without end
// (StreamingLLM).
struct Streaming {
  std::int64_t keep = 4;
  std::int64_t window = 0;  // 0: the model's context without the kept ones
};

struct OpenOptions {
  Device device{};
  bool exact = false;  // weights as f32, whatever the file stores; else as they are stored
  std::optional<Streaming> streaming{};
  std::function<void(double done)> progress{};  // 0 … 1
};

struct MakeOptions {
  Device device{};
  // Changes of the recipe: "width=96", "layers=2", "decoder.final_norm.eps=1e-5".
  std::vector<std::string> settings{};
  std::uint64_t seed = 0;  // of the starting values
};

struct ModelInfo {
  // family: "llama", "gpt2" …, "rapt" where recipe.json describes it; format: "gguf", "folder" …
  std::string path, family, format;
  std::string recipe;                // as JSON, with every field
  std::int64_t parameters = 0, vocabulary = 0, context = 0, width = 0;
  int encoder_layers = 0, decoder_layers = 0;
  bool tokenizer = false, chat_template = false;  // whether it has one
  bool translates = false;           // encoder and decoder: Session::translate
  Token bos = -1, eos = -1;          // -1: none
  Token decoder_start = -1;          // what a translating model's answers begin with
  std::vector<std::string> classes;  // of a classifier
};

struct Message {
  std::string role, content;  // "system", "user", "assistant"
};

struct TokenizeOptions {
  bool frame = false;    // with what the model expects around a text: BOS, EOS, [CLS] … [SEP]
  bool special = false;  // names of special tokens in the text become these tokens
};

struct PerplexityOptions {
  std::int64_t window = 512, windows = -1;  // tokens of a window; so many windows at most (-1: all)
  std::vector<std::string> edits{};         // of every pass (docs/edits.md)
};
struct Perplexity {
  double value = 0, error = 0, loss = 0;  // error: standard error; loss: mean of -log p, nats
  std::int64_t windows = 0, tokens = 0;   // tokens that counted
};

enum class Pooling { own, first, mean, last };  // own: as the model's files say; first: [CLS]
struct EmbedOptions {
  Pooling pooling = Pooling::own;
  std::optional<bool> normalize{};  // absent: as the model's files say
};

struct ClassScore {
  std::string name;
  float probability = 0;
};

struct MaskWord {
  Token token = 0;
  float probability = 0;
  std::string word, text;  // the text with the word in the mask's place
};

struct SaveOptions {
  // Of the matrices: "f16", "q8_0", "q4_k_m" …; "": as they are. Made and trained models are written as f32.
  std::string type{};
  bool replace = false;
};

class RAPT_API Model {
 public:
  // A GGUF file, a Hugging Face folder, a folder of a training or its model/, a llama2.c file, or a name:
  // one in RAPT_MODELS, or "default", the model that comes with the program.
  static Model open(const std::string& name, const OpenOptions& options = {});
  // A preset ("gpt2", "llama3" …: presets()), a recipe's file, or a recipe as JSON, with random weights.
  static Model make(const std::string& recipe, const MakeOptions& options = {});

  ModelInfo info() const;
  Device device() const;

  // Tokens of a text and back. They fail where the model has no tokenizer.
  std::vector<Token> tokenize(std::string_view text, const TokenizeOptions& options = {}) const;
  std::string detokenize(std::span<const Token> tokens, bool special = false) const;
  // Its bytes as they stand in a text; perhaps a part of a character.
  std::string token_text(Token token) const;
  // What Session::generate and Session::chat would read.
  std::vector<Token> prompt(std::string_view text) const;
  std::vector<Token> chat_prompt(const std::vector<Message>& messages) const;

  // Logits of every token [tokens, vocabulary]; the last hidden state [tokens, width] of a model without
  // an output matrix; [1, classes] of a classifier. A translating model reads `source` and then `tokens`,
  // which begin with info().decoder_start.
  Tensor logits(std::span<const Token> tokens, std::span<const Token> source = {}) const;
  // exp of the mean loss over windows one after the other; in each, its second half counts
  // (llama-perplexity's definition).
  Perplexity perplexity(std::string_view text, const PerplexityOptions& options = {}) const;
  // [texts, width]
  Tensor embed(const std::vector<std::string>& texts, const EmbedOptions& options = {}) const;
  // Every class of a classifier with its probability, for each text.
  std::vector<std::vector<ClassScore>> classify(const std::vector<std::string>& texts) const;
  // For each mask in the text ("[MASK]", as the vocabulary spells it) the `top` most probable words.
  std::vector<std::vector<MaskWord>> fill(const std::string& text, int top = 5) const;

  std::vector<std::string> weights() const;  // their names
  Tensor weight(const std::string& name) const;  // as numbers; of blocks, what they stand for

  // NAME.gguf, or a folder that opens in transformers where the model is of a family it knows.
  void save(const std::string& path, const SaveOptions& options = {}) const;

 private:
  friend struct Access;
  explicit Model(std::shared_ptr<const struct ModelState> state) : state_(std::move(state)) {}
  std::shared_ptr<const struct ModelState> state_;
};

RAPT_API std::vector<std::string> presets();

}  // namespace rapt::RAPT_FACE
