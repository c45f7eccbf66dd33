// SPDX-License-Identifier: Apache-2.0
// A grammar over a vocabulary: which tokens may come next.
//
//   auto trie = make_token_trie(*tokenizer);                                // once per model
//   auto grammar = make_token_grammar(grammar_from_schema(schema), trie);  // once per schema, shared
//   auto constraint = make_constraint(grammar, engine.stops());           // once per request
//
// Threads: Grammar, TokenTrie and TokenGrammar are shared; a constraint is of one thread at a time.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "rapt/text/constraint.h"
#include "rapt/text/grammar/builder.h"

namespace rapt {

class Tokenizer;
class TokenTrie;
// A grammar and a vocabulary, with the masks of states that were seen: keep it beside the grammar, so that
// the next request with this schema finds them.
class TokenGrammar;

std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer);
std::shared_ptr<const TokenGrammar> make_token_grammar(std::shared_ptr<const Grammar> grammar,
                                                       std::shared_ptr<const TokenTrie> vocabulary);
std::size_t memory_of(const TokenGrammar& grammar);  // bytes now, about: with the masks that are kept

class GrammarConstraint : public Constraint {
 public:
  virtual bool may_end() const = 0;  // what was said so far is a whole text of the grammar
  virtual bool at_end() const = 0;  // … and nothing but the end may follow
};
// `ends`: ids that end an answer, allowed only where the text may end (and then nothing but them). `least`:
// tokens that come before, where the grammar has any to go on with.
std::unique_ptr<GrammarConstraint> make_constraint(std::shared_ptr<const TokenGrammar> grammar,
                                                   std::vector<std::int32_t> ends, std::int64_t least = 0);

}  // namespace rapt
