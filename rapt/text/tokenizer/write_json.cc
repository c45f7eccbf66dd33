// SPDX-License-Identifier: Apache-2.0
// A spec as tokenizer.json, a function for each part; SentencePiece's scores become a list of merges.
#include <algorithm>
#include <tuple>

#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/json_parts.h"
#include "rapt/text/tokenizer/model.h"
#include "rapt/text/tokenizer/patterns.h"
#include "rapt/text/tokenizer/write.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;
using Kind = Tokenizer::Kind;
using Object = Json::Object;
using Array = Json::Array;

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

// A token as Hugging Face spells it: ##ing and word instead of ing and ▁word.
std::string spelling(const TokenizerSpec& spec, std::size_t i) {
  const std::string& t = spec.tokens[i];
  if (t.empty()) return concat("[PAD", i, "]");
  if (spec.kind == Kind::wordpiece && spec.phantom_space &&
      (spec.roles[i] == Role::normal || spec.roles[i] == Role::unused)) {
    if (t.starts_with(kMetaSpace)) return t.substr(kMetaSpace.size());
    if (!(t.starts_with('[') && t.ends_with(']'))) return "##" + t;
  }
  return t;
}

Json vocabulary(const TokenizerSpec& spec) {
  Object out;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string t = spelling(spec, i);
    if (!valid_utf8(t)) fail(spec.where, ": token ", i, " is not valid UTF-8, which JSON cannot hold");
    out.push_back({t, static_cast<std::int64_t>(i)});
  }
  return out;
}

// SentencePiece's scores as merges, the way Hugging Face converts them: every two tokens whose text together
// is a token, best score first.
Json merges_of_scores(const TokenizerSpec& spec) {
  TokenIds ids;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (!spec.tokens[i].empty()) ids.emplace(spec.tokens[i], static_cast<std::int32_t>(i));
  }
  struct Merge {
    float score;
    std::size_t token;
    std::int32_t left, right;
    std::size_t cut;
  };
  std::vector<Merge> all;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.roles[i] != Role::normal) continue;
    const std::string_view t = spec.tokens[i];
    for (std::size_t cut = 1; cut < t.size(); ++cut) {
      if ((static_cast<std::uint8_t>(t[cut]) & 0xC0) == 0x80) continue;
      const auto left = ids.find(t.substr(0, cut)), right = ids.find(t.substr(cut));
      if (left != ids.end() && right != ids.end())
        all.push_back({spec.scores[i], i, left->second, right->second, cut});
    }
  }
  std::sort(all.begin(), all.end(), [](const Merge& a, const Merge& b) {
    return a.score != b.score ? a.score > b.score
                              : std::tie(a.token, a.left, a.right) < std::tie(b.token, b.left, b.right);
  });
  Array out;
  for (const Merge& m : all)
    out.push_back(
        Array{Json(spec.tokens[m.token].substr(0, m.cut)), Json(spec.tokens[m.token].substr(m.cut))});
  return out;
}

Json model(const TokenizerSpec& spec) {
  switch (spec.kind) {
    case Kind::bpe:
    case Kind::spm: {
      Json merges;
      if (spec.kind == Kind::bpe) {
        Array list;
        for (const auto& [a, b] : spec.merges) list.push_back(Array{Json(a), Json(b)});
        merges = std::move(list);
      } else {
        merges = merges_of_scores(spec);
      }
      const bool unknown = spec.unk >= 0 && !spec.unknown_drops;
      return Object{{"type", "BPE"},
                    {"dropout", Json()},
                    {"unk_token", unknown ? Json(spec.tokens[static_cast<std::size_t>(spec.unk)]) : Json()},
                    {"continuing_subword_prefix", Json()},
                    {"end_of_word_suffix", spec.suffix.empty() ? Json() : Json(spec.suffix)},
                    {"fuse_unk", spec.fuse_unknown || spec.kind == Kind::spm},
                    {"byte_fallback", spec.byte_fallback},
                    {"ignore_merges", spec.ignore_merges},
                    {"vocab", vocabulary(spec)},
                    {"merges", std::move(merges)}};
    }
    case Kind::unigram: {
      Array list;
      for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
        const double score =
            spec.exact_scores.empty() ? static_cast<double>(spec.scores[i]) : spec.exact_scores[i];
        list.push_back(Array{Json(spelling(spec, i)), Json(score)});
      }
      return Object{{"type", "Unigram"},
                    {"unk_id", static_cast<std::int64_t>(spec.unk)},
                    {"vocab", std::move(list)},
                    {"byte_fallback", spec.byte_fallback}};
    }
    case Kind::wordpiece:
      return Object{{"type", "WordPiece"},
                    {"unk_token", spec.tokens[static_cast<std::size_t>(spec.unk)]},
                    {"continuing_subword_prefix", spec.continuing},
                    {"max_input_chars_per_word", static_cast<std::int64_t>(spec.longest_word)},
                    {"vocab", vocabulary(spec)}};
  }
  return {};
}

Json text_pattern(const char* kind, const std::string& text) { return Object{{kind, text}}; }
Json one_or_sequence(Array parts, const char* list) {
  if (parts.empty()) return {};
  if (parts.size() == 1) return std::move(parts[0]);
  return Object{{"type", "Sequence"}, {list, std::move(parts)}};
}

Json normalizer(const TokenizerSpec& spec) {
  Array out;
  using K = NormalStep::Kind;
  for (const NormalStep& s : spec.normal) {
    switch (s.kind) {
      case K::prepend: out.push_back(Object{{"type", "Prepend"}, {"prepend", s.to}}); break;
      case K::replace:
        out.push_back(
            Object{{"type", "Replace"}, {"pattern", text_pattern("String", s.from)}, {"content", s.to}});
        break;
      case K::squeeze:
        out.push_back(
            Object{{"type", "Replace"}, {"pattern", text_pattern("Regex", " {2,}")}, {"content", s.to}});
        break;
      case K::spaces:
        out.push_back(
            Object{{"type", "Replace"}, {"pattern", text_pattern("Regex", "\\s+")}, {"content", s.to}});
        break;
      case K::punctuation:
        out.push_back(Object{{"type", "Replace"},
                             {"pattern", text_pattern("Regex", std::string(kPunctuationRegex))},
                             {"content", ""}});
        break;
      case K::lower: out.push_back(Object{{"type", "Lowercase"}}); break;
      case K::nfc: out.push_back(Object{{"type", "NFC"}}); break;
      case K::nfd: out.push_back(Object{{"type", "NFD"}}); break;
      case K::nfkc: out.push_back(Object{{"type", "NFKC"}}); break;
      case K::nfkd: out.push_back(Object{{"type", "NFKD"}}); break;
      case K::strip_accents: out.push_back(Object{{"type", "StripAccents"}}); break;
      case K::strip:
        out.push_back(Object{{"type", "Strip"}, {"strip_left", s.left}, {"strip_right", s.right}});
        break;
      case K::bert:
        out.push_back(Object{{"type", "BertNormalizer"},
                             {"clean_text", s.clean},
                             {"handle_chinese_chars", s.chinese},
                             {"strip_accents", s.accents},
                             {"lowercase", s.lowercase}});
        break;
      case K::charsmap:
        out.push_back(Object{{"type", "Precompiled"}, {"precompiled_charsmap", base64(s.from)}});
        break;
      case K::sentencepiece:
        if (s.suffix || !s.escape)
          fail(spec.where, ": spaces as suffixes, or not escaped, cannot be said in tokenizer.json");
        if (!s.from.empty())
          out.push_back(Object{{"type", "Precompiled"}, {"precompiled_charsmap", base64(s.from)}});
        if (s.remove_extra) {
          out.push_back(Object{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
          out.push_back(
              Object{{"type", "Replace"}, {"pattern", text_pattern("Regex", " {2,}")}, {"content", " "}});
        }
        if (spec.kind == Kind::unigram) break;  // Metaspace does the rest
        if (s.dummy_prefix) out.push_back(Object{{"type", "Prepend"}, {"prepend", kMetaSpace}});
        out.push_back(
            Object{{"type", "Replace"}, {"pattern", text_pattern("String", " ")}, {"content", kMetaSpace}});
        break;
    }
  }
  return one_or_sequence(std::move(out), "normalizers");
}

const char* behavior_name(SplitStep::Behavior b) {
  switch (b) {
    case SplitStep::Behavior::isolated: return "Isolated";
    case SplitStep::Behavior::removed: return "Removed";
    case SplitStep::Behavior::with_previous: return "MergedWithPrevious";
    case SplitStep::Behavior::with_next: return "MergedWithNext";
    case SplitStep::Behavior::contiguous: return "Contiguous";
  }
  return "Isolated";
}

Json metaspace(bool prefix) {
  return Object{{"type", "Metaspace"},
                {"replacement", kMetaSpace},
                {"prepend_scheme", prefix ? "always" : "never"},
                {"split", true}};
}

Json pre_tokenizer(const TokenizerSpec& spec) {
  Array out;
  bool prefix_space = false, regex = false;
  for (std::size_t i = 0; i < spec.splits.size(); ++i) {
    const SplitStep& s = spec.splits[i];
    if (s.kind == SplitStep::Kind::prefix_space) {
      prefix_space = true;
    } else if (s.kind == SplitStep::Kind::metaspace) {
      static constexpr const char* kSchemes[] = {"always", "first", "never"};
      out.push_back(Object{{"type", "Metaspace"},
                           {"replacement", s.text},
                           {"prepend_scheme", kSchemes[static_cast<int>(s.prefix)]},
                           {"split", s.cut}});
    } else if (s.pattern == Pattern::gpt2 && spec.byte_level && i + 1 == spec.splits.size()) {
      regex = true;
    } else if (s.pattern == Pattern::number && !s.invert) {
      out.push_back(
          Object{{"type", "Digits"}, {"individual_digits", s.behavior == SplitStep::Behavior::isolated}});
    } else if (s.pattern == Pattern::punctuation) {
      out.push_back(Object{{"type", "Punctuation"}, {"behavior", behavior_name(s.behavior)}});
    } else {
      const bool literal = s.pattern == Pattern::literal;
      out.push_back(Object{{"type", "Split"},
                           {"pattern", text_pattern(literal ? "String" : "Regex",
                                                    literal ? s.text : regex_of_pattern(s.pattern))},
                           {"behavior", behavior_name(s.behavior)},
                           {"invert", s.invert}});
    }
  }
  if (spec.kind == Kind::wordpiece) return Object{{"type", "BertPreTokenizer"}};
  if (spec.byte_level)
    out.push_back(Object{{"type", "ByteLevel"},
                         {"add_prefix_space", prefix_space},
                         {"trim_offsets", true},
                         {"use_regex", regex}});
  if (spec.kind == Kind::unigram && spec.splits.empty()) out.push_back(metaspace(spec.strip_prefix));
  return one_or_sequence(std::move(out), "pretokenizers");
}

Json decoder(const TokenizerSpec& spec) {
  if (spec.byte_level)
    return Object{
        {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  if (spec.kind == Kind::wordpiece)
    return Object{{"type", "WordPiece"}, {"prefix", spec.continuing}, {"cleanup", spec.cleanup}};
  Array parts{Object{{"type", "Replace"},
                     {"pattern", text_pattern("String", std::string(kMetaSpace))},
                     {"content", " "}},
              Object{{"type", "ByteFallback"}}, Object{{"type", "Fuse"}}};
  if (spec.strip_prefix)
    parts.push_back(Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return Object{{"type", "Sequence"}, {"decoders", std::move(parts)}};
}

Json post_processor(const TokenizerSpec& spec) {
  if (spec.before.empty() && spec.after.empty()) return {};
  Array single, pair;
  Object special;
  const auto token = [&](std::int32_t id, int type) {
    const std::string& text = spec.tokens[static_cast<std::size_t>(id)];
    if (std::none_of(special.begin(), special.end(), [&](const auto& m) { return m.key == text; })) {
      special.push_back({text, Object{{"id", text},
                                      {"ids", Array{Json(static_cast<std::int64_t>(id))}},
                                      {"tokens", Array{Json(text)}}}});
    }
    return Json(Object{{"SpecialToken", Object{{"id", text}, {"type_id", type}}}});
  };
  const auto sequence = [](const char* name, int type) {
    return Json(Object{{"Sequence", Object{{"id", name}, {"type_id", type}}}});
  };
  for (const std::int32_t id : spec.before) single.push_back(token(id, 0));
  single.push_back(sequence("A", 0));
  for (const std::int32_t id : spec.after) single.push_back(token(id, 0));
  pair = single;
  pair.push_back(sequence("B", 1));
  for (const std::int32_t id : spec.after) pair.push_back(token(id, 1));
  return Object{{"type", "TemplateProcessing"},
                {"single", std::move(single)},
                {"pair", std::move(pair)},
                {"special_tokens", std::move(special)}};
}

Json added_tokens(const TokenizerSpec& spec) {
  std::vector<AddedToken> all = spec.added;
  // user-defined pieces that the model itself finds
  if (spec.kind == Kind::spm || spec.kind == Kind::unigram) {
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      if (spec.roles[i] != Role::user) continue;
      const auto id = static_cast<std::int32_t>(i);
      const bool there =
          std::any_of(spec.added.begin(), spec.added.end(), [&](const AddedToken& t) { return t.id == id; });
      if (!there)
        all.push_back({.id = id,
                       .text = spec.tokens[i],
                       .normalized = spec.tokens[i].find(kMetaSpace) != std::string::npos});
    }
  }
  std::sort(all.begin(), all.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  Array out;
  for (const AddedToken& t : all) {
    out.push_back(Object{{"id", static_cast<std::int64_t>(t.id)},
                         {"content", t.text},
                         {"single_word", t.single_word},
                         {"lstrip", t.left_strip},
                         {"rstrip", t.right_strip},
                         {"normalized", t.normalized},
                         {"special", t.special}});
  }
  return out;
}

Json config_of(const TokenizerSpec& spec) {
  Object out;
  const auto name = [&](const char* key, std::int32_t id) {
    if (id >= 0) out.push_back({key, spec.tokens[static_cast<std::size_t>(id)]});
  };
  out.push_back({"add_bos_token", !spec.before.empty()});
  out.push_back({"add_eos_token", !spec.after.empty()});
  name("bos_token", spec.bos);
  name("eos_token", spec.eos);
  name("unk_token", spec.unk);
  name("pad_token", spec.pad);
  name("sep_token", spec.sep);
  name("cls_token", spec.cls);
  name("mask_token", spec.mask);
  out.push_back({"clean_up_tokenization_spaces", false});
  out.push_back({"model_max_length", static_cast<std::int64_t>(1) << 53});
  out.push_back({"tokenizer_class", "PreTrainedTokenizerFast"});
  return out;
}

}  // namespace

TokenizerFiles tokenizer_files(const Tokenizer& tokenizer, std::string_view chat_template) {
  const TokenizerSpec& spec = spec_of(tokenizer);
  if (!spec.pieces.empty())
    fail(spec.where,
         ": a Marian tokenizer is kept in its own files (source.spm, target.spm, vocab.json); copy them");
  TokenizerFiles out;
  Json config =
      !spec.source_config.empty() ? parse_json(spec.source_config, "tokenizer_config.json") : config_of(spec);
  if (!chat_template.empty()) config.set("chat_template", chat_template);
  out.tokenizer_config_json = config.dump() + "\n";
  if (!spec.source_json.empty()) {
    out.tokenizer_json = spec.source_json;
    return out;
  }
  const Json root = Object{{"version", "1.0"},
                           {"truncation", Json()},
                           {"padding", Json()},
                           {"added_tokens", added_tokens(spec)},
                           {"normalizer", normalizer(spec)},
                           {"pre_tokenizer", pre_tokenizer(spec)},
                           {"post_processor", post_processor(spec)},
                           {"decoder", decoder(spec)},
                           {"model", model(spec)}};
  out.tokenizer_json = root.dump(0) + "\n";
  return out;
}

}  // namespace rapt
