// SPDX-License-Identifier: Apache-2.0
// The four algorithms that turn one piece of text into ids.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "rapt/text/tokenizer/spec.h"

namespace rapt {

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  virtual void encode(std::string_view piece, std::vector<std::int32_t>& out) const = 0;
};

// Ids by text: views of TokenizerSpec::tokens, in the order they came, found through an open table of hashes
// and places. Three look-ups for each of 150,000 merges are most of what opening a tokenizer takes;
// std::unordered_map needs twice as long.
class TokenIds {
 public:
  struct Entry {
    std::string_view first;
    std::int32_t second;
  };
  using const_iterator = const Entry*;  // until the next text comes in

  const_iterator end() const { return nullptr; }
  const_iterator find(std::string_view text) const {
    if (slots_.empty()) return end();
    const Slot& s = slots_[slot_of(text, hash(text))];
    return s.place == 0 ? end() : &entries_[s.place - 1];
  }
  std::int32_t at(std::string_view text) const;  // fails where it is absent
  // False: the text was there, with the id that it keeps.
  std::pair<const_iterator, bool> emplace(std::string_view text, std::int32_t id) {
    const auto [entry, fresh] = add(text, id);
    return {entry, fresh};
  }
  void insert_or_assign(std::string_view text, std::int32_t id) { add(text, id).first->second = id; }
  void reserve(std::size_t count);

 private:
  struct Slot {
    std::uint32_t hash = 0, place = 0;  // of its entry, from 1; 0: empty
  };
  static std::uint32_t hash(std::string_view text);
  // Its slot, or the empty one where it belongs.
  std::size_t slot_of(std::string_view text, std::uint32_t h) const {
    std::size_t i = h & (slots_.size() - 1);
    while (slots_[i].place != 0 && (slots_[i].hash != h || entries_[slots_[i].place - 1].first != text))
      i = (i + 1) & (slots_.size() - 1);
    return i;
  }
  std::pair<Entry*, bool> add(std::string_view text, std::int32_t id);

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::vector<Entry> entries_;
};

std::unique_ptr<PieceModel> make_bpe(const TokenizerSpec& spec, const TokenIds& ids);
std::unique_ptr<PieceModel> make_spm(const TokenizerSpec& spec, const TokenIds& ids);
std::unique_ptr<PieceModel> make_unigram(const TokenizerSpec& spec, const TokenIds& ids);
std::unique_ptr<PieceModel> make_wordpiece(const TokenizerSpec& spec, const TokenIds& ids);

// GPT-2's printable stand-ins of bytes: 33-126, 161-172 and 174-255 are themselves, the others U+0100 and up
// in their order.
std::uint32_t byte_to_printable(std::uint8_t byte);
int printable_to_byte(std::uint32_t code);  // -1: none
std::string byte_token(std::uint8_t byte);  // "<0x0A>"
int byte_of_token(std::string_view text);  // -1: not of that form

// The 256 byte tokens of a vocabulary with byte fallback: ids, -1 where absent.
std::vector<std::int32_t> byte_ids(const TokenizerSpec& spec, const TokenIds& ids);

}  // namespace rapt
