// SPDX-License-Identifier: Apache-2.0
// Whole models: what they refuse, what training does to them, and what the cache gives back.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "rapt/base/rng.h"
#include "rapt/ops/loss.h"
#include "rapt/use/optimizer.h"
#include "tests/model_tools.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

Recipe small(const AttnRecipe& attn) {
  Recipe r;
  r.width = 24;
  r.vocab = 31;
  r.context = 512;
  LayerRecipe layer;
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = attn});
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = FfnRecipe{.width = 40}});
  r.decoder = StackRecipe{.layers = 2, .kinds = {{"L", layer}}, .final_norm = NormRecipe{}};
  return r;
}

AttnRecipe rotary(Dim window = 0, Dim keep = 0) {
  AttnRecipe a{.heads = 4, .kv_heads = 2, .window = window, .keep = keep};
  a.pos.kind = PosRecipe::Kind::rope;
  return a;
}

TEST(Model, SaysWhatIsWrongWithABatch) {
  Device device({.threads = 1});
  Model model(small(rotary()), device.real);
  rapt::Run run(device);
  const std::vector<std::int32_t> tokens = {1, 2, 31};
  EXPECT_NE(error_of([&] {
              forward(run, model, {.tokens = tokens, .sequences = {{.first = 0, .count = 3}}});
            }).find("token 31 at row 2 is outside the vocabulary of 31"),
            std::string::npos);
  EXPECT_NE(error_of([&] { forward(run, model, {.tokens = tokens, .sequences = {}}); }).find("no sequences"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              forward(run, model, {.tokens = tokens, .sequences = {{.first = 0, .count = 2}}});
            }).find("cover 2 rows"),
            std::string::npos);
  const std::vector<std::int32_t> fine = {1, 2, 3};
  EXPECT_NE(error_of([&] {
              forward(run, model, {.tokens = fine, .sequences = {{.first = 1, .count = 2}}});
            }).find("without gaps"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              forward(run, model, {.tokens = fine, .sequences = {{.first = 0, .count = 3}}, .types = fine});
            }).find("has none"),
            std::string::npos);
  KvPool cache(model);
  EXPECT_NE(error_of([&] {
              forward(run, model, {.tokens = fine, .sequences = {{.first = 0, .count = 3, .past = 5}}},
                      nullptr, &cache);
            }).find("it has 0"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              forward(run, model,
                      {.tokens = fine,
                       .sequences = {{.first = 0, .count = 2, .id = 1}, {.first = 2, .count = 1, .id = 1}}},
                      nullptr, &cache);
            }).find("each needs its own"),
            std::string::npos);
  AttnRecipe looks_ahead = rotary();
  looks_ahead.mask = AttnRecipe::MaskKind::prefix;
  Model prefix(small(looks_ahead), device.real);
  KvPool looking(prefix);
  EXPECT_NE(error_of([&] {
              forward(run, prefix, {.tokens = fine, .sequences = {{.first = 0, .count = 3, .prefix = 5}}},
                      nullptr, &looking);
            }).find("whole prefix in one piece"),
            std::string::npos);
  EXPECT_NE(error_of([&] { model.weight("decoder.0.self.q.weihgt"); }).find("decoder.0.self.q.weight"),
            std::string::npos);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  EXPECT_NE(error_of([&] {
              forward(run, model, {.tokens = fine, .sequences = {{.first = 0, .count = 3}}}, nullptr, &cache);
            }).find("tape and a cache"),
            std::string::npos);
  Device exact({.threads = 1, .isa = "f64"});
  rapt::Run other(exact);
  EXPECT_NE(error_of([&] {
              forward(other, model, {.tokens = fine, .sequences = {{.first = 0, .count = 3}}});
            }).find("f64"),
            std::string::npos);
}

TEST(Model, StreamingFreesPagesAndKeepsTheBits) {
  Device device({.threads = 2});
  const Recipe recipe = small(rotary(50, 4));
  Model model(recipe, device.real);
  randomise(model, 3);
  const Dim length[] = {400};
  const SomeText text = some_texts(model.recipe, length, 3)[0];
  const std::vector<double> whole = logits_of(device, model, {&text, 1});
  KvPool cache(model);
  rapt::Run run(device);
  std::vector<double> pieces;
  std::size_t most = 0;
  for (Dim at = 0; at < 400; at += 20) {
    run.reset();
    const Batch b{.tokens = std::span(text.tokens).subspan(static_cast<std::size_t>(at), 20),
                  .sequences = {{.first = 0, .count = 20, .past = at, .id = 5}}};
    for (double v : all_values(forward(run, model, b, nullptr, &cache))) pieces.push_back(v);
    most = std::max(most, cache.pages());
  }
  EXPECT_EQ(cache.length(5), 400);
  // Per layer: the page of the kept keys and those the window touches, not 400 / 64 = 7.
  EXPECT_LE(most, 2u * 4u);
  ASSERT_EQ(pieces.size(), whole.size());
  EXPECT_EQ(std::memcmp(pieces.data(), whole.data(), whole.size() * sizeof(double)), 0);
  cache.drop(5);
  EXPECT_EQ(cache.pages(), 0u);
}

// Forty steps on one small batch; returns the losses.
std::vector<double> train(Device& device, Model& model, bool recompute) {
  Optimizer optimizer(model, {.rate = 1e-2});
  const Schedule schedule{.warmup = 5, .total = 40};
  Gradients gradients(device.real);
  Tape tape(gradients);
  rapt::Run run(device);
  run.tape = &tape;
  run.training = true;
  run.recompute = recompute;
  const Dim lengths[] = {17, 9, 30};
  const PackedBatch packed(some_texts(model.recipe, lengths, 11));
  std::vector<std::int32_t> targets(packed.tokens.begin() + 1, packed.tokens.end());
  targets.push_back(-1);
  std::vector<double> losses;
  for (int step = 0; step < 40; ++step) {
    run.reset();
    gradients.zero();
    run.random = {1, static_cast<std::uint64_t>(step)};
    const Loss loss = cross_entropy(run, forward(run, model, packed.batch), targets);
    losses.push_back(loss.mean.at(0));
    backward(run, loss.mean);
    optimizer.step(device, gradients, optimizer.norm(device, gradients), schedule.at(step));
  }
  return losses;
}

TEST(Model, TrainingLearnsAndDoesNotDependOnThreadsOrRecomputation) {
  Recipe recipe = small(rotary());
  recipe.decoder->kinds["L"].parts[0].dropout = 0.1;
  recipe.decoder->kinds["L"].parts[0].self()->dropout = 0.1;
  std::vector<std::vector<double>> losses;
  std::vector<double> weights[3];
  for (int mode = 0; mode < 3; ++mode) {
    Device device({.threads = mode == 1 ? 3 : 1});
    Model model(recipe, device.real);
    init(model, 5);
    losses.push_back(train(device, model, mode == 2));
    for (const Weight& w : model.weights)
      for (Dim i = 0; i < w.size(); ++i) weights[mode].push_back(w.get(i / w.cols, i % w.cols));
  }
  EXPECT_NEAR(losses[0].front(), std::log(31.0), 0.2);
  EXPECT_LT(losses[0].back(), 0.5 * losses[0].front());
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
}

TEST(Model, InitFollowsItsScheme) {
  Recipe recipe = small(rotary());
  recipe.init = {.scheme = InitRecipe::Scheme::normal, .std = 0.05, .scale_residual = true};
  Model model(recipe, DType::f64), again(recipe, DType::f64);
  init(model, 9);
  init(again, 9);
  auto spread = [](const Weight& w) {
    double sum = 0;
    for (Dim i = 0; i < w.size(); ++i) sum += w.get(i / w.cols, i % w.cols) * w.get(i / w.cols, i % w.cols);
    return std::sqrt(sum / static_cast<double>(w.size()));
  };
  EXPECT_NEAR(spread(model.weight("decoder.0.self.q.weight")), 0.05, 0.004);
  // 1 / sqrt(2 * 2 layers)
  EXPECT_NEAR(spread(model.weight("decoder.1.ffn.down.weight")), 0.05 / 2, 0.002);
  EXPECT_EQ(spread(model.weight("decoder.norm.weight")), 1);
  EXPECT_EQ(model.weight("decoder.0.self.q.weight").get(3, 4),
            again.weight("decoder.0.self.q.weight").get(3, 4));
  EXPECT_NE(model.weight("decoder.0.self.q.weight").get(3, 4),
            model.weight("decoder.1.self.q.weight").get(3, 4));
}

}  // namespace
}  // namespace rapt::test
