// SPDX-License-Identifier: Apache-2.0
// Rendered texts against jinja2's, made ahead of time; and that no byte of a user counts as the template's.
#include "rapt/text/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace rapt {
namespace {

std::string whole(const std::vector<ChatPiece>& pieces) {
  std::string text;
  for (const ChatPiece& p : pieces) text += p.text;
  return text;
}
std::string trusted(const std::vector<ChatPiece>& pieces) {  // what the user wrote is cut out
  std::string text;
  for (const ChatPiece& p : pieces) text += p.trusted ? p.text : std::string(1, '\1');
  return text;
}

ChatOptions options(Json variables = {}) { return {true, "<s>", "</s>", std::move(variables), "2026-11-15"}; }

std::vector<ChatPiece> render(std::string_view source, const std::vector<ChatMessage>& messages = {},
                              Json variables = {}) {
  return ChatTemplate(source).render(messages, options(std::move(variables)));
}

// Templates that use what released ones use, rendered by jinja2 ahead of time
// (tests/golden/make_templates.py).
TEST(ChatTemplate, EqualsJinja) {
  std::ifstream file(std::string(RAPT_SOURCE_DIR) + "/tests/golden/chat_templates/cases.json");
  std::stringstream text;
  text << file.rdbuf();
  const Json all = parse_json(text.str(), "cases.json");
  const Json& conversations = *all.find("conversations");
  int equal = 0, refused = 0;
  for (const Json& c : all.find("cases")->array()) {
    const std::string& source = c.find("template")->string();
    ChatOptions o = options(*c.find("variables"));
    o.add_generation_prompt = c.find("add")->boolean();
    const Json& messages = *conversations.find(c.find("conversation")->string());
    if (c.find("expected")->is_null()) {
      EXPECT_THROW(ChatTemplate(source).render(messages, o), Error) << source;
      ++refused;
      continue;
    }
    try {
      EXPECT_EQ(whole(ChatTemplate(source).render(messages, o)), c.find("expected")->string()) << source;
      ++equal;
    } catch (const Error& e) {
      ADD_FAILURE() << e.what() << "\n" << source;
    }
  }
  EXPECT_GE(equal, 90);
  EXPECT_GE(refused, 1);
}

TEST(ChatTemplate, PiecesKnowWhoWroteThem) {
  const auto pieces =
      render("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{{ eos_token }}",
             {{"user", "hi"}, {"assistant", "yo"}});
  ASSERT_EQ(pieces.size(), 5u);
  // A known role is the template's word: Phi-3 and Zephyr make special tokens of it.
  EXPECT_EQ(pieces[0].text, "<|user|>");
  EXPECT_TRUE(pieces[0].trusted);
  EXPECT_EQ(pieces[1].text, "hi");
  EXPECT_FALSE(pieces[1].trusted);
  EXPECT_EQ(pieces[2].text, "<|end|><|assistant|>");
  EXPECT_EQ(pieces[4].text, "<|end|></s>");
  EXPECT_TRUE(pieces[4].trusted);
  // Any other role is the user's.
  EXPECT_EQ(trusted(render("<|{{ messages[0].role }}|>", {{"end", ""}})), "<|\1|>");
}

TEST(ChatTemplate, OriginGoesThroughEveryOperation) {
  const std::vector<ChatMessage> user = {{"user", "  aXb\nC  "}};
  const auto kept = [&](std::string_view expression) {
    return trusted(render("{% set u = messages[0].content %}{{ " + std::string(expression) + " }}", user));
  };
  const std::pair<const char*, const char*> cases[] = {
      {"'<' + u + '>'", "<\1>"},
      {"'<' ~ u ~ '>'", "<\1>"},
      {"u | trim", "\1"},
      {"u.strip() + '>'", "\1>"},
      {"('<' + u + '>')[0:4]", "<\1"},
      {"('<' + u + '>')[::-1]", ">\1<"},
      {"u.replace('X', '<|x|>')", "\1<|x|>\1"},
      {"'<|x|>'.replace('x', u)", "<|\1|>"},
      {"('<' + u) | upper", "<\1"},
      {"('<' + u) | title", "<\1"},
      {"('<' + u) | capitalize", "<\1"},
      {"('<' + u).title()", "<\1"},
      {"u.split('X') | join('|')", "\1|\1"},
      {"u.split()[0]", "\1"},
      {"[u, '<|x|>'] | join(' ')", "\1 <|x|>"},
      {"'-'.join([u, u])", "\1-\1"},
      {"[u, '<|x|>'] | tojson", "\1"},             // structure made of the user's data is the user's
      {"{'<|x|>': u} | tojson", "\1"},
      {"['<|x|>'] | tojson", "[\"<|x|>\"]"},
      {"[u]", "\1"},
      {"{'a': [u]} | string", "\1"},
      {"'%s<|x|>' % u", "\1<|x|>"},
      {"'{}<|x|>'.format(u)", "\1<|x|>"},
      {"u | indent(2, true)", "  \1\n  \1"},
      {"u | reverse", "\1"},
      {"u | list | first", "\1"},
      {"u * 2", "\1"},
      {"u[2]", "\1"},
      {"u | default('<|x|>')", "\1"},
      {"u.partition('X') | join('')", "\1"},
      {"u.splitlines() | last", "\1"},
      {"messages | map(attribute='content') | list | first", "\1"},
      {"messages[0] | items | list | string", "\1"},
      {"u.rjust(20, '.')", "...........\1"},
      {"u | string | safe", "\1"},
      {"u | length", "9"},
  };
  for (const auto& [expression, expected] : cases) EXPECT_EQ(kept(expression), expected) << expression;
  EXPECT_EQ(
      trusted(render("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].content) | trim }}", user)),
      "<\1>");
  EXPECT_EQ(trusted(render("{% set t %}<{{ messages[0].content }}>{% endset %}{{ t }}", user)), "<\1>");
  EXPECT_EQ(trusted(render("{% filter upper %}<{{ messages[0].content }}>{% endfilter %}", user)), "<\1>");
  EXPECT_EQ(
      trusted(render("{{ v }}{{ n }}{{ strftime_now('%Y') }}", {}, Json::Object{{"v", "<|x|>"}, {"n", 5}})),
      "\1"
      "52026");
}

// Whatever a message holds, none of it comes out as the template's.
TEST(ChatTemplate, SpecialTextOfAUserIsNeverTrusted) {
  const char* const kTemplates[] = {
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
      "'<|im_end|>' + '\\n' }}{% endfor %}",
      "{{ bos_token }}{% for m in messages %}{{ m.content.strip() | replace('J', 'b') "
      "}}{{ eos_token }}{% endfor %}",
      "{% for m in messages %}{{ m | tojson }}{{ m }}{{ m.items() | list }}{% endfor %}",
      "{% set ns = namespace(t='') %}{% for m in messages %}{% for c in m.content %}{% set ns.t = ns.t + c "
      "%}{% endfor %}{% endfor %}{{ ns.t }}",
      "{% for m in messages %}{{ m.content.split('|') | join('') }}{{ m.content[::-1][::-1] }}{{ m.content | "
      "upper | lower }}{% endfor %}",
      "{{ messages | map(attribute='content') | join }}{{ messages | map(attribute='role') | join }}{{ extra "
      "}}{{ extra2.deep }}",
  };
  const std::string kSpecial[] = {"<|im_start|>", "<|im_end|>",          "<s>",    "</s>",    "<|endoftext|>",
                                  "<|eot_id|>",   "<|start_header_id|>", "[INST]", "[/INST]", "<end_of_turn>",
                                  "<unk>"};
  for (const char* source : kTemplates)
    for (const std::string& token : kSpecial) {
      // The template writes some of these itself, but never between Q and Z.
      const std::string mark = "Q" + token + "Z";
      const std::vector<ChatMessage> messages = {{"user", mark}, {mark, mark}, {"assistant", token}};
      const auto pieces =
          render(source, messages, Json::Object{{"extra", mark}, {"extra2", Json::Object{{"deep", mark}}}});
      std::string text;
      std::vector<bool> who;
      for (const ChatPiece& p : pieces) {
        text += p.text;
        who.insert(who.end(), p.text.size(), p.trusted);
      }
      int found = 0;
      for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; ++at) {
        ++found;
        for (std::size_t i = at; i < at + mark.size(); ++i) ASSERT_FALSE(who[i]) << source << " " << token;
      }
      EXPECT_GE(found, 1) << source;
    }
}

TEST(ChatTemplate, TransformersGivesToolsAndDocumentsAlways) {
  EXPECT_EQ(
      whole(render("{{ tools is defined }}{{ tools is none }}{{ documents is none }}{{ other is defined }}")),
      "TrueTrueTrueFalse");
}

TEST(ChatTemplate, DateIsGivenNotRead) {
  const ChatTemplate t("{{ strftime_now('%d %b %Y') }}");
  EXPECT_EQ(whole(t.render(Json(Json::Array{}), options())), "15 Nov 2026");
  ChatOptions none = options();
  none.date.clear();
  EXPECT_THROW(t.render(Json(Json::Array{}), none), Error);
  none.date = "yesterday";
  EXPECT_THROW(t.render(Json(Json::Array{}), none), Error);
}

// The limits are the template's: what the user wrote may be long, and whoever asks the model says whether
// it fits.
TEST(ChatTemplate, LongConversationsAreLegal) {
  const ChatTemplate t(
      "{{ bos_token }}{%- set ns = namespace(last=0) -%}{%- for m in messages -%}{%- if m.role == 'user' -%}"
      "{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}"
      "{%- for m in messages -%}{%- set content = m.content | trim -%}{%- if '</think>' in content -%}"
      "{%- set content = content.split('</think>')[-1].lstrip('\n') -%}{%- endif -%}"
      "{{ '<|' + m['role'] + '|>\n' + content + '<|end|>' + ('\n"
      "' if not loop.last else '') }}{%- endfor -%}");
  const std::string large(std::size_t{20} << 20, 'x');
  EXPECT_EQ(whole(t.render(std::vector<ChatMessage>{{"user", large}}, options())),
            "<s><|user|>\n" + large + "<|end|>");
  std::vector<ChatMessage> many;
  for (int i = 0; i < 5000; ++i)
    many.push_back({i % 2 == 0 ? "user" : "assistant", i % 2 == 0 ? "a question" : "<think>hm</think>\nyes"});
  const std::string text = whole(t.render(many, options()));
  EXPECT_EQ(text.substr(0, 65), "<s><|user|>\na question<|end|>\n<|assistant|>\nyes<|end|>\n<|user|>\na");
  EXPECT_EQ(text.size(), 3 + 2500 * 27 + 2500 * 25 - 1);
}

TEST(ChatTemplate, OneTemplateRendersManyTimes) {
  const ChatTemplate t(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}");
  for (std::size_t n = 0; n < 3; ++n)
    EXPECT_EQ(whole(t.render(std::vector<ChatMessage>(n, {"user", "x"}), options())), std::to_string(n));
}

}  // namespace
}  // namespace rapt
