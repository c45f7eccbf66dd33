// SPDX-License-Identifier: Apache-2.0
// Experiments on what attention is made of: heads, shared keys, scores, positions, and its reach against a
// recurrent network's.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/loss.h"

namespace rapt {
namespace {

Recipe lookup_recipe(Dim layers, Dim head_count) {
  Recipe r = with_ffn(toy_recipe(layers, head_count, kLookupVocab));
  self_attn(r).pos.kind = PosRecipe::Kind::none;  // items are found by what they are
  return r;
}

Dim size_of(const Recipe& r) { return Model(r).parameters(); }

}  // namespace

LabResult heads(const Lab& lab) {
  std::vector<Toy> toys;
  for (int asked : {1, 2})
    for (Dim n : {1, 2, 4, 8})
      toys.push_back(
          {.name = concat(n, n == 1 ? " head, " : " heads, ", asked, asked == 1 ? " key" : " keys"),
           .recipe = lookup_recipe(1, n),
           .task = lookup_task(lab.seed, asked),
           .seed = lab.seed,
           .steps = 1000,
           .cosine = true});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  LabResult out;
  Table table{
      .title = "looking up values of one or of two keys, width 48 in all (guessing: 2.079 and 4.159 nats)",
      .columns = {"variant", "parameters", "loss"}};
  for (const Trained& t : runs)
    table.rows.push_back(
        {t.name, Cell(static_cast<double>(t.model->parameters()), 0), Cell(t.end().trigger_loss)});
  Chart chart{.title = "two keys: loss", .x_label = "step", .y_label = "nats"};
  for (std::size_t i = 4; i < 8; ++i) chart.curves.push_back(loss_curve(runs[i]));
  out.document.parts = {table, chart};
  auto loss = [&](std::size_t i) { return runs[i].end().trigger_loss; };
  std::size_t best = 4;
  for (std::size_t i = 5; i < 8; ++i)
    if (loss(i) < loss(best)) best = i;
  const double gain = loss(4) - loss(best), one = loss(0) - std::min({loss(1), loss(2), loss(3)});
  out.findings = {
      above("loss with two keys, one head minus the best number of heads", gain, 0.1, "nats",
            "one head 24.9 BLEU, eight 25.8, thirty-two 25.4 (Vaswani et al. 2017, table 3)", false),
      above("what many heads gain with two keys more than with one", gain - one, 0, "nats", "", false),
      above("loss with two keys, eight heads of 6 channels minus the best", loss(7) - loss(best), 0.01,
            "nats", "too many small heads lose again (25.4)", false),
  };
  out.verdict =
      concat("Where two items must be looked up and told apart, one head of 48 channels ends at ",
             digits(loss(4), 3), " nats and ", Dim{1} << (best - 4), " heads at ", digits(loss(best), 3),
             "; where one item is enough ", digits(loss(0), 3), " and ",
             digits(std::min({loss(1), loss(2), loss(3)}), 3), ". ",
             gain > 0.1 && gain > one ? "One softmax averages what it looks at; several keep the parts apart."
             : gain > 0.1             ? "More heads help, but not for the sake of the second item alone."
                                      : "In so many steps the number of heads made little difference.",
             " Eight heads of 6 channels: ", digits(loss(7), 3), ".");
  return out;
}

// ----------------------------------------------------------------------------------- shared keys and values
namespace {

// Key and value heads of each group become one: their mean, or the first of them.
std::unique_ptr<Model> converted(const Model& from, const Recipe& recipe, bool mean) {
  std::unique_ptr<Model> to = with_weights(from, recipe);
  const AttnRecipe &a = *from.recipe.decoder->layer(0).parts[0].self(),
                   &b = *to->recipe.decoder->layer(0).parts[0].self();
  const Dim group = a.kv_heads / b.kv_heads, d = a.head_dim;
  for (Weight& w : to->weights) {
    if (!w.name.ends_with(".self.k.weight") && !w.name.ends_with(".self.v.weight")) continue;
    for (const Weight& f : from.weights) {
      if (f.name != w.name) continue;
      for (Dim r = 0; r < w.rows; ++r)
        for (Dim c = 0; c < w.cols; ++c) {
          double sum = 0;
          for (Dim g = 0; g < (mean ? group : 1); ++g) sum += f.get((r / d * group + g) * d + r % d, c);
          w.set(r, c, sum / static_cast<double>(mean ? group : 1));
        }
    }
  }
  return to;
}

// How differently heads that share their keys attend: half the sum of |a - b| over the keys, 0 where two
// heads' rows are equal and 1 where they have no key in common; mean over the questions and all pairs of
// heads. For a model of one key head.
double heads_apart(Device& device, const Model& model, const ToyTask& task, Dim sequences, Dim length) {
  const CopyTask::Batch data = task(~std::uint64_t{4}, sequences, length);
  const Dim head_count = model.recipe.decoder->layer(0).parts[0].self()->heads, rows = sequences * length;
  std::vector<std::vector<double>> weights(static_cast<std::size_t>(rows * head_count));
  Run run(device);
  Taps taps;
  run.taps = &taps;
  taps.want_weights(
      site::attn_weights,
      [&](const Tapped&) {
        std::vector<Taps::HeadRow> wanted;
        for (Dim r = 0; r < rows; ++r)
          for (Dim h = 0; h < head_count; ++h) wanted.push_back({h, r});
        return wanted;
      },
      [&](const Tapped& t) {
        std::vector<double>& w = weights[static_cast<std::size_t>(t.row * head_count + t.head)];
        for (Dim i = 0; i < t.value.elements(); ++i) w.push_back(t.value.at(i));
      });
  forward(run, model, toy_batch(data, length));
  double sum = 0, pairs = 0;
  for (Dim r = 0; r < rows; ++r)
    for (Dim a = 0; data.kind[static_cast<std::size_t>(r)] == 1 && a < head_count; ++a)
      for (Dim b = 0; b < a; ++b, ++pairs) {
        const std::vector<double>&x = weights[static_cast<std::size_t>(r * head_count + a)],
              &y = weights[static_cast<std::size_t>(r * head_count + b)];
        for (std::size_t i = 0; i < x.size(); ++i) sum += std::abs(x[i] - y[i]) / 2;
      }
  return sum / std::max(pairs, 1.0);
}

}  // namespace

LabResult gqa_quality(const Lab& lab) {
  const ToyTask task = lookup_task(lab.seed, 2);
  const Recipe full = lookup_recipe(1, 4);
  auto grouped = [&](Dim kv, bool equal_size) {
    Recipe r = full;
    self_attn(r).kv_heads = kv;
    if (equal_size) ffn_of(r).width += (size_of(full) - size_of(r)) / (3 * r.width);
    return r;
  };
  constexpr Dim kSteps = 1000;
  constexpr Dim kKvHeads[] = {4, 2, 1, 4, 1};
  constexpr const char* kVariants[] = {"MHA, 4", "GQA, 2", "MQA, 1", "MHA, rate 1e-2", "MQA, rate 1e-2"};
  std::vector<Toy> toys;
  for (std::size_t i = 0; i < 5; ++i)
    toys.push_back({.name = kVariants[i],
                    .recipe = grouped(kKvHeads[i], true),
                    .task = task,
                    .seed = lab.seed,
                    .steps = kSteps,
                    .rate = i < 3 ? 3e-3 : 1e-2,
                    .cosine = true});
  std::vector<Trained> runs = train_toys(lab, std::move(toys));

  std::vector<std::unique_ptr<Model>> starts;
  std::vector<Toy> more;
  std::vector<double> before;
  for (Dim kv : {2, 1})
    for (bool mean : {true, false}) {
      starts.push_back(converted(*runs[0].model, grouped(kv, false), mean));
      before.push_back(look_at(lab.device, *starts.back(), task, scaled_batch(lab, 128), 32).trigger_loss);
      more.push_back({.name = concat(kv == 2 ? "to GQA, " : "to MQA, ", mean ? "mean" : "first head"),
                      .recipe = grouped(kv, false),
                      .task = task,
                      .seed = lab.seed + 1,
                      .steps = kSteps / 20,
                      .rate = 1e-3,
                      .warmup = 5,
                      .start = starts.back().get()});
    }
  const std::vector<Trained> up = train_toys(lab, std::move(more));

  LabResult out;
  Table table{.title =
                  "equal size (a wider feed-forward part makes up for missing heads); "
                  "two-key lookup, guessing is 4.159 nats",
              .columns = {"variant", "parameters", "loss", "spikes", "values cached per token"}};
  for (std::size_t i = 0; i < 5; ++i)
    table.rows.push_back({runs[i].name, Cell(static_cast<double>(runs[i].model->parameters()), 0),
                          Cell(runs[i].end().trigger_loss), Cell(runs[i].spikes, 0),
                          Cell(static_cast<double>(2 * 12 * kKvHeads[i]), 0)});
  Table moved{.title = "converted from MHA, then 5 % of the steps more",
              .columns = {"variant", "loss at once", "after 5 % more"}};
  for (std::size_t i = 0; i < up.size(); ++i)
    moved.rows.push_back({up[i].name, Cell(before[i]), Cell(up[i].end().trigger_loss)});
  out.document.parts = {table, moved, loss_chart("loss", runs)};
  auto loss = [&](std::size_t i) { return runs[i].end().trigger_loss; };
  const double apart = heads_apart(lab.device, *runs[2].model, task, scaled_batch(lab, 16), 32);
  out.findings = {
      above("how far the rows of MQA's heads are apart: 0 the same, 1 no key in common", apart, 0.1, ""),
      below("loss, GQA minus MHA at equal size", loss(1) - loss(0), 0.01, "nats",
            "47.1 against 47.2 on average (Ainslie et al. 2023)", false),
      above("loss, MQA minus GQA at equal size", loss(2) - loss(1), 0, "nats",
            "46.6 against 47.1 on average; WMT BLEU 28.5 against 28.4 (Ainslie et al. 2023)", false),
      above("spikes of the loss at rate 1e-2, MQA minus MHA", runs[4].spikes - runs[3].spikes, 0, "",
            "MQA can be unstable in training (Ainslie et al. 2023)", false),
      below("loss after conversion to GQA by the mean, 5 % more steps against none",
            up[0].end().trigger_loss / before[0], 1, "x",
            "up-training with 5 % of the steps (Ainslie et al. 2023)"),
      below("loss at once, mean against first head (to MQA)", before[2] / before[3], 1, "x",
            "mean is best, first head next (Ainslie et al. 2023, figure 4)", false),
      below("loss after 5 % more, mean against first head (to MQA)",
            up[2].end().trigger_loss / up[3].end().trigger_loss, 1, "x", "", false),
  };
  out.verdict = concat(
      apart > 0.1
          ? "That MQA's heads attend to the same is wrong: keys and values are shared, queries are not, and "
            "two heads' rows are "
          : "MQA's heads attend to nearly the same: two heads' rows are ",
      digits(apart, 2), " apart (1: no key in common). At equal size MHA ends at ", digits(loss(0), 3),
      ", GQA at ", digits(loss(1), 3), " nats, MQA at ", digits(loss(2), 3),
      " with a quarter of MHA's cache. ",
      loss(2) <= loss(1)
          ? "MQA is no worse than GQA here, as in WMT's BLEU (28.5, 28.4); the papers' gap is in "
            "summarisation and questions. "
          : "MQA is worse than GQA, as in the papers' summarisation and questions, "
            "not in their BLEU (28.5, 28.4). ",
      "Pooling trained heads by the mean gives ", digits(before[0], 2), " (GQA) and ", digits(before[2], 2),
      " (MQA) at once, ", digits(up[0].end().trigger_loss, 2), " and ", digits(up[2].end().trigger_loss, 2),
      " after 5 % more steps; taking the first head ", digits(up[1].end().trigger_loss, 2), " and ",
      digits(up[3].end().trigger_loss, 2), ". ",
      runs[3].spikes + runs[4].spikes == 0
          ? "Even at rate 1e-2 neither's loss jumps: MQA's instability does not show at this size."
          : concat("At rate 1e-2 MQA's loss jumps ", runs[4].spikes, " times, MHA's ", runs[3].spikes, "."));
  return out;
}

// ------------------------------------------------------------------------------------------------ scores
LabResult score_quality(const Lab& lab) {
  using By = AttnRecipe::ScoreKind;
  const ToyTask task = lookup_task(lab.seed, 1);
  std::vector<Toy> toys;
  auto add = [&](std::string name, By score, ScaleRecipe scale) {
    Recipe r = lookup_recipe(1, 1);
    self_attn(r).score = score;
    self_attn(r).scale = scale;
    toys.push_back(
        {.name = std::move(name), .recipe = r, .task = task, .seed = lab.seed, .steps = 500, .cosine = true});
  };
  add("dot, not scaled", By::dot, {.kind = ScaleRecipe::Kind::number, .number = 1});
  add("dot, scaled", By::dot, {});
  add("additive", By::additive, {});
  add("cosine, scale 1", By::cosine, {});
  add("cosine, learned scale", By::cosine, {.kind = ScaleRecipe::Kind::learned, .number = 10});
  add("-distance^2, scaled", By::l2, {});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  LabResult out;
  Table table{.title = "one-key lookup, one head of 48 channels, equal steps (guessing: 2.079 nats)",
              .columns = {"score", "loss", "half way", "largest logit"}};
  for (const Trained& t : runs) {
    double half = 0;
    const std::size_t n = t.losses.size(), from = n / 2 > 10 ? n / 2 - 10 : 0;
    for (std::size_t i = from; i < n / 2; ++i) half += t.losses[i] / static_cast<double>(n / 2 - from);
    table.rows.push_back({t.name, Cell(t.end().trigger_loss, 4), Cell(half, 4), Cell(t.end().max_logit, 1)});
  }
  out.document.parts = {table, loss_chart("loss", runs)};
  auto loss = [&](std::size_t i) { return runs[i].end().trigger_loss; };
  std::size_t best = 0, worst = 0;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    if (loss(i) < loss(best)) best = i;
    if (loss(i) > loss(worst)) worst = i;
  }
  out.findings = {
      above("loss, unscaled minus scaled dot", loss(0) - loss(1), 0, "nats",
            "large products push the softmax where its gradients are small (Vaswani et al. 2017)", false),
      above("loss, unscaled dot minus additive", loss(0) - loss(2), 0, "nats",
            "additive is better than the unscaled dot for large d (Vaswani et al. 2017)", false),
      below("loss, scaled dot minus additive", loss(1) - loss(2), 0, "nats",
            "similar for small d (Vaswani et al. 2017)", false),
      below("loss, scaled dot minus distance", loss(1) - loss(5), 0, "nats", "", false),
      above("loss, cosine of scale 1 minus learned scale", loss(3) - loss(4), 0, "nats",
            "needs a learned scale (Henry et al. 2020)", false),
  };
  out.verdict =
      concat("After equal steps ", runs[best].name, " is lowest (", digits(loss(best), 3), " nats) and ",
             runs[worst].name, " highest (", digits(loss(worst), 3), "); scaled dot ", digits(loss(1), 3),
             ", additive ", digits(loss(2), 3), ", cosine of scale 1 ", digits(loss(3), 3),
             " and of a learned scale ", digits(loss(4), 3), ", distance ", digits(loss(5), 3), ". ",
             best == 1 ? "Here the scaled dot product also learns best."
                       : concat("Here ", runs[best].name,
                                " learns best, so learning is not the reason for the scaled dot product."));
  return out;
}

// ------------------------------------------------------------------------------------------------ positions
LabResult positions_extrapolation(const Lab& lab) {
  const ToyTask task = copy_task(lab.seed);
  std::vector<Toy> toys;
  auto add = [&](std::string name, EmbedRecipe::Pos in_embedding, PosRecipe::Kind inside) {
    Recipe r = toy_recipe(2, 4);  // four heads: ALiBi's slope of a single one is 1/256
    r.context = 128;
    r.embed.pos = in_embedding;
    self_attn(r).pos.kind = inside;
    toys.push_back({.name = std::move(name), .recipe = r, .task = task, .seed = lab.seed});
  };
  using In = EmbedRecipe::Pos;
  using Kind = PosRecipe::Kind;
  add("none", In::none, Kind::none);
  add("sinusoid", In::sinusoid, Kind::none);
  add("learned", In::learned, Kind::none);
  add("RoPE", In::none, Kind::rope);
  add("ALiBi", In::none, Kind::alibi);
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  LabResult out;
  Table table{
      .title =
          "trained at 32 tokens: loss of copying rows (guessing about 3.2 nats) / excess loss of the others",
      .columns = {"positions", "32", "64", "128"}};
  Chart chart{.title = "loss of copying rows", .x_label = "length", .y_label = "nats", .log_y = true};
  std::vector<std::vector<double>> copy;
  for (const Trained& t : runs) {
    std::vector<Cell> row = {t.name};
    Curve curve{.name = t.name};
    copy.push_back({});
    for (Dim length : {32, 64, 128}) {
      const ToyLook l = look_at(lab.device, *t.model, task, scaled_batch(lab, 64), length, ~std::uint64_t{2});
      row.push_back(digits(l.trigger_loss) + " / " + digits(l.idle_excess));
      curve.x.push_back(static_cast<double>(length));
      curve.y.push_back(l.trigger_loss);
      copy.back().push_back(l.trigger_loss);
    }
    table.rows.push_back(std::move(row));
    chart.curves.push_back(std::move(curve));
  }
  out.document.parts = {table, chart};
  std::size_t best = 0;
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (copy[i][2] < copy[best][2]) best = i;
  out.findings = {
      above("loss of copying rows with learned positions, four times the length minus the trained one",
            copy[2][2] - copy[2][0], 0.1, "nats", "positions that were never trained"),
      above("loss of copying rows with sinusoids, four times the length minus the trained one",
            copy[1][2] - copy[1][0], 0.1, "nats",
            "hoped for in 2017; ALiBi's authors found it degrades (Press et al. 2022)"),
      above("loss of copying rows with RoPE, four times the length minus the trained one",
            copy[3][2] - copy[3][0], 0.05, "nats", "", false),
      below("loss of copying rows at four times the length, ALiBi minus sinusoid", copy[4][2] - copy[1][2], 0,
            "nats", "Press et al. 2022"),
  };
  out.verdict = concat(
      "At four times the trained length the copies cost: none ", digits(copy[0][2], 2), ", sinusoid ",
      digits(copy[1][2], 2), ", learned ", digits(copy[2][2], 2), ", RoPE ", digits(copy[3][2], 2),
      ", ALiBi ", digits(copy[4][2], 2), " nats (at the trained length ", digits(copy[0][0], 2), ", ",
      digits(copy[1][0], 2), ", ", digits(copy[2][0], 2), ", ", digits(copy[3][0], 2), ", ",
      digits(copy[4][0], 2), "). ", runs[best].name, " carries furthest; that sinusoids extrapolate is ",
      copy[1][2] - copy[1][0] > 0.1 ? "not what they do here." : "what they do in this run.");
  return out;
}

// ------------------------------------------------------------------------------------------------ distance
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
