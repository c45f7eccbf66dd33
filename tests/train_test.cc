// SPDX-License-Identifier: Apache-2.0
// Training as a whole: it learns, it resumes bit for bit, nothing that is not finite reaches the weights,
// and what it does about bad steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "rapt/base/rng.h"
#include "rapt/comm/comm.h"
#include "rapt/nn/model.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/loss.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/use/leaves.h"
#include "rapt/use/train.h"
#include "tests/build_kind.h"
#include "tests/tools.h"
#include "tests/train_tools.h"

namespace rapt {
namespace {

using testing::HasSubstr;

using namespace test;

TEST(Train, LearnsAChain) {
  Device device({.threads = 2});
  Model model(small(), device.real);
  init(model, 1);
  const Chain data;
  const TrainOptions o = options(300);
  Trainer trainer(device, model, data, o);
  const Judgement before = trainer.judge();
  EXPECT_NEAR(before.loss, std::log(Chain::kVocab), 0.15);
  for (Dim i = 0; i < o.steps; ++i) EXPECT_EQ(trainer.step().fate, StepReport::Fate::done);
  const Judgement after = trainer.judge();
  EXPECT_LT(after.loss, 0.6);
  EXPECT_GT(after.accuracy, 0.8);
  EXPECT_EQ(after.counted,
            static_cast<Dim>(data.held_out_batch(0).tokens.size() + data.held_out_batch(1).tokens.size()));
}

// Judged by hand: the loss of a batch as its definition says.
TEST(Train, JudgesAsTheDefinitionSays) {
  Device device({.threads = 1});
  Model model(small(), device.real);
  init(model, 3);
  const Chain data;
  Trainer trainer(device, model, data, options(5));
  double sum = 0, right = 0, count = 0;
  for (Dim n = 0; n < 2; ++n) {
    const TrainBatch b = data.held_out_batch(n);
    rapt::Run run(device);
    const Tensor logits = forward(run, model, Batch{.tokens = b.tokens, .sequences = b.sequences});
    for (Dim r = 0; r < logits[0]; ++r) {
      double total = 0, top = -1e30,
             at_target = logits.as<float>()[r * logits[1] + b.targets[static_cast<std::size_t>(r)]];
      for (Dim c = 0; c < logits[1]; ++c)
        total += std::exp(static_cast<double>(logits.as<float>()[r * logits[1] + c])),
            top = std::max<double>(top, logits.as<float>()[r * logits[1] + c]);
      sum += std::log(total) - at_target;
      right += at_target == top;
      ++count;
    }
  }
  const Judgement j = trainer.judge();
  EXPECT_NEAR(j.loss, sum / count, 1e-6);
  EXPECT_DOUBLE_EQ(j.accuracy, right / count);
}

// --------------------------------------------------------------------------------------------- exact resume
struct Outcome {
  std::vector<std::byte> weights;
  std::vector<double> losses;
};

// `stops`: the run is thrown away after so many steps and a new one goes on from its folder.
Outcome run_with_stops(const Recipe& recipe, const TrainOptions& o, const std::vector<Dim>& stops,
                       const std::vector<int>& threads) {
  TempFolder folder;
  Outcome out;
  const Chain data;
  for (std::size_t part = 0; part <= stops.size(); ++part) {
    Device device({.threads = threads[part % threads.size()]});
    Model model(recipe, device.real);
    init(model, part == 0 ? 5 : 99);  // what a resumed run begins with does not matter
    Trainer trainer(device, model, data, o);
    Store store(folder.path());
    std::atomic<int> stop{0};
    TrainEvents events;
    events.step = [&](const StepReport& r) {
      out.losses.push_back(r.loss);
      if (part < stops.size() && r.step == stops[part]) stop = 1;
    };
    const bool done = train(trainer, o, store, events, stop);
    EXPECT_EQ(done, part == stops.size());
    out.weights = weights_of(model);
  }
  return out;
}

TEST(Train, ResumesBitForBit) {
  RAPT_NOT_SANITIZED("several whole trainings");
  struct Case {
    const char* name;
    Recipe recipe;
    OptimizerOptions::Kind kind;
    bool recompute;
    Dim accumulate;
    double ema;
    Precision precision = Precision::f32;
  };
  const Case cases[] = {
      {"adamw", small("gpt-char", {"dropout=0.1"}), OptimizerOptions::Kind::adamw, false, 1, 0},
      {"adam, recompute, accumulate", small("llama3", {"kv_heads=1"}), OptimizerOptions::Kind::adam, true, 3,
       0},
      {"sgd", small("gpt2", {"dropout=0.2"}), OptimizerOptions::Kind::sgd, false, 1, 0.9},
      {"muon", small("qwen3-gate-g1", {"kv_heads=3"}), OptimizerOptions::Kind::muon, false, 1, 0},
      {"bf16", small("gpt2"), OptimizerOptions::Kind::adamw, false, 1, 0, Precision::bf16},
      {"bf16, recompute", small("gpt2"), OptimizerOptions::Kind::adamw, true, 1, 0, Precision::bf16},
  };
  Outcome bf16;
  for (const Case& c : cases) {
    TrainOptions o = options(40);
    o.optimizer.kind = c.kind;
    o.optimizer.ema = c.ema;
    if (c.kind == OptimizerOptions::Kind::sgd) o.optimizer.rate = 0.05;
    o.recompute = c.recompute;
    o.accumulate = c.accumulate;
    o.precision = c.precision;
    o.save_every = 9;
    const Outcome straight = run_with_stops(c.recipe, o, {}, {1});
    const Outcome stopped = run_with_stops(c.recipe, o, {1, 13, 18, 39}, {2, 1, 2});
    ASSERT_EQ(straight.losses, stopped.losses) << c.name;
    ASSERT_EQ(straight.weights.size(), stopped.weights.size()) << c.name;
    EXPECT_EQ(std::memcmp(straight.weights.data(), stopped.weights.data(), straight.weights.size()), 0)
        << c.name;
    if (c.precision != Precision::bf16) continue;
    if (c.recompute) EXPECT_EQ(bf16.weights, straight.weights);  // of the case before it
    bf16 = straight;
  }
}

// The gradient of a whole model: bf16 is as far off as eight bits say, f32 is not, and what judges
// stays f32.
TEST(Train, GradientsThroughProductsOfBf16) {
  const Chain data;
  const TrainBatch b = data.batch(0);
  std::vector<std::vector<double>> gradients;
  std::vector<double> losses;
  for (const auto& [isa, precision] :
       {std::pair{"f64", Precision::f32}, {"", Precision::f32}, {"", Precision::bf16}}) {
    Device device({.threads = 1, .isa = isa});
    Model model(small("gpt2"), device.real);
    init(model, 1);
    Gradients g(device.real);
    Tape tape(g);
    rapt::Run run(device);
    run.tape = &tape;
    run.products = precision;
    const Batch batch{.tokens = b.tokens, .sequences = b.sequences};
    const Loss loss = cross_entropy(run, forward(run, model, batch), b.targets, 0);
    losses.push_back(loss.mean.at(0));
    backward(run, loss.mean);
    gradients.emplace_back();
    for (const Weight& w : model.weights)
      for (Dim e = 0; e < w.size(); ++e) gradients.back().push_back(g.get(w, e / w.cols, e % w.cols));
  }
  const auto nmse = [&](const std::vector<double>& got) {
    double error = 0, power = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      error += (got[i] - gradients[0][i]) * (got[i] - gradients[0][i]),
          power += gradients[0][i] * gradients[0][i];
    return error / power;
  };
  EXPECT_LT(nmse(gradients[1]), 1e-9);
  EXPECT_LT(nmse(gradients[2]), 1e-4);
  EXPECT_GT(nmse(gradients[2]), 1e-7);
  EXPECT_NEAR(losses[2], losses[0], 1e-3);

  Device device({.threads = 1});
  double judged[2];
  for (int i = 0; i < 2; ++i) {
    Model model(small("gpt2"), device.real);
    init(model, 1);
    TrainOptions o = options(5);
    o.precision = i == 0 ? Precision::f32 : Precision::bf16;
    judged[i] = Trainer(device, model, data, o).judge().loss;
  }
  EXPECT_EQ(judged[0], judged[1]);
}

TEST(Train, RefusesAStateOfAnotherRun) {
  TempFolder folder;
  Device device({.threads = 1});
  const Chain data;
  const TrainOptions o = options(6);
  {
    Model model(small(), device.real);
    init(model, 1);
    Trainer trainer(device, model, data, o);
    Store store(folder.path());
    EXPECT_TRUE(train(trainer, o, store, {}, kNever));
  }
  const auto resume = [&](const Recipe& recipe, const TrainOptions& with) {
    return test::error_of([&] {
      Model model(recipe, device.real);
      Trainer trainer(device, model, data, with);
      Store store(folder.path());
      train(trainer, with, store, {}, kNever);
    });
  };
  EXPECT_EQ(resume(small(), o), "");
  EXPECT_THAT(resume(small("gpt-char", {"ffn=48"}), o), HasSubstr("another recipe"));
  TrainOptions other = o;
  other.optimizer.rate = 3e-3;
  EXPECT_THAT(resume(small(), other),
              AllOf(HasSubstr("optimizer.rate"), HasSubstr("0.01"), HasSubstr("0.003")));
  other = o;
  other.precision = Precision::bf16;
  EXPECT_THAT(resume(small(), other), AllOf(HasSubstr("precision"), HasSubstr("f32"), HasSubstr("bf16")));
  other = o;
  other.save_every = 2, other.eval_every = 3, other.health_every = 0;
  EXPECT_EQ(resume(small(), other), "");
}

// More steps than before are a longer run: the rate goes on as the longer schedule says, and that is told
// where it matters.
TEST(Train, AFinishedRunMayGoOn) {
  for (const Schedule::Kind kind : {Schedule::Kind::constant, Schedule::Kind::cosine}) {
    TempFolder folder;
    Device device({.threads = 1});
    const Chain data;
    const auto run = [&](Dim steps, const std::string& where, std::vector<std::string>& said,
                         std::vector<double>& rates) {
      TrainOptions o = options(steps);
      o.schedule.kind = kind;
      o.schedule.warmup = 0;
      Model model(small(), device.real);
      init(model, 1);
      Trainer trainer(device, model, data, o);
      Store store(where);
      TrainEvents events;
      events.say = [&](const std::string& text) { said.push_back(text); };
      events.step = [&](const StepReport& r) { rates.push_back(r.rate); };
      train(trainer, o, store, events, kNever);
      return weights_of(model);
    };
    std::vector<std::string> said;
    std::vector<double> rates, straight;
    run(6, folder / "a", said, rates);
    EXPECT_TRUE(said.empty());
    const auto longer = run(9, folder / "a", said, rates), at_once = run(9, folder / "b", said, straight);
    ASSERT_EQ(rates.size(), 9u);
    for (std::size_t i = 6; i < 9; ++i) EXPECT_EQ(rates[i], straight[i]);
    EXPECT_EQ(longer == at_once, kind == Schedule::Kind::constant);
    if (kind == Schedule::Kind::constant) {
      EXPECT_EQ(said.size(), 1u);  // goes on from …
      continue;
    }
    ASSERT_EQ(said.size(), 2u);
    EXPECT_THAT(said[0], AllOf(HasSubstr("steps = 6 before, 9 now"), HasSubstr("from step 7 on"),
                               HasSubstr("other bits")));
    EXPECT_THAT(test::error_of([&] { run(7, folder / "a", said, rates); }),
                HasSubstr("steps = 9, now it is 7"));
  }
}

TEST(Train, AStateKnowsItsInstructionSet) {
  const std::vector<std::string> isas = available_isas();
  if (isas.size() < 2) GTEST_SKIP() << "one instruction set is all there is";
  TempFolder folder;
  const Chain data;
  std::vector<std::string> said;
  for (const std::string& isa : {isas[0], isas[0], isas[1]}) {
    Device device({.threads = 1, .isa = isa});
    TrainOptions o = options(2);
    Model model(small(), device.real);
    init(model, 1);
    Trainer trainer(device, model, data, o);
    Store store(folder.path());
    train(trainer, o, store, {.say = [&](const std::string& text) { said.push_back(text); }}, kNever);
  }
  ASSERT_EQ(said.size(), 3u);
  EXPECT_THAT(said[0], HasSubstr("goes on from"));
  EXPECT_THAT(said[1], AllOf(HasSubstr("was computed with " + isas[0]), HasSubstr("computes with " + isas[1]),
                             HasSubstr("not to the bits")));
  EXPECT_THAT(said[2], HasSubstr("goes on from"));
}

// What a kill may cost: by default five minutes, whatever a step takes.
TEST(Train, SavesByTimeBesideSteps) {
  const auto saved = [](TrainOptions o) {
    TempFolder folder;
    Device device({.threads = 1});
    Model model(small(), device.real);
    init(model, 1);
    const Chain data(1, 5);
    Trainer trainer(device, model, data, o);
    Store store(folder.path());
    std::vector<Dim> steps;
    double now = 1000;  // a step takes two minutes
    TrainEvents events;
    events.clock = [&] { return now; };
    events.step = [&](const StepReport&) { now += 2; };
    events.saved = [&](const Stored& s) { steps.push_back(s.step); };
    train(trainer, o, store, events, kNever);
    return steps;
  };
  TrainOptions o = options(11);
  EXPECT_EQ(saved(o), (std::vector<Dim>{0, 3, 6, 9, 11}));
  o.save_every = 4;
  EXPECT_EQ(saved(o), (std::vector<Dim>{0, 3, 4, 7, 8, 11}));
  o.save_minutes = 0;
  EXPECT_EQ(saved(o), (std::vector<Dim>{0, 4, 8, 11}));
  o.save_minutes = 5, o.average = 2;  // the mean of states must not depend on the clock
  EXPECT_EQ(saved(o), (std::vector<Dim>{0, 4, 8, 11}));
}

// ------------------------------------------------------------------------------------------------ memory
TEST(TrainMemory, CountsEveryNumber) {
  const Recipe r = resolve(small());
  double n = 0;
  Device device({.threads = 1});
  Model model(r, device.real);
  for (const Weight& w : model.weights) n += static_cast<double>(w.size());
  const auto moments = [&](OptimizerOptions o) {
    Optimizer optimizer(model, o);
    double all = 0;
    optimizer.each_state([&](const std::string&, Weight& w) { all += static_cast<double>(w.size()); });
    EXPECT_EQ(train_memory(r, o).moments, 4 * all);
    return train_memory(r, o).moments / 4 / n;
  };
  EXPECT_EQ(moments({}), 2);
  EXPECT_EQ(moments({.kind = OptimizerOptions::Kind::sgd}), 1);
  EXPECT_EQ(moments({.kind = OptimizerOptions::Kind::sgd, .momentum = 0}), 0);
  EXPECT_EQ(moments({.ema = 0.9}), 3);
  EXPECT_LT(moments({.kind = OptimizerOptions::Kind::muon}), 2);
  const TrainMemory m = train_memory(r, {});
  EXPECT_EQ(m.parameters, n);
  EXPECT_EQ(m.saving, 2 * 4 * 40 * 24);  // the largest matrix, gathered and written
  EXPECT_EQ(m.total(), 4 * n * (1 + 1 + 2) + m.saving);
  EXPECT_EQ(train_memory(r, {}, DType::f32, 5).gradients, 4 * n * 3);  // two wait for a third
  check_train_memory(r, {}, DType::f32, 0);  // not known: tried
  check_train_memory(r, {}, DType::f32, static_cast<std::uint64_t>(m.total()));
  EXPECT_THAT(test::error_of([&] {
                check_train_memory(resolve(preset("llama3")), {}, DType::f32, std::uint64_t{22} << 30);
              }),
              AllOf(HasSubstr("8.03 B weights take 120 GiB"), HasSubstr("22 GiB are available"),
                    HasSubstr("--set width=")));
}

// From a few rows to the whole batch.
TEST(TrainMemory, AStepIsEstimatedFromFewRows) {
  Device device({.threads = 1});
  for (const bool recompute : {false, true}) {
    Model model(small("gpt-char", {"context=500"}), device.real);
    init(model, 1);
    const std::vector<std::byte> before = weights_of(model);
    const Chain data(5, 400);
    TrainOptions o = options(1);
    o.recompute = recompute;
    Trainer trainer(device, model, data, o);
    const double whole = trainer.step_bytes(1 << 20);  // measured
    EXPECT_NEAR(trainer.step_bytes(), whole, 0.05 * whole) << recompute;
    EXPECT_EQ(weights_of(model), before);
    const auto enough =
        static_cast<std::uint64_t>(1.1 * whole + train_memory(model.recipe, o.optimizer).saving);
    trainer.check_memory(enough);
    trainer.check_memory(0);
    const std::string why = test::error_of([&] { trainer.check_memory(enough / 2); });
    EXPECT_THAT(why, AllOf(HasSubstr("a step over 1,996 tokens takes about"), HasSubstr("--length")));
    EXPECT_EQ(why.find("train.recompute=true") != why.npos, !recompute);
  }
}

TEST(Train, AccumulatedBatchesMakeTheGradientOfTheirUnion) {
  // Batches of different size: the loss is a mean over targets, so each weighs by its targets.
  class Two : public Chain {
   public:
    explicit Two(bool joined) : joined_(joined) {}
    TrainBatch batch(std::uint64_t number) const override {
      if (!joined_) return part(number);
      TrainBatch a = part(2 * number);
      const TrainBatch b = part(2 * number + 1);
      for (Sequence s : b.sequences) s.first += static_cast<Dim>(a.tokens.size()), a.sequences.push_back(s);
      a.tokens.insert(a.tokens.end(), b.tokens.begin(), b.tokens.end());
      a.targets.insert(a.targets.end(), b.targets.begin(), b.targets.end());
      a.counted += b.counted;
      return a;
    }

   private:
    static TrainBatch part(std::uint64_t n) { return Chain(n % 2 == 0 ? 2 : 5).batch(n); }
    bool joined_;
  };
  Device device({.threads = 1, .isa = "f64"});
  std::vector<double> losses[2], norms[2];
  for (int joined = 0; joined < 2; ++joined) {
    Model model(small(), device.real);
    init(model, 1);
    TrainOptions o = options(5);
    o.accumulate = joined ? 1 : 2;
    const Two data(joined);
    Trainer trainer(device, model, data, o);
    for (int i = 0; i < 5; ++i) {
      const StepReport r = trainer.step();
      losses[joined].push_back(r.loss), norms[joined].push_back(r.norm);
    }
  }
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(losses[0][i], losses[1][i], 1e-10);
    EXPECT_NEAR(norms[0][i], norms[1][i], 1e-9);
  }
}

// All numbers of a gradient, by weight; those of a weight without one are absent.
using GradientList = std::vector<std::vector<float>>;

GradientList list_of(const Model& model, const Gradients& gradients) {
  GradientList out;
  for (const Weight& w : model.weights) {
    const auto* g = reinterpret_cast<const float*>(gradients.find(w));
    out.emplace_back(g, g ? g + w.stored() : g);
  }
  return out;
}

void put_list(const Model& model, const GradientList& from, Gradients& into) {
  into.zero();
  for (const Weight& w : model.weights) {
    const std::vector<float>& g = from[static_cast<std::size_t>(w.index)];
    bool write = false;
    if (!g.empty()) std::memcpy(into.of(w, write), g.data(), g.size() * sizeof(float));
  }
}

// left + right, number by number.
GradientList plus(GradientList left, const GradientList& right) {
  const FloatMode mode;
  for (std::size_t w = 0; w < left.size(); ++w)
    if (left[w].empty()) left[w] = right[w];
    else
      for (std::size_t i = 0; i < right[w].size(); ++i) left[w][i] += right[w][i];
  return left;
}

// The leaves from `first` on, as decision 0036 defines their sum.
template <class T, class Add>
T tree_of(const std::vector<T>& leaves, std::size_t first, std::size_t count, const Add& add) {
  if (count == 1) return leaves[first];
  std::size_t left = 1;
  while (2 * left < count) left *= 2;
  return add(tree_of(leaves, first, left, add), tree_of(leaves, first + left, count - left, add));
}

// A step is one with the tree of its leaves' gradients, each computed by itself: with dropout, a loss of
// experts, and a batch norm, whose running statistics take the leaves in order.
TEST(Train, AStepAddsItsLeavesInATree) {
  Recipe experts = small("mixtral", {"kv_heads=1"}), normed = small("gpt2", {"dropout=0.1"});
  for (PartRecipe& p : experts.decoder->kinds.begin()->second.parts)
    if (p.moe()) p.moe()->balance = 0.3;
  for (PartRecipe& p : normed.decoder->kinds["L"].parts)
    p.norm_in = NormRecipe{.kind = NormRecipe::Kind::batch, .eps = 1e-5, .bias = true, .leaks_ok = true};
  const Uneven data;
  int parted = 0;  // leaves whose chain has other bits
  for (const Recipe& recipe : {experts, normed})
    for (const Dim leaves : {2, 3, 5, 8}) {
      Device device({.threads = 2});
      Model a(recipe, device.real), b(recipe, device.real);
      init(a, 1), init(b, 1);
      TrainOptions o = options(9);
      o.accumulate = leaves;
      o.optimizer.kind = OptimizerOptions::Kind::sgd;
      Trainer whole(device, a, data, o), by_hand(device, b, data, o);
      Gradients gradients(device.real);
      std::uint64_t cursor = 0;
      for (int step = 0; step < 3; ++step, cursor += static_cast<std::uint64_t>(leaves)) {
        double counted = 0;
        for (Dim i = 0; i < leaves; ++i)
          counted += static_cast<double>(data.batch(cursor + static_cast<std::uint64_t>(i)).counted);
        std::vector<GradientList> parts;
        std::vector<double> losses;
        LeafGradients sum(device, b);
        for (std::uint64_t n = cursor; n < cursor + static_cast<std::uint64_t>(leaves); ++n) {
          const TrainBatch batch = data.batch(n);
          const double share = static_cast<double>(batch.counted) / counted;
          gradients.zero();
          losses.push_back(0);
          if (batch.counted > 0) {
            Tape tape(gradients);
            rapt::Run run(device);
            run.tape = &tape;
            run.training = true;
            run.random = {o.seed, n};
            run.loss_share = share;
            const Loss loss = cross_entropy(
                run, forward(run, b, Batch{.tokens = batch.tokens, .sequences = batch.sequences}),
                batch.targets, 0);
            losses.back() = share * loss.mean.at(0);
            backward(run, share == 1 ? loss.mean : activation(run, Act::scale, loss.mean, share));
          }
          parts.push_back(list_of(b, gradients));
          sum.push(gradients);
        }
        const GradientList tree = tree_of(parts, 0, parts.size(), plus);
        sum.finish(gradients);
        EXPECT_EQ(list_of(b, gradients), tree);
        GradientList chain = parts[0];
        for (std::size_t i = 1; i < parts.size(); ++i) chain = plus(std::move(chain), parts[i]);
        parted += chain != tree;
        put_list(b, tree, gradients);
        const StepReport mine = by_hand.apply(gradients), report = whole.step();
        EXPECT_EQ(report.why, "");
        EXPECT_EQ(report.norm, mine.norm);
        EXPECT_EQ(report.loss, tree_of(losses, 0, losses.size(), std::plus<>()));
        EXPECT_EQ(weights_of(a), weights_of(b)) << leaves << " leaves, step " << step;
      }
    }
  EXPECT_GE(parted, 8);  // of five and of eight: the order can be seen
}

// A leaf that fails ends the step and leaves nothing for the next one.
TEST(Train, AFailedLeafLeavesNoTrace) {
  class Failing : public Uneven {
   public:
    TrainBatch batch(std::uint64_t number) const override {
      TrainBatch b = Uneven::batch(number);
      if (number == bad) b.targets[0] = kVocab + 5;  // cross_entropy refuses it
      return b;
    }
    std::uint64_t bad = ~std::uint64_t{0};
  };
  Device device({.threads = 1});
  std::vector<std::byte> expected;
  for (const bool fails : {false, true}) {
    Model model(small(), device.real);
    init(model, 1);
    TrainOptions o = options(9);
    o.accumulate = 5;
    Failing data;
    Trainer trainer(device, model, data, o);
    trainer.step();
    data.bad = fails ? 5 + 4 : data.bad;  // four leaves wait by then
    if (fails) EXPECT_NE(test::error_of([&] { trainer.step(); }), "");
    data.bad = ~std::uint64_t{0};
    trainer.step();
    if (fails) EXPECT_EQ(weights_of(model), expected);
    expected = weights_of(model);
  }
}

// States of runs that accumulate say in which order; those of earlier versions, which had another, are
// refused while steps are left.
TEST(Train, AStateKnowsTheOrderOfItsLeaves) {
  Device device({.threads = 1});
  const Chain data(2, 5);
  const auto run = [&](const std::string& folder, Dim accumulate, Dim steps) {
    TrainOptions o = options(steps);
    o.schedule.kind = Schedule::Kind::constant;
    o.accumulate = accumulate;
    Model model(small(), device.real);
    init(model, 1);
    Trainer trainer(device, model, data, o);
    Store store(folder);
    train(trainer, o, store, {}, kNever);
  };
  for (const Dim accumulate : {1, 2}) {
    const TempFolder folder, older;
    run(folder.path(), accumulate, 2);
    const Store store(folder.path());
    const Stored last = store.all().back();
    ASSERT_EQ(last.state.find("order") != nullptr, accumulate > 1);
    Json state = Json::Object{};
    for (const Json::Member& m : last.state.object())
      if (m.key != "order") state.set(m.key, m.value);
    const StoredFile files[] = {{"model.safetensors", store.file(last, "model.safetensors")},
                                {"optimizer.safetensors", store.file(last, "optimizer.safetensors")}};
    Store(older.path()).save(2, files, state);
    run(older.path(), accumulate, 2);  // nothing is left to be added
    const std::string error = test::error_of([&] { run(older.path(), accumulate, 3); });
    if (accumulate == 1) {
      EXPECT_EQ(error, "");
      continue;
    }
    EXPECT_THAT(error, AllOf(HasSubstr("2 batches of a step"), HasSubstr("one after the other"),
                             HasSubstr("rapt train"), HasSubstr("step-2")));
    state.set("order", "sideways");
    const TempFolder later;
    Store(later.path()).save(2, files, state);
    EXPECT_THAT(test::error_of([&] { run(later.path(), 2, 3); }), HasSubstr("does not know (\"sideways\")"));
    run(folder.path(), 2, 3);
  }
}

// ------------------------------------------------------------------------------------------------ guards
// Kernels of which one writes a value of our choice at a chosen call.
struct Broken {
  enum class Where { loss, backward_weights, backward_input } where;
  double value;
  int at;  // the call that goes wrong, counted from 0; negative: every one from -at on
};
Broken broken;
int calls = 0;
const Kernels* sound = nullptr;

bool now() {
  const int n = calls++;
  return broken.at >= 0 ? n == broken.at : n >= -broken.at;
}

void put(void* p, std::int64_t i) {
  if (p) static_cast<float*>(p)[i] = static_cast<float>(broken.value);
}

Kernels broken_kernels() {
  Kernels k = kernels_for(available_isas().back());
  sound = &kernels_for(available_isas().back());
  if (broken.where == Broken::Where::loss)
    k.cross_entropy = [](Queue& q, const CrossEntropyArgs& a) noexcept {
      sound->cross_entropy(q, a);
      if (now()) put(a.mean, 0);
    };
  else
    k.linear_backward = [](Queue& q, const LinearBackwardArgs& a) noexcept {
      sound->linear_backward(q, a);
      if (!now()) return;
      if (broken.where == Broken::Where::backward_weights) put(a.parts[0].dw, 17);
      else put(a.dx, 3);
    };
  return k;
}

TEST(Train, NothingThatIsNotFiniteReachesTheWeights) {
  const double values[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()};
  int injected = 0;
  for (const auto where :
       {Broken::Where::loss, Broken::Where::backward_weights, Broken::Where::backward_input})
    for (const double value : values)
      for (const int at : {0, 3, 8}) {
        broken = {where, value, at};
        calls = 0;
        const Kernels kernels = broken_kernels();
        Device device(kernels, {.threads = 1});
        Model model(small("gpt2"), device.real);
        init(model, 1);
        const Chain data;
        Trainer trainer(device, model, data, options(20));
        for (int i = 0; i < 12; ++i) {
          const std::vector<std::byte> before = weights_of(model);
          const Json state = trainer.state();
          const StepReport r = trainer.step();
          if (r.fate == StepReport::Fate::done) continue;
          ++injected;
          EXPECT_THAT(r.why, HasSubstr("not finite"));
          EXPECT_EQ(before, weights_of(model));
          EXPECT_EQ(trainer.state().find("optimizer_steps")->integer(),
                    state.find("optimizer_steps")->integer());
        }
        for (const Weight& w : model.weights)
          for (Dim e = 0; e < w.size(); ++e)
            ASSERT_TRUE(std::isfinite(w.get(e / w.cols, e % w.cols))) << w.name;
        EXPECT_EQ(trainer.steps(), 11);  // one of twelve was thrown away, the others went through
      }
  EXPECT_EQ(injected, 27);
}

TEST(Train, BatchNormStatisticsOfASkippedStepAreForgotten) {
  broken = {Broken::Where::loss, std::numeric_limits<double>::quiet_NaN(), 2};
  calls = 0;
  const Kernels kernels = broken_kernels();
  Device device(kernels, {.threads = 1});
  Recipe r = small("gpt2");
  for (PartRecipe& p : r.decoder->kinds["L"].parts)
    p.norm_in = NormRecipe{.kind = NormRecipe::Kind::batch, .eps = 1e-5, .bias = true, .leaks_ok = true};
  Model model(resolve(r), device.real);
  init(model, 1);
  const Chain data;
  Trainer trainer(device, model, data, options(20));
  trainer.step(), trainer.step();
  const std::vector<std::byte> before = weights_of(model);
  EXPECT_EQ(trainer.step().fate, StepReport::Fate::skipped);
  EXPECT_EQ(before, weights_of(model));
  EXPECT_EQ(trainer.step().fate, StepReport::Fate::done);
  EXPECT_NE(before, weights_of(model));
}

TEST(Train, ASpikeIsSkippedAndLogged) {
  class Spiked : public Chain {
   public:
    TrainBatch batch(std::uint64_t number) const override {
      TrainBatch b = Chain::batch(number);
      if (number == 60)
        for (std::size_t i = 0; i < b.targets.size(); ++i)
          b.targets[i] = static_cast<std::int32_t>((b.targets[i] + 5) % kVocab);
      return b;
    }
  };
  TempFolder folder;
  Device device({.threads = 1});
  Model model(small(), device.real);
  init(model, 1);
  const Spiked data;
  TrainOptions o = options(80);
  o.guard.window = 16;
  o.guard.z = 5;
  o.optimizer.rate = 2e-2;
  Trainer trainer(device, model, data, o);
  Store store(folder.path());
  std::vector<std::string> said;
  std::vector<std::uint64_t> skipped;
  TrainEvents events;
  events.say = [&](const std::string& text) { said.push_back(text); };
  events.step = [&](const StepReport& r) {
    if (r.fate != StepReport::Fate::done) skipped.push_back(r.batch);
  };
  EXPECT_TRUE(train(trainer, o, store, events, kNever));
  EXPECT_THAT(skipped, testing::Contains(60u));
  EXPECT_LE(skipped.size(), 2u);
  EXPECT_THAT(said, testing::Contains(AllOf(HasSubstr("batch 60"), HasSubstr("deviations above"))));
}

// A batch with less to learn from has a gradient some times as long: that is not a spike, however calm the
// steps before it were.
TEST(Train, AShortBatchIsNoSpike) {
  class Short : public Chain {
   public:
    TrainBatch batch(std::uint64_t number) const override {
      TrainBatch b = Chain::batch(number % 8);
      if (number < 40) return b;
      for (std::size_t i = 6; i < b.targets.size(); ++i) b.targets[i] = -1;
      b.counted = 6;
      return b;
    }
  };
  Device device({.threads = 1});
  Model model(small(), device.real);
  init(model, 1);
  const Short data;
  TrainOptions o = options(44);
  o.guard.window = 16;
  o.optimizer.rate = 1e-5;  // nothing is learned: the losses are alike
  Trainer trainer(device, model, data, o);
  double before = 0, after = 0;
  for (int i = 0; i < 44; ++i) {
    const StepReport r = trainer.step();
    EXPECT_EQ(r.why, "") << i;
    (i < 40 ? before : after) = std::max(i < 40 ? before : after, r.norm);
  }
  EXPECT_GT(after, 1.5 * before);
}

TEST(Train, RepeatedFailuresGoBackAndThenStop) {
  // From the 31st loss on every one is bad: back three times, then a report.
  broken = {Broken::Where::loss, std::numeric_limits<double>::quiet_NaN(), -31};
  calls = 0;
  const Kernels kernels = broken_kernels();
  TempFolder folder;
  Device device(kernels, {.threads = 1});
  Model model(small(), device.real);
  init(model, 1);
  const Chain data;
  TrainOptions o = options(60);
  o.save_every = 10;
  Trainer trainer(device, model, data, o);
  Store store(folder.path());
  std::vector<std::string> said;
  TrainEvents events;
  events.say = [&](const std::string& text) { said.push_back(text); };
  const std::string error = test::error_of([&] { train(trainer, o, store, events, kNever); });
  EXPECT_THAT(error,
              AllOf(HasSubstr("went back 3 times"), HasSubstr("not finite"), HasSubstr("optimizer.rate")));
  EXPECT_EQ(std::count_if(said.begin(), said.end(),
                          [](const std::string& s) { return s.starts_with("goes back to step 30"); }),
            3);
  // Nothing is lost: the last state is whole, with finite weights.
  const std::optional<Stored> last = store.latest();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->step, 30);
}

TEST(Train, GoingBackPassesTheBadBatchesAndRunsOn) {
  class Bad : public Chain {
   public:
    TrainBatch batch(std::uint64_t number) const override {
      TrainBatch b = Chain::batch(number);
      // Nothing to learn from: as bad as a loss that is not finite.
      if (number >= 25 && number < 28) b.counted = 0;
      return b;
    }
  };
  TempFolder folder;
  Device device({.threads = 1});
  Model model(small(), device.real);
  init(model, 1);
  const Bad data;
  TrainOptions o = options(40);
  o.save_every = 20;
  Trainer trainer(device, model, data, o);
  Store store(folder.path());
  std::vector<StepReport> reports;
  TrainEvents events;
  events.step = [&](const StepReport& r) { reports.push_back(r); };
  EXPECT_TRUE(train(trainer, o, store, events, kNever));
  EXPECT_EQ(trainer.steps(), 40);
  EXPECT_EQ(reports[27].fate, StepReport::Fate::rewound);
  EXPECT_EQ(reports[28].step, 21);  // from the state of step 20 on …
  EXPECT_EQ(reports[28].batch, 28u);  // … with the data behind the bad batches
  EXPECT_NEAR(reports[28].rate, 0.5 * o.schedule.at(20) * o.optimizer.rate, 1e-12);
}

TEST(Train, TheResultMayBeTheMeanOfTheLastStates) {
  TempFolder folder;
  Device device({.threads = 1});
  Model model(small(), device.real);
  init(model, 1);
  const Chain data;
  TrainOptions o = options(12);
  o.save_every = 4;
  o.average = 3;
  Trainer trainer(device, model, data, o);
  Store store(folder.path(), real_fs(), 3);
  std::vector<double> sum;
  TrainEvents events;
  events.saved = [&](const Stored& s) {
    if (s.step == 0) return;
    const Weight& w = model.weight("decoder.1.ffn.up.weight");
    sum.resize(static_cast<std::size_t>(w.size()));
    for (Dim e = 0; e < w.size(); ++e) sum[static_cast<std::size_t>(e)] += w.get(e / w.cols, e % w.cols) / 3;
  };
  EXPECT_TRUE(train(trainer, o, store, events, kNever));
  trainer.finish(store);
  const Weight& w = model.weight("decoder.1.ffn.up.weight");
  for (Dim e = 0; e < w.size(); ++e)
    ASSERT_NEAR(w.get(e / w.cols, e % w.cols), sum[static_cast<std::size_t>(e)], 1e-7);
}

// A finished run is judged as what it is: with its averages, which stand in the model for good.
TEST(Train, AFinishedRunIsJudgedByItsAverages) {
  Device device({.threads = 1});
  Model model(small(), device.real);
  init(model, 1);
  const Chain data;
  TrainOptions o = options(30);
  o.optimizer.ema = 0.9;
  const TempFolder folder;
  Store store(folder.path());
  Trainer trainer(device, model, data, o);
  EXPECT_TRUE(train(trainer, o, store, {}, kNever));
  const std::vector<std::byte> raw = weights_of(model);
  const Judgement before = trainer.judge();  // looks at the averages, and puts the weights back
  EXPECT_EQ(weights_of(model), raw);
  trainer.finish(store);
  const std::vector<std::byte> averages = weights_of(model);
  EXPECT_NE(averages, raw);
  EXPECT_EQ(trainer.judge().loss, before.loss);
  trainer.finish(store);  // once more changes nothing
  EXPECT_EQ(weights_of(model), averages);
}

// The run in a loop of one's own: the same states, events and bits, and what is done between two steps.
TEST(Train, StepByStepIsTheWholeRun) {
  struct Seen {
    std::vector<std::string> events;
    std::vector<std::byte> weights;
  };
  const auto run = [&](bool by_step) {
    const TempFolder folder;
    Device device({.threads = 2});
    Model model(small("gpt-char", {"dropout=0.1"}), device.real);
    init(model, 1);
    const Chain data;
    TrainOptions o = options(20);
    o.save_every = 6, o.eval_every = 8;
    Trainer trainer(device, model, data, o);
    Store store(folder.path());
    Seen seen;
    TrainEvents events;
    events.step = [&](const StepReport& r) { seen.events.push_back(concat("step ", r.step, " ", r.loss)); };
    events.saved = [&](const Stored& s) { seen.events.push_back(concat("saved ", s.step)); };
    events.judged = [&](Dim step, const Judgement& j) {
      seen.events.push_back(concat("judged ", step, " ", j.loss));
    };
    if (by_step) {
      TrainLoop loop(trainer, o, store, events);
      while (!loop.done()) {
        const Dim before = trainer.steps();
        EXPECT_EQ(loop.step().step, before + 1);
        trainer.judge(1);
      }
      EXPECT_TRUE(loop.end());
      EXPECT_TRUE(loop.end());  // once more does nothing
    } else {
      EXPECT_TRUE(train(trainer, o, store, events, kNever));
    }
    seen.weights = weights_of(model);
    return seen;
  };
  const Seen whole = run(false), steps = run(true);
  EXPECT_EQ(whole.events, steps.events);
  EXPECT_EQ(whole.weights, steps.weights);
}

// Gradients of a batch and a step with them are what a step does.
TEST(Train, AStepByHandIsAStep) {
  for (const OptimizerOptions::Kind kind : {OptimizerOptions::Kind::adamw, OptimizerOptions::Kind::muon}) {
    Device device({.threads = 2});
    const Chain data;
    TrainOptions o = options(10);
    o.optimizer.kind = kind;
    o.smoothing = 0.1;
    const Recipe recipe = small("gpt-char", {"dropout=0.2"});
    Model a(recipe, device.real), b(recipe, device.real);
    init(a, 1), init(b, 1);
    Trainer whole(device, a, data, o), by_hand(device, b, data, o);
    Gradients gradients(device.real);
    for (std::uint64_t n = 0; n < 6; ++n) {
      const StepReport r = whole.step();
      const std::vector<std::byte> before = weights_of(b);
      const double loss =
          batch_gradients(device, b, data.batch(n), gradients, o.smoothing, RandomState{o.seed, n});
      EXPECT_EQ(weights_of(b), before);
      const std::uint64_t changes = b.changes;
      const StepReport mine = by_hand.apply(gradients);
      EXPECT_NE(b.changes, changes);
      EXPECT_EQ(loss, r.loss);
      EXPECT_EQ(mine.norm, r.norm);
      EXPECT_EQ(mine.rate, r.rate);
      EXPECT_EQ(mine.step, r.step);
    }
    EXPECT_EQ(weights_of(a), weights_of(b));
    // What is not finite is refused, and nothing changes.
    *reinterpret_cast<float*>(gradients.of(b.weights.front())) = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::byte> before = weights_of(b);
    EXPECT_THAT(test::error_of([&] { by_hand.apply(gradients); }), HasSubstr("norm"));
    EXPECT_EQ(weights_of(b), before);
    EXPECT_EQ(by_hand.steps(), 6);
  }
}

TEST(Train, RefusesDataThatDoesNotFitTheRecipe) {
  Device device({.threads = 1});
  const auto with = [&](const Recipe& r, Objective objective) {
    return test::error_of([&] {
      Model model(r, device.real);
      Chain data;
      data.objective = objective;
      Trainer trainer(device, model, data, options(1));
    });
  };
  EXPECT_EQ(with(small(), Objective::causal), "");
  EXPECT_THAT(with(small("gpt-char", {"vocab=5"}), Objective::causal), HasSubstr("vocab=13"));
  EXPECT_THAT(with(small(), Objective::translation), HasSubstr("one stack"));
  EXPECT_THAT(with(small("transformer-2017"), Objective::causal), HasSubstr("encoder-decoder"));
  EXPECT_THAT(with(small(), Objective::classification), HasSubstr("classes"));
}

TEST(TrainOptions, JsonInAndOut) {
  TrainOptions o = options(77);
  o.optimizer.kind = OptimizerOptions::Kind::muon;
  o.guard.z = 4.5;
  o.recompute = true;
  o.precision = Precision::bf16;
  const TrainOptions back = parse_train_options(parse_json(train_options_json(o).dump()), "test");
  EXPECT_EQ(train_options_json(back), train_options_json(o));
  EXPECT_EQ(back.schedule.total, 77);
  const auto error = [](const char* text) {
    return test::error_of([&] { parse_train_options(parse_json(text), "train"); });
  };
  EXPECT_THAT(error("{\"optimiser\": {\"rate\": 1}}"),
              AllOf(HasSubstr("optimiser.rate"), HasSubstr("optimizer.rate")));
  EXPECT_THAT(error("{\"steps\": 0}"), HasSubstr("between 1"));
  EXPECT_THAT(error("{\"steps\": 1.5}"), HasSubstr("whole"));
  EXPECT_THAT(error("{\"schedule.kind\": \"cosin\"}"), HasSubstr("cosine"));
  EXPECT_THAT(error("{\"recompute\": 1}"), HasSubstr("true or false"));
  EXPECT_THAT(error("{\"precision\": \"f16\"}"), HasSubstr("f32, bf16"));
}

TEST(RecipeSettings, ReachEveryPlace) {
  const Recipe r = with_settings(
      preset("llama3"),
      std::vector<std::string>{"width=96", "layers=3", "heads=6", "kv_heads=2", "head_dim=16", "ffn=100",
                               "dropout=0.25", "decoder.kinds.L.parts[0].self.window=9", "head.tied=true",
                               "name=mine"});
  EXPECT_EQ(r.width, 96);
  EXPECT_EQ(r.name, "mine");
  EXPECT_EQ(r.decoder->layers, 3);
  EXPECT_TRUE(r.head.tied);
  const AttnRecipe& a = *r.decoder->kinds.at("L").parts[0].self();
  EXPECT_EQ(a.heads, 6);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_EQ(a.head_dim, 16);
  EXPECT_EQ(a.window, 9);
  EXPECT_EQ(a.dropout, 0.25);
  EXPECT_EQ(r.decoder->kinds.at("L").parts[1].ffn()->width, 100);
  // What follows from the width follows it.
  const Recipe g = with_settings(preset("gpt2"), std::vector<std::string>{"width=48"});
  EXPECT_EQ(g.decoder->kinds.at("L").parts[0].self()->head_dim, 4);
  EXPECT_EQ(g.decoder->kinds.at("L").parts[1].ffn()->width, 192);
  const auto error = [](const char* setting) {
    return test::error_of([&] { with_settings(preset("gpt2"), std::vector<std::string>{setting}); });
  };
  EXPECT_THAT(error("widht=3"), AllOf(HasSubstr("unknown key"), HasSubstr("width")));
  EXPECT_THAT(error("width"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(error("heads=x"), HasSubstr("whole number"));
  EXPECT_THAT(error("decoder.kinds.L.parts[7].self.heads=3"), HasSubstr("2 entries"));
  EXPECT_THAT(error("dropout=1"), HasSubstr("below 1"));
  EXPECT_THAT(error("decoder.=1"), HasSubstr("ends in a dot"));
}

}  // namespace
}  // namespace rapt
