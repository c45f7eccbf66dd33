// SPDX-License-Identifier: Apache-2.0
// What an answer may be, as a grammar: the form of this model's answers (answer_form.h) with what a request
// wants of it. Thoughts are free text; behind them come
//   no functions:  TEXT                  automatic:  TEXT, then calls or none; a call once its trigger stands
//   required:      calls                 there. TEXT: any, or JSON of a schema
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/text/answer_form.h"
#include "rapt/text/grammar/builder.h"

namespace rapt {

class Tokenizer;

struct AnswerRules {
  PromptThought thought = PromptThought::none;  // … of the prompt
  // The text: any, an object, of this schema.
  enum class Text { any, json_object, schema } text = Text::any;
  Json schema;
  std::string schema_where;  // its name in errors
  struct Function {
    std::string name;
    Json parameters;  // null: none
    std::string where;
  };
  std::vector<Function> functions;  // those that may be called
  bool required = false, parallel = true;
};

// The control tokens that the form is written with: GenerateOptions::shown_ids.
std::vector<std::int32_t> form_ids(const AnswerForm& form, const Tokenizer& tokenizer);
// Fails with a GrammarError whose path begins with the `where` of the schema at fault and goes on with dots.
std::shared_ptr<const Grammar> answer_grammar(const AnswerForm& form, const AnswerRules& rules,
                                              const Tokenizer& tokenizer);

}  // namespace rapt
