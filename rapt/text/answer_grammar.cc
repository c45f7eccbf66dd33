// SPDX-License-Identifier: Apache-2.0
// Marks become tokens where they are control tokens, and bytes where they are text.
#include "rapt/text/answer_grammar.h"

#include <algorithm>
#include <utility>

#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {
namespace {

using Node = GrammarBuilder::Node;

class AnswerRulesBuilder {
 public:
  AnswerRulesBuilder(const AnswerForm& form, const AnswerRules& rules, const Tokenizer& tokenizer)
      : form_(form), rules_(rules) {
    for (std::int32_t id = 0; id < static_cast<std::int32_t>(tokenizer.size()); ++id)
      if (tokenizer.role(id) == Tokenizer::Role::control && !tokenizer.text_of(id).empty())
        controls_.emplace_back(tokenizer.text_of(id), id);
  }

  std::shared_ptr<const Grammar> build() {
    std::vector<Node> parts;
    if (!form_.think_begin.empty() && rules_.thought != PromptThought::ended) parts.push_back(thought());
    parts.push_back(said());
    return b_.build(b_.sequence(std::move(parts)));
  }

  // Control tokens in a text, and what stands between them.
  template <class Token, class Text>
  void split(std::string_view text, const Token& token, const Text& other) const {
    std::size_t from = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::pair<std::string, std::int32_t>* best = nullptr;
      for (const auto& control : controls_)
        if (text.substr(at).starts_with(control.first) &&
            (!best || control.first.size() > best->first.size()))
          best = &control;
      if (!best) {
        ++at;
        continue;
      }
      if (at > from) other(text.substr(from, at - from));
      token(best->second);
      from = at += best->first.size();
    }
    if (from < text.size()) other(text.substr(from));
  }

 private:
  Node spell(std::string_view mark) {
    std::vector<Node> parts;
    split(
        mark, [&](std::int32_t id) { parts.push_back(b_.special(id)); },
        [&](std::string_view text) {
          for (std::size_t from = 0; from <= text.size();) {
            const std::size_t hole = std::min(text.find(CallForm::kId, from), text.size());
            if (hole > from) parts.push_back(b_.literal(text.substr(from, hole - from)));
            if (hole < text.size()) parts.push_back(id());
            from = hole + 1;
          }
        });
    return parts.size() == 1 ? parts[0] : b_.sequence(std::move(parts));
  }
  Node id() {
    const auto n = static_cast<int>(form_.calls.id_length);
    return b_.repeat(b_.character({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}), n, n);
  }
  bool is_token(std::string_view mark) const {  // it begins with one, which no text spells
    bool token = false, first = true;
    split(
        mark, [&](std::int32_t) { token |= std::exchange(first, false); },
        [&](std::string_view) { first = false; });
    return token;
  }
  // Any text in front of a mark.
  Node text_before(std::string_view mark) {
    if (mark.empty() || is_token(mark)) return b_.text();
    std::string stop;
    split(
        mark, [](std::int32_t) {},
        [&](std::string_view text) { stop = stop.empty() ? std::string(text) : stop; });
    return b_.text({stop});
  }

  Node thought() {
    const Node space = b_.repeat(b_.character({{'\n', '\n'}, {' ', ' '}}), 0, 2);
    const Node rest = b_.sequence({text_before(form_.think_end), spell(form_.think_end), space});
    if (rules_.thought == PromptThought::begun) return rest;
    return b_.optional(b_.sequence({spell(form_.think_begin), rest}));
  }

  Node schema(const Json& schema, const std::string& where, bool object = false) {
    try {
      return object ? b_.object_schema(schema, where) : b_.schema(schema, where);
    } catch (const GrammarError& e) {
      std::string path = where;
      for (const char c : e.path()) path += c == '/' ? '.' : c;
      throw GrammarError(e.what(), e.keyword(), path);
    }
  }

  Node call() {
    std::vector<Node> each;
    for (const AnswerRules::Function& f : rules_.functions) {
      const Json nothing = parse_json(R"({"type":"object","properties":{},"additionalProperties":false})");
      each.push_back(b_.sequence({b_.literal(f.name), spell(form_.calls.middle),
                                  schema(f.parameters.is_null() ? nothing : f.parameters, f.where, true)}));
    }
    return b_.choice(std::move(each));
  }
  Node calls() {
    const CallForm& form = form_.calls;
    const Node one = call();
    std::vector<Node> parts = {spell(form.begin), one};
    if (rules_.parallel && !form.between.empty())
      parts.push_back(b_.repeat(b_.sequence({spell(form.between), one}), 0));
    if (!form.end.empty()) parts.push_back(spell(form.end));
    return b_.sequence(std::move(parts));
  }

  Node said() {
    const bool functions = !rules_.functions.empty();
    if (functions && rules_.required) return calls();
    const CallForm& form = form_.calls;
    Node text{};
    switch (rules_.text) {
      case AnswerRules::Text::json_object: text = b_.json_object(); break;
      case AnswerRules::Text::schema: text = schema(rules_.schema, rules_.schema_where); break;
      case AnswerRules::Text::any:
        text = !functions || form_.channels ? b_.text()
               : form.anywhere              ? text_before(form.trigger)
                                            : other_text();
    }
    if (!form_.text_begin.empty()) text = b_.sequence({spell(form_.text_begin), text});
    if (!functions) return text;
    if (rules_.text == AnswerRules::Text::any && form.anywhere && !form_.channels)
      return b_.sequence({text, b_.optional(calls())});
    return b_.choice({text, calls()});
  }

  // Any text that does not begin as a call does.
  Node other_text() {
    const std::string& mark = form_.calls.trigger;
    std::vector<Node> ways;
    for (std::size_t at = 0; at < mark.size();) {
      std::size_t end = at + 1;
      while (end < mark.size() && (static_cast<unsigned char>(mark[end]) & 0xC0) == 0x80) ++end;
      const std::uint32_t c = character(std::string_view(mark).substr(at, end - at));
      const Node before = b_.literal(std::string_view(mark).substr(0, at));
      ways.push_back(
          b_.sequence({before, b_.optional(b_.sequence({b_.character({{c, c}}, true), b_.text()}))}));
      at = end;
    }
    return b_.choice(std::move(ways));
  }
  static std::uint32_t character(std::string_view utf8) {
    const auto first = static_cast<unsigned char>(utf8[0]);
    std::uint32_t c = utf8.size() == 1 ? first : first & (0xFFu >> (utf8.size() + 1));
    for (const char next : utf8.substr(1)) c = c << 6 | (static_cast<unsigned char>(next) & 0x3Fu);
    return c;
  }

  GrammarBuilder b_;
  const AnswerForm& form_;
  const AnswerRules& rules_;
  std::vector<std::pair<std::string, std::int32_t>> controls_;
};

}  // namespace

std::vector<std::int32_t> form_ids(const AnswerForm& form, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  const AnswerRules none;
  const AnswerRulesBuilder builder(form, none, tokenizer);
  for (const std::string* mark : {&form.think_begin, &form.think_end, &form.text_begin, &form.calls.begin,
                                  &form.calls.middle, &form.calls.between, &form.calls.end})
    builder.split(*mark, [&](std::int32_t id) { ids.push_back(id); }, [](std::string_view) {});
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::shared_ptr<const Grammar> answer_grammar(const AnswerForm& form, const AnswerRules& rules,
                                              const Tokenizer& tokenizer) {
  return AnswerRulesBuilder(form, rules, tokenizer).build();
}

}  // namespace rapt
