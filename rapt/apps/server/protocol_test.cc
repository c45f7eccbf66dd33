// SPDX-License-Identifier: Apache-2.0
// The wire format: every field at and beyond its limits, hostile bodies, what real clients choke on.
#include "rapt/apps/server/protocol.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "rapt/apps/server/protocol_fields.h"

namespace rapt::server::protocol_test {
namespace {

// -------------------------------------------------------------------------------------------------- helpers
// One token per listed text; control tokens are not part of a text. SentencePiece's way with the first space.
class WireTokenizer : public Tokenizer {
 public:
  explicit WireTokenizer(std::vector<std::string> texts, std::set<std::int32_t> control = {})
      : texts_(std::move(texts)) {
    for (std::size_t i = 0; i < texts_.size(); ++i)
      roles_.push_back(control.contains(static_cast<std::int32_t>(i)) ? Role::control : Role::normal);
  }
  std::vector<std::int32_t> encode(std::span<const TextPiece>) const override { return {}; }
  std::string bytes_of(std::int32_t id) const override { return texts_[static_cast<std::size_t>(id)]; }
  std::string decode(std::span<const std::int32_t> ids, bool) const override {
    std::string out;
    for (std::int32_t id : ids)
      if (role(id) != Role::control) out += bytes_of(id);
    return out.starts_with(' ') && strips ? out.substr(1) : out;
  }
  const std::string& text_of(std::int32_t id) const override { return texts_[static_cast<std::size_t>(id)]; }
  std::optional<std::int32_t> id_of(std::string_view) const override { return {}; }
  bool strips = false;

 private:
  std::vector<std::string> texts_;
};

Json wire(std::string_view text) { return read_body(text); }
Json chat_body(std::string_view more = "") {
  return wire(concat(R"({"messages":[{"role":"user","content":"Hi"}])", more, "}"));
}
Json text_body(std::string_view more = "") { return wire(concat(R"({"prompt":"Hi")", more, "}")); }

// The refusal, or one of status 0 where there was none.
template <class F>
ApiError refused(const F& f) {
  try {
    f();
  } catch (const ApiError& error) {
    return error;
  }
  return {0, "", ""};
}

using Reader = std::function<void(const Json&)>;
struct Endpoint {
  std::string table, least;  // the smallest body that is fine
  Reader read;
};
std::vector<Endpoint> endpoints() {
  return {
      {"chat", R"({"messages":[{"role":"user","content":"Hi"}]})", [](const Json& j) { read_chat(j); }},
      {"completions", R"({"prompt":"Hi"})", [](const Json& j) { read_completion(j); }},
      {"embeddings", R"({"input":"Hi"})", [](const Json& j) { read_embeddings(j); }},
      {"rerank", R"({"query":"a","documents":["b"]})", [](const Json& j) { read_rerank(j); }},
      {"classify", R"({"input":"a"})", [](const Json& j) { read_classify(j); }},
      {"tokenize", R"({"content":"a"})", [](const Json& j) { read_tokenize(j); }},
      {"detokenize", R"({"tokens":[1]})", [](const Json& j) { read_detokenize(j); }},
      {"template", R"({"messages":[{"role":"user","content":"Hi"}]})",
       [](const Json& j) { read_template(j); }},
  };
}
std::span<const FieldRule> rules_of(std::string_view name) {
  for (const FieldTable& table : field_tables())
    if (table.name == name) return table.rules;
  ADD_FAILURE() << "no table " << name;
  return {};
}

std::vector<Json> events_of(std::string_view stream) {  // all but [DONE]
  std::vector<Json> out;
  while (!stream.empty()) {
    const std::size_t end = stream.find("\n\n");
    if (end == std::string_view::npos) ADD_FAILURE() << "unfinished event: " << stream;
    const std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    EXPECT_TRUE(event.starts_with("data: ")) << event;  // no id:, no event:, never empty
    EXPECT_EQ(event.find('\n'), std::string_view::npos);
    if (event != "data: [DONE]") out.push_back(parse_json(event.substr(6)));
    else EXPECT_TRUE(stream.empty());
  }
  return out;
}

const Json& at(const Json& j, std::string_view path) {  // "choices.0.delta"
  const Json* value = &j;
  while (!path.empty()) {
    const std::string_view key = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(path.size(), key.size() + 1));
    if (value->is_array()) value = &value->array()[static_cast<std::size_t>(std::stoi(std::string(key)))];
    else value = value->find(key);
    if (!value) {
      ADD_FAILURE() << "no " << key << " in " << j.dump(0);
      static const Json none;
      return none;
    }
  }
  return *value;
}

const ReplyHead kWireHead{.id = "chatcmpl-1", .created = 1, .model = "m", .fingerprint = "rapt-1"};

// ------------------------------------------------------------------------------------------------- requests
TEST(Protocol, EveryFieldRefusesWhatItsLineDoesNotAllow) {
  const std::string huge(1 << 20, 'x');
  int tried = 0;
  for (const Endpoint& endpoint : endpoints()) {
    const Json plain = parse_json(endpoint.least);
    EXPECT_NO_THROW(endpoint.read(plain)) << endpoint.table;
    for (const FieldRule& rule : rules_of(endpoint.table)) {
      using Kind = FieldRule::Kind;
      const auto expect = [&](Json value, const char* what) {
        Json body = plain;
        body.set(rule.name, std::move(value));
        const ApiError error = refused([&] { endpoint.read(body); });
        const std::string where = concat(endpoint.table, ".", rule.name, ": ", what);
        EXPECT_EQ(error.status, 400) << where;
        EXPECT_EQ(error.type, "invalid_request_error") << where;
        EXPECT_TRUE(error.param.starts_with(rule.name)) << where << ": " << error.param;
        EXPECT_NE(error.message.find(rule.name), std::string::npos) << where << ": " << error.message;
        EXPECT_LT(error.message.size(), 600u) << where;
        EXPECT_EQ(error.code, rule.kind == Kind::later ? "unsupported_parameter" : "invalid_value") << where;
        ++tried;
      };
      // null is absent.
      Json body = plain;
      body.set(rule.name, Json());
      if (rule.required || (endpoint.table == "tokenize" && std::string_view(rule.name) == "content") ||
          (endpoint.table == "rerank" && std::string_view(rule.name) == "documents"))
        EXPECT_EQ(refused([&] { endpoint.read(body); }).status, 400) << rule.name;
      else EXPECT_EQ(refused([&] { endpoint.read(body); }).message, "") << rule.name;

      const bool number = rule.kind == Kind::integer || rule.kind == Kind::number;
      const bool text = rule.kind == Kind::string || rule.kind == Kind::strings || rule.kind == Kind::texts;
      if (!text) expect(huge, "a huge string");
      if (rule.kind == Kind::string && rule.most < (1 << 20)) expect(huge, "a huge string");
      if (rule.kind == Kind::strings && rule.most < (1 << 20)) expect(huge, "a huge string");
      if (!number) expect(4.5, "a number");
      if (rule.kind != Kind::boolean && std::string_view(rule.words) != "true")
        expect(Json(true), "a boolean");
      if (rule.kind != Kind::object && rule.kind != Kind::schema) expect(Json::Object{}, "an object");
      if (number || rule.kind == Kind::string) expect(Json::Array{}, "a list");
      if (number) {
        expect("1", "a number as text");
        expect(1e308, "1e308"), expect(-1e308, "-1e308"), expect(1.8446744073709552e19, "2^64");
        if (rule.most < 9e18) expect(rule.most + 1, "above"), expect(rule.least - 1, "below");
        if (rule.kind == Kind::integer) expect(1.5, "half");
        Json good = plain;
        for (double x : {rule.least, rule.most}) {
          if (std::fabs(x) > 9e15) continue;
          good.set(rule.name, x);
          const ApiError error = refused([&] { endpoint.read(good); });
          // best_of goes with n, top_logprobs with logprobs
          if (std::string_view(rule.name) != "best_of" && std::string_view(rule.name) != "top_logprobs" &&
              error.code != "unsupported_parameter")
            EXPECT_EQ(error.message, "") << rule.name << " " << x;
        }
      }
      if (rule.items > 0) {
        Json::Array list;
        for (std::size_t i = 0; i <= rule.items && i < (1 << 21); ++i) list.push_back("a");
        if (rule.kind != Kind::object) expect(Json(std::move(list)), "too many");
      }
    }
  }
  EXPECT_GT(tried, 500);
}

TEST(Protocol, DefaultsAreOpenAisUnlessTheModelSaysOtherwise) {
  const CompletionRequest plain = read_chat(chat_body());
  const SamplerOptions& s = plain.generate.sampler;
  EXPECT_EQ(s.temperature, 1);
  EXPECT_EQ(s.top_p, 1);
  EXPECT_EQ(s.top_k, 0);
  EXPECT_EQ(s.min_p, 0);
  EXPECT_EQ(s.repeat_penalty, 1);
  EXPECT_EQ(plain.generate.max_tokens, -1);
  EXPECT_EQ(plain.generate.samples, 1);
  EXPECT_FALSE(plain.seeded);
  EXPECT_FALSE(plain.stream);
  EXPECT_FALSE(plain.penalties_answer_only);
  EXPECT_EQ(read_completion(text_body()).generate.max_tokens, 16);
  ReadOptions own;
  own.sampling.temperature = 0.6;
  EXPECT_EQ(read_chat(chat_body(), own).generate.sampler.temperature, 0.6);
  EXPECT_EQ(read_chat(chat_body(R"(,"temperature":0)"), own).generate.sampler.temperature, 0);
  EXPECT_EQ(read_chat(chat_body(R"(,"temperature":null)"), own).generate.sampler.temperature, 0.6);
}

TEST(Protocol, FieldsGoWhereTheyBelong) {
  const CompletionRequest r = read_chat(chat_body(
      R"(,"max_tokens":7,"max_completion_tokens":5,"n_predict":-1,"stop":["a","b"],"seed":-3,"n":2,
          "logprobs":true,"top_logprobs":3,"logit_bias":{"5":-100,"6":1.5},"frequency_penalty":0.5,
          "top_k":-1,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},
          "cache_salt":"s","priority":-2,"user":"u","store":true,"metadata":{"a":1},"tools":[],
          "tool_choice":"auto","response_format":{"type":"text"},"length_penalty":1.0,
          "rapt":{"look":["sinks",{"name":"lens"}],"stream":{"keep":4,"window":1020},"replay":true})"));
  EXPECT_EQ(r.generate.max_tokens, 5);
  EXPECT_EQ(r.generate.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(r.seeded);
  EXPECT_EQ(static_cast<std::int64_t>(r.generate.sampler.seed), -3);
  EXPECT_EQ(r.generate.samples, 2);
  EXPECT_TRUE(r.generate.logprobs);
  EXPECT_EQ(r.generate.top_logprobs, 3);
  ASSERT_EQ(r.generate.sampler.bias.size(), 2u);
  EXPECT_EQ(r.generate.sampler.bias[0],
            (std::pair<std::int32_t, float>{5, -std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(r.generate.sampler.bias[1], (std::pair<std::int32_t, float>{6, 1.5f}));
  EXPECT_TRUE(r.penalties_answer_only);
  EXPECT_EQ(r.generate.sampler.top_k, 0);
  EXPECT_TRUE(r.stream && r.include_usage && r.continuous_usage && r.replay);
  EXPECT_EQ(r.cache_salt, "s");
  EXPECT_EQ(r.priority, -2);
  EXPECT_EQ(r.user, "u");
  EXPECT_EQ(r.look.size(), 2u);
  EXPECT_EQ(r.endless, (Stream{.keep = 4, .window = 1020}));
  EXPECT_FALSE(read_chat(chat_body(R"(,"seed":-1)")).seeded);
  EXPECT_EQ(read_chat(chat_body(R"(,"stop":"x")")).generate.stops, (std::vector<std::string>{"x"}));
  // llama.cpp's looks back at 64 tokens, vLLM's at all; a 1.0 that a benchmark always sends changes nothing.
  EXPECT_EQ(read_chat(chat_body(R"(,"repeat_penalty":1.1)")).generate.sampler.penalty_last, 64);
  EXPECT_EQ(read_chat(chat_body(R"(,"repetition_penalty":1.1)")).generate.sampler.penalty_last, -1);
  const CompletionRequest both = read_chat(chat_body(R"(,"repeat_penalty":1.1,"repetition_penalty":1.0)"));
  EXPECT_EQ(both.generate.sampler.repeat_penalty, 1.1);
  EXPECT_NO_THROW(check(r.generate));
}

TEST(Protocol, FieldsThatDependOnEachOther) {
  const auto param = [](const Json& body, bool chat = true) {
    const ApiError error = refused([&] { chat ? read_chat(body) : read_completion(body); });
    EXPECT_EQ(error.status, 400);
    return error.param;
  };
  EXPECT_EQ(param(chat_body(R"(,"top_logprobs":2)")), "top_logprobs");
  EXPECT_EQ(param(chat_body(R"(,"continue_final_message":true)")), "continue_final_message");
  EXPECT_EQ(param(chat_body(R"(,"prompt_logprobs":1,"stream":true)")), "prompt_logprobs");
  EXPECT_EQ(param(text_body(R"(,"best_of":3)"), false), "best_of");
  EXPECT_EQ(param(text_body(R"(,"best_of":1,"n":2)"), false), "best_of");
  EXPECT_NO_THROW(read_completion(text_body(R"(,"best_of":2,"n":2)")));
  EXPECT_EQ(param(chat_body(R"(,"min_tokens":2)")), "min_tokens");
  ReadOptions able;
  able.min_tokens = able.stop_token_ids = true;
  EXPECT_EQ(read_chat(chat_body(R"(,"min_tokens":2,"stop_token_ids":[3])"), able).stop_token_ids,
            (std::vector<std::int32_t>{3}));
  EXPECT_EQ(refused([&] { read_chat(chat_body(R"(,"min_tokens":2,"max_tokens":1)"), able); }).param,
            "min_tokens");
  ReadOptions few;
  few.most_choices = 2;
  EXPECT_EQ(refused([&] { read_chat(chat_body(R"(,"n":3)"), few); }).param, "n");
}

TEST(Protocol, WhatComesLaterIsNamed) {
  for (const char* more : {R"("functions":[{}])", R"("audio":{})", R"("modalities":["text","audio"])",
                           R"("web_search_options":{})", R"("lora":[{}])", R"("speculative.n_max":3)",
                           R"("guided_json":{})", R"("use_beam_search":true)"}) {
    const ApiError error = refused([&] { read_chat(chat_body(concat(",", more))); });
    EXPECT_EQ(error.code, "unsupported_parameter") << more;
    EXPECT_TRUE(std::string_view(more).substr(1).starts_with(error.param)) << more;
  }
  EXPECT_EQ(refused([] { read_completion(text_body(R"(,"suffix":"x")")); }).code, "unsupported_parameter");
}

TEST(Protocol, ToolsAndFormats) {
  const CompletionRequest r = read_chat(chat_body(
      R"(,"tools":[{"type":"function","function":{"name":"a.b","description":"d","strict":true,
          "parameters":{"type":"object"}}},{"type":"function","function":{"name":"c"}}],
          "tool_choice":{"type":"function","function":{"name":"c"}},"parallel_tool_calls":false,
          "response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"null"}}})"));
  ASSERT_EQ(r.tools.functions.size(), 2u);
  EXPECT_EQ(r.tools.functions[0].name, "a.b");
  EXPECT_TRUE(r.tools.functions[0].strict);
  EXPECT_EQ(r.tools.functions[0].path, "tools[0].function.parameters");
  EXPECT_TRUE(r.tools.functions[1].parameters.is_null());
  EXPECT_EQ(r.tools.choice, ToolRequest::Choice::required);
  EXPECT_FALSE(r.tools.allows("a.b"));
  EXPECT_TRUE(r.tools.allows("c"));
  EXPECT_FALSE(r.tools.parallel);
  EXPECT_EQ(r.tools.for_template(),
            parse_json(R"([{"type":"function","function":{"name":"a.b","description":"d",
      "parameters":{"type":"object"}}},{"type":"function","function":{"name":"c",
      "parameters":{"type":"object","properties":{}}}}])"));
  EXPECT_EQ(r.format.kind, AnswerFormat::Kind::json_schema);
  EXPECT_EQ(r.format.path, "response_format.json_schema.schema");
  EXPECT_EQ(r.format.schema, parse_json(R"({"type":"null"})"));

  const auto format = [](std::string_view more) { return read_chat(chat_body(concat(",", more))).format; };
  EXPECT_EQ(format(R"("response_format":{"type":"text"})").kind, AnswerFormat::Kind::text);
  EXPECT_EQ(format(R"("response_format":{"type":"json_object"})").kind, AnswerFormat::Kind::json_object);
  EXPECT_EQ(format(R"("response_format":{"type":"json_object","schema":{}})").path, "response_format.schema");
  EXPECT_EQ(format(R"("json_schema":{"a":1})").path, "json_schema");
  EXPECT_EQ(format(R"("grammar":"root ::= x")").grammar, "root ::= x");
  EXPECT_EQ(format(R"("grammar":"","response_format":null)").kind, AnswerFormat::Kind::text);
  const CompletionRequest none = read_chat(chat_body(R"(,"tools":[],"tool_choice":"auto")"));
  EXPECT_FALSE(none.tools.active());
}

TEST(Protocol, Messages) {
  const CompletionRequest r = read_chat(wire(R"({"messages":[
    {"role":"developer","content":"Be brief","cache_control":{"a":1}},
    {"role":"user","name":"Ann","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
      "function":{"name":"f","arguments":"{\"x\":1}"}}],"reasoning":"hm"},
    {"role":"tool","tool_call_id":"c1","content":"2"},
    {"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}],
    "reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":false},
    "continue_final_message":true,"add_generation_prompt":false})"));
  EXPECT_EQ(r.messages, parse_json(R"([
    {"role":"system","content":"Be brief"},
    {"role":"user","content":"a\nb","name":"Ann"},
    {"role":"assistant","content":"","reasoning_content":"hm",
     "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":1}}}]},
    {"role":"tool","content":"2","tool_call_id":"c1"},
    {"role":"assistant","content":"no"}])"));
  EXPECT_EQ(r.variables, parse_json(R"({"reasoning_effort":"low","enable_thinking":false})"));
  EXPECT_TRUE(r.continue_final);
  EXPECT_FALSE(r.add_generation_prompt);

  const auto param = [](const char* message) {
    return refused([&] { read_chat(wire(concat(R"({"messages":[)", message, "]}"))); }).param;
  };
  EXPECT_EQ(param(""), "messages");
  EXPECT_EQ(param("1"), "messages[0]");
  EXPECT_EQ(param(R"({"content":"a"})"), "messages[0].role");
  EXPECT_EQ(param(R"({"role":"king","content":"a"})"), "messages[0].role");
  EXPECT_EQ(param(R"({"role":"user"})"), "messages[0].content");
  EXPECT_EQ(param(R"({"role":"user","content":7})"), "messages[0].content");
  EXPECT_EQ(param(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"http://a"}}]})"),
            "messages[0].content[0]");
  EXPECT_EQ(param(R"({"role":"user","content":[{"type":"text"}]})"), "messages[0].content[0].text");
  EXPECT_EQ(param(R"({"role":"user","content":"a","name":{}})"), "messages[0].name");
  EXPECT_EQ(param(R"({"role":"assistant","tool_calls":[{}]})"), "messages[0].tool_calls[0]");
  for (const char* name :
       {"messages", "tools", "raise_exception", "bos_token", "__class__", "a b", "range"}) {
    const ApiError error =
        refused([&] { read_chat(chat_body(concat(R"(,"chat_template_kwargs":{")", name, R"(":1})"))); });
    EXPECT_EQ(error.status, 400) << name;
    EXPECT_TRUE(error.param.starts_with("chat_template_kwargs.")) << name;
  }
}

TEST(Protocol, AMessageThatIsGoneOnWith) {
  const auto text = [](const std::vector<ChatPiece>& pieces) {
    std::string out;
    for (const ChatPiece& piece : pieces) out += piece.text;
    return out;
  };
  EXPECT_EQ(
      text(cut_after_final(
          {{"<u>", true}, {"Hi", false}, {"<a>", true}, {"The sky", false}, {"<end>\n", true}}, "The sky")),
      "<u>Hi<a>The sky");
  EXPECT_EQ(text(cut_after_final({{"<a>", true}, {"The sky", false}, {"<end>", true}}, "The sky  ")),
            "<a>The sky");
  EXPECT_EQ(refused([] { cut_after_final({{"x", true}}, "The sky"); }).code, "unsupported_parameter");
  EXPECT_EQ(refused([] {
              cut_after_final({{"The sky", false}, {"<end>", true}, {"2026-11-15", false}}, "The sky");
            }).code,
            "unsupported_parameter");
}

TEST(Protocol, PromptsInFourForms) {
  const auto prompts = [](const char* json, Dim vocabulary = 0) {
    ReadOptions options;
    options.vocabulary = vocabulary;
    return read_completion(wire(concat(R"({"prompt":)", json, "}")), options).prompts;
  };
  EXPECT_EQ(prompts(R"("a")")[0].text, "a");
  EXPECT_EQ(prompts(R"("")").size(), 1u);
  EXPECT_EQ(prompts(R"(["a","b"])")[1].text, "b");
  EXPECT_EQ(prompts("[1,2]").size(), 1u);
  EXPECT_EQ(prompts("[1,2]")[0].ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(prompts("[[1],[2,3]]")[1].ids, (std::vector<std::int32_t>{2, 3}));
  EXPECT_TRUE(prompts("[[1],[2,3]]")[1].is_ids);
  for (const char* bad : {"[]", "[[]]", "[[1],[]]", "7", "{}", R"(["a",1])", R"([1,"a"])", "[[1],2]", "[1.5]",
                          "[-1]", "[2147483648]", "[4294967296]", "[[1,null]]", "[[[1]]]", "[1,1e300]"})
    EXPECT_EQ(refused([&] { prompts(bad); }).param.substr(0, 6), "prompt") << bad;
  EXPECT_NO_THROW(prompts("[99]", 100));
  EXPECT_EQ(refused([&] { prompts("[5,100]", 100); }).param, "prompt[1]");
  EXPECT_EQ(refused([&] {
              read_completion(wire(R"({"prompt":"a","logit_bias":{"100":1}})"), {.vocabulary = 100});
            }).param,
            "logit_bias.100");
  for (const char* bias : {R"({"a":1})", R"({"1":"x"})", R"({"1":101})", R"({"-1":1})", R"({"1 ":1})",
                           R"({"1":false})", R"({"":1})", R"({"99999999999999999999":1})"})
    EXPECT_EQ(refused([&] { read_completion(text_body(concat(R"(,"logit_bias":)", bias))); }).status, 400)
        << bias;
  EXPECT_EQ(refused([] { read_embeddings(wire(R"({"input":["a",""]})")); }).param, "input[1]");
}

TEST(Protocol, CountsAreCappedBeforeAnythingIsMade) {
  const auto many = [](std::size_t n, std::string_view one) {
    std::string out;
    for (std::size_t i = 0; i < n; ++i) out += concat(i ? "," : "", one);
    return out;
  };
  const auto code = [](auto read) {
    const auto start = std::chrono::steady_clock::now();
    const ApiError error = refused(read);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    return error.status;
  };
  EXPECT_EQ(code([&] { read_chat(chat_body(R"(,"n":2147483648)")); }), 400);
  EXPECT_EQ(code([&] { read_chat(chat_body(concat(R"(,"stop":[)", many(1'000'000, R"("x")"), "]"))); }), 400);
  EXPECT_EQ(code([&] { read_completion(wire(concat(R"({"prompt":[)", many(100'000, R"("x")"), "]}"))); }),
            400);
  EXPECT_EQ(code([&] { read_completion(wire(concat(R"({"prompt":[)", many(1'500'000, "1"), "]}"))); }), 400);
  EXPECT_EQ(
      code([&] {
        read_chat(wire(concat(R"({"messages":[)", many(30'000, R"({"role":"user","content":"a"})"), "]}")));
      }),
      400);
  EXPECT_EQ(code([&] { read_chat(chat_body(concat(R"(,"tools":[)", many(90'000, "{}"), "]"))); }), 400);
  EXPECT_EQ(code([&] { read_embeddings(wire(concat(R"({"input":[)", many(3000, R"("x")"), "]}"))); }), 400);
  EXPECT_EQ(code([&] { read_completion(wire(concat(R"({"n":8,"prompt":[)", many(2000, R"("x")"), "]}"))); }),
            400);
  std::string bias;
  for (int i = 0; i < 2000; ++i) bias += concat(i ? "," : "", "\"", i, "\":1");
  EXPECT_EQ(code([&] { read_chat(chat_body(concat(R"(,"logit_bias":{)", bias, "}"))); }), 400);
}

TEST(Protocol, HostileBodiesAreRefusedQuickly) {
  std::string keys = "{";
  for (int i = 0; i < 1'000'000; ++i) keys += concat(i ? "," : "", "\"k", i, "\":1");
  keys += "}";
  const std::string deep(3000, '['), objects = [] {
    std::string out;
    for (int i = 0; i < 3000; ++i) out += "{\"a\":";
    return out;
  }();
  for (const std::string& body :
       {deep,
        R"({"messages":)" + deep,
        objects,
        keys,
        std::string(R"({"a":1,"a":2})"),
        concat("{\"", std::string(1 << 20, 'k'), "\":1,\"", std::string(1 << 20, 'k'), "\":2}"),
        std::string(R"({"temperature":1e999})"),
        std::string(R"({"temperature":NaN})"),
        std::string(R"({"temperature":Infinity})"),
        std::string(R"({"user":"\ud800"})"),
        std::string(R"({"user":"\udc00x"})"),
        std::string("{\"user\":\"\xff\"}"),
        std::string(),
        std::string("\xEF\xBB\xBF{}"),
        std::string("{} {}"),
        std::string("[]"),
        std::string("null"),
        std::string("\"a\""),
        std::string("{\"a\":1,}"),
        std::string("{\"a\":\"\n\"}"),
        std::string("{\"a\":1") + std::string(1, '\0') + "}",
        std::string(2 << 20, '"')}) {
    const auto start = std::chrono::steady_clock::now();
    const ApiError error = refused([&] { read_body(body); });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_EQ(error.status, 400) << body.substr(0, 60);
    EXPECT_EQ(error.code, "invalid_json") << body.substr(0, 60);
    EXPECT_LT(error.message.size(), 500u);
    EXPECT_NO_THROW(parse_json(error_body(error)));
  }
  // Depth inside a field that nobody reads is refused too; below the limit it is ignored.
  EXPECT_NO_THROW(read_chat(chat_body(R"(,"metadata":[[[[[[1]]]]]])")));
}

TEST(Protocol, MutatedRequestsAreReadOrRefused) {
  const std::vector<std::string> seeds = {
      R"({"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true,"stream_options":
          {"include_usage":true},"logprobs":true,"top_logprobs":2,"seed":7,"stop":["a"],"n":2,
          "rapt":{"edits":["z.5@3:scale=0.5",{"point":"z.5","op":"add","value":[1,2]}],"look":["sinks"],
          "stream":{"keep":4,"window":100}},"logit_bias":{"5":1},"tools":[],"top_k":4,"max_tokens":3})",
      R"({"model":"m","prompt":[[1,2],[3]],"echo":true,"logprobs":1,"max_tokens":0,"temperature":0})",
      R"({"input":["a",[1]],"dimensions":3,"query":"q","documents":["a"],"tokens":[1],"content":"x"})"};
  std::mt19937 random(1);
  int fine = 0, bad = 0;
  for (int i = 0; i < 8'000; ++i) {
    std::string body = seeds[random() % seeds.size()];
    const int changes = 1 + static_cast<int>(random() % 3);
    static constexpr std::string_view kPieces[] = {
        "null", "-1", "1e308", "[]", "{}", "\"x\"",   "true", "9e18",
        "0",    ",",  ":",     "]",  "\"", "\\u0000", "-",    "9223372036854775807"};
    for (int c = 0; c < changes; ++c) {
      const std::size_t where = random() % body.size();
      if (random() % 2) body.replace(where, random() % 4, kPieces[random() % std::size(kPieces)]);
      else body[where] = static_cast<char>(random());
    }
    try {
      const Json json = read_body(body);
      for (const Endpoint& endpoint : endpoints()) try {
          endpoint.read(json);
          ++fine;
        } catch (const ApiError& error) {
          EXPECT_EQ(error.status, 400);
          ++bad;
        }
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400);
      ++bad;
    }
  }
  EXPECT_GT(fine, 100);
  EXPECT_GT(bad, 1000);
}

TEST(Protocol, EditsHoldTheirValues) {
  const auto edits = [](std::string_view list) {
    return read_chat(chat_body(concat(R"(,"rapt":{"edits":)", list, "}")));
  };
  const CompletionRequest r =
      edits(R"(["z.5@3:zero","resid_post.8:scale=0.5",{"point":"z.5","op":"add","value":[1,2]}])");
  EXPECT_EQ(r.edits.size(), 3u);
  EXPECT_EQ(r.edits_text, edits(R"([ "z.5@3:zero", "resid_post.8:scale=0.5",
                                     {"point":"z.5","op":"add","value":[1,2]} ])")
                              .edits_text);
  EXPECT_EQ(read_chat(chat_body()).edits_text, "");
  for (const char* bad : {R"(["z.5:add=FILE.npy"])", R"(["z.5:add=/etc/passwd"])", R"(["z.5:add="])",
                          R"(["z.5:add=1e999"])", R"(["z.5:add=inf"])", R"(["z.5:add=nan"])", R"(["z.5"])",
                          R"([{"point":"z.5","op":"add","value":"x.npy"}])", R"([7])",
                          R"([{"point":"z.5","op":"add","value":["x.npy"]}])", R"("z.5:zero")"})
    EXPECT_TRUE(refused([&] { edits(bad); }).param.starts_with("rapt.edits")) << bad;
  EXPECT_EQ(refused([] { read_chat(chat_body(R"(,"rapt":{"edit":[]})")); }).param, "rapt.edit");
  EXPECT_NE(refused([] { read_chat(chat_body(R"(,"rapt":{"edit":[]})")); }).message.find("'edits'"),
            std::string::npos);
  EXPECT_EQ(refused([] { read_chat(chat_body(R"(,"rapt":{"stream":{"keep":4}})")); }).param,
            "rapt.stream.window");
  EXPECT_EQ(refused([] { read_chat(chat_body(R"(,"rapt":{"stream":{"window":0}})")); }).param,
            "rapt.stream.window");
  ReadOptions no;
  no.edits = no.look = false;
  EXPECT_EQ(refused([&] { read_chat(chat_body(R"(,"rapt":{"look":["a"]})"), no); }).code,
            "unsupported_parameter");
}

TEST(Protocol, TheOtherRequests) {
  const RerankRequest rerank = read_rerank(wire(R"({"query":"q","documents":["a",{"text":"b"}],"top_n":1})"));
  EXPECT_EQ(rerank.documents, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(rerank.tei);
  const RerankRequest tei = read_rerank(wire(R"({"query":"q","texts":["a"],"return_text":true})"));
  EXPECT_TRUE(tei.tei && tei.return_documents);
  EXPECT_EQ(refused([] { read_rerank(wire(R"({"query":"q"})")); }).param, "documents");
  EXPECT_EQ(refused([] { read_rerank(wire(R"({"query":"q","texts":["a"],"documents":["a"]})")); }).param,
            "texts");
  EXPECT_FALSE(read_tokenize(wire(R"({"content":"a"})")).add_special);
  EXPECT_TRUE(read_tokenize(wire(R"({"prompt":"a"})")).add_special);
  EXPECT_FALSE(read_tokenize(wire(R"({"prompt":"a","add_special_tokens":false})")).add_special);
  EXPECT_TRUE(read_tokenize(wire(R"({"messages":[{"role":"user","content":"a"}]})")).chat.has_value());
  EXPECT_EQ(refused([] { read_tokenize(wire("{}")); }).status, 400);
  EXPECT_EQ(refused([] { read_tokenize(wire(R"({"prompt":"a","content":"b"})")); }).status, 400);
  EXPECT_EQ(read_detokenize(wire(R"({"tokens":[1,2]})")).ids.size(), 2u);
  EXPECT_EQ(refused([] { read_detokenize(wire(R"({"tokens":[5]})"), {.vocabulary = 5}); }).param,
            "tokens[0]");
  const EmbeddingsRequest e =
      read_embeddings(wire(R"({"input":[[1,2]],"encoding_format":"base64","dimensions":8})"));
  EXPECT_TRUE(e.base64 && e.inputs[0].is_ids);
  EXPECT_EQ(e.dimensions, 8);
  EXPECT_EQ(read_classify(wire(R"({"input":["a","b"]})")).inputs.size(), 2u);
}

// --------------------------------------------------------------------------------------------------- errors
TEST(Protocol, ErrorsSteerRetries) {
  const auto header = [](const http::Reply& reply, std::string_view name) -> std::string {
    for (const http::Header& h : reply.headers)
      if (h.name == name) return h.value;
    return "";
  };
  const http::Reply full = error_reply({429, "queue_full", "busy", "", 0.25});
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(header(full, "Retry-After"), "1");
  EXPECT_EQ(header(full, "retry-after-ms"), "250");
  EXPECT_EQ(header(error_reply({503, "draining", "", "", 1e9}), "Retry-After"), "120");
  EXPECT_EQ(header(error_reply({503, "draining", "", "", 3.2}), "Retry-After"), "4");
  EXPECT_EQ(header(error_reply({400, "x", ""}), "Retry-After"), "");
  EXPECT_EQ(header(error_reply({401, "invalid_api_key", ""}), "WWW-Authenticate"), "Bearer");
  EXPECT_EQ(header(error_reply({500, "", "bug"}), "x-should-retry"), "false");
  EXPECT_EQ(error_body({404, "", "no \"route\"", "p"}),
            R"({"error":{"message":"no \"route\"","type":"not_found_error","param":"p","code":null}})");
  EXPECT_EQ(error_event({400, "c", "m"}),
            "data: {\"error\":{\"message\":\"m\",\"type\":\"invalid_request_error\",\"param\":null,"
            "\"code\":\"c\"}}\n\n");
  EXPECT_EQ(api_error(std::make_exception_ptr(Error("a", Error::Kind::usage))).status, 400);
  EXPECT_EQ(api_error(std::make_exception_ptr(Error("/secret/path"))).status, 500);
  EXPECT_EQ(api_error(std::make_exception_ptr(Error("/secret/path"))).message.find("secret"),
            std::string::npos);
  EXPECT_EQ(api_error(std::make_exception_ptr(Error("roles must alternate")), true).status, 400);
  EXPECT_EQ(api_error(std::make_exception_ptr(std::bad_alloc())).status, 503);
  EXPECT_EQ(api_error(std::make_exception_ptr(ApiError(404, "a", "b"))).status, 404);
  EXPECT_NE(context_error(5000, 100, 4096).message.find("5,100"), std::string::npos);
  EXPECT_EQ(context_error(5000, -1, 4096).code, "context_length_exceeded");
}

// -------------------------------------------------------------------------------------------------- writers
TEST(Protocol, TextsAreAlwaysValidJson) {
  std::mt19937 random(2);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes;
    for (std::size_t n = random() % 12; n > 0; --n)
      bytes += static_cast<char>(random() % 3 ? random() % 128 : random());
    std::string out;
    append_quoted(out, bytes);
    const std::string read = parse_json(out).string();
    if (std::all_of(bytes.begin(), bytes.end(), [](char c) { return static_cast<unsigned char>(c) < 128; }))
      EXPECT_EQ(read, bytes);
  }
  std::string out;
  append_quoted(out, "a\xE4\xBD\xA0\xE4\xBD\n\x01");
  EXPECT_EQ(out, "\"a\xE4\xBD\xA0\xEF\xBF\xBD\xEF\xBF\xBD\\n\\u0001\"");
}

TEST(Protocol, LogprobsPrintTheSameDigits) {
  const auto text = [](float x) {
    std::string out;
    append_logprob(out, x);
    return out;
  };
  EXPECT_EQ(text(-0.2f), "-0.2");
  EXPECT_EQ(text(-3), "-3.0");
  EXPECT_EQ(text(-0.0f), "0.0");
  EXPECT_EQ(text(1e-7f), "0.0");
  EXPECT_EQ(text(-std::numeric_limits<float>::infinity()), "-9999.0");
  EXPECT_EQ(text(std::numeric_limits<float>::quiet_NaN()), "-9999.0");
  std::mt19937 random(3);
  std::uniform_real_distribution<float> values(-30, 0);
  for (int i = 0; i < 5000; ++i) {
    const float a = values(random), b = std::nextafter(a, 0.0f);
    EXPECT_LT(std::stod(text(a)), std::stod(text(b)));  // as doubles, which clients read, in the same order
    EXPECT_EQ(static_cast<float>(std::stod(text(a))), a);
  }
}

TEST(Protocol, TheStreamOfTheSpecification) {
  const WireTokenizer tokenizer({"Hello"});
  const CompletionRequest request = read_chat(wire(
      R"({"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true,
          "stream_options":{"include_usage":true},"logprobs":true,"seed":7})"));
  ChunkWriter writer(request, kWireHead, &tokenizer);
  std::string out;
  const TokenChoice token{.id = 0, .logprob = -0.2f};
  writer.token(out, 0, "Hello", 0, &token);
  writer.finish(out, {.index = 0, .finish = Finish::stop, .finish_detail = "eos", .hash = 0xabcdef},
                {.seed = 7});
  writer.done(out, {.prompt_tokens = 9, .completion_tokens = 1});
  const std::string head =
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"rapt-1",)";
  EXPECT_EQ(
      out,
      head +
          R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null})" +
          "\n\n" + head +
          R"("choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":{"content":[{"token":"Hello","logprob":-0.2,"bytes":[72,101,108,108,111],"top_logprobs":[]}],"refusal":null},"finish_reason":null}],"usage":null})" +
          "\n\n" + head +
          R"("choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null,"rapt":{"seed":7,"hash":"0000000000abcdef","finish":"eos"}})" +
          "\n\n" + head +
          R"("choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":0}}})" +
          "\n\n" + "data: [DONE]\n\n");
}

// An id and a name once, then pieces of the arguments.
TEST(Protocol, CallsAsDeltasAndAsAWhole) {
  CompletionRequest request =
      read_chat(chat_body(R"(,"stream":true,"tools":[{"type":"function","function":{"name":"f"}}])"));
  AnswerForm form{.think_begin = "<think>", .think_end = "</think>", .calls = plain_call_form()};
  request.form = &form;
  const std::string_view pieces[] = {
      "<thi", "nk>a", "</think>\n{\"na", "me\": \"f\", ", "\"arguments\": {\"x\"", ": \"\\\"}\"}}"};
  ChunkWriter writer(request, kWireHead, nullptr);
  std::string out, all;
  for (std::int32_t id = 0; const std::string_view piece : pieces)
    writer.token(out, 0, piece, id++, nullptr), all += piece;
  const ReplyChoice choice{.index = 0, .text = all, .finish = Finish::stop};
  writer.finish(out, choice, {});
  writer.done(out, {});
  const Json message =
      at(parse_json(completion_reply(request, kWireHead, {&choice, 1}, {}, nullptr, nullptr, {})),
         "choices.0.message");
  const std::string id = at(message, "tool_calls.0.id").string();
  const std::string wanted[] = {R"({"role":"assistant","content":""})",
                                R"({"reasoning_content":"a"})",
                                R"({"tool_calls":[{"index":0,"id":")" + id +
                                    R"(","type":"function","function":{"name":"f","arguments":""}}]})",
                                R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]})",
                                R"({"tool_calls":[{"index":0,"function":{"arguments":": \"\\\"}\"}"}}]})",
                                "{}"};
  const std::vector<Json> events = events_of(out);
  ASSERT_EQ(events.size(), std::size(wanted));
  for (std::size_t i = 0; i < events.size(); ++i)
    EXPECT_EQ(at(events[i], "choices.0.delta").dump(0), parse_json(wanted[i]).dump(0));
  EXPECT_EQ(at(events.back(), "choices.0.finish_reason").string(), "tool_calls");
  const std::string call =
      R"({"id":")" + id + R"(","type":"function","function":{"name":"f","arguments":"{\"x\": \"\\\"}\"}"}})";
  EXPECT_EQ(message.dump(0),
            parse_json(concat(R"({"role":"assistant","content":null,"reasoning_content":"a","tool_calls":[)",
                              call, R"(],"refusal":null})"))
                .dump(0));
}

// M1 to M5 of what broke openai-python, as properties of whatever is written.
TEST(Protocol, StreamsHoldNothingThatClientsChokeOn) {
  const WireTokenizer tokenizer({"a", "\xE4\xBD", "\xA0", "b"});
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    CompletionRequest request;
    request.chat = round % 2;
    request.stream = true;
    request.prompts.resize(request.chat ? 0 : 1 + random() % 2);
    request.generate.samples = 1 + static_cast<int>(random() % 3);
    request.generate.logprobs = random() % 2;
    request.include_usage = random() % 2;
    request.continuous_usage = random() % 2;
    request.return_progress = random() % 2;
    request.timings_per_token = random() % 2;
    request.return_token_ids = random() % 2;
    const int choices = request.generate.samples * std::max(1, static_cast<int>(request.prompts.size()));
    ChunkWriter writer(request, kWireHead, &tokenizer);
    std::string out;
    writer.progress(out, 2, 5, 1, 0.1);
    const std::vector<std::int32_t> ids = {0, 3};
    for (int p = 0; p < std::max<int>(1, static_cast<int>(request.prompts.size())); ++p)
      writer.prompt(out, p, "ab", ids, {});
    std::vector<std::string> said(static_cast<std::size_t>(choices));
    std::vector<int> tokens(said.size());
    const GenerateTimes times{
        .prompt_seconds = 1, .decode_seconds = 0.5, .prompt_tokens = 5, .decoded_tokens = 2};
    const Usage usage{.prompt_tokens = 5, .completion_tokens = 1};
    for (int i = 0; i < 20; ++i) {
      const int index = static_cast<int>(random() % static_cast<unsigned>(choices));  // not in order
      const std::string text = random() % 3 ? "\xE4\xBD\xA0" : "";
      const TokenChoice token{.id = static_cast<std::int32_t>(random() % 4), .logprob = -1};
      writer.token(out, index, text, token.id, &token,
                   {&usage, &times, random() % 4 ? "" : "\"look\":{\"sinks\":0.5}"});
      said[static_cast<std::size_t>(index)] += text;
      ++tokens[static_cast<std::size_t>(index)];
    }
    for (int i = 0; i < choices; ++i)
      writer.finish(out, {.index = i, .hash = 1}, {.seed = 1}, {&usage, &times});
    writer.done(out, usage);
    EXPECT_EQ(out.find("\nid:"), std::string::npos);
    EXPECT_EQ(out.find("\nevent:"), std::string::npos);
    EXPECT_EQ(out.find('\r'), std::string::npos);

    std::vector<std::string> heard(said.size());
    std::vector<int> roles(said.size()), ends(said.size()), entries(said.size()), id_count(said.size());
    int next = 0, bare = 0;
    for (const Json& event : events_of(out)) {
      EXPECT_EQ(at(event, "object").string(), request.chat ? "chat.completion.chunk" : "text_completion");
      EXPECT_EQ(at(event, "id").string(), "chatcmpl-1");
      EXPECT_EQ(at(event, "created").integer(), 1);
      EXPECT_EQ(event.find("usage") != nullptr,
                request.include_usage || (request.continuous_usage && event.find("usage")));
      const Json::Array& list = at(event, "choices").array();
      EXPECT_LE(list.size(), 1u);
      if (list.empty()) {
        ++bare;
        continue;
      }
      const Json& choice = list[0];
      const auto index = static_cast<std::size_t>(at(choice, "index").integer());
      ASSERT_LT(index, said.size());
      if (const Json* text = choice.find("text")) heard[index] += text->string();
      if (const Json* delta = choice.find("delta")) {
        for (const Json::Member& m : delta->object())
          EXPECT_TRUE(m.value.is_string()) << m.key;  // no numbers
        if (const Json* content = delta->find("content")) heard[index] += content->string();
        if (delta->find("role")) {
          EXPECT_EQ(static_cast<int>(index), next++) << "roles come in order, before everything";
          ++roles[index];
        } else {
          EXPECT_EQ(next, choices);
        }
      }
      if (const Json* logprobs = choice.find("logprobs"); logprobs && logprobs->is_object())
        entries[index] += static_cast<int>(at(*logprobs, request.chat ? "content" : "tokens").array().size());
      if (const Json* list_of = choice.find("token_ids"))
        id_count[index] += static_cast<int>(list_of->array().size());
      const Json& reason = at(choice, "finish_reason");
      EXPECT_EQ(ends[index], 0);
      if (!reason.is_null()) ++ends[index];
    }
    EXPECT_EQ(heard, said);
    for (std::size_t i = 0; i < said.size(); ++i) {
      EXPECT_EQ(roles[i], request.chat ? 1 : 0);
      EXPECT_EQ(ends[i], 1);
      EXPECT_EQ(entries[i], request.generate.logprobs ? tokens[i] : 0);
      EXPECT_EQ(id_count[i], request.return_token_ids ? tokens[i] : 0);
    }
    EXPECT_GE(bare, request.return_progress + request.include_usage);
  }
}

TEST(Protocol, EntriesWaitForTheirCharacter) {
  const WireTokenizer tokenizer({"\xE4\xBD", "\xA0"});
  CompletionRequest request;
  request.generate.logprobs = true;
  ChunkWriter writer(request, kWireHead, &tokenizer);
  std::string first, second;
  const TokenChoice a{.id = 0, .logprob = -1}, b{.id = 1, .logprob = -2};
  writer.token(first, 0, "", 0, &a);
  EXPECT_EQ(events_of(first).size(), 1u);  // the role alone
  writer.token(second, 0, "\xE4\xBD\xA0", 1, &b);
  const std::vector<Json> events = events_of(second);
  ASSERT_EQ(events.size(), 1u);
  const Json::Array& content = at(events[0], "choices.0.logprobs.content").array();
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0],
            parse_json("{\"token\":\"\xEF\xBF\xBD\xEF\xBF\xBD\",\"logprob\":-1.0,\"bytes\":[228,189],"
                       "\"top_logprobs\":[]}"));
}

// lm-eval 0.4.13: greedy where token_logprobs[i] == max(top_logprobs[i].values()), on what it reads.
TEST(Protocol, EchoIsWhatLmEvalReads) {
  const WireTokenizer tokenizer({"<s>", " The", " sky", "\xE4\xBD", "\xA0", "\xE4\xBE", " is", "!"}, {0});
  const CompletionRequest request = read_completion(wire(
      R"({"model":"m","prompt":[[0,1,2,3,4,6]],"temperature":0,"max_tokens":1,"logprobs":1,"seed":1234,"echo":true})"));
  EXPECT_EQ(request.prompt_logprobs, 1);
  std::mt19937 random(5);
  std::uniform_real_distribution<float> values(-9, 0);
  const std::vector<std::int32_t> ids = {0, 1, 2, 3, 4, 6};
  std::vector<bool> greedy;
  const auto choose = [&](std::int32_t id, bool best) {
    const float own = values(random);
    greedy.push_back(best);
    // the best one reads the same as the token: both begin a character, in different ways
    const std::int32_t other = id == 3 ? 5 : (id + 1) % 8;
    return TokenChoice{.id = id,
                       .logprob = own,
                       .top = {best ? std::pair{id, own} : std::pair{other, std::nextafter(own, 1.0f)}}};
  };
  std::vector<TokenChoice> prompt;
  for (std::size_t i = 1; i < ids.size(); ++i) prompt.push_back(choose(ids[i], i % 2 == 0));
  const std::vector<TokenChoice> answer = {choose(7, true)};
  const ReplyChoice choice{.index = 0,
                           .text = "!",
                           .finish = Finish::length,
                           .tokens = answer,
                           .prompt_text = " The sky\xE4\xBD\xA0 is",
                           .prompt_ids = ids,
                           .prompt = prompt};
  const std::string text =
      completion_reply(request, kWireHead, {&choice, 1}, {.prompt_tokens = 6, .completion_tokens = 1},
                       &tokenizer, nullptr, {});
  const Json reply = parse_json(text);
  EXPECT_EQ(at(reply, "object").string(), "text_completion");
  EXPECT_EQ(at(reply, "choices.0.text").string(), " The sky\xE4\xBD\xA0 is!");
  const Json& logprobs = at(reply, "choices.0.logprobs");
  const Json::Array &own = at(logprobs, "token_logprobs").array(),
                    &tops = at(logprobs, "top_logprobs").array();
  ASSERT_EQ(own.size(), 7u);
  ASSERT_EQ(tops.size(), 7u);
  EXPECT_TRUE(own[0].is_null() && tops[0].is_null());
  for (std::size_t i = 1; i < own.size(); ++i) {
    double best = -1e9;
    for (const Json::Member& m : tops[i].object()) best = std::max(best, m.value.number());
    EXPECT_EQ(own[i].number() == best, greedy[i - 1]) << i;
    // the same digits, as text
    if (greedy[i - 1]) EXPECT_EQ(tops[i].object()[0].value.dump(0), own[i].dump(0));
  }
  EXPECT_EQ(at(logprobs, "tokens"),
            parse_json("[\"<s>\",\" The\",\" sky\",\"\xEF\xBF\xBD\xEF\xBF\xBD\",\"\xEF\xBF\xBD\","
                       "\" is\",\"!\"]"));
  // <s> is not in the text; the second half of a character stands where the character does.
  EXPECT_EQ(at(logprobs, "text_offset"), parse_json("[0,0,4,8,8,9,12]"));

  // The same as a stream: prompt first, offsets go on.
  ChunkWriter writer(request, kWireHead, &tokenizer);
  std::string out;
  writer.prompt(out, 0, choice.prompt_text, ids, prompt);
  writer.token(out, 0, "!", 7, &answer[0]);
  writer.finish(out, choice, {});
  writer.done(out, {});
  std::string streamed;
  Json::Array offsets, values_read;
  for (const Json& event : events_of(out)) {
    streamed += at(event, "choices.0.text").string();
    if (at(event, "choices.0.logprobs").is_null()) continue;
    for (const Json& x : at(event, "choices.0.logprobs.text_offset").array()) offsets.push_back(x);
    for (const Json& x : at(event, "choices.0.logprobs.token_logprobs").array()) values_read.push_back(x);
  }
  EXPECT_EQ(streamed, at(reply, "choices.0.text").string());
  EXPECT_EQ(Json(offsets), at(logprobs, "text_offset"));
  EXPECT_EQ(Json(values_read), at(logprobs, "token_logprobs"));
}

TEST(Protocol, TheFirstSpaceOfSentencePieceIsNotInTheText) {
  WireTokenizer tokenizer({" The", " sky"});
  tokenizer.strips = true;
  TextLogprobs lists{.first = true};
  lists.add(&tokenizer, 0, nullptr, 0);
  lists.add(&tokenizer, 1, nullptr, 0);
  EXPECT_EQ(lists.offsets, "0,3");
}

TEST(Protocol, AWholeChatReply) {
  const WireTokenizer tokenizer({"Hello", "Hi"});
  CompletionRequest request =
      read_chat(chat_body(R"(,"logprobs":true,"top_logprobs":2,"return_token_ids":true)"));
  const std::vector<std::int32_t> ids = {0}, prompt_ids = {1};
  const std::vector<TokenChoice> tokens = {
      {.id = 0, .logprob = -0.5f, .top = {{0, -0.5f}, {1, -std::numeric_limits<float>::infinity()}}}};
  const ReplyChoice choice{.index = 0,
                           .text = "Hello",
                           .finish_detail = "eos",
                           .hash = 1,
                           .ids = ids,
                           .tokens = tokens,
                           .prompt_ids = prompt_ids};
  const GenerateTimes times{.prompt_seconds = 0.5,
                            .decode_seconds = 0.25,
                            .prompt_tokens = 10,
                            .reused_tokens = 3,
                            .decoded_tokens = 5,
                            .guessed_tokens = 4,
                            .right_guesses = 2};
  const Json reply = parse_json(completion_reply(
      request, kWireHead, {&choice, 1}, {.prompt_tokens = 9, .completion_tokens = 1, .cached_tokens = 3},
      &tokenizer, &times,
      {.seed = 7, .sampling = &request.generate.sampler, .paused = 1, .reused = 3, .more = "\"look\":1"}));
  EXPECT_EQ(reply, parse_json(R"({"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m",
    "system_fingerprint":"rapt-1","prompt_token_ids":[1],"choices":[{"index":0,"message":{"role":"assistant",
    "content":"Hello","refusal":null},"logprobs":{"content":[{"token":"Hello","logprob":-0.5,
    "bytes":[72,101,108,108,111],"top_logprobs":[{"token":"Hello","logprob":-0.5,"bytes":[72,101,108,108,111]},
    {"token":"Hi","logprob":-9999.0,"bytes":[72,105]}]}],"refusal":null},"finish_reason":"stop","token_ids":[0]}],
    "usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":3}},
    "timings":{"cache_n":3,"prompt_n":10,"prompt_ms":500,"prompt_per_token_ms":50,"prompt_per_second":20,
    "predicted_n":5,"predicted_ms":250,"predicted_per_token_ms":50,"predicted_per_second":20,
    "draft_n":4,"draft_n_accepted":2},
    "rapt":{"seed":7,"hash":"0000000000000001","finish":"eos",
    "sampling":{"temperature":1,"top_p":1,"top_k":0,"min_p":0},"paused":1,"reused":3,"look":1}})"));
}

TEST(Protocol, SeveralChoicesAndPromptLogprobs) {
  const WireTokenizer tokenizer({"a", "b"});
  const CompletionRequest request = read_completion(wire(R"({"prompt":["a","b"],"prompt_logprobs":1})"));
  const std::vector<TokenChoice> prompt = {{.id = 1, .logprob = -2, .top = {{0, -1.0f}}}};
  const std::vector<ReplyChoice> choices = {{.index = 0, .text = "x", .hash = 1, .prompt = prompt},
                                            {.index = 1, .text = "y", .finish = Finish::length, .hash = 2}};
  const Json reply =
      parse_json(completion_reply(request, kWireHead, choices, {}, &tokenizer, nullptr, {.seed = 1}));
  EXPECT_EQ(at(reply, "rapt"), parse_json(R"({"seed":1,"choices":[{"index":0,"hash":"0000000000000001",
    "finish":"stop"},{"index":1,"hash":"0000000000000002","finish":"length"}]})"));
  EXPECT_EQ(at(reply, "choices.0.prompt_logprobs"),
            parse_json(R"([null,{"0":{"logprob":-1.0,"rank":1,"decoded_token":"a"},
                                 "1":{"logprob":-2.0,"rank":null,"decoded_token":"b"}}])"));
  EXPECT_TRUE(at(reply, "choices.1.logprobs").is_null());
}

TEST(Protocol, ListsOfResults) {
  const std::vector<std::vector<float>> vectors = {{1.0f, -0.1f}, {}};
  EXPECT_EQ(embeddings_reply("m", vectors, false, 3),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,-0.1]},)"
            R"({"object":"embedding","index":1,"embedding":[]}],"model":"m",)"
            R"("usage":{"prompt_tokens":3,"total_tokens":3}})");
  const std::vector<std::vector<float>> one = {{1.0f}};
  EXPECT_EQ(at(parse_json(embeddings_reply("m", one, true, 3)), "data.0.embedding").string(), "AACAPw==");
  const std::vector<std::vector<float>> two = {{1.0f, -2.0f}, {1.0f, 1.0f, 1.0f}};
  EXPECT_EQ(at(parse_json(embeddings_reply("m", two, true, 3)), "data.0.embedding").string(), "AACAPwAAAMA=");
  EXPECT_EQ(at(parse_json(embeddings_reply("m", two, true, 3)), "data.1.embedding").string(),
            "AACAPwAAgD8AAIA/");
  RerankRequest request{.documents = {"a", "b", "c"}, .top_n = 2, .return_documents = true};
  EXPECT_EQ(
      rerank_reply(request, "m", {{0, 0.5}, {1, 0.75}, {2, 0.5}}, 4),
      R"({"model":"m","object":"list","results":[{"index":1,"relevance_score":0.75,"document":{"text":"b"}},)"
      R"({"index":0,"relevance_score":0.5,"document":{"text":"a"}}],)"
      R"("usage":{"prompt_tokens":4,"total_tokens":4}})");
  request.tei = true;
  EXPECT_EQ(rerank_reply(request, "m", {{0, 0.5}}, 4), R"([{"index":0,"score":0.5,"text":"a"}])");
  const std::vector<ModelCard> cards = {{.id = "a/b", .context = 8}};
  const Json models = parse_json(models_reply(cards));
  EXPECT_EQ(at(models, "data.0.root").string(), "a/b");
  EXPECT_EQ(at(models, "data.0.max_model_len").integer(), 8);
  EXPECT_EQ(at(models, "data.0.meta.n_ctx").integer(), 8);
  EXPECT_EQ(model_reply(cards[0]).find("cache_type"), std::string::npos);
  EXPECT_EQ(model_reply(cards[0]).find("n_layer"), std::string::npos);
  const Json packed =
      parse_json(model_reply({.id = "b", .root = "a", .layers = 2, .heads = 4, .cache_type = "q8_0"}));
  EXPECT_EQ(at(packed, "meta.n_layer").integer(), 2);
  EXPECT_EQ(at(packed, "meta.n_head").integer(), 4);
  EXPECT_EQ(at(packed, "root").string(), "a");
  EXPECT_EQ(at(packed, "meta.cache_type").string(), "q8_0");
  const std::vector<ClassScores> classes = {{"good", {"bad", "good"}, {0.25f, 0.75f}}};
  EXPECT_EQ(at(parse_json(classify_reply("m", classes, 2)), "data.0"),
            parse_json(
                R"({"index":0,"label":"good","probs":[0.25,0.75],"labels":["bad","good"],"num_classes":2})"));
  const WireTokenizer tokenizer({"a", "\xE4"});
  const std::vector<std::int32_t> ids = {0, 1};
  EXPECT_EQ(tokenize_reply({.with_pieces = true}, ids, tokenizer, 9),
            R"({"tokens":[{"id":0,"piece":"a"},{"id":1,"piece":[228]}],"count":2,"max_model_len":9})");
  EXPECT_EQ(tokenize_reply({.return_token_strs = true}, ids, tokenizer, 9),
            "{\"tokens\":[0,1],\"count\":2,\"max_model_len\":9,\"token_strs\":[\"a\",\"\xEF\xBF\xBD\"]}");
  EXPECT_EQ(detokenize_reply("a"), R"({"content":"a","prompt":"a"})");
  EXPECT_EQ(template_reply("a"), R"({"prompt":"a"})");
  EXPECT_EQ(input_tokens_reply(3), R"({"input_tokens":3,"object":"response.input_tokens"})");
  EXPECT_EQ(sse("{}"), "data: {}\n\n");
}

// ------------------------------------------------------------------------------------------------- document
TEST(Protocol, TheDocumentNamesEveryRouteAndField) {
  const Json doc = parse_json(openapi_json(protocol_routes(), "0.2.0"));
  EXPECT_EQ(at(doc, "openapi").string(), "3.1.0");
  std::set<std::string> names;
  for (const Route& route : protocol_routes()) {
    const Json* path = doc.find("paths")->find(route.path);
    ASSERT_TRUE(path) << route.path;
    const Json* operation = path->find(route.method == "GET"      ? "get"
                                       : route.method == "DELETE" ? "delete"
                                                                  : "post");
    ASSERT_TRUE(operation);
    EXPECT_TRUE(names.insert(at(*operation, "operationId").string()).second);
    EXPECT_EQ(operation->find("requestBody") != nullptr, !route.request.empty());
    EXPECT_EQ(operation->find("security") != nullptr, route.open);
  }
  for (const FieldTable& table : field_tables()) {
    const Json* schema = at(doc, "components.schemas").find(table.name);
    ASSERT_TRUE(schema) << table.name;
    for (const FieldRule& rule : table.rules) EXPECT_TRUE(schema->find("properties")->find(rule.name));
  }
  const std::function<void(const Json&)> follow = [&](const Json& j) {  // every reference leads somewhere
    if (j.is_array())
      for (const Json& x : j.array()) follow(x);
    if (!j.is_object()) return;
    for (const Json::Member& m : j.object()) {
      if (m.key == "$ref")
        EXPECT_TRUE(at(doc, "components.schemas").find(m.value.string().substr(21))) << m.value.string();
      follow(m.value);
    }
  };
  follow(doc);
  EXPECT_EQ(at(doc, "components.schemas.chat.properties.temperature"),
            parse_json(R"({"type":["number","null"],"minimum":0,"maximum":2,
                           "description":"0: the most probable token."})"));
  EXPECT_EQ(at(doc, "components.schemas.chat.required"), parse_json(R"(["messages"])"));
}

}  // namespace
}  // namespace rapt::server::protocol_test
