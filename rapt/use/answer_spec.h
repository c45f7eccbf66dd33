// SPDX-License-Identifier: Apache-2.0
// What an answer must be, as one says it beside a prompt: JSON, JSON of a schema, a text of a grammar.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/text/answer_form.h"
#include "rapt/text/constraint.h"

namespace rapt {

struct AnswerSpec {
  std::optional<Json> schema;
  std::string grammar;  // GBNF
  bool json = false;    // any object
  bool any() const { return schema || !grammar.empty() || json; }
};

struct SpecifiedAnswer {
  std::shared_ptr<const Constraint> constraint;
  // How the answer is told apart, where the model may think before it says what was asked for.
  AnswerForm form;
  PromptThought thought = PromptThought::none;
  std::vector<std::int32_t> shown_ids;  // GenerateOptions
};

// chat: the template that wrote the prompt; null: it is a text. ends: Engine::stops(). Fails with a
// GrammarError where the schema or the grammar cannot be meant.
SpecifiedAnswer specify_answer(const Checkpoint& checkpoint, const AnswerSpec& spec, const ChatTemplate* chat,
                               std::span<const std::int32_t> prompt, std::vector<std::int32_t> ends);

}  // namespace rapt
