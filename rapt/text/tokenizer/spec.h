// SPDX-License-Identifier: Apache-2.0
// A tokenizer as data. Every source (GGUF, tokenizer.json, SentencePiece, …) fills this in, one
// implementation (pipeline.h) runs it, and the writers read it. The order is that of Hugging Face:
//   added tokens cut out of the text → normal steps → splits → the model on every piece
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {

// U+2581, the visible space of SentencePiece
inline constexpr std::string_view kMetaSpace = "\xE2\x96\x81";

struct AddedToken {
  std::int32_t id = -1;
  std::string text;
  bool special = false;      // a control token: recognised only where the caller trusts the text
  bool left_strip = false, right_strip = false;  // swallows the white space beside it
  bool single_word = false;  // only between characters that are not of a word
  bool normalized = false;   // looked for after the normal steps (never so for special ones)
};

// One change of the text before it is split.
struct NormalStep {
  enum class Kind {
    prepend,      // `to` before a text that is not empty
    replace,      // every `from` by `to`
    squeeze,      // two spaces or more by `to`
    spaces,       // every run of white space by `to`
    punctuation,  // ASCII's punctuation goes (SigLIP)
    lower,
    nfc,
    nfd,
    nfkc,
    nfkd,
    strip_accents,  // marks go
    strip,        // white space at the ends: left, right
    bert,         // clean, Chinese characters apart, accents, lower case
    charsmap,     // SentencePiece's compiled table, cluster by cluster as Hugging Face does it
    // The same table character by character, then spaces: dummy prefix or suffix, no doubles, escaped.
    sentencepiece,
  };
  Kind kind = Kind::replace;
  std::string from, to;        // charsmap and sentencepiece: `from` is the table
  bool left = false, right = false;
  bool clean = true, chinese = true, accents = true, lowercase = true;                  // bert
  bool dummy_prefix = true, remove_extra = true, escape = true, suffix = false;         // sentencepiece
  bool operator==(const NormalStep&) const = default;
};

// What a split looks for. Most are one alternative of a published pattern or all of it; docs/tokenizers.md
// lists them.
enum class Pattern {
  gpt2,        // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  // (?i:'s|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  llama3,
  qwen2,       // the same, digits one by one
  minicpm,     // the same, \p{N}+
  qwen35,      // the same as qwen2, letters with their marks
  seed_coder,  // the same as qwen2, but line ends do not follow punctuation
  bailing,     // the same as qwen2, \s*[\r\n] one line end at a time
  gpt4o,       // words by case with a contraction behind, \p{N}{1,3}, punctuation with [\r\n/]*
  tekken,      // words by case, \p{N}, punctuation with [\r\n/]*
  // [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|
  // \s+(?!\S)|\s+
  deepseek3,
  bloom,       //  ?[^(\s|[.,!?…。，、।۔،])]+
  clip,        // 's|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+
  number,
  numbers,
  numbers3,              // \p{N}  \p{N}+  \p{N}{1,3}
  three_digits,                           // [0-9][0-9][0-9]
  line_end,                               // [\r\n]
  spaced_letters,
  spaced_punctuation,     // \s?\p{L}+  \s?\p{P}+
  deepseek_letters,
  deepseek_punctuation, // \s?[A-Za-zµÀ-Ö…]+  \s?[!-/:-~！-／：-～‘-‟　-。]+
  trailing_space,                         // \s+$
  cjk,
  cjk3,                              // [一-龥ࠀ-一가-퟿]+  [一-龥぀-ゟ゠-ヿ]+
  falcon_punctuation,
  default_punctuation,  // [\p{P}\$\+<=>\^~\|`]+  the same without `
  word,                                   // \w+|[^\w\s]+
  space,
  spaces,                          // one white space character; \s+
  punctuation,  // one character of \p{P} as BERT knows it or of ASCII's punctuation
  not_line, // [^\n]+|[\n]+
  literal,                                // SplitStep::text
};

struct SplitStep {
  enum class Kind {
    split,         // by `pattern`
    // Spaces become U+2581, one before the text by `prefix`, pieces begin at each where `cut`.
    metaspace,
    prefix_space,  // a space before a piece that does not begin with one
  };
  enum class Behavior { isolated, removed, with_previous, with_next, contiguous };
  enum class Prefix { always, first, never };
  Kind kind = Kind::split;
  Pattern pattern = Pattern::gpt2;
  Behavior behavior = Behavior::isolated;
  bool invert = false;
  std::string text;  // literal; metaspace: the replacement
  Prefix prefix = Prefix::always;
  bool cut = true;
  bool operator==(const SplitStep&) const = default;
};

struct TokenizerSpec {
  Tokenizer::Kind kind = Tokenizer::Kind::bpe;
  std::string name;   // of the pre-tokenizer or source, for messages
  std::string where;  // the file, for messages

  std::vector<std::string> tokens;            // by id; an empty one is a hole
  std::vector<Tokenizer::Role> roles;         // as long as tokens
  std::vector<float> scores;                  // spm and unigram; else empty
  std::vector<double> exact_scores;           // unigram of tokenizer.json, which adds in f64; else empty
  std::vector<std::pair<std::string, std::string>> merges;  // bpe, by rank
  std::vector<AddedToken> added;

  std::vector<NormalStep> normal;
  std::vector<SplitStep> splits;
  bool byte_level = false;      // bpe: bytes as GPT-2's printable characters
  bool byte_fallback = false;   // unknown characters as <0x..>
  bool fuse_unknown = false;    // neighbours that are unknown are one unknown token
  // bpe: what is unknown disappears, as in the original where there is no unknown token
  bool unknown_drops = false;
  bool ignore_merges = false;   // a whole piece that is a token is that token
  // bpe: every token is a character that stands for itself, U+2581 too; an unknown one without `unk` is
  // an error
  bool characters = false;
  std::string suffix;  // bpe: behind the last character of every piece, and part of tokens ("</w>", CLIP)
  std::string continuing = "##";  // wordpiece: before a piece that goes on
  int longest_word = 100;  // wordpiece: characters; longer is unknown
  bool phantom_space = false;  // wordpiece in GGUF: words begin with U+2581, continuations are bare
  bool cleanup = true;  // wordpiece: decode() takes spaces before punctuation away
  bool strip_prefix = false;  // decode() takes the dummy space of the first word away

  // Marian: pieces of source.spm that stand for ids of vocab.json; else empty and the tokens are
  // the pieces.
  struct Piece {
    std::string text;
    float score = 0;
    Tokenizer::Role role = Tokenizer::Role::normal;
    std::int32_t id = -1;
  };
  std::vector<Piece> pieces;

  std::int32_t bos = -1, eos = -1, unk = -1, pad = -1, sep = -1, cls = -1, mask = -1;
  std::vector<std::int32_t> before, after;  // frame()
  std::vector<std::int32_t> more_stops;

  // What the files said, kept for writing back.
  std::string source_json, source_config;
  std::string pre, gguf_model;  // GGUF: tokenizer.ggml.pre, .model
};

// Checks everything that later code trusts (ids in range, merges of known tokens, byte tokens) and builds
// the tokenizer.
std::shared_ptr<const Tokenizer> make_tokenizer(TokenizerSpec spec);
const TokenizerSpec& spec_of(const Tokenizer& tokenizer);  // for writers

// Sets the splits (and normal steps, ignore_merges) that a GGUF `tokenizer.ggml.pre` name stands for; an
// unknown name fails with the list.
void apply_pre(TokenizerSpec& spec, const std::string& pre);
// The name of a GGUF pre-tokenizer with these splits; fails where there is none.
std::string pre_of(const TokenizerSpec& spec);
// Ids that end an answer, by their usual names (end of turn, of text, of message, …).
std::vector<std::int32_t> stop_ids(const TokenizerSpec& spec);

}  // namespace rapt
