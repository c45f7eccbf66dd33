// SPDX-License-Identifier: Apache-2.0
// Losses, right answers and the commonest target, against plain loops in double over the logits of
// separate passes.
#include "rapt/use/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "rapt/use/evaluate_text.h"
#include "tests/memory_checkpoint.h"
#include "tests/tools.h"
#include "tests/views_tools.h"

namespace rapt::test {
namespace {

TEST(Evaluate, CountsAsThePlainLoopDoes) {
  for (const std::string& isa : {std::string("f64"), available_isas().front()}) {
    Device device({.threads = 2, .isa = isa});
    Model model(resolve(toy_recipe("llama3", 2)), device.real);
    randomise(model, 4);
    std::vector<TrainBatch> batches(2);
    for (std::size_t n = 0; n < 2; ++n) {
      TrainBatch& b = batches[n];
      b.tokens = toy_ids(n == 0 ? 9 : 5);
      b.sequences = {{.first = 0, .count = static_cast<Dim>(b.tokens.size()), .id = n}};
      for (std::size_t i = 0; i < b.tokens.size(); ++i)
        b.targets.push_back(i % 3 == 1 ? -1 : i % 2 ? 7 : b.tokens[i]);
    }
    double loss = 0;
    Dim right = 0, counted = 0;
    std::map<std::int32_t, Dim> seen;
    rapt::Run run(device);
    for (TrainBatch& b : batches) {
      run.reset();
      const std::vector<double> logits =
          all_values(forward(run, model, {.tokens = b.tokens, .sequences = b.sequences}));
      const std::size_t V = logits.size() / b.tokens.size();
      b.targets[0] = 0;  // one that is surely right
      for (std::size_t c = 0; c < V; ++c)
        if (logits[c] > logits[static_cast<std::size_t>(b.targets[0])])
          b.targets[0] = static_cast<std::int32_t>(c);
      for (std::size_t i = 0; i < b.tokens.size(); ++i) {
        if (b.targets[i] < 0) continue;
        const auto target = static_cast<std::size_t>(b.targets[i]);
        double sum = 0;
        bool best = true;
        for (std::size_t c = 0; c < V; ++c) {
          sum += std::exp(logits[i * V + c] - logits[i * V + target]);
          best = best && (c == target || logits[i * V + c] < logits[i * V + target]);
        }
        loss += std::log(sum), right += best, ++counted, ++seen[b.targets[i]];
      }
    }
    ASSERT_GT(right, 1);
    ASSERT_LT(right, counted);
    Dim most = 0;
    for (const auto& [target, times] : seen) most = std::max(most, times);
    std::vector<Dim> heard;
    const DataEvaluation e = evaluate(
        device, model, 2, [&](Dim i) { return batches[static_cast<std::size_t>(i)]; },
        [&](Dim done, const Evaluation&) { heard.push_back(done); });
    EXPECT_EQ(heard, (std::vector<Dim>{1, 2}));
    EXPECT_EQ(e.counted, counted);
    EXPECT_EQ(e.right, right);
    EXPECT_NEAR(e.mean(), loss / static_cast<double>(counted), std::string(isa) == "f64" ? 1e-12 : 1e-5);
    EXPECT_EQ(e.commonest, static_cast<double>(most) / static_cast<double>(counted));
  }
}

TEST(Evaluate, NothingMayCountAndEveryLossMustBeANumber) {
  Device device({.threads = 1});
  Model model(resolve(toy_recipe("gpt2", 1)), device.real);
  TrainBatch b{.tokens = {1, 2},
               .targets = {-1, -1},
               .sequences = {{.first = 0, .count = 2}},
               .source = {},
               .source_sequences = {}};
  const DataEvaluation none = evaluate(device, model, 1, [&](Dim) { return b; });
  EXPECT_EQ(none.counted, 0);
  EXPECT_EQ(none.commonest, 0);
  b.targets = {3, 4};
  model.weight("embed.tokens").set(1, 0, std::nan(""));
  EXPECT_TRUE(holds(error_of([&] { evaluate(device, model, 1, [&](Dim) { return b; }); }), "no number"));
}

TEST(Evaluate, ClassesOfTextsAreThoseOfSeparatePasses) {
  Device device({.threads = 2});
  Recipe r = small_decoder(0, 12);
  r.head = {.kind = HeadRecipe::Kind::classes, .classes = 3, .pool = HeadRecipe::Pool::last};
  Checkpoint c = memory_checkpoint(r, 5);
  const std::vector<std::string> texts = {"hello", "a", "words that are far too long", "the cat", "zz"};
  const std::vector<std::int32_t> classes = {0, 1, 2, 0, 1};
  std::vector<std::int32_t> said;
  double loss = 0;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    std::vector<std::int32_t> ids = c.tokenizer->frame(c.tokenizer->encode(texts[t]));
    ids.resize(std::min<std::size_t>(ids.size(), 12));
    rapt::Run run(device);
    const std::vector<double> logits = all_values(forward(
        run, *c.model, {.tokens = ids, .sequences = {{.first = 0, .count = static_cast<Dim>(ids.size())}}}));
    double sum = 0;
    for (const double x : logits) sum += std::exp(x - logits[static_cast<std::size_t>(classes[t])]);
    loss += std::log(sum);
    said.push_back(
        static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  Dim cut = 0, heard = 0;
  const ClassEvaluation e =
      evaluate_classes(device, c, texts, classes, [&](Dim done, Dim of) { heard = done * 10 + of; }, &cut);
  EXPECT_EQ(cut, 1);
  EXPECT_EQ(heard, 55);
  EXPECT_EQ(e.said, said);
  EXPECT_EQ(e.counted, 5);
  Dim right = 0;
  for (std::size_t t = 0; t < texts.size(); ++t) right += said[t] == classes[t];
  EXPECT_EQ(e.right, right);
  EXPECT_NEAR(e.mean(), loss / 5, 1e-5);
  EXPECT_EQ(class_names_of(c), (std::vector<std::string>{"0", "1", "2"}));
  c.class_names = {"x", "y"};
  EXPECT_EQ(class_names_of(c), (std::vector<std::string>{"x", "y", "2"}));
  EXPECT_TRUE(holds(error_of([&] { evaluate_classes(device, c, texts, std::span(classes).first(2)); }),
                    "5 texts with 2 classes"));
  const Checkpoint words = memory_checkpoint(small_decoder(), 5);
  EXPECT_TRUE(holds(error_of([&] { class_names_of(words); }), "tells no classes apart"));
}

TEST(Evaluate, AModelSaysWhatItPredictsOfAText) {
  for (const auto& [preset, objective] :
       {std::pair{"llama3", Objective::causal}, {"bert", Objective::masked}, {"t5", Objective::translation}})
    EXPECT_EQ(text_objective(Model(resolve(toy_recipe(preset, 1)))), objective) << preset;
}

}  // namespace
}  // namespace rapt::test
