// SPDX-License-Identifier: Apache-2.0
// Released models against values of the reference implementations (tests/golden/make_real.py). Skipped where
// the files are not there.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "rapt/base/json.h"
#include "rapt/text/prompt.h"
#include "rapt/use/generate.h"
#include "tests/build_kind.h"
#include "tests/data.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

using Ids = std::vector<std::int32_t>;

const Json& golden() {
  static const Json all = [] {
    const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/real/answers.json";
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return parse_json(text.str(), path);
  }();
  return all;
}

Ids ids_of(const Json& list) {
  Ids ids;
  for (const Json& x : list.array()) ids.push_back(static_cast<std::int32_t>(x.integer()));
  return ids;
}

Ids greedy(Device& device, const Checkpoint& model, const Ids& prompt, Dim count) {
  Session session(device, model, {});
  GenerateOptions o;
  o.sampler.temperature = 0;
  o.max_tokens = count;
  return session.generate(prompt, o)[0].ids;
}

// Equal for `least` tokens, or parted where the reference itself hardly preferred its token: quantized
// weights are multiplied in int8 here, in f32 there.
void expect_answer(const Json& row, const Ids& got, std::size_t least, const std::vector<std::int32_t>& stops,
                   int& equal) {
  const Ids want = ids_of(*row.find("ids"));
  for (std::size_t i = 0; i < least; ++i) {
    const bool ended = std::find(stops.begin(), stops.end(), want[i]) != stops.end();
    if (ended && i == got.size()) break;  // both stop here
    if (i < got.size() && got[i] == want[i]) continue;
    const double gap = row.find("gaps")->array()[i].number();
    EXPECT_LT(gap, 0.5) << row.find("text")->string() << ": token " << i << " is "
                        << (i < got.size() ? got[i] : -1) << ", the reference has " << want[i];
    return;
  }
  ++equal;
}

TEST(RealModels, SmolLM2AnswersAsTransformersDoes) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto file = model_file("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!file) GTEST_SKIP() << no_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  Device device;
  const Checkpoint c = open_checkpoint(file->string(), {.real = device.real, .device = &device});
  int equal = 0;
  for (const Json& row : golden().find("smollm2")->array()) {
    const std::vector<ChatMessage> messages = {{"user", row.find("text")->string()}};
    const Ids prompt = chat_ids(*c.tokenizer, ChatTemplate(c.chat_template), messages);
    EXPECT_EQ(prompt, ids_of(*row.find("prompt"))) << row.find("text")->string();
    expect_answer(row, greedy(device, c, prompt, 32), 32, c.stops, equal);
  }
  EXPECT_GE(equal, 5) << "of 10 answers";
}

TEST(RealModels, Gemma3ContinuesAsTransformersDoes) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto file = model_file("gemma-3-270m-q4_k_m.gguf");
  if (!file) GTEST_SKIP() << no_model("gemma-3-270m-q4_k_m.gguf");
  Device device;
  const Checkpoint c = open_checkpoint(file->string(), {.real = device.real, .device = &device});
  int equal = 0;
  for (const Json& row : golden().find("gemma3")->array()) {
    const Ids prompt = c.tokenizer->frame(c.tokenizer->encode(row.find("text")->string()));
    EXPECT_EQ(prompt, ids_of(*row.find("prompt"))) << row.find("text")->string();
    expect_answer(row, greedy(device, c, prompt, 32), 32, c.stops, equal);
  }
  EXPECT_GE(equal, 5) << "of 10 answers";
}

TEST(RealModels, MiniLmEmbedsAsTheReference) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto folder = model_file("all-MiniLM-L6-v2");
  if (!folder) GTEST_SKIP() << no_model("all-MiniLM-L6-v2");
  Device device;
  const Checkpoint c = open_checkpoint(folder->string(), {.real = device.real, .device = &device});
  EXPECT_EQ(c.pool, Pool::mean);
  EXPECT_TRUE(c.normalize);
  std::vector<std::string> texts;
  for (const Json& row : golden().find("minilm")->array()) {
    texts.push_back(row.find("text")->string());
    EXPECT_EQ(c.tokenizer->frame(c.tokenizer->encode(texts.back())), ids_of(*row.find("ids")))
        << texts.back();
  }
  const auto vectors = embed_texts(device, c, texts);
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const Json::Array& want = golden().find("minilm")->array()[t].find("vector")->array();
    ASSERT_EQ(vectors[t].size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(vectors[t][i], want[i].number(), 1e-4) << texts[t] << ", number " << i;
  }
}

// It reads 256 tokens of its 512: so do the GGUF file and the folder that are made of it.
TEST(RealModels, MiniLmReadsAsFarAfterConversion) {
  RAPT_NOT_SANITIZED("a whole released model");
  const auto folder = model_file("all-MiniLM-L6-v2");
  if (!folder) GTEST_SKIP() << no_model("all-MiniLM-L6-v2");
  const TempFolder temp;
  write_checkpoint(folder->string(), temp / "m.gguf", {});
  write_checkpoint(temp / "m.gguf", temp / "m", {});
  std::string text;
  for (int i = 0; i < 400; ++i) text += concat("word ", i % 7, i < 250 ? " sea " : " sun ");
  Device device;
  std::vector<std::vector<float>> vectors;
  for (const std::string& path : {folder->string(), temp / "m.gguf", temp / "m"}) {
    const Checkpoint c = open_checkpoint(path, {.real = device.real, .device = &device});
    EXPECT_EQ(c.max_tokens, 256) << path;
    vectors.push_back(embed_texts(device, c, std::vector{text})[0]);
  }
  EXPECT_EQ(vectors[0], vectors[1]);
  EXPECT_EQ(vectors[0], vectors[2]);
}

TEST(RealModels, Stories260KTellsItsStory) {
  const auto file = data_file("models/stories260K.bin");
  if (!file) GTEST_SKIP() << no_data("models/stories260K.bin");
  Device device;
  const Checkpoint c = open_checkpoint(file->string(), {.real = device.real, .device = &device});
  const Json& row = golden().find("stories260k")->array()[0];
  const Ids got = greedy(device, c, ids_of(*row.find("prompt")), 120);
  EXPECT_EQ(got, ids_of(*row.find("ids")));
  ASSERT_TRUE(c.tokenizer);
  EXPECT_TRUE(c.tokenizer->decode(got).starts_with("Once upon a time")) << c.tokenizer->decode(got);
}

}  // namespace
}  // namespace rapt::test
