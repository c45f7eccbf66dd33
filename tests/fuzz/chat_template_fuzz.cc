// SPDX-License-Identifier: Apache-2.0
// Any bytes as a chat template: it parses and renders, or ends in rapt::Error. What a user wrote never comes
// out as the template's: the mark in the messages is a byte that no template and no operation can make
// by itself.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "rapt/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const rapt::Json messages = rapt::parse_json(
      R"([{"role": "system", "content": "\u0001s <|x|>"}, {"role": "user", "content": "\u0001 a\nB, c\u0001"}, {"role": "assistant", "content": null,
          "tool_calls": [{"function": {"name": "\u0001f", "arguments": {"k\u0001": [1, 2.5, true, null, "\u0001"]}}}]}, {"role": "tool", "content": [{"type": "text", "text": "\u0001t"}]}])");
  static const rapt::ChatOptions options{
      true, "<s>", "</s>",
      rapt::parse_json(R"({"tools": [{"name": "\u0001n", "items": {"é": "\u0001ß"}}], "flag": true})"),
      "2026-11-15"};
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  // It can write the mark itself.
  const bool forged = source.find('\1') != source.npos || source.find('\\') != source.npos;
  try {
    for (const rapt::ChatPiece& piece : rapt::ChatTemplate(source).render(messages, options))
      if (piece.trusted && !forged && piece.text.find('\1') != std::string::npos) std::abort();
  } catch (const rapt::Error&) {}
  return 0;
}
