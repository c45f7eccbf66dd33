// SPDX-License-Identifier: Apache-2.0
// The changes a text goes through before it is split.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/text/tokenizer/spec.h"
#include "rapt/text/tokenizer/work.h"

namespace rapt {

// SentencePiece's compiled normalisation: a double-array trie from character sequences to their replacement.
//   blob  = size:u32 trie replacements  size: bytes of the trie, a multiple of 4
//   trie  = unit:u32*                   bits 0-7 and 31 label, 8 has a leaf, 9 and 10-30 offset; a leaf unit
//                                       holds a place in:
//   replacements = (text 00)*
// Every step is checked against the array, so a broken table ends a match and touches nothing else.
class Charsmap {
 public:
  Charsmap() = default;
  Charsmap(std::string blob, std::string_view where);
  bool empty() const { return trie_.empty(); }
  // Length of the longest (or shortest) prefix of `text` with a replacement; 0: none. A table may lead in
  // a circle: after kLongest bytes a match ends.
  static constexpr std::size_t kLongest = 256;
  std::size_t match(std::string_view text, bool longest, std::string_view& replacement) const;

 private:
  std::vector<std::uint32_t> trie_;
  std::string replacements_;
};

// Longest user-defined token at the begin of a text, or 0: it passes SentencePiece's normaliser untouched.
using PrefixMatcher = std::function<std::size_t(std::string_view)>;

class Normalizer {
 public:
  Normalizer(const std::vector<NormalStep>& steps, std::string_view where);
  bool empty() const { return steps_.empty(); }
  std::string apply(std::string text, const PrefixMatcher& user_defined, EncodeWork& work) const;

 private:
  std::vector<NormalStep> steps_;
  std::vector<Charsmap> maps_;  // one per step
};

}  // namespace rapt
