// SPDX-License-Identifier: Apache-2.0
// Data from a function: what it may give, and that the tokens of a file are the same training.
#include "rapt/use/own_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rapt/use/training.h"
#include "tests/tools.h"
#include "tests/training_data.h"

namespace rapt::test {
namespace {

using testing::HasSubstr;

OwnDataOptions own_plain(Objective objective = Objective::causal) {
  OwnDataOptions o{.objective = objective, .vocab = 10, .classes = 3, .identity = "mine", .batch = {}};
  o.batch = [](std::uint64_t) { return OwnBatch{.tokens = {1, 2, 3}, .lengths = {3}}; };
  return o;
}

TEST(OwnData, TargetsAreTheNextTokensUnlessGiven) {
  const TrainBatch b = as_train_batch({.tokens = {1, 2, 3, 4, 5}, .lengths = {3, 2}}, own_plain(), 7, "here");
  EXPECT_EQ(b.targets, (std::vector<std::int32_t>{2, 3, -1, 5, -1}));
  EXPECT_EQ(b.counted, 3);
  ASSERT_EQ(b.sequences.size(), 2u);
  EXPECT_EQ(b.sequences[1].first, 3);
  EXPECT_EQ(b.sequences[1].count, 2);
  EXPECT_NE(b.sequences[0].id, b.sequences[1].id);
  const TrainBatch own =
      as_train_batch({.tokens = {1, 2}, .lengths = {2}, .targets = {-1, 9}}, own_plain(), 7, "here");
  EXPECT_EQ(own.targets, (std::vector<std::int32_t>{-1, 9}));
  EXPECT_EQ(own.counted, 1);
}

TEST(OwnData, RefusesWhatCannotBeMeant) {
  const auto error = [](OwnBatch b, Objective objective = Objective::causal) {
    return error_of([&] { as_train_batch(std::move(b), own_plain(objective), 0, "here"); });
  };
  EXPECT_EQ(error({.tokens = {1}, .lengths = {1}}), "");
  EXPECT_THAT(error({.tokens = {}, .lengths = {}}), HasSubstr("here: has no tokens"));
  EXPECT_THAT(error({.tokens = {1}, .lengths = {}}), HasSubstr("no lengths"));
  EXPECT_THAT(error({.tokens = {1, 2}, .lengths = {1}}), HasSubstr("sum up to 1"));
  EXPECT_THAT(error({.tokens = {1, 2}, .lengths = {3}}), HasSubstr("more than the 2"));
  EXPECT_THAT(error({.tokens = {1, 2}, .lengths = {2, 0}}), HasSubstr("0 tokens"));
  EXPECT_THAT(error({.tokens = {1, 2}, .lengths = {3, -1}}), HasSubstr("more than"));
  EXPECT_THAT(error({.tokens = {1, 10}, .lengths = {2}}), HasSubstr("token 10 at place 1"));
  EXPECT_THAT(error({.tokens = {-1}, .lengths = {1}}), HasSubstr("token -1"));
  EXPECT_THAT(error({.tokens = {1}, .lengths = {1}, .targets = {10}}), HasSubstr("target 10"));
  EXPECT_THAT(error({.tokens = {1}, .lengths = {1}, .targets = {-2}}), HasSubstr("target -2"));
  EXPECT_THAT(error({.tokens = {1}, .lengths = {1}, .targets = {1, 1}}), HasSubstr("2 targets, wants 1"));
  EXPECT_THAT(error({.tokens = {1}, .lengths = {1}}, Objective::masked), HasSubstr("no targets"));
  EXPECT_THAT(error({.tokens = {1, 2}, .lengths = {2}, .targets = {3}}, Objective::classification),
              HasSubstr("target 3"));
  EXPECT_EQ(error({.tokens = {1, 2}, .lengths = {2}, .targets = {2}}, Objective::classification), "");
  EXPECT_THAT(error({.tokens = {1}, .lengths = {1}, .targets = {1}}, Objective::translation),
              HasSubstr("no source"));
  EXPECT_THAT(
      error({.tokens = {1}, .lengths = {1}, .targets = {1}, .source = {1, 2}, .source_lengths = {1, 1}},
            Objective::translation),
      HasSubstr("2 sources for 1"));
  OwnDataOptions o = own_plain();
  o.vocab = 0;
  EXPECT_THAT(error_of([&] { own_data(o); }), HasSubstr("vocab"));
  o = own_plain();
  o.identity = "";
  EXPECT_THAT(error_of([&] { own_data(o); }), HasSubstr("identity"));
}

// Losses of a short run, and what its weights are in the end.
std::pair<std::vector<double>, std::vector<std::vector<std::byte>>> outcome(TrainingRun& run) {
  run.open_memory();
  std::vector<double> losses;
  TrainEvents events;
  events.step = [&](const StepReport& r) { losses.push_back(r.loss); };
  const std::atomic<int> never{0};
  EXPECT_TRUE(run.run(events, never));
  std::vector<std::vector<std::byte>> weights;
  for (const Weight& w : run.checkpoint->model->weights) weights.push_back(row_major(w));
  return {losses, weights};
}

TEST(OwnData, TheTokensOfAFileAreTheSameTraining) {
  Device device;
  TrainingPlan plan{.recipe = "gpt-char",
                    .settings = {"width=16", "layers=1", "heads=2", "dropout=0.2"},
                    .data = {},
                    .objective = {},
                    .batch = 4,
                    .length = 16,
                    .options = {}};
  plan.data.vocab.kind = VocabKind::characters;
  plan.data.text = std::make_shared<const std::string>(long_text(200));
  plan.data.path = "a text";
  plan.options.steps = 8;
  TrainingRun file(device, plan);
  const std::shared_ptr<const TrainData> read = file.data;
  OwnDataOptions own{.vocab = read->vocab, .identity = "the same", .batch = {}};
  own.batch = [read](std::uint64_t number) {
    const TrainBatch b = read->batch(number);
    OwnBatch out{.tokens = b.tokens, .lengths = {}, .targets = b.targets};
    for (const Sequence& s : b.sequences) out.lengths.push_back(s.count);
    return out;
  };
  plan.data = {};
  plan.own_data = own_data(own);
  TrainingRun mine(device, plan);
  EXPECT_EQ(outcome(mine), outcome(file));
  EXPECT_THAT(plan_json(plan).dump(0), HasSubstr("the same"));
}

// A model in memory is copied, and keeps its weights and its tokenizer.
TEST(OwnData, ATrainingMayBeginFromAModelInMemory) {
  Device device;
  TrainingPlan plan{.recipe = "gpt-char",
                    .settings = {"width=16", "layers=1", "heads=2"},
                    .data = {},
                    .objective = {},
                    .batch = 4,
                    .length = 16,
                    .options = {}};
  plan.data.vocab.kind = VocabKind::characters;
  plan.data.text = std::make_shared<const std::string>(long_text(200));
  plan.data.path = "a text";
  plan.options.steps = 3;
  TrainingRun first(device, plan);
  const auto [losses, weights] = outcome(first);
  plan.settings = {};
  plan.start = first.checkpoint;
  TrainingRun second(device, plan);
  EXPECT_EQ(second.checkpoint->tokenizer->size(), first.checkpoint->tokenizer->size());
  EXPECT_EQ(row_major(second.checkpoint->model->weights[0]), weights[0]);
  EXPECT_NE(outcome(second).second, weights);
  EXPECT_EQ(row_major(first.checkpoint->model->weights[0]), weights[0]);
  plan.settings = {"width=8"};
  EXPECT_THAT(error_of([&] { TrainingRun(device, plan); }), HasSubstr("cannot be changed"));
  plan.settings = {};
  OwnDataOptions own{.vocab = first.data->vocab, .identity = "ids", .batch = {}};
  own.batch = [](std::uint64_t) { return OwnBatch{.tokens = {1, 2, 3}, .lengths = {3}}; };
  plan.own_data = own_data(own);
  TrainingRun third(device, plan);
  EXPECT_EQ(third.checkpoint->tokenizer, first.checkpoint->tokenizer);
  ASSERT_TRUE(third.extras().tokenizer);
  EXPECT_FALSE(third.extras().tokenizer->tokenizer_json.empty());
}

}  // namespace
}  // namespace rapt::test
