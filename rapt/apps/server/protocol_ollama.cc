// SPDX-License-Identifier: Apache-2.0
// Ollama's /api: its fields and options as those of a chat or a text, its lines of JSON, what it says of
// models.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/apps/server/protocol_writers.h"
#include "rapt/base/text.h"

namespace rapt::server {
namespace {

using Kind = FieldRule::Kind;
using J = const Json&;
using P = std::string_view;

struct OllamaReading {
  Translation translation = {};
  Json variables = {};
  Json::Array messages = {};
  bool stream = true, raw = false, logprobs = false;
  std::optional<int> top = {};
  std::string prompt = {}, system = {};
};
using Oll = OllamaReading;

const Json* ollama_member(const Json& object, const char* name) {  // null is absent
  const Json* value = object.find(name);
  return value && !value->is_null() ? value : nullptr;
}

// "options.seed" is `seed`.
void copy_option(Oll& r, const Json& value, std::string_view path) {
  r.translation.set(path.substr(path.rfind('.') + 1), value);
}

constexpr std::array kOllamaOptions = std::to_array<Field<Oll>>({
    {integer_rule("num_predict", -2, kInt32, "Most tokens of the answer; -1 and -2: what the context holds."),
     [](Oll& r, J v, P) { r.translation.set("max_tokens", std::max<std::int64_t>(-1, v.integer())); }},
    {integer_rule("seed", -kInt64, kInt64,
                  "The same seed gives the same answer; -1 or none: drawn, and told."),
     copy_option},
    {strings_rule("stop", 1, 256, 16, "Texts that end the answer and are not part of it."), copy_option},
    {number_rule("temperature", 0, 2, "0: the most probable token. Default 1."), copy_option},
    {number_rule("top_p", 0, 1, "1: off, the default."), copy_option},
    {integer_rule("top_k", -1, kInt32, "0 or -1: off, the default."), copy_option},
    {number_rule("min_p", 0, 1, "0: off."), copy_option},
    {number_rule("typical_p", 0, 1, "1: off."), copy_option},
    {number_rule("repeat_penalty", 0.01, 100, "1: off, the default."), copy_option},
    {integer_rule("repeat_last_n", -1, kInt32, "Tokens that repeat_penalty looks back at."), copy_option},
    {number_rule("presence_penalty", -2, 2, "Where a token stands in the answer."), copy_option},
    {number_rule("frequency_penalty", -2, 2, "For each time a token stands in the answer."), copy_option},
    {integer_rule("mirostat", 0, 2, "0: off."), copy_option},
    {number_rule("mirostat_tau", 0, 1000, "The surprise it aims at, in bits."), copy_option},
    {number_rule("mirostat_eta", 0, 1000, "How fast it learns."), copy_option},
    {integer_rule("num_ctx", 0, kInt32,
                  "Without effect: the context is the server's, and a prompt that does not fit is refused.")},
    {integer_rule("num_keep", -1, kInt32, "Without effect: nothing is cut.")},
    {later_rule("tfs_z", "1")},
});

// What both kinds of answer have.
constexpr std::array kOllamaShared = std::to_array<Field<Oll>>({
    {required(string_rule("model", 0, 256, "\":latest\" may stand behind a name.")),
     [](Oll& r, J v, P) { r.translation.set("model", v); }},
    {boolean_rule("stream", "Answer in lines of JSON. Default true."),
     [](Oll& r, J v, P) { r.stream = v.boolean(); }},
    {{"format", Kind::choice, 0, 0, 0, "", "\"json\", or a JSON schema: what the answer must be."},
     [](Oll& r, J v, P path) {
       Json out, inside;
       if (v.is_string()) {
         if (v.string().empty()) return;
         check_field(word_rule("", "json", ""), v, path);
         out.set("type", "json_object");
       } else {
         inside.set("name", "format");
         inside.set("schema", v);
         out.set("type", "json_schema");
         out.set("json_schema", std::move(inside));
       }
       r.translation.set("response_format", std::move(out));
     }},
    {schema_rule("options", "ollama_options", "Sampling and limits."),
     [](Oll& r, J v, P path) { read_fields<Oll>(kOllamaOptions, r, v, concat(path, ".")); }},
    {any_rule("think", "true, false, or low, medium, high: variables of the template."),
     [](Oll& r, J v, P path) {
       if (v.is_bool()) {
         r.variables.set("enable_thinking", v);
       } else {
         check_field(word_rule("", "low|medium|high|max", ""), v, path);
         r.variables.set("enable_thinking", true);
         r.translation.set("reasoning_effort", v);
       }
     }},
    {boolean_rule("logprobs", "Log-probabilities of the tokens of the answer."),
     [](Oll& r, J v, P) { r.logprobs = v.boolean(); }},
    {integer_rule("top_logprobs", 0, 20, "… and of so many others at each place."),
     [](Oll& r, J v, P) { r.top = static_cast<int>(v.integer()); }},
    {any_rule("keep_alive", "Without effect: a model stays as long as the server does.")},
    {boolean_rule("truncate", "Without effect: a prompt that does not fit is refused with the numbers.")},
    {boolean_rule("shift", "Without effect: an answer ends where the context does.")},
    {schema_rule("rapt", "rapt", "What only Rapt does."),
     [](Oll& r, J v, P path) {
       if (const Json* resume = ollama_member(v, "resume"); resume && resume->is_bool() && resume->boolean())
         unsupported_field(concat(path, ".resume"), "is of streams of events; these are lines");
       r.translation.set("rapt", v);
     }},
});

void put_ollama_messages(Oll& r, const Json& list, std::string_view path) {
  check_field(items_rule("", Kind::list, kMostMessages, ""), list, path);
  for (std::size_t i = 0; i < list.array().size(); ++i) {
    const Json& message = list.array()[i];
    const std::string at = concat(path, "[", i, "]");
    if (!message.is_object())
      bad_field(at, concat("a message is an object with role and content, not ", message.type_name()));
    Json out;
    const Json* role = ollama_member(message, "role");
    if (!role) bad_field(concat(at, ".role"), "it is required");
    check_field(word_rule("", "system|user|assistant|tool", ""), *role, concat(at, ".role"));
    out.set("role", *role);
    const auto text = [&](const char* name, const char* ours, double most) {
      const Json* value = ollama_member(message, name);
      if (!value) return;
      check_field(string_rule("", 0, most, ""), *value, concat(at, ".", name));
      out.set(ours, *value);
    };
    out.set("content", "");
    text("content", "content", kText);
    text("thinking", "reasoning_content", kText);
    text("tool_name", "name", 256);
    text("tool_call_id", "tool_call_id", 256);
    if (const Json* images = ollama_member(message, "images")) {
      check_field(items_rule("", Kind::list, 64, ""), *images, concat(at, ".images"));
      if (!images->array().empty())
        unsupported_field(concat(at, ".images"), "has pictures; this model reads text");
    }
    if (const Json* calls = ollama_member(message, "tool_calls")) {
      check_field(items_rule("", Kind::list, 128, ""), *calls, concat(at, ".tool_calls"));
      Json::Array all;
      for (std::size_t k = 0; k < calls->array().size(); ++k) {
        const Json& call = calls->array()[k];
        const std::string here = concat(at, ".tool_calls[", k, "].function");
        const Json* function = ollama_member(call, "function");
        const Json* name = function ? ollama_member(*function, "name") : nullptr;
        if (!name) bad_field(here, "it is an object with a name");
        check_field(string_rule("", 1, 256, ""), *name, concat(here, ".name"));
        const Json* arguments = ollama_member(*function, "arguments");
        if (arguments && !arguments->is_object())
          bad_field(concat(here, ".arguments"), "it must be an object");
        Json made, one;
        made.set("name", *name);
        made.set("arguments", arguments ? *arguments : Json(Json::Object{}));
        if (const Json* id = ollama_member(call, "id"); id && id->is_string()) one.set("id", *id);
        one.set("type", "function");
        one.set("function", std::move(made));
        all.push_back(std::move(one));
      }
      if (!all.empty()) out.set("tool_calls", std::move(all));
    }
    r.messages.push_back(std::move(out));
  }
}

constexpr std::array kOllamaChat = std::to_array<Field<Oll>>({
    {any_rule(
         "messages",
         "role: system, user, assistant, tool; content; tool_calls, tool_name, thinking. None: the model "
         "is only loaded, which it is."),
     put_ollama_messages},
    {items_rule("tools", Kind::list, kMostTools, "{\"type\": \"function\", \"function\": {…}}."),
     [](Oll& r, J v, P) { r.translation.set("tools", v); }},
});

constexpr std::array kOllamaGenerate = std::to_array<Field<Oll>>({
    {string_rule("prompt", 0, kText, "What the user says; with raw, the text that is gone on with."),
     [](Oll& r, J v, P) { r.prompt = v.string(); }},
    {string_rule("system", 0, kText, "A message of the system's before it."),
     [](Oll& r, J v, P) { r.system = v.string(); }},
    {boolean_rule("raw", "Without the chat template."), [](Oll& r, J v, P) { r.raw = v.boolean(); }},
    {later_rule("suffix", "\"\"")},
    {later_rule("template", "\"\"")},
    {later_rule("context", "[]")},
    {later_rule("images", "[]")},
});

struct EmbedReading {
  Translation translation = {};
};
constexpr std::array kOllamaEmbed = std::to_array<Field<EmbedReading>>({
    {required(string_rule("model", 0, 256, "\":latest\" may stand behind a name.")),
     [](EmbedReading& r, J v, P) { r.translation.set("model", v); }},
    {required(any_rule("input", "A text or several; none of them empty.")),
     [](EmbedReading& r, J v, P path) {
       check_field(strings_rule("", 1, kText, kMostInputs, ""), v, path);
       if (v.is_array() && v.array().empty()) bad_field(path, "it is an empty list");
       r.translation.set("input", v);
     }},
    {integer_rule("dimensions", 1, 65536, "The first so many, made a unit vector again."),
     [](EmbedReading& r, J v, P) { r.translation.set("dimensions", v); }},
    {boolean_rule("truncate", "Without effect: a text that does not fit is refused with the numbers.")},
    {any_rule("keep_alive", "Without effect: a model stays as long as the server does.")},
    {items_rule("options", Kind::object, 64, "Without effect.")},
});

struct ShowReading {};
constexpr std::array kOllamaShow = std::to_array<Field<ShowReading>>({
    {string_rule("model", 0, 256, "\":latest\" may stand behind a name.")},
    {string_rule("name", 0, 256, "The same, of earlier clients.")},
    {boolean_rule("verbose", "Without effect.")},
});

// What is common to both at the end; `text`: not a chat.
CompletionRequest finish_ollama(Oll& r, bool text, const ReadOptions& options) {
  Translation& t = r.translation;
  t.set("stream", r.stream);
  if (r.top && !r.logprobs) bad_field("top_logprobs", "it needs logprobs: true");
  if (r.logprobs && text) {
    t.set("logprobs", r.top.value_or(0));
  } else if (r.logprobs) {
    t.set("logprobs", true);
    if (r.top) t.set("top_logprobs", *r.top);
  }
  if (text && !t.chat.find("max_tokens")) t.set("max_tokens", -1);
  if (!text) t.set("messages", std::move(r.messages));
  if (!text && !r.variables.is_null()) t.set("chat_template_kwargs", std::move(r.variables));
  t.renames = {{"response_format.json_schema.schema", "format"}, {"response_format", "format"}};
  return t.read(text ? read_completion : read_chat, options);
}

// {"format":…,"family":…}
std::string details_of(const OllamaModel& m) {
  const std::string family = in_quotes(m.family);
  return concat("{\"parent_model\":\"\",\"format\":", in_quotes(m.format), ",\"family\":", family,
                ",\"families\":[", family,
                "],\"parameter_size\":", in_quotes(ollama_parameter_size(m.parameters)),
                ",\"quantization_level\":", in_quotes(m.type), "}");
}

std::string list_of(const std::vector<std::string>& words) {
  std::string out = "[";
  for (const std::string& w : words) out += concat(out.size() > 1 ? "," : "", in_quotes(w));
  return out + "]";
}

std::string model_line(const OllamaModel& m) {
  return concat("{\"name\":", in_quotes(m.name), ",\"model\":", in_quotes(m.name), ",\"size\":", m.bytes,
                ",\"digest\":", in_quotes(m.digest), ",\"details\":", details_of(m),
                ",\"capabilities\":", list_of(m.capabilities));
}

Dim nanoseconds(double seconds) { return static_cast<Dim>(std::llround(seconds * 1e9)); }

}  // namespace

std::string ollama_parameter_size(Dim n) {
  const auto x = static_cast<double>(n);
  if (n >= 1'000'000'000) return concat(fixed(x / 1e9, 1), "B");
  if (n >= 1'000'000) return concat(fixed(x / 1e6, 2), "M");
  return concat(fixed(x / 1e3, 0), "K");
}

std::string rfc3339(std::int64_t seconds) {
  const auto at = static_cast<std::time_t>(seconds);
  std::tm t = {};
  char buffer[40];
  if (!::gmtime_r(&at, &t)) return "1970-01-01T00:00:00Z";
  return {buffer, std::strftime(buffer, sizeof buffer, "%Y-%m-%dT%H:%M:%SZ", &t)};
}

CompletionRequest read_ollama_chat(const Json& body, const ReadOptions& options) {
  Oll r;
  read_fields<Oll>(kOllamaShared, r, body);
  read_fields<Oll>(kOllamaChat, r, body);
  return finish_ollama(r, false, options);
}

CompletionRequest read_ollama_generate(const Json& body, const ReadOptions& options) {
  Oll r;
  read_fields<Oll>(kOllamaShared, r, body);
  read_fields<Oll>(kOllamaGenerate, r, body);
  if (r.raw) {
    if (!r.system.empty()) bad_field("system", "it has no place in a raw prompt");
    r.translation.set("prompt", r.prompt);
  } else {
    if (!r.system.empty())
      r.messages.push_back(Json::Object{{"role", Json("system")}, {"content", Json(r.system)}});
    r.messages.push_back(Json::Object{{"role", Json("user")}, {"content", Json(r.prompt)}});
  }
  return finish_ollama(r, r.raw, options);
}

std::string ollama_load_reply(Form form, const Json& body, std::string_view model, std::int64_t created) {
  const bool chat = form == Form::ollama_chat;
  const Json* given = ollama_member(body, chat ? "messages" : "prompt");
  if (given && (chat ? !given->is_array() || !given->array().empty()
                     : !given->is_string() || !given->string().empty()))
    return "";
  const Json* keep = ollama_member(body, "keep_alive");
  const bool unload = keep && keep->is_number() && keep->number() == 0;
  return concat("{\"model\":", in_quotes(model), ",\"created_at\":", in_quotes(rfc3339(created)), ",",
                chat ? R"("message":{"role":"assistant","content":""})" : R"("response":"")",
                ",\"done\":true,\"done_reason\":\"", unload ? "unload" : "load", "\"}\n");
}

EmbeddingsRequest read_ollama_embed(const Json& body, const ReadOptions& options) {
  EmbedReading r;
  read_fields<EmbedReading>(kOllamaEmbed, r, body);
  return read_embeddings(r.translation.chat, options);
}

void check_ollama_show(const Json& body) {
  ShowReading r;
  read_fields<ShowReading>(kOllamaShow, r, body);
}

std::string ollama_embed_reply(std::string_view model, std::span<const std::vector<float>> vectors,
                               Dim prompt_tokens, double seconds) {
  std::string out = concat("{\"model\":", in_quotes(model), ",\"embeddings\":[");
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    out += i > 0 ? ",[" : "[";
    append_floats(out, vectors[i]);
    out += ']';
  }
  return out += concat("],\"total_duration\":", nanoseconds(seconds),
                       ",\"load_duration\":0,\"prompt_eval_count\":", prompt_tokens, "}");
}

std::string ollama_tags_reply(std::span<const OllamaModel> models) {
  std::string out = "{\"models\":[";
  for (const OllamaModel& m : models)
    out += concat(&m == models.data() ? "" : ",", model_line(m),
                  ",\"modified_at\":", in_quotes(rfc3339(m.modified)), "}");
  return out + "]}";
}

std::string ollama_ps_reply(std::span<const OllamaModel> models) {
  std::string out = "{\"models\":[";
  for (const OllamaModel& m : models)
    out += concat(&m == models.data() ? "" : ",", model_line(m),
                  ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":0,\"context_length\":", m.context,
                  "}");
  return out + "]}";
}

std::string ollama_show_reply(const OllamaModel& m) {
  const auto of = [&](const char* name, Dim n) {
    return n > 0 ? concat(",", in_quotes(concat(m.family, ".", name)), ":", n) : std::string();
  };
  return concat("{\"modelfile\":\"\",\"parameters\":",
                in_quotes(concat("temperature ", shortest(m.sampling.temperature), "\ntop_p ",
                                 shortest(m.sampling.top_p), "\ntop_k ", m.sampling.top_k)),
                ",\"template\":", in_quotes(m.chat_template), ",\"details\":", details_of(m),
                ",\"model_info\":{\"general.architecture\":", in_quotes(m.family),
                ",\"general.parameter_count\":", m.parameters, of("context_length", m.context),
                of("embedding_length", m.width), of("block_count", m.layers),
                of("attention.head_count", m.heads), of("attention.head_count_kv", m.kv_heads),
                of("vocab_size", m.vocabulary), "},\"capabilities\":", list_of(m.capabilities),
                ",\"modified_at\":", in_quotes(rfc3339(m.modified)), "}");
}

// --------------------------------------------------------------------------------------------------- tables
std::span<const FieldRule> ollama_rules(std::string_view name) {
  const auto join_all = [](const auto&... tables) {
    std::vector<FieldRule> out;
    const auto add = [&](const auto& table) {
      for (const auto& field : table) out.push_back(field.rule);
    };
    (add(tables), ...);
    return out;
  };
  static const std::vector<FieldRule> chat = join_all(kOllamaShared, kOllamaChat),
                                      generate = join_all(kOllamaShared, kOllamaGenerate),
                                      options = join_all(kOllamaOptions), embed = join_all(kOllamaEmbed),
                                      show = join_all(kOllamaShow);
  return name == "ollama_chat"       ? chat
         : name == "ollama_generate" ? generate
         : name == "ollama_options"  ? options
         : name == "ollama_embed"    ? embed
                                     : show;
}

// --------------------------------------------------------------------------------------------------- writer
std::string OllamaWriter::line(std::string_view said, std::string_view logprobs,
                               std::string_view ending) const {
  return concat("{\"model\":", in_quotes(head_.model), ",\"created_at\":", in_quotes(rfc3339(head_.created)),
                ",", said, logprobs.empty() ? "" : concat(",\"logprobs\":[", logprobs, "]"),
                ending.empty() ? ",\"done\":false" : ending, "}\n");
}

void OllamaWriter::part(std::string& out, const AnswerPart& part) {
  using Part = AnswerPart::Kind;
  switch (part.kind) {
    case Part::text: out += line(said(part.text, "", ""), std::exchange(logprobs_, {})); break;
    case Part::reasoning: out += line(said("", part.text, ""), std::exchange(logprobs_, {})); break;
    case Part::call_begin: name_ = part.text, id_ = part.id, arguments_.clear(), calling_ = true; break;
    case Part::call_arguments: arguments_ += part.text; break;
    case Part::call_end:
      calling_ = false;
      out += line(is_json_object(arguments_) ? said("", "", call_json(id_, name_, arguments_))
                                             : said(arguments_, "", ""),
                  std::exchange(logprobs_, {}));
      break;
  }
}

std::string OllamaWriter::call_json(std::string_view id, std::string_view name, std::string_view arguments) {
  return concat("{\"id\":", in_quotes(id), ",\"function\":{\"name\":", in_quotes(name),
                ",\"arguments\":", parse_json(arguments).dump(0), "}}");
}

std::string OllamaWriter::ending(const AnswerEnd& end) const {
  const GenerateTimes& t = end.times;
  return concat(",\"done\":true,\"done_reason\":\"", finish_reason(end.choice.finish),
                "\",\"total_duration\":", nanoseconds(t.queue_seconds + t.prompt_seconds + t.decode_seconds),
                ",\"load_duration\":0,\"prompt_eval_count\":", end.usage.prompt_tokens,
                ",\"prompt_eval_duration\":", nanoseconds(t.prompt_seconds),
                ",\"eval_count\":", end.usage.completion_tokens,
                ",\"eval_duration\":", nanoseconds(t.decode_seconds),
                ",\"rapt\":", rapt_text(end.info, end.choice));
}

void OllamaWriter::end(std::string& out, const AnswerEnd& end) {
  out += line(said(calling_ ? arguments_ : "", "", ""), logprobs_, ending(end));  // of a call that was cut
}

std::string OllamaWriter::reply(const AnswerMessage& message, const AnswerEnd& end) {
  std::string text = message.text, calls;
  for (const AnswerMessage::Call& c : message.calls)
    if (is_json_object(c.arguments))
      calls += concat(calls.empty() ? "" : ",", call_json(c.id, c.name, c.arguments));
    else text += c.arguments;
  return line(said(text, message.reasoning, calls), logprobs_, ending(end));
}

std::string OllamaWriter::error(const ApiError& error) {
  return error_body(error, Vendor::ollama, "") + "\n";
}

std::string OllamaWriter::ping() const { return line(said("", "", ""), ""); }

std::string OllamaChatWriter::said(std::string_view text, std::string_view thought,
                                   std::string_view calls) const {
  return concat("\"message\":{\"role\":\"assistant\",\"content\":", in_quotes(text),
                thought.empty() ? "" : concat(",\"thinking\":", in_quotes(thought)),
                calls.empty() ? "" : concat(",\"tool_calls\":[", calls, "]"), "}");
}

std::string OllamaGenerateWriter::said(std::string_view text, std::string_view thought,
                                       std::string_view calls) const {
  return concat("\"response\":", in_quotes(text),
                thought.empty() ? "" : concat(",\"thinking\":", in_quotes(thought)),
                calls.empty() ? "" : concat(",\"tool_calls\":[", calls, "]"));
}

}  // namespace rapt::server
