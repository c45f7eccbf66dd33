// SPDX-License-Identifier: Apache-2.0
// first_turn on turns of known sizes, compared with the turn counted by hand.
#include "rapt/apps/cli/conversation.h"

#include <gtest/gtest.h>

namespace rapt::cli {
namespace {

TEST(Conversation, LeavesWholeTurnsOutFromTheBeginning) {
  // Turns of 100, 10, 50, 20 tokens, and 30 for the system message and the new one.
  const std::vector<Dim> sizes = {100, 10, 50, 20};
  auto tokens = [&](std::size_t first) {
    Dim sum = 30;
    for (std::size_t i = first; i < sizes.size(); ++i) sum += sizes[i];
    return sum;
  };
  EXPECT_EQ(first_turn(4, 210, 105, tokens), 0u);  // all fit
  EXPECT_EQ(first_turn(4, 209, 120, tokens), 1u);
  EXPECT_EQ(first_turn(4, 209, 105, tokens), 2u);  // down to half, so that the next turns find room
  EXPECT_EQ(first_turn(4, 200, 60, tokens), 3u);
  EXPECT_EQ(first_turn(4, 60, 40, tokens), 4u);
  EXPECT_EQ(first_turn(4, 20, 10, tokens), 4u);  // the message alone is too long: its error comes later
  EXPECT_EQ(first_turn(0, 20, 10, tokens), 0u);
}

}  // namespace
}  // namespace rapt::cli
