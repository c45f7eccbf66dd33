// SPDX-License-Identifier: Apache-2.0
// A tokenizer back into files: as GGUF metadata (tokenizer.ggml.*), and as tokenizer.json with
// tokenizer_config.json.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "rapt/io/gguf.h"
#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {

// False: no tokenizer.ggml keys say what it does (an end of word in the tokens, punctuation that goes).
bool gguf_says(const Tokenizer& tokenizer);

// `vocabulary`: rows of the model's embedding; where the tokenizer has fewer, unused tokens [PAD…] fill up,
// as llama.cpp's converter does.
std::vector<std::pair<std::string, GgufValue>> tokenizer_metadata(const Tokenizer& tokenizer,
                                                                  Dim vocabulary = 0);
struct TokenizerFiles {
  std::string tokenizer_json, tokenizer_config_json;
};
// What was read from a tokenizer.json comes back as it was (the config with the chat template given here,
// where one is).
TokenizerFiles tokenizer_files(const Tokenizer& tokenizer, std::string_view chat_template = "");

}  // namespace rapt
