// SPDX-License-Identifier: Apache-2.0
// Conversations as people have them: `rapt run MODEL` on a terminal. The model is the one that comes with
// the program; it has no chat template and continues texts.
#include <iterator>
#include <sstream>

#include "tests/build_kind.h"
#include "tests/cli.h"
#include "tests/screen.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

class CliChat : public Cli {
 protected:
  std::function<void()> chat(const std::string& flags) const {
    return [command = program + " run '" + kBuildFolder + "/default.gguf' --temp 0 " + flags] {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    };
  }
};

int count_of(const std::string& text, std::string_view words) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size()) ++n;
  return n;
}

TEST_F(CliChat, SaysWhatItDoes) {
  OnTerminal t(80, 60, chat("-n 8"));
  ASSERT_TRUE(t.shows("default, ")) << t.screen.text();
  ASSERT_TRUE(t.shows("parameters, context of 256 tokens"));
  ASSERT_TRUE(t.shows("\n>>>"));
  t.type("\x03");
  EXPECT_TRUE(t.shows("(Ctrl-D or /bye leaves)"));
  t.type("/set temp 0.25\r");
  EXPECT_TRUE(t.shows("(temp: 0 → 0.25)"));
  t.type("/set ctx-size 64\r");
  EXPECT_TRUE(t.shows("(ctx-size: 256 → 64)"));
  t.type("/regen\r");
  EXPECT_TRUE(t.shows("there is no answer yet"));
  t.type("/nonsense\r");
  EXPECT_TRUE(t.shows("unknown command '/nonsense'"));
  t.type("ROMEO:\r");
  EXPECT_TRUE(t.shows("(8 tokens")) << t.screen.text();
  t.type("/undo\r");
  EXPECT_TRUE(t.shows("are forgotten)"));
  t.type("/clear\r");
  EXPECT_TRUE(t.shows("(the conversation is forgotten)"));
  t.type("/bye\r");
  EXPECT_TRUE(t.ends());
}

TEST_F(CliChat, AFullContextDropsTheOldestAndGoesOn) {
  OnTerminal t(80, 200, chat("-c 64 -n 24"));
  ASSERT_TRUE(t.shows("\n>>>"));
  for (int turn = 1; turn <= 5; ++turn) {
    t.type("KING HENRY:\r");
    ASSERT_TRUE(t.until([&] { return count_of(t.screen.text(), "(24 tokens") == turn; })) << t.screen.text();
  }
  EXPECT_GE(count_of(t.screen.text(), "(the context of 64 tokens is full: the oldest"), 1) << t.screen.text();
  EXPECT_EQ(count_of(t.screen.text(), "error"), 0) << t.screen.text();
}

TEST_F(CliChat, AnswersKeepTheirWordsWhole) {
  OnTerminal t(30, 200, chat("-n 60"));
  ASSERT_TRUE(t.shows("\n>>>"));
  t.type("KING HENRY:\r");
  ASSERT_TRUE(t.shows("(60 tokens")) << t.screen.text();
  const auto words = [](const std::string& text) {
    std::istringstream in(text);
    return std::vector<std::string>(std::istream_iterator<std::string>(in), {});
  };
  const std::string text = t.screen.text();
  const std::size_t begin = text.find(">>> KING HENRY:\n") + 16;
  const Outcome plain = run("run '" + kBuildFolder + "/default.gguf' --temp 0 -n 60 -q 'KING HENRY:'");
  EXPECT_EQ(words(text.substr(begin, text.find("(60 tokens") - begin)), words(plain.out)) << text;
  for (const std::string& row : t.screen.rows()) EXPECT_LE(text_width(row), 30) << row;
  // A folder that is not there: an error, and the chat goes on.
  t.type("/save " + std::string(testing::TempDir()) + "x/\r");
  EXPECT_TRUE(t.shows("error:"));
  t.type("/bye\r");
  EXPECT_TRUE(t.ends());
}

}  // namespace
}  // namespace rapt::test
