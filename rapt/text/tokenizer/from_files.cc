// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder to a tokenizer: tokenizer.json where there is one, else the older files.
//   tokenizer.model | spiece.model                        SentencePiece (Llama 2, Gemma, T5)
//   source.spm + vocab.json                               Marian: pieces by SentencePiece, ids by vocab.json
//   vocab.json + merges.txt                               GPT-2, Qwen2
//   vocab.txt                                             BERT
#include "rapt/text/tokenizer/from_files.h"

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "rapt/base/unicode.h"
#include "rapt/io/gguf.h"
#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/json_parts.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;
using Kind = Tokenizer::Kind;
namespace fs = std::filesystem;

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

void read_vocab_json(std::string_view text, TokenizerSpec& spec) {
  const Json vocab = parse_json(text, spec.where);
  if (!vocab.is_object() || vocab.object().empty())
    fail(spec.where, ": vocab.json is not an object of tokens and ids");
  const auto entries = static_cast<std::int64_t>(vocab.object().size());
  for (const auto& [token, id] : vocab.object()) {
    if (!id.is_integer() || id.integer() < 0 || id.integer() >= 4 * entries + 1024)
      fail(at(spec.where, id), "the id of '", token, "' is no number or far too large");
    const auto i = static_cast<std::size_t>(id.integer());
    if (i >= spec.tokens.size()) spec.tokens.resize(i + 1), spec.roles.resize(i + 1, Role::unused);
    if (!spec.tokens[i].empty())
      fail(at(spec.where, id), "'", spec.tokens[i], "' and '", token, "' have the same id ", i);
    spec.tokens[i] = token;
    spec.roles[i] = Role::normal;
  }
}

// added_tokens_decoder of tokenizer_config.json: { "32000": { "content", "special", "lstrip", … } }
void read_added_decoder(const Json& config, TokenizerSpec& spec) {
  const Json* list = config.find("added_tokens_decoder");
  if (!list || !list->is_object()) return;
  for (const auto& [key, t] : list->object()) {
    if (key.empty() || key.size() > 8 ||
        !std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      fail(spec.where, ": added_tokens_decoder has the id '", key, "'");
    }
    const int id = std::stoi(key);
    if (static_cast<std::size_t>(id) >= 4 * (spec.tokens.size() + list->object().size()) + 1024)
      fail(spec.where, ": added token ", id, " lies far outside the vocabulary");
    const Json& content = need(t, "content", spec.where);
    if (!content.is_string())
      fail(at(spec.where, content), "the content of an added token is ", content.type_name());
    add_token(spec, {.id = id,
                     .text = content.string(),
                     .special = flag_or(t, "special", false, spec.where),
                     .left_strip = flag_or(t, "lstrip", false, spec.where),
                     .right_strip = flag_or(t, "rstrip", false, spec.where),
                     .single_word = flag_or(t, "single_word", false, spec.where),
                     .normalized = flag_or(t, "normalized", false, spec.where)});
  }
}

// Special tokens named by the config that no list of added tokens has: control tokens of the
// vocabulary itself.
void mark_special(TokenizerSpec& spec) {
  for (const std::int32_t id : {spec.bos, spec.eos, spec.pad, spec.sep, spec.cls, spec.mask}) {
    if (id < 0 || static_cast<std::size_t>(id) >= spec.tokens.size() ||
        spec.roles[static_cast<std::size_t>(id)] != Role::normal)
      continue;
    add_token(spec, {.id = id, .text = spec.tokens[static_cast<std::size_t>(id)], .special = true});
  }
}

Json read_config_files(const fs::path& folder) {  // what both files name is as the first one says
  Json::Object config;
  std::unordered_set<std::string> seen;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = folder / name;
    if (!fs::exists(path)) continue;
    const Json part = parse_json(read_text_file(path.string()), path.string());
    if (!part.is_object()) fail(path.string(), ": is ", part.type_name(), ", not an object");
    for (const Json::Member& member : part.object())
      if (seen.insert(member.key).second) config.push_back(member);
  }
  return config;
}

std::shared_ptr<const Tokenizer> from_sentencepiece_file(const fs::path& path, const Json& config) {
  TokenizerSpec spec =
      sentencepiece_spec(read_sentencepiece(read_file(path.string()), path.string()), path.string());
  read_added_decoder(config, spec);
  const std::string type = text_or(config, "tokenizer_class", "", spec.where);
  if (type == "T5Tokenizer" || type == "T5TokenizerFast") {  // sentinels count down from the end
    const auto extra = integer_or(config, "extra_ids", 100, 0, 1000, spec.where);
    const auto base = static_cast<std::int32_t>(spec.tokens.size());
    if (find_token(spec, "<extra_id_0>") < 0) {
      for (std::int64_t i = extra - 1; i >= 0; --i) {
        add_token(spec, {.id = static_cast<std::int32_t>(base + extra - 1 - i),
                         .text = concat("<extra_id_", i, ">"),
                         .special = true});
      }
    }
  }
  if (type == "SiglipTokenizer") {
    for (NormalStep& s : spec.normal) s.dummy_prefix = false;  // it stands there already
    std::vector<NormalStep> first = canonical_text(flag_or(config, "do_lower_case", true, spec.where));
    spec.normal.insert(spec.normal.begin(), first.begin(), first.end());
  }
  read_config(config, spec);
  mark_special(spec);
  const bool bos = flag_or(config, "add_bos_token", spec.kind == Kind::spm, spec.where);
  const bool eos = flag_or(config, "add_eos_token", spec.kind == Kind::unigram, spec.where);
  if (bos && spec.bos >= 0) spec.before = {spec.bos};
  if (eos && spec.eos >= 0) spec.after = {spec.eos};
  return make_tokenizer(std::move(spec));
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_bpe_files(std::string_view vocab_json,
                                                          std::string_view merges_txt, const Json& config,
                                                          std::string_view where) {
  TokenizerSpec spec;
  spec.where = std::string(where);
  spec.kind = Kind::bpe;
  spec.byte_level = true;
  spec.unknown_drops = true;
  read_vocab_json(vocab_json, spec);
  const auto all = lines(merges_txt);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string_view line = all[i];
    if (line.empty() || (i == 0 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      fail(where, ": merges.txt, line ", i + 1, ": '", line, "' is not two tokens with a space between");
    }
    spec.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  const std::string type = text_or(config, "tokenizer_class", "", spec.where);
  if (type.starts_with("Qwen2")) {
    spec.normal = {{.kind = NormalStep::Kind::nfc}};
    spec.splits = {{.pattern = Pattern::qwen2}};
  } else if (type.starts_with("CLIP")) {
    spec.normal = {{.kind = NormalStep::Kind::nfc},
                   {.kind = NormalStep::Kind::spaces, .to = " "},
                   {.kind = NormalStep::Kind::lower}};
    spec.splits = {{.pattern = Pattern::clip, .behavior = SplitStep::Behavior::removed, .invert = true},
                   {.pattern = Pattern::gpt2}};
    spec.suffix = "</w>";
  } else if (type.empty() || type.starts_with("GPT2") || type.starts_with("Roberta") ||
             type.starts_with("Bart") || type.starts_with("GPTNeoX")) {
    if (flag_or(config, "add_prefix_space", false, spec.where))
      spec.splits.push_back({.kind = SplitStep::Kind::prefix_space});
    spec.splits.push_back({.pattern = Pattern::gpt2});
  } else {
    fail(where, ": vocab.json and merges.txt of a '", type,
         "' do not say how text is split; bring its tokenizer.json");
  }
  spec.name = type.empty() ? "gpt2" : type;
  read_added_decoder(config, spec);
  read_config(config, spec);
  if (spec.eos < 0) spec.eos = find_token(spec, "<|endoftext|>");
  if (spec.bos < 0 && type.starts_with("CLIP")) spec.bos = find_token(spec, "<|startoftext|>");
  if (spec.bos < 0) spec.bos = spec.eos;
  mark_special(spec);
  if (flag_or(config, "add_bos_token", false, spec.where) && spec.bos >= 0) spec.before = {spec.bos};
  if ((type.starts_with("Roberta") || type.starts_with("Bart") || type.starts_with("CLIP")) &&
      spec.bos >= 0 && spec.eos >= 0)
    spec.before = {spec.bos}, spec.after = {spec.eos};
  return make_tokenizer(std::move(spec));
}

std::shared_ptr<const Tokenizer> tokenizer_from_vocab_txt(std::string_view vocab_txt, const Json& config,
                                                          std::string_view where) {
  TokenizerSpec spec;
  spec.where = std::string(where);
  spec.kind = Kind::wordpiece;
  spec.name = "bert";
  if (!valid_utf8(vocab_txt)) fail(where, ": vocab.txt is not valid UTF-8");
  for (const std::string_view line : lines(vocab_txt)) {
    spec.tokens.emplace_back(line);
    spec.roles.push_back(Role::normal);
  }
  const bool lower = flag_or(config, "do_lower_case", true, spec.where);
  spec.normal = {{.kind = NormalStep::Kind::bert,
                  .chinese = flag_or(config, "tokenize_chinese_chars", true, spec.where),
                  .accents = flag_or(config, "strip_accents", lower, spec.where),
                  .lowercase = lower}};
  spec.splits = {{.pattern = Pattern::space, .behavior = SplitStep::Behavior::removed},
                 {.pattern = Pattern::punctuation}};
  read_config(config, spec);
  const auto set = [&](std::int32_t& id, const char* name) {
    if (id < 0) id = find_token(spec, name);
  };
  set(spec.unk, "[UNK]");
  set(spec.cls, "[CLS]");
  set(spec.sep, "[SEP]");
  set(spec.pad, "[PAD]");
  set(spec.mask, "[MASK]");
  if (spec.cls < 0 || spec.sep < 0) fail(where, ": vocab.txt has no [CLS] or no [SEP]");
  if (spec.unk >= 0) spec.roles[static_cast<std::size_t>(spec.unk)] = Role::unknown;
  mark_special(spec);
  spec.before = {spec.cls};
  spec.after = {spec.sep};
  return make_tokenizer(std::move(spec));
}

std::shared_ptr<const Tokenizer> tokenizer_from_marian(std::span<const std::byte> source,
                                                       std::string_view vocab_json, const Json& config,
                                                       std::string_view where) {
  const SentencePieceModel model = read_sentencepiece(source, where);
  if (model.type != 1) fail(where, ": source.spm is no Unigram model");
  TokenizerSpec spec;
  spec.where = std::string(where);
  spec.kind = Kind::unigram;
  spec.name = "marian";
  spec.fuse_unknown = true;
  read_vocab_json(vocab_json, spec);
  spec.unk = find_token(spec, "<unk>");
  if (spec.unk < 0) fail(where, ": vocab.json has no <unk>");
  spec.roles[static_cast<std::size_t>(spec.unk)] = Role::unknown;
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i)
    ids.emplace(spec.tokens[i], static_cast<std::int32_t>(i));
  for (const auto& p : model.pieces) {
    const auto found = ids.find(p.text);
    spec.pieces.push_back({p.text, p.score, role_of(p.type), found == ids.end() ? spec.unk : found->second});
  }
  spec.normal = {normal_step(model)};
  spec.strip_prefix = model.dummy_prefix;
  read_config(config, spec);
  if (spec.eos < 0) spec.eos = find_token(spec, "</s>");
  if (spec.pad < 0) spec.pad = find_token(spec, "<pad>");
  mark_special(spec);
  std::vector<AddedToken> languages;  // ">>fr<<" chooses the target language of a model with many
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string& t = spec.tokens[i];
    if (t.size() > 4 && t.starts_with(">>") && t.ends_with("<<"))
      languages.push_back({.id = static_cast<std::int32_t>(i), .text = t});
  }
  for (AddedToken& t : languages) add_token(spec, std::move(t));
  if (spec.eos >= 0) spec.after = {spec.eos};
  return make_tokenizer(std::move(spec));
}

std::shared_ptr<const Tokenizer> tokenizer_from_folder(const std::string& name) {
  const fs::path folder(name);
  check_links(name);
  const auto has = [&](const char* file) { return fs::exists(folder / file); };
  const Json config = read_config_files(folder);
  // SigLIP's own class reads its SentencePiece model, whatever lies beside it.
  if (has("spiece.model") && text_or(config, "tokenizer_class", "", name) == "SiglipTokenizer")
    return from_sentencepiece_file(folder / "spiece.model", config);
  if (has("tokenizer.json")) {
    const fs::path path = folder / "tokenizer.json";
    return tokenizer_from_json(read_text_file(path.string()), config.object().empty() ? "" : config.dump(2),
                               path.string());
  }
  for (const char* file : {"tokenizer.model", "spiece.model"}) {
    if (has(file)) return from_sentencepiece_file(folder / file, config);
  }
  if (has("source.spm") && has("vocab.json")) {
    return tokenizer_from_marian(read_file((folder / "source.spm").string()),
                                 read_text_file((folder / "vocab.json").string()), config, name);
  }
  if (has("vocab.json") && has("merges.txt")) {
    return tokenizer_from_bpe_files(read_text_file((folder / "vocab.json").string()),
                                    read_text_file((folder / "merges.txt").string()), config, name);
  }
  if (has("vocab.txt"))
    return tokenizer_from_vocab_txt(read_text_file((folder / "vocab.txt").string()), config,
                                    (folder / "vocab.txt").string());
  return nullptr;
}

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path) {
  if (!fs::exists(path)) fail_missing(path, ": no such file or folder");
  if (fs::is_directory(path)) {
    auto found = tokenizer_from_folder(path);
    if (!found)
      fail(path,
           ": no tokenizer here (looked for tokenizer.json, tokenizer.model, spiece.model, source.spm, "
           "vocab.json with merges.txt, vocab.txt)");
    return found;
  }
  if (path.ends_with(".json")) return tokenizer_from_json(read_text_file(path), "", path);
  if (path.ends_with(".model") || path.ends_with(".spm")) {
    return tokenizer_from_sentencepiece(read_file(path), path);
  }
  return tokenizer_from_gguf(GgufFile::open(path));
}

}  // namespace rapt
