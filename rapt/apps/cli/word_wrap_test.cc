// SPDX-License-Identifier: Apache-2.0
// Texts in pieces of several sizes on an emulated screen: its rows against those expected, for every size.
#include "rapt/apps/cli/word_wrap.h"

#include <gtest/gtest.h>

#include "tests/screen.h"

namespace rapt::test {
namespace {

using Rows = std::vector<std::string>;

// The rows of a screen after a text that came in pieces of `step` bytes.
Rows wrapped(std::string_view text, int width, std::size_t step) {
  Screen screen(width, 50);
  cli::WordWrap wrap;
  std::string piece;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = read_utf8(text, i);  // pieces are whole characters
    piece += text.substr(i, c.length);
    i += c.length;
    if (piece.size() < step && i < text.size()) continue;
    std::string out = wrap.add(piece, width);
    for (std::size_t at = 0; (at = out.find('\n', at)) != std::string::npos; at += 2)
      out.replace(at, 1, "\r\n");
    screen.feed(out);
    piece.clear();
  }
  return screen.rows();
}

TEST(WordWrap, WordsMoveToTheNextRowWhole) {
  for (const std::size_t step : {1, 2, 3, 7, 100}) {
    EXPECT_EQ(wrapped("Attention lets every word look at all others.", 20, step),
              (Rows{"Attention lets", "every word look at", "all others."}))
        << step;
    EXPECT_EQ(wrapped("one\n\n  two three four", 10, step), (Rows{"one", "", "  two", "three", "four"}))
        << step;
    EXPECT_EQ(wrapped("abcdefghijklmnopqrst uv", 10, step), (Rows{"abcdefghi", "jklmnopqr", "st uv"}))
        << step;  // longer than a row
    // The space at the edge vanishes.
    EXPECT_EQ(wrapped("123456789 x", 10, step), (Rows{"123456789", "x"})) << step;
  }
}

TEST(WordWrap, WideCharactersBreakAnywhereButBeforeTheirPunctuation) {
  for (const std::size_t step : {1, 4, 100}) {
    EXPECT_EQ(wrapped("注意力机制很重要", 10, step), (Rows{"注意力机", "制很重要"})) << step;
    EXPECT_EQ(wrapped("注意力机，制很", 10, step), (Rows{"注意力", "机，制很"})) << step;
    EXPECT_EQ(wrapped("the 变压器 model", 10, step), (Rows{"the 变压", "器 model"})) << step;
  }
}

TEST(WordWrap, NothingElseMovesTheCursor) {
  cli::WordWrap wrap;
  EXPECT_EQ(wrap.add("a\033[2J\a\rb\tc\xFF", 80), "a[2Jb    c\xEF\xBF\xBD");
}

}  // namespace
}  // namespace rapt::test
