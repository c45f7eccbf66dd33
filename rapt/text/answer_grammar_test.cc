// SPDX-License-Identifier: Apache-2.0
// Answers that a form and a request allow, and answers that they do not, character by character.
#include "rapt/text/answer_grammar.h"

#include <gtest/gtest.h>

#include "rapt/text/grammar/constraint.h"
#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {
namespace {

// Token 0 … 255: a byte. Then </s> and [CALLS], which no text spells, and a piece of text.
class ByteAndMarkTokenizer : public Tokenizer {
 public:
  ByteAndMarkTokenizer() {
    eos = 256;
    stops = {256};
    for (int i = 0; i < 256; ++i)
      texts_.emplace_back(1, static_cast<char>(i)), roles_.push_back(Role::normal);
    for (const char* mark : {"</s>", "[CALLS]"}) texts_.emplace_back(mark), roles_.push_back(Role::control);
    texts_.emplace_back(">\n{\"name"), roles_.push_back(Role::normal);
  }
  using Tokenizer::encode;
  std::vector<std::int32_t> encode(std::span<const TextPiece>) const override { return {}; }
  std::string bytes_of(std::int32_t id) const override { return texts_[static_cast<std::size_t>(id)]; }
  std::string decode(std::span<const std::int32_t> ids, bool) const override {
    std::string out;
    for (const std::int32_t id : ids) out += bytes_of(id);
    return out;
  }
  const std::string& text_of(std::int32_t id) const override { return texts_[static_cast<std::size_t>(id)]; }
  std::optional<std::int32_t> id_of(std::string_view) const override { return {}; }

 private:
  std::vector<std::string> texts_;
};

AnswerRules rules_with(std::initializer_list<const char*> names, bool required = false) {
  AnswerRules rules{.required = required};
  for (const char* name : names)
    rules.functions.push_back({name, parse_json(R"({"type":"object","properties":{"a":{"type":"boolean"}},
        "required":["a"],"additionalProperties":false})"),
                               "tools"});
  return rules;
}

struct Allowed {
  const AnswerForm& form;
  AnswerRules rules;
  // Whether it may be said, and end there; marks in it are one token.
  bool operator()(std::string_view answer) const {
    static const ByteAndMarkTokenizer tokenizer;
    const auto constraint = make_constraint(
        make_token_grammar(answer_grammar(form, rules, tokenizer), make_token_trie(tokenizer)), {256});
    for (std::size_t at = 0; at < answer.size();) {
      const bool mark = answer.substr(at).starts_with("[CALLS]");
      const std::int32_t id = mark ? 257 : static_cast<unsigned char>(answer[at]);
      if (!constraint->allows(id)) return false;
      constraint->accept(id);
      at += mark ? 7 : 1;
    }
    return constraint->allows(256);
  }
};

const CallForm kTags{.begin = "<tool_call>\n{\"name\": \"",
                     .middle = "\", \"arguments\": ",
                     .between = "}\n</tool_call>\n<tool_call>\n{\"name\": \"",
                     .end = "}\n</tool_call>",
                     .trigger = "<tool_call>",
                     .anywhere = true};
const std::string kOne = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": true}}\n</tool_call>";

TEST(AnswerGrammar, TextOrCallsWithTags) {
  const AnswerForm form{.calls = kTags};
  const Allowed automatic{form, rules_with({"f", "g"})};
  for (const std::string& good : {std::string("any text"), std::string(), kOne, "text\n" + kOne,
                                  kOne + "\n" + kOne, std::string("a <tool_cal b")})
    EXPECT_TRUE(automatic(good)) << good;
  for (const std::string& bad :
       {kOne + " and text", kOne.substr(0, 30), std::string("<tool_call>"), std::string("<tool_call> {"),
        std::string("<tool_call>\n{\"name\": \"h\", \"arguments\": {}}"),
        kOne.substr(0, kOne.find("true")) + "1}}\n</tool_call>", std::string("a[CALLS]b")})
    EXPECT_FALSE(automatic(bad)) << bad;
  const Allowed required{form, rules_with({"f"}, true)};
  EXPECT_TRUE(required(kOne) && required(kOne + "\n" + kOne));
  EXPECT_FALSE(required("text") || required("") || required("text" + kOne));
  AnswerRules single = rules_with({"f"}, true);
  single.parallel = false;
  EXPECT_TRUE((Allowed{form, single})(kOne));
  EXPECT_FALSE((Allowed{form, single})(kOne + "\n" + kOne));
}

// Whatever the schema of its parameters leaves open: arguments that are no object end no call.
TEST(AnswerGrammar, ArgumentsAreObjects) {
  const AnswerForm form{.calls = kTags};
  AnswerRules rules = rules_with({"f"}, true);
  const auto call = [](std::string_view arguments) {
    return concat("<tool_call>\n{\"name\": \"f\", \"arguments\": ", arguments, "}\n</tool_call>");
  };
  struct {
    const char* schema;
    std::vector<const char*> good, bad;
  } const cases[] = {
      {"{}", {"{}", "{\"a\": 5}"}, {"5", "\"a\"", "[]", "null", "[{}]"}},
      {R"({"properties":{"a":{"type":"integer"}}})", {"{\"a\": 5}"}, {"{\"a\": true}", "true"}},
      {R"({"type":["object","null"]})", {"{\"b\": null}"}, {"null"}},
      {R"({"enum":[1,{"x":2},"y"]})", {"{\"x\": 2}"}, {"1", "\"y\""}},
      // Inside of itself it may be what it says.
      {R"({"type":["object","integer"],"additionalProperties":{"$ref":"#"}})",
       {"{\"a\": {\"b\": 3}}"},
       {"3"}},
      {R"({"anyOf":[{"type":"string"},{"$ref":"#/$defs/o"}],"$defs":{"o":{"type":"object",
          "required":["k"],"properties":{"k":{"type":"null"}},"additionalProperties":false}}})",
       {"{\"k\": null}"},
       {"\"k\"", "{}"}}};
  for (const auto& c : cases) {
    rules.functions[0].parameters = parse_json(c.schema);
    const Allowed may{form, rules};
    for (const char* good : c.good) EXPECT_TRUE(may(call(good))) << c.schema << good;
    for (const char* bad : c.bad) EXPECT_FALSE(may(call(bad))) << c.schema << bad;
  }
  for (const char* none : {R"({"type":"string"})", R"({"enum":[1]})", R"({"type":"object","minProperties":2,
                           "maxProperties":1})"}) {
    rules.functions[0].parameters = parse_json(none);
    EXPECT_THROW(answer_grammar(form, rules, ByteAndMarkTokenizer()), GrammarError) << none;
  }
}

TEST(AnswerGrammar, MarksThatAreTokens) {
  AnswerForm form{.calls = {.begin = "[CALLS][{\"name\": \"",
                            .middle = "\", \"arguments\": ",
                            .end = std::string(", \"id\": \"") + CallForm::kId + "\"}]",
                            .trigger = "[CALLS]",
                            .anywhere = true,
                            .id_length = 9}};
  const Allowed automatic{form, rules_with({"f"})};
  const std::string call = "[CALLS][{\"name\": \"f\", \"arguments\": {\"a\": false}, \"id\": \"abcdefgh1\"}]";
  EXPECT_TRUE(automatic(call) && automatic("text" + call) && automatic("text"));
  EXPECT_FALSE(automatic("[CALLS]") || automatic(call + "more") || automatic("a[CALLS]b"));
  EXPECT_FALSE(automatic("[CALLS][{\"name\": \"f\", \"arguments\": {\"a\": false}, \"id\": \"short\"}]"));
  EXPECT_EQ(form_ids(form, ByteAndMarkTokenizer()), std::vector<std::int32_t>{257});
}

TEST(AnswerGrammar, ACallThatIsTheWholeAnswer) {
  const AnswerForm form{.calls = plain_call_form()};
  const Allowed automatic{form, rules_with({"f"})};
  const std::string call = "{\"name\": \"f\", \"arguments\": {\"a\": true}}";
  for (const std::string& good : {call, std::string("text"), std::string(), std::string("{\"title\": 1}"),
                                  " " + call, std::string("{\"nam"), std::string("{\"name\": 1")})
    EXPECT_TRUE(automatic(good)) << good;
  for (const std::string& bad : {std::string("{\"name\": \""), call + " ", std::string("{\"name\": \"x\"")})
    EXPECT_FALSE(automatic(bad)) << bad;
}

TEST(AnswerGrammar, ThoughtsAreFreeAndTheRestIsNot) {
  const AnswerForm form{.think_begin = "<think>", .think_end = "</think>", .calls = kTags};
  AnswerRules rules;
  rules.text = AnswerRules::Text::schema;
  rules.schema = parse_json(R"({"type":"boolean"})");
  const Allowed may{form, rules};
  EXPECT_TRUE(may("true") && may("<think>a { b</think>\n\nfalse") && may("<think></think>true"));
  EXPECT_FALSE(may("<think>a</think>") || may("<think>a") || may("x") || may("<think>a</think>x"));
  rules.thought = PromptThought::ended;
  EXPECT_TRUE((Allowed{form, rules})("true"));
  EXPECT_FALSE((Allowed{form, rules})("<think>a</think>true"));
  rules.thought = PromptThought::begun;
  const Allowed must{form, rules};
  EXPECT_TRUE(must("a <tool_call> { b</think>\n\ntrue"));
  EXPECT_FALSE(must("true") || must("a</think>x"));
  // A schema and functions: either.
  AnswerRules both = rules_with({"f"});
  both.text = AnswerRules::Text::schema;
  both.schema = rules.schema;
  const Allowed either{form, both};
  EXPECT_TRUE(either("true") && either(kOne) && either("<think>x</think>" + kOne));
  EXPECT_FALSE(either("text") || either("true" + kOne));
}

TEST(AnswerGrammar, SaysWhereASchemaIsWrong) {
  const AnswerForm form{.calls = kTags};
  AnswerRules rules = rules_with({"f"});
  rules.functions[0].parameters = parse_json(R"({"properties":{"a":{"not":{}}}})");
  rules.functions[0].where = "tools[0].function.parameters";
  try {
    answer_grammar(form, rules, ByteAndMarkTokenizer());
    FAIL();
  } catch (const GrammarError& e) {
    EXPECT_EQ(e.keyword(), "not");
    EXPECT_TRUE(e.path().starts_with("tools[0].function.parameters.properties.a")) << e.path();
  }
}

}  // namespace
}  // namespace rapt
