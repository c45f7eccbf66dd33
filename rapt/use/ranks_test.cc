// SPDX-License-Identifier: Apache-2.0
// How leaves and weights are dealt to ranks: all of them, each once, in order, evenly. What ranks do with
// them: tests/train_test.cc.
#include "rapt/use/ranks.h"

#include <gtest/gtest.h>

#include "rapt/nn/weight_table.h"
#include "rapt/ops/optimize.h"
#include "rapt/recipe/recipe_set.h"

namespace rapt {
namespace {

TEST(Ranks, DealLeavesInOrder) {
  for (Dim leaves = 1; leaves < 20; ++leaves)
    for (int ranks = 1; ranks < 24; ++ranks) {
      Dim next = 0;
      for (int r = 0; r < ranks; ++r) {
        const LeafRange range = leaves_of(leaves, r, ranks);
        EXPECT_EQ(range.first, next);
        EXPECT_GE(range.end - range.first, leaves / ranks);
        EXPECT_LE(range.end - range.first, (leaves + ranks - 1) / ranks);
        next = range.end;
      }
      EXPECT_EQ(next, leaves);
    }
}

TEST(Ranks, DealEveryNumberOnce) {
  const Recipe recipe = with_settings(
      preset("gpt2"),
      std::vector<std::string>{"width=96", "layers=3", "heads=3", "ffn=500", "vocab=3000", "context=32"});
  const Model model(recipe);
  const auto matrix = [](const Weight& w) { return w.name.find(".ffn.") != std::string::npos; };
  Dim all = 0, largest = 0;
  for (const Weight& w : model.weights)
    if (is_parameter(w)) all += w.stored(), largest = std::max(largest, w.stored());
  for (const int ranks : {1, 2, 3, 4, 7, 64}) {
    std::vector<Dim> next(model.weights.size());
    int last = 0, cut = 0;
    const std::vector<Shard> shards = shards_of(model, ranks, matrix);
    ASSERT_EQ(shards.size(), static_cast<std::size_t>(ranks));
    for (const Shard& shard : shards) {
      Dim mine = 0;
      for (const ShardRange& range : shard) {
        const Weight& w = model.weights[static_cast<std::size_t>(range.weight)];
        EXPECT_GE(range.weight, last);
        EXPECT_EQ(range.begin, next[static_cast<std::size_t>(range.weight)]);
        EXPECT_EQ(range.begin % kOptimizePiece, 0);
        if (matrix(w)) EXPECT_EQ(range.end - range.begin, w.stored()) << w.name;
        cut += range.end < w.stored();
        last = range.weight;
        next[static_cast<std::size_t>(range.weight)] = range.end;
        mine += range.end - range.begin;
      }
      EXPECT_LE(mine, all / ranks + largest);
    }
    for (const Weight& w : model.weights)
      EXPECT_EQ(next[static_cast<std::size_t>(w.index)], is_parameter(w) ? w.stored() : 0) << w.name;
    if (ranks >= 4) EXPECT_GT(cut, 0);
  }
}

}  // namespace
}  // namespace rapt
