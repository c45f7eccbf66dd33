// SPDX-License-Identifier: Apache-2.0
// Experiments on norms: on values, which kind, over what, and where. On queries and keys: learn_rates.cc.
#include <algorithm>
#include <array>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/sweep.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/batch_norm.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/loss.h"
#include "rapt/ops/norm.h"

namespace rapt {

LabResult v_norm(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  std::vector<Toy> toys;
  auto add = [&](const char* name, bool on_qk, bool on_v, bool gated = false) {
    Recipe r = toy_recipe();
    if (on_qk) self_attn(r).qk_norm = QkNormRecipe{};
    if (on_v) self_attn(r).v_norm = NormRecipe{.weight = NormRecipe::Gain::none};
    if (gated) self_attn(r).gate.push_back({});
    toys.push_back({.name = say(name), .recipe = r, .task = task, .seed = lab.seed});
  };
  enum { none, qk, v, all, gate, gate_v };
  add("lab.v-norm.none", false, false);
  add("lab.v-norm.qk", true, false);
  add("lab.v-norm.v_only", false, true);
  add("lab.v-norm.all", true, true);
  add("lab.v-norm.gate", false, false, true);
  add("lab.v-norm.gate_v", false, true, true);
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  auto least = [](const std::vector<double>& x) { return *std::min_element(x.begin(), x.end()); };
  LabResult out;
  Table table{.title = say("lab.v-norm.table"),
              .columns = {say("lab.v-norm.normed"), say("lab.excess_loss"), say("lab.norms.largest_logit"),
                          say("lab.v-norm.entropy"), say("lab.v-norm.value_ratio"), say("lab.v-norm.first")}};
  for (const Trained& t : runs) {
    const ToyLook& l = t.end();
    table.rows.push_back({t.name, Cell(l.excess, 4), Cell(l.max_logit, 1), Cell(mean_of(l.entropy), 2),
                          joined(l.value_ratio), Cell(mean_of(l.idle), 2)});
  }
  auto of = [&](int i) -> const ToyLook& { return runs[static_cast<std::size_t>(i)].end(); };
  Table roles{.title = say("lab.v-norm.roles"),
              .columns = {"", say("lab.v-norm.on_qk"), say("lab.v-norm.on_v")},
              .rows = {{say("lab.v-norm.role"), say("lab.v-norm.role_qk"), say("lab.v-norm.role_v")},
                       {say("lab.v-norm.bounds"), say("lab.v-norm.bounds_qk"), say("lab.v-norm.bounds_v")},
                       {say("lab.v-norm.here"),
                        say("lab.v-norm.here_qk", digits(of(none).max_logit, 1), digits(of(qk).max_logit, 1)),
                        say("lab.v-norm.here_v", digits(least(of(none).value_ratio), 2),
                            digits(least(of(v).value_ratio), 2))},
                       {say("lab.v-norm.who"), say("lab.v-norm.who_qk"), say("lab.v-norm.who_v")}}};
  Chart ratios{
      .title = say("lab.v-norm.ratios"), .x_label = say("lab.layer"), .y_label = say("lab.v-norm.ratio")};
  for (int i : {none, qk, v, all})
    ratios.curves.push_back(over_layers(runs[static_cast<std::size_t>(i)].name, of(i).value_ratio));
  out.document.parts = {ratios, table, roles, loss_chart(say("lab.v-norm.losses"), runs)};
  const double lost = of(v).excess - of(none).excess, lost_gated = of(gate_v).excess - of(gate).excess,
               ratio = least(of(none).value_ratio), lower = of(qk).max_logit / of(none).max_logit,
               both = of(all).excess - of(none).excess;
  out.findings = {
      below(say("lab.v-norm.f.drained"), ratio, 0.9, "x", say("lab.v-norm.p.drained")),
      between(say("lab.v-norm.f.equal"), least(of(v).value_ratio), 0.99, 1.01, "x"),
      below(say("lab.v-norm.f.loss"), lost, 0.005, "nats", say("lab.v-norm.p.gemma"), false),
      below(say("lab.v-norm.f.logit"), lower, 1, "x", "", false),
      below(say("lab.v-norm.f.all"), both, 0.005, "nats", "", false),
      below(say("lab.v-norm.f.first"), mean_of(of(v).idle) / mean_of(of(none).idle), 1, "x", "", false),
  };
  out.verdict =
      sentences({say(lost < 0.005 ? "lab.v-norm.v.choice" : "lab.v-norm.v.costs", digits(of(none).excess, 4),
                     digits(of(v).excess, 4)),
                 say(lost_gated < 0.005 ? "lab.v-norm.v.gated" : "lab.v-norm.v.gated_costs",
                     digits(of(gate).excess, 4), digits(of(gate_v).excess, 4)),
                 ratio < 0.9 ? say("lab.v-norm.v.drained", digits(ratio, 2),
                                   digits(mean_of(of(none).idle), 2), digits(mean_of(of(v).idle), 2))
                             : say("lab.v-norm.v.not_drained", digits(ratio, 2)),
                 say(lower < 1 ? "lab.v-norm.v.logit" : "lab.v-norm.v.logit_not",
                     digits(of(none).max_logit, 1), digits(of(qk).max_logit, 1)),
                 say("lab.v-norm.v.roles", digits(of(all).excess, 4))});
  return out;
}

// ---------------------------------------------------------------------------------------- RMS and LayerNorm
namespace {

// One training step without the optimizer, again and again.
class StepClock {
 public:
  StepClock(Device& device, const Recipe& recipe, CopyTask::Batch data)
      : model_(recipe, device.real),
        data_(std::move(data)),
        run_(device),
        gradients_(device.real),
        tape_(gradients_) {
    init(model_, 0);
    run_.tape = &tape_;
    run_.training = true;
  }
  double step() {
    return shortest_time(1, [&] {
      run_.reset();
      gradients_.zero();
      backward(run_, cross_entropy(run_, forward(run_, model_, toy_batch(data_, 32)), data_.targets).mean);
    });
  }

 private:
  Model model_;
  CopyTask::Batch data_;
  Run run_;
  Gradients gradients_;
  Tape tape_;
};

// Of one norm alone; `running`: BatchNorm with the statistics it has collected.
double norm_seconds(Device& device, NormRecipe::Kind kind, Dim rows, Dim cols, bool running = false) {
  Run run(device);
  run.training = !running;
  const Tensor x = normal_tensor(run, {rows, cols}, 1);
  Weight w = make_weight("w", 1, cols, device.real), b = make_weight("b", 1, cols, device.real),
         statistics = make_weight("statistics", 1, 2 * cols, device.real);
  const Arena::Mark mark = run.arena.mark();
  return shortest_time(3, [&] {  // from the second on the result's memory is there
    if (kind == NormRecipe::Kind::batch) batch_norm(run, {}, x, &w, &b, statistics);
    else
      rapt::norm(run, {kind == NormRecipe::Kind::rms ? NormKind::rms : NormKind::layer, 1e-6, false}, x, &w,
                 kind == NormRecipe::Kind::layer ? &b : nullptr);
    run.arena.release(mark);
  });
}

// BatchNorm with running statistics and the matrix after it, against one matrix and bias that hold both: the
// largest difference of their results, in double.
double folding_error(std::uint64_t seed) {
  constexpr Dim kRows = 16, kIn = 24, kOut = 20;
  constexpr double kEps = 1e-5;
  Device f64({.threads = 1, .isa = "f64"});
  Run run(f64);
  const Weight gain = normal_weight(f64.real, 1, kIn, mix_key(seed, 1), 1, Packing::rows),
               shift = normal_weight(f64.real, 1, kIn, mix_key(seed, 2), 1, Packing::rows);
  Weight matrix = normal_weight(f64.real, kOut, kIn, mix_key(seed, 3)),
         folded = normal_weight(f64.real, kOut, kIn, 0), bias = make_weight("b", 1, kOut, f64.real),
         statistics = make_weight("s", 1, 2 * kIn, f64.real);
  std::vector<double> numbers = normal_values(mix_key(seed, 4), 2 * kIn);
  for (Dim c = 0; c < kIn; ++c)
    numbers[static_cast<std::size_t>(kIn + c)] = 0.5 + std::abs(numbers[static_cast<std::size_t>(kIn + c)]);
  fill(statistics, numbers);
  std::vector<double> into(static_cast<std::size_t>(kOut * kIn)), offset(static_cast<std::size_t>(kOut));
  for (Dim o = 0; o < kOut; ++o)
    for (Dim c = 0; c < kIn; ++c) {
      const double factor = gain.get(0, c) / std::sqrt(numbers[static_cast<std::size_t>(kIn + c)] + kEps);
      into[static_cast<std::size_t>(o * kIn + c)] = matrix.get(o, c) * factor;
      offset[static_cast<std::size_t>(o)] +=
          matrix.get(o, c) * (shift.get(0, c) - numbers[static_cast<std::size_t>(c)] * factor);
    }
  fill(folded, into);
  fill(bias, offset);
  const Tensor x = normal_tensor(run, {kRows, kIn}, mix_key(seed, 5));
  return largest_difference(
      values_of(linear(run, batch_norm(run, {.eps = kEps}, x, &gain, &shift, statistics), matrix)),
      values_of(linear(run, x, folded, &bias)));
}

}  // namespace

LabResult rms_vs_layer(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  using Kind = NormRecipe::Kind;
  std::vector<Toy> toys;
  std::vector<Recipe> recipes;
  auto add = [&](Text name, const NormRecipe& norm) {
    Recipe r = with_ffn(toy_recipe());
    set_norms(r, norm);
    recipes.push_back(r);
    toys.push_back({.name = std::move(name), .recipe = r, .task = task, .seed = lab.seed});
  };
  enum { rms, layer, layer_plain, batch, kinds };
  add("RMSNorm", {});
  add("LayerNorm", {.kind = Kind::layer, .bias = true});
  add(say("lab.rms-vs-layer.no_bias"), {.kind = Kind::layer});
  add("BatchNorm", {.kind = Kind::batch, .eps = 1e-5, .bias = true, .leaks_ok = true});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  // On one thread, in turns, the shortest of many: what else the machine does makes no difference.
  Device one(lab.device.kernels, {.threads = 1});
  std::vector<double> steps(kinds, INFINITY), ops(kinds, INFINITY);
  double in_use = INFINITY;  // BatchNorm with running statistics
  std::vector<std::unique_ptr<StepClock>> clocks;
  for (const Recipe& r : recipes)
    clocks.push_back(std::make_unique<StepClock>(one, r, task(0, scaled_batch(lab, 32), 32)));
  const Kind of[] = {Kind::rms, Kind::layer, Kind::layer, Kind::batch};
  const Dim rows = scaled_batch(lab, 2048);
  for (Dim round = 0; round < scaled(lab, 40); ++round) {
    for (std::size_t i = 0; i < kinds; ++i) {
      steps[i] = std::min(steps[i], clocks[i]->step());
      ops[i] = std::min(ops[i], norm_seconds(one, of[i], rows, 768));
    }
    in_use = std::min(in_use, norm_seconds(one, Kind::batch, rows, 768, true));
  }

  LabResult out;
  Table table{.title = say("lab.rms-vs-layer.table"),
              .columns = {say("lab.rms-vs-layer.norm"), say("lab.excess_loss"), say("lab.rms-vs-layer.step"),
                          say("lab.rms-vs-layer.alone")}};
  for (std::size_t i = 0; i < kinds; ++i)
    table.rows.push_back(
        {runs[i].name, Cell(runs[i].end().excess, 4), Cell(1e3 * steps[i], 2), Cell(1e6 * ops[i], 0)});
  table.rows.push_back({say("lab.rms-vs-layer.in_use"), "", "", Cell(1e6 * in_use, 0)});
  table.rows.push_back({say("lab.rms-vs-layer.folded"), "", "", Cell(0, 0)});
  Chart by_width{.title = say("lab.rms-vs-layer.by_width"),
                 .x_label = say("lab.rms-vs-layer.width"),
                 .y_label = say("lab.rms-vs-layer.alone"),
                 .curves = {{.name = "RMSNorm"},
                            {.name = "LayerNorm"},
                            {.name = say("lab.rms-vs-layer.in_training")},
                            {.name = say("lab.rms-vs-layer.in_use")}}};
  for (Dim width : {192, 384, 768, 1536}) {
    double best[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
    for (Dim round = 0; round < scaled(lab, 10); ++round)
      for (std::size_t i = 0; i < 4; ++i)
        best[i] = std::min(best[i],
                           norm_seconds(one, std::array{Kind::rms, Kind::layer, Kind::batch, Kind::batch}[i],
                                        scaled_batch(lab, 1024), width, i == 3));
    for (std::size_t i = 0; i < 4; ++i)
      by_width.curves[i].x.push_back(static_cast<double>(width)),
          by_width.curves[i].y.push_back(1e6 * best[i]);
  }
  out.document.parts = {by_width, table, loss_chart(say("lab.rms-vs-layer.losses"), runs)};
  const double saved = 100 * (1 - steps[rms] / steps[layer]), alone = 100 * (1 - ops[rms] / ops[layer]),
               gap = runs[rms].end().excess - runs[layer].end().excess, batch_alone = ops[batch] / ops[layer],
               folding = folding_error(lab.seed);
  out.findings = {
      between(say("lab.rms-vs-layer.f.loss"), gap, -0.005, 0.005, "nats", say("lab.rms-vs-layer.p.quality"),
              false),
      above(say("lab.rms-vs-layer.f.alone"), alone, 10, "%", say("lab.rms-vs-layer.p.alone"), false),
      between(say("lab.rms-vs-layer.f.step"), saved, -10, 10, "%", say("lab.rms-vs-layer.p.step"), false),
      above(say("lab.rms-vs-layer.f.batch"), batch_alone, 1, "x", "", false),
      below(say("lab.rms-vs-layer.f.folded"), folding, 1e-10, ""),
  };
  out.verdict =
      sentences({say(gap < 0.005 ? "lab.rms-vs-layer.v.same" : "lab.rms-vs-layer.v.lost", digits(gap, 4)),
                 say(alone >= 10 ? "lab.rms-vs-layer.v.alone"
                     : alone > 0 ? "lab.rms-vs-layer.v.alone_little"
                                 : "lab.rms-vs-layer.v.alone_slower",
                     digits(std::abs(alone), 0)),
                 say(saved >= 10 ? "lab.rms-vs-layer.v.step_much"
                     : saved > 0 ? "lab.rms-vs-layer.v.step"
                                 : "lab.rms-vs-layer.v.step_none",
                     digits(std::abs(saved), 1)),
                 say("lab.rms-vs-layer.v.batch", digits(1e6 * ops[batch], 0), digits(1e6 * ops[layer], 0),
                     digits(1e6 * ops[rms], 0), digits(1e6 * in_use, 0)),
                 folding < 1e-10 ? say("lab.rms-vs-layer.v.folded") : Text()});
  return out;
}

// ----------------------------------------------------------------------------------------------- batch norm
LabResult batchnorm(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  const NormRecipe batch{.kind = NormRecipe::Kind::batch, .eps = 1e-5, .bias = true, .leaks_ok = true};
  Recipe rms = with_ffn(toy_recipe(2)), bn = rms;
  set_norms(bn, batch);
  std::vector<Toy> toys;
  for (Dim count : {32, 4, 1})
    for (bool is_bn : {false, true})
      toys.push_back({.name = say(count == 1 ? "lab.batchnorm.one" : "lab.batchnorm.several",
                                  is_bn ? "BatchNorm" : "RMSNorm", count),
                      .recipe = is_bn ? bn : rms,
                      .task = task,
                      .seed = lab.seed,
                      .steps = 800,
                      .batch = count});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  struct Use {
    double as_trained, short_texts, own_statistics, leak, across;
  };
  const Dim sequences = scaled_batch(lab, 128);
  const CopyTask::Batch data = task(~std::uint64_t{2}, sequences, 32);
  auto part = [&](Dim first, Dim count, Dim rows) {  // the first rows of some of the sequences
    CopyTask::Batch cut;
    for (Dim n = first; n < first + count; ++n)
      for (Dim t = 0; t < rows; ++t) {
        const auto r = static_cast<std::size_t>(n * 32 + t);
        cut.tokens.push_back(data.tokens[r]), cut.targets.push_back(data.targets[r]);
        cut.floor.push_back(data.floor[r]), cut.kind.push_back(data.kind[r]);
      }
    return cut;
  };
  auto use = [&](const Trained& t) {
    Use u{};
    auto loss_of = [&](const CopyTask::Batch& d, Dim length, bool training, Dim rows) {
      // Training passes move the running statistics.
      const auto model = with_weights(*t.model, t.model->recipe);
      Run run(lab.device);
      run.training = training;
      const Loss loss = cross_entropy(run, forward(run, *model, toy_batch(d, length)), d.targets);
      double sum = 0, n = 0;
      for (std::size_t r = 0; r < d.kind.size(); ++r)
        if (d.kind[r] >= 0 && static_cast<Dim>(r) % length < rows)
          sum += loss.rows.at(static_cast<Dim>(r)) - d.floor[r], n += 1;
      return sum / n;
    };
    u.as_trained = loss_of(data, 32, false, 32);
    // The first four rows of every sequence, with statistics of as many rows: of texts of 4 tokens, and
    // of texts of 32.
    const Dim group = std::max<Dim>(1, sequences / 8), single = std::min<Dim>(32, sequences);
    u.short_texts = loss_of(part(0, sequences, 4), 4, true, 4);
    for (Dim n = 0; n < sequences; n += group) {
      const Dim count = std::min(group, sequences - n);
      u.short_texts -= loss_of(part(n, count, 32), 32, true, 4) * static_cast<double>(count) /
                       static_cast<double>(sequences);
    }
    // RMSNorm: the same rows, summed in another order
    if (std::abs(u.short_texts) < 1e-12) u.short_texts = 0;
    for (Dim n = 0; n < single; ++n)
      u.own_statistics += (loss_of(part(n, 1, 32), 32, true, 32) - loss_of(part(n, 1, 32), 32, false, 32)) /
                          static_cast<double>(single);
    // Change the last token of the first sequence: no earlier row may notice.
    auto logits_of = [&](const CopyTask::Batch& d, std::vector<double>& into) {
      const auto model = with_weights(*t.model, t.model->recipe);
      Run run(lab.device);
      run.training = true;
      const Tensor logits = forward(run, *model, toy_batch(d, 32));
      for (Dim i = 0; i < logits.elements(); ++i) into.push_back(logits.at(i));
    };
    CopyTask::Batch two = task(~std::uint64_t{3}, 2, 32);
    std::vector<double> before, after;
    logits_of(two, before);
    two.tokens[31] = (two.tokens[31] + 7) % CopyTask::kTokens;
    logits_of(two, after);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const std::size_t row = i / CopyTask::kVocab;
      double& most = row < 31 ? u.leak : u.across;
      if (row != 31) most = std::max(most, std::abs(after[i] - before[i]));
    }
    return u;
  };
  LabResult out;
  Table table{
      .title = say("lab.batchnorm.table"),
      .columns = {say("lab.variant"), say("lab.batchnorm.in_use"), say("lab.batchnorm.own"),
                  say("lab.batchnorm.short"), say("lab.batchnorm.leak"), say("lab.batchnorm.across")}};
  std::vector<Use> uses;
  for (const Trained& t : runs) {
    const Use u = uses.emplace_back(use(t));
    table.rows.push_back({t.name, Cell(u.as_trained, 4), Cell(u.own_statistics, 4), Cell(u.short_texts, 4),
                          Cell(u.leak, 5), Cell(u.across, 5)});
  }
  const double small = uses[5].as_trained - uses[4].as_trained,
               large = uses[1].as_trained - uses[0].as_trained;

  // Does it regularise? A text so short that it is learned by heart.
  const TextTask text = text_task(lab, false, 12000);
  std::vector<Toy> readers;
  for (const auto& [name, norm] :
       {std::pair<const char*, NormRecipe>{"RMSNorm", {}},
        std::pair<const char*, NormRecipe>{"LayerNorm", {.kind = NormRecipe::Kind::layer, .bias = true}},
        std::pair<const char*, NormRecipe>{"BatchNorm", batch}}) {
    Recipe r = with_ffn(toy_recipe(2, 4, text.vocab));
    set_norms(r, norm);
    readers.push_back({.name = say("lab.batchnorm.reader", name),
                       .recipe = r,
                       .task = text.task,
                       .seed = lab.seed,
                       .steps = 1200,
                       .batch = 16,
                       .looks = 12});
  }
  const std::vector<Trained> readings = train_toys(lab, std::move(readers));
  Table heart{.title = say("lab.batchnorm.heart"),
              .columns = {say("lab.variant"), say("lab.batchnorm.learned"), say("lab.batchnorm.held_out"),
                          say("lab.batchnorm.gap"), say("lab.batchnorm.best")}};
  Chart over{
      .title = say("lab.batchnorm.over"), .x_label = say("lab.step"), .y_label = say("lab.norms.held_out")};
  double gaps[3], best[3], held[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const Trained& t = readings[i];
    // Windows of the text that was learned, as the model is in use.
    const double learned =
        look_at(lab.device, *t.model, text.task, scaled_batch(lab, 128), 32, std::uint64_t{1} << 62).loss;
    held[i] = t.end().loss, gaps[i] = held[i] - learned, best[i] = t.end().loss;
    for (const ToyLook& l : t.looks) best[i] = std::min(best[i], l.loss);
    heart.rows.push_back({t.name, Cell(learned), Cell(held[i]), Cell(gaps[i]), Cell(best[i])});
    Curve c{.name = t.name};
    for (const ToyLook& l : t.looks)
      if (l.step > 0) c.x.push_back(static_cast<double>(l.step)), c.y.push_back(l.loss);
    over.curves.push_back(std::move(c));
  }
  Chart by_batch{.title = say("lab.batchnorm.by_batch"),
                 .x_label = say("lab.batchnorm.sequences"),
                 .y_label = say("lab.batchnorm.in_use"),
                 .curves = {{.name = "RMSNorm"}, {.name = "BatchNorm"}},
                 .log_y = true};
  for (std::size_t i = uses.size(); i-- > 0;) {
    by_batch.curves[i % 2].x.push_back(static_cast<double>(std::array{32, 4, 1}[i / 2]));
    by_batch.curves[i % 2].y.push_back(uses[i].as_trained);
  }
  out.document.parts = {by_batch, table, over, heart, loss_chart(say("lab.batchnorm.losses"), runs)};
  const double others = std::min(gaps[0], gaps[1]), others_best = std::min(best[0], best[1]);
  out.findings = {
      above(say("lab.batchnorm.f.leak"), uses[1].leak, 1e-4, "", say("lab.batchnorm.p.leak")),
      below(say("lab.batchnorm.f.no_leak"), uses[0].leak, 1e-12, ""),
      above(say("lab.batchnorm.f.small"), small, 0, "nats", say("lab.batchnorm.p.small")),
      above(say("lab.batchnorm.f.smaller"), small - large, 0, "nats"),
      above(say("lab.batchnorm.f.short"), uses[1].short_texts, 0.02, "nats", "", false),
      below(say("lab.batchnorm.f.regular"), gaps[2] - others, 0, "nats", "", false),
      below(say("lab.batchnorm.f.best"), best[2] - others_best, 0, "nats", "", false),
  };
  const bool back = uses[5].own_statistics < -0.5 * small;
  out.verdict = sentences(
      {uses[1].leak > 1e-4 ? say("lab.batchnorm.v.leak", digits(uses[1].leak, 3), digits(uses[1].across, 3),
                                 digits(uses[0].leak, 3))
                           : say("lab.batchnorm.v.no_leak", digits(uses[1].leak, 3)),
       say(large > 0 ? "lab.batchnorm.v.large_worse" : "lab.batchnorm.v.large_better",
           digits(std::abs(large), 4)),
       small > 0.01 ? say(back ? "lab.batchnorm.v.small_back" : "lab.batchnorm.v.small", digits(small, 3),
                          digits(uses[5].own_statistics, 3), digits(uses[1].own_statistics, 3))
                    : say("lab.batchnorm.v.small_fine", digits(small, 3)),
       say(std::abs(uses[1].short_texts) < 0.02 ? "lab.batchnorm.v.lengths_not" : "lab.batchnorm.v.lengths",
           digits(uses[1].short_texts, 4)),
       say(gaps[2] < others
               ? (best[2] < others_best ? "lab.batchnorm.v.regular" : "lab.batchnorm.v.regular_late")
               : "lab.batchnorm.v.regular_not",
           digits(gaps[2], 2), digits(gaps[1], 2), digits(gaps[0], 2), digits(best[2], 3),
           digits(others_best, 3))});
  return out;
}

// ------------------------------------------------------------------------------------------------ place
LabResult norm_place_training(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  const NormRecipe layer{.kind = NormRecipe::Kind::layer, .bias = true};
  auto recipe = [&](bool post) {
    Recipe r = with_ffn(toy_recipe(12, 2));
    r.init = {.scheme = InitRecipe::Scheme::xavier, .std = 1.0 / std::sqrt(48.0)};
    set_norms(r, layer);
    if (!post) return r;
    for (PartRecipe& p : r.decoder->kinds.at("L").parts) p.norm_in = {}, p.norm_sum = layer;
    r.decoder->final_norm = {};
    return r;
  };
  std::vector<Toy> toys;
  for (bool post : {false, true})
    for (Dim warmup : {0, 120})
      toys.push_back({.name = say(warmup > 0 ? "lab.norm-place.warm" : "lab.norm-place.cold",
                                  say(post ? "lab.norms.post" : "lab.norms.pre")),
                      .recipe = recipe(post),
                      .task = task,
                      .seed = lab.seed,
                      .steps = 300,
                      .batch = 16,
                      .rate = 1.5e-3,
                      .beta2 = 0.98,
                      .warmup = scaled(lab, warmup, 0)});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  LabResult out;
  Table table{.title = say("lab.norm-place.runs"),
              .columns = {say("lab.variant"), say("lab.excess_loss"), say("lab.norm-place.idle"),
                          say("lab.norm-place.copying"), say("lab.norms.spikes"), say("lab.norms.diverged")}};
  for (const Trained& t : runs)
    table.rows.push_back({t.name, Cell(t.end().excess, 3), Cell(t.end().idle_excess, 3),
                          Cell(t.end().trigger_loss, 3), Cell(t.spikes, 0),
                          say(t.diverged ? "lab.yes" : "lab.no")});
  out.document.parts = {table, loss_chart(say("lab.norm-place.losses"), runs)};
  auto loss = [&](std::size_t i) { return runs[i].end().excess; };
  const double pre = loss(0) - loss(1), post = loss(2) - loss(3);
  out.findings = {
      above(say("lab.norm-place.f.cold"), loss(2) - loss(0), 0, "nats", say("lab.norm-place.p.cold")),
      above(say("lab.norm-place.f.warm"), post, 0, "nats", say("lab.norm-place.p.warm"), false),
      above(say("lab.norm-place.f.more"), post - pre, 0, "nats", say("lab.norm-place.p.none"), false),
  };
  out.verdict = sentences(
      {say("lab.norm-place.v.ends", digits(loss(2), 3), digits(loss(0), 3), digits(loss(3), 3),
           digits(loss(1), 3)),
       say(post > 0.02             ? "lab.norm-place.v.needs"
           : loss(3) > 2 * loss(1) ? "lab.norm-place.v.not_enough"
                                   : "lab.norm-place.v.hardly"),
       say(std::abs(pre) < 0.05 ? "lab.norm-place.v.either" : "lab.norm-place.v.pre_too", digits(pre, 3))});
  return out;
}

}  // namespace rapt
