// SPDX-License-Identifier: Apache-2.0
// A text that comes in pieces, for a terminal: a word that does not fit the row moves to the next one whole,
// also where its first letters stand there already.
#pragma once
#include <string>
#include <string_view>

#include "rapt/base/error.h"

namespace rapt::cli {

class WordWrap {
 public:
  // What to print for this piece on a terminal of `width` columns. Nothing in it moves the cursor but what
  // is meant to.
  std::string add(std::string_view text, Dim width);

 private:
  Dim column_ = 0, word_width_ = 0;
  std::string word_;         // the unbroken end of the row
  std::uint32_t last_ = 0;   // its last character
};

}  // namespace rapt::cli
