// SPDX-License-Identifier: Apache-2.0
// Tokenizers end to end: ids of real vocabularies (data files) and of small ones written here, against what
// the originals give.
#include "rapt/text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include <unistd.h>

#include "rapt/base/json.h"
#include "rapt/base/unicode.h"
#include "rapt/io/gguf.h"
#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/from_files.h"
#include "rapt/text/tokenizer/write.h"
#include "tests/data.h"
#include "tests/tools.h"

namespace rapt {
namespace {

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

using TokenIds = std::vector<std::int32_t>;

std::string base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    held += 6;
    if (held >= 8) out += static_cast<char>(bits >> (held -= 8) & 255);
  }
  return out;
}
std::span<const std::byte> bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

const Json& golden() {
  static const Json all = parse_json(
      slurp(std::filesystem::path(RAPT_SOURCE_DIR) / "tests" / "golden" / "tokenizers" / "ids.json"),
      "tokenizers/ids.json");
  return all;
}
TokenIds ids_of(const Json& list) {
  TokenIds out;
  for (const Json& id : list.array()) out.push_back(static_cast<std::int32_t>(id.integer()));
  return out;
}

constexpr const char* kVocabularies[] = {"bert-bge",  "deepseek-llm", "gpt-2", "llama-bpe",
                                         "llama-spm", "phi-3",        "qwen2"};
std::shared_ptr<const Tokenizer> vocabulary(const std::string& name) {  // nullptr: no such file
  static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
  const auto file = test::data_file("vocab/ggml-vocab-" + name + ".gguf");
  if (file && !loaded[name]) loaded[name] = tokenizer_from_gguf(GgufFile::open(file->string()));
  return file ? loaded[name] : nullptr;
}

class Vocabulary : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Tokenizer, Vocabulary, testing::ValuesIn(kVocabularies), [](const auto& which) {
  std::string name = which.param;
  std::erase(name, '-');
  return name;
});

// The pairs that come with llama.cpp, whose ids are Hugging Face's.
TEST_P(Vocabulary, PairsGiveEqualIds) {
  const std::string name = std::string("vocab/ggml-vocab-") + GetParam() + ".gguf";
  const auto tokenizer = vocabulary(GetParam());
  if (!tokenizer) GTEST_SKIP() << test::no_data(name);
  const std::string all = slurp(*test::data_file(name + ".inp")), border = "\n__ggml_vocab_test__\n";
  std::istringstream expected(slurp(*test::data_file(name + ".out")));
  int pairs = 0;
  for (std::size_t at = 0; all.find(border, at) != std::string::npos; ++pairs) {
    const std::size_t end = all.find(border, at);
    const std::string text = all.substr(at, end - at);
    at = end + border.size();
    std::string line;
    ASSERT_TRUE(std::getline(expected, line));
    std::istringstream numbers(line);
    const TokenIds want{std::istream_iterator<std::int32_t>(numbers), {}};
    const TokenIds got = tokenizer->encode(text);
    EXPECT_EQ(got, want) << GetParam() << ": " << text;
    if (tokenizer->kind != Tokenizer::Kind::wordpiece) {
      EXPECT_EQ(tokenizer->decode(got), text) << GetParam();
    }
  }
  EXPECT_EQ(pairs, 46);
}

TEST(Tokenizer, GoldenTextsGiveEqualIds) {
  const auto& texts = golden().find("texts")->array();
  for (const auto& [file, want] : golden().find("vocab")->object()) {
    const auto tokenizer = vocabulary(file.substr(11, file.size() - 16));  // ggml-vocab-NAME.gguf
    if (!tokenizer) GTEST_SKIP() << test::no_data("vocab/" + file);
    ASSERT_EQ(texts.size(), want.array().size());
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(tokenizer->encode(texts[i].string()), ids_of(want.array()[i]))
          << file << ": " << texts[i].string();
  }
}

// Written as GGUF metadata and as tokenizer.json, and read again: the same ids.
TEST_P(Vocabulary, WrittenAndReadAgainGivesEqualIds) {
  const auto tokenizer = vocabulary(GetParam());
  if (!tokenizer) GTEST_SKIP() << test::no_data(GetParam());
  const test::TempFolder folder;
  const std::string path = folder / "vocab.gguf";
  auto metadata = tokenizer_metadata(*tokenizer, tokenizer->size() + 3);
  // Phi-3's tokens swallow spaces, which only the name tells
  metadata.emplace_back("general.name", GgufValue::text(GetParam()));
  write_gguf(path, metadata, {}, true);
  const TokenizerFiles files = tokenizer_files(*tokenizer, "{{ messages }}");
  const auto from_gguf = tokenizer_from_gguf(GgufFile::open(path));
  const auto from_json = tokenizer_from_json(files.tokenizer_json, files.tokenizer_config_json, "written");
  EXPECT_EQ(from_gguf->size(), tokenizer->size() + 3);
  EXPECT_EQ(from_gguf->role(static_cast<std::int32_t>(tokenizer->size())), Tokenizer::Role::unused);
  for (const auto& again : {from_gguf, from_json}) {
    for (const Json& text : golden().find("texts")->array()) {
      EXPECT_EQ(again->encode(text.string()), tokenizer->encode(text.string())) << text.string();
      EXPECT_EQ(again->frame(again->encode(text.string(), true)),
                tokenizer->frame(tokenizer->encode(text.string(), true)))
          << text.string();
    }
    EXPECT_EQ(again->bos, tokenizer->bos);
    EXPECT_EQ(again->eos, tokenizer->eos);
    EXPECT_EQ(again->unk, tokenizer->unk);
    EXPECT_EQ(again->stops, tokenizer->stops);
  }
}

// No text of a user becomes a control token, whole or in parts; trusted text does, also where it meets
// the user's.
TEST_P(Vocabulary, UserTextNeverBecomesControl) {
  const auto tokenizer = vocabulary(GetParam());
  if (!tokenizer) GTEST_SKIP() << test::no_data(GetParam());
  int controls = 0;
  for (std::int32_t id = 0; id < tokenizer->size(); ++id) {
    if (tokenizer->role(id) != Tokenizer::Role::control) continue;
    ++controls;
    const std::string& text = tokenizer->text_of(id);
    for (const std::int32_t got : tokenizer->encode("x " + text + text))
      EXPECT_NE(tokenizer->role(got), Tokenizer::Role::control) << text;
    EXPECT_EQ(tokenizer->encode(text, true), TokenIds{id}) << text;
    const std::size_t half = text.size() / 2;
    const TextPiece split[] = {{std::string_view(text).substr(0, half), true},
                               {std::string_view(text).substr(half), false}};
    for (const std::int32_t got : tokenizer->encode(split)) EXPECT_NE(got, id) << text;
    const TextPiece both[] = {{std::string_view(text).substr(0, half), true},
                              {std::string_view(text).substr(half), true}};
    EXPECT_EQ(tokenizer->encode(both), TokenIds{id});
  }
  EXPECT_GT(controls, 0);
}

TEST_P(Vocabulary, StreamHandsOutWholeCharacters) {
  const auto tokenizer = vocabulary(GetParam());
  if (!tokenizer) GTEST_SKIP() << test::no_data(GetParam());
  for (const Json& text : golden().find("texts")->array()) {
    const TokenIds ids = tokenizer->encode(text.string());
    TextStream stream(*tokenizer);
    std::string all;
    for (const std::int32_t id : ids) {
      const std::string part = stream.push(id);
      EXPECT_TRUE(valid_utf8(part));
      all += part;
    }
    all += stream.finish();
    if (tokenizer->kind != Tokenizer::Kind::wordpiece) {
      EXPECT_EQ(all, tokenizer->decode(ids)) << text.string();
    }
  }
}

TEST(Tokenizer, SmallOnesGiveTheIdsOfTheirOriginals) {
  const auto& texts = golden().find("texts")->array();
  for (const Json& small : golden().find("small")->array()) {
    const std::string& name = small.find("name")->string();
    SCOPED_TRACE(name);
    std::string blob = small.find("model") ? base64(small.find("model")->string()) : "";
    const auto tokenizer = small.find("json") ? tokenizer_from_json(small.find("json")->string(), "", name)
                                              : tokenizer_from_sentencepiece(bytes(blob), name);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(tokenizer->encode(texts[i].string()), ids_of(small.find("ids")->array()[i]))
          << texts[i].string();
    }
    if (const Json* framed = small.find("framed")) {
      EXPECT_EQ(tokenizer->frame(tokenizer->encode(texts[3].string())), ids_of(*framed));
    }
    if (!small.find("json")) continue;
    const TokenizerFiles files = tokenizer_files(*tokenizer);
    EXPECT_EQ(files.tokenizer_json, small.find("json")->string());  // what was read comes back as it was
  }
}

constexpr const char* kTiny =
    R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4,"<0xC3>":5,"<0xA9>":6,"<u>":7},"merges":["a b",["ab","c"]],
  "unk_token":"<u>","fuse_unk":true,"byte_fallback":true},"added_tokens":[{"id":8,"content":"<|x|>","special":true},{"id":9,"content":"cab"}]})";

TEST(Tokenizer, MergesByRankWithByteFallbackAndUnknown) {
  const auto t = tokenizer_from_json(kTiny, R"({"eos_token":"<|x|>"})", "tiny");
  EXPECT_EQ(t->encode("abcbab"), (TokenIds{4, 1, 3}));
  EXPECT_EQ(t->encode("aabbcc"), (TokenIds{0, 3, 1, 2, 2}));
  EXPECT_EQ(t->encode("\u00e9"), (TokenIds{5, 6}));
  EXPECT_EQ(t->encode("xyab"), (TokenIds{7, 3}));  // unknown neighbours are one
  // An added token that is not special is found in any text.
  EXPECT_EQ(t->encode("bcaba"), (TokenIds{1, 9, 0}));
  EXPECT_EQ(t->encode("a<|x|>b", true), (TokenIds{0, 8, 1}));
  EXPECT_EQ(t->stops, TokenIds{8});
  EXPECT_EQ(t->decode(TokenIds{4, 8, 5, 6}), "abc\u00e9");
  EXPECT_EQ(t->decode(TokenIds{4, 8, 5, 6}, true), "abc<|x|>\u00e9");
  EXPECT_EQ(t->decode(TokenIds{5}), "\xC3");
  EXPECT_EQ(t->decode(TokenIds{0, 10}), "a");  // an id without a token has no text
  EXPECT_THROW(t->bytes_of(-1), Error);
  EXPECT_EQ(t->id_of("ab"), 3);
  EXPECT_EQ(t->id_of("nothing"), std::nullopt);
}

TEST(Tokenizer, StreamWaitsForTheRestOfACharacter) {
  const auto t = tokenizer_from_json(kTiny, "", "tiny");
  TextStream stream(*t);
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.push(6), "\u00e9");
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.push(0), "\uFFFDa");  // the rest can no longer come
  EXPECT_EQ(stream.push(6), "\uFFFD");
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Tokenizer, FlagsOfAddedTokens) {
  const auto t =
      tokenizer_from_json(R"({"model":{"type":"BPE","vocab":{" ":0,"a":1,"b":2},"merges":[]},"added_tokens":[
    {"id":3,"content":"<l>","lstrip":true},{"id":4,"content":"<r>","rstrip":true},{"id":5,"content":"ab","single_word":true},{"id":6,"content":"<l><r>"}]})",
                          "", "flags");
  EXPECT_EQ(t->encode("a  <l> a"), (TokenIds{1, 3, 0, 1}));
  EXPECT_EQ(t->encode("a <r>\n\t a"), (TokenIds{1, 0, 4, 1}));
  EXPECT_EQ(t->encode("ab aab ab"), (TokenIds{5, 0, 1, 1, 2, 0, 5}));
  EXPECT_EQ(t->encode("<l><r>"), TokenIds{6});  // the longest of those that begin there
}

TEST(Tokenizer, WordPieceKeepsToTheRules) {
  const auto t = tokenizer_from_vocab_txt(
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\nrun\n##ning\n!\n\u6f22\ne\n",
      Json(Json::Object{}), "vocab.txt");
  EXPECT_EQ(t->encode("Unaffable RUNNING!"), (TokenIds{5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(t->encode("unaffables run"), (TokenIds{1, 8}));          // all of a word or nothing
  // Chinese stands alone, VT goes without a trace
  EXPECT_EQ(t->encode("run\u6f22\u00e9\x0brun"), (TokenIds{8, 11, 1}));
  EXPECT_EQ(t->frame(t->encode("run")), (TokenIds{2, 8, 3}));
  EXPECT_EQ(t->encode(std::string(101, 'e')), TokenIds{1});
  EXPECT_EQ(t->decode(TokenIds{5, 6, 7, 8, 9, 10}), "unaffable running!");
}

TEST(Tokenizer, OldFilesOfAFolder) {
  const std::string vocab = R"({"a":0,"b":1,"ab":2,"\u0120":3,"\u0120ab":4,"<|endoftext|>":5})",
                    merges = "#version: 0.2\na b\n\u0120 ab\n";
  const auto t = tokenizer_from_bpe_files(vocab, merges, Json(Json::Object{}), "folder");
  EXPECT_EQ(t->encode("ab ab"), (TokenIds{2, 4}));
  EXPECT_EQ(t->eos, 5);
  EXPECT_EQ(t->decode(TokenIds{2, 4}), "ab ab");
  EXPECT_EQ(t->encode("<|endoftext|>", true), TokenIds{5});
}

TEST(Tokenizer, Llama2cStories) {
  const auto file = test::data_file("models/tok512.bin");
  if (!file) GTEST_SKIP() << test::no_data("models/tok512.bin");
  const std::string blob = slurp(*file);
  const auto t = tokenizer_from_llama2c(bytes(blob), 512, "tok512.bin");
  const TokenIds ids = t->encode("Once upon a time, there was a little girl named Lily.");
  EXPECT_EQ(t->frame(ids)[0], 1);
  EXPECT_LT(ids.size(), 30u);
  EXPECT_EQ(t->decode(ids), "Once upon a time, there was a little girl named Lily.");
}

TEST(Tokenizer, UnknownPreTokenizerNamesTheKnown) {
  try {
    TokenizerSpec spec;
    spec.where = "model.gguf";
    apply_pre(spec, "klingon");
    FAIL();
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("klingon"), std::string::npos);
    EXPECT_NE(what.find("llama-bpe"), std::string::npos);
    EXPECT_NE(what.find("smollm"), std::string::npos);
  }
}

TEST(Unicode, NormalForms) {
  using unicode::Form;
  EXPECT_EQ(unicode::normalize("e\u0301", Form::nfc), "\u00e9");
  EXPECT_EQ(unicode::normalize("\u00e9", Form::nfd), "e\u0301");
  EXPECT_EQ(unicode::normalize("\u1ed9", Form::nfd), "o\u0323\u0302");
  EXPECT_EQ(unicode::normalize("o\u0302\u0323", Form::nfc), "\u1ed9");  // marks change places first
  EXPECT_EQ(unicode::normalize("\ufb01\u2460\uff21", Form::nfkc), "fi1A");
  EXPECT_EQ(unicode::normalize("\ud55c", Form::nfd), "\u1112\u1161\u11ab");
  EXPECT_EQ(unicode::normalize("\u1112\u1161\u11ab", Form::nfc), "\ud55c");
  EXPECT_EQ(unicode::normalize("\u212b", Form::nfc), "\u00c5");
  EXPECT_EQ(unicode::normalize("\u0958", Form::nfc), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(unicode::normalize("a\xff", Form::nfc), "a\uFFFD");
}

// For tests/golden/compare_tokenizers.py: encodes documents (length u32, bytes) and writes ids (count u32,
// came back u32, ids).
TEST(TokenizerBatch, Documents) {
  const char *tokenizer_path = std::getenv("RAPT_BATCH_TOKENIZER"),
             *documents = std::getenv("RAPT_BATCH_DOCUMENTS"), *ids_path = std::getenv("RAPT_BATCH_IDS");
  if (!tokenizer_path || !documents || !ids_path)
    GTEST_SKIP() << "only for compare_tokenizers.py (RAPT_BATCH_TOKENIZER is not set)";
  const auto tokenizer = open_tokenizer(tokenizer_path);
  const std::string all = slurp(documents);
  std::ofstream out(ids_path, std::ios::binary);
  for (std::size_t at = 0; at + 4 <= all.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, all.data() + at, 4);
    ASSERT_LE(size, all.size() - at - 4);
    const std::string_view text(all.data() + at + 4, size);
    const auto ids = tokenizer->encode(text);
    const std::uint32_t head[2] = {static_cast<std::uint32_t>(ids.size()),
                                   tokenizer->decode(ids) == text ? 1u : 0u};
    out.write(reinterpret_cast<const char*>(head), sizeof head);
    out.write(reinterpret_cast<const char*>(ids.data()),
              static_cast<std::streamsize>(ids.size() * sizeof ids[0]));
    at += 4 + size;
  }
  ASSERT_TRUE(out.good());
}

}  // namespace
}  // namespace rapt
