// SPDX-License-Identifier: Apache-2.0
// Tokens of the default model's vocabulary against the texts a reader should see.
#include "rapt/text/words.h"

#include <gtest/gtest.h>

#include <memory>

namespace rapt {
namespace {

using Texts = std::vector<std::string>;

TEST(Words, PiecesOfACharacterShowTheirBytesAndTheLastTheWhole) {
  const std::shared_ptr<const Tokenizer> t =
      open_tokenizer(std::string(RAPT_SOURCE_DIR) + "/models/default/default.gguf");
  const auto texts = [&](std::string_view text) { return token_texts(t.get(), t->encode(text)); };
  EXPECT_EQ(texts("你好"), (Texts{"E4", "BD", "你", "E5", "A5", "好"}));
  EXPECT_EQ(texts("é"), (Texts{"C3", "é"}));
  std::string joined;  // whole tokens stay as they are
  for (const std::string& word : texts("To be, or not")) joined += word;
  EXPECT_EQ(joined, "To be, or not");
  // A character that is begun and not ended, one alone, an id that is none, no tokenizer.
  std::vector<std::int32_t> ids = t->encode("你");
  const std::int32_t a = t->encode("a")[0];
  ids.insert(ids.begin() + 1, a);
  EXPECT_EQ(token_texts(t.get(), ids), (Texts{"E4", "a", "BD", "A0"}));
  EXPECT_EQ(token_texts(t.get(), std::vector<std::int32_t>{-1, a, 1 << 20}),
            (Texts{"<-1>", "a", "<1048576>"}));
  EXPECT_EQ(token_texts(nullptr, std::vector<std::int32_t>{7}), (Texts{"<7>"}));
}

TEST(Words, ATokenThatWouldComeNextEndsACharacter) {
  const std::shared_ptr<const Tokenizer> t =
      open_tokenizer(std::string(RAPT_SOURCE_DIR) + "/models/default/default.gguf");
  std::vector<std::int32_t> ids = t->encode("To 好");
  const std::int32_t last = ids.back(), a = t->encode("a")[0];
  ids.pop_back();
  EXPECT_EQ(next_token_text(t.get(), ids, last), "好");
  EXPECT_EQ(next_token_text(t.get(), ids, a), "a");
  EXPECT_EQ(next_token_text(t.get(), {}, last), "BD");
}

TEST(Words, BytesAndSpacesAreSeen) {
  EXPECT_EQ(readable_bytes("a\xE4\xBD z\xFF"),
            "aE4\xC2\xB7"
            "BD zFF");
  EXPECT_EQ(visible_text(" \n"), "␣\\n");
  EXPECT_EQ(visible_text(" a"), " a");
}

}  // namespace
}  // namespace rapt
