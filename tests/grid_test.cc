// SPDX-License-Identifier: Apache-2.0
// Rules every legal recipe keeps, over the option grid. Each test walks all recipes; the first prints
// the list.
#include "tests/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "rapt/base/rng.h"
#include "rapt/nn/sites.h"
#include "rapt/ops/op_test.h"
#include "tests/build_kind.h"
#include "tests/model_tools.h"
#include "tests/naive_model.h"

namespace rapt::test {
namespace {

constexpr Dim kLengths[] = {9, 5};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

template <class F>
void for_grid(const F& f) {
  std::size_t number = 0;
  for (const GridCase& c : option_grid()) {
    SCOPED_TRACE(concat("recipe ", number, ": ", c.name));
    f(c, number++);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Grid, HoldsAtLeastThreeHundredRecipesAndPrintsThem) {
  RAPT_NOT_SANITIZED("the whole search for recipes");
  const auto& grid = option_grid();
  EXPECT_GE(grid.size(), 300u);
  for (std::size_t i = 0; i < grid.size(); ++i) std::printf("%3zu  %s\n", i, grid[i].name.c_str());
}

// A stack whose batch norms bound nothing may grow (a convolution multiplies three numbers, an expert two)
// until squares leave float32: only double is compared then.
TEST(Grid, FusedEqualsNaive) {
  Device exact({.threads = 1, .isa = "f64"}), fast({.threads = 2});
  std::size_t beyond = 0;
  for_grid([&](const GridCase& c, std::size_t n) {
    Model model(c.recipe, DType::f64), narrow(c.recipe, DType::f32);
    randomise(model, n);
    randomise(narrow, n);
    const std::vector<SomeText> texts = some_texts(c.recipe, kLengths, n);
    std::vector<double> expected;
    for (const SomeText& t : texts)
      for (double v : naive_forward(model, {t.tokens, t.types, t.source, t.prefix})) expected.push_back(v);
    double largest = 0;
    Taps taps;
    taps.see(site::final_norm, [&](const Tapped& t) {
      for (double v : all_values(t.value)) largest = std::max(largest, std::abs(v));
    });
    const PackedBatch packed(texts);
    rapt::Run run(exact);
    run.taps = &taps;
    EXPECT_LE(nmse(all_values(forward(run, model, packed.batch, packed.source_or_null())), expected), 1e-20);
    if (largest > 1e18) ++beyond;
    else EXPECT_LE(nmse(logits_of(fast, narrow, texts), expected), 1e-9) << "largest " << largest;
  });
  EXPECT_LE(beyond, 2u);
}

TEST(Grid, CachedEqualsUncachedBitForBit) {
  Device device({.threads = 2});
  std::size_t compared = 0;
  for_grid([&](const GridCase& c, std::size_t n) {
    if (!c.recipe.decoder) return;  // an encoder's rows look ahead: nothing to continue
    if (c.recipe.head.kind == HeadRecipe::Kind::classes) return;  // whole sequences only
    Model model(c.recipe, device.real);
    randomise(model, n);
    const SomeText text = some_texts(c.recipe, kLengths, n)[0];
    const std::vector<double> whole = logits_of(device, model, {&text, 1});
    for (Dim chunk : {1, 4}) {
      KvPool cache(model);
      EXPECT_TRUE(same_bits(whole, logits_cached(device, model, text, chunk, cache)))
          << "pieces of " << chunk;
      EXPECT_EQ(cache.pages(), 0u);
      ++compared;
    }
  });
  EXPECT_GE(compared, kSanitized ? 100u : 300u);
}

TEST(Grid, PackedEqualsSeparateBitForBit) {
  RAPT_NOT_SANITIZED("bits of hundreds of passes compared");
  Device device({.threads = 2});
  for_grid([&](const GridCase& c, std::size_t n) {
    Model model(c.recipe, device.real);
    randomise(model, n);
    const std::vector<SomeText> texts = some_texts(c.recipe, kLengths, n);
    std::vector<double> apart;
    for (const SomeText& t : texts)
      for (double v : logits_of(device, model, {&t, 1})) apart.push_back(v);
    EXPECT_TRUE(same_bits(logits_of(device, model, texts), apart));
  });
}

// The sum of all outputs times fixed random numbers, in training mode, with the gradients of all weights.
struct Trained {
  double loss = 0;
  std::vector<double> logits;
};

Trained train_pass(Device& device, const Model& model, const PackedBatch& packed, Gradients* gradients,
                   bool recompute) {
  Run run(device);
  std::optional<Tape> tape;
  if (gradients) run.tape = &tape.emplace(*gradients);
  run.recompute = recompute;
  run.training = true;
  run.random = {7, 3};
  const Tensor out = forward(run, model, packed.batch, packed.source_or_null());
  Trained t{.logits = all_values(out)};
  for (std::size_t i = 0; i < t.logits.size(); ++i) t.loss += t.logits[i] * random_normal(99, i);
  if (!gradients) return t;
  void* g = run.grad(out);
  for (std::size_t i = 0; i < t.logits.size(); ++i) {
    if (device.real == DType::f64) static_cast<double*>(g)[i] = random_normal(99, i);
    else static_cast<float*>(g)[i] = static_cast<float>(random_normal(99, i));
  }
  tape->play_back(run);
  return t;
}

TEST(Grid, RecomputeEqualsNoRecomputeBitForBit) {
  RAPT_NOT_SANITIZED("bits of hundreds of passes compared");
  Device device({.threads = 2});
  for_grid([&](const GridCase& c, std::size_t n) {
    Model model(c.recipe, device.real);
    randomise(model, n);
    const PackedBatch packed(some_texts(c.recipe, kLengths, n));
    Gradients kept(device.real), again(device.real);
    const Trained a = train_pass(device, model, packed, &kept, false),
                  b = train_pass(device, model, packed, &again, true);
    EXPECT_TRUE(same_bits(a.logits, b.logits));
    for (const Weight& w : model.weights) {
      const std::byte *x = kept.find(w), *y = again.find(w);
      ASSERT_EQ(x == nullptr, y == nullptr) << w.name;
      if (x)
        EXPECT_EQ(std::memcmp(x, y, static_cast<std::size_t>(w.stored()) * size_of(device.real)), 0)
            << "gradient of " << w.name;
    }
  });
}

TEST(Grid, GradientEqualsFiniteDifferenceInFloat64) {
  Device exact({.threads = 1, .isa = "f64"});
  for_grid([&](const GridCase& c, std::size_t n) {
    Recipe recipe = c.recipe;
    // A difference across the edge of a clamp says nothing about its slope; rapt/ops/activation_test.cc does.
    for (auto* stack : {&recipe.encoder, &recipe.decoder})
      if (*stack)
        for (auto& [letter, layer] : (*stack)->kinds)
          for (PartRecipe& p : layer.parts)
            if (p.attention()) p.attention()->clip = 0;
    Model model(recipe, DType::f64);
    randomise(model, n);
    const PackedBatch packed(some_texts(c.recipe, kLengths, n));
    Gradients gradients(DType::f64);
    train_pass(exact, model, packed, &gradients, false);
    // Along one unit direction per weight; under sanitizers along one direction through all weights
    // at once.
    const bool kTogether = kSanitized;
    // Rounding of a loss near 1,000 is then 1e-8, and so is what the third derivative leaves.
    constexpr double kStep = 1e-5;
    auto direction = [&](const Weight& w, Dim i) {
      return random_normal(1234 + static_cast<std::uint64_t>(w.index), static_cast<std::uint64_t>(i));
    };
    auto trainable = [](const Weight& w) { return !w.name.ends_with(".running"); };
    auto check = [&](const std::vector<Weight*>& moved, const std::string& name) {
      double length = 0, slope = 0;
      for (const Weight* w : moved)
        for (Dim i = 0; i < w->size(); ++i) length += direction(*w, i) * direction(*w, i);
      length = std::sqrt(length);
      auto move = [&](double by) {
        for (Weight* w : moved)
          for (Dim i = 0; i < w->size(); ++i)
            w->set(i / w->cols, i % w->cols,
                   w->get(i / w->cols, i % w->cols) + by * direction(*w, i) / length);
      };
      for (const Weight* w : moved)
        for (Dim i = 0; i < w->size(); ++i)
          slope += gradients.get(*w, i / w->cols, i % w->cols) * direction(*w, i) / length;
      const auto quotient = [&](double step) {
        move(step);
        const double up = train_pass(exact, model, packed, nullptr, false).loss;
        move(-2 * step);
        const double down = train_pass(exact, model, packed, nullptr, false).loss;
        move(step);
        return (up - down) / (2 * step);
      };
      double difference = quotient(kStep);
      const auto tolerance = [&] { return 3e-7 + 1e-5 * std::abs(difference); };  // 0 was met to 1.1e-7
      // A loss that bends more than others: what the third derivative leaves falls with the step squared.
      if (std::abs(slope - difference) > tolerance()) difference = quotient(kStep / 8);
      EXPECT_NEAR(slope, difference, tolerance()) << name;
    };
    std::vector<Weight*> all;
    for (Weight& w : model.weights)
      if (trainable(w)) all.push_back(&w);
    if (kTogether) check(all, "all weights");
    else
      for (Weight* w : all) check({w}, w->name);
  });
}

}  // namespace
}  // namespace rapt::test
