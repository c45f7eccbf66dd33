// SPDX-License-Identifier: Apache-2.0
// Sink scores against the definition on full matrices of weights that the plain model computes in double.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "rapt/inspect/sink_score.h"
#include "rapt/load/checkpoint.h"
#include "tests/build_kind.h"
#include "tests/data.h"
#include "tests/views_tools.h"

namespace rapt {
namespace {

using Texts = std::vector<std::vector<std::int32_t>>;

// Sink_k by the plain model: alpha_k = mean over rows t >= k of A[t,k], asked text by text.
std::vector<double> dense_sinks(const Model& model, const Texts& texts, double epsilon, int keys,
                                bool sigmoid) {
  std::vector<double> sink(static_cast<std::size_t>(keys));
  double heads = 0;
  for (const std::vector<std::int32_t>& ids : texts) {
    test::NaiveWeights dense;
    const bool both = model.encoder && model.decoder;
    test::naive_forward(
        model, {.tokens = ids, .types = {}, .source = both ? ids : std::vector<std::int32_t>{}}, &dense);
    const std::size_t T = ids.size();
    for (auto& [name, w] : dense) {
      if (name.ends_with(".cross") || (both && !name.starts_with("encoder"))) continue;
      for (std::size_t h = 0; h < w.size() / (T * T); ++h) {
        heads += 1;
        for (std::size_t k = 0; k < sink.size(); ++k) {
          double alpha = 0, rows = 0;
          for (std::size_t t = k; t < T; ++t) {
            double sum = 0;
            for (std::size_t j = 0; j < T; ++j) sum += w[(h * T + t) * T + j];
            alpha += w[(h * T + t) * T + k] / (sigmoid ? sum + 1e-8 : 1);
            rows += 1;
          }
          sink[k] += alpha / rows > epsilon;
        }
      }
    }
  }
  for (double& s : sink) s /= heads;
  return sink;
}

TEST(SinkScore, FollowsTheDefinition) {
  for (const char* name : {"gpt2", "llama3", "bert", "t5", "llama3+window"})
    for (const bool sigmoid : {false, true}) {
      if (sigmoid && std::string(name) != "llama3") continue;
      Device device({.threads = 1, .isa = "f64"});
      const bool window = std::string(name).ends_with("+window");
      Recipe recipe = test::toy_recipe(window ? "llama3" : name, 2);
      if (window) recipe = with_settings(recipe, std::vector<std::string>{"window=8"});
      if (sigmoid)
        recipe =
            with_settings(recipe, std::vector<std::string>{"decoder.kinds.L.parts[0].self.normal=sigmoid"});
      Model model(recipe, device.real);
      test::randomise(model, 5, 2.5);
      const Texts texts = {test::toy_ids(16), test::toy_ids(16, 29), test::toy_ids(16, 13)};
      bool telling = false;  // some heads have a sink and some have none
      for (const double epsilon : {0.1, 0.2, 0.25, 0.3}) {
        const SinkScore score = sink_score(device, model, texts, {.epsilon = epsilon, .keys = 3});
        const std::vector<double> want = dense_sinks(model, texts, epsilon, 3, sigmoid);
        for (std::size_t k = 0; k < 3; ++k)
          EXPECT_NEAR(score.sink[k], want[k], 1e-12) << name << " key " << k << " epsilon " << epsilon;
        telling = telling || (want[0] > 0 && want[0] < 1);
      }
      EXPECT_TRUE(telling) << name;
    }
}

TEST(SinkScore, LengthsAndCosinesAreThoseOfTheRows) {
  Device device({.threads = 1, .isa = "f64"});
  Model model(test::toy_recipe("llama3", 1), device.real);
  test::randomise(model, 5);
  const Texts texts = {test::toy_ids(12)};
  std::vector<double> q, k, v;
  Taps taps;
  taps.see(site::q, [&](const Tapped& t) { q = test::all_values(t.value); });
  taps.see(site::k, [&](const Tapped& t) { k = test::all_values(t.value); });
  taps.see(site::v, [&](const Tapped& t) { v = test::all_values(t.value); });
  const AttentionRecord record(device, model, texts[0], {}, {.taps = &taps});
  const SinkScore score = sink_score(device, model, texts);
  const auto product = [](const double* a, const double* b) {
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += a[i] * b[i];
    return sum;
  };
  for (int h = 0; h < 4; ++h) {  // 4 heads, 2 of keys, 6 channels
    const auto key = [&](int r) { return &k[static_cast<std::size_t>((r * 2 + h / 2) * 6)]; };
    const auto value = [&](int r) { return &v[static_cast<std::size_t>((r * 2 + h / 2) * 6)]; };
    const auto query = [&](int r) { return &q[static_cast<std::size_t>((r * 4 + h) * 6)]; };
    double keys = 0, values = 0, first = 0, others = 0, pairs = 0;
    for (int r = 1; r < 12; ++r) {
      keys += std::sqrt(product(key(r), key(r))) / 11, values += std::sqrt(product(value(r), value(r))) / 11;
      for (int j = 0; j <= r; ++j) {
        const double cosine =
            product(query(r), key(j)) / std::sqrt(product(query(r), query(r)) * product(key(j), key(j)));
        if (j == 0) first += cosine / 11;
        else others += cosine, pairs += 1;
      }
    }
    const HeadSink& s = score.heads[static_cast<std::size_t>(h)];
    EXPECT_NEAR(s.key_first, std::sqrt(product(key(0), key(0))), 1e-5);
    EXPECT_NEAR(s.key_others, keys, 1e-5);
    EXPECT_NEAR(s.value_first, std::sqrt(product(value(0), value(0))), 1e-5);
    EXPECT_NEAR(s.value_others, values, 1e-5);
    EXPECT_NEAR(s.cosine_first, first, 1e-5);
    EXPECT_NEAR(s.cosine_others, others / pairs, 1e-5);
  }
}

// A text of one token, again and again: without learned or added positions every row has the same state in
// every layer (the mean of equal values is that value), so with RoPE only directions differ and no token is
// the first in any way that adds up to a sink.
void expect_equal_rows(Device& device, const Model& model, std::span<const std::int32_t> ids) {
  int layers = 0;
  Taps taps;
  taps.see(site::resid_out, [&](const Tapped& t) {
    ++layers;
    const Dim C = t.value[1];
    double size = 0, apart = 0;
    for (Dim c = 0; c < C; ++c) size = std::max(size, std::abs(t.value.at(c)));
    for (Dim r = 1; r < t.value[0]; ++r)
      for (Dim c = 0; c < C; ++c) apart = std::max(apart, std::abs(t.value.at(r * C + c) - t.value.at(c)));
    EXPECT_LE(apart, 1e-5 * size) << "layer " << t.layer;
  });
  Run run(device);
  run.taps = &taps;
  forward(run, model, {.tokens = ids, .sequences = {{.first = 0, .count = static_cast<Dim>(ids.size())}}});
  EXPECT_GT(layers, 0);
}

TEST(SinkScore, OneTokenRepeated) {
  const std::vector<std::int32_t> ids(64, 7);
  for (const char* isa : {"f64", ""})
    for (const char* name : {"llama3", "qwen3"}) {
      Device device({.threads = 1, .isa = isa});
      Model model(with_settings(test::toy_recipe(name, 3), std::vector<std::string>{"context=64"}),
                  device.real);
      test::randomise(model, 9, 2);
      expect_equal_rows(device, model, ids);
      const SinkScore score = sink_score(device, model, Texts{ids}, {.epsilon = 0.05});
      const std::vector<double> want = dense_sinks(model, {ids}, 0.05, 4, false);
      for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(score.sink[k], want[k], 1e-12) << name;
    }
}

TEST(SinkScore, OneTokenRepeatedInSmolLM2) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto path = test::model_file("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << test::no_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  Device device({.threads = 2});
  // Matrices as plain numbers: products of blocks round each row's activations to int8, where a last bit
  // may become a whole step.
  const Checkpoint c =
      open_checkpoint(path->string(), {.real = device.real, .matrices = DType::f32, .device = &device});
  const std::vector<std::int32_t> ids(64, 1000);
  expect_equal_rows(device, *c.model, ids);
  // What the theorem says of RoPE models.
  EXPECT_EQ(sink_score(device, *c.model, Texts{ids}, {.geometry = 0}).sink[0], 0);
}

}  // namespace
}  // namespace rapt
