// SPDX-License-Identifier: Apache-2.0
// Grammars that are kept for the requests to come, and those that go.
#include "rapt/apps/server/served_answers.h"

#include <gtest/gtest.h>

#include "rapt/text/grammar/constraint.h"
#include "tests/memory_checkpoint.h"

namespace rapt::server {
namespace {

using test::LetterTokenizer;

CompletionRequest asks_for(const std::string& word) {
  CompletionRequest r;
  r.format = {.kind = AnswerFormat::Kind::grammar,
              .schema = {},
              .grammar = "root ::= \"" + word + "\" [a-z]*",
              .path = "grammar"};
  return r;
}

TEST(ServedAnswers, GrammarsThatWereNotUsedForLongestGo) {
  const auto tokenizer = std::make_shared<const LetterTokenizer>(40);
  ServedAnswers many(nullptr, tokenizer, {}), few(nullptr, tokenizer, {}, 1);
  const auto held = few.constraint(asks_for("held"))->copy();
  for (int i = 0; i < 100; ++i) {
    const std::string word(static_cast<std::size_t>(i) % 26 + 1, static_cast<char>('a' + i / 26));
    for (ServedAnswers* const answers : {&many, &few}) {
      const auto constraint = answers->constraint(asks_for(word))->copy();
      for (std::int32_t id = 0; id < tokenizer->size(); ++id)
        EXPECT_EQ(constraint->allows(id), tokenizer->bytes_of(id) == word.substr(0, 1)) << word;
    }
    EXPECT_EQ(few.kept_grammars(), 1u);  // beyond the bytes, but in use
    EXPECT_EQ(many.kept_grammars(), std::min<std::size_t>(static_cast<std::size_t>(i) + 1, 64));
  }
  many.constraint(asks_for("a"));  // was dropped, and comes again
  EXPECT_EQ(many.kept_grammars(), 64u);
  // Who holds one that was dropped goes on with it.
  for (std::int32_t id = 0; id < tokenizer->size(); ++id)
    EXPECT_EQ(held->allows(id), tokenizer->bytes_of(id) == "h");
}

// Masks count as they are made.
TEST(ServedAnswers, MemoryOfAGrammarGrowsWithItsMasks) {
  const LetterTokenizer tokenizer(40);
  const auto grammar =
      make_token_grammar(grammar_from_gbnf("root ::= [a-z] [a-y] [a-x]"), make_token_trie(tokenizer));
  const auto constraint = make_constraint(grammar, {});
  std::size_t before = memory_of(*grammar);
  EXPECT_GT(before, 0u);
  for (int i = 0; i < 3; ++i) {
    std::vector<std::uint64_t> bits((static_cast<std::size_t>(tokenizer.size()) + 63) / 64,
                                    ~std::uint64_t{0});
    constraint->mask(bits);
    const std::size_t now = memory_of(*grammar);
    EXPECT_GT(now, before);
    constraint->mask(bits);
    EXPECT_EQ(memory_of(*grammar), now);  // it is kept
    before = now;
    for (std::int32_t id = 0; id < tokenizer.size(); ++id)
      if (constraint->allows(id)) {
        constraint->accept(id);
        break;
      }
  }
}

}  // namespace
}  // namespace rapt::server
