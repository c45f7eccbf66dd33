// SPDX-License-Identifier: Apache-2.0
// One head against many at equal size: what they gain, what each of them looks at, what leaving it out costs.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/lookup.h"

namespace rapt {
namespace {

constexpr Dim kHeadCounts[] = {1, 2, 4, 8};

// A quarter of the usual scale: with all of it a head may park its weight before it has found the item, and
// then number of heads and parking are measured together.
Recipe quarter_scale(Dim head_count) {
  Recipe r = lookup_recipe(1, head_count);
  self_attn(r).scale = {.kind = ScaleRecipe::Kind::number,
                        .number = 0.25 / std::sqrt(static_cast<double>(r.width / head_count))};
  return r;
}

}  // namespace

LabResult heads(const Lab& lab) {
  std::vector<Toy> toys;
  auto add = [&](Text name, const Recipe& recipe, int asked) {
    toys.push_back({.name = std::move(name),
                    .recipe = recipe,
                    .task = lookup_task(lab.seed, asked),
                    .seed = lab.seed,
                    .steps = 1000,
                    .cosine = true});
  };
  for (int asked : {1, 2})
    for (Dim n : kHeadCounts) add(say("lab.heads.variant", n, asked), quarter_scale(n), asked);
  for (int asked : {1, 2}) add(say("lab.heads.full_scale", asked), lookup_recipe(1, 1), asked);
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  std::vector<LookupLook> looks;
  for (std::size_t i = 0; i < runs.size(); ++i)
    looks.push_back(look_at_lookup(lab.device, *runs[i].model, lookup_task(lab.seed, i < 4 || i == 8 ? 1 : 2),
                                   scaled_batch(lab, 64), 32));

  LabResult out;
  Table table{
      .title = say("lab.heads.table"),
      .columns = {say("lab.variant"), say("lab.heads.parameters"), say("lab.loss"), say("lab.heads.apart"),
                  say("lab.heads.wrong"), say("lab.heads.wrong_right"), say("lab.heads.wrong_parked")},
      .rows = {}};
  for (std::size_t i = 0; i < runs.size(); ++i)
    table.rows.push_back({runs[i].name, Cell(static_cast<double>(runs[i].model->parameters()), 0),
                          Cell(runs[i].end().trigger_loss), Cell(looks[i].apart, 2), Cell(looks[i].wrong, 2),
                          Cell(looks[i].wrong_on_item, 2), Cell(looks[i].wrong_on_questions, 2)});
  auto loss = [&](std::size_t i) { return runs[i].end().trigger_loss; };
  Chart chart{
      .title = say("lab.heads.chart"), .x_label = say("lab.heads.count"), .y_label = say("lab.heads.nats")};
  for (std::size_t asked : {1, 2}) {
    Curve c{.name = say("lab.heads.asked", asked)};
    for (std::size_t i = 0; i < 4; ++i)
      c.x.push_back(static_cast<double>(kHeadCounts[i])), c.y.push_back(loss(4 * (asked - 1) + i));
    chart.curves.push_back(std::move(c));
  }
  // What each head of the four does where two keys are asked for.
  const LookupLook& four = looks[6];
  HeatMap map{.title = say("lab.heads.map"),
              .columns = {say("lab.heads.first"), say("lab.heads.second"), say("lab.heads.rest")},
              .row_name = say("lab.heads.head"),
              .value_name = say("lab.weight")};
  Table each{.title = say("lab.heads.each"),
             .columns = {say("lab.heads.head"), say("lab.heads.first"), say("lab.heads.second"),
                         say("lab.heads.rest"), say("lab.heads.without")},
             .rows = {}};
  double most = 0, least = INFINITY, lean = 0;
  for (std::size_t h = 0; h < four.heads.size(); ++h) {
    const LookupLook::Head& head = four.heads[h];
    const double cost = head.loss_without - four.loss;
    map.rows.push_back(say("lab.heads.number", h));
    for (double w : {head.first, head.second, head.rest}) {
      map.values.push_back(w);
      map.cells.push_back(digits(w, 2));
    }
    each.rows.push_back({say("lab.heads.number", h), Cell(head.first, 2), Cell(head.second, 2),
                         Cell(head.rest, 2), Cell(cost, 2)});
    most = std::max(most, cost), least = std::min(least, cost);
    lean = std::max(lean, std::abs(head.first - head.second));
  }
  out.document.parts = {chart, table, map, each};
  std::size_t best = 4;
  for (std::size_t i = 5; i < 8; ++i)
    if (loss(i) < loss(best)) best = i;
  const double gain = loss(4) - loss(best), one = loss(0) - std::min({loss(1), loss(2), loss(3)});
  constexpr double kApart = 0.3, kLean = 0.5;
  out.findings = {
      above(say("lab.heads.f.gain"), gain, 0.1, "nats", say("lab.heads.p.vaswani")),
      above(say("lab.heads.f.more"), gain - one, 0, "nats"),
      above(say("lab.heads.f.apart"), four.apart, kApart, ""),
      above(say("lab.heads.f.without"), least, 0.05, "nats", "", false),
      above(say("lab.heads.f.lean"), lean, kLean, "", "", false),
      above(say("lab.heads.f.scale"), loss(8) - loss(0), 0.1, "nats", "", false),
      above(say("lab.heads.f.small"), loss(7) - loss(best), 0.01, "nats", say("lab.heads.p.small"), false),
  };
  out.verdict = sentences(
      {gain > 0.1 ? say("lab.heads.v.gain", digits(loss(4), 3), Dim{1} << (best - 4), digits(loss(best), 3))
                  : say("lab.heads.v.no_gain", digits(loss(4), 3), digits(loss(best), 3)),
       gain > one ? say("lab.heads.v.one", digits(loss(0), 3), digits(loss(0) - one, 3))
                  : say("lab.heads.v.one_too", digits(loss(0), 3), digits(loss(0) - one, 3)),
       four.apart > kApart ? say("lab.heads.v.apart", digits(four.apart, 2))
                           : say("lab.heads.v.alike", digits(four.apart, 2)),
       lean > kLean ? say("lab.heads.v.lean", digits(lean, 2)) : say("lab.heads.v.shared", digits(lean, 2)),
       say("lab.heads.v.without", digits(least, 2), digits(most, 2)),
       loss(8) > loss(0) + 0.1
           ? say("lab.heads.v.parked", digits(loss(8), 3), digits(loss(9), 3),
                 digits(looks[8].wrong_on_item, 2), digits(looks[8].wrong_on_questions, 2))
           : say("lab.heads.v.not_parked", digits(loss(8), 3), digits(loss(9), 3))});
  return out;
}

}  // namespace rapt
