// SPDX-License-Identifier: Apache-2.0
// Masks beside every token asked alone, with masks that are kept and without; copies; special tokens; ends.
#include "rapt/text/grammar/constraint.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "rapt/text/grammar/grammar.h"
#include "rapt/text/grammar/sample.h"
#include "rapt/text/grammar/token_trie.h"

namespace rapt {
namespace {

// Every byte, pieces of the texts, two tokens of the same bytes, one that is too long, and tokens without
// text: the last two.
std::vector<std::string> toy_vocabulary(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (int b = 0; b < 256; ++b) out.push_back(std::string(1, static_cast<char>(b)));
  std::mt19937 draw(7);
  for (const std::string& t : texts) {
    for (int k = 0; k < 40 && !t.empty(); ++k) out.push_back(t.substr(draw() % t.size(), 2 + draw() % 6));
  }
  for (const char* piece : {"\",", "\":", "\"}", "\": \"", "},{", "]}", "true", "}}}", "\"\"", "    ",
                            "abcdefgh", "é", "\xC3\xA9\xC3", "\xA9x", "\\\"", "\\u00", "12", "00"})
    out.push_back(piece);
  out.push_back(std::string(out[260]));
  out.push_back(std::string(300, 'a'));
  out.push_back("");
  out.push_back("");
  return out;
}

struct GrammarToy {
  explicit GrammarToy(std::shared_ptr<const Grammar> grammar, int samples = 12)
      : compiled(std::move(grammar)) {
    for (int i = 0; i < samples; ++i)
      texts.push_back(sample_text(*compiled, static_cast<std::uint64_t>(i), 50));
    trie = std::make_shared<const TokenTrie>(toy_vocabulary(texts));
    this->grammar = make_token_grammar(compiled, trie);
  }
  std::int32_t special(int i) const { return static_cast<std::int32_t>(trie->vocabulary()) - 1 - i; }
  std::vector<std::uint64_t> all() const {
    return std::vector<std::uint64_t>(trie->words(), ~std::uint64_t{0});
  }
  std::vector<std::string> texts;
  std::shared_ptr<const Grammar> compiled;
  std::shared_ptr<const TokenTrie> trie;
  std::shared_ptr<const TokenGrammar> grammar;
};

std::vector<std::uint64_t> mask_of(Constraint& c, const GrammarToy& toy) {
  std::vector<std::uint64_t> bits = toy.all();
  c.mask(bits);
  return bits;
}

void expect_mask(Constraint& c, const GrammarToy& toy, const std::string& where) {
  const std::vector<std::uint64_t> bits = mask_of(c, toy);
  for (std::size_t id = 0; id < toy.trie->vocabulary(); ++id)
    ASSERT_EQ((bits[id / 64] >> id % 64 & 1) != 0, c.allows(static_cast<std::int32_t>(id)))
        << where << " token " << id << " '" << toy.trie->text(id) << "'";
}

constexpr const char* kMaskSchemas[] = {
    R"({"type": "object"})",
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "n": {"type": "integer"},
        "s": {"type": "string"}}, "required": ["name"],
        "additionalProperties": {"type": "number", "minimum": -5}})",
    R"({"type": "array", "items": {"anyOf": [{"type": "string", "minLength": 2, "maxLength": 40},
        {"type": "string", "pattern": "^a.*c$"}, {"enum": ["x", "xy", {"a": [1]}]}]}, "maxItems": 3})",
    R"({"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"})",
    // Other keys lead nowhere, which only the whole grammar shows.
    R"({"type": "object", "properties": {"abc": {"type": "integer"}, "bcdefg": {"type": "string"}},
        "additionalProperties": {"allOf": [false]}})"};

TEST(GrammarMask, EqualsEveryTokenAskedAlone) {
  for (const char* schema : kMaskSchemas) {
    const GrammarToy toy(grammar_from_schema_text(schema));
    std::mt19937 draw(3);
    const std::int32_t end = toy.special(0);
    for (int walk = 0; walk < 8; ++walk) {
      auto c = make_constraint(toy.grammar, {end});
      std::vector<std::int32_t> said;
      for (int n = 0; n < 25; ++n) {
        ASSERT_NO_FATAL_FAILURE(expect_mask(*c, toy, schema));
        EXPECT_EQ(c->allows(end), c->may_end());
        // The same place without anything kept: a grammar of its own.
        auto fresh = make_constraint(
            make_token_grammar(toy.compiled, std::make_shared<const TokenTrie>(toy_vocabulary(toy.texts))),
            {end});
        for (const std::int32_t id : said) fresh->accept(id);
        ASSERT_EQ(mask_of(*c, toy), mask_of(*fresh, toy));
        std::vector<std::int32_t> may;
        for (std::int32_t id = 0; id < end; ++id)
          if (c->allows(id)) may.push_back(id);
        if (may.empty()) break;
        said.push_back(may[draw() % may.size()]);
        c->accept(said.back());
      }
    }
  }
}

TEST(GrammarMask, CopiesGoTheirOwnWays) {
  const GrammarToy toy(grammar_from_schema_text(kMaskSchemas[1]));
  const auto c = make_constraint(toy.grammar, {toy.special(0)});
  for (const char b : std::string_view(R"({"na)")) c->accept(b);
  const auto before = mask_of(*c, toy);
  const auto copy = c->copy();
  EXPECT_EQ(mask_of(*copy, toy), before);
  for (const char b : std::string_view(R"(me":"x","n":)")) copy->accept(b);
  EXPECT_EQ(mask_of(*c, toy), before);
  EXPECT_FALSE(copy->allows('m'));
  EXPECT_TRUE(c->allows('m'));
  EXPECT_TRUE(copy->allows('7'));
  EXPECT_THROW(c->accept('7'), Error);
  EXPECT_TRUE(c->allows('m'));  // as if nothing had been said
}

TEST(GrammarMask, EndsOnlyWhereTheTextMayEnd) {
  const GrammarToy toy(grammar_from_schema_text(R"({"type": "integer", "minimum": 10, "maximum": 123})"));
  const std::int32_t end = toy.special(0), outside = static_cast<std::int32_t>(toy.trie->words() * 64 + 5);
  const auto c = make_constraint(toy.grammar, {end, outside});
  EXPECT_FALSE(c->allows(end));
  c->accept('1');
  EXPECT_FALSE(c->may_end());
  c->accept('2');
  EXPECT_TRUE(c->may_end());
  EXPECT_FALSE(c->at_end());
  // Padded logits: the mask is longer than the vocabulary.
  std::vector<std::uint64_t> bits(toy.trie->words() + 2, ~std::uint64_t{0});
  c->mask(bits);
  EXPECT_EQ(bits[toy.trie->words()], std::uint64_t{1} << 5);
  EXPECT_EQ(bits[toy.trie->words() + 1], 0u);
  c->accept('3');
  EXPECT_TRUE(c->at_end());
  c->accept(end);
  ASSERT_NO_FATAL_FAILURE(expect_mask(*c, toy, "behind the end"));
  EXPECT_TRUE(c->allows(end));
  EXPECT_FALSE(c->allows('1'));
  // A mask only takes away.
  std::vector<std::uint64_t> none(toy.trie->words(), 0);
  c->mask(none);
  EXPECT_EQ(none, std::vector<std::uint64_t>(toy.trie->words(), 0));
}

TEST(GrammarMask, MemoryCountsWhatIsKept) {
  const GrammarToy toy(grammar_from_schema_text(R"({"type": "string", "maxLength": 300})"));
  const std::size_t before = memory_of(*toy.grammar);
  EXPECT_GE(before, toy.compiled->states.size() * sizeof(Grammar::State));
  const auto c = make_constraint(toy.grammar, {toy.special(0)});
  c->accept('"');
  for (int i = 0; i < 100; ++i) {
    mask_of(*c, toy);
    c->accept('a');
  }
  // A hundred states, of each a bit for every token or a list.
  EXPECT_GE(memory_of(*toy.grammar), before + 100 * sizeof(StateMask));
  EXPECT_LE(memory_of(*toy.grammar), before + 100 * (sizeof(StateMask) + toy.trie->words() * 8 + 4096));
  const std::size_t after = memory_of(*toy.grammar);
  const auto again = make_constraint(toy.grammar, {toy.special(0)});
  again->accept('"');
  mask_of(*again, toy);
  EXPECT_EQ(memory_of(*toy.grammar), after);
}

// So many tokens come before an end, where there are any to go on with.
TEST(GrammarMask, EndsLaterWhereThatIsWanted) {
  const GrammarToy toy(grammar_from_schema_text(R"({"anyOf": [{"type": "integer"}, {"const": null}]})"));
  const std::int32_t end = toy.special(0);
  const auto number = make_constraint(toy.grammar, {end}, 3), null = make_constraint(toy.grammar, {end}, 9);
  for (const char digit : std::string_view("123")) {
    EXPECT_FALSE(number->allows(end));
    const auto copy = number->copy();
    ASSERT_NO_FATAL_FAILURE(expect_mask(*number, toy, "number"));
    number->accept(digit);
    EXPECT_FALSE(copy->allows(end));
  }
  EXPECT_TRUE(number->allows(end));
  for (const char letter : std::string_view("null")) null->accept(letter);
  EXPECT_TRUE(null->allows(end));
  ASSERT_NO_FATAL_FAILURE(expect_mask(*null, toy, "null"));
  null->accept(end);
  EXPECT_TRUE(null->allows(end));
}

TEST(GrammarMask, SpecialTokensAreNoText) {
  const auto make = [](std::int32_t open, std::int32_t inside) {
    GrammarBuilder b;
    return b.build(
        b.sequence({b.text({"<"}, {inside}), b.optional(b.sequence({b.special(open), b.json_object()}))}));
  };
  const auto ids = static_cast<std::int32_t>(toy_vocabulary({"{}"}).size());
  GrammarToy toy(grammar_of_json_object(), 0);
  toy.texts = {"{}"};
  toy.trie = std::make_shared<const TokenTrie>(toy_vocabulary(toy.texts));
  const std::int32_t open = ids - 1, inside = ids - 2;
  toy.compiled = make(open, inside);
  toy.grammar = make_token_grammar(toy.compiled, toy.trie);
  const auto c = make_constraint(toy.grammar, {});
  EXPECT_FALSE(c->allows('<'));
  for (const std::int32_t id : {std::int32_t{'a'}, inside, std::int32_t{'b'}}) {
    ASSERT_NO_FATAL_FAILURE(expect_mask(*c, toy, "text"));
    ASSERT_TRUE(c->allows(id));
    c->accept(id);
  }
  EXPECT_TRUE(c->allows(open));
  c->accept(open);
  ASSERT_NO_FATAL_FAILURE(expect_mask(*c, toy, "call"));
  EXPECT_FALSE(c->allows(inside));
  EXPECT_FALSE(c->allows(open));
  EXPECT_TRUE(c->allows('{'));
  EXPECT_FALSE(c->allows('a'));
  // In a string of JSON a special token is none of its characters.
  for (const char b : std::string_view("{\"")) c->accept(b);
  EXPECT_FALSE(c->allows(open));
  EXPECT_FALSE(c->allows(-1));
  EXPECT_FALSE(c->allows(1 << 30));
}

TEST(GrammarMask, ThreadsShareOneGrammar) {
  const GrammarToy toy(grammar_from_schema_text(kMaskSchemas[1]));
  std::vector<std::vector<std::uint64_t>> seen(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < seen.size(); ++t)
    threads.emplace_back([&, t] {
      const auto c = make_constraint(toy.grammar, {toy.special(0)});
      for (const char b : std::string_view(R"({"name":"abc","s":"a longer text","x":-4.5)")) {
        const auto bits = mask_of(*c, toy);
        seen[t].insert(seen[t].end(), bits.begin(), bits.end());
        c->accept(b);
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& bits : seen) EXPECT_EQ(bits, seen[0]);
}

TEST(GrammarMask, TooManyReadingsAreRefused) {
  // Every 'a' may be one of many rules: more readings than are followed.
  std::string text = "root ::= x{1,100} \"!\"\nx ::= ";
  for (int i = 0; i < 80; ++i) text += (i ? " | " : "") + std::string("y") + std::to_string(i);
  for (int i = 0; i < 80; ++i)
    text += "\ny" + std::to_string(i) + " ::= \"a\" (\"b\" | \"c" + std::to_string(i) + "\")";
  const GrammarToy toy(grammar_from_gbnf(text), 0);
  const auto c = make_constraint(toy.grammar, {});
  EXPECT_FALSE(c->allows('a'));
  ASSERT_NO_FATAL_FAILURE(expect_mask(*c, toy, "many"));
}

// Of each of the ways to read what was said few readings come, of all of them too many: the mask, which is
// made way by way, has a token that is refused.
TEST(GrammarMask, TooManyReadingsOfManyWaysAreRefused) {
  std::string text = "root ::= ";
  for (int i = 0; i < 40; ++i) text += (i ? " | " : "") + std::string("x") + std::to_string(i);
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    text += "\nx" + n + " ::= \"a\" (y" + n + " | z" + n + ")\ny" + n + " ::= \"b\" \"1\"{" + n +
            "} \"y\"\nz" + n + " ::= \"b\" \"2\"{" + n + "} \"z\"";
  }
  const GrammarToy toy(grammar_from_gbnf(text), 0);
  const auto c = make_constraint(toy.grammar, {});
  c->accept('a');
  const std::vector<std::uint64_t> bits = mask_of(*c, toy);
  for (std::size_t id = 0; id < toy.trie->vocabulary(); ++id) {
    EXPECT_EQ((bits[id / 64] >> id % 64 & 1) != 0, toy.trie->text(id) == "b") << toy.trie->text(id);
    EXPECT_FALSE(c->allows(static_cast<std::int32_t>(id)));
  }
}

// A string whose end leads nowhere, beside one that is whole: its run of harmless characters is none.
TEST(GrammarMask, RunsThatLeadNowhereAreNone) {
  GrammarBuilder b;
  const auto dead = b.sequence({b.json_string(0, 40), b.nothing()});
  const GrammarToy toy(b.build(b.choice({dead, b.literal("\"abcdefg\"")})), 0);
  const auto c = make_constraint(toy.grammar, {});
  for (const char letter : std::string_view("\"ab")) {
    ASSERT_NO_FATAL_FAILURE(expect_mask(*c, toy, "dead"));
    c->accept(letter);
  }
}

// Many ways at once, each with many ways on: a mask costs no more than GrammarLimits::kMaskWork.
TEST(GrammarMask, WorkIsBounded) {
  std::string text = "root ::= (", rules;
  for (int i = 0; i < 60; ++i) {
    const std::string n = std::to_string(i);
    text += (i ? " | x" : "x") + n;
    rules += "\nx" + n + " ::= [a-z]";
  }
  const auto g = grammar_from_gbnf(text + ")*" + rules);
  std::vector<std::string> words;  // every text of three letters
  for (int i = 0; i < 26 * 26 * 26; ++i)
    words.push_back({static_cast<char>('a' + i / 676), static_cast<char>('a' + i / 26 % 26),
                     static_cast<char>('a' + i % 26)});
  const auto trie = std::make_shared<const TokenTrie>(words);
  const auto c = make_constraint(make_token_grammar(g, trie), {});
  std::vector<std::uint64_t> bits(trie->words(), ~std::uint64_t{0});
  try {
    c->mask(bits);
    ADD_FAILURE() << "the mask was made";
  } catch (const GrammarError& e) {
    EXPECT_NE(std::string_view(e.what()).find("too many ways"), std::string_view::npos) << e.what();
    EXPECT_TRUE(e.is_usage());
  }
}

// Every rule is one of two that begin with the same two: 2^60 ways to the one letter.
TEST(GrammarMask, RulesThatBeginWithTheSameRulesEnd) {
  std::string text = "root ::= a0 | b0\n";
  for (int i = 0; i < 60; ++i) {
    const std::string n = std::to_string(i), m = std::to_string(i + 1);
    text += "a" + n + " ::= a" + m + " | b" + m + "\nb" + n + " ::= a" + m + " | b" + m + "\n";
  }
  const auto g = grammar_from_gbnf(text + "a60 ::= \"x\"\nb60 ::= \"y\"\n");
  EXPECT_TRUE(accepts(*g, "x"));
  EXPECT_FALSE(accepts(*g, "xx"));
  const GrammarToy toy(g, 0);
  const auto c = make_constraint(toy.grammar, {});
  ASSERT_NO_FATAL_FAILURE(expect_mask(*c, toy, "many ways"));
}

}  // namespace
}  // namespace rapt
