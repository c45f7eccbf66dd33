// SPDX-License-Identifier: Apache-2.0
// Keys typed at a pseudo-terminal: rows of its screen and the text that comes out, against those expected.
#include "rapt/apps/cli/line_editor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>

#include "tests/screen.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

// Reads texts until the end and says what it got; lines of one text are told apart by |.
void echo() {
  cli::LineEditor editor;
  while (const auto text = editor.read(">>> ")) {
    std::string shown = *text;
    std::replace(shown.begin(), shown.end(), '\n', '|');
    std::printf("%s <%s>\n", editor.interrupted() ? "stopped" : "got", shown.c_str());
    std::fflush(stdout);
  }
  std::printf("the end\n");
}

// What one text becomes after these keys.
std::string typed(const std::string& keys, int width = 200) {
  OnTerminal t(width, 24, echo);
  if (!t.shows(">>>")) return "no prompt";
  t.type(keys + "\r");
  if (!t.shows("got <")) return t.screen.text();
  if (!t.shows(">\n>>>")) return t.screen.text();
  const std::string text = t.screen.text();
  const std::size_t from = text.find("got <") + 5;
  return text.substr(from, text.find(">\n>>>", from) - from);
}

std::string repeated(std::string_view what, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += what;
  return out;
}

TEST(LineEditor, ALongLineTakesSeveralRowsAndIsDrawnOnce) {
  OnTerminal t(80, 24, echo);
  ASSERT_TRUE(t.shows(">>>"));
  std::string line;
  for (int i = 0; i < 100; ++i) line += std::to_string(100 + i);  // 300 characters
  for (char c : line) t.type({&c, 1});
  ASSERT_TRUE(t.shows("199"));
  const std::vector<std::string> want = {">>> " + line.substr(0, 76), line.substr(76, 80),
                                         line.substr(156, 80), line.substr(236)};
  EXPECT_EQ(t.screen.rows(), want);
  EXPECT_EQ(t.screen.row(), 3);
  EXPECT_EQ(t.screen.column(), 64);
  t.type("\x01X");  // Ctrl-A, then a letter before everything
  ASSERT_TRUE(t.shows(">>> X100"));
  ASSERT_TRUE(t.until([&] { return t.screen.rows().back() == line.substr(235); }));
  EXPECT_EQ(t.screen.rows().size(), 4u);
  t.type("\r");
  ASSERT_TRUE(t.shows("got <X100"));
  EXPECT_EQ(t.screen.rows()[4].substr(0, 9), "got <X100");
}

TEST(LineEditor, ALineThatFillsItsRowHasACursorBelow) {
  OnTerminal t(20, 10, echo);
  ASSERT_TRUE(t.shows(">>>"));
  t.type(std::string(16, 'x'));
  ASSERT_TRUE(t.until([&] { return t.screen.row() == 1; }));
  EXPECT_EQ(t.screen.column(), 0);
  t.type("\x7f");  // back to one row
  ASSERT_TRUE(t.until([&] {
    return t.screen.rows() == std::vector<std::string>{">>> " + std::string(15, 'x')} && t.screen.row() == 0;
  }));
  EXPECT_EQ(t.screen.column(), 19);
}

TEST(LineEditor, WideCharactersWrapWholeAndTheCursorKnows) {
  OnTerminal t(21, 10, echo);  // 17 columns behind the prompt: eight characters and one column left over
  ASSERT_TRUE(t.shows(">>>"));
  t.type(repeated("中", 12));
  ASSERT_TRUE(t.until([&] { return t.screen.rows().size() == 2 && t.screen.column() == 8; }));
  EXPECT_EQ(t.screen.rows(), (std::vector<std::string>{">>> " + repeated("中", 8), repeated("中", 4)}));
  t.type("\033[D\033[D\033[D\033[D\033[D");  // five to the left: before the eighth
  ASSERT_TRUE(t.until([&] { return t.screen.row() == 0 && t.screen.column() == 4 + 14; }));
  t.type("文\r");
  ASSERT_TRUE(t.shows("got <"));
  EXPECT_TRUE(t.until([&] {
    std::string all;
    for (const std::string& r : t.screen.rows()) all += r;
    return all.find("got <" + repeated("中", 7) + "文" + repeated("中", 5) + ">") != std::string::npos;
  })) << t.screen.text();
}

TEST(LineEditor, APasteOfThreeLinesIsOneText) {
  OnTerminal t(60, 24, echo);
  ASSERT_TRUE(t.shows(">>>"));
  t.type("see \033[200~int f() {\r\n\treturn 1;\r}\033[201~");
  ASSERT_TRUE(t.shows("... }"));
  EXPECT_EQ(t.screen.rows(), (std::vector<std::string>{">>> see int f() {", "...     return 1;", "... }"}));
  t.type("\033[A\x05 // 一\r");  // up a line, to its end: it can still be edited
  EXPECT_TRUE(t.shows("got <see int f() {|")) << t.screen.text();
  EXPECT_TRUE(t.shows("return 1; // 一|}>")) << t.screen.text();
}

TEST(LineEditor, AnotherWidthDrawsTheTextAnew) {
  OnTerminal t(80, 24, echo);
  ASSERT_TRUE(t.shows(">>>"));
  const std::string line = repeated("0123456789", 12) + "end";
  t.type(line);
  ASSERT_TRUE(t.shows("end"));
  t.resize(50, 24);
  t.type("!");
  ASSERT_TRUE(t.shows("end!"));
  EXPECT_EQ(t.screen.rows(), (std::vector<std::string>{">>> " + line.substr(0, 46), line.substr(46, 50),
                                                       line.substr(96) + "!"}));
  t.resize(100, 24);
  t.type("?");
  ASSERT_TRUE(t.shows("end!?"));
  EXPECT_EQ(t.screen.rows(), (std::vector<std::string>{">>> " + line.substr(0, 96), line.substr(96) + "!?"}));
}

TEST(LineEditor, KeysOfAllEncodings) {
  EXPECT_EQ(typed("one two three\033[1;5D\033[1;5DX"), "one Xtwo three");    // Ctrl-Left
  EXPECT_EQ(typed("one two three\x01\033[1;5CX"), "oneX two three");         // Ctrl-Right
  EXPECT_EQ(typed("one two\033bX\033fY"), "one XtwoY");                      // Alt-b, Alt-f
  // Alt-Left, older forms of Ctrl-Left
  EXPECT_EQ(typed("one two\033[1;3DX\033[5DY\033OdZ"), "one ZYXtwo");
  EXPECT_EQ(typed("one two\x01\033dX"), "X two");                            // Alt-d
  EXPECT_EQ(typed("one two\x17X\x19Y"), "one XtwoY");                        // Ctrl-W, Ctrl-Y
  EXPECT_EQ(typed("one two\033\x7fX"), "one X");                             // Alt-Backspace
  EXPECT_EQ(typed("one two\x15X"), "X");                                     // Ctrl-U
  EXPECT_EQ(typed("one two\033[D\033OD\x0bX"), "one tX");                    // two forms of Left, Ctrl-K
  for (const char* home : {"\033[H", "\033OH", "\033[1~", "\033[7~", "\x01"})
    for (const char* end : {"\033[F", "\033OF", "\033[4~", "\033[8~", "\x05"})
      if (end[1] == home[1] || end[0] == '\x05')
        EXPECT_EQ(typed(concat("bc", home, "a", end, "d")), "abcd") << home + 1 << " " << end + 1;
  EXPECT_EQ(typed("abc\x01\033[3~"), "bc");                                  // Delete
  EXPECT_EQ(typed("ab cd\x01\033[3;5~"), " cd");                             // Ctrl-Delete
  EXPECT_EQ(typed("e\xCC\x81x\033[D\x7f"), "x");                             // a letter goes with its mark
  EXPECT_EQ(typed("我们 学习\x17好"), "我们 学好");  // a wide character is a word
  EXPECT_EQ(typed("a\033\rb"), "a|b");                                          // Alt-Enter
  EXPECT_EQ(typed("a\033[99~\033[?1;2c\033[1;2;3xb"), "ab");                    // keys nobody knows
}

TEST(LineEditor, EscapeAloneEatsNothing) {
  OnTerminal t(80, 24, echo);
  ASSERT_TRUE(t.shows(">>>"));
  t.type("a\033");
  ASSERT_TRUE(t.shows(">>> a"));
  ::usleep(200000);  // longer than the bytes of one key may take
  t.type("bc\r");
  EXPECT_TRUE(t.shows("got <abc>")) << t.screen.text();
}

TEST(LineEditor, HistoryAndSearch) {
  OnTerminal t(80, 40, echo);
  // Keys typed before the editor reads are the terminal's, to which Ctrl-R means something else.
  const auto ready = [&] {
    return t.until([&] { return !t.screen.rows().empty() && t.screen.rows().back() == ">>>"; });
  };
  for (const char* line : {"first one", "second two", "third three"}) {
    ASSERT_TRUE(ready());
    t.type(std::string(line) + "\r");
    ASSERT_TRUE(t.shows(std::string("got <") + line + ">"));
  }
  ASSERT_TRUE(ready());
  t.type("draft\033[A\033[A\033[B\033[B!\r");
  EXPECT_TRUE(t.shows("got <draft!>")) << t.screen.text();
  ASSERT_TRUE(ready());
  t.type(
      "\x12"
      "t");
  EXPECT_TRUE(t.shows("(search: t) draft!")) << t.screen.text();
  t.type("w");
  EXPECT_TRUE(t.shows("(search: tw) second two")) << t.screen.text();
  t.type("\x05 more\r");  // any other key goes on with what was found
  EXPECT_TRUE(t.shows("got <second two more>")) << t.screen.text();
  ASSERT_TRUE(ready());
  t.type(
      "x\x12"
      "first\x07\r");  // Ctrl-G: as it was
  EXPECT_TRUE(t.shows("got <x>")) << t.screen.text();
  ASSERT_TRUE(ready());
  t.type("gone\x03");
  EXPECT_TRUE(t.shows("stopped <>")) << t.screen.text();
  ASSERT_TRUE(ready());
  t.type("\x04");
  EXPECT_TRUE(t.shows("the end"));
}

TEST(LineEditor, ATextLongerThanTheScreenShowsItsPart) {
  OnTerminal t(30, 5, echo);
  ASSERT_TRUE(t.shows(">>>"));
  t.type("\033[200~l1\nl2\nl3\nl4\nl5\nl6\nl7\nl8\nl9\033[201~");
  ASSERT_TRUE(t.shows("l9"));
  const std::vector<std::string> rows = t.screen.rows();
  EXPECT_EQ(std::vector(rows.end() - 5, rows.end()),
            (std::vector<std::string>{"... l5", "... l6", "... l7", "... l8", "... l9"}));
  t.type("x\r");
  EXPECT_TRUE(t.shows("9x>")) << t.screen.text();
}

TEST(History, StaysInAPrivateBoundedFile) {
  const TempFolder folder;
  const std::string path = folder / "state/rapt/history";
  {
    cli::History h(path);
    h.add("one\ntwo \\n three");
    h.add("one\ntwo \\n three");
    h.add("  ");
    h.add("你好");
  }
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(cli::History(path).all(), (std::vector<std::string>{"one\ntwo \\n three", "你好"}));
  std::string many;
  for (int i = 0; i < 1500; ++i) many += concat(i, "\n");
  put_file(path, many);
  EXPECT_EQ(cli::History(path).all().size(), cli::History::kMost);
  EXPECT_EQ(cli::History(path).all().back(), "1499");
  EXPECT_EQ(std::ranges::count(read_text_file(path), '\n'), 1000);
  cli::History nowhere("/proc/no/such/place");
  nowhere.add("kept for this session");
  EXPECT_EQ(nowhere.all().size(), 1u);
}

}  // namespace
}  // namespace rapt::test
