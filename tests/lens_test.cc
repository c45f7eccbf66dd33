// SPDX-License-Identifier: Apache-2.0
// The logit lens against transformers, against shallower models computed the plain way, and against
// forward() bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "rapt/inspect/lens.h"
#include "rapt/inspect/massive.h"
#include "rapt/inspect/norms.h"
#include "tests/build_kind.h"
#include "tests/data.h"
#include "tests/toy_checkpoint.h"
#include "tests/views_tools.h"

namespace rapt {
namespace {

struct Plain {
  std::int32_t top = 0, rank = 0;
  double probability = 0, entropy = 0, truth = 0;
  std::vector<double> log_p;
};
Plain plain_answer(const double* logits, Dim V, std::int32_t truth) {
  Plain out;
  double sum = 0;
  for (Dim i = 0; i < V; ++i) sum += std::exp(logits[i] - logits[0]);
  for (Dim i = 0; i < V; ++i) {
    out.log_p.push_back(logits[i] - logits[0] - std::log(sum));
    out.entropy -= std::exp(out.log_p.back()) * out.log_p.back();
    if (out.log_p.back() > out.log_p[static_cast<std::size_t>(out.top)])
      out.top = static_cast<std::int32_t>(i);
  }
  out.probability = std::exp(out.log_p[static_cast<std::size_t>(out.top)]);
  if (truth < 0) return out;
  out.truth = std::exp(out.log_p[static_cast<std::size_t>(truth)]);
  out.rank = 1;
  for (double x : out.log_p) out.rank += x > out.log_p[static_cast<std::size_t>(truth)];
  return out;
}

TEST(Lens, LensLengthsAndLargestEqualTransformers) {
  const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/lens.json";
  const Json json = parse_json(read_text_file(path), path);
  std::size_t cells = 0;
  for (const Json& c : json.find("cases")->array()) {
    const std::string name = c.find("toy")->string();
    Device device({.threads = 1});
    const Checkpoint toy = test::open_toy(name, device);
    const std::vector<std::int32_t> ids = test::ids_of(*c.find("tokens")),
                                    source = test::ids_of(*c.find("source"));
    const Lens l = lens(device, *toy.model, ids, source, {.top = 2});
    const NormGrid lengths = norms(device, *toy.model, ids, source).grids.back();
    const Massive sizes = massive(device, *toy.model, ids, source).back();
    const Json::Array& rows = c.find("rows")->array();
    ASSERT_EQ(static_cast<std::size_t>(l.rows), rows.size()) << name;
    ASSERT_EQ(lengths.rows, l.rows);
    ASSERT_EQ(sizes.rows, l.rows);
    EXPECT_EQ(l.own, name == "bert");
    for (int r = 0; r < l.rows; ++r) {
      const auto at = [&](const char* key, Dim t) {
        return rows[static_cast<std::size_t>(r)].find(key)->array()[static_cast<std::size_t>(t)].number();
      };
      EXPECT_NEAR(sizes.median[static_cast<std::size_t>(r)],
                  rows[static_cast<std::size_t>(r)].find("median")->number(), 1e-5)
          << name;
      for (Dim t = 0; t < l.tokens; ++t, ++cells) {
        const std::size_t i = l.cell(r, t);
        EXPECT_EQ(l.ids[2 * i], static_cast<std::int32_t>(at("top", t)))
            << name << " row " << r << " token " << t;
        EXPECT_NEAR(l.probabilities[2 * i], at("probability", t), 1e-4) << name;
        EXPECT_GE(l.probabilities[2 * i], l.probabilities[2 * i + 1]);
        EXPECT_NEAR(l.entropy[i], at("entropy", t), 1e-4) << name;
        EXPECT_NEAR(l.kl[i], at("kl", t), 1e-4) << name;
        EXPECT_EQ(l.rank[i], static_cast<std::int32_t>(at("rank", t))) << name;
        EXPECT_NEAR(lengths.residual[i], at("length", t), 1e-4 * at("length", t)) << name;
        EXPECT_NEAR(sizes.largest[i], at("largest", t), 1e-4 * at("largest", t)) << name;
      }
    }
  }
  EXPECT_GE(cells, 5u * 3u * 9u);
}

TEST(Lens, EveryRowIsTheAnswerOfAShallowerModel) {
  for (const char* name : {"llama3", "gpt2", "bert", "t5", "gemma2", "qwen3-gate-g1"}) {
    Device device({.threads = 2});
    Model model(test::toy_recipe(name), device.real);
    test::randomise(model, 5);
    const std::vector<std::int32_t> ids = test::toy_ids(37);  // more than a chunk of rows
    const std::vector<std::int32_t> source =
        model.encoder && model.decoder ? test::toy_ids(11) : std::vector<std::int32_t>{};
    const Lens l = lens(device, model, ids, source, {.top = 3, .first = 2});
    ASSERT_EQ(l.tokens, 35) << name;
    const std::vector<std::int32_t> truth = truth_of(model, ids);
    const Dim V = model.recipe.vocab;
    const std::vector<double> answer =
        test::naive_forward(model, {.tokens = ids, .types = {}, .source = source});
    for (int layers = 1; layers < l.rows; ++layers) {
      const std::vector<double> logits = test::naive_forward(*test::shallow(model, layers, false),
                                                             {.tokens = ids, .types = {}, .source = source});
      for (Dim t = 0; t < l.tokens; ++t) {
        const std::size_t i = l.cell(layers, t), row = static_cast<std::size_t>((t + 2) * V);
        const Plain p = plain_answer(&logits[row], V, truth[static_cast<std::size_t>(t + 2)]),
                    last = plain_answer(&answer[row], V, -1);
        double kl = 0;
        for (std::size_t v = 0; v < p.log_p.size(); ++v)
          kl += std::exp(last.log_p[v]) * (last.log_p[v] - p.log_p[v]);
        EXPECT_EQ(l.ids[3 * i], p.top) << name << " after " << layers << " layers, token " << t;
        EXPECT_NEAR(l.probabilities[3 * i], p.probability, 1e-4);
        EXPECT_NEAR(l.entropy[i], p.entropy, 1e-4);
        EXPECT_NEAR(l.kl[i], kl, 1e-4);
        EXPECT_EQ(l.rank[i], p.rank) << name;
        EXPECT_NEAR(l.truth[i], p.truth, 1e-4);
        for (int k = 1; k < 3; ++k) {
          const auto id = static_cast<std::size_t>(l.ids[3 * i + static_cast<std::size_t>(k)]);
          EXPECT_NEAR(l.probabilities[3 * i + static_cast<std::size_t>(k)], std::exp(p.log_p[id]), 1e-4);
          EXPECT_GE(l.probabilities[3 * i + static_cast<std::size_t>(k) - 1],
                    l.probabilities[3 * i + static_cast<std::size_t>(k)]);
        }
      }
    }
  }
}

TEST(Lens, TheLastRowIsWhatForwardGivesBitForBit) {
  for (const char* name : {"llama3", "bert", "gemma2"}) {
    Device device({.threads = 1});
    Model model(test::toy_recipe(name), device.real);
    test::randomise(model, 8);
    const std::vector<std::int32_t> ids = test::toy_ids(35);
    rapt::Run run(device);
    const Tensor plain = forward(run, model, {.tokens = ids, .sequences = {{.first = 0, .count = 35}}});
    Taps taps;
    Dim same = 0;
    watch_residual(taps, model, [&](Stack, int row, const Tensor& x) {
      if (row != 3) return;
      through_head(device, model, x, [&](Dim first, const Tensor& logits) {
        const Tensor want = plain.slice(first, logits[0]);
        same += std::memcmp(want.data, logits.data,
                            static_cast<std::size_t>(logits.elements()) * sizeof(float)) == 0
                    ? logits[0]
                    : 0;
      });
    });
    look(device, model, taps, ids);
    EXPECT_EQ(same, 35) << name;
  }
}

TEST(Lens, SinkTokensBeforeTheTextAreNotShown) {
  Device device({.threads = 1});
  Recipe recipe = test::toy_recipe("llama3");
  recipe.embed.sink_tokens = 2;
  Model model(recipe, device.real);
  test::randomise(model, 4);
  const std::vector<std::int32_t> ids = test::toy_ids(9);
  const Lens l = lens(device, model, ids);
  const std::vector<double> logits = test::naive_forward(model, {.tokens = ids, .types = {}, .source = {}});
  ASSERT_EQ(logits.size(), 9u * 31u);
  for (Dim t = 0; t < 9; ++t) {
    const Plain p = plain_answer(&logits[static_cast<std::size_t>(t * 31)], 31, -1);
    EXPECT_EQ(l.ids[l.cell(3, t)], p.top);
    EXPECT_NEAR(l.entropy[l.cell(3, t)], p.entropy, 1e-4);
  }
}

TEST(Lens, SaysWhyItCannotLook) {
  Device device({.threads = 1});
  const std::vector<std::int32_t> ids = test::toy_ids(5);
  Recipe hidden = test::toy_recipe("bert");
  hidden.head = {.kind = HeadRecipe::Kind::none};
  const Model headless(hidden, device.real), model(test::toy_recipe("llama3"), device.real);
  EXPECT_TRUE(test::holds(test::error_of([&] { lens(device, headless, ids); }), "no output matrix"));
  EXPECT_TRUE(
      test::holds(test::error_of([&] { lens(device, model, ids, {}, {.first = 5}); }), "the text has 5"));
  EXPECT_TRUE(
      test::holds(test::error_of([&] { lens(device, model, ids, {}, {.top = 32}); }), "vocabulary of 31"));
  EXPECT_TRUE(test::holds(test::error_of([&] { lens(device, model, {}); }), "has 0"));
  EXPECT_TRUE(test::holds(test::error_of([&] { lens(device, model, ids, {}, {.count = 0}); }), "0 tokens"));
  const Model recurrent(with_settings(preset("bahdanau"), std::vector<std::string>{"width=8", "vocab=31"}),
                        device.real);
  EXPECT_TRUE(test::holds(test::error_of([&] { lens(device, recurrent, ids, ids); }), "recurrent"));
}

TEST(Lens, SmolLM2SaysAtTheEndWhatForwardSays) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto path = test::model_file("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << test::no_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  Device device;
  const Checkpoint c = open_checkpoint(*path, {.device = &device});
  const std::vector<std::int32_t> ids =
      c.tokenizer->frame(c.tokenizer->encode("The cat sat on the mat because it was warm."));
  const Lens l = lens(device, *c.model, ids, {}, {.first = static_cast<Dim>(ids.size()) - 3});
  rapt::Run run(device);
  const Tensor logits = forward(
      run, *c.model, {.tokens = ids, .sequences = {{.first = 0, .count = static_cast<Dim>(ids.size())}}});
  const Dim V = logits[1];
  for (Dim t = 0; t < 3; ++t) {
    const std::vector<double> row = test::all_values(logits.slice(l.first + t, 1));
    const Plain p = plain_answer(row.data(), V, -1);
    EXPECT_EQ(l.ids[l.cell(l.rows - 1, t)], p.top);
    EXPECT_NEAR(l.probabilities[l.cell(l.rows - 1, t)], p.probability, 1e-4);
    EXPECT_NEAR(l.entropy[l.cell(l.rows - 1, t)], p.entropy, 1e-4);
    EXPECT_EQ(l.kl[l.cell(l.rows - 1, t)], 0);
  }
}

}  // namespace
}  // namespace rapt
