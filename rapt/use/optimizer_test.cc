// SPDX-License-Identifier: Apache-2.0
// Optimizers over a toy's weights against torch.optim (tests/golden/make_optimizer.py), and what training
// rests on: the norm before the step, states that can be saved, averages, schedules.
#include "rapt/use/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <numbers>
#include <sstream>

#include "rapt/base/json.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

using Kind = OptimizerOptions::Kind;

Recipe toy() {
  Recipe r;
  r.width = 6;
  r.vocab = 5;
  r.context = 16;
  LayerRecipe layer;
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = AttnRecipe{.heads = 2}});
  layer.parts.push_back(
      {.norm_in = NormRecipe{}, .body = FfnRecipe{.kind = FfnRecipe::Kind::mlp, .width = 9, .bias = true}});
  r.decoder = StackRecipe{.layers = 1, .kinds = {{"L", layer}}, .final_norm = NormRecipe{}};
  return r;
}

// tests/golden/README.md: element i of what is called so.
double drawn(const std::string& name, Dim i) {
  std::uint64_t h = 14695981039346656037u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  std::uint64_t z = h + static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 40) * 0x1p-23 - 1;
}

void start(Model& model) {
  for (Weight& w : model.weights)
    for (Dim i = 0; i < w.size(); ++i) w.set(i / w.cols, i % w.cols, drawn(w.name, i));
}

void set(Gradients& gradients, DType real, const Weight& w, Dim i, double value) {
  std::byte* g = gradients.of(w);
  const auto at = static_cast<std::size_t>(w.offset(i / w.cols, i % w.cols));
  if (real == DType::f64) reinterpret_cast<double*>(g)[at] = value;
  else reinterpret_cast<float*>(g)[at] = static_cast<float>(value);
}

void draw(Gradients& gradients, DType real, const Weight& w, int step, double size) {
  for (Dim i = 0; i < w.size(); ++i)
    set(gradients, real, w, i,
        drawn(concat(w.name, " gradient ", step), i) * size * (step % 3 == 2 ? 10 : 1));
}

std::vector<double> values(const Weight& w) {
  std::vector<double> out;
  for (Dim i = 0; i < w.size(); ++i) out.push_back(w.get(i / w.cols, i % w.cols));
  return out;
}

std::vector<std::byte> bytes_of(const Model& model) {
  std::vector<std::byte> out;
  for (const Weight& w : model.weights) out.insert(out.end(), w.data.get(), w.data.get() + w.bytes());
  return out;
}

std::vector<std::byte> state_of(Optimizer& optimizer) {
  std::vector<std::byte> out;
  optimizer.each_state(
      [&](const std::string&, Weight& w) { out.insert(out.end(), w.data.get(), w.data.get() + w.bytes()); });
  return out;
}

void step(Device& device, Optimizer& optimizer, Model& model, int number, double size = 0.5,
          double factor = 1) {
  Gradients gradients(device.real);
  for (const Weight& w : model.weights) draw(gradients, device.real, w, number, size);
  optimizer.step(device, gradients, optimizer.norm(device, gradients), factor);
}

OptimizerOptions options_of(const Json& json) {
  static const std::map<std::string, Kind> kKinds = {
      {"adamw", Kind::adamw}, {"adam", Kind::adam}, {"sgd", Kind::sgd}, {"muon", Kind::muon}};
  OptimizerOptions o;
  o.kind = kKinds.at(need(json, "kind").string());
  auto number = [&](const char* key, double& to) {
    if (const Json* found = json.find(key)) to = found->number();
  };
  number("rate", o.rate), number("beta1", o.beta1), number("beta2", o.beta2), number("eps", o.eps),
      number("momentum", o.momentum);
  number("muon_rate", o.muon_rate), number("decay", o.decay), number("clip", o.clip), number("ema", o.ema);
  if (const Json* nesterov = json.find("nesterov")) o.nesterov = nesterov->boolean();
  return o;
}

TEST(Optimizer, TwelveStepsAsTorchTakesThem) {
  std::ifstream file(std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/optimizer.json");
  std::stringstream text;
  text << file.rdbuf();
  const Json golden = parse_json(text.str(), "optimizer.json");
  ASSERT_EQ(need(golden, "cases").array().size(), 8u);
  std::vector<std::string> isas = available_isas();
  isas.push_back("f64");
  for (const std::string& isa : isas)
    for (const Json& c : need(golden, "cases").array()) {
      const std::string name = isa + ": " + need(c, "name").string();
      Device device({.threads = 2, .isa = isa});
      Model model(toy(), device.real);
      start(model);
      std::vector<const Weight*> moved;
      for (const Json::Member& m : need(golden, "weights").object()) {
        moved.push_back(&model.weight(m.key));
        ASSERT_EQ(moved.back()->rows, m.value.array()[0].integer());
        ASSERT_EQ(moved.back()->cols, m.value.array()[1].integer());
      }
      const OptimizerOptions options = options_of(need(c, "options"));
      Optimizer optimizer(model, options);
      // Muon's five steps magnify what f32 rounds off in small singular values; all others are held
      // to 1e-6.
      const double limit = isa == "f64" ? 1e-9 : options.kind == Kind::muon ? 2e-5 : 1e-6;
      auto compare = [&](const char* key) {
        std::size_t at = 0;
        for (const Weight* w : moved)
          for (double v : values(*w)) {
            const double expected = need(c, key).array()[at++].number();
            EXPECT_NEAR(v, expected, limit * std::max(1.0, std::abs(expected)))
                << name << ", " << key << ": " << w->name;
          }
        EXPECT_EQ(at, need(c, key).array().size());
      };
      const Json::Array& factors = need(golden, "factors").array();
      for (std::size_t s = 0; s < factors.size(); ++s) {
        Gradients gradients(device.real);
        for (const Weight* w : moved)
          draw(gradients, device.real, *w, static_cast<int>(s), need(golden, "gradient_size").number());
        const double norm = optimizer.norm(device, gradients),
                     expected = need(c, "norms").array()[s].number();
        EXPECT_NEAR(norm, expected, 1e-6 * expected) << name;
        optimizer.step(device, gradients, norm, factors[s].number());
        if (s == 0) compare("first");
      }
      compare("last");
      EXPECT_EQ(optimizer.steps(), static_cast<std::int64_t>(factors.size()));
      if (!optimizer.has_ema()) continue;
      optimizer.swap_ema();
      compare("average");
      optimizer.swap_ema();
      compare("last");
      // Weights without a gradient are where they were.
      EXPECT_EQ(model.weight("head.weight").get(0, 0), drawn("head.weight", 0)) << name;
    }
}

const OptimizerOptions kEvery[] = {
    {.kind = Kind::adamw, .ema = 0.9},
    {.kind = Kind::adam},
    {.kind = Kind::sgd, .rate = 0.1, .momentum = 0},
    {.kind = Kind::sgd, .rate = 0.1, .momentum = 0.9, .nesterov = true},
    {.kind = Kind::muon, .momentum = 0.95, .ema = 0.5},
};

TEST(Optimizer, StoppedSavedAndContinuedIsBitEqualWhateverTheThreads) {
  Device one({.threads = 1}), three({.threads = 3});
  for (const OptimizerOptions& options : kEvery) {
    Model straight(toy(), one.real), first(toy(), one.real), second(toy(), one.real);
    start(straight), start(first);
    Optimizer whole(straight, options), before(first, options);
    for (int s = 0; s < 9; ++s) step(one, whole, straight, s);
    for (int s = 0; s < 4; ++s) step(three, before, first, s);
    // What a checkpoint holds: weights, state by name, the count of steps.
    std::map<std::string, std::vector<std::byte>> saved;
    before.each_state([&](const std::string& name, Weight& w) {
      EXPECT_EQ(name, w.name);
      EXPECT_TRUE(saved.emplace(name, row_major(w)).second) << name;
    });
    for (std::size_t i = 0; i < first.weights.size(); ++i)
      fill_row_major(second.weights[i], row_major(first.weights[i]));
    Optimizer after(second, options);
    after.each_state([&](const std::string& name, Weight& w) { fill_row_major(w, saved.at(name)); });
    after.set_steps(before.steps());
    for (int s = 4; s < 9; ++s) step(three, after, second, s);
    EXPECT_EQ(bytes_of(second), bytes_of(straight)) << static_cast<int>(options.kind);
    EXPECT_EQ(state_of(after), state_of(whole)) << static_cast<int>(options.kind);
  }
}

TEST(Optimizer, NamesOfTheStateAndWhatMuonMoves) {
  Model model(toy());
  auto names = [&](const OptimizerOptions& options) {
    Optimizer optimizer(model, options);
    std::vector<std::string> out;
    optimizer.each_state([&](const std::string& name, Weight&) { out.push_back(name); });
    return out;
  };
  auto has = [](const std::vector<std::string>& all, const char* name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  const auto adamw = names({});
  EXPECT_EQ(adamw.size(), 2 * model.weights.size());
  EXPECT_TRUE(has(adamw, "decoder.0.self.q.weight.mean") && has(adamw, "decoder.0.self.q.weight.variance"));
  EXPECT_EQ(names({.ema = 0.9}).size(), 3 * model.weights.size());
  EXPECT_TRUE(has(names({.ema = 0.9}), "head.weight.average"));
  EXPECT_EQ(names({.kind = Kind::sgd}).size(), model.weights.size());
  EXPECT_TRUE(names({.kind = Kind::sgd, .momentum = 0}).empty());
  const auto muon = names({.kind = Kind::muon});
  for (const char* name : {"decoder.0.self.q.weight", "decoder.0.self.k.weight", "decoder.0.self.v.weight",
                           "decoder.0.self.o.weight", "decoder.0.ffn.up.weight", "decoder.0.ffn.down.weight"})
    EXPECT_TRUE(has(muon, concat(name, ".momentum").c_str()) && !has(muon, concat(name, ".mean").c_str()))
        << name;
  for (const char* name : {"embed.tokens", "head.weight", "decoder.norm.weight", "decoder.0.ffn.up.bias",
                           "decoder.0.self.norm_in.weight"})
    EXPECT_TRUE(has(muon, concat(name, ".mean").c_str()) && !has(muon, concat(name, ".momentum").c_str()))
        << name;
}

TEST(Optimizer, ANormThatIsNotFiniteChangesNothing) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Device device({.threads = 2});
  for (const OptimizerOptions& options : kEvery) {
    Model model(toy(), device.real);
    start(model);
    Optimizer optimizer(model, options);
    step(device, optimizer, model, 0);
    const auto weights = bytes_of(model), state = state_of(optimizer);
    for (const Weight& where : model.weights)
      for (double bad : {std::nan(""), kInf, -kInf}) {
        Gradients gradients(device.real);
        for (const Weight& w : model.weights) draw(gradients, device.real, w, 1, 0.5);
        set(gradients, device.real, where, where.size() - 1, bad);
        const double norm = optimizer.norm(device, gradients);
        EXPECT_FALSE(std::isfinite(norm)) << where.name;
        EXPECT_TRUE(holds(error_of([&] { optimizer.step(device, gradients, norm); }), "no step is taken"));
      }
    EXPECT_EQ(bytes_of(model), weights);
    EXPECT_EQ(state_of(optimizer), state);
    EXPECT_EQ(optimizer.steps(), 1);
    // The largest finite numbers are finite together too, and are clipped to a step like any other.
    Gradients huge(device.real);
    for (const Weight& w : model.weights)
      for (Dim i = 0; i < w.size(); ++i) set(huge, device.real, w, i, i % 2 ? 3e38 : -3e38);
    const double norm = optimizer.norm(device, huge);
    EXPECT_TRUE(std::isfinite(norm) && norm > 3e38);
    optimizer.step(device, huge, norm);
    for (const Weight& w : model.weights)
      for (double v : values(w)) EXPECT_TRUE(std::isfinite(v) && std::abs(v) < 3) << w.name << " " << v;
  }
}

TEST(Optimizer, PaddingOfPanelsStaysZero) {
  Device device({.threads = 1});
  for (const OptimizerOptions& options : kEvery) {
    Model model(toy(), device.real);
    start(model);
    Optimizer optimizer(model, options);
    for (int s = 0; s < 3; ++s) step(device, optimizer, model, s);
    const Weight& w = model.weight("decoder.0.ffn.up.weight");
    const float* raw = reinterpret_cast<const float*>(w.data.get());
    for (Dim c = 0; c < w.cols; ++c)
      for (Dim l = w.rows; l < kPanel; ++l) EXPECT_EQ(raw[c * kPanel + l], 0);
  }
}

TEST(Optimizer, AveragesStandInForWeightsUntilSwappedBack) {
  Device device({.threads = 1});
  for (Kind kind : {Kind::adamw, Kind::muon}) {
    Model model(toy(), device.real);
    start(model);
    Optimizer optimizer(model, {.kind = kind, .rate = 0.1, .ema = 0.5});
    step(device, optimizer, model, 0);
    const auto present = bytes_of(model);
    optimizer.swap_ema();
    EXPECT_EQ(bytes_of(model), present);  // it begins with the first step's weights
    EXPECT_TRUE(holds(error_of([&] { step(device, optimizer, model, 1); }), "swap_ema"));
    EXPECT_TRUE(holds(error_of([&] { state_of(optimizer); }), "swap_ema"));
    optimizer.swap_ema();
    step(device, optimizer, model, 1);
    std::vector<std::vector<double>> later;
    for (const Weight& w : model.weights) later.push_back(values(w));
    optimizer.swap_ema();
    for (std::size_t i = 0; i < later.size(); ++i)
      EXPECT_NE(values(model.weights[i]), later[i]) << model.weights[i].name;
    optimizer.swap_ema();
    for (std::size_t i = 0; i < later.size(); ++i)
      EXPECT_EQ(values(model.weights[i]), later[i]) << model.weights[i].name;
  }
  Model model(toy());
  Optimizer plain(model, {});
  EXPECT_FALSE(plain.has_ema());
  EXPECT_TRUE(holds(error_of([&] { plain.swap_ema(); }), "ema"));
}

TEST(Optimizer, SaysWhatItCannotDo) {
  Model model(toy());
  EXPECT_TRUE(holds(error_of([&] { Optimizer(model, {.beta2 = 1}); }), "beta2 is 1"));
  EXPECT_TRUE(holds(error_of([&] { Optimizer(model, {.rate = -1}); }), "rate is -1"));
  EXPECT_TRUE(holds(error_of([&] { Optimizer(model, {.rate = std::nan("")}); }), "rate is nan"));
  EXPECT_TRUE(holds(error_of([&] { Optimizer(model, {.eps = 0}); }), "eps is 0"));
  EXPECT_TRUE(holds(error_of([&] { Optimizer(model, {.kind = Kind::sgd, .momentum = 0, .nesterov = true}); }),
                    "nesterov"));
  Model half(toy(), DType::f32, DType::bf16);
  EXPECT_TRUE(holds(error_of([&] { Optimizer(half, {}); }), "is stored as bf16; training needs f32"));
  Device exact({.threads = 1, .isa = "f64"});
  Gradients none(DType::f64);
  Optimizer optimizer(model, {});
  EXPECT_TRUE(holds(error_of([&] { optimizer.step(exact, none, 0); }), "computes in f64"));
}

TEST(Schedule, Cosine) {
  const Schedule s{.warmup = 10, .total = 110, .floor = 0.1};
  EXPECT_DOUBLE_EQ(s.at(0), 0.1);
  EXPECT_DOUBLE_EQ(s.at(4), 0.5);
  EXPECT_DOUBLE_EQ(s.at(9), 1);
  EXPECT_DOUBLE_EQ(s.at(10), 1);
  EXPECT_DOUBLE_EQ(s.at(60), 0.55);  // half way
  EXPECT_DOUBLE_EQ(s.at(35), 0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi / 4)));
  EXPECT_NEAR(s.at(110), 0.1, 1e-15);
  EXPECT_NEAR(s.at(5000), 0.1, 1e-15);
  EXPECT_DOUBLE_EQ((Schedule{.warmup = 0, .total = 1}.at(0)), 1);
}

TEST(Schedule, InverseSquareRootIsThatOf2017) {
  const Schedule s{.kind = Schedule::Kind::inverse_sqrt, .warmup = 4000, .total = 100000};
  for (std::int64_t step : {0, 1, 1999, 3998, 3999, 4000, 15999, 99999}) {
    const double n = static_cast<double>(step + 1),
                 formula = std::min(std::pow(n, -0.5), n * std::pow(4000, -1.5)) * std::sqrt(4000);
    EXPECT_NEAR(s.at(step), formula, 1e-12) << step;
  }
  EXPECT_DOUBLE_EQ(s.at(3999), 1);
  EXPECT_DOUBLE_EQ(s.at(15999), 0.5);
  EXPECT_DOUBLE_EQ((Schedule{.kind = Schedule::Kind::inverse_sqrt, .warmup = 0}.at(3)), 0.5);
}

TEST(Schedule, WarmUpStableDecayAndConstant) {
  const Schedule s{.kind = Schedule::Kind::wsd, .warmup = 10, .total = 100, .floor = 0.2, .decay_share = 0.2};
  EXPECT_DOUBLE_EQ(s.at(0), 0.1);
  EXPECT_DOUBLE_EQ(s.at(10), 1);
  EXPECT_DOUBLE_EQ(s.at(79), 1);
  EXPECT_DOUBLE_EQ(s.at(80), 1);
  EXPECT_DOUBLE_EQ(s.at(90), 0.6);
  EXPECT_NEAR(s.at(100), 0.2, 1e-15);
  EXPECT_NEAR(s.at(1000), 0.2, 1e-15);
  const Schedule c{.kind = Schedule::Kind::constant, .warmup = 4, .total = 10};
  EXPECT_DOUBLE_EQ(c.at(1), 0.5);
  EXPECT_DOUBLE_EQ(c.at(4), 1);
  EXPECT_DOUBLE_EQ(c.at(40), 1);
}

}  // namespace
}  // namespace rapt::test
