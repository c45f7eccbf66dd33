// SPDX-License-Identifier: Apache-2.0
// POST /v1/train/run: what is asked is read and bounded, the training is put together as `rapt train` does
// it, on the run's own thread; only where that succeeds the run begins. Without a folder its states are in
// memory, and no file is opened.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <future>

#include "rapt/apps/server/protocol_fields.h"
#include "rapt/apps/server/train_events.h"
#include "rapt/base/text.h"
#include "rapt/lab/lab_text.h"
#include "rapt/nn/size.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/report/document.h"
#include "rapt/use/metrics_file.h"

namespace rapt::server {
namespace {

constexpr double kMostParameters = 50e6;
constexpr Dim kMostSteps = 100'000, kMostBatchTokens = 65'536, kMostLayers = 256, kMostContext = 1 << 20;
constexpr std::size_t kLeastText = 200, kMostText = 1 << 20, kMostName = 64;
constexpr Dim kLooks = 40, kJudged = 20, kHealth = 100;  // of a run

using Kind = FieldRule::Kind;

struct Asked {
  std::optional<Recipe> recipe;
  std::string preset;
  std::vector<std::string> settings;
  std::string text, name, vocab = "characters", prompt = "\n";
  Dim steps = 300, batch = 12, length = 64, seed = 0, warmup = 0, every = 0;
  std::optional<double> rate;
  std::string schedule, optimizer;
};

const Field<Asked> kFields[] = {
    {{"recipe", Kind::object, 0, 0, 1000},
     [](Asked& a, const Json& v, std::string_view) { a.recipe = parse_recipe(v.dump(0)); }},
    {{"preset", Kind::string, 1, 64},
     [](Asked& a, const Json& v, std::string_view) { a.preset = v.string(); }},
    {{"settings", Kind::strings, 1, 256, 64},
     [](Asked& a, const Json& v, std::string_view) {
       if (v.is_string()) a.settings.emplace_back(v.string());
       else
         for (const Json& s : v.array()) a.settings.emplace_back(s.string());
     }},
    {{"text", Kind::string, 0, kMostText},
     [](Asked& a, const Json& v, std::string_view) { a.text = v.string(); }},
    {{"name", Kind::string, 1, kMostName},
     [](Asked& a, const Json& v, std::string_view) { a.name = v.string(); }},
    {{"vocab", Kind::string, 1, 16, 0, "characters|bytes"},
     [](Asked& a, const Json& v, std::string_view) { a.vocab = v.string(); }},
    {{"prompt", Kind::string, 1, 256},
     [](Asked& a, const Json& v, std::string_view) { a.prompt = v.string(); }},
    {{"steps", Kind::integer, 1, kMostSteps},
     [](Asked& a, const Json& v, std::string_view) { a.steps = v.integer(); }},
    {{"batch", Kind::integer, 1, 512},
     [](Asked& a, const Json& v, std::string_view) { a.batch = v.integer(); }},
    {{"length", Kind::integer, 2, 4096},
     [](Asked& a, const Json& v, std::string_view) { a.length = v.integer(); }},
    {{"seed", Kind::integer, 0, 9007199254740991.0},
     [](Asked& a, const Json& v, std::string_view) { a.seed = v.integer(); }},
    {{"rate", Kind::number, 0, 100}, [](Asked& a, const Json& v, std::string_view) { a.rate = v.number(); }},
    {{"warmup", Kind::integer, 0, kMostSteps},
     [](Asked& a, const Json& v, std::string_view) { a.warmup = v.integer(); }},
    {{"schedule", Kind::string, 1, 16, 0, "constant|cosine|inverse_sqrt|wsd"},
     [](Asked& a, const Json& v, std::string_view) { a.schedule = v.string(); }},
    {{"optimizer", Kind::string, 1, 16, 0, "adamw|adam|sgd|muon"},
     [](Asked& a, const Json& v, std::string_view) { a.optimizer = v.string(); }},
    {{"look_every", Kind::integer, 1, kMostSteps},
     [](Asked& a, const Json& v, std::string_view) { a.every = v.integer(); }},
};

// A name is a name and no way: it becomes a folder's.
void check_name(const std::string& name) {
  const auto bad = [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  };
  if (name.starts_with('.') || name.starts_with(' ') || name.ends_with(' ') ||
      std::any_of(name.begin(), name.end(), bad))
    bad_field("name", "letters, digits and signs other than / and \\, not beginning with a dot, are wanted");
}

void check_sizes(const Asked& a, const Recipe& recipe) {
  for (const auto* stack : {&recipe.encoder, &recipe.decoder})
    if (*stack && (*stack)->depth() > kMostLayers)
      throw ApiError(
          400, "invalid_value",
          concat("the recipe has ", (*stack)->depth(), " layers; up to ", kMostLayers, " are trained here"),
          "recipe");
  if (recipe.context > kMostContext)
    throw ApiError(400, "invalid_value",
                   concat("the recipe's context is ", recipe.context, "; up to ", with_commas(kMostContext),
                          " is trained here"),
                   "recipe");
  if (recipe.embed.patches || (recipe.encoder && recipe.decoder) ||
      recipe.head.kind != HeadRecipe::Kind::vocab)
    throw ApiError(400, "invalid_value",
                   "this recipe does not learn from one text: it reads pictures, translates or tells classes "
                   "apart. Choose one that goes on with texts or fills gaps; `rapt train` trains the others",
                   "recipe");
  if (a.batch * a.length > kMostBatchTokens)
    bad_field("batch", concat("a batch of ", a.batch, " sequences of ", a.length, " tokens has ",
                              with_commas(a.batch * a.length), " tokens; up to ",
                              with_commas(kMostBatchTokens), " are possible"));
  Recipe counted = recipe;
  counted.vocab = std::max<Dim>(counted.vocab, 1);
  if (a.vocab == "bytes" || counted.vocab > 4096) counted.vocab = 257;  // the text decides
  counted.context = std::max(counted.context, a.length);
  const auto parameters = static_cast<double>(count_parameters(resolve(counted)).total);
  if (parameters > kMostParameters)
    throw ApiError(
        400, "invalid_value",
        concat("the model has ", short_count(parameters), " parameters; up to ", short_count(kMostParameters),
               " are trained here. Make it smaller with settings: width=64, layers=2, ffn=128"),
        "settings");
}

TrainingPlan plan_of(const Asked& a) {
  TrainingPlan plan;
  const bool named = !a.preset.empty();
  if (named && a.recipe) bad_field("preset", "give a preset or a recipe, not both");
  plan.recipe = named ? a.preset : a.recipe ? a.recipe->name : "gpt-char";
  plan.own = a.recipe ? *a.recipe : preset(plan.recipe);
  plan.settings = a.settings;
  if (!named && !a.recipe && a.settings.empty()) plan.settings = {"width=64", "layers=2", "heads=4"};
  check_sizes(a, with_settings(*plan.own, plan.settings));
  DataOptions& d = plan.data;
  d.path = "the text";
  d.text = std::make_shared<const std::string>(a.text.empty() ? std::string(lab_texts()[0].text) : a.text);
  if (d.text->size() < kLeastText)
    bad_field("text", concat("it has ", counted(static_cast<Dim>(d.text->size()), "byte"), "; at least ",
                             Dim{kLeastText},
                             " are wanted, or there is nothing to learn and nothing to hold "
                             "out"));
  d.vocab.kind = a.vocab == "bytes" ? VocabKind::bytes : VocabKind::characters;
  plan.batch = a.batch, plan.length = a.length;
  Json options = Json::Object{{"steps", a.steps}, {"seed", a.seed}, {"schedule.warmup", a.warmup}};
  const auto every = [&](Dim times) { return (a.steps + times - 1) / times; };
  options.set("eval_every", std::min<Dim>(every(kJudged), 250));
  options.set("eval_batches", 4);
  options.set("health_every", every(kHealth));
  options.set("save_every", every(10));
  if (a.rate) options.set("optimizer.rate", *a.rate);
  if (!a.schedule.empty()) options.set("schedule.kind", a.schedule);
  if (!a.optimizer.empty()) options.set("optimizer.kind", a.optimizer);
  plan.options = parse_train_options(options, "train");
  return plan;
}

// The folder of a run that is kept; nothing is ever written over.
std::string make_folder(const std::string& parent, std::string& name) {
  for (int number = 1;; ++number) {
    const std::string own = name.empty() ? concat("training-", number) : name,
                      path = concat(parent, "/", own);
    if (::mkdir(path.c_str(), 0755) == 0) {
      name = own;
      return path;
    }
    const int error = errno;
    if (error == EEXIST && name.empty() && number < 100'000) continue;
    if (error == EEXIST)
      bad_field("name", concat("there is a training of the name '", name, "' already; choose another one"));
    throw ApiError(503, "not_saved",
                   concat("the folder of trainings cannot be written: ", std::strerror(error)));
  }
}

// Puts it together, says so by `ready`, and trains.
void run_training(Workshop::Bench& bench, const Asked& asked, TrainingPlan plan, const WorkshopOptions& shop,
                  std::promise<void>& ready) {
  std::optional<Device> device;
  std::optional<TrainingRun> run;
  std::optional<TrainTeller> teller;
  std::optional<MetricsFile> metrics;
  std::string folder, name = asked.name;
  const Json told = plan_json(plan);
  const TrainOptions options = plan.options;
  std::vector<std::string> notes;
  try {
    device.emplace(DeviceOptions{.threads = shop.threads});
    run.emplace(*device, std::move(plan), [&](const std::string& text) { notes.push_back(text); });
    if (static_cast<double>(run->checkpoint->model->parameters()) > kMostParameters)
      throw ApiError(400, "invalid_value",
                     concat("with the text's vocabulary the model has ",
                            short_count(static_cast<double>(run->checkpoint->model->parameters())),
                            " parameters; up to ", short_count(kMostParameters), " are trained here"));
    if (!shop.folder.empty()) {
      folder = make_folder(shop.folder, name);
      run->open_folder(folder, false, [](const std::string&) {});
      metrics.emplace(folder + "/metrics.jsonl", -1);
      metrics->begin(0, told, run->checkpoint->model->recipe, run->data->about());
    } else {
      run->open_memory();
    }
    teller.emplace(bench, *device, *run,
                   TrainTeller::Options{.name = name, .prompt = asked.prompt, .steps = options.steps});
  } catch (...) {
    if (!folder.empty()) ::rmdir(folder.c_str());  // where it is empty
    ready.set_exception(std::current_exception());
    throw;
  }
  bench.about(
      {{"name", name}, {"parameters", run->checkpoint->model->parameters()}, {"saved", !folder.empty()}});
  teller->begin(told);
  ready.set_value();
  for (const std::string& text : notes) teller->say(0, text);
  const Dim every = asked.every > 0 ? asked.every : (options.steps + kLooks - 1) / kLooks;
  std::atomic<int> stop = 0;
  TrainEvents events;
  teller->look(0, true, true);
  events.step = [&](const StepReport& r) {
    if (metrics) metrics->step(r);
    teller->step(r);
    // Of a long run the beginning more often: attention forms there.
    const bool early = r.step >= 8 && r.step < every && (r.step & (r.step - 1)) == 0;
    if (r.fate == StepReport::Fate::done && (r.step % every == 0 || early)) teller->look(r.step, true);
    if (bench.stopped()) stop = 1;
  };
  events.judged = [&](Dim step, const Judgement& j) {
    if (metrics) metrics->judged(step, j);
    teller->judged(step, j);
  };
  events.say = [&](const std::string& text) {
    if (metrics) metrics->event(run->trainer->steps(), text);
    teller->say(run->trainer->steps(), text);
  };
  bool done = false;
  try {
    done = run->run(events, stop);
    teller->look(run->trainer->steps(), true, true);
    if (metrics) metrics->write_curves(folder);
    if (done) {
      run->finish();
      if (metrics) metrics->event(run->trainer->steps(), "finished");
    }
    teller->flush();
  } catch (const Error& e) {
    teller->flush();
    if (metrics) metrics->event(run->trainer->steps(), concat("failed: ", e.what()));
    throw;
  }
  if (!done) throw Workshop::Stopped{};
}

}  // namespace

std::string Workshop::train(const Json& body, std::size_t key) {
  Asked asked;
  read_fields<Asked>(kFields, asked, body, "", true);
  if (!asked.name.empty()) check_name(asked.name);
  TrainingPlan plan = plan_of(asked);
  const auto ready = std::make_shared<std::promise<void>>();
  std::future<void> begun = ready->get_future();
  Json::Array settings;
  for (const std::string& s : plan.settings) settings.emplace_back(valid_text(s));
  Json::Object about = {{"name", asked.name},
                        {"recipe", plan.recipe},
                        {"settings", settings},
                        {"steps", asked.steps},
                        {"rate", plan.options.optimizer.rate},
                        {"seed", asked.seed}};
  const std::string id = begin("train", std::move(about), key,
                               [this, asked = std::move(asked), plan = std::move(plan), ready](Bench& bench) {
                                 run_training(bench, asked, plan, options_, *ready);
                               });
  try {
    begun.get();
  } catch (...) {
    drop(id);
    throw;
  }
  return Json(Json::Object{{"id", id}}).dump(0);
}

}  // namespace rapt::server
