// SPDX-License-Identifier: Apache-2.0
// The order in which leaves are added, as an expression: the one that the definition gives, for every number
// of leaves and wherever they are cut into ranges.
#include "rapt/use/leaves.h"

#include <gtest/gtest.h>

#include <string>

#include "rapt/base/rng.h"

namespace rapt {
namespace {

// By the definition: halves of a power of two; else the largest power of two in it, plus the rest.
std::string sum_of(Dim first, Dim count) {
  if (count == 1) return std::to_string(first);
  Dim left = 1;
  while (2 * left < count) left *= 2;
  return "(" + sum_of(first, left) + "+" + sum_of(first + left, count - left) + ")";
}

constexpr auto kAddTexts = [](std::string& left, const std::string& right) {
  left = "(" + left + "+" + right + ")";
};

LeafTree<std::string> nodes_of(Dim first, Dim end) {
  LeafTree<std::string> tree;
  for (Dim n = first; n < end; ++n) {
    tree.push({.first = n, .value = std::to_string(n)}, kAddTexts);
    EXPECT_TRUE(first > 0 || static_cast<int>(tree.nodes().size()) <= leaf_gradients(end));
  }
  return tree;
}

std::string total(LeafTree<std::string>& tree) {
  tree.finish(kAddTexts);
  EXPECT_EQ(tree.nodes().size(), 1u);
  return tree.nodes().empty() ? "" : tree.nodes()[0].value;
}

TEST(Leaves, AreAddedInAnAlignedTree) {
  EXPECT_EQ(sum_of(0, 7), "(((0+1)+(2+3))+((4+5)+6))");
  for (Dim leaves = 1; leaves <= 70; ++leaves) {
    LeafTree<std::string> tree = nodes_of(0, leaves);
    EXPECT_EQ(total(tree), sum_of(0, leaves));
  }
  LeafTree<std::string> none;
  none.finish(kAddTexts);
  EXPECT_TRUE(none.nodes().empty());
}

TEST(Leaves, ARangeOfThemHasNodesOfTheSameTree) {
  for (Dim leaves = 1; leaves <= 40; ++leaves)
    for (Dim ranks = 1; ranks <= 9; ++ranks) {
      LeafTree<std::string> whole;
      Dim begin = 0;
      for (Dim r = 0; r < ranks; ++r) {  // even ranges, and ranges of any length, empty ones too
        const auto rest = static_cast<std::uint64_t>(leaves - begin + 1);
        const auto key = static_cast<std::uint64_t>(leaves * 100 + ranks);
        const Dim drawn = begin + static_cast<Dim>(random_below(rest, key, static_cast<std::uint64_t>(r)));
        const Dim end = r + 1 == ranks ? leaves : leaves % 2 == 0 ? leaves * (r + 1) / ranks : drawn;
        LeafTree<std::string> part = nodes_of(begin, end);
        for (auto& node : part.nodes()) whole.push(std::move(node), kAddTexts);
        begin = end;
      }
      EXPECT_EQ(total(whole), sum_of(0, leaves)) << leaves << " leaves, " << ranks << " ranks";
    }
}

TEST(Leaves, SayHowManyGradientsTheyNeed) {
  const int expected[] = {1, 2, 2, 3, 3, 3, 3, 4, 4};
  for (Dim leaves = 1; leaves <= 9; ++leaves) EXPECT_EQ(leaf_gradients(leaves), expected[leaves - 1]);
}

}  // namespace
}  // namespace rapt
