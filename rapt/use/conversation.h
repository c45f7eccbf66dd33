// SPDX-License-Identifier: Apache-2.0
// A conversation as the model reads it: turns through the chat template, or one text that goes on. What no
// longer fits the context is left out from its beginning, whole turns at a time; the system message stays.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/text/chat_template.h"
#include "rapt/use/generate.h"

namespace rapt {

// The checkpoint's chat template; nothing where it has none. Fails with its line and column.
std::optional<ChatTemplate> open_chat_template(const Checkpoint& checkpoint);
// A text as this model's prompt: the source of an encoder-decoder in its frame, else text_ids()
// (text/prompt.h).
std::vector<std::int32_t> prompt_ids(const Checkpoint& checkpoint, std::string_view text,
                                     bool special = false);

// The first of `turns` that is read again: 0 where all of them fit `most` tokens, else one with which at
// most `half` are read, so that not every later turn has to leave something out. tokens(n): of a prompt that
// leaves the first n out.
std::size_t first_turn(std::size_t turns, Dim most, Dim half, const std::function<Dim(std::size_t)>& tokens);

// Who listens to an answer.
struct ReplyHooks {
  Session::OnToken on_token = {};
  Session::OnPrompt on_prompt = {};
  // Turns or tokens that are not read any more, before the pass that leaves them out.
  std::function<void(std::size_t)> on_left_out = {};
  const std::atomic<bool>* cancel = nullptr;
};

class Conversation {
 public:
  struct Turn {
    std::string user, answer;
  };
  // Without a template it is one text that goes on. The checkpoint must outlive it.
  Conversation(const Checkpoint& checkpoint, std::optional<ChatTemplate> chat)
      : checkpoint_(checkpoint), template_(std::move(chat)) {}

  std::string system;  // the system message of the template; "": none. It may change between turns
  // Without a template: names of special tokens in the user's text become these tokens.
  bool special = false;

  bool has_template() const { return template_.has_value(); }
  // The prompt for one more message of the user, behind it `answered` tokens of an answer that has begun.
  // `context`: tokens of prompt and answer, 0 for one without end; `most`: tokens of the answer, -1: as
  // many as there is room for.
  // Says how many turns (or, without a template, tokens) it had to leave out for the first time.
  struct Prompt {
    std::vector<std::int32_t> ids;
    std::size_t left_out = 0;
  };
  Prompt prompt(const std::string& user, Dim context, Dim most = -1,
                std::span<const std::int32_t> answered = {});
  void add(const std::string& user, const Prompt& prompt, const Generated& answer);

  // One turn: prompt, generate (its first sample), add. An answer that fills the context goes on without
  // the oldest turns, where there are some. `context` as above.
  Generated reply(Session& session, const std::string& user, const GenerateOptions& options, Dim context,
                  const ReplyHooks& hooks = {});

  bool undo();  // the last turn; false where there is none
  void clear();
  const std::vector<Turn>& turns() const { return turns_; }

  Json json() const;  // messages as chat APIs have them: [{"role", "content"}, …]
  void load(const Json& messages);

 private:
  const Checkpoint& checkpoint_;
  std::optional<ChatTemplate> template_;
  std::vector<Turn> turns_;
  std::size_t first_ = 0;  // turns that are not read any more
  std::vector<std::int32_t> text_;  // without a template: everything so far
  std::vector<std::vector<std::int32_t>> earlier_;  // … and before each turn
};

}  // namespace rapt
