// SPDX-License-Identifier: Apache-2.0
// Tables: DeepSeek's letters, the regular expressions (compared as text), what each GGUF name splits by.
#include "rapt/text/tokenizer/patterns.h"

#include <algorithm>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"

namespace rapt {
namespace {

constexpr CodeRange kDeepseekLetters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},       {0xD8, 0xF6},
    {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2AF},     {0x370, 0x373},
    {0x376, 0x376},     {0x377, 0x377},     {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},
    {0x388, 0x38A},     {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},
    {0x48A, 0x52F},     {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},
    {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},
    {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},
    {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},
    {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
    {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},   {0x2184, 0x2184},
    {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},
    {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
    {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2},
    {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

struct PatternRegex {
  Pattern pattern;
  const char* regex;
};
// The first spelling of a pattern is the one we write.
constexpr PatternRegex kRegexes[] = {
    {Pattern::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {Pattern::gpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {Pattern::llama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::llama3,
     R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::qwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::minicpm,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::qwen35,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::seed_coder,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::bailing,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {Pattern::gpt4o,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::tekken,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::deepseek3,
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::bloom, " ?[^(\\s|[.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C])]+"},
    {Pattern::clip, R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)"},
    // Special tokens are found before anything is split.
    {Pattern::clip,
     R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)"},
    {Pattern::number, R"(\p{N})"},
    {Pattern::numbers, R"(\p{N}+)"},
    {Pattern::numbers3, R"(\p{N}{1,3})"},
    {Pattern::three_digits, "[0-9][0-9][0-9]"},
    {Pattern::line_end, R"([\r\n])"},
    {Pattern::spaced_letters, R"(\s?\p{L}+)"},
    {Pattern::spaced_punctuation, R"(\s?\p{P}+)"},
    {Pattern::deepseek_punctuation, "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+"},
    {Pattern::trailing_space, R"(\s+$)"},
    {Pattern::cjk, "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"},
    {Pattern::cjk3, "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"},
    {Pattern::falcon_punctuation, R"([\p{P}\$\+<=>\^~\|`]+)"},
    {Pattern::default_punctuation, R"([\p{P}\$\+<=>\^~\|]+)"},
    {Pattern::word, R"(\w+|[^\w\s]+)"},
    {Pattern::space, R"(\s)"},
    {Pattern::spaces, R"(\s+)"},
    {Pattern::not_line, R"([^\n]+|[\n]+)"},
};

std::string deepseek_letters_regex() {
  std::string out = "\\s?[";
  for (const CodeRange& r : kDeepseekLetters) {
    unicode::append(out, r.first);
    if (r.last == r.first) continue;
    out += '-';
    unicode::append(out, r.last);
  }
  return out + "]+";
}

// tokenizer.ggml.pre: names in groups that mean the same splits. ignore_merges and NFC as the original
// tokenizers have them; llama.cpp itself never normalises.
struct Pre {
  const char* names;  // words; the first one is what we write
  std::vector<SplitStep> splits;
  bool ignore_merges = false;
  bool nfc = false;
};
SplitStep step(Pattern pattern) { return {.pattern = pattern}; }
const std::vector<Pre>& pres() {
  static const std::vector<Pre> all = {
      {"gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt olmo jais "
       "trillion granite-docling exaone4 "
       "jina-v1-en jina-v2-code roberta-bpe",
       {step(Pattern::gpt2)}},
      {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
       {step(Pattern::llama3)},
       true},
      {"smaug-bpe dbrx glm4 chatglm-bpe", {step(Pattern::llama3)}},
      {"qwen2", {step(Pattern::qwen2)}, false, true},
      {"stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2", {step(Pattern::qwen2)}},
      {"qwen35", {step(Pattern::qwen35)}, false, true},
      {"smollm starcoder refact codeshell exaone minerva-7b mellum2",
       {step(Pattern::number), step(Pattern::gpt2)}},
      {"command-r", {step(Pattern::number), step(Pattern::gpt2)}, false, true},
      {"deepseek-llm",
       {step(Pattern::line_end), step(Pattern::deepseek_letters), step(Pattern::deepseek_punctuation),
        step(Pattern::trailing_space), step(Pattern::cjk), step(Pattern::number)}},
      {"deepseek-coder",
       {step(Pattern::line_end), step(Pattern::spaced_letters), step(Pattern::spaced_punctuation),
        step(Pattern::cjk), step(Pattern::number)}},
      {"deepseek-v3 hunyuan-dense joyai-llm",
       {step(Pattern::numbers3), step(Pattern::cjk3), step(Pattern::deepseek3)}},
      {"falcon", {step(Pattern::falcon_punctuation), step(Pattern::gpt2), step(Pattern::three_digits)}},
      {"tekken", {step(Pattern::tekken)}, true},
      {"gpt-4o llama4 kanana2 talkie minimax-m2", {step(Pattern::gpt4o)}},
      {"bloom poro-chat gpt3-finnish", {step(Pattern::bloom)}},
      {"viking", {step(Pattern::bloom), step(Pattern::number)}},
      {"bailingmoe bailingmoe2 llada-moe", {step(Pattern::bailing)}},
      {"seed-coder", {step(Pattern::seed_coder)}},
      {"minicpm5", {step(Pattern::numbers3), step(Pattern::minicpm)}, true},
      {"laguna", {step(Pattern::not_line), step(Pattern::qwen2)}},
      {"default",
       {step(Pattern::default_punctuation), step(Pattern::gpt2), step(Pattern::numbers),
        step(Pattern::three_digits)}},
  };
  return all;
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::span<const CodeRange> deepseek_letter_ranges() { return kDeepseekLetters; }

std::optional<Pattern> pattern_of_regex(std::string_view regex) {
  std::string spelt;  // some files hold the line ends themselves where others hold their escapes
  for (const char c : regex) {
    if (c == '\r') spelt += "\\r";
    else if (c == '\n') spelt += "\\n";
    else spelt += c;
  }
  for (const PatternRegex& k : kRegexes) {
    if (spelt == k.regex) return k.pattern;
  }
  if (spelt == deepseek_letters_regex()) return Pattern::deepseek_letters;
  return std::nullopt;
}

std::string regex_of_pattern(Pattern pattern) {
  if (pattern == Pattern::deepseek_letters) return deepseek_letters_regex();
  for (const PatternRegex& k : kRegexes) {
    if (k.pattern == pattern) return k.regex;
  }
  fail("this split has no regular expression that is written to tokenizer.json");
}

void apply_pre(TokenizerSpec& spec, const std::string& pre) {
  std::vector<std::string> known;
  for (const Pre& p : pres()) {
    for (const std::string& name : words(p.names)) {
      if (name == pre) {
        spec.splits = p.splits;
        spec.ignore_merges = p.ignore_merges;
        if (p.nfc) spec.normal = {{.kind = NormalStep::Kind::nfc}};
        spec.pre = pre;
        return;
      }
      known.push_back(name);
    }
  }
  std::sort(known.begin(), known.end());
  fail(spec.where, ": tokenizer.ggml.pre is '", pre,
       "', a way to split text that is not known here, and a guess would give wrong ids; known: ",
       join(known));
}

std::string pre_of(const TokenizerSpec& spec) {
  if (!spec.pre.empty()) return spec.pre;
  const bool nfc = std::any_of(spec.normal.begin(), spec.normal.end(),
                               [](const NormalStep& s) { return s.kind == NormalStep::Kind::nfc; });
  const Pre* best = nullptr;
  for (const Pre& p : pres()) {
    if (p.splits != spec.splits || p.ignore_merges != spec.ignore_merges) continue;
    if (p.nfc == nfc) return words(p.names)[0];
    if (!best) best = &p;
  }
  if (best) return words(best->names)[0];
  fail(spec.where, ": no GGUF pre-tokenizer name means these splits",
       spec.ignore_merges ? " with ignore_merges" : "", "; write a folder with tokenizer.json instead");
}

}  // namespace rapt
