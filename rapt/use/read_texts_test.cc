// SPDX-License-Identifier: Apache-2.0
// Words for masks and classes of texts beside transformers' pipelines (tests/golden/use/pipelines.json).
#include "rapt/use/read_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

using testing::HasSubstr;

const Json& golden_texts() {
  static const Json all = parse_json(
      read_text_file(std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/pipelines.json"), "pipelines.json");
  return all;
}

std::string words() {
  std::string out;
  for (const Json& word : golden_texts().find("vocabulary")->array()) out += word.string() + "\n";
  return out;
}

Checkpoint toy(const char* name, Device& device, const std::string& vocabulary = words()) {
  const TempFolder temp;
  write_folder(toy_from(name, *golden_texts().find(name)), temp / "m");
  put_file(temp / "m/vocab.txt", vocabulary);
  put_file(temp / "m/tokenizer_config.json",
           R"({"tokenizer_class": "BertTokenizer", "do_lower_case": true})");
  return open_checkpoint(temp / "m", {.real = device.real, .device = &device});
}

std::vector<std::string> texts_of(const char* list) {
  std::vector<std::string> out;
  for (const Json& one : golden_texts().find(list)->array()) out.push_back(one.find("text")->string());
  return out;
}

// The golden texts hold [SEP], which the pipeline reads as the token and Rapt as text: there only ours is
// looked at.
bool spells_a_token(const std::string& text) { return text.find("[SEP]") != text.npos; }

TEST(FillMasks, GuessesAsThePipeline) {
  Device device({.threads = 2});
  const Checkpoint c = toy("masked", device);
  const std::vector<std::string> texts = texts_of("fill");
  const std::vector<FilledMasks> got = fill_masks(device, c, texts, 4);
  ASSERT_EQ(got.size(), texts.size());
  std::size_t masks = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Json::Array& want = golden_texts().find("fill")->array()[i].find("masks")->array();
    ASSERT_EQ(got[i].guesses.size(), want.size()) << texts[i];
    masks += want.size();
    if (spells_a_token(texts[i])) continue;
    for (std::size_t k = 0; k < want.size(); ++k)
      for (std::size_t n = 0; n < 4; ++n) {
        const Json& w = want[k].array()[n];
        const MaskGuess& g = got[i].guesses[k][n];
        ASSERT_EQ(g.id, w.find("id")->integer()) << texts[i] << ", mask " << k << ", guess " << n;
        EXPECT_NEAR(g.probability, w.find("probability")->number(), 1e-5);
        EXPECT_EQ(guess_text(*c.tokenizer, g.id), w.find("token")->string());
        EXPECT_EQ(filled_text(*c.tokenizer, got[i], k, g.id), w.find("sequence")->string());
      }
    // Alone.
    EXPECT_EQ(fill_masks(device, c, std::span(&texts[i], 1), 2)[0].guesses[0][1].probability,
              got[i].guesses[0][1].probability);
  }
  EXPECT_GT(masks, texts.size());
}

TEST(FillMasks, SaysWhatItCannotRead) {
  Device device({.threads = 1});
  const Checkpoint c = toy("masked", device);
  const auto error = [&](const Checkpoint& with, const std::string& text) {
    return error_of([&] { fill_masks(device, with, std::span(&text, 1), 1); });
  };
  EXPECT_THAT(error(c, "no mask"), HasSubstr("text 1 has no mask; write [MASK]"));
  std::string text = "[MASK]";
  for (int i = 0; i < 40; ++i) text += " to";
  EXPECT_THAT(error(c, text), HasSubstr("43 tokens, the model reads 40"));
  EXPECT_THAT(error(toy("classifier", device), "[MASK]"), HasSubstr("no model of masked words"));
  Checkpoint plain = toy("masked", device);
  auto tokenizer = std::const_pointer_cast<Tokenizer>(plain.tokenizer);
  tokenizer->mask = -1;
  EXPECT_THAT(error(plain, "[MASK]"), HasSubstr("no mask token"));
}

TEST(ClassifyTexts, AsThePipeline) {
  Device device({.threads = 2});
  const Checkpoint c = toy("classifier", device);
  const std::vector<std::string> texts = texts_of("classify");
  Dim cut = 0;
  const auto got = classify_texts(device, c, texts, {}, &cut);
  EXPECT_EQ(cut, 1);
  ASSERT_EQ(got.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (spells_a_token(texts[i])) continue;
    for (const Json& w : golden_texts().find("classify")->array()[i].find("classes")->array())
      for (std::size_t k = 0; k < 3; ++k)
        if (class_name(c, k) == w.find("label")->string())
          EXPECT_NEAR(got[i][k], w.find("probability")->number(), 1e-5) << texts[i];
    EXPECT_EQ(classify_texts(device, c, std::span(&texts[i], 1))[0], got[i]);
  }
  EXPECT_EQ(class_name(c, 1), "let");
  EXPECT_EQ(class_name(Checkpoint{}, 1), "LABEL_1");
  EXPECT_THAT(error_of([&] { classify_texts(device, toy("masked", device), texts); }),
              HasSubstr("is no classifier"));
}

}  // namespace
}  // namespace rapt::test
