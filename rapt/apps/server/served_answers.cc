// SPDX-License-Identifier: Apache-2.0
// From a request to the messages that a template reads, and to a grammar.
#include "rapt/apps/server/served_answers.h"

#include <algorithm>

#include "rapt/base/rng.h"
#include "rapt/base/sha256.h"
#include "rapt/text/answer_grammar.h"
#include "rapt/text/grammar/constraint.h"
#include "rapt/text/prompt.h"

namespace rapt::server {
namespace {

// An id of a call as short as the template wants it: its own where it is, else one that follows from it.
std::string short_id(std::string_view id, std::size_t length) {
  static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  const bool plain = std::ranges::all_of(
      id, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); });
  if (plain && id.size() == length) return std::string(id);
  std::uint64_t key = 0x6964;
  for (const char c : id) key = mix_key(key, static_cast<unsigned char>(c));
  std::string out;
  for (std::uint64_t i = 0; i < length; ++i) out += kLetters[random_below(62, key, i)];
  return out;
}

std::string call_text(const Json& call) {  // in the plain form
  const Json& function = *call.find("function");
  const Json* arguments = function.find("arguments");
  return concat("{\"name\": ", function.find("name")->dump(0), ", \"arguments\": ",
                arguments->is_string() ? std::string(arguments->string()) : arguments->dump(0), "}");
}

std::string introduction(const ToolRequest& tools) {
  std::string out = "You can call these functions, each with a JSON schema of its arguments:\n";
  for (const ToolFunction& f : tools.functions) {
    Json one;
    one.set("name", f.name);
    if (!f.description.empty()) one.set("description", f.description);
    if (!f.parameters.is_null()) one.set("parameters", f.parameters);
    out += one.dump(0) + "\n";
  }
  return out + "To call one, answer with nothing but {\"name\": its name, \"arguments\": {its arguments}}.";
}

}  // namespace

ServedAnswers::ServedAnswers(const ChatTemplate* chat, std::shared_ptr<const Tokenizer> tokenizer,
                             std::vector<std::int32_t> ends)
    : tokenizer_(std::move(tokenizer)), ends_(std::move(ends)), plain_(plain_call_form()) {
  std::vector<std::string> stops;
  for (const std::int32_t id : ends_)
    if (id >= 0 && id < tokenizer_->size()) stops.push_back(tokenizer_->text_of(id));
  if (chat) form_ = learn_answer_form(*chat, chat_options(*tokenizer_), stops);
  plain_form_ = form_;
  plain_form_.calls = plain_;
  shown_ids_ = form_ids(form_, *tokenizer_);
}

// -------------------------------------------------------------------------------------------------- prompts
Json ServedAnswers::messages(const CompletionRequest& asked) const {
  const CallForm& form = calls();
  const ToolRequest& tools = asked.tools;
  if (tools.active() && form.plain && tools.choice == ToolRequest::Choice::automatic)
    throw ApiError(
        400, "unsupported_parameter",
        "'tools': this model's chat template has no words for functions, so the model cannot decide "
        "by itself to call one; set tool_choice to \"required\" or name a function.",
        "tools");
  const bool changes = form.plain || form.arguments_as_text || form.id_length > 0;
  if (!changes) return asked.messages;

  Json::Array out;
  out.reserve(asked.messages.array().size());
  for (const Json& message : asked.messages.array()) {
    Json m = message;
    if (const Json* id = m.find("tool_call_id"); id && form.id_length > 0)
      m.set("tool_call_id", short_id(id->string(), form.id_length));
    if (const Json* list = message.find("tool_calls")) {
      Json::Array calls;
      std::string text = message.find("content")->string();
      for (const Json& call : list->array()) {
        Json c = call;
        if (form.plain) text += (text.empty() ? "" : "\n") + call_text(call);
        if (const Json* id = c.find("id"); id && form.id_length > 0)
          c.set("id", short_id(id->string(), form.id_length));
        const Json& function = *call.find("function");
        if (const Json* arguments = function.find("arguments");
            form.arguments_as_text && arguments && !arguments->is_string()) {
          Json f = function;
          f.set("arguments", arguments->dump(0));
          c.set("function", std::move(f));
        }
        calls.push_back(std::move(c));
      }
      if (!form.plain) {
        m.set("tool_calls", std::move(calls));
      } else {  // as it was said; the template knows nothing else
        m = Json();
        m.set("role", "assistant");
        m.set("content", text);
      }
    }
    const std::string_view role = message.find("role")->string();
    if (form.plain && (role == "tool" || role == "function")) {
      m = Json();
      m.set("role", "user");
      m.set("content", concat("Result of the call: ", std::string_view(message.find("content")->string())));
    }
    out.push_back(std::move(m));
  }
  if (form.plain && tools.active()) {
    Json& first = out[0];
    first.set("content",
              concat(introduction(tools), "\n\n", std::string_view(first.find("content")->string())));
  }
  return out;
}

Json ServedAnswers::variables(const CompletionRequest& asked) const {
  Json out = asked.variables;
  if (asked.tools.active() && !calls().plain) out.set("tools", asked.tools.for_template());
  return out;
}

void ServedAnswers::set_form(CompletionRequest& asked, std::string_view prompt) const {
  asked.form = asked.tools.active() && calls().plain ? &plain_form_ : &form_;
  asked.thought = prompt_thought(form_, prompt);
  const bool told_apart = asked.tools.active() || form_.channels || !form_.think_begin.empty();
  if (!told_apart || asked.format.kind == AnswerFormat::Kind::grammar)
    asked.form = nullptr, asked.thought = PromptThought::none;
}

// ------------------------------------------------------------------------------------------------- grammars
std::shared_ptr<const Constraint> ServedAnswers::constraint(const CompletionRequest& asked) {
  const bool functions = asked.tools.active();
  if (!functions && asked.format.kind == AnswerFormat::Kind::text) return nullptr;
  if (functions && asked.format.kind == AnswerFormat::Kind::grammar)
    throw ApiError(400, "invalid_value",
                   concat("'", asked.format.path, "': a grammar and tools do not go together."),
                   asked.format.path);
  std::vector<std::int32_t> ends = ends_;
  ends.insert(ends.end(), asked.stop_token_ids.begin(), asked.stop_token_ids.end());
  try {
    return make_constraint(grammar(asked), std::move(ends), asked.min_tokens);
  } catch (const GrammarError& e) {
    const std::string& at = e.path().empty() ? asked.format.path : e.path();
    throw ApiError(400, e.keyword().empty() ? "invalid_value" : "unsupported_parameter", e.what(), at);
  }
}

std::shared_ptr<const TokenGrammar> ServedAnswers::grammar(const CompletionRequest& asked) {
  AnswerRules rules{.thought = asked.thought,
                    .required = asked.tools.choice == ToolRequest::Choice::required,
                    .parallel = asked.tools.parallel};
  if (rules.required && asked.tools.allowed.size() == 1) rules.parallel = false;  // one that is named, once
  using Kind = AnswerFormat::Kind;
  const Kind kind = asked.format.kind;
  rules.text = kind == Kind::json_object   ? AnswerRules::Text::json_object
               : kind == Kind::json_schema ? AnswerRules::Text::schema
                                           : AnswerRules::Text::any;
  rules.schema = asked.format.schema;
  rules.schema_where = asked.format.path;
  if (asked.tools.active())
    for (const ToolFunction& f : asked.tools.functions)
      if (asked.tools.allows(f.name)) rules.functions.push_back({f.name, f.parameters, f.path});

  // Strings are written with their lengths or as JSON, so that different requests have different texts.
  std::string text =
      concat(static_cast<int>(kind), static_cast<int>(asked.thought), rules.required, rules.parallel,
             asked.chat, " ", asked.format.grammar.size(), " ", asked.format.grammar, rules.schema.dump(0));
  for (const AnswerRules::Function& f : rules.functions)
    text += concat(" ", f.name.size(), f.name, f.parameters.dump(0));
  const Key key = sha256(text);
  {
    const std::lock_guard hold(lock_);
    if (const auto it = known_.find(key); it != known_.end()) {
      made_.splice(made_.begin(), made_, it->second);
      return made_.front().second;
    }
    if (!trie_) trie_ = make_token_trie(*tokenizer_);
  }
  static const AnswerForm none;
  std::shared_ptr<const Grammar> grammar =
      kind == Kind::grammar
          ? grammar_from_gbnf(asked.format.grammar, asked.format.path)
          : answer_grammar(asked.chat && asked.form ? *asked.form : none, rules, *tokenizer_);
  std::shared_ptr<const TokenGrammar> made = make_token_grammar(std::move(grammar), trie_);
  const std::lock_guard hold(lock_);
  if (const auto it = known_.find(key); it != known_.end()) return it->second->second;
  made_.emplace_front(key, made);
  known_[key] = made_.begin();
  forget_some();
  return made;
}

// The longest unused go first. Masks come while answers are written, so all are counted anew.
void ServedAnswers::forget_some() {
  std::size_t memory = 0;
  for (const auto& [key, grammar] : made_) memory += memory_of(*grammar);
  while (made_.size() > 1 && (made_.size() > kMostGrammars || memory > kMostGrammarMemory)) {
    memory -= memory_of(*made_.back().second);
    known_.erase(made_.back().first);
    made_.pop_back();
  }
}

}  // namespace rapt::server
