// SPDX-License-Identifier: Apache-2.0
// Chat templates as tokens, with Jinja's rules of white space as transformers sets them (trim_blocks,
// lstrip_blocks).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "rapt/text/chat_template_value.h"

namespace rapt::chat {

constexpr int kParseDepth = 64;  // tags in tags and brackets in brackets, together
// Bytes; a tree takes some 200 times as much, and released templates have 20 KB.
constexpr std::size_t kMostSource = 512 << 10;
constexpr std::size_t kMostArguments = 255;     // of one call or macro

struct Token {
  enum class Kind {
    end,
    text,
    print_begin,
    print_end,
    tag_begin,
    tag_end,
    name,
    string,
    integer,
    real,
    mark
  };
  Kind kind = Kind::end;
  std::size_t at = 0;
  std::string text;
  std::int64_t integer = 0;
  double real = 0;
};

std::vector<Token> lex(const Source& source);

}  // namespace rapt::chat
