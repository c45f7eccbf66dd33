// SPDX-License-Identifier: Apache-2.0
// rapt lab: experiments that show one claim each.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <filesystem>

#include "rapt/apps/cli/model_args.h"
#include "rapt/apps/cli/verb.h"
#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/lab/sink.h"
#include "rapt/lab/streaming.h"

namespace rapt::cli {
namespace {

// A bar on a terminal, redrawn at most ten times a second; elsewhere one line per tenth.
class StepBar {
 public:
  StepBar(int total, bool quiet) : total_(total), quiet_(quiet), bar_(is_terminal_stderr()) {}
  void step(int done, double loss) {
    if (quiet_) return;
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    if (bar_) {
      if (done < total_ && std::chrono::duration<double>(now - drawn_).count() < 0.1) return;
      drawn_ = now;
      const int width = 30, full = width * done / total_;
      std::string line = "\r  [";
      for (int i = 0; i < width; ++i) line += i < full ? "█" : "·";
      line += concat("] ", done, "/", total_, "  loss ", fixed(loss, 3), "  ", fixed(seconds, 0), " s, ",
                     fixed(seconds / done * (total_ - done), 0), " s left  ");
      std::fputs(line.c_str(), stderr);
      if (done == total_) clear();
      std::fflush(stderr);
    } else if (done * 10 / total_ != (done - 1) * 10 / total_) {
      std::fprintf(stderr, "step %d of %d, loss %.3f, %.0f s\n", done, total_, loss, seconds);
    }
  }
  void clear() {
    if (bar_ && !quiet_) std::fputs("\r\033[2K", stderr);
  }

 private:
  int total_;
  bool quiet_, bar_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), drawn_{};
};

std::string share_bar(double share) {
  std::string bar;
  for (int i = 0; i < 20; ++i) bar += i < static_cast<int>(std::lround(share * 20)) ? "█" : "·";
  return bar;
}

void print_snapshot(const SinkSnapshot& s) {
  std::string line = padded(concat("step ", s.step), 12) + "excess loss " + fixed(s.excess, 3) + "   on the first token";
  for (std::size_t l = 0; l < s.idle.size(); ++l) line += concat("   layer ", l, " ", share_bar(s.idle[l]), " ", fixed(s.idle[l], 2));
  print(line + "\n");
}

Json numbers(const std::vector<double>& values) {
  Json::Array a;
  for (double v : values) a.emplace_back(v);
  return a;
}

std::string as_json(const SinkOptions& o, const SinkReport& r) {
  Json all = Json::Object{};
  all.set("experiment", std::string("sink"));
  all.set("seed", static_cast<Dim>(o.seed));
  all.set("parameters", r.parameters);
  all.set("seconds", r.seconds);
  Json::Array snapshots;
  for (const SinkSnapshot& s : r.snapshots) {
    Json j = Json::Object{};
    j.set("step", static_cast<Dim>(s.step));
    j.set("loss", s.loss);
    j.set("excess", s.excess);
    j.set("idle", numbers(s.idle));
    j.set("trigger", numbers(s.trigger));
    j.set("value_ratio", numbers(s.value_ratio));
    j.set("largest", numbers(s.largest));
    snapshots.push_back(std::move(j));
  }
  all.set("snapshots", std::move(snapshots));
  return all.dump() + "\n";
}

int sink(const SinkOptions& o, const CommonArgs& common) {
  const bool json = common.json, quiet = common.quiet;

  Device device({.threads = common.threads, .pin = true});
  if (!json)
    print(concat(
        "A ", o.layers, "-layer decoder",
        o.gate      ? " with a sigmoid gate after its attention"
        : o.sigmoid ? " with sigmoid attention"
                    : "",
        " learns a Markov chain over 24 tokens in which 3 trigger tokens are followed by a copy of\nthe token before them. Queries at other tokens are idle: they need "
        "nothing from the past. Watch where their attention goes.\n\n"));
  StepBar progress(o.steps, quiet || json);
  const SinkReport r = run_sink(
      device, o, [&](int step, double loss) { progress.step(step, loss); },
      [&](const SinkSnapshot& s) {
        if (json) return;
        progress.clear();
        print_snapshot(s);
      });
  if (json) {
    print(as_json(o, r));
    return 0;
  }
  const SinkSnapshot& last = r.snapshots.back();
  print("\nWeights of one sequence, a row per query (* = trigger), first key at the left:\n\n" + draw_maps(r));
  print(
      "\n| layer | idle queries on first token | trigger queries on first token | first token's value norm / others' | its largest |h| |\n|---|---|---|---|---|\n");
  double strongest = 0;
  for (std::size_t l = 0; l < last.idle.size(); ++l) {
    strongest = std::max(strongest, last.idle[l]);
    print(concat("| ", l, " | ", fixed(last.idle[l], 3), " | ", fixed(last.trigger[l], 3), " | ", fixed(last.value_ratio[l], 2), " | ",
                 fixed(last.largest[l], 1), " |\n"));
  }
  print(concat(
      "\n", with_commas(r.parameters), " parameters, ", o.steps, " steps in ", fixed(r.seconds, 0), " s on ", device.threads(),
      " threads (", device.kernels.isa, "). Loss ", fixed(last.loss, 3), ", ", fixed(last.excess, 3), " above what nobody can go below.\n",
      strongest > 0.3
          ? "An attention sink: idle queries park their weight on the first token, whose value is small, so they fetch next to nothing.\n"
          : "No attention sink here: no layer puts more than 0.3 of its idle queries' weight on the first token.\n"));
  return 0;
}

// ------------------------------------------------------------------------------------------------ streaming

std::string cell(const StreamingRow& r, const StreamingReport& all) { return concat(r.keep, "+", all.window); }

void print_table(const StreamingReport& r, const std::string& model, const std::string& text) {
  std::string head = "| keep + window |", line = "|---|", values = "| perplexity |", against = "| against reading anew |";
  for (const StreamingRow& row : r.rows) {
    head += concat(" ", cell(row, r), " |");
    line += "---|";
    values += concat(" ", fixed(row.perplexity, 2), " |");
    against += concat(" ", fixed(100 * (row.perplexity / r.recomputed_perplexity - 1), 1), " % |");
  }
  if (r.recomputed > 0) {
    head += concat(" read anew, ", r.recomputed, " |");
    line += "---|";
    values += concat(" ", fixed(r.recomputed_perplexity, 2), " |");
    against += " |";
  }
  print(concat(model, ", ", text, ": ", with_commas(r.tokens), " tokens, the next token's probability at ", with_commas(r.samples),
               " positions.\n\n", head, "\n", line, "\n", values, "\n"));
  if (r.recomputed > 0) print(against + "\n");
  print(
      "\n| keep + window | ms per token: beginning | middle | end | pages: beginning | middle | end | cache | text read in |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const StreamingRow& row : r.rows) {
    std::string cells = concat("| ", cell(row, r), " |");
    for (double seconds : row.token_seconds) cells += concat(" ", fixed(1000 * seconds, 2), " |");
    for (std::size_t pages : row.pages) cells += concat(" ", pages, " |");
    print(concat(cells, " ", byte_count(static_cast<double>(row.bytes[2])), " | ", fixed(row.seconds, 0), " s |\n"));
  }
}

Json streaming_json(const StreamingReport& r, const std::string& model, const std::string& text) {
  Json all = Json::Object{{"experiment", "streaming"}, {"model", model},       {"text", text},
                          {"tokens", r.tokens},        {"samples", r.samples}, {"window", r.window}};
  Json::Array rows;
  for (const StreamingRow& row : r.rows) {
    Json j = Json::Object{{"keep", row.keep}, {"nll", row.nll}, {"perplexity", row.perplexity}, {"seconds", row.seconds}};
    Json::Array seconds, pages, bytes;
    for (int i = 0; i < 3; ++i) {
      seconds.emplace_back(row.token_seconds[i]);
      pages.emplace_back(static_cast<Dim>(row.pages[i]));
      bytes.emplace_back(static_cast<Dim>(row.bytes[i]));
    }
    j.set("token_seconds", std::move(seconds));
    j.set("pages", std::move(pages));
    j.set("bytes", std::move(bytes));
    rows.push_back(std::move(j));
  }
  all.set("rows", std::move(rows));
  if (r.recomputed > 0)
    all.set("recomputed", Json::Object{{"tokens", r.recomputed},
                                       {"nll", r.recomputed_nll},
                                       {"perplexity", r.recomputed_perplexity},
                                       {"seconds", r.recomputed_seconds}});
  return all;
}

int streaming(const StreamingOptions& o, const CommonArgs& common, const std::vector<std::string>& words) {
  const std::string path = find_model(words[1]), name = std::filesystem::path(path).filename().string();
  const std::string text_name = std::filesystem::path(words[2]).filename().string();

  std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(path);
  if (!tokenizer) fail(path, ": no tokenizer, so a text cannot be read");
  std::vector<std::int32_t> ids = tokenizer->encode(read_text_file(words[2], std::uint64_t{1} << 30));
  if (tokenizer->add_bos && tokenizer->bos >= 0) ids.insert(ids.begin(), tokenizer->bos);
  if (static_cast<Dim>(ids.size()) < o.tokens)
    fail(words[2], ": ", with_commas(static_cast<Dim>(ids.size())), " tokens, ", with_commas(o.tokens),
         " are asked for; give a longer text or --tokens");

  Device device({.threads = common.threads, .pin = true});
  std::unique_ptr<Progress> bar;
  std::string what;
  const StreamingReport r = run_streaming(device, path, ids, o, [&](const std::string& now, Dim done, Dim of, double perplexity) {
    if (now != what) bar = std::make_unique<Progress>(what = now, common.quiet);
    bar->step(static_cast<double>(done), static_cast<double>(of), concat("perplexity ", fixed(perplexity, 2)));
  });
  bar.reset();
  if (common.json) print(streaming_json(r, name, text_name).dump() + "\n");
  else print_table(r, name, text_name);
  return 0;
}

// The flags of all experiments are taken before the experiment is known; those of another one are refused.
int lab(Args& args) {
  const CommonArgs common = common_args(args);
  SinkOptions s;
  StreamingOptions t;
  const auto steps = args.number("steps", 1, 1000000), layers = args.number("layers", 1, 24), seed = args.number("seed", 0, Dim{1} << 40);
  s.gate = args.flag("gate");
  s.sigmoid = args.flag("sigmoid");
  s.steps = static_cast<int>(steps.value_or(s.steps));
  s.layers = static_cast<int>(layers.value_or(s.layers));
  s.seed = static_cast<std::uint64_t>(seed.value_or(0));
  const auto window = args.number("window", 1, 1 << 20), tokens = args.number("tokens", 1, 1 << 30),
             samples = args.number("samples", 1, 1 << 20), recompute = args.number("recompute", -1, 1024);
  const auto keep = args.value("keep");
  t.window = window.value_or(t.window);
  t.tokens = tokens.value_or(t.tokens);
  t.samples = samples.value_or(t.samples);
  t.recompute = recompute.value_or(t.recompute);
  t.cache = cache_type(args);
  if (keep) {
    t.keep.clear();
    for (std::int32_t k : parse_ids(*keep, "--keep", "number of kept tokens")) t.keep.push_back(k);
  }
  const std::vector<std::string> words = args.operands();
  const bool for_sink = steps || layers || seed || s.gate || s.sigmoid, for_streaming = window || tokens || samples || recompute || keep;
  if (words.empty()) fail_usage("wants the name of an experiment: sink or streaming");
  if (words[0] == "sink") {
    if (for_streaming) fail_usage("sink: --window, --keep, --tokens, --samples and --recompute belong to streaming");
    if (words.size() != 1) fail_usage("sink wants no more words, got ", join(words));
    return sink(s, common);
  }
  if (words[0] != "streaming") fail_usage("there is no experiment '", words[0], "'; known: sink, streaming");
  if (for_sink) fail_usage("streaming: --steps, --layers, --seed, --gate and --sigmoid belong to sink");
  if (words.size() != 3) fail_usage("streaming wants a model and a text file: rapt lab streaming MODEL TEXT");
  return streaming(t, common, words);
}

}  // namespace

extern const Verb kLab;
const Verb kLab = {
    "lab", "experiments that show one claim each",
    "usage: rapt lab sink [--steps N] [--layers N] [--seed N] [--gate | --sigmoid]\n"
    "       rapt lab streaming MODEL TEXT [--window N] [--keep 0,1,2,4,8] [--tokens N] [--samples N] [--recompute K] [--cache-type TYPE]\n"
    "\n"
    "  sink             train a small model on the copy task and watch the attention sink emerge (about a minute)\n"
    "    --steps N      training steps (1500)\n"
    "    --layers N     layers of the model (3)\n"
    "    --seed N       another start, another chain (0)\n"
    "    --gate         a sigmoid gate after the attention: the sink weakens\n"
    "    --sigmoid      sigmoid attention, which need not sum to one: no sink\n"
    "  streaming        StreamingLLM's table: a long text through a window, with the first tokens kept or not\n"
    "    --window N     keys that slide (1020)\n"
    "    --keep LIST    first tokens that stay, each in its turn (0,1,2,4,8)\n"
    "    --tokens N     of the text (100000)\n"
    "    --samples N    positions at which the next token's probability is looked at (1000)\n"
    "    --recompute K  compare with reading the last K + window tokens anew (4; -1: do not, it takes most of the time)\n"
    "    --cache-type T f32, f16, bf16, q8_0 or q4_0 (f32)\n"
    "  -t, --threads N  threads (as many as the process may use)\n"
    "  --json           the figures as JSON\n"
    "  --quiet          no progress\n"
    "\n"
    "examples:\n"
    "  rapt lab sink\n"
    "  rapt lab sink --seed 1 --gate\n"
    "  rapt lab streaming model.gguf book.txt --keep 0,4 --tokens 20000 --samples 200\n"
    "  rapt lab sink --json --quiet > sink.json\n",
    lab};

}  // namespace rapt::cli
