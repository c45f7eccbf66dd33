// SPDX-License-Identifier: Apache-2.0
// How the answers of one model look: where what it thinks stands, and how it calls functions. Nobody writes
// this down for a model; its chat template shows it, for it renders earlier answers in the form in which the
// model learned to give them. A conversation with marked texts is rendered, and the marks are looked for:
//   <tool_call>\n{"name": "MARK", "arguments": {"KEY": "VALUE"}}\n</tool_call><|im_end|>
//   begin                        middle                           end
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "rapt/text/chat_template.h"

namespace rapt {

// One answer with calls reads
//   text? begin NAME middle ARGUMENTS (between NAME middle ARGUMENTS)* end
// with ARGUMENTS a JSON object.
struct CallForm {
  std::string begin, middle, between, end;  // kId: where the id of a call stands that the model invents
  // The first characters of `begin` that nothing but a call has. anywhere: text may come before them; else a
  // call begins with the answer or not at all.
  std::string trigger;
  bool anywhere = false;
  // Earlier calls are given to the template with their arguments as text, or it fails.
  bool arguments_as_text = false;
  // Ids of calls are shown by the template and have this length ("abcdef012"); 0: they are not shown.
  std::size_t id_length = 0;
  // Not the template's: it knows no calls. The form is JSON, and a sentence of ours tells the model
  // (plain_call_form).
  bool plain = false;

  static constexpr char kId = '\0';
  bool known() const { return !middle.empty(); }
};

struct AnswerForm {
  // What is thought comes first, between these: "<think>", "</think>"; "": nothing is told apart.
  std::string think_begin, think_end;
  // Thoughts, text and calls are messages of one answer, each with a header (channels.h says how).
  // text_begin: that of the text.
  bool channels = false;
  std::string text_begin;
  CallForm calls;
};

// `stops`: texts of the ids that end an answer. What the template does not show is empty. Never fails; takes
// as long as rendering a dozen short conversations.
AnswerForm learn_answer_form(const ChatTemplate& chat, const ChatOptions& options,
                             std::span<const std::string> stops);
// What a prompt ends with: the beginning of a thought, or the end of one that was left empty, so that the
// answer has none.
enum class PromptThought { none, begun, ended };
PromptThought prompt_thought(const AnswerForm& form, std::string_view prompt);
// {"name": "…", "arguments": {…}}, for models whose template knows no calls.
CallForm plain_call_form();

}  // namespace rapt
