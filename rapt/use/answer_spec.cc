// SPDX-License-Identifier: Apache-2.0
// A grammar for one answer, made from the model's template and what was asked for.
#include "rapt/use/answer_spec.h"

#include "rapt/text/answer_grammar.h"
#include "rapt/text/grammar/constraint.h"
#include "rapt/text/prompt.h"

namespace rapt {

SpecifiedAnswer specify_answer(const Checkpoint& c, const AnswerSpec& spec, const ChatTemplate* chat,
                               std::span<const std::int32_t> prompt, std::vector<std::int32_t> ends) {
  if (!c.tokenizer) fail("an answer of a form needs a tokenizer, and ", c.path, " has none");
  const Tokenizer& t = *c.tokenizer;
  SpecifiedAnswer out;
  std::shared_ptr<const Grammar> grammar;
  if (!spec.grammar.empty()) {
    grammar = grammar_from_gbnf(spec.grammar);
  } else {
    if (chat) {
      std::vector<std::string> stops;
      for (const std::int32_t id : ends) stops.push_back(t.text_of(id));
      out.form = learn_answer_form(*chat, chat_options(t), stops);
      out.form.calls = {};
      out.thought = prompt_thought(out.form, t.decode(prompt, true));
      out.shown_ids = form_ids(out.form, t);
    }
    AnswerRules rules{.thought = out.thought, .schema_where = "schema"};
    rules.text = spec.schema ? AnswerRules::Text::schema : AnswerRules::Text::json_object;
    if (spec.schema) rules.schema = *spec.schema;
    grammar = answer_grammar(out.form, rules, t);
  }
  out.constraint =
      make_constraint(make_token_grammar(std::move(grammar), make_token_trie(t)), std::move(ends));
  return out;
}

}  // namespace rapt
