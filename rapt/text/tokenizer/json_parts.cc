// SPDX-License-Identifier: Apache-2.0
// Each type of part becomes fields of the spec; unknown types and patterns are errors, never guesses.
#include "rapt/text/tokenizer/json_parts.h"

#include <algorithm>
#include <array>

#include "rapt/base/text.h"
#include "rapt/text/tokenizer/model.h"
#include "rapt/text/tokenizer/patterns.h"

namespace rapt {
namespace {

using Behavior = SplitStep::Behavior;

std::string type_of(const Json& value, const std::string& where, const char* what) {
  if (!value.is_object()) fail(at(where, value), "a ", what, " is ", value.type_name(), ", not an object");
  const Json& type = need(value, "type", where);
  if (!type.is_string()) fail(at(where, type), "the type of a ", what, " is ", type.type_name());
  return type.string();
}

[[noreturn]] void unknown(const Json& value, const std::string& where, const char* what,
                          const std::string& type, std::initializer_list<const char*> known) {
  std::vector<std::string> names(known.begin(), known.end());
  fail(at(where, value), what, " '", type, "' is not known; known: ", join(names));
}

std::string base64(const Json& value, const std::string& where) {
  if (value.is_null()) return {};
  if (!value.is_string())
    fail(at(where, value), "a precompiled charsmap is ", value.type_name(), ", not base64 text");
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : value.string()) {
    if (c == '=') break;
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos)
      fail(at(where, value), "a precompiled charsmap is not base64: it holds '", c, "'");
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held >= 8) {
      held -= 8;
      out += static_cast<char>(bits >> held & 255);
    }
  }
  return out;
}

// { "String": "x" } or { "Regex": "x" }
std::string pattern_text(const Json& value, const std::string& where, bool& regex) {
  const Json* text = value.find("String");
  regex = !text;
  if (!text) text = value.find("Regex");
  if (!text || !text->is_string())
    fail(at(where, value), "a pattern is neither {\"String\": …} nor {\"Regex\": …}");
  return text->string();
}

Behavior behavior(const Json& value, const char* key, Behavior otherwise, const std::string& where) {
  const std::string name = text_or(value, key, "", where);
  if (name.empty()) return otherwise;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "MergedWithPrevious") return Behavior::with_previous;
  if (name == "MergedWithNext") return Behavior::with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  fail(at(where, value), "behavior '", name,
       "' is not known; known: Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

SplitStep metaspace(const Json& value, const std::string& where) {
  refuse_others(value, where, "Metaspace",
                {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  SplitStep step{.kind = SplitStep::Kind::metaspace,
                 .text = text_or(value, "replacement", kMetaSpace, where)};
  if (step.text.empty() || step.text == " ")
    fail(at(where, value), "Metaspace needs a replacement that is not a space");
  const std::string scheme = text_or(
      value, "prepend_scheme", flag_or(value, "add_prefix_space", true, where) ? "always" : "never", where);
  if (scheme == "always") step.prefix = SplitStep::Prefix::always;
  else if (scheme == "first") step.prefix = SplitStep::Prefix::first;
  else if (scheme == "never") step.prefix = SplitStep::Prefix::never;
  else fail(at(where, value), "prepend_scheme '", scheme, "' is not known; known: always, first, never");
  step.cut = flag_or(value, "split", true, where);
  return step;
}

std::vector<std::int32_t> template_ids(const Json& special_tokens, const Json& item, const std::string& where,
                                       const TokenizerSpec& spec) {
  const std::string name = text_or(item, "id", "", where);
  std::vector<std::int32_t> out;
  const Json* entry = special_tokens.is_object() ? special_tokens.find(name) : nullptr;
  const Json* ids = entry ? entry->find("ids") : nullptr;
  if (ids && ids->is_array()) {
    for (const Json& id : ids->array()) {
      if (!id.is_integer() || id.integer() < 0 ||
          id.integer() >= static_cast<std::int64_t>(spec.tokens.size())) {
        fail(at(where, id), "the template's token '", name, "' has an id outside the vocabulary of ",
             spec.tokens.size());
      }
      out.push_back(static_cast<std::int32_t>(id.integer()));
    }
  }
  if (out.empty()) fail(at(where, item), "the template's token '", name, "' is not among its special_tokens");
  return out;
}

// ["[SEP]", 102]
std::int32_t pair_id(const Json& value, const char* key, const std::string& where,
                     const TokenizerSpec& spec) {
  const Json& pair = need(value, key, where);
  if (!pair.is_array() || pair.array().size() != 2 || !pair.array()[1].is_integer())
    fail(at(where, pair), key, " is not [text, id]");
  const std::int64_t id = pair.array()[1].integer();
  if (id < 0 || id >= static_cast<std::int64_t>(spec.tokens.size()))
    fail(at(where, pair), key, " has id ", id, ", outside the vocabulary of ", spec.tokens.size());
  return static_cast<std::int32_t>(id);
}

}  // namespace

std::string at(const std::string& where, const Json& value) {
  return value.line > 0 ? concat(where, ":", value.line, ":", value.column, ": ") : where + ": ";
}

const Json& need(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object())
    fail(at(where, object), "expected an object with '", key, "', got ", object.type_name());
  const Json* v = object.find(key);
  if (!v) fail(at(where, object), "'", key, "' is missing");
  return *v;
}

bool flag_or(const Json& object, const char* key, bool otherwise, const std::string& where) {
  const Json* v = object.find(key);
  if (!v || v->is_null()) return otherwise;
  if (!v->is_bool()) fail(at(where, *v), "'", key, "' is ", v->type_name(), ", not true or false");
  return v->boolean();
}

std::string text_or(const Json& object, const char* key, std::string_view otherwise,
                    const std::string& where) {
  const Json* v = object.find(key);
  if (!v || v->is_null()) return std::string(otherwise);
  if (!v->is_string()) fail(at(where, *v), "'", key, "' is ", v->type_name(), ", not text");
  return v->string();
}

std::int64_t integer_or(const Json& object, const char* key, std::int64_t otherwise, std::int64_t least,
                        std::int64_t most, const std::string& where) {
  const Json* v = object.find(key);
  if (!v || v->is_null()) return otherwise;
  if (!v->is_integer() || v->integer() < least || v->integer() > most)
    fail(at(where, *v), "'", key, "' must be a whole number from ", least, " to ", most);
  return v->integer();
}

void refuse_others(const Json& object, const std::string& where, std::string_view what,
                   std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.object()) {
    if (std::find(known.begin(), known.end(), std::string_view(key)) != known.end()) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    fail(at(where, value), what, " has '", key, "', which is not known here and may change ids; ",
         name_hint(key, names));
  }
}

void read_normalizer(const Json& value, TokenizerSpec& spec) {
  if (value.is_null()) return;
  const std::string& where = spec.where;
  const std::string& type = type_of(value, where, "normalizer");
  using Step = NormalStep::Kind;
  const auto add = [&](NormalStep step) { spec.normal.push_back(std::move(step)); };
  if (type == "Sequence") {
    const Json& list = need(value, "normalizers", where);
    if (!list.is_array()) fail(at(where, list), "normalizers is ", list.type_name(), ", not an array");
    for (const Json& part : list.array()) read_normalizer(part, spec);
  } else if (type == "NFC") add({.kind = Step::nfc});
  else if (type == "NFD") add({.kind = Step::nfd});
  else if (type == "NFKC") add({.kind = Step::nfkc});
  else if (type == "NFKD") add({.kind = Step::nfkd});
  else if (type == "Lowercase") add({.kind = Step::lower});
  else if (type == "StripAccents") add({.kind = Step::strip_accents});
  else if (type == "Strip")
    add({.kind = Step::strip,
         .left = flag_or(value, "strip_left", true, where),
         .right = flag_or(value, "strip_right", true, where)});
  else if (type == "Prepend") add({.kind = Step::prepend, .to = text_or(value, "prepend", "", where)});
  else if (type == "Precompiled")
    add({.kind = Step::charsmap, .from = base64(need(value, "precompiled_charsmap", where), where)});
  else if (type == "BertNormalizer") {
    refuse_others(value, where, "BertNormalizer",
                  {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    const bool lower = flag_or(value, "lowercase", true, where);
    add({.kind = Step::bert,
         .clean = flag_or(value, "clean_text", true, where),
         .chinese = flag_or(value, "handle_chinese_chars", true, where),
         .accents = flag_or(value, "strip_accents", lower, where),
         .lowercase = lower});
  } else if (type == "Replace") {
    bool regex = false;
    const std::string from = pattern_text(need(value, "pattern", where), where, regex);
    const std::string to = text_or(value, "content", "", where);
    if (!regex) add({.kind = Step::replace, .from = from, .to = to});
    else if (from == " {2,}") add({.kind = Step::squeeze, .to = to});
    else if (from == "\\s+") add({.kind = Step::spaces, .to = to});
    else if (from == kPunctuationRegex && to.empty()) add({.kind = Step::punctuation});
    else
      fail(at(where, value), "a Replace normalizer with the regular expression '", from,
           "' is not known; known: ' {2,}', '\\s+'");
  } else {
    unknown(value, where, "normalizer", type,
            {"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend",
             "Replace", "Precompiled", "BertNormalizer"});
  }
}

void read_pre_tokenizer(const Json& value, TokenizerSpec& spec) {
  if (value.is_null()) return;
  const std::string& where = spec.where;
  const std::string& type = type_of(value, where, "pre_tokenizer");
  const auto add = [&](SplitStep step) { spec.splits.push_back(std::move(step)); };
  if (type == "Sequence") {
    const Json& list = need(value, "pretokenizers", where);
    if (!list.is_array()) fail(at(where, list), "pretokenizers is ", list.type_name(), ", not an array");
    for (const Json& part : list.array()) read_pre_tokenizer(part, spec);
  } else if (type == "ByteLevel") {
    refuse_others(value, where, "ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (spec.byte_level) fail(at(where, value), "ByteLevel stands there twice");
    spec.byte_level = true;
    if (flag_or(value, "add_prefix_space", true, where)) add({.kind = SplitStep::Kind::prefix_space});
    if (flag_or(value, "use_regex", true, where)) add({.pattern = Pattern::gpt2});
  } else if (type == "Metaspace") {
    add(metaspace(value, where));
  } else if (type == "Digits") {
    add({.pattern = Pattern::number,
         .behavior =
             flag_or(value, "individual_digits", false, where) ? Behavior::isolated : Behavior::contiguous});
  } else if (type == "Split") {
    refuse_others(value, where, "Split", {"type", "pattern", "behavior", "invert"});
    bool regex = false;
    const std::string text = pattern_text(need(value, "pattern", where), where, regex);
    SplitStep step{.pattern = Pattern::literal,
                   .behavior = behavior(value, "behavior", Behavior::isolated, where),
                   .invert = flag_or(value, "invert", false, where)};
    if (regex) {
      const auto known = pattern_of_regex(text);
      if (!known)
        fail(at(where, value), "the pattern '", text,
             "' of a Split is not known (docs/tokenizers.md lists those that are), "
             "and a guess would give wrong ids");
      step.pattern = *known;
      // Patterns that match everything: their matches kept is the same as every match a piece.
      if (step.behavior == Behavior::removed && step.invert && step.pattern <= Pattern::deepseek3)
        step.behavior = Behavior::isolated, step.invert = false;
    } else {
      if (text.empty()) fail(at(where, value), "a Split looks for an empty text");
      step.text = text;
    }
    add(step);
  } else if (type == "BertPreTokenizer") {
    add({.pattern = Pattern::space, .behavior = Behavior::removed});
    add({.pattern = Pattern::punctuation});
  } else if (type == "Whitespace") {
    add({.pattern = Pattern::word, .behavior = Behavior::removed, .invert = true});
  } else if (type == "WhitespaceSplit") {
    add({.pattern = Pattern::space, .behavior = Behavior::removed});
  } else if (type == "Punctuation") {
    add({.pattern = Pattern::punctuation,
         .behavior = behavior(value, "behavior", Behavior::isolated, where)});
  } else {
    unknown(value, where, "pre_tokenizer", type,
            {"Sequence", "ByteLevel", "Metaspace", "Digits", "Split", "BertPreTokenizer", "Whitespace",
             "WhitespaceSplit", "Punctuation"});
  }
}

void read_post_processor(const Json& value, TokenizerSpec& spec) {
  if (value.is_null()) return;
  const std::string& where = spec.where;
  const std::string& type = type_of(value, where, "post_processor");
  if (type == "Sequence") {
    const Json& list = need(value, "processors", where);
    if (!list.is_array()) fail(at(where, list), "processors is ", list.type_name(), ", not an array");
    for (const Json& part : list.array()) read_post_processor(part, spec);
  } else if (type == "ByteLevel") {
    return;  // offsets only
  } else if (type == "TemplateProcessing") {
    const Json& single = need(value, "single", where);
    if (!single.is_array())
      fail(at(where, single), "the template of a single text is ", single.type_name(), ", not an array");
    const Json none;
    const Json* special = value.find("special_tokens");
    constexpr std::size_t kMostParts = 1024;
    if (single.array().size() > kMostParts)
      fail(at(where, single), "the template of a single text has ", single.array().size(),
           " parts; more than ", kMostParts, " are refused");
    bool text_seen = false;
    for (const Json& item : single.array()) {
      if (item.find("Sequence")) {
        if (text_seen) fail(at(where, item), "the template puts the text there twice");
        text_seen = true;
        continue;
      }
      const Json* token = item.find("SpecialToken");
      if (!token) fail(at(where, item), "a part of the template is neither Sequence nor SpecialToken");
      const auto ids = template_ids(special ? *special : none, *token, where, spec);
      auto& side = text_seen ? spec.after : spec.before;
      side.insert(side.end(), ids.begin(), ids.end());
    }
    if (!text_seen) fail(at(where, single), "the template leaves the text out");
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    spec.before = {pair_id(value, "cls", where, spec)};
    spec.after = {pair_id(value, "sep", where, spec)};
  } else {
    unknown(value, where, "post_processor", type,
            {"Sequence", "ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing"});
  }
}

void read_decoder(const Json& value, TokenizerSpec& spec) {
  if (value.is_null()) return;
  const std::string& where = spec.where;
  const std::string& type = type_of(value, where, "decoder");
  if (type == "Sequence") {
    const Json& list = need(value, "decoders", where);
    if (!list.is_array()) fail(at(where, list), "decoders is ", list.type_name(), ", not an array");
    for (const Json& part : list.array()) read_decoder(part, spec);
  } else if (type == "Strip") {  // the dummy space of the first word
    if (text_or(value, "content", " ", where) == " " && integer_or(value, "start", 0, 0, 1, where) == 1)
      spec.strip_prefix = true;
  } else if (type == "Metaspace") {
    spec.strip_prefix = metaspace(value, where).prefix != SplitStep::Prefix::never;
  } else if (type == "WordPiece") {
    spec.cleanup = flag_or(value, "cleanup", true, where);
  } else if (type == "Replace" || type == "ByteFallback" || type == "Fuse" || type == "ByteLevel") {
    return;  // what decode() does for such vocabularies anyway
  } else {
    unknown(value, where, "decoder", type,
            {"Sequence", "ByteLevel", "Metaspace", "WordPiece", "Replace", "ByteFallback", "Fuse", "Strip"});
  }
}

std::vector<NormalStep> canonical_text(bool lower) {
  using Step = NormalStep::Kind;
  std::vector<NormalStep> out = {{.kind = Step::replace, .from = std::string(kMetaSpace), .to = " "},
                                 {.kind = Step::prepend, .to = std::string(kMetaSpace)}};
  if (lower) out.push_back({.kind = Step::lower});
  out.push_back({.kind = Step::punctuation});
  out.push_back({.kind = Step::spaces, .to = " "});
  out.push_back({.kind = Step::strip, .left = true, .right = true});
  return out;
}

}  // namespace rapt
