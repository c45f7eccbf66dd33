// SPDX-License-Identifier: Apache-2.0
// rapt train --sweep: every combination is checked before the first one starts; then one after the other.
#include <algorithm>
#include <filesystem>

#include "rapt/apps/cli/document_files.h"
#include "rapt/apps/cli/train.h"
#include "rapt/apps/cli/train_watch.h"
#include "rapt/base/text.h"
#include "rapt/comm/launch.h"
#include "rapt/use/compare_runs.h"
#include "rapt/use/data_parts.h"
#include "rapt/use/sweep.h"
#include "rapt/use/train_options.h"

namespace rapt::cli {
namespace {

namespace fs = std::filesystem;

struct Combination {
  std::string name;
  TrainArgs args;
  bool finished = false;  // by an earlier call of the same command
};

std::vector<Args::Flag> train_flags() {
  Args probe = Args::probe({});
  try {
    train_args(probe);
  } catch (const Error&) {  // comes no further than its flags
  }
  return probe.flags();
}

const Args::Flag* find_flag(const std::string& key) {
  static const std::vector<Args::Flag> flags = train_flags();
  const std::string_view name = flag_name(key);
  const auto it = std::find_if(flags.begin(), flags.end(), [&](const auto& f) { return f.name == name; });
  return it == flags.end() ? nullptr : &*it;
}

// "--rate=0.01", or "--set=width=64" where the key is no flag of train.
std::string as_flag(const std::string& key, const std::string& value) {
  const Args::Flag* flag = find_flag(key);
  if (!flag) return concat("--set=", key, "=", value);
  if (flag->name == "set" || flag->name == "out" || !flag->takes_value)
    fail_usage("--sweep ", key,
               ": is nothing to sweep; a key is a flag that has a value (rate, seed, steps …)",
               " or what --set takes (width, decoder.layers, train.optimizer.beta2 …)");
  const bool quoted = value.size() > 1 && value.front() == '"' && value.back() == '"';
  return concat("--", flag->name, "=", quoted ? value.substr(1, value.size() - 2) : value);
}

// Of a sweep that was refused: what a key that the recipe does not have may have meant.
std::string hint_for(std::span<const SweepKey> keys) {
  std::vector<std::string> names;
  for (const Args::Flag& f : train_flags())
    if (f.takes_value) names.push_back(f.name);
  std::string out;
  for (const auto& [key, values] : keys) {
    if (find_flag(key)) continue;
    TrainOptions o;
    train_fields(o, [&](std::string_view k, const auto&...) {
      if (k == key) out = concat("; of the training it is train.", key);
    });
    const std::string hint = name_hint(key, names);
    if (out.empty() && hint.starts_with("did you mean")) out = concat("; among the flags: ", hint);
  }
  return out;
}

// Of the simple kinds of data: a file or a folder must be there. Lists of files tell it when they are read.
void check_path(const std::string& path) {
  if (path.find_first_of(",=") != std::string::npos || data::is_task(path)) return;
  std::error_code error;
  if (!fs::exists(path, error)) fail_missing("--data ", path, ": there is no such file");
}

// It came to its end with the same plan, and its model is there.
bool is_finished(const TrainArgs& a, const Json& plan) {
  const fs::path folder(a.out);
  std::error_code error;
  if (a.force || !fs::exists(folder / "metrics.jsonl", error) || !fs::exists(folder / "model", error))
    return false;
  const RunLog log = read_run_log((folder / "metrics.jsonl").string());
  return log.finished && log.plan == parse_json(plan.dump(0));
}

std::vector<Combination> combinations(const Args& args, const std::vector<std::string>& sweeps) {
  std::vector<SweepKey> keys;
  for (const std::string& text : sweeps) keys.push_back(parse_sweep(text));
  std::vector<Combination> out;
  for (const SweepRun& run : sweep_runs(keys)) {
    std::vector<std::string> more;
    for (std::size_t k = 0; k < keys.size(); ++k) more.push_back(as_flag(keys[k].key, run.values[k]));
    Args words = args;
    words.append(more);
    try {
      Combination c{run.name, train_args(words)};
      const Json plan = plan_json(c.args.plan);
      check_path(c.args.plan.data.path);
      if (fs::exists(fs::path(c.args.out) / "metrics.jsonl"))
        fail_usage("--out ", c.args.out, ": holds a training that is no sweep; name another folder");
      c.args.out = (fs::path(c.args.out) / run.name).string();
      c.finished = is_finished(c.args, plan);
      out.push_back(std::move(c));
    } catch (const Error& e) {
      throw Error(
          concat(e.what(), hint_for(keys), "\n(", run.name, " of the sweep; none of its runs was started)"),
          e.kind());
    }
  }
  return out;
}

}  // namespace

int train_sweep(const Args& args, const std::vector<std::string>& sweeps) {
  if (const Launch launch = find_launch(); launch.ranks > 1)
    fail_usage("--sweep makes its runs one after the other in one process, and ", name_of(launch.by),
               " started ", launch.ranks, " ranks: start it without a launcher, or each run under one");
  const std::vector<Combination> all = combinations(args, sweeps);
  const CommonArgs& common = all[0].args.common;
  const std::string folder = fs::path(all[0].args.out).parent_path().string();
  const auto done_before =
      std::count_if(all.begin(), all.end(), [](const Combination& c) { return c.finished; });
  const auto say = [&](const std::string& text) {
    if (!common.quiet) note(text);
  };
  say(concat("sweep: ", counted(static_cast<Dim>(all.size()), "run"), " in ", folder,
             done_before > 0 ? concat(", ", done_before, " finished") : ""));
  if (all[0].args.stay)
    fail_usage(
        "--watch-stay belongs to one training; the pages of a sweep are its compare.html and, while it "
        "runs, --watch");
  std::optional<TrainWatch> page;
  if (all[0].args.watch) page.emplace(all[0].args.port);
  Device device(DeviceOptions{.threads = common.threads});
  note_threads(device, common);
  std::vector<std::string> failed;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, planned, finished] = all[i];
    TrainArgs run = planned;
    run.page = page ? &*page : nullptr;
    const std::string which = concat("[", i + 1, "/", all.size(), "] ", name);
    if (finished) {
      say(concat(which, ": finished before"));
      continue;
    }
    say(which);
    try {
      const std::optional<TrainResult> result = train_once(device, run);
      if (!result) {
        note(concat("the sweep stopped at ", name, "; the same command goes on from there"));
        return 0;
      }
      if (result->end.held_out.counted > 0)
        say(concat(which, ": held out loss ", fixed(result->end.held_out.loss, 4)));
    } catch (const std::exception& e) {
      failed.push_back(name);
      note(concat(which, " failed: ", e.what(), i + 1 < all.size() ? "; the sweep goes on" : ""));
    }
  }
  std::vector<RunRecord> runs;
  for (const Combination& c : all)
    if (fs::exists(fs::path(c.args.out) / "metrics.jsonl")) runs.push_back(read_run(c.args.out));
  if (!runs.empty()) {
    const Document d = compare_runs(runs);
    print(common.json ? document_json(d).find("facts")->dump() + "\n"
                      : document_text(d, color_on_stdout(), columns_of_stdout()));
    write_page(d, (fs::path(folder) / "compare.html").string(), true, common.quiet);
  }
  if (failed.empty()) return 0;
  note(concat(failed.size(), " of ", counted(static_cast<Dim>(all.size()), "run"), " failed: ", join(failed),
              "; the same command tries ", failed.size() == 1 ? "it" : "them", " again"));
  return 1;
}

}  // namespace rapt::cli
