// SPDX-License-Identifier: Apache-2.0
// Any bytes as a schema, a pattern or a grammar in GBNF: they compile with bounded work or end in
// rapt::Error, and what compiles can be followed: a text of it by chance is accepted, every mask is what its
// tokens say one by one, and whatever is chosen from masks never leads where nothing is allowed. What a
// schema allows as arguments of a call are objects, and it allows them anyway. The first byte chooses; what
// stands behind the last 0xFE byte chooses tokens.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/text/grammar/constraint.h"
#include "rapt/text/grammar/grammar.h"
#include "rapt/text/grammar/sample.h"
#include "rapt/text/grammar/token_trie.h"

namespace {

using namespace rapt;

void check(bool holds) {
  if (!holds) std::abort();
}

const std::shared_ptr<const TokenTrie>& vocabulary() {
  static const auto trie = [] {
    std::vector<std::string> texts;
    for (int b = 0; b < 256; ++b) texts.push_back(std::string(1, static_cast<char>(b)));
    for (const char* piece : {"\",\"", "\": ", "\"}", "},{", "]]", "true", "abc", "  ", "12", "\\u00",
                              "\xC3\xA9", "\xA9\"", "ab"})
      texts.push_back(piece);
    texts.push_back("");
    return std::make_shared<const TokenTrie>(std::move(texts));
  }();
  return trie;
}

std::shared_ptr<const Grammar> compile(int kind, const std::string& text) {
  if (kind == 0) return grammar_from_schema_text(text);
  if (kind == 1) return grammar_from_gbnf(text);
  GrammarBuilder b;
  if (kind == 2) return b.build(b.regex(text));
  const std::size_t cut = text.find('\0');  // free text up to one of two texts, and an object behind it
  std::vector<std::string> stops = {text.substr(0, cut)};
  if (cut != text.npos) stops.push_back(text.substr(cut + 1));
  return b.build(
      b.sequence({b.text(stops, {268}), b.optional(b.sequence({b.literal(stops[0]), b.json_object()}))}));
}

void check_arguments(const Grammar& whole, const std::string& schema, std::size_t seed) {
  GrammarBuilder b;
  const auto objects = b.build(b.object_schema(parse_json(schema)));
  if (objects->states.size() >= 2000) return;
  const std::string sample = sample_text(*objects, seed, 40);
  check(sample.starts_with('{') && accepts(*objects, sample) && accepts(whole, sample));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t mark = all.rfind('\xFE');
  const std::string text = all.substr(0, mark),
                    choices = mark == std::string::npos ? "" : all.substr(mark + 1);
  try {
    const auto grammar = compile(data[0] & 3, text);
    check(grammar->steps <= GrammarLimits::kWork && grammar->states.size() <= GrammarLimits::kStates);
    if (grammar->states.size() < 2000) {
      const std::string sample = sample_text(*grammar, size, 40);
      check(accepts(*grammar, sample) || (sample.empty() && !grammar->specials.empty()));
    }
    const auto tokens = make_token_grammar(grammar, vocabulary());
    const auto trie = vocabulary();
    const auto constraint = make_constraint(tokens, {267}, data[0] >> 5);
    for (std::size_t n = 0; n < choices.size() && n < 64; ++n) {
      std::vector<std::uint64_t> bits(trie->words(), ~std::uint64_t{0});
      constraint->mask(bits);
      std::vector<std::int32_t> may;
      for (std::size_t id = 0; id < trie->vocabulary(); ++id) {
        const bool allowed = (bits[id / 64] >> id % 64 & 1) != 0;
        check(allowed == constraint->allows(static_cast<std::int32_t>(id)));
        if (allowed) may.push_back(static_cast<std::int32_t>(id));
      }
      if (may.empty()) {  // too many readings at once: everything that goes on is refused
        check(data[0] % 4 != 2);
        break;
      }
      constraint->accept(may[static_cast<std::uint8_t>(choices[n]) % may.size()]);
      if (n % 8 == 7) check(constraint->copy()->allows(may[0]) == constraint->allows(may[0]));
    }
    if ((data[0] & 7) == 4) check_arguments(*grammar, text, size);
  } catch (const Error&) {}
  return 0;
}
