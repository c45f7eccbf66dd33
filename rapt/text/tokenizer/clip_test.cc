// SPDX-License-Identifier: Apache-2.0
// CLIP's tokenizer against transformers' (tests/golden/tokenizers/clip.json): words that end in a token of
// their own kind, by either form of its files, and written again.
#include <gtest/gtest.h>

#include "rapt/text/tokenizer/from_files.h"
#include "rapt/text/tokenizer/write.h"
#include "tests/tools.h"

namespace rapt {
namespace {

const Json& golden() {
  static const Json json = [] {
    const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/tokenizers/clip.json";
    return parse_json(read_text_file(path), path);
  }();
  return json;
}

std::vector<std::int32_t> ids(const Json& list) {
  std::vector<std::int32_t> out;
  for (const Json& id : list.array()) out.push_back(static_cast<std::int32_t>(id.integer()));
  return out;
}

void check(const Tokenizer& t, const char* form) {
  const Json::Array& texts = test::need(golden(), "texts").array();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i].string();
    const std::vector<std::int32_t> want = ids(test::need(golden(), "ids").array()[i]);
    EXPECT_EQ(t.encode(text), want) << form << ": " << text;
    EXPECT_EQ(t.frame(t.encode(text)), ids(test::need(golden(), "framed").array()[i]))
        << form << ": " << text;
    EXPECT_EQ(t.decode(want, true), test::need(golden(), "decoded").array()[i].string())
        << form << ": " << text;
  }
}

TEST(ClipTokenizer, IdsOfTransformers) {
  const auto from_json = tokenizer_from_json(test::need(golden(), "json").string(), "", "clip");
  check(*from_json, "tokenizer.json");

  std::string merges;
  for (const Json& line : test::need(golden(), "merges").array()) merges += std::string(line.string()) + "\n";
  const Json config = parse_json(R"({"tokenizer_class": "CLIPTokenizer", "unk_token": "<|endoftext|>"})");
  const auto from_files =
      tokenizer_from_bpe_files(test::need(golden(), "vocab").dump(), merges, config, "clip");
  check(*from_files, "vocab.json");
  const TokenizerFiles written = tokenizer_files(*from_files);
  check(*tokenizer_from_json(written.tokenizer_json, written.tokenizer_config_json, "again"),
        "written again");
}

TEST(ClipTokenizer, IsNotSaidByOthers) {
  const auto t = tokenizer_from_json(test::need(golden(), "json").string(), "", "clip");
  EXPECT_FALSE(gguf_says(*t));  // its files hold the JSON texts
  Json characters = parse_json(test::need(golden(), "json").string());
  characters.set("pre_tokenizer", Json());
  const std::string plain = test::error_of([&] { tokenizer_from_json(characters.dump(), "", "clip"); });
  EXPECT_TRUE(test::holds(plain, "end_of_word_suffix is known for BPE of bytes")) << plain;
}

}  // namespace
}  // namespace rapt
