// SPDX-License-Identifier: Apache-2.0
// OpenAI's /v1/responses: its items as messages of a chat, its events. Nothing is kept: every reply says
// "store": false, and a conversation comes whole in `input`.
#include <algorithm>
#include <array>

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/apps/server/protocol_writers.h"
#include "rapt/base/text.h"

namespace rapt::server {
namespace {

using Kind = FieldRule::Kind;
using J = const Json&;
using P = std::string_view;

// ---------------------------------------------------------------------------------------------------- items
const Json* item_member(const Json& item, const char* name) {  // null is absent
  const Json* value = item.find(name);
  return value && !value->is_null() ? value : nullptr;
}

JsonText item_text(const Json& item, const char* name, std::string_view path, std::size_t most) {
  const Json* text = item_member(item, name);
  if (!text) bad_field(concat(path, ".", name), "it is required");
  check_field(string_rule("", 0, static_cast<double>(most), ""), *text, concat(path, ".", name));
  return text->string();
}

// A string, or parts with a line's end between them.
std::string text_of_item(const Json& value, std::string_view path) {
  if (value.is_string()) return value.string();
  check_field(items_rule("", Kind::list, kMostParts, ""), value, path);
  std::string out;
  for (std::size_t i = 0; i < value.array().size(); ++i) {
    const Json& part = value.array()[i];
    const std::string at = concat(path, "[", i, "]");
    const Json* type = part.find("type");
    if (!type || !type->is_string())
      bad_field(at, "a part is an object like {\"type\": \"input_text\", \"text\": \"…\"}");
    const std::string_view kind = type->string();
    if (kind == "input_image" || kind == "input_file" || kind == "input_audio")
      unsupported_field(at, concat("is of type '", kind, "'; this model reads text"));
    if (kind != "input_text" && kind != "output_text" && kind != "text" && kind != "summary_text" &&
        kind != "reasoning_text" && kind != "refusal")
      bad_field(concat(at, ".type"), "known: input_text, output_text, refusal");
    if (i > 0) out += '\n';
    out += item_text(part, kind == "refusal" ? "refusal" : "text", at, static_cast<std::size_t>(kText));
  }
  return out;
}

struct ResponsesReading {
  Translation translation = {};
  std::string instructions = {};
  Json told = {};
  Json::Array messages = {};
  // The assistant's message that items are still added to.
  bool speaking = false, said = false;
  std::string text = {}, thought = {};
  Json::Array calls = {};

  void tell(std::string_view name, const Json& value) { told.set(name, value); }
  void add(Json message) {
    flush();
    messages.push_back(std::move(message));
  }
  void flush() {
    if (!std::exchange(speaking, false)) return;
    Json message;
    message.set("role", "assistant");
    message.set("content", std::exchange(text, {}));
    if (!thought.empty()) message.set("reasoning_content", std::exchange(thought, {}));
    if (!calls.empty()) message.set("tool_calls", std::exchange(calls, {}));
    said = false;
    messages.push_back(std::move(message));
  }
};

void add_message(ResponsesReading& r, const Json& item, std::string_view path) {
  const Json* role = item_member(item, "role");
  if (!role) bad_field(concat(path, ".role"), "it is required");
  check_field(word_rule("", "user|assistant|system|developer", ""), *role, concat(path, ".role"));
  const Json* content = item_member(item, "content");
  if (!content) bad_field(concat(path, ".content"), "it is required");
  std::string text = text_of_item(*content, concat(path, ".content"));
  if (role->string() != "assistant") {
    r.add(Json::Object{{"role", *role}, {"content", Json(text)}});
    return;
  }
  if (r.said || !r.calls.empty()) r.flush();
  r.speaking = r.said = true;
  r.text = std::move(text);
}

void add_item(ResponsesReading& r, const Json& item, std::string_view path) {
  if (!item.is_object()) bad_field(path, concat("an item is an object, not ", item.type_name()));
  const Json* given_type = item_member(item, "type");
  const std::string type = !given_type               ? "message"
                           : given_type->is_string() ? std::string(given_type->string())
                                                     : "";
  if (type == "message") {
    add_message(r, item, path);
  } else if (type == "function_call") {
    Json function, call;
    function.set("name", item_text(item, "name", path, 256));
    function.set("arguments", item_text(item, "arguments", path, static_cast<std::size_t>(kText)));
    call.set("id", item_text(item, "call_id", path, 256));
    call.set("type", "function");
    call.set("function", std::move(function));
    if (r.calls.size() >= 128) bad_field(path, "at most 128 calls stand behind each other");
    r.speaking = true;
    r.calls.push_back(std::move(call));
  } else if (type == "function_call_output") {
    const std::string id = item_text(item, "call_id", path, 256);
    const Json* output = item_member(item, "output");
    if (!output) bad_field(concat(path, ".output"), "it is required");
    r.add(Json::Object{{"role", Json("tool")},
                       {"content", Json(text_of_item(*output, concat(path, ".output")))},
                       {"tool_call_id", Json(id)}});
  } else if (type == "reasoning") {
    if (r.said || !r.calls.empty()) r.flush();
    for (const char* name : {"content", "summary"}) {
      const Json* parts = item_member(item, name);
      if (!parts || !r.thought.empty()) continue;
      r.thought = text_of_item(*parts, concat(path, ".", name));
    }
    r.speaking = r.speaking || !r.thought.empty();
  } else if (type == "item_reference") {
    unsupported_field(path,
                      "refers to an item of an earlier response, and nothing is kept here; send it whole");
  } else {
    unsupported_field(concat(path, ".type"),
                      concat("is '", type.substr(0, 40),
                             "'; known: message, function_call, function_call_output, reasoning"));
  }
}

void put_input(ResponsesReading& r, const Json& value, std::string_view path) {
  if (value.is_string()) return r.add(Json::Object{{"role", Json("user")}, {"content", value}});
  if (!value.is_array())
    bad_field(path, concat("it must be a string or a list of items, not ", value.type_name()));
  check_field(items_rule("", Kind::list, kMostMessages - 1, ""), value, path);
  if (value.array().empty()) bad_field(path, "it is an empty list");
  for (std::size_t i = 0; i < value.array().size(); ++i)
    add_item(r, value.array()[i], concat(path, "[", i, "]"));
  r.flush();
  if (r.messages.empty()) bad_field(path, "it has no messages");
}

// ---------------------------------------------------------------------------------------------------- tools
void put_response_tools(ResponsesReading& r, const Json& list, std::string_view path) {
  Json::Array tools;
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    const Json& tool = list.array()[i];
    const std::string at = concat(path, "[", i, "]");
    const Json* type = tool.find("type");
    if (!type || !type->is_string())
      bad_field(at, "a tool is an object like {\"type\": \"function\", \"name\", \"parameters\"}");
    if (type->string() != "function")
      unsupported_field(concat(at, ".type"),
                        concat("is '", type->string().substr(0, 40), "'; only functions can be offered"));
    const Json* name = item_member(tool, "name");
    if (!name) bad_field(concat(at, ".name"), "it is required");
    tools.push_back(function_tool(*name, item_member(tool, "description"), item_member(tool, "parameters"),
                                  item_member(tool, "strict")));
  }
  r.translation.set("tools", std::move(tools));
  r.tell("tools", list);
}

void put_response_choice(ResponsesReading& r, const Json& choice, std::string_view path) {
  r.tell("tool_choice", choice);
  const Json* type = choice.find("type");
  const Json* name = choice.find("name");
  if (type && type->is_string() && type->string() == "function" && name) {
    Json function, out;
    function.set("name", *name);
    out.set("type", "function");
    out.set("function", std::move(function));
    return r.translation.set("tool_choice", std::move(out));
  }
  if (choice.is_object() && type && type->is_string() && type->string() != "allowed_tools" &&
      type->string() != "function")
    bad_field(concat(path, ".type"), "known: function, allowed_tools");
  r.translation.set("tool_choice", choice);
}

using Rsp = ResponsesReading;
constexpr std::array kResponsesText = std::to_array<Field<Rsp>>({
    {items_rule("format", Kind::object, 8,
                "{\"type\": \"text\", \"json_object\", or \"json_schema\" with name, schema, strict}."),
     [](Rsp& r, J v, P) { r.translation.set("response_format", v); }},
    {word_rule("verbosity", "low|medium|high", "Without effect.")},
});
constexpr std::array kResponsesReasoning = std::to_array<Field<Rsp>>({
    {word_rule("effort", "none|minimal|low|medium|high|xhigh|max", "A variable of the template."),
     [](Rsp& r, J v, P) { r.translation.set("reasoning_effort", v); }},
    {any_rule("summary", "Without effect: what was thought is told as it is.")},
});

constexpr std::array kResponses = std::to_array<Field<Rsp>>({
    {string_rule("model", 0, 256, "One model: any name answers."),
     [](Rsp& r, J v, P) { r.translation.set("model", v); }},
    {required(any_rule("input",
                       "A string, or items: messages (role, content), function_call, function_call_output, "
                       "reasoning.")),
     put_input},
    {string_rule("instructions", 0, kText, "A message of the system's before all others."),
     [](Rsp& r, J v, P) { r.instructions = v.string(), r.tell("instructions", v); }},
    {integer_rule("max_output_tokens", 0, kInt32, "Most tokens of the answer."),
     [](Rsp& r, J v, P) { r.translation.set("max_tokens", v), r.tell("max_output_tokens", v); }},
    {boolean_rule("stream", "Answer in events."), [](Rsp& r, J v, P) { r.translation.set("stream", v); }},
    {number_rule("temperature", 0, 2, "0: the most probable token."),
     [](Rsp& r, J v, P) { r.translation.set("temperature", v); }},
    {number_rule("top_p", 0, 1, "1: off."), [](Rsp& r, J v, P) { r.translation.set("top_p", v); }},
    {integer_rule("top_logprobs", 0, 20, "Log-probabilities of the answer, and so many others a place."),
     [](Rsp& r, J v, P) {
       if (v.integer() == 0) return;
       r.translation.set("top_logprobs", v), r.translation.set("logprobs", true);
     }},
    {items_rule("include", Kind::list, 32,
                "message.output_text.logprobs; the others are of things that no answer here has."),
     [](Rsp& r, J v, P) {
       for (const Json& one : v.array())
         if (one.is_string() && one.string() == "message.output_text.logprobs")
           r.translation.set("logprobs", true);
     }},
    {items_rule("tools", Kind::list, kMostTools, "{\"type\": \"function\", name, description, parameters}."),
     put_response_tools},
    {items_rule("tool_choice", Kind::choice, 0,
                "none, auto, required, {\"type\": \"function\", name}, or allowed_tools. Default auto."),
     put_response_choice},
    {boolean_rule("parallel_tool_calls", "An answer may have several calls. Default true."),
     [](Rsp& r, J v, P) {
       r.translation.set("parallel_tool_calls", v), r.tell("parallel_tool_calls", v);
     }},
    {schema_rule("text", "responses_text", "What the text of the answer must be."),
     [](Rsp& r, J v, P path) {
       read_fields<Rsp>(kResponsesText, r, v, concat(path, "."));
       r.tell("text", v);
     }},
    {schema_rule("reasoning", "responses_reasoning", "How much is thought."),
     [](Rsp& r, J v, P path) {
       read_fields<Rsp>(kResponsesReasoning, r, v, concat(path, "."));
       r.tell("reasoning", v);
     }},
    {boolean_rule("store", "Without effect: nothing is kept, and the reply says so.")},
    {items_rule("metadata", Kind::object, 16, "Told again in the reply."),
     [](Rsp& r, J v, P path) {
       for (const Json::Member& m : v.object())
         check_field(string_rule("", 0, 2048, ""), m.value, concat(path, ".", m.key.substr(0, 64)));
       r.tell("metadata", v);
     }},
    {string_rule("user", 0, 1024, "Who asks, for the log."),
     [](Rsp& r, J v, P) { r.translation.set("user", v); }},
    {any_rule("previous_response_id", "Refused: nothing is kept; send the conversation in input."),
     [](Rsp&, J, P path) {
       unsupported_field(path, "names an earlier response, and none are kept; send the whole conversation "
                               "in 'input'");
     }},
    {any_rule("conversation", "Refused, as previous_response_id."),
     [](Rsp&, J, P path) {
       unsupported_field(path, "is kept by the server, and nothing is here; send it whole in 'input'");
     }},
    {any_rule("prompt", "Refused: no prompts are kept."),
     [](Rsp&, J, P path) { unsupported_field(path, "is kept by the server, and none are here"); }},
    {later_rule("background", "false")},
    {later_rule("truncation", "\"disabled\"")},
    {integer_rule("seed", -kInt64, kInt64, "Ours: the same seed gives the same answer."),
     [](Rsp& r, J v, P) { r.translation.set("seed", v); }},
    {schema_rule("rapt", "rapt", "What only Rapt does."),
     [](Rsp& r, J v, P) { r.translation.set("rapt", v); }},
});

// -------------------------------------------------------------------------------------------------- replies
std::string output_text_part(std::string_view text, std::string_view logprobs) {
  return concat("{\"type\":\"output_text\",\"text\":", in_quotes(text), ",\"annotations\":[],\"logprobs\":[",
                logprobs, "]}");
}

std::string response_usage(const Usage& u) {
  return concat("{\"input_tokens\":", u.prompt_tokens,
                ",\"input_tokens_details\":{\"cached_tokens\":", u.cached_tokens,
                ",\"cache_write_tokens\":0},\"output_tokens\":", u.completion_tokens,
                ",\"output_tokens_details\":{\"reasoning_tokens\":", std::max<Dim>(0, u.reasoning_tokens),
                "},\"total_tokens\":", u.prompt_tokens + u.completion_tokens, "}");
}

}  // namespace

CompletionRequest read_responses(const Json& body, const ReadOptions& options) {
  ResponsesReading r;
  read_fields<Rsp>(kResponses, r, body);
  Json::Array messages;
  messages.reserve(r.messages.size() + 1);
  if (!r.instructions.empty())
    messages.push_back(Json::Object{{"role", Json("system")}, {"content", Json(r.instructions)}});
  for (Json& m : r.messages) messages.push_back(std::move(m));
  r.translation.set("messages", std::move(messages));
  r.translation.renames = {{".function.", "."}, {"response_format", "text.format"}};
  CompletionRequest request = r.translation.read(read_chat, options);
  request.told = std::move(r.told);
  return request;
}

std::span<const FieldRule> responses_rules() {
  static const std::vector<FieldRule> rules = [] {
    std::vector<FieldRule> out;
    for (const auto& f : kResponses) out.push_back(f.rule);
    return out;
  }();
  return rules;
}
std::span<const FieldRule> responses_text_rules() {
  static const std::vector<FieldRule> rules = {kResponsesText[0].rule, kResponsesText[1].rule};
  return rules;
}
std::span<const FieldRule> responses_reasoning_rules() {
  static const std::vector<FieldRule> rules = {kResponsesReasoning[0].rule, kResponsesReasoning[1].rule};
  return rules;
}

// --------------------------------------------------------------------------------------------------- writer
std::string ResponsesWriter::item_id(std::size_t index) const {
  const AnswerPart::Kind kind = items_[index].kind;
  const std::string_view own = std::string_view(head_.id).substr(std::min<std::size_t>(5, head_.id.size()));
  return concat(kind == AnswerPart::Kind::text        ? "msg_"
                : kind == AnswerPart::Kind::reasoning ? "rs_"
                                                      : "fc_",
                own, "_", index);
}

std::string ResponsesWriter::item_json(std::size_t index, std::string_view status) const {
  const Item& item = items_[index];
  const bool begun = status == "in_progress";
  std::string out = concat("{\"id\":", in_quotes(item_id(index)), ",\"status\":\"", status, "\",\"type\":");
  switch (item.kind) {
    case AnswerPart::Kind::text:
      return concat(out, "\"message\",\"role\":\"assistant\",\"content\":[",
                    begun ? "" : output_text_part(item.text, item.logprobs), "]}");
    case AnswerPart::Kind::reasoning:
      return concat(out, "\"reasoning\",\"summary\":[],\"content\":[",
                    begun ? "" : concat("{\"type\":\"reasoning_text\",\"text\":", in_quotes(item.text), "}"),
                    "]}");
    default:
      return concat(out, "\"function_call\",\"call_id\":", in_quotes(item.call_id),
                    ",\"name\":", in_quotes(item.name), ",\"arguments\":", in_quotes(begun ? "" : item.text),
                    "}");
  }
}

std::string ResponsesWriter::response(std::string_view status, const AnswerEnd* end) const {
  std::string out =
      concat("{\"id\":", in_quotes(head_.id), ",\"object\":\"response\",\"created_at\":", head_.created,
             ",\"status\":\"", status, "\",\"error\":null");
  const auto member = [&](const char* name, std::string_view value) {  // what the request said, or this
    const Json* told = request_.told.find(name);
    out += concat(",\"", name, "\":", told ? told->dump(0) : std::string(value));
  };
  out += concat(",\"incomplete_details\":",
                status == "incomplete" ? "{\"reason\":\"max_output_tokens\"}" : "null");
  out += concat(",\"model\":", in_quotes(head_.model), ",\"output\":[");
  if (end)
    for (std::size_t i = 0; i < items_.size(); ++i)
      out += concat(i > 0 ? "," : "", item_json(i, items_[i].whole ? "completed" : "incomplete"));
  out += "]";
  member("instructions", "null");
  member("max_output_tokens", "null");
  member("metadata", "{}");
  member("parallel_tool_calls", "true");
  member("reasoning", "{\"effort\":null,\"summary\":null}");
  member("text", "{\"format\":{\"type\":\"text\"}}");
  member("tool_choice", "\"auto\"");
  member("tools", "[]");
  out += concat(
      ",\"previous_response_id\":null,\"background\":false,\"store\":false,\"truncation\":\"disabled\"",
      ",\"temperature\":", shortest(request_.generate.sampler.temperature),
      ",\"top_p\":", shortest(request_.generate.sampler.top_p),
      ",\"system_fingerprint\":", in_quotes(head_.fingerprint),
      ",\"usage\":", end ? response_usage(end->usage) : "null");
  if (end) out += concat(",\"rapt\":", rapt_text(end->info, end->choice));
  return out + "}";
}

void ResponsesWriter::event(std::string& out, std::string_view type, std::string_view members) {
  out += concat("event: ", type, "\ndata: {\"type\":\"", type, "\",\"sequence_number\":", sequence_++, ",",
                members, "}\n\n");
}

std::string ResponsesWriter::place() const {
  return concat("\"item_id\":", in_quotes(item_id(items_.size() - 1)),
                ",\"output_index\":", items_.size() - 1);
}

void ResponsesWriter::begin(std::string& out, const Usage&) {
  const std::string now = concat("\"response\":", response("in_progress", nullptr));
  event(out, "response.created", now);
  event(out, "response.in_progress", now);
}

void ResponsesWriter::open(std::string& out, Item item) {
  close(out, false);
  items_.push_back(std::move(item));
  open_ = true;
  event(out, "response.output_item.added",
        concat("\"output_index\":", items_.size() - 1,
               ",\"item\":", item_json(items_.size() - 1, "in_progress")));
  const AnswerPart::Kind kind = items_.back().kind;
  if (kind == AnswerPart::Kind::call_begin) return;
  event(out, "response.content_part.added",
        concat(place(), ",\"content_index\":0,\"part\":",
               kind == AnswerPart::Kind::text ? output_text_part("", "")
                                              : "{\"type\":\"reasoning_text\",\"text\":\"\"}"));
}

void ResponsesWriter::close(std::string& out, bool cut) {
  if (!std::exchange(open_, false)) return;
  Item& item = items_.back();
  item.whole = !cut;
  if (item.kind == AnswerPart::Kind::call_begin) {
    if (!cut)
      event(out, "response.function_call_arguments.done",
            concat(place(), ",\"name\":", in_quotes(item.name), ",\"arguments\":", in_quotes(item.text)));
  } else if (item.kind == AnswerPart::Kind::text) {
    if (!logprobs_.empty()) {  // of tokens that are not shown: the end, a stop
      item.logprobs += concat(item.logprobs.empty() ? "" : ",", logprobs_);
      logprobs_.clear();
    }
    event(out, "response.output_text.done",
          concat(place(), ",\"content_index\":0,\"text\":", in_quotes(item.text), ",\"logprobs\":[",
                 item.logprobs, "]"));
    event(out, "response.content_part.done",
          concat(place(), ",\"content_index\":0,\"part\":", output_text_part(item.text, item.logprobs)));
  } else {
    event(out, "response.reasoning_text.done",
          concat(place(), ",\"content_index\":0,\"text\":", in_quotes(item.text)));
    event(out, "response.content_part.done",
          concat(place(), ",\"content_index\":0,\"part\":{\"type\":\"reasoning_text\",\"text\":",
                 in_quotes(item.text), "}"));
  }
  event(out, "response.output_item.done",
        concat("\"output_index\":", items_.size() - 1,
               ",\"item\":", item_json(items_.size() - 1, cut ? "incomplete" : "completed")));
}

void ResponsesWriter::part(std::string& out, const AnswerPart& part) {
  using Part = AnswerPart::Kind;
  switch (part.kind) {
    case Part::text:
    case Part::reasoning: {
      if (!open_ || items_.back().kind != part.kind) open(out, {.kind = part.kind});
      Item& item = items_.back();
      item.text += part.text;
      const bool text = part.kind == Part::text;
      const std::string logprobs = std::exchange(logprobs_, {});
      if (text && !logprobs.empty()) item.logprobs += concat(item.logprobs.empty() ? "" : ",", logprobs);
      event(out, text ? "response.output_text.delta" : "response.reasoning_text.delta",
            concat(place(), ",\"content_index\":0,\"delta\":", in_quotes(part.text),
                   text ? concat(",\"logprobs\":[", logprobs, "]") : ""));
      break;
    }
    case Part::call_begin:
      open(out, {.kind = Part::call_begin, .call_id = part.id, .name = part.text});
      break;
    case Part::call_arguments:
      items_.back().text += part.text;
      event(out, "response.function_call_arguments.delta",
            concat(place(), ",\"delta\":", in_quotes(part.text)));
      break;
    case Part::call_end: close(out, false); break;
  }
}

void ResponsesWriter::end(std::string& out, const AnswerEnd& end) {
  const bool cut = end.choice.finish != Finish::stop;
  close(out, cut);
  const std::string_view status = cut ? "incomplete" : "completed";
  event(out, concat("response.", status), concat("\"response\":", response(status, &end)));
}

std::string ResponsesWriter::reply(const AnswerMessage& message, const AnswerEnd& end) {
  const bool cut = end.choice.finish != Finish::stop;
  using Part = AnswerPart::Kind;
  if (!message.reasoning.empty()) items_.push_back({.kind = Part::reasoning, .text = message.reasoning});
  if (!message.text.empty())
    items_.push_back({.kind = Part::text, .text = message.text, .logprobs = logprobs_});
  if (cut && message.calls.empty() && !items_.empty()) items_.back().whole = false;
  for (const AnswerMessage::Call& call : message.calls)
    items_.push_back({.kind = Part::call_begin,
                      .text = call.arguments,
                      .call_id = call.id,
                      .name = call.name,
                      .whole = call.whole});
  return response(cut ? "incomplete" : "completed", &end);
}

// Flat, as the API says it, and with the `error` that clients look for.
std::string ResponsesWriter::error(const ApiError& error) {
  const std::string body = error_body(error);
  std::string out;
  event(out, "error",
        concat("\"code\":", in_quotes(error.code), ",\"message\":", in_quotes(error.message),
               ",\"param\":", error.param.empty() ? "null" : in_quotes(error.param), ",",
               std::string_view(body).substr(1, body.size() - 2)));
  return out;
}

}  // namespace rapt::server
