// SPDX-License-Identifier: Apache-2.0
// What a request says of functions that the model may call and of the form that its answer must have. Every
// API's reader fills these; `path` is the name of a thing in the words of that API, for errors.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/json.h"

namespace rapt::server {

inline constexpr std::size_t kMostTools = 128, kMostToolName = 64, kMostSchemaBytes = 64 << 10,
                             kMostGrammarBytes = 64 << 10;

struct ToolFunction {
  std::string name;  // letters, digits, '_', '-' and '.', at most kMostToolName: check_tool_name()
  std::string description;
  Json parameters;  // a schema, an object; null: the function takes nothing
  bool strict = false;
  std::string path;  // of its parameters: "tools[0].function.parameters"
};

struct ToolRequest {
  std::vector<ToolFunction> functions;
  enum class Choice { none, automatic, required } choice = Choice::automatic;
  std::vector<std::string> allowed;  // names, each of a function; empty: all. One and required: a named one
  bool parallel = true;  // false: at most one call
  bool active() const { return !functions.empty() && choice != Choice::none; }
  bool allows(std::string_view name) const;
  // As chat templates read them: [{"type": "function", "function": {"name", "description", "parameters"}}]
  Json for_template() const;
};

struct AnswerFormat {
  enum class Kind { text, json_object, json_schema, grammar } kind = Kind::text;
  Json schema;  // json_schema
  std::string grammar;  // grammar: GBNF
  std::string path;  // of the schema or the grammar
};

// OpenAI's fields of a chat. Fail with an ApiError 400 that names the field.
void check_tool_name(std::string_view name, std::string_view path);
void read_tools(ToolRequest& request, const Json& list, std::string_view path);
void read_tool_choice(ToolRequest& request, const Json& choice, std::string_view path);  // after the tools
void read_response_format(AnswerFormat& format, const Json& value, std::string_view path);
void read_schema(AnswerFormat& format, const Json& schema, std::string_view path);  // "json_schema"
void read_grammar(AnswerFormat& format, const Json& grammar, std::string_view path);  // "grammar"

}  // namespace rapt::server
