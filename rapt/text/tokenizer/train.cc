// SPDX-License-Identifier: Apache-2.0
// Vocabularies as files. Merges: train_bpe.h.
#include "rapt/text/tokenizer/train.h"

#include <algorithm>
#include <set>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"
#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/model.h"
#include "rapt/text/tokenizer/normalize.h"
#include "rapt/text/tokenizer/train_bpe.h"

namespace rapt {
namespace {

using Object = Json::Object;
using Array = Json::Array;

struct Role {
  const char* key;  // in tokenizer_config.json
  const std::string& text;
};
std::vector<Role> roles_of(const VocabOptions& o) {
  return {{"pad_token", o.pad},   {"unk_token", o.unk}, {"cls_token", o.cls}, {"sep_token", o.sep},
          {"mask_token", o.mask}, {"bos_token", o.bos}, {"eos_token", o.eos}};
}

std::int32_t id_of(const std::vector<std::string>& tokens, const std::string& text) {
  return static_cast<std::int32_t>(std::find(tokens.begin(), tokens.end(), text) - tokens.begin());
}

Json special_part(const std::string& token, int type) {
  return Object{{"SpecialToken", Object{{"id", token}, {"type_id", type}}}};
}
Json text_part(const char* name, int type) {
  return Object{{"Sequence", Object{{"id", name}, {"type_id", type}}}};
}

// [CLS] A [SEP], and for two texts [CLS] A [SEP] B [SEP] with the second of type 1; bos and eos likewise,
// but without types.
Json frame(const VocabOptions& o, const std::vector<std::string>& tokens) {
  const bool bert = !o.cls.empty() && !o.sep.empty();
  const std::string first = bert        ? o.cls
                            : o.add_bos ? o.bos
                                        : "",
                    last = bert        ? o.sep
                           : o.add_eos ? o.eos
                                       : "";
  if (first.empty() && last.empty()) return {};
  const auto parts = [&](bool two) {
    Array out;
    if (!first.empty()) out.push_back(special_part(first, 0));
    out.push_back(text_part("A", 0));
    if (bert && two) out.push_back(special_part(last, 0));
    if (two) out.push_back(text_part("B", bert ? 1 : 0));
    if (!last.empty()) out.push_back(special_part(last, bert && two ? 1 : 0));
    return out;
  };
  std::set<std::string> names;  // sorted, as the original writes them
  for (const std::string& t : {first, last}) {
    if (!t.empty()) names.insert(t);
  }
  Object special;
  for (const std::string& t : names) {
    special.push_back({t, Object{{"id", t},
                                 {"ids", Array{Json(static_cast<Dim>(id_of(tokens, t)))}},
                                 {"tokens", Array{Json(t)}}}});
  }
  return Object{{"type", "TemplateProcessing"},
                {"single", parts(false)},
                {"pair", parts(true)},
                {"special_tokens", std::move(special)}};
}

Json byte_level(bool prefix) {
  return Object{
      {"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", true}, {"use_regex", true}};
}

TokenizerFiles files_of(const VocabOptions& o, const std::vector<std::string>& tokens, std::size_t specials,
                        Array merges) {
  const bool characters = o.kind == VocabKind::characters;
  Array added;
  for (std::size_t i = 0; i < specials; ++i) {
    added.push_back(Object{{"id", static_cast<Dim>(i)},
                           {"content", tokens[i]},
                           {"single_word", false},
                           {"lstrip", false},
                           {"rstrip", false},
                           {"normalized", false},
                           {"special", true}});
  }
  Object vocab;
  vocab.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) vocab.push_back({tokens[i], static_cast<Dim>(i)});
  const Json lower = o.lower ? Json(Object{{"type", "Lowercase"}}) : Json();
  const Json root =
      Object{{"version", "1.0"},
             {"truncation", Json()},
             {"padding", Json()},
             {"added_tokens", std::move(added)},
             {"normalizer", lower},
             {"pre_tokenizer", characters ? Json() : byte_level(false)},
             {"post_processor", frame(o, tokens)},
             {"decoder", characters ? Json(Object{{"type", "Fuse"}}) : byte_level(true)},
             {"model", Object{{"type", "BPE"},
                              {"dropout", Json()},
                              // Bytes spell everything.
                              {"unk_token", characters && !o.unk.empty() ? Json(o.unk) : Json()},
                              {"continuing_subword_prefix", Json()},
                              {"end_of_word_suffix", Json()},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", std::move(vocab)},
                              {"merges", std::move(merges)}}}};
  Json config =
      Object{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  for (const Role& r : roles_of(o)) {
    if (!r.text.empty()) config.set(r.key, r.text);
  }
  return {root.dump() + "\n", config.dump() + "\n"};
}

std::string lowered_text(std::string_view text) {
  EncodeWork work(text.size(), "vocabulary");
  return Normalizer({{.kind = NormalStep::Kind::lower}}, "vocabulary").apply(std::string(text), {}, work);
}

std::vector<std::string> characters_of(std::span<const std::string_view> texts, const VocabOptions& o) {
  std::vector<bool> seen(0x110000);
  for (const std::string_view whole : texts) {
    std::string lowered;
    std::string_view text = whole;
    if (o.lower) text = lowered = lowered_text(whole);
    for (std::size_t i = 0; i < text.size();) {
      const unicode::Char c = unicode::read(text, i);
      if (!c.valid)
        fail("vocabulary of characters: byte ", i,
             " of a text is not UTF-8; bytes spell any text (--vocab bytes)");
      seen[c.code] = true;
      i += c.length;
    }
  }
  std::vector<std::string> out;
  for (std::uint32_t code = 0; code < seen.size(); ++code) {
    if (!seen[code]) continue;
    out.emplace_back();
    unicode::append(out.back(), code);
  }
  return out;
}

}  // namespace

TokenizerFiles train_vocabulary(std::span<const std::string_view> texts, const VocabOptions& options) {
  std::vector<std::string> tokens;
  for (const Role& r : roles_of(options)) {
    if (r.text.empty() || std::find(tokens.begin(), tokens.end(), r.text) != tokens.end()) continue;
    if (!valid_utf8(r.text)) fail("vocabulary: ", r.key, " is not UTF-8: ", quote_name(r.text));
    if (options.kind == VocabKind::characters ? unicode::codes(r.text).size() < 2 : r.text.size() < 2)
      fail("vocabulary: ", r.key, " is '", r.text,
           "', one character; it would be mistaken for a letter of the text");
    tokens.push_back(r.text);
  }
  if (options.add_bos && options.bos.empty())
    fail("vocabulary: texts are to begin with bos, which is not given");
  if (options.add_eos && options.eos.empty())
    fail("vocabulary: texts are to end with eos, which is not given");
  const std::size_t specials = tokens.size();
  if (options.kind == VocabKind::characters) {
    std::vector<std::string> characters = characters_of(texts, options);
    if (characters.empty()) fail("vocabulary of characters: there is no text to take them from");
    tokens.insert(tokens.end(), characters.begin(), characters.end());
    return files_of(options, tokens, specials, {});
  }

  std::vector<std::uint8_t> bytes(256);
  for (std::size_t i = 0; i < 256; ++i) bytes[i] = static_cast<std::uint8_t>(i);
  std::sort(bytes.begin(), bytes.end(),
            [](std::uint8_t a, std::uint8_t b) { return byte_to_printable(a) < byte_to_printable(b); });
  std::vector<std::int32_t> byte_ids(256);
  for (const std::uint8_t b : bytes) {
    byte_ids[b] = static_cast<std::int32_t>(tokens.size());
    tokens.emplace_back();
    unicode::append(tokens.back(), byte_to_printable(b));
  }
  if (options.kind == VocabKind::bytes) return files_of(options, tokens, specials, {});

  const Dim fewest = static_cast<Dim>(tokens.size());
  constexpr Dim kMost = Dim{1} << 24;
  if (options.size < fewest || options.size > kMost)
    fail_usage("vocabulary: a size of ", with_commas(options.size), " tokens; between ", fewest,
               " (256 bytes and ", specials, " special tokens) and ", with_commas(kMost), " are possible");
  WordCounts words;
  for (const std::string_view text : texts) {
    if (options.lower) words.add(lowered_text(text));
    else words.add(text);
  }
  const auto pairs = learn_merges(words, tokens, byte_ids, options.size, options.least, options.progress);
  Array merges;
  merges.reserve(pairs.size());
  for (const auto& [a, b] : pairs) {
    merges.push_back(
        Array{Json(tokens[static_cast<std::size_t>(a)]), Json(tokens[static_cast<std::size_t>(b)])});
  }
  return files_of(options, tokens, specials, std::move(merges));
}

}  // namespace rapt
