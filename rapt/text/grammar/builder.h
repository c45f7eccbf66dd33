// SPDX-License-Identifier: Apache-2.0
// Grammars by hand: what JSON schemas, GBNF and the forms of tool calls are made of.
//
//   GrammarBuilder b;
//   const auto call = b.sequence({b.literal("<tool_call>\n{\"name\": \"add\", \"arguments\": "),
//                                 b.schema(parameters, "tools[0].function.parameters"),
//                                 b.literal("}\n</tool_call>")});
//   const auto grammar = b.build(b.sequence({b.text({"<tool_call>"}), b.repeat(call, 0, 1)}));
//
// Whatever cannot be built ends in GrammarError, with bounded work and memory (GrammarLimits).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rapt/base/json.h"

namespace rapt {

class Grammar;
class CharDfa;

// A usage error that can say which keyword of a schema is at fault ("" otherwise) and where it stands (a JSON
// pointer into the schema: "/properties/a/minItems"). The message holds both.
class GrammarError : public Error {
 public:
  explicit GrammarError(const std::string& message, std::string keyword = "", std::string path = "")
      : Error(message, Kind::usage), keyword_(std::move(keyword)), path_(std::move(path)) {}
  const std::string& keyword() const { return keyword_; }
  const std::string& path() const { return path_; }

 private:
  std::string keyword_, path_;
};

struct GrammarLimits {
  static constexpr std::size_t kSourceBytes = std::size_t{64} << 10;  // of a schema, a pattern, a GBNF text
  static constexpr std::size_t kSchemaNodes = 4096;
  static constexpr int kDepth = 32;  // of a schema; of groups in a pattern or in GBNF: 128
  static constexpr std::size_t kDfaStates = 10000;  // of one pattern or number
  static constexpr std::size_t kStates = 1 << 16;  // of a grammar
  static constexpr int kRepetition = 1000;
  static constexpr int kOpening = 128;  // rules that begin with a call of one another
  static constexpr std::size_t kWork = std::size_t{1} << 22;  // steps of compilation: below 200 ms
  static constexpr std::size_t kConfigurations = 64;  // ways to read an answer that are followed at once
  // Visits of states for one mask: a walk of a large vocabulary takes about a million.
  static constexpr std::uint64_t kMaskWork = std::uint64_t{1} << 24;
};

class GrammarBuilder {
 public:
  // An expression; of one builder, and usable in several places.
  struct Node {
    std::uint32_t index = 0;
  };
  using Range = std::pair<std::uint32_t, std::uint32_t>;  // of code points, both included

  GrammarBuilder();
  ~GrammarBuilder();
  GrammarBuilder(const GrammarBuilder&) = delete;
  GrammarBuilder& operator=(const GrammarBuilder&) = delete;

  Node empty();  // the empty text
  Node nothing();  // no text at all: an alternative that is never taken
  Node literal(std::string_view bytes);
  Node special(std::int32_t id);  // this very token, which no text spells
  Node byte(std::uint8_t first, std::uint8_t last);
  Node character(std::vector<Range> ranges, bool negated = false);  // one code point, as UTF-8
  Node regex(std::string_view pattern);  // a text that matches as a whole; syntax: regex.h
  Node sequence(std::vector<Node> parts);
  Node choice(std::vector<Node> parts);
  Node repeat(Node part, int min, int max = -1);  // max -1: without end
  Node optional(Node part) { return repeat(part, 0, 1); }
  // A rule's name: may be used before define() says what it stands for, in its own definition, too (but not
  // as what that begins with).
  Node rule(std::string_view name);
  void define(Node rule, Node body);

  // JSON: at most one space behind ',' and ':', no other white space.
  Node json_value();  // any
  Node json_object();  // any
  Node json_string(int min_length = 0, int max_length = -1);  // in code points; quotes included
  // A JSON value that this schema allows (docs/schema.md). `where` names the schema in messages.
  Node schema(const Json& schema, std::string_view where = "schema");
  // … that is an object, whatever else the schema allows.
  Node object_schema(const Json& schema, std::string_view where = "schema");

  // Any text, also the empty one, that contains none of `stops`; among it may stand the special tokens
  // `inside`. Followed by literal(stop) it is what stands before the first of them.
  Node text(std::vector<std::string> stops = {}, std::vector<std::int32_t> inside = {});

  // Fails where a rule has no definition or begins with itself, or where no text at all matches.
  std::shared_ptr<const Grammar> build(Node root);

  // A text whose characters are accepted by the automaton, spelled as they are or as in a JSON string
  // (without its quotes): one way for each character, so that no two spellings are two keys.
  Node automaton(const CharDfa& dfa, bool json_escaped);

  struct State;  // compile.h
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// Each alone. Errors as above.
std::shared_ptr<const Grammar> grammar_from_schema(const Json& schema, std::string_view where = "schema");
std::shared_ptr<const Grammar> grammar_from_schema_text(std::string_view schema,
                                                        std::string_view where = "schema");
std::shared_ptr<const Grammar> grammar_from_gbnf(std::string_view text, std::string_view where = "grammar");
std::shared_ptr<const Grammar> grammar_of_json_object();

}  // namespace rapt
