// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back. Four kinds of algorithm, many files they come from; ids equal those of the
// original implementations. Time is linear in the text (BPE: n log n inside a word); nothing backtracks.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/base/json.h"

namespace rapt {

class GgufFile;

// A piece of text to encode. Special-token text inside an untrusted piece stays text; pieces that follow
// each other are one text for everything else (merges cross their border).
struct TextPiece {
  std::string_view text;
  bool special = false;  // special-token text in it becomes special tokens
};

class Tokenizer {
 public:
  // byte-level BPE, SentencePiece BPE, SentencePiece Unigram, BERT
  enum class Kind { bpe, spm, unigram, wordpiece };
  enum class Role : std::uint8_t { normal, unknown, control, user, unused, byte };

  virtual ~Tokenizer() = default;

  // Ids without BOS or EOS.
  std::vector<std::int32_t> encode(std::string_view text, bool special = false) const {
    const TextPiece piece{text, special};
    return encode({&piece, 1});
  }
  virtual std::vector<std::int32_t> encode(std::span<const TextPiece> pieces) const = 0;
  // With what the model expects around a text: BOS, EOS, [CLS] … [SEP]. As the tokenizer's files say.
  std::vector<std::int32_t> frame(std::vector<std::int32_t> ids) const;

  // The bytes of one token as they stand inside a text (may be part of a character).
  virtual std::string bytes_of(std::int32_t id) const = 0;
  // Text of a sequence. Control tokens are left out unless `special`. SentencePiece: the dummy space
  // before the first word is taken away again. Broken UTF-8 stays as it is.
  virtual std::string decode(std::span<const std::int32_t> ids, bool special = false) const = 0;

  Kind kind = Kind::bpe;
  std::string name;  // "gpt2", "llama-bpe", … for messages
  std::int32_t bos = -1, eos = -1, unk = -1, pad = -1, sep = -1, cls = -1, mask = -1;
  // All ids that end an answer: eos, <|eot_id|>, <|im_end|>, <end_of_turn> …
  std::vector<std::int32_t> stops;
  // frame() puts something before or behind a text; BERT: cls and sep
  bool add_bos = false, add_eos = false;
  std::vector<std::int32_t> before, after;  // what frame() puts there
  Dim size() const { return static_cast<Dim>(roles_.size()); }
  Role role(std::int32_t id) const { return roles_[static_cast<std::size_t>(id)]; }
  virtual const std::string& text_of(std::int32_t id) const = 0;  // as the vocabulary spells it
  virtual std::optional<std::int32_t> id_of(std::string_view vocabulary_text) const = 0;

 protected:
  std::vector<Role> roles_;
};

// Feeds ids, hands out text that is whole UTF-8 only: bytes of an unfinished character wait for the rest.
// Control tokens are left out, but for all (`special`) or those of a list, which must outlive it.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, bool special = false,
                      std::span<const std::int32_t> shown = {})
      : tokenizer_(tokenizer), shown_(shown), special_(special) {}
  std::string push(std::int32_t id);
  std::string finish();  // what is left; broken bytes become U+FFFD

 private:
  const Tokenizer& tokenizer_;
  std::span<const std::int32_t> shown_;
  bool special_, first_ = true;
  std::string waiting_;
};

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufFile& file);
// tokenizer.json, or tokenizer.model, or vocab.json + merges.txt, or vocab.txt, with tokenizer_config.json
// and special_tokens_map.json; Marian: source.spm/target.spm with vocab.json. nullptr where the folder has
// none of them.
std::shared_ptr<const Tokenizer> tokenizer_from_folder(const std::string& folder);
std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view tokenizer_json,
                                                     std::string_view config_json, std::string_view where);
std::shared_ptr<const Tokenizer> tokenizer_from_sentencepiece(std::span<const std::byte> model,
                                                              std::string_view where);
// llama2.c's tokenizer.bin, for a vocabulary of `size`.
std::shared_ptr<const Tokenizer> tokenizer_from_llama2c(std::span<const std::byte> bytes, Dim size,
                                                        std::string_view where);
// A folder or GGUF file, whichever `path` is.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path);

// For writers: the tokenizer's files as GGUF metadata (tokenizer.ggml.*), and as the text of a
// tokenizer.json. (GgufValue pairs; declared in tokenizer/write.h)

}  // namespace rapt
