// SPDX-License-Identifier: Apache-2.0
// What a trained model's first token means to those who stream with a small cache.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/loss.h"
#include "rapt/use/generate.h"

namespace rapt {
namespace {

struct Scores {
  double idle = 0, copy = 0;  // excess loss of rows that have nothing to copy; loss of those that have
};

Scores score_rows(Device& device, const Model& model, const CopyTask::Batch& data, Dim length, Dim from,
                  Taps* taps = nullptr) {
  Run run(device);
  run.taps = taps;
  const Loss loss = cross_entropy(run, forward(run, model, toy_batch(data, length)), data.targets);
  double sum[2] = {}, rows[2] = {};
  for (std::size_t r = 0; r < data.kind.size(); ++r) {
    if (static_cast<Dim>(r) % length < from || data.kind[r] < 0) continue;
    const auto k = static_cast<std::size_t>(data.kind[r]);
    sum[k] += loss.rows.at(static_cast<Dim>(r)) - data.floor[r];
    rows[k] += 1;
  }
  return {sum[0] / std::max(rows[0], 1.0), sum[1] / std::max(rows[1], 1.0)};
}

// A counter-example on purpose, and so the one attention that is written down a second time: the engine
// turns kept keys to their places in the cache, as the method wants, and no recipe can ask for the mistake
// of leaving them where they stood. Attention to the first `keep` and the last `window` keys of each
// sequence at their true positions, computed from the q, k and v that pass by, and put in the place of the
// layer's own result. One head, no norm on z.
class TruePositionsCounterexample {
 public:
  TruePositionsCounterexample(Taps& taps, Dim length, Dim keep, Dim window) {
    taps.see(site::q, [this](const Tapped& t) { q_ = t.value, gate_ = {}; });
    taps.see(site::k, [this](const Tapped& t) { k_ = t.value; });
    taps.see(site::v, [this](const Tapped& t) { v_ = t.value; });
    see_gates(taps, [this](const Tapped& t) { gate_ = t.value; });
    taps.edit(site::z, [this, length, keep, window](const Tapped& t) {
      const Dim d = q_.last(), dv = v_.last();
      for (Dim r = 0; r < t.value[0]; ++r) {
        const Dim start = r / length * length;
        std::vector<Dim> seen;
        for (Dim j = start; j <= r; ++j)
          if (j - start < keep || j > r - window) seen.push_back(j);
        std::vector<double> p;
        for (Dim j : seen) {
          double dot = 0;
          for (Dim c = 0; c < d; ++c) dot += q_.at(r * d + c) * k_.at(j * d + c);
          p.push_back(dot / std::sqrt(static_cast<double>(d)));
        }
        const double top = most_of(p);
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - top);
        for (Dim c = 0; c < dv; ++c) {
          double z = 0;
          for (std::size_t i = 0; i < seen.size(); ++i) z += p[i] / sum * v_.at(seen[i] * dv + c);
          t.value.set(r * dv + c, gate_ ? z * gate_.at(r * dv + c) : z);
        }
      }
    });
  }

 private:
  Tensor q_, k_, v_, gate_;
};

}  // namespace

LabResult streaming_toy(const Lab& lab) {
  constexpr Dim kStream = 200, kCache = 16, kFrom = 40;  // trained at 32: from row 40 on everything is new
  const ToyTask task = copy_task(lab.seed);
  std::vector<Toy> toys;
  for (Dim layers : {1, 2})
    for (bool gated : {false, true}) {
      Recipe r = toy_recipe(layers);
      if (gated) self_attn(r).gate.push_back({});
      toys.push_back({.name = say(gated ? "lab.streaming.n.gated" : "lab.streaming.n.softmax", layers),
                      .recipe = r,
                      .task = task,
                      .seed = lab.seed});
    }
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  const CopyTask::Batch data = task(~std::uint64_t{2}, scaled_batch(lab, 64), kStream);

  LabResult out;
  const std::vector<std::pair<Dim, Dim>> windows = {
      {0, kCache}, {1, kCache - 1}, {2, kCache - 2}, {4, kCache - 4}};
  Table table{.title = say("lab.streaming.table"),
              .columns = {say("lab.streaming.model"), say("lab.streaming.dense"), "0+16", "1+15", "2+14",
                          "4+12", say("lab.streaming.true_positions"), say("lab.sinks.idle_layers"),
                          say("lab.sinks.value_ratio")}};
  Chart chart{.title = say("lab.streaming.chart"),
              .x_label = say("lab.streaming.kept"),
              .y_label = say("lab.streaming.excess_axis"),
              .log_y = true};
  std::vector<std::vector<Scores>> all;
  for (const Trained& t : runs) {
    std::vector<Scores> row = {score_rows(lab.device, *t.model, data, kStream, kFrom)};
    Curve curve{.name = t.name};
    for (auto [keep, window] : windows) {
      Recipe r = t.model->recipe;
      stream_windows(r, keep, window);
      row.push_back(score_rows(lab.device, *with_weights(*t.model, r), data, kStream, kFrom));
      curve.x.push_back(static_cast<double>(keep));
      curve.y.push_back(row.back().idle);
    }
    Taps taps;
    const TruePositionsCounterexample watch(taps, kStream, 4, kCache - 4);
    row.push_back(score_rows(lab.device, *t.model, data, kStream, kFrom, &taps));
    std::vector<Cell> cells = {t.name};
    for (const Scores& s : row) cells.push_back(digits(s.idle, 4) + " / " + digits(s.copy, 3));
    cells.push_back(joined(t.end().idle));
    cells.push_back(joined(t.end().value_ratio));
    table.rows.push_back(std::move(cells));
    chart.curves.push_back(std::move(curve));
    all.push_back(std::move(row));
  }
  out.document.parts = {toy_words(), chart, table};

  enum { dense, none, one, two, four, apart };
  const std::vector<Scores>&soft = all[0], &gated = all[1];
  const double idle = runs[0].end().idle[0], value = runs[0].end().value_ratio[0];
  const double hurt = soft[none].idle / soft[one].idle, gated_hurt = gated[none].idle / gated[one].idle;
  out.findings = {
      above(say("lab.streaming.f.idle"), idle, 0.15, ""),
      below(say("lab.streaming.f.value"), value, 1, "x"),
      above(say("lab.streaming.f.dense"), soft[dense].copy / soft[one].copy, 1, "x"),
      above(say("lab.streaming.f.window"), hurt, 1, "x", say("lab.streaming.p.window")),
      above(say("lab.streaming.f.positions"), soft[apart].copy / soft[four].copy, 1, "x",
            say("lab.streaming.p.positions")),
      below(say("lab.streaming.f.four"), soft[four].idle / soft[one].idle, 1.1, "x",
            say("lab.streaming.p.four")),
      below(say("lab.streaming.f.gated"), gated_hurt / hurt, 1, "x", say("lab.streaming.p.gated"), false),
      above(say("lab.streaming.f.two_layers"), all[2][none].idle / all[2][one].idle, 1, "x", "", false),
  };
  out.verdict = sentences(
      {say("lab.streaming.v.sink", digits(idle, 2), digits(value, 2)),
       say(soft[dense].copy > 0.1 ? "lab.streaming.v.dense_fails" : "lab.streaming.v.dense_copies",
           digits(soft[dense].copy, 2), digits(soft[one].copy, 3)),
       say(hurt > 1 ? "lab.streaming.v.window" : "lab.streaming.v.window_not", digits(hurt, 1),
           digits(gated_hurt, 1), digits(soft[none].idle - soft[one].idle, 3)),
       soft[none].idle < 1 ? say("lab.streaming.v.little") : Text(),
       say(soft[four].idle < 0.9 * soft[one].idle ? "lab.streaming.v.four_better"
                                                  : "lab.streaming.v.one_enough"),
       say(soft[apart].copy > soft[four].copy ? "lab.streaming.v.positions" : "lab.streaming.v.positions_not",
           digits(soft[apart].copy - soft[four].copy, 3)),
       say("lab.streaming.v.sees", kCache)});
  return out;
}

}  // namespace rapt
