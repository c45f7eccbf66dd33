// SPDX-License-Identifier: Apache-2.0
// A tokenizer back into files: as GGUF metadata (tokenizer.ggml.*), and as tokenizer.json with tokenizer_config.json.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "rapt/io/gguf.h"
#include "rapt/io/tokenizer/tokenizer.h"

namespace rapt {

std::vector<std::pair<std::string, GgufValue>> tokenizer_metadata(const Tokenizer& tokenizer);
struct TokenizerFiles {
  std::string tokenizer_json, tokenizer_config_json;
};
TokenizerFiles tokenizer_files(const Tokenizer& tokenizer, std::string_view chat_template = "");

}  // namespace rapt
