// SPDX-License-Identifier: Apache-2.0
// A conversation as the model reads it: turns through the chat template, or one text that goes on. What no longer fits the context is
// left out from its beginning, whole turns at a time; the system message stays.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rapt/apps/cli/chat.h"

namespace rapt::cli {

struct Turn {
  std::string user, answer;
};

// The first of `turns` that is read again: 0 where all of them fit `most` tokens, else one with which at most `half` are read, so that
// not every later turn has to leave something out. tokens(n): of a prompt that leaves the first n out.
std::size_t first_turn(std::size_t turns, Dim most, Dim half, const std::function<Dim(std::size_t)>& tokens);

class Conversation {
 public:
  Conversation(const Checkpoint& checkpoint, const ChatSettings& settings);

  bool has_template() const { return template_.has_value(); }
  // The prompt for one more message of the user, behind it `answered` tokens of an answer that has begun; 0 for a context without end.
  // Says how many turns (or, without a template, tokens) it had to leave out for the first time.
  struct Prompt {
    std::vector<std::int32_t> ids;
    std::size_t left_out = 0;
  };
  Prompt prompt(const std::string& user, Dim context, std::span<const std::int32_t> answered = {});
  void add(const std::string& user, const Prompt& prompt, const Generated& answer);
  bool undo();  // the last turn; false where there is none
  void clear();
  const std::vector<Turn>& turns() const { return turns_; }

  Json json() const;              // messages as chat APIs have them: [{"role", "content"}, …]
  void load(const Json& messages);

 private:
  const Checkpoint& checkpoint_;
  const ChatSettings& settings_;
  std::optional<ChatTemplate> template_;
  std::vector<Turn> turns_;
  std::size_t first_ = 0;                                // turns that are not read any more
  std::vector<std::int32_t> text_;                       // without a template: everything so far
  std::vector<std::vector<std::int32_t>> earlier_;       // … and before each turn
};

}  // namespace rapt::cli
