// SPDX-License-Identifier: Apache-2.0
// Trainings of the public face: rapt/use/training.h with options in public words.
#include "rapt/api/state.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/use/train_options.h"

namespace rapt::api {
namespace {

TrainingPlan plan_of(const std::string& recipe, const TrainOptions& o) {
  if (o.data.empty()) fail_usage("train: what to learn from? TrainOptions::data is empty");
  if (o.folder.empty())
    fail_usage("train: where to? TrainOptions::folder, which gets the saved states and the model, is empty");
  TrainingPlan plan{.recipe = recipe,
                    .settings = o.recipe,
                    .data = {},
                    .objective = {},
                    .batch = {},
                    .length = {},
                    .options = {}};
  plan.data.path = o.data;
  plan.data.held_out = o.held_out;
  plan.data.tokenizer = o.tokenizer;
  plan.data.vocab.kind = static_cast<VocabKind>(o.vocabulary);
  plan.data.vocab.size = o.vocabulary_size;
  if (o.objective != Objective::own)
    plan.objective = static_cast<rapt::Objective>(static_cast<int>(o.objective) - 1);
  if (o.batch > 0) plan.batch = o.batch;
  if (o.length > 0) plan.length = o.length;
  Json keys = Json::Object{};
  keys.set("steps", o.steps);
  keys.set("seed", static_cast<std::int64_t>(o.seed));
  for (const std::string& text : o.settings) {
    const Setting setting = parse_setting(text);
    keys.set(setting.key, setting.value);
  }
  plan.options = parse_train_options(keys, "train");
  return plan;
}
static_assert(static_cast<int>(VocabKind::characters) == static_cast<int>(Vocabulary::characters) &&
              static_cast<int>(VocabKind::bytes) == static_cast<int>(Vocabulary::bytes) &&
              static_cast<int>(VocabKind::bpe) == static_cast<int>(Vocabulary::bpe));
static_assert(static_cast<int>(rapt::Objective::causal) + 1 == static_cast<int>(Objective::causal) &&
              static_cast<int>(rapt::Objective::masked) + 1 == static_cast<int>(Objective::masked) &&
              static_cast<int>(rapt::Objective::translation) + 1 ==
                  static_cast<int>(Objective::translation) &&
              static_cast<int>(rapt::Objective::classification) + 1 ==
                  static_cast<int>(Objective::classification));

HeldOut outside(const Judgement& j) { return {.loss = j.loss, .accuracy = j.accuracy, .counted = j.counted}; }

}  // namespace

Training::Training(const std::string& recipe, const TrainOptions& options)
    : state_(std::make_shared<TrainingState>()) {
  state_->device = Access::of(options.device);
  state_->folder = options.folder;
  state_->run = std::make_unique<TrainingRun>(state_->device->device, plan_of(recipe, options));
  std::string passed_over;
  try {
    state_->run->open_folder(options.folder, options.anew,
                             [&](const std::string& text) { passed_over += text + "\n"; });
  } catch (const Error& e) {
    throw Error(passed_over + e.what(), e.kind());
  }
}

bool Training::run(const TrainEvents& events) {
  std::atomic<int> stop{0};
  rapt::TrainEvents inside;
  if (events.step)
    inside.step = [&](const StepReport& r) {
      const bool skipped = r.fate != StepReport::Fate::done;
      if (!events.step({.step = r.step,
                        .loss = r.loss,
                        .norm = r.norm,
                        .rate = r.rate,
                        .tokens = r.tokens,
                        .seconds = r.seconds,
                        .skipped = skipped,
                        .why = r.why}))
        stop = 1;
    };
  if (events.judged) inside.judged = [&](Dim step, const Judgement& j) { events.judged(step, outside(j)); };
  if (events.saved) inside.saved = [&](const Stored& s) { events.saved(s.folder); };
  inside.say = events.say;
  if (!state_->run->run(inside, stop)) return false;
  state_->run->finish();
  return true;
}

std::int64_t Training::steps() const { return state_->run->trainer->steps(); }
HeldOut Training::judge() { return outside(state_->run->trainer->judge()); }
std::string Training::folder() const { return state_->folder; }

Model Training::model() const {
  auto model = std::make_shared<ModelState>();
  model->device = state_->device;
  model->checkpoint = state_->run->checkpoint;
  model->opened = false;
  model->extras = state_->run->extras();
  model->data = state_->run->data;
  return Access::handle(std::move(model));
}

}  // namespace rapt::api
