// SPDX-License-Identifier: Apache-2.0
// What no algorithm owns: which tokens end an answer, and bytes held back until their character is whole.
#include "rapt/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>

#include "rapt/base/unicode.h"
#include "rapt/text/tokenizer/spec.h"

namespace rapt {

std::vector<std::int32_t> Tokenizer::frame(std::vector<std::int32_t> ids) const {
  ids.insert(ids.begin(), before.begin(), before.end());
  ids.insert(ids.end(), after.begin(), after.end());
  return ids;
}

std::vector<std::int32_t> stop_ids(const TokenizerSpec& spec) {
  static constexpr std::array<std::string_view, 22> kNames = {"<|eot_id|>",
                                                              "<|im_end|>",
                                                              "<|end|>",
                                                              "<|return|>",
                                                              "<|call|>",
                                                              "<|flush|>",
                                                              "<|calls|>",
                                                              "<end_of_turn>",
                                                              "<|endoftext|>",
                                                              "</s>",
                                                              "<|eom_id|>",
                                                              "<EOT>",
                                                              "_<EOT>",
                                                              "[EOT]",
                                                              "[EOS]",
                                                              "<|end_of_text|>",
                                                              "<end_of_utterance>",
                                                              "<eos>",
                                                              "<turn|>",
                                                              "<|tool_response>",
                                                              "<｜end▁of▁sentence｜>",
                                                              "[e~["};
  std::vector<std::int32_t> out = spec.more_stops;
  if (spec.eos >= 0) out.push_back(spec.eos);
  bool returns = false, calls = false, flushes = false, responds = false;
  std::int32_t end = -1, classic = -1;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string& text = spec.tokens[i];
    if (std::find(kNames.begin(), kNames.end(), std::string_view(text)) == kNames.end()) continue;
    const auto id = static_cast<std::int32_t>(i);
    out.push_back(id);
    returns |= text == "<|return|>";
    calls |= text == "<|call|>" || text == "<|calls|>";
    flushes |= text == "<|flush|>";
    responds |= text == "<|tool_response>";
    if (text == "<|end|>") end = id;
    if (text == "</s>") classic = id;
  }
  // Harmony formats end a message, not the answer, with <|end|>; Gemma 4 has </s> as plain text.
  if ((returns && calls) || (calls && flushes)) std::erase(out, end);
  if (responds && classic != spec.eos) std::erase(out, classic);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

namespace {

// Whole characters move to `out`; what may still become one stays. Bytes that never can become U+FFFD.
void take_whole(std::string& waiting, std::string& out, bool last) {
  std::size_t i = 0;
  while (i < waiting.size()) {
    const unicode::Char c = unicode::read(waiting, i);
    if (c.valid) {
      out.append(waiting, i, c.length);
      i += c.length;
      continue;
    }
    const auto lead = static_cast<std::uint8_t>(waiting[i]);
    const std::size_t wants = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    bool may = !last && lead >= 0xC2 && lead <= 0xF4 && waiting.size() - i < wants;
    for (std::size_t k = i + 1; may && k < waiting.size(); ++k)
      may = (static_cast<std::uint8_t>(waiting[k]) & 0xC0) == 0x80;
    // Second bytes that would make it overlong, a surrogate or too large.
    if (may && waiting.size() - i > 1) {
      const auto second = static_cast<std::uint8_t>(waiting[i + 1]);
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
          (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
        may = false;
    }
    if (may) break;
    out += unicode::kReplacementText;
    ++i;
  }
  waiting.erase(0, i);
}

}  // namespace

std::string TextStream::push(std::int32_t id) {
  std::string out;
  const bool known = id >= 0 && id < tokenizer_.size(),
             control = known && tokenizer_.role(id) == Tokenizer::Role::control,
             shown = special_ || !control || std::find(shown_.begin(), shown_.end(), id) != shown_.end();
  const std::string piece = first_  ? tokenizer_.decode({&id, 1}, special_ || (shown && control))
                            : shown ? tokenizer_.bytes_of(id)
                                    : std::string();
  if (known && shown) first_ = false;
  waiting_ += piece;
  take_whole(waiting_, out, false);
  return out;
}

std::string TextStream::finish() {
  std::string out;
  take_whole(waiting_, out, true);
  first_ = true;
  return out;
}

}  // namespace rapt
