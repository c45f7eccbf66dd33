// SPDX-License-Identifier: Apache-2.0
// Events of a training; numbers that are not finite are null.
#include "rapt/apps/server/train_events.h"

#include <algorithm>
#include <cmath>

#include "rapt/base/sha256.h"
#include "rapt/base/text.h"
#include "rapt/io/reader.h"
#include "rapt/text/words.h"
#include "rapt/use/metrics_file.h"

namespace rapt::server {
namespace {

constexpr Dim kMostTold = 100'000;     // steps
constexpr Dim kMostText = 256;         // tokens of the text whose heads are looked at
constexpr Dim kMostSide = 48;          // … of its maps
constexpr Dim kMostMapped = 32;        // heads
constexpr Dim kMostHeads = 1024;
constexpr Dim kMostHealth = 400;  // looks at the layers
constexpr double kTellSeconds = 0.1, kFreeSeconds = 2;

Json number_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(); }

}  // namespace

TrainTeller::TrainTeller(Workshop::Bench& bench, Device& device, const TrainingRun& run, Options options)
    : bench_(bench), device_(device), run_(run), options_(std::move(options)) {
  every_ = std::max<Dim>(1, (options_.steps + kMostTold - 1) / kMostTold);
  // Held out where there is such a part: the model has never seen it.
  const TrainData& data = *run.data;
  const TrainBatch batch = data.held_out() > 0 ? data.held_out_batch(0) : data.batch(0);
  const auto first = [](const std::vector<std::int32_t>& all, const std::vector<Sequence>& sequences) {
    std::vector<std::int32_t> out;
    if (sequences.empty() || all.empty()) return out;
    const Sequence& s = sequences.front();
    const auto at = all.begin() + s.first;
    out.assign(at, at + std::min(s.count, kMostText));
    return out;
  };
  if (!batch.pictures.empty()) return;
  ids_ = first(batch.tokens, batch.sequences);
  source_ = first(batch.source, batch.source_sequences);
  if (ids_.empty()) return;
  try {
    const AttentionRecord record(device_, *run.checkpoint->model, ids_, source_);
    rows_ = record.places();
    for (const HeadMetrics& m : head_metrics(record, 1)) gated_ = gated_ || m.gate >= 0;
    Dim all = 0;
    for (const AttentionPlace& p : rows_) {
      heads_ = std::max<Dim>(heads_, record.heads(p));
      all += record.heads(p);
    }
    if (all > kMostHeads) rows_.clear(), heads_ = 0;
    if (all <= kMostMapped) side_ = std::min<Dim>(kMostSide, static_cast<Dim>(ids_.size()));
    for (const AttentionPlace& p : rows_)
      if (p.cross || p.stack == Stack::encoder) side_ = source_.empty() ? side_ : 0;
  } catch (const Error&) {  // a model without attention: there are no heads to show
    rows_.clear();
  }
  if (rows_.empty()) heads_ = side_ = 0;
}

// Those that this model has.
std::vector<HeadMetric> TrainTeller::figures() const {
  std::vector<HeadMetric> out;
  for (const HeadMetric& m : head_metric_list())
    if (gated_ || !std::string_view(m.key).starts_with("gate")) out.push_back(m);
  return out;
}

void TrainTeller::begin(const Json& plan) {
  const Model& model = *run_.checkpoint->model;
  Json out = Json::Object{{"kind", "begin"}, {"name", options_.name}, {"steps", options_.steps}};
  out.set("parameters", model.parameters());
  out.set("plan", plan);
  out.set("recipe", parse_json(recipe_json(model.recipe)));
  out.set("data", run_.data->about());
  out.set("vocabulary", model.recipe.vocab);
  Dim layers = 0;
  for (const auto* stack : {&model.encoder, &model.decoder})
    if (*stack) layers += (*stack)->depth();
  out.set("layers", layers);
  out.set("heads", heads_);
  out.set("every", every_);
  Json::Array rows, metrics;
  for (const AttentionPlace& p : rows_)
    rows.push_back(Json::Object{{"stack", p.stack == Stack::encoder ? "encoder" : "decoder"},
                                {"layer", p.layer},
                                {"number", p.number},
                                {"cross", p.cross}});
  for (const HeadMetric& m : figures()) metrics.push_back(Json::Object{{"key", m.key}, {"share", m.share}});
  metrics.push_back(Json::Object{{"key", "sink"}, {"share", true}});
  out.set("rows", std::move(rows));
  out.set("metrics", std::move(metrics));
  Json::Array tokens, ids;
  if (run_.checkpoint->tokenizer)
    for (const std::string& t : token_texts(run_.checkpoint->tokenizer.get(), ids_)) tokens.emplace_back(t);
  for (const std::int32_t id : ids_) ids.emplace_back(id);
  out.set("text", Json::Object{{"tokens", std::move(tokens)}, {"ids", std::move(ids)}});
  out.set("side", side_);
  bench_.tell(out);
}

void TrainTeller::earlier(const std::string& metrics_file) {
  const std::string text = read_text_file(metrics_file, std::uint64_t{1} << 32);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    try {
      const Json j = parse_json(line);
      const Json* step = j.find("step");
      if (!step || !step->is_integer()) continue;
      const auto also = [&](const char* key) { return j.find(key) ? *j.find(key) : Json(); };
      if (const Json* loss = j.find("loss"); loss && !j.find("fate") && step->integer() % every_ == 0) {
        step_.push_back(*step), loss_.push_back(*loss);
        norm_.push_back(also("norm")), rate_.push_back(also("rate"));
        if (step_.size() >= 1000) flush();
      }
      if (const Json* layers = j.find("attention")) {
        flush();
        bench_.tell(Json::Object{{"kind", "health"}, {"step", *step}, {"layers", *layers}});
      }
      if (const Json* loss = j.find("held_out_loss")) {
        flush();
        bench_.tell(Json::Object{{"kind", "judge"},
                                 {"step", *step},
                                 {"loss", *loss},
                                 {"accuracy", also("held_out_accuracy")},
                                 {"targets", also("held_out_targets")}});
      }
    } catch (const Error&) {  // cut short by a crash
    }
  }
  flush();
}

void TrainTeller::step(const StepReport& r) {
  if (!r.health.empty() && r.step - healthy_ >= options_.steps / kMostHealth) {
    healthy_ = r.step;
    flush();
    // At the weights before this step, as metrics.jsonl has it: under the number of the step.
    bench_.tell(Json::Object{{"kind", "health"}, {"step", r.step}, {"layers", health_json(r.health)}});
  }
  if (r.fate != StepReport::Fate::done) return;  // say() hears why
  tokens_ += static_cast<double>(r.tokens), seconds_ += r.seconds;
  if (r.step % every_ == 0 || r.step == options_.steps) {
    step_.emplace_back(r.step), loss_.push_back(number_or_null(r.loss));
    norm_.push_back(number_or_null(r.norm)), rate_.emplace_back(r.rate);
  }
  if (seconds_since(told_) >= kTellSeconds || r.step == options_.steps) flush();
}

void TrainTeller::flush() {
  if (step_.empty()) return;
  told_ = Clock::now();
  Json out = Json::Object{{"kind", "steps"}};
  out.set("step", std::exchange(step_, {}));
  out.set("loss", std::exchange(loss_, {}));
  out.set("norm", std::exchange(norm_, {}));
  out.set("rate", std::exchange(rate_, {}));
  if (seconds_ > 0) out.set("tokens_per_second", std::round(10 * tokens_ / seconds_) / 10);
  tokens_ = seconds_ = 0;
  bench_.tell(out);
}

void TrainTeller::judged(Dim step, const Judgement& j) {
  flush();
  bench_.tell(Json::Object{{"kind", "judge"},
                           {"step", step},
                           {"loss", number_or_null(j.loss)},
                           {"accuracy", number_or_null(j.accuracy)},
                           {"targets", j.counted}});
}

void TrainTeller::say(Dim step, const std::string& text) {
  flush();
  bench_.tell(Json::Object{{"kind", "note"}, {"step", step}, {"text", bytes_json(text)}});
}

void TrainTeller::sample(Dim step, const std::string& text) {
  if (text.empty()) return;
  flush();
  bench_.tell(Json::Object{{"kind", "sample"}, {"step", step}, {"text", bytes_json(text)}});
}

void TrainTeller::look(Dim step, bool writes, bool due) {
  if (looked_ == step) return;
  if (!due && spent_ > kFreeSeconds && spent_ > options_.share * seconds_since(began_)) return;
  looked_ = step;
  const auto from = Clock::now();
  flush();
  if (heads_ > 0) heads(step);
  if (writes) sample(step, run_.sample(device_, options_.prompt, step));
  spent_ += seconds_since(from);
}

void TrainTeller::heads(Dim step) {
  const AttentionRecord record(device_, *run_.checkpoint->model, ids_, source_);
  const std::vector<HeadMetrics> all = head_metrics(record);
  std::vector<std::vector<const HeadMetrics*>> cells(rows_.size());
  for (const HeadMetrics& m : all)
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (rows_[r] == m.place) cells[r].push_back(&m);
  const auto grid = [&](const auto& value) {
    Json::Array out;
    for (const auto& row : cells) {
      Json::Array line;
      for (const HeadMetrics* m : row) line.push_back(value(*m));
      out.push_back(std::move(line));
    }
    return out;
  };
  Json values = Json::Object{};
  for (const HeadMetric& metric : figures())
    values.set(metric.key, grid([&](const HeadMetrics& m) { return number_or_null(metric.of(m)); }));
  values.set("sink", grid([](const HeadMetrics& m) { return number_or_null(m.sink); }));
  Json out = Json::Object{{"kind", "heads"}, {"step", step}, {"values", std::move(values)}};
  out.set("labels", grid([](const HeadMetrics& m) { return Json(m.label); }));
  if (side_ > 0) {
    const auto side = static_cast<std::size_t>(side_), heads = static_cast<std::size_t>(heads_);
    std::vector<std::byte> pixels(rows_.size() * heads * side * side);
    for (const HeadMap& map : head_maps(record, {.row_end = side_, .key_end = side_, .pixels = side_})) {
      const auto row =
          static_cast<std::size_t>(std::find(rows_.begin(), rows_.end(), map.place) - rows_.begin());
      std::byte* at = pixels.data() + (row * heads + static_cast<std::size_t>(map.head)) * side * side;
      for (std::size_t i = 0; i < std::min(side * side, map.values.size()); ++i)
        at[i] = static_cast<std::byte>(std::lround(255 * std::clamp(map.values[i], 0.0F, 1.0F)));
    }
    out.set("maps", base64(pixels));
  }
  bench_.tell(out);
}

}  // namespace rapt::server
