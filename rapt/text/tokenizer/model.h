// SPDX-License-Identifier: Apache-2.0
// The four algorithms that turn one piece of text into ids.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rapt/text/tokenizer/spec.h"

namespace rapt {

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  virtual void encode(std::string_view piece, std::vector<std::int32_t>& out) const = 0;
};

using TokenIds = std::unordered_map<std::string_view, std::int32_t>;  // views of TokenizerSpec::tokens

std::unique_ptr<PieceModel> make_bpe(const TokenizerSpec& spec, const TokenIds& ids);
std::unique_ptr<PieceModel> make_spm(const TokenizerSpec& spec, const TokenIds& ids);
std::unique_ptr<PieceModel> make_unigram(const TokenizerSpec& spec, const TokenIds& ids);
std::unique_ptr<PieceModel> make_wordpiece(const TokenizerSpec& spec, const TokenIds& ids);

// GPT-2's printable stand-ins of bytes: 33-126, 161-172 and 174-255 are themselves, the others U+0100 and up in their order.
std::uint32_t byte_to_printable(std::uint8_t byte);
int printable_to_byte(std::uint32_t code);  // -1: none
std::string byte_token(std::uint8_t byte);  // "<0x0A>"
int byte_of_token(std::string_view text);   // -1: not of that form

// The 256 byte tokens of a vocabulary with byte fallback: ids, -1 where absent.
std::vector<std::int32_t> byte_ids(const TokenizerSpec& spec, const TokenIds& ids);

}  // namespace rapt
