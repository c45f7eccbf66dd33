// SPDX-License-Identifier: Apache-2.0
// A tokenizer as tokenizer.ggml.* pairs; what GGUF cannot say is an error. Merges may become scores.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "rapt/text/tokenizer/spec.h"
#include "rapt/text/tokenizer/write.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;
using Kind = Tokenizer::Kind;
using Pairs = std::vector<std::pair<std::string, GgufValue>>;

std::int32_t type_of(Role role, bool bert) {
  switch (role) {
    case Role::normal: return 1;
    case Role::unknown: return bert ? 3 : 2;
    case Role::control: return 3;
    case Role::user: return 4;
    case Role::unused: return 5;
    case Role::byte: return 6;
  }
  return 1;
}

const NormalStep* find_step(const TokenizerSpec& spec, NormalStep::Kind kind) {
  for (const NormalStep& s : spec.normal) {
    if (s.kind == kind) return &s;
  }
  return nullptr;
}

// A character-level BPE by merges (Llama 2 in tokenizer.json) as SentencePiece scores: the earlier a token
// is made, the better.
std::vector<float> scores_of_merges(const TokenizerSpec& spec) {
  std::unordered_map<std::string, std::size_t> rank;
  for (std::size_t i = 0; i < spec.merges.size(); ++i)
    rank.emplace(spec.merges[i].first + spec.merges[i].second, i);
  std::vector<float> out(spec.tokens.size(), 0.0f);
  std::vector<std::pair<std::size_t, std::size_t>> made;  // rank of the first merge, id
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (const auto found = rank.find(spec.tokens[i]); found != rank.end())
      made.emplace_back(found->second, i);
    // Single characters: never the result of a merge.
    else if (spec.roles[i] == Role::normal) out[i] = -1e6f;
  }
  std::sort(made.begin(), made.end());
  for (std::size_t k = 0; k < made.size(); ++k) out[made[k].second] = -static_cast<float>(k);
  return out;
}

void space_rules(const TokenizerSpec& spec, Pairs& out) {
  bool prefix = spec.strip_prefix, squeeze = false;
  std::string map;
  for (const NormalStep& s : spec.normal) {
    if (s.kind == NormalStep::Kind::sentencepiece)
      prefix = s.dummy_prefix, squeeze = s.remove_extra, map = s.from;
    else if (s.kind == NormalStep::Kind::charsmap) map = s.from;
    else if (s.kind == NormalStep::Kind::squeeze) squeeze = true;
    else if (s.kind == NormalStep::Kind::prepend) prefix = true;
  }
  for (const SplitStep& s : spec.splits) {
    if (s.kind == SplitStep::Kind::metaspace) prefix = s.prefix != SplitStep::Prefix::never;
    else if (s.pattern == Pattern::space && s.behavior == SplitStep::Behavior::removed) squeeze = true;
  }
  out.emplace_back("tokenizer.ggml.add_space_prefix", GgufValue::boolean(prefix));
  if (spec.kind != Kind::unigram) return;
  out.emplace_back("tokenizer.ggml.remove_extra_whitespaces", GgufValue::boolean(squeeze));
  if (map.empty()) return;
  GgufValue::Integers bytes;
  for (const char c : map) bytes.push_back(static_cast<std::uint8_t>(c));
  GgufValue value;
  value.type = GgufValue::Type::array;
  value.element = GgufValue::Type::u8;
  value.value = std::move(bytes);
  out.emplace_back("tokenizer.ggml.precompiled_charsmap", std::move(value));
}

}  // namespace

std::vector<std::pair<std::string, GgufValue>> tokenizer_metadata(const Tokenizer& tokenizer,
                                                                  Dim vocabulary) {
  const TokenizerSpec& spec = spec_of(tokenizer);
  if (!spec.pieces.empty())
    fail(spec.where,
         ": GGUF has no place for a tokenizer whose pieces are not its ids (Marian); keep the folder");
  if (spec.characters)
    fail(spec.where,
         ": GGUF has no place for a vocabulary of characters; keep the folder, or train with bytes or bpe");
  const bool bert = spec.kind == Kind::wordpiece, spelt = spec.kind == Kind::bpe && !spec.byte_level;
  const std::string model = spec.kind == Kind::unigram        ? "t5"
                            : bert                            ? "bert"
                            : spec.kind == Kind::spm || spelt ? "llama"
                                                              : "gpt2";
  const auto text = [](const std::string& key, std::string value) {
    return std::pair("tokenizer.ggml." + key, GgufValue::text(std::move(value)));
  };
  Pairs out;
  out.push_back(text("model", model));
  out.push_back(text("pre", model == "gpt2" ? pre_of(spec) : !spec.pre.empty() ? spec.pre : "default"));

  GgufValue::Strings tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores = spelt ? scores_of_merges(spec) : spec.scores;
  std::unordered_set<std::string> seen;
  const auto size = std::max(spec.tokens.size(), static_cast<std::size_t>(std::max<Dim>(vocabulary, 0)));
  if (vocabulary > 0 && spec.tokens.size() > static_cast<std::size_t>(vocabulary)) {
    fail(spec.where, ": ", spec.tokens.size(), " tokens for a model with ", vocabulary,
         " rows of embeddings");
  }
  for (std::size_t i = 0; i < size; ++i) {
    const bool hole = i >= spec.tokens.size() || spec.tokens[i].empty();
    std::string t = hole ? concat("[PAD", i, "]") : spec.tokens[i];
    if (!hole && bert && !spec.phantom_space) {  // ##ing → ing, word → ▁word, [CLS] as it is
      if (t.starts_with(spec.continuing) && t.size() > spec.continuing.size())
        t.erase(0, spec.continuing.size());
      else if (!(t.starts_with('[') && t.ends_with(']'))) t.insert(0, kMetaSpace);
    }
    // llama.cpp looks for them before spaces become visible
    if (!hole && model == "llama" && spec.roles[i] == Role::user) {
      for (std::size_t at = t.find(kMetaSpace); at != std::string::npos; at = t.find(kMetaSpace, at))
        t.replace(at, kMetaSpace.size(), " ");
    }
    if (!seen.insert(t).second)
      fail(spec.where, ": token ", i, " ('", t, "') would stand in the GGUF vocabulary twice");
    tokens.push_back(std::move(t));
    types.push_back(hole ? 5 : type_of(spec.roles[i], bert));
  }
  scores.resize(size, 0.0f);
  out.emplace_back("tokenizer.ggml.tokens", GgufValue::texts(std::move(tokens)));
  out.emplace_back("tokenizer.ggml.token_type", GgufValue::i32s(types));
  if (model == "llama" || model == "t5") out.emplace_back("tokenizer.ggml.scores", GgufValue::f32s(scores));
  if (model == "gpt2") {
    GgufValue::Strings merges;
    for (const auto& [a, b] : spec.merges) merges.push_back(a + " " + b);
    out.emplace_back("tokenizer.ggml.merges", GgufValue::texts(std::move(merges)));
  }
  const auto id = [&](const char* key, std::int32_t value) {
    if (value >= 0)
      out.emplace_back(concat("tokenizer.ggml.", key, "_token_id"),
                       GgufValue::u32(static_cast<std::uint32_t>(value)));
  };
  const bool framed = bert && spec.before.size() == 1 && spec.after.size() == 1;
  id("bos", framed ? spec.before[0] : spec.bos);
  id("eos", spec.eos);
  id("unknown", spec.unk);
  id("seperator", framed ? spec.after[0] : spec.sep);
  id("padding", spec.pad);
  id("cls", spec.cls);
  id("mask", spec.mask);
  if (spec.before.size() > 1 || spec.after.size() > 1)
    fail(spec.where, ": GGUF can frame a text by one token on each side only");
  if (!bert) {
    if (!spec.before.empty() && spec.before[0] != spec.bos)
      fail(spec.where, ": a text begins with token ", spec.before[0],
           ", which is not bos; GGUF cannot say so");
    const bool sep = !spec.after.empty() && spec.after[0] == spec.sep && spec.sep != spec.eos;
    if (!spec.after.empty() && !sep && spec.after[0] != spec.eos)
      fail(spec.where, ": a text ends with token ", spec.after[0], ", which is not eos; GGUF cannot say so");
    out.emplace_back("tokenizer.ggml.add_bos_token", GgufValue::boolean(!spec.before.empty()));
    out.emplace_back("tokenizer.ggml.add_eos_token", GgufValue::boolean(!spec.after.empty() && !sep));
    if (sep) out.emplace_back("tokenizer.ggml.add_sep_token", GgufValue::boolean(true));
  }
  if (model == "llama" || model == "t5") space_rules(spec, out);
  if (bert) {
    if (const NormalStep* s = find_step(spec, NormalStep::Kind::bert); s && (!s->lowercase || !s->accents)) {
      out.emplace_back("tokenizer.ggml.normalizer.lowercase", GgufValue::boolean(s->lowercase));
      out.emplace_back("tokenizer.ggml.normalizer.strip_accents", GgufValue::boolean(s->accents));
    }
  }
  return out;
}

bool gguf_says(const Tokenizer& tokenizer) {
  const TokenizerSpec& spec = spec_of(tokenizer);
  for (const NormalStep& s : spec.normal)
    if (s.kind == NormalStep::Kind::spaces || s.kind == NormalStep::Kind::punctuation) return false;
  return spec.suffix.empty();
}

}  // namespace rapt
