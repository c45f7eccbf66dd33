// SPDX-License-Identifier: Apache-2.0
// JSON as a value: objects keep their order, integers stay exact, every value knows its line and column. The parser trusts nothing:
// depth is limited, duplicate keys, lone surrogates, broken UTF-8 and trailing text are errors that say where.
//
//   value  = object | array | string | number | "true" | "false" | "null"
//   number = "-"? ("0" | [1-9][0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?        with neither dot nor exponent: an exact integer if it fits
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

template <class Value>  // a template only because it must wait for Json to be complete
struct JsonMember {
  std::string key;
  Value value;
  bool operator==(const JsonMember&) const = default;
};

class Json {
 public:
  using Member = JsonMember<Json>;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;
  static constexpr int kDepth = 64;

  Json() = default;
  Json(bool b) : value_(b) {}
  Json(int n) : value_(static_cast<std::int64_t>(n)) {}
  Json(std::int64_t n) : value_(n) {}
  Json(double x) : value_(x) {}
  Json(const char* s) : value_(std::string(s)) {}
  Json(std::string_view s) : value_(std::string(s)) {}
  Json(std::string s) : value_(std::move(s)) {}
  Json(Array a) : value_(std::move(a)) {}
  Json(Object o) : value_(std::move(o)) {}

  bool is_null() const { return value_.index() == 0; }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_number() const { return std::holds_alternative<std::int64_t>(value_) || std::holds_alternative<double>(value_); }
  bool is_integer() const;  // also 1e3 and 2.0, up to 2^53
  bool is_real() const { return std::holds_alternative<double>(value_); }  // written with a dot or an exponent, or too large
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  const char* type_name() const;  // "null", "a number", … for messages

  // The value as a type it is known to have (ask first; another type is a failure).
  bool boolean() const;
  double number() const;
  std::int64_t integer() const;
  const std::string& string() const;
  const Array& array() const;
  const Object& object() const;

  const Json* find(std::string_view key) const;  // of an object; nullptr where absent or no object
  void set(std::string key, Json value);         // makes this an object; replaces the key where it stands

  std::string dump(int indent = 2) const;  // indent 0: one line; else what fits 100 columns stays on its line
  bool operator==(const Json& other) const { return value_ == other.value_; }  // places do not count

  int line = 0, column = 0;  // where it stood; 0: not from a text

 private:
  void write(std::string& out, int indent, int depth) const;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

// `where` names the text in messages: "recipe.json:3:14: …".
Json parse_json(std::string_view text, std::string_view where = "json");
// The string in quotes, escaped.
std::string json_quote(std::string_view s);

}  // namespace rapt
