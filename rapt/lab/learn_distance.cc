// SPDX-License-Identifier: Apache-2.0
// Reach of attention against that of a recurrent network: gradients over distance, and what is learned. And
// a plain recurrent cell, whose gradient vanishes or explodes with the size of its matrix.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/loss.h"

namespace rapt {
namespace {

// |d loss of the last row / d input|, mean over sequences, by distance from the last row.
std::vector<double> gradient_by_distance(Device& device, const Model& model, const CopyTask::Batch& data,
                                         Dim length) {
  Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  Taps taps;
  Tensor input;
  taps.see(site::embed, [&](const Tapped& t) { input = t.value; });
  run.tape = &tape;
  run.taps = &taps;
  std::vector<std::int32_t> targets(data.tokens.size(), -1);
  const auto rows = static_cast<Dim>(targets.size());
  for (Dim last = length - 1; last < rows; last += length)
    targets[static_cast<std::size_t>(last)] = data.tokens[static_cast<std::size_t>(last - 1)];
  backward(run, cross_entropy(run, forward(run, model, toy_batch(data, length)), targets).mean);
  Tensor gradient = input.constant();
  gradient.data = static_cast<std::byte*>(run.grad(input));
  std::vector<double> out(static_cast<std::size_t>(length));
  const Dim C = input.last(), sequences = rows / length;
  for (Dim r = 0; r < rows; ++r) {
    double square = 0;
    for (Dim c = 0; c < C; ++c) square += gradient.at(r * C + c) * gradient.at(r * C + c);
    out[static_cast<std::size_t>(length - 1 - r % length)] +=
        std::sqrt(square) / static_cast<double>(sequences);
  }
  return out;
}

constexpr Dim kReach = 64;  // rows of the sequences whose gradients are looked at

Recipe recurrent_recipe(RecurrentRecipe::Cell cell) {
  Recipe r;
  r.name = "recurrent";
  r.width = 48;
  r.vocab = kDelayVocab;
  r.context = kReach;
  r.init.std = 0.083;
  r.decoder = StackRecipe{.recurrent = RecurrentRecipe{.cell = cell, .start = RecurrentRecipe::Start::zero}};
  return r;
}

struct Reacher {
  Text name;
  Recipe recipe;
};
std::vector<Reacher> reachers(const Lab& lab) {
  Recipe attention = toy_recipe(1, 1, kDelayVocab);
  attention.context = kReach;
  std::vector<Reacher> all = {{"GRU", recurrent_recipe(RecurrentRecipe::Cell::gru)},
                              {"LSTM", recurrent_recipe(RecurrentRecipe::Cell::lstm)},
                              {say("lab.distance.attention"), attention}};
  for (Reacher& r : all)
    if (lab.change) lab.change(r.name, r.recipe);
  return all;
}

// "8.4e-15", "105", "2.2e+08": four digits at most.
std::string plainly(double x) {
  char text[32];
  std::snprintf(text, sizeof text, x < 1e-2 || x >= 1e4 ? "%.1e" : x < 10 ? "%.2f" : "%.0f", x);
  return text;
}

// Before training: curves over distance, from 1 on.
std::vector<Curve> untrained_gradients(const Lab& lab, const std::vector<Reacher>& models) {
  const CopyTask::Batch data = delay_task(lab.seed, 1)(0, scaled_batch(lab, 32), kReach);
  std::vector<Curve> out;
  for (const Reacher& m : models) {
    Model model(m.recipe, lab.device.real);
    init(model, lab.seed);
    const std::vector<double> g = gradient_by_distance(lab.device, model, data, kReach);
    out.push_back({.name = m.name});
    for (std::size_t d = 1; d < g.size(); ++d)
      out.back().x.push_back(static_cast<double>(d)), out.back().y.push_back(g[d]);
  }
  return out;
}
// Distance 48 over distance 1.
double fall_of(const Curve& gradient) { return gradient.y[47] / gradient.y[0]; }

}  // namespace

LabResult long_distance(const Lab& lab) {
  const std::vector<Reacher> models = reachers(lab);
  LabResult out;
  Chart chart{.title = say("lab.distance.chart"),
              .x_label = say("lab.distance.distance"),
              .y_label = say("lab.distance.norm"),
              .curves = untrained_gradients(lab, models),
              .log_y = true};
  std::vector<double> fall;
  for (const Curve& c : chart.curves) fall.push_back(fall_of(c));
  const std::vector<Dim> delays = {2, 8, 24};
  std::vector<Toy> toys;
  for (Dim delay : delays)
    for (const Reacher& m : models)
      toys.push_back({.name = say("lab.distance.named", m.name, delay),
                      .recipe = m.recipe,
                      .task = delay_task(lab.seed, delay),
                      .seed = lab.seed,
                      .steps = 800,
                      .length = 32,
                      .cosine = true});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  const double guess = std::log(static_cast<double>(kDelayVocab));
  Table table{.title = say("lab.distance.table", digits(guess)),
              .columns = {say("lab.distance.model"), "2", "8", "24", say("lab.distance.fall")},
              .rows = {}};
  for (std::size_t m = 0; m < models.size(); ++m) {
    std::vector<Cell> row = {models[m].name};
    for (std::size_t i = 0; i < delays.size(); ++i)
      row.push_back(Cell(runs[i * models.size() + m].end().loss));
    row.push_back(Cell(fall[m], 2));
    table.rows.push_back(std::move(row));
  }
  out.document.parts = {chart, table};
  auto loss = [&](std::size_t m, std::size_t delay) { return runs[delay * models.size() + m].end().loss; };
  std::size_t hardest = 0;
  for (std::size_t i = 1; i < delays.size(); ++i)
    if (loss(2, i) > loss(2, hardest)) hardest = i;
  // What the loss says of the right token: its probability, as a geometric mean.
  const double sure = std::exp(-loss(2, hardest));
  constexpr double kKept = 0.01, kLearned = 0.8;
  out.findings = {
      above(say("lab.distance.f.attention"), fall[2], kKept, "x", say("lab.distance.p.paths")),
      below(say("lab.distance.f.gru"), fall[0], kKept, "x", say("lab.distance.p.bengio")),
      above(say("lab.distance.f.gru_loss"), loss(0, 2) - loss(2, 2), 0, "nats"),
      above(say("lab.distance.f.lstm_loss"), loss(1, 2) - loss(2, 2), 0, "nats"),
      above(say("lab.distance.f.farther"), loss(0, 2) - loss(0, 0), 0, "nats"),
      above(say("lab.distance.f.sure"), sure, kLearned, "", "", false),
  };
  out.verdict = sentences(
      {fall[2] > kKept ? say("lab.distance.v.kept", Cell(fall[0], 2).text, digits(fall[2], 2))
                       : say("lab.distance.v.lost", Cell(fall[0], 2).text, Cell(fall[2], 2).text),
       say("lab.distance.v.losses", scaled(lab, 800), digits(loss(0, 2), 2), digits(loss(1, 2), 2),
           digits(loss(2, 2), 2), digits(guess, 2)),
       say("lab.distance.v.near", digits(loss(0, 0), 2), digits(loss(1, 0), 2), digits(loss(2, 0), 2)),
       loss(0, 2) < loss(2, 2) + 0.1 ? say("lab.distance.v.kept_up")
       : sure > kLearned             ? say("lab.distance.v.reaches", digits(sure, 2), delays[hardest])
                         : say("lab.distance.v.not_learned", delays[hardest], digits(loss(2, hardest), 2))});
  return out;
}

// ------------------------------------------------------------------------------------- a plain recurrent
// cell
namespace {

constexpr Dim kState = 48;

// h = tanh(W x + U h); the answer is read from the last state.
struct PlainRnn {
  Weight in, state, out;
};

// Growth per step of a vector that is multiplied again and again: the size of the largest eigenvalue.
double spectral_radius(const Weight& u) {
  constexpr int kSettle = 200, kSteps = 400;
  std::vector<double> x = normal_values(7, u.cols), y(x.size());
  double logs = 0;
  for (int step = 0; step < kSteps; ++step) {
    for (Dim r = 0; r < u.rows; ++r) {
      double sum = 0;
      for (Dim c = 0; c < u.cols; ++c) sum += u.get(r, c) * x[static_cast<std::size_t>(c)];
      y[static_cast<std::size_t>(r)] = sum;
    }
    const double size = length(y);
    if (step >= kSettle) logs += std::log(size);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = y[i] / size;
  }
  return std::exp(logs / (kSteps - kSettle));
}

PlainRnn plain_rnn(DType real, double radius, std::uint64_t seed) {
  PlainRnn r{normal_weight(real, kState, kDelayVocab, mix_key(seed, 1)),
             normal_weight(real, kState, kState, mix_key(seed, 2)),
             normal_weight(real, kDelayVocab, kState, mix_key(seed, 3), 0.1)};
  r.in.index = 0, r.state.index = 1, r.out.index = 2;
  const double factor = radius / spectral_radius(r.state);
  for (Dim i = 0; i < r.state.size(); ++i)
    r.state.set(i / kState, i % kState, factor * r.state.get(i / kState, i % kState));
  return r;
}

// Gradient of the last state's sum with random factors at the states before it, by distance; inputs of that
// size come in at every step.
Curve gradient_at_states(Device& f64, double radius, double input, std::uint64_t seed, Text name) {
  constexpr Dim kSequences = 8;
  const PlainRnn rnn = plain_rnn(f64.real, radius, seed);
  Run run(f64);
  Gradients gradients(f64.real);
  Tape tape(gradients);
  run.tape = &tape;
  std::vector<Tensor> states = {normal_tensor(run, {kSequences, kState}, mix_key(seed, 4), input)};
  for (Dim t = 1; t <= kReach; ++t) {
    const Tensor x =
        normal_tensor(run, {kSequences, kState}, mix_key(seed, 4 + static_cast<std::uint64_t>(t)), input);
    states.push_back(activation(run, Act::tanh, linear_add(run, x, states.back(), rnn.state)));
  }
  backward_from(run, states.back(), mix_key(seed, 3));
  Curve c{.name = std::move(name)};
  for (Dim d = 1; d < kReach; ++d) {
    c.x.push_back(static_cast<double>(d));
    c.y.push_back(length(gradient_of(run, states[static_cast<std::size_t>(kReach - d)])));
  }
  return c;
}

struct RnnRun {
  Curve losses;
  double largest = 0, end = 0;  // norm of a step's gradient; loss of the last tenth of the steps
};

// Gradient descent without momentum, so that a gradient's size is the step's: the first of `back` + 1 tokens
// is to be said at the last. `clip`: largest norm of a gradient, 0: any.
RnnRun train_rnn(Device& device, double radius, double clip, Dim back, Dim steps, std::uint64_t seed,
                 Text name) {
  constexpr Dim kBatch = 32;
  constexpr double kRate = 0.1;
  PlainRnn rnn = plain_rnn(device.real, radius, seed);
  Weight* weights[] = {&rnn.in, &rnn.state, &rnn.out};
  Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  std::vector<double> losses;
  RnnRun out{.losses = {.name = std::move(name)}};
  for (Dim step = 0; step < steps; ++step) {
    run.reset();
    gradients.zero();
    std::vector<std::int32_t> targets;
    Tensor h;
    for (Dim t = 0; t <= back; ++t) {
      std::vector<double> one_hot(static_cast<std::size_t>(kBatch * kDelayVocab));
      for (Dim n = 0; n < kBatch; ++n) {
        const auto token = static_cast<std::int32_t>(
            random_below(kDelayVocab, mix_key(seed, 0xF125), static_cast<std::uint64_t>(step * kBatch + n),
                         static_cast<std::uint64_t>(t)));
        one_hot[static_cast<std::size_t>(n * kDelayVocab + token)] = 1;
        if (t == 0) targets.push_back(token);
      }
      const Tensor x = linear(run, run.upload({kBatch, kDelayVocab}, one_hot), rnn.in);
      h = activation(run, Act::tanh, t == 0 ? x : linear_add(run, x, h, rnn.state));
    }
    const Loss loss = cross_entropy(run, linear(run, h, rnn.out), targets);
    losses.push_back(loss.mean.at(0));
    backward(run, loss.mean);
    double square = 0;
    for (const Weight* w : weights) {
      const double size = length(gradient_of(gradients, *w));
      square += size * size;
    }
    const double norm = std::sqrt(square), factor = clip > 0 ? std::min(1.0, clip / norm) : 1.0;
    if (!std::isfinite(norm)) break;
    out.largest = std::max(out.largest, norm);
    for (Weight* w : weights)
      for (Dim r = 0; r < w->rows; ++r)
        for (Dim c = 0; c < w->cols; ++c)
          w->set(r, c, w->get(r, c) - kRate * factor * gradients.get(*w, r, c));
  }
  const std::size_t part = std::max<std::size_t>(1, losses.size() / 50), last = losses.size() / 10 + 1;
  for (std::size_t i = 0; i + part <= losses.size(); i += part) {
    double sum = 0;
    for (std::size_t j = i; j < i + part; ++j) sum += losses[j] / static_cast<double>(part);
    out.losses.x.push_back(static_cast<double>(i + part)), out.losses.y.push_back(sum);
  }
  for (std::size_t i = losses.size() - last; i < losses.size(); ++i)
    out.end += losses[i] / static_cast<double>(last);
  return out;
}

}  // namespace

LabResult rnn(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  // Inputs so small that tanh is a straight line all the way, and inputs of the usual size.
  constexpr double kRadii[] = {0.5, 0.9, 1.1, 1.5, 3}, kSmall = 1e-40;
  LabResult r;
  Chart chart{.title = say("lab.rnn.chart"),
              .x_label = say("lab.distance.distance"),
              .y_label = say("lab.distance.norm"),
              .curves = {},
              .log_y = true};
  Table table{.title = say("lab.rnn.table"),
              .columns = {say("lab.distance.model"), say("lab.rnn.small"), say("lab.rnn.unit"),
                          say("lab.rnn.per_step")},
              .rows = {}};
  std::vector<double> small, unit;
  for (double radius : kRadii) {
    const Text name = say("lab.rnn.radius", digits(radius, 1));
    chart.curves.push_back(gradient_at_states(f64, radius, kSmall, lab.seed, name));
    small.push_back(fall_of(chart.curves.back()));
    unit.push_back(fall_of(gradient_at_states(f64, radius, 1, lab.seed, name)));
    table.rows.push_back({name, Cell(plainly(small.back())), Cell(plainly(unit.back())),
                          Cell(std::pow(small.back(), 1 / 47.0), 2)});
  }
  const std::vector<Reacher> models = reachers(lab);
  std::vector<double> beside;
  for (const Curve& c : untrained_gradients(lab, models)) {
    beside.push_back(fall_of(c));
    table.rows.push_back(
        {c.name, "", Cell(plainly(beside.back())), Cell(std::pow(beside.back(), 1 / 47.0), 2)});
  }

  constexpr double kTrained[] = {0.5, 1.5, 3, 6};
  constexpr Dim kBack = 12, kSteps = 1200;
  const double guess = std::log(static_cast<double>(kDelayVocab));
  Table trained{.title = say("lab.rnn.trained", kBack, digits(guess, 2)),
                .columns = {say("lab.distance.model"), say("lab.rnn.largest"), say("lab.loss"),
                            say("lab.rnn.largest_clipped"), say("lab.rnn.loss_clipped")},
                .rows = {}};
  Chart learning{.title = say("lab.rnn.learning", kBack),
                 .x_label = say("lab.step"),
                 .y_label = say("lab.rnn.loss_axis"),
                 .curves = {}};
  std::vector<RnnRun> free, clipped;
  Device one(lab.device.kernels, {.threads = 1});
  for (double radius : kTrained) {
    if (lab.progress) lab.progress("rnn", static_cast<double>(free.size()), std::size(kTrained));
    const Text name = say("lab.rnn.radius", digits(radius, 1));
    free.push_back(train_rnn(one, radius, 0, kBack, scaled(lab, kSteps), lab.seed, name));
    clipped.push_back(train_rnn(one, radius, 1, kBack, scaled(lab, kSteps), lab.seed, name));
    trained.rows.push_back({name, Cell(plainly(free.back().largest)), Cell(free.back().end),
                            Cell(plainly(clipped.back().largest)), Cell(clipped.back().end)});
    learning.curves.push_back(free.back().losses);
  }
  r.document.parts = {chart, table, learning, trained};
  const bool vanishes = small[0] < 1e-6, explodes = small[3] > 1e6, reaches = beside[2] > 0.01;
  std::size_t best = 0;
  int helped = 0;
  for (std::size_t i = 0; i < free.size(); ++i) {
    if (free[i].end < free[best].end) best = i;
    helped += clipped[i].end < free[i].end - 0.05;
  }
  r.findings = {
      below(say("lab.rnn.f.vanish"), small[0], 1e-6, "x", say("lab.rnn.p.bound")),
      above(say("lab.rnn.f.explode"), small[3], 1e6, "x", say("lab.rnn.p.bound")),
      below(say("lab.rnn.f.brake"), unit[3] / small[3], 0.1, "x"),
      above(say("lab.rnn.f.attention"), beside[2], 0.01, "x", say("lab.distance.p.paths")),
      above(say("lab.rnn.f.largest"), free[3].largest / free[0].largest, 100, "x", "", false),
      above(say("lab.rnn.f.learns"), free[0].end - free[best].end, 0.5, "nats", "", false),
      above(say("lab.rnn.f.clip"), helped, 0, "", say("lab.rnn.p.pascanu"), false),
  };
  r.verdict = sentences(
      {vanishes && explodes
           ? say("lab.rnn.v.both", plainly(small[0]), plainly(small[1]), plainly(small[2]), plainly(small[3]))
           : say("lab.rnn.v.other", plainly(small[0]), plainly(small[3])),
       say("lab.rnn.v.brake", plainly(unit[3]), plainly(unit[4])),
       reaches ? say("lab.rnn.v.beside", plainly(beside[0]), plainly(beside[1]), digits(beside[2], 2))
               : say("lab.rnn.v.no_reach", plainly(beside[0]), plainly(beside[1]), plainly(beside[2])),
       say("lab.rnn.v.trained", kBack, digits(free[0].end, 2), digits(free[1].end, 2), digits(free[2].end, 2),
           digits(free[3].end, 2), digits(guess, 2)),
       say("lab.rnn.v.largest", digits(free[0].largest, 1), plainly(free[3].largest)),
       helped > 0 ? say("lab.rnn.v.clip", helped, std::size(kTrained)) : say("lab.rnn.v.no_clip")});
  return r;
}

}  // namespace rapt
