// SPDX-License-Identifier: Apache-2.0
// Fields of request bodies as tables: name, kind, range, and where a value goes. Limits, error messages and
// the OpenAPI document come from these lines. null is absent; a field that no table has is ignored; one of a
// wrong type or out of range is refused with its name and the numbers.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/apps/server/protocol_error.h"
#include "rapt/base/json.h"

namespace rapt::server {

struct FieldRule {
  enum class Kind {
    boolean,
    integer,   // least … most
    number,    // least … most, finite
    string,    // of least … most bytes
    strings,   // a string or a list of at most `items` of them; each of least … most bytes
    ids,       // a list of at most `items` token ids
    texts,     // string | strings | ids | lists of ids: at most `items`
    list,      // of anything, at most `items`
    object,    // of anything, at most `items` members
    any,       // what `put` makes of it
    schema,    // … of the fields of the table `of`
    choice,    // a string or an object: whoever puts it says what it may be
    later,     // known, and not possible yet: refused unless it is one of `words`, as JSON
  };
  const char* name;
  Kind kind;
  double least = 0, most = 0;
  std::size_t items = 0;
  const char* words = "";  // strings: those allowed, separated by '|'; later: harmless values as JSON, by '|'
  const char* about = "";  // for the document
  const char* of = "";  // schema: the name of its table
  bool required = false;
};

inline constexpr double kInt32 = 2147483647, kInt64 = 9223372036854775808.0;
inline constexpr double kText = 16 << 20;  // bytes of a string whose length the body's limit bounds

constexpr FieldRule boolean_rule(const char* name, const char* about) {
  return {.name = name, .kind = FieldRule::Kind::boolean, .about = about};
}
constexpr FieldRule integer_rule(const char* name, double least, double most, const char* about) {
  return {.name = name, .kind = FieldRule::Kind::integer, .least = least, .most = most, .about = about};
}
constexpr FieldRule number_rule(const char* name, double least, double most, const char* about) {
  return {.name = name, .kind = FieldRule::Kind::number, .least = least, .most = most, .about = about};
}
constexpr FieldRule string_rule(const char* name, double least, double most, const char* about) {
  return {.name = name, .kind = FieldRule::Kind::string, .least = least, .most = most, .about = about};
}
constexpr FieldRule word_rule(const char* name, const char* words, const char* about) {
  return {.name = name, .kind = FieldRule::Kind::string, .words = words, .about = about};
}
constexpr FieldRule strings_rule(const char* name, double least, double most, std::size_t items,
                                 const char* about) {
  return {.name = name,
          .kind = FieldRule::Kind::strings,
          .least = least,
          .most = most,
          .items = items,
          .about = about};
}
constexpr FieldRule items_rule(const char* name, FieldRule::Kind kind, std::size_t items, const char* about) {
  return {.name = name, .kind = kind, .items = items, .about = about};
}
constexpr FieldRule any_rule(const char* name, const char* about) {
  return {.name = name, .kind = FieldRule::Kind::any, .about = about};
}
constexpr FieldRule schema_rule(const char* name, const char* of, const char* about) {
  return {.name = name, .kind = FieldRule::Kind::schema, .about = about, .of = of};
}
constexpr FieldRule later_rule(const char* name, const char* harmless = "") {
  return {.name = name, .kind = FieldRule::Kind::later, .words = harmless, .about = "Not supported yet."};
}
constexpr FieldRule required(FieldRule rule) {
  rule.required = true;
  return rule;
}

// Fails with an ApiError 400 that names the field: `path` is it as clients write it ("stream_options" for a
// field of the body, "rapt.stream.keep" inside).
void check_field(const FieldRule& rule, const Json& value, std::string_view path);
[[noreturn]] void bad_field(std::string_view path, std::string_view message);  // 400 invalid_value
[[noreturn]] void unsupported_field(std::string_view path, std::string_view message);  // 400 unsupported_…

void refuse_unknown(std::span<const std::string> names, const Json& object, std::string_view path);

template <class Target>
struct Field {
  FieldRule rule;
  // After check_field; may refuse what the rule cannot say. nullptr: read and not used.
  void (*put)(Target& target, const Json& value, std::string_view path) = nullptr;
};

// An object's fields into `target`, in the order of the table. strict: a key that the table does not have is
// refused, with the nearest name. `path` is what stands before the names ("", "rapt.").
template <class Target>
void read_fields(std::span<const Field<Target>> table, Target& target, const Json& object,
                 std::string_view path = "", bool strict = false) {
  if (strict) {
    std::vector<std::string> names;
    for (const Field<Target>& field : table) names.emplace_back(field.rule.name);
    refuse_unknown(names, object, path);
  }
  for (const Field<Target>& field : table) {
    const std::string full = std::string(path) + field.rule.name;
    const Json* value = object.find(field.rule.name);
    if (!value || value->is_null()) {
      if (field.rule.required) bad_field(full, "it is required");
      continue;
    }
    check_field(field.rule, *value, full);
    if (field.put) field.put(target, *value, full);
  }
}

// The tables by name, for the document: "chat", "completions", "embeddings", "rerank", "classify",
// "tokenize", "detokenize", "template", and those inside: "stream_options", "rapt", "rapt_stream",
// "rapt_compare", "rapt_continue", "rapt_replay".
struct FieldTable {
  std::string_view name;
  std::span<const FieldRule> rules;
};
std::span<const FieldTable> field_tables();
// … and those of other vendors' APIs: "responses", "messages", "ollama_chat" …
std::span<const FieldTable> vendor_tables();

}  // namespace rapt::server
