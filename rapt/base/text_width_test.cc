// SPDX-License-Identifier: Apache-2.0
// Widths, cuts and folds of mixed scripts, compared with ones counted by hand; the width of a pipe.
#include "rapt/base/text_width.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "rapt/base/terminal.h"

namespace rapt {
namespace {

using Lines = std::vector<std::string>;

TEST(TextWidth, CharactersTakeNoneOneOrTwoColumns) {
  EXPECT_EQ(text_width("plain"), 5);
  EXPECT_EQ(text_width("häß─█⣿→"), 7);
  EXPECT_EQ(text_width("中文，ｱ한"), 2 + 2 + 2 + 1 + 2);
  EXPECT_EQ(text_width("e\xCC\x81\xE2\x80\x8D"), 1);        // an accent, a joiner
  EXPECT_EQ(text_width("\xF0\x9F\x98\x80\xF0\x9F\xAB\xA8"), 4);  // emoji of 2010 and of Unicode 15
  EXPECT_EQ(text_width("\xFF\xC3"), 2);                      // broken bytes are shown as something
  EXPECT_EQ(char_width(0x4DBF), 2);
  EXPECT_EQ(char_width(0x4DC0), 1);  // hexagrams
  EXPECT_EQ(char_width(0x3FFFD), 2);
  EXPECT_EQ(char_width(0x10FFFF), 1);
}

TEST(TextWidth, ReadsUtf8Strictly) {
  EXPECT_EQ(read_utf8("\xF0\x9F\x98\x80", 0).code, 0x1F600u);
  for (const char* bad : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xE4\xB8"}) {
    EXPECT_FALSE(read_utf8(bad, 0).valid) << bad;
    EXPECT_EQ(read_utf8(bad, 0).length, 1u);
  }
}

TEST(TextWidth, CutsByColumns) {
  EXPECT_EQ(cut_text("abcdef", 6), "abcdef");
  EXPECT_EQ(cut_text("abcdef", 5), "abcd…");
  EXPECT_EQ(cut_text("中文字", 5), "中文…");
  EXPECT_EQ(cut_text("中文字", 4), "中…");
  EXPECT_EQ(cut_text("abc", 0), "");
}

TEST(TextWidth, FoldsAtSpaces) {
  EXPECT_EQ(fold_text("one two three", 8), (Lines{"one two", "three"}));
  EXPECT_EQ(fold_text("  a  b   c", 7), (Lines{"  a  b", "c"}));
  EXPECT_EQ(fold_text("abcdefghij k", 4), (Lines{"abcd", "efgh", "ij k"}));
  EXPECT_EQ(fold_text("", 9), Lines{""});
  // 制 takes its comma along
  EXPECT_EQ(fold_text("注意力机制，是什么", 10), (Lines{"注意力机", "制，是什么"}));
  EXPECT_EQ(fold_text("GPT是模型 ok", 6), (Lines{"GPT是", "模型", "ok"}));
}

TEST(Terminal, PipesHaveAWidthOfTheirOwn) {
  const char* before = std::getenv("COLUMNS");
  const std::string kept = before ? before : "";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ::unsetenv("COLUMNS");
  EXPECT_EQ(print_columns(ends[1]), kPipeColumns);
  EXPECT_EQ(terminal_size(ends[1]).columns, 80);
  ::setenv("COLUMNS", "57", 1);
  EXPECT_EQ(print_columns(ends[1]), 57);
  EXPECT_EQ(terminal_size(ends[1]).columns, 57);
  ::setenv("COLUMNS", "none", 1);
  EXPECT_EQ(print_columns(ends[1]), kPipeColumns);
  EXPECT_FALSE(has_escapes(ends[1]));
  if (before) ::setenv("COLUMNS", kept.c_str(), 1);
  else ::unsetenv("COLUMNS");
  ::close(ends[0]), ::close(ends[1]);
}

}  // namespace
}  // namespace rapt
