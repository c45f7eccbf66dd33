// SPDX-License-Identifier: Apache-2.0
// Whether models without an attention sink over-fit more: the gap between training and held-out loss beside
// the sink, on few sequences of the copying task and on a short text.
#include <algorithm>
#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

// The copying task with so many batches that come again and again; looks are fresh.
ToyTask few_batches(ToyTask task, std::uint64_t batches) {
  return [task = std::move(task), batches](std::uint64_t step, Dim count, Dim length) {
    return task(step >> 63 ? step : step % batches, count, length);
  };
}

struct Fit {
  Text name;
  double sink = 0;  // share of the first token in what idle rows give, mean over layers
  std::vector<double> step, train, held;  // at each look but the first
  double gap() const { return held.back() - train.back(); }
  // Held-out loss where the training loss first was that low.
  double held_at(double level) const {
    for (std::size_t i = 0; i < train.size(); ++i)
      if (train[i] <= level) {
        if (i == 0) return held[0];
        const double part = (train[i - 1] - level) / (train[i - 1] - train[i]);
        return held[i - 1] + part * (held[i] - held[i - 1]);
      }
    return held.back();
  }
};

Fit fit_of(const Trained& run) {
  Fit out{.name = run.name, .sink = mean_of(run.end().idle_of_sum)};
  for (const ToyLook& l : run.looks) {
    if (l.step == 0) continue;
    const auto end = std::min(run.losses.size(), static_cast<std::size_t>(l.step));
    const std::size_t from = end - std::min<std::size_t>(end, 40);
    double sum = 0;
    for (std::size_t i = from; i < end; ++i) sum += run.losses[i];
    out.step.push_back(static_cast<double>(l.step));
    out.train.push_back(sum / static_cast<double>(std::max<std::size_t>(1, end - from)));
    out.held.push_back(l.excess);
  }
  return out;
}

double correlation(const std::vector<Fit>& fits) {  // of sink and gap
  double sink = 0, gap = 0, ss = 0, gg = 0, sg = 0;
  const auto n = static_cast<double>(fits.size());
  for (const Fit& f : fits) sink += f.sink / n, gap += f.gap() / n;
  for (const Fit& f : fits) {
    const double a = f.sink - sink, b = f.gap() - gap;
    ss += a * a, gg += b * b, sg += a * b;
  }
  return ss * gg > 0 ? sg / std::sqrt(ss * gg) : 0;
}

}  // namespace

LabResult overfit(const Lab& lab) {
  constexpr Dim kBatch = 16, kCharacters = 12000;
  constexpr std::uint64_t kBatches = 96, kFew = 32;
  std::vector<Toy> toys;
  // The variants, each with a way not to need a sink but the first.
  auto add_variants = [&](bool text, Dim steps) {
    for (int v = 0; v < 5; ++v) {
      const bool begin = v != 4;
      const TextTask characters = text ? text_task(lab, begin, kCharacters) : TextTask{};
      Recipe r = text ? with_ffn(toy_recipe(2, 3, characters.vocab)) : toy_recipe();
      AttnRecipe& a = self_attn(r);
      if (v == 1) a.gate.push_back({});
      if (v == 2) a.extra.kind = ExtraRecipe::Kind::zero_logit;
      if (v == 3) a.normal = Normal::sigmoid;
      const char* keys[] = {"", "lab.sinks.g1", "lab.sinks.zero", "lab.sinks.sigmoid", "lab.sinks.bare"};
      toys.push_back({.name = v == 0 ? Text("softmax") : say(keys[v]),
                      .recipe = std::move(r),
                      .task = text ? characters.task : few_batches(copy_task(lab.seed, begin), kBatches),
                      .seed = lab.seed,
                      .steps = steps,
                      .batch = kBatch,
                      .looks = 8});
    }
  };
  add_variants(false, 1200);
  add_variants(true, 600);
  for (bool fresh : {false, true})
    toys.push_back({.name = fresh ? say("lab.overfit.n.fresh") : say("lab.overfit.n.few", kFew * kBatch),
                    .recipe = toy_recipe(),
                    .task = fresh ? copy_task(lab.seed) : few_batches(copy_task(lab.seed), kFew),
                    .seed = lab.seed,
                    .steps = 1200,
                    .batch = kBatch,
                    .looks = 8});
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  std::vector<Fit> copies, text, amounts;
  for (std::size_t i = 0; i < runs.size(); ++i)
    (i < 5 ? copies : i < 10 ? text : amounts).push_back(fit_of(runs[i]));

  LabResult out;
  auto table_of = [&](Text title, const std::vector<Fit>& fits, const std::vector<Trained>& all,
                      std::size_t first) {
    double level = -INFINITY;  // reached by all
    for (const Fit& f : fits) level = std::max(level, *std::min_element(f.train.begin(), f.train.end()));
    Table t{.title = std::move(title),
            .columns = {say("lab.variant"), say("lab.overfit.parameters"), say("lab.overfit.sink"),
                        say("lab.overfit.train"), say("lab.overfit.held"), say("lab.overfit.gap"),
                        say("lab.overfit.best"), say("lab.overfit.held_at", digits(level, 2))}};
    for (std::size_t i = 0; i < fits.size(); ++i) {
      const Fit& f = fits[i];
      t.rows.push_back({f.name, Cell(static_cast<double>(all[first + i].model->parameters()), 0),
                        Cell(f.sink), Cell(f.train.back(), 3), Cell(f.held.back(), 3), Cell(f.gap(), 3),
                        Cell(*std::min_element(f.held.begin(), f.held.end()), 3), Cell(f.held_at(level), 3)});
    }
    return t;
  };
  Chart chart{.title = say("lab.overfit.chart", kBatches * kBatch),
              .x_label = say("lab.step"),
              .y_label = say("lab.overfit.gap_axis")};
  Chart text_chart{.title = say("lab.overfit.text_chart", kCharacters),
                   .x_label = say("lab.step"),
                   .y_label = say("lab.overfit.gap_axis")};
  auto draw = [](Chart& to, const Fit& f) {
    Curve c{.name = say("lab.overfit.curve", f.name, digits(f.sink, 2)), .x = f.step};
    for (std::size_t i = 0; i < f.train.size(); ++i) c.y.push_back(f.held[i] - f.train[i]);
    to.curves.push_back(std::move(c));
  };
  for (const Fit& f : copies) draw(chart, f);
  for (const Fit& f : text) draw(text_chart, f);
  Table amount{.title = say("lab.overfit.amount_table"),
               .columns = {say("lab.overfit.sequences"), say("lab.overfit.sink"), say("lab.overfit.gap")}};
  const Fit &few = amounts[0], &fresh = amounts[1], &soft = copies[0], &bare = copies[4];
  amount.rows.push_back({few.name, Cell(few.sink), Cell(few.gap(), 3)});
  amount.rows.push_back({say("lab.overfit.n.few", kBatches * kBatch), Cell(soft.sink), Cell(soft.gap(), 3)});
  amount.rows.push_back({fresh.name, Cell(fresh.sink), Cell(fresh.gap(), 3)});
  out.document.parts = {
      Words{say("lab.overfit.models")},
      chart,
      table_of(say("lab.overfit.copy_table", kBatches * kBatch), copies, runs, 0),
      amount,
      text_chart,
      table_of(say("lab.overfit.text_table", kCharacters), text, runs, 5),
  };

  const double r = correlation(copies), bare_more = bare.gap() - soft.gap(),
               text_more = text[4].gap() - text[0].gap(), few_sink = few.sink / fresh.sink;
  double text_most = 0, least_gap = INFINITY, most_gap = -INFINITY;
  for (const Fit& f : text) {
    text_most = std::max(text_most, f.sink);
    least_gap = std::min(least_gap, f.gap()), most_gap = std::max(most_gap, f.gap());
  }
  out.findings = {
      below(say("lab.overfit.f.correlation"), r, -0.5, "", say("lab.overfit.p.unsupported"), false),
      above(say("lab.overfit.f.bare"), bare_more, 0.01, "nats", "", false),
      above(say("lab.overfit.f.text"), text_more, 0.05, "nats", "", false),
      above(say("lab.overfit.f.few_gap"), few.gap() - fresh.gap(), 0.02, "nats"),
      below(say("lab.overfit.f.few_sink"), few_sink, 0.7, "x", say("lab.overfit.p.data")),
  };
  std::vector<Text> gaps, text_gaps;
  for (const Fit& f : copies)
    gaps.push_back(say("lab.overfit.v.one", f.name, digits(f.gap(), 3), digits(f.sink, 2)));
  for (const Fit& f : text)
    text_gaps.push_back(say("lab.overfit.v.one", f.name, digits(f.gap(), 2), digits(f.sink, 2)));
  const bool supported = r < -0.5 && bare_more > 0.01 && text_more > 0.05;
  out.verdict = sentences(
      {say("lab.overfit.v.copies", kBatches * kBatch, listed(gaps)),
       say(r < -0.5  ? "lab.overfit.v.less_more"
           : r > 0.5 ? "lab.overfit.v.more_more"
                     : "lab.overfit.v.unrelated",
           digits(r, 2)),
       say(few_sink < 0.7 ? "lab.overfit.v.data" : "lab.overfit.v.data_not", kFew * kBatch,
           digits(few.sink, 2), digits(few.gap(), 3), digits(fresh.sink, 2), digits(fresh.gap(), 3)),
       say("lab.overfit.v.text", listed(text_gaps)),
       text_most < 0.15 ? say("lab.overfit.v.text_no_sink", digits(most_gap - least_gap, 2)) : Text(),
       say(supported ? "lab.overfit.v.supported" : "lab.overfit.v.unsupported")});
  return out;
}

}  // namespace rapt
