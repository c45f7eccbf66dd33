// SPDX-License-Identifier: Apache-2.0
// GGUF metadata to a tokenizer.
//   tokenizer.ggml.model   gpt2 (byte-level BPE) | llama (SentencePiece BPE) | t5 (Unigram) | bert
//                          (WordPiece)
//   .pre .tokens .scores .token_type .merges .{bos,eos,unknown,seperator,padding,cls,mask,eot,eom}_token_id
//   .add_{bos,eos,sep}_token .add_space_prefix .remove_extra_whitespaces .precompiled_charsmap
// Token types: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte. "seperator" is how the key
// is spelt; a few files have it right.
#include <algorithm>
#include <array>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"
#include "rapt/io/gguf.h"
#include "rapt/text/tokenizer/model.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;
using Kind = Tokenizer::Kind;

constexpr std::string_view kKey = "tokenizer.ggml.";
std::string key(std::string_view name) { return std::string(kKey) + std::string(name); }

void read_tokens(const GgufFile& file, TokenizerSpec& spec) {
  const auto* tokens = file.texts(key("tokens"));
  if (!tokens || tokens->empty())
    fail(spec.where, ": ", key("tokens"), " is missing or empty: the file has no vocabulary");
  spec.tokens = *tokens;
  const std::size_t size = spec.tokens.size();
  spec.roles.assign(size, Role::normal);
  if (const auto* types = file.integers(key("token_type"))) {
    if (types->size() != size)
      fail(spec.where, ": ", key("token_type"), " has ", types->size(), " entries, the vocabulary ", size);
    static constexpr std::array<Role, 7> kRoles = {Role::normal, Role::normal, Role::unknown, Role::control,
                                                   Role::user,   Role::unused, Role::byte};
    for (std::size_t i = 0; i < size; ++i) {
      const std::int64_t t = (*types)[i];
      if (t < 0 || t >= static_cast<std::int64_t>(kRoles.size()))
        fail(spec.where, ": ", key("token_type"), "[", i, "] is ", t, "; known are 0 to 6");
      spec.roles[i] = kRoles[static_cast<std::size_t>(t)];
    }
  }
  TokenIds seen;
  seen.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    if (spec.tokens[i].empty()) continue;  // a hole
    const auto [at, fresh] = seen.emplace(spec.tokens[i], static_cast<std::int32_t>(i));
    if (!fresh)
      fail(spec.where, ": tokens ", at->second, " and ", i, " are both '", spec.tokens[i],
           "'; text could not be told apart");
  }
  if (spec.kind == Kind::spm || spec.kind == Kind::unigram) {
    spec.scores.assign(size, 0.0f);
    const GgufValue* value = file.find(key("scores"));
    if (value && std::holds_alternative<GgufValue::Integers>(value->value)) {
      const auto& scores = std::get<GgufValue::Integers>(value->value);
      if (scores.size() != size)
        fail(spec.where, ": ", key("scores"), " has ", scores.size(), " entries, the vocabulary ", size);
      for (std::size_t i = 0; i < size; ++i) spec.scores[i] = static_cast<float>(scores[i]);
    } else if (const auto* scores = file.numbers(key("scores"))) {
      if (scores->size() != size)
        fail(spec.where, ": ", key("scores"), " has ", scores->size(), " entries, the vocabulary ", size);
      for (std::size_t i = 0; i < size; ++i) spec.scores[i] = static_cast<float>((*scores)[i]);
    } else {
      fail(spec.where, ": ", key("scores"), " is missing, and this kind of tokenizer cannot choose without");
    }
  }
}

void read_merges(const GgufFile& file, TokenizerSpec& spec) {
  const auto* merges = file.texts(key("merges"));
  if (!merges)
    fail(spec.where, ": ", key("merges"), " is missing, and byte pair encoding is nothing without them");
  spec.merges.reserve(merges->size());
  for (std::size_t i = 0; i < merges->size(); ++i) {
    const std::string& line = (*merges)[i];
    const std::size_t space = line.find(' ', 1);
    if (line.empty() || space == std::string::npos || space + 1 == line.size()) {
      fail(spec.where, ": ", key("merges"), "[", i, "] is '", line, "', not two tokens with a space between");
    }
    spec.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
}

std::int32_t special_id(const GgufFile& file, std::string_view name, std::int32_t otherwise,
                        std::size_t size) {
  const std::string k = key(name);
  if (!file.find(k)) return otherwise >= 0 && static_cast<std::size_t>(otherwise) < size ? otherwise : -1;
  const std::int64_t id = file.integer(k, -1, 0xFFFFFFFF);
  if (id == -1 || id == 0xFFFFFFFF) return -1;  // how some writers say "none"
  if (id >= static_cast<std::int64_t>(size))
    fail(file.name, ": ", k, " is ", id, ", but the vocabulary has ", size, " tokens");
  return static_cast<std::int32_t>(id);
}

std::string charsmap(const GgufFile& file) {
  const auto* bytes = file.integers(key("precompiled_charsmap"));
  std::string out;
  if (!bytes) return out;
  out.reserve(bytes->size());
  for (const std::int64_t b : *bytes) {
    if (b < -128 || b > 255)
      fail(file.name, ": ", key("precompiled_charsmap"), " holds ", b, ", which is no byte");
    out += static_cast<char>(static_cast<std::uint8_t>(b));
  }
  return out;
}

// Control tokens by what they are called, where the file forgot to say so: their text from a user must not
// end an answer or start a turn.
void mark_controls(TokenizerSpec& spec) {
  static constexpr std::string_view kNames[] = {
      "<|eot_id|>",      "<|im_end|>",          "<|im_start|>",     "<|end|>",    "<end_of_turn>",
      "<start_of_turn>", "<|endoftext|>",       "<|end_of_text|>",  "<|eom_id|>", "<EOT>",
      "_<EOT>",          "<|start_header_id|>", "<|end_header_id|>"};
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const bool named =
        std::find(std::begin(kNames), std::end(kNames), std::string_view(spec.tokens[i])) != std::end(kNames);
    if (named && (spec.roles[i] == Role::normal || spec.roles[i] == Role::user))
      spec.roles[i] = Role::control;
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufFile& file) {
  TokenizerSpec spec;
  spec.where = file.name;
  if (!file.find(key("model"))) fail(file.name, ": ", key("model"), " is missing: the file has no tokenizer");
  const std::string& model = file.text(key("model"));
  spec.gguf_model = model;
  const std::string pre = file.text_or(key("pre"), "");
  bool bos = false, eos = false, sep = false;

  if (model == "gpt2") {
    spec.kind = Kind::bpe;
    spec.byte_level = true;
    spec.unknown_drops = true;
    spec.name = pre;
    if (pre.empty())
      fail(file.name, ": ", key("pre"),
           " is missing, and without it nobody knows how text is split; convert the model again");
    apply_pre(spec, pre);
    static constexpr std::string_view kBos[] = {"llama3",       "llama-v3", "llama-bpe", "falcon3",
                                                "falcon-h1",    "pixtral",  "midm-2.0",  "lfm2",
                                                "jina-v5-nano", "tekken"};
    bos = std::find(std::begin(kBos), std::end(kBos), std::string_view(pre)) != std::end(kBos);
    sep = pre == "jina-v1-en" || pre == "jina-v2-code" || pre == "roberta-bpe";
  } else if (model == "llama") {
    spec.kind = Kind::spm;
    spec.name = "llama-spm";
    spec.byte_fallback = true;
    spec.pre = pre;
    bos = true;
    const bool prefix = file.boolean_or(key("add_space_prefix"), true);
    spec.normal = {{.kind = NormalStep::Kind::sentencepiece,
                    .dummy_prefix = prefix,
                    .remove_extra = file.boolean_or(key("remove_extra_whitespaces"), false)}};
    spec.strip_prefix = prefix;
  } else if (model == "t5") {
    spec.kind = Kind::unigram;
    spec.name = "t5";
    spec.byte_fallback = true;
    spec.fuse_unknown = true;
    spec.pre = pre;
    eos = true;
    const bool prefix = file.boolean_or(key("add_space_prefix"), true);
    spec.normal = {{.kind = NormalStep::Kind::sentencepiece,
                    .from = charsmap(file),
                    .dummy_prefix = prefix,
                    .remove_extra = file.boolean_or(key("remove_extra_whitespaces"), true)}};
    spec.strip_prefix = prefix;
  } else if (model == "bert") {
    spec.kind = Kind::wordpiece;
    spec.name = pre.empty() ? "bert" : pre;
    spec.phantom_space = true;
    spec.pre = pre;
    const bool lower = file.boolean_or(key("normalizer.lowercase"), true);
    spec.normal = {{.kind = NormalStep::Kind::bert,
                    .accents = file.boolean_or(key("normalizer.strip_accents"), lower),
                    .lowercase = lower}};
    spec.splits = {{.pattern = Pattern::space, .behavior = SplitStep::Behavior::removed},
                   {.pattern = Pattern::punctuation}};
  } else {
    fail(file.name, ": ", key("model"), " is '", model, "'; known are gpt2, llama, t5 and bert");
  }

  read_tokens(file, spec);
  if (model == "gpt2") read_merges(file, spec);
  const std::size_t size = spec.tokens.size();
  const bool bert = model == "bert";
  spec.bos = special_id(file, "bos_token_id", model == "llama" ? 1 : bert ? 101 : -1, size);
  spec.eos = special_id(file, "eos_token_id", model == "llama" ? 2 : model == "t5" ? 1 : -1, size);
  spec.unk = special_id(file, "unknown_token_id",
                        model == "llama" ? 0
                        : model == "t5"  ? 2
                        : bert           ? 100
                                         : -1,
                        size);
  spec.sep =
      special_id(file, file.find(key("separator_token_id")) ? "separator_token_id" : "seperator_token_id",
                 bert ? 102 : -1, size);
  spec.pad = special_id(file, "padding_token_id", bert || model == "t5" ? 0 : -1, size);
  spec.cls = special_id(file, "cls_token_id", bert ? spec.bos : -1, size);
  spec.mask = special_id(file, "mask_token_id", bert ? 103 : -1, size);
  for (const std::string_view name : {"eot_token_id", "eom_token_id"}) {
    if (const std::int32_t id = special_id(file, name, -1, size); id >= 0) spec.more_stops.push_back(id);
  }
  if (bert && spec.unk >= 0) spec.roles[static_cast<std::size_t>(spec.unk)] = Role::unknown;
  mark_controls(spec);
  bos = file.boolean_or(key("add_bos_token"), bos);
  eos = file.boolean_or(key("add_eos_token"), eos);
  sep = file.boolean_or(key("add_sep_token"), sep);
  if (bert) {
    spec.before = {spec.cls};
    spec.after = {spec.sep};
  } else {
    if (bos && spec.bos >= 0) spec.before = {spec.bos};
    if (eos && spec.eos >= 0) spec.after = {spec.eos};
    else if (sep && spec.sep >= 0) spec.after = {spec.sep};
  }

  // Phi-3's special tokens swallow the white space behind them; GGUF has no place to say so, so the name
  // of the model does.
  std::string title = file.text_or("general.name", "");
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  const bool phi3 = title.find("phi-3") != std::string::npos || title.find("phi3") != std::string::npos;
  // Without a dummy prefix SentencePiece finds user-defined tokens in the normal text, where spaces are
  // visible; GGUF stores them plain.
  const bool in_model = model == "llama" && !spec.strip_prefix;
  for (std::size_t i = 0; i < size && in_model; ++i) {
    if (spec.roles[i] != Role::user) continue;
    std::string& t = spec.tokens[i];
    for (std::size_t at = t.find(' '); at != std::string::npos; at = t.find(' ', at))
      t.replace(at, 1, kMetaSpace);
  }
  for (std::size_t i = 0; i < size; ++i) {
    const Role role = spec.roles[i];
    if (in_model && role == Role::user) continue;
    if (spec.tokens[i].empty() || (role != Role::control && role != Role::user && role != Role::unknown))
      continue;
    AddedToken t{.id = static_cast<std::int32_t>(i), .text = spec.tokens[i], .special = role != Role::user};
    t.right_strip = phi3 && t.text != "<unk>" && t.text != "<s>" && t.text != "<|endoftext|>";
    t.left_strip =
        (t.text == "<mask>" && (pre == "jina-v2-de" || pre == "jina-v2-es" || pre == "jina-v2-code")) ||
        (t.text == "[MASK]" && title.find("modern-bert") != std::string::npos);
    spec.added.push_back(std::move(t));
  }
  return make_tokenizer(std::move(spec));
}

}  // namespace rapt
