// SPDX-License-Identifier: Apache-2.0
// A value against the line of its table.
#include "rapt/apps/server/protocol_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rapt/base/text.h"

namespace rapt::server {
namespace {

using Kind = FieldRule::Kind;

// A bound as a client would write it.
std::string limit_text(double x) {
  constexpr double kWhole = 9223372036854775808.0;  // 2^63
  if (x >= kWhole) return std::to_string(std::numeric_limits<std::int64_t>::max());
  if (x <= -kWhole) return std::to_string(std::numeric_limits<std::int64_t>::min());
  return std::floor(x) == x ? std::to_string(static_cast<std::int64_t>(x)) : shortest(x);
}

// What came, short enough for a message: nobody gets a megabyte of their own text back.
std::string value_text(const Json& value) {
  if (value.is_number()) return value.is_real() ? shortest(value.number()) : std::to_string(value.integer());
  if (value.is_bool()) return value.boolean() ? "true" : "false";
  if (value.is_string() && value.string().size() <= 40) return json_quote(value.string());
  if (value.is_string()) return concat("a string of ", value.string().size(), " bytes");
  if (value.is_array()) return concat("a list of ", value.array().size());
  return value.type_name();
}

void check_number(const FieldRule& rule, const Json& value, std::string_view path) {
  const bool whole = rule.kind == Kind::integer;
  const auto wants = [&] {
    return concat(whole ? "an integer from " : "a number from ", limit_text(rule.least), " to ",
                  limit_text(rule.most));
  };
  if (!value.is_number() || (whole && !value.is_integer()))
    bad_field(path, concat("it must be ", wants(), ", not ", value_text(value)));
  const double x = value.number();
  if (!(std::isfinite(x) && x >= rule.least && x <= rule.most))
    bad_field(path, concat("it is ", value_text(value), " and must be ", wants()));
}

// One of the words between the bars.
bool among(std::string_view words, const auto& matches) {
  for (;;) {
    const std::size_t bar = words.find('|');
    if (!words.empty() && matches(words.substr(0, bar))) return true;
    if (bar == std::string_view::npos) return false;
    words.remove_prefix(bar + 1);
  }
}

void check_string(const FieldRule& rule, const Json& value, std::string_view path) {
  if (!value.is_string()) bad_field(path, concat("it must be a string, not ", value_text(value)));
  const std::string_view text = value.string();
  const std::string_view words = rule.words;
  if (!words.empty()) {
    if (!among(words, [&](std::string_view w) { return w == text; })) {
      std::string list;
      for (char c : words) c == '|' ? list += ", " : list += c;
      bad_field(path, concat("it is ", value_text(value), "; known: ", list));
    }
    return;
  }
  const auto size = static_cast<double>(text.size());
  if (size < rule.least || size > rule.most)
    bad_field(path, concat("it has ", text.size(), " bytes; allowed are ", limit_text(rule.least), " to ",
                           limit_text(rule.most)));
}

void check_items(const FieldRule& rule, std::size_t size, const char* what, std::string_view path) {
  if (size > rule.items)
    bad_field(path, concat("it has ", size, " ", what, "; at most ", rule.items, " are allowed"));
}

bool same_value(const Json& a, const Json& b) {  // 1 is 1.0
  return a.is_number() && b.is_number() ? a.number() == b.number() : a == b;
}

}  // namespace

void bad_field(std::string_view path, std::string_view message) {
  throw ApiError(400, "invalid_value", concat("'", path, "': ", message, "."), path);
}
void unsupported_field(std::string_view path, std::string_view message) {
  throw ApiError(400, "unsupported_parameter", concat("'", path, "' ", message, "."), path);
}

void check_field(const FieldRule& rule, const Json& value, std::string_view path) {
  switch (rule.kind) {
    case Kind::boolean:
      if (!value.is_bool()) bad_field(path, concat("it must be true or false, not ", value_text(value)));
      return;
    case Kind::integer:
    case Kind::number: return check_number(rule, value, path);
    case Kind::string: return check_string(rule, value, path);
    case Kind::strings:
      if (!value.is_array()) {
        if (!value.is_string())
          bad_field(path, concat("it must be a string or a list of strings, not ", value_text(value)));
        return check_string(rule, value, path);
      }
      check_items(rule, value.array().size(), "strings", path);
      for (std::size_t i = 0; i < value.array().size(); ++i)
        check_string(rule, value.array()[i], concat(path, "[", i, "]"));
      return;
    case Kind::ids:
    case Kind::list:
      if (!value.is_array()) bad_field(path, concat("it must be a list, not ", value_text(value)));
      return check_items(rule, value.array().size(), "entries", path);
    case Kind::texts:
      if (!value.is_array() && !value.is_string())
        bad_field(path,
                  concat("it must be a string, a list of strings, a list of token ids or a list of such "
                         "lists, not ",
                         value_text(value)));
      if (value.is_array() && value.array().empty()) bad_field(path, "it is an empty list");
      // A list of ids is one text, however long.
      if (value.is_array() && !value.array()[0].is_number())
        check_items(rule, value.array().size(), "texts", path);
      return;
    case Kind::object:
    case Kind::schema:
      if (!value.is_object()) bad_field(path, concat("it must be an object, not ", value_text(value)));
      if (rule.kind == Kind::object) check_items(rule, value.object().size(), "members", path);
      return;
    case Kind::any: return;
    case Kind::choice:
      if (!value.is_string() && !value.is_object())
        bad_field(path, concat("it must be a string or an object, not ", value_text(value)));
      return;
    case Kind::later:
      if (among(rule.words, [&](std::string_view w) { return same_value(parse_json(w), value); })) return;
      unsupported_field(path, *rule.words ? concat("is not supported here with ", value_text(value),
                                                   " (without effect, and accepted: ", rule.words, ")")
                                          : "is not supported here");
  }
}

void refuse_unknown(std::span<const std::string> names, const Json& object, std::string_view path) {
  for (const Json::Member& m : object.object())
    if (std::find(names.begin(), names.end(), m.key) == names.end())
      bad_field(concat(path, m.key.substr(0, 64)),
                concat("there is no such field; ", name_hint(m.key.substr(0, 64), names)));
}

}  // namespace rapt::server
