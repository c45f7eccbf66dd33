// SPDX-License-Identifier: Apache-2.0
// A checkpoint without files: a small model with random weights and a tokenizer of single letters.
#pragma once
#include <string>

#include "rapt/load/checkpoint.h"
#include "tests/model_tools.h"

namespace rapt::test {

// Token i: 0 begins, 1 ends, 2 … 27 are the letters, 28 a space, 29 and 30 the two bytes of é, 31 … the text
// "<31>" and so on.
class LetterTokenizer : public Tokenizer {
 public:
  explicit LetterTokenizer(Dim vocab, bool with_bos = true) {
    kind = Kind::bpe;
    name = "letters";
    bos = 0, eos = 1;
    stops = {1};
    add_bos = with_bos;
    if (with_bos) before = {0};
    for (Dim i = 0; i < vocab; ++i) {
      roles_.push_back(i < 2 ? Role::control : Role::normal);
      if (i < 2) texts_.push_back(i == 0 ? "<s>" : "</s>");
      else if (i < 28) texts_.push_back(std::string(1, static_cast<char>('a' + i - 2)));
      else if (i == 28) texts_.push_back(" ");
      else if (i < 31) texts_.push_back(i == 29 ? "\xC3" : "\xA9");
      else texts_.push_back("<" + std::to_string(i) + ">");
    }
  }
  using Tokenizer::encode;
  std::vector<std::int32_t> encode(std::span<const TextPiece> pieces) const override {
    std::vector<std::int32_t> ids;
    for (const TextPiece& p : pieces)
      for (char c : p.text) {
        const std::optional<std::int32_t> id = id_of(std::string_view(&c, 1));
        if (!id) fail("letters: cannot write '", c, "'");
        ids.push_back(*id);
      }
    return ids;
  }
  std::string bytes_of(std::int32_t id) const override { return texts_[static_cast<std::size_t>(id)]; }
  std::string decode(std::span<const std::int32_t> ids, bool special = false) const override {
    std::string text;
    for (std::int32_t id : ids)
      if (special || role(id) != Role::control) text += bytes_of(id);
    return text;
  }
  const std::string& text_of(std::int32_t id) const override { return texts_[static_cast<std::size_t>(id)]; }
  std::optional<std::int32_t> id_of(std::string_view text) const override {
    for (std::size_t i = 0; i < texts_.size(); ++i)
      if (texts_[i] == text) return static_cast<std::int32_t>(i);
    return std::nullopt;
  }

 private:
  std::vector<std::string> texts_;
};

// The same, but names of tokens ("<s>", "<31>") in trusted text become these tokens, and every character
// that is no letter becomes 39.
class MarkTokenizer : public LetterTokenizer {
 public:
  using LetterTokenizer::LetterTokenizer;
  using Tokenizer::encode;
  std::vector<std::int32_t> encode(std::span<const TextPiece> pieces) const override {
    std::vector<std::int32_t> ids;
    for (const TextPiece& p : pieces)
      for (std::size_t at = 0; at < p.text.size();) {
        const std::size_t end = p.text[at] == '<' ? p.text.find('>', at) : p.text.npos;
        const auto mark =
            p.special && end != p.text.npos ? id_of(p.text.substr(at, end + 1 - at)) : std::nullopt;
        ids.push_back(mark ? *mark : id_of(p.text.substr(at, 1)).value_or(39));
        at = mark ? end + 1 : at + 1;
      }
    return ids;
  }
};

inline Checkpoint memory_checkpoint(const Recipe& recipe, std::uint64_t seed, DType real = DType::f32,
                                    bool with_bos = true) {
  Checkpoint c;
  c.path = "toy";
  c.family = "toy";
  c.format = "memory";
  c.model = std::make_unique<Model>(resolve(recipe), real);
  randomise(*c.model, seed);
  c.tokenizer = std::make_shared<LetterTokenizer>(recipe.vocab, with_bos);
  c.stops = {1};
  return c;
}

// A decoder like Llama (GQA, RoPE), small. `window` > 0: every second layer sees that many keys only.
inline Recipe small_decoder(Dim window = 0, Dim context = 256, Dim vocab = 40) {
  Recipe r = parse_recipe(R"({ "preset": "llama3", "width": 32, "decoder": { "layers": 3 } })");
  r.name = "toy";
  r.vocab = vocab, r.context = context;
  for (auto& [name, layer] : r.decoder->kinds)
    for (PartRecipe& p : layer.parts) {
      if (AttnRecipe* a = p.self()) a->heads = 4, a->kv_heads = 2, a->head_dim = 8;
      if (FfnRecipe* f = p.ffn()) f->width = 48;
    }
  if (window > 0) {
    r.decoder->pattern = "WL";
    r.decoder->kinds["W"] = r.decoder->kinds["L"];
    for (PartRecipe& p : r.decoder->kinds["W"].parts)
      if (AttnRecipe* a = p.self()) a->window = window;
  }
  return r;
}

inline Recipe small_learned(Dim context = 64) {  // like GPT-2
  Recipe r = parse_recipe(R"({ "preset": "gpt2", "width": 24, "decoder": { "layers": 2 } })");
  r.name = "toy-gpt2";
  r.vocab = 40, r.context = context;
  for (auto& [name, layer] : r.decoder->kinds)
    for (PartRecipe& p : layer.parts)
      if (AttnRecipe* a = p.self()) a->heads = 3;
  return r;
}

}  // namespace rapt::test
