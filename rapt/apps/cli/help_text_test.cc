// SPDX-License-Identifier: Apache-2.0
// Help laid out wide and narrow, compared with the expected lines. Progress lines must fit their width.
#include "rapt/apps/cli/help_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "rapt/apps/cli/verb.h"
#include "rapt/base/text_width.h"

namespace rapt::cli {
namespace {

constexpr const char* kText =
    "Usage: rapt thing MODEL [--one N] [--another TEXT]\n"
    "       rapt thing --all\n"
    "\n"
    "A paragraph that was written in lines of some\n"
    "width and is filled anew.\n"
    "\n"
    "  --one N        what it means, in more words than a narrow line can\n"
    "                 hold (7)\n"
    "  --two   --three N   --four\n"
    "\n"
    "Examples:\n"
    "  rapt thing model.gguf --one 3 --another 'some words' --two \\\n"
    "      --four\n";

TEST(HelpText, IsFilledToTheWidth) {
  EXPECT_EQ(folded_help(kText, 72),
            "Usage: rapt thing MODEL [--one N] [--another TEXT]\n"
            "       rapt thing --all\n"
            "\n"
            "A paragraph that was written in lines of some width and is filled anew.\n"
            "\n"
            "  --one N        what it means, in more words than a narrow line can\n"
            "                 hold (7)\n"
            "  --two   --three N   --four\n"
            "\n"
            "Examples:\n"
            "  rapt thing model.gguf --one 3 --another 'some words' --two --four\n");
}

TEST(HelpText, FoldsInANarrowWindow) {
  EXPECT_EQ(folded_help(kText, 30),
            "Usage: rapt thing MODEL\n"
            "           [--one N]\n"
            "           [--another TEXT]\n"
            "       rapt thing --all\n"
            "\n"
            "A paragraph that was written\n"
            "in lines of some width and is\n"
            "filled anew.\n"
            "\n"
            "  --one N\n"
            "      what it means, in more\n"
            "      words than a narrow line\n"
            "      can hold (7)\n"
            "  --two   --three N   --four\n"
            "\n"
            "Examples:\n"
            "  rapt thing model.gguf \\\n"
            "      --one 3 \\\n"
            "      --another 'some words' \\\n"
            "      --two --four\n");
}

TEST(HelpText, AThirdColumnKeepsItsPlace) {
  EXPECT_EQ(folded_help("  rate      0.001   the largest one there is\n"
                        "  kind      adamw   how the weights follow their gradients\n",
                        48),
            "  rate      0.001   the largest one there is\n"
            "  kind      adamw   how the weights follow their\n"
            "                    gradients\n");
}

TEST(HelpText, LinesKeepTheirEndsAndIndentation) {
  EXPECT_EQ(folded_lines("one two three\n  four five six\n", 10), "one two\nthree\n  four\n  five six\n");
}

TEST(Progress, FitsItsLine) {
  EXPECT_EQ(progress_line("loading", 0.5, "  3 s left", 80),
            "[███████████████···············] loading 50 %  3 s left");
  EXPECT_EQ(progress_line("loading", 0.5, "  3 s left", 30), "[██···] loading 50 %  3 s left");
  EXPECT_EQ(progress_line("loading", 0.5, "  3 s left", 20), "loading 50 %  3 s l…");
  for (Dim width = 1; width < 100; ++width)
    EXPECT_LE(text_width(progress_line("writing", 0.3, "  99 of 120", width)), width);
}

TEST(Progress, IsSilentOffATerminal) {
  testing::internal::CaptureStderr();  // a file
  Progress bar("loading", false);
  ::usleep(510000);  // what takes less shows nothing anywhere
  for (int i = 0; i <= 10; ++i) bar.step(i, 10);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace rapt::cli
