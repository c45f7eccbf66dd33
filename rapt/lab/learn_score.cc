// SPDX-License-Identifier: Apache-2.0
// How well each score learns, and what holds the slow ones back.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/lookup.h"
#include "rapt/lab/toy.h"

namespace rapt {

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

}  // namespace rapt
