// SPDX-License-Identifier: Apache-2.0
// What panels leave on screens of several widths: each part once, no row too wide, nothing after the end.
#include "rapt/apps/cli/train_view.h"

#include <gtest/gtest.h>

#include "tests/screen.h"

namespace rapt::test {
namespace {

// A run of four steps with eight layers, drawn after each of them, and its last words.
void panels() {
  cli::TrainView view(4, false);
  view.sample(
      "ROMEO:\n"
      "What light 中文字符中文字符中文字符中文字符中文字符中文字符中文字符中文字符中文字符 through "
      "yonder window");
  for (int i = 1; i <= 4; ++i) {
    StepReport r{.step = i, .loss = 4.0 - i, .norm = 0.5, .rate = 1e-3, .tokens = 1000, .seconds = 0.01};
    for (int l = 0; l < 8; ++l)
      r.health.push_back({.layer = l, .sink = 0.1, .entropy = 2.5, .max_logit = 3, .massive = 40});
    view.step(r);
    view.judged(i, {.loss = 3.5, .accuracy = 0.25, .counted = 100});  // draws at once
  }
  if (!getenv("STAY")) view.say("all done");
  else view.sample("stays"), std::fputs("waiting\n", stderr), ::pause();
}

int count_of(const std::vector<std::string>& rows, std::string_view words) {
  return static_cast<int>(
      std::ranges::count_if(rows, [&](const std::string& r) { return r.find(words) != r.npos; }));
}

TEST(TrainView, APanelIsRedrawnInItsPlaceAtAnyWidth) {
  for (const int width : {200, 80, 40, 20}) {
    OnTerminal t(width, 30, [] { setenv("STAY", "1", 1), panels(); });
    ASSERT_TRUE(t.shows("waiting")) << width;
    const std::vector<std::string> rows = t.screen.rows();
    EXPECT_EQ(count_of(rows, "loss"), 1) << width << "\n" << t.screen.text();
    EXPECT_EQ(count_of(rows, "ROMEO"), 1) << t.screen.text();
    EXPECT_EQ(count_of(rows, "sink"), 1) << t.screen.text();
    EXPECT_EQ(count_of(rows, "step 4"), 1) << t.screen.text();
    EXPECT_EQ(rows[0].substr(0, 3), "  [") << t.screen.text();
    for (const std::string& r : rows) EXPECT_LT(text_width(r), width) << r;
  }
}

TEST(TrainView, NothingIsLeftOfAPanel) {
  for (const int width : {80, 40}) {
    OnTerminal t(width, 30, panels);
    ASSERT_TRUE(t.shows("all done"));
    EXPECT_EQ(t.screen.rows(), std::vector<std::string>{"all done"});
  }
}

}  // namespace
}  // namespace rapt::test
