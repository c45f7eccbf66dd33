// SPDX-License-Identifier: Apache-2.0
// What a GrammarBuilder holds, and what makes a grammar of it.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rapt/text/grammar/builder.h"
#include "rapt/text/grammar/char_dfa.h"
#include "rapt/text/grammar/grammar.h"

namespace rapt {

// The first rules of every grammar, and so their states are the same in all of them.
struct SharedRules {
  enum : std::uint32_t { kString, kRest, kChar, kNumber, kInteger, kValue, kObject, kArray, kCount };
};

// Bytes of a JSON string that are a character and need no escape, as pairs: first, last.
inline constexpr const char* kSafeBytes = " !#[]\x7F";
inline constexpr std::uint32_t kUndefined = ~std::uint32_t{0};
inline constexpr int kExpressionDepth = 1024;

struct GrammarBuilder::State {
  struct Expression {
    enum class Kind : std::uint8_t {
      nothing,
      literal,
      special,
      byte,
      character,
      automaton,
      sequence,
      choice,
      repeat,
      rule,
      string,  // a JSON string of min to max characters
      text,
      graph  // parts as edges between vertices 0 (begin), 1 (end) … min - 1; ids: from, to of each
    };
    Kind kind = Kind::nothing;
    bool escaped = false;
    int min = 0, max = 0, depth = 0;
    std::uint32_t rule = 0;
    std::size_t cost = 1;  // about so many states
    std::string text = {};
    std::vector<Node> parts = {};
    std::vector<std::int32_t> ids = {};
    std::vector<std::string> stops = {};
    CharSet set = {};
    std::shared_ptr<const CharDfa> dfa = {};
  };
  struct Rule {
    std::string name;
    std::uint32_t body;
  };
  Node add(Expression e);
  Node reference(std::uint32_t rule);
  std::uint32_t new_rule(std::string name);

  std::vector<Expression> expressions;
  std::vector<Rule> rules;
  std::map<std::string, std::uint32_t, std::less<>> names;
  GrammarBudget budget;
};

// A graph whose edges are expressions.
struct GraphMaker {
  std::uint32_t vertices = 2;  // 0 is where it begins, 1 where it ends
  GrammarBuilder::State::Expression made{GrammarBuilder::State::Expression::Kind::graph};
  void edge(std::uint32_t from, GrammarBuilder::Node part, std::uint32_t to) {
    made.parts.push_back(part);
    made.ids.insert(made.ids.end(), {static_cast<std::int32_t>(from), static_cast<std::int32_t>(to)});
  }
  GrammarBuilder::Node node(GrammarBuilder& builder) {
    made.min = static_cast<int>(vertices);
    for (const GrammarBuilder::Node p : made.parts) made.cost += builder.state().expressions[p.index].cost;
    return builder.state().add(std::move(made));
  }
};

void define_shared_rules(GrammarBuilder& builder, GrammarBuilder::State& state);
std::shared_ptr<const Grammar> compile_rules(GrammarBuilder::State& state, std::uint32_t root);

}  // namespace rapt
