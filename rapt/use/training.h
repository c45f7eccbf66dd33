// SPDX-License-Identifier: Apache-2.0
// A training put together: a recipe or a model to go on from, data, trainer, the folder of its states, the
// model folder at its end. What `rapt train` and the public face share.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rapt/load/checkpoint.h"
#include "rapt/load/model_folder.h"
#include "rapt/use/train.h"

namespace rapt {

struct TrainingPlan {
  // A preset, a recipe's file, or a model to go on from (its weights, its tokenizer).
  std::string recipe;
  std::optional<Recipe> own = {};  // instead: a recipe that is no file; `recipe` is its name then
  // … or a model in memory, whose weights are copied; `recipe` is its name.
  std::shared_ptr<const Checkpoint> start = {};
  std::vector<std::string> settings;   // of the recipe: "width=128"
  DataOptions data;                    // objective, batch, length, seed and encoder_decoder are filled in
  std::optional<Objective> objective;  // absent: by the recipe
  // absent: 12, or 32 where texts have an end; 256, or the recipe's context
  std::optional<Dim> batch, length;
  TrainOptions options;
  std::shared_ptr<const TrainData> own_data = {};  // instead of what `data` names (own_data.h)
};
// As values: recipe, settings, data (keys are the flags of `rapt train`; what the recipe decides is filled
// in), options. Equal ones are the same run. Fails where the recipe, its settings, a number of the data's
// options or of the optimizer's does; no data is read, of a model the headers.
Json plan_json(TrainingPlan plan);

// What a run would begin from; fills in what the recipe decides about the data. Of a model only the headers
// are read.
Recipe fill_plan(TrainingPlan& plan);

class TrainingRun {
 public:
  using Say = std::function<void(const std::string&)>;
  // Reads the data and makes the model; what does not fit the machine's memory is refused before it is made.
  // `note` hears what was chosen otherwise than the recipe says. With `comm`, one of several ranks, each of
  // which has one (train.h): all calls but sample() are calls of them all, folders are rank 0's, and what is
  // said or heard is so on rank 0.
  TrainingRun(Device& device, TrainingPlan plan, const Say& note = {}, Comm* comm = nullptr);

  // Where states are saved: one run at a time. `anew`: what an earlier run left there is removed. Returns
  // the step of the state that the run will go on from, -1 where there is none; fails where there are
  // states and none is whole.
  Dim open_folder(const std::string& folder, bool anew, const Say& say);
  void leave_folder();  // others may go on with it; nothing is saved any more
  // … or in memory: nothing is written, and states are gone with this object.
  void open_memory();
  // train() on that folder; a saved state is a model folder of its own.
  bool run(TrainEvents events, const std::atomic<int>& stop);
  // The same step by step: end() of what is returned is the end of a run.
  std::unique_ptr<TrainLoop> begin(TrainEvents events);
  // After a run that came to its end: averages take the place of the weights where the options say so;
  // judged once more; the model goes to model/ of the folder (in memory: nowhere, `model` is "").
  struct Finished {
    Judgement held_out;
    std::string model;
  };
  Finished finish();

  // Text from the model as it is now: a continuation of the prompt, or the translation of the first held-out
  // source; "" where it writes none. A prompt with characters that the vocabulary lacks gives way to the
  // first token of the data. `step` is the seed.
  std::string sample(Device& device, const std::string& prompt, Dim step) const;

  FolderExtras extras() const;  // of the model folder
  const DataOptions& data_options() const { return plan_.data; }

  // Weights as they are now, with the tokenizer of the data. Not to be read while a step runs.
  std::shared_ptr<Checkpoint> checkpoint = std::make_shared<Checkpoint>();
  std::shared_ptr<const TrainData> data;
  std::unique_ptr<Trainer> trainer;

 private:
  Comm& comm() const { return trainer->comm(); }
  Recipe open_start(Device& device);
  void fit_data(const Device& device, Recipe& recipe, const Say& note);
  void make_model(const Device& device, Recipe recipe);
  void with_description(TrainEvents& events) const;
  void check_memory(const Device& device, const Recipe& recipe) const;

  TrainingPlan plan_;
  std::shared_ptr<const TokenizerFiles> tokenizer_files_;  // of the model
  std::unique_ptr<Fs> memory_;
  std::optional<Store> store_;
};

}  // namespace rapt
