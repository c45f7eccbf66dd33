// SPDX-License-Identifier: Apache-2.0
// Anthropic's /v1/messages: its fields, its blocks as messages of a chat, its events.
#include <algorithm>
#include <array>
#include <map>

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/apps/server/protocol_writers.h"
#include "rapt/base/text.h"

namespace rapt::server {
namespace {

using Kind = FieldRule::Kind;
using J = const Json&;
using P = std::string_view;

// ------------------------------------------------------------------------------------------------ messages
const Json* member(const Json& object, std::string_view name) {  // null is absent
  const Json* value = object.find(name);
  return value && !value->is_null() ? value : nullptr;
}

std::string_view block_type(const Json& block, std::string_view path) {
  const Json* type = block.find("type");
  if (!type || !type->is_string())
    bad_field(path, "a block is an object like {\"type\": \"text\", \"text\": \"…\"}");
  for (const char* other : {"image", "document", "container_upload"})
    if (type->string() == other)
      unsupported_field(path, concat("is of type '", other, "'; this model reads text"));
  return type->string();
}

JsonText block_text(const Json& block, const char* name, std::string_view path) {
  const Json* text = block.find(name);
  if (!text || !text->is_string()) bad_field(concat(path, ".", name), "it must be a string");
  return text->string();
}

// A string, or blocks of text, with a line's end between them.
std::string text_of_blocks(const Json& value, std::string_view path) {
  if (value.is_string()) return value.string();
  check_field(items_rule("", Kind::list, kMostParts, ""), value, path);
  std::string out;
  for (std::size_t i = 0; i < value.array().size(); ++i) {
    const std::string at = concat(path, "[", i, "]");
    if (block_type(value.array()[i], at) != "text") bad_field(concat(at, ".type"), "known: text");
    if (i > 0) out += '\n';
    out += block_text(value.array()[i], "text", at);
  }
  return out;
}

struct MessagesReading {
  Translation translation = {};
  std::string system = {};
  Json::Array messages = {};
  Json variables = {};
  std::map<std::string, std::string, std::less<>> called = {};  // the names of calls by id

  void add(Json message) {
    if (messages.size() >= kMostMessages)
      bad_field("messages", concat("their blocks make more than ", kMostMessages, " messages"));
    messages.push_back(std::move(message));
  }
  void add(std::string_view role, Json content) {
    add(Json::Object{{"role", Json(role)}, {"content", std::move(content)}});
  }
};

void add_assistant(MessagesReading& r, const Json::Array& blocks, std::string_view path) {
  std::string text, thought;
  Json::Array calls;
  const auto more = [](std::string& out, std::string_view piece) {
    if (!out.empty()) out += '\n';
    out += piece;
  };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Json& block = blocks[i];
    const std::string at = concat(path, "[", i, "]");
    const std::string_view type = block_type(block, at);
    if (type == "text") {
      more(text, block_text(block, "text", at));
    } else if (type == "thinking") {
      more(thought, block_text(block, "thinking", at));
    } else if (type == "tool_use") {
      const std::string name = block_text(block, "name", at), id = block_text(block, "id", at);
      if (name.empty() || name.size() > 256)
        bad_field(concat(at, ".name"), "a name of 1 to 256 bytes is wanted");
      if (id.size() > 256) bad_field(concat(at, ".id"), "at most 256 bytes are allowed");
      const Json* input = member(block, "input");
      if (input && !input->is_object()) bad_field(concat(at, ".input"), "it must be an object");
      if (calls.size() >= 128) bad_field(path, "at most 128 calls stand in a message");
      Json function, call;
      function.set("name", name);
      function.set("arguments", input ? *input : Json(Json::Object{}));
      call.set("id", id);
      call.set("type", "function");
      call.set("function", std::move(function));
      calls.push_back(std::move(call));
      r.called[id] = name;
    } else if (type != "redacted_thinking") {  // which nobody but its author can read
      bad_field(concat(at, ".type"), "known: text, thinking, redacted_thinking, tool_use");
    }
  }
  Json message;
  message.set("role", "assistant");
  message.set("content", text);
  if (!thought.empty()) message.set("reasoning_content", thought);
  if (!calls.empty()) message.set("tool_calls", std::move(calls));
  r.add(std::move(message));
}

void add_user(MessagesReading& r, const Json::Array& blocks, std::string_view path) {
  std::string text;
  bool any = blocks.empty();
  const auto flush = [&] {
    if (any) r.add("user", text);
    text.clear(), any = false;
  };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Json& block = blocks[i];
    const std::string at = concat(path, "[", i, "]");
    const std::string_view type = block_type(block, at);
    if (type == "text") {
      if (any) text += '\n';
      text += block_text(block, "text", at);
      any = true;
    } else if (type == "tool_result") {
      const std::string id = block_text(block, "tool_use_id", at);
      if (id.size() > 256) bad_field(concat(at, ".tool_use_id"), "at most 256 bytes are allowed");
      flush();
      const Json* content = member(block, "content");
      Json message;
      message.set("role", "tool");
      message.set("content", content ? text_of_blocks(*content, concat(at, ".content")) : std::string());
      message.set("tool_call_id", id);
      if (const auto it = r.called.find(id); it != r.called.end()) message.set("name", it->second);
      r.add(std::move(message));
    } else {
      bad_field(concat(at, ".type"), "known: text, tool_result");
    }
  }
  flush();
}

void put_messages(MessagesReading& r, const Json& list, std::string_view path) {
  check_field(items_rule("", Kind::list, kMostMessages, ""), list, path);
  if (list.array().empty()) bad_field(path, "it is an empty list");
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    const Json& message = list.array()[i];
    const std::string at = concat(path, "[", i, "]");
    if (!message.is_object())
      bad_field(at, concat("a message is an object with role and content, not ", message.type_name()));
    const Json* role = member(message, "role");
    const Json* content = member(message, "content");
    if (!role) bad_field(concat(at, ".role"), "it is required");
    check_field(word_rule("", "user|assistant|system", ""), *role, concat(at, ".role"));
    if (!content) bad_field(concat(at, ".content"), "it is required");
    const std::string inside = concat(at, ".content");
    if (content->is_string()) {
      r.add(role->string(), *content);
      continue;
    }
    check_field(items_rule("", Kind::list, kMostParts, ""), *content, inside);
    if (role->string() == "assistant") add_assistant(r, content->array(), inside);
    else if (role->string() == "user") add_user(r, content->array(), inside);
    else r.add("system", text_of_blocks(*content, inside));
  }
  // An answer that was begun is gone on with.
  const Json& last = r.messages.back();
  if (last.find("role")->string() != "assistant" || last.find("tool_calls")) return;
  if (last.find("content")->string().empty())
    bad_field(concat(path, "[", list.array().size() - 1, "].content"),
              "the last message is the assistant's, which the answer goes on with, and it is empty");
  r.translation.set("continue_final_message", true);
  r.translation.set("add_generation_prompt", false);
}

// ---------------------------------------------------------------------------------------------------- tools
void put_tools(MessagesReading& r, const Json& list, std::string_view path) {
  Json::Array tools;
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    const Json& tool = list.array()[i];
    const std::string at = concat(path, "[", i, "]");
    if (!tool.is_object()) bad_field(at, "a tool is an object with name and input_schema");
    if (const Json* type = member(tool, "type"); type && !(type->is_string() && type->string() == "custom"))
      unsupported_field(concat(at, ".type"), "is one of the vendor's own tools; this server has \"custom\"");
    const Json* name = member(tool, "name");
    if (!name) bad_field(concat(at, ".name"), "it is required");
    tools.push_back(function_tool(*name, member(tool, "description"), member(tool, "input_schema"),
                                  member(tool, "strict")));
  }
  r.translation.set("tools", std::move(tools));
}

void put_tool_choice(MessagesReading& r, const Json& choice, std::string_view path) {
  const Json* type = choice.find("type");
  if (!type) bad_field(concat(path, ".type"), "it is required");
  check_field(word_rule("", "auto|any|tool|none", ""), *type, concat(path, ".type"));
  if (type->string() == "tool") {
    const Json* name = choice.find("name");
    if (!name || !name->is_string()) bad_field(concat(path, ".name"), "it must be a string");
    Json function, out;
    function.set("name", *name);
    out.set("type", "function");
    out.set("function", std::move(function));
    r.translation.set("tool_choice", std::move(out));
  } else {
    r.translation.set("tool_choice", type->string() == "any" ? Json("required") : *type);
  }
  if (const Json* one = member(choice, "disable_parallel_tool_use")) {
    check_field(boolean_rule("", ""), *one, concat(path, ".disable_parallel_tool_use"));
    if (one->boolean()) r.translation.set("parallel_tool_calls", false);
  }
}

void put_format(MessagesReading& r, const Json& format, std::string_view path) {
  const Json* type = format.find("type");
  if (!type || !type->is_string() || type->string() != "json_schema")
    bad_field(concat(path, ".type"), "known: json_schema");
  const Json* schema = format.find("schema");
  if (!schema || !schema->is_object()) bad_field(concat(path, ".schema"), "it must be an object");
  Json inside, out;
  inside.set("name", "answer");
  inside.set("schema", *schema);
  inside.set("strict", true);
  out.set("type", "json_schema");
  out.set("json_schema", std::move(inside));
  r.translation.set("response_format", std::move(out));
  r.translation.renames.emplace_back("response_format.json_schema.schema", concat(path, ".schema"));
}

void put_thinking(MessagesReading& r, const Json& thinking, std::string_view path) {
  const Json* type = thinking.find("type");
  if (!type) bad_field(concat(path, ".type"), "it is required");
  check_field(word_rule("", "enabled|adaptive|disabled", ""), *type, concat(path, ".type"));
  r.variables.set("enable_thinking", type->string() != "disabled");
}

// --------------------------------------------------------------------------------------------------- fields
using Msg = MessagesReading;
constexpr std::array kOutputConfig = std::to_array<Field<Msg>>({
    {word_rule("effort", "low|medium|high|xhigh|max", "A variable of the template."),
     [](Msg& r, J v, P) { r.translation.set("reasoning_effort", v); }},
    {items_rule("format", Kind::object, 16, "{\"type\": \"json_schema\", \"schema\": {…}}."), put_format},
});

// What makes the prompt.
constexpr std::array kMessagesPrompt = std::to_array<Field<Msg>>({
    {string_rule("model", 0, 256, "One model: any name answers."),
     [](Msg& r, J v, P) { r.translation.set("model", v); }},
    {required(any_rule("messages",
                       "role: user, assistant, system; content: a string, or blocks text, tool_use, "
                       "tool_result, thinking. A last one of the assistant's is gone on with.")),
     put_messages},
    {any_rule("system", "A string, or blocks of text."),
     [](Msg& r, J v, P path) { r.system = without_stamp(text_of_blocks(v, path)); }},
    {items_rule("tools", Kind::list, kMostTools, "name, description, input_schema."), put_tools},
    {items_rule("tool_choice", Kind::object, 8, "type: auto, any, none, or tool with its name."),
     put_tool_choice},
    {items_rule(
         "thinking", Kind::object, 8,
         "type: enabled, adaptive, disabled; the template's enable_thinking. budget_tokens has no effect."),
     put_thinking},
    {schema_rule("output_config", "messages_output", "Effort, and the form of the answer."),
     [](Msg& r, J v, P path) { read_fields<Msg>(kOutputConfig, r, v, concat(path, ".")); }},
    {items_rule("output_format", Kind::object, 16, "As output_config.format."), put_format},
    {later_rule("mcp_servers", "[]")},
    {later_rule("container")},
});

constexpr std::array kMessagesRest = std::to_array<Field<Msg>>({
    {integer_rule("max_tokens", 0, kInt32, "Most tokens of the answer. Default: what the context holds."),
     [](Msg& r, J v, P) { r.translation.set("max_tokens", v); }},
    {boolean_rule("stream", "Answer in events."), [](Msg& r, J v, P) { r.translation.set("stream", v); }},
    {strings_rule("stop_sequences", 1, 256, 16, "Texts that end the answer and are not part of it."),
     [](Msg& r, J v, P) { r.translation.set("stop", v); }},
    {number_rule("temperature", 0, 2, "0: the most probable token."),
     [](Msg& r, J v, P) { r.translation.set("temperature", v); }},
    {number_rule("top_p", 0, 1, "1: off."), [](Msg& r, J v, P) { r.translation.set("top_p", v); }},
    {integer_rule("top_k", 0, kInt32, "0: off."), [](Msg& r, J v, P) { r.translation.set("top_k", v); }},
    {items_rule("metadata", Kind::object, 64, "user_id: who asks."),
     [](Msg& r, J v, P path) {
       const Json* user = member(v, "user_id");
       if (!user) return;
       check_field(string_rule("", 0, 1024, ""), *user, concat(path, ".user_id"));
       r.translation.set("user", *user);
     }},
    {integer_rule("seed", -kInt64, kInt64, "Ours: the same seed gives the same answer."),
     [](Msg& r, J v, P) { r.translation.set("seed", v); }},
    {schema_rule("rapt", "rapt", "What only Rapt does."),
     [](Msg& r, J v, P) { r.translation.set("rapt", v); }},
});

MessagesReading read_messages_body(const Json& body, bool all) {
  MessagesReading r;
  read_fields<Msg>(kMessagesPrompt, r, body);
  if (all) read_fields<Msg>(kMessagesRest, r, body);
  Json::Array messages;
  messages.reserve(r.messages.size() + 1);
  if (!r.system.empty())
    messages.push_back(Json::Object{{"role", Json("system")}, {"content", Json(r.system)}});
  for (Json& m : r.messages) messages.push_back(std::move(m));
  r.translation.set("messages", std::move(messages));
  if (!r.variables.is_null()) r.translation.set("chat_template_kwargs", std::move(r.variables));
  r.translation.renames.emplace_back(".function.parameters", ".input_schema");
  r.translation.renames.emplace_back(".function.name", ".name");
  r.translation.renames.emplace_back("parallel_tool_calls", "tool_choice.disable_parallel_tool_use");
  return r;
}

// --------------------------------------------------------------------------------------------------- events
std::string message_event(std::string_view type, std::string_view members) {
  return concat("event: ", type, "\ndata: {\"type\":\"", type, "\"", members.empty() ? "" : ",", members,
                "}\n\n");
}

std::string message_usage(const Usage& u) {
  return concat("{\"input_tokens\":", u.prompt_tokens - u.cached_tokens,
                ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":", u.cached_tokens,
                ",\"output_tokens\":", u.completion_tokens, "}");
}

// "stop_reason":…,"stop_sequence":…
std::string message_stop(const AnswerEnd& end) {
  const std::string& stop = end.choice.stop;
  const std::string_view reason =
      end.choice.finish != Finish::stop
          ? end.choice.finish_detail == "context" ? "model_context_window_exceeded" : "max_tokens"
      : end.called    ? "tool_use"
      : !stop.empty() ? "stop_sequence"
                      : "end_turn";
  return concat("\"stop_reason\":\"", reason,
                "\",\"stop_sequence\":", reason == "stop_sequence" ? in_quotes(stop) : "null");
}

}  // namespace

std::string without_stamp(std::string system) {
  if (!system.starts_with("x-anthropic-billing-header")) return system;
  const std::size_t line = std::min(system.find('\n'), system.size()), at = system.find("cch=");
  if (at >= line) return system;
  return system.erase(at + 4, std::min(system.find(';', at), line) - at - 4);
}

CompletionRequest read_messages(const Json& body, const ReadOptions& options) {
  return read_messages_body(body, true).translation.read(read_chat, options);
}
CompletionRequest read_messages_prompt(const Json& body, const ReadOptions& options) {
  return read_messages_body(body, false).translation.read(read_template, options);
}
std::string count_tokens_reply(Dim tokens) { return concat("{\"input_tokens\":", tokens, "}"); }

std::span<const FieldRule> messages_rules() {
  static const std::vector<FieldRule> rules = [] {
    std::vector<FieldRule> out;
    for (const auto& f : kMessagesPrompt) out.push_back(f.rule);
    for (const auto& f : kMessagesRest) out.push_back(f.rule);
    return out;
  }();
  return rules;
}
std::span<const FieldRule> messages_prompt_rules() { return messages_rules().first(kMessagesPrompt.size()); }
std::span<const FieldRule> messages_output_rules() {
  static const std::vector<FieldRule> rules = {kOutputConfig[0].rule, kOutputConfig[1].rule};
  return rules;
}

// --------------------------------------------------------------------------------------------------- writer
std::string MessagesWriter::head(std::string_view content, std::string_view stop,
                                 const std::string& usage) const {
  return concat("{\"id\":", in_quotes(head_.id),
                ",\"type\":\"message\",\"role\":\"assistant\",\"model\":", in_quotes(head_.model),
                ",\"content\":[", content, "],", stop, ",\"usage\":", usage);
}

void MessagesWriter::begin(std::string& out, const Usage& usage) {
  Usage before = usage;
  before.completion_tokens = 0;
  out += message_event(
      "message_start",
      concat("\"message\":", head("", "\"stop_reason\":null,\"stop_sequence\":null", message_usage(before)),
             "}"));
}

void MessagesWriter::open(std::string& out, AnswerPart::Kind kind, std::string_view block) {
  close(out);
  ++index_, open_ = true, kind_ = kind;
  out +=
      message_event("content_block_start", concat("\"index\":", index_, ",\"content_block\":{", block, "}"));
}

void MessagesWriter::close(std::string& out) {
  if (open_) out += message_event("content_block_stop", concat("\"index\":", index_));
  open_ = false;
}

void MessagesWriter::part(std::string& out, const AnswerPart& part) {
  using Part = AnswerPart::Kind;
  const auto delta = [&](const char* type, const char* name) {
    out += message_event("content_block_delta", concat("\"index\":", index_, ",\"delta\":{\"type\":\"", type,
                                                       "\",\"", name, "\":", in_quotes(part.text), "}"));
  };
  switch (part.kind) {
    case Part::text:
      if (!open_ || kind_ != Part::text) open(out, Part::text, "\"type\":\"text\",\"text\":\"\"");
      delta("text_delta", "text");
      break;
    case Part::reasoning:
      if (!open_ || kind_ != Part::reasoning)
        open(out, Part::reasoning, "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"");
      delta("thinking_delta", "thinking");
      break;
    case Part::call_begin:
      open(out, Part::call_begin,
           concat("\"type\":\"tool_use\",\"id\":", in_quotes(part.id), ",\"name\":", in_quotes(part.text),
                  ",\"input\":{}"));
      break;
    case Part::call_arguments: delta("input_json_delta", "partial_json"); break;
    case Part::call_end: close(out); break;
  }
}

void MessagesWriter::end(std::string& out, const AnswerEnd& end) {
  close(out);
  out += message_event("message_delta",
                       concat("\"delta\":{", message_stop(end), "},\"usage\":", message_usage(end.usage),
                              ",\"rapt\":", rapt_text(end.info, end.choice)));
  out += message_event("message_stop", "");
}

std::string MessagesWriter::reply(const AnswerMessage& message, const AnswerEnd& end) {
  std::string content;
  const auto block = [&](const std::string& members) {
    content += concat(content.empty() ? "" : ",", "{", members, "}");
  };
  if (!message.reasoning.empty())
    block(concat("\"type\":\"thinking\",\"thinking\":", in_quotes(message.reasoning), ",\"signature\":\"\""));
  std::string text = message.text;
  for (const AnswerMessage::Call& call : message.calls)  // what is no object cannot be a block's input
    if (!is_json_object(call.arguments)) text += call.arguments;
  if (!text.empty()) block(concat("\"type\":\"text\",\"text\":", in_quotes(text)));
  for (const AnswerMessage::Call& call : message.calls)
    if (is_json_object(call.arguments))
      block(concat("\"type\":\"tool_use\",\"id\":", in_quotes(call.id), ",\"name\":", in_quotes(call.name),
                   ",\"input\":", parse_json(call.arguments).dump(0)));
  return concat(head(content, message_stop(end), message_usage(end.usage)),
                ",\"rapt\":", rapt_text(end.info, end.choice), "}");
}

std::string MessagesWriter::error(const ApiError& error) {
  return concat("event: error\ndata: ", error_body(error, Vendor::anthropic, head_.id), "\n\n");
}

}  // namespace rapt::server
