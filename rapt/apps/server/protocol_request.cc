// SPDX-License-Identifier: Apache-2.0
// The tables of fields, and what a table cannot say: messages, prompts, edits, fields that depend on each
// other.
#include "rapt/apps/server/protocol_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/base/text.h"

namespace rapt::server {
namespace {

using Kind = FieldRule::Kind;

// --------------------------------------------------------------------------------------------------- values
std::int32_t token_id(const Json& value, std::string_view path, std::size_t at, Dim vocabulary) {
  const Dim most = vocabulary > 0 ? vocabulary : Dim{1} << 31;
  if (!value.is_integer() || value.integer() < 0 || value.integer() >= most)
    bad_field(concat(path, "[", at, "]"),
              concat("a token id is an integer from 0 to ", most - 1, ", not ",
                     value.is_integer() ? std::to_string(value.integer()) : value.type_name()));
  return static_cast<std::int32_t>(value.integer());
}

std::vector<std::int32_t> token_ids(const Json& value, std::string_view path, Dim vocabulary) {
  std::vector<std::int32_t> ids;
  ids.reserve(value.array().size());
  for (const Json& x : value.array()) ids.push_back(token_id(x, path, ids.size(), vocabulary));
  return ids;
}

// string | strings | ids | lists of ids. An empty list of ids is nothing to read; an empty string may be.
std::vector<TextOrIds> text_list(const Json& value, std::string_view path, Dim vocabulary, bool empty_text) {
  std::vector<TextOrIds> out;
  const auto text = [&](const Json& v, std::string_view at) {
    if (!v.is_string())
      bad_field(at, concat("texts and ", v.type_name(), " stand in one list; give one kind"));
    if (v.string().empty() && !empty_text) bad_field(at, "it is an empty text");
    out.push_back({.text = v.string()});
  };
  const auto ids = [&](const Json& v, std::string_view at) {
    if (v.array().empty()) bad_field(at, "it is an empty list of token ids");
    out.push_back({.ids = token_ids(v, at, vocabulary), .is_ids = true});
  };
  if (value.is_string()) return text(value, path), out;
  const Json::Array& list = value.array();
  std::size_t total = list.size();
  for (const Json& v : list)
    if (v.is_array()) total += v.array().size();
  if (total > kMostIds)
    bad_field(path, concat("it has ", total, " token ids; at most ", kMostIds, " are allowed"));
  if (list[0].is_number()) return ids(value, path), out;
  out.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string at = concat(path, "[", i, "]");
    if (!list[0].is_array()) text(list[i], at);
    else if (list[i].is_array()) ids(list[i], at);
    else bad_field(at, concat("lists of token ids and ", list[i].type_name(), " stand in one list"));
  }
  return out;
}

std::vector<std::string> string_list(const Json& value) {
  std::vector<std::string> out;
  if (value.is_string()) return {value.string()};
  out.reserve(value.array().size());
  for (const Json& s : value.array()) out.push_back(s.string());
  return out;
}

std::vector<std::pair<std::int32_t, float>> bias_of(const Json& value, std::string_view path,
                                                    Dim vocabulary) {
  std::vector<std::pair<std::int32_t, float>> out;
  out.reserve(value.object().size());
  const Dim most = vocabulary > 0 ? vocabulary : Dim{1} << 31;
  for (const Json::Member& m : value.object()) {
    const std::string at = concat(path, ".", m.key.substr(0, 32));
    Dim id = -1;
    const auto [end, error] = std::from_chars(m.key.begin(), m.key.end(), id);
    if (error != std::errc{} || end != m.key.end() || id < 0 || id >= most)
      bad_field(at, concat("the keys are token ids from 0 to ", most - 1, ", as strings"));
    check_field(number_rule("", -100, 100, ""), m.value, at);
    const auto x = static_cast<float>(m.value.number());
    out.emplace_back(static_cast<std::int32_t>(id), x <= -100 ? -std::numeric_limits<float>::infinity() : x);
  }
  return out;
}

// ------------------------------------------------------------------------------------------------- messages
std::string text_of_parts(const Json& parts, std::string_view path) {
  check_field(items_rule("", Kind::list, kMostParts, ""), parts, path);
  std::string out;
  for (std::size_t i = 0; i < parts.array().size(); ++i) {
    const Json& part = parts.array()[i];
    const std::string at = concat(path, "[", i, "]");
    const Json* type = part.find("type");
    if (!type || !type->is_string())
      bad_field(at, "a part is an object like {\"type\": \"text\", \"text\": \"…\"}");
    const std::string_view kind = type->string();
    for (const char* other : {"image_url", "input_audio", "file", "video_url", "image", "audio_url"})
      if (kind == other) unsupported_field(at, concat("is of type '", kind, "'; this model reads text"));
    if (kind != "text" && kind != "refusal") bad_field(concat(at, ".type"), "known: text, refusal");
    const Json* text = part.find(kind);
    if (!text || !text->is_string()) bad_field(concat(at, ".", kind), "it must be a string");
    if (i > 0) out += '\n';
    out += text->string();
  }
  return out;
}

Json tool_call_of(const Json& call, std::string_view path) {
  const Json* function = call.find("function");
  const Json* name = function ? function->find("name") : nullptr;
  if (!name || !name->is_string() || name->string().size() > 256)
    bad_field(path, "a tool call has a \"function\" with a \"name\" of at most 256 bytes");
  Json out, made;
  if (const Json* id = call.find("id"); id && id->is_string()) out.set("id", *id);
  out.set("type", "function");
  made.set("name", *name);
  Json arguments = Json::Object{};
  if (const Json* given = function->find("arguments"); given && !given->is_null()) {
    arguments = *given;
    if (given->is_string()) try {  // templates want what the text says
        Json parsed = parse_json(given->string());
        if (parsed.is_object()) arguments = std::move(parsed);
      } catch (const Error&) {  // an argument that the model got wrong stays as it was
      }
  }
  made.set("arguments", std::move(arguments));
  out.set("function", std::move(made));
  return out;
}

Json message_of(const Json& message, std::string_view path) {
  if (!message.is_object())
    bad_field(path, concat("a message is an object with role and content, not ", message.type_name()));
  const auto given = [&](const char* name) {
    const Json* value = message.find(name);
    return value && !value->is_null() ? value : nullptr;
  };
  const auto at = [&](const char* name) { return concat(path, ".", name); };
  const Json* role = given("role");
  if (!role) bad_field(at("role"), "it is required");
  check_field(word_rule("", "system|developer|user|assistant|tool|function", ""), *role, at("role"));
  const bool assistant = role->string() == "assistant";

  Json out;
  out.set("role", role->string() == "developer" ? Json("system") : *role);
  const Json* content = given("content");
  if (!content) {
    if (!assistant) bad_field(at("content"), "it is required");
    const Json* refusal = given("refusal");
    out.set("content", refusal && refusal->is_string() ? *refusal : Json(""));
  } else if (content->is_string()) {
    out.set("content", *content);
  } else if (content->is_array()) {
    out.set("content", text_of_parts(*content, at("content")));
  } else {
    bad_field(at("content"), concat("it must be a string or a list of parts, not ", content->type_name()));
  }
  for (const char* name : {"name", "tool_call_id"})
    if (const Json* value = given(name)) {
      check_field(string_rule("", 0, 256, ""), *value, at(name));
      out.set(name, *value);
    }
  for (const char* name : {"reasoning", "reasoning_content"})  // vLLM's and ollama's name; llama.cpp's wins
    if (const Json* value = given(name)) {
      check_field(string_rule("", 0, kText, ""), *value, at(name));
      out.set("reasoning_content", *value);
    }
  Json::Array calls;
  if (const Json* list = given("tool_calls")) {
    check_field(items_rule("", Kind::list, 128, ""), *list, at("tool_calls"));
    for (std::size_t i = 0; i < list->array().size(); ++i)
      calls.push_back(tool_call_of(list->array()[i], concat(at("tool_calls"), "[", i, "]")));
  }
  if (const Json* call = given("function_call")) {  // of before there were tools
    Json whole;
    whole.set("function", *call);
    calls.push_back(tool_call_of(whole, at("function_call")));
  }
  if (!calls.empty()) out.set("tool_calls", std::move(calls));
  return out;
}

Json messages_of(const Json& list, std::string_view path) {
  if (list.array().empty()) bad_field(path, "it is an empty list");
  Json::Array out;
  out.reserve(list.array().size());
  for (std::size_t i = 0; i < list.array().size(); ++i)
    out.push_back(message_of(list.array()[i], concat(path, "[", i, "]")));
  return out;
}

// Variables of the template alone, never its functions or what it is given anyway.
void add_variable(Json& variables, std::string_view name, const Json& value, std::string_view path) {
  static constexpr std::string_view kOwn[] = {"messages",
                                              "tools",
                                              "documents",
                                              "add_generation_prompt",
                                              "bos_token",
                                              "eos_token",
                                              "range",
                                              "dict",
                                              "raise_exception",
                                              "strftime_now",
                                              "namespace",
                                              "loop",
                                              "caller",
                                              "varargs",
                                              "kwargs",
                                              "true",
                                              "false",
                                              "none",
                                              "True",
                                              "False",
                                              "None",
                                              "self",
                                              "super",
                                              "continue_final_message",
                                              "chat_template",
                                              "tokenize"};
  bool plain =
      !name.empty() && name.size() <= 64 && !(name[0] >= '0' && name[0] <= '9') && !name.starts_with("__");
  for (char c : name)
    plain = plain && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_');
  if (!plain) bad_field(path, "names of variables are letters, digits and _, at most 64");
  if (std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn))
    bad_field(path, "the template's own name; it cannot be set");
  variables.set(name, value);
}

// ---------------------------------------------------------------------------------------------------- edits
// "POINT:OP=VALUE": the value is a number. What else it could be names a file of this machine.
void check_edit_text(std::string_view text, std::string_view path) {
  if (text.size() > 4096) bad_field(path, concat("it has ", text.size(), " bytes; at most 4096 are allowed"));
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0)
    bad_field(path, "an edit is POINT[@HEAD][@POSITION]:OP[=VALUE], as in z.5@3:zero, or an object");
  const std::size_t equals = text.find('=', colon);
  if (equals == std::string_view::npos) return;
  const std::string_view value = text.substr(equals + 1);
  double x = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), x);
  if (error != std::errc{} || end != value.data() + value.size() || !std::isfinite(x))
    bad_field(path, "values stand in the request: a number here, or a list in \"value\"; no files are read");
}

std::size_t check_edit(const Json& edit, std::string_view path) {  // how many numbers it has
  if (edit.is_string()) return check_edit_text(edit.string(), path), 1;
  if (!edit.is_object()) bad_field(path, concat("an edit is a string or an object, not ", edit.type_name()));
  const Json* value = edit.find("value");
  if (!value || value->is_null() || value->is_number()) return 1;
  const std::string at = concat(path, ".value");
  if (value->is_string())
    bad_field(at, "values stand in the request, as a number or a list of numbers; no files are read");
  check_field(items_rule("", Kind::list, kMostEditNumbers, ""), *value, at);
  for (const Json& x : value->array())
    if (!x.is_number()) bad_field(at, concat("it holds ", x.type_name(), "; numbers are allowed"));
  return value->array().size();
}

void check_edits(const Json& list, std::string_view path) {
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    numbers += check_edit(list.array()[i], concat(path, "[", i, "]"));
    if (numbers > kMostEditNumbers)
      bad_field(path, concat("the edits hold more than ", kMostEditNumbers, " numbers"));
  }
}

// -------------------------------------------------------------------------------------------------- reading
// A request on its way: what is decided once all fields are read.
struct Reading {
  const ReadOptions& options;
  CompletionRequest request = {};
  std::optional<Dim> most_tokens = {};
  std::optional<double> repeat = {};
  std::optional<Dim> repeat_last = {};
  bool repeat_all = false;  // asked by vLLM's name, which counts over everything
  std::optional<int> top = {}, best_of = {};
  std::optional<bool> generation_prompt = {};

  SamplerOptions& sampler() { return request.generate.sampler; }
  void limit(const Json& v) {  // -1: none. Several names: the smallest
    if (v.integer() >= 0) most_tokens = std::min(most_tokens.value_or(v.integer()), v.integer());
  }
  void penalize(double x, bool all) {  // both names: the one that does something
    if (repeat && x == 1) return;
    repeat = x;
    repeat_all = all;
  }
};
using R = Reading;
using J = const Json&;
using P = std::string_view;

constexpr std::array kStreamOptions = std::to_array<Field<R>>({
    {boolean_rule("include_usage", "One more chunk with the numbers of tokens."),
     [](R& r, J v, P) { r.request.include_usage = v.boolean(); }},
    {boolean_rule("continuous_usage_stats", "The numbers of tokens in every chunk (vLLM)."),
     [](R& r, J v, P) { r.request.continuous_usage = v.boolean(); }},
    {boolean_rule("include_obfuscation", "Without effect.")},
});

constexpr std::array kRaptStream = std::to_array<Field<R>>({
    {integer_rule("keep", 0, 65536, "First tokens that always stay visible."),
     [](R& r, J v, P) { r.request.endless.keep = v.integer(); }},
    {required(integer_rule("window", 1, 1 << 24, "Last tokens that are visible.")),
     [](R& r, J v, P) { r.request.endless.window = v.integer(); }},
});

constexpr FieldRule kEdits =
    items_rule("edits", Kind::list, 64, "Changes to the passes of this request (docs/edits.md).");

void put_edits(const Reading& r, const Json& v, std::string_view path, std::vector<Json>& edits,
               std::string& text) {
  if (v.array().empty()) return;
  if (!r.options.edits) unsupported_field(path, "is not supported here");
  check_edits(v, path);
  edits.assign(v.array().begin(), v.array().end());
  text = v.dump(0);
}

constexpr std::array kRaptCompare = std::to_array<Field<R>>({
    {string_rule("model", 0, 256, "The second is answered by this adapter (or the model without one)."),
     [](R& r, J v, P) { r.request.compare_model = v.string(); }},
    {kEdits,
     [](R& r, J v, P path) { put_edits(r, v, path, r.request.compare_edits, r.request.compare_edits_text); }},
});

// One list of ids, or one for each choice.
void put_known(Reading& r, const Json& v, std::string_view path) {
  std::vector<std::vector<std::int32_t>>& out = r.request.continued->ids;
  const Json::Array& list = v.array();
  if (list.empty()) return;
  if (!list[0].is_array()) return out.push_back(token_ids(v, path, r.options.vocabulary));
  if (list.size() > kMostChoices)
    bad_field(path, concat("it has ", list.size(), " lists; at most ", kMostChoices, " are allowed"));
  out.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string at = concat(path, "[", i, "]");
    if (!list[i].is_array())
      bad_field(at, concat("lists of token ids and ", list[i].type_name(), " in one list"));
    check_field(items_rule("", Kind::ids, kMostIds, ""), list[i], at);
    out.push_back(token_ids(list[i], at, r.options.vocabulary));
  }
}

constexpr std::array kRaptContinue = std::to_array<Field<R>>({
    {items_rule("ids", Kind::list, kMostIds,
                "The ids of the answer as they came, in whole chunks; a list for each choice where there are "
                "several. Of a stream only what comes behind them is sent."),
     put_known},
    {integer_rule("seed", -kInt64, kInt64, "The seed that the first server told; instead of `seed`."),
     [](R& r, J v, P path) {
       const auto seed = static_cast<std::uint64_t>(v.integer());
       if (r.request.seeded && r.sampler().seed != seed) bad_field(path, "it is another one than `seed`");
       r.request.seeded = true;
       r.sampler().seed = seed;
     }},
    {string_rule("fingerprint", 0, 128, "The first server's; needed with ids. Another one here: 409."),
     [](R& r, J v, P) { r.request.continued->fingerprint = v.string(); }},
    {string_rule("basis", 0, 64, "As the first server told it: prompt, template and context, as a hash."),
     [](R& r, J v, P) { r.request.continued->basis = v.string(); }},
});

constexpr std::array kRapt = std::to_array<Field<R>>({
    {items_rule("look", Kind::list, 32, "What of the inside the reply shall show."),
     [](R& r, J v, P path) {
       if (!r.options.look && !v.array().empty()) unsupported_field(path, "is not supported here");
       for (std::size_t i = 0; i < v.array().size(); ++i) {
         J one = v.array()[i];
         if (!one.is_object() && !(one.is_string() && one.string().size() <= 1024))
           bad_field(concat(path, "[", i, "]"), "it must be a string of at most 1024 bytes or an object");
         r.request.look.push_back(one);
       }
     }},
    {kEdits, [](R& r, J v, P path) { put_edits(r, v, path, r.request.edits, r.request.edits_text); }},
    {schema_rule("compare", "rapt_compare",
                 "A second answer to the same prompt and seed, under these edits, and where and by how much "
                 "the two part."),
     [](R& r, J v, P path) {
       r.request.compare = true;
       read_fields<R>(kRaptCompare, r, v, concat(path, "."), true);
     }},
    {schema_rule("stream", "rapt_stream", "A conversation without end: old tokens are forgotten."),
     [](R& r, J v, P path) {
       if (!r.options.endless) unsupported_field(path, "is not supported here");
       read_fields<R>(kRaptStream, r, v, concat(path, "."), true);
     }},
    {string_rule("cache_salt", 0, 256, "Only requests of one salt share what was read."),
     [](R& r, J v, P) { r.request.cache_salt = v.string(); }},
    {boolean_rule("resume", "The stream goes on without its reader for a minute: GET /v1/stream/{id}."),
     [](R& r, J v, P) { r.request.resume = v.boolean(); }},
    {schema_rule("continue", "rapt_continue",
                 "{}: the stream tells what another server needs to go on with it. With ids: go on."),
     [](R& r, J v, P path) {
       r.request.continued.emplace();
       read_fields<R>(kRaptContinue, r, v, concat(path, "."), true);
     }},
    {boolean_rule("speculate", "false: no tokens are guessed for this answer. Default true; no bit differs."),
     [](R& r, J v, P) { r.request.speculate = v.boolean(); }},
    {boolean_rule("replay", "false: nothing of it is kept for /v1/replay. Default true."),
     [](R& r, J v, P) { r.request.replay = v.boolean(); }},
});

constexpr FieldRule kModel = string_rule("model", 0, 256, "One model: any name answers.");
constexpr FieldRule kUser = string_rule("user", 0, 1024, "Who asks, for the log.");

// What makes the prompt of a chat.
constexpr std::array kTemplate = std::to_array<Field<R>>({
    {kModel, [](R& r, J v, P) { r.request.model = v.string(); }},
    {required(items_rule("messages", Kind::list, kMostMessages,
                         "role: system, developer (= system), user, assistant, tool, function; content: a "
                         "string or a list of parts {\"type\": \"text\", \"text\"}.")),
     [](R& r, J v, P path) { r.request.messages = messages_of(v, path); }},
    {word_rule("reasoning_effort", "none|minimal|low|medium|high|xhigh|max", "A variable of the template."),
     [](R& r, J v, P) { r.request.variables.set("reasoning_effort", v); }},
    {items_rule("chat_template_kwargs", Kind::object, 64, "Variables of the template."),
     [](R& r, J v, P path) {
       for (const Json::Member& m : v.object())
         add_variable(r.request.variables, m.key, m.value, concat(path, ".", m.key.substr(0, 64)));
     }},
    {boolean_rule("add_generation_prompt", "The prompt ends with the beginning of an answer. Default true."),
     [](R& r, J v, P) { r.generation_prompt = v.boolean(); }},
    {boolean_rule("continue_final_message", "The last message, an assistant's, is gone on with."),
     [](R& r, J v, P) { r.request.continue_final = v.boolean(); }},
    {items_rule(
         "tools", Kind::list, kMostTools,
         "{\"type\": \"function\", \"function\": {name, description, parameters: a JSON schema}}: functions "
         "that the model may call."),
     [](R& r, J v, P path) { read_tools(r.request.tools, v, path); }},
    {items_rule("tool_choice", Kind::choice, 0,
                "none, auto, required, or {\"type\": \"function\", \"function\": {name}}, or allowed_tools. "
                "Default auto."),
     [](R& r, J v, P path) { read_tool_choice(r.request.tools, v, path); }},
    {boolean_rule("parallel_tool_calls", "An answer may have several calls. Default true."),
     [](R& r, J v, P) { r.request.tools.parallel = v.boolean(); }},
    {later_rule("functions", "[]")},
    {later_rule("function_call", "\"none\"|\"auto\"")},
    {later_rule("documents", "[]")},
    {later_rule("chat_template")},
});

constexpr std::array kChat = std::to_array<Field<R>>({
    {boolean_rule("logprobs", "Log-probabilities of the tokens of the answer."),
     [](R& r, J v, P) { r.request.generate.logprobs = v.boolean(); }},
    {integer_rule("top_logprobs", 0, 20, "… and of so many others at each place."),
     [](R& r, J v, P) { r.top = static_cast<int>(v.integer()); }},
    {later_rule("modalities", "[\"text\"]")},
    {later_rule("audio")},
    {later_rule("images", "[]")},
    {later_rule("web_search_options")},
    {later_rule("prediction")},
    {later_rule("echo", "false")},
    {later_rule("add_special_tokens", "false")},
});

constexpr std::array kCompletions = std::to_array<Field<R>>({
    {kModel, [](R& r, J v, P) { r.request.model = v.string(); }},
    {required(items_rule("prompt", Kind::texts, kMostInputs,
                         "Token ids are used as they are; texts get what the model wants before them.")),
     [](R& r, J v, P path) { r.request.prompts = text_list(v, path, r.options.vocabulary, true); }},
    {integer_rule("logprobs", 0, 20, "Log-probabilities, and of so many others at each place."),
     [](R& r, J v, P) {
       r.request.generate.logprobs = true;
       r.top = static_cast<int>(v.integer());
     }},
    {boolean_rule("echo", "The reply begins with the prompt, and so do its log-probabilities."),
     [](R& r, J v, P) { r.request.echo = v.boolean(); }},
    {boolean_rule("add_special_tokens", "false: nothing is put before a text. Default true."),
     [](R& r, J v, P) { r.request.add_special_tokens = v.boolean(); }},
    {integer_rule("best_of", 1, 8, "Only with the value of n."),
     [](R& r, J v, P) { r.best_of = static_cast<int>(v.integer()); }},
    {later_rule("suffix", "\"\"")},
});

// What both kinds of completion have.
constexpr std::array kGeneration =
    std::to_array<Field<R>>({
        {boolean_rule("stream", "Answer in chunks (text/event-stream)."),
         [](R& r, J v, P) { r.request.stream = v.boolean(); }},
        {schema_rule("stream_options", "stream_options", "Of a stream."),
         [](R& r, J v, P path) { read_fields<R>(kStreamOptions, r, v, concat(path, ".")); }},
        {integer_rule("max_tokens", -1, kInt32,
                      "Most tokens of an answer; 0: the prompt is only read, -1: no limit."),
         [](R& r, J v, P) { r.limit(v); }},
        {integer_rule("max_completion_tokens", -1, kInt32, "The same; the smaller where both are given."),
         [](R& r, J v, P) { r.limit(v); }},
        {integer_rule("n_predict", -1, kInt32, "The same (llama.cpp)."), [](R& r, J v, P) { r.limit(v); }},
        {integer_rule("n", 1, 8, "Answers."),
         [](R& r, J v, P path) {
           if (v.integer() > r.options.most_choices)
             bad_field(path,
                       concat("it is ", v.integer(), "; this server gives at most ", r.options.most_choices));
           r.request.generate.samples = static_cast<int>(v.integer());
         }},
        {integer_rule("seed", -kInt64, kInt64,
                      "The same seed gives the same answer; -1 or none: drawn, and told."),
         [](R& r, J v, P) {
           if (v.integer() == -1) return;
           r.request.seeded = true;
           r.sampler().seed = static_cast<std::uint64_t>(v.integer());
         }},
        {strings_rule("stop", 1, 256, 16, "Texts that end the answer and are not part of it."),
         [](R& r, J v, P) { r.request.generate.stops = string_list(v); }},
        {number_rule("temperature", 0, 2, "0: the most probable token."),
         [](R& r, J v, P) { r.sampler().temperature = v.number(); }},
        {number_rule("top_p", 0, 1, "1: off."), [](R& r, J v, P) { r.sampler().top_p = v.number(); }},
        {integer_rule("top_k", -1, kInt32, "0 or -1: off."),
         [](R& r, J v, P) { r.sampler().top_k = std::max<Dim>(0, v.integer()); }},
        {number_rule("min_p", 0, 1, "0: off."), [](R& r, J v, P) { r.sampler().min_p = v.number(); }},
        {number_rule("typical_p", 0, 1, "1: off."), [](R& r, J v, P) { r.sampler().typical_p = v.number(); }},
        {integer_rule("min_keep", 0, 1 << 20, "Candidates that no cut takes away."),
         [](R& r, J v, P) { r.sampler().min_keep = std::max<Dim>(1, v.integer()); }},
        {integer_rule("mirostat", 0, 2, "Instead of the cuts; 0: off."),
         [](R& r, J v, P) { r.sampler().mirostat = static_cast<int>(v.integer()); }},
        {number_rule("mirostat_tau", 0, 1000, "The surprise it aims at, in bits."),
         [](R& r, J v, P) { r.sampler().mirostat_tau = v.number(); }},
        {number_rule("mirostat_eta", 0, 1000, "How fast it learns."),
         [](R& r, J v, P) { r.sampler().mirostat_eta = v.number(); }},
        {number_rule("frequency_penalty", -2, 2, "For each time a token stands in the answer."),
         [](R& r, J v, P) { r.sampler().frequency_penalty = v.number(); }},
        {number_rule("presence_penalty", -2, 2, "Where a token stands in the answer."),
         [](R& r, J v, P) { r.sampler().presence_penalty = v.number(); }},
        {number_rule("repeat_penalty", 0.01, 100, "Of tokens in prompt and answer; 1: off (llama.cpp)."),
         [](R& r, J v, P) { r.penalize(v.number(), false); }},
        {number_rule("repetition_penalty", 0.01, 100, "The same, over all of them (vLLM)."),
         [](R& r, J v, P) { r.penalize(v.number(), true); }},
        {integer_rule("repeat_last_n", -1, kInt32,
                      "Tokens that repeat_penalty looks back at; -1: all. Default 64."),
         [](R& r, J v, P) { r.repeat_last = v.integer(); }},
        {items_rule("logit_bias", Kind::object, 1024, "\"id\": -100 … 100, added to logits; -100 forbids."),
         [](R& r, J v, P path) { r.sampler().bias = bias_of(v, path, r.options.vocabulary); }},
        {boolean_rule("ignore_eos", "The answer goes on behind the token that ends it."),
         [](R& r, J v, P) { r.request.generate.ignore_eos = v.boolean(); }},
        {integer_rule("min_tokens", 0, kInt32, "The answer does not end before (vLLM)."),
         [](R& r, J v, P path) {
           if (v.integer() > 0 && !r.options.min_tokens)
             unsupported_field(path, "above 0 is not supported here");
           r.request.min_tokens = v.integer();
         }},
        {items_rule("stop_token_ids", Kind::ids, 64, "More tokens that end the answer (vLLM)."),
         [](R& r, J v, P path) {
           if (!v.array().empty() && !r.options.stop_token_ids)
             unsupported_field(path, "is not supported here");
           r.request.stop_token_ids = token_ids(v, path, r.options.vocabulary);
         }},
        {integer_rule("prompt_logprobs", 0, 20, "Log-probabilities of the prompt's tokens (vLLM)."),
         [](R& r, J v, P) { r.request.show_prompt_logprobs = static_cast<int>(v.integer()); }},
        {boolean_rule("return_progress", "Chunks that tell how much of the prompt is read (llama.cpp)."),
         [](R& r, J v, P) { r.request.return_progress = v.boolean(); }},
        {boolean_rule("timings_per_token", "`timings` in every chunk (llama.cpp)."),
         [](R& r, J v, P) { r.request.timings_per_token = v.boolean(); }},
        {boolean_rule("return_token_ids", "The ids of prompt and answer (vLLM)."),
         [](R& r, J v, P) { r.request.return_token_ids = v.boolean(); }},
        {boolean_rule("cache_prompt", "false: nothing that was read is shared (llama.cpp). Default true."),
         [](R& r, J v, P) { r.request.cache_prompt = v.boolean(); }},
        {string_rule("cache_salt", 0, 256, "Only requests of one salt share what was read (vLLM)."),
         [](R& r, J v, P) { r.request.cache_salt = v.string(); }},
        {integer_rule("priority", -kInt32, kInt32, "Lower is sooner (vLLM)."),
         [](R& r, J v, P) { r.request.priority = static_cast<int>(v.integer()); }},
        {kUser, [](R& r, J v, P) { r.request.user = v.string(); }},
        {schema_rule("rapt", "rapt", "What only Rapt does."),
         [](R& r, J v, P path) { read_fields<R>(kRapt, r, v, concat(path, "."), true); }},

        {items_rule(
             "response_format", Kind::object, 8,
             "{\"type\": \"text\", \"json_object\" or \"json_schema\", \"json_schema\": {name, schema, "
             "strict}}: what the answer must be."),
         [](R& r, J v, P path) { read_response_format(r.request.format, v, path); }},
        {items_rule("json_schema", Kind::object, 1 << 16, "The answer is JSON of this schema (llama.cpp)."),
         [](R& r, J v, P path) { read_schema(r.request.format, v, path); }},
        {string_rule("grammar", 0, kMostGrammarBytes, "The answer is of this grammar, GBNF (llama.cpp)."),
         [](R& r, J v, P path) { read_grammar(r.request.format, v, path); }},
        {later_rule("grammar_lazy", "false")},
        {later_rule("guided_json")},
        {later_rule("guided_regex")},
        {later_rule("guided_choice")},
        {later_rule("guided_grammar")},
        {later_rule("structured_outputs")},
        {later_rule("image_data", "[]")},
        {later_rule("lora", "[]")},
        {later_rule("speculative")},
        {later_rule("speculative.n_max", "0")},
        {later_rule("speculative.n_min", "0")},
        {later_rule("speculative.p_min")},
        {later_rule("use_beam_search", "false")},
        {later_rule("length_penalty", "1")},
        {later_rule("bad_words", "[]")},
        {later_rule("allowed_token_ids")},
        {later_rule("logits_processors", "[]")},
        {later_rule("samplers")},
        {later_rule("dynatemp_range", "0")},
        {later_rule("dry_multiplier", "0")},
        {later_rule("xtc_probability", "0")},
        {later_rule("top_n_sigma", "-1|0")},
        {later_rule("n_probs", "0")},
        {later_rule("t_max_predict_ms", "-1|0")},
        {later_rule("skip_special_tokens", "true")},
        {later_rule("include_stop_str_in_output", "false")},
        {later_rule("truncate_prompt_tokens", "-1")},
    });

void finish_generation(R& r) {
  CompletionRequest& q = r.request;
  GenerateOptions& g = q.generate;
  SamplerOptions& s = g.sampler;
  g.max_tokens = r.most_tokens.value_or(q.chat ? -1 : 16);
  if (q.min_tokens > 0 && g.max_tokens >= 0 && q.min_tokens > g.max_tokens)
    bad_field("min_tokens", concat("it is ", q.min_tokens, " and max_tokens is ", g.max_tokens));
  if (q.chat && r.top && !g.logprobs) bad_field("top_logprobs", "it needs logprobs: true");
  g.top_logprobs = r.top.value_or(0);
  if (r.best_of && *r.best_of != g.samples) {
    if (*r.best_of < g.samples)
      bad_field("best_of", concat("it is ", *r.best_of, " and must be at least n, which is ", g.samples));
    unsupported_field("best_of", concat("above n (", g.samples, ") is not supported here"));
  }
  if (q.prompts.size() * static_cast<std::size_t>(g.samples) > kMostChoices)
    bad_field("n", concat(q.prompts.size(), " prompts with ", g.samples, " answers each are more than ",
                          kMostChoices));

  if (r.repeat) {
    s.repeat_penalty = *r.repeat;
    s.penalty_last = r.repeat_all ? -1 : 64;
  }
  if (r.repeat_last) s.penalty_last = *r.repeat_last;
  q.penalties_answer_only = s.frequency_penalty != 0 || s.presence_penalty != 0;

  if (q.show_prompt_logprobs >= 0 && q.stream)
    bad_field("prompt_logprobs",
              "a stream does not tell them; ask without stream, or with echo and logprobs");
  // lm-eval has a prompt scored by asking for one token behind it, and drops the last entry of the lists:
  // there is one even where the model would end.
  if (q.echo && g.logprobs && g.max_tokens == 1) g.ignore_eos = true;
  q.prompt_logprobs = q.show_prompt_logprobs;
  if (q.echo && g.logprobs) q.prompt_logprobs = std::max(q.prompt_logprobs, g.top_logprobs);
  if (q.endless.window > 0 && q.prompt_logprobs >= 0)
    bad_field("rapt.stream", "the log-probabilities of a prompt need all of it to be seen");
  if (q.resume && !q.stream) bad_field("rapt.resume", "only a stream can be gone on with; set stream: true");
  if (q.continued && q.compare) bad_field("rapt.continue", "two answers are compared as they are written");
  if (q.continued && q.continued->any()) {
    if (!r.request.seeded && s.temperature != 0)
      bad_field("rapt.continue.seed", "it is required: the ids were drawn with one");
    if (q.continued->fingerprint.empty())
      bad_field("rapt.continue.fingerprint", "it is required: other servers may give other bits");
  }
  if (q.compare && (q.stream || g.samples > 1 || q.prompts.size() > 1 || q.prompt_logprobs >= 0 || q.echo ||
                    q.endless.window > 0))
    bad_field("rapt.compare",
              "it is of one prompt and n: 1, without stream, echo, prompt_logprobs and rapt.stream");
  if (!q.stream) q.include_usage = q.continuous_usage = q.return_progress = false;
}

void finish_template(R& r) {
  CompletionRequest& q = r.request;
  q.add_generation_prompt = r.generation_prompt.value_or(!q.continue_final);
  if (!q.continue_final) return;
  if (q.add_generation_prompt)
    bad_field("continue_final_message",
              "with add_generation_prompt: a message is gone on with, or a new one begun");
  const Json& last = q.messages.array().back();
  if (last.find("role")->string() != "assistant")
    bad_field("continue_final_message", "the last message is not the assistant's");
  if (last.find("content")->string().empty())
    bad_field("continue_final_message", "the last message is empty");
}

Reading reading_of(const ReadOptions& options, bool chat) {
  Reading r{.options = options};
  r.request.chat = chat;
  r.request.generate.sampler = options.sampling;
  return r;
}

// ----------------------------------------------------------------------------------------------- the others
template <class T>
struct ListReading {
  const ReadOptions& options;
  T request = {};
};

using E = ListReading<EmbeddingsRequest>;
constexpr std::array kEmbeddings = std::to_array<Field<E>>({
    {kModel, [](E& r, J v, P) { r.request.model = v.string(); }},
    {required(items_rule("input", Kind::texts, kMostInputs, "Texts or token ids; none of them empty.")),
     [](E& r, J v, P path) { r.request.inputs = text_list(v, path, r.options.vocabulary, false); }},
    {word_rule("encoding_format", "float|base64", "base64: of little-endian float32."),
     [](E& r, J v, P) { r.request.base64 = v.string() == "base64"; }},
    {integer_rule("dimensions", 1, 65536, "The first so many, made a unit vector again."),
     [](E& r, J v, P) { r.request.dimensions = v.integer(); }},
    {kUser, [](E& r, J v, P) { r.request.user = v.string(); }},
    {later_rule("truncate_prompt_tokens", "-1")},
});

// Texts, or objects with a text.
void put_documents(RerankRequest& request, const Json& list, std::string_view path) {
  if (list.array().empty()) bad_field(path, "it is an empty list");
  request.documents.reserve(list.array().size());
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    const Json* text = list.array()[i].is_object() ? list.array()[i].find("text") : &list.array()[i];
    if (!text || !text->is_string())
      bad_field(concat(path, "[", i, "]"), "a document is a string or an object with a \"text\"");
    request.documents.push_back(text->string());
  }
}

using K = ListReading<RerankRequest>;
constexpr std::array kRerank = std::to_array<Field<K>>({
    {kModel, [](K& r, J v, P) { r.request.model = v.string(); }},
    {required(string_rule("query", 1, kText, "What the documents are compared with.")),
     [](K& r, J v, P) { r.request.query = v.string(); }},
    {items_rule("documents", Kind::list, kMostInputs, "Strings, or objects with a text."),
     [](K& r, J v, P path) { put_documents(r.request, v, path); }},
    {items_rule("texts", Kind::list, kMostInputs, "Instead of documents: the reply is a bare list (TEI)."),
     [](K& r, J v, P path) {
       if (!r.request.documents.empty()) bad_field(path, "documents are given too; give one of them");
       r.request.tei = true;
       put_documents(r.request, v, path);
     }},
    {integer_rule("top_n", 1, kInt32, "The best so many."),
     [](K& r, J v, P) { r.request.top_n = v.integer(); }},
    {boolean_rule("return_documents", "With the documents."),
     [](K& r, J v, P) { r.request.return_documents = v.boolean(); }},
    {boolean_rule("return_text", "With the texts (TEI)."),
     [](K& r, J v, P) { r.request.return_documents = v.boolean(); }},
    {boolean_rule("raw_scores", "Without a sigmoid (TEI)."),
     [](K& r, J v, P) { r.request.raw_scores = v.boolean(); }},
    {later_rule("truncate", "false")},
    {later_rule("truncate_prompt_tokens", "-1")},
});

using C = ListReading<ClassifyRequest>;
constexpr std::array kClassify = std::to_array<Field<C>>({
    {kModel, [](C& r, J v, P) { r.request.model = v.string(); }},
    {required(strings_rule("input", 1, kText, kMostInputs, "A text or several.")),
     [](C& r, J v, P path) {
       r.request.inputs = string_list(v);
       if (r.request.inputs.empty()) bad_field(path, "it is an empty list");
     }},
});

// ---------------------------------------------------------------------------------------------------- replay
struct ReplayReading {
  Json told = Json::Object{}, rapt = Json::Object{};  // to be set in the body and its `rapt`
  bool logprobs = false;
  Dim top = -1;
};
using Q = ReplayReading;
constexpr std::array kReplayRapt = std::to_array<Field<Q>>({
    {items_rule("look", Kind::list, 32, "What of the inside the reply shall show."),
     [](Q& r, J v, P) { r.rapt.set("look", v); }},
    {items_rule("edits", Kind::list, 64, "Instead of those of then; [] for none."),
     [](Q& r, J v, P) { r.rapt.set("edits", v); }},
    {schema_rule("compare", "rapt_compare", "With a second answer under these edits."),
     [](Q& r, J v, P) { r.rapt.set("compare", v); }},
    {boolean_rule("resume", "The stream goes on without its reader for a minute."),
     [](Q& r, J v, P) { r.rapt.set("resume", v); }},
});
constexpr std::array kReplay = std::to_array<Field<Q>>({
    {boolean_rule("stream", "Answer in chunks (text/event-stream), whatever was asked for then."),
     [](Q& r, J v, P) { r.told.set("stream", v); }},
    {schema_rule("stream_options", "stream_options", "Of a stream."),
     [](Q& r, J v, P) { r.told.set("stream_options", v); }},
    {boolean_rule("logprobs", "Log-probabilities, as those of then where nothing is said."),
     [](Q& r, J v, P) { r.logprobs = v.boolean(), r.top = v.boolean() ? 0 : -2; }},
    {integer_rule("top_logprobs", 0, 20, "… and of so many others at each place."),
     [](Q& r, J v, P path) {
       if (r.top == -2) bad_field(path, "with logprobs: false");
       r.logprobs = true, r.top = v.integer();
     }},
    {boolean_rule("return_token_ids", "The ids of prompt and answer."),
     [](Q& r, J v, P) { r.told.set("return_token_ids", v); }},
    {schema_rule("rapt", "rapt_replay", "What is looked at and changed this time."),
     [](Q& r, J v, P path) { read_fields<Q>(kReplayRapt, r, v, concat(path, "."), true); }},
});

struct TokenizeReading {
  TokenizeRequest request = {};
  int given = 0;
  std::optional<bool> special = {};
};
using T = TokenizeReading;
constexpr std::array kTokenize = std::to_array<Field<T>>({
    {kModel, [](T& r, J v, P) { r.request.model = v.string(); }},
    {string_rule("content", 0, kText, "A text (llama.cpp)."),
     [](T& r, J v, P) { r.request.text = v.string(), ++r.given; }},
    {string_rule("prompt", 0, kText, "A text (vLLM): add_special_tokens is true if unsaid."),
     [](T& r, J v, P) { r.request.text = v.string(), r.request.add_special = true, ++r.given; }},
    {items_rule("messages", Kind::list, kMostMessages,
                "A conversation, with what a chat says of its prompt (vLLM)."),
     [](T& r, J, P) { r.request.chat.emplace(), ++r.given; }},
    {boolean_rule("add_special", "What the model wants around a text (llama.cpp)."),
     [](T& r, J v, P) { r.special = v.boolean(); }},
    {boolean_rule("add_special_tokens", "The same (vLLM)."), [](T& r, J v, P) { r.special = v.boolean(); }},
    {boolean_rule("parse_special", "Names of special tokens become these tokens. Default true."),
     [](T& r, J v, P) { r.request.parse_special = v.boolean(); }},
    {boolean_rule("with_pieces", "Each id with its text (llama.cpp)."),
     [](T& r, J v, P) { r.request.with_pieces = v.boolean(); }},
    {boolean_rule("return_token_strs", "The tokens as texts too (vLLM)."),
     [](T& r, J v, P) { r.request.return_token_strs = v.boolean(); }},
});

using D = ListReading<DetokenizeRequest>;
constexpr std::array kDetokenize = std::to_array<Field<D>>({
    {kModel, [](D& r, J v, P) { r.request.model = v.string(); }},
    {required(items_rule("tokens", Kind::ids, kMostIds, "Token ids.")),
     [](D& r, J v, P path) { r.request.ids = token_ids(v, path, r.options.vocabulary); }},
});

constexpr std::array kLabRun = std::to_array<Field<LabRunRequest>>({
    {required(string_rule("experiment", 1, 64, "Its name: key-bias.")),
     [](LabRunRequest& r, J v, P) { r.experiment = v.string(); }},
    {integer_rule("seed", 0, 1099511627776, "What everything random comes from. Default 0."),
     [](LabRunRequest& r, J v, P) { r.seed = static_cast<std::uint64_t>(v.integer()); }},
    {number_rule("effort", 0.01, 1, "Share of the training steps and samples. Default 1."),
     [](LabRunRequest& r, J v, P) { r.effort = v.number(); }},
    {string_rule("text", 0, 1 << 20, "What experiments on text learn, instead of a text of our own."),
     [](LabRunRequest& r, J v, P) { r.text = v.string(); }},
});

constexpr std::size_t kMostRecipe = 64 << 10;  // bytes: one has a few KiB

constexpr std::array kRecipe = std::to_array<Field<RecipeRequest>>({
    {string_rule("text", 1, kMostRecipe, "A recipe's JSON; errors name its lines."),
     [](RecipeRequest& r, J v, P) { r.text = v.string(); }},
    {{"recipe", Kind::object, 0, 0, 1000, "", "A recipe as an object: docs/recipe.md."},
     [](RecipeRequest& r, J v, P path) {
       r.recipe = v.dump(0);
       if (r.recipe.size() > kMostRecipe)
         bad_field(path, concat("it has ", r.recipe.size(), " bytes of JSON; at most ", kMostRecipe,
                                " are allowed"));
     }},
    {string_rule("preset", 1, 64, "The name of a preset."),
     [](RecipeRequest& r, J v, P) { r.preset = v.string(); }},
    {{"settings", Kind::strings, 1, 256, 64, "", "Changes: \"width=128\"."},
     [](RecipeRequest& r, J v, P) {
       if (v.is_string()) r.settings.emplace_back(v.string());
       else
         for (const Json& s : v.array()) r.settings.emplace_back(s.string());
     }},
    {{"lang", Kind::string, 2, 2, 0, "en|zh", "Of the picture's words."},
     [](RecipeRequest& r, J v, P) { r.chinese = v.string() == "zh"; }},
});

constexpr std::array kRecipePair = std::to_array<Field<RecipePair>>({
    {{"a", Kind::schema, 0, 0, 0, "", "", "recipe", true},
     [](RecipePair& r, J v, P) { r.a = read_recipe(v, "a."); }},
    {{"b", Kind::schema, 0, 0, 0, "", "", "recipe", true},
     [](RecipePair& r, J v, P) { r.b = read_recipe(v, "b."); }},
});

// [begin, end)
void put_range(const Json& v, std::string_view path, Dim& begin, Dim& end) {
  if (v.array().size() != 2 || !v.array()[0].is_integer() || !v.array()[1].is_integer() ||
      v.array()[0].integer() < 0 || v.array()[1].integer() <= v.array()[0].integer())
    bad_field(path, "a range is [begin, end] with 0 <= begin < end; the end is not in it");
  begin = v.array()[0].integer(), end = v.array()[1].integer();
}

struct LookReading {
  const ReadOptions& options;
  LookRequest request = {};
  int given = 0;
};
using L = LookReading;
constexpr std::array kLook =
    std::to_array<Field<L>>(
        {
            {kModel, [](L& r, J v, P) { r.request.model = v.string(); }},
            {items_rule("ids", Kind::ids, kMostLookTokens, "The text as token ids: a prompt and its answer."),
             [](L& r, J v, P path) {
               r.request.ids = token_ids(v, path, r.options.vocabulary), ++r.given;
               if (r.request.ids.empty()) bad_field(path, "it is an empty list of token ids");
             }},
            {string_rule("text", 1, kText, "The text, instead of ids."),
             [](L& r, J v, P) { r.request.text = v.string(), ++r.given; }},
            {items_rule("messages", Kind::list, kMostMessages, "A conversation, instead of ids."),
             [](L& r, J, P) { r.request.chat.emplace(), ++r.given; }},
            {string_rule("answer", 0, kText, "What was answered to the conversation."),
             [](L& r, J v, P) { r.request.answer = v.string(); }},
            {required(items_rule(
                 "want", Kind::list, 16,
                 "tokens, heads, token, map, row, maps, norms, massive, lens: parts of the reply.")),
             [](L& r, J v, P path) {
               LookRequest& q = r.request;
               const std::pair<std::string_view, bool*> known[] = {
                   {"tokens", &q.tokens}, {"heads", &q.heads},     {"token", &q.token_stats},
                   {"map", &q.map},       {"row", &q.row},         {"maps", &q.maps},
                   {"norms", &q.norms},   {"massive", &q.massive}, {"lens", &q.lens}};
               if (v.array().empty()) bad_field(path, "it is an empty list");
               for (std::size_t i = 0; i < v.array().size(); ++i) {
                 J one = v.array()[i];
                 const auto* it = std::find_if(std::begin(known), std::end(known), [&](const auto& k) {
                   return one.is_string() && one.string() == k.first;
                 });
                 if (it == std::end(known))
                   bad_field(concat(path, "[", i, "]"),
                             "known: tokens, heads, token, map, row, maps, norms, massive, lens");
                 *it->second = true;
               }
             }},
            {integer_rule(
                 "token",
                 -kMostLookTokens, kMostLookTokens - 1,
                 "Which token `token`, `row` and `lens` are about; negative: from the end. Default -1."),
             [](L& r, J v, P) { r.request.token = v.integer(); }},
            {integer_rule("layer", 0, 65535, "Of `map` and `row`."),
             [](L& r, J v, P) { r.request.layer = v.integer(); }},
            {integer_rule("head", 0, 65535, "Of `map`."), [](L& r, J v, P) { r.request.head = v.integer(); }},
            {items_rule("rows", Kind::list, 2, "[begin, end) of the map's rows."),
             [](L& r, J v, P path) { put_range(v, path, r.request.row_begin, r.request.row_end); }},
            {items_rule("keys", Kind::list, 2, "[begin, end) of the map's keys."),
             [](L& r, J v, P path) { put_range(v, path, r.request.key_begin, r.request.key_end); }},
            {integer_rule(
                 "pixels", 1, kMostLookPixels,
                 "Cells of the map each way; each is the largest weight in it. Default 256."),
             [](L& r, J v, P) { r.request.pixels = v.integer(); }},
            {integer_rule(
                 "sample", 1, kMostLookSample,
                 "Rows computed anew for induction, variance and strongest of `heads`. Default 512."),
             [](L& r, J v, P) { r.request.sample = v.integer(); }},
            {integer_rule("top", 1, 20, "Most probable tokens of `tokens` and `lens`. Default 5."),
             [](L& r, J v, P) { r.request.top = static_cast<int>(v.integer()); }},
            {integer_rule("first_keys", 1, 64, "What the first tokens are. Default 1."),
             [](L& r, J v, P) { r.request.first_keys = v.integer(); }},
            {word_rule("encoding", "json|u8|f16|f32",
                       "Of arrays: numbers, or base64 of little-endian values."),
             [](L& r, J v, P) {
               using Encoding = LookRequest::Encoding;
               r.request.encoding = v.string() == "u8"    ? Encoding::u8
                                    : v.string() == "f16" ? Encoding::f16
                                    : v.string() == "f32" ? Encoding::f32
                                                          : Encoding::json;
             }},
            {items_rule("edits", Kind::list, 64, "Changes to the pass (docs/edits.md)."),
             [](L& r, J v, P path) {
               check_edits(v, path);
               r.request.edits.assign(v.array().begin(), v.array().end());
             }},
        });

// Members of all objects: a colon outside of a string. One look, before a value is made.
std::size_t members_in(std::string_view text) {
  std::size_t members = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ':') ++members;
    if (text[i] != '"') continue;
    for (++i; i < text.size() && text[i] != '"'; ++i)
      if (text[i] == '\\') ++i;
  }
  return members;
}

template <class T>
auto read_list(const auto& table, const Json& body, const ReadOptions& options) {
  ListReading<T> r{.options = options};
  read_fields<ListReading<T>>(table, r, body);
  return std::move(r.request);
}

}  // namespace

bool Continued::any() const {
  return std::any_of(ids.begin(), ids.end(), [](const auto& list) { return !list.empty(); });
}
std::span<const std::int32_t> Continued::of(int index) const {
  const auto i = static_cast<std::size_t>(index);
  return i < ids.size() ? std::span<const std::int32_t>(ids[i]) : std::span<const std::int32_t>{};
}

SamplerOptions openai_sampling() {
  SamplerOptions s;
  s.temperature = s.top_p = 1;
  s.top_k = 0;
  s.min_p = 0;
  s.penalty_last = -1;
  return s;
}

Json read_body(std::string_view body) {
  const auto refuse = [](std::string message) -> Json {
    if (message.size() > 400) message = message.substr(0, 400) + "…";  // a key may be a megabyte long
    throw ApiError(400, "invalid_json", std::move(message));
  };
  if (body.starts_with("\xEF\xBB\xBF"))
    return refuse("The body begins with a byte order mark; JSON in a request has none.");
  if (const std::size_t members = members_in(body); members > kMostMembers)
    return refuse(concat("The body has ", members, " members; at most ", kMostMembers, " are allowed."));
  try {
    Json json = parse_json(body, "body");
    if (!json.is_object())
      return refuse(concat("The body must be a JSON object, not ", json.type_name(), "."));
    return json;
  } catch (const Error& error) {
    return refuse(error.what());
  }
}

CompletionRequest read_chat(const Json& body, const ReadOptions& options) {
  Reading r = reading_of(options, true);
  read_fields<R>(kTemplate, r, body);
  read_fields<R>(kChat, r, body);
  read_fields<R>(kGeneration, r, body);
  finish_template(r);
  finish_generation(r);
  return std::move(r.request);
}

CompletionRequest read_completion(const Json& body, const ReadOptions& options) {
  Reading r = reading_of(options, false);
  read_fields<R>(kCompletions, r, body);
  read_fields<R>(kGeneration, r, body);
  finish_generation(r);
  return std::move(r.request);
}

CompletionRequest read_template(const Json& body, const ReadOptions& options) {
  Reading r = reading_of(options, true);
  read_fields<R>(kTemplate, r, body);
  finish_template(r);
  return std::move(r.request);
}

ReplayRequest read_replay(const Json& asked, const Json& first, bool chat) {
  ReplayReading r;
  read_fields<Q>(kReplay, r, asked, "", true);
  Json body = first, rapt = Json::Object{};
  body.set("stream", false);  // some have it true where nothing is said
  body.set("stream_options", Json());
  for (const Json::Member& m : r.told.object()) body.set(m.key, m.value);
  if (r.top != -1) {
    body.set("logprobs", chat ? Json(r.logprobs) : r.logprobs ? Json(r.top) : Json());
    if (chat) body.set("top_logprobs", r.logprobs ? Json(r.top) : Json());
  }
  // What was only about how it was told then is not asked for again.
  if (const Json* then = first.find("rapt"); then && then->is_object()) rapt = *then;
  for (const char* name : {"look", "resume", "replay", "compare", "continue"}) rapt.set(name, Json());
  for (const Json::Member& m : r.rapt.object()) rapt.set(m.key, m.value);
  body.set("rapt", std::move(rapt));
  return {.body = std::move(body), .edited = r.rapt.find("edits") != nullptr};
}

std::vector<ChatPiece> cut_after_final(std::vector<ChatPiece> rendered, std::string_view content) {
  const auto trimmed = [](std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
    return first == std::string_view::npos ? std::string_view{} : text.substr(first, last + 1 - first);
  };
  while (!rendered.empty() && (rendered.back().trusted || trimmed(rendered.back().text).empty()))
    rendered.pop_back();
  const std::string_view wanted = trimmed(content),
                         found = rendered.empty() ? std::string_view{} : trimmed(rendered.back().text);
  if (found.empty() || !(found.ends_with(wanted) || wanted.ends_with(found)))
    unsupported_field("continue_final_message",
                      "is not possible with this model's chat template: it does not end with the message");
  return rendered;
}

EmbeddingsRequest read_embeddings(const Json& body, const ReadOptions& options) {
  return read_list<EmbeddingsRequest>(kEmbeddings, body, options);
}
RerankRequest read_rerank(const Json& body, const ReadOptions& options) {
  RerankRequest request = read_list<RerankRequest>(kRerank, body, options);
  if (request.documents.empty()) bad_field("documents", "it is required (or texts)");
  return request;
}
ClassifyRequest read_classify(const Json& body, const ReadOptions& options) {
  return read_list<ClassifyRequest>(kClassify, body, options);
}
DetokenizeRequest read_detokenize(const Json& body, const ReadOptions& options) {
  return read_list<DetokenizeRequest>(kDetokenize, body, options);
}

TokenizeRequest read_tokenize(const Json& body, const ReadOptions& options) {
  TokenizeReading r;
  read_fields<T>(kTokenize, r, body);
  if (r.given != 1)
    bad_field("content",
              r.given == 0 ? "give content, prompt or messages" : "give one of content, prompt and messages");
  if (r.request.chat) r.request.chat = read_template(body, options);
  r.request.add_special = r.special.value_or(r.request.add_special);
  return std::move(r.request);
}

LookRequest read_look(const Json& body, const ReadOptions& options) {
  std::vector<std::string> names;
  for (const auto& field : kLook) names.emplace_back(field.rule.name);
  for (const auto& field : kTemplate) names.emplace_back(field.rule.name);
  refuse_unknown(names, body, "");
  LookReading r{.options = options};
  read_fields<L>(kLook, r, body);
  LookRequest& q = r.request;
  if (r.given != 1)
    bad_field("ids", r.given == 0 ? "give ids, text or messages" : "give one of ids, text and messages");
  if (q.chat) q.chat = read_template(body, options);
  else if (!q.answer.empty()) bad_field("answer", "it stands behind messages; give them too");
  if (q.map && (q.layer < 0 || q.head < 0)) bad_field("want", "a map is of one layer and head; give both");
  return std::move(r.request);
}

LabRunRequest read_lab_run(const Json& body) {
  LabRunRequest out;
  read_fields<LabRunRequest>(kLabRun, out, body, "", true);
  return out;
}

RecipeRequest read_recipe(const Json& body, std::string_view path) {
  RecipeRequest out;
  read_fields<RecipeRequest>(kRecipe, out, body, path, true);
  if ((out.text.empty() ? 0 : 1) + (out.recipe.empty() ? 0 : 1) + (out.preset.empty() ? 0 : 1) != 1)
    bad_field(concat(path, "preset"), "give one of a preset, a recipe and its text");
  return out;
}

RecipePair read_recipe_pair(const Json& body) {
  RecipePair out;
  read_fields<RecipePair>(kRecipePair, out, body, "", true);
  return out;
}

std::span<const FieldTable> field_tables() {
  const auto join_rules = [](const auto&... tables) {
    std::vector<FieldRule> rules;
    const auto add = [&](const auto& table) {
      for (const auto& field : table) rules.push_back(field.rule);
    };
    (add(tables), ...);
    return rules;
  };
  static const std::array<std::pair<std::string_view, std::vector<FieldRule>>, 19> lists = {{
      {"chat", join_rules(kTemplate, kChat, kGeneration)},
      {"completions", join_rules(kCompletions, kGeneration)},
      {"embeddings", join_rules(kEmbeddings)},
      {"rerank", join_rules(kRerank)},
      {"classify", join_rules(kClassify)},
      {"tokenize", join_rules(kTokenize)},
      {"detokenize", join_rules(kDetokenize)},
      {"template", join_rules(kTemplate)},
      {"look", join_rules(kLook)},
      {"lab_run", join_rules(kLabRun)},
      {"recipe", join_rules(kRecipe)},
      {"recipe_pair", join_rules(kRecipePair)},
      {"stream_options", join_rules(kStreamOptions)},
      {"rapt", join_rules(kRapt)},
      {"rapt_stream", join_rules(kRaptStream)},
      {"rapt_compare", join_rules(kRaptCompare)},
      {"rapt_continue", join_rules(kRaptContinue)},
      {"replay", join_rules(kReplay)},
      {"rapt_replay", join_rules(kReplayRapt)},
  }};
  static const std::vector<FieldTable> tables = [] {
    std::vector<FieldTable> out;
    for (const auto& [name, rules] : lists) out.push_back({name, rules});
    return out;
  }();
  return tables;
}

}  // namespace rapt::server
