// SPDX-License-Identifier: Apache-2.0
// Letters are shown at once. A word that passes the edge is erased by escapes and written in the next row.
#include "rapt/apps/cli/word_wrap.h"

#include <algorithm>

#include "rapt/base/text_width.h"

namespace rapt::cli {

std::string WordWrap::add(std::string_view text, Dim width) {
  const Dim most = std::max<Dim>(2, width - 1);  // in a full row the cursor's place is uncertain
  // The window became narrower, and the terminal wrapped the row.
  if (column_ > most) column_ %= std::max<Dim>(1, width);
  std::string out;
  auto end_word = [&] { word_.clear(), word_width_ = 0; };
  auto new_row = [&] {
    out += '\n';
    column_ = 0;
  };
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = read_utf8(text, i);
    std::string_view shown = text.substr(i, c.length);
    i += c.length;
    if (c.code == '\n') {
      end_word();
      new_row();
    } else if (c.code == ' ' || c.code == '\t') {
      end_word();
      // None at the edge.
      for (int n = c.code == '\t' ? 4 : 1; n > 0 && column_ < most; --n) out += ' ', ++column_;
    } else if (c.code >= 0x20 && !(c.code >= 0x7F && c.code < 0xA0)) {
      if (!c.valid) shown = "\xEF\xBF\xBD";
      const Dim w = char_width(c.code);
      if (!word_.empty() && breaks_between(last_, c.code)) end_word();
      if (column_ + w > most) {
        const bool moves = word_width_ < column_ && word_width_ + w <= most;
        if (!moves) end_word();
        if (word_width_ > 0) out += concat("\033[", word_width_, "D\033[K");
        new_row();
        out += word_;
        column_ = word_width_;
      }
      out += shown;
      word_ += shown;
      column_ += w, word_width_ += w;
      if (w > 0) last_ = c.code;
    }
  }
  return out;
}

}  // namespace rapt::cli
