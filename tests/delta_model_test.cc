// SPDX-License-Identifier: Apache-2.0
// Parts with a state as a whole: names, a small model that learns what only its state can hold, what can be
// seen of it, and what its log says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/inspect/sites.h"
#include "rapt/inspect/states.h"
#include "rapt/nn/size.h"
#include "rapt/use/train.h"
#include "tests/build_kind.h"
#include "tests/memory_checkpoint.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

Recipe small_state(const std::string& part, Dim vocab = 40) {
  Recipe r = parse_recipe(concat(
      R"({"name":"small-state","width":24,"context":256,"decoder":{"layers":2,"final_norm":"rms","kinds":{"L":{)",
      R"("parts":[)", part, R"(,{"ffn":{"norm_in":"rms","width":48}}]}}}})"));
  r.vocab = vocab;
  return resolve(r);
}
constexpr const char* kDelta = R"({"delta":{"norm_in":"rms","key_heads":2,"value_heads":4,"key_dim":12}})";

TEST(DeltaModel, WeightsHaveTheirNamesAndOrder) {
  const auto names = [](const char* part, std::string_view word) {
    const Model m(small_state(part), DType::f32, DType::bf16);
    std::vector<std::string> out;
    const std::string stem = concat("decoder.1.", word, ".");
    for (const Weight& w : m.weights) {
      if (w.name.starts_with(stem)) out.push_back(w.name.substr(stem.size()));
      const bool real = w.packing == Packing::rows || stays_real(w.name);
      EXPECT_EQ(w.format, real ? DType::f32 : DType::bf16) << w.name;
    }
    return out;
  };
  EXPECT_THAT(names(kDelta, "delta"),
              testing::ElementsAre("norm_in.weight", "q.weight", "k.weight", "v.weight", "z.weight",
                                   "b.weight", "a.weight", "q_conv", "k_conv", "v_conv", "a_log", "dt_bias",
                                   "norm.weight", "out.weight"));
  EXPECT_THAT(names(R"({"conv":{"norm_in":"rms","bias":true}})", "conv"),
              testing::ElementsAre("norm_in.weight", "b.weight", "b.bias", "c.weight", "c.bias", "u.weight",
                                   "u.bias", "mix", "mix.bias", "out.weight", "out.bias"));
}

TEST(DeltaModel, WhatASequenceKeepsDoesNotGrow) {
  const Recipe r = small_state(kDelta);
  // A state [12,12] for each of 4 heads; of 128 rows q, k and v, keys, u and twice c. Two layers.
  const Dim row = 24 + 24 + 48 + 24 + 4 * (12 + 2);
  EXPECT_EQ(count_cost(r, 100).state_values, 2 * (4 * 12 * 12 + 128 * row));
  EXPECT_EQ(count_cost(r, 100).state_values, count_cost(r, 100000).state_values);
  EXPECT_EQ(count_cost(r, 100).kv_values, 0);
  EXPECT_EQ(count_cost(r, 100).token.attention, count_cost(r, 100000).token.attention);
}

// ------------------------------------------------------------------------------------------------ training
// Six keys with a value each, then the keys again in another order: their values must be remembered.
class Recall : public TrainData {
 public:
  Recall() { vocab = kVocab; }
  static constexpr Dim kPairs = 6, kKeys = 8, kVocab = 16;
  TrainBatch batch(std::uint64_t number) const override { return make(number + 1); }
  Dim held_out() const override { return 4; }
  TrainBatch held_out_batch(Dim number) const override { return make(~static_cast<std::uint64_t>(number)); }
  double epochs(std::uint64_t) const override { return 0; }
  std::string about() const override { return "pairs to recall"; }

 private:
  static TrainBatch make(std::uint64_t key) {
    TrainBatch b;
    std::uint64_t draw = 0;
    const auto below = [&](Dim n) {
      return static_cast<Dim>(random_below(static_cast<std::uint32_t>(n), key, draw++));
    };
    for (Dim n = 0; n < 16; ++n) {
      b.sequences.push_back(
          {.first = n * 4 * kPairs, .count = 4 * kPairs, .id = key * 1000 + static_cast<std::uint64_t>(n)});
      std::vector<std::pair<Dim, Dim>> pairs;
      for (Dim k = 0; k < kKeys; ++k) pairs.emplace_back(k, kKeys + below(kVocab - kKeys));
      const auto shuffle = [&] {
        for (std::size_t i = pairs.size(); i-- > 1;)
          std::swap(pairs[i], pairs[static_cast<std::size_t>(below(static_cast<Dim>(i) + 1))]);
      };
      shuffle();
      pairs.resize(kPairs);
      for (int half = 0; half < 2; ++half, shuffle())
        for (const auto& [k, v] : pairs) {
          b.tokens.insert(b.tokens.end(), {static_cast<std::int32_t>(k), static_cast<std::int32_t>(v)});
          b.targets.insert(b.targets.end(), {half == 1 ? static_cast<std::int32_t>(v) : -1, -1});
        }
    }
    for (const std::int32_t t : b.targets) b.counted += t >= 0;
    return b;
  }
};

TEST(DeltaModel, ASmallOneLearnsToRecall) {
  Device device({.threads = 2});
  const Recall data;
  const auto learn = [&](const char* part) {
    Model model(small_state(part, Recall::kVocab), device.real);
    init(model, 1);
    TrainOptions o;
    o.steps = kSanitized ? 10 : 250;
    o.schedule = {.kind = Schedule::Kind::cosine, .warmup = 5, .total = o.steps};
    o.optimizer.rate = 1e-2;
    o.health_every = 1;
    Trainer trainer(device, model, data, o);
    for (Dim i = 0; i < o.steps; ++i) {
      const StepReport report = trainer.step();
      EXPECT_EQ(report.fate, StepReport::Fate::done) << report.why;
      EXPECT_EQ(report.health.size(), 2u);
      for (const LayerHealth& h : report.health) {
        EXPECT_FALSE(h.attends);
        EXPECT_EQ(h.state_stays >= 0 && h.state_stays <= 1, part == kDelta);
        EXPECT_GT(h.massive, 0);
      }
    }
    return trainer.judge().loss;
  };
  const double states = learn(kDelta), rows = learn(R"({"conv":{"norm_in":"rms","kernel":3}})");
  std::printf("held out: %.3f with states, %.3f with the last five rows only\n", states, rows);
  if (kSanitized) return;
  EXPECT_LT(states, 0.3);
  EXPECT_GT(rows, 1);  // of 8 values: ln 8 = 2.1
}

// ------------------------------------------------------------------------------------------ what can be seen
TEST(DeltaModel, TheViewShowsWhatHeadsRememberAndForget) {
  Device device({.threads = 2});
  Recipe recipe = small_state(kDelta);
  recipe.embed.sink_tokens = 2;
  const Checkpoint c = memory_checkpoint(resolve(recipe), 5);
  Subject s(device, c);
  for (std::int32_t i = 0; i < 80; ++i) s.ids.push_back(i * 7 % 40);
  const std::vector<StateTrace> all = state_traces(device, *c.model, s.ids);
  ASSERT_EQ(all.size(), 2u);
  for (const StateTrace& t : all) {
    EXPECT_EQ(t.heads, 4);
    ASSERT_EQ(t.norm.size(), 320u);
    ASSERT_EQ(t.stays.size(), 320u);
    ASSERT_EQ(t.writes.size(), 320u);
    for (std::size_t i = 0; i < 320; ++i) {
      EXPECT_GT(t.norm[i], 0);
      EXPECT_TRUE(t.stays[i] > 0 && t.stays[i] < 1);
      EXPECT_TRUE(t.writes[i] > 0 && t.writes[i] < 1);
    }
    // By the mean of the logarithms.
    double sum = 0;
    for (std::size_t i = 1; i < 320; i += 4) sum += std::log2(t.stays[i]) / 80;
    EXPECT_NEAR(t.half_life(1), -1 / sum, 1e-6 * std::abs(1 / sum));
  }
  const Document d = states_document(s);
  EXPECT_EQ(d.facts.find("states")->array().size(), 2u);
  EXPECT_THAT(document_text(d, false), testing::HasSubstr("half-life"));
  const Checkpoint other = memory_checkpoint(small_decoder(), 5);
  EXPECT_THAT(error_of([&] { state_traces(device, *other.model, s.ids); }), testing::HasSubstr("`delta`"));
}

TEST(DeltaModel, PointsHaveNamesAndReasons) {
  const Model m(small_state(kDelta));
  EXPECT_EQ(shape_text(find_points(m, "delta_k.1")[0]), "[T,2,12]");
  EXPECT_EQ(shape_text(find_points(m, "delta_read.0")[0]), "[T,4,12]");
  EXPECT_EQ(find_points(m, "delta_state_norm.*").size(), 2u);
  EXPECT_FALSE(find_points(m, "delta_state_norm.0")[0].fixed.empty());
  EXPECT_TRUE(find_points(m, "delta_decay.0")[0].fixed.empty());
  EXPECT_THAT(error_of([&] { find_points(m, "attn_weights.0"); }), testing::HasSubstr("no self-attention"));
  const Model conv(small_state(R"({"conv":{"norm_in":"rms"}})"));
  EXPECT_EQ(shape_text(find_points(conv, "conv_mixed.1")[0]), "[T,24]");
}

// An edit that forgets everything at one token: what came before cannot be told from anything else.
TEST(DeltaModel, AnEditedDecayForgets) {
  Device device({.threads = 1});
  Model m(small_state(R"({"delta":{"norm_in":"rms","key_heads":2,"key_dim":12,"conv":1}})"), device.real);
  randomise(m, 3);
  const auto last = [&](std::int32_t first) {
    Taps taps;
    taps.edit(site::delta_decay, [](const Tapped& t) {
      for (Dim h = 0; h < t.value[1]; ++h) t.value.set(70 * t.value[1] + h, -1000);
    });
    rapt::Run run(device);
    run.taps = &taps;
    std::vector<std::int32_t> tokens(100, 5);
    tokens[3] = first;
    const Batch b{.tokens = tokens, .sequences = {{.first = 0, .count = 100}}};
    const Tensor y = forward(run, m, b);
    return std::pair(y.at(60 * 40 + 3), y.at(99 * 40 + 3));
  };
  EXPECT_NE(last(1).first, last(2).first);
  EXPECT_EQ(last(1).second, last(2).second);
}

}  // namespace
}  // namespace rapt::test
