// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json (with tokenizer_config.json) to a tokenizer. What is not known is an error
// with its name: a step left out gives other ids, and nobody would see it.
//   { added_tokens, normalizer, pre_tokenizer, model, post_processor, decoder, … }
#include <algorithm>
#include <unordered_set>

#include "rapt/base/text.h"
#include "rapt/text/tokenizer/json_parts.h"
#include "rapt/text/tokenizer/model.h"
#include "rapt/text/tokenizer/patterns.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;
using Kind = Tokenizer::Kind;

// Ids may leave holes, but not so many that a small file asks for much memory.
void check_ids(const std::string& where, std::int64_t largest, std::size_t entries) {
  if (largest < 0 || static_cast<std::uint64_t>(largest) >= 4 * std::uint64_t{entries} + 1024) {
    fail(where, ": the largest id is ", largest, " for ", entries, " tokens; ids must nearly count them");
  }
}

std::int64_t token_id(const Json& value, const std::string& where, const std::string& token) {
  if (!value.is_integer() || value.integer() < 0 || value.integer() > 0x7FFFFFFF) {
    fail(where, ": the id of token '", token, "' is ",
         value.is_number() ? "out of range" : value.type_name());
  }
  return value.integer();
}

void read_vocabulary(const Json& vocab, TokenizerSpec& spec) {
  if (!vocab.is_object())
    fail(at(spec.where, vocab), "model.vocab is ", vocab.type_name(), ", not an object of tokens and ids");
  std::int64_t largest = -1;
  for (const auto& [text, id] : vocab.object()) largest = std::max(largest, token_id(id, spec.where, text));
  check_ids(spec.where, largest, vocab.object().size());
  spec.tokens.resize(static_cast<std::size_t>(largest + 1));
  spec.roles.assign(spec.tokens.size(), Role::unused);
  std::vector<bool> used(spec.tokens.size());
  for (const auto& [text, id] : vocab.object()) {
    const auto i = static_cast<std::size_t>(id.integer());
    if (used[i]) fail(spec.where, ": tokens '", spec.tokens[i], "' and '", text, "' have the same id ", i);
    used[i] = true;
    spec.tokens[i] = text;
    spec.roles[i] = Role::normal;
  }
}

void mark_bytes(TokenizerSpec& spec) {
  if (!spec.byte_fallback) return;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (byte_of_token(spec.tokens[i]) >= 0) spec.roles[i] = Role::byte;
  }
}

void read_unknown(const Json& model, TokenizerSpec& spec) {
  const std::string unknown = text_or(model, "unk_token", "", spec.where);
  if (unknown.empty()) return;
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), unknown);
  if (found == spec.tokens.end()) fail(spec.where, ": unk_token '", unknown, "' is not in the vocabulary");
  spec.unk = static_cast<std::int32_t>(found - spec.tokens.begin());
  spec.roles[static_cast<std::size_t>(spec.unk)] = Role::unknown;
}

void read_bpe(const Json& model, TokenizerSpec& spec) {
  const std::string& where = spec.where;
  refuse_others(model, where, "model",
                {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                 "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const Json* v = model.find("continuing_subword_prefix");
      v && !v->is_null() && !(v->is_string() && v->string().empty()))
    fail(at(where, *v), "a BPE model with continuing_subword_prefix is not supported");
  spec.suffix = text_or(model, "end_of_word_suffix", "", where);
  if (const Json* v = model.find("dropout"); v && !v->is_null() && !(v->is_number() && v->number() == 0)) {
    fail(at(where, *v), "BPE dropout makes ids random; set it to null");
  }
  spec.fuse_unknown = flag_or(model, "fuse_unk", false, where);
  spec.byte_fallback = flag_or(model, "byte_fallback", false, where);
  spec.ignore_merges = flag_or(model, "ignore_merges", false, where);
  read_vocabulary(need(model, "vocab", where), spec);
  mark_bytes(spec);
  read_unknown(model, spec);
  const Json& merges = need(model, "merges", where);
  if (!merges.is_array()) fail(at(where, merges), "model.merges is ", merges.type_name(), ", not an array");
  spec.merges.reserve(merges.array().size());
  for (const Json& m : merges.array()) {
    if (m.is_array() && m.array().size() == 2 && m.array()[0].is_string() && m.array()[1].is_string()) {
      spec.merges.emplace_back(m.array()[0].string(), m.array()[1].string());
      continue;
    }
    const std::size_t space = m.is_string() ? m.string().find(' ') : std::string::npos;
    if (space == std::string::npos || space == 0 || space + 1 == m.string().size()) {
      fail(at(where, m), "a merge is neither two texts nor \"left right\"");
    }
    spec.merges.emplace_back(m.string().substr(0, space), m.string().substr(space + 1));
  }
}

void read_wordpiece(const Json& model, TokenizerSpec& spec) {
  refuse_others(model, spec.where, "model",
                {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  spec.kind = Kind::wordpiece;
  read_vocabulary(need(model, "vocab", spec.where), spec);
  spec.continuing = text_or(model, "continuing_subword_prefix", "##", spec.where);
  spec.longest_word =
      static_cast<int>(integer_or(model, "max_input_chars_per_word", 100, 0, 100000, spec.where));
  read_unknown(model, spec);
}

void read_unigram(const Json& model, TokenizerSpec& spec) {
  const std::string& where = spec.where;
  refuse_others(model, where, "model", {"type", "unk_id", "vocab", "byte_fallback"});
  spec.kind = Kind::unigram;
  spec.byte_fallback = flag_or(model, "byte_fallback", false, where);
  spec.fuse_unknown = true;
  const Json& vocab = need(model, "vocab", where);
  if (!vocab.is_array())
    fail(at(where, vocab), "model.vocab is ", vocab.type_name(), ", not an array of [text, score]");
  std::unordered_set<std::string_view> seen;
  for (const Json& entry : vocab.array()) {
    if (!entry.is_array() || entry.array().size() != 2 || !entry.array()[0].is_string() ||
        !entry.array()[1].is_number()) {
      fail(at(where, entry), "an entry of a Unigram vocabulary is not [text, score]");
    }
    if (!seen.insert(entry.array()[0].string()).second)
      fail(at(where, entry), "token '", entry.array()[0].string(), "' stands there twice");
    spec.tokens.push_back(entry.array()[0].string());
    spec.exact_scores.push_back(entry.array()[1].number());
    spec.scores.push_back(static_cast<float>(entry.array()[1].number()));
  }
  spec.roles.assign(spec.tokens.size(), Role::normal);
  mark_bytes(spec);
  const Json* unk = model.find("unk_id");
  if (!unk || unk->is_null()) fail(where, ": a Unigram model without unk_id is not supported");
  spec.unk = static_cast<std::int32_t>(
      integer_or(model, "unk_id", -1, 0, static_cast<std::int64_t>(spec.tokens.size()) - 1, where));
  spec.roles[static_cast<std::size_t>(spec.unk)] = Role::unknown;
}

void read_added(const Json& list, TokenizerSpec& spec) {
  if (list.is_null()) return;
  if (!list.is_array()) fail(at(spec.where, list), "added_tokens is ", list.type_name(), ", not an array");
  std::int64_t largest = static_cast<std::int64_t>(spec.tokens.size()) - 1;
  for (const Json& t : list.array()) {
    const Json& content = need(t, "content", spec.where);
    if (!content.is_string())
      fail(at(spec.where, content), "the content of an added token is ", content.type_name());
    largest = std::max(largest, token_id(need(t, "id", spec.where), spec.where, content.string()));
  }
  check_ids(spec.where, largest, spec.tokens.size() + list.array().size());
  for (const Json& t : list.array()) {
    add_token(spec, {.id = static_cast<std::int32_t>(t.find("id")->integer()),
                     .text = t.find("content")->string(),
                     .special = flag_or(t, "special", false, spec.where),
                     .left_strip = flag_or(t, "lstrip", false, spec.where),
                     .right_strip = flag_or(t, "rstrip", false, spec.where),
                     .single_word = flag_or(t, "single_word", false, spec.where),
                     .normalized = flag_or(t, "normalized", false, spec.where)});
  }
}

}  // namespace

void add_token(TokenizerSpec& spec, AddedToken token) {
  if (token.text.empty()) return;
  const auto i = static_cast<std::size_t>(token.id);
  if (i >= spec.tokens.size()) {
    spec.tokens.resize(i + 1);
    spec.roles.resize(i + 1, Role::unused);
    if (!spec.scores.empty()) spec.scores.resize(i + 1, 0.0f);
    if (!spec.exact_scores.empty()) spec.exact_scores.resize(i + 1, 0.0);
  }
  if (!spec.tokens[i].empty() && spec.tokens[i] != token.text) {
    fail(spec.where, ": id ", i, " is '", spec.tokens[i], "' in the vocabulary and '", token.text,
         "' among the added tokens");
  }
  spec.tokens[i] = token.text;
  if (spec.roles[i] != Role::unknown && spec.roles[i] != Role::byte)
    spec.roles[i] = token.special ? Role::control : Role::user;
  spec.added.push_back(std::move(token));
}

std::int32_t find_token(const TokenizerSpec& spec, std::string_view text) {
  if (text.empty()) return -1;
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  return found == spec.tokens.end() ? -1 : static_cast<std::int32_t>(found - spec.tokens.begin());
}

void read_config(const Json& config, TokenizerSpec& spec) {
  if (config.is_null()) return;
  if (!config.is_object())
    fail(spec.where, ": tokenizer_config.json is ", config.type_name(), ", not an object");
  const auto named = [&](const char* key) -> std::int32_t {
    const Json* v = config.find(key);
    if (v && v->is_object()) v = v->find("content");
    return v && v->is_string() ? find_token(spec, v->string()) : -1;
  };
  const auto set = [&](std::int32_t& id, const char* key) {
    if (const std::int32_t found = named(key); found >= 0) id = found;
  };
  set(spec.bos, "bos_token");
  set(spec.eos, "eos_token");
  set(spec.pad, "pad_token");
  set(spec.sep, "sep_token");
  set(spec.cls, "cls_token");
  set(spec.mask, "mask_token");
  if (spec.unk < 0 && spec.kind != Kind::bpe) set(spec.unk, "unk_token");
  // For reading only: byte-level models drop what they cannot spell.
  if (spec.kind == Kind::bpe && spec.unk < 0) {
    spec.unknown_drops = true;
    set(spec.unk, "unk_token");
  }
}

std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view tokenizer_json,
                                                     std::string_view config_json,
                                                     std::string_view where_view) {
  TokenizerSpec spec;
  spec.where = std::string(where_view);
  spec.name = "tokenizer.json";
  const Json root = parse_json(tokenizer_json, where_view);
  const Json config = config_json.empty() ? Json() : parse_json(config_json, "tokenizer_config.json");
  if (!root.is_object()) fail(where_view, ": a tokenizer.json is an object, this is ", root.type_name());
  refuse_others(root, spec.where, "tokenizer.json",
                {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                 "post_processor", "decoder", "model"});
  const Json& model = need(root, "model", spec.where);
  if (!model.is_object()) fail(at(spec.where, model), "model is ", model.type_name(), ", not an object");
  std::string type = text_or(model, "type", "", spec.where);
  if (type.empty()) {  // files of before 2020 leave it out
    type = model.find("merges")                     ? "BPE"
           : model.find("unk_id")                   ? "Unigram"
           : model.find("max_input_chars_per_word") ? "WordPiece"
                                                    : "";
  }
  if (type == "BPE") read_bpe(model, spec);
  else if (type == "WordPiece") read_wordpiece(model, spec);
  else if (type == "Unigram") read_unigram(model, spec);
  else
    fail(at(spec.where, model), "model type '", type, "' is not known; known are BPE, Unigram and WordPiece");

  const Json none;
  const auto part = [&](const char* key) -> const Json& {
    const Json* v = root.find(key);
    return v ? *v : none;
  };
  read_added(part("added_tokens"), spec);
  read_normalizer(part("normalizer"), spec);
  // SigLIP's class does this before its SentencePiece model, which tokenizer.json does not say; ours does.
  const bool siglip = config.is_object() &&
                      text_or(config, "tokenizer_class", "", "tokenizer_config.json") == "SiglipTokenizer";
  if (siglip && std::none_of(spec.normal.begin(), spec.normal.end(),
                             [](const NormalStep& s) { return s.kind == NormalStep::Kind::punctuation; })) {
    const std::vector<NormalStep> first = canonical_text();
    spec.normal.insert(spec.normal.begin(), first.begin(), first.end());
  }
  read_pre_tokenizer(part("pre_tokenizer"), spec);
  if (spec.kind == Kind::bpe && !spec.byte_level && spec.unk < 0 && !spec.byte_fallback)
    spec.unknown_drops = true;
  read_config(config, spec);
  read_post_processor(part("post_processor"), spec);
  read_decoder(part("decoder"), spec);
  spec.characters = spec.kind == Kind::bpe && !spec.byte_level && !spec.byte_fallback &&
                    spec.merges.empty() && spec.splits.empty() && part("decoder").is_object() &&
                    text_or(part("decoder"), "type", "", spec.where) == "Fuse";
  if (spec.before.empty() && config.is_object() &&
      flag_or(config, "add_bos_token", false, "tokenizer_config.json") && spec.bos >= 0)
    spec.before = {spec.bos};
  if (spec.after.empty() && config.is_object() &&
      flag_or(config, "add_eos_token", false, "tokenizer_config.json") && spec.eos >= 0)
    spec.after = {spec.eos};
  if (spec.kind == Kind::wordpiece) {
    if (spec.cls < 0 && spec.before.size() == 1) spec.cls = spec.before[0];
    if (spec.sep < 0 && spec.after.size() == 1) spec.sep = spec.after[0];
  } else {
    if (spec.bos < 0 && spec.before.size() == 1) spec.bos = spec.before[0];
    if (spec.eos < 0 && spec.after.size() == 1) spec.eos = spec.after[0];
  }
  spec.source_json = std::string(tokenizer_json);
  spec.source_config = std::string(config_json);
  return make_tokenizer(std::move(spec));
}

}  // namespace rapt
