// SPDX-License-Identifier: Apache-2.0
// Parts of tokenizer.json, for its reader and for readers of the older files beside it.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "rapt/base/json.h"
#include "rapt/text/tokenizer/spec.h"

namespace rapt {

// ASCII's punctuation, as we write it: what SigLIP takes out of a text.
inline constexpr std::string_view kPunctuationRegex = R"([!-/:-@\[-`{-~])";

std::string at(const std::string& where, const Json& value);  // "tokenizer.json:3:14: "
const Json& need(const Json& object, const char* key, const std::string& where);
bool flag_or(const Json& object, const char* key, bool otherwise, const std::string& where);
// null is absent
std::string text_or(const Json& object, const char* key, std::string_view otherwise,
                    const std::string& where);
std::int64_t integer_or(const Json& object, const char* key, std::int64_t otherwise, std::int64_t least,
                        std::int64_t most, const std::string& where);
void refuse_others(const Json& object, const std::string& where, std::string_view what,
                   std::initializer_list<std::string_view> known);

void read_normalizer(const Json& value, TokenizerSpec& spec);
void read_pre_tokenizer(const Json& value, TokenizerSpec& spec);
void read_post_processor(const Json& value, TokenizerSpec& spec);
void read_decoder(const Json& value, TokenizerSpec& spec);
// bos_token, eos_token, … of tokenizer_config.json or special_tokens_map.json
void read_config(const Json& config, TokenizerSpec& spec);
void add_token(TokenizerSpec& spec, AddedToken token);
std::int32_t find_token(const TokenizerSpec& spec, std::string_view text);  // -1: not there

// What SigLIP does to a text first: a visible space before it (so that white space at its beginning stays
// one more), lower case, no punctuation, single spaces.
std::vector<NormalStep> canonical_text(bool lower = true);

}  // namespace rapt
