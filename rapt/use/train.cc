// SPDX-License-Identifier: Apache-2.0
#include "rapt/use/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>

#include "rapt/base/text.h"
#include "rapt/io/safetensors.h"
#include "rapt/nn/family.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/loss.h"
#include "rapt/use/train_options.h"

namespace rapt {
namespace {

// Log of a value and how unusual the next one is. Below `floor` all values count as alike: a run that has learned its task has losses that
// jump by factors and mean nothing. `least`: the smallest deviation that is believed. Norms that hardly moved for 128 steps say little about
// the next batch, which may be shorter or harder: six deviations must be a factor that clipping alone would not take care of.
class Window {
 public:
  Window(Dim size, double floor, double least) : size_(static_cast<std::size_t>(size)), floor_(floor), least_(least) {}

  double z(double value) const {  // deviations above the mean; 0 until the window is full
    if (values_.size() < size_ || size_ < 2) return 0;
    double mean = 0, square = 0;
    for (double v : values_) mean += v;
    mean /= static_cast<double>(values_.size());
    for (double v : values_) square += (v - mean) * (v - mean);
    const double deviation = std::max(std::sqrt(square / static_cast<double>(values_.size())), least_);
    return (std::log(value + floor_) - mean) / deviation;
  }
  void push(double value) {
    values_.push_back(std::log(value + floor_));
    if (values_.size() > size_) values_.pop_front();
  }
  Json json() const {
    Json::Array out;
    for (double v : values_) out.emplace_back(v);
    return out;
  }
  void read(const Json& json) {
    values_.clear();
    for (const Json& v : json.array()) values_.push_back(v.number());
  }

 private:
  std::size_t size_;
  double floor_, least_;
  std::deque<double> values_;
};

bool is_running(const Weight& w) { return w.name.ends_with(".running"); }

// Values of a weight that go into a state's file, and back. Vectors have one dimension, as in a model folder: a state is one.
SafetensorBytes stored_weight(const std::string& name, const Weight& w, bool vector) {
  return {name, w.format, vector ? std::vector<Dim>{w.size()} : std::vector<Dim>{w.rows, w.cols}, row_major(w)};
}

void read_weight(const TensorTable& from, const std::string& name, Weight& into, const std::string& where) {
  const TensorView* view = from.find(name);
  if (!view) fail(where, ": has no tensor ", quote_name(name), "; the state belongs to another recipe or optimizer");
  if (view->dtype() != into.format || view->bytes().size() != static_cast<std::size_t>(into.size()) * size_of(into.format))
    fail(where, ": tensor ", quote_name(name), " has another type or shape than this run; the state belongs to another recipe");
  fill_row_major(into, view->bytes());
}

constexpr const char *kModelFile = "model.safetensors", *kOptimizerFile = "optimizer.safetensors";

}  // namespace

struct Trainer::State {
  Device& device;
  Model& model;
  const TrainData& data;
  const TrainOptions options;
  Optimizer optimizer;
  Gradients gradients;
  Tape tape;
  Run run;
  Taps taps;
  HealthMeter health;
  Window losses, norms;

  Dim step = 0;
  std::uint64_t cursor = 0;  // number of the next batch
  std::uint64_t attempts = 0;  // steps tried, skipped ones included
  std::deque<std::uint64_t> skips;  // attempts that were skipped, the last `within`
  Dim slow = 0;  // steps still to go at half the rate
  Dim rewinds = 0;

  State(Device& d, Model& m, const TrainData& from, const TrainOptions& o)
      : device(d),
        model(m),
        data(from),
        options(o),
        optimizer(m, o.optimizer),
        gradients(d.real),
        tape(gradients),
        run(d),
        health(taps),
        losses(o.guard.window, 0.05, 0.05),
        norms(o.guard.window, 0.1 * (o.optimizer.clip > 0 ? o.optimizer.clip : 1), 0.25) {
    run.tape = &tape;
    run.training = true;
    run.recompute = o.recompute;
    run.products = o.precision;
  }

  Loss pass(Run& with, const TrainBatch& b) {
    const Batch batch{.tokens = b.tokens, .sequences = b.sequences};
    const Batch source{.tokens = b.source, .sequences = b.source_sequences};
    const bool both = model.encoder && model.decoder;
    const Tensor logits = forward(with, model, batch, both ? &source : nullptr);
    return cross_entropy(with, logits, b.targets, with.training ? options.smoothing : 0);
  }
};

Trainer::Trainer(Device& device, Model& model, const TrainData& data, const TrainOptions& options) {
  if (data.vocab > model.recipe.vocab)
    fail("train: the data has ", data.vocab, " tokens, the recipe's vocabulary ", model.recipe.vocab, "; set vocab=", data.vocab);
  const bool both = model.encoder && model.decoder;
  if (both != (data.objective == Objective::translation))
    fail("train: recipe ", model.recipe.name,
         both ? " is an encoder-decoder: it learns translation (pairs of texts), not " : " has one stack: it cannot learn ",
         both ? "a single text" : "translation", "; choose another recipe or objective");
  const bool classes = model.recipe.head.kind == HeadRecipe::Kind::classes;
  if (classes != (data.objective == Objective::classification))
    fail("train: ",
         classes ? "the recipe's head tells classes apart, the data has none"
                 : "classification needs a recipe whose head is of kind classes",
         "; set head.kind");
  if (model.recipe.head.kind == HeadRecipe::Kind::none)
    fail("train: recipe ", model.recipe.name, " has no head, so there is nothing to learn from; set head.kind=vocab");
  state_ = std::make_unique<State>(device, model, data, options);
}

Trainer::~Trainer() = default;

Dim Trainer::steps() const { return state_->step; }

StepReport Trainer::step() {
  State& s = *state_;
  const auto started = std::chrono::steady_clock::now();
  const TrainOptions& o = s.options;
  StepReport report{.step = s.step, .batch = s.cursor};
  std::vector<TrainBatch> batches;
  Dim counted = 0;
  for (Dim i = 0; i < o.accumulate; ++i) {
    batches.push_back(s.data.batch(s.cursor + static_cast<std::uint64_t>(i)));
    counted += batches.back().counted;
    report.tokens += static_cast<Dim>(batches.back().tokens.size() + batches.back().source.size());
  }
  // Running statistics of a batch norm change in the forward; a step that is thrown away must not leave a trace in them.
  std::vector<std::pair<Weight*, std::vector<std::byte>>> running;
  for (Weight& w : s.model.weights)
    if (is_running(w)) running.emplace_back(&w, row_major(w));
  struct Undo {  // nor must a step that an exception ends
    State& s;
    const decltype(running)& before;
    const std::uint64_t cursor, attempts;
    bool armed = true;
    ~Undo() {
      if (!armed) return;
      s.run.taps = nullptr;
      s.tape.clear();
      s.cursor = cursor, s.attempts = attempts;
      for (const auto& [w, bytes] : before) fill_row_major(*w, bytes);
    }
  } undo{s, running, s.cursor, s.attempts};

  const bool looked = o.health_every > 0 && s.step % o.health_every == 0;
  s.gradients.zero();
  for (std::size_t i = 0; i < batches.size() && counted > 0; ++i) {
    const TrainBatch& b = batches[i];
    if (b.counted == 0) continue;
    s.run.reset();
    s.run.random = {o.seed, s.cursor + i};
    s.run.taps = looked ? &s.taps : nullptr;
    if (looked) s.health.start(b.sequences, b.source_sequences);
    const Loss loss = s.pass(s.run, b);
    const double share = static_cast<double>(b.counted) / static_cast<double>(counted);
    report.loss += share * loss.mean.at(0);
    if (!std::isfinite(report.loss)) {
      s.tape.clear();
      break;
    }
    backward(s.run, share == 1 ? loss.mean : activation(s.run, Act::scale, loss.mean, share));
  }
  s.run.taps = nullptr;
  s.cursor += static_cast<std::uint64_t>(o.accumulate);
  ++s.attempts;

  if (counted == 0) {
    report.why = "no target of the batch counts";
  } else if (!std::isfinite(report.loss)) {
    report.why = "the loss is not finite";
  } else {
    report.norm = s.optimizer.norm(s.device, s.gradients);
    if (!std::isfinite(report.norm)) report.why = "the gradient is not finite";
    else if (o.guard.z > 0 && s.losses.z(report.loss) > o.guard.z)
      report.why = concat("the loss ", shortest(report.loss), " is ", static_cast<int>(s.losses.z(report.loss)),
                          " deviations above the last ", o.guard.window);
    else if (o.guard.z > 0 && s.norms.z(report.norm) > o.guard.z)
      report.why = concat("the gradient's norm ", shortest(report.norm), " is ", static_cast<int>(s.norms.z(report.norm)),
                          " deviations above the last ", o.guard.window);
  }
  if (looked) report.health = s.health.finish();

  if (report.why.empty()) {
    const double factor = o.schedule.at(s.step) * (s.slow > 0 ? 0.5 : 1);
    report.rate = factor * o.optimizer.rate;
    s.optimizer.step(s.device, s.gradients, report.norm, factor);
    undo.armed = false;
    s.losses.push(report.loss);
    s.norms.push(report.norm);
    if (s.slow > 0) --s.slow;
    report.step = ++s.step;
  } else {
    for (auto& [w, bytes] : running) fill_row_major(*w, bytes);
    undo.armed = false;
    report.fate = StepReport::Fate::skipped;
    s.skips.push_back(s.attempts);
    while (!s.skips.empty() && s.skips.front() + static_cast<std::uint64_t>(o.guard.within) <= s.attempts) s.skips.pop_front();
    if (static_cast<Dim>(s.skips.size()) >= o.guard.skips) report.fate = StepReport::Fate::rewound;
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return report;
}

Judgement Trainer::judge(Dim batches) {
  State& s = *state_;
  const Dim there = s.data.held_out(), n = batches > 0 ? std::min(batches, there) : there;
  struct Averages {  // stand in the model meanwhile
    Optimizer& optimizer;
    explicit Averages(Optimizer& o) : optimizer(o) { swap(); }
    ~Averages() { swap(); }
    void swap() {
      if (optimizer.has_ema()) optimizer.swap_ema();
    }
  } const averages(s.optimizer);
  Run run(s.device);
  Judgement out;
  double sum = 0, right = 0;
  for (Dim i = 0; i < n; ++i) {
    const TrainBatch b = s.data.held_out_batch(i);
    run.reset();
    Tensor logits;
    Taps taps;  // the logits of the pass, where it makes them
    taps.see(Site::logits, [&](const Tapped& t) { logits = t.value; });
    run.taps = &taps;
    const Loss loss = s.pass(run, b);
    const Dim rows = logits[0], classes = logits[1];
    for (Dim r = 0; r < rows; ++r) {
      const std::int32_t target = b.targets[static_cast<std::size_t>(r)];
      if (target < 0) continue;
      sum += loss.rows.at(r);
      Dim best = 0;
      double top = -std::numeric_limits<double>::infinity();
      for (Dim c = 0; c < classes; ++c)
        if (const double x = logits.dtype == DType::f64 ? logits.as<double>()[r * classes + c] : logits.as<float>()[r * classes + c];
            x > top)
          top = x, best = c;
      right += best == target;
      ++out.counted;
    }
  }
  if (out.counted > 0) out.loss = sum / static_cast<double>(out.counted), out.accuracy = right / static_cast<double>(out.counted);
  return out;
}

// ------------------------------------------------------------------------------------------------ state
std::vector<StoredFile> Trainer::files() const {
  State& s = *state_;
  std::vector<SafetensorBytes> weights, moments;
  const std::vector<WeightShape> shapes = weight_shapes(s.model.recipe);
  for (const Weight& w : s.model.weights) weights.push_back(stored_weight(w.name, w, shapes[static_cast<std::size_t>(w.index)].vector));
  s.optimizer.each_state([&](const std::string& name, Weight& w) { moments.push_back(stored_weight(name, w, false)); });
  const std::pair<std::string, std::string> format[] = {{"format", "pt"}};
  std::vector<StoredFile> out;
  out.push_back({kModelFile, safetensors_bytes(weights, format)});
  out.push_back({kOptimizerFile, safetensors_bytes(moments, format)});
  return out;
}

Json Trainer::state() const {
  const State& s = *state_;
  Json j = Json::Object{};
  j.set("step", s.step);
  j.set("cursor", static_cast<std::int64_t>(s.cursor));
  j.set("attempts", static_cast<std::int64_t>(s.attempts));
  j.set("optimizer_steps", s.optimizer.steps());
  j.set("slow", s.slow);
  j.set("rewinds", s.rewinds);
  Json::Array skips;
  for (std::uint64_t n : s.skips) skips.emplace_back(static_cast<std::int64_t>(n));
  j.set("skips", skips);
  j.set("losses", s.losses.json());
  j.set("norms", s.norms.json());
  j.set("options", train_options_json(s.options));
  j.set("recipe", parse_json(recipe_json(s.model.recipe)));
  j.set("data", s.data.about());
  j.set("data_identity", std::to_string(s.data.identity));
  return j;
}

void Trainer::restore(const Store& store, const Stored& stored) {
  State& s = *state_;
  const std::string where = stored.folder;
  const auto need = [&](const char* key) -> const Json& {
    const Json* j = stored.state.find(key);
    if (!j) fail(where, ": the state has no \"", key, "\"");
    return *j;
  };
  if (!(need("recipe") == parse_json(recipe_json(s.model.recipe))))
    fail(where, ": was saved by a run with another recipe; give another --out, or the recipe it began with");
  if (!(need("data") == Json(s.data.about())) || !(need("data_identity") == Json(std::to_string(s.data.identity))))
    fail(where, ": was saved by a run on other data (", need("data").string(), "; now: ", s.data.about(),
         "), or with another seed, batch or length");
  // What a longer run may change without becoming another one: how long it is and how often it looks.
  const auto essence = [](const Json& options) {
    TrainOptions o = parse_train_options(options, "options");
    const TrainOptions plain;
    o.eval_every = plain.eval_every, o.eval_batches = plain.eval_batches, o.save_every = plain.save_every,
    o.health_every = plain.health_every, o.average = plain.average;
    if (o.schedule.kind == Schedule::Kind::constant || o.schedule.kind == Schedule::Kind::inverse_sqrt)
      o.steps = plain.steps, o.schedule.total = plain.schedule.total;
    return train_options_json(o);
  };
  if (const Json before = essence(need("options")), now = essence(train_options_json(s.options)); !(before == now))
    for (const Json::Member& m : now.object())
      if (const Json* old = before.find(m.key); !old || !(*old == m.value))
        fail(where, ": was saved by a run with ", m.key, " = ", old ? old->dump(0) : "nothing", ", now it is ", m.value.dump(0),
             "; use the same options to go on, or another --out");
  const std::vector<std::byte> model = store.file(stored, kModelFile), optimizer = store.file(stored, kOptimizerFile);
  const SafetensorsFile weights = SafetensorsFile::parse(model, where + "/" + kModelFile);
  for (Weight& w : s.model.weights) read_weight(weights.tensors, w.name, w, where + "/" + kModelFile);
  const SafetensorsFile moments = SafetensorsFile::parse(optimizer, where + "/" + kOptimizerFile);
  s.optimizer.each_state([&](const std::string& name, Weight& w) { read_weight(moments.tensors, name, w, where + "/" + kOptimizerFile); });
  s.optimizer.set_steps(need("optimizer_steps").integer());
  s.step = need("step").integer();
  s.cursor = static_cast<std::uint64_t>(need("cursor").integer());
  s.attempts = static_cast<std::uint64_t>(need("attempts").integer());
  s.slow = need("slow").integer();
  s.rewinds = need("rewinds").integer();
  s.skips.clear();
  for (const Json& n : need("skips").array()) s.skips.push_back(static_cast<std::uint64_t>(n.integer()));
  s.losses.read(need("losses"));
  s.norms.read(need("norms"));
}

Dim Trainer::rewind(const Store& store, const Stored& stored) {
  State& s = *state_;
  const std::uint64_t cursor = s.cursor, attempts = s.attempts;
  const Dim rewinds = s.rewinds + 1;
  restore(store, stored);
  s.cursor = cursor;  // past the batches that did it
  s.attempts = attempts;
  s.skips.clear();
  s.rewinds = rewinds;
  s.slow = s.options.guard.slow;
  return rewinds;
}

void Trainer::finish(const Store& store) {
  State& s = *state_;
  if (s.optimizer.has_ema()) s.optimizer.swap_ema();
  const std::vector<Stored> states = store.all();
  const Dim n = std::min<Dim>(s.options.average, static_cast<Dim>(states.size()));
  if (n < 2) return;
  std::vector<std::vector<double>> sums;
  for (const Weight& w : s.model.weights) sums.emplace_back(static_cast<std::size_t>(w.size()));
  for (Dim i = 0; i < n; ++i) {
    const Stored& stored = states[states.size() - static_cast<std::size_t>(n - i)];
    const std::vector<std::byte> bytes = store.file(stored, kModelFile);
    const SafetensorsFile file = SafetensorsFile::parse(bytes, stored.folder + "/" + kModelFile);
    for (Weight& w : s.model.weights) {
      read_weight(file.tensors, w.name, w, stored.folder + "/" + kModelFile);
      std::vector<double>& sum = sums[static_cast<std::size_t>(w.index)];
      for (Dim e = 0; e < w.size(); ++e) sum[static_cast<std::size_t>(e)] += w.get(e / w.cols, e % w.cols);
    }
  }
  for (Weight& w : s.model.weights)
    for (Dim e = 0; e < w.size(); ++e)
      w.set(e / w.cols, e % w.cols, sums[static_cast<std::size_t>(w.index)][static_cast<std::size_t>(e)] / static_cast<double>(n));
}

// ------------------------------------------------------------------------------------------------ a run
bool train(Trainer& trainer, const TrainOptions& o, Store& store, const TrainEvents& events, const std::atomic<int>& stop) {
  const auto say = [&](const std::string& text) {
    if (events.say) events.say(text);
  };
  const auto save = [&] {
    std::vector<StoredFile> files = trainer.files();
    if (events.extra_files)
      for (StoredFile& f : events.extra_files()) files.push_back(std::move(f));
    const Stored stored = store.save(trainer.steps(), files, trainer.state());
    if (events.saved) events.saved(stored);
    return stored;
  };
  Dim saved = -1;
  if (const std::optional<Stored> last = store.latest(say)) {
    trainer.restore(store, *last);
    saved = last->step;
    say(concat("goes on from ", last->folder, " (step ", last->step, ")"));
  } else {
    save();  // so that there is always something to go back to
    saved = 0;
  }
  Dim judged = -1;
  const auto judge = [&] {
    if (judged == trainer.steps()) return;
    judged = trainer.steps();
    if (events.judged) events.judged(judged, trainer.judge(o.eval_batches));
  };
  while (trainer.steps() < o.steps && stop.load(std::memory_order_relaxed) == 0) {
    const StepReport r = trainer.step();
    if (events.step) events.step(r);
    if (r.fate != StepReport::Fate::done) {
      say(concat("step ", r.step + 1, " skipped (batch ", r.batch, "): ", r.why));
      if (r.fate == StepReport::Fate::rewound) {
        const std::optional<Stored> back = store.latest(say);
        if (!back) fail("train: ", o.guard.skips, " of ", o.guard.within, " steps were skipped and there is no saved state to go back to");
        const Dim rewinds = trainer.rewind(store, *back);
        if (rewinds > o.guard.rewinds)
          fail("train: went back ", o.guard.rewinds, " times and steps still fail (last: ", r.why,
               "); lower optimizer.rate, raise schedule.warmup, or look at the data from batch ", r.batch);
        say(concat("goes back to step ", back->step, ", past batch ", r.batch, ", ", o.guard.slow, " steps at half the rate (", rewinds,
                   " of ", o.guard.rewinds, ")"));
      }
      continue;
    }
    if (o.eval_every > 0 && r.step % o.eval_every == 0) judge();
    if (o.save_every > 0 && r.step % o.save_every == 0) save(), saved = r.step;
  }
  if (saved != trainer.steps()) save();
  if (trainer.steps() < o.steps) return false;
  judge();
  return true;
}

}  // namespace rapt
