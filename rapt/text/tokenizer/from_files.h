// SPDX-License-Identifier: Apache-2.0
// What the readers of a folder's files share.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/text/tokenizer/spec.h"

namespace rapt {

struct SentencePieceModel {
  struct Piece {
    std::string text;
    float score = 0;
    int type = 1;
  };
  std::vector<Piece> pieces;
  std::uint64_t type = 1;  // 1 unigram, 2 bpe
  bool suffix = false, byte_fallback = false;
  std::int32_t unk = 0, bos = 1, eos = 2, pad = -1;
  std::string charsmap;
  bool dummy_prefix = true, remove_extra = true, escape = true;
};
SentencePieceModel read_sentencepiece(std::span<const std::byte> bytes, std::string_view where);
TokenizerSpec sentencepiece_spec(const SentencePieceModel& model, std::string_view where);
NormalStep normal_step(const SentencePieceModel& model);
Tokenizer::Role role_of(int type);  // 1 to 6, as in SentencePiece and GGUF

// The older files, by their texts (for tests and fuzzing; tokenizer_from_folder reads the files).
std::shared_ptr<const Tokenizer> tokenizer_from_bpe_files(std::string_view vocab_json,
                                                          std::string_view merges_txt, const Json& config,
                                                          std::string_view where);
std::shared_ptr<const Tokenizer> tokenizer_from_vocab_txt(std::string_view vocab_txt, const Json& config,
                                                          std::string_view where);
std::shared_ptr<const Tokenizer> tokenizer_from_marian(std::span<const std::byte> source,
                                                       std::string_view vocab_json, const Json& config,
                                                       std::string_view where);

}  // namespace rapt
