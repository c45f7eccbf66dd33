// SPDX-License-Identifier: Apache-2.0
// A resumed metrics.jsonl loses the steps after its checkpoint.
#include "rapt/use/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "rapt/io/reader.h"
#include "rapt/report/picture.h"
#include "rapt/use/run_log.h"

namespace rapt {
namespace {

Json finite(double x) { return std::isfinite(x) ? Json(x) : Json(); }

}  // namespace

Json health_json(std::span<const LayerHealth> health) {
  Json::Array layers;
  for (const LayerHealth& h : health) {
    Json l = Json::Object{};
    l.set("stack", h.stack == Stack::encoder ? "encoder" : "decoder");
    l.set("layer", h.layer);
    if (h.attends)
      l.set("sink", finite(h.sink)), l.set("entropy", finite(h.entropy)),
          l.set("max_logit", finite(h.max_logit));
    l.set("massive", finite(h.massive));
    if (h.balance >= 0)
      l.set("experts_largest", finite(h.load_largest)), l.set("experts_entropy", finite(h.load_entropy)),
          l.set("experts_balance", finite(h.balance));
    if (h.state_stays >= 0) l.set("state_stays", finite(h.state_stays));
    if (h.gate >= 0) l.set("gate_sparsity", finite(h.gate)), l.set("gate_mean", finite(h.gate_mean));
    layers.push_back(std::move(l));
  }
  return layers;
}

MetricsFile::MetricsFile(std::string path, Dim resume_at) : path_(std::move(path)) {
  std::string kept;
  if (std::filesystem::exists(path_)) {
    const std::string text = read_text_file(path_, std::uint64_t{1} << 32);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      if (end == std::string::npos) break;  // a line that a crash cut short
      const std::string_view line = std::string_view(text).substr(at, end - at);
      at = end + 1;
      try {
        const Json j = parse_json(line, path_);
        if (const Json* step = j.find("step"); step && step->is_integer() && step->integer() <= resume_at)
          kept += std::string(line) + "\n";
      } catch (const Error&) {  // not ours: dropped
      }
    }
  }
  FileWriter out(path_, true);
  out.write(kept);
  out.commit();
  file_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) fail(path_, ": ", std::strerror(errno));
}

MetricsFile::~MetricsFile() {
  if (file_ >= 0) ::close(file_);
}

void MetricsFile::line(const Json& json) {
  const std::string text = json.dump(0) + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path_, ": ", std::strerror(errno));
    done += static_cast<std::size_t>(n);
  }
}

void MetricsFile::begin(Dim step, const Json& plan, const Recipe& recipe, const std::string& data) {
  Json j = Json::Object{};
  j.set("step", step);
  j.set("plan", plan);
  j.set("recipe", parse_json(recipe_json(recipe)));
  j.set("data", data);
  line(j);
}

void MetricsFile::step(const StepReport& r) {
  Json j = Json::Object{};
  j.set("step", r.step);
  j.set("batch", static_cast<std::int64_t>(r.batch));
  j.set("loss", finite(r.loss));
  j.set("norm", finite(r.norm));
  j.set("rate", r.rate);
  j.set("tokens", r.tokens);
  j.set("seconds", r.seconds);
  if (r.fate != StepReport::Fate::done) {
    j.set("fate", r.fate == StepReport::Fate::skipped ? "skipped" : "rewound");
    j.set("why", r.why);
  }
  if (!r.health.empty()) j.set("attention", health_json(r.health));
  line(j);
}

void MetricsFile::judged(Dim step, const Judgement& judgement) {
  Json j = Json::Object{};
  j.set("step", step);
  j.set("held_out_loss", finite(judgement.loss));
  j.set("held_out_accuracy", finite(judgement.accuracy));
  j.set("held_out_targets", judgement.counted);
  line(j);
}

void MetricsFile::event(Dim step, const std::string& what) {
  Json j = Json::Object{};
  j.set("step", step);
  j.set("event", what);
  line(j);
}

void MetricsFile::write_curves(const std::string& folder) const {
  const RunLog log = read_run_log(path_);
  Chart loss{.title = "loss", .x_label = "step", .y_label = "nats per target", .curves = {log.loss}};
  loss.curves[0].name = "training (smoothed)";
  if (!log.held_out.x.empty()) {
    loss.curves.push_back(log.held_out);
    loss.curves[1].name = "held out";
  }
  Chart sinks{.title = "attention sink: heads whose mean weight on the first key is above 0.3",
              .x_label = "step",
              .y_label = "share of heads",
              .curves = {},
              .share = true};
  std::map<std::string, Curve> layers;
  for (const RunLog::Look& look : log.looks)
    for (const Json& layer : look.layers.array()) {
      const Json *sink = layer.find("sink"), *stack = layer.find("stack"), *number = layer.find("layer");
      if (!sink || !stack || !stack->is_string() || !number || !number->is_integer())
        continue;  // a layer without weights of attention
      const std::string name = concat(stack->string(), " ", number->integer());
      Curve& c = layers[name];
      c.name = name;
      c.x.push_back(look.step);
      c.y.push_back(sink->is_number() ? sink->number() : std::nan(""));
    }
  for (auto& [name, curve] : layers) sinks.curves.push_back(std::move(curve));
  const auto put = [&](const char* name, const Chart& chart) {
    FileWriter out((std::filesystem::path(folder) / name).string(), true);
    out.write(chart_svg(chart));
    out.commit();
  };
  put("loss.svg", loss);
  if (!sinks.curves.empty()) put("attention.svg", sinks);
}

}  // namespace rapt
