// SPDX-License-Identifier: Apache-2.0
// Many templates write BOS themselves, so it is put before the ids only where it is missing.
#include "rapt/text/prompt.h"

#include <ctime>

namespace rapt {

ChatOptions chat_options(const Tokenizer& tokenizer) {
  ChatOptions options;
  if (tokenizer.bos >= 0) options.bos_token = tokenizer.text_of(tokenizer.bos);
  if (tokenizer.eos >= 0) options.eos_token = tokenizer.text_of(tokenizer.eos);
  const std::time_t now = std::time(nullptr);
  char date[16] = "";
  std::tm local{};
  if (localtime_r(&now, &local)) std::strftime(date, sizeof date, "%Y-%m-%d", &local);
  options.date = date;
  return options;
}

std::vector<std::int32_t> chat_ids(const Tokenizer& tokenizer, std::span<const ChatPiece> rendered) {
  std::vector<TextPiece> parts;
  for (const ChatPiece& p : rendered) parts.push_back({p.text, p.trusted});
  std::vector<std::int32_t> ids = tokenizer.encode(parts);
  if (tokenizer.add_bos && tokenizer.bos >= 0 && (ids.empty() || ids[0] != tokenizer.bos))
    ids.insert(ids.begin(), tokenizer.bos);
  return ids;
}

std::vector<std::int32_t> chat_ids(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                   std::span<const ChatMessage> messages) {
  return chat_ids(tokenizer, chat.render(messages, chat_options(tokenizer)));
}

std::vector<std::int32_t> text_ids(const Tokenizer& tokenizer, std::string_view text, bool special) {
  std::vector<std::int32_t> ids = tokenizer.encode(text, special);
  if (tokenizer.bos >= 0 && (tokenizer.add_bos || ids.empty()) && (ids.empty() || ids[0] != tokenizer.bos))
    ids.insert(ids.begin(), tokenizer.bos);
  return ids;
}

}  // namespace rapt
