// SPDX-License-Identifier: Apache-2.0
// How leaves and weights are dealt to ranks: all of them, each once, in order, evenly. What ranks do with
// them: tests/train_test.cc.
#include "rapt/use/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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
  for (const std::size_t bucket_bytes : {100'000u, 1'000'000u, 25'000'000u})
    for (const int ranks : {1, 2, 3, 4, 7, 64}) {
      std::vector<Dim> next(model.weights.size()), moved;
      int cut = 0;
      const GradientLayout layout = gradient_layout(model, bucket_bytes);
      const Deal deal = deal_weights(model, layout, ranks, matrix);
      ASSERT_EQ(deal.shards.size(), static_cast<std::size_t>(ranks));
      ASSERT_EQ(deal.cuts.size(), layout.buckets.size());
      for (std::size_t r = 0; r < deal.shards.size(); ++r) {
        Dim mine = 0, padding = 0;
        int last = -1;
        for (const ShardRange& range : deal.shards[r]) {
          const Weight& w = model.weights[static_cast<std::size_t>(range.weight)];
          EXPECT_GT(range.weight, last);
          EXPECT_EQ(range.begin, next[static_cast<std::size_t>(range.weight)]);
          EXPECT_EQ(range.begin % kOptimizePiece, 0);
          if (matrix(w)) EXPECT_EQ(range.end - range.begin, w.stored()) << w.name;
          cut += range.end < w.stored();
          last = range.weight;
          next[static_cast<std::size_t>(range.weight)] = range.end;
          mine += range.end - range.begin;
          // It lies in this rank's part of the bucket.
          const Dim place = layout.place[static_cast<std::size_t>(range.weight)];
          const auto bucket = std::ranges::find_if(layout.buckets, [&](const GradientLayout::Bucket& b) {
            return b.first <= range.weight && range.weight < b.end;
          });
          const auto& cuts = deal.cuts[static_cast<std::size_t>(bucket - layout.buckets.begin())];
          EXPECT_GE(place + range.begin, cuts[r]);
          EXPECT_LE(place + range.end, cuts[r + 1]);
          padding += 15;
        }
        Dim parts = 0;
        for (const auto& cuts : deal.cuts) parts += cuts[r + 1] - cuts[r];
        EXPECT_GE(parts, mine);
        EXPECT_LE(parts, mine + padding);  // every number of the slab is one of a weight
        EXPECT_LE(mine, all / ranks + largest);
        moved.push_back(mine);
      }
      for (const Weight& w : model.weights)
        EXPECT_EQ(next[static_cast<std::size_t>(w.index)], is_parameter(w) ? w.stored() : 0) << w.name;
      if (ranks >= 4) EXPECT_GT(cut, 0);
      // As even as whole matrices and pieces allow.
      if (ranks <= 4) EXPECT_LE(*std::ranges::max_element(moved), all / ranks + 100'000) << ranks;
    }
}

// A slab holds every weight once, those that are used last in front, and its buckets follow each other and
// end where layers do.
TEST(Ranks, LayGradientsInTheOrderOfTheWayBack) {
  const Recipe recipe = with_settings(
      preset("gpt2"),
      std::vector<std::string>{"width=96", "layers=4", "heads=3", "ffn=500", "vocab=3000", "context=32"});
  const Model model(recipe);
  const GradientLayout fine = gradient_layout(model, 250'000), coarse = gradient_layout(model, 1 << 30);
  EXPECT_EQ(fine.place, coarse.place);
  ASSERT_EQ(coarse.buckets.size(), 1u);
  EXPECT_EQ(coarse.buckets[0].first, 0);
  Dim next = 0;
  for (int i = static_cast<int>(model.weights.size()) - 1; i >= 0; --i) {
    const Dim place = fine.place[static_cast<std::size_t>(i)];
    EXPECT_GE(place, next);
    EXPECT_LT(place, next + 16);
    EXPECT_EQ(place % 16, 0);
    next = place + model.weights[static_cast<std::size_t>(i)].stored();
  }
  EXPECT_LE(next, fine.size);
  int end = static_cast<int>(model.weights.size());
  Dim begin = 0;
  std::set<int> firsts;
  for (const auto& bucket : fine.buckets) {
    EXPECT_EQ(bucket.end, end);
    EXPECT_EQ(bucket.begin, begin);
    end = bucket.first, begin += bucket.size;
    firsts.insert(bucket.first);
  }
  EXPECT_EQ(end, 0);
  EXPECT_EQ(begin, fine.size);
  // A layer has 133,000 weights: more than one bucket each.
  for (const Layer& layer : model.decoder->layers) EXPECT_TRUE(firsts.contains(layer.first_weight));
  EXPECT_GT(fine.buckets.size(), 8u);
}

}  // namespace
}  // namespace rapt
