// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts as a whole: names, the auxiliary loss through a model, a small one that learns, what
// can be seen of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "rapt/base/rng.h"
#include "rapt/inspect/experts.h"
#include "rapt/inspect/sites.h"
#include "rapt/load/model_folder.h"
#include "rapt/nn/size.h"
#include "rapt/ops/loss.h"
#include "rapt/use/train.h"
#include "tests/build_kind.h"
#include "tests/memory_checkpoint.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

Recipe small_moe(const std::string& moe, Dim vocab = 19) {
  Recipe r = parse_recipe(concat(
      R"({"name":"small-moe","width":24,"context":64,"decoder":{"layers":2,"final_norm":"rms","kinds":{"L":{)",
      R"("parts":[{"self":{"norm_in":"rms","heads":3,"pos":{"rope":{}}}},{"moe":{"norm_in":"rms",)", moe,
      R"(}}]}}}})"));
  r.vocab = vocab;
  return resolve(r);
}

TEST(Moe, WeightsHaveTheirNamesAndOrder) {
  const Model m(small_moe(R"("experts":2,"used":1,"width":16,"bias":true,"shared":{"width":8,"gated":true},
    "router":{"bias":true,"choice_bias":true})"),
                DType::f32, DType::bf16);
  std::vector<std::string> names;
  for (const Weight& w : m.weights)
    if (w.name.starts_with("decoder.1.moe.")) names.push_back(w.name.substr(14));
  std::vector<std::string> expected = {"norm_in.weight", "router.weight", "router.bias", "router.choice"};
  for (const char* net : {"experts.0", "experts.1", "shared"})
    for (const char* matrix : {".gate", ".up", ".down"})
      for (const char* end : {".weight", ".bias"}) expected.push_back(concat(net, matrix, end));
  expected.emplace_back("shared_gate.weight");
  EXPECT_EQ(names, expected);
  for (const Weight& w : m.weights) {
    const bool real = w.packing == Packing::rows || stays_real(w.name);
    EXPECT_EQ(w.format, real ? DType::f32 : DType::bf16) << w.name;
  }
}

TEST(Moe, ATokenUsesSomeOfTheParameters) {
  const Recipe r = small_moe(R"("experts":6,"used":2,"width":16,"router":{"choice_bias":true})");
  const ParameterCount count = count_parameters(r);
  EXPECT_EQ(count.total - count.active, 2 * 4 * 3 * 16 * 24);
  EXPECT_EQ(count.total, Model(r, DType::f32).parameters());
  const Recipe one = small_moe(R"("experts":2,"used":2,"width":16)");
  EXPECT_EQ(count_parameters(one).active, count_parameters(one).total);
  EXPECT_EQ(count_cost(r, 8).token.matrices - count_cost(one, 8).token.matrices, 2 * 2 * 4 * 24);
}

// ------------------------------------------------------------------------------------------ auxiliary loss
struct Pass {
  std::vector<std::vector<double>> logits;  // by layer, [T,E]
  std::vector<std::vector<double>> chosen;  // by layer, [T,k]
};
Pass look_at(Device& device, const Model& model, const Batch& batch) {
  rapt::Run run(device);
  Pass p;
  Taps taps;
  taps.see(site::router, [&](const Tapped& t) { p.logits.push_back(all_values(t.value)); });
  taps.see(site::expert_indices, [&](const Tapped& t) { p.chosen.push_back(all_values(t.value)); });
  run.taps = &taps;
  forward(run, model, batch);
  return p;
}
// coefficient * E * sum of f P: of each layer, or of all rows of all layers. f is that of `fixed`.
double auxiliary(const MoeRecipe& m, const Pass& p, const Pass& fixed) {
  const bool together = m.balance_over == MoeRecipe::Pooling::stack;
  const auto E = static_cast<std::size_t>(m.experts);
  double loss = 0;
  for (std::size_t first = 0; first < p.logits.size(); first += together ? p.logits.size() : 1) {
    std::vector<double> f(E), P(E);
    double rows = 0;
    for (std::size_t l = first; l < (together ? p.logits.size() : first + 1); ++l) {
      for (std::size_t at = 0; at < p.logits[l].size(); at += E, ++rows) {
        double sum = 0;
        for (std::size_t e = 0; e < E; ++e) sum += std::exp(p.logits[l][at + e]);
        for (std::size_t e = 0; e < E; ++e) P[e] += std::exp(p.logits[l][at + e]) / sum;
      }
      for (const double e : fixed.chosen[l]) f[static_cast<std::size_t>(e)] += 1;
    }
    for (std::size_t e = 0; e < E; ++e) loss += static_cast<double>(E) * f[e] / rows * P[e] / rows;
  }
  return m.balance * loss;
}

// What the auxiliary loss adds to the gradients of the weights, against differences of its formula.
TEST(Moe, TheAuxiliaryLossReachesEveryWeight) {
  for (const char* over : {"layer", "stack"})
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(concat(over, recompute));
      Device device({.threads = 2, .isa = "f64"});
      const Recipe recipe =
          small_moe(concat(R"("experts":5,"used":2,"width":8,"balance":0.5,"balance_over":")", over, "\""));
      const MoeRecipe& moe = *recipe.decoder->kinds.at("L").parts[1].moe();
      Model model(recipe, DType::f64);
      randomise(model, 3);
      const Dim lengths[] = {5, 4};
      const PackedBatch packed(some_texts(recipe, lengths, 4));
      const std::vector<std::int32_t> targets(9, 3);
      Gradients with(device.real), without(device.real);
      for (const bool training : {true, false}) {
        rapt::Run run(device);
        Tape tape(training ? with : without);
        run.tape = &tape;
        run.training = training;
        run.recompute = recompute;
        run.loss_share = 0.25;
        backward(run, cross_entropy(run, forward(run, model, packed.batch), targets).mean);
      }
      const Pass base = look_at(device, model, packed.batch);
      EXPECT_GT(auxiliary(moe, base, base),
                0.5 * 2 * (moe.balance_over == MoeRecipe::Pooling::stack ? 1 : 2) * 0.9);
      double largest = 0;
      for (const char* name : {"decoder.0.moe.router.weight", "decoder.1.moe.router.weight", "embed.tokens",
                               "decoder.0.moe.experts.1.down.weight", "decoder.0.self.q.weight"}) {
        Weight& w = model.weight(name);
        for (Dim i = 0; i < (kSanitized ? 2 : 12); ++i) {
          const Dim row = i * 7 % w.rows, col = i * 5 % w.cols;
          const double old = w.get(row, col);
          w.set(row, col, old + 1e-5);
          const double up = auxiliary(moe, look_at(device, model, packed.batch), base);
          w.set(row, col, old - 1e-5);
          const double down = auxiliary(moe, look_at(device, model, packed.batch), base);
          w.set(row, col, old);
          const double expected = 0.25 * (up - down) / 2e-5;
          EXPECT_NEAR(with.get(w, row, col) - without.get(w, row, col), expected, 1e-7) << name << " " << i;
          largest = std::max(largest, std::abs(expected));
        }
      }
      EXPECT_GT(largest, 1e-4);
    }
}

// ------------------------------------------------------------------------------------------------ training
// A token's follower depends on which of four kinds it is of: something for experts to share out.
class Kinds : public TrainData {
 public:
  Kinds() { vocab = kVocab; }
  static constexpr Dim kVocab = 32;
  TrainBatch batch(std::uint64_t number) const override { return make(number + 1); }
  Dim held_out() const override { return 2; }
  TrainBatch held_out_batch(Dim number) const override { return make(~static_cast<std::uint64_t>(number)); }
  double epochs(std::uint64_t) const override { return 0; }
  std::string about() const override { return "kinds of tokens"; }

 private:
  static TrainBatch make(std::uint64_t key) {
    constexpr Dim kStep[] = {1, 3, 5, 11};
    TrainBatch b;
    for (Dim n = 0; n < 6; ++n) {
      b.sequences.push_back({.first = n * 24, .count = 24, .id = key * 1000 + static_cast<std::uint64_t>(n)});
      Dim last = static_cast<Dim>(random_below(kVocab, key, static_cast<std::uint64_t>(n)));
      for (Dim i = 0; i < 24; ++i) {
        b.tokens.push_back(static_cast<std::int32_t>(last));
        last = (last * 5 + kStep[last / 8]) % kVocab;
        b.targets.push_back(static_cast<std::int32_t>(last));
      }
    }
    b.counted = static_cast<Dim>(b.targets.size());
    return b;
  }
};

struct Learned {
  double loss, balance, largest, entropy;
};
Learned learn(double balance, OptimizerOptions::Kind kind) {
  Device device({.threads = 2});
  Recipe r = small_moe(R"("experts":8,"used":2,"width":16)", Kinds::kVocab);
  r.decoder->kinds.at("L").parts[1].moe()->balance = balance;
  Model model(resolve(r), device.real);
  init(model, 1);
  TrainOptions o;
  o.steps = kSanitized ? 12 : 150;
  o.schedule = {.kind = Schedule::Kind::cosine, .warmup = 5, .total = o.steps};
  o.optimizer.kind = kind;
  o.optimizer.rate = 1e-2;
  o.health_every = 1;
  const Kinds data;
  Trainer trainer(device, model, data, o);
  Learned out{};
  for (Dim i = 0; i < o.steps; ++i) {
    const StepReport report = trainer.step();
    EXPECT_EQ(report.fate, StepReport::Fate::done) << report.why;
    out = {.loss = 0, .balance = 0, .largest = 0, .entropy = 0};
    for (const LayerHealth& h : report.health) {
      EXPECT_GE(h.balance, 0) << "the load is in the log";
      out.balance += h.balance / 2, out.largest += h.load_largest / 2, out.entropy += h.load_entropy / 2;
    }
  }
  out.loss = trainer.judge().loss;
  return out;
}

TEST(Moe, ASmallOneLearnsAndTheLossBalancesIt) {
  const Learned free = learn(0, OptimizerOptions::Kind::adamw),
                even = learn(0.02, OptimizerOptions::Kind::adamw);
  for (const auto& [name, l] : {std::pair{"without", free}, std::pair{"with   ", even}})
    std::printf("%s the auxiliary loss: held out %.3f, balance %.3f, busiest %.2f, entropy %.3f\n", name,
                l.loss, l.balance, l.largest, l.entropy);
  if (kSanitized) return;
  EXPECT_LT(free.loss, 0.3);
  EXPECT_LT(even.loss, 0.3);
  EXPECT_LT(even.largest, free.largest);
  EXPECT_NEAR(even.balance, 2, 0.1);
  EXPECT_GT(even.entropy, 0.95);
  EXPECT_LT(learn(0.02, OptimizerOptions::Kind::muon).loss, 0.5);
}

// ------------------------------------------------------------------------------------------ what can be seen
TEST(Moe, TheViewShowsWhatTheTokensChose) {
  Device device({.threads = 2});
  const Recipe recipe = small_moe(R"("experts":5,"used":2,"width":8)", 40);
  const Checkpoint c = memory_checkpoint(recipe, 5);
  Subject s(device, c);
  s.ids = {0, 5, 9, 2, 30, 7, 7};
  const std::vector<ExpertChoice> all = expert_choices(device, *c.model, s.ids);
  ASSERT_EQ(all.size(), 2u);
  for (const ExpertChoice& choice : all) {
    EXPECT_EQ(choice.load.rows, 7);
    ASSERT_EQ(choice.experts.size(), 14u);
    double load = 0;
    for (double n : choice.load.chosen) load += n;
    EXPECT_EQ(load, 14);
    for (std::size_t t = 0; t < 7; ++t) {
      EXPECT_NE(choice.experts[2 * t], choice.experts[2 * t + 1]);
      EXPECT_GE(choice.weights[2 * t], choice.weights[2 * t + 1]);
      EXPECT_NEAR(choice.weights[2 * t] + choice.weights[2 * t + 1], 1, 1e-6);
    }
    EXPECT_GE(choice.load.balance(), 0);
    EXPECT_LE(choice.load.entropy(), 1 + 1e-12);
  }
  const Document d = experts_document(s);
  EXPECT_EQ(d.facts.find("experts")->array().size(), 2u);
  EXPECT_THAT(document_text(d, false), testing::HasSubstr("experts of each token"));
  const Checkpoint dense = memory_checkpoint(small_decoder(), 5);
  EXPECT_THROW(expert_choices(device, *dense.model, s.ids), Error);
}

// A mixture behind a dense layer: names that both have find each layer's own.
TEST(Moe, PointsOfDenseLayersAndMixturesHaveTheSameNames) {
  Recipe r = small_moe(R"("experts":4,"used":2,"width":8)");
  r.decoder->pattern = "DL";
  r.decoder->kinds["D"] = r.decoder->kinds["L"];
  r.decoder->kinds["D"].parts[1].body = FfnRecipe{.width = 20};
  const Model m(r, DType::f32);
  EXPECT_EQ(find_points(m, "mlp_in.*").size(), 2u);
  EXPECT_EQ(find_points(m, "blocks.1.mlp.hook_out").size(), 1u);
  EXPECT_EQ(find_points(m, "router_logits.1")[0].shape, (std::vector<Dim>{Point::kRows, 4}));
  EXPECT_EQ(find_points(m, "expert_weights.*").size(), 1u);
  EXPECT_THROW(find_points(m, "router_logits.0"), Error);
  EXPECT_THROW(find_points(m, "mlp_pre.1"), Error);
  std::map<std::string, int> lines;
  for (const PointLine& l : list_points(m)) EXPECT_EQ(++lines[l.name], 1) << l.name;
}

// An expert whose logit is minus infinity is chosen by nobody.
TEST(Moe, EditedLogitsChooseOtherExperts) {
  Device device({.threads = 1});
  const Recipe recipe = small_moe(R"("experts":4,"used":2,"width":8)", 40);
  Model model(recipe, device.real);
  randomise(model, 8);
  const Dim lengths[] = {9};
  const PackedBatch packed(some_texts(recipe, lengths, 2));
  rapt::Run run(device);
  Taps taps;
  taps.edit(site::router, [](const Tapped& t) {
    for (Dim i = 0; i < t.value.elements(); i += 4) t.value.set(i, -HUGE_VAL);
  });
  int seen = 0;
  taps.see(site::expert_indices, [&](const Tapped& t) {
    for (const double e : all_values(t.value)) {
      EXPECT_NE(e, 0);
      ++seen;
    }
  });
  run.taps = &taps;
  for (const double v : all_values(forward(run, model, packed.batch))) EXPECT_TRUE(std::isfinite(v));
  EXPECT_EQ(seen, 36);
}

}  // namespace
}  // namespace rapt::test
