// SPDX-License-Identifier: Apache-2.0
// Channels of an answer, on a vocabulary of single letters and harmony's special tokens.
#include "rapt/text/channels.h"

#include <gtest/gtest.h>

#include "rapt/base/json.h"

namespace rapt {
namespace {

std::shared_ptr<const Tokenizer> letters(bool channels) {
  Json vocab = Json::Object{};
  std::int64_t id = 0;
  for (char c = '!'; c <= '~'; ++c) vocab.set(std::string(1, c), id++);
  vocab.set("\xC4\xA0", id++);  // a space, as byte-level BPE writes it
  Json::Array added;
  if (channels)
    for (const char* name : {"<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|return|>"})
      added.push_back(Json::Object{{"id", id++}, {"content", name}, {"special", true}});
  Json model = Json::Object{};
  model.set("type", "BPE");
  model.set("vocab", vocab);
  model.set("merges", Json::Array{});
  Json byte_level = Json::Object{};
  byte_level.set("type", "ByteLevel");
  byte_level.set("add_prefix_space", false);
  Json all = Json::Object{};
  all.set("added_tokens", added);
  all.set("pre_tokenizer", byte_level);
  all.set("decoder", byte_level);
  all.set("model", model);
  return tokenizer_from_json(all.dump(0), "", "letters");
}

std::string parts(const Tokenizer& t, std::string_view text) {
  AnswerChannels channels(t);
  std::string out;
  for (const std::int32_t id : t.encode(text, true)) {
    const bool control = t.role(id) != Tokenizer::Role::normal;
    const auto part = channels.push(id, control ? "" : t.bytes_of(id));
    if (!control) out += "htac"[static_cast<std::size_t>(part)];
  }
  return out;
}

TEST(Channels, SayWhoseTextATokenBringsAndWhatTheNextTurnReads) {
  const auto t = letters(true);
  ASSERT_TRUE(AnswerChannels(*t).active());
  const std::string answer =
      "<|channel|>analysis<|message|>hm hm<|end|><|start|>assistant<|channel|>final<|message|>yes 1";
  EXPECT_EQ(parts(*t, answer),
            std::string(8, 'h') + std::string(5, 't') + std::string(9 + 5, 'h') + std::string(5, 'a'));
  const auto ids = t->encode(answer, true);
  EXPECT_EQ(answer_text(*t, ids, t->decode(ids)), "yes 1");
  // a call of a tool, then an answer without a channel
  EXPECT_EQ(parts(*t, "<|channel|>commentary to=f.x<|message|>{}<|end|><|start|>assistant<|message|>ok"),
            std::string(17, 'h') + "cc" + std::string(9, 'h') + "aa");
  // never came to an answer: nothing is lost
  const auto thought = t->encode("<|channel|>analysis<|message|>hm", true);
  EXPECT_EQ(answer_text(*t, thought, t->decode(thought)), t->decode(thought));
}

TEST(Channels, AVocabularyWithoutThemHasAnswersOnly) {
  const auto t = letters(false);
  EXPECT_FALSE(AnswerChannels(*t).active());
  EXPECT_EQ(parts(*t, "ab"), "aa");
  EXPECT_EQ(answer_text(*t, t->encode("ab"), "ab"), "ab");
}

}  // namespace
}  // namespace rapt
