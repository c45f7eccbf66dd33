// SPDX-License-Identifier: Apache-2.0
// How well each score learns a lookup, and what holds the slow ones back: where the questions look that they
// answer wrong.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/lookup.h"

namespace rapt {

LabResult score_quality(const Lab& lab) {
  using By = AttnRecipe::ScoreKind;
  const ToyTask task = lookup_task(lab.seed, 1);
  std::vector<Toy> toys;
  auto add = [&](const char* name, By score, ScaleRecipe scale, double cap = 0) {
    Recipe r = lookup_recipe(1, 1);
    self_attn(r).score = score;
    self_attn(r).scale = scale;
    self_attn(r).cap = cap;
    toys.push_back({.name = say(concat("lab.score.learn.", name)),
                    .recipe = r,
                    .task = task,
                    .seed = lab.seed,
                    .steps = 500,
                    .cosine = true});
  };
  const double root = std::sqrt(48.0);
  auto number = [](double x) { return ScaleRecipe{.kind = ScaleRecipe::Kind::number, .number = x}; };
  enum { kPlain, kScaled, kQuarter, kCapped, kAdditive, kCosine, kLearned, kDistance };
  add("plain", By::dot, number(1));
  add("scaled", By::dot, {});
  add("quarter", By::dot, number(0.25 / root));
  add("capped", By::dot, {}, 4);
  add("additive", By::additive, {});
  add("cosine", By::cosine, {});
  add("cosine_learned", By::cosine, {.kind = ScaleRecipe::Kind::learned, .number = 10});
  add("distance", By::l2, {});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  LabResult out;
  Table table{
      .title = say("lab.score.learn_table"),
      .columns = {say("lab.score.score"), say("lab.loss"), say("lab.score.logit"), say("lab.heads.wrong"),
                  say("lab.heads.wrong_right"), say("lab.heads.wrong_parked"), say("lab.score.gap")},
      .rows = {}};
  std::vector<LookupLook> looks;
  for (const Trained& t : runs) {
    looks.push_back(look_at_lookup(lab.device, *t.model, task, scaled_batch(lab, 64), 32));
    const LookupLook& l = looks.back();
    table.rows.push_back({t.name, Cell(t.end().trigger_loss), Cell(t.end().max_logit, 1), Cell(l.wrong, 2),
                          Cell(l.wrong_on_item, 2), Cell(l.wrong_on_questions, 2), Cell(l.wrong_gap, 1)});
  }
  Chart chart{.title = say("lab.score.learn_chart"),
              .x_label = say("lab.step"),
              .y_label = say("lab.heads.nats"),
              .curves = {}};
  for (std::size_t i : {kPlain, kScaled, kQuarter, kAdditive}) chart.curves.push_back(loss_curve(runs[i]));
  out.document.parts = {chart, table};
  auto loss = [&](std::size_t i) { return runs[i].end().trigger_loss; };
  std::size_t best = 0;
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (loss(i) < loss(best)) best = i;
  const double cured = loss(kScaled) - std::min(loss(kQuarter), loss(kCapped));
  out.findings = {
      above(say("lab.score.f.unscaled"), loss(kPlain) - loss(kScaled), 0, "nats", say("lab.score.p.saturate"),
            false),
      above(say("lab.score.f.additive"), loss(kPlain) - loss(kAdditive), 0, "nats",
            say("lab.score.p.additive"), false),
      below(say("lab.score.f.scaled_additive"), loss(kScaled) - loss(kAdditive), 0, "nats",
            say("lab.score.p.similar"), false),
      above(say("lab.score.f.cured"), cured, 0.1, "nats", "", false),
      below(say("lab.score.f.parked"), looks[kScaled].wrong_on_item, 0.2, "", "", false),
      below(say("lab.score.f.quarter"), loss(kQuarter) - loss(kAdditive), 0.05, "nats", "", false),
      above(say("lab.score.f.learned_scale"), loss(kCosine) - loss(kLearned), 0, "nats",
            say("lab.score.p.henry"), false),
  };
  out.verdict = sentences(
      {say("lab.score.v.losses", digits(loss(kPlain), 2), digits(loss(kScaled), 2),
           digits(loss(kAdditive), 2)),
       cured > 0.1
           ? say("lab.score.v.parked", digits(100 * looks[kScaled].wrong, 0),
                 digits(looks[kScaled].wrong_on_item, 2), digits(looks[kScaled].wrong_on_questions, 2),
                 digits(looks[kScaled].wrong_gap, 0), digits(runs[kScaled].end().max_logit, 0))
           : say("lab.score.v.not_parked", digits(loss(kQuarter), 2), digits(loss(kCapped), 2)),
       cured > 0.1 ? say("lab.score.v.cured", digits(loss(kQuarter), 3), digits(loss(kCapped), 3)) : Text(),
       say("lab.score.v.others", digits(loss(kCosine), 2), digits(loss(kLearned), 2),
           digits(loss(kDistance), 2)),
       best == kScaled ? say("lab.score.v.best") : say("lab.score.v.other_best", runs[best].name)});
  return out;
}

}  // namespace rapt
