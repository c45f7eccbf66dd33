// SPDX-License-Identifier: Apache-2.0
// Conversations with marks, rendered, and what stands around the marks.
#include "rapt/text/answer_form.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace rapt {
namespace {

// Letters and digits, for templates look at what they print; ids of nine, because one of them wants it so.
constexpr std::string_view kName = "markedname", kOther = "othername", kKey = "markedkey",
                           kValue = "markedvalue", kFirstId = "markedid1", kSecondId = "markedid2",
                           kText = "markedtext", kThought = "markedthought";
constexpr std::string_view kWhite = " \t\r\n";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhite);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhite) + 1 - first);
}

Json message(const char* role, std::string_view content) {
  Json m;
  m.set("role", role);
  m.set("content", content);
  return m;
}

Json tool(std::string_view name) {
  return parse_json(concat(R"({"type":"function","function":{"name":")", name,
                           R"(","description":"d","parameters":{"type":"object","properties":{")", kKey,
                           R"(":{"type":"string"}},"required":[")", kKey, R"("]}}})"));
}

Json call(std::string_view name, std::string_view id, bool as_text) {
  const std::string arguments = concat("{\"", kKey, "\": \"", kValue, "\"}");
  Json function, out;
  function.set("name", name);
  function.set("arguments", as_text ? Json(arguments) : parse_json(arguments));
  out.set("id", id);
  out.set("type", "function");
  out.set("function", std::move(function));
  return out;
}

class Learner {
 public:
  Learner(const ChatTemplate& chat, const ChatOptions& options, std::span<const std::string> stops)
      : chat_(chat), options_(options), stops_(stops) {
    options_.variables.set("tools", Json::Array{tool(kName), tool(kOther)});
  }

  AnswerForm learn() {
    AnswerForm form;
    const std::optional<std::string> prompt = render({}, true);
    if (!prompt) return form;
    prompt_ = *prompt;
    if (const auto said = render({message("assistant", kText)}, false)) {
      const std::size_t at = said->find(kText, answer(*said));
      if (at != std::string::npos) {
        ending_ = said->substr(at + kText.size());
        const std::string_view header = std::string_view(*said).substr(answer(*said), at - answer(*said));
        form.channels = header.find("<|message|>") != header.npos;
        if (form.channels) form.text_begin = header;
      }
    }
    learn_thoughts(form);
    for (const bool as_text : {false, true})
      if (!form.calls.known()) form.calls = learn_calls(form, as_text);
    return form;
  }

 private:
  std::optional<std::string> render(std::initializer_list<Json> answers, bool prompt) const {
    Json::Array messages{message("user", "Hello")};
    for (const Json& m : answers) messages.push_back(m);
    ChatOptions options = options_;
    options.add_generation_prompt = prompt;
    try {
      std::string out;
      for (const ChatPiece& piece : chat_.render(Json(std::move(messages)), options)) out += piece.text;
      return out;
    } catch (const Error&) {  // it does not know such messages
      return std::nullopt;
    }
  }

  // Where the answer begins in a rendered conversation: where the prompt for it ends. A prompt that goes on
  // in another way (it opens a thought) counts up to the last mark or line that they share.
  std::size_t answer(std::string_view rendered) const {
    const auto differ =
        std::mismatch(rendered.begin(), rendered.end(), prompt_.begin(), prompt_.end()).first -
        rendered.begin();
    const auto shared = static_cast<std::size_t>(differ);
    if (shared == prompt_.size()) return shared;
    const std::size_t mark = rendered.substr(0, shared).find_last_of(">\n]");
    return mark == std::string_view::npos ? shared : mark + 1;
  }

  // Without what ends a turn.
  std::string_view cut_ending(std::string_view text) const {
    if (!ending_.empty() && text.ends_with(ending_)) text.remove_suffix(ending_.size());
    for (const std::string& stop : stops_)
      if (!stop.empty()) text = text.substr(0, text.find(stop));
    return text;
  }
  bool ends(std::string_view text) const {
    return std::ranges::any_of(stops_,
                               [&](const std::string& s) { return !s.empty() && text.find(s) != text.npos; });
  }

  void learn_thoughts(AnswerForm& form) const {
    if (form.channels) {
      form.think_begin = "<|channel|>analysis<|message|>";
      form.think_end = "<|end|><|start|>assistant";
      return;
    }
    const auto take = [&](std::string_view begin, std::string_view end) {
      begin = trim(begin), end = trim(end);
      if (begin.size() < 3 || end.size() < 3 || begin[0] != end[0] || (begin[0] != '<' && begin[0] != '['))
        return;
      form.think_begin = begin, form.think_end = end;
    };
    Json thoughtful = message("assistant", kText);
    thoughtful.set("reasoning_content", kThought);
    if (const auto shown = render({thoughtful}, false)) {
      const std::size_t from = answer(*shown), thought = shown->find(kThought, from),
                        text = thought == std::string::npos ? thought : shown->find(kText, thought);
      if (text != std::string::npos) {
        const std::string_view all = *shown;
        std::string_view begin = all.substr(from, thought - from);
        if (trim(begin).empty()) {  // the prompt has it already
          const std::string_view last = trim(all.substr(0, thought));
          begin = last.substr(std::min(last.size(), last.find_last_of("<[")));
        }
        take(begin, all.substr(thought + kThought.size(), text - thought - kThought.size()));
      }
    }
    if (!form.think_begin.empty()) return;
    if (trim(prompt_).ends_with("<think>")) return take("<think>", "</think>");
    // Of an earlier answer it leaves the thought away.
    const auto earlier = render({message("assistant", concat("<think>\n", kThought, "\n</think>\n\n", kText)),
                                 message("user", "Go on")},
                                false);
    if (earlier && earlier->find(kText) != std::string::npos && earlier->find(kThought) == std::string::npos)
      take("<think>", "</think>");
  }

  // The arguments around their marks: {"markedkey": "markedvalue"}, with any white space. {0, 0}: not there.
  static std::pair<std::size_t, std::size_t> arguments(std::string_view text, std::size_t from) {
    const std::pair<std::size_t, std::size_t> none = {0, 0};
    const std::size_t key = text.find(concat("\"", kKey, "\""), from);
    if (key == std::string_view::npos || key == 0) return none;
    const std::size_t begin = text.find_last_not_of(kWhite, key - 1);
    if (begin == std::string_view::npos || text[begin] != '{') return none;
    std::size_t at = key + kKey.size() + 2;
    const auto next = [&](std::string_view what) {
      at = std::min(text.find_first_not_of(kWhite, at), text.size());
      if (!text.substr(at).starts_with(what)) return false;
      at += what.size();
      return true;
    };
    if (!next(":") || !next(concat("\"", kValue, "\"")) || !next("}")) return none;
    return {begin, at};
  }

  static std::string with_holes(std::string_view text) {
    std::string out(text);
    for (const std::string_view id : {kFirstId, kSecondId})
      for (std::size_t at = 0; (at = out.find(id, at)) != std::string::npos;)
        out.replace(at, id.size(), 1, CallForm::kId);
    return out;
  }

  CallForm learn_calls(const AnswerForm& answers, bool as_text) const {
    Json one = message("assistant", ""), two = one;
    one.set("tool_calls", Json::Array{call(kName, kFirstId, as_text)});
    two.set("tool_calls", Json::Array{call(kName, kFirstId, as_text), call(kOther, kSecondId, as_text)});
    const auto single = render({one}, false);
    if (!single) return {};
    const std::string_view text = *single;
    const std::size_t from = answer(text), name = text.find(kName, from);
    if (name == text.npos) return {};
    const auto [begin, end] = arguments(text, name);
    if (begin <= name + kName.size()) return {};  // not there, or nothing between them
    CallForm form;
    std::string_view opening = text.substr(from, name - from);
    if (!answers.think_end.empty() && !answers.channels)
      if (const std::size_t thought = opening.rfind(answers.think_end); thought != opening.npos)
        opening.remove_prefix(thought + answers.think_end.size());
    if (!answers.channels) opening.remove_prefix(std::min(opening.find_first_not_of(kWhite), opening.size()));
    if (opening.empty()) return {};
    form.begin = with_holes(opening);
    form.middle = with_holes(text.substr(name + kName.size(), begin - name - kName.size()));
    form.end = with_holes(cut_ending(text.substr(end)));
    if (form.middle.find(kName) != form.middle.npos || form.end.find(kName) != form.end.npos) return {};
    form.arguments_as_text = as_text;
    for (const std::string* part : {&form.begin, &form.middle, &form.end})
      if (part->find(CallForm::kId) != part->npos) form.id_length = kFirstId.size();
    learn_trigger(form);
    if (const auto both = render({two}, false)) form.between = between(*both, form);
    return form;
  }

  // What stands between two calls; "" where the template shows them in another way than one alone.
  std::string between(std::string_view text, const CallForm& form) const {
    const std::size_t from = answer(text), name = text.find(kName, from),
                      other = name == text.npos ? name : text.find(kOther, name);
    if (other == text.npos) return {};
    const auto [begin, end] = arguments(text.substr(0, other), name);
    const auto [second, last] = arguments(text, other);
    if (begin == 0 || second == 0) return {};
    const std::string_view gap = text.substr(end, other - end);
    const auto part = [&](std::size_t a, std::size_t b) { return with_holes(text.substr(a, b - a)); };
    if (gap.empty() || ends(gap) || part(name + kName.size(), begin) != form.middle ||
        part(other + kOther.size(), second) != form.middle ||
        with_holes(cut_ending(text.substr(last))) != form.end)
      return {};
    return with_holes(gap);
  }

  static void learn_trigger(CallForm& form) {
    const std::string_view begin = form.begin;
    form.anywhere = begin[0] == '<' || begin[0] == '[';
    const std::size_t close = begin.find(begin[0] == '<' ? '>' : ']');
    if (begin[0] == '[' && (close == begin.npos || close > begin.find('"'))) form.anywhere = false;
    form.trigger = form.anywhere && close != begin.npos ? begin.substr(0, close + 1) : begin;
    // The id that a model invents is no sign.
    form.trigger = form.trigger.substr(0, form.trigger.find(CallForm::kId));
  }

  const ChatTemplate& chat_;
  ChatOptions options_;
  const std::span<const std::string> stops_;
  std::string prompt_, ending_;
};

}  // namespace

AnswerForm learn_answer_form(const ChatTemplate& chat, const ChatOptions& options,
                             std::span<const std::string> stops) {
  return Learner(chat, options, stops).learn();
}

PromptThought prompt_thought(const AnswerForm& form, std::string_view prompt) {
  if (form.channels || form.think_begin.empty()) return PromptThought::none;
  if (trim(prompt).ends_with(form.think_begin)) return PromptThought::begun;
  return trim(prompt).ends_with(form.think_end) ? PromptThought::ended : PromptThought::none;
}

CallForm plain_call_form() {
  CallForm form{.begin = "{\"name\": \"", .middle = "\", \"arguments\": ", .end = "}"};
  form.trigger = form.begin;
  form.plain = true;
  return form;
}

}  // namespace rapt
