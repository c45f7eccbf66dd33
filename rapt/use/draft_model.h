// SPDX-License-Identifier: Apache-2.0
// A smaller model with the same vocabulary, asked what it would say behind texts: guesses for the engine
// (use/speculate.h). It reads texts into a pool of its own, says some tokens ahead, and forgets those that
// did not come true.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/nn/kv_pool.h"
#include "rapt/run/run.h"

namespace rapt {

// Fails with the first difference where the two do not have the same tokens.
void check_same_tokens(const Checkpoint& draft, const Checkpoint& model);

class DraftModel {
 public:
  // Fails where it writes no text, or where its memory cannot be cut back by a few tokens.
  DraftModel(Device& device, const Checkpoint& draft, DType cache, std::size_t budget);

  // What comes behind prompt and answer? `take` is given the logits behind what there is, and says which
  // token comes; below 0: that will do.
  struct Question {
    std::uint64_t sequence;  // the same text, or it and more, has the same number
    std::span<const std::int32_t> prompt, answer;
    Dim most;
    std::function<std::int32_t(std::span<const float> logits)> take;
    Dim length() const { return static_cast<Dim>(prompt.size() + answer.size()); }
  };
  // Of each text that is not read at most so many rows are read, and `take` is not called before that is
  // done. Where there is no room, or the text is too long for it, nothing comes. Never fails.
  void ask(std::span<const Question> questions, Dim rows) noexcept;
  Dim unread(const Question& question) const;
  void drop(std::uint64_t sequence);

  // Learned: a pass that says a token of each text, a row that reads.
  double pass_seconds() const { return pass_seconds_; }
  double row_seconds() const { return row_seconds_; }
  KvPool& pool() { return pool_; }  // for tests

 private:
  struct Text {
    Dim sure = 0;  // tokens of it that are read
    std::vector<std::int32_t> guessed = {};  // … and of what was guessed behind them
  };
  // Some tokens of a question's text in a pass.
  struct Part {
    const Question* question;
    Dim count;
    bool last = false;
    std::vector<std::int32_t> guessed = {};  // said so far
  };
  void answer(std::span<const Question> questions, Dim rows);
  void settle(const Question& question);
  void pass(std::vector<Part>& parts);
  bool take(std::vector<Part>& parts);
  static std::int32_t token(const Question& q, Dim i);

  const Model& model_;
  KvPool pool_;
  Run run_;
  Tensor logits_;
  std::vector<float> wide_;
  std::unordered_map<std::uint64_t, Text> texts_;
  double pass_seconds_ = 0, row_seconds_ = 0;
  int passes_ = 0, reads_ = 0;  // that these are of
};

}  // namespace rapt
