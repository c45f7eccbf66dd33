// SPDX-License-Identifier: Apache-2.0
// OpenAI's tools, tool_choice and response_format, with llama.cpp's and vLLM's other ways to say them.
#include "rapt/apps/server/protocol_tools.h"

#include <algorithm>

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/base/text.h"

namespace rapt::server {
namespace {

using Kind = FieldRule::Kind;

const Json* given(const Json& object, const char* name) {  // null is absent
  const Json* value = object.find(name);
  return value && !value->is_null() ? value : nullptr;
}

std::string_view type_of(const Json& object, std::string_view path, std::string_view known) {
  if (!object.is_object()) bad_field(path, concat("it must be an object, not ", object.type_name()));
  const Json* type = given(object, "type");
  if (!type || !type->is_string()) bad_field(concat(path, ".type"), concat("it is required; known: ", known));
  return type->string();
}

void check_object(const Json& value, std::size_t bytes, std::string_view path) {
  if (!value.is_object()) bad_field(path, concat("it must be an object, not ", value.type_name()));
  if (value.memory() > bytes * 16 || value.dump(0).size() > bytes)
    bad_field(path, concat("it has more than ", bytes, " bytes of JSON"));
}

std::string function_name(const Json& object, std::string_view path) {
  const Json* function = given(object, "function");
  const Json* name = function && function->is_object() ? given(*function, "name") : nullptr;
  if (!name || !name->is_string())
    bad_field(concat(path, ".function.name"), "it is required: the name of one of the tools");
  return name->string();
}

// A choice of functions must be of those there are.
void check_known(const ToolRequest& request, const std::string& name, std::string_view path) {
  std::vector<std::string> names;
  for (const ToolFunction& f : request.functions) names.push_back(f.name);
  if (std::find(names.begin(), names.end(), name) == names.end())
    bad_field(path,
              concat("there is no tool '", name.substr(0, 64), "'; ", name_hint(name.substr(0, 64), names)));
}

ToolFunction read_function(const Json& tool, std::string_view path) {
  const std::string_view type = type_of(tool, path, "function");
  if (type != "function")
    unsupported_field(concat(path, ".type"),
                      concat("is '", type.substr(0, 40), "'; only functions can be offered"));
  const Json* function = given(tool, "function");
  if (!function || !function->is_object())
    bad_field(concat(path, ".function"), "it is required: an object with the function's name");
  const auto at = [&](const char* name) { return concat(path, ".function.", name); };
  ToolFunction out{.path = at("parameters")};
  const Json* name = given(*function, "name");
  if (!name || !name->is_string()) bad_field(at("name"), "it is required, a string");
  out.name = name->string();
  check_tool_name(out.name, at("name"));
  if (const Json* text = given(*function, "description")) {
    check_field({.name = "", .kind = Kind::string, .most = kMostSchemaBytes}, *text, at("description"));
    out.description = text->string();
  }
  if (const Json* parameters = given(*function, "parameters")) {
    check_object(*parameters, kMostSchemaBytes, out.path);
    out.parameters = *parameters;
  }
  if (const Json* strict = given(*function, "strict")) {
    check_field({.name = "", .kind = Kind::boolean}, *strict, at("strict"));
    out.strict = strict->boolean();
  }
  return out;
}

void set_format(AnswerFormat& format, AnswerFormat::Kind kind, std::string path) {
  if (format.kind != AnswerFormat::Kind::text)
    bad_field(path, concat("'", format.path, "' is given too; give one of them"));
  format.kind = kind;
  format.path = std::move(path);
}

}  // namespace

bool ToolRequest::allows(std::string_view name) const {
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), name) != allowed.end();
}

Json ToolRequest::for_template() const {
  Json::Array out;
  for (const ToolFunction& f : functions) {
    Json tool, function;
    function.set("name", f.name);
    if (!f.description.empty()) function.set("description", f.description);
    Json none;
    none.set("type", "object");
    none.set("properties", Json::Object{});
    function.set("parameters", f.parameters.is_null() ? none : f.parameters);
    tool.set("type", "function");
    tool.set("function", std::move(function));
    out.push_back(std::move(tool));
  }
  return out;
}

void check_tool_name(std::string_view name, std::string_view path) {
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (name.empty() || name.size() > kMostToolName || !plain)
    bad_field(path,
              concat("names of functions have 1 to ", kMostToolName, " of the characters a-z A-Z 0-9 _ - ."));
}

void read_tools(ToolRequest& request, const Json& list, std::string_view path) {
  check_field({.name = "", .kind = Kind::list, .items = kMostTools}, list, path);
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    ToolFunction f = read_function(list.array()[i], concat(path, "[", i, "]"));
    for (const ToolFunction& other : request.functions)
      if (other.name == f.name)
        bad_field(concat(path, "[", i, "].function.name"), concat("two tools are called '", f.name, "'"));
    request.functions.push_back(std::move(f));
  }
}

void read_tool_choice(ToolRequest& request, const Json& choice, std::string_view path) {
  using Choice = ToolRequest::Choice;
  if (choice.is_string()) {
    const std::string_view word = choice.string();
    if (word != "none" && word != "auto" && word != "required")
      bad_field(path, "known: none, auto, required, or an object that names a function");
    request.choice = word == "none"       ? Choice::none
                     : word == "required" ? Choice::required
                                          : Choice::automatic;
    if (word == "required" && request.functions.empty())
      bad_field(path, "it is 'required', and there are no tools");
    return;
  }
  const std::string_view type = type_of(choice, path, "function, allowed_tools");
  if (type == "function") {
    request.choice = Choice::required;
    request.allowed = {function_name(choice, path)};
    return check_known(request, request.allowed[0], concat(path, ".function.name"));
  }
  if (type != "allowed_tools") bad_field(concat(path, ".type"), "known: function, allowed_tools");
  // {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}; the Responses API has them one level up.
  const Json* inside = given(choice, "allowed_tools");
  const Json& set = inside && inside->is_object() ? *inside : choice;
  const std::string at = inside ? concat(path, ".allowed_tools") : std::string(path);
  const Json *mode = given(set, "mode"), *tools = given(set, "tools");
  if (!mode || !mode->is_string() || (mode->string() != "auto" && mode->string() != "required"))
    bad_field(concat(at, ".mode"), "it is required; known: auto, required");
  if (!tools || !tools->is_array() || tools->array().empty() || tools->array().size() > kMostTools)
    bad_field(concat(at, ".tools"), concat("it is required: a list of 1 to ", kMostTools, " tools"));
  request.choice = mode->string() == "auto" ? Choice::automatic : Choice::required;
  for (std::size_t i = 0; i < tools->array().size(); ++i) {
    const Json& tool = tools->array()[i];
    const std::string where = concat(at, ".tools[", i, "]");
    const Json* name = tool.is_object() ? given(tool, "name") : nullptr;  // the Responses API's form
    const std::string called =
        name && name->is_string() ? std::string(name->string()) : function_name(tool, where);
    check_known(request, called, where);
    request.allowed.push_back(called);
  }
}

void read_schema(AnswerFormat& format, const Json& schema, std::string_view path) {
  check_object(schema, kMostSchemaBytes, path);
  set_format(format, AnswerFormat::Kind::json_schema, std::string(path));
  format.schema = schema;
}

void read_grammar(AnswerFormat& format, const Json& grammar, std::string_view path) {
  check_field({.name = "", .kind = Kind::string, .most = kMostGrammarBytes}, grammar, path);
  if (grammar.string().empty()) return;
  set_format(format, AnswerFormat::Kind::grammar, std::string(path));
  format.grammar = grammar.string();
}

void read_response_format(AnswerFormat& format, const Json& value, std::string_view path) {
  const std::string_view type = type_of(value, path, "text, json_object, json_schema");
  if (type == "text") return;
  if (type == "json_object") {
    if (const Json* schema = given(value, "schema"))
      return read_schema(format, *schema, concat(path, ".schema"));
    return set_format(format, AnswerFormat::Kind::json_object, std::string(path));
  }
  if (type != "json_schema") bad_field(concat(path, ".type"), "known: text, json_object, json_schema");
  const Json* inside = given(value, "json_schema");
  const Json& holder =
      inside && inside->is_object() ? *inside : value;  // or flat, as the Responses API has it
  const std::string at = inside ? concat(path, ".json_schema") : std::string(path);
  const Json* schema = given(holder, "schema");
  if (const Json* name = given(holder, "name"))
    check_field({.name = "", .kind = Kind::string, .most = 256}, *name, concat(at, ".name"));
  if (const Json* strict = given(holder, "strict"))
    check_field({.name = "", .kind = Kind::boolean}, *strict, concat(at, ".strict"));
  if (!schema) {
    if (!inside) bad_field(concat(at, ".schema"), "it is required, an object");
    return set_format(format, AnswerFormat::Kind::json_object, std::string(path));
  }
  read_schema(format, *schema, concat(at, ".schema"));
}

}  // namespace rapt::server
