// SPDX-License-Identifier: Apache-2.0
// What version 0.1 wrote (tests/golden/v0_1, made by its make.sh) still opens and means the same: a model
// folder, a GGUF file, recipes, and the state of a training, which goes on to the bits that 0.1 reached.
// With the scalar kernels, whose bits every machine has.
#include <gtest/gtest.h>

#include <filesystem>

#include "rapt/api/state.h"
#include "rapt/base/json.h"
#include "rapt/io/npy.h"
#include "tests/tools.h"

namespace rapt::api {
namespace {

namespace fs = std::filesystem;

class EarlierFiles : public testing::Test {
 protected:
  const std::string golden = RAPT_SOURCE_DIR "/tests/golden/v0_1/";
  const Device device{{.threads = 2, .isa = "scalar"}};
  const std::vector<Token> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  Model open(const std::string& path) const { return Model::open(path, {.device = device}); }
};

TEST_F(EarlierFiles, ModelsSayTheSame) {
  for (const auto& [name, logits] :
       {std::pair("model", "logits.npy"), std::pair("bytes.gguf", "logits-gguf.npy")}) {
    const NpyArray want = read_npy(golden + logits);
    const Tensor got = open(golden + name).logits(tokens);
    EXPECT_EQ(got.shape, want.shape) << name;
    EXPECT_EQ(got.values, want.values) << name;
  }
  EXPECT_EQ(open(golden + "model").detokenize(open(golden + "model").tokenize("the cat")), "the cat");
  EXPECT_EQ(open(golden + "bytes.gguf").tokenize("the").size(), 3u);
}

TEST_F(EarlierFiles, RecipesMeanTheSame) {
  const Json all = parse_json(read_text_file(golden + "recipes.json"), "recipes.json");
  int recipes = 0;
  for (const auto& [name, json] : all.object()) {
    Recipe then = resolve(parse_recipe(json.dump(), name)), now = resolve(preset(name));
    then.note = now.note = "";  // words about it may change
    EXPECT_EQ(then, now) << name;
    ++recipes;
  }
  EXPECT_GT(recipes, 20);
}

TEST_F(EarlierFiles, ATrainingGoesOnToTheSameBits) {
  test::TempFolder folder;
  fs::copy(golden + "run", folder / "run", fs::copy_options::recursive);
  EXPECT_EQ(open(folder / "run").info().path, folder / "run/step-6");  // a state is a model, too
  TrainOptions o{.data = golden + "text.txt", .folder = folder / "run", .steps = 12, .seed = 5};
  o.vocabulary = Vocabulary::characters;
  o.length = 16, o.batch = 4;
  o.recipe = {"width=16", "heads=2", "kv_heads=1", "layers=2", "ffn=32", "context=32", "dropout=0.1"};
  o.settings = {"save_every=6",        "save_minutes=0", "health_every=4",
                "optimizer.rate=0.01", "eval_batches=2", "schedule.warmup=3"};
  o.device = device;
  Training training("llama3", o);
  std::vector<std::int64_t> steps;
  EXPECT_TRUE(training.run({.step = [&](const TrainStep& s) { return steps.push_back(s.step), true; }}));
  EXPECT_EQ(steps, (std::vector<std::int64_t>{7, 8, 9, 10, 11, 12}));
  const Model want = open(golden + "model"), got = open(folder / "run/model"), in_memory = training.model();
  EXPECT_EQ(want.weights(), got.weights());
  for (const std::string& name : want.weights()) {
    EXPECT_EQ(want.weight(name).values, got.weight(name).values) << name;
    EXPECT_EQ(want.weight(name).values, in_memory.weight(name).values) << name;
  }
}

}  // namespace
}  // namespace rapt::api
