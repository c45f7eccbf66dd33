// SPDX-License-Identifier: Apache-2.0
// Tokenizer files that lie: each ends in rapt::Error with words that help, or loads and then works. Nothing
// here may crash, hang or take memory that the file does not pay for.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "rapt/base/unicode.h"
#include "rapt/io/gguf.h"
#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/from_files.h"
#include "tests/build_kind.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::error_of;
using test::kSanitized;
using TokenIds = std::vector<std::int32_t>;

std::span<const std::byte> bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// ---- files made here -------------------------------------------------------------------------------------
std::string tokenizer_json(const std::string& model, const std::string& more = "") {
  return "{\"model\":" + model + (more.empty() ? "" : "," + more) + "}";
}
const std::string kBpe = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";
const std::string kUnigram = R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1.5],["b",-2]]})";
const std::string kWords = R"({"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"a":1,"##b":2}})";

std::string varint(std::uint64_t v) {
  std::string out;
  for (; v >= 128; v >>= 7) out += static_cast<char>(v | 128);
  return out + static_cast<char>(v);
}
std::string field(int number, const std::string& value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(value.size()) + value;
}
std::string field(int number, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
}
std::string field(int number, float value) {
  std::string out = varint(static_cast<std::uint64_t>(number) << 3 | 5);
  out.append(reinterpret_cast<const char*>(&value), 4);
  return out;
}
std::string piece(const std::string& text, float score, std::uint64_t type = 1) {
  return field(1, field(1, text) + field(2, score) + (type == 1 ? "" : field(3, type)));
}
std::string sp_model(std::uint64_t type, const std::string& more = "", const std::string& normal = "") {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("\u2581", -1) +
         piece("a", -2) + piece("b", -3) + piece("ab", -1.5f) + piece("\u2581a", -4, 4) + more +
         field(2, field(3, type)) + field(3, normal.empty() ? field(3, std::uint64_t{1}) : normal);
}
std::string charsmap() {  // "b" → "ab": node of the root at 98, its leaf at 99
  std::vector<std::uint32_t> trie(128, 0);
  trie[0] = 0;                                  // offset 0
  trie['b'] = 'b' | 1u << 8 | (1u << 10);       // label b, has a leaf, which lies at 'b' ^ 1
  trie['b' ^ 1] = 1u << 31 | 0;                 // place 0 of the replacements
  std::string out;
  const std::uint32_t size = static_cast<std::uint32_t>(trie.size() * 4);
  out.append(reinterpret_cast<const char*>(&size), 4);
  out.append(reinterpret_cast<const char*>(trie.data()), size);
  return out + std::string("ab\0", 3);
}

std::string llama2c() {
  std::string out;
  const std::int32_t longest = 4;
  out.append(reinterpret_cast<const char*>(&longest), 4);
  for (const std::string& t : {std::string("<unk"), std::string("\n<s>"), std::string("</s>"),
                               std::string(" a"), std::string("a"), std::string("b")}) {
    const float score = -1;
    const auto length = static_cast<std::int32_t>(t.size());
    out.append(reinterpret_cast<const char*>(&score), 4);
    out.append(reinterpret_cast<const char*>(&length), 4);
    out += t;
  }
  return out;
}

// GGUF of metadata only.
class Gguf {
 public:
  template <class T>
  Gguf& raw(T v) {
    out_.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  Gguf& text(const std::string& s) {
    raw(std::uint64_t{s.size()});
    out_ += s;
    return *this;
  }
  Gguf& key(const std::string& k, std::uint32_t type) {
    ++count_;
    return text("tokenizer.ggml." + k).raw(type);
  }
  Gguf& set(const std::string& k, const std::string& v) { return key(k, 8).text(v); }
  Gguf& set(const std::string& k, std::uint32_t v) { return key(k, 4).raw(v); }
  Gguf& set(const std::string& k, const std::vector<std::string>& v) {
    key(k, 9).raw(std::uint32_t{8}).raw(std::uint64_t{v.size()});
    for (const auto& s : v) text(s);
    return *this;
  }
  template <class T>
  Gguf& list(const std::string& k, std::uint32_t type, const std::vector<T>& v) {
    key(k, 9).raw(type).raw(std::uint64_t{v.size()});
    for (const T x : v) raw(x);
    return *this;
  }
  std::string bytes() const {
    std::string head = "GGUF";
    const std::uint32_t version = 3;
    const std::uint64_t tensors = 0;
    head.append(reinterpret_cast<const char*>(&version), 4);
    head.append(reinterpret_cast<const char*>(&tensors), 8);
    head.append(reinterpret_cast<const char*>(&count_), 8);
    return head + out_;
  }

 private:
  std::string out_;
  std::uint64_t count_ = 0;
};
const std::vector<std::string> kTokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b"};
const std::vector<float> kScores = {0, 0, 0, -1, -2, -3};
const std::vector<std::int32_t> kTypes = {2, 3, 3, 1, 1, 1};
Gguf gguf_llama() {
  return Gguf()
      .set("model", "llama")
      .set("tokens", kTokens)
      .list("scores", 6, kScores)
      .list("token_type", 5, kTypes);
}
Gguf gguf_bpe(const std::string& pre = "gpt-2") {
  return Gguf().set("model", "gpt2").set("pre", pre).set("tokens", std::vector<std::string>{"a", "b", "ab"});
}

void use(const Tokenizer& t) {
  for (const std::string_view text :
       {std::string_view("ab \u00e9<s>\xff\0b", 11), std::string_view(""), std::string_view("  a\n\n")}) {
    for (const bool special : {false, true}) {
      const TokenIds ids = t.encode(text, special);
      for (const std::int32_t id : ids) {
        ASSERT_GE(id, 0);
        ASSERT_LT(id, t.size());
      }
      t.decode(t.frame(ids), special);
      TextStream stream(t, special);
      for (const std::int32_t id : ids) ASSERT_TRUE(valid_utf8(stream.push(id)));
      ASSERT_TRUE(valid_utf8(stream.finish()));
    }
  }
  for (const std::int32_t id : t.stops) ASSERT_LT(id, t.size());
}

using Load = std::shared_ptr<const Tokenizer> (*)(const std::string&);
std::shared_ptr<const Tokenizer> load_json(const std::string& s) {
  return tokenizer_from_json(s, "", "t.json");
}
std::shared_ptr<const Tokenizer> load_model(const std::string& s) {
  return tokenizer_from_sentencepiece(bytes(s), "t.model");
}
std::shared_ptr<const Tokenizer> load_bin(const std::string& s) {
  return tokenizer_from_llama2c(bytes(s), 6, "t.bin");
}
std::shared_ptr<const Tokenizer> load_gguf(const std::string& s) {
  return tokenizer_from_gguf(GgufFile::parse(bytes(s), "t.gguf"));
}
std::shared_ptr<const Tokenizer> load_vocab(const std::string& s) {
  return tokenizer_from_vocab_txt(s, Json(Json::Object{}), "vocab.txt");
}
std::shared_ptr<const Tokenizer> load_pair(const std::string& s) {  // vocab.json, a zero byte, merges.txt
  const std::size_t cut = std::min(s.find('\0'), s.size());
  return tokenizer_from_bpe_files(s.substr(0, cut), cut < s.size() ? s.substr(cut + 1) : "",
                                  Json(Json::Object{}), "folder");
}

struct Case {
  const char* name;
  Load load;
  std::string content;
  std::vector<std::string> words;  // all of them in the message
};

std::vector<Case> json_cases() {
  const auto model = [](const std::string& m, std::vector<std::string> words) {
    return Case{"model", load_json, tokenizer_json(m), std::move(words)};
  };
  const auto part = [](const std::string& p, std::vector<std::string> words) {
    return Case{"part", load_json, tokenizer_json(kBpe, p), std::move(words)};
  };
  return {
      {"empty", load_json, "", {"t.json"}},
      {"no json", load_json, "hello", {"t.json:1:1"}},
      {"an array", load_json, "[]", {"object"}},
      {"no model", load_json, "{}", {"'model' is missing"}},
      {"cut", load_json, R"({"model":{"type":"BPE","vocab":{"a":0)", {"t.json:1:"}},
      {"twice", load_json, R"({"model":1,"model":2})", {"model"}},
      {"deep", load_json, std::string(5000, '['), {"t.json"}},
      {"unknown member",
       load_json,
       tokenizer_json(kBpe, R"("postprocessor":null)"),
       {"postprocessor", "post_processor"}},
      model("7", {"model is a number"}),
      model("{}", {"model type ''"}),
      model(R"({"type":"WordLevel","vocab":{}})", {"WordLevel", "BPE, Unigram and WordPiece"}),
      model(R"({"type":5})", {"'type' is a number"}),
      model(R"({"type":"BPE","merges":[]})", {"'vocab' is missing"}),
      model(R"({"type":"BPE","vocab":[],"merges":[]})", {"model.vocab is a list"}),
      model(R"({"type":"BPE","vocab":{},"merges":[]})", {"t.json"}),
      model(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})", {"'a'", "out of range"}),
      model(R"({"type":"BPE","vocab":{"a":"0"},"merges":[]})", {"'a'", "a string"}),
      model(R"({"type":"BPE","vocab":{"a":0.5},"merges":[]})", {"'a'", "out of range"}),
      model(R"({"type":"BPE","vocab":{"a":2147483647},"merges":[]})",
            {"2147483647", "ids must nearly count"}),
      model(R"({"type":"BPE","vocab":{"a":1e30},"merges":[]})", {"out of range"}),
      model(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})", {"same id 0"}),
      model(R"({"type":"BPE","vocab":{"a":0}})", {"'merges' is missing"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":{}})", {"model.merges is an object"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":["aa"]})", {"left right"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":[" a"]})", {"left right"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":["a "]})", {"left right"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":[["a"]]})", {"neither two texts"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":[["a",1]]})", {"neither two texts"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":["a c"]})", {"merge 0", "'c' is no token"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":["a a"]})", {"'aa' is no token"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1})", {"dropout", "random"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":[],"end_of_word_suffix":"</w>"})",
            {"end_of_word_suffix", "BPE of bytes"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":[],"continuing_subword_prefix":"##"})",
            {"continuing_subword_prefix"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"<u>"})",
            {"unk_token '<u>'", "not in the vocabulary"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":[],"byte_fallback":"yes"})",
            {"byte_fallback", "not true or false"}),
      model(R"({"type":"BPE","vocab":{"a":0},"merges":[],"cache":3})", {"'cache'", "may change ids"}),
      model(R"({"type":"Unigram","vocab":[["a",0]]})", {"unk_id"}),
      model(R"({"type":"Unigram","unk_id":null,"vocab":[["a",0]]})", {"unk_id"}),
      model(R"({"type":"Unigram","unk_id":1,"vocab":[["a",0]]})", {"'unk_id'", "0 to 0"}),
      model(R"({"type":"Unigram","unk_id":-1,"vocab":[["a",0]]})", {"'unk_id'"}),
      model(R"({"type":"Unigram","unk_id":0,"vocab":[]})", {"unk_id"}),
      model(R"({"type":"Unigram","unk_id":0,"vocab":{"a":0}})", {"not an array of [text, score]"}),
      model(R"({"type":"Unigram","unk_id":0,"vocab":[["a"]]})", {"[text, score]"}),
      model(R"({"type":"Unigram","unk_id":0,"vocab":[[0,"a"]]})", {"[text, score]"}),
      model(R"({"type":"Unigram","unk_id":0,"vocab":[["a",0],["a",1]]})", {"'a' stands there twice"}),
      model(R"({"type":"Unigram","unk_id":0,"vocab":[["a",1e999]]})", {"t.json"}),
      model(R"({"type":"WordPiece","vocab":{"a":0}})", {"unknown token"}),
      model(R"({"type":"WordPiece","vocab":{"a":0},"unk_token":"[UNK]"})",
            {"[UNK]", "not in the vocabulary"}),
      model(R"({"type":"WordPiece","vocab":{"a":0},"unk_token":"a","max_input_chars_per_word":-5})",
            {"max_input_chars_per_word"}),
      part(R"("added_tokens":{})", {"added_tokens is an object"}),
      part(R"("added_tokens":[{"id":3}])", {"'content' is missing"}),
      part(R"("added_tokens":[{"content":"x"}])", {"'id' is missing"}),
      part(R"("added_tokens":[{"content":7,"id":3}])", {"content of an added token is a number"}),
      part(R"("added_tokens":[{"content":"x","id":99999999}])", {"99999999", "ids must nearly count"}),
      part(R"("added_tokens":[{"content":"x","id":-3}])", {"'x'", "out of range"}),
      part(R"("added_tokens":[{"content":"x","id":1}])", {"id 1", "'b'", "'x'"}),
      part(R"("added_tokens":[{"content":"x","id":3,"special":1}])", {"'special' is a number"}),
      {"long added",
       load_json,
       tokenizer_json(kBpe, R"("added_tokens":[{"id":3,"content":")" + std::string(2000, 'x') + "\"}]"),
       {"2000 bytes long"}},
      part(R"("normalizer":5)", {"normalizer is a number"}),
      part(R"("normalizer":{"type":"Nmt"})", {"'Nmt'", "BertNormalizer"}),
      part(R"("normalizer":{})", {"'type' is missing"}),
      part(R"("normalizer":{"type":"Sequence"})", {"'normalizers' is missing"}),
      part(R"("normalizer":{"type":"Sequence","normalizers":7})", {"normalizers is a number"}),
      part(R"("normalizer":{"type":"Replace","pattern":{"Regex":"a+"},"content":""})", {"'a+'", "{2,}"}),
      part(R"("normalizer":{"type":"Replace","pattern":{"String":""},"content":"x"})", {"empty text"}),
      part(R"("normalizer":{"type":"Replace","pattern":"x","content":"y"})", {"neither {\"String\""}),
      part(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"!!!"})", {"base64"}),
      part(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"})", {"charsmap", "trie"}),
      part(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="})",
           {"charsmap", "4294967295"}),
      part(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAA="})", {"zero byte"}),
      part(R"("normalizer":{"type":"BertNormalizer","lower":true})", {"'lower'", "lowercase"}),
      part(R"("pre_tokenizer":{"type":"UnicodeScripts"})", {"'UnicodeScripts'", "ByteLevel"}),
      part(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a|b)+"},"behavior":"Isolated"})",
           {"(a|b)+", "docs/tokenizers.md"}),
      part(R"("pre_tokenizer":{"type":"Split","pattern":{"String":""},"behavior":"Isolated"})",
           {"empty text"}),
      part(R"("pre_tokenizer":{"type":"Split","pattern":{"String":"x"},"behavior":"Sideways"})",
           {"'Sideways'", "MergedWithNext"}),
      part(R"("pre_tokenizer":{"type":"Metaspace","prepend_scheme":"last"})",
           {"'last'", "always, first, never"}),
      part(R"("pre_tokenizer":{"type":"Metaspace","replacement":" "})", {"not a space"}),
      part(
          R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]})",
          {"twice"}),
      part(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[null,4]})", {"a number"}),
      part(R"("post_processor":{"type":"Magic"})", {"'Magic'", "TemplateProcessing"}),
      part(R"("post_processor":{"type":"TemplateProcessing"})", {"'single' is missing"}),
      part(R"("post_processor":{"type":"TemplateProcessing","single":[]})", {"leaves the text out"}),
      part(
          R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"Sequence":{"id":"A"}}]})",
          {"twice"}),
      part(
          R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[X]"}},{"Sequence":{"id":"A"}}]})",
          {"'[X]'", "special_tokens"}),
      part(
          R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[X]"}},{"Sequence":{}}],"special_tokens":{"[X]":{"ids":[77]}}})",
          {"outside the vocabulary of 3"}),
      part(R"("post_processor":{"type":"TemplateProcessing","single":[{"Other":1}]})",
           {"neither Sequence nor SpecialToken"}),
      part(R"("post_processor":{"type":"BertProcessing","sep":["x",9],"cls":["y",0]})", {"sep", "id 9"}),
      part(R"("post_processor":{"type":"BertProcessing","sep":"x","cls":["y",0]})", {"[text, id]"}),
      part(R"("decoder":{"type":"CTC"})", {"'CTC'", "WordPiece"}),
      part(R"("decoder":{"type":"Sequence","decoders":{}})", {"decoders is an object"}),
  };
}

std::vector<Case> other_cases() {
  const auto m = [](const std::string& content, std::vector<std::string> words) {
    return Case{".model", load_model, content, std::move(words)};
  };
  const auto g = [](const Gguf& file, std::vector<std::string> words) {
    return Case{"gguf", load_gguf, file.bytes(), std::move(words)};
  };
  const auto v = [](const std::string& content, std::vector<std::string> words) {
    return Case{"vocab.txt", load_vocab, content, std::move(words)};
  };
  const auto p = [](const std::string& vocab, const std::string& merges, std::vector<std::string> words) {
    return Case{"vocab.json", load_pair, vocab + std::string(1, '\0') + merges, std::move(words)};
  };
  std::string bin_long = llama2c(), bin_negative = llama2c(), bin_twice = llama2c(), bin_nan = llama2c();
  bin_long[8] = 9;
  bin_negative[11] = static_cast<char>(0x80);
  bin_twice[bin_twice.size() - 1] = 'a';
  const float nan = __builtin_nanf("");
  std::memcpy(&bin_nan[4], &nan, 4);
  return {
      m("", {"no pieces"}),
      m("\x0a", {"t.model"}),
      m("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", {"more than"}),
      m("\x0a\xff\xff\xff\xff\x0f", {"t.model"}),
      m(std::string("\x00", 1), {"number 0"}),
      m("\x0b", {"wire type 3"}),
      m(field(1, std::uint64_t{5}), {"a piece has wire type 0"}),
      m(field(1, field(1, std::uint64_t{5})), {"the text has wire type 0"}),
      m(field(1, field(1, "a") + field(2, std::uint64_t{5})), {"the score has wire type 0"}),
      m(field(1, field(1, "a") + field(3, std::uint64_t{9})), {"type 9", "1 to 6"}),
      m(field(1, field(2, 1.0f)), {"piece 0 is empty"}),
      m(piece("a", 0) + piece("a", 1), {"'a' stands there twice"}),
      m(piece("\xff", 0), {"not valid UTF-8"}),
      m(piece("a", 0), {"unknown"}),
      m(sp_model(3), {"model type 3"}),
      m(sp_model(2, piece("c", nan)), {"finite"}),
      m(sp_model(1, piece("c", __builtin_inff())), {"finite"}),
      m(sp_model(2, piece("<0xZZ>", 0, 6)), {"byte piece"}),
      m(sp_model(1, "", field(2, std::string("abc"))), {"charsmap"}),
      m(sp_model(1, "", field(2, std::string("\xff\xff\xff\x7fxxxx", 8))), {"charsmap", "2147483647"}),
      m(sp_model(1) + field(3, std::uint64_t{1}), {"normalizer's part has wire type 0"}),
      {"bin", load_bin, "", {"t.bin"}},
      {"bin", load_bin, llama2c().substr(0, 30), {"t.bin"}},
      {"bin", load_bin, llama2c() + "x", {"1 bytes are left"}},
      {"bin", load_bin, bin_long, {"token 0 is 9 bytes long"}},
      {"bin", load_bin, bin_negative, {"token 0 is -"}},
      {"bin", load_bin, bin_twice, {"twice"}},
      {"bin", load_bin, bin_nan, {"finite"}},
      g(Gguf(), {"tokenizer.ggml.model is missing"}),
      g(Gguf().set("model", "rwkv"), {"'rwkv'", "gpt2, llama, t5 and bert"}),
      g(Gguf().set("model", 5u), {"tokenizer.ggml.model"}),
      g(Gguf().set("model", "llama"), {"tokens", "no vocabulary"}),
      g(Gguf().set("model", "llama").set("tokens", std::vector<std::string>{}), {"no vocabulary"}),
      g(Gguf().set("model", "llama").set("tokens", "x"), {"tokenizer.ggml.tokens"}),
      g(Gguf().set("model", "llama").set("tokens", kTokens), {"scores", "missing"}),
      g(Gguf().set("model", "llama").set("tokens", kTokens).list("scores", 6, std::vector<float>{1, 2}),
        {"scores has 2 entries", "6"}),
      g(Gguf()
            .set("model", "llama")
            .set("tokens", kTokens)
            .list("scores", 6, kScores)
            .list("token_type", 5, std::vector<std::int32_t>{1}),
        {"token_type has 1 entries"}),
      g(Gguf()
            .set("model", "llama")
            .set("tokens", kTokens)
            .list("scores", 6, kScores)
            .list("token_type", 5, std::vector<std::int32_t>{1, 1, 1, 1, 1, 99}),
        {"token_type[5] is 99"}),
      g(Gguf()
            .set("model", "llama")
            .set("tokens", kTokens)
            .list("scores", 6, std::vector<float>{nan, 0, 0, 0, 0, 0}),
        {"t.gguf"}),
      g(Gguf()
            .set("model", "llama")
            .set("tokens", std::vector<std::string>{"a", "a"})
            .list("scores", 6, std::vector<float>{1, 2}),
        {"tokens 0 and 1 are both 'a'"}),
      g(gguf_llama().set("bos_token_id", 6u), {"bos_token_id is 6", "6 tokens"}),
      g(gguf_llama().set("eos_token_id", 4000000000u), {"eos_token_id is 4000000000"}),
      g(gguf_llama().set("unknown_token_id", 77u), {"unknown_token_id is 77"}),
      g(gguf_llama().set("padding_token_id", 77u), {"padding_token_id is 77"}),
      g(gguf_llama().set("eot_token_id", 77u), {"eot_token_id is 77"}),
      g(gguf_llama().set("bos_token_id", "one"), {"bos_token_id"}),
      g(gguf_llama().set("add_bos_token", 1u), {"add_bos_token"}),
      g(gguf_llama().set("add_space_prefix", "no"), {"add_space_prefix"}),
      g(gguf_bpe(), {"merges", "missing"}),
      g(gguf_bpe("").set("merges", std::vector<std::string>{}), {"tokenizer.ggml.pre is missing"}),
      g(gguf_bpe("future-bpe").set("merges", std::vector<std::string>{}),
        {"'future-bpe'", "known:", "llama-bpe"}),
      g(gguf_bpe().set("merges", std::vector<std::string>{"ab"}), {"merges[0] is 'ab'"}),
      g(gguf_bpe().set("merges", std::vector<std::string>{""}), {"merges[0]"}),
      g(gguf_bpe().set("merges", std::vector<std::string>{"a "}), {"merges[0]"}),
      g(gguf_bpe().set("merges", std::vector<std::string>{"a c"}), {"'c' is no token"}),
      g(gguf_bpe().list("merges", 4, std::vector<std::uint32_t>{1}), {"tokenizer.ggml.merges"}),
      g(Gguf().set("model", "bert").set("tokens", kTokens), {"framed"}),
      g(Gguf()
            .set("model", "bert")
            .set("tokens", kTokens)
            .set("cls_token_id", 1u)
            .set("seperator_token_id", 2u),
        {"unknown token"}),
      g(Gguf()
            .set("model", "t5")
            .set("tokens", std::vector<std::string>{"a"})
            .list("scores", 6, std::vector<float>{1}),
        {"unknown token"}),
      g(Gguf()
            .set("model", "t5")
            .set("tokens", kTokens)
            .list("scores", 6, kScores)
            .list("precompiled_charsmap", 0, std::vector<std::uint8_t>{1, 2}),
        {"charsmap"}),
      g(Gguf()
            .set("model", "t5")
            .set("tokens", kTokens)
            .list("scores", 6, kScores)
            .list("precompiled_charsmap", 4, std::vector<std::uint32_t>{300}),
        {"no byte"}),
      v("", {"CLS"}),
      v("[CLS]\n[SEP]\n", {"unknown token"}),
      v("[UNK]\na\n", {"[CLS]"}),
      v("[CLS]\n[SEP]\n[UNK]\n\xff\n", {"UTF-8"}),
      p("", "", {"folder"}),
      p("[]", "", {"not an object"}),
      p("{}", "", {"not an object of tokens"}),
      p(R"({"a":-1})", "", {"'a'"}),
      p(R"({"a":123456789})", "", {"far too large"}),
      p(R"({"a":0,"b":0})", "", {"same id 0"}),
      p(R"({"a":0})", "a\n", {"line 1"}),
      p(R"({"a":0})", "#version: 0.2\na b c\n", {"line 2"}),
      p(R"({"a":0})", "a b\n", {"'b' is no token"}),
      {"marian",
       [](const std::string& s) {
         return tokenizer_from_marian(bytes(s), R"({"<unk>":0})", Json(Json::Object{}), "marian");
       },
       sp_model(2),
       {"no Unigram"}},
      {"marian",
       [](const std::string& s) {
         return tokenizer_from_marian(bytes(s), R"({"a":0})", Json(Json::Object{}), "marian");
       },
       sp_model(1),
       {"no <unk>"}},
      {"marian",
       [](const std::string& s) {
         return tokenizer_from_marian(bytes(s), "3", Json(Json::Object{}), "marian");
       },
       sp_model(1),
       {"not an object"}},
      {"nothing",
       [](const std::string& s) { return open_tokenizer(s); },
       "/nonexistent/tokenizer",
       {"no such file"}},
  };
}

TEST(HostileTokenizer, EveryLieEndsInTheRightError) {
  auto cases = json_cases();
  for (Case& c : other_cases()) cases.push_back(std::move(c));
  EXPECT_GE(cases.size(), 160u);
  for (const Case& c : cases) {
    const std::string what = error_of([&] { c.load(c.content); });
    for (const std::string& word : c.words)
      EXPECT_NE(what.find(word), std::string::npos)
          << c.name << ": " << c.content.substr(0, 200) << "\n  wants '" << word << "' in: " << what;
  }
}

struct Valid {
  const char* name;
  Load load;
  std::string content;
};
std::vector<Valid> valid_files() {
  std::string map_model = sp_model(1, "", field(2, charsmap()) + field(3, std::uint64_t{1}));
  return {
      {"json BPE", load_json,
       tokenizer_json(
           kBpe,
           R"("added_tokens":[{"id":3,"content":"<s>","special":true}],"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"ByteLevel"},)"
           R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[3]}}})")},
      {"json Unigram", load_json,
       tokenizer_json(
           kUnigram,
           R"("pre_tokenizer":{"type":"Metaspace","prepend_scheme":"first"},"decoder":{"type":"Metaspace"})")},
      {"json WordPiece", load_json,
       tokenizer_json(
           kWords, R"("normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"})")},
      {".model bpe", load_model, sp_model(2)},
      {".model unigram", load_model, map_model},
      {"bin", load_bin, llama2c()},
      {"gguf llama", load_gguf, gguf_llama().bytes()},
      {"gguf bpe", load_gguf,
       gguf_bpe("llama-bpe").set("merges", std::vector<std::string>{"a b"}).set("eos_token_id", 2u).bytes()},
      {"vocab.txt", load_vocab, "[CLS]\n[SEP]\n[UNK]\na\n##b\n"},
      {"vocab.json", load_pair,
       std::string(R"({"a":0,"b":1,"ab":2})") + std::string(1, '\0') + "#version: 0.2\na b\n"},
  };
}

TEST(HostileTokenizer, TheValidFilesWork) {
  for (const Valid& v : valid_files()) {
    SCOPED_TRACE(v.name);
    const auto t = v.load(v.content);
    use(*t);
    EXPECT_FALSE(t->encode("a").empty());
  }
  // The map turns b into ab.
  EXPECT_EQ(load_model(sp_model(1, "", field(2, charsmap()) + field(3, std::uint64_t{0})))->encode("b"),
            TokenIds{6});
}

TEST(HostileTokenizer, EveryTruncation) {
  for (const Valid& v : valid_files()) {
    for (std::size_t n = 0; n < v.content.size(); ++n) {
      try {
        use(*v.load(v.content.substr(0, n)));
      } catch (const Error&) {}
    }
  }
}

TEST(HostileTokenizer, EveryByteChanged) {
  for (const Valid& v : valid_files()) {
    for (std::size_t n = 0; n < v.content.size(); ++n) {
      const int was = static_cast<std::uint8_t>(v.content[n]);
      for (const int with : {0x00, 0xFF, 0x80, 0x01, 0x22, was ^ 1, was ^ 0x40}) {
        std::string changed = v.content;
        changed[n] = static_cast<char>(with);
        try {
          use(*v.load(changed));
        } catch (const Error&) {}
      }
    }
  }
}

// Not a timing test: what is quadratic would take hours here.
TEST(HostileTokenizer, AMebibyteOfOneByte) {
  std::vector<std::shared_ptr<const Tokenizer>> all;
  for (const Valid& v : valid_files()) all.push_back(v.load(v.content));
  for (const char* pre : {"llama-bpe", "qwen2", "smollm", "deepseek-llm", "deepseek-v3", "gpt-4o", "tekken",
                          "falcon", "bloom", "default"}) {
    std::vector<std::string> tokens = {"a", "aa", "\u0120", "\u0120\u0120"};
    all.push_back(load_gguf(Gguf()
                                .set("model", "gpt2")
                                .set("pre", pre)
                                .set("tokens", tokens)
                                .set("merges", std::vector<std::string>{"a a", "\u0120 \u0120"})
                                .bytes()));
  }
  std::string runs = piece("<unk>", 0, 2);  // "a" … "aaaaaaaa": merges all the way up
  for (std::size_t n = 1; n <= 64; ++n) runs += piece(std::string(n, 'a'), -static_cast<float>(n));
  all.push_back(load_model(runs + field(2, field(3, std::uint64_t{2}))));
  all.push_back(load_model(runs + field(2, field(3, std::uint64_t{1}))));
  all.push_back(load_json(tokenizer_json(
      kUnigram,
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"StripAccents"},{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "}]})")));
  const std::size_t kSize = kSanitized ? 1 << 16 : 1 << 20;
  for (const auto& t : all) {
    for (const char c : {'a', ' ', '\n', '\'', '0', '\xCC', '\x80', '\0', '!'}) {
      const std::size_t size = c == 'a' || c == ' ' ? kSize : kSize / 8;
      const TokenIds ids = t->encode(std::string(size, c), true);
      EXPECT_LE(ids.size(), 3 * size + 8);  // a byte that is no text becomes U+FFFD, three bytes
    }
  }
  std::string marks = "a";  // one character with half a million marks
  while (marks.size() < kSize / 2) marks += "\u0301\u0323";
  for (const auto& t : all) t->encode(marks, true);
}

// Found by fuzzing: a control token that a file also spells as a plain piece, or that merges could make.
TEST(HostileTokenizer, NoFileMakesControlTokensOfText) {
  const auto marian =
      tokenizer_from_marian(bytes(sp_model(1, piece("<pad>", -0.5f))), R"({"<unk>":0,"<pad>":1,"a":2})",
                            Json(Json::Object{{"pad_token", "<pad>"}}), "marian");
  ASSERT_EQ(marian->role(1), Tokenizer::Role::control);
  for (const std::int32_t id : marian->encode("a<pad>")) EXPECT_NE(id, 1);
  const auto merged =
      load_json(tokenizer_json(R"({"type":"BPE","vocab":{"<":0,"s":1,"<s":2},"merges":["< s"]})",
                               R"("added_tokens":[{"id":2,"content":"<s","special":true}])"));
  EXPECT_EQ(merged->encode("<s"), (TokenIds{0, 1}));
  EXPECT_EQ(merged->encode("<s", true), TokenIds{2});
}

// Steps and tokens that a file chooses so that a text costs much more than its bytes. No timing: what is
// refused here would take from seconds to years, and what is accepted has to end.
TEST(HostileTokenizer, NoFileMakesATextExpensive) {
  const std::string a2k(2'000, 'a'), many(20'000, 'a');
  const auto normal = [](const std::string& steps) {
    return R"("normalizer":{"type":"Sequence","normalizers":[)" + steps + "]}";
  };
  const auto times = [](const std::string& step, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += (i ? "," : "") + step;
    return out;
  };
  const auto error = [](const std::string& json, const std::string& text, bool special = false) {
    return error_of([&] { load_json(json)->encode(text, special); });
  };
  const std::string twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  const std::string grown = "make more than", often = "read over 32 times",
                    walked = "read more than 256 times";
  const auto expect = [](const std::string& got, const std::string& words, int line = __builtin_LINE()) {
    EXPECT_NE(got.find(words), std::string::npos) << "line " << line << ": " << got.substr(0, 300);
  };
  expect(error(tokenizer_json(kBpe, normal(times(twice, 28))), "a"), grown);
  // Three are fine.
  EXPECT_EQ(load_json(tokenizer_json(kBpe, normal(times(twice, 3))))->encode("a").size(), 8u);
  expect(error(tokenizer_json(kBpe, normal(times(R"({"type":"NFC"})", 500))), std::string(50'000, '\xCC')),
         often);
  const std::string squeeze =
      R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":")" + std::string(9000, 'b') + "\"}";
  expect(error(tokenizer_json(kBpe, normal(squeeze)), times("  a", 2000)), grown);
  const std::string mark =
      R"("pre_tokenizer":{"type":"Metaspace","replacement":")" + std::string(9000, 'b') + "\"}";
  expect(error(tokenizer_json(kBpe, mark), std::string(2000, ' ')), grown);
  expect(error(tokenizer_json(kBpe, R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
                                        times(R"({"type":"Digits","individual_digits":true})", 300) + "]}"),
               std::string(50'000, '1')),
         often);

  const std::string unigram = R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1.5],["b",-2],[")";
  expect(error(tokenizer_json(unigram + a2k + "b\",-1]]}"), many), walked);
  const auto shorter = load_json(tokenizer_json(unigram + std::string(250, 'a') + "b\",-1]]}"));
  EXPECT_EQ(shorter->encode(many).size(), many.size());
  EXPECT_EQ(shorter->encode(std::string(250, 'a') + "b"), TokenIds{3});
  const std::string words =
      R"({"type":"WordPiece","unk_token":"u","max_input_chars_per_word":100000,"vocab":{"u":0,"a":1,"##a":2,"##)";
  expect(error(tokenizer_json(words + a2k + "b\":3}}"), many), walked);
  const std::string added =
      R"("added_tokens":[{"id":3,"content":")" + std::string(1000, 'a') + R"(b","special":true}])";
  expect(error(tokenizer_json(kBpe, added), many, true), walked);
  const auto found = load_json(tokenizer_json(kBpe, added))->encode(std::string(1000, 'a') + "b", true);
  EXPECT_EQ(found, TokenIds{3});
  expect(error_of([&] {
           load_json(tokenizer_json(
               kBpe, normal(squeeze) + R"(,"added_tokens":[{"id":3,"content":"a  b","normalized":true}])"));
         }),
         grown);

  // A charsmap whose trie leads in a circle: every 'a' goes on to the next 'a'.
  std::string blob(4 + 4 * 512, '\0');
  const auto unit = [&](std::size_t i, std::uint32_t value) {
    std::memcpy(blob.data() + 4 + 4 * i, &value, 4);
  };
  const std::uint32_t trie_bytes = 4 * 512;
  std::memcpy(blob.data(), &trie_bytes, 4);
  unit(0, 256u << 10);
  unit(256 ^ 'a', std::uint32_t{'a'} << 10 | 'a');
  blob += std::string("x\0", 2);
  const auto circle = load_model(sp_model(2, "", field(2, blob) + field(3, std::uint64_t{1})));
  EXPECT_GE(circle->encode(many).size(), 1u);
  // One whose replacement has 9 KB.
  unit(256 ^ 'a', 1u << 8 | std::uint32_t{'a'} << 10 | 'a');
  unit(256, 1u << 31);
  const std::string long_blob =
      blob.substr(0, 4 + trie_bytes) + std::string(9000, 'y') + std::string(1, '\0');
  expect(error_of([&] {
           load_model(sp_model(2, "", field(2, long_blob) + field(3, std::uint64_t{1})))
               ->encode(times("a", 2000));
         }),
         grown);

  std::string parts, special;
  for (int i = 0; i < 2000; ++i) {
    parts += concat(i ? "," : "", R"({"SpecialToken":{"id":"t)", i, R"("}})");
    special += concat(i ? "," : "", "\"t", i, R"(":{"ids":[0]})");
  }
  expect(
      error_of([&] {
        load_json(tokenizer_json(kBpe, R"("post_processor":{"type":"TemplateProcessing","single":[)" + parts +
                                           R"(,{"Sequence":{}}],"special_tokens":{)" + special + "}}"));
      }),
      "more than 1024 are refused");
}

// Rows are often rounded up: Qwen has 151,936 for 151,669 tokens. An id without a token prints nothing, as
// in transformers.
TEST(HostileTokenizer, AnIdWithoutATokenPrintsNothing) {
  const auto t = load_json(tokenizer_json(kBpe));
  EXPECT_EQ(t->decode(TokenIds{0, 3, 151'935, 1}), "ab");
  EXPECT_EQ(t->bytes_of(3), "");
  TextStream stream(*t);
  std::string text;
  for (const std::int32_t id : {3, 0, 7, 2, 100'000}) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), "aab");
  EXPECT_THROW(t->decode(TokenIds{-1}), Error);
  EXPECT_THROW(t->text_of(3), Error);
}

TEST(HostileTokenizer, ManyAddedTokensAndLongTokens) {
  std::string added, vocab;
  for (int i = 0; i < 20000; ++i)
    added += concat(i ? "," : "", "{\"id\":", i + 3, ",\"content\":\"<", i, ">\",\"special\":true}");
  const auto t = load_json(tokenizer_json(kBpe, "\"added_tokens\":[" + added + "]"));
  EXPECT_EQ(t->encode("a<19999>b", true), (TokenIds{0, 20002, 1}));
  const std::string word(1 << 20, 'w');
  const auto longest =
      load_json(tokenizer_json(R"({"type":"WordPiece","unk_token":"u","vocab":{"u":0,")" + word + "\":1}}"));
  // A word of more than 100 characters is unknown whatever the vocabulary says.
  EXPECT_EQ(longest->encode(word), TokenIds{0});
}

}  // namespace
}  // namespace rapt
