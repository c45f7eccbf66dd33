// SPDX-License-Identifier: Apache-2.0
// Places, references, keywords.
#include "rapt/text/grammar/schema_document.h"

#include <algorithm>
#include <utility>

#include "rapt/text/grammar/uri.h"

namespace rapt {
namespace {

std::string pointer_part(std::string_view key) {
  std::string out = "/";
  for (const char c : key) {
    if (c == '~') out += "~0";
    else if (c == '/') out += "~1";
    else out += c;
  }
  return out;
}

}  // namespace

SchemaDocument::SchemaDocument(const Json& schema, std::string_view where, GrammarBudget& budget)
    : budget_(budget), where_(where) {
  scan(schema, kNobody, "", 0, 0, false);
  resources_.try_emplace("", 0);
}

void SchemaDocument::scan(const Json& value, std::uint32_t parent, std::string key, int depth,
                          std::uint32_t resource, bool data) {
  budget_.pay();
  if (depth > GrammarLimits::kDepth) wrong(parent, "", "is nested more than 32 schemas deep");
  if ((value.is_object() || value.is_array()) && ++nodes_ > GrammarLimits::kSchemaNodes)
    wrong(0, "", concat("has more than ", GrammarLimits::kSchemaNodes, " nodes"));
  const auto number = static_cast<std::uint32_t>(places_.size());
  // Objects of schemas are no schemas themselves.
  const bool names =
      key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions";
  const int below = depth + (value.is_object() && !names ? 1 : 0);
  data |= key == "const" || key == "enum" || key == "default" || key == "examples";
  places_.push_back({&value, parent, std::move(key), resource});
  number_of_[&value] = number;
  if (const Json* id = value.find("$id"); id && id->is_string() && !data) {
    const std::string uri = resolve_uri(id->string(), places_[resource].base);
    places_[number].base = uri.substr(0, uri.find('#'));
    places_[number].resource = resource = number;
    resources_.try_emplace(places_[number].base, number);
  }
  if (value.is_object())
    for (const Json::Member& m : value.object())
      scan(m.value, number, std::string(m.key), below, resource, data);
  if (value.is_array())
    for (std::size_t i = 0; i < value.array().size(); ++i)
      scan(value.array()[i], number, std::to_string(i), below, resource, data);
}

std::string SchemaDocument::path(std::uint32_t place) const {
  std::vector<std::string> parts;
  for (; place != kNobody && places_[place].parent != kNobody; place = places_[place].parent)
    parts.push_back(pointer_part(places_[place].key));
  std::string out;
  for (auto p = parts.rbegin(); p != parts.rend(); ++p) out += *p;
  return out;
}

void SchemaDocument::wrong(std::uint32_t schema, std::string_view keyword, std::string_view what) const {
  const std::string at = path(schema) + (keyword.empty() ? "" : pointer_part(keyword));
  throw GrammarError(concat(where_, at.empty() ? "" : concat(" at ", at), ": ",
                            keyword.empty() ? "this" : concat("'", keyword, "'"), " ", what),
                     std::string(keyword), at);
}

int SchemaDocument::count(std::uint32_t schema, std::string_view name, const Json& value) const {
  if (!value.is_integer() || value.integer() < 0) wrong(schema, name, "must be a whole number from 0 on");
  if (value.integer() > GrammarLimits::kRepetition)
    wrong(schema, name, concat("is larger than ", GrammarLimits::kRepetition, ", the most that is counted"));
  return static_cast<int>(value.integer());
}

void SchemaDocument::check_keywords(std::uint32_t schema) {
  if (!checked_.insert(schema).second) return;
  static const std::set<std::string_view> kKnown = {
      "$ref", "allOf", "anyOf", "oneOf", "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum",
      "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems",
      "prefixItems", "items", "properties", "patternProperties", "additionalProperties", "required",
      "minProperties", "maxProperties", "propertyNames",
      // They say nothing about values.
      "$schema", "$id", "$anchor", "$defs", "$comment", "definitions", "title", "description", "default",
      "examples", "example", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType",
      "contentSchema", "discriminator", "$dynamicAnchor"};
  for (const Json::Member& m : at(schema).object()) {
    if (kKnown.contains(m.key) || m.key.starts_with("x-")) continue;
    // Without effect.
    const bool no = m.value.is_bool() && !m.value.boolean(), yes = m.value.is_bool() && m.value.boolean();
    if ((m.key == "uniqueItems" || m.key == "nullable") && no) continue;
    if ((m.key == "unevaluatedProperties" || m.key == "unevaluatedItems") && yes) continue;
    if (m.key == "if" && !keyword(schema, "then") && !keyword(schema, "else")) continue;
    if ((m.key == "then" || m.key == "else") && !keyword(schema, "if")) continue;
    wrong(schema, m.key, "is not supported");
  }
  if (const Json* id = keyword(schema, "$id"); id && !id->is_string())
    wrong(schema, "$id", "must be a string");
}

std::uint32_t SchemaDocument::target(std::uint32_t schema) const {
  const Json& ref = *keyword(schema, "$ref");
  if (!ref.is_string()) wrong(schema, "$ref", "must be a string");
  const std::string uri = resolve_uri(ref.string(), places_[places_[schema].resource].base);
  const std::size_t mark = std::min(uri.find('#'), uri.size());
  const auto resource = resources_.find(uri.substr(0, mark));
  if (resource == resources_.end())
    wrong(schema, "$ref", "leads out of the schema: only references within it (#/$defs/…) are followed");
  const std::string text = mark < uri.size() ? uri.substr(mark) : "#";
  std::string part;
  std::vector<std::string> parts;
  for (std::size_t i = 1; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%' && i + 2 < text.size()) {
      const auto digit = [](char d) {
        return d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : -1;
      };
      if (digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
        c = static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
        i += 2;
      }
    } else if (c == '/') {
      if (i > 1) parts.push_back(std::exchange(part, ""));
      continue;
    } else if (c == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
      c = text[++i] == '0' ? '~' : '/';
    }
    part += c;
  }
  if (text.size() > 1 && text[1] == '/') {
    parts.push_back(part);
  } else if (text.size() > 1) {
    for (std::uint32_t i = 0; i < places_.size(); ++i) {
      if (!at(i).is_object() || places_[i].resource != resource->second) continue;
      for (const char* name : {"$anchor", "$dynamicAnchor"})
        if (const Json* a = at(i).find(name); a && a->is_string() && a->string() == part) return i;
    }
    wrong(schema, "$ref", concat("names the anchor '", part, "', which is not there"));
  }
  const Json* to = &at(resource->second);
  for (const std::string& p : parts) {
    const Json* next = nullptr;
    if (to->is_object()) next = to->find(p);
    else if (to->is_array() && !p.empty() && p.size() < 6 && p.find_first_not_of("0123456789") == p.npos &&
             static_cast<std::size_t>(std::stoi(p)) < to->array().size())
      next = &to->array()[static_cast<std::size_t>(std::stoi(p))];
    if (!next) wrong(schema, "$ref", concat("leads to ", text, ", which is not there"));
    to = next;
  }
  return number(*to);
}

const Json::Array& SchemaDocument::schema_list(std::uint32_t schema, std::string_view name) const {
  const Json& list = *keyword(schema, name);
  if (!list.is_array() || list.array().empty()) wrong(schema, name, "must be a list of schemas");
  return list.array();
}

}  // namespace rapt
