// SPDX-License-Identifier: Apache-2.0
// Published pre-tokenizer patterns: their character classes, the regular expressions tokenizer.json spells
// them with, the names GGUF has.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/text/tokenizer/spec.h"

namespace rapt {

struct CodeRange {
  std::uint32_t first, last;
};
std::span<const CodeRange> deepseek_letter_ranges();  // sorted

std::optional<Pattern> pattern_of_regex(std::string_view regex);
std::string regex_of_pattern(Pattern pattern);

}  // namespace rapt
