// SPDX-License-Identifier: Apache-2.0
// What a batch asks for (rows, hidden states) and what it may be made of (tokens or vectors), against the
// pass that gives everything.
#include <gtest/gtest.h>

#include <cstring>

#include "rapt/base/rng.h"
#include "rapt/ops/loss.h"
#include "tests/tools.h"
#include "tests/views_tools.h"

namespace rapt::test {
namespace {

constexpr Dim kWidth = 24;

Recipe toy(const std::string& preset_name, Dim learned = 0) {
  Recipe r = toy_recipe(preset_name, 2);
  r.embed.sink_tokens = learned;
  return resolve(r);
}

bool equal_rows(const Tensor& all, Dim row, const Tensor& some, Dim at) {
  const std::size_t bytes = static_cast<std::size_t>(all.last()) * size_of(all.dtype);
  return all.last() == some.last() &&
         std::memcmp(all.data + static_cast<std::size_t>(row) * bytes,
                     some.data + static_cast<std::size_t>(at) * bytes, bytes) == 0;
}

TEST(Want, ChosenAndLastRowsAreThoseOfAll) {
  Device device({.threads = 2});
  for (const Dim sinks : {0, 2})
    for (const char* name : {"gpt2", "llama3"}) {
      SCOPED_TRACE(concat(name, ", ", sinks, " learned tokens"));
      Model model(toy(name, sinks), device.real);
      randomise(model, 3);
      constexpr Dim kLengths[] = {7, 5};
      const PackedBatch packed(some_texts(model.recipe, kLengths, 1));
      rapt::Run run(device);
      Batch batch = packed.batch;
      const Tensor all = forward(run, model, batch);
      ASSERT_EQ(all[0], 12);
      batch.want = kWantLast;
      const Tensor last = forward(run, model, batch);
      ASSERT_EQ(last[0], 2);
      EXPECT_TRUE(equal_rows(all, 6, last, 0) && equal_rows(all, 11, last, 1));
      constexpr std::int32_t kChosen[] = {11, 0, 3, 3};
      batch.want = {.rows = Want::Rows::chosen, .chosen = kChosen};
      const Tensor chosen = forward(run, model, batch);
      ASSERT_EQ(chosen[0], 4);
      for (Dim i = 0; i < 4; ++i) EXPECT_TRUE(equal_rows(all, kChosen[i], chosen, i)) << i;
      EXPECT_FALSE(equal_rows(all, 1, chosen, 1));  // rows do differ
      batch.want.hidden = true;
      const Tensor hidden = forward(run, model, batch);
      ASSERT_EQ(hidden.last(), kWidth);
      const Tensor through = head_logits(run, model, hidden);
      for (Dim i = 0; i < 4; ++i) EXPECT_TRUE(equal_rows(all, kChosen[i], through, i)) << i;
    }
}

TEST(Want, AClassifierGivesItsHiddenRows) {
  Device device({.threads = 1});
  Recipe r = toy_recipe("bert", 1);
  r.head = {.kind = HeadRecipe::Kind::classes, .classes = 3, .pool = HeadRecipe::Pool::mean};
  Model model(resolve(r), device.real);
  randomise(model, 5);
  constexpr Dim kLengths[] = {4};
  const PackedBatch packed(some_texts(model.recipe, kLengths, 1));
  rapt::Run run(device);
  Batch batch = packed.batch;
  const Tensor classes = forward(run, model, batch);
  batch.want.hidden = true;
  const Tensor hidden = forward(run, model, batch);
  ASSERT_EQ(hidden[0], 4);
  std::vector<double> mean(kWidth, 0);
  for (Dim t = 0; t < 4; ++t)
    for (Dim c = 0; c < kWidth; ++c) mean[static_cast<std::size_t>(c)] += hidden.at(t * kWidth + c) / 4;
  const Tensor again = head_logits(run, model, run.upload({1, kWidth}, mean));
  for (Dim i = 0; i < 3; ++i) EXPECT_NEAR(again.at(i), classes.at(i), 1e-5);
  batch.want = kWantLast;
  EXPECT_TRUE(holds(error_of([&] { forward(run, model, batch); }), "Batch::want"));
}

TEST(Want, SaysWhatIsWrong) {
  Device device({.threads = 1});
  Model model(toy("gpt2"), device.real), sunk(toy("gpt2", 1), device.real);
  constexpr Dim kLengths[] = {3};
  const PackedBatch packed(some_texts(model.recipe, kLengths, 1));
  rapt::Run run(device);
  const auto said = [&](const Model& m, const Batch& b) { return error_of([&] { forward(run, m, b); }); };
  Batch batch = packed.batch;
  batch.want.rows = Want::Rows::chosen;
  EXPECT_TRUE(holds(said(model, batch), "names no row"));
  constexpr std::int32_t kBeyond[] = {3}, kBefore[] = {-1};
  batch.want.chosen = kBeyond;
  EXPECT_TRUE(holds(said(model, batch), "row 3 is wanted, the batch has rows 0 to 2"));
  batch.want.chosen = kBefore;
  EXPECT_TRUE(holds(said(model, batch), "row -1 is wanted"));
  batch.want = {};
  batch.rows = run.upload({3, kWidth}, std::vector<double>(3 * kWidth, 0.5));
  EXPECT_TRUE(holds(said(model, batch), "tokens and rows; give one"));
  batch.tokens = {};
  EXPECT_EQ(said(model, batch), "");
  EXPECT_TRUE(holds(said(sunk, batch), "it reads tokens, not rows"));
  batch.rows = run.upload({3, 15}, std::vector<double>(45, 0.5));
  EXPECT_TRUE(holds(said(model, batch), "wants [rows,24]"));
  batch.rows = run.upload({2, kWidth}, std::vector<double>(2 * kWidth, 0.5));
  EXPECT_TRUE(holds(said(model, batch), "covers rows 0 to 3 of 2"));
}

// The vectors of the tokens themselves, given as rows: every bit of the logits, with learned positions,
// scaled vectors and rotation.
TEST(Rows, VectorsOfTokensGiveTheBitsOfTokens) {
  Device device({.threads = 2});
  for (const char* name : {"gpt2", "gemma2", "llama3", "transformer-2017"}) {
    SCOPED_TRACE(name);
    Model model(toy(name), device.real);
    randomise(model, 7);
    constexpr Dim kLengths[] = {6, 3};
    const PackedBatch packed(some_texts(model.recipe, kLengths, 2));
    rapt::Run run(device);
    Taps taps;
    std::vector<double> source, text;
    taps.see(site::tokens,
             [&](const Tapped& t) { (t.stack == Stack::encoder ? source : text) = all_values(t.value); });
    run.taps = &taps;
    const std::vector<double> expected =
        all_values(forward(run, model, packed.batch, packed.source_or_null()));
    run.taps = nullptr;
    Batch batch = packed.batch, from = packed.source;
    batch.tokens = {};
    batch.rows = run.upload({9, kWidth}, text);
    if (packed.has_source) {
      from.rows = run.upload({static_cast<Dim>(from.tokens.size()), kWidth}, source);
      from.tokens = {};
    }
    EXPECT_EQ(expected, all_values(forward(run, model, batch, packed.has_source ? &from : nullptr)));
  }
}

// In pieces through a cache, by one thread or three, beside another sequence: the bits of one pass over
// the whole.
TEST(Rows, ACacheThreadsAndCompanyChangeNoBit) {
  for (const char* name : {"gpt2", "llama3", "gemma2"}) {
    SCOPED_TRACE(name);
    std::vector<double> values, expected;
    for (std::uint64_t i = 0; i < 7 * kWidth; ++i) values.push_back(random_normal(17, i));
    for (const int threads : {1, 3}) {
      Device device({.threads = threads});
      Model model(toy(name), device.real);
      randomise(model, 7);
      rapt::Run run(device);
      const Tensor rows = run.upload({7, kWidth}, values);
      const std::vector<double> whole =
          all_values(forward(run, model, {.sequences = {{.first = 0, .count = 7}}, .rows = rows}));
      if (expected.empty()) expected = whole;
      EXPECT_EQ(whole, expected) << threads << " threads";
      KvPool cache(model);
      std::vector<double> pieces;
      for (Dim at = 0; at < 7; at += 3) {
        const Dim n = std::min<Dim>(3, 7 - at);
        const Batch piece{.sequences = {{.first = 0, .count = n, .past = at, .id = 1}},
                          .rows = rows.slice(at, n)};
        for (const double v : all_values(forward(run, model, piece, nullptr, &cache))) pieces.push_back(v);
      }
      EXPECT_EQ(pieces, expected) << "pieces, " << threads << " threads";
      std::vector<double> two(values.rbegin(), values.rend());
      two.insert(two.end(), values.begin(), values.end());
      constexpr std::int32_t kSecond[] = {7, 8, 9, 10, 11, 12, 13};
      const Batch both{.sequences = {{.first = 0, .count = 7, .id = 5}, {.first = 7, .count = 7, .id = 6}},
                       .want = {.rows = Want::Rows::chosen, .chosen = kSecond},
                       .rows = run.upload({14, kWidth}, two)};
      EXPECT_EQ(all_values(forward(run, model, both)), expected)
          << "beside another, " << threads << " threads";
    }
  }
}

TEST(Rows, AModelWithoutAVocabularyReadsThem) {
  Device device({.threads = 1});
  Recipe r = toy_recipe("vit-22b", 2);
  r.vocab = 0, r.context = 9;
  Model model(resolve(r), device.real);
  randomise(model, 9);
  r.vocab = 31;  // the same model with a vocabulary: one token for each patch
  Model with(resolve(r), device.real);
  randomise(with, 9);
  std::vector<std::int32_t> tokens(9);
  for (std::size_t i = 0; i < 9; ++i) tokens[i] = static_cast<std::int32_t>(8 - i);
  const std::vector<Sequence> one = {{.first = 0, .count = 9}};
  rapt::Run run(device);
  std::vector<double> vectors;
  Taps taps;
  taps.see(site::tokens, [&](const Tapped& t) { vectors = all_values(t.value); });
  run.taps = &taps;
  const std::vector<double> expected = all_values(forward(run, with, {.tokens = tokens, .sequences = one}));
  run.taps = nullptr;
  copy_weights(with, model);  // of the two only one has a table of tokens
  EXPECT_TRUE(holds(error_of([&] { forward(run, model, {.tokens = tokens, .sequences = one}); }),
                    "has no vocabulary"));
  EXPECT_EQ(expected,
            all_values(forward(run, model, {.sequences = one, .rows = run.upload({9, kWidth}, vectors)})));
}

TEST(Rows, TheirGradientIsTheFiniteDifference) {
  Device device({.threads = 1, .isa = "f64"});
  Model model(toy("gpt2"), device.real);
  randomise(model, 11);
  const std::vector<Sequence> one = {{.first = 0, .count = 5}};
  const std::vector<std::int32_t> targets = {3, 30, 0, 7, 7};
  std::vector<double> values;
  for (std::uint64_t i = 0; i < 5 * kWidth; ++i) values.push_back(random_normal(13, i));
  const auto loss_of = [&](rapt::Run& run, const Tensor& rows) {
    return cross_entropy(run, forward(run, model, {.sequences = one, .rows = rows}), targets).mean;
  };
  Gradients gradients(device.real);
  Tape tape(gradients);
  rapt::Run run(device);
  run.tape = &tape;
  const Tensor rows = run.upload({5, kWidth}, values);
  backward(run, loss_of(run, rows));
  Tensor grad = rows;
  grad.data = static_cast<std::byte*>(run.grad(rows));
  rapt::Run plain(device);
  for (const std::size_t i : {0ul, 17ul, 42ul, 119ul}) {
    constexpr double kStep = 1e-5;
    double sides[2];
    for (const int side : {0, 1}) {
      std::vector<double> moved = values;
      moved[i] += side ? kStep : -kStep;
      plain.reset();
      sides[side] = loss_of(plain, plain.upload({5, kWidth}, moved)).at(0);
    }
    EXPECT_NEAR(grad.at(static_cast<Dim>(i)), (sides[1] - sides[0]) / (2 * kStep), 1e-8) << i;
  }
}

}  // namespace
}  // namespace rapt::test
