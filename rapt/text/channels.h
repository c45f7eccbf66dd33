// SPDX-License-Identifier: Apache-2.0
// Answers in channels (gpt-oss): what a model thinks, what it tells the user and calls of tools are messages
// of one answer, told apart by special tokens:
//   answer  = header? body*        body = text (<|end|> <|start|> header)?
//   header  = role? (" to=" name)? <|channel|> name (" to=" name)? (<|constrain|> type)? <|message|>
// A vocabulary without <|channel|> and <|message|> has none: all of an answer is for the user.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {

class AnswerChannels {
 public:
  enum class Part { header, thinking, answer, call };
  explicit AnswerChannels(const Tokenizer& tokenizer);
  bool active() const { return channel_ >= 0; }
  // Whose text this is: that of a token which was just written (-1: what was held back).
  Part push(std::int32_t id, std::string_view text);

 private:
  std::int32_t start_ = -1, channel_ = -1, message_ = -1, end_ = -1;
  Part part_ = Part::header;
  std::string header_;  // what stands between <|start|> and <|message|>
};

// What the next turn reads of an answer: the text for the user. All of the text where it never came to that.
std::string answer_text(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::string_view text);

}  // namespace rapt
