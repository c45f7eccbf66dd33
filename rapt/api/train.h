// SPDX-License-Identifier: Apache-2.0
// Training a recipe, or a model further. What is saved and when, guards against bad steps, and every key of
// `settings`: docs/training.md.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rapt/api/model.h"

namespace rapt::RAPT_FACE {

enum class Objective { own, causal, masked, translation, classification };  // own: by the recipe
enum class Vocabulary { characters, bytes, bpe };

struct TrainOptions {
  // A text file, a folder of them, parallel lines ("a.de,a.en"), labelled ones
  // ("german=a.de,english=a.en"), a file made by `rapt data`, or a task: "copy", "sort", "date".
  std::string data{};
  std::string held_out{};  // "": the last tenth of the data is kept apart
  // Gets the saved states and, at the end, model/; a run that finds states here goes on from them.
  std::string folder{};
  std::int64_t steps = 1000;
  std::uint64_t seed = 0;  // of starting values, order of the data, dropout
  Objective objective = Objective::own;
  Vocabulary vocabulary = Vocabulary::bpe;  // made from the data,
  std::int64_t vocabulary_size = 4096;  // bpe: so large,
  std::string tokenizer{};  // unless a folder or GGUF file has one
  std::int64_t batch = 0;  // sequences of a batch; 0: 12, or 32 where texts have an end
  std::int64_t length = 0;  // tokens of one; 0: 256, or the recipe's context
  std::vector<std::string> recipe{};  // changes of the recipe: "width=128"
  // Of the training: "optimizer.rate=1e-3", "schedule.kind=cosine", "save_every=100".
  std::vector<std::string> settings{};
  bool anew = false;  // removes what an earlier run left in the folder
  Device device{};
};

struct TrainStep {
  std::int64_t step = 0;  // finished ones, this one included
  double loss = 0, norm = 0, rate = 0;  // norm: of the gradient
  std::int64_t tokens = 0;
  double seconds = 0;
  bool skipped = false;  // a loss or gradient out of line: the weights stayed as they were
  std::string why;  // of a skip
};

struct HeldOut {
  double loss = 0, accuracy = 0;  // per target that counts
  std::int64_t counted = 0;
};

struct TrainEvents {  // all may be absent
  std::function<bool(const TrainStep&)> step{};  // false: the run saves its state and stops
  std::function<void(std::int64_t step, const HeldOut&)> judged{};
  std::function<void(const std::string& folder)> saved{};
  std::function<void(const std::string&)> say{};  // every decision, in words
};

class RAPT_API Training {
 public:
  // `recipe`: a preset, a recipe's file, or a model to go on from (its weights, its tokenizer).
  explicit Training(const std::string& recipe, const TrainOptions& options);

  // Goes on from the newest state of the folder, to the last step: true, and model/ is written. False
  // where the callback stopped it; called again, or by a program that starts tomorrow, it goes on with the
  // same bits as a run that was never stopped.
  bool run(const TrainEvents& events = {});

  std::int64_t steps() const;  // finished ones
  HeldOut judge();  // the held-out part, with the weights as they are
  Model model() const;  // shares these weights: not to be used while run() computes
  std::string folder() const;

 private:
  friend struct Access;
  std::shared_ptr<struct TrainingState> state_;
};

}  // namespace rapt::RAPT_FACE
