// SPDX-License-Identifier: Apache-2.0
// What is guessed, beside a search from every place; what is worth a row, beside all ways to choose.
#include "rapt/use/speculate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"

namespace rapt::test {
namespace {

std::vector<std::int32_t> ids_of(const std::vector<Guess>& guesses) {
  std::vector<std::int32_t> ids;
  for (const Guess& g : guesses) ids.push_back(g.id);
  return ids;
}

// The place where most tokens agree with the end of the text, the latest of equals; what followed.
std::vector<std::int32_t> searched(const std::vector<std::int32_t>& text, std::size_t most) {
  std::size_t best = 0, place = 0;
  for (std::size_t end = 1; end < text.size(); ++end) {
    std::size_t agree = 0;
    while (agree < 32 && agree < end && text[end - 1 - agree] == text[text.size() - 1 - agree]) ++agree;
    if (agree >= 3 && agree >= best) best = agree, place = end;
  }
  std::vector<std::int32_t> all = text;
  if (best > 0)
    for (std::size_t i = 0; i < most; ++i) all.push_back(all[place + i]);
  return {all.begin() + static_cast<std::ptrdiff_t>(text.size()), all.end()};
}

TEST(LookUp, FindsWhatASearchFinds) {
  std::size_t found = 0;
  for (std::uint64_t key = 0; key < 20; ++key) {
    LookUp look;
    std::vector<std::int32_t> text;
    const std::uint32_t words = key < 10 ? 6 : 60;
    for (std::uint64_t i = 0; i < 400; ++i) {
      // New words, or the text from an earlier place on.
      const bool copies = text.size() > 40 && i % 50 >= 25;
      text.push_back(copies ? text[text.size() - 40]
                            : static_cast<std::int32_t>(random_below(words, key, i)));
      look.push(text.back());
      ASSERT_EQ(look.size(), static_cast<Dim>(text.size()));
      const std::vector<std::int32_t> guessed = ids_of(look.guess(8)), right = searched(text, 8);
      if (words > 6) ASSERT_EQ(guessed, right) << key << " " << i;  // there are never many places
      else ASSERT_EQ(guessed.empty(), right.empty());
      found += !guessed.empty();
    }
  }
  EXPECT_GT(found, 2000u);
}

TEST(LookUp, GuessesGoOnIntoThemselves) {
  LookUp look;
  for (const std::int32_t id : {9, 1, 2, 3, 1, 2, 3}) look.push(id);
  EXPECT_EQ(ids_of(look.guess(7)), (std::vector<std::int32_t>{1, 2, 3, 1, 2, 3, 1}));
  EXPECT_TRUE(look.guess(0).empty());
  look.push(8);
  EXPECT_TRUE(look.guess(7).empty());
}

TEST(LookUp, MoreThatAgreesIsAnotherKind) {
  LookUp look;
  for (int again = 0; again < 2; ++again)
    for (std::int32_t id = 0; id < 40; ++id) look.push(id);
  const std::vector<Guess> guesses = look.guess(4);
  ASSERT_EQ(guesses.size(), 4u);
  EXPECT_EQ(guesses[0].id, 0);
  EXPECT_EQ(guesses[0].kind, lookup_kind(32));
  EXPECT_EQ(lookup_kind(32), kLookUpKinds - 1);
  for (Dim n = 4; n < 40; ++n) EXPECT_GE(lookup_kind(n), lookup_kind(n - 1));
  EXPECT_EQ(lookup_kind(3), 0);
  EXPECT_EQ(draft_kind(0), kLookUpKinds);
  EXPECT_EQ(draft_kind(1), kLookUpKinds + kDraftKinds - 1);
}

TEST(HitRates, GoFromWhatIsAssumedToWhatIsCounted) {
  HitRates answer, all;
  const double assumed = HitRates::of(answer, all, 0);
  EXPECT_GT(assumed, 0.1);
  EXPECT_LT(assumed, 0.6);
  for (int i = 0; i < 200; ++i) all.add(0, true, 512);
  EXPECT_GT(HitRates::of(answer, all, 0), 0.9);
  for (int i = 0; i < 200; ++i) answer.add(0, i % 4 == 0, 32);
  EXPECT_NEAR(HitRates::of(answer, all, 0), 0.25, 0.15);
  EXPECT_EQ(HitRates::of(answer, all, 1), HitRates::of({}, {}, 1));
}

// 1 s for a pass and a tenth for each row, on a machine that becomes four times as slow.
TEST(PassTimes, RatiosStayWhereTheMachineChanges) {
  PassTimes times;
  EXPECT_EQ(times.at(1), 0);
  double speed = 1;
  const auto seconds = [&](Dim rows) { return speed * (1 + 0.1 * static_cast<double>(rows)); };
  for (int i = 0; i < 2000; ++i) {
    if (i == 1000) speed = 4;
    for (const Dim rows : {Dim{1}, Dim{2}, Dim{8}}) times.learn(rows, seconds(rows));
  }
  EXPECT_NEAR(times.at(2) / times.at(1), 1.2 / 1.1, 0.02);
  EXPECT_NEAR(times.at(8) / times.at(1), 1.8 / 1.1, 0.05);
  EXPECT_NEAR(times.at(5) / times.at(1), 1.5 / 1.1, 0.05);   // between two
  EXPECT_NEAR(times.at(14) / times.at(1), 2.4 / 1.1, 0.15);  // behind the last
  EXPECT_NEAR(times.unit() * times.at(1), 4.4, 0.3);
  EXPECT_EQ(times.reach(), 17);
  times.learn(PassTimes::kMost + 1, 1);
  EXPECT_EQ(times.reach(), 17);
}

// One that takes ten times as long now and then (another program) changes little.
TEST(PassTimes, AnOutlierChangesLittle) {
  PassTimes times;
  for (int i = 0; i < 300; ++i) {
    times.learn(1, i % 40 == 7 ? 10 : 1);
    times.learn(4, i % 40 == 0 ? 20 : 2);  // the first one ever, too
  }
  EXPECT_NEAR(times.at(4) / times.at(1), 2, 0.4);
}

// Tokens per second of all ways to choose so many guesses of each answer.
double best_rate(std::span<const std::vector<double>> chances, const PassTimes& times, Dim rows,
                 std::size_t a = 0, Dim taken = 0, double tokens = 0) {
  if (a == chances.size()) return (static_cast<double>(rows) + tokens) / times.at(rows + taken);
  double best = 0, path = 1;
  for (std::size_t n = 0; n <= chances[a].size(); ++n) {
    best = std::max(best, best_rate(chances, times, rows, a + 1, taken + static_cast<Dim>(n), tokens));
    if (n < chances[a].size()) tokens += path *= chances[a][n];
  }
  return best;
}

TEST(SpeculationPlan, IsTheBestOfAll) {
  int some = 0, none = 0;
  for (std::uint64_t key = 0; key < 60; ++key) {
    std::uint64_t n = 0;
    const auto draw = [&] { return random_uniform(key, n++); };
    PassTimes times;
    double seconds = 1;
    const double slope = 1.5 * draw();
    for (Dim rows = 1; rows <= 16; ++rows) times.learn(rows, seconds += slope * draw());
    std::vector<std::vector<double>> chances(1 + key % 3);
    for (auto& c : chances)
      for (int i = 0; i < 4; ++i) c.push_back(draw());
    const auto rows = static_cast<Dim>(chances.size());
    const std::vector<Dim> plan = SpeculationPlan().plan(chances, times, rows, 99);
    double tokens = static_cast<double>(rows);
    Dim taken = 0;
    for (std::size_t a = 0; a < plan.size(); ++a) {
      double path = 1;
      for (Dim i = 0; i < plan[a]; ++i) tokens += path *= chances[a][static_cast<std::size_t>(i)];
      taken += plan[a];
    }
    const double plain = static_cast<double>(rows) / times.at(rows), best = best_rate(chances, times, rows);
    if (taken == 0) EXPECT_LE(best, 1.031 * plain) << key;
    else EXPECT_NEAR(tokens / times.at(rows + taken), best, 1e-9) << key;
    (taken == 0 ? none : some) += 1;
  }
  EXPECT_GT(some, 10);
  EXPECT_GT(none, 10);
}

TEST(SpeculationPlan, WhatDoesNotPayIsLeftAndTriedRarely) {
  PassTimes dear;  // a row costs as much as a pass
  for (int i = 0; i < 10; ++i)
    for (Dim rows = 1; rows <= 8; ++rows) dear.learn(rows, static_cast<double>(rows));
  const std::vector<std::vector<double>> chances = {{0.9, 0.9, 0.9}};
  SpeculationPlan plan;
  int tried = 0;
  for (int i = 0; i < 4000; ++i) tried += plan.plan(chances, dear, 1, 8)[0] > 0;
  EXPECT_GE(tried, 2);
  EXPECT_LE(tried, 6);
  EXPECT_EQ(SpeculationPlan().plan(chances, PassTimes(), 1, 8)[0], 0);  // nothing is known yet
  PassTimes cheap;
  for (Dim rows = 1; rows <= 8; ++rows) cheap.learn(rows, 1);
  EXPECT_EQ(SpeculationPlan().plan(chances, cheap, 1, 8)[0], 3);
  EXPECT_EQ(SpeculationPlan().plan(chances, cheap, 1, 2)[0], 2);
  EXPECT_EQ(SpeculationPlan().plan(chances, cheap, 1, -5)[0], 0);
}

TEST(SpeculationPlan, ADraftAsLongAsItPays) {
  PassTimes times;
  for (Dim rows = 1; rows <= 16; ++rows) times.learn(rows, 1 + 0.05 * static_cast<double>(rows - 1));
  double gain = 0;
  EXPECT_EQ(draft_length(0.9, times, 1, 1, 1.0, 8, gain), 0);  // as slow as the model
  EXPECT_EQ(gain, 1);
  const Dim good = draft_length(0.9, times, 1, 1, 0.1, 12, gain),
            poor = draft_length(0.4, times, 1, 1, 0.1, 12, gain);
  EXPECT_GT(good, poor);
  EXPECT_GT(poor, 0);
  EXPECT_GT(gain, 1.03);
  EXPECT_EQ(draft_length(0.05, times, 1, 1, 0.1, 8, gain), 0);
}

}  // namespace
}  // namespace rapt::test
