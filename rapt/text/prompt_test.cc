// SPDX-License-Identifier: Apache-2.0
// Prompts as ids that can be read off the letters: BOS once, special tokens from the template alone,
// today's date.
#include "rapt/text/prompt.h"

#include <gtest/gtest.h>

#include "tests/memory_checkpoint.h"

namespace rapt::test {
namespace {

using Ids = std::vector<std::int32_t>;

// a is 2, b is 3 …; <31> is 31; other characters are 39.
const std::vector<ChatMessage> kMessages = {{"system", "ab"}, {"user", "c<31>"}};
constexpr const char* kRoles =
    "{% for m in messages %}{{ '<31>' if m.role == 'user' else '<32>' }}{{ m.content }}{% endfor %}<33>";

TEST(Prompt, OnlyTheTemplateWritesSpecialTokens) {
  const MarkTokenizer with(40, true), without(40, false);
  const ChatTemplate chat(kRoles), begins("{{ bos_token }}" + std::string(kRoles) + "{{ eos_token }}");
  const Ids body = {32, 2, 3, 31, 4, 39, 39, 39, 39, 33};
  EXPECT_EQ(chat_ids(without, chat, kMessages), body);
  Ids expected = body;
  expected.insert(expected.begin(), 0);
  EXPECT_EQ(chat_ids(with, chat, kMessages), expected);
  expected.push_back(1);
  EXPECT_EQ(chat_ids(with, begins, kMessages), expected);  // the template wrote BOS: not twice
  EXPECT_EQ(chat_ids(without, begins, kMessages), expected);
}

TEST(Prompt, RenderedPiecesKeepTheirTrust) {
  const MarkTokenizer t(40, false);
  EXPECT_EQ(chat_ids(t, std::vector<ChatPiece>{{"<31>", true}, {"<31>", false}, {"a", true}}),
            (Ids{31, 39, 39, 39, 39, 2}));
  EXPECT_EQ(chat_ids(MarkTokenizer(40, true), std::vector<ChatPiece>{}), Ids{0});
}

TEST(Prompt, OptionsAreTheTokenizersAndTodays) {
  MarkTokenizer t(40);
  ChatOptions o = chat_options(t);
  EXPECT_EQ(o.bos_token, "<s>");
  EXPECT_EQ(o.eos_token, "</s>");
  EXPECT_TRUE(o.add_generation_prompt);
  ASSERT_EQ(o.date.size(), 10u);
  EXPECT_EQ(o.date.substr(4, 1) + o.date.substr(7, 1), "--");
  EXPECT_EQ(o.date.find_first_not_of("0123456789-"), std::string::npos) << o.date;
  t.bos = t.eos = -1;
  o = chat_options(t);
  EXPECT_EQ(o.bos_token + o.eos_token, "");
}

TEST(Prompt, ATextBeginsWithBosOnce) {
  const MarkTokenizer with(40, true), without(40, false);
  EXPECT_EQ(text_ids(with, "ab"), (Ids{0, 2, 3}));
  EXPECT_EQ(text_ids(without, "ab"), (Ids{2, 3}));
  EXPECT_EQ(text_ids(with, "<s>a", true), (Ids{0, 2}));
  EXPECT_EQ(text_ids(with, "<s>"), (Ids{0, 39, 20, 39}));
  EXPECT_EQ(text_ids(without, "a<31>", true), (Ids{2, 31}));
  EXPECT_EQ(text_ids(without, ""), Ids{0});  // something must be read
  MarkTokenizer none(40, false);
  none.bos = -1;
  EXPECT_EQ(text_ids(none, ""), Ids{});
}

}  // namespace
}  // namespace rapt::test
