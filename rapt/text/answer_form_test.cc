// SPDX-License-Identifier: Apache-2.0
// Templates in the shapes that released ones have, what is learned of them, and answers of these forms cut at
// every place.
#include "rapt/text/answer_form.h"

#include <gtest/gtest.h>

#include "rapt/text/answer_parts.h"

namespace rapt {
namespace {

const std::string kTurns =
    "{% for m in messages %}<|turn|>{{ m.role }}\n{% if m.content %}{{ m.content }}{% endif %}";
const std::string kClose =
    "<|end_turn|>\n{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}";

struct Shape {
  const char* name;
  std::string source;
  CallForm calls;
  std::string think_begin = {}, think_end = {};
  // One answer with two calls where the form has them, else with one.
  std::string answer = {};
  int count = 2;
};

std::vector<Shape> shapes() {
  const std::string hole(1, CallForm::kId);
  std::vector<Shape> all;
  all.push_back(
      {"tags",
       kTurns +
           "{% for c in m.tool_calls %}{% if m.content or not loop.first %}{{ '\n' }}{% endif %}<tool_call>\n"
           "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
           "</tool_call>{% endfor %}" +
           kClose,
       {.begin = "<tool_call>\n{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = "}\n</tool_call>\n<tool_call>\n{\"name\": \"",
        .end = "}\n</tool_call>",
        .trigger = "<tool_call>",
        .anywhere = true},
       "",
       "",
       "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>\n"
       "<tool_call>\n{\"name\": \"mul\", \"arguments\": {}}\n</tool_call>"});
  // Tags, and thoughts in front of the last answer alone.
  Shape thoughtful = all[0];
  thoughtful.name = "tags with thoughts";
  thoughtful.source =
      "{% for m in messages %}<|turn|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}<think>\n"
      "{{ m.reasoning_content }}\n</think>\n\n{% endif %}{% if m.content %}{{ m.content }}{% endif %}" +
      thoughtful.source.substr(kTurns.size());
  thoughtful.think_begin = "<think>", thoughtful.think_end = "</think>";
  thoughtful.answer = "<think>\nhm\n\nyes\n</think>\n\n" + thoughtful.answer;
  all.push_back(thoughtful);
  all.push_back(
      {"bare JSON",
       kTurns +
           "{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif "
           "%}{% set c = m.tool_calls[0].function %}{\"name\": \"{{ c.name }}\", \"parameters\": "
           "{{ c.arguments | tojson }}}{% endif %}" +
           kClose,
       {.begin = "{\"name\": \"", .middle = "\", \"parameters\": ", .end = "}", .trigger = "{\"name\": \""},
       "",
       "",
       "{\"name\": \"add\", \"parameters\": {\"a\": {\"b\": \"{\"}}}",
       1});
  all.push_back(
      {"a list with ids",
       "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.tool_calls %}"
       "[CALLS][{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('id') }}{% endif %}"
       "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}, \"id\": "
       "\"{{ c.id }}\"}{% if not loop.last %}, {% endif %}{% endfor %}]<|end_turn|>{% else %}"
       " {{ m.content }}<|end_turn|>{% endif %}{% endfor %}",
       {.begin = "[CALLS][{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = ", \"id\": \"" + hole + "\"}, {\"name\": \"",
        .end = ", \"id\": \"" + hole + "\"}]",
        .trigger = "[CALLS]",
        .anywhere = true,
        .id_length = 9},
       "",
       "",
       "[CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefgh1\"}, {\"name\": \"mul\", "
       "\"arguments\": {}, \"id\": \"9bcdefgh1\"}]"});
  // Arguments as text in a fence, thoughts begun by the prompt and left away later.
  all.push_back(
      {"fences",
       "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% else %}<A>{% if m.tool_calls "
       "%}<calls>{% for c in m.tool_calls %}<call>function<sep>{{ c.function.name + '\n```json\n' + "
       "c.function.arguments + '\n```' }}</call>{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}"
       "</calls>{% else %}{{ m.content.split('</think>')[-1] }}{% endif %}<|end_turn|>{% endif %}{% endfor %}"
       "{% if add_generation_prompt %}<A><think>\n{% endif %}",
       {.begin = "<calls><call>function<sep>",
        .middle = "\n```json\n",
        .between = "\n```</call>\n<call>function<sep>",
        .end = "\n```</call></calls>",
        .trigger = "<calls>",
        .anywhere = true,
        .arguments_as_text = true},
       "<think>",
       "</think>",
       "<think>so</think><calls><call>function<sep>add\n```json\n{\"a\": 1}\n```</call>\n<call>function<sep>"
       "mul\n```json\n{}\n```</call></calls>"});
  all.push_back({"nothing", kTurns + kClose, {}, "", "", "<tool_call>x", 0});
  return all;
}

AnswerForm learn(const Shape& shape) {
  const std::vector<std::string> stops = {"<|end_turn|>"};
  return learn_answer_form(ChatTemplate(shape.source, shape.name), {}, stops);
}

TEST(AnswerForm, IsLearnedFromTheTemplate) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    const AnswerForm form = learn(shape);
    EXPECT_EQ(form.think_begin, shape.think_begin);
    EXPECT_EQ(form.think_end, shape.think_end);
    EXPECT_FALSE(form.channels);
    EXPECT_EQ(form.calls.known(), shape.calls.known());
    EXPECT_EQ(form.calls.begin, shape.calls.begin);
    EXPECT_EQ(form.calls.middle, shape.calls.middle);
    EXPECT_EQ(form.calls.between, shape.calls.between);
    EXPECT_EQ(form.calls.end, shape.calls.end);
    EXPECT_EQ(form.calls.trigger, shape.calls.trigger);
    EXPECT_EQ(form.calls.anywhere, shape.calls.anywhere);
    EXPECT_EQ(form.calls.arguments_as_text, shape.calls.arguments_as_text);
    EXPECT_EQ(form.calls.id_length, shape.calls.id_length);
  }
}

TEST(AnswerForm, APromptMayHaveThoughtAlready) {
  const AnswerForm form{.think_begin = "<think>", .think_end = "</think>"};
  EXPECT_EQ(prompt_thought(form, "<A>"), PromptThought::none);
  EXPECT_EQ(prompt_thought(form, "<A><think>\n"), PromptThought::begun);
  EXPECT_EQ(prompt_thought(form, "<A><think>\n\n</think>\n\n"), PromptThought::ended);
  EXPECT_EQ(prompt_thought({}, "<A><think>\n"), PromptThought::none);
}

TEST(AnswerForm, OfChannels) {
  const std::string source =
      "{% for m in messages %}<|start|>{{ m.role }}{% if m.tool_calls %}"
      "{% set c = m.tool_calls[0].function %}"
      " to=functions.{{ c.name }}<|channel|>commentary json<|message|>{{ c.arguments | tojson }}<|call|>"
      "{% elif m.role == 'assistant' %}<|channel|>final<|message|>{{ m.content }}<|return|>"
      "{% else %}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|start|>assistant{% endif %}";
  const std::vector<std::string> stops = {"<|return|>", "<|call|>"};
  const AnswerForm form = learn_answer_form(ChatTemplate(source), {}, stops);
  EXPECT_TRUE(form.channels);
  EXPECT_EQ(form.text_begin, "<|channel|>final<|message|>");
  EXPECT_EQ(form.calls.begin, " to=functions.");
  EXPECT_EQ(form.calls.middle, "<|channel|>commentary json<|message|>");
  EXPECT_EQ(form.calls.end, "");
}

// Everything a parser said, in one line.
std::string told(const std::vector<AnswerPart>& parts) {
  std::string out;
  AnswerPart::Kind last = AnswerPart::Kind::call_end;
  for (const AnswerPart& p : parts) {
    const bool goes_on =
        p.kind == last && p.kind != AnswerPart::Kind::call_begin && p.kind != AnswerPart::Kind::call_end;
    constexpr const char* kNames[] = {"think", "text", "call", "args", "end"};
    if (!goes_on)
      out += concat("|", kNames[static_cast<int>(p.kind)], p.call >= 0 ? std::to_string(p.call) : "", ":");
    out += p.text;
    EXPECT_EQ(p.text.empty(), p.kind == AnswerPart::Kind::call_end);
    EXPECT_EQ(p.id.empty(), p.kind != AnswerPart::Kind::call_begin);
    last = p.kind;
  }
  return out;
}

std::vector<AnswerPart> all_of(AnswerParser& parser, std::initializer_list<std::string_view> texts) {
  std::vector<AnswerPart> out;
  for (const std::string_view text : texts)
    for (AnswerPart& p : parser.push(text)) out.push_back(std::move(p));
  for (AnswerPart& p : parser.finish()) out.push_back(std::move(p));
  return out;
}

TEST(AnswerParser, TellsCallsApartHoweverTheTextIsCut) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    const AnswerForm form = learn(shape);
    const AnswerParser::Options options{.calls = true, .seed = "x"};
    const std::string_view answer = shape.answer;
    AnswerParser whole(form, options);
    const std::string wanted = told(all_of(whole, {answer}));
    EXPECT_EQ(whole.calls(), shape.count);
    for (std::size_t a = 0; a <= answer.size(); ++a)
      for (std::size_t b = a; b <= answer.size(); b += 3) {
        AnswerParser parser(form, options);
        ASSERT_EQ(told(all_of(parser, {answer.substr(0, a), answer.substr(a, b - a), answer.substr(b)})),
                  wanted);
      }
    // Cut off: what is told is the beginning of all that, or text that began a mark.
    for (std::size_t a = 0; a <= answer.size(); ++a) {
      AnswerParser parser(form, options);
      AnswerMessage cut;
      for (const AnswerPart& p : all_of(parser, {answer.substr(0, a)})) cut.add(p);
      ASSERT_LE(cut.calls.size(), static_cast<std::size_t>(shape.count));
    }
    if (shape.calls.known()) {  // nobody offered a function
      AnswerParser parser(form, {});
      EXPECT_EQ(parser.push(answer).size() > 0 ? parser.calls() : 0, 0);
    }
  }
}

TEST(AnswerParser, SaysWhatWasSaid) {
  const std::vector<Shape> all = shapes();
  const auto read = [&](std::size_t shape, std::string_view text, bool thinks = false) {
    const AnswerForm form = learn(all[shape]);
    AnswerParser parser(form, {.thinks = thinks, .calls = true, .seed = "x"});
    return told(all_of(parser, {text}));
  };
  EXPECT_EQ(read(0, all[0].answer),
            "|text:Let me see.|call0:add|args0:{\"a\": [1, \"}\\\"\"]}|end0:|call1:mul|args1:{}|end1:");
  EXPECT_EQ(read(1, all[1].answer).substr(0, 36), "|think:hm\n\nyes|text:Let me see.|call");
  EXPECT_EQ(read(1, "  no thought "), "|text:  no thought ");
  EXPECT_EQ(read(1, "a\n</think>\n\nb", true), "|think:a|text:b");
  EXPECT_EQ(read(1, "never ended", true), "|think:never ended");
  EXPECT_EQ(read(0, "a <tool_call> b"), "|text:a <tool_call> b");
  EXPECT_EQ(read(0, "a <tool_cal"), "|text:a <tool_cal");
  EXPECT_EQ(read(0, "a\n<tool_call>\n{\"na"), "|text:a");
  EXPECT_EQ(read(0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1"), "|call0:f|args0:{\"a\": 1");
  EXPECT_EQ(read(2, all[2].answer), "|call0:add|args0:{\"a\": {\"b\": \"{\"}}|end0:");
  EXPECT_EQ(read(2, "so {\"name\": \"add\", \"parameters\": {}}"),
            "|text:so {\"name\": \"add\", \"parameters\": {}}");
  EXPECT_EQ(read(2, "{\"title\": 1}"), "|text:{\"title\": 1}");
  EXPECT_EQ(read(3, all[3].answer), "|call0:add|args0:{\"a\": 1}|end0:|call1:mul|args1:{}|end1:");
  EXPECT_EQ(read(4, all[4].answer.substr(7), true),
            "|think:so|call0:add|args0:{\"a\": 1}|end0:|call1:mul|args1:{}|end1:");
  EXPECT_EQ(read(5, "<tool_call> "), "|text:<tool_call> ");
  // Where a call must come, what is cut off before its name was to be one.
  for (const std::string_view begun : {"<", "<tool_cal", "<tool_call>\n{\"na"}) {
    const AnswerForm form = learn(all[0]);
    AnswerParser parser(form, {.calls = true, .must_call = true, .seed = "x"});
    EXPECT_EQ(told(all_of(parser, {begun})), "") << begun;
  }
}

TEST(AnswerParser, ReadsChannels) {
  AnswerForm form{.channels = true};
  form.calls.middle = "x";
  const auto read = [&](std::string_view text) {
    std::string first;
    for (std::size_t a = 0; a <= text.size(); ++a) {
      AnswerParser parser(form, {.calls = true, .seed = "x"});
      const std::string one = told(all_of(parser, {text.substr(0, a), text.substr(a)}));
      if (a == 0) first = one;
      EXPECT_EQ(one, first);
    }
    return first;
  };
  EXPECT_EQ(read("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes."),
            "|think:hm|text:Yes.");
  EXPECT_EQ(
      read("<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.add<|channel|>commentary "
           "json<|message|>{\"a\": 1}"),
      "|think:hm|call0:add|args0:{\"a\": 1}|end0:");
  EXPECT_EQ(read("no channel at all"), "|text:no channel at all");
}

TEST(AnswerParser, IdsFollowFromTheSeedAndAreAsLongAsTheFormWants) {
  AnswerForm form{.calls = plain_call_form()};
  const auto id = [&](std::string seed) {
    AnswerParser parser(form, {.calls = true, .seed = std::move(seed)});
    return parser.push("{\"name\": \"f\", \"arguments\": {}}")[0].id;
  };
  EXPECT_EQ(id("a"), id("a"));
  EXPECT_NE(id("a"), id("b"));
  EXPECT_EQ(id("a").size(), 29u);
  EXPECT_EQ(id("a").substr(0, 5), "call_");
  form.calls.id_length = 9;
  EXPECT_EQ(id("a").size(), 9u);
}

}  // namespace
}  // namespace rapt
