// SPDX-License-Identifier: Apache-2.0
// Tables of routes and fields as an OpenAPI document.
#include "rapt/apps/server/protocol_openapi.h"

#include <cmath>

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/base/json.h"

namespace rapt::server {
namespace {

using Kind = FieldRule::Kind;

Json whole_or_real(double x) {  // as short as it can be written
  constexpr double kExact = 9007199254740992.0;
  return std::fabs(x) < kExact && std::floor(x) == x ? Json(static_cast<std::int64_t>(x)) : Json(x);
}
Json count_of(std::size_t n) { return static_cast<std::int64_t>(n); }
Json reference(std::string_view name) {
  return Json::Object{{"$ref", "#/components/schemas/" + std::string(name)}};
}
// A null is a field left out.
Json or_null(const char* type) { return Json::Array{Json(type), Json("null")}; }

Json string_schema(const FieldRule& rule) {
  Json out;
  out.set("type", "string");
  if (const std::string_view words = rule.words; !words.empty()) {
    Json::Array list;
    for (std::size_t from = 0; from <= words.size();) {
      const std::size_t bar = std::min(words.find('|', from), words.size());
      list.push_back(words.substr(from, bar - from));
      from = bar + 1;
    }
    out.set("enum", std::move(list));
    return out;
  }
  // Bytes, where the document counts characters: never more of them.
  if (rule.least > 0) out.set("minLength", 1);
  out.set("maxLength", whole_or_real(rule.most));
  return out;
}

Json list_schema(Json item, std::size_t most, std::size_t least = 0) {
  Json out;
  out.set("type", "array");
  out.set("items", std::move(item));
  if (least > 0) out.set("minItems", count_of(least));
  out.set("maxItems", count_of(most));
  return out;
}

Json id_schema() {
  return Json::Object{{"type", "integer"}, {"minimum", 0}, {"maximum", std::int64_t{2147483647}}};
}

Json any_of(std::initializer_list<Json> kinds) {
  Json::Array list;
  for (const Json& kind : kinds) list.push_back(kind);
  list.push_back(Json::Object{{"type", "null"}});
  return Json::Object{{"anyOf", Json(std::move(list))}};
}

Json later_schema(const FieldRule& rule) {
  Json::Array list = {Json()};
  for (std::string_view words = rule.words; !words.empty();) {
    const std::size_t bar = std::min(words.find('|'), words.size());
    list.push_back(parse_json(words.substr(0, bar)));
    words.remove_prefix(std::min(bar + 1, words.size()));
  }
  return Json::Object{{"enum", Json(std::move(list))}};
}

Json message_schema() {
  return parse_json(R"({
    "type": "object", "required": ["role"],
    "properties": {
      "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool", "function"]},
      "content": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "array", "items": {
        "type": "object", "required": ["type"],
        "properties": {"type": {"type": "string", "enum": ["text", "refusal"]},
                       "text": {"type": "string"}, "refusal": {"type": "string"}}}}]},
      "name": {"type": ["string", "null"], "maxLength": 256},
      "tool_call_id": {"type": ["string", "null"], "maxLength": 256},
      "reasoning_content": {"type": ["string", "null"]},
      "tool_calls": {"type": ["array", "null"], "maxItems": 128, "items": {"type": "object"}}}})");
}

Json field_schema(const FieldRule& rule) {
  Json out;
  switch (rule.kind) {
    case Kind::boolean: out.set("type", or_null("boolean")); break;
    case Kind::integer:
    case Kind::number:
      out.set("type", or_null(rule.kind == Kind::integer ? "integer" : "number"));
      out.set("minimum", whole_or_real(rule.least));
      out.set("maximum", whole_or_real(rule.most));
      break;
    case Kind::string: out = any_of({string_schema(rule)}); break;
    case Kind::strings:
      out = any_of({string_schema(rule), list_schema(string_schema(rule), rule.items)});
      break;
    case Kind::ids: out = any_of({list_schema(id_schema(), rule.items)}); break;
    case Kind::texts: {
      const Json text = Json::Object{{"type", "string"}};
      const std::size_t ids = std::size_t{1} << 20;
      out = any_of({text, list_schema(text, rule.items, 1), list_schema(id_schema(), ids, 1),
                    list_schema(list_schema(id_schema(), ids, 1), rule.items, 1)});
      break;
    }
    case Kind::list:
      out = std::string_view(rule.name) == "messages" ? list_schema(reference("message"), rule.items, 1)
                                                      : any_of({list_schema(Json::Object{}, rule.items)});
      break;
    case Kind::object:
      out.set("type", or_null("object"));
      out.set("maxProperties", count_of(rule.items));
      break;
    case Kind::choice: out.set("type", Json::Array{Json("string"), Json("object"), Json("null")}); break;
    case Kind::schema: out = any_of({reference(rule.of)}); break;
    case Kind::any: out = Json::Object{}; break;
    case Kind::later: out = later_schema(rule); break;
  }
  if (*rule.about) out.set("description", rule.about);
  return out;
}

Json table_schema(const FieldTable& table) {
  Json properties = Json::Object{}, out;
  Json::Array names;
  for (const FieldRule& rule : table.rules) {
    properties.set(rule.name, field_schema(rule));
    if (rule.required) names.push_back(rule.name);
  }
  out.set("type", "object");
  if (!names.empty()) out.set("required", std::move(names));
  out.set("properties", std::move(properties));
  // What is ours is strict; beside the others' fields clients send many more.
  if (table.name.starts_with("rapt") || table.name == "replay") out.set("additionalProperties", false);
  return out;
}

Json content_of(std::string_view type, Json schema) {
  Json content, inside;
  inside.set("schema", std::move(schema));
  content.set(type, std::move(inside));
  return content;
}

Json operation_of(const Route& route) {
  Json out, responses, good, bad;
  out.set("summary", route.summary);
  std::string name(route.method);
  for (char c : route.path)
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) name += c;
    else if (name.back() != '_') name += '_';
  out.set("operationId", name);
  Json::Array parameters;
  for (std::size_t open = route.path.find('{'); open != std::string_view::npos;
       open = route.path.find('{', open + 1)) {
    Json parameter;
    parameter.set("name", route.path.substr(open + 1, route.path.find('}', open) - open - 1));
    parameter.set("in", "path");
    parameter.set("required", true);
    parameter.set("schema", Json::Object{{"type", "string"}});
    parameters.push_back(std::move(parameter));
  }
  if (!parameters.empty()) out.set("parameters", std::move(parameters));
  if (!route.request.empty()) {
    Json body;
    body.set("required", true);
    body.set("content", content_of("application/json", reference(route.request)));
    out.set("requestBody", std::move(body));
  }
  good.set("description", "The answer.");
  const bool json = route.reply == "application/json";
  Json content =
      content_of(route.reply, json ? Json(Json::Object{}) : Json(Json::Object{{"type", "string"}}));
  if (route.streams) {
    Json inside;
    inside.set("schema", Json::Object{{"type", "string"}});
    content.set("text/event-stream", std::move(inside));
  }
  good.set("content", std::move(content));
  responses.set("200", std::move(good));
  bad.set("description", "An error: 400 of the request, 401 of the key, 404, 429 and 503 with Retry-After.");
  bad.set("content", content_of("application/json", reference("error")));
  responses.set("default", std::move(bad));
  out.set("responses", std::move(responses));
  if (route.open) out.set("security", Json::Array{});
  return out;
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", "An answer to a conversation", "chat", false, true},
    {"POST", "/v1/chat/completions/input_tokens", "Tokens of a conversation", "template"},
    {"POST", "/v1/completions", "A text that goes on", "completions", false, true},
    {"POST", "/v1/responses", "An answer to a conversation, in items (OpenAI)", "responses", false, true},
    {"POST", "/v1/responses/input_tokens", "Tokens of such a conversation", "responses"},
    {"POST", "/v1/messages", "An answer to a conversation, in blocks (Anthropic)", "messages", false, true},
    {"POST", "/v1/messages/count_tokens", "Tokens of such a conversation", "count_tokens"},
    {"POST", "/api/chat", "An answer to a conversation, in lines (Ollama)", "ollama_chat", false, false,
     "application/x-ndjson"},
    {"POST", "/api/generate", "An answer to a prompt, in lines (Ollama)", "ollama_generate", false, false,
     "application/x-ndjson"},
    {"POST", "/api/embed", "Vectors of texts (Ollama)", "ollama_embed"},
    {"POST", "/api/show", "What a model is (Ollama)", "ollama_show"},
    {"GET", "/api/tags", "The models (Ollama)"},
    {"GET", "/api/ps", "The models that are loaded: all (Ollama)"},
    {"GET", "/api/version", "The version of the program (Ollama)"},
    {"POST", "/v1/embeddings", "Vectors of texts", "embeddings"},
    {"POST", "/v1/rerank", "Documents in the order of a query", "rerank"},
    {"POST", "/v1/classify", "Classes of texts", "classify"},
    {"POST", "/v1/look", "What a model does inside while it reads a text", "look"},
    {"POST", "/v1/replay/{id}", "An answer of before once more, with the same bits", "replay", false, true},
    {"GET", "/v1/replay/{id}", "What is kept of an answer (?text=1: its request and all ids)"},
    {"GET", "/v1/stream/{id}", "A resumable stream from an event on (?from=N)", "", false, false,
     "text/event-stream"},
    {"DELETE", "/v1/stream/{id}", "Ends a resumable stream"},
    {"GET", "/v1/monitor", "What the server does, twice a second (?once=1: one object)", "", false, false,
     "text/event-stream"},
    {"POST", "/v1/train/run", "Begins a training (rapt serve --lab)"},
    {"GET", "/v1/train/events", "Events of the newest training (rapt serve --lab)", "", false, false,
     "text/event-stream"},
    {"GET", "/v1/lab", "The guide's questions and the experiments"},
    {"GET", "/v1/lab/questions/{id}", "The numbers and the picture of a question"},
    {"GET", "/v1/lab/experiments/{name}", "What was measured for the guide"},
    {"POST", "/v1/lab/run", "Runs an experiment", "lab_run"},
    {"GET", "/v1/runs", "What runs, and what ran last"},
    {"GET", "/v1/runs/{id}", "The events of a run (?from=N; ?once=1: those there are)", "", false, false,
     "text/event-stream"},
    {"DELETE", "/v1/runs/{id}", "Stops a run"},
    {"GET", "/v1/recipe", "Presets, and every field of a recipe (?lang=zh)"},
    {"POST", "/v1/recipe/show", "What a recipe means: sizes, costs, a drawing", "recipe"},
    {"POST", "/v1/recipe/diff", "Where two recipes differ", "recipe_pair"},
    {"GET", "/v1/models", "The models"},
    {"GET", "/v1/models/{id}", "One model"},
    {"POST", "/tokenize", "Token ids of a text or a conversation", "tokenize"},
    {"POST", "/detokenize", "The text of token ids", "detokenize"},
    {"POST", "/apply-template", "A conversation as the text of its prompt", "template"},
    {"GET", "/tokenizer_info", "Special tokens and the chat template"},
    {"GET", "/props", "What the server runs and its defaults"},
    {"GET", "/health", "Whether it answers", "", true},
    {"GET", "/", "The page", "", true, false, "text/html"},
    {"GET", "/page/{file}", "A file of the page", "", true, false, "text/javascript"},
};

}  // namespace

std::span<const Route> protocol_routes() { return kRoutes; }

std::string openapi_json(std::span<const Route> routes, std::string_view version) {
  Json out, info, paths = Json::Object{}, schemas, components, key;
  out.set("openapi", "3.1.0");
  info.set("title", "Rapt");
  info.set("version", version);
  out.set("info", std::move(info));
  for (const Route& route : routes) {
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    Json path = Json::Object{};
    if (const Json* known = paths.find(route.path)) path = *known;
    path.set(method, operation_of(route));
    paths.set(route.path, std::move(path));
  }
  out.set("paths", std::move(paths));
  for (const FieldTable& table : field_tables()) schemas.set(table.name, table_schema(table));
  for (const FieldTable& table : vendor_tables()) schemas.set(table.name, table_schema(table));
  schemas.set("message", message_schema());
  schemas.set("error", parse_json(R"({
    "type": "object", "required": ["error"], "properties": {"error": {
      "type": "object", "required": ["message", "type", "param", "code"],
      "properties": {"message": {"type": "string"}, "type": {"type": "string"},
                     "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}})"));
  components.set("schemas", std::move(schemas));
  key.set("type", "http");
  key.set("scheme", "bearer");
  components.set("securitySchemes", Json::Object{{"key", std::move(key)}});
  out.set("components", std::move(components));
  out.set("security", Json::Array{Json(Json::Object{{"key", Json(Json::Array{})}})});
  return out.dump(0);
}

}  // namespace rapt::server
