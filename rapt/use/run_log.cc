// SPDX-License-Identifier: Apache-2.0
// Lines are read one by one and trusted in nothing; where a log does not say what the run was, its newest
// state or its model does.
#include "rapt/use/run_log.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/load/checkpoint.h"
#include "rapt/nn/size.h"
#include "rapt/use/store.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLog = "metrics.jsonl";

double number_or_gap(const Json* j) {
  return j && j->is_number() ? j->number() : std::numeric_limits<double>::quiet_NaN();
}

// A run that went back to a saved state has steps once more: the later ones count.
void add(Curve& curve, double x, double y) {
  while (!curve.x.empty() && curve.x.back() >= x) curve.x.pop_back(), curve.y.pop_back();
  curve.x.push_back(x);
  curve.y.push_back(y);
}

// One line of the log. A loss that is null was not finite: a gap in the curve, which goes on behind it.
void read_line(RunLog& log, const Json& j, double& smooth) {
  const Json* s = j.find("step");
  if (!s || !s->is_integer()) {
    ++log.unread;
    return;
  }
  const auto step = static_cast<double>(s->integer());
  if (const Json* loss = j.find("loss")) {
    const double now = number_or_gap(loss);
    if (const Json* seconds = j.find("seconds"); seconds && seconds->is_number())
      log.seconds += seconds->number();
    if (const Json* fate = j.find("fate")) {
      ++log.skipped;
      log.rewound += fate->is_string() && fate->string() == "rewound";
    } else {
      if (std::isfinite(now)) smooth = std::isfinite(smooth) ? 0.95 * smooth + 0.05 * now : now;
      add(log.loss, step, std::isfinite(now) ? smooth : now);
      log.steps = s->integer();
    }
  }
  if (const Json* held = j.find("held_out_loss")) add(log.held_out, step, number_or_gap(held));
  if (const Json* layers = j.find("attention"); layers && layers->is_array()) {
    while (!log.looks.empty() && log.looks.back().step >= step) log.looks.pop_back();
    log.looks.push_back({step, *layers});
  }
  if (const Json* plan = j.find("plan"); plan && plan->is_object()) {
    log.plan = *plan;
    if (const Json* recipe = j.find("recipe")) log.recipe = *recipe;
    if (const Json* data = j.find("data")) log.data = *data;
    log.finished = false;
    log.failed.clear();
  }
  if (const Json* event = j.find("event"); event && event->is_string()) {
    if (event->string() == "finished") log.finished = true;
    if (event->string().starts_with("failed: ")) log.failed = event->string().substr(8);
  }
}

// Of runs whose log does not say: the newest whole state does, or the model.
void read_states(RunRecord& run) {
  const std::vector<Stored> states = Store(run.folder).all();
  if (!states.empty()) {
    const Json& state = states.back().state;
    if (const Json* options = state.find("options"); options && options->is_object()) run.options = *options;
    if (const Json* recipe = state.find("recipe")) run.log.recipe = *recipe;
    if (const Json* data = state.find("data")) run.log.data = *data;
    return;
  }
  const std::string model = (fs::path(run.folder) / "model").string();
  if (fs::exists(fs::path(model) / "config.json")) run.recipe = checkpoint_recipe(model);
}

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kLog, error);
}

}  // namespace

RunLog read_run_log(const std::string& path) {
  const std::string text = read_text_file(path, std::uint64_t{1} << 32);
  RunLog log;
  double smooth = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    try {
      read_line(log, parse_json(line, path), smooth);
    } catch (const Error&) {  // cut short, or not ours
      ++log.unread;
    }
  }
  return log;
}

Curve over_layers(const RunLog& log, std::string_view key, bool largest) {
  Curve out;
  for (const RunLog::Look& look : log.looks) {
    double sum = 0, most = -std::numeric_limits<double>::infinity();
    int layers = 0;
    for (const Json& layer : look.layers.array())
      if (const Json* value = layer.find(key)) {
        const double v = number_or_gap(value);
        sum += v;
        most = v > most || !std::isfinite(v) ? v : most;
        ++layers;
      }
    if (layers > 0) add(out, look.step, largest ? most : sum / layers);
  }
  return out;
}

std::vector<std::string> run_folders(const std::string& folder) {
  if (is_run(folder)) return {folder};
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (is_run(entry.path())) out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out.empty() ? std::vector<std::string>{folder} : out;
}

RunRecord read_run(const std::string& folder) {
  std::error_code error;
  const fs::path path(folder);
  if (!fs::exists(path, error)) fail(folder, ": there is no such folder");
  if (!fs::is_directory(path, error))
    fail(folder, ": is no folder; name the one that `rapt train` wrote (its --out)");
  if (!is_run(path)) {
    const fs::path up = fs::absolute(path).lexically_normal();
    const fs::path parent = up.has_filename() ? up.parent_path() : up.parent_path().parent_path();
    fail(folder, ": holds no ", kLog, ", so no training wrote it; name its --out",
         is_run(parent) ? concat(", here ", parent.string()) : "");
  }
  RunRecord run{.folder = folder, .log = read_run_log((path / kLog).string())};
  if (const Json* data = run.log.plan.find("data"); data && data->is_object()) run.data = *data;
  if (const Json* options = run.log.plan.find("options"); options && options->is_object())
    run.options = *options;
  try {
    if (run.log.plan.is_null()) read_states(run);
    if (run.log.recipe.is_object()) run.recipe = resolve(parse_recipe(run.log.recipe.dump(), folder));
    if (run.recipe) run.parameters = count_parameters(*run.recipe).total;
  } catch (const Error&) {  // not known, which is said where it is shown
  }
  return run;
}

}  // namespace rapt
