// SPDX-License-Identifier: Apache-2.0
// Batches of pairs and labelled lines, decoded, against the lines of the files: each once per epoch.
#include <gtest/gtest.h>

#include <map>

#include "tests/training_data.h"

namespace rapt {
namespace {

using namespace test;

TEST(PairData, FramedAndOncePerEpoch) {
  TempFolder folder;
  std::string source, target;
  std::multimap<std::string, std::string> expected;
  for (int i = 0; i < 53; ++i) {
    const std::string a = words(2 + i % 6, static_cast<std::uint64_t>(i)) + " " + std::to_string(i),
                      b = "T" + std::to_string(i) + " " + words(1 + i % 4, 99);
    source += a + "\r\n";
    target += b + "\n";
    expected.emplace(a, b);
  }
  source += "\nonly here\n" + words(200, 3) + "\n";
  target += "only there\n \nshort\n";
  put_file(folder / "a.de", source);
  put_file(folder / "a.en", target);
  put_file(folder / "v.de", "ein Hund\nHund\n");
  put_file(folder / "v.en", "a dog\ndog " + words(200, 4) + "\n");
  for (const Dim tokens : {Dim{0}, Dim{60}}) {
    const DataOptions o{.path = (folder / "a.de") + "," + (folder / "a.en"),
                        .held_out = (folder / "v.de") + "," + (folder / "v.en"),
                        .objective = Objective::translation,
                        .vocab = {.size = 400},
                        .seed = 11,
                        .batch = 5,
                        .length = 60,
                        .batch_tokens = tokens};
    const auto d = open_data(o);
    check_data(*d, o);
    const Tokenizer& t = *d->tokenizer;
    EXPECT_EQ(d->start, t.pad);
    EXPECT_EQ(d->stop, t.eos);
    EXPECT_TRUE(holds(d->about(), "53 pairs with ")) << d->about();
    EXPECT_TRUE(holds(d->about(), "2 held out; left out, longer than 60: 1; cut to 60: 1; empty: 2"))
        << d->about();
    std::vector<std::pair<std::string, std::string>> seen;
    std::vector<std::size_t> sizes;
    std::uint64_t n = 0;
    for (; seen.size() < 3 * 53; ++n) {
      const TrainBatch b = d->batch(n);
      sizes.push_back(b.tokens.size());
      for (std::size_t s = 0; s < b.sequences.size(); ++s) {
        Ids from = source_of(b, s), in = row(b, s), out = targets_of(b, s);
        EXPECT_EQ(from.back(), t.eos);
        EXPECT_EQ(in.front(), d->start);
        EXPECT_EQ(out.back(), d->stop);
        EXPECT_EQ(Ids(in.begin() + 1, in.end()), Ids(out.begin(), out.end() - 1));
        EXPECT_EQ(b.source_sequences[s].id, b.sequences[s].id);
        seen.emplace_back(t.decode(from), t.decode(out));
      }
    }
    std::vector<std::vector<std::pair<std::string, std::string>>> epochs;
    for (std::size_t e = 0; e < 3; ++e) {
      epochs.emplace_back(seen.begin() + static_cast<std::ptrdiff_t>(e * 53),
                          seen.begin() + static_cast<std::ptrdiff_t>(e * 53 + 53));
      std::multimap<std::string, std::string> got(epochs.back().begin(), epochs.back().end());
      EXPECT_EQ(got, expected) << "epoch " << e;
    }
    EXPECT_NE(epochs[0], epochs[1]);
    if (tokens > 0) {
      EXPECT_DOUBLE_EQ(d->epochs(n), 3.0);
      for (const std::size_t size : sizes) EXPECT_TRUE(size > 25 && size < 110) << size;
      // Similar lengths stand together: sums inside a batch differ less than in all.
      const TrainBatch b = d->batch(0);
      Dim least = 1000, most = 0;
      for (std::size_t s = 0; s < b.sequences.size(); ++s) {
        const Dim length = b.sequences[s].count + b.source_sequences[s].count;
        least = std::min(least, length);
        most = std::max(most, length);
      }
      EXPECT_LE(most - least, most / 3);
    }
    // Held out: in the order of the file, cut where too long.
    EXPECT_EQ(t.decode(source_of(d->held_out_batch(0), 0)), "ein Hund");
    const TrainBatch last = d->held_out_batch(d->held_out() - 1);
    EXPECT_EQ(last.sequences.back().count, 60);
    EXPECT_NE(last.targets.back(), d->stop);
  }
}

TEST(PairData, ShareOfTheEndAndErrors) {
  TempFolder folder;
  std::string a, b;
  for (int i = 0; i < 40; ++i) a += "a" + std::to_string(i) + "\n", b += "b" + std::to_string(i) + "\n";
  put_file(folder / "a", a);
  put_file(folder / "b", b);
  DataOptions o{.path = (folder / "a") + "," + (folder / "b"),
                .share = 0.25,
                .objective = Objective::translation,
                .vocab = {.kind = VocabKind::characters},
                .batch = 4,
                .length = 8};
  const auto d = open_data(o);
  EXPECT_EQ(d->held_out(), 3);
  EXPECT_EQ(d->tokenizer->decode(d->held_out_batch(0).source), "a30a31a32a33");
  put_file(folder / "b", b + "one more\n");
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "has 40 lines, " + (folder / "b") + " has 41"));
  o.path = folder / "a";
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "SOURCE,TARGET"));
  o.path = (folder / "a") + "," + (folder / "a");
  o.length = 2;
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "nothing to learn from is left"));
}

TEST(LineData, LabelsAndTheirLines) {
  TempFolder folder;
  std::string de, en;
  for (int i = 0; i < 60; ++i) de += "der Satz " + std::to_string(i) + "\n";
  for (int i = 0; i < 30; ++i) en += "the sentence " + std::to_string(i) + "\n";
  put_file(folder / "de", de);
  put_file(folder / "en", en);
  for (const Dim tokens : {Dim{0}, Dim{64}}) {
    DataOptions o{.path = "de=" + (folder / "de") + ",en=" + (folder / "en"),
                  .share = 0.2,
                  .objective = Objective::classification,
                  .vocab = {.size = 300},
                  .batch = 8,
                  .length = 64,
                  .batch_tokens = tokens};
    const auto d = open_data(o);
    check_data(*d, o);
    EXPECT_EQ(d->classes, 2);
    EXPECT_EQ(d->class_names, (std::vector<std::string>{"de", "en"}));
    const Tokenizer& t = *d->tokenizer;
    std::multiset<std::string> held, seen;
    for (Dim i = 0; i < d->held_out(); ++i) {
      const TrainBatch b = d->held_out_batch(i);
      for (std::size_t s = 0; s < b.sequences.size(); ++s) {
        const Ids in = row(b, s);
        EXPECT_EQ(in.front(), t.cls);
        EXPECT_EQ(in.back(), t.sep);
        held.insert(t.decode(in));
        EXPECT_EQ(b.targets[s], t.decode(in).starts_with("the") ? 1 : 0);
      }
    }
    EXPECT_EQ(held.size(), 12u + 6u);
    EXPECT_TRUE(held.contains("the sentence 24"));
    EXPECT_FALSE(held.contains("the sentence 23"));
    for (std::uint64_t n = 0; seen.size() < 72; ++n) {
      const TrainBatch b = d->batch(n);
      for (std::size_t s = 0; s < b.sequences.size(); ++s) seen.insert(t.decode(row(b, s)));
    }
    EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), 72u);
    for (const std::string& line : held) EXPECT_FALSE(seen.contains(line));
  }
  DataOptions o{.path = "de=" + (folder / "de") + ",en=" + (folder / "en"),
                .held_out = "fr=" + (folder / "en"),
                .objective = Objective::classification};
  o.vocab.size = 300;
  EXPECT_TRUE(
      holds(error_of([&] { open_data(o); }), "label 'fr' is held out, but nothing is learned about it"));
  o.held_out = "";
  o.path = "de=" + (folder / "de");
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "at least two"));
  o.path = folder / "de";
  EXPECT_TRUE(holds(error_of([&] { open_data(o); }), "LABEL=FILE"));
}

}  // namespace
}  // namespace rapt
