// SPDX-License-Identifier: Apache-2.0
// A table of facts to be remembered: what experts hold against dense nets of the same computed and of the
// same stored width, and what the auxiliary loss does to their load.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/base/text.h"
#include "rapt/inspect/expert_load.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"
#include "rapt/nn/size.h"

namespace rapt {
namespace {

constexpr Dim kFacts = 40;  // tokens; the answer to two of them is any of them: 1,600 facts
constexpr Dim kComputed = 32, kExperts = 8;

// Random tokens; the answer is what a fixed random table says of the last two.
ToyTask fact_task(std::uint64_t seed) {
  return [key = mix_key(seed, 0xFAC7)](std::uint64_t step, Dim count, Dim length) {
    CopyTask::Batch out;
    for (Dim n = 0; n < count; ++n) {
      const std::uint64_t own = mix_key(mix_key(key, step + 1), static_cast<std::uint64_t>(n));
      std::int32_t before = 0;
      for (Dim t = 0; t < length; ++t) {
        const auto token =
            static_cast<std::int32_t>(random_below(kFacts, own, static_cast<std::uint64_t>(t)));
        const auto fact = static_cast<std::uint64_t>(before * kFacts + token);
        out.tokens.push_back(token);
        out.targets.push_back(t == 0 ? -1 : static_cast<std::int32_t>(random_below(kFacts, key, fact)));
        out.floor.push_back(0);
        out.kind.push_back(t == 0 ? -1 : 1);
        before = token;
      }
    }
    return out;
  };
}

Recipe one_layer(const AnyPartRecipe& net) {
  Recipe r = toy_recipe(1, 2, kFacts);
  r.decoder->kinds.at("L").parts.push_back({.norm_in = NormRecipe{}, .body = net});
  return r;
}
AnyPartRecipe experts(double balance) {
  return MoeRecipe{.experts = kExperts, .used = 2, .width = kComputed / 2, .balance = balance};
}

// Load on fresh data.
ExpertLoad load_of(const Lab& lab, const Model& model, const ToyTask& task) {
  const CopyTask::Batch data = task(~std::uint64_t{1}, 16, 32);
  Run run(lab.device);
  Taps taps;
  ExpertMeter meter(taps);
  meter.start();
  run.taps = &taps;
  forward(run, model, toy_batch(data, 32));
  return meter.finish().at(0);
}

}  // namespace

LabResult moe(const Lab& lab) {
  const ToyTask task = fact_task(lab.seed);
  std::vector<Toy> toys;
  const auto add = [&](Text name, const AnyPartRecipe& net) {
    toys.push_back({.name = std::move(name),
                    .recipe = one_layer(net),
                    .task = task,
                    .seed = lab.seed,
                    .steps = 1200,
                    .cosine = true});
  };
  add(say("lab.moe.dense", kComputed), FfnRecipe{.width = kComputed});
  add(say("lab.moe.free", kExperts), experts(0));
  add(say("lab.moe.balanced", kExperts), experts(0.01));
  add(say("lab.moe.dense", kComputed / 2 * kExperts), FfnRecipe{.width = kComputed / 2 * kExperts});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  LabResult out;
  Table table{
      .title = say("lab.moe.table", kFacts * kFacts, digits(std::log(static_cast<double>(kFacts)), 2)),
      .columns = {say("lab.moe.net"), say("lab.heads.parameters"), say("lab.moe.computed"), say("lab.loss"),
                  say("lab.moe.busiest"), say("lab.moe.balance")},
      .rows = {}};
  for (const Trained& t : runs) {
    const ParameterCount count = count_parameters(t.model->recipe);
    std::vector<Cell> row = {t.name, Cell(static_cast<double>(count.total), 0),
                             Cell(static_cast<double>(count.active), 0), Cell(t.end().trigger_loss)};
    if (count.active != count.total) {
      const ExpertLoad load = load_of(lab, *t.model, task);
      row.insert(row.end(), {Cell(load.largest(), 2), Cell(load.balance(), 3)});
    } else {
      row.insert(row.end(), {Cell(""), Cell("")});
    }
    table.rows.push_back(std::move(row));
  }
  const auto loss = [&](std::size_t i) { return runs[i].end().trigger_loss; };
  const ExpertLoad free = load_of(lab, *runs[1].model, task), even = load_of(lab, *runs[2].model, task);
  out.document.parts = {table, loss_chart(say("lab.moe.chart", kFacts * kFacts), runs)};
  const double gain = loss(0) - loss(2), short_of = loss(2) - loss(3);
  out.findings = {
      above(say("lab.moe.f.gain"), gain, 0.05, "nats", say("lab.moe.p.switch")),
      above(say("lab.moe.f.short"), short_of, 0, "nats", "", false),
      below(say("lab.moe.f.busiest"), even.largest() / free.largest(), 1, "x", "", false),
      below(say("lab.moe.f.balance"), even.balance() - 2, 0.1, "", "", false),
  };
  out.verdict = sentences({say(gain > 0.05 ? "lab.moe.v.gain" : "lab.moe.v.no_gain", digits(loss(0), 3),
                               kExperts, digits(loss(2), 3)),
                           say(short_of > 0.05 ? "lab.moe.v.short" : "lab.moe.v.as_good", digits(loss(3), 3)),
                           say("lab.moe.v.balance", digits(free.largest(), 2), digits(even.largest(), 2),
                               digits(loss(1), 3), digits(loss(2), 3))});
  return out;
}

}  // namespace rapt
