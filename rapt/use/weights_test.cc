// SPDX-License-Identifier: Apache-2.0
// Weights as rows of numbers and back, whatever their packing; other weights forget what was read.
#include "rapt/use/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/recipe/recipe_set.h"
#include "rapt/use/engine.h"
#include "rapt/use/train.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

using testing::HasSubstr;

Recipe tiny() {
  const std::vector<std::string> settings = {"width=40", "layers=2", "heads=2",    "kv_heads=1",
                                             "ffn=72",   "vocab=50", "context=300"};
  return with_settings(preset("llama3"), settings);
}

TEST(Weights, ComeOutInRowsAndGoBack) {
  Device device({.threads = 1});
  Model model(tiny());
  init(model, 3);
  for (const Weight& w : model.weights) {
    const std::vector<float> before = weight_numbers(w);
    ASSERT_EQ(static_cast<Dim>(before.size()), w.size());
    for (Dim e = 0; e < w.size(); ++e)
      ASSERT_EQ(before[static_cast<std::size_t>(e)], static_cast<float>(w.get(e / w.cols, e % w.cols)))
          << w.name;
    std::vector<float> other = before;
    for (float& x : other) x = 2 * x + 1;
    const std::uint64_t changes = model.changes;
    set_weight(device, model, w.name, other);
    EXPECT_EQ(weight_numbers(w), other) << w.name;
    EXPECT_NE(model.changes, changes);
    set_weight(device, model, w.name, before);
    EXPECT_EQ(weight_numbers(w), before) << w.name;
  }
  const std::string name = model.weights[0].name;
  EXPECT_THAT(error_of([&] { set_weight(device, model, name, std::vector<float>(3)); }),
              HasSubstr("3 numbers"));
  EXPECT_THAT(error_of([&] { find_weight(model, name + "s"); }), HasSubstr("did you mean"));
}

// Memory that others look at stays as it is: a weight may lie in a file.
TEST(Weights, GetMemoryOfTheirOwn) {
  Device device({.threads = 1});
  Model model(tiny());
  Weight& w = model.weights[0];
  const std::shared_ptr<std::byte> before = w.data;
  const std::vector<float> ones(static_cast<std::size_t>(w.size()), 1.0F);
  set_weight(device, model, w.name, ones);
  EXPECT_NE(w.data, before);
  EXPECT_EQ(reinterpret_cast<const float*>(before.get())[0], 0.0F);
}

TEST(Weights, OfNarrowFormatsAreRounded) {
  Device device({.threads = 1});
  Model model(tiny(), DType::f32, DType::bf16);
  const Weight& w = find_weight(model, "decoder.0.self.q.weight");
  ASSERT_EQ(w.format, DType::bf16);
  std::vector<float> numbers(static_cast<std::size_t>(w.size()), 1.0F + 1.0F / 512);
  set_weight(device, model, w.name, numbers);
  EXPECT_EQ(weight_numbers(w)[5], 1.0F);
}

TEST(Weights, GradientsLikewise) {
  Device device({.threads = 1});
  Model model(tiny());
  init(model, 3);
  TrainBatch b{.tokens = {1, 2, 3, 4}, .targets = {2, 3, 4, 5}, .sequences = {{.count = 4}}, .counted = 4};
  Gradients a(device.real), copy(device.real);
  batch_gradients(device, model, b, a);
  for (const Weight& w : model.weights) {
    const std::vector<float> numbers = gradient_numbers(w, a);
    ASSERT_EQ(static_cast<Dim>(numbers.size()), w.size()) << w.name;
    for (Dim e = 0; e < w.size(); ++e)
      ASSERT_EQ(numbers[static_cast<std::size_t>(e)], static_cast<float>(a.get(w, e / w.cols, e % w.cols)));
    EXPECT_TRUE(gradient_numbers(w, copy).empty());
    set_gradient(w, copy, numbers);
    EXPECT_EQ(gradient_numbers(w, copy), numbers);
  }
}

TEST(Weights, ACopyOfAModelIsItsOwn) {
  Device device({.threads = 1});
  Checkpoint from;
  from.model = std::make_unique<Model>(tiny(), DType::f32, DType::bf16);
  init(*from.model, 3);
  from.stops = {4};
  from.family = "rapt";
  Checkpoint to = copy_checkpoint(from, DType::f32);
  EXPECT_EQ(to.stops, from.stops);
  EXPECT_EQ(to.family, "rapt");
  for (const Weight& w : to.model->weights) {
    EXPECT_EQ(w.format, DType::f32);
    EXPECT_EQ(weight_numbers(w), weight_numbers(find_weight(*from.model, w.name))) << w.name;
  }
}

// Prefixes and held sequences that were computed with other weights are not used.
TEST(Weights, OtherWeightsForgetWhatWasRead) {
  Device device({.threads = 1});
  Model model(tiny());
  init(model, 3);
  Engine::Options options;
  options.prefixes = true;
  Engine engine(device, model, options);
  std::vector<std::int32_t> prompt;
  for (std::int32_t i = 0; i < 200; ++i) prompt.push_back(i * 7 % 50);
  const auto ask = [&](Engine& of) {
    Request r;
    r.tokens = prompt;
    r.generate.max_tokens = 8;
    r.generate.sampler.temperature = 0;
    r.generate.ignore_eos = true;
    r.hold = 5;
    Dim reused = 0;
    const Answer a = of.finish(of.add(std::move(r)), [&](const Event& e) {
      if (e.kind == Event::Kind::prompt) reused = std::max(reused, e.reused);
    });
    return std::pair{a.samples.front().ids, reused};
  };
  const auto [first, none] = ask(engine);
  const auto [again, all] = ask(engine);
  EXPECT_EQ(first, again);
  EXPECT_EQ(none, 0);
  EXPECT_GT(all, 0);
  std::vector<float> other = weight_numbers(find_weight(model, "decoder.0.self.v.weight"));
  for (float& x : other) x = -3 * x;
  set_weight(device, model, "decoder.0.self.v.weight", other);
  const auto [changed, reused] = ask(engine);
  EXPECT_EQ(reused, 0);
  Engine fresh(device, model, options);
  EXPECT_EQ(changed, ask(fresh).first);
}

}  // namespace
}  // namespace rapt::test
