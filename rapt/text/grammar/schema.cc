// SPDX-License-Identifier: Apache-2.0
// JSON schemas (2020-12) as grammars. What holds for a value is a set of schemas, each with its own keywords;
// $ref and allOf only add to the set, anyOf and oneOf make alternatives of it. An alternative is one Shape:
// for every type what is allowed. So that a recursion ends, there is one rule for each set.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "rapt/base/text.h"
#include "rapt/base/unicode.h"
#include "rapt/text/grammar/compile.h"
#include "rapt/text/grammar/formats.h"
#include "rapt/text/grammar/regex.h"
#include "rapt/text/grammar/schema_document.h"

namespace rapt {
namespace {

using Node = GrammarBuilder::Node;
using SchemaSet = std::vector<std::uint32_t>;  // numbers of schemas in the order of the document
using Dfa = std::shared_ptr<const CharDfa>;

constexpr std::size_t kAlternatives = 256;

// A string as a grammar writes it, quotes included.
std::string spelled(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    static constexpr std::string_view kCodes = "\"\\\b\t\n\f\r", kLetters = "\"\\btnfr";
    if (const std::size_t at = kCodes.find(c); at != kCodes.npos) {
      out += '\\';
      out += kLetters[at];
    } else if (static_cast<std::uint8_t>(c) < 0x20) {
      out += "\\u00";
      out += "0123456789abcdef"[c >> 4];
      out += "0123456789abcdef"[c & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Equal for values that are equal as JSON schema means it: 1 and 1.0 are, members have no order.
std::string key_of(const Json& v) {
  if (v.is_number()) return decimal_of(v);
  std::string out;
  if (v.is_array()) {
    for (const Json& x : v.array()) out += key_of(x) + ',';
    return concat("[", out, "]");
  }
  if (v.is_object()) {
    std::map<std::string_view, const Json*> sorted;
    for (const Json::Member& m : v.object()) sorted.emplace(m.key, &m.value);
    for (const auto& [key, value] : sorted) out += concat(Json(key).dump(0), ":", key_of(*value), ",");
    return concat("{", out, "}");
  }
  return v.dump(0);
}

// Constants, each once, in their order.
struct ValueSet {
  std::vector<const Json*> list = {};
  std::set<std::string> keys = {};
  void add(const Json* v) {
    if (keys.insert(key_of(*v)).second) list.push_back(v);
  }
  bool has(const Json& v) const { return keys.contains(key_of(v)); }
};
using Values = std::shared_ptr<const ValueSet>;
template <class F>
Values values_if(const ValueSet& from, const F& f) {
  auto out = std::make_shared<ValueSet>();
  for (const Json* v : from.list)
    if (f(*v)) out->add(v);
  return out;
}

// One alternative: the values of each type that it allows.
struct Shape {
  bool null = true, yes = true, no = true, number = true, string = true, array = true, object = true;
  bool integer = false;
  std::vector<Dfa> numbers, strings;  // all of them hold
  int min_length = 0, max_length = -1;
  int min_items = 0, max_items = -1, min_members = 0, max_members = -1;
  SchemaSet schemas;  // for what stands inside arrays and objects
  std::vector<std::string> required;
  Values values;  // enum, const: no others; null: any
  std::vector<std::pair<std::uint32_t, std::size_t>> branches;  // of each oneOf on the way, which one

  bool nothing() const {
    return values ? values->list.empty() : !(null || yes || no || number || string || array || object);
  }
};

class SchemaCompiler : private SchemaDocument {
 public:
  SchemaCompiler(GrammarBuilder& builder, const Json& schema, std::string_view where)
      : SchemaDocument(schema, where, builder.state().budget), b_(builder) {
    space_ = b_.optional(b_.literal(" "));
  }
  // One rule after the other: a rule only names those that it needs.
  Node compile(bool object) {
    const Node root = object ? objects_of({0}) : node_of({0});
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const auto [set, rule] = wanted_[i];
      std::vector<Node> choices;
      const std::vector<Shape> shapes = shapes_of(set);
      for (const Shape& s : shapes) alternatives_of(s, set, choices);
      b_.define(rule, b_.choice(std::move(choices)));
    }
    return root;
  }

 private:
  static constexpr std::uint32_t kNever = kNobody;  // in a set: nothing holds
  struct Choice {
    std::uint32_t schema;
    bool one;  // oneOf
    SchemaSet above;
  };
  struct Gathered {
    SchemaSet schemas;
    std::vector<Choice> choices;
    std::vector<std::pair<std::uint32_t, std::size_t>> branches;
    bool nothing = false;
  };

  // ------------------------------------------------------------------------------------------ gathering
  // All that holds where `schema` does. `above`: schemas that are on the way to it.
  void gather(std::uint32_t schema, SchemaSet& above, Gathered& out) {
    budget_.pay(1 + above.size());
    const Json& s = at(schema);
    if (s.is_bool()) {
      out.nothing |= !s.boolean();
      return;
    }
    if (!s.is_object()) wrong(schema, "", "must be a schema: an object or a boolean");
    if (std::find(above.begin(), above.end(), schema) != above.end())
      wrong(above.back(), keyword(above.back(), "$ref") ? "$ref" : "",
            "leads back to itself without a value in between: the recursion has no base");
    if (std::find(out.schemas.begin(), out.schemas.end(), schema) != out.schemas.end()) return;
    check_keywords(schema);
    out.schemas.push_back(schema);
    above.push_back(schema);
    if (keyword(schema, "$ref")) gather(target(schema), above, out);
    if (keyword(schema, "allOf"))
      for (const Json& part : schema_list(schema, "allOf")) gather(number(part), above, out);
    for (const char* name : {"anyOf", "oneOf"})
      if (keyword(schema, name)) out.choices.push_back({schema, name[0] == 'o', above});
    above.pop_back();
  }

  void alternatives(Gathered from, std::vector<Gathered>& out) {
    if (from.nothing) return;
    if (from.choices.empty()) {
      out.push_back(std::move(from));
      return;
    }
    const Choice choice = from.choices.back();
    from.choices.pop_back();
    const std::string_view name = choice.one ? "oneOf" : "anyOf";
    const Json::Array& list = schema_list(choice.schema, name);
    for (std::size_t i = 0; i < list.size(); ++i) {
      budget_.pay(8 * from.choices.size() + from.schemas.size() / 16);
      Gathered branch = from;
      SchemaSet above = choice.above;
      gather(number(list[i]), above, branch);
      if (choice.one) branch.branches.push_back({choice.schema, i});
      alternatives(std::move(branch), out);
      if (out.size() > kAlternatives)
        wrong(choice.schema, name,
              concat("makes more than ", kAlternatives, " alternatives, with the others here"));
    }
  }

  const std::vector<Shape>& shapes_of(const SchemaSet& set) {
    if (!set.empty() && set[0] == kNever) return no_shapes_;
    if (const auto made = shapes_.find(set); made != shapes_.end()) return made->second;
    if (!open_.insert(set).second) wrong(set[0], "", "asks for itself while its own constants are looked at");
    Gathered all;
    SchemaSet above;
    for (const std::uint32_t s : set) gather(s, above, all);
    std::vector<Gathered> list;
    alternatives(std::move(all), list);
    std::vector<Shape> shapes;
    for (const Gathered& g : list) shapes.push_back(shape_of(g));
    exclude(shapes);
    std::erase_if(shapes, [](const Shape& s) { return s.nothing(); });
    open_.erase(set);
    return shapes_.emplace(set, std::move(shapes)).first->second;
  }

  Shape shape_of(const Gathered& g) {
    Shape s;
    s.branches = g.branches;
    for (const std::uint32_t schema : g.schemas) {
      bool inside = false;
      for (const Json::Member& m : at(schema).object()) {
        named(schema, m.key, [&] { apply(s, schema, m.key, m.value); });
        for (const char* name : {"prefixItems", "items", "properties", "patternProperties",
                                 "additionalProperties", "propertyNames"})
          inside |= m.key == name;
      }
      if (inside) s.schemas.push_back(schema);
    }
    if (s.max_length >= 0 && s.max_length < s.min_length) s.string = false;
    if (s.max_items >= 0 && s.max_items < s.min_items) s.array = false;
    if (s.max_members >= 0 && s.max_members < s.min_members) s.object = false;
    if (s.values) {
      Shape rest = s;
      rest.values.reset();
      s.values = values_if(*s.values, [&](const Json& v) { return matches(v, rest); });
    }
    return s;
  }

  void apply(Shape& s, std::uint32_t schema, std::string_view key, const Json& value) {
    const auto most = [](int& limit, int n) { limit = limit < 0 ? n : std::min(limit, n); };
    if (key == "type") {
      types(s, schema, value);
    } else if (key == "enum") {
      if (!value.is_array()) wrong(schema, key, "must be a list");
      std::vector<const Json*> list;
      for (const Json& v : value.array()) list.push_back(&v);
      only(s, list);
    } else if (key == "const") {
      only(s, {&value});
    } else if (key == "minimum" || key == "maximum" || key == "exclusiveMinimum" ||
               key == "exclusiveMaximum") {
      if (!value.is_number() || !std::isfinite(value.number())) wrong(schema, key, "must be a number");
      const bool low = key == "minimum" || key == "exclusiveMinimum", equal = key[0] == 'm';
      s.numbers.push_back(std::make_shared<CharDfa>(decimal_compare(decimal_of(value), !low, equal, low)));
    } else if (key == "multipleOf") {
      s.numbers.push_back(std::make_shared<CharDfa>(multiple(schema, value)));
    } else if (key == "minLength") {
      s.min_length = std::max(s.min_length, count(schema, key, value));
    } else if (key == "maxLength") {
      most(s.max_length, count(schema, key, value));
    } else if (key == "pattern") {
      if (!value.is_string()) wrong(schema, key, "must be a string");
      s.strings.push_back(pattern(value.string(), true));
    } else if (key == "format") {
      if (!value.is_string()) wrong(schema, key, "must be a string");
      const std::string known = format_pattern(value.string());
      if (known.empty())
        wrong(schema, key, concat("of '", value.string(), "' is not supported; known: ", format_names()));
      s.strings.push_back(format(value.string(), known));
    } else if (key == "minItems") {
      s.min_items = std::max(s.min_items, count(schema, key, value));
    } else if (key == "maxItems") {
      most(s.max_items, count(schema, key, value));
    } else if (key == "minProperties") {
      s.min_members = std::max(s.min_members, count(schema, key, value));
    } else if (key == "maxProperties") {
      most(s.max_members, count(schema, key, value));
    } else if (key == "required") {
      if (!value.is_array()) wrong(schema, key, "must be a list of strings");
      for (const Json& name : value.array()) {
        if (!name.is_string()) wrong(schema, key, "must be a list of strings");
        if (std::find(s.required.begin(), s.required.end(), name.string()) == s.required.end())
          s.required.push_back(name.string());
      }
    } else if (key == "prefixItems") {
      schema_list(schema, key);
    } else if (key == "items") {
      if (value.is_array()) wrong(schema, key, "must be one schema: lists are prefixItems since 2020-12");
    } else if (key == "properties" || key == "patternProperties") {
      if (!value.is_object()) wrong(schema, key, "must be an object of schemas");
    }
  }

  void types(Shape& s, std::uint32_t schema, const Json& value) {
    static constexpr std::string_view kNames[] = {"null",   "boolean", "number", "integer",
                                                  "string", "array",   "object"};
    std::set<std::string_view> said;
    const auto say = [&](const Json& name) {
      if (!name.is_string() ||
          std::find(std::begin(kNames), std::end(kNames), name.string()) == std::end(kNames))
        wrong(schema, "type",
              "must be null, boolean, number, integer, string, array or object, or a list of them");
      said.insert(name.string());
    };
    if (value.is_array()) {
      for (const Json& name : value.array()) say(name);
    } else {
      say(value);
    }
    s.null &= said.contains("null");
    s.yes &= said.contains("boolean");
    s.no &= said.contains("boolean");
    s.integer |= !said.contains("number") && said.contains("integer");
    s.number &= said.contains("number") || said.contains("integer");
    s.string &= said.contains("string");
    s.array &= said.contains("array");
    s.object &= said.contains("object");
  }

  static void only(Shape& s, const std::vector<const Json*>& list) {
    auto out = std::make_shared<ValueSet>();
    for (const Json* v : list)
      if (!s.values || s.values->has(*v)) out->add(v);
    s.values = std::move(out);
  }

  CharDfa multiple(std::uint32_t schema, const Json& value) {
    if (!value.is_number() || !(value.number() > 0) || !std::isfinite(value.number()))
      wrong(schema, "multipleOf", "must be a number above 0");
    const std::string text = decimal_of(value);
    const std::size_t dot = text.find('.');
    const std::size_t places = dot == text.npos ? 0 : text.size() - dot - 1;
    std::string digits = text;
    if (dot != text.npos) digits.erase(dot, 1);
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
    if (digits.size() > 5 || places > 15)
      wrong(schema, "multipleOf", concat("of ", text, " needs too large an automaton"));
    return multiple_text(static_cast<std::uint64_t>(std::stoll(digits)), static_cast<int>(places), budget_);
  }

  // Made once, whoever asks first.
  static Dfa format(const std::string& name, const std::string& text) {
    static std::mutex mutex;
    static std::map<std::string, Dfa> made;
    const std::lock_guard lock(mutex);
    Dfa& dfa = made[name];
    if (!dfa) {
      GrammarBudget budget;
      dfa = std::make_shared<const CharDfa>(regex_dfa(text, false, budget));
    }
    return dfa;
  }

  Dfa pattern(const std::string& text, bool search) {
    Dfa& made = patterns_[{text, search}];
    if (!made) made = std::make_shared<const CharDfa>(regex_dfa(text, search, budget_));
    return made;
  }

  // -------------------------------------------------------------------------------------------- inside
  void add(SchemaSet& set, const Json& schema) const {
    if (schema.is_bool() && schema.boolean()) return;
    if (schema.is_object() && schema.object().empty()) return;
    const std::uint32_t n = number(schema);
    const auto at = std::lower_bound(set.begin(), set.end(), n);
    if (at == set.end() || *at != n) set.insert(at, n);
  }

  SchemaSet item(const Shape& s, std::size_t i) const {
    SchemaSet set;
    for (const std::uint32_t schema : s.schemas) {
      const Json* prefix = keyword(schema, "prefixItems");
      const Json* items = keyword(schema, "items");
      if (prefix && i < prefix->array().size()) add(set, prefix->array()[i]);
      else if (items) add(set, *items);
    }
    return set;
  }
  std::size_t prefix_length(const Shape& s) const {
    std::size_t n = 0;
    for (const std::uint32_t schema : s.schemas)
      if (const Json* prefix = keyword(schema, "prefixItems")) n = std::max(n, prefix->array().size());
    return n;
  }

  SchemaSet member(const Shape& s, std::string_view name) {
    SchemaSet set;
    for (const std::uint32_t schema : s.schemas) {
      bool named_here = false;
      if (const Json* properties = keyword(schema, "properties"))
        if (const Json* own = properties->find(name)) add(set, *own), named_here = true;
      if (const Json* patterns = keyword(schema, "patternProperties")) {
        for (const Json::Member& m : patterns->object())
          if (key_pattern(schema, m.key)->accepts(name)) add(set, m.value), named_here = true;
      }
      const Json* more = keyword(schema, "additionalProperties");
      if (more && !named_here) add(set, *more);
      if (const Json* keys = keyword(schema, "propertyNames"))
        if (SchemaSet one; add(one, *keys), !one.empty() && !matches(Json(name), one))
          set.insert(set.begin(), kNever);
    }
    return set;
  }
  Dfa key_pattern(std::uint32_t schema, const std::string& text) {
    return named(schema, "patternProperties", [&] { return pattern(text, true); });
  }

  // Names in the order of the schema, then those that are only required.
  std::vector<std::string> names(const Shape& s) const {
    std::vector<std::string> out;
    std::set<std::string_view> seen;
    for (const std::uint32_t schema : s.schemas)
      if (const Json* properties = keyword(schema, "properties"))
        for (const Json::Member& m : properties->object())
          if (seen.insert(m.key).second) out.push_back(m.key);
    for (const std::string& name : s.required)
      if (seen.insert(name).second) out.push_back(name);
    return out;
  }

  // ------------------------------------------------------------------------------------------- values
  bool matches(const Json& v, const Shape& s) {
    budget_.pay();
    if (s.values && !s.values->has(v)) return false;
    const auto all = [](const std::vector<Dfa>& list, const std::string& text) {
      return std::all_of(list.begin(), list.end(), [&](const Dfa& d) { return d->accepts(text); });
    };
    if (v.is_null()) return s.null;
    if (v.is_bool()) return v.boolean() ? s.yes : s.no;
    if (v.is_number()) return s.number && (!s.integer || v.is_integer()) && all(s.numbers, decimal_of(v));
    if (v.is_string()) {
      const auto n = static_cast<Dim>(unicode::codes(v.string()).size());
      return s.string && n >= s.min_length && (s.max_length < 0 || n <= s.max_length) &&
             all(s.strings, v.string());
    }
    if (v.is_array()) {
      const auto n = static_cast<Dim>(v.array().size());
      if (!s.array || n < s.min_items || (s.max_items >= 0 && n > s.max_items)) return false;
      for (std::size_t i = 0; i < v.array().size(); ++i)
        if (!matches(v.array()[i], item(s, i))) return false;
      return true;
    }
    const auto n = static_cast<Dim>(v.object().size());
    if (!s.object || n < s.min_members || (s.max_members >= 0 && n > s.max_members)) return false;
    for (const std::string& name : s.required)
      if (!v.find(name)) return false;
    for (const Json::Member& m : v.object())
      if (!matches(m.value, member(s, m.key))) return false;
    return true;
  }
  bool matches(const Json& v, const SchemaSet& set) {
    const std::vector<Shape>& shapes = shapes_of(set);
    return std::any_of(shapes.begin(), shapes.end(), [&](const Shape& s) { return matches(v, s); });
  }

  // -------------------------------------------------------------------------------------------- oneOf
  CharDfa number_dfa(const Shape& s) {
    CharDfa dfa = s.integer ? integer_text() : decimal_text();
    for (const Dfa& d : s.numbers) dfa = both(dfa, *d, budget_);
    return dfa;
  }
  CharDfa string_dfa(const Shape& s) {
    if (s.strings.empty()) return any_text(s.min_length, s.max_length);
    CharDfa dfa = *s.strings[0];
    for (std::size_t i = 1; i < s.strings.size(); ++i) dfa = both(dfa, *s.strings[i], budget_);
    return s.min_length == 0 && s.max_length < 0 ? dfa
                                                 : both(dfa, any_text(s.min_length, s.max_length), budget_);
  }

  CharDfa key_dfa(const Shape& s) {
    if (!s.values) return s.string ? string_dfa(s) : CharDfa();
    std::vector<std::string_view> texts;
    for (const Json* v : s.values->list)
      if (v->is_string()) texts.push_back(v->string());
    return one_of(texts, budget_);
  }
  bool disjoint(const SchemaSet& a, const SchemaSet& b, int depth) {
    if (depth > 6 || excluding_ > 6 || open_.contains(a) || open_.contains(b)) return false;
    const std::vector<Shape> x = shapes_of(a), y = shapes_of(b);
    for (const Shape& s : x)
      for (const Shape& t : y)
        if (!disjoint(s, t, depth)) return false;
    return true;
  }
  // No value is known to be of both.
  bool disjoint(const Shape& a, const Shape& b, int depth) {
    budget_.pay();
    if (a.values) return std::ranges::none_of(a.values->list, [&](const Json* v) { return matches(*v, b); });
    if (b.values) return disjoint(b, a, depth);
    if ((a.null && b.null) || (a.yes && b.yes) || (a.no && b.no)) return false;
    if (a.number && b.number && !both(number_dfa(a), number_dfa(b), budget_).nothing()) return false;
    if (a.string && b.string && !both(string_dfa(a), string_dfa(b), budget_).nothing()) return false;
    if (a.array && b.array && !disjoint_arrays(a, b, depth)) return false;
    return !(a.object && b.object) || disjoint_objects(a, b, depth);
  }
  bool disjoint_arrays(const Shape& a, const Shape& b, int depth) {
    if ((a.max_items >= 0 && a.max_items < b.min_items) || (b.max_items >= 0 && b.max_items < a.min_items))
      return true;
    const int both_have = std::min(std::max(a.min_items, b.min_items), 8);
    for (int i = 0; i < both_have; ++i) {
      const auto k = static_cast<std::size_t>(i);
      if (disjoint(item(a, k), item(b, k), depth + 1)) return true;
    }
    return false;
  }
  bool disjoint_objects(const Shape& a, const Shape& b, int depth) {
    if ((a.max_members >= 0 && a.max_members < b.min_members) ||
        (b.max_members >= 0 && b.max_members < a.min_members))
      return true;
    // A member that one must have and that the other has differently, or never.
    for (const auto* list : {&a.required, &b.required})
      for (const std::string& name : *list)
        if (disjoint(member(a, name), member(b, name), depth + 1)) return true;
    return false;
  }

  // Takes out of each alternative what another branch of a oneOf allows, too.
  void exclude(std::vector<Shape>& shapes) {
    const std::vector<Shape> all = shapes;
    ++excluding_;
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t k = 0; k < all.size(); ++k) {
        if (i == k) continue;
        budget_.pay(1 + all[i].branches.size() * all[k].branches.size() / 8);
        std::optional<std::uint32_t> differ;
        for (const auto& [schema, branch] : all[i].branches)
          for (const auto& [other, taken] : all[k].branches)
            if (schema == other && branch != taken) differ = schema;
        if (differ) subtract(shapes[i], all[i], all[k], *differ);
      }
    }
    --excluding_;
  }
  void subtract(Shape& out, const Shape& a, const Shape& b, std::uint32_t schema) {
    const auto minus = [&](const CharDfa& x, const CharDfa& y, std::vector<Dfa>& list, bool& type) {
      if (both(x, y, budget_).nothing()) return;
      list.push_back(std::make_shared<const CharDfa>(without(x, y, budget_)));
      type &= !list.back()->nothing();
    };
    named(schema, "oneOf", [&] {
      if (a.values) {
        out.values = values_if(*out.values, [&](const Json& v) { return !matches(v, b); });
        return;
      }
      if (b.values) {
        subtract_values(out, a, b.values->list, schema);
        return;
      }
      out.null &= !b.null;
      out.yes &= !b.yes;
      out.no &= !b.no;
      if (a.number && b.number) minus(number_dfa(a), number_dfa(b), out.numbers, out.number);
      if (a.string && b.string) minus(string_dfa(a), string_dfa(b), out.strings, out.string);
      if (b.array && b.schemas.empty() && b.min_items == 0 && b.max_items < 0) out.array = false;
      if (b.object && b.schemas.empty() && b.required.empty() && b.min_members == 0 && b.max_members < 0)
        out.object = false;
      if ((out.array && a.array && b.array && !disjoint_arrays(a, b, 0)) ||
          (out.object && a.object && b.object && !disjoint_objects(a, b, 0)))
        wrong(
            schema, "oneOf",
            "has branches that one value may match at once (they need different types, constants or required "
            "members); anyOf allows that");
    });
  }
  void subtract_values(Shape& out, const Shape& a, const std::vector<const Json*>& values,
                       std::uint32_t schema) {
    std::vector<std::string_view> texts;
    for (const Json* v : values) {
      if (!matches(*v, a)) continue;
      if (v->is_null()) out.null = false;
      else if (v->is_bool()) (v->boolean() ? out.yes : out.no) = false;
      else if (v->is_string()) texts.push_back(v->string());
      else if (v->is_number())
        out.numbers.push_back(
            std::make_shared<const CharDfa>(decimal_compare(decimal_of(*v), true, false, true)));
      else wrong(schema, "oneOf", "has a branch that allows a value of another branch");
    }
    if (!texts.empty())
      out.strings.push_back(
          std::make_shared<const CharDfa>(without(any_text(), one_of(texts, budget_), budget_)));
  }

  // ------------------------------------------------------------------------------------------- grammar
  Node node_of(const SchemaSet& set) {
    if (set.empty()) return b_.json_value();
    if (set[0] == kNever) return b_.nothing();
    if (const auto made = made_.find(set); made != made_.end()) return made->second;
    const Node rule = b_.state().reference(b_.state().new_rule(concat(where_, path(set[0]))));
    made_.emplace(set, rule);
    wanted_.push_back({set, rule});
    return rule;
  }

  // No rule: where the schema comes again inside of a value, it may be of every type.
  Node objects_of(const SchemaSet& set) {
    std::vector<Node> choices;
    for (Shape s : std::vector<Shape>(shapes_of(set))) {
      s.null = s.yes = s.no = s.number = s.string = s.array = false;
      if (s.values) s.values = values_if(*s.values, [](const Json& v) { return v.is_object(); });
      if (!s.nothing()) alternatives_of(s, set, choices);
    }
    if (choices.empty()) wrong(0, "", "allows no object");
    return b_.choice(std::move(choices));
  }

  void alternatives_of(const Shape& s, const SchemaSet& set, std::vector<Node>& out) {
    if (s.values) {
      for (const Json* v : s.values->list) out.push_back(value(*v));
      return;
    }
    if (s.null) out.push_back(b_.literal("null"));
    if (s.yes) out.push_back(b_.literal("true"));
    if (s.no) out.push_back(b_.literal("false"));
    if (s.number) {
      if (s.numbers.empty())
        out.push_back(b_.state().reference(s.integer ? SharedRules::kInteger : SharedRules::kNumber));
      else out.push_back(named(set[0], "", [&] { return b_.automaton(number_dfa(s), false); }));
    }
    if (s.string) out.push_back(string(s, set));
    if (s.array) out.push_back(array(s));
    if (s.object) out.push_back(object(s, set));
  }

  // One rule for all that ask for the same patterns and lengths.
  Node string(const Shape& s, const SchemaSet& set) {
    if (s.strings.empty() && s.min_length == 0 && s.max_length < 0) return b_.json_string();
    const auto [at, fresh] = strings_.try_emplace({s.strings, s.min_length, s.max_length});
    if (!fresh) return at->second;
    const Node rule = at->second = b_.state().reference(b_.state().new_rule(concat(where_, path(set[0]))));
    b_.define(rule, named(set[0], "", [&] {
                if (s.strings.empty()) return b_.json_string(s.min_length, s.max_length);
                return b_.sequence({b_.literal("\""), b_.automaton(string_dfa(s), true), b_.literal("\"")});
              }));
    return rule;
  }

  Node comma() { return b_.sequence({b_.literal(","), space_}); }

  Node value(const Json& v) {
    if (v.is_string()) return b_.literal(spelled(v.string()));
    if (v.is_number() && v.is_integer()) return b_.literal(std::to_string(v.integer()));
    if (!v.is_array() && !v.is_object()) return b_.literal(v.dump(0));
    std::vector<Node> parts = {b_.literal(v.is_array() ? "[" : "{")};
    const auto next = [&] {
      if (parts.size() > 1) parts.push_back(comma());
    };
    if (v.is_array()) {
      for (const Json& x : v.array()) next(), parts.push_back(value(x));
    } else {
      for (const Json::Member& m : v.object()) {
        next();
        parts.insert(parts.end(), {b_.literal(spelled(m.key) + ":"), space_, value(m.value)});
      }
    }
    parts.push_back(b_.literal(v.is_array() ? "]" : "}"));
    return b_.sequence(std::move(parts));
  }

  Node array(const Shape& s) {
    const std::size_t prefix = prefix_length(s);
    const auto least = static_cast<std::size_t>(s.min_items);
    const std::size_t most = s.max_items < 0 ? SIZE_MAX : static_cast<std::size_t>(s.max_items);
    // From behind: what may follow i items.
    const std::size_t known = std::min(prefix, most);
    const Node others = prefix < most ? node_of(item(s, prefix)) : b_.nothing();
    const Node more = b_.sequence({comma(), others});
    const auto rest = [&](std::size_t from) {  // items behind `from`, which stands in front of commas
      const std::size_t need = least > from ? least - from : 0;
      return b_.repeat(more, static_cast<int>(need), most == SIZE_MAX ? -1 : static_cast<int>(most - from));
    };
    Node tail;
    if (known > 0) {
      tail = rest(known);
      for (std::size_t i = known; i-- > 1;) {
        Node next = b_.sequence({comma(), node_of(item(s, i)), tail});
        tail = i >= least ? b_.optional(next) : next;
      }
      tail = b_.sequence({node_of(item(s, 0)), tail});
    } else {
      tail = most == 0 ? b_.nothing() : b_.sequence({others, rest(1)});
    }
    if (least == 0) tail = b_.optional(tail);
    return b_.sequence({b_.literal("["), tail, b_.literal("]")});
  }

  // Members in their order; a vertex says which ones have been and how many (as far as it matters).
  Node object(const Shape& s, const SchemaSet& set) {
    const std::vector<std::string> listed = names(s);
    const std::set<std::string_view> required(s.required.begin(), s.required.end());
    const int needed = s.min_members <= static_cast<int>(required.size()) ? 0 : s.min_members;
    const int counted = std::max({1, needed, s.max_members});
    const auto width = static_cast<std::uint32_t>(counted) + 1;
    if ((listed.size() + 1) * width > GrammarLimits::kDfaStates)
      wrong(set[0], "minProperties", "and maxProperties cannot be counted beside so many properties");
    GraphMaker graph;
    const auto place = [&](std::size_t i, int c) {
      return 2 + static_cast<std::uint32_t>(i) * width + static_cast<std::uint32_t>(c);
    };
    graph.vertices = 2 + static_cast<std::uint32_t>(listed.size() + 1) * width;
    graph.edge(0, b_.literal("{"), place(0, 0));
    const Node separator = comma(), empty = b_.empty();
    const auto next = [&](int c) {  // after one more; -1: there may be no more
      return s.max_members >= 0 && c == s.max_members ? -1 : std::min(c + 1, counted);
    };
    for (std::size_t i = 0; i < listed.size(); ++i) {
      budget_.pay(width);
      const Node key =
          b_.sequence({b_.literal(spelled(listed[i]) + ":"), space_, node_of(member(s, listed[i]))});
      const std::uint32_t begin = graph.vertices++;  // of the key, where nothing is counted
      if (counted == 1 && s.max_members < 0) graph.edge(begin, key, place(i + 1, 1));
      for (int c = 0; c <= counted; ++c) {
        if (!required.contains(listed[i])) graph.edge(place(i, c), empty, place(i + 1, c));
        const int then = next(c);
        if (then < 0) continue;
        if (counted == 1 && s.max_members < 0) graph.edge(place(i, c), c > 0 ? separator : empty, begin);
        else graph.edge(place(i, c), c > 0 ? b_.sequence({separator, key}) : key, place(i + 1, then));
      }
    }
    const Node others = b_.choice(other_members(s, listed));
    const Node another = b_.sequence({separator, others});
    const std::size_t end = listed.size();
    for (int c = 0; c <= counted; ++c) {
      if (const int then = next(c); then >= 0)
        graph.edge(place(end, c), c > 0 ? another : others, place(end, then));
      if (c >= needed) graph.edge(place(end, c), b_.literal("}"), 1);
    }
    return graph.node(b_);
  }

  // Members that have no name here: classes of keys by the patterns that they match.
  std::vector<Node> other_members(const Shape& s, const std::vector<std::string>& listed) {
    std::vector<std::pair<std::string, std::uint32_t>> keys;
    for (const std::uint32_t schema : s.schemas)
      if (const Json* patterns = keyword(schema, "patternProperties"))
        for (const Json::Member& m : patterns->object()) keys.push_back({m.key, schema});
    std::vector<Node> out;
    const auto put = [&](Node key, const SchemaSet& schemas) {
      if (!nothing_at_once(schemas))
        out.push_back(b_.sequence({key, b_.literal(":"), space_, node_of(schemas)}));
    };
    SchemaSet named_by;
    for (const std::uint32_t schema : s.schemas)
      if (const Json* k = keyword(schema, "propertyNames")) add(named_by, *k);
    if (keys.empty() && listed.empty() && named_by.empty()) {
      put(b_.json_string(), others_set(s, {}));
      return out;
    }
    if (keys.empty() && nothing_at_once(others_set(s, {}))) return out;
    std::vector<std::string_view> texts(listed.begin(), listed.end());
    struct Class {
      CharDfa dfa;
      std::vector<std::string> matched;
    };
    std::vector<Class> classes;
    classes.push_back(
        {listed.empty() ? any_text() : without(any_text(), one_of(texts, budget_), budget_), {}});
    if (!named_by.empty()) {
      // The strings that the names' schema allows, alternative by alternative.
      const CharDfa all = std::move(classes[0].dfa);
      classes.clear();
      for (const Shape& names_shape : std::vector<Shape>(shapes_of(named_by))) {
        CharDfa dfa = both(all, key_dfa(names_shape), budget_);
        for (const Class& c : classes) dfa = without(dfa, c.dfa, budget_);
        if (!dfa.nothing()) classes.push_back({std::move(dfa), {}});
      }
    }
    for (const auto& [text, schema] : keys) {
      if (std::any_of(classes.begin(), classes.end(), [&, t = std::string_view(text)](const Class& c) {
            return std::find(c.matched.begin(), c.matched.end(), t) != c.matched.end();
          }))
        continue;  // the same pattern in two schemas
      const Dfa dfa = key_pattern(schema, text);
      std::vector<Class> finer;
      for (Class& c : classes) {
        Class in{both(c.dfa, *dfa, budget_), c.matched}, rest{without(c.dfa, *dfa, budget_), c.matched};
        in.matched.push_back(text);
        for (Class* part : {&in, &rest})
          if (!part->dfa.nothing()) finer.push_back(std::move(*part));
      }
      classes = std::move(finer);
      if (classes.size() > 64) wrong(schema, "patternProperties", "overlap in more than 64 ways");
    }
    for (const Class& c : classes)
      put(b_.sequence({b_.literal("\""), b_.automaton(c.dfa, true), b_.literal("\"")}),
          others_set(s, c.matched));
    return out;
  }
  SchemaSet others_set(const Shape& s, const std::vector<std::string>& matched) const {
    SchemaSet set;
    for (const std::uint32_t schema : s.schemas) {
      bool named_here = false;
      if (const Json* patterns = keyword(schema, "patternProperties"))
        for (const Json::Member& m : patterns->object())
          if (std::find(matched.begin(), matched.end(), std::string(m.key)) != matched.end())
            add(set, m.value), named_here = true;
      const Json* more = keyword(schema, "additionalProperties");
      if (more && !named_here) add(set, *more);
    }
    return set;
  }
  bool nothing_at_once(const SchemaSet& set) const {
    return std::any_of(set.begin(), set.end(),
                       [&](std::uint32_t s) { return at(s).is_bool() && !at(s).boolean(); });
  }

  GrammarBuilder& b_;
  std::map<SchemaSet, std::vector<Shape>> shapes_;
  const std::vector<Shape> no_shapes_;
  std::set<SchemaSet> open_;  // whose shapes are being made
  int excluding_ = 0;
  std::map<SchemaSet, Node> made_;
  std::vector<std::pair<SchemaSet, Node>> wanted_;
  std::map<std::pair<std::string, bool>, Dfa> patterns_;
  std::map<std::tuple<std::vector<Dfa>, int, int>, Node> strings_;
  Node space_{};
};

}  // namespace

Node GrammarBuilder::schema(const Json& schema, std::string_view where) {
  return SchemaCompiler(*this, schema, where).compile(false);
}
Node GrammarBuilder::object_schema(const Json& schema, std::string_view where) {
  return SchemaCompiler(*this, schema, where).compile(true);
}

std::shared_ptr<const Grammar> grammar_from_schema(const Json& schema, std::string_view where) {
  GrammarBuilder b;
  const Node root = b.schema(schema, where);
  try {
    return b.build(root);
  } catch (const GrammarError& e) {
    throw GrammarError(concat(where, ": ", e.what()), e.keyword(), e.path());
  }
}

std::shared_ptr<const Grammar> grammar_from_schema_text(std::string_view schema, std::string_view where) {
  if (schema.size() > GrammarLimits::kSourceBytes)
    throw GrammarError(concat(where, ": a schema of ", schema.size(), " bytes; at most 65,536 are possible"));
  return grammar_from_schema(parse_json(schema, where), where);
}

}  // namespace rapt
