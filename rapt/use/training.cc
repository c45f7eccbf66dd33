// SPDX-License-Identifier: Apache-2.0
// What the data decides (vocabulary, classes) is filled into the recipe after the data was read; what cannot
// fit memory is refused before.
#include "rapt/use/training.h"

#include <algorithm>
#include <filesystem>

#include "rapt/base/memory.h"
#include "rapt/base/text.h"
#include "rapt/io/memory_fs.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/report/document.h"
#include "rapt/use/data_parts.h"
#include "rapt/use/generate.h"
#include "rapt/use/picture_files.h"
#include "rapt/use/together.h"
#include "rapt/use/train_options.h"
#include "rapt/use/weights.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

Objective objective_of(const Recipe& r, const std::string& data) {
  if (r.embed.patches) return Objective::classification;
  if (r.encoder && r.decoder) return Objective::translation;
  if (r.head.kind == HeadRecipe::Kind::classes || data.find('=') != std::string::npos)
    return Objective::classification;
  return r.decoder ? Objective::causal : Objective::masked;
}

// Of a recipe that has no files beside it: all of a picture at the size of its patches, colours from -1 to 1.
ImageProcess plain_process(const PatchRecipe& p) {
  return {.type = "ViTImageProcessor",
          .height = p.rows * p.size,
          .width = p.columns * p.size,
          .mean = {0.5, 0.5, 0.5},
          .std = {0.5, 0.5, 0.5}};
}

std::string process_json(const ImageProcess& p) {
  Json size = Json::Object{}, out = Json::Object{};
  if (p.shortest_edge > 0) size.set("shortest_edge", p.shortest_edge);
  else size.set("height", p.height), size.set("width", p.width);
  out.set("image_processor_type", p.type);
  out.set("do_resize", p.resize);
  out.set("size", std::move(size));
  out.set("resample", static_cast<std::int64_t>(p.resample));
  out.set("do_center_crop", p.center_crop);
  if (p.center_crop) {
    Json crop = Json::Object{};
    crop.set("height", p.crop_height), crop.set("width", p.crop_width);
    out.set("crop_size", std::move(crop));
  }
  out.set("do_rescale", p.rescale);
  out.set("rescale_factor", p.rescale_factor);
  out.set("do_normalize", p.normalize);
  for (const auto& [key, values] : {std::pair{"image_mean", p.mean}, std::pair{"image_std", p.std}})
    out.set(key, Json::Array{Json(values[0]), Json(values[1]), Json(values[2])});
  return out.dump() + "\n";
}

// Settings of a plan whose recipe is a model, which has weights already.
void refuse_settings(const TrainingPlan& plan) {
  if (!plan.settings.empty())
    fail_usage("--set ", plan.settings[0], ": ", plan.recipe,
               " is a model with weights; its recipe cannot be changed");
}

template <class E>
Json named(E value) {
  return Json(names_of(E{})[static_cast<std::size_t>(value)]);
}

// What training begins from; of a model only the headers are read.
Recipe plan_recipe(const TrainingPlan& plan) {
  if (plan.start) {
    refuse_settings(plan);
    return plan.start->model->recipe;
  }
  if (plan.own) return with_settings(*plan.own, plan.settings);
  const std::string path = find_model_unless_recipe(plan.recipe);
  if (path.empty()) return with_settings(find_recipe(plan.recipe), plan.settings);
  refuse_settings(plan);
  return checkpoint_recipe(path);
}

// What the recipe decides about the data where the plan leaves it open.
void fill_data(TrainingPlan& plan, const Recipe& recipe) {
  DataOptions& d = plan.data;
  if (plan.own_data) plan.objective = plan.own_data->objective;
  d.objective = plan.objective.value_or(objective_of(recipe, d.path));
  d.encoder_decoder = recipe.encoder && recipe.decoder;
  if (data::is_task(d.path) && d.encoder_decoder) d.objective = Objective::translation;
  d.seed = plan.options.seed;
  d.batch = plan.batch.value_or(d.objective == Objective::causal ? 12 : 32);
  d.length = plan.length.value_or(std::min<Dim>(recipe.context, 256));
  if (recipe.embed.patches) d.length = 2;  // of no sense here
}

}  // namespace

Recipe fill_plan(TrainingPlan& plan) {
  Recipe recipe = plan_recipe(plan);
  fill_data(plan, recipe);
  return recipe;
}

Json plan_json(TrainingPlan plan) {
  fill_plan(plan);
  if (!plan.own_data) check_data(plan.data);
  check_optimizer(plan.options.optimizer);
  const DataOptions& d = plan.data;
  Json::Array settings;
  for (const std::string& s : plan.settings) settings.emplace_back(valid_text(s));
  if (plan.own_data)
    return Json::Object{{"recipe", valid_text(plan.recipe)},
                        {"settings", std::move(settings)},
                        {"data", Json::Object{{"data", valid_text(plan.own_data->about())},
                                              {"objective", named(d.objective)}}},
                        {"options", train_options_json(plan.options)}};
  return Json::Object{{"recipe", valid_text(plan.recipe)},
                      {"settings", std::move(settings)},
                      {"data", Json::Object{{"data", valid_text(d.path)},
                                            {"held-out", valid_text(d.held_out)},
                                            {"share", d.share},
                                            {"objective", named(d.objective)},
                                            {"tokenizer", valid_text(d.tokenizer)},
                                            {"vocab", named(d.vocab.kind)},
                                            {"vocab-size", d.vocab.size},
                                            {"lower", d.vocab.lower},
                                            {"batch", d.batch},
                                            {"length", d.length},
                                            {"batch-tokens", d.batch_tokens},
                                            {"windows", named(d.windows)},
                                            {"documents", d.documents},
                                            {"begin", d.begin},
                                            {"mask-share", d.mask_share}}},
                      {"options", train_options_json(plan.options)}};
}

TrainingRun::TrainingRun(Device& device, TrainingPlan plan, const Say& note, Comm* comm)
    : plan_(std::move(plan)) {
  Recipe recipe = open_start(device);
  fit_data(device, recipe, comm && comm->rank() > 0 ? Say{} : note);
  data = plan_.own_data ? plan_.own_data : open_data(plan_.data);
  plan_.data.progress = {};
  make_model(device, std::move(recipe));
  trainer = std::make_unique<Trainer>(device, *checkpoint->model, *data, plan_.options, comm);
  trainer->check_memory(available_memory());
}

void TrainingRun::check_memory(const Device& device, const Recipe& recipe) const {
  check_train_memory(resolve(recipe), plan_.options.optimizer, device.real, available_memory(),
                     plan_.options.accumulate);
}

// What training begins from: a recipe, or a model with its weights and tokenizer.
Recipe TrainingRun::open_start(Device& device) {
  if (plan_.start) {
    Recipe recipe = plan_recipe(plan_);
    check_memory(device, recipe);
    *checkpoint = copy_checkpoint(*plan_.start, device.real);
    if (plan_.data.tokenizer.empty()) plan_.data.own_tokenizer = checkpoint->tokenizer;
    return recipe;
  }
  const std::string path = plan_.own ? "" : find_model_unless_recipe(plan_.recipe);
  if (path.empty()) return plan_recipe(plan_);
  refuse_settings(plan_);
  check_memory(device, checkpoint_recipe(path));
  LoadOptions load{.real = device.real, .matrices = device.real};
  load.device = &device;
  *checkpoint = open_checkpoint(path, load);
  if (plan_.data.tokenizer.empty() && checkpoint->tokenizer) plan_.data.tokenizer = checkpoint->path;
  return checkpoint->model->recipe;
}

// What the recipe decides about the data, and the other way round.
void TrainingRun::fit_data(const Device& device, Recipe& recipe, const Say& note) {
  fill_data(plan_, recipe);
  DataOptions& d = plan_.data;
  if (recipe.embed.patches) {
    d.pictures = {*recipe.embed.patches, checkpoint->model ? image_process_of(*checkpoint, "train")
                                                           : plain_process(*recipe.embed.patches)};
    return;
  }
  if (checkpoint->model) return;
  if (recipe.context < d.length) {
    if (note)
      note(concat("note: --length ", d.length, " is above the recipe's context of ", recipe.context,
                  ": the model gets a context of ", d.length));
    recipe.context = d.length;
  }
  if (recipe.embed.pos == EmbedRecipe::Pos::learned && d.length < recipe.context && note)
    note(concat("note: the recipe learns ", recipe.context, " positions, and sequences of ", d.length,
                " tokens reach no others; --set context=", d.length,
                " leaves those out, a longer --length trains them"));
  // What does not fit without its vocabulary, which the data decides, is refused before the data is read.
  Recipe least = recipe;
  least.vocab = 1;
  check_memory(device, least);
}

// The model as it is trained: new weights where it had none, with the tokenizer of the data.
void TrainingRun::make_model(const Device& device, Recipe recipe) {
  if (!checkpoint->model) {
    recipe.vocab = data->vocab;
    if (plan_.data.objective == Objective::classification) {
      // As BERT's classifier: the first row through a dense layer and tanh.
      if (recipe.embed.patches && recipe.head.kind != HeadRecipe::Kind::classes) {
        recipe.head.kind = HeadRecipe::Kind::classes;
        recipe.head.width = 0;
        recipe.head.bias = true;
        if (recipe.head.pool == HeadRecipe::Pool::first && !recipe.embed.patches->cls)
          recipe.head.pool = HeadRecipe::Pool::mean;
      }
      if (recipe.head.kind != HeadRecipe::Kind::classes)
        recipe.head = {.kind = HeadRecipe::Kind::classes,
                       .pool = recipe.decoder ? HeadRecipe::Pool::last : HeadRecipe::Pool::first,
                       .bias = true,
                       .transform = HeadTransform{.act = Act::tanh, .norm = std::nullopt}};
      recipe.head.classes = data->classes;
    }
    check_memory(device, recipe);
    checkpoint->model = std::make_unique<Model>(resolve(recipe), device.real);
    init(*checkpoint->model, plan_.options.seed);
  }
  // A program's own data may know ids only; then a model's tokenizer stays.
  if (plan_.own_data && !data->tokenizer && checkpoint->tokenizer) {
    tokenizer_files_ = std::make_shared<TokenizerFiles>(tokenizer_files(*checkpoint->tokenizer));
  } else {
    checkpoint->tokenizer = data->tokenizer;
    checkpoint->decoder_start = data->start;
    if (data->tokenizer_files) tokenizer_files_ = {data, &*data->tokenizer_files};
  }
  if (data->stop >= 0) checkpoint->stops = {data->stop};
}

Dim TrainingRun::open_folder(const std::string& folder, bool anew, const Say& say) {
  const auto keep = static_cast<int>(std::max<Dim>(2, plan_.options.average));
  const std::string step = on_rank_0(comm(), [&] {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) fail(folder, ": the folder cannot be made: ", error.message());
    store_.emplace(folder, real_fs(), keep);
    store_->claim();  // one run at a time
    bool states = false;
    for (const std::string& entry : real_fs().list(folder)) {
      if (anew && (entry.starts_with("step-") || entry == "metrics.jsonl"))
        real_fs().remove_all((fs::path(folder) / entry).string());
      states = states || (!anew && entry.starts_with("step-"));
    }
    const std::optional<Stored> before = store_->latest(say);
    if (states && !before)
      fail(folder,
           ": none of the saved states is whole (see above); give another --out, or --force to begin anew");
    return std::to_string(before ? before->step : -1);
  });
  if (!store_) store_.emplace(folder, real_fs(), keep);
  return std::stoll(step);
}

void TrainingRun::leave_folder() {
  if (store_) store_->release();
}

void TrainingRun::open_memory() {
  memory_ = std::make_unique<MemoryFs>();
  store_.emplace("memory", *memory_, static_cast<int>(std::max<Dim>(2, plan_.options.average)));
}

std::string TrainingRun::sample(Device& device, const std::string& prompt, Dim step) const {
  if (!checkpoint->tokenizer ||
      (data->objective != Objective::causal && data->objective != Objective::translation))
    return "";
  GenerateOptions o;
  o.max_tokens = 100;
  o.sampler.seed = static_cast<std::uint64_t>(step);
  Session session(device, *checkpoint, {});
  if (data->objective == Objective::translation) {
    if (data->held_out() == 0) return "";
    const TrainBatch b = data->held_out_batch(0);
    const Sequence& s = b.source_sequences.front();
    const std::span<const std::int32_t> source(b.source.data() + s.first, static_cast<std::size_t>(s.count));
    o.sampler.temperature = 0;
    return concat(checkpoint->tokenizer->decode(source), " → ", session.translate(source, o).front().text);
  }
  std::string begin = prompt;
  std::vector<std::int32_t> ids;
  try {
    ids = checkpoint->tokenizer->encode(begin);
  } catch (const Error&) {  // it has characters that the data has not: as the data begins, then
    const std::vector<std::int32_t> tokens = data->batch(0).tokens;
    if (!tokens.empty()) begin = checkpoint->tokenizer->decode(ids = {tokens.front()});
  }
  if (ids.empty()) return "";
  return begin + session.generate(ids, o).front().text;
}

FolderExtras TrainingRun::extras() const {
  FolderExtras extras;
  const Tokenizer* tokenizer = checkpoint->tokenizer.get();
  extras.tokenizer = tokenizer_files_;
  extras.decoder_start = checkpoint->decoder_start;
  extras.class_names = data->class_names;
  if (tokenizer) extras.bos = tokenizer->bos, extras.eos = tokenizer->eos, extras.pad = tokenizer->pad;
  if (data->stop >= 0) extras.eos = data->stop;
  if (data->pad >= 0) extras.pad = data->pad;
  if (plan_.data.pictures) extras.preprocessor = process_json(plan_.data.pictures->process);
  return extras;
}

// With these files a saved state is a model folder.
void TrainingRun::with_description(TrainEvents& events) const {
  events.extra_files = [this] {
    FolderExtras own = extras();
    own.own = true;
    std::vector<StoredFile> files;
    for (auto& [file, bytes] : model_folder_description(*checkpoint->model, own))
      files.push_back({file, std::move(bytes)});
    return files;
  };
}

bool TrainingRun::run(TrainEvents events, const std::atomic<int>& stop) {
  with_description(events);
  return train(*trainer, plan_.options, *store_, events, stop);
}

std::unique_ptr<TrainLoop> TrainingRun::begin(TrainEvents events) {
  with_description(events);
  return std::make_unique<TrainLoop>(*trainer, plan_.options, *store_, std::move(events));
}

TrainingRun::Finished TrainingRun::finish() {
  comm().at({.phase = Phase::ending, .step = trainer->steps()});
  trainer->finish(*store_);
  Finished done{.held_out = trainer->judge(plan_.options.eval_batches),
                .model = memory_ ? "" : (fs::path(store_->folder()) / "model").string()};
  if (memory_) return done;
  on_rank_0(comm(), [&] {
    write_model_folder(*checkpoint->model, extras(), done.model, true);
    return "";
  });
  return done;
}

}  // namespace rapt
