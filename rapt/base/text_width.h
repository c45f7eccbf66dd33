// SPDX-License-Identifier: Apache-2.0
// How many columns a terminal gives to a text: two for wide characters (CJK, emoji), none for marks that
// stand on others. Cutting and folding by columns. Controls count as one column: whoever prints them has
// made them visible before.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

struct Utf8Char {
  std::uint32_t code = 0;  // U+FFFD for a byte that starts no valid character
  std::uint32_t length = 0;
  bool valid = true;
};
Utf8Char read_utf8(std::string_view text, std::size_t at);  // `at` is inside the text

int char_width(std::uint32_t code);  // 0, 1 or 2
Dim text_width(std::string_view text);
// At most `most` columns; where something was cut the last is "…".
std::string cut_text(std::string_view text, Dim most);
// May a line end between these two, without a space? Beside wide characters it may, but not before their
// closing punctuation.
bool breaks_between(std::uint32_t before, std::uint32_t after);
// One line as several of at most `width` columns, broken at spaces, which vanish there and stay elsewhere; a
// longer word is cut.
std::vector<std::string> fold_text(std::string_view text, Dim width);

}  // namespace rapt
