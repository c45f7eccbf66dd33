// SPDX-License-Identifier: Apache-2.0
// Bytes of an unfinished character wait from token to token; where none goes on, each shows its own.
#include "rapt/text/words.h"

#include <algorithm>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"
#include "rapt/io/reader.h"

namespace rapt {
namespace {

// How many bytes at the end of a text begin a character without ending it: 0 … 3.
std::size_t unfinished(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const auto c = static_cast<unsigned char>(text[text.size() - n]);
    if (c < 0x80) return 0;
    if (c < 0xC0) continue;  // inside a character
    return n < (c >= 0xF0 ? 4u : c >= 0xE0 ? 3u : 2u) ? n : 0;
  }
  return 0;
}

bool is_whole(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const unicode::Char c = unicode::read(text, i);
    if (!c.valid) return false;
    i += c.length;
  }
  return true;
}

}  // namespace

std::string readable_bytes(std::string_view bytes) {
  std::string out;
  bool broken = false;
  for (std::size_t i = 0; i < bytes.size();) {
    const unicode::Char c = unicode::read(bytes, i);
    if (c.valid) {
      out += bytes.substr(i, c.length);
    } else {
      static constexpr char kDigits[] = "0123456789ABCDEF";
      const auto b = static_cast<unsigned char>(bytes[i]);
      if (broken) out += "\xC2\xB7";  // ·
      out += {kDigits[b >> 4], kDigits[b & 15]};
    }
    broken = !c.valid;
    i += c.length;
  }
  return out;
}

std::vector<std::string> token_texts(const Tokenizer* tokenizer, std::span<const std::int32_t> ids) {
  std::vector<std::string> out;
  std::string waiting;  // bytes of a character that the tokens before have begun
  for (const std::int32_t id : ids) {
    if (!tokenizer || id < 0 || id >= tokenizer->size()) {
      out.push_back(concat("<", id, ">"));
      waiting.clear();
      continue;
    }
    const std::string alone = tokenizer->decode(std::span(&id, 1), true);
    if (waiting.empty() && is_whole(alone)) {
      out.push_back(alone);
      continue;
    }
    const std::string own = is_whole(alone) ? alone : tokenizer->bytes_of(id);
    std::string all = waiting + own;
    const std::size_t open = unfinished(all);
    // What was begun and does not go on was shown where it stood; what is still open has begun here
    // or before.
    const bool goes_on = !waiting.empty() && (open >= all.size() || unicode::read(all, 0).valid);
    out.push_back(goes_on && open < all.size() ? readable_bytes(all) : readable_bytes(own));
    waiting = all.substr(all.size() - open);
  }
  return out;
}

std::string next_token_text(const Tokenizer* tokenizer, std::span<const std::int32_t> before,
                            std::int32_t id) {
  // No more can have begun a character.
  const auto some = before.last(std::min<std::size_t>(3, before.size()));
  std::vector<std::int32_t> ids(some.begin(), some.end());
  ids.push_back(id);
  return token_texts(tokenizer, ids).back();
}

std::string visible_text(std::string text) {
  if (text.find_first_not_of(" \n\r\t") != std::string::npos) return text;
  std::string shown;
  // ␣
  for (char c : text) shown += c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : "\xE2\x90\xA3";
  return shown;
}

Json bytes_json(std::string_view text) {
  if (valid_utf8(text)) return text;
  std::string out;
  for (char c : text) out += static_cast<unsigned char>(c) < 128 ? std::string(1, c) : "\xEF\xBF\xBD";
  return out;
}

}  // namespace rapt
