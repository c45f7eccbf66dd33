// SPDX-License-Identifier: Apache-2.0
// Experiments on norms and depth, on text: no norm at all, norms before or after over rate, start and depth,
// and what each layer of a trained model is worth.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "rapt/base/text.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/sweep.h"
#include "rapt/ops/loss.h"

namespace rapt {
namespace {

// Layers of the 2017 kind: LayerNorm, a feed-forward part of two matrices.
Recipe deep_recipe(Dim layers, Dim vocab) {
  Recipe r = with_ffn(toy_recipe(layers, 4, vocab));
  ffn_of(r).kind = FfnRecipe::Kind::mlp, ffn_of(r).act = Act::gelu;
  set_norms(r, {.kind = NormRecipe::Kind::layer, .bias = true});
  r.init.std = 1 / std::sqrt(static_cast<double>(r.width));
  return r;
}

Recipe post_norm(Recipe r) {
  for (PartRecipe& p : r.decoder->kinds.at("L").parts) p.norm_sum = p.norm_in, p.norm_in = {};
  r.decoder->final_norm = {};
  return r;
}

Recipe no_norms(Recipe r) {
  for (PartRecipe& p : r.decoder->kinds.at("L").parts) p.norm_in = {};
  r.decoder->final_norm = {};
  return r;
}

// |d loss / d weights| of each layer, all its weights together.
std::vector<double> layer_gradients(Device& device, const Model& model, const ToyTask& task) {
  constexpr Dim kLength = 32;
  const CopyTask::Batch data = task(0, 8, kLength);
  Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  backward(run, cross_entropy(run, forward(run, model, toy_batch(data, kLength)), data.targets).mean);
  std::vector<double> out;
  for (Dim l = 0; l < model.recipe.decoder->layers; ++l) {
    const std::string prefix = concat("decoder.", l, ".");
    double square = 0;
    for (const Weight& w : model.weights)
      if (w.name.starts_with(prefix)) {
        const double size = length(gradient_of(gradients, w));
        square += size * size;
      }
    out.push_back(std::sqrt(square));
  }
  return out;
}

double finite_or(double value, double otherwise) { return std::isfinite(value) ? value : otherwise; }

}  // namespace

// ------------------------------------------------------------------------------------------- no norm at all
LabResult no_norm(const Lab& lab) {
  const TextTask text = text_task(lab);
  const std::vector<double> rates = {0.001, 0.003, 0.01, 0.03};
  constexpr const char* kNames[] = {"0.001", "0.003", "0.01", "0.03"};
  enum { pre, bare, bare_small, kinds };
  const char* const names[] = {"lab.no-norm.pre", "lab.no-norm.bare", "lab.no-norm.small"};
  Recipe recipes[kinds];
  recipes[pre] = deep_recipe(6, text.vocab);
  recipes[bare] = recipes[bare_small] = no_norms(recipes[pre]);
  recipes[bare_small].init.std = 0.02;
  std::vector<Toy> toys;
  for (std::size_t i = 0; i < rates.size(); ++i)
    for (int kind = pre; kind < kinds; ++kind)
      toys.push_back({.name = say("lab.no-norm.at", say(names[kind]), kNames[i]),
                      .recipe = recipes[kind],
                      .task = text.task,
                      .seed = lab.seed,
                      .steps = 200,
                      .batch = 16,
                      .rate = rates[i],
                      .looks = 4});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  const double guess = std::log(static_cast<double>(text.vocab));
  auto run_of = [&](std::size_t rate, int kind) -> const Trained& {
    return runs[rate * kinds + static_cast<std::size_t>(kind)];
  };

  LabResult out;
  Table table{.title = say("lab.no-norm.table", digits(guess, 2)),
              .columns = {say("lab.variant"), say("lab.norms.held_out"), say("lab.norms.largest_logit"),
                          say("lab.no-norm.last_size"), say("lab.norms.spikes"), say("lab.norms.diverged")}};
  std::vector<double> losses[kinds];
  // The highest rate at which a run learns more than the letters' frequencies; nearly 0 where none does.
  double trains[kinds] = {1e-9, 1e-9, 1e-9};
  for (std::size_t i = 0; i < rates.size(); ++i)
    for (int kind = pre; kind < kinds; ++kind) {
      const Trained& t = run_of(i, kind);
      losses[kind].push_back(loss_or(t, guess));
      if (losses[kind].back() < 2.9) trains[kind] = rates[i];
      table.rows.push_back({t.name, Cell(losses[kind].back(), 3), Cell(largest_logit(t), 1),
                            Cell(t.end().median.back(), 2), Cell(t.spikes, 0),
                            say(t.diverged ? "lab.yes" : "lab.no")});
    }
  Chart sizes{.title = say("lab.no-norm.sizes"),
              .x_label = say("lab.layer"),
              .y_label = say("lab.no-norm.size"),
              .log_y = true},
      gradients{.title = say("lab.no-norm.gradients"),
                .x_label = say("lab.layer"),
                .y_label = say("lab.no-norm.gradient"),
                .log_y = true},
      curve{.title = say("lab.no-norm.curve"),
            .x_label = say("lab.norms.log_rate"),
            .y_label = say("lab.norms.held_out")};
  double growth[kinds], gradient[kinds];
  std::vector<double> at_start[kinds];
  for (int kind = pre; kind < kinds; ++kind) {
    const ToyLook &start = run_of(0, kind).looks.front(), &end = run_of(0, kind).end();
    sizes.curves.push_back(over_layers(say("lab.no-norm.start", say(names[kind])), start.median));
    if (kind != bare_small)
      sizes.curves.push_back(over_layers(say("lab.no-norm.end", say(names[kind])), end.median));
    growth[kind] = start.median.back() / start.median.front();
    // Token embeddings at unit size, as training starts.
    Model model(run_of(0, kind).model->recipe, lab.device.real);
    init(model, lab.seed);
    for (Weight& w : model.weights)
      if (w.name == "embed.tokens")
        for (Dim i = 0; i < w.size(); ++i)
          w.set(i / w.cols, i % w.cols, w.get(i / w.cols, i % w.cols) / model.recipe.init.std);
    at_start[kind] = layer_gradients(lab.device, model, text.task);
    gradients.curves.push_back(over_layers(say(names[kind]), at_start[kind]));
    gradient[kind] = finite_or(length(at_start[kind]), 1e30);
    curve.curves.push_back(over_rates(say(names[kind]), rates, losses[kind]));
  }
  out.document.parts = {sizes, table, gradients, curve};
  const double best[] = {*std::min_element(losses[pre].begin(), losses[pre].end()),
                         *std::min_element(losses[bare].begin(), losses[bare].end()),
                         *std::min_element(losses[bare_small].begin(), losses[bare_small].end())};
  out.findings = {
      above(say("lab.no-norm.f.size"), growth[bare] / growth[pre], 2, "x"),
      above(say("lab.no-norm.f.gradient"), gradient[bare] / gradient[pre], 10, "x"),
      above(say("lab.no-norm.f.loss"), best[bare] - best[pre], 0.3, "nats"),
      below(say("lab.no-norm.f.small"), losses[bare_small][0] - losses[pre][0], 0.1, "nats", "", false),
      below(say("lab.no-norm.f.rate"), trains[bare_small] / trains[pre], 1, "x", "", false),
  };
  auto rate_of = [&](int kind) { return shortest(trains[kind] < rates[0] ? 0 : trains[kind]); };
  out.verdict = sentences(
      {growth[bare] > 2 * growth[pre]
           ? say("lab.no-norm.v.grows", digits(growth[bare], 0), digits(growth[pre], 1),
                 with_commas(std::lround(std::min(gradient[bare], 1e15))), digits(gradient[pre], 1))
           : say("lab.no-norm.v.grows_not", digits(growth[bare], 1), digits(growth[pre], 1),
                 digits(gradient[bare], 1), digits(gradient[pre], 1)),
       best[bare] > best[pre] + 0.3
           ? say("lab.no-norm.v.fails", digits(best[bare], 2), digits(best[pre], 2))
           : say("lab.no-norm.v.fails_not", digits(best[bare], 2), digits(best[pre], 2)),
       losses[bare_small][0] < losses[pre][0] + 0.1
           ? say("lab.no-norm.v.small", digits(losses[bare_small][0], 2), digits(losses[pre][0], 2))
           : say("lab.no-norm.v.small_not", digits(losses[bare_small][0], 2), digits(losses[pre][0], 2)),
       trains[bare_small] < trains[pre] ? say("lab.no-norm.v.rates", rate_of(bare_small), rate_of(pre))
                                        : say("lab.no-norm.v.rates_not", rate_of(bare_small), rate_of(pre))});
  return out;
}

// --------------------------------------------------------------------------------------- before or after
LabResult norm_race(const Lab& lab) {
  const TextTask text = text_task(lab);
  struct Setting {
    const char* row;  // which of the three is changed
    Text value;
    Dim layers;
    double rate, start;
  };
  constexpr double kRate = 0.003;
  std::vector<Setting> settings;
  const std::vector<double> rates = {0.001, 0.003, 0.01, 0.03}, starts = {0.3, 1, 2};
  const std::vector<Dim> depths = {2, 6, 12};
  for (double rate : rates) settings.push_back({"lab.norm-race.rate", shortest(rate), 6, rate, 1});
  for (double start : starts)
    if (start != 1) settings.push_back({"lab.norm-race.start", shortest(start), 6, kRate, start});
  for (Dim layers : depths)
    if (layers != 6) settings.push_back({"lab.norm-race.layers", concat(layers), layers, kRate, 1});
  std::vector<Toy> toys;
  for (const Setting& s : settings)
    for (bool post : {false, true}) {
      Recipe r = deep_recipe(s.layers, text.vocab);
      r.init.std *= s.start;
      toys.push_back({.name = say(post ? "lab.norm-race.post" : "lab.norm-race.pre", say(s.row, s.value)),
                      .recipe = post ? post_norm(r) : r,
                      .task = text.task,
                      .seed = lab.seed,
                      .steps = 240,
                      .batch = 16,
                      .rate = s.rate,
                      .beta2 = 0.98,
                      .warmup = scaled(lab, 80, 0),
                      .cosine = true});
    }
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  const double guess = std::log(static_cast<double>(text.vocab));
  LabResult out;
  Table table{.title = say("lab.norm-race.table"),
              .columns = {say("lab.norm-race.setting"), say("lab.norm-race.pre_loss"),
                          say("lab.norm-race.post_loss"), say("lab.norm-race.gap")}};
  // [pre, post] over rates, starts and depths; the middle one is the same run
  std::vector<double> by_rate[2], by_start[2], by_depth[2];
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const double pre = loss_or(runs[2 * i], guess), post = loss_or(runs[2 * i + 1], guess);
    table.rows.push_back({say(settings[i].row, settings[i].value), Cell(pre), Cell(post), Cell(post - pre)});
    for (int p = 0; p < 2; ++p) {
      const double loss = p ? post : pre;
      if (i < rates.size()) by_rate[p].push_back(loss);
      if (i == 1 || (i >= rates.size() && i < rates.size() + 2)) by_start[p].push_back(loss);
      if (i == 1 || i >= rates.size() + 2) by_depth[p].push_back(loss);
    }
  }
  for (auto* losses : {by_start, by_depth})
    for (int p = 0; p < 2; ++p) std::swap(losses[p][0], losses[p][1]);  // the middle one came first
  Chart curve{.title = say("lab.norm-race.curve"),
              .x_label = say("lab.norms.log_rate"),
              .y_label = say("lab.norms.held_out")},
      start_curve{.title = say("lab.norm-race.start_curve"),
                  .x_label = say("lab.norm-race.start_axis"),
                  .y_label = say("lab.norms.held_out")},
      depth_curve{.title = say("lab.norm-race.depth_curve"),
                  .x_label = say("lab.norm-race.layers_axis"),
                  .y_label = say("lab.norms.held_out")};
  for (int p = 0; p < 2; ++p) {
    const Text name = say(p ? "lab.norms.post" : "lab.norms.pre");
    curve.curves.push_back(over_rates(name, rates, by_rate[p]));
    start_curve.curves.push_back({.name = name, .x = starts, .y = by_start[p]});
    depth_curve.curves.push_back({.name = name, .x = {depths.begin(), depths.end()}, .y = by_depth[p]});
  }
  out.document.parts = {curve, table, start_curve, depth_curve};
  double best[2], rate[2], rate_spread[2], start_spread[2], depth_gain[2];
  for (int p = 0; p < 2; ++p) {
    const auto least = std::min_element(by_rate[p].begin(), by_rate[p].end());
    best[p] = *least, rate[p] = rates[static_cast<std::size_t>(least - by_rate[p].begin())];
    rate_spread[p] = above_best(by_rate[p]), start_spread[p] = above_best(by_start[p]);
    depth_gain[p] = by_depth[p].front() - by_depth[p].back();
  }
  const double end = best[1] - best[0];
  out.findings = {
      above(say("lab.norm-race.f.best"), end, 0, "nats", "", false),
      above(say("lab.norm-race.f.rate"), rate_spread[1] - rate_spread[0], 0, "nats",
            say("lab.norm-race.p.rate"), false),
      above(say("lab.norm-race.f.highest"), by_rate[1].back() - by_rate[0].back(), 0, "nats"),
      above(say("lab.norm-race.f.start"), start_spread[1] - start_spread[0], 0, "nats", "", false),
      above(say("lab.norm-race.f.depth"), depth_gain[0] - depth_gain[1], 0, "nats", "", false),
  };
  out.verdict = sentences(
      {say(end > 0.01    ? "lab.norm-race.v.pre_best"
           : end < -0.01 ? "lab.norm-race.v.post_best"
                         : "lab.norm-race.v.even",
           digits(best[0], 3), shortest(rate[0]), digits(best[1], 3), shortest(rate[1])),
       say(rate_spread[1] > rate_spread[0] ? "lab.norm-race.v.rate" : "lab.norm-race.v.rate_not",
           digits(rate_spread[1], 3), digits(rate_spread[0], 3), digits(by_rate[1].back(), 2),
           digits(by_rate[0].back(), 2)),
       say(start_spread[1] > start_spread[0] ? "lab.norm-race.v.start" : "lab.norm-race.v.start_not",
           digits(start_spread[1], 3), digits(start_spread[0], 3)),
       say(depth_gain[1] >= depth_gain[0] ? "lab.norm-race.v.depth_not"
           : depth_gain[1] < 0            ? "lab.norm-race.v.depth_loses"
                                          : "lab.norm-race.v.depth",
           digits(depth_gain[0], 3), digits(std::abs(depth_gain[1]), 3)),
       say("lab.norm-race.v.limits")});
  return out;
}

// ---------------------------------------------------------------------------------------- effective depth
namespace {

// The same model with some of its layers alone.
std::unique_ptr<Model> with_layers(const Model& from, const std::vector<Dim>& chosen) {
  Recipe r = from.recipe;
  r.decoder->layers = static_cast<Dim>(chosen.size());
  auto to = std::make_unique<Model>(r, from.real);
  auto old_name = [&](const std::string& name) {
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const std::string prefix = concat("decoder.", i, ".");
      if (name.starts_with(prefix)) return concat("decoder.", chosen[i], ".", name.substr(prefix.size()));
    }
    return name;
  };
  for (Weight& w : to->weights) {
    const std::string name = old_name(w.name);
    for (const Weight& f : from.weights)
      if (f.name == name) std::memcpy(w.data.get(), f.data.get(), w.bytes());
  }
  return to;
}

struct DepthLook {
  double whole = 0;
  std::vector<double> without, last;  // loss added by leaving out layer l; the last k + 1
  std::vector<double> neighbour, input;  // cosine of a layer's output with its input; with the embedding
};

DepthLook look_deep(Device& device, const Model& model, const ToyTask& task, Dim sequences) {
  constexpr Dim kLength = 32;
  DepthLook out;
  auto loss_of = [&](const std::vector<Dim>& chosen) {
    return look_at(device, *with_layers(model, chosen), task, sequences, kLength).loss;
  };
  const Dim layers = model.recipe.decoder->layers;
  std::vector<Dim> all;
  for (Dim l = 0; l < layers; ++l) all.push_back(l);
  out.whole = loss_of(all);
  for (Dim l = 0; l < layers; ++l) {
    std::vector<Dim> others = all;
    others.erase(others.begin() + l);
    out.without.push_back(loss_of(others) - out.whole);
    if (l + 1 < layers) out.last.push_back(loss_of({all.begin(), all.end() - l - 1}) - out.whole);
  }
  Run run(device);
  Taps taps;
  run.taps = &taps;
  std::vector<double> embedded, before;
  taps.see(site::embed, [&](const Tapped& t) { embedded = before = values_of(t.value); });
  taps.see(site::resid_out, [&](const Tapped& t) {
    const std::vector<double> x = values_of(t.value);
    const auto width = static_cast<std::size_t>(t.value[1]), rows = x.size() / width;
    auto cosine = [&](const std::vector<double>& y) {
      double sum = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        double dot = 0, xx = 0, yy = 0;
        for (std::size_t c = r * width; c < (r + 1) * width; ++c)
          dot += x[c] * y[c], xx += x[c] * x[c], yy += y[c] * y[c];
        sum += xx * yy > 0 ? dot / std::sqrt(xx * yy) : 0;
      }
      return sum / static_cast<double>(rows);
    };
    out.neighbour.push_back(cosine(before));
    out.input.push_back(cosine(embedded));
    before = x;
  });
  forward(run, model, toy_batch(task(~std::uint64_t{4}, 16, kLength), kLength));
  return out;
}

// Of the loss that layers add when each is left out, the share of the second half of them.
double late_share(const std::vector<double>& added) {
  double late = 0, all = 0;
  for (std::size_t l = 0; l < added.size(); ++l) {
    all += std::max(0.0, added[l]);
    if (l >= added.size() / 2) late += std::max(0.0, added[l]);
  }
  return all > 0 ? late / all : 0;
}

}  // namespace

LabResult depth(const Lab& lab) {
  const TextTask text = text_task(lab);
  constexpr Dim kDeep = 8;
  const Recipe pre = deep_recipe(kDeep, text.vocab);
  std::vector<Toy> toys;
  for (bool post : {false, true})
    toys.push_back({.name = say(post ? "lab.norms.post" : "lab.norms.pre"),
                    .recipe = post ? post_norm(pre) : pre,
                    .task = text.task,
                    .seed = lab.seed,
                    .steps = 600,
                    .batch = 16,
                    .rate = 0.003,
                    .beta2 = 0.98,
                    .warmup = scaled(lab, 100, 0),
                    .cosine = true});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  const DepthLook looks[] = {look_deep(lab.device, *runs[0].model, text.task, scaled_batch(lab, 64)),
                             look_deep(lab.device, *runs[1].model, text.task, scaled_batch(lab, 64))};
  LabResult out;
  Chart added{.title = say("lab.depth.added"),
              .x_label = say("lab.depth.left_out"),
              .y_label = say("lab.depth.nats"),
              .log_y = true},
      last{.title = say("lab.depth.last"),
           .x_label = say("lab.depth.how_many"),
           .y_label = say("lab.depth.nats"),
           .log_y = true},
      alike{.title = say("lab.depth.alike"), .x_label = say("lab.layer"), .y_label = say("lab.depth.cosine")};
  Table table{.title = say("lab.depth.table"),
              .columns = {say("lab.layer"), say("lab.depth.pre_added"), say("lab.depth.post_added"),
                          say("lab.depth.pre_cosine"), say("lab.depth.post_cosine"),
                          say("lab.depth.pre_input"), say("lab.depth.post_input")}};
  for (std::size_t l = 0; l < static_cast<std::size_t>(kDeep); ++l)
    table.rows.push_back({Cell(static_cast<double>(l + 1), 0), Cell(looks[0].without[l], 3),
                          Cell(looks[1].without[l], 3), Cell(looks[0].neighbour[l], 2),
                          Cell(looks[1].neighbour[l], 2), Cell(looks[0].input[l], 2),
                          Cell(looks[1].input[l], 2)});
  double late[2], least[2], mean[2], similar[2], kept[2], half[2];
  for (int p = 0; p < 2; ++p) {
    const DepthLook& d = looks[p];
    added.curves.push_back(over_layers(runs[static_cast<std::size_t>(p)].name, d.without));
    last.curves.push_back(over_layers(runs[static_cast<std::size_t>(p)].name, d.last));
    alike.curves.push_back(over_layers(runs[static_cast<std::size_t>(p)].name, d.neighbour));
    late[p] = late_share(d.without);
    least[p] = *std::min_element(d.without.begin(), d.without.end());
    mean[p] = mean_of(d.without), similar[p] = mean_of(d.neighbour), kept[p] = d.input.back();
    half[p] = d.last[kDeep / 2 - 1];
  }
  out.document.parts = {added, table, last, alike};
  out.findings = {
      below(say("lab.depth.f.mean"), mean[0] / mean[1], 1, "x", "", false),
      below(say("lab.depth.f.half"), half[0] / half[1], 1, "x", "", false),
      below(say("lab.depth.f.late"), late[0], 0.5, "", "", false),
      above(say("lab.depth.f.cosine"), similar[0] - similar[1], 0, ""),
      above(say("lab.depth.f.input"), kept[0] - kept[1], 0, "", "", false),
  };
  out.verdict = sentences(
      {say(mean[0] < mean[1] ? "lab.depth.v.less" : "lab.depth.v.not_less", digits(mean[0], 2),
           digits(mean[1], 2), digits(least[0], 2), digits(least[1], 2)),
       say(late[0] < 0.5 ? "lab.depth.v.late" : "lab.depth.v.late_not", digits(100 * late[0], 0),
           digits(100 * late[1], 0)),
       say("lab.depth.v.cosine", digits(similar[0], 2), digits(similar[1], 2)),
       say(kept[0] > kept[1] ? "lab.depth.v.input" : "lab.depth.v.input_not", digits(kept[0], 2),
           digits(kept[1], 2)),
       say(runs[0].end().loss < runs[1].end().loss ? "lab.depth.v.loss_pre" : "lab.depth.v.loss_post",
           digits(runs[0].end().loss, 3), digits(runs[1].end().loss, 3))});
  return out;
}

}  // namespace rapt
