// SPDX-License-Identifier: Apache-2.0
// Reach of attention against that of a recurrent network: gradients over distance, and what is learned.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"
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

Recipe recurrent_recipe(RecurrentRecipe::Cell cell) {
  Recipe r;
  r.name = "recurrent";
  r.width = 48;
  r.vocab = kDelayVocab;
  r.context = 64;
  r.init.std = 0.083;
  r.decoder = StackRecipe{.recurrent = RecurrentRecipe{.cell = cell, .start = RecurrentRecipe::Start::zero}};
  return r;
}

}  // namespace

LabResult long_distance(const Lab& lab) {
  constexpr Dim kLength = 64;
  Recipe attention = toy_recipe(1, 1, kDelayVocab);
  attention.context = kLength;
  const std::vector<std::pair<std::string, Recipe>> models = {
      {"GRU", recurrent_recipe(RecurrentRecipe::Cell::gru)},
      {"LSTM", recurrent_recipe(RecurrentRecipe::Cell::lstm)},
      {"attention", attention}};
  const CopyTask::Batch data = delay_task(lab.seed, 1)(0, scaled_batch(lab, 32), kLength);
  LabResult out;
  Chart chart{.title = "gradient of the last row's loss at an input so far back, before training",
              .x_label = "distance",
              .y_label = "norm",
              .log_y = true};
  std::vector<double> fall;  // distance 48 over distance 1
  for (const auto& [name, recipe] : models) {
    Model model(recipe, lab.device.real);
    init(model, lab.seed);
    const std::vector<double> g = gradient_by_distance(lab.device, model, data, kLength);
    Curve c{.name = name};
    for (std::size_t d = 1; d < g.size(); ++d) c.x.push_back(static_cast<double>(d)), c.y.push_back(g[d]);
    chart.curves.push_back(std::move(c));
    fall.push_back(g[48] / g[1]);
  }
  const std::vector<Dim> delays = {2, 8, 24};
  std::vector<Toy> toys;
  for (Dim delay : delays)
    for (const auto& [name, recipe] : models)
      toys.push_back({.name = concat(name, ", ", delay),
                      .recipe = recipe,
                      .task = delay_task(lab.seed, delay),
                      .seed = lab.seed,
                      .steps = 800,
                      .length = 32,
                      .cosine = true});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  Table table{
      .title = "after training to repeat the token so many steps before: loss in nats (guessing: 2.773)",
      .columns = {"model", "2", "8", "24", "gradient at distance 48 over 1, before training"}};
  for (std::size_t m = 0; m < models.size(); ++m) {
    std::vector<Cell> row = {models[m].first};
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
  out.findings = {
      below("gradient at distance 48 over that at distance 1, GRU against attention", fall[0] / fall[2], 0.01,
            "x", "paths of length n against 1 (Vaswani et al. 2017, table 1)"),
      above("loss at delay 24, GRU minus attention", loss(0, 2) - loss(2, 2), 0, "nats",
            "long dependencies are hard to learn by gradient descent (Bengio et al. 1994)"),
      above("loss at delay 24, LSTM minus attention", loss(1, 2) - loss(2, 2), 0, "nats", ""),
      above("loss of the GRU, delay 24 minus delay 2", loss(0, 2) - loss(0, 0), 0, "nats", ""),
      below("loss of attention at its worst delay", loss(2, hardest), 0.1, "nats", "", false),
  };
  out.verdict = concat(
      "From distance 1 to 48 an untrained GRU's gradient falls to ", Cell(fall[0], 2).text,
      " of itself, attention's to ", digits(fall[2], 2), ". After ", scaled(lab, 800),
      " steps a token 24 steps back costs the GRU ", digits(loss(0, 2), 2), ", the LSTM ",
      digits(loss(1, 2), 2), " and attention ", digits(loss(2, 2), 2), " nats; 8 steps back ",
      digits(loss(0, 1), 2), ", ", digits(loss(1, 1), 2), " and ", digits(loss(2, 1), 2), ", 2 steps back ",
      digits(loss(0, 0), 2), ", ", digits(loss(1, 0), 2), " and ", digits(loss(2, 0), 2), ". ",
      loss(0, 2) < loss(2, 2) + 0.1 ? "In this run the GRU kept up."
      : loss(2, hardest) < 0.1      ? "Attention reaches any of these distances in one step; "
                                      "a state must carry everything it may be asked for."
                               : concat("The path is short at any distance, but attention had not learned ",
                                        delays[hardest], " steps back (", digits(loss(2, hardest), 2),
                                        " nats): a short path is not yet a learned one."));
  return out;
}

}  // namespace rapt
