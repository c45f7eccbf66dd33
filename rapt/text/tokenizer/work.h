// SPDX-License-Identifier: Apache-2.0
// What encoding a text may cost. The text and the vocabulary may both come from somebody who means harm, so
// every step that a file chooses pays here, and time and memory stay linear in the text whatever the
// file says.
#pragma once
#include <cstddef>
#include <string_view>

#include "rapt/base/error.h"

namespace rapt {

// Of one call of encode(). Released vocabularies need less than a tenth of each.
class EncodeWork {
 public:
  EncodeWork(std::size_t text_bytes, std::string_view where)
      : EncodeWork(8 * text_bytes + (std::size_t{1} << 20), 32 * text_bytes + (std::size_t{4} << 20), where) {
  }
  EncodeWork(std::size_t most, std::size_t steps, std::string_view where)
      : most_(most), left_(steps), where_(where) {}

  // A text inside that has grown to this size.
  void check_size(std::size_t bytes) const {
    if (bytes > most_) {
      fail(where_, ": the tokenizer's own steps make more than ", most_,
           " bytes of the text, eight times as much as it has and a mebibyte; ",
           "no released vocabulary does (is the file damaged?)");
    }
  }
  // A step that reads this many bytes.
  void pay(std::size_t bytes) {
    if (bytes + 1 > left_)
      fail(where_,
           ": the tokenizer has so many steps before its vocabulary that the text "
           "would be read over 32 times");
    left_ -= bytes + 1;
  }

 private:
  std::size_t most_, left_;
  std::string_view where_;
};

// Bytes walked in a trie on the way through one piece of text: what a token of n bytes costs is up to n for
// every byte. No walk of up to 256 bytes, and none in a piece of up to 512, ever ends here.
class WalkWork {
 public:
  WalkWork(std::size_t piece_bytes, std::string_view where)
      : left_(256 * piece_bytes + (std::size_t{1} << 17)), where_(where) {}
  void pay(std::size_t bytes) {
    if (bytes > left_) {
      fail(where_,
           ": the vocabulary has tokens so long and alike that this text would be read more than 256 times; ",
           "no released vocabulary has (is the file damaged?)");
    }
    left_ -= bytes;
  }

 private:
  std::size_t left_;
  std::string_view where_;
};

}  // namespace rapt
