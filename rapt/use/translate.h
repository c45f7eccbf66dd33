// SPDX-License-Identifier: Apache-2.0
// Lines of text through an encoder-decoder: what stands between files of sentences and
// Session::translate_all.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/use/generate.h"

namespace rapt {

// A text as an encoder reads it: framed as the tokenizer says, and closed by the end-of-text token where
// that says nothing of one. Training reads its pairs alike.
std::vector<std::int32_t> source_ids(const Tokenizer& tokenizer, std::string_view text);

// What a decoder is shown reading: its start token and `target`; without one, what it answers to the source
// (greedy, 64 tokens at most).
std::vector<std::int32_t> decoder_ids(Device& device, const Checkpoint& checkpoint,
                                      std::span<const std::int32_t> source,
                                      const std::optional<std::string>& target);

struct TranslatedLine {
  std::vector<std::int32_t> source;  // empty for a line without words, which is not translated
  std::vector<Generated> answers;  // best first
  std::string text;  // of the best, on one line: line breaks are spaces
};

struct TranslateOptions {
  GenerateOptions generate;  // beams and their penalty; beams 0 or 1: greedy
  std::string prefix;  // stands before every line ("translate English to German: ")
  Dim side = 16;  // sources side by side; the answers do not depend on it
};

// Lines with their translations, in order. `on_line` hears of each as soon as it and all before it are done.
using OnLine = std::function<void(std::size_t line, const TranslatedLine&)>;
std::vector<TranslatedLine> translate_lines(Session& session, const Checkpoint& checkpoint,
                                            std::span<const std::string> lines,
                                            const TranslateOptions& options, const OnLine& on_line = {},
                                            const std::function<void(std::size_t done)>& progress = {},
                                            const std::atomic<bool>* cancel = nullptr);

// Lines of a text without their ends; nothing behind the last end.
std::vector<std::string> text_lines(std::string_view text);

}  // namespace rapt
