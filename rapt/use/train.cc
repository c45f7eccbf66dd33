// SPDX-License-Identifier: Apache-2.0
// Memory a run takes, a step and its guard, judging.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/load/family.h"
#include "rapt/ops/activation.h"
#include "rapt/use/evaluate.h"
#include "rapt/use/train_options.h"
#include "rapt/use/train_parts.h"

namespace rapt {
namespace {

bool is_running(const Weight& w) { return w.name.ends_with(".running"); }

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

}  // namespace

Loss loss_of(Run& run, const Model& model, const TrainBatch& b, double smoothing) {
  const Batch batch{.tokens = b.tokens, .sequences = b.sequences, .pictures = b.pictures};
  const Batch source{.tokens = b.source, .sequences = b.source_sequences};
  const bool both = model.encoder && model.decoder;
  const Tensor logits = forward(run, model, batch, both ? &source : nullptr);
  return cross_entropy(run, logits, b.targets, smoothing);
}

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
  const std::vector<WeightShape> shapes = weight_shapes(resolved);
  for (const WeightShape& w : shapes) {
    const double numbers = static_cast<double>(w.rows) * static_cast<double>(w.cols);
    const bool in_stack = w.name.starts_with("encoder.") || w.name.starts_with("decoder.");
    m.parameters += numbers;
    state += numbers * state_numbers(optimizer, in_stack && !w.vector && w.rows > 1 && w.cols > 1);
  }
  const auto bytes = static_cast<double>(size_of(real));
  m.weights = bytes * m.parameters;
  m.gradients = m.weights * leaf_gradients(accumulate);
  m.moments = bytes * state;
  m.saving = saving_bytes(shapes, real);
  return m;
}

void check_train_memory(const Recipe& resolved, const OptimizerOptions& optimizer, DType real,
                        std::uint64_t available, Dim accumulate) {
  const TrainMemory m = train_memory(resolved, optimizer, real, accumulate);
  if (available == 0 || m.total() <= static_cast<double>(available)) return;
  fail("train: ", short_count(m.parameters), " weights take ", byte_count(m.total()),
       " of memory to train (weights ", byte_count(m.weights), ", gradients ", byte_count(m.gradients),
       ", moments ", byte_count(m.moments), ", pieces while saving ", byte_count(m.saving), "), ",
       byte_count(static_cast<double>(available)),
       " are available; make the model smaller: --set width=…, --set layers=…, --set ffn=…",
       accumulate > 1 ? ", or --accumulate" : "");
}

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
    const Loss loss = s.loss(run, b);
    if (recompute) s.tape.clear();
    else backward(run, loss.mean);
    s.gradients.zero();
    s.leaves.clear();
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

// The leaves of this rank, from `first` on; the losses of all leaves, as parts of the step's. Where all of
// them are finite, the sum of gradients is in `gradients` afterwards, with other ranks in `exchange`.
std::vector<double> Trainer::State::compute(const std::vector<TrainBatch>& batches, Dim first, Dim counted,
                                            bool looked) {
  std::vector<double> own(batches.size());
  bool finite = true;
  leaves.begin(first);
  gradients.zero();  // afterwards each leaf finds them empty
  for (std::size_t i = 0; i < batches.size() && finite; ++i) {
    const TrainBatch& b = batches[i];
    const bool last = exchange && i + 1 == batches.size();
    comm.at({.phase = Phase::computing, .step = step + 1, .leaf = first + static_cast<Dim>(i)});
    Tensor loss;
    if (b.counted > 0) {
      const TimedScope span(timeline, Timeline::Lane::compute,
                            concat("forward ", first + static_cast<Dim>(i)));
      run.reset();
      run.random = {options.seed, cursor + static_cast<std::uint64_t>(first) + i};
      const double share = static_cast<double>(b.counted) / static_cast<double>(counted);
      run.loss_share = share;
      run.taps = looked ? &taps : nullptr;
      if (looked) health.start(b.sequences, b.source_sequences);
      loss = this->loss(run, b).mean;
      own[i] = share * loss.at(0);
      finite = std::isfinite(own[i]);
      if (!finite) tape.clear();
      else if (share != 1) loss = activation(run, Act::scale, loss, share);
    }
    // From here on other ranks may have what they wait for.
    if (last) {
      std::vector<LeafGradients::Node> nodes = leaves.nodes_with(gradients);
      Gradients& spare = *nodes.front().sum;
      exchange->start(options.accumulate, own, std::move(nodes), spare);
    }
    if (finite && b.counted > 0) {
      const TimedScope span(timeline, Timeline::Lane::compute,
                            concat("backward ", first + static_cast<Dim>(i)));
      backward(run, loss);
    }
    if (last) pass(0);
    else leaves.push(gradients);
  }
  if (!exchange) {
    if (finite) leaves.finish(gradients);
    return own;
  }
  if (!exchange->started()) exchange->start(options.accumulate, own, {}, gradients);  // none, or a bad one
  exchange->pass(0);
  comm.at({.phase = Phase::exchanging, .step = step + 1});
  const TimedScope span(timeline, Timeline::Lane::compute, "wait");
  exchange->finish();
  return exchange->losses;
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
  s.comm.at({.phase = Phase::reading, .step = s.step + 1});
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
      if (s.exchange) s.exchange->stop();
      s.run.taps = nullptr;
      s.tape.clear();
      s.leaves.clear();
      s.cursor = cursor, s.attempts = attempts;
      for (const auto& [w, bytes] : before) fill_row_major(*w, bytes);
    }
  } undo{s, running, s.cursor, s.attempts};

  const bool looked = o.health_every > 0 && s.step % o.health_every == 0;
  if (counted > 0) report.loss = sum_of_losses(s.compute(batches, mine.first, counted, looked));
  s.run.taps = nullptr;
  s.cursor += static_cast<std::uint64_t>(o.accumulate);
  ++s.attempts;

  if (counted == 0) {
    report.why = "no target of the batch counts";
  } else if (!std::isfinite(report.loss)) {
    report.why = "the loss is not finite";
  } else {
    const TimedScope span(s.timeline, Timeline::Lane::compute, "norm");
    report.norm = s.exchange ? s.rank_norm() : s.optimizer.norm(s.device, s.gradients);
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
    s.comm.at({.phase = Phase::updating, .step = s.step + 1});
    const double factor = o.schedule.at(s.step) * (s.slow > 0 ? 0.5 : 1);
    report.rate = factor * o.optimizer.rate;
    {
      const TimedScope span(s.timeline, Timeline::Lane::compute, "optimizer");
      if (s.exchange) s.optimizer.step(s.device, s.exchange->at, report.norm, factor);
      else s.optimizer.step(s.device, s.gradients, report.norm, factor);
    }
    undo.armed = false;
    {
      const TimedScope span(s.timeline, Timeline::Lane::compute, "weights");
      gather_weights(s.comm, s.model, *s.layout, s.deal);
    }
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
  if (s.timeline && --s.timed <= 0) note_times(nullptr, 0);
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

void Trainer::note_times(Timeline* timeline, Dim steps) {
  state_->timeline = timeline, state_->timed = steps;
  if (state_->exchange) state_->exchange->timeline = timeline;
}

std::uint64_t Trainer::next_batch() const { return state_->cursor; }
const TrainOptions& Trainer::options() const { return state_->options; }
Comm& Trainer::comm() const { return state_->comm; }
Optimizer& Trainer::optimizer() { return state_->optimizer; }

// Batches are dealt to the ranks one by one; what was found is added in the order of batches, target by
// target, as one rank does.
Judgement Trainer::judge(Dim batches) {
  State& s = *state_;
  const Dim there = s.data.held_out(), n = batches > 0 ? std::min(batches, there) : there;
  struct Averages {  // stand in the model meanwhile, and nobody else looks at it
    State& s;
    std::optional<Lease> lease;  // none where there are no averages, or the run is finished: they stand there
    explicit Averages(State& of) : s(of) {
      if (!s.optimizer.has_ema() || s.optimizer.averaged()) return;
      lease.emplace(s.device.team());
      s.swap_averages();
    }
    void leave() {
      if (lease) s.swap_averages();
      lease.reset();
    }
    ~Averages() {
      if (lease) s.optimizer.swap_ema();  // an exception: of several ranks the job is over
    }
  } averages(s);
  struct Found {
    Dim right = 0, counted = 0;
  };
  const auto ranks = static_cast<std::size_t>(s.comm.size());
  Run run(s.device);
  Judgement out;
  Evaluation all;
  for (Dim first = 0; first < n; first += s.comm.size()) {
    std::vector<double> losses;  // of this rank's batch: the targets that count
    Found found;
    if (const Dim mine = first + s.comm.rank(); mine < n) {
      const TrainBatch b = s.data.held_out_batch(mine);
      run.reset();
      Tensor logits;
      Taps taps;  // the logits of the pass, where it makes them
      taps.see(site::logits, [&](const Tapped& t) { logits = t.value; });
      run.taps = &taps;
      const Loss loss = s.loss(run, b);
      for (std::size_t i = 0; i < b.targets.size(); ++i)
        if (b.targets[i] >= 0) losses.push_back(loss.rows.at(static_cast<Dim>(i)));
      Evaluation batch;
      batch.add(logits, loss.rows, b.targets);
      found = {batch.right, batch.counted};
    }
    std::vector<std::size_t> counts;
    for (const Found& f : gather<Found>(s.comm, {&found, 1}, std::vector<std::size_t>(ranks, 1))) {
      all.right += f.right, all.counted += f.counted;
      counts.push_back(static_cast<std::size_t>(f.counted));
    }
    for (const double loss : gather<double>(s.comm, losses, counts)) all.loss += loss;
  }
  averages.leave();
  out.counted = all.counted;
  if (out.counted > 0) out.loss = all.mean(), out.accuracy = all.accuracy();
  return out;
}

}  // namespace rapt
