// SPDX-License-Identifier: Apache-2.0
// Expressions, and the way from them to automata: every rule an NFA over bytes, tokens and calls, of that its
// subsets, then what leads nowhere is dropped.
#include "rapt/text/grammar/builder.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "rapt/base/text.h"
#include "rapt/text/grammar/compile.h"
#include "rapt/text/grammar/regex.h"

namespace rapt {

using Node = GrammarBuilder::Node;
using Expression = GrammarBuilder::State::Expression;
using Kind = Expression::Kind;

// ------------------------------------------------------------------------------------------- expressions
Node GrammarBuilder::State::add(Expression e) {
  budget.pay(1 + e.parts.size() + e.text.size() / 16);
  if (expressions.size() >= GrammarLimits::kWork / 8) fail_usage("a grammar of too many parts");
  e.depth = 0;
  for (const Node part : e.parts) {
    const Expression& p = expressions[part.index];
    e.depth = std::max(e.depth, p.depth + 1);
  }
  if (e.depth > kExpressionDepth)
    throw GrammarError(concat("more than ", kExpressionDepth, " groups in one another"));
  expressions.push_back(std::move(e));
  return {static_cast<std::uint32_t>(expressions.size() - 1)};
}

Node GrammarBuilder::State::reference(std::uint32_t rule) {
  Expression e{Kind::rule};
  e.rule = rule;
  e.cost = 2;
  return add(std::move(e));
}

std::uint32_t GrammarBuilder::State::new_rule(std::string name) {
  if (rules.size() >= GrammarLimits::kStates) throw GrammarError("a grammar of too many rules");
  rules.push_back({std::move(name), kUndefined});
  return static_cast<std::uint32_t>(rules.size() - 1);
}

GrammarBuilder::GrammarBuilder() : state_(std::make_unique<State>()) { define_shared_rules(*this, *state_); }
GrammarBuilder::~GrammarBuilder() = default;

Node GrammarBuilder::empty() { return literal(""); }
Node GrammarBuilder::nothing() { return state_->add({Kind::nothing}); }

Node GrammarBuilder::literal(std::string_view bytes) {
  Expression e{Kind::literal};
  e.text = bytes;
  e.cost = bytes.size() + 1;
  return state_->add(std::move(e));
}

Node GrammarBuilder::special(std::int32_t id) {
  Expression e{Kind::special};
  e.ids = {id};
  e.cost = 2;
  return state_->add(std::move(e));
}

Node GrammarBuilder::byte(std::uint8_t first, std::uint8_t last) {
  Expression e{Kind::byte};
  e.set = {{first, last}};
  e.cost = 2;
  return state_->add(std::move(e));
}

Node GrammarBuilder::character(std::vector<Range> ranges, bool negated) {
  Expression e{Kind::character};
  e.set = char_set(std::move(ranges));
  if (negated) e.set = complement(e.set);
  if (e.set.empty()) return nothing();
  e.cost = 2 + (e.set.back().second > 0x7F ? 8 * e.set.size() : 0);
  return state_->add(std::move(e));
}

Node GrammarBuilder::regex(std::string_view pattern) {
  return automaton(regex_dfa(pattern, false, state_->budget), false);
}

Node GrammarBuilder::automaton(const CharDfa& dfa, bool json_escaped) {
  if (dfa.nothing()) return nothing();
  Expression e{Kind::automaton};
  for (const CharDfa::State& s : dfa.states) e.cost += 1 + 2 * s.edges.size();
  e.dfa = std::make_shared<const CharDfa>(dfa);
  e.escaped = json_escaped;
  return state_->add(std::move(e));
}

Node GrammarBuilder::sequence(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  Expression e{Kind::sequence};
  e.cost = 1;
  for (const Node p : parts) e.cost += state_->expressions[p.index].cost;
  e.parts = std::move(parts);
  return state_->add(std::move(e));
}

Node GrammarBuilder::choice(std::vector<Node> parts) {
  if (parts.empty()) return nothing();
  if (parts.size() == 1) return parts[0];
  Expression e{Kind::choice};
  e.cost = 1;
  for (const Node p : parts) e.cost += state_->expressions[p.index].cost;
  e.parts = std::move(parts);
  return state_->add(std::move(e));
}

Node GrammarBuilder::repeat(Node part, int min, int max) {
  if (min < 0 || (max >= 0 && max < min))
    throw GrammarError(concat("{", min, ",", max, "} is no repetition"));
  if (min > GrammarLimits::kRepetition || max > GrammarLimits::kRepetition)
    throw GrammarError(concat("at most ", GrammarLimits::kRepetition, " repetitions are possible"));
  if (max == 0) return empty();
  // What is large and stands there often becomes a rule, so that only calls of it do.
  const int copies = std::max(min, max);
  if (copies > 1 && state_->expressions[part.index].cost > 16) {
    const std::uint32_t rule = state_->new_rule("");
    state_->rules[rule].body = part.index;
    part = state_->reference(rule);
  }
  Expression e{Kind::repeat};
  e.min = min;
  e.max = max;
  e.cost = static_cast<std::size_t>(std::max(copies, 1)) * (state_->expressions[part.index].cost + 1) + 2;
  e.parts = {part};
  return state_->add(std::move(e));
}

Node GrammarBuilder::rule(std::string_view name) {
  const auto [at, fresh] = state_->names.try_emplace(std::string(name), 0);
  if (fresh) at->second = state_->new_rule(std::string(name));
  return state_->reference(at->second);
}

void GrammarBuilder::define(Node rule, Node body) {
  const Expression& e = state_->expressions[rule.index];
  if (e.kind != Kind::rule) throw GrammarError("define() wants what rule() gave");
  State::Rule& r = state_->rules[e.rule];
  if (r.body != kUndefined) throw GrammarError(concat("the rule '", r.name, "' is defined twice"));
  r.body = body.index;
}

Node GrammarBuilder::json_value() { return state_->reference(SharedRules::kValue); }
Node GrammarBuilder::json_object() { return state_->reference(SharedRules::kObject); }
Node GrammarBuilder::json_string(int min_length, int max_length) {
  if (min_length > GrammarLimits::kRepetition || max_length > GrammarLimits::kRepetition)
    throw GrammarError(concat("at most ", GrammarLimits::kRepetition, " characters can be counted"));
  if (max_length >= 0 && max_length < min_length) return nothing();
  if (min_length <= 0 && max_length < 0) return state_->reference(SharedRules::kString);
  Expression e{Kind::string};
  e.min = std::max(min_length, 0);
  e.max = max_length;
  e.cost = static_cast<std::size_t>(std::max(e.min, e.max)) + 2;
  return state_->add(std::move(e));
}

Node GrammarBuilder::text(std::vector<std::string> stops, std::vector<std::int32_t> inside) {
  Expression e{Kind::text};
  std::size_t bytes = 0;
  for (const std::string& s : stops) {
    if (s.empty()) throw GrammarError("an empty text is in every text: text() cannot leave it out");
    bytes += s.size();
  }
  if (bytes > 4096) throw GrammarError("the texts that text() leaves out have more than 4,096 bytes");
  e.cost = bytes + 2;
  e.stops = std::move(stops);
  e.ids = std::move(inside);
  return state_->add(std::move(e));
}

std::shared_ptr<const Grammar> GrammarBuilder::build(Node root) {
  const std::uint32_t rule = state_->new_rule("the whole");
  state_->rules[rule].body = root.index;
  return compile_rules(*state_, rule);
}

std::shared_ptr<const Grammar> grammar_of_json_object() {
  GrammarBuilder b;
  return b.build(b.json_object());
}

// --------------------------------------------------------------------------------- rules of every grammar
// JSON as serving.md and docs/schema.md have it: at most one space behind ',' and ':'.
void define_shared_rules(GrammarBuilder& b, GrammarBuilder::State& state) {
  for (const char* name : {"string", "rest of a string", "escape or character of several bytes", "number",
                           "integer", "value", "object", "array"})
    state.new_rule(name);
  const auto define = [&](std::uint32_t rule, Node body) { state.rules[rule].body = body.index; };
  const auto digits = [&](const char* set) {
    std::vector<Node> any;
    for (const char* p = set; *p; p += 2)
      any.push_back(b.byte(static_cast<std::uint8_t>(p[0]), static_cast<std::uint8_t>(p[1])));
    return b.choice(std::move(any));
  };
  const Node hex = digits("09afAF"), quote = b.literal("\"");
  // One UTF-16 unit that is no surrogate, or a pair of them.
  const Node unit = b.choice({b.sequence({digits("09abAB"), hex, hex, hex}),
                              b.sequence({digits("ccCCeeEEffFF"), hex, hex, hex}),
                              b.sequence({digits("ddDD"), digits("07"), hex, hex}),
                              b.sequence({digits("ddDD"), digits("89abAB"), hex, hex, b.literal("\\u"),
                                          digits("ddDD"), digits("cfCF"), hex, hex})});
  const Node escape = b.sequence(
      {b.literal("\\"), b.choice({digits("\"\"\\\\//bbffnnrrtt"), b.sequence({b.literal("u"), unit})})});
  const Node several = b.choice({escape, b.character({{0x80, kLastChar}})});
  const Node safe = digits(kSafeBytes);
  define(SharedRules::kChar, several);
  define(SharedRules::kRest, b.sequence({b.repeat(b.choice({safe, several}), 0), quote}));
  define(SharedRules::kString, b.sequence({quote, state.reference(SharedRules::kRest)}));
  const Node digit = digits("09");
  const Node zero = b.literal("0"), more = b.sequence({digits("19"), b.repeat(digit, 0)});
  const Node minus = b.optional(b.literal("-"));
  define(SharedRules::kInteger, b.choice({zero, b.sequence({minus, more})}));  // no -0
  define(
      SharedRules::kNumber,
      b.sequence({minus, b.choice({zero, more}), b.optional(b.sequence({b.literal("."), b.repeat(digit, 1)})),
                  b.optional(b.sequence({digits("eeEE"), b.optional(digits("++--")), b.repeat(digit, 1)}))}));
  const Node value = b.json_value(), string = b.json_string();
  const Node space = b.optional(b.literal(" "));
  const Node member = b.sequence({string, b.literal(":"), space, value});
  const auto list = [&](const char* open, Node item, const char* close) {
    return b.sequence({b.literal(open),
                       b.optional(b.sequence({item, b.repeat(b.sequence({b.literal(","), space, item}), 0)})),
                       b.literal(close)});
  };
  define(SharedRules::kObject, list("{", member, "}"));
  define(SharedRules::kArray, list("[", value, "]"));
  define(SharedRules::kValue, b.choice({string, state.reference(SharedRules::kNumber), b.json_object(),
                                        state.reference(SharedRules::kArray), b.literal("true"),
                                        b.literal("false"), b.literal("null")}));
}

}  // namespace rapt
