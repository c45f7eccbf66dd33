// SPDX-License-Identifier: Apache-2.0
// Merges learned from counted words. The files around them: train.h.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

// Pieces of texts (as GPT-2 splits them) and how often each was seen.
class WordCounts {
 public:
  // A text of any size: it is split part by part, where parts give the pieces of the whole.
  void add(std::string_view text);
  // In the order of their first occurrence.
  const std::vector<std::pair<std::string, std::int64_t>>& words() const { return words_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> places_;
  std::vector<std::pair<std::string, std::int64_t>> words_;
};

// Where a text may be cut at or before `most` so that GPT-2's splitting gives the same pieces: behind a
// single line end with ASCII letters, digits or signs on both sides. text.size() where it fits or no such
// place is there.
std::size_t cut_for_gpt2(std::string_view text, std::size_t most);

// Byte pair encoding over `words` (bytes). `tokens` holds the special tokens and then the 256 byte tokens at
// byte_ids; it grows up to `size`. Returns pairs of token ids by rank.
std::vector<std::pair<std::int32_t, std::int32_t>> learn_merges(
    const WordCounts& words, std::vector<std::string>& tokens, const std::vector<std::int32_t>& byte_ids,
    Dim size, Dim least, const std::function<void(Dim done, Dim of)>& progress);

}  // namespace rapt
