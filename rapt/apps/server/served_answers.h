// SPDX-License-Identifier: Apache-2.0
// What requests of one model want of the form of its answers: conversations as its template reads them, the
// constraint on the answer, and how it is told apart. Grammars that were made stay, for requests come again
// and again with the same schema.
#pragma once
#include <array>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/apps/server/protocol_request.h"
#include "rapt/text/answer_form.h"
#include "rapt/text/constraint.h"
#include "rapt/text/tokenizer/tokenizer.h"

namespace rapt {
class TokenTrie;
class TokenGrammar;
}  // namespace rapt

namespace rapt::server {

class ServedAnswers {
 public:
  // That are kept, with their masks; the one asked for last always is.
  static constexpr std::size_t kMostGrammars = 64, kMostGrammarMemory = std::size_t{128} << 20;
  // chat: null without a template. ends: ids that end an answer.
  ServedAnswers(const ChatTemplate* chat, std::shared_ptr<const Tokenizer> tokenizer,
                std::vector<std::int32_t> ends);

  // The messages and the variables for the template. Fails where functions are offered (automatically) that
  // the template has no words for.
  Json messages(const CompletionRequest& asked) const;
  Json variables(const CompletionRequest& asked) const;
  // Sets how the answer behind this prompt is told apart: CompletionRequest::form and thought.
  void set_form(CompletionRequest& asked, std::string_view prompt) const;
  const std::vector<std::int32_t>& shown_ids() const { return shown_ids_; }
  // What the template has words for.
  bool knows_calls() const { return form_.calls.known(); }
  bool knows_thoughts() const { return form_.channels || !form_.think_begin.empty(); }

  // After set_form(). null: anything may be answered. Fails with an ApiError 400 that names the schema's
  // keyword and place. Any thread; takes up to a fifth of a second where the grammar is new.
  std::shared_ptr<const Constraint> constraint(const CompletionRequest& asked);

 private:
  const CallForm& calls() const { return form_.calls.known() ? form_.calls : plain_; }
  std::shared_ptr<const TokenGrammar> grammar(const CompletionRequest& asked);
  void forget_some();  // under lock_

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::vector<std::int32_t> ends_;
  AnswerForm form_;  // as the template shows it
  CallForm plain_;  // where it shows no calls
  AnswerForm plain_form_;  // form_ with these
  std::vector<std::int32_t> shown_ids_;

  using Key = std::array<std::byte, 32>;  // a hash of all that the grammar depends on
  std::mutex lock_;
  std::shared_ptr<const TokenTrie> trie_;  // made for the first grammar
  std::list<std::pair<Key, std::shared_ptr<const TokenGrammar>>> made_;  // the latest used in front
  std::map<Key, decltype(made_)::iterator> known_;
};

}  // namespace rapt::server
