// SPDX-License-Identifier: Apache-2.0
// An answer told apart while it is written: what the model thinks, what it says, which functions it calls.
//
// What every API writes is made of these parts, in their order:
//   answer = reasoning* (text | call)*      call = call_begin call_arguments* call_end
// - No part but call_begin and call_end is empty; texts are whole characters where the input was.
// - The pieces of a call's arguments, put together, are one JSON object as the model wrote it; where the
//   answer was cut off it may be the beginning of one, and then there is no call_end.
// - White space around what is thought and between text and calls belongs to neither.
// - Pieces depend on the answer alone and what they add up to not on how it was cut: parts of push() after
//   push() are those of one push() of it all, but for where texts are divided.
// The text is that of Event::text, with GenerateOptions::shown_ids: marks of the form that are control tokens
// stand in it as text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rapt/text/answer_form.h"

namespace rapt {

struct AnswerPart {
  enum class Kind { reasoning, text, call_begin, call_arguments, call_end } kind;
  std::string text = {};  // call_begin: the function's name; call_arguments: a piece of JSON
  int call = -1;  // of a call: its number, from 0
  std::string id = {};  // call_begin: "call_…", or as short as the template wants it
};

class AnswerParser {
 public:
  struct Options {
    bool thinks = false;  // the prompt has begun a thought already
    bool calls = false;  // functions were offered; else what looks like a call is text
    bool must_call = false;  // … and one is called: what begins a call and was cut off is no text
    std::string seed = {};  // ids of calls follow from it: the reply's id and the choice's number
  };
  AnswerParser(const AnswerForm& form, Options options);  // the form must outlive it
  std::vector<AnswerPart> push(std::string_view text);
  std::vector<AnswerPart> finish();  // what was held back; push() no more
  int calls() const { return calls_; }  // that have begun

 private:
  using Parts = std::vector<AnswerPart>;
  enum class State { start, before_thought, thought, before_text, text, arguments, called, header, message };
  enum class Match { no, partly, wholly };
  // Each takes what it can from held_; false: it waits for more, which never comes after the `last`.
  bool step(Parts& out, bool last);
  bool begin(bool last);
  bool think(Parts& out, bool last);
  bool write(Parts& out, bool last);
  bool go_on(Parts& out, bool last);
  bool read_header(Parts& out, bool last);
  bool read_message(Parts& out, bool last);

  Match match(std::string_view pattern, std::size_t& at) const;
  Match match_call(std::string_view opening, std::size_t& at, std::string_view& name) const;
  void tell(Parts& out, AnswerPart::Kind kind, std::size_t count);
  void begin_call(Parts& out, std::string_view name);
  bool take_arguments(Parts& out);

  const AnswerForm* form_;
  Options options_;
  State state_ = State::start;
  std::string held_;  // not told apart yet
  bool began_ = false;  // something was told already
  int calls_ = 0;
  // Inside of arguments: brackets that are open, a string, behind its backslash.
  int depth_ = 0;
  bool quoted_ = false, escaped_ = false;
  AnswerPart::Kind channel_ = AnswerPart::Kind::text;  // of the message; call_begin: to nobody we know
};

// A whole answer.
struct AnswerMessage {
  struct Call {
    std::string id, name, arguments;
    bool whole = false;
  };
  std::string reasoning, text;
  std::vector<Call> calls;
  void add(const AnswerPart& part);
  bool called() const;  // a call is whole
};

}  // namespace rapt
