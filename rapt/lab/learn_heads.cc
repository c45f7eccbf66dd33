// SPDX-License-Identifier: Apache-2.0
// One head against many at equal size: what they gain, and what each of them looks at.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/lookup.h"
#include "rapt/lab/toy.h"

namespace rapt {

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

}  // namespace rapt
