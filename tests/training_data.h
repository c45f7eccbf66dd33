// SPDX-License-Identifier: Apache-2.0
// What tests of training data share: what every kind promises, texts of our own, one sequence of a batch.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/use/data.h"
#include "tests/tools.h"

namespace rapt::test {

using Ids = std::vector<std::int32_t>;

inline bool same(const TrainBatch& a, const TrainBatch& b) {
  const auto equal = [](const std::vector<Sequence>& x, const std::vector<Sequence>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const Sequence& s, const Sequence& t) {
      return s.first == t.first && s.count == t.count && s.id == t.id;
    });
  };
  return a.tokens == b.tokens && a.targets == b.targets && a.source == b.source && a.counted == b.counted &&
         equal(a.sequences, b.sequences) && equal(a.source_sequences, b.source_sequences);
}

// What every kind of data promises: rows without gaps, targets inside the vocabulary, batches that do not
// depend on who asks when.
inline void check_data(const TrainData& data, const DataOptions& o, std::uint64_t batches = 24) {
  std::set<std::uint64_t> names;
  const auto check = [&](const TrainBatch& b) {
    ASSERT_FALSE(b.sequences.empty());
    Dim row = 0;
    for (const Sequence& s : b.sequences) {
      EXPECT_EQ(s.first, row);
      EXPECT_GE(s.count, 1);
      EXPECT_LE(s.count, o.length);
      row += s.count;
      EXPECT_TRUE(names.insert(s.id).second) << "a sequence's name came twice";
    }
    EXPECT_EQ(row, static_cast<Dim>(b.tokens.size()));
    const bool classes = data.objective == Objective::classification;
    EXPECT_EQ(b.targets.size(), classes ? b.sequences.size() : b.tokens.size());
    for (const std::int32_t t : b.tokens) EXPECT_TRUE(t >= 0 && t < data.vocab);
    for (const std::int32_t t : b.targets) EXPECT_TRUE(t >= -1 && t < (classes ? data.classes : data.vocab));
    EXPECT_EQ(b.counted,
              std::count_if(b.targets.begin(), b.targets.end(), [](std::int32_t t) { return t >= 0; }));
    EXPECT_GT(b.counted, 0);
    EXPECT_EQ(b.source_sequences.size(), data.objective == Objective::translation ? b.sequences.size() : 0u);
    row = 0;
    for (const Sequence& s : b.source_sequences) {
      EXPECT_EQ(s.first, row);
      EXPECT_LE(s.count, o.length);
      row += s.count;
    }
    EXPECT_EQ(row, static_cast<Dim>(b.source.size()));
  };
  std::vector<TrainBatch> in_order;
  for (std::uint64_t i = 0; i < batches; ++i) {
    in_order.push_back(data.batch(i));
    check(in_order.back());
  }
  for (Dim i = 0; i < data.held_out(); ++i) check(data.held_out_batch(i));
  EXPECT_TRUE(holds(error_of([&] { data.held_out_batch(data.held_out()); }), "no held-out batch"));
  EXPECT_TRUE(holds(error_of([&] { data.held_out_batch(-1); }), "no held-out batch"));

  const auto fresh = open_data(o);
  EXPECT_EQ(fresh->identity, data.identity);
  EXPECT_EQ(fresh->about(), data.about());
  for (std::uint64_t i = batches; i-- > 0;) EXPECT_TRUE(same(fresh->batch(i), in_order[i])) << i;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  const auto shared = open_data(o);
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t k = 0; k < batches; ++k) {
        const std::uint64_t i = (k * 7 + t * 5) % batches;
        wrong[t] += !same(shared->batch(i), in_order[i]);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4));

  DataOptions other = o;
  other.seed += 1;
  const auto elsewhere = open_data(other);
  EXPECT_NE(elsewhere->identity, data.identity);
  int different = 0;
  for (std::uint64_t i = 0; i < batches; ++i) different += !same(elsewhere->batch(i), in_order[i]);
  EXPECT_GT(different, static_cast<int>(batches) / 2);
  for (Dim i = 0; i < data.held_out(); ++i)
    EXPECT_TRUE(same(elsewhere->held_out_batch(i), data.held_out_batch(i)));
}

// Words of our own, always the same.
inline std::string words(int n, std::uint64_t key) {
  static const char* const kWords[] = {"ein", "kleiner", "Hund", "läuft", "über",  "die",  "Straße",
                                       "und", "bellt",   "laut", "heute", "nicht", "mehr", "gern"};
  std::string out;
  for (int i = 0; i < n; ++i)
    out += (i ? " " : "") + std::string(kWords[random_below(14, key, static_cast<std::uint64_t>(i))]);
  return out;
}

inline std::string long_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += words(3 + i % 9, static_cast<std::uint64_t>(i)) + (i % 5 == 4 ? ".\n\n" : ".\n");
  return text;
}

inline Ids row(const TrainBatch& b, std::size_t s) {
  return Ids(b.tokens.begin() + b.sequences[s].first,
             b.tokens.begin() + b.sequences[s].first + b.sequences[s].count);
}
inline Ids targets_of(const TrainBatch& b, std::size_t s) {
  return Ids(b.targets.begin() + b.sequences[s].first,
             b.targets.begin() + b.sequences[s].first + b.sequences[s].count);
}
inline Ids source_of(const TrainBatch& b, std::size_t s) {
  return Ids(b.source.begin() + b.source_sequences[s].first,
             b.source.begin() + b.source_sequences[s].first + b.source_sequences[s].count);
}

}  // namespace rapt::test
