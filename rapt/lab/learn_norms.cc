// SPDX-License-Identifier: Apache-2.0
// Experiments on norms: on queries and keys, on values, which kind, over what, and where.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/loss.h"
#include "rapt/ops/norm.h"

namespace rapt {

LabResult qk_norm(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  const std::vector<double> rates = {3e-3, 1e-2, 3e-2};
  std::vector<Toy> toys;
  for (double rate : rates)
    for (bool normed : {false, true}) {
      Recipe r = toy_recipe(2);
      if (normed) self_attn(r).qk_norm = QkNormRecipe{};
      toys.push_back({.name = concat(normed ? "QK-norm, rate " : "plain, rate ", rate),
                      .recipe = r,
                      .task = task,
                      .seed = lab.seed,
                      .steps = 600,
                      .rate = rate,
                      .warmup = 10,
                      .looks = 12});
    }
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  auto peak = [](const Trained& t) {
    double most = 0;
    for (const ToyLook& l : t.looks) most = std::max(most, l.max_logit);
    return most;
  };
  LabResult out;
  Table table{
      .title = "constant rate, short warm-up",
      .columns = {"variant", "largest logit at the end", "on the way", "excess loss", "spikes", "diverged"}};
  Chart chart{.title = "largest logit",
              .x_label = "step",
              .y_label = "scaled score before the softmax",
              .log_y = true};
  for (const Trained& t : runs) {
    table.rows.push_back({t.name, Cell(t.end().max_logit, 1), Cell(peak(t), 1), Cell(t.end().excess, 4),
                          Cell(t.spikes, 0), t.diverged ? "yes" : "no"});
    Curve c{.name = t.name};
    for (const ToyLook& l : t.looks) c.x.push_back(static_cast<double>(l.step)), c.y.push_back(l.max_logit);
    chart.curves.push_back(std::move(c));
  }
  out.document.parts = {table, chart};
  const char* const names[] = {"3e-3", "1e-2", "3e-2"};
  auto plain = [&](std::size_t rate) -> const Trained& { return runs[2 * rate]; };
  auto normed = [&](std::size_t rate) -> const Trained& { return runs[2 * rate + 1]; };
  const double saved = plain(2).end().excess - normed(2).end().excess,
               usual = normed(0).end().excess - plain(0).end().excess;
  std::string peaks;
  int lower = 0, diverged = 0;
  double most_normed = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    out.findings.push_back(
        below(concat("largest logit on the way at rate ", names[i], ", QK-norm against none"),
              peak(normed(i)) / peak(plain(i)), 1, "x", i == 0 ? "bounded by sqrt(d) times the gains" : "",
              i == 0));
    peaks += concat(i == 0 ? "" : ", ", digits(peak(plain(i)), 0), " and ", digits(peak(normed(i)), 0),
                    " at ", names[i]);
    lower += peak(normed(i)) < peak(plain(i));
    diverged += plain(i).diverged;
    most_normed = std::max(most_normed, peak(normed(i)));
  }
  out.findings.push_back(
      above("largest logit without a norm, highest of the larger rates against the usual one",
            std::max(peak(plain(1)), peak(plain(2))) / peak(plain(0)), 1, "x",
            "logits grow until attention is one-hot and training diverges (ViT-22B, 2023)", false));
  out.findings.push_back(above("excess loss at rate 3e-2, none minus QK-norm", saved, 0, "nats",
                               "at 8B parameters the loss diverges without it (ViT-22B)", false));
  out.findings.push_back(below("excess loss at rate 3e-3, QK-norm minus none", usual, 0.005, "nats",
                               "+0.928 BLEU on average (Henry et al. 2020, with a learned scale)", false));
  out.verdict = concat(
      "The largest logit without and with the norm: ", peaks, "; the norm lowers it at ",
      lower == 3 ? std::string("each rate") : concat(lower, " of 3 rates"), ". At the highest rate ",
      saved > 0.002    ? concat("it saves ", digits(saved, 3), " nats")
      : saved < -0.002 ? concat("the loss is lower without it, by ", digits(-saved, 3), " nats")
                       : std::string("the loss hardly notices it"),
      "; spikes: ", plain(2).spikes, " without the norm, ", normed(2).spikes, " with it. ",
      diverged == 0
          ? "The plain model never diverged, so what the norm prevents in large models does not happen here. "
          : concat("The plain model diverged at ", diverged, diverged == 1 ? " rate. " : " rates. "),
      "An RMS norm centres nothing, and with gains of one no logit could exceed sqrt(48) = 6.9",
      most_normed > std::sqrt(48.0) ? concat("; with ", digits(most_normed, 0),
                                             " the gains have grown, so variance 1 is not kept either.")
                                    : std::string("."));
  return out;
}

LabResult v_norm(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  std::vector<Toy> toys;
  auto add = [&](std::string name, std::optional<NormRecipe> norm, bool gated) {
    Recipe r = toy_recipe();
    self_attn(r).v_norm = norm;
    if (gated) self_attn(r).gate.push_back({});
    toys.push_back({.name = std::move(name), .recipe = r, .task = task, .seed = lab.seed});
  };
  const NormRecipe bare{.weight = NormRecipe::Gain::none};
  add("none", {}, false);
  add("RMS, no weight", bare, false);
  add("RMS", NormRecipe{}, false);
  add("gate G1", {}, true);
  add("gate G1, RMS, no weight", bare, true);
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  LabResult out;
  Table table{.title = "a norm on each value",
              .columns = {"variant", "excess loss", "idle rows", "copying rows", "|v| first/others by layer",
                          "idle weight on the first token", "peak |h|, first token"}};
  for (const Trained& t : runs) {
    const ToyLook& l = t.end();
    table.rows.push_back({t.name, Cell(l.excess, 4), Cell(l.idle_excess, 4), Cell(l.trigger_loss, 4),
                          joined(l.value_ratio), joined(l.idle), Cell(most_of(l.first_peak), 1)});
  }
  out.document.parts = {table, loss_chart("loss", runs)};
  const ToyLook &plain = runs[0].end(), &normed = runs[1].end();
  const double lost = normed.excess - plain.excess, lost_gated = runs[4].end().excess - runs[3].end().excess;
  const double least = *std::min_element(plain.value_ratio.begin(), plain.value_ratio.end());
  out.findings = {
      below("value norm of the first token against the others, least of all layers, no norm", least, 0.9, "x",
            "near zero in Llama 3 8B (Gu et al. 2025)"),
      below("excess loss, weightless norm on v minus none", lost, 0.005, "nats",
            "Gemma 3n and Gemma 4 norm their values", false),
      below("idle weight on the first token, norm on v against none",
            mean_of(normed.idle) / mean_of(plain.idle), 1, "x", "", false),
  };
  out.verdict =
      concat("With a weightless norm on the values the loss is ", digits(std::abs(lost), 4), " nats ",
             lost > 0 ? "higher" : "lower", " (", digits(std::abs(lost_gated), 4),
             lost_gated > 0 ? " higher" : " lower", " where a gate stands behind it): ",
             lost < 0.005 ? "a choice of design, no law. " : "here it does cost something. ",
             least < 0.9 ? "What it takes away is a drained value: the first token's norm was "
                         : "The first token's value was not drained: ",
             digits(least, 2),
             " of the others' in its lowest layer, and with the norm all are equal. "
             "The first token's share of idle attention ",
             "goes from ", digits(mean_of(plain.idle), 2), " to ", digits(mean_of(normed.idle), 2), ".");
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

double norm_seconds(Device& device, NormKind kind, Dim rows, Dim cols) {
  Run run(device);
  const Tensor x = normal_tensor(run, {rows, cols}, 1);
  const Weight w = make_weight("w", 1, cols, device.real), b = make_weight("b", 1, cols, device.real);
  const Arena::Mark mark = run.arena.mark();
  return shortest_time(3, [&] {  // from the second on the result's memory is there
    rapt::norm(run, {kind, 1e-6, false}, x, &w, kind == NormKind::layer ? &b : nullptr);
    run.arena.release(mark);
  });
}

}  // namespace

LabResult rms_vs_layer(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  const NormRecipe rms{}, layer{.kind = NormRecipe::Kind::layer, .bias = true},
      layer_plain{.kind = NormRecipe::Kind::layer};
  std::vector<Toy> toys;
  std::vector<Recipe> recipes;
  auto add = [&](std::string name, const NormRecipe& norm) {
    Recipe r = with_ffn(toy_recipe());
    set_norms(r, norm);
    recipes.push_back(r);
    toys.push_back({.name = std::move(name), .recipe = r, .task = task, .seed = lab.seed});
  };
  add("RMSNorm", rms);
  add("LayerNorm", layer);
  add("LayerNorm, no bias", layer_plain);
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  // On one thread, in turns, the shortest of many: what else the machine does makes no difference.
  Device one(lab.device.kernels, {.threads = 1});
  std::vector<double> steps(3, INFINITY), ops(3, INFINITY);
  std::vector<std::unique_ptr<StepClock>> clocks;
  for (const Recipe& r : recipes)
    clocks.push_back(std::make_unique<StepClock>(one, r, task(0, scaled_batch(lab, 32), 32)));
  const NormKind kinds[] = {NormKind::rms, NormKind::layer, NormKind::layer};
  for (Dim round = 0; round < scaled(lab, 40); ++round)
    for (std::size_t i = 0; i < 3; ++i) {
      steps[i] = std::min(steps[i], clocks[i]->step());
      ops[i] = std::min(ops[i], norm_seconds(one, kinds[i], scaled_batch(lab, 2048), 768));
    }

  LabResult out;
  Table table{.title =
                  "quality, and time on one thread (shortest of many; the last column: "
                  "the norm alone on 2,048 rows of 768)",
              .columns = {"norm", "excess loss", "step, ms", "norm alone, us"}};
  for (std::size_t i = 0; i < 3; ++i)
    table.rows.push_back(
        {runs[i].name, Cell(runs[i].end().excess, 4), Cell(1e3 * steps[i], 2), Cell(1e6 * ops[i], 0)});
  out.document.parts = {table, loss_chart("loss", runs)};
  const double saved = 100 * (1 - steps[0] / steps[1]), alone = 100 * (1 - ops[0] / ops[1]);
  const double gap = runs[0].end().excess - runs[1].end().excess;
  out.findings = {
      {"excess loss, RMSNorm minus LayerNorm", gap, "nats", "between -0.005 and 0.005", std::abs(gap) < 0.005,
       "equal quality (Zhang & Sennrich 2019)", false},
      {"time of a step saved by RMSNorm", saved, "%", "between -10 and 10", std::abs(saved) < 10,
       "6.9 % for their Transformer, 7 to 64 % over all their models (Zhang & Sennrich 2019)", false},
      above("time of the norm alone saved by RMSNorm", alone, 0, "%", "", false),
  };
  out.verdict = concat(
      "RMSNorm's loss is ", digits(std::abs(gap), 4), " nats ", gap < 0 ? "below" : "above", " LayerNorm's: ",
      gap < 0.005 ? "nothing is lost without the mean. " : "in this run something is lost without the mean. ",
      "The norm itself is ", digits(std::abs(alone), 0), alone > 0 ? " % faster" : " % slower",
      ", a training step ", digits(std::abs(saved), 1), saved > 0 ? " % faster; " : " % slower; ",
      saved < 10 ? "the 10 to 40 % that are told are not there." : "at this width it is as much as is told.");
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
      toys.push_back({.name = concat(is_bn ? "BatchNorm, " : "RMSNorm, ", count,
                                     count == 1 ? " sequence" : " sequences"),
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
    for (Dim n = 0; n < sequences; n += group)
      u.short_texts -= loss_of(part(n, group, 32), 32, true, 4) * static_cast<double>(group) /
                       static_cast<double>(sequences);
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
  Table table{.title = "trained with batches of so many sequences of 32 tokens",
              .columns = {"variant", "excess loss in use", "with one sequence's own statistics: loss added",
                          "statistics of texts of 4 tokens instead of 32: loss added",
                          "change of earlier rows when the last token changes", "of the other sequence"}};
  std::vector<Use> uses;
  for (const Trained& t : runs) {
    const Use u = uses.emplace_back(use(t));
    table.rows.push_back({t.name, Cell(u.as_trained, 4), Cell(u.own_statistics, 4), Cell(u.short_texts, 4),
                          Cell(u.leak, 5), Cell(u.across, 5)});
  }
  out.document.parts = {table, loss_chart("loss", runs)};
  const double small = uses[5].as_trained - uses[4].as_trained,
               large = uses[1].as_trained - uses[0].as_trained;
  out.findings = {
      above("change of earlier rows by a later token in training, BatchNorm", uses[1].leak, 1e-4, "",
            "breaks causality in training"),
      below("the same, RMSNorm", uses[0].leak, 1e-12, ""),
      above("excess loss in use, trained with one sequence, BatchNorm minus RMSNorm", small, 0, "nats",
            "statistics of language batches vary (Shen et al. 2020)"),
      above("that gap against the one with 32 sequences", small - large, 0, "nats", ""),
      above("loss added by statistics of texts of 4 tokens instead of as many rows of 32, BatchNorm",
            uses[1].short_texts, 0.02, "nats", "", false),
  };
  out.verdict = concat(
      "In training a later token changes earlier logits by up to ", digits(uses[1].leak, 3),
      " under BatchNorm (RMSNorm: ", digits(uses[0].leak, 3), "), and those of another sequence by ",
      digits(uses[1].across, 3), ". In use it is ", digits(std::abs(large), 4), " nats ",
      large > 0 ? "worse" : "better", " when trained with 32 sequences and ", digits(std::abs(small), 4),
      small > 0 ? " worse" : " better", " with one. ",
      uses[5].own_statistics < -0.5 * small
          ? "With the statistics of the sequence itself the loss comes back: it is they that do not carry "
            "over, not the parameters. "
      : small > 0.01 ? "The statistics of so few tokens carry over badly. "
                     : "In this run its statistics carried over. ",
      "Statistics of texts of 4 tokens instead of 32 ", uses[1].short_texts < 0 ? "take away " : "add ",
      digits(std::abs(uses[1].short_texts), 4), " nats",
      std::abs(uses[1].short_texts) >= 0.02 ? "."
      : small > 0.02 ? ": other lengths are not the trouble here, small batches and causality are."
                     : ": other lengths are not the trouble here.");
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
      toys.push_back(
          {.name = concat(post ? "post-norm" : "pre-norm", warmup > 0 ? ", warm-up" : ", no warm-up"),
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
  Table table{.title = "twelve layers, 300 steps at rate 1.5e-3, warm-up over 120 of them",
              .columns = {"variant", "excess loss", "idle rows", "copying rows", "spikes", "diverged"}};
  for (const Trained& t : runs)
    table.rows.push_back({t.name, Cell(t.end().excess, 3), Cell(t.end().idle_excess, 3),
                          Cell(t.end().trigger_loss, 3), Cell(t.spikes, 0), t.diverged ? "yes" : "no"});
  out.document.parts = {table, loss_chart("norm before or after, with and without warm-up", runs)};
  auto loss = [&](std::size_t i) { return runs[i].end().excess; };
  const double pre = loss(0) - loss(1), post = loss(2) - loss(3);
  out.findings = {
      above("excess loss without warm-up, post-norm minus pre-norm", loss(2) - loss(0), 0, "nats",
            "IWSLT14 without warm-up: 8.45 BLEU post-norm, about 34 with (Xiong et al. 2020)"),
      above("what warm-up saves post-norm", post, 0, "nats", "8.45 -> about 34 BLEU", false),
      above("what warm-up saves post-norm more than pre-norm", post - pre, 0, "nats", "pre-norm needs none",
            false),
  };
  out.verdict = concat("Without warm-up the post-norm model ends ", digits(loss(2), 3),
                       " nats above the floor, pre-norm ", digits(loss(0), 3), "; with warm-up ",
                       digits(loss(3), 3), " and ", digits(loss(1), 3), ". ",
                       post > 0.02             ? "Warm-up is what post-norm needs here"
                       : loss(3) > 2 * loss(1) ? "Warm-up alone does not save post-norm in so few steps"
                                               : "Post-norm hardly needs it here",
                       std::abs(pre) < 0.05 ? "; pre-norm trains either way." : "; it changes pre-norm too.");
  return out;
}

}  // namespace rapt
