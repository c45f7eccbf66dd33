// SPDX-License-Identifier: Apache-2.0
// Attention in its three steps, against plain sums in double over the tensors that a pass shows.
#include "rapt/inspect/steps.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rapt/inspect/capture.h"
#include "tests/tools.h"
#include "tests/views_tools.h"

namespace rapt {
namespace {

struct Toy {
  Device device{{.threads = 2}};
  Model model;
  std::vector<std::int32_t> ids = test::toy_ids(9);
  explicit Toy(const std::string& name) : model(test::toy_recipe(name, 2), device.real) {
    test::randomise(model, 5, 1.3);
  }
};

TEST(Steps, AreThePlainSumsOfTheTensorsOfThePass) {
  for (const char* name : {"gpt2", "llama3", "gemma2", "qwen3", "palm", "bert"}) {
    Toy toy(name);
    const std::vector<std::string> points = {"attn_q.1", "attn_k.1", "attn_v.1", "attn_weights.1", "z.1"};
    const Capture c = capture(toy.device, toy.model, ask_points(toy.model, points), toy.ids);
    const Captured &q = c.of("attn_q.1"), &k = c.of("attn_k.1"), &v = c.of("attn_v.1"),
                   &w = c.of("attn_weights.1"), &z = c.of("z.1");
    const Dim T = 9, H = q.shape[1], K = k.shape[1], D = q.shape[2], V = v.shape[2];
    const bool causal = std::string(name) != "bert";
    const double cap = std::string(name) == "gemma2" ? 50 : 0,
                 scale = std::string(name) == "gemma2" ? 0.0625 : 1 / std::sqrt(static_cast<double>(D));
    for (const Dim token : {Dim{0}, Dim{5}, Dim{-1}})
      for (int head = 0; head < H; ++head) {
        const AttentionSteps s =
            attention_steps(toy.device, toy.model, toy.ids, {.layer = 1, .head = head, .token = token});
        const Dim row = token < 0 ? T - 1 : token, g = head / (H / K);
        EXPECT_EQ(s.token, row);
        EXPECT_EQ(s.kv_head, g);
        ASSERT_EQ(s.keys.size(), 9u);
        std::vector<double> score(9), weight(9), sum(static_cast<std::size_t>(V));
        double most = -INFINITY, all = 0;
        for (Dim i = 0; i < T; ++i) {
          double dot = 0;
          for (Dim d = 0; d < D; ++d)
            dot += static_cast<double>(q.values[static_cast<std::size_t>((row * H + head) * D + d)]) *
                   static_cast<double>(k.values[static_cast<std::size_t>((i * K + g) * D + d)]);
          double x = dot * scale;
          if (cap > 0) x = cap * std::tanh(x / cap);
          score[static_cast<std::size_t>(i)] = x;
          const auto& key = s.keys[static_cast<std::size_t>(i)];
          EXPECT_NEAR(key.product, dot, 1e-9) << name;
          EXPECT_NEAR(key.scaled, x, 1e-9) << name;
          EXPECT_EQ(key.seen, !causal || i <= row) << name;
          if (!key.seen) continue;
          EXPECT_NEAR(key.score, x, 2e-5 * (1 + std::abs(x))) << name;  // of the pass, in single
          most = std::max(most, x);
        }
        for (std::size_t i = 0; i < 9; ++i)
          if (s.keys[i].seen) all += weight[i] = std::exp(score[i] - most);
        for (std::size_t i = 0; i < 9; ++i) {
          weight[i] /= all;
          EXPECT_NEAR(s.keys[i].weight, weight[i], 1e-5) << name;
          EXPECT_EQ(static_cast<float>(s.keys[i].weight),
                    w.values[static_cast<std::size_t>((head * T + row) * T) + i])
              << name;
          for (Dim d = 0; d < V; ++d)
            sum[static_cast<std::size_t>(d)] +=
                weight[i] *
                static_cast<double>(v.values[(i * static_cast<std::size_t>(K) + static_cast<std::size_t>(g)) *
                                                 static_cast<std::size_t>(V) +
                                             static_cast<std::size_t>(d)]);
        }
        EXPECT_NEAR(s.weights(), 1, 1e-5);
        for (Dim d = 0; d < V; ++d) {
          EXPECT_NEAR(s.z[static_cast<std::size_t>(d)], sum[static_cast<std::size_t>(d)], 1e-4) << name;
          EXPECT_NEAR(s.z[static_cast<std::size_t>(d)],
                      static_cast<double>(z.values[static_cast<std::size_t>((row * H + head) * V + d)]), 1e-4)
              << name;
        }
      }
  }
}

TEST(Steps, WhatPositionsAddIsTheRest) {
  Toy toy("t5");
  const AttentionSteps s = attention_steps(toy.device, toy.model, toy.ids, {.layer = 0, .head = 1}, toy.ids);
  bool some = false;
  for (const auto& k : s.keys) some = some || (k.seen && std::abs(k.added()) > 1e-3);
  EXPECT_TRUE(some);  // the bias by distance
}

TEST(Steps, RefusesWhatThereIsNot) {
  Toy toy("gpt2");
  const auto why = [&](const StepsOptions& o) {
    return test::error_of([&] { attention_steps(toy.device, toy.model, toy.ids, o); });
  };
  EXPECT_TRUE(test::holds(why({.layer = 2}), "layers 0 to 1"));
  EXPECT_TRUE(test::holds(why({.head = 4}), "heads 0 to 3"));
  EXPECT_TRUE(test::holds(why({.token = 9}), "tokens 0 to 8"));
}

TEST(Steps, ThePictureHasEveryNumberInBothLanguages) {
  Toy toy("llama3");
  const AttentionSteps s = attention_steps(toy.device, toy.model, toy.ids, {.layer = -1, .head = 2});
  const std::vector<std::string> words = {"The", "cat", "sat", "on", "the", "mat", ".", "<x>", "&"};
  for (const Language language : kLanguages) {
    const std::string svg = steps_svg(s, words, language);
    EXPECT_TRUE(test::holds(svg, "&lt;x&gt;"));
    EXPECT_FALSE(test::holds(svg, "inspect.steps"));
    EXPECT_LT(svg.size(), 60000u);
    for (const auto& k : s.keys) EXPECT_TRUE(test::holds(svg, concat(">", fixed(k.weight, 3), "<")));
  }
  EXPECT_TRUE(test::holds(steps_svg(s, words, Language::zh), "第三步：值的加权和"));
}

}  // namespace
}  // namespace rapt
