// SPDX-License-Identifier: Apache-2.0
// Grammars by value: schemas beside a plain recursive validator, numbers beside arithmetic, patterns, GBNF
// and free text beside lists, and whatever somebody may send who means harm.
#include "rapt/text/grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "rapt/text/grammar/char_dfa.h"
#include "rapt/text/grammar/regex.h"
#include "rapt/text/grammar/sample.h"
#include "rapt/text/grammar/uri.h"

namespace rapt {
namespace {

using testing::HasSubstr;

bool schema_accepts(const char* schema, std::string_view text) {
  return accepts(*grammar_from_schema_text(schema), text);
}

GrammarError grammar_error(const std::function<void()>& make) {
  try {
    make();
  } catch (const GrammarError& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return GrammarError("none");
}
GrammarError schema_error(const std::string& schema) {
  return grammar_error([&] { grammar_from_schema_text(schema); });
}

// -------------------------------------------------------------------------------- beside a validator
// The text without the spaces that may stand behind ',' and ':'; nullopt where there is other white space.
std::optional<std::string> without_spaces(std::string_view text) {
  std::string out;
  bool string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (string) {
      out += text[i];
      if (text[i] == '\\' && i + 1 < text.size()) out += text[++i];
      else if (text[i] == '"') string = false;
      continue;
    }
    if (text[i] == ' ' && i > 0 && (text[i - 1] == ',' || text[i - 1] == ':')) continue;
    if (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') return std::nullopt;
    string = text[i] == '"';
    out += text[i];
  }
  return out;
}

bool plain_valid(const Json& s, const Json& v) {
  const auto number = [&](const char* name, double otherwise) {
    const Json* x = s.find(name);
    return x ? x->number() : otherwise;
  };
  if (const Json* list = s.find("anyOf"))
    return std::any_of(list->array().begin(), list->array().end(),
                       [&](const Json& o) { return plain_valid(o, v); });
  if (const Json* list = s.find("enum"))
    return std::any_of(list->array().begin(), list->array().end(), [&](const Json& o) { return o == v; });
  const std::string type = s.find("type")->string();
  if (type == "null") return v.is_null();
  if (type == "boolean") return v.is_bool();
  if (type == "integer" || type == "number") {
    if (!v.is_number() || (type == "integer" && v.is_real())) return false;
    return v.number() >= number("minimum", -1e300) && v.number() <= number("maximum", 1e300);
  }
  if (type == "string") {
    if (!v.is_string()) return false;
    std::size_t n = 0;
    for (const char c : v.string()) n += (static_cast<std::uint8_t>(c) & 0xC0) != 0x80;
    return static_cast<double>(n) >= number("minLength", 0) &&
           static_cast<double>(n) <= number("maxLength", 1e9);
  }
  if (type == "array") {
    if (!v.is_array()) return false;
    const auto n = static_cast<double>(v.array().size());
    if (n < number("minItems", 0) || n > number("maxItems", 1e9)) return false;
    return std::all_of(v.array().begin(), v.array().end(),
                       [&](const Json& x) { return plain_valid(*s.find("items"), x); });
  }
  if (!v.is_object()) return false;
  const Json::Object& properties = s.find("properties")->object();
  std::size_t next = 0;  // members come in the order of the schema
  for (const Json::Member& m : v.object()) {
    while (next < properties.size() && properties[next].key != m.key) ++next;
    if (next == properties.size() || !plain_valid(properties[next].value, m.value)) return false;
  }
  for (const Json& name : s.find("required")->array())
    if (!v.find(name.string())) return false;
  return true;
}

bool plain_accepts(const Json& schema, std::string_view text) {
  const auto bare = without_spaces(text);
  if (!bare) return false;
  Json v;
  try {
    v = parse_json(text);
  } catch (const Error&) {
    return false;
  }
  return plain_valid(schema, v);
}

// More digits than an exact integer of Json has: there they are reals.
bool long_number(std::string_view text) {
  std::size_t digits = 0;
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits > 16) return true;
  }
  return false;
}

constexpr const char* kPlainSchemas[] = {
    R"({"type": "object", "properties": {"a": {"type": "integer"}, "bc": {"type": "string", "maxLength": 3},
        "b": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}},
        "required": ["bc"], "additionalProperties": false})",
    R"({"type": "array", "items": {"anyOf": [{"type": "number", "minimum": -12.5, "maximum": 130},
        {"type": "null"}, {"enum": ["x", "xy", 7, true]}]}})",
    R"({"type": "object", "properties": {"x": {"type": "string", "minLength": 2}, "y": {"type": "object",
        "properties": {"z": {"type": "integer", "minimum": 7, "maximum": 1205}}, "required": [],
        "additionalProperties": false}}, "required": ["x", "y"], "additionalProperties": false})"};

TEST(GrammarSchema, AcceptsWhatAPlainValidatorDoes) {
  std::mt19937 draw(1);
  constexpr std::string_view kBytes = "{}[]\",:0123456789.-eEtrufalsn xyzabc\\\xC3\xA9";
  int yes = 0, no = 0;
  for (const char* text : kPlainSchemas) {
    const Json schema = parse_json(text);
    const auto grammar = grammar_from_schema(schema);
    for (std::uint64_t seed = 0; seed < 120; ++seed) {
      const std::string sample = sample_text(*grammar, seed, 60);
      ASSERT_TRUE(accepts(*grammar, sample)) << sample;
      if (long_number(sample)) continue;
      ASSERT_TRUE(plain_accepts(schema, sample)) << sample;
      for (int k = 0; k < 40; ++k) {
        std::string other = sample;
        for (std::size_t n = 1 + draw() % 2; n > 0; --n) {
          const std::size_t at = draw() % (other.size() + 1);
          const char c = kBytes[draw() % kBytes.size()];
          if (draw() % 3 == 0) other.insert(at, 1, c);
          else if (at < other.size() && draw() % 2 == 0) other.erase(at, 1);
          else if (at < other.size()) other[at] = c;
        }
        const bool expected = plain_accepts(schema, other);
        // Within bounds numbers are written without exponent.
        if ((other.find_first_of("eE") != other.npos && expected) || long_number(other)) continue;
        ASSERT_EQ(accepts(*grammar, other), expected) << other << " for " << text;
        ++(expected ? yes : no);
      }
    }
  }
  EXPECT_GT(yes, 500);
  EXPECT_GT(no, 5000);
}

TEST(GrammarSchema, AnyJson) {
  const auto any = grammar_of_json_object();
  for (const char* text : {"{}", R"({"a":1})", R"({"a": [1, 2,{"b":null}], "": "\ud83d\ude00é\u00e9\/"})"})
    EXPECT_TRUE(accepts(*any, text)) << text;
  for (const char* text : {"", "[]", "1", "{", "{} ", " {}", R"({"a" :1})", R"({"a":  1})", "{\"a\":\n1}",
                           R"({"a":01})", R"({"a":"\ud83d"})", R"({"a":"\ude00"})", "{\"a\":\"\xC3\"}",
                           "{\"a\":\"\xED\xA0\x80\"}", "{\"a\":\"\t\"}", R"({"a":1,})"})
    EXPECT_FALSE(accepts(*any, text)) << text;
  EXPECT_TRUE(schema_accepts("true", "[1.5e-7,null]"));
  EXPECT_TRUE(schema_accepts("{}", "-0"));
  EXPECT_FALSE(schema_accepts(R"({"type": "integer"})", "-0"));
}

TEST(GrammarSchema, ObjectsInTheirOrder) {
  const char* schema = R"({"properties": {"a": {"type": "integer"}, "ab": {}, "b": {"type": "null"}},
      "required": ["z", "b"], "additionalProperties": {"type": "boolean"}, "type": "object"})";
  EXPECT_TRUE(schema_accepts(schema, R"({"a":1,"ab":[],"b":null,"z":true,"q":false})"));
  EXPECT_TRUE(schema_accepts(schema, R"({"b":null,"z":true})"));
  EXPECT_FALSE(schema_accepts(schema, R"({"b":null})"));
  EXPECT_FALSE(schema_accepts(schema, R"({"b":null,"z":true,"a":1})"));  // the order
  EXPECT_FALSE(schema_accepts(schema, R"({"b":null,"z":true,"a":true})"));  // no other member named a
  EXPECT_FALSE(schema_accepts(schema, R"({"b":null,"z":true,"\u0061":true})"));
  EXPECT_TRUE(schema_accepts(schema, R"({"b":null,"z":true,"aa":true,"abc":false,"é":true})"));
  EXPECT_FALSE(schema_accepts(schema, R"({"b":null,"z":1})"));
  const char* counted = R"({"properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": false,
      "minProperties": 2, "maxProperties": 2, "type": "object"})";
  EXPECT_FALSE(schema_accepts(counted, R"({"b":1})"));
  EXPECT_TRUE(schema_accepts(counted, R"({"b":1,"c":1})"));
  EXPECT_FALSE(schema_accepts(counted, R"({"a":1,"b":1,"c":1})"));
  const char* patterns = R"({"patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}},
      "additionalProperties": false, "propertyNames": {"maxLength": 3}, "type": "object"})";
  EXPECT_TRUE(schema_accepts(patterns, R"({"x":1,"xy":6,"y":"s"})"));
  EXPECT_FALSE(schema_accepts(patterns, R"({"xy":4})"));
  EXPECT_FALSE(schema_accepts(patterns, R"({"x":"s"})"));
  EXPECT_FALSE(schema_accepts(patterns, R"({"z":1})"));
  EXPECT_FALSE(schema_accepts(patterns, R"({"xabc":1})"));
}

TEST(GrammarSchema, ReferencesAndCombinations) {
  const char* list = R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"},
      "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"],
      "additionalProperties": false}}, "$ref": "#/$defs/node"})";
  EXPECT_TRUE(schema_accepts(list, R"({"v":1,"next":{"v":2,"next":null}})"));
  EXPECT_FALSE(schema_accepts(list, R"({"v":1,"next":{"v":2}})"));
  const char* all =
      R"({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"minimum": 3}},
      "required": ["a"]}], "type": "object", "additionalProperties": false, "properties": {"a": {}}})";
  EXPECT_TRUE(schema_accepts(all, R"({"a":3})"));
  EXPECT_FALSE(schema_accepts(all, R"({"a":2})"));
  EXPECT_FALSE(schema_accepts(all, R"({"a":3.5})"));
  const char* one = R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})";
  EXPECT_TRUE(schema_accepts(one, "1"));
  EXPECT_TRUE(schema_accepts(one, "2.5"));
  EXPECT_FALSE(schema_accepts(one, "3"));
  EXPECT_FALSE(schema_accepts(one, "1.5"));
  const char* kinds = R"({"oneOf": [{"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
      "required": ["kind"]}, {"properties": {"kind": {"const": "b"}}, "required": ["kind"]}],
      "type": "object"})";
  EXPECT_TRUE(schema_accepts(kinds, R"({"kind":"a","x":1})"));
  EXPECT_FALSE(schema_accepts(kinds, R"({"kind":"a","x":"s"})"));
  EXPECT_TRUE(schema_accepts(kinds, R"({"kind":"b","x":"s"})"));
  // Equal constants: 1 and 1.0, members in any order; and no others.
  const char* both = R"({"enum": [1, "1", {"a": 1, "b": [2.50]}, true, null],
      "allOf": [{"enum": [{"b": [2.5], "a": 1.0}, 1.0, [1], "true"]}]})";
  for (const char* yes : {"1", R"({"b":[2.5],"a":1})"}) EXPECT_TRUE(schema_accepts(both, yes)) << yes;
  for (const char* no : {R"("1")", "true", "null", "[1]", R"("true")"})
    EXPECT_FALSE(schema_accepts(both, no));
  EXPECT_TRUE(schema_accepts(R"({"enum": [1, "a\n", {"x": [1, 2]}], "minLength": 2})", R"("a\n")"));
  EXPECT_TRUE(schema_accepts(R"({"enum": [1, "a", {"x": [1, 2]}], "minLength": 2})", R"({"x": [1, 2]})"));
  EXPECT_FALSE(schema_accepts(R"({"enum": [1, "a", {"x": [1, 2]}], "minLength": 2})", R"("a")"));
  EXPECT_TRUE(
      schema_accepts(R"({"prefixItems": [{"type": "null"}], "items": {"type": "boolean"}, "minItems": 2})",
                     "[null,true,false]"));
  EXPECT_FALSE(schema_accepts(
      R"({"prefixItems": [{"type": "null"}], "items": {"type": "boolean"}, "minItems": 2})", "[null]"));
  EXPECT_TRUE(schema_accepts(R"({"$id": "http://x.example/a/b", "$defs": {"c": {"$id": "c", "type": "null"}},
      "$ref": "http://x.example/a/c"})",
                             "null"));
}

TEST(GrammarSchema, UriReferences) {
  const std::string_view base = "http://a/b/c/d;p?q";
  for (const auto& [reference, whole] :
       std::initializer_list<std::pair<const char*, const char*>>{{"g:h", "g:h"},
                                                                  {"g", "http://a/b/c/g"},
                                                                  {"./g", "http://a/b/c/g"},
                                                                  {"g/", "http://a/b/c/g/"},
                                                                  {"/g", "http://a/g"},
                                                                  {"//g", "http://g"},
                                                                  {"?y", "http://a/b/c/d;p?y"},
                                                                  {"g?y#s", "http://a/b/c/g?y#s"},
                                                                  {"#s", "http://a/b/c/d;p?q#s"},
                                                                  {"", "http://a/b/c/d;p?q"},
                                                                  {"..", "http://a/b/"},
                                                                  {"../g", "http://a/b/g"},
                                                                  {"../../../g", "http://a/g"}})
    EXPECT_EQ(resolve_uri(reference, base), whole) << reference;
}

TEST(GrammarSchema, WhatIsNotSupportedIsNamed) {
  for (const auto& [schema, keyword, path] : std::initializer_list<std::array<const char*, 3>>{
           {R"({"not": {}})", "not", "/not"},
           {R"({"properties": {"a/b": {"items": {"uniqueItems": true}}}})", "uniqueItems",
            "/properties/a~1b/items/uniqueItems"},
           {R"({"type": "text"})", "type", "/type"},
           {R"({"format": "color"})", "format", "/format"},
           {R"({"$ref": "#"})", "$ref", "/$ref"},
           {R"({"anyOf": [{"$ref": "#"}, {"type": "string"}]})", "$ref", "/anyOf/0/$ref"},
           {R"({"$ref": "https://example.com/schema"})", "$ref", "/$ref"},
           {R"({"$ref": "#/$defs/none"})", "$ref", "/$ref"},
           {R"({"minLength": 1001})", "minLength", "/minLength"},
           {R"({"maxItems": -1})", "maxItems", "/maxItems"},
           {R"({"multipleOf": 0})", "multipleOf", "/multipleOf"},
           {R"({"multipleOf": 1234567})", "multipleOf", "/multipleOf"},
           {R"x({"pattern": "(?=a)"})x", "pattern", "/pattern"},
           {R"x({"patternProperties": {"(": {}}})x", "patternProperties", "/patternProperties"},
           {R"({"items": [{}]})", "items", "/items"},
           {R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})", "oneOf", "/oneOf"},
           {R"({"maxlength": 3})", "maxlength", "/maxlength"}}) {
    const GrammarError e = schema_error(schema);
    EXPECT_EQ(e.keyword(), keyword) << e.what();
    EXPECT_EQ(e.path(), path) << e.what();
    EXPECT_TRUE(e.is_usage());
    EXPECT_THAT(e.what(), HasSubstr(keyword));
  }
  EXPECT_THAT(schema_error("false").what(), HasSubstr("no text"));
  // What does not hold for any value that can be is no error.
  EXPECT_TRUE(schema_accepts(
      R"({"type": "object", "properties": {"a": false}, "additionalProperties": false})", "{}"));
}

// ------------------------------------------------------------------------------------------- hostile
TEST(GrammarHostile, EndsInAnErrorWithBoundedWork) {
  const auto repeated = [](std::string_view text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  const auto pattern = [](const std::string& p) { return R"({"pattern": ")" + p + R"("})"; };
  std::string wide = R"({"allOf": [)";  // 2^12 ways through twelve anyOf
  for (int i = 0; i < 12; ++i)
    wide += R"({"anyOf": [{"properties": {"a)" + std::to_string(i) +
            R"(": {"type": "null"}}}, {"minProperties": )" + std::to_string(i) + "}]},";
  wide.back() = ']';
  wide += '}';
  std::string branches = R"({"allOf": [)";  // oneOf of one branch each, and 2^8 alternatives
  for (int i = 0; i < 900; ++i) branches += R"({"oneOf":[{}]},)";
  for (int i = 0; i < 8; ++i)
    branches += R"({"oneOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]},)";
  branches.back() = ']';
  branches += '}';
  for (const std::string& schema : std::initializer_list<std::string>{
           branches,
           R"({"allOf": [{"anyOf": [false, false]})" + repeated(R"(,{"anyOf":[true,true]})", 1900) + "]}",
           pattern(repeated("(", 30000) + repeated(")", 30000)), pattern("a{1,100000}"),
           pattern("((a{1000}){1000}){1000}"), pattern("(.*a.{900}){2}"),
           pattern(repeated("(a|b)*c.{30}", 60)), pattern(repeated("[^x]*x.{12}", 20)), wide,
           "{\"enum\": [" + repeated("[],", 5000) + "1]}",
           R"({"items":)" + repeated(R"({"items":)", 60) + "{}" + repeated("}", 61),
           repeated("[", 100) + repeated("]", 100), R"({"title": ")" + repeated("x", 70000) + "\"}",
           R"({"maxItems": 1000, "items": {"maxItems": 1000, "items": {"maxLength": 1000,
               "pattern": "^([a-z]{1,40}x)*$"}}})"}) {
    try {
      const auto grammar = grammar_from_schema_text(schema);
      EXPECT_LE(grammar->steps, GrammarLimits::kWork);
      EXPECT_LE(grammar->states.size(), GrammarLimits::kStates);
      EXPECT_TRUE(schema.starts_with(R"({"maxItems")"))
          << schema.substr(0, 100);  // large, but it can be done
    } catch (const Error& e) {
      EXPECT_LT(std::string_view(e.what()).size(), 1000u);
    }
  }
  // What an error shows of a pattern is cut between characters.
  EXPECT_THAT(schema_error(R"({"pattern": ")" + std::string(59, 'x') + "é(?!a)\"}").what(),
              HasSubstr("'" + std::string(59, 'x') + "…'"));
  EXPECT_TRUE(schema_accepts(R"({"pattern": "^(a*)*b$"})", "\"" + std::string(5000, 'a') + "b\""));
  EXPECT_FALSE(schema_accepts(R"({"pattern": "^(a*)*b$"})", "\"" + std::string(5000, 'a') + "\""));
  // Chains of rules: none is as deep as the stack of a thread.
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 4000; ++i) chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  EXPECT_THAT(grammar_error([&] { grammar_from_gbnf(chain + "r4000 ::= \"a\"\n"); }).what(),
              HasSubstr("begin with"));
  std::string refs = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 1000; ++i)
    refs +=
        "\"d" + std::to_string(i) + R"(": {"items": {"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"}},";
  EXPECT_TRUE(schema_accepts((refs + R"("d1000": {"type": "null"}}})").c_str(), "[[[1]]]"));
}

// ------------------------------------------------------------------------------------------- numbers
TEST(GrammarNumber, ComparesLikeArithmetic) {
  std::vector<std::string> texts;
  for (const char* whole : {"0", "1", "3", "9", "10", "12", "13", "29", "99", "100", "123", "130", "1999"})
    for (const char* part : {"", ".0", ".05", ".25", ".250", ".5", ".501", ".99", ".2501"})
      for (const char* sign : {"", "-"}) texts.push_back(std::string(sign) + whole + part);
  for (const char* bound :
       {"0", "-0.25", "0.25", "12", "-12", "12.5", "-12.501", "99.99", "100", "130.05", "9"}) {
    const CharDfa less = decimal_compare(bound, true, false, false),
                  equal = decimal_compare(bound, false, true, false),
                  greater = decimal_compare(bound, false, false, true);
    for (const std::string& x : texts) {
      const double a = std::stod(x), b = std::stod(bound);  // all of them have few digits: exact enough
      EXPECT_EQ(less.accepts(x), a < b) << x << " < " << bound;
      EXPECT_EQ(equal.accepts(x), a == b) << x << " = " << bound;
      EXPECT_EQ(greater.accepts(x), a > b) << x << " > " << bound;
    }
    for (const char* none : {"", "-", "01", "1.", ".5", "1e3", "--1", "+1", "1.2.3"})
      EXPECT_FALSE(decimal_compare(bound, true, true, true).accepts(none)) << none;
  }
}

TEST(GrammarNumber, MultiplesLikeArithmetic) {
  GrammarBudget budget;
  for (const auto& [step, places] :
       std::initializer_list<std::pair<int, int>>{{1, 0}, {7, 0}, {10, 0}, {1, 2}, {25, 2}, {5, 1}}) {
    const CharDfa dfa = multiple_text(static_cast<std::uint64_t>(step), places, budget);
    for (int n = -3000; n < 3000; ++n) {  // n / 1000
      const int m = std::abs(n);
      std::string text = std::to_string(m / 1000) + "." + std::to_string(1000 + m % 1000).substr(1);
      if (n < 0) text.insert(0, "-");
      const int unit = places == 0 ? 1000 : places == 1 ? 100 : 10;  // step / 10^places = step * unit / 1000
      EXPECT_EQ(dfa.accepts(text), m % (step * unit) == 0) << text << " of " << step << "e-" << places;
      if (m % 1000 == 0) {
        EXPECT_EQ(dfa.accepts((n < 0 ? "-" : "") + std::to_string(m / 1000)), m % (step * unit) == 0);
      }
    }
  }
  EXPECT_EQ(decimal_of(Json(1e21)), "1000000000000000000000");
  EXPECT_EQ(decimal_of(Json(-2.50)), "-2.5");
  EXPECT_EQ(decimal_of(Json(1e-7)), "0.0000001");
  EXPECT_EQ(decimal_of(Json(std::int64_t{-7})), "-7");
}

// ------------------------------------------------------------------------------------------ patterns
TEST(GrammarPattern, Lists) {
  const auto matches = [](const char* pattern, std::string_view text, bool search = true) {
    GrammarBudget budget;
    return regex_dfa(pattern, search, budget).accepts(text);
  };
  EXPECT_TRUE(matches("b", "abc"));
  EXPECT_FALSE(matches("b", "abc", false));
  EXPECT_FALSE(matches("^b", "abc"));
  EXPECT_TRUE(matches("^a|c$", "bc"));
  EXPECT_FALSE(matches("^a|c$", "bcb"));
  EXPECT_TRUE(matches("^$", ""));
  EXPECT_FALSE(matches("^$", "a"));
  EXPECT_FALSE(matches("a^b", "ab"));
  EXPECT_TRUE(matches("^(?:a|b){2,3}$", "aba"));
  EXPECT_FALSE(matches("^(?<n>a|b){2,3}$", "abab"));
  EXPECT_TRUE(matches("^[^a-c\\d]+$", "xé-"));
  EXPECT_FALSE(matches("^[^a-c\\d]+$", "x5"));
  EXPECT_TRUE(matches("^[\\w.-]+$", "a_B.9-"));
  EXPECT_TRUE(matches("^\\u00e9\\x41\\t\\u{1F600}$", "éA\t😀"));
  EXPECT_TRUE(matches("^\\p{Lu}\\p{L}*$", "Ünï"));
  EXPECT_FALSE(matches("^\\p{Lu}\\p{L}*$", "ünï"));
  EXPECT_FALSE(matches("^.$", "\n"));
  EXPECT_TRUE(matches("^\\s\\S$", " a"));
  EXPECT_TRUE(matches("^a*?b+?$", "aab"));
  EXPECT_TRUE(matches("^[-a]]$", "-]"));
  for (const char* bad : {"(", ")", "a**", "[a", "a{2,1}", "\\1", "\\b", "(?!a)", "(?<=a)", "\\p{Greek}",
                          "*a", "a{", "\\", "[b-a]", "\\q", "\\u{110000}", "(?i)a", "\xC3"}) {
    GrammarBudget budget;
    EXPECT_THROW(regex_dfa(bad, true, budget), GrammarError) << bad;
  }
}

// ---------------------------------------------------------------------------------------------- GBNF
TEST(GrammarGbnf, Lists) {
  const auto g = grammar_from_gbnf(
      "# a comment\nroot ::= \"a\" ( item | [0-9x-]{2,3} )* # behind\n\nitem ::=\n  \"(\" root \")\" |\n  "
      "[^a-z\\n\\x41] . | \"\\u00e9\" ws?\nws ::= [ \\t]+\n");
  for (const char* yes : {"a", "a12", "a(a)", "a(a12)é  ", "a-x", "aBc", "a1234"})
    EXPECT_TRUE(accepts(*g, yes)) << yes;
  for (const char* no : {"", "b", "a(", "aA", "axyz", "aaa"}) EXPECT_FALSE(accepts(*g, no)) << no;
  for (const auto& [text, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"root ::= root \"a\" | \"b\"", "left recursion"},
           {"root ::= x \"a\"\nx ::= \"b\"? root | \"c\"", "left recursion"},
           {"root ::= y", "'y' is not defined"},
           {"top ::= \"a\"", "no rule 'root'"},
           {"root ::= \"a", "'\"' is missing"},
           {"root ::= (\"a\"", "')' is missing"},
           {"root = \"a\"", "'::='"},
           {"root ::= \"a\"\nroot ::= \"b\"", "twice"},
           {"root ::= \"a\"{1,100000}", "repetitions"},
           {"root ::= \"a\" root", "no text"},
           {"root ::= \"\\q\"", "escape"}})
    EXPECT_THAT(grammar_error([&] { grammar_from_gbnf(text); }).what(), HasSubstr(part)) << text;
  EXPECT_THAT(grammar_error([&] { grammar_from_gbnf("root ::= " + std::string(60000, '(')); }).what(),
              HasSubstr("groups"));
}

// ----------------------------------------------------------------------------------------- free text
TEST(GrammarText, EndsAtItsStops) {
  GrammarBuilder b;
  const auto g = b.build(
      b.sequence({b.text({"<call>", "</"}), b.optional(b.sequence({b.literal("<call>"), b.json_object()}))}));
  for (const char* yes : {"", "hello", "<cal", "a < b <c>all>", "x<call>{}", "<<call>{\"a\":1}"})
    EXPECT_TRUE(accepts(*g, yes)) << yes;
  for (const char* no : {"<call>", "</", "a</b", "<call>x", "<call>{}x", "x<call>{}<call>{}"})
    EXPECT_FALSE(accepts(*g, no)) << no;
}

TEST(GrammarBuilding, RulesMayNameEachOther) {
  GrammarBuilder b;
  const auto list = b.rule("list");
  b.define(list, b.choice({b.literal("."), b.sequence({b.regex("[a-c]{1,2}"), list})}));
  const auto g = b.build(list);
  EXPECT_TRUE(accepts(*g, "abcb."));
  EXPECT_FALSE(accepts(*g, "abd."));
  EXPECT_THROW(b.define(list, b.empty()), GrammarError);
  EXPECT_THROW(b.build(b.rule("none")), GrammarError);
  EXPECT_THROW(b.build(b.nothing()), GrammarError);
  EXPECT_EQ(grammar_of_json_object()->shared, g->shared);
}

}  // namespace
}  // namespace rapt
