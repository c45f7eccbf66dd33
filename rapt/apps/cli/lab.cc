// SPDX-License-Identifier: Apache-2.0
// rapt lab: experiments that show one claim each.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "rapt/apps/cli/verb.h"
#include "rapt/base/json.h"
#include "rapt/base/text.h"
#include "rapt/lab/sink.h"

namespace rapt::cli {
namespace {

std::string fixed(double x, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}

// A bar on a terminal, redrawn at most ten times a second; elsewhere one line per tenth.
class Progress {
 public:
  Progress(int total, bool quiet) : total_(total), quiet_(quiet), bar_(is_terminal_stderr()) {}
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

int sink(Args& args) {
  SinkOptions o;
  o.steps = static_cast<int>(args.number("steps", 1, 1000000).value_or(o.steps));
  o.layers = static_cast<int>(args.number("layers", 1, 24).value_or(o.layers));
  o.seed = static_cast<std::uint64_t>(args.number("seed", 0, Dim{1} << 40).value_or(0));
  o.gate = args.flag("gate");
  o.sigmoid = args.flag("sigmoid");
  const bool json = args.flag("json"), quiet = args.flag("quiet");
  const int threads = static_cast<int>(args.number("threads", 1, 1024).value_or(0));
  const std::string experiment = args.operands(1, 1, "the name of an experiment")[0];
  if (experiment != "sink") fail_usage("there is no experiment '", experiment, "'; 'sink' is the one there is");

  Device device({.threads = threads, .pin = true});
  if (!json)
    print(concat(
        "A ", o.layers, "-layer decoder",
        o.gate      ? " with a sigmoid gate after its attention"
        : o.sigmoid ? " with sigmoid attention"
                    : "",
        " learns a Markov chain over 24 tokens in which 3 trigger tokens are followed by a copy of\nthe token before them. Queries at other tokens are idle: they need "
        "nothing from the past. Watch where their attention goes.\n\n"));
  Progress progress(o.steps, quiet || json);
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

}  // namespace

extern const Verb kLab;
const Verb kLab = {"lab", "experiments that show one claim each",
                   "usage: rapt lab sink [--steps N] [--layers N] [--seed N] [--gate | --sigmoid] [--threads N] [--json] [--quiet]\n"
                   "\n"
                   "  sink           train a small model on the copy task and watch the attention sink emerge (about a minute)\n"
                   "    --steps N    training steps (1500)\n"
                   "    --layers N   layers of the model (3)\n"
                   "    --seed N     another start, another chain (0)\n"
                   "    --gate       a sigmoid gate after the attention: the sink weakens\n"
                   "    --sigmoid    sigmoid attention, which need not sum to one: no sink\n"
                   "    --threads N  threads (as many as the process may use)\n"
                   "    --json       the figures as JSON\n"
                   "    --quiet      no progress\n"
                   "\n"
                   "examples:\n"
                   "  rapt lab sink\n"
                   "  rapt lab sink --seed 1 --gate\n"
                   "  rapt lab sink --json --quiet > sink.json\n",
                   sink};

}  // namespace rapt::cli
