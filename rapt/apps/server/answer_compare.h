// SPDX-License-Identifier: Apache-2.0
// Two answers to one prompt with one seed, A as it was asked for and B under other edits, and by how much
// they part (`rapt.compare`). Both are written first. Then each model reads what both said, A's tokens up to
// the first that differs, and where a row of one meets that of the other at the same place they are reduced
// to their divergence: of the logits no more is kept than a slice of rows.
//
//   AnswerCompare c(model, edits of A, edits of B);
//   engine: both requests, with taps(1) for B;  c.set_answers(a, b)
//   while (c.left()) engine: both of c.next_slice(…), until they are done
//   c.json()
#pragma once
#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rapt/apps/server/served_model.h"
#include "rapt/inspect/edits.h"

namespace rapt::server {

class AnswerCompare {
 public:
  static constexpr Dim kMostPlaces = 1024;  // whose distributions are compared
  // Fails where an edit cannot work.
  AnswerCompare(ServedModel& model, const std::vector<Edit>& a, const std::vector<Edit>& b);
  AnswerCompare(const AnswerCompare&) = delete;
  AnswerCompare& operator=(const AnswerCompare&) = delete;

  // Edits of a side alone; nullptr where it has none.
  Taps* taps(int side) { return touched_[at(side)] ? &taps_[at(side)] : nullptr; }
  void check_touched() const;  // fails where an edit of B's changed nothing
  // Both have ended, behind a prompt of so many tokens.
  void set_answers(const Generated& a, const Generated& b, Dim prompt);
  bool reads() const { return reading_; }  // the answers are there
  bool left() const { return done_ < places_; }
  // From what was asked of both for their answers: the next rows to be read. All of them are seen before the
  // slice after them is asked for.
  std::array<Request, 2> next_slice(const std::array<Request, 2>& answers);
  std::string json() const;  // "\"compare\":{…}"

 private:
  static std::size_t at(int side) { return static_cast<std::size_t>(side); }
  void see(int side, std::span<const Dim> positions, const Tensor& rows);
  void meet(Dim place, std::span<const float> a, std::span<const float> b);

  ServedModel& model_;
  std::array<Taps, 2> taps_;
  std::array<std::function<void()>, 2> touched_;
  std::array<std::vector<std::int32_t>, 2> chosen_;  // with the id that ended it
  std::array<std::uint64_t, 2> hashes_{};
  bool reading_ = false;
  Dim prompt_ = 0, same_ = 0;  // tokens of the prompt; that both chose
  Dim places_ = 0, done_ = 0;  // compared behind the same tokens; … seen by both
  std::map<Dim, std::vector<float>> rows_;  // of a slice: those of the side that came first
  std::vector<double> kl_;  // by place
  std::array<std::array<float, 2>, 2> logprobs_{};  // where they part: [whose token][who says it]
};

}  // namespace rapt::server
