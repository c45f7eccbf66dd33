// SPDX-License-Identifier: Apache-2.0
// rapt lab: each "why" of the field as an experiment. What they are and what they say:
// rapt/lab/experiment.h.
#include "rapt/apps/cli/lab.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "rapt/apps/cli/verb.h"
#include "rapt/base/clock.h"
#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/lab/experiment.h"
#include "rapt/lab/guide.h"
#include "rapt/lab/real.h"

namespace rapt::cli {
namespace {

Text minutes(double m) {
  return m < 0.5 ? say("lab.seconds") : m < 1.5 ? say("lab.one_minute") : say("lab.minutes", fixed(m, 0));
}

int list(bool json, Language language) {
  if (json) {
    Json::Array all;
    for (const Experiment& e : experiments())
      all.push_back(Json::Object{
          {"name", e.name}, {"question", question_of(e)}, {"claim", claim_of(e)}, {"minutes", e.minutes}});
    print(Json(std::move(all)).dump() + "\n");
    return 0;
  }
  Document d;
  Table t{.title = "", .columns = {say("lab.experiment"), say("lab.question"), say("lab.about")}, .rows = {}};
  for (const Experiment& e : experiments()) t.rows.push_back({e.name, question_of(e), minutes(e.minutes)});
  d.parts.push_back(std::move(t));
  d.parts.push_back(Words{say("lab.list_end")});
  print(document_text(d, color_on_stdout(), columns_of_stdout(), language));
  return 0;
}

#ifndef RAPT_VERSION
#define RAPT_VERSION "unknown"
#endif

// "Some CPU", where the system tells.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

struct LabArgs {
  std::string command;  // what decides the result, as it would be typed
  std::vector<std::uint64_t> seeds = {0};
  double effort = 1;
  std::optional<std::string> html, markdown, results;
  std::string text;  // what experiments on text learn
  Language language = Language::en;
  bool force = false;
};

void write_file(const std::string& path, std::string_view text, bool force) {
  FileWriter out(path, force);
  out.write(text);
  out.commit();
}

// Results as they come, on standard output; files are written anew after each experiment, so that what was
// measured is not lost.
using RunOne = std::function<LabResult(const Experiment& e, const Lab& lab)>;
int run_experiments(
    const std::vector<const Experiment*>& which, const LabArgs& a, const CommonArgs& common,
    const RunOne& run = [](const Experiment& e, const Lab& lab) { return e.run(lab); }) {
  // Not bound to processors: experiments start threads of their own, which would share one.
  Device device({.threads = common.threads});
  note_threads(device, common);
  const std::string cpu = processor();
  const LabOrigin origin{.command = a.command,
                         .program = "rapt " RAPT_VERSION,
                         .machine = concat(counted(device.threads(), "thread"), " (", device.kernels.isa, ")",
                                           cpu.empty() ? "" : " of ", cpu),
                         .date = today(),
                         .effort = a.effort};
  std::vector<std::vector<LabResult>> results;
  std::vector<Document> documents;
  for (std::size_t i = 0; i < which.size(); ++i) {
    const Experiment* e = which[i];
    results.emplace_back();
    for (std::uint64_t seed : a.seeds) {
      std::unique_ptr<Progress> bar;
      double before = 0;
      Lab lab{.device = device, .seed = seed, .effort = a.effort, .text = a.text};
      lab.progress = [&](std::string_view what, double done, double of) {
        if (!bar || done < before) bar = std::make_unique<Progress>(e->name, common.quiet);
        bar->step(before = done, of, what);
      };
      const auto start = Clock::now();
      results.back().push_back(run(*e, lab));
      bar.reset();
      const double seconds = seconds_since(start);
      documents.push_back(lab_document(*e, results.back().back(), lab, seconds, origin));
      if (a.seeds.size() > 1) documents.back().title = say("lab.seed_title", documents.back().title, seed);
      if (common.json) continue;
      if (which.size() == 1)
        print(document_text(documents.back(), color_on_stdout(), columns_of_stdout(), a.language) +
              (a.seeds.back() == seed ? "" : "\n"));
      else
        print(concat(e->name, a.seeds.size() > 1 ? concat(", seed ", seed) : "", ": ",
                     results.back().back().verdict.in(a.language), "\n"));
      flush();
    }
    const bool over = a.force || i > 0;
    if (a.results) {
      std::vector<std::string> names;
      for (const Experiment* ran : std::span(which).first(i + 1)) names.push_back(ran->name);
      write_file(*a.results, guide_results_json(names, a.seeds, results, origin).dump(1) + "\n", over);
    }
    if (!a.html && !a.markdown) continue;
    const std::vector<Document> report = lab_report(std::span(which).first(i + 1), a.seeds, results, origin);
    if (a.html) write_file(*a.html, documents_html(say("lab.title"), report, a.language), over);
    if (a.markdown) write_file(*a.markdown, lab_markdown(report, a.language), over);
  }
  if (common.json) {
    Json::Array all;
    for (const Document& d : documents) all.push_back(document_json(d));
    print((all.size() == 1 ? all[0] : Json(std::move(all))).dump() + "\n");
  }
  return 0;
}

// rapt lab NAME MODEL [TEXT]
int run_real(const std::vector<std::string>& words, RealOptions o, LabArgs& a, const CommonArgs& common) {
  const RealExperiment* e = find_real(words[0]);
  if (words.size() > 3) fail_usage("wants an experiment, a model and at most one text, got ", join(words));
  o.model = words[1];
  find_model(o.model);  // before anything else: a wrong name is said at once
  if (words.size() == 3) o.text = read_text_file(words[2], std::uint64_t{1} << 30);
  return run_experiments({&e->shown}, a, common, [&](const Experiment&, const Lab& lab) {
    return e->run(lab, real_subject(lab, o));
  });
}

// The flags of all forms are taken before the form is known; those of another one are refused.
int lab(Args& args) {
  const CommonArgs common = common_args(args);
  SinkOptions s;
  RealOptions real;
  StreamingOptions& t = real.streaming;
  LabArgs l;
  const auto steps = args.number("steps", 1, 1000000), layers = args.number("layers", 1, 24),
             seed = args.number("seed", 0, Dim{1} << 40);
  s.gate = args.flag("gate");
  s.sigmoid = args.flag("sigmoid");
  s.steps = steps.value_or(s.steps);
  s.layers = layers.value_or(s.layers);
  s.seed = static_cast<std::uint64_t>(seed.value_or(0));
  const auto window = args.number("window", 1, 1 << 20), tokens = args.number("tokens", 1, 1 << 30),
             samples = args.number("samples", 1, 1 << 20), recompute = args.number("recompute", -1, 1024);
  const auto keep = args.value("keep");
  t.window = window.value_or(t.window);
  real.tokens = tokens.value_or(0);
  t.samples = samples.value_or(t.samples);
  t.recompute = recompute.value_or(t.recompute);
  t.cache = cache_type(args);
  if (keep) {
    t.keep.clear();
    for (std::int32_t k : parse_ids(*keep, "--keep", "number of kept tokens")) t.keep.push_back(k);
  }
  const auto seeds = args.value("seeds");
  const auto effort = args.real("effort");
  const bool all = args.flag("all");
  l.html = args.value("html");
  l.markdown = args.value("markdown");
  l.results = args.value("results");
  const auto text = args.value("text");
  l.language = language_of(args);
  const Language language = l.language;
  l.force = args.flag("force");
  const std::vector<std::string> words = args.operands();

  const bool watch = steps || layers || s.gate || s.sigmoid,
             for_streaming = window || samples || recompute || keep;
  const bool of_model = words.size() > 1 && find_real(words[0]);
  if (for_streaming && !(of_model && words[0] == "streaming"))
    fail_usage("--window, --keep, --samples and --recompute belong to rapt lab streaming MODEL TEXT");
  if (tokens && !of_model)
    fail_usage("--tokens belongs to an experiment on a model: rapt lab massive MODEL [TEXT]");
  if (of_model) {
    if (watch || effort || all || text)
      fail_usage(
          words[0], " MODEL [TEXT] takes --tokens, --seed, --seeds, --html, --markdown, --results, ",
          "--lang and --force; streaming --window, --keep, --samples, --recompute and --cache-type too");
  } else if (words.size() > 1 && !all) {
    std::vector<std::string> names;
    for (const RealExperiment& e : real_experiments()) names.push_back(e.asked);
    fail_usage("wants one experiment, got ", join(words), "; with a model behind it: ", join(names));
  }
  if (watch) {
    if (words.size() != 1 || words[0] != "sink")
      fail_usage("--steps, --layers, --gate and --sigmoid belong to rapt lab sink");
    if (seeds || effort || all || l.html || l.markdown || l.results || text)
      fail_usage(
          "sink with --steps, --layers, --gate or --sigmoid is one training to look at; it takes "
          "--seed and --json besides");
    return lab_sink(s, common, language);
  }
  if (all && !words.empty()) fail_usage("--all runs every experiment, and ", words[0], " is named too");
  if (words.empty() && !all) {
    if (seed || seeds || effort || l.html || l.markdown || l.results || text)
      fail_usage("wants the name of an experiment, or --all");
    return list(common.json, language);
  }
  if (seed && seeds) fail_usage("--seed and --seeds exclude each other");
  if (effort && (*effort <= 0 || *effort > 1))
    fail_usage("--effort: ", *effort, " is not above 0 and at most 1");
  l.effort = effort.value_or(1);
  l.seeds = {s.seed};
  if (seeds) {
    l.seeds.clear();
    for (std::int32_t n : parse_ids(*seeds, "--seeds", "seed"))
      l.seeds.push_back(static_cast<std::uint64_t>(n));
    if (l.seeds.empty()) fail_usage("--seeds: no seed given");
  }
  std::vector<const Experiment*> which;
  if (all)
    for (const Experiment& e : experiments()) which.push_back(&e);
  else if (!of_model) which.push_back(&find_experiment(words[0]));
  if (text) l.text = read_text_file(*text);
  for (const auto& file : {l.html, l.markdown, l.results})
    if (file) check_can_write(*file, l.force);
  l.command = concat("rapt lab", all ? " --all" : "");
  for (const std::string& word : words)  // of files their names alone
    l.command += " " + std::filesystem::path(word).filename().string();
  l.command = concat(l.command, tokens ? concat(" --tokens ", *tokens) : "",
                     seeds  ? concat(" --seeds ", *seeds)
                     : seed ? concat(" --seed ", *seed)
                            : "",
                     effort ? concat(" --effort ", shortest(*effort)) : "",
                     common.threads > 0 ? concat(" -t ", common.threads) : "");
  return of_model ? run_real(words, real, l, common) : run_experiments(which, l, common);
}

}  // namespace

extern const Verb kLab;
const Verb kLab = {
    "lab", "experiments that show one claim each",
    "Usage: rapt lab\n"
    "       rapt lab NAME [--seed N | --seeds 0,1,2] [--html FILE] [--markdown FILE]\n"
    "       rapt lab --all [--seeds 0,1,2] [--html FILE] [--markdown FILE]\n"
    "       rapt lab sink [--steps N] [--layers N] [--seed N] [--gate | --sigmoid]\n"
    "       rapt lab massive|sink|quant|heads|gate MODEL [TEXT] [--tokens N] [--html FILE]\n"
    "       rapt lab streaming MODEL [TEXT] [--window N] [--keep 0,1,4] [--tokens N] [--samples N] "
    "[--recompute K] [--cache-type TYPE]\n"
    "\n"
    "Each experiment states a claim, measures it in seconds to minutes, and says what came out beside what\n"
    "papers report. Without a name: the list of experiments.\n"
    "\n"
    "  --seed N         another start (0)\n"
    "  --seeds LIST     several, one after the other\n"
    "  --all            every experiment\n"
    "  --html FILE      the report as one page that needs no network\n"
    "  --markdown FILE  seeds side by side, with tables\n"
    "  --results FILE   what was measured, as JSON in no language, for rapt guide\n"
    "  --text FILE      what experiments on text learn (a text that comes with the program)\n"
    "  --lang LANGUAGE  en or zh, of what is said (RAPT_LANG, LC_ALL, LC_MESSAGES, LANG; en)\n"
    "  --effort X       share of the training steps and samples (1); verdicts are made for 1\n"
    "  --force          write over files that exist\n"
    "  sink             with one of these: one training, how the sink grew, its attention drawn (about\n"
    "                   a minute)\n"
    "    --steps N      training steps (1500)\n"
    "    --layers N     layers of the model (3)\n"
    "    --gate         a sigmoid gate after the attention: the sink weakens\n"
    "    --sigmoid      sigmoid attention, which need not sum to one: no sink\n"
    "  NAME MODEL       the same asked of a model of yours; TEXT is a file (prose that comes with the\n"
    "                   program; massive and sink also read a list, code, Chinese, random tokens and one\n"
    "                   token repeated)\n"
    "    massive        the few huge numbers of the residual stream, text by text; model and sink without\n"
    "                   them\n"
    "    sink           how much the first token collects; length or direction of its key\n"
    "    quant          int8 activations and narrower weights: what they cost, and who is to blame\n"
    "    heads          what heads do, against equal weights; the model without the strongest\n"
    "    gate           how far the gates on attention are open (models that have some)\n"
    "    streaming      StreamingLLM's table: a long text through a window, the first tokens kept or not\n"
    "    --tokens N     of the text (1024; heads 512, streaming 4096)\n"
    "    --window N     streaming: keys that slide (252)\n"
    "    --keep LIST    first tokens that stay, each in its turn (0,1,4)\n"
    "    --samples N    positions at which the next token's probability is looked at (100)\n"
    "    --recompute K  compare with reading the last K + window tokens anew (4; -1: do not, it takes most\n"
    "                   of the time)\n"
    "    --cache-type T f32, f16, bf16, q8_0 or q4_0 (f32)\n"
    "  -t, --threads N  threads (as many as the process may use)\n"
    "  --json           the figures as JSON\n"
    "  -q, --quiet      no progress\n"
    "\n"
    "Examples:\n"
    "  rapt lab key-bias\n"
    "  rapt lab --all --html lab.html\n"
    "  rapt lab sink --steps 1500 --gate\n"
    "  rapt lab massive model.gguf --html massive.html\n"
    "  rapt lab streaming model.gguf book.txt --keep 0,4 --tokens 20000 --samples 200\n",
    lab};

}  // namespace rapt::cli
