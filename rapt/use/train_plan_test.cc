// SPDX-License-Identifier: Apache-2.0
// Plans by value: formulas worked out here by hand, and the estimate of activations beside what passes take.
// What ranks really send beside the plan: tests/train_exchange_test.cc.
#include "rapt/use/train_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rapt/recipe/recipe_set.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using testing::HasSubstr;

TrainingPlan small_plan(Dim leaves) {
  TrainingPlan plan{.recipe = "gpt2",
                    .settings = {"width=64", "layers=2", "heads=4", "ffn=256", "vocab=1000", "context=128"}};
  plan.batch = 3, plan.length = 100;
  plan.options.accumulate = leaves;
  return plan;
}

TEST(TrainPlan, CountsMemoryAndTraffic) {
  const TrainPlanned plan = plan_training(small_plan(8), 4);
  // Tables, and for each layer two norms, q, k, v, o and two matrices with their biases; the last norm.
  const double N =
      1000 * 64 + 128 * 64 + 2 * (4 * 64 + 4 * 64 * 64 + 4 * 64 + 2 * 64 * 256 + 256 + 64) + 2 * 64;
  EXPECT_EQ(plan.parameters, N);
  EXPECT_EQ(plan.tokens, 8 * 300);
  EXPECT_EQ(plan.most_leaves, 2);
  EXPECT_EQ(plan.most_nodes, 1);
  ASSERT_EQ(plan.forms.size(), 4u);
  const PlanForm &dp = plan.forms[0], &zero1 = plan.forms[1], &zero2 = plan.forms[2], &zero3 = plan.forms[3];
  EXPECT_TRUE(zero1.built);
  EXPECT_FALSE(dp.built || zero2.built || zero3.built);
  for (const PlanForm& f : {dp, zero1, zero2}) EXPECT_EQ(f.weights, 4 * N);
  EXPECT_EQ(zero3.weights, N);
  EXPECT_EQ(dp.moments, 8 * N);
  for (const PlanForm& f : {zero1, zero2, zero3}) EXPECT_EQ(f.moments, 2 * N);
  EXPECT_EQ(zero1.gradients, 8 * N);  // of two leaves one waits
  EXPECT_EQ(zero2.gradients, N);
  EXPECT_EQ(dp.sent_gradients, 8 * N * 3 / 4);
  EXPECT_EQ(zero1.sent_gradients, 4 * N * 3 / 4);
  EXPECT_EQ(zero1.sent_weights, 4 * N * 3 / 4);
  EXPECT_EQ(zero3.sent_weights, 2 * 2 * 4 * N * 3 / 4);  // twice for each leaf
  EXPECT_EQ(zero1.step, 0);
}

TEST(TrainPlan, CountsTime) {
  PlanMachine m;
  read_plan_machine("flops=1e12,efficiency=0.5", m);
  read_plan_machine("node=2,link=2e9,network=1e8", m);
  const TrainPlanned plan = plan_training(small_plan(8), 4, m);
  const PlanForm& f = plan.forms[1];
  // Per token: matrices of the layers and the head, six operations a weight; scores and sums of half a
  // sequence of 100, four operations a channel and key, three times.
  const double matrices = 2 * (4 * 64 * 64 + 2 * 64 * 256) + 1000 * 64,
               each = 6 * matrices + 3 * 2 * 4 * 64 * 100 / 2.0;
  EXPECT_NEAR(f.compute, 2400 * each / (4 * 0.5e12), 1e-3 * f.compute);
  // One rank of the own machine, two others.
  const double N = plan.parameters;
  EXPECT_NEAR(f.traffic, 2 * (4 * N / 4 / 2e9 + 4 * N * 2 / 4 / 1e8), 1e-9 * f.traffic);
  EXPECT_EQ(f.step, std::max(f.compute, f.traffic));
  EXPECT_NEAR(plan.rate(f), 2400 / f.step / 4, 1e-9 * plan.rate(f));
  EXPECT_THAT(test::error_of([&] { read_plan_machine("flop=3", m); }), HasSubstr("flops"));
  EXPECT_THAT(test::error_of([&] { read_plan_machine("node=1.5", m); }), HasSubstr("whole number"));
  EXPECT_THAT(test::error_of([&] { read_plan_machine("link", m); }), HasSubstr("above 0"));
  m.tensor = 2, m.pipeline = 3;
  EXPECT_THAT(test::error_of([&] { plan_training(small_plan(8), 4, m); }), HasSubstr("no multiple"));
}

// A pipeline waits (p - 1) / (m + p - 1) of its time, and a rank of it has its part of the weights.
TEST(TrainPlan, CountsWhatIsNotBuilt) {
  PlanMachine m;
  read_plan_machine("flops=1e12,node=4,link=1e30,network=1e30,number=2,activation=34,pipeline=2,tensor=2", m);
  const TrainPlanned plan = plan_training(small_plan(6), 4, m);
  EXPECT_EQ(plan.copies, 1);
  EXPECT_EQ(plan.most_leaves, 6);
  const PlanForm& f = plan.forms[0];
  const double N = plan.parameters;
  EXPECT_FALSE(plan.forms[1].built);
  EXPECT_EQ(f.weights, 2 * N / 4);
  EXPECT_EQ(f.gradients, 4 * N / 4);
  EXPECT_EQ(f.moments, (8 + 4) * N / 4);
  EXPECT_EQ(f.activations, (34.0 * 300 * 64 * 2 / 2 * 2 + 300 * 1000 * 10.0 / 2) / 2);
  EXPECT_NEAR(f.step, f.compute / (1 - 1.0 / 7), 1e-6 * f.step);
  // Weights stay gathered, gradients whole.
  EXPECT_EQ(plan.forms[3].memory() - plan.forms[3].activations,
            2 * N / 4 + 4 * N / 4 + 12 * N / 4 + 2 * N / 4);
}

// Beside passes over a few rows of the model itself, which the trainer makes.
TEST(TrainPlan, EstimatesActivations) {
  class Rows : public TrainData {
   public:
    explicit Rows(Dim v) { vocab = v; }
    TrainBatch batch(std::uint64_t) const override {
      TrainBatch b;
      b.tokens.assign(300, 1), b.targets.assign(300, 1);
      for (Dim s = 0; s < 3; ++s)
        b.sequences.push_back({.first = 100 * s, .count = 100, .id = static_cast<std::uint64_t>(s)});
      b.counted = 300;
      return b;
    }
    Dim held_out() const override { return 0; }
    TrainBatch held_out_batch(Dim) const override { return {}; }
    double epochs(std::uint64_t) const override { return 0; }
    std::string about() const override { return "rows"; }
  };
  for (const std::string name : {"gpt2", "llama3", "qwen3", "mixtral"})
    for (const bool recompute : {false, true}) {
      std::vector<std::string> settings = {"width=64", "layers=3",   "heads=4",
                                           "ffn=256",  "vocab=1000", "context=128"};
      if (name != "gpt2") settings.emplace_back("kv_heads=2");
      const Recipe recipe = resolve(with_settings(preset(name), settings));
      Device device({.threads = 1});
      Model model(recipe, device.real);
      init(model, 1);
      const Rows data(1000);
      TrainOptions o;
      o.recompute = recompute;
      Trainer trainer(device, model, data, o);
      const double passes = trainer.step_bytes(), plan = plan_step_bytes(recipe, 300, 100, recompute);
      EXPECT_GT(plan, 0.6 * passes) << name << " " << recompute;
      EXPECT_LT(plan, 1.7 * passes) << name << " " << recompute;
    }
}

}  // namespace
}  // namespace rapt
