// SPDX-License-Identifier: Apache-2.0
// Bodies of other vendors as chats, and how parts of an answer look in their APIs.
#include "rapt/apps/server/protocol_vendors.h"

#include <gtest/gtest.h>

#include "rapt/apps/server/protocol_fields.h"

namespace rapt::server {
namespace {

Json vendor_body(std::string_view text) { return read_body(text); }

std::string refusal_of(CompletionRequest (*reader)(const Json&, const ReadOptions&), std::string_view text) {
  try {
    reader(vendor_body(text), {});
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status, 400);
    return e.param;
  }
  return "taken";
}

// One conversation, with thoughts, a call and its result, in the words of three vendors.
TEST(Vendors, OneConversationInThreeForms) {
  const CompletionRequest messages = read_messages(vendor_body(R"({"system":[{"type":"text","text":"Be."}],
    "messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
        {"type":"text","text":"c"},{"type":"tool_use","id":"c1","name":"f","input":{"x":1}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"5"},
        {"type":"text","text":"d"}]}]})"),
                                                   {});
  const std::string wanted =
      R"([{"role": "system", "content": "Be."}, {"role": "user", "content": "a\nb"}, )"
      R"({"role": "assistant", "content": "c", "reasoning_content": "t", "tool_calls": )"
      R"([{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]}, )"
      R"({"role": "tool", "content": "5", "name": "f", "tool_call_id": "c1"}, {"role": "user", "content": "d"}])";
  EXPECT_EQ(messages.messages, parse_json(wanted)) << messages.messages.dump(0);
  EXPECT_FALSE(messages.continue_final);

  const CompletionRequest responses = read_responses(vendor_body(R"({"instructions":"Be.","input":[
      {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"t"}]},
      {"role":"assistant","content":[{"type":"output_text","text":"c"}]},
      {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"},
      {"type":"function_call_output","call_id":"c1","output":"5"},{"role":"user","content":"d"}]})"),
                                                     {});
  Json without_name = parse_json(wanted);
  {
    Json::Array list = without_name.array();
    list[3] = parse_json(R"({"role": "tool", "content": "5", "tool_call_id": "c1"})");
    without_name = Json(list);
  }
  EXPECT_EQ(responses.messages, without_name) << responses.messages.dump(0);

  const CompletionRequest ollama = read_ollama_chat(vendor_body(R"({"model":"m","messages":[
      {"role":"system","content":"Be."},{"role":"user","content":"a\nb"},
      {"role":"assistant","content":"c","thinking":"t","tool_calls":[{"id":"c1","function":
        {"name":"f","arguments":{"x":1}}}]},
      {"role":"tool","content":"5","tool_name":"f","tool_call_id":"c1"},{"role":"user","content":"d"}],
      "options":{"num_predict":-2,"seed":-1}})"),
                                                    {});
  EXPECT_EQ(ollama.messages, parse_json(wanted)) << ollama.messages.dump(0);
  EXPECT_TRUE(ollama.stream);
  EXPECT_FALSE(ollama.seeded);
  EXPECT_EQ(ollama.generate.max_tokens, -1);
}

TEST(Vendors, AMessageThatWasBegunIsGoneOnWith) {
  const CompletionRequest q = read_messages(
      vendor_body(
          R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"max_tokens":3,
          "stop_sequences":["x"],"thinking":{"type":"enabled","budget_tokens":9},"top_k":0,"seed":4})"),
      {});
  EXPECT_TRUE(q.continue_final);
  EXPECT_FALSE(q.add_generation_prompt);
  EXPECT_EQ(q.generate.stops, std::vector<std::string>{"x"});
  EXPECT_EQ(q.generate.sampler.seed, 4u);
  EXPECT_EQ(q.variables, parse_json(R"({"enable_thinking": true})"));
}

TEST(Vendors, ToolsOfEachAreTheSame) {
  const CompletionRequest a = read_messages(
      vendor_body(R"({"messages":[{"role":"user","content":"a"}],"tools":[{"name":"f","description":"d",
        "input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f",
        "disable_parallel_tool_use":true}})"),
      {});
  const CompletionRequest b =
      read_responses(vendor_body(R"({"input":"a","tools":[{"type":"function","name":"f","description":"d",
        "parameters":{"type":"object"},"strict":null}],"tool_choice":{"type":"function","name":"f"},
        "parallel_tool_calls":false})"),
                     {});
  for (const CompletionRequest* q : {&a, &b}) {
    EXPECT_EQ(q->tools.for_template(), b.tools.for_template());
    EXPECT_EQ(q->tools.allowed, std::vector<std::string>{"f"});
    EXPECT_FALSE(q->tools.parallel);
  }
  EXPECT_EQ(a.tools.functions[0].path, "tools[0].input_schema");
  EXPECT_EQ(b.tools.functions[0].path, "tools[0].parameters");
  EXPECT_EQ(b.told.find("tools")->array().size(), 1u);
}

TEST(Vendors, RefusalsNameWhatWasSent) {
  const auto messages = [](std::string_view rest) {
    return refusal_of(read_messages, concat(R"({"messages":[{"role":"user","content":"a"}],)", rest, "}"));
  };
  EXPECT_EQ(messages(R"("tools":[{"name":"a b"}])"), "tools[0].name");
  EXPECT_EQ(messages(R"("tool_choice":{"type":"any"})"), "tool_choice");
  EXPECT_EQ(messages(R"("max_tokens":-1)"), "max_tokens");
  EXPECT_EQ(messages(R"("max_tokens":null,"nosuch":1)"), "taken");
  EXPECT_EQ(refusal_of(read_responses, R"({"input":"a","previous_response_id":"x"})"),
            "previous_response_id");
  EXPECT_EQ(refusal_of(read_responses, R"({"input":"a","previous_response_id":null})"), "taken");
  EXPECT_EQ(refusal_of(read_responses, R"({"input":"a","text":{"format":{"type":"x"}}})"),
            "text.format.type");
  EXPECT_EQ(refusal_of(read_ollama_chat, R"({"model":"m","messages":[{"role":"user","content":"a"}],
    "options":{"top_p":2}})"),
            "options.top_p");
  // Blocks become messages: not more of them than messages may be.
  std::string blocks;
  for (int i = 0; i < 1000; ++i)
    blocks += concat(i > 0 ? "," : "", R"({"type":"tool_result","tool_use_id":"a"})");
  std::string list;
  for (int i = 0; i < 5; ++i) list += concat(i > 0 ? "," : "", R"({"role":"user","content":[)", blocks, "]}");
  EXPECT_EQ(refusal_of(read_messages, concat("{\"messages\":[", list, "]}")), "messages");
}

TEST(Vendors, StampsAreBlanked) {
  EXPECT_EQ(without_stamp("x-anthropic-billing-header: a=1; cch=1f3;\nBe."),
            "x-anthropic-billing-header: a=1; cch=;\nBe.");
  EXPECT_EQ(without_stamp("x-anthropic-billing-header: cch=1f3"), "x-anthropic-billing-header: cch=");
  EXPECT_EQ(without_stamp("x-anthropic-billing-header: a\ncch=1;"), "x-anthropic-billing-header: a\ncch=1;");
  EXPECT_EQ(without_stamp("Be. cch=1;"), "Be. cch=1;");
  EXPECT_EQ(without_stamp(""), "");
}

TEST(Vendors, ErrorsHaveTheirShapes) {
  const ApiError error(429, "queue_full", "no \"room\"", "", 2);
  EXPECT_EQ(
      error_body(error, vendor_of("/v1/messages"), "r1"),
      R"({"type":"error","error":{"type":"rate_limit_error","message":"no \"room\""},"request_id":"r1"})");
  EXPECT_EQ(error_body(error, vendor_of("/api/x"), "r1"), R"({"error":"no \"room\""})");
  EXPECT_EQ(error_body(error, vendor_of("/v1/responses"), "r1"), error_body(error));
  EXPECT_EQ(vendor_of("/messages/count_tokens"), Vendor::anthropic);
  EXPECT_EQ(vendor_of("/messagesx"), Vendor::openai);
  EXPECT_EQ(vendor_of("/apix"), Vendor::openai);
}

TEST(Vendors, SmallThings) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(rfc3339(1795101184), "2026-11-19T15:13:04Z");
  EXPECT_EQ(ollama_parameter_size(134'515'008), "134.52M");
  EXPECT_EQ(ollama_parameter_size(1'543'714'304), "1.5B");
  EXPECT_EQ(ollama_load_reply(Form::ollama_chat, vendor_body(R"({"messages":[{"role":"user"}]})"), "m", 0),
            "");
  EXPECT_NE(ollama_load_reply(Form::ollama_generate, vendor_body(R"({"prompt":""})"), "m", 0), "");
  EXPECT_EQ(ollama_load_reply(Form::ollama_generate, vendor_body(R"({"prompt":5})"), "m", 0), "");
}

// A reply whose texts are cut anywhere: streams hold the same as the whole, and each line of them is JSON.
TEST(Vendors, StreamsOfEveryFormSayTheSameText) {
  CompletionRequest request =
      read_messages(vendor_body(R"({"messages":[{"role":"user","content":"a"}],"stream":true})"), {});
  const ReplyHead head{.id = "resp_1", .created = 1, .model = "m", .fingerprint = "f"};
  for (const Form form : {Form::responses, Form::messages, Form::ollama_chat, Form::ollama_generate}) {
    const std::unique_ptr<AnswerWriter> writer = dialect(form).writer(request, head, nullptr);
    std::string out;
    const Usage usage{.prompt_tokens = 5, .completion_tokens = 2, .cached_tokens = 1};
    writer->token(out, 0, "", 1, nullptr, {.usage = &usage});
    for (const char* text : {"say \"", "", "\n你", "好\xff"})
      writer->token(out, 0, text, 1, nullptr, {.usage = &usage});
    writer->finish(out, {.finish = Finish::stop, .stop = "x"}, {.seed = 1}, {});
    writer->done(out, usage, nullptr);
    std::string said;
    std::size_t events = 0;
    const bool lines = form == Form::ollama_chat || form == Form::ollama_generate;
    for (std::string_view rest = out; !rest.empty();) {
      const std::size_t end = rest.find(lines ? "\n" : "\n\n");
      ASSERT_NE(end, std::string_view::npos) << out;
      std::string_view one = rest.substr(0, end);
      rest.remove_prefix(end + (lines ? 1 : 2));
      if (!lines) {
        ASSERT_TRUE(one.starts_with("event: ")) << one;
        one.remove_prefix(one.find("\ndata: ") + 7);
      }
      const Json json = parse_json(one);
      ++events;
      const Json* delta = json.find("delta");
      if (form == Form::responses && delta) said += std::string(delta->string());
      if (form == Form::messages && delta && delta->find("text"))
        said += std::string(delta->find("text")->string());
      if (form == Form::ollama_chat) said += std::string(json.find("message")->find("content")->string());
      if (form == Form::ollama_generate) said += std::string(json.find("response")->string());
    }
    EXPECT_EQ(said, "say \"\n你好\xEF\xBF\xBD");
    EXPECT_GE(events, 4u);
    EXPECT_EQ(writer->content_type() == "application/x-ndjson", lines);
    const std::string ping = writer->ping();
    EXPECT_TRUE(lines ? parse_json(ping).find("done") != nullptr : ping == ":\n\n");
  }
}

}  // namespace
}  // namespace rapt::server
