// SPDX-License-Identifier: Apache-2.0
// A prompt as token ids: messages through a chat template, or a text as it is. (A conversation that goes on:
// use/conversation.h.)
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "rapt/text/chat_template.h"
#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {

// What templates ask for: the tokenizer's BOS and EOS, and today's date here.
ChatOptions chat_options(const Tokenizer& tokenizer);
// A rendered conversation. Only what the template wrote becomes special tokens. BOS comes first where the
// tokenizer adds one and the template wrote none.
std::vector<std::int32_t> chat_ids(const Tokenizer& tokenizer, std::span<const ChatPiece> rendered);
// Messages through the template with chat_options().
std::vector<std::int32_t> chat_ids(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                   std::span<const ChatMessage> messages);
// A text that shall be continued, after BOS where the tokenizer adds one. `special`: names of special tokens
// in it become these tokens. An empty text is BOS alone where there is one: a model must read something.
std::vector<std::int32_t> text_ids(const Tokenizer& tokenizer, std::string_view text, bool special = false);

}  // namespace rapt
