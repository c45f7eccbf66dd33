// SPDX-License-Identifier: Apache-2.0
// Experiments that raise the learning rate on text until training suffers: with and without a norm on queries
// and keys, with and without biases.
#include <algorithm>
#include <cmath>

#include "rapt/base/text.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/sweep.h"
#include "rapt/nn/parts/attention.h"

namespace rapt {
namespace {

const std::vector<double> kSweptRates = {0.003, 0.01, 0.03, 0.1, 0.3};
constexpr const char* kSweptNames[] = {"0.003", "0.01", "0.03", "0.1", "0.3"};
constexpr std::size_t kLast = 4;

// Of the layer whose attention is nearest to one-hot.
double lowest_entropy(const ToyLook& l) {
  return l.entropy.empty() ? 0 : *std::min_element(l.entropy.begin(), l.entropy.end());
}

// Of queries and keys after their norm: the mean over a head's channels as a share of their root mean square.
double off_centre(Device& device, const Model& model, const ToyTask& task) {
  constexpr Dim kLength = 32;
  Run run(device);
  Taps taps;
  run.taps = &taps;
  double sum = 0, count = 0;
  auto see = [&](const Tapped& t) {
    const Dim channels = t.value[2];
    for (Dim i = 0; i < t.value.elements(); i += channels) {
      double mean = 0, square = 0;
      for (Dim c = 0; c < channels; ++c)
        mean += t.value.at(i + c), square += t.value.at(i + c) * t.value.at(i + c);
      sum += square > 0 ? std::abs(mean) / std::sqrt(square * static_cast<double>(channels)) : 0;
      count += 1;
    }
  };
  taps.see(site::q_normed, see);
  taps.see(site::k_normed, see);
  forward(run, model, toy_batch(task(~std::uint64_t{4}, 8, kLength), kLength));
  return count > 0 ? sum / count : 0;
}

double largest_gain(const Model& model) {
  double most = 0;
  for (const Weight& w : model.weights)
    if (w.name.find("q_norm") != w.name.npos || w.name.find("k_norm") != w.name.npos)
      for (Dim i = 0; i < w.size(); ++i) most = std::max(most, std::abs(w.get(i / w.cols, i % w.cols)));
  return most;
}

bool norms_queries(const char* name) {  // a preset
  const Recipe r = preset(name);
  return r.decoder->layer(0).parts.at(0).self()->qk_norm.has_value();
}

}  // namespace

LabResult qk_norm(const Lab& lab) {
  const TextTask text = text_task(lab);
  Recipe plain_recipe = with_ffn(toy_recipe(2, 4, text.vocab)), normed_recipe = plain_recipe;
  self_attn(normed_recipe).qk_norm = QkNormRecipe{};
  std::vector<Toy> toys;
  for (std::size_t i = 0; i <= kLast; ++i)
    for (bool normed : {false, true})
      toys.push_back({.name = say(normed ? "lab.qk-norm.normed" : "lab.qk-norm.plain", kSweptNames[i]),
                      .recipe = normed ? normed_recipe : plain_recipe,
                      .task = text.task,
                      .seed = lab.seed,
                      .steps = 400,
                      .batch = 16,
                      .rate = kSweptRates[i],
                      .looks = 12});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  auto plain = [&](std::size_t rate) -> const Trained& { return runs[2 * rate]; };
  auto normed = [&](std::size_t rate) -> const Trained& { return runs[2 * rate + 1]; };
  const double guess = std::log(static_cast<double>(text.vocab));

  LabResult out;
  Table table{.title = say("lab.qk-norm.table"),
              .columns = {say("lab.variant"), say("lab.norms.largest_logit"), say("lab.qk-norm.entropy"),
                          say("lab.norms.held_out"), say("lab.norms.diverged")}};
  for (const Trained& t : runs)
    table.rows.push_back({t.name, Cell(largest_logit(t), 1), Cell(lowest_entropy(t.end()), 4),
                          Cell(loss_or(t, guess), 3), say(t.diverged ? "lab.yes" : "lab.no")});
  Chart logits{.title = say("lab.qk-norm.logits"),
               .x_label = say("lab.step"),
               .y_label = say("lab.qk-norm.logit"),
               .log_y = true},
      entropies{.title = say("lab.qk-norm.entropies"),
                .x_label = say("lab.step"),
                .y_label = say("lab.qk-norm.entropy")};
  for (const std::size_t rate : {std::size_t{1}, kLast})
    for (const Trained* t : {&plain(rate), &normed(rate)}) {
      logits.curves.push_back(over_looks(t->name, *t, [](const ToyLook& l) { return l.max_logit; }));
      entropies.curves.push_back(over_looks(t->name, *t, lowest_entropy));
    }
  std::vector<double> losses[2];
  for (std::size_t i = 0; i <= kLast; ++i)
    losses[0].push_back(loss_or(plain(i), guess)), losses[1].push_back(loss_or(normed(i), guess));
  Chart curve{.title = say("lab.qk-norm.curve"),
              .x_label = say("lab.norms.log_rate"),
              .y_label = say("lab.norms.held_out"),
              .curves = {over_rates(say("lab.qk-norm.none"), kSweptRates, losses[0]),
                         over_rates(say("lab.qk-norm.with"), kSweptRates, losses[1])}};
  out.document.parts = {table, logits, entropies, curve};

  const double first = largest_logit(plain(0)), last = largest_logit(plain(kLast)),
               normed_first = largest_logit(normed(0)), normed_last = largest_logit(normed(kLast)),
               entropy = lowest_entropy(plain(kLast).end()), kept = lowest_entropy(normed(kLast).end()),
               saved = losses[0][kLast] - losses[1][kLast], usual = losses[1][0] - losses[0][0],
               sensitive[] = {above_best(losses[0]), above_best(losses[1])},
               gain = largest_gain(*normed(kLast).model),
               centre = off_centre(lab.device, *normed(0).model, text.task);
  out.findings = {
      below(say("lab.qk-norm.f.logit"), normed_last / last, 0.1, "x", say("lab.qk-norm.p.vit")),
      above(say("lab.qk-norm.f.growth"), last / first, 10, "x", say("lab.qk-norm.p.onehot")),
      below(say("lab.qk-norm.f.entropy"), entropy / std::max(kept, 1e-9), 0.5, "x"),
      above(say("lab.qk-norm.f.loss"), saved, 0.05, "nats", say("lab.qk-norm.p.diverges")),
      below(say("lab.qk-norm.f.sensitivity"), sensitive[1] / sensitive[0], 1, "x",
            say("lab.qk-norm.p.wortsman")),
      between(say("lab.qk-norm.f.usual"), usual, -0.05, 0.05, "nats", say("lab.qk-norm.p.henry"), false),
      above(say("lab.qk-norm.f.centre"), centre, 0.05, ""),
      above(say("lab.qk-norm.f.gain"), gain, 1, "", "", false),
  };
  const bool llama = norms_queries("llama1") || norms_queries("llama2") || norms_queries("llama3");
  out.verdict = sentences(
      {last > 10 * first ? say("lab.qk-norm.v.growth", digits(first, 0), with_commas(std::lround(last)),
                               digits(normed_first, 0), digits(normed_last, 0))
                         : say("lab.qk-norm.v.no_growth", digits(first, 0), with_commas(std::lround(last)),
                               digits(normed_first, 0), digits(normed_last, 0)),
       entropy < 0.1 && entropy < 0.5 * kept
           ? say("lab.qk-norm.v.onehot", digits(entropy, 4), digits(kept, 2))
           : say("lab.qk-norm.v.not_onehot", digits(entropy, 2), digits(kept, 2)),
       saved > 0.05
           ? say("lab.qk-norm.v.stuck", digits(losses[0][kLast], 2), digits(losses[1][kLast], 2))
           : say("lab.qk-norm.v.not_stuck", digits(losses[0][kLast], 2), digits(losses[1][kLast], 2)),
       std::abs(usual) < 0.05
           ? say("lab.qk-norm.v.usual", digits(losses[0][0], 3), digits(losses[1][0], 3))
           : say("lab.qk-norm.v.usual_differs", digits(losses[0][0], 3), digits(losses[1][0], 3)),
       gain > 1 && centre > 0.05 ? say("lab.qk-norm.v.not_unit", digits(centre, 2), digits(gain, 1)) : Text(),
       llama ? Text() : say("lab.qk-norm.v.llama")});
  return out;
}

// ---------------------------------------------------------------------------------------------- biases
LabResult bias_stability(const Lab& lab) {
  const TextTask text = text_task(lab);
  enum { none, qkv, all, kinds };
  const char* const names[] = {"lab.bias-stability.none", "lab.bias-stability.qkv", "lab.bias-stability.all"};
  std::vector<Toy> toys;
  for (std::size_t i = 0; i <= kLast; ++i)
    for (int kind = none; kind < kinds; ++kind) {
      Recipe r = with_ffn(toy_recipe(3, 4, text.vocab));
      set_norms(r, {.kind = NormRecipe::Kind::layer, .bias = kind == all});
      self_attn(r).bias = {kind != none, kind != none, kind != none, kind == all};
      ffn_of(r).bias = kind == all;
      toys.push_back({.name = say("lab.bias-stability.at", say(names[kind]), kSweptNames[i]),
                      .recipe = r,
                      .task = text.task,
                      .seed = lab.seed,
                      .steps = 300,
                      .batch = 16,
                      .rate = kSweptRates[i],
                      .looks = 5});
    }
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  const double guess = std::log(static_cast<double>(text.vocab));
  LabResult out;
  Table table{.title = say("lab.bias-stability.table"),
              .columns = {say("lab.variant"), say("lab.norms.largest_logit"), say("lab.norms.held_out"),
                          say("lab.norms.spikes"), say("lab.norms.diverged")}};
  std::vector<double> losses[kinds], logits[kinds], spikes[kinds];
  int diverged[kinds] = {};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Trained& t = runs[i];
    const auto kind = i % kinds;
    losses[kind].push_back(loss_or(t, guess));
    logits[kind].push_back(largest_logit(t));
    spikes[kind].push_back(t.spikes);
    diverged[kind] += t.diverged;
    table.rows.push_back({t.name, Cell(logits[kind].back(), 1), Cell(losses[kind].back(), 3),
                          Cell(t.spikes, 0), say(t.diverged ? "lab.yes" : "lab.no")});
  }
  Chart curve{.title = say("lab.bias-stability.curve"),
              .x_label = say("lab.norms.log_rate"),
              .y_label = say("lab.norms.held_out")},
      grown{.title = say("lab.bias-stability.logits"),
            .x_label = say("lab.norms.log_rate"),
            .y_label = say("lab.norms.largest_logit"),
            .log_y = true};
  for (int kind = none; kind < kinds; ++kind) {
    curve.curves.push_back(over_rates(say(names[kind]), kSweptRates, losses[kind]));
    grown.curves.push_back(over_rates(say(names[kind]), kSweptRates, logits[kind]));
  }
  // Who has how many of them, in a model of today's form: PaLM has none, Qwen2 those of q, k and v.
  Table share{
      .title = say("lab.bias-stability.share"),
      .columns = {say("lab.variant"), say("lab.bias-stability.numbers"), say("lab.bias-stability.percent")}};
  double part = 0;
  for (int kind = none; kind < kinds; ++kind) {
    double biases = 0, weights = 0;
    for (const Weight& w : runs[static_cast<std::size_t>(kind)].model->weights) {
      weights += static_cast<double>(w.size());
      if (w.name.ends_with(".bias")) biases += static_cast<double>(w.size());
    }
    part = 100 * biases / weights;
    share.rows.push_back({say(names[kind]), Cell(biases, 0), Cell(part, 2)});
  }
  out.document.parts = {curve, table, grown, share};
  // Without biases against all of them.
  double grew = 0;
  for (std::size_t i = 0; i <= kLast; ++i)
    grew += std::log(logits[none][i] / logits[all][i]) / static_cast<double>(kLast + 1);
  grew = std::exp(grew);
  const double sensitive = above_best(losses[none]) - above_best(losses[all]),
               jumped = mean_of(spikes[none]) - mean_of(spikes[all]),
               usual = losses[none][0] - losses[all][0];
  out.findings = {
      below(say("lab.bias-stability.f.sensitivity"), sensitive, -0.02, "nats",
            say("lab.bias-stability.p.palm"), false),
      below(say("lab.bias-stability.f.logit"), grew, 0.9, "x", "", false),
      below(say("lab.bias-stability.f.spikes"), jumped, 0, "", "", false),
      between(say("lab.bias-stability.f.usual"), usual, -0.05, 0.05, "nats", say("lab.bias-stability.p.vit"),
              false),
  };
  const bool calmer = sensitive < -0.02 && grew < 1, wilder = sensitive > 0.02;
  out.verdict = sentences(
      {say(calmer   ? "lab.bias-stability.v.calmer"
           : wilder ? "lab.bias-stability.v.wilder"
                    : "lab.bias-stability.v.same",
           digits(above_best(losses[none]), 3), digits(above_best(losses[all]), 3), digits(grew, 2)),
       say("lab.bias-stability.v.counts", digits(mean_of(spikes[none]), 1), digits(mean_of(spikes[all]), 1),
           diverged[none], diverged[all]),
       calmer ? Text() : say("lab.bias-stability.v.tried"),
       std::min(logits[none][kLast] / logits[none][0], logits[all][kLast] / logits[all][0]) > 10
           ? say("lab.bias-stability.v.logits", with_commas(std::lround(logits[none][kLast])),
                 with_commas(std::lround(logits[all][kLast])))
           : Text(),
       say("lab.bias-stability.v.cost", digits(part, 1)), say("lab.bias-stability.v.papers")});
  return out;
}

}  // namespace rapt
