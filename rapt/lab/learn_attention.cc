// SPDX-License-Identifier: Apache-2.0
// Positions: the loss at the trained length and beyond, by how positions enter.
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"

namespace rapt {

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

}  // namespace rapt
