// SPDX-License-Identifier: Apache-2.0
// A small machine over text that is held back as long as it may be the beginning of a mark.
#include "rapt/text/answer_parts.h"

#include <algorithm>
#include <array>

#include "rapt/base/rng.h"

namespace rapt {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kMostName = 256;
constexpr std::array<std::string_view, 4> kMessageEnds = {"<|end|>", "<|start|>", "<|call|>", "<|return|>"};
constexpr std::string_view kMessage = "<|message|>", kChannel = "<|channel|>", kTo = "to=functions.";

bool is_letter(char c) {  // of names and ids
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

std::size_t letters(std::string_view text, std::size_t at) {  // where they end
  while (at < text.size() && is_letter(text[at])) ++at;
  return at;
}

std::size_t space(std::string_view text) {  // at its beginning
  return std::min(text.find_first_not_of(kSpace), text.size());
}

std::size_t trimmed(std::string_view text) {  // without that at its end
  const std::size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

// The longest end of the text that begins the mark.
std::size_t begun(std::string_view text, std::string_view mark) {
  for (std::size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n)
    if (text.ends_with(mark.substr(0, n))) return n;
  return 0;
}

std::string call_id(std::string_view seed, int call, std::size_t length) {
  static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::uint64_t key = 0x63616c6c;
  for (const char c : seed) key = mix_key(key, static_cast<unsigned char>(c));
  std::string out = length > 0 ? "" : "call_";
  const std::size_t whole = length > 0 ? length : out.size() + 24;
  for (std::uint64_t i = 0; out.size() < whole; ++i)
    out += kLetters[random_below(62, key, static_cast<std::uint64_t>(call), i)];
  return out;
}

}  // namespace

AnswerParser::AnswerParser(const AnswerForm& form, Options options)
    : form_(&form), options_(std::move(options)) {}

std::vector<AnswerPart> AnswerParser::push(std::string_view text) {
  Parts out;
  held_ += text;
  while (!held_.empty() && step(out, false)) {}
  return out;
}

std::vector<AnswerPart> AnswerParser::finish() {
  Parts out;
  while (step(out, true)) {}
  return out;
}

bool AnswerParser::step(Parts& out, bool last) {
  switch (state_) {
    case State::start: return begin(last);
    case State::before_thought:
    case State::before_text:
      held_.erase(0, space(held_));
      if (held_.empty()) return false;
      state_ = state_ == State::before_thought ? State::thought : State::text;
      return true;
    case State::thought: return think(out, last);
    case State::text: return write(out, last);
    case State::arguments: return take_arguments(out);
    case State::called: return go_on(out, last);
    case State::header: return read_header(out, last);
    case State::message: return read_message(out, last);
  }
  return false;
}

bool AnswerParser::begin(bool last) {
  if (form_->channels) return state_ = State::header, true;
  state_ = options_.thinks ? State::before_thought : State::text;
  const std::string& mark = form_->think_begin;
  if (options_.thinks || mark.empty()) return true;
  const std::string_view rest = std::string_view(held_).substr(space(held_));
  if (rest.starts_with(mark)) {
    held_.erase(0, held_.size() - rest.size() + mark.size());
    state_ = State::before_thought;
  } else if (std::string_view(mark).starts_with(rest) && !last) {
    state_ = State::start;
    return false;
  }
  return true;
}

bool AnswerParser::think(Parts& out, bool last) {
  const std::string_view mark = form_->think_end, held = held_;
  const std::size_t at = mark.empty() ? std::string_view::npos : held.find(mark);
  if (at == std::string_view::npos) {
    const std::size_t open = last || mark.empty() ? 0 : begun(held, mark);
    tell(out, Kind::reasoning, trimmed(held.substr(0, held.size() - open)));
    if (last) held_.clear();
    return false;
  }
  tell(out, Kind::reasoning, trimmed(held.substr(0, at)));
  held_.erase(0, held_.find(mark) + mark.size());
  state_ = State::before_text;
  began_ = false;
  return true;
}

// Text, until a call begins.
bool AnswerParser::write(Parts& out, bool last) {
  const CallForm& form = form_->calls;
  if (!options_.calls || !form.known() || (!form.anywhere && began_))
    return tell(out, Kind::text, held_.size()), false;
  if (held_.empty()) return false;
  if (last && options_.must_call && calls_ == 0) return held_.clear(), false;
  std::size_t at = form.anywhere ? held_.find(form.trigger) : 0;
  if (at == std::string::npos) {
    // White space in front of a call is not said.
    const std::size_t open = last ? 0 : begun(held_, form.trigger);
    const std::size_t end = held_.size() - open;
    tell(out, Kind::text, last ? end : trimmed(std::string_view(held_).substr(0, end)));
    return false;
  }
  std::size_t end = at;
  std::string_view name;
  switch (match_call(form.begin, end, name)) {
    case Match::wholly: {
      const std::string whose(name);
      const std::size_t said = trimmed(std::string_view(held_).substr(0, at));
      tell(out, Kind::text, said);
      held_.erase(0, end - said);
      begin_call(out, whose);
      return true;
    }
    case Match::partly:
      if (!last) return tell(out, Kind::text, trimmed(std::string_view(held_).substr(0, at))), false;
      if (end >= at + form.trigger.size()) {  // cut off before it had a name
        tell(out, Kind::text, trimmed(std::string_view(held_).substr(0, at)));
        held_.clear();
        return false;
      }
      break;
    case Match::no: break;
  }
  tell(out, Kind::text, form.anywhere ? at + form.trigger.size() : held_.size());
  return true;
}

// Behind the arguments of a call: another one, or the end.
bool AnswerParser::go_on(Parts& out, bool last) {
  const CallForm& form = form_->calls;
  std::size_t end = 0, next = 0;
  std::string_view name;
  const Match another = form.between.empty() ? Match::no : match_call(form.between, next, name);
  if (another == Match::wholly) {
    const std::string whose(name);
    held_.erase(0, next);
    begin_call(out, whose);
    return true;
  }
  if (another == Match::partly && !last) return false;
  const Match over = match(form.end, end);
  if (over == Match::partly && !last) return false;
  if (over == Match::partly) return held_.clear(), false;
  if (over == Match::wholly) held_.erase(0, end);
  state_ = State::before_text;
  return true;
}

bool AnswerParser::read_header(Parts& out, bool last) {
  const std::size_t at = held_.find(kMessage);
  if (at == std::string::npos) {
    if (last && !began_) tell(out, Kind::text, held_.size());  // it has no channels after all
    if (last) held_.clear();
    return false;
  }
  const std::string header = held_.substr(0, at);
  held_.erase(0, at + kMessage.size());
  state_ = State::message;
  const std::size_t to = header.find("to="), name = header.find(kChannel);
  if (to != std::string::npos) {
    channel_ = Kind::call_begin;
    const std::size_t function = header.find(kTo);
    if (function == std::string::npos || !options_.calls) return true;
    const std::size_t from = function + kTo.size();
    begin_call(out, std::string_view(header).substr(from, letters(header, from) - from));
    return true;
  }
  const std::string_view channel =
      name == std::string::npos ? "" : std::string_view(header).substr(name + kChannel.size());
  channel_ = channel.empty() || channel.starts_with("final") ? Kind::text : Kind::reasoning;
  return true;
}

bool AnswerParser::read_message(Parts& out, bool last) {
  std::size_t end = std::string::npos, size = 0, open = 0;
  for (const std::string_view mark : kMessageEnds) {
    const std::size_t at = held_.find(mark);
    if (at < end) end = at, size = mark.size();
    open = std::max(open, begun(held_, mark));
  }
  const bool over = end != std::string::npos;
  const std::size_t count = over ? end : held_.size() - (last ? 0 : open);
  if (channel_ == Kind::call_begin) held_.erase(0, count);  // of a tool that nobody offered
  else tell(out, channel_, count);
  if (!over) return false;
  held_.erase(0, size);
  state_ = State::header;
  return true;
}

// The arguments, up to the bracket that closes them.
bool AnswerParser::take_arguments(Parts& out) {
  std::size_t at = 0;
  bool whole = false;
  for (; at < held_.size() && !whole; ++at) {
    const char c = held_[at];
    if (escaped_) escaped_ = false;
    else if (quoted_ && c == '\\') escaped_ = true;
    else if (c == '"') quoted_ = !quoted_;
    else if (quoted_) continue;
    else if (c == '{' || c == '[') ++depth_;
    else if ((c == '}' || c == ']') && --depth_ <= 0) whole = true;
  }
  tell(out, Kind::call_arguments, at);
  if (!whole) return false;
  out.push_back({.kind = Kind::call_end, .call = calls_ - 1});
  state_ = form_->channels ? State::message : State::called;
  channel_ = Kind::call_begin;
  return true;
}

// A mark against the text at `at`, which moves behind what fits of it.
AnswerParser::Match AnswerParser::match(std::string_view pattern, std::size_t& at) const {
  for (const char c : pattern) {
    if (at == held_.size()) return Match::partly;
    if (c == CallForm::kId) {
      const std::size_t end = letters(held_, at);
      if (end == at) return Match::no;
      at = end;
      if (at == held_.size()) return Match::partly;
    } else if (held_[at++] != c) {
      return Match::no;
    }
  }
  return Match::wholly;
}

AnswerParser::Match AnswerParser::match_call(std::string_view opening, std::size_t& at,
                                             std::string_view& name) const {
  if (const Match m = match(opening, at); m != Match::wholly) return m;
  const std::size_t from = at;
  at = letters(held_, at);
  if (at - from > kMostName) return Match::no;
  if (at == held_.size()) return Match::partly;
  name = std::string_view(held_).substr(from, at - from);
  return name.empty() ? Match::no : match(form_->calls.middle, at);
}

void AnswerParser::tell(Parts& out, Kind kind, std::size_t count) {
  if (count == 0) return;
  began_ = true;
  const bool call = kind == Kind::call_arguments;
  if (!out.empty() && out.back().kind == kind) out.back().text.append(held_, 0, count);
  else out.push_back({.kind = kind, .text = held_.substr(0, count), .call = call ? calls_ - 1 : -1});
  held_.erase(0, count);
}

void AnswerParser::begin_call(Parts& out, std::string_view name) {
  out.push_back({.kind = Kind::call_begin,
                 .text = std::string(name),
                 .call = calls_,
                 .id = call_id(options_.seed, calls_, form_->calls.id_length)});
  ++calls_;
  began_ = true;
  depth_ = 0;
  quoted_ = escaped_ = false;
  state_ = State::arguments;
}

void AnswerMessage::add(const AnswerPart& part) {
  switch (part.kind) {
    case Kind::reasoning: reasoning += part.text; break;
    case Kind::text: text += part.text; break;
    case Kind::call_begin: calls.push_back({.id = part.id, .name = part.text}); break;
    case Kind::call_arguments: calls.back().arguments += part.text; break;
    case Kind::call_end: calls.back().whole = true; break;
  }
}

bool AnswerMessage::called() const {
  return std::ranges::any_of(calls, [](const Call& call) { return call.whole; });
}

}  // namespace rapt
