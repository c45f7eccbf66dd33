// SPDX-License-Identifier: Apache-2.0
// Memory a run takes, a step and its guard, judging, states to files and back, the loop over all of it.
#include "rapt/use/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>

#include "rapt/base/text.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/family.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/loss.h"
#include "rapt/ops/optimize.h"
#include "rapt/use/evaluate.h"
#include "rapt/use/leaves.h"
#include "rapt/use/ranks.h"
#include "rapt/use/train_options.h"

namespace rapt {
namespace {

// Log of a value and how unusual the next one is. Below `floor` all values count as alike: a run that has
// learned its task has losses that jump by factors and mean nothing. `least`: the smallest deviation that is
// believed. Norms that hardly moved for 128 steps say little about the next batch, which may be shorter or
// harder: six deviations must be a factor that clipping alone would not take care of.
class Window {
 public:
  Window(Dim size, double floor, double least)
      : size_(static_cast<std::size_t>(size)), floor_(floor), least_(least) {}

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

// Values of a weight that go into a state's file, and back. Vectors have one dimension, as in a model
// folder: a state is one.
SafetensorBytes stored_weight(const std::string& name, const Weight& w, bool vector) {
  return {name, w.format, vector ? std::vector<Dim>{w.size()} : std::vector<Dim>{w.rows, w.cols},
          row_major(w)};
}

void read_weight(const TensorTable& from, const std::string& name, Weight& into, const std::string& where) {
  const TensorView* view = from.find(name);
  if (!view)
    fail(where, ": has no tensor ", quote_name(name), "; the state belongs to another recipe or optimizer");
  if (view->dtype() != into.format ||
      view->bytes().size() != static_cast<std::size_t>(into.size()) * size_of(into.format))
    fail(where, ": tensor ", quote_name(name),
         " has another type or shape than this run; the state belongs to another recipe");
  fill_row_major(into, view->bytes());
}

constexpr const char *kModelFile = "model.safetensors", *kOptimizerFile = "optimizer.safetensors";
// How the batches of a step are added (leaves.h). States of runs that accumulate say so; those without it are
// of versions that added each batch to the sum of those before it.
constexpr const char* kLeafOrder = "tree";

Dim rows_of(const TrainBatch& b) {
  if (!b.pictures.empty()) return b.sequences.back().first + b.sequences.back().count;
  return static_cast<Dim>(b.tokens.size() + b.source.size());
}

// The first sequences of a batch, about `rows` rows of it; of a first one that is longer, its beginning.
TrainBatch first_rows(const TrainBatch& b, Dim rows) {
  if (rows_of(b) <= rows) return b;
  if (!b.pictures.empty()) {  // whole ones, at least the first
    TrainBatch few = b;
    while (few.sequences.size() > 1 && rows_of(few) > rows)
      few.sequences.pop_back(), few.pictures.pop_back(), few.targets.pop_back();
    return few;
  }
  TrainBatch out;
  const bool per_sequence = b.targets.size() == b.sequences.size() && b.targets.size() != b.tokens.size();
  for (std::size_t i = 0; i < b.sequences.size(); ++i) {
    Sequence s = b.sequences[i], source = b.source.empty() ? Sequence{} : b.source_sequences[i];
    const Dim all = s.count + source.count;
    if (i > 0 && rows_of(out) + all > rows) break;
    const auto cut = [&](Dim count) { return all <= rows ? count : std::max<Dim>(1, count * rows / all); };
    const auto take = [](const std::vector<std::int32_t>& from, const Sequence& which, Dim count,
                         std::vector<std::int32_t>& into) {
      into.insert(into.end(), from.begin() + which.first, from.begin() + which.first + count);
    };
    const Dim count = cut(s.count), first = static_cast<Dim>(out.tokens.size());
    take(b.tokens, s, count, out.tokens);
    if (per_sequence) out.targets.push_back(b.targets[i]);
    else take(b.targets, s, count, out.targets);
    s.first = first, s.count = count, s.prefix = std::min(s.prefix, count), s.opened = 0;
    out.sequences.push_back(s);
    if (b.source.empty()) continue;
    const Dim read = cut(source.count), begin = static_cast<Dim>(out.source.size());
    take(b.source, source, read, out.source);
    source.first = begin, source.count = read, source.prefix = std::min(source.prefix, read),
    source.opened = 0;
    out.source_sequences.push_back(source);
  }
  return out;
}

Loss loss_of(Run& run, const Model& model, const TrainBatch& b, double smoothing) {
  const Batch batch{.tokens = b.tokens, .sequences = b.sequences, .pictures = b.pictures};
  const Batch source{.tokens = b.source, .sequences = b.source_sequences};
  const bool both = model.encoder && model.decoder;
  const Tensor logits = forward(run, model, batch, both ? &source : nullptr);
  return cross_entropy(run, logits, b.targets, smoothing);
}

// In the order of leaves; of those that are not finite the first one.
double sum_of_losses(std::span<const double> losses) {
  LeafTree<double> tree;
  const auto add = [](double& left, double right) { left += right; };
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (!std::isfinite(losses[i])) return losses[i];
    tree.push({.first = static_cast<Dim>(i), .value = losses[i]}, add);
  }
  tree.finish(add);
  return tree.nodes().empty() ? 0 : tree.nodes().front().value;
}

// A recipe without the words about it, which may have been written better while a run waited.
Json without_note(const Json& recipe) {
  Json out = Json::Object{};
  for (const Json::Member& m : recipe.object())
    if (m.key != "note") out.set(m.key, m.value);
  return out;
}

}  // namespace

double batch_gradients(Device& device, const Model& model, const TrainBatch& batch, Gradients& gradients,
                       double smoothing, const std::optional<RandomState>& random) {
  gradients.zero();
  if (batch.counted == 0) return 0;
  Tape tape(gradients);
  Run run(device);
  run.tape = &tape;
  run.training = random.has_value();
  if (random) run.random = *random;
  const Loss loss = loss_of(run, model, batch, smoothing);
  const double mean = loss.mean.at(0);
  if (std::isfinite(mean)) backward(run, loss.mean);
  else tape.clear();
  return mean;
}

TrainMemory train_memory(const Recipe& resolved, const OptimizerOptions& optimizer, DType real,
                         Dim accumulate) {
  TrainMemory m;
  double state = 0;
  for (const WeightShape& w : weight_shapes(resolved)) {
    const double numbers = static_cast<double>(w.rows) * static_cast<double>(w.cols);
    const bool in_stack = w.name.starts_with("encoder.") || w.name.starts_with("decoder.");
    m.parameters += numbers;
    state += numbers * state_numbers(optimizer, in_stack && !w.vector && w.rows > 1 && w.cols > 1);
  }
  const auto bytes = static_cast<double>(size_of(real));
  m.weights = bytes * m.parameters;
  m.gradients = m.weights * leaf_gradients(accumulate);
  m.moments = bytes * state;
  // Both files, and the tensors of the one being made.
  m.saving = bytes * (m.parameters + state + std::max(m.parameters, state));
  return m;
}

void check_train_memory(const Recipe& resolved, const OptimizerOptions& optimizer, DType real,
                        std::uint64_t available, Dim accumulate) {
  const TrainMemory m = train_memory(resolved, optimizer, real, accumulate);
  if (available == 0 || m.total() <= static_cast<double>(available)) return;
  fail("train: ", short_count(m.parameters), " weights take ", byte_count(m.total()),
       " of memory to train (weights ", byte_count(m.weights), ", gradients ", byte_count(m.gradients),
       ", moments ", byte_count(m.moments), ", a copy while saving ", byte_count(m.saving), "), ",
       byte_count(static_cast<double>(available)),
       " are available; make the model smaller: --set width=…, --set layers=…, --set ffn=…",
       accumulate > 1 ? ", or --accumulate" : "");
}

struct Trainer::State {
  Device& device;
  Model& model;
  const TrainData& data;
  const TrainOptions options;
  const std::unique_ptr<Comm> own_comm;
  Comm& comm;
  const std::vector<Shard> shards;  // of all ranks; none where there is one
  Optimizer optimizer;
  Gradients gradients;  // of the leaf that is computed, then of the step
  LeafGradients leaves;
  RankSum rank_sum;
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

  State(Device& d, Model& m, const TrainData& from, const TrainOptions& o, Comm* ranks)
      : device(d),
        model(m),
        data(from),
        options(o),
        own_comm(ranks ? nullptr : alone()),
        comm(ranks ? *ranks : *own_comm),
        shards(one_rank()
                   ? std::vector<Shard>{}
                   : shards_of(m, comm.size(), [&](const Weight& w) { return is_muon(o.optimizer, w); })),
        optimizer(m, o.optimizer, one_rank() ? nullptr : &shards[static_cast<std::size_t>(comm.rank())]),
        gradients(d.real),
        leaves(d.real),
        rank_sum(comm, d, m, shards),
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

  bool one_rank() const { return comm.size() == 1; }

  // The gradient's norm over all ranks, of what rank_sum has.
  double rank_norm() {
    std::vector<std::size_t> counts;
    for (const Shard& shard : shards) {
      counts.push_back(0);
      for (const ShardRange& r : shard)
        if (rank_sum.live[static_cast<std::size_t>(r.weight)])
          counts.back() += static_cast<std::size_t>((r.end - r.begin + kOptimizePiece - 1) / kOptimizePiece);
    }
    const std::vector<double> mine = optimizer.squares(device, rank_sum.at);
    return optimizer.norm_of(gather<double>(comm, mine, counts), rank_sum.live);
  }

  Loss pass(Run& with, const TrainBatch& b) {
    return loss_of(with, model, b, with.training ? options.smoothing : 0);
  }
};

Trainer::Trainer(Device& device, Model& model, const TrainData& data, const TrainOptions& options,
                 Comm* comm) {
  if (data.vocab > model.recipe.vocab)
    fail("train: the data has ", data.vocab, " tokens, the recipe's vocabulary ", model.recipe.vocab,
         "; set vocab=", data.vocab);
  const bool both = model.encoder && model.decoder;
  if (both != (data.objective == Objective::translation))
    fail("train: recipe ", model.recipe.name,
         both ? " is an encoder-decoder: it learns translation (pairs of texts), not "
              : " has one stack: it cannot learn ",
         both ? "a single text" : "translation", "; choose another recipe or objective");
  const bool classes = model.recipe.head.kind == HeadRecipe::Kind::classes;
  if (classes != (data.objective == Objective::classification))
    fail("train: ",
         classes ? "the recipe's head tells classes apart, the data has none"
                 : "classification needs a recipe whose head is of kind classes",
         "; set head.kind");
  if (classes && data.classes > model.recipe.head.classes)
    fail("train: the data has ", data.classes, " classes, the model tells ", model.recipe.head.classes,
         " apart; begin from a recipe, whose head is made for the data");
  if (model.recipe.head.kind == HeadRecipe::Kind::none)
    fail("train: recipe ", model.recipe.name,
         " has no head, so there is nothing to learn from; set head.kind=vocab");
  state_ = std::make_unique<State>(device, model, data, options, comm);
  const State& s = *state_;
  if (s.one_rank()) return;
  for (const Weight& w : model.weights)
    if (is_running(w))
      fail("train: recipe ", model.recipe.name, " has a batch norm (", w.name,
           "), whose statistics are those of one rank; train it on one, or choose another norm");
  check_alike(s.comm, concat(device.kernels.isa, " ", data.identity, " ", data.about(), " ",
                             train_options_json(options).dump(0), " ", recipe_json(model.recipe)));
}

Trainer::~Trainer() = default;

Dim Trainer::steps() const { return state_->step; }

double Trainer::step_bytes(Dim rows, std::size_t piece) {
  State& s = *state_;
  const TrainBatch whole = s.data.batch(0);
  if (rows_of(whole) == 0) return 0;
  std::vector<std::pair<Weight*, std::vector<std::byte>>> running;  // the forward changes them
  for (Weight& w : s.model.weights)
    if (is_running(w)) running.emplace_back(&w, row_major(w));
  // In one piece of memory the mark is what was taken. With `recompute` layers give theirs back:
  // `backward` is left out.
  const auto taken = [&](const TrainBatch& b, bool recompute) {
    Run run(s.device);
    run.arena.take(piece);
    run.reset();
    run.tape = &s.tape;
    run.training = true;
    run.recompute = recompute;
    const Loss loss = s.pass(run, b);
    if (recompute) s.tape.clear();
    else backward(run, loss.mean);
    s.gradients.zero();
    return static_cast<double>(run.arena.mark().chunk == 0 ? run.arena.mark().used : run.arena.reserved());
  };
  Dim layers = 0;
  for (const auto* stack : {&s.model.encoder, &s.model.decoder})
    if (*stack) layers += (*stack)->depth();
  const auto used = [&](const TrainBatch& b) {
    // what is kept has a gradient each; one layer at a time is there as a whole
    const double all = taken(b, false);
    return s.options.recompute
               ? std::min(all, 2 * taken(b, true) + all / static_cast<double>(std::max<Dim>(layers, 1)))
               : all;
  };
  const TrainBatch few = first_rows(whole, rows / 3), more = first_rows(whole, rows);
  const auto n = static_cast<double>(rows_of(whole)), a = static_cast<double>(rows_of(few)),
             b = static_cast<double>(rows_of(more));
  const double at_a = used(few), at_b = b > a ? used(more) : at_a;
  for (auto& [w, bytes] : running) fill_row_major(*w, bytes);
  return b > a ? at_b + (at_b - at_a) / (b - a) * (n - b) : at_a * n / a;
}

void Trainer::check_memory(std::uint64_t available) {
  State& s = *state_;
  if (available == 0) return;
  const TrainMemory m = train_memory(s.model.recipe, s.options.optimizer, s.model.real, s.options.accumulate);
  const double step = step_bytes(48, std::min<std::size_t>(std::size_t{128} << 20, available / 4)),
               saving = m.saving, waiting = m.gradients - m.weights;
  if (step + waiting + saving <= static_cast<double>(available)) return;
  const TrainBatch b = s.data.batch(0);
  fail("train: a step over ", with_commas(rows_of(b)), " tokens takes about ", byte_count(step),
       " of memory beside the weights, ",
       waiting > 0 ? concat("gradients that wait to be added ", byte_count(waiting), ", ") : "", "saving ",
       byte_count(saving), "; ", byte_count(static_cast<double>(available)),
       " are available; make --batch, --batch-tokens or --length smaller",
       s.options.recompute ? "" : ", or --set train.recompute=true");
}

StepReport Trainer::step() {
  State& s = *state_;
  const auto started = std::chrono::steady_clock::now();
  const TrainOptions& o = s.options;
  StepReport report{.step = s.step, .batch = s.cursor};
  // This rank's leaves, and what all leaves count.
  const LeafRange mine = leaves_of(o.accumulate, s.comm.rank(), s.comm.size());
  std::vector<TrainBatch> batches;
  struct Count {
    Dim targets, rows;
  };
  std::vector<Count> counts;
  for (Dim i = mine.first; i < mine.end; ++i) {
    batches.push_back(s.data.batch(s.cursor + static_cast<std::uint64_t>(i)));
    counts.push_back({batches.back().counted, rows_of(batches.back())});
  }
  std::vector<std::size_t> of_ranks;  // leaves
  for (int r = 0; r < s.comm.size(); ++r) {
    const LeafRange range = leaves_of(o.accumulate, r, s.comm.size());
    of_ranks.push_back(static_cast<std::size_t>(range.end - range.first));
  }
  Dim counted = 0;
  for (const Count& c : gather<Count>(s.comm, counts, of_ranks))
    counted += c.targets, report.tokens += c.rows;
  // Running statistics of a batch norm change in the forward; a step that is thrown away must not leave a
  // trace in them.
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
      s.leaves.clear();
      s.cursor = cursor, s.attempts = attempts;
      for (const auto& [w, bytes] : before) fill_row_major(*w, bytes);
    }
  } undo{s, running, s.cursor, s.attempts};

  const bool looked = o.health_every > 0 && s.step % o.health_every == 0;
  std::vector<double> losses;  // of leaves: their parts of the step's
  bool finite = true;
  s.leaves.begin(mine.first);
  s.gradients.zero();  // afterwards each leaf finds them empty
  for (std::size_t i = 0; i < batches.size() && counted > 0 && finite; ++i) {
    const TrainBatch& b = batches[i];
    losses.push_back(0);
    if (b.counted > 0) {
      s.run.reset();
      s.run.random = {o.seed, s.cursor + static_cast<std::uint64_t>(mine.first) + i};
      const double share = static_cast<double>(b.counted) / static_cast<double>(counted);
      s.run.loss_share = share;
      s.run.taps = looked ? &s.taps : nullptr;
      if (looked) s.health.start(b.sequences, b.source_sequences);
      const Loss loss = s.pass(s.run, b);
      losses.back() = share * loss.mean.at(0);
      finite = std::isfinite(losses.back());
      if (finite) backward(s.run, share == 1 ? loss.mean : activation(s.run, Act::scale, loss.mean, share));
      else s.tape.clear();
    }
    s.leaves.push(s.device, s.model, s.gradients);
  }
  losses.resize(batches.size());
  losses = gather<double>(s.comm, losses, of_ranks);
  report.loss = sum_of_losses(losses);
  s.run.taps = nullptr;
  s.cursor += static_cast<std::uint64_t>(o.accumulate);
  ++s.attempts;

  if (counted == 0) {
    report.why = "no target of the batch counts";
  } else if (!std::isfinite(report.loss)) {
    report.why = "the loss is not finite";
  } else {
    if (s.one_rank()) {
      s.leaves.finish(s.device, s.model, s.gradients);
      report.norm = s.optimizer.norm(s.device, s.gradients);
    } else {
      s.rank_sum.add(s.leaves.nodes(), o.accumulate);
      report.norm = s.rank_norm();
    }
    if (!std::isfinite(report.norm)) report.why = "the gradient is not finite";
    else if (o.guard.z > 0 && s.losses.z(report.loss) > o.guard.z)
      report.why =
          concat("the loss ", shortest(report.loss), " is ", static_cast<int>(s.losses.z(report.loss)),
                 " deviations above the last ", o.guard.window);
    else if (o.guard.z > 0 && s.norms.z(report.norm) > o.guard.z)
      report.why =
          concat("the gradient's norm ", shortest(report.norm), " is ",
                 static_cast<int>(s.norms.z(report.norm)), " deviations above the last ", o.guard.window);
  }
  if (looked) report.health = s.health.finish();

  if (report.why.empty()) {
    const double factor = o.schedule.at(s.step) * (s.slow > 0 ? 0.5 : 1);
    report.rate = factor * o.optimizer.rate;
    if (s.one_rank()) s.optimizer.step(s.device, s.gradients, report.norm, factor);
    else s.optimizer.step(s.device, s.rank_sum.at, report.norm, factor);
    undo.armed = false;
    gather_weights(s.comm, s.model, s.shards);
    s.losses.push(report.loss);
    s.norms.push(report.norm);
    if (s.slow > 0) --s.slow;
    report.step = ++s.step;
  } else {
    for (auto& [w, bytes] : running) fill_row_major(*w, bytes);
    undo.armed = false;
    report.fate = StepReport::Fate::skipped;
    s.skips.push_back(s.attempts);
    while (!s.skips.empty() && s.skips.front() + static_cast<std::uint64_t>(o.guard.within) <= s.attempts)
      s.skips.pop_front();
    if (static_cast<Dim>(s.skips.size()) >= o.guard.skips) report.fate = StepReport::Fate::rewound;
  }
  s.leaves.clear();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return report;
}

StepReport Trainer::apply(const Gradients& gradients) {
  State& s = *state_;
  if (!s.one_rank()) fail("train: a step by hand is one of one rank; several take steps of their own only");
  const auto started = std::chrono::steady_clock::now();
  StepReport report{.step = s.step, .batch = s.cursor};
  report.norm = s.optimizer.norm(s.device, gradients);
  const double factor = s.options.schedule.at(s.step) * (s.slow > 0 ? 0.5 : 1);
  report.rate = factor * s.options.optimizer.rate;
  s.optimizer.step(s.device, gradients, report.norm, factor);
  if (s.slow > 0) --s.slow;
  ++s.attempts;
  report.step = ++s.step;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return report;
}

std::uint64_t Trainer::next_batch() const { return state_->cursor; }
const TrainOptions& Trainer::options() const { return state_->options; }
Optimizer& Trainer::optimizer() { return state_->optimizer; }

Judgement Trainer::judge(Dim batches) {
  State& s = *state_;
  const Dim there = s.data.held_out(), n = batches > 0 ? std::min(batches, there) : there;
  struct Averages {  // stand in the model meanwhile, and nobody else looks at it
    Optimizer& optimizer;
    std::optional<Lease> lease;  // none where there are no averages, or the run is finished: they stand there
    explicit Averages(Optimizer& o, Device& device) : optimizer(o) {
      if (!o.has_ema() || o.averaged()) return;
      lease.emplace(device.team());
      optimizer.swap_ema();
    }
    ~Averages() {
      if (lease) optimizer.swap_ema();
    }
  } const averages(s.optimizer, s.device);
  Run run(s.device);
  Judgement out;
  Evaluation sofar;
  for (Dim i = 0; i < n; ++i) {
    const TrainBatch b = s.data.held_out_batch(i);
    run.reset();
    Tensor logits;
    Taps taps;  // the logits of the pass, where it makes them
    taps.see(site::logits, [&](const Tapped& t) { logits = t.value; });
    run.taps = &taps;
    const Loss loss = s.pass(run, b);
    sofar.add(logits, loss.rows, b.targets);
  }
  out.counted = sofar.counted;
  if (out.counted > 0) out.loss = sofar.mean(), out.accuracy = sofar.accuracy();
  return out;
}

// ------------------------------------------------------------------------------------------------ state
std::vector<StoredFile> Trainer::files() const {
  State& s = *state_;
  const std::vector<WeightShape> shapes = weight_shapes(s.model.recipe);
  const std::pair<std::string, std::string> format[] = {{"format", "pt"}};
  std::vector<SafetensorBytes> tensors;
  std::vector<StoredFile> out;
  for (const Weight& w : s.model.weights)
    tensors.push_back(stored_weight(w.name, w, shapes[static_cast<std::size_t>(w.index)].vector));
  out.push_back({kModelFile, safetensors_bytes(tensors, format)});
  tensors.clear();  // before those of the next file are made
  if (s.one_rank())
    s.optimizer.each_state(
        [&](const std::string& name, Weight& w) { tensors.push_back(stored_weight(name, w, false)); });
  else
    s.optimizer.each_part([&](const Weight& of, const std::string& name, Weight& part, Dim) {
      const Weight whole = gather_state(s.comm, s.model, s.shards, of, name, part);
      tensors.push_back(stored_weight(name, whole, false));
    });
  out.push_back({kOptimizerFile, safetensors_bytes(tensors, format)});
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
  j.set("isa", std::string(s.device.kernels.isa));
  if (s.options.accumulate > 1) j.set("order", kLeafOrder);
  j.set("options", train_options_json(s.options));
  j.set("recipe", parse_json(recipe_json(s.model.recipe)));
  j.set("data", s.data.about());
  j.set("data_identity", std::to_string(s.data.identity));
  return j;
}

std::vector<std::string> Trainer::restore(const Store& store, const Stored& stored) {
  State& s = *state_;
  const std::string where = stored.folder;
  const auto need = [&](const char* key) -> const Json& {
    const Json* j = stored.state.find(key);
    if (!j) fail(where, ": the state has no \"", key, "\"");
    return *j;
  };
  if (!(without_note(need("recipe")) == without_note(parse_json(recipe_json(s.model.recipe)))))
    fail(where, ": was saved by a run with another recipe; give another --out, or the recipe it began with");
  if (!(need("data") == Json(s.data.about())) ||
      !(need("data_identity") == Json(std::to_string(s.data.identity))))
    fail(where, ": was saved by a run on other data (", need("data").string(), "; now: ", s.data.about(),
         "), or with another seed, batch or length");
  std::vector<std::string> notes;
  if (const Json* isa = stored.state.find("isa");
      isa && isa->is_string() && isa->string() != s.device.kernels.isa)
    notes.push_back(concat("note: ", where, " was computed with ", isa->string(), ", this run computes with ",
                           s.device.kernels.isa,
                           ": it goes on, but not to the bits of a run with one of them (RAPT_ISA chooses)"));
  // What a run may change without becoming another one: how often it looks and saves, and that it is
  // longer. Where the rate depends on the number of steps, that is said.
  const bool by_length =
      s.options.schedule.kind == Schedule::Kind::cosine || s.options.schedule.kind == Schedule::Kind::wsd;
  const Dim steps_before = parse_train_options(need("options"), where).steps;
  const bool longer = s.options.steps > steps_before;
  if (by_length && longer)
    notes.push_back(concat("note: steps = ", steps_before, " before, ", s.options.steps, " now: from step ",
                           stored.step + 1, " on the rate is that of a schedule over ", s.options.steps,
                           " steps; a run begun with ", s.options.steps,
                           " would have had other rates before, and ends in other bits"));
  const auto essence = [&](const Json& options) {
    TrainOptions o = parse_train_options(options, where);
    const TrainOptions plain;
    o.eval_every = plain.eval_every, o.eval_batches = plain.eval_batches, o.save_every = plain.save_every,
    o.save_minutes = plain.save_minutes, o.health_every = plain.health_every, o.average = plain.average;
    if (longer || !by_length) o.steps = plain.steps, o.schedule.total = plain.schedule.total;
    return train_options_json(o);
  };
  if (const Json before = essence(need("options")), now = essence(train_options_json(s.options));
      !(before == now))
    for (const Json::Member& m : now.object())
      if (const Json* old = before.find(m.key); !old || !(*old == m.value))
        fail(where, ": was saved by a run with ", m.key, " = ", old ? old->dump(0) : "nothing",
             ", now it is ", m.value.dump(0), "; use the same options to go on, or another --out");
  if (s.options.accumulate > 1 && s.options.steps > stored.step) {  // batches are still to be added
    const Json* order = stored.state.find("order");
    if (!order || !(*order == Json(kLeafOrder)))
      fail(where, ": the ", s.options.accumulate, " batches of a step were added ",
           order ? concat("in an order this version does not know (", order->dump(0), ")")
                 : "one after the other by the version that saved it",
           ", this version adds them in a tree, and the run would end in the bits of neither; finish it with "
           "the version that began it, or begin another run from its weights: rapt train ",
           where, " … --out FOLDER");
  }
  const std::vector<std::byte> model = store.file(stored, kModelFile),
                               optimizer = store.file(stored, kOptimizerFile);
  const Lease lease(s.device.team());  // others may run the model
  const SafetensorsFile weights = SafetensorsFile::parse(model, where + "/" + kModelFile);
  for (Weight& w : s.model.weights) read_weight(weights.tensors, w.name, w, where + "/" + kModelFile);
  ++s.model.changes;
  const SafetensorsFile moments = SafetensorsFile::parse(optimizer, where + "/" + kOptimizerFile);
  const std::string moments_file = where + "/" + kOptimizerFile;
  if (s.one_rank())
    s.optimizer.each_state(
        [&](const std::string& name, Weight& w) { read_weight(moments.tensors, name, w, moments_file); });
  else
    s.optimizer.each_part([&](const Weight& of, const std::string& name, Weight& part, Dim begin) {
      Weight whole = make_weight(name, of.rows, of.cols, s.model.real, of.packing);
      read_weight(moments.tensors, name, whole, moments_file);
      if (part.data)
        std::memcpy(part.data.get(),
                    whole.data.get() + static_cast<std::size_t>(begin) * size_of(s.model.real), part.bytes());
    });
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
  return notes;
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
  const Lease lease(s.device.team());  // others may run the model
  if (s.optimizer.has_ema() && !s.optimizer.averaged()) s.optimizer.swap_ema();
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
  ++s.model.changes;
  for (Weight& w : s.model.weights)
    for (Dim e = 0; e < w.size(); ++e)
      w.set(e / w.cols, e % w.cols,
            sums[static_cast<std::size_t>(w.index)][static_cast<std::size_t>(e)] / static_cast<double>(n));
}

// ------------------------------------------------------------------------------------------------ a run
TrainLoop::TrainLoop(Trainer& trainer, const TrainOptions& options, Store& store, TrainEvents events)
    : trainer_(trainer), options_(options), store_(store), events_(std::move(events)) {
  if (const std::optional<Stored> last = store_.latest([&](const std::string& text) { say(text); })) {
    for (const std::string& note : trainer_.restore(store_, *last)) say(note);
    saved_ = last->step;
    say(concat("goes on from ", last->folder, " (step ", last->step, ")"));
  } else {
    save_state();  // so that there is always something to go back to
    saved_ = 0;
  }
  saved_at_ = minutes();
}

void TrainLoop::say(const std::string& text) const {
  if (events_.say) events_.say(text);
}

double TrainLoop::minutes() const {
  if (events_.clock) return events_.clock();
  return std::chrono::duration<double, std::ratio<60>>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void TrainLoop::save_state() {
  std::vector<StoredFile> files = trainer_.files();
  if (events_.extra_files)
    for (StoredFile& f : events_.extra_files()) files.push_back(std::move(f));
  const Stored stored = store_.save(trainer_.steps(), files, trainer_.state());
  if (events_.saved) events_.saved(stored);
}

void TrainLoop::save() {
  if (saved_ == trainer_.steps()) return;
  save_state();
  saved_ = trainer_.steps(), saved_at_ = minutes();
}

void TrainLoop::judge() {
  if (judged_ == trainer_.steps()) return;
  judged_ = trainer_.steps();
  if (events_.judged) events_.judged(judged_, trainer_.judge(options_.eval_batches));
}

void TrainLoop::go_back(const StepReport& r) {
  const std::optional<Stored> back = store_.latest([&](const std::string& text) { say(text); });
  if (!back)
    fail("train: ", options_.guard.skips, " of ", options_.guard.within,
         " steps were skipped and there is no saved state to go back to");
  const Dim rewinds = trainer_.rewind(store_, *back);
  if (rewinds > options_.guard.rewinds)
    fail("train: went back ", options_.guard.rewinds, " times and steps still fail (last: ", r.why,
         "); lower optimizer.rate, raise schedule.warmup, or look at the data from batch ", r.batch);
  say(concat("goes back to step ", back->step, ", past batch ", r.batch, ", ", options_.guard.slow,
             " steps at half the rate (", rewinds, " of ", options_.guard.rewinds, ")"));
}

StepReport TrainLoop::step() {
  const StepReport r = trainer_.step();
  if (events_.step) events_.step(r);
  if (r.fate != StepReport::Fate::done) {
    say(concat("step ", r.step + 1, " skipped (batch ", r.batch, "): ", r.why));
    if (r.fate == StepReport::Fate::rewound) go_back(r);
    return r;
  }
  const TrainOptions& o = options_;
  if (o.eval_every > 0 && r.step % o.eval_every == 0) judge();
  const bool by_steps = o.save_every > 0 && r.step % o.save_every == 0;
  const bool by_time = o.save_minutes > 0 && o.average == 0 && minutes() - saved_at_ >= o.save_minutes;
  if (by_steps || by_time) {
    save_state();
    saved_ = r.step, saved_at_ = minutes();
  }
  return r;
}

bool TrainLoop::end() {
  save();
  if (!done()) return false;
  judge();
  return true;
}

bool train(Trainer& trainer, const TrainOptions& o, Store& store, const TrainEvents& events,
           const std::atomic<int>& stop) {
  TrainLoop loop(trainer, o, store, events);
  while (!loop.done() && stop.load(std::memory_order_relaxed) == 0) loop.step();
  return loop.end();
}

}  // namespace rapt
