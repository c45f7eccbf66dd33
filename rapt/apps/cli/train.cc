// SPDX-License-Identifier: Apache-2.0
// rapt train: a model from a recipe and data.
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <ctime>
#include <filesystem>

#include "rapt/apps/cli/train.h"
#include "rapt/apps/cli/train_ranks.h"
#include "rapt/apps/cli/train_view.h"
#include "rapt/apps/cli/train_watch.h"
#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/use/metrics_file.h"
#include "rapt/use/train_options.h"
#include "rapt/use/training.h"

namespace rapt::cli {
namespace {

namespace fs = std::filesystem;

std::atomic<int> stop_asked{0};

// The first one lets the step end and saves; a second one does not wait. What was saved is whole either way.
// A launcher may send what the terminal has sent as well, so of several ranks the second one is that which
// comes a moment later.
bool one_of_several = false;
std::atomic<std::time_t> first_signal{0};
extern "C" void on_signal(int signal) {
  Heartbeat::signalled(signal);
  const std::time_t now = std::time(nullptr);
  if (stop_asked.fetch_add(1) == 0) first_signal = now;
  else if (!one_of_several || now > first_signal + 1) _exit(130);
}

template <class E>
E word(const std::string& value, std::string_view flag) {
  constexpr auto names = names_of(E{});
  for (std::size_t i = 0; i < names.size(); ++i)
    if (value == names[i]) return static_cast<E>(i);
  const std::vector<std::string> all(names.begin(), names.end());
  fail_usage(flag, ": '", value, "' is none of ", join(all), "; ", name_hint(value, all));
}

}  // namespace

TrainArgs train_args(Args& args) {
  TrainArgs a{.common = common_args(args)};
  DataOptions& d = a.plan.data;
  const std::optional<std::string> data_path = args.value("data"), out = args.value("out"),
                                   objective = args.value("objective"), vocab = args.value("vocab"),
                                   windows = args.value("windows"), optimizer = args.value("optimizer"),
                                   schedule = args.value("schedule");
  d.held_out = args.value("held-out").value_or("");
  d.share = args.real("share").value_or(0.1);
  d.tokenizer = args.value("tokenizer").value_or("");
  d.vocab.lower = args.flag("lower");
  d.documents = args.flag("documents");
  d.begin = args.flag("begin");
  d.mask_share = args.real("mask-share").value_or(0.15);
  d.vocab.size = args.number("vocab-size", 2, 1 << 20).value_or(4096);
  a.plan.batch = args.number("batch", 1, 1 << 20);
  a.plan.length = args.number("length", 1, 1 << 24);
  d.batch_tokens = args.number("batch-tokens", 1, Dim{1} << 30).value_or(0);
  const std::vector<std::string> settings = args.values("set");
  const std::vector<std::pair<const char*, const char*>> direct = {
      {"steps", "steps"},           {"seed", "seed"},
      {"rate", "optimizer.rate"},   {"warmup", "schedule.warmup"},
      {"eval-every", "eval_every"}, {"eval-batches", "eval_batches"},
      {"save-every", "save_every"}, {"accumulate", "accumulate"},
      {"smoothing", "smoothing"}};
  Json options_json = Json::Object{};
  for (const auto& [flag, key] : direct)
    if (const std::optional<double> v = args.real(flag))
      options_json.set(key, whole_number(*v) ? Json(*whole_number(*v)) : Json(*v));
  if (optimizer) options_json.set("optimizer.kind", *optimizer);
  if (schedule) options_json.set("schedule.kind", *schedule);
  a.force = args.flag("force");
  a.port = args.number("watch-port", 0, 65535);
  a.stay = args.flag("watch-stay");
  a.watch = args.flag("watch") || a.stay || a.port;
  const std::optional<std::string> sample = args.value("sample");
  a.prompt = sample.value_or("\n"), a.own_prompt = sample.has_value();
  a.timeline = args.value("timeline").value_or("");
  a.plan_ranks = args.number("plan", 1, Dim{1} << 20);
  for (const std::string& machine : args.values("plan-machine")) read_plan_machine(machine, a.machine);
  a.plan.recipe = args.operands(1, 1, "one recipe")[0];
  if (!data_path && !a.plan_ranks) fail_usage("what to learn from? --data FILE, or a task: --data copy");
  if (!out && !a.plan_ranks) fail_usage("where to? --out FOLDER gets the saved states and the model");
  d.path = data_path.value_or("");
  a.out = out.value_or("");
  for (const std::string& s : settings) {
    if (s.starts_with("train.")) {
      const Setting setting = parse_setting(s.substr(6));
      options_json.set(setting.key, setting.value);
    } else {
      a.plan.settings.push_back(s);
    }
  }
  a.plan.options = parse_train_options(options_json, "train");
  if (objective) a.plan.objective = word<Objective>(*objective, "--objective");
  d.vocab.kind = vocab ? word<VocabKind>(*vocab, "--vocab") : VocabKind::bpe;
  if (windows) d.windows = word<DataOptions::Windows>(*windows, "--windows");
  return a;
}

namespace {

void stop_on_signals() {
  struct sigaction act{};
  act.sa_handler = on_signal;
  sigemptyset(&act.sa_mask);
  sigaction(SIGINT, &act, nullptr);
  sigaction(SIGTERM, &act, nullptr);
  if (one_of_several) sigaction(SIGUSR1, &act, nullptr);  // what mpirun passes on without ending the ranks
}

void report_end(const TrainArgs& a, const TrainResult& r) {
  const auto& [last, folder] = r.end;
  if (a.common.json) {
    Json j = Json::Object{};
    j.set("steps", r.steps);
    j.set("parameters", r.parameters);
    j.set("held_out_loss", last.loss);
    j.set("held_out_accuracy", last.accuracy);
    j.set("model", folder);
    return print(j.dump() + "\n");
  }
  if (last.counted > 0)
    print(concat("held out: loss ", fixed(last.loss, 4), ", perplexity ", fixed(std::exp(last.loss), 3),
                 ", accuracy ", fixed(100 * last.accuracy, 2), " %\n"));
  print(concat("model: ", folder, " (curves and metrics.jsonl in ", a.out, ")\n"));
  if (r.objective == Objective::causal) print(concat("try: rapt run ", folder, " \"…\"\n"));
  if (r.objective == Objective::translation) print(concat("try: rapt translate ", folder, " \"…\"\n"));
  if (r.objective == Objective::masked) print(concat("try: rapt fill ", folder, " \"… [MASK] …\"\n"));
  if (r.objective == Objective::classification)
    print(concat("try: rapt classify ", folder, r.pictures ? " --image FILE\n" : " \"…\"\n"));
}

// What the first steps of a run do, when: a file for each rank (FILE, FILE.1 …), written when the run ends.
class FirstSteps {
 public:
  FirstSteps(std::string path, Trainer& trainer) : path_(std::move(path)), rank_(trainer.comm().rank()) {
    if (path_.empty()) return;
    if (rank_ > 0) path_ += concat(".", rank_);
    trainer.note_times(&times_, 10);
  }
  ~FirstSteps() {
    if (path_.empty()) return;
    try {
      FileWriter out(path_, true);
      out.write(times_.json(rank_));
      out.commit();
    } catch (const Error& e) {  // the training is worth more
      note(e.what());
    }
  }

 private:
  std::string path_;
  int rank_;
  Timeline times_;
};

}  // namespace

std::optional<TrainResult> train_once(Device& device, const TrainArgs& a, TrainRank* rank) {
  if (stop_asked > 0) return std::nullopt;  // of a sweep: between two runs
  const Dim steps = a.plan.options.steps;
  const Json plan = plan_json(a.plan);
  TrainingPlan asked = a.plan;
  Progress reading("reading data", a.common.quiet);
  asked.data.progress = [&](double done) { reading.step(done, 1); };
  TrainingRun training(device, std::move(asked), a.common.quiet ? TrainingRun::Say{} : note,
                       rank ? &rank->comm() : nullptr);
  reading.clear();
  if (a.own_prompt && training.checkpoint->tokenizer) try {
      training.checkpoint->tokenizer->encode(a.prompt);
    } catch (const Error& e) {
      fail_usage("--sample: ", e.what());
    }
  const Dim resumed = training.open_folder(a.out, a.force, note);
  const FirstSteps first_steps(a.timeline, *training.trainer);
  if (rank && !rank->speaks()) {  // trains along: rank 0 says and writes what there is
    stop_on_signals();
    if (!training.run({}, stop_asked)) return std::nullopt;
    training.finish();
    return std::nullopt;
  }
  MetricsFile metrics((fs::path(a.out) / "metrics.jsonl").string(), resumed);
  TrainView view(steps, a.common.quiet);
  const Model& model = *training.checkpoint->model;
  view.say(concat(model.recipe.name, ": ", short_count(static_cast<double>(model.parameters())),
                  " parameters", model.recipe.vocab > 0 ? concat(", vocabulary ", model.recipe.vocab) : "",
                  "; ", training.data->about(), "; ", counted(device.threads(), "thread"), " (",
                  device.kernels.isa, ")"));
  if (rank)
    if (const std::string ranks = rank->about(device, training, a.plan.options); !ranks.empty())
      view.say(ranks);
  metrics.begin(std::max<Dim>(0, resumed), plan, model.recipe, training.data->about());

  server::TrainTeller* page = nullptr;
  if (a.page) {
    page = &a.page->begin(device, training, fs::path(a.out).filename().string(), steps);
    page->begin(plan);
    if (resumed >= 0) page->earlier((fs::path(a.out) / "metrics.jsonl").string());
    page->look(std::max<Dim>(0, resumed), false, true);
  }
  const Dim looks = (steps + 39) / 40;

  TrainEvents events;
  events.step = [&](const StepReport& r) {
    metrics.step(r);
    view.step(r);
    if (!page) return;
    page->step(r);
    if (r.fate == StepReport::Fate::done && r.step % looks == 0) page->look(r.step, false);
  };
  events.judged = [&](Dim step, const Judgement& j) {
    metrics.judged(step, j);
    view.judged(step, j);
    if (page) page->judged(step, j);
    if (a.common.quiet && !page) return;
    const std::string text = training.sample(device, a.prompt, step);
    view.sample(text);
    if (page) page->sample(step, text);
  };
  events.say = [&](const std::string& text) {
    metrics.event(training.trainer->steps(), text);
    view.say(text);
    if (page) page->say(training.trainer->steps(), text);
  };
  events.saved = [&](const Stored& s) {
    metrics.event(s.step, "saved " + s.folder);
    if (page && s.step == steps) page->look(s.step, false, true);
  };

  stop_on_signals();
  bool done = false;
  try {
    done = training.run(events, stop_asked);
  } catch (const Error& e) {
    view.clear();
    try {
      metrics.event(training.trainer->steps(), concat("failed: ", e.what()));
      metrics.write_curves(a.out);
    } catch (const Error&) {  // the disk is full, say: what came first is the reason
    }
    if (a.page) a.page->end("failed", e.what());
    throw;
  }
  view.clear();
  metrics.write_curves(a.out);
  if (!done) {
    if (a.page) a.page->end("stopped");
    note(concat("stopped after step ", training.trainer->steps(), " of ", steps,
                "; saved. The same command goes on from there."));
    return std::nullopt;
  }
  TrainResult result{.steps = training.trainer->steps(),
                     .parameters = model.parameters(),
                     .objective = training.data_options().objective,
                     .pictures = training.data_options().pictures.has_value(),
                     .end = training.finish()};
  metrics.event(result.steps, "finished");
  if (a.page) a.page->end("done");
  return result;
}

namespace {

// As this rank of the job; the result where it is rank 0's and the run came to its end.
std::optional<TrainResult> train_as_rank(Comm& comm, const Launch& launch, TrainArgs& a,
                                         std::optional<TrainWatch>& page) {
  TrainRank rank(comm, launch, a);
  try {
    if (a.watch) a.page = &page.emplace(a.port);
    Device device(DeviceOptions{.threads = rank.threads()});
    note_threads(device, a.common);
    rank.compare(device);
    const std::optional<TrainResult> result = train_once(device, a, &rank);
    rank.done();
    return result;
  } catch (const std::exception& e) {
    rank.failed(e.what());
    throw;
  }
}

int run(Args& args) {
  if (const std::vector<std::string> sweeps = args.values("sweep"); !sweeps.empty())
    return train_sweep(args, sweeps);
  const Launch launch = find_launch();
  one_of_several = launch.ranks > 1;
  std::optional<TrainArgs> a;
  std::optional<TrainWatch> page;
  std::optional<TrainResult> result;
  if (!one_of_several) a = train_args(args);
  if (a && a->plan_ranks) {
    print_train_plan(*a);
    return 0;
  }
  run_job(launch, [&](Comm& comm) {
    if (!a) a = train_args(args);  // what is wrong is said by one of the ranks
    if (a->plan_ranks) fail_usage("--plan trains nothing: it is for one process, and counts ranks by itself");
    result = train_as_rank(comm, launch, *a, page);
  });
  if (result) report_end(*a, *result);
  if (result && a->stay) {
    flush();
    note("the page stays; Ctrl-C ends it");
    page->stay(stop_asked);
  }
  return 0;
}

std::string help_text() {
  std::string out =
      "Usage: rapt train RECIPE --data DATA --out FOLDER [flags]\n"
      "\n"
      "RECIPE is a preset (rapt show lists them), a JSON file, or a model to go on from (a folder or a\n"
      "GGUF file: its weights, its tokenizer). DATA is a text file, a folder of them, parallel lines\n"
      "(a.de,a.en), labelled lines (german=a.de,english=a.en), a file made by `rapt data`, or a task made\n"
      "in code: copy, sort, date. Texts may be .gz. For a recipe that reads pictures (vit, vit-nano): a\n"
      "folder with one folder of PNG or JPEG files for each class.\n"
      "\n"
      "The same command again goes on where it stopped: weights, optimizer, order of data and dropout, bit\n"
      "for bit; with a larger --steps it goes on further. Ctrl-C ends the step, saves and leaves; a second\n"
      "one leaves at once, and costs what a kill does: the steps since the last saved state, five minutes\n"
      "at most (--save-every, --set train.save_minutes=N).\n"
      "FOLDER gets the saved states (step-N), the finished model (model/, which opens in transformers\n"
      "where the recipe is one of its families), metrics.jsonl, loss.svg and attention.svg.\n"
      "`rapt run FOLDER` opens the model, or the newest state.\n"
      "\n"
      "With --sweep, which may come many times, each combination of the values is a run of its own, one\n"
      "after the other, in FOLDER/rate=0.01,seed=0 and so on; then they are compared as rapt compare does,\n"
      "here and in FOLDER/compare.html. The same command again skips what is finished, goes on with what\n"
      "was stopped and tries again what failed. A run that fails is noted, the others go on, and the exit\n"
      "code is 1 at the end.\n"
      "\n"
      "What is learned:\n"
      "  --objective O       causal, masked, translation, classification (by the recipe)\n"
      "  --held-out DATA     judged on this; else the last --share (0.1) of the data is kept apart\n"
      "  --vocab KIND        characters, bytes or bpe (bpe, --vocab-size 4096), made from the\n"
      "                      data; --lower\n"
      "  --tokenizer PATH    use this one instead\n"
      "  --batch N           sequences of a batch (12; 32)\n"
      "  --length N     tokens of one (256, or the recipe's context)\n"
      "  --batch-tokens N    batches of about N tokens, similar lengths together (translation,\n"
      "                      classification)\n"
      "  --windows W         random offsets, or shuffled: each part of a text once an epoch\n"
      "  --documents         files, or parts between empty lines, do not see each other\n"
      "  --begin             every window of a text begins with the begin token, as do texts later\n"
      "  --mask-share X      masked tokens (0.15)\n"
      "How:\n"
      "  --steps N  --rate X  --warmup N  --optimizer adamw|adam|sgd|muon\n"
      "  --schedule constant|cosine|inverse_sqrt|wsd  --smoothing X\n"
      "  --accumulate N  --seed N  --eval-every N  --eval-batches N  --save-every N\n"
      "  --set KEY=VALUE     anything of the recipe (width=128 layers=4 heads=4 dropout=0.1\n"
      "                      decoder.final_norm.eps=1e-5 …), or of the training with train. before its\n"
      "                      key; may come many times\n"
      "  --sweep KEY=V,V     a run for each value; KEY is a flag of train without its dashes (rate, seed,\n"
      "                      steps, batch …) or what --set takes; a comma inside of {}, [] or \"\" does not\n"
      "                      end a value; may come many times\n"
      "  --sample TEXT       samples begin with this\n"
      "  --watch             show the training in a browser while it runs, on this machine alone: curves,\n"
      "                      what each head does, samples; --watch-port N (8642), --watch-stay: until\n"
      "                      Ctrl-C\n"
      "  --force             begin anew: what FOLDER holds of an earlier run is removed\n"
      "  --timeline FILE     when each rank computed and sent in the first ten steps, for chrome://tracing\n"
      "                      or ui.perfetto.dev (of rank 1: FILE.1)\n"
      "  -t, --threads N   -q, --quiet   --json\n"
      "Before, without --data and --out:\n"
      "  --plan RANKS        memory of a rank, bytes it sends in a step; nothing is read but the recipe,\n"
      "                      nor trained. --batch, --length, --accumulate count as in a run\n"
      "  --plan-machine K=V  time, too: flops=N (of a rank, a second), efficiency=X (0.4 of it), node=N\n"
      "                      (ranks of a machine), link=N (bytes a second between them), network=N\n"
      "                      (to others). What is not built, on paper: number=2 (bf16 beside f32 weights),\n"
      "                      activation=N (bytes per token, layer and width), tensor=N, pipeline=N,\n"
      "                      chunks=N, context=N ranks for one model; with commas, may come many times\n"
      "\n"
      "Keys of the training (--set train.KEY=VALUE):\n";
  TrainOptions o;
  train_fields(o, [&](std::string_view key, const auto& value, double, double, std::string_view meaning) {
    using T = std::remove_cvref_t<decltype(value)>;
    std::string start;
    if constexpr (std::is_enum_v<T>) start = names_of(T{})[static_cast<std::size_t>(value)];
    else if constexpr (std::is_same_v<T, bool>) start = value ? "true" : "false";
    else start = shortest(static_cast<double>(value));
    out += concat("  ", padded(key, 24), padded(start, 9), meaning, "\n");
  });
  out +=
      "\n"
      "On several machines, or several times on one: `mpirun rapt train …`, srun, or RANK, WORLD_SIZE,\n"
      "MASTER_ADDR and MASTER_PORT set for each; all else as with one, FOLDER seen by all. A step's batches\n"
      "(--accumulate) are shared by the ranks, and no bit depends on how many they are (docs/training.md).\n"
      "\n"
      "Examples:\n"
      "  rapt train gpt-char --data shakespeare.txt --vocab characters --length 64 "
      "--steps 2000 --out out/char\n"
      "  rapt train llama3 --set width=256 --set layers=6 --set heads=8 --set kv_heads=2 --set ffn=768 "
      "--data books/ --out out/llama\n"
      "  rapt train transformer-2017 --data train.de.gz,train.en.gz --held-out val.de.gz,val.en.gz "
      "--batch-tokens 2048 --smoothing 0.1 \\\n"
      "      --set width=256 --set layers=3 --set heads=4 --set ffn=1024 --schedule inverse_sqrt --warmup\n"
      "        1000 --out out/de-en\n"
      "  rapt train bahdanau --data date --steps 3000 --out out/dates\n"
      "  rapt train vit-nano --data shapes/ --steps 500 --out out/shapes\n"
      "  rapt train gpt-char --data shakespeare.txt --vocab characters --length 64 --steps 500 \\\n"
      "      --sweep rate=0.001,0.003 --sweep seed=0,1 --out out/rates\n"
      "  rapt train llama3 --set width=64 --set layers=2 --set heads=8 --set ffn=192 --data books/ \\\n"
      "      --sweep 'decoder.kinds.L.parts[0].self.kv_heads=8,2,1' --out out/groups\n";
  return out;
}

}  // namespace

extern const Verb kTrain;
const Verb kTrain = {"train", "train a model from a recipe and data", "", run, help_text};

}  // namespace rapt::cli
