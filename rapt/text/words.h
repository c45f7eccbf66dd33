// SPDX-License-Identifier: Apache-2.0
// Tokens as people can read them, each for itself. A token of a byte-level vocabulary may be a piece of a
// character: the whole character stands at its last token, and the tokens before it show their bytes, as
// in E4·BD.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {

// One text per token, always valid UTF-8; spaces and line ends stay as they are. Without a tokenizer, or for
// ids it does not have: <17>.
std::vector<std::string> token_texts(const Tokenizer* tokenizer, std::span<const std::int32_t> ids);
// A token that would come next: it may end a character that the text before it has begun.
std::string next_token_text(const Tokenizer* tokenizer, std::span<const std::int32_t> before,
                            std::int32_t id);
// Bytes that are no UTF-8 in hexadecimal, joined by dots; the rest as it is.
std::string readable_bytes(std::string_view bytes);
// The same where white space should be seen: a text of nothing else becomes ␣, \n and so on.
std::string visible_text(std::string text);
// For JSON, which holds no broken UTF-8: where a text is broken, each byte beyond ASCII becomes U+FFFD.
Json bytes_json(std::string_view text);

}  // namespace rapt
