// SPDX-License-Identifier: Apache-2.0
// Massive activations: the grid against the residual stream computed the plain way, a planted one that must
// be found, and interventions against the same model with other weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rapt/inspect/massive.h"
#include "rapt/load/checkpoint.h"
#include "tests/build_kind.h"
#include "tests/data.h"
#include "tests/tools.h"
#include "tests/views_tools.h"

namespace rapt {
namespace {

TEST(Massive, TheGridFollowsFromTheResidualStream) {
  for (const char* name : {"llama3", "gpt2", "bert", "t5"}) {
    Device device({.threads = 1});
    Model model(test::toy_recipe(name), device.real);
    test::randomise(model, 6);
    const std::vector<std::int32_t> ids = test::toy_ids(13);
    const std::vector<std::int32_t> source =
        model.encoder && model.decoder ? test::toy_ids(7) : std::vector<std::int32_t>{};
    const std::vector<Massive> stacks =
        massive(device, model, ids, source, {.above = 2, .ratio = 4, .top = 2});
    ASSERT_EQ(stacks.size(), source.empty() ? 1u : 2u);
    const Massive& m = stacks.back();
    ASSERT_EQ(m.rows, 4);
    for (int layers = 1; layers <= 3; ++layers) {
      std::vector<double> x = test::naive_residual(model, layers, ids, source), sizes;
      for (double v : x) sizes.push_back(std::abs(v));
      const auto place = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
      const Activation& top = m.top[static_cast<std::size_t>(2 * layers)];
      std::vector<double> sorted = sizes;
      std::sort(sorted.begin(), sorted.end());
      const double median = sorted[(sorted.size() - 1) / 2];
      EXPECT_NEAR(m.median[static_cast<std::size_t>(layers)], median, 1e-5) << name;
      EXPECT_EQ(top.row, layers);
      EXPECT_EQ(top.token, place / 24);
      EXPECT_EQ(top.channel, place % 24);
      EXPECT_NEAR(top.value, x[static_cast<std::size_t>(place)], 1e-4);
      EXPECT_NEAR(top.ratio, sorted.back() / median, 1e-4 * top.ratio);
      EXPECT_EQ(top.massive, sorted.back() > 2 && sorted.back() / median >= 4);
      EXPECT_NEAR(std::abs(m.top[static_cast<std::size_t>(2 * layers + 1)].value), sorted[sorted.size() - 2],
                  1e-4);
      for (Dim t = 0; t < 13; ++t) {
        const double largest = *std::max_element(sizes.begin() + t * 24, sizes.begin() + (t + 1) * 24);
        EXPECT_NEAR(m.log_ratio(layers, t), std::log10(largest / median), 1e-4) << name;
      }
      for (std::size_t c = 0; c < m.channels.size(); ++c) {  // the trace keeps the sign of the strongest
        double strongest = 0, size = 0;  // two variables: see extreme() in tensor/formats.cc
        for (Dim t = 0; t < 13; ++t) {
          const double v = x[static_cast<std::size_t>(t * 24 + m.channels[c])];
          if (std::abs(v) > size) strongest = v, size = std::abs(v);
        }
        EXPECT_NEAR(m.trace[c * 4 + static_cast<std::size_t>(layers)], strongest, 1e-4);
      }
    }
  }
}

// A Llama whose first layer adds nothing: after it the residual stream is the embedding, so that an
// intervention there is the same as another embedding, which the plain forward computes.
struct Planted {
  mutable Device device{{.threads = 1}};
  std::unique_ptr<Model> model;
  explicit Planted(std::vector<std::pair<std::int32_t, double>> tokens) {
    model = std::make_unique<Model>(test::toy_recipe("llama3"), device.real);
    test::randomise(*model, 9);
    for (const char* name : {"decoder.0.self.o.weight", "decoder.0.ffn.down.weight"}) {
      Weight& w = model->weight(name);
      for (Dim r = 0; r < w.rows; ++r)
        for (Dim c = 0; c < w.cols; ++c) w.set(r, c, 0);
    }
    plant(*model, tokens);
  }
  static void plant(Model& m, const std::vector<std::pair<std::int32_t, double>>& tokens) {
    for (const auto& [id, value] : tokens) m.weight("embed.tokens").set(id, 7, value);
  }
  double perplexity(const std::vector<std::vector<std::int32_t>>& windows,
                    const std::vector<std::pair<std::int32_t, double>>& tokens = {}) const {
    Model other(model->recipe, model->real);
    test::copy_weights(*model, other);
    plant(other, tokens);
    double loss = 0, count = 0;
    for (const std::vector<std::int32_t>& ids : windows) {
      const std::vector<double> logits =
          test::naive_forward(other, {.tokens = ids, .types = {}, .source = {}});
      for (std::size_t t = 0; t + 1 < ids.size(); ++t, count += 1) {
        const double* row = &logits[t * 31];
        double sum = 0;
        for (int v = 0; v < 31; ++v) sum += std::exp(row[v]);
        loss += std::log(sum) - row[ids[t + 1]];
      }
    }
    return std::exp(loss / count);
  }
};

TEST(Massive, APlantedOneIsFoundAndItsInterventionIsThatOfOtherWeights) {
  const Planted planted({{20, 4000}});
  std::vector<std::int32_t> ids = {1, 2, 3, 20, 5, 6, 7, 8, 9, 10};
  const std::vector<Massive> found = massive(planted.device, *planted.model, ids);
  ASSERT_TRUE(found[0].found);
  EXPECT_EQ(found[0].first_row, 1);
  EXPECT_EQ(found[0].channels[0], 7);
  for (const Activation& a : found[0].top) {
    if (!a.massive) continue;
    EXPECT_EQ(a.token, 3);
    EXPECT_EQ(a.channel, 7);
  }
  const std::vector<std::vector<std::int32_t>> windows = {ids};
  Device& device = planted.device;
  const MassiveEffect zero = massive_effect(device, *planted.model, windows, {});
  EXPECT_EQ(zero.layer, 0);
  EXPECT_TRUE(zero.criterion);
  ASSERT_EQ(zero.set.size(), 1u);
  EXPECT_EQ(zero.set[0].token, 3);
  EXPECT_EQ(zero.set[0].channel, 7);
  EXPECT_NEAR(zero.set[0].value, 4000, 1e-3);
  EXPECT_EQ(zero.predicted, 9);
  const double before = planted.perplexity(windows), after = planted.perplexity(windows, {{20, 0}});
  ASSERT_GT(std::abs(before - after), 0.01 * before);  // it matters, so the next lines can fail
  EXPECT_NEAR(zero.before, before, 1e-4 * before);
  EXPECT_NEAR(zero.after, after, 1e-4 * after);
  // An ordinary one does little.
  EXPECT_LT(std::abs(zero.control - before), 0.2 * std::abs(after - before));
  // The mean of one is itself.
  EXPECT_NEAR(massive_effect(device, *planted.model, windows, {.to = MassiveEdit::To::mean}).after, before,
              1e-4 * before);
}

TEST(Massive, TheMeanIsTakenOverWindowsFirstTokensApart) {
  const Planted planted({{20, 4000}, {21, 3000}, {22, -5000}, {23, -2000}});
  const std::vector<std::vector<std::int32_t>> windows = {{20, 2, 3, 22, 5, 6, 7}, {21, 8, 9, 4, 10, 23, 11}};
  Device& device = planted.device;
  const MassiveEffect mean =
      massive_effect(device, *planted.model, windows, {.to = MassiveEdit::To::mean, .layer = 0});
  ASSERT_EQ(mean.set.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(mean.became[i], mean.set[i].token == 0 ? 3500 : -3500, 1e-2);
  EXPECT_EQ(mean.window, (std::vector<int>{0, 0, 1, 1}));
  const double after = planted.perplexity(windows, {{20, 3500}, {21, 3500}, {22, -3500}, {23, -3500}});
  EXPECT_NEAR(mean.after, after, 1e-4 * after);
  EXPECT_EQ(mean.predicted, 12);
}

TEST(Massive, WithoutAnyTheLargestStandsInAndTheVerdictIsNo) {
  Device device({.threads = 1});
  Model model(test::toy_recipe("gpt2"), device.real);
  test::randomise(model, 6);
  const std::vector<std::int32_t> ids = test::toy_ids(13);
  const Massive m = massive(device, model, ids)[0];
  EXPECT_FALSE(m.found);
  const MassiveEffect effect = massive_effect(device, model, {{ids}}, {.layer = 2});
  EXPECT_FALSE(effect.criterion);
  ASSERT_EQ(effect.set.size(), 1u);
  // After the last layer nothing but the head follows: only the row of the token changes.
  const std::vector<double> x = test::naive_residual(model, 3, ids);
  const Activation& a = effect.set[0];
  EXPECT_NEAR(a.value, x[static_cast<std::size_t>(a.token * 24 + a.channel)], 1e-4);
  EXPECT_NE(effect.after, effect.before);
}

TEST(Massive, SaysWhatItCannotDo) {
  Device device({.threads = 1});
  const Model bert(test::toy_recipe("bert"), device.real), llama(test::toy_recipe("llama3"), device.real);
  const std::vector<std::vector<std::int32_t>> windows = {test::toy_ids(5)}, one = {{3}};
  EXPECT_TRUE(test::holds(test::error_of([&] { massive_effect(device, bert, windows, {}); }),
                          "does not predict the next token"));
  EXPECT_TRUE(test::holds(test::error_of([&] { massive_effect(device, llama, windows, {.layer = 3}); }),
                          "layers 0 to 2"));
  EXPECT_TRUE(test::holds(test::error_of([&] { massive_effect(device, llama, one, {}); }), "two tokens"));
}

TEST(Massive, SmolLM2NeedsTheOneAtItsFirstToken) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto path = test::model_file("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << test::no_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  Device device;
  const Checkpoint c = open_checkpoint(*path, {.device = &device});
  const std::vector<std::int32_t> ids =
      c.tokenizer->frame(c.tokenizer->encode("The cat sat on the mat because it was warm."));
  const Massive m = massive(device, *c.model, ids)[0];
  ASSERT_TRUE(m.found);
  EXPECT_EQ(m.channels[0], 507);
  const MassiveEffect zero = massive_effect(device, *c.model, {{ids}}, {});
  for (const Activation& a : zero.set) EXPECT_EQ(a.token, 0);
  EXPECT_GT(zero.after, 100 * zero.before);
  EXPECT_LT(zero.control, 1.2 * zero.before);
}

}  // namespace
}  // namespace rapt
