// SPDX-License-Identifier: Apache-2.0
// Scores side by side at the start, on q and k of unit variance: how spread out the attention is as heads
// grow, and what the fused kernel takes for each; then whole attention parts: their parameters and times.
// Whether they learn equally well is the other half of the experiment (learn_score.cc).
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/attention.h"
#include "rapt/ops/norm.h"

namespace rapt {
namespace {

struct Kind {
  const char* name;  // of the dictionary: lab.score.kind.NAME
  Score score;
  bool unit;                  // q and k are brought to length 1
  double (*scale)(double d);
};
constexpr double one(double) { return 1; }
const Kind kKinds[] = {
    {"dot", Score::dot, false, one},
    {"scaled", Score::dot, false, [](double d) { return 1 / std::sqrt(d); }},
    {"cosine", Score::dot, true, one},
    {"cosine_root", Score::dot, true, [](double d) { return std::sqrt(d); }},
    {"distance", Score::l2, false, [](double d) { return 1 / std::sqrt(d); }},
    {"additive", Score::additive, false, one},
};

struct Setting {
  Run& run;
  AttentionSpec spec;
  AttentionInputs in;
  RowPlan plan;
};

Setting setting(Run& run, const Kind& kind, Dim n, Dim heads_count, Dim d, const Weight& v_a,
                std::uint64_t seed) {
  Setting s{run,
            {.heads = heads_count,
             .kv_heads = heads_count,
             .head_dim = d,
             .v_dim = d,
             .scale = kind.scale(static_cast<double>(d)),
             .score = kind.score},
            {},
            {}};
  s.in.q = normal_tensor(run, {n, heads_count, d}, mix_key(seed, 1));
  s.in.k = normal_tensor(run, {n, heads_count, d}, mix_key(seed, 2));
  s.in.v = normal_tensor(run, {n, heads_count, d}, mix_key(seed, 3));
  if (kind.unit)
    for (Tensor* t : {&s.in.q, &s.in.k}) *t = norm(run, {NormKind::l2, 1e-12, false}, *t, nullptr);
  s.in.score_weight = &v_a;
  s.plan = plan_rows(Mask{.right = 0}, {{Sequence{.first = 0, .count = n}}});
  return s;
}

double entropy_share(Device& device, const Kind& kind, Dim d, std::uint64_t seed) {
  constexpr Dim kRows = 64;
  Run run(device);
  Taps taps;
  run.taps = &taps;
  double share = 0;
  taps.see(site::attn_stats, [&](const Tapped& t) {  // rows that see enough keys
    for (Dim i = kRows / 2; i < kRows; ++i)
      share += t.value.at(i * AttentionStat::count + AttentionStat::entropy) /
               std::log(static_cast<double>(i + 1)) / (kRows / 2);
  });
  // Bahdanau's v starts at the size of a fan-in: 1/sqrt(d).
  const Weight v_a = normal_weight(device.real, 1, d, mix_key(seed, 4), 1 / std::sqrt(static_cast<double>(d)),
                                   Packing::rows);
  const Setting s = setting(run, kind, kRows, 1, d, v_a, seed);
  attention(run, s.spec, s.in, s.plan);
  return share;
}

double milliseconds(Device& device, const Kind& kind, Dim n, int rounds, std::uint64_t seed) {
  Run run(device);
  const Weight v_a = normal_weight(device.real, 4, 64, mix_key(seed, 4), 0.125, Packing::rows);
  const Setting s = setting(run, kind, n, 4, 64, v_a, seed);
  const Arena::Mark mark = run.arena.mark();
  return 1e3 * shortest_time(rounds, [&] {
           attention(run, s.spec, s.in, s.plan);
           run.arena.release(mark);
         });
}

// A whole attention part of 4 heads of 64 with the projections around it.
struct ScoredPart {
  Text name;
  double own = 0, asked = 0, all = 0;  // parameters: of the score itself, of W_Q and W_K, of the part
  double forward_ms = 0, both_ms = 0;  // both: and backward
};

ScoredPart part_cost(const Lab& lab, Device& device, const char* name, AttnRecipe::ScoreKind score, Dim n,
                     int rounds) {
  AttnRecipe attn{.score = score, .heads = 4};
  LayerRecipe layer;
  layer.parts.push_back({.body = attn});
  Recipe r;
  r.name = "score";
  r.width = 256;
  r.vocab = 16;
  r.context = n;
  r.init.std = 0.06;
  r.head.kind = HeadRecipe::Kind::none;
  r.decoder = StackRecipe{.layers = 1, .kinds = {{"L", layer}}};
  ScoredPart out{.name = say(concat("lab.score.kind.", name))};
  if (lab.change) lab.change(out.name, r);
  Model model(r, device.real);
  init(model, lab.seed);
  for (const Weight& w : model.weights) {
    const auto size = static_cast<double>(w.size());
    const bool asks = w.name.ends_with(".q.weight") || w.name.ends_with(".k.weight"),
               rest = w.name.ends_with(".v.weight") || w.name.ends_with(".o.weight");
    if (w.name.starts_with("embed.")) continue;
    out.all += size;
    if (asks) out.asked += size;
    else if (!rest) out.own += size;
  }
  std::vector<std::int32_t> tokens;
  for (Dim i = 0; i < n; ++i) tokens.push_back(static_cast<std::int32_t>(i % r.vocab));
  Batch batch{.tokens = tokens};
  batch.sequences.push_back({.first = 0, .count = n});
  Run run(device);
  out.forward_ms = 1e3 * shortest_time(rounds, [&] {
                     run.reset();
                     forward(run, model, batch);
                   });
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  out.both_ms = 1e3 * shortest_time(rounds, [&] {
                  run.reset();
                  gradients.zero();
                  backward_from(run, forward(run, model, batch), lab.seed);
                });
  return out;
}

}  // namespace

LabResult score_math(const Lab& lab) {
  LabResult r;
  const bool small = lab.effort < 0.5;
  const std::vector<Dim> sizes =
      small ? std::vector<Dim>{16, 64} : std::vector<Dim>{16, 32, 64, 128, 256, 512};
  const Dim n = small ? 64 : 512;
  auto rounds = [&](bool slow) { return small ? 1 : slow ? 3 : 20; };
  Table t{.title = say("lab.score.entropy_table", n), .columns = {say("lab.score.score")}, .rows = {}};
  for (Dim d : sizes) t.columns.push_back(concat("d = ", d));
  t.columns.insert(t.columns.end(), {say("lab.score.ms"), say("lab.score.against")});
  Chart chart{.title = say("lab.score.entropy_chart"),
              .x_label = say("lab.score.log_size"),
              .y_label = say("lab.score.share"),
              .curves = {}};
  std::vector<double> at_end, times, at_start;
  Device one_thread(lab.device.kernels, {.threads = 1});
  double done = 0;
  const auto progress = [&](const Text& what) {  // times of scores, their entropies, times of parts
    if (lab.progress) lab.progress(what, done++, 2 * std::size(kKinds) + 5);
  };
  for (const Kind& k : kKinds) {
    progress(say(concat("lab.score.kind.", k.name)));
    times.push_back(milliseconds(one_thread, k, n, rounds(k.score == Score::additive), lab.seed));
  }
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    const Text name = say(concat("lab.score.kind.", kKinds[i].name));
    progress(name);
    std::vector<Cell> row = {name};
    Curve c{.name = name, .x = {}, .y = {}};
    for (Dim d : sizes) {
      c.x.push_back(std::log2(static_cast<double>(d)));
      c.y.push_back(entropy_share(lab.device, kKinds[i], d, lab.seed));
      row.push_back(Cell(c.y.back()));
    }
    at_start.push_back(c.y.front());
    at_end.push_back(c.y.back());
    row.push_back(Cell(times[i]));
    row.push_back(Cell(times[i] / times[1], 2));
    t.rows.push_back(std::move(row));
    chart.curves.push_back(std::move(c));
  }

  using By = AttnRecipe::ScoreKind;
  Table costs{
      .title = say("lab.score.cost_table", n),
      .columns = {say("lab.score.score"), say("lab.score.own"), say("lab.score.asked"), say("lab.score.all"),
                  say("lab.score.forward"), say("lab.score.both"), say("lab.score.against")},
      .rows = {}};
  std::vector<ScoredPart> parts;
  for (const auto& [name, score] :
       {std::pair{"scaled", By::dot}, std::pair{"cosine", By::cosine}, std::pair{"distance", By::l2},
        std::pair{"general", By::general}, std::pair{"additive", By::additive}}) {
    progress(say(concat("lab.score.kind.", name)));
    parts.push_back(part_cost(lab, one_thread, name, score, n, rounds(score == By::additive)));
  }
  for (const ScoredPart& p : parts)
    costs.rows.push_back({p.name, Cell(p.own, 0), Cell(p.asked, 0), Cell(p.all, 0), Cell(p.forward_ms, 2),
                          Cell(p.both_ms, 2), Cell(p.both_ms / parts[0].both_ms, 2)});
  const double more = 100 * (parts[4].all / parts[0].all - 1), slower = parts[4].both_ms / parts[0].both_ms,
               op_slower = times[5] / times[1];
  r.findings = {
      below(say("lab.score.f.plain"), at_end[0] / at_start[0], 0.6, "x", say("lab.score.p.britz")),
      below(say("lab.score.f.scaled"), std::abs(at_end[1] / at_start[1] - 1), 0.15, ""),
      above(say("lab.score.f.cosine"), at_end[2], 0.99, ""),
      between(say("lab.score.f.parameters"), more, 0, 1, "%"),
      above(say("lab.score.f.additive_time"), op_slower, 2, "x", say("lab.score.p.faster"), false),
      above(say("lab.score.f.part_time"), slower, 1.5, "x", say("lab.score.p.faster"), false),
      below(say("lab.score.f.distance_time"), times[4] / times[1], 1.5, "x", "", false),
      below(say("lab.score.f.cosine_time"), times[2] / times[1], 1.5, "x", "", false),
  };
  r.verdict =
      sentences({slower > 1.5 ? say("lab.score.v.slower", digits(op_slower, 1), digits(slower, 1))
                              : say("lab.score.v.as_fast", digits(op_slower, 1), digits(slower, 1)),
                 say("lab.score.v.products", digits(times[2] / times[1], 2), digits(times[4] / times[1], 2)),
                 more > 0 ? say("lab.score.v.parameters", digits(parts[4].own, 0), digits(parts[4].asked, 0),
                                digits(more, 2))
                          : say("lab.score.v.no_parameters", digits(parts[4].asked, 0)),
                 say("lab.score.v.entropy", digits(at_start[0], 2), sizes.front(), digits(at_end[0], 2),
                     sizes.back(), digits(at_start[1], 2), digits(at_end[1], 2)),
                 at_end[2] > 0.99 ? say("lab.score.v.average", digits(at_end[2], 3))
                                  : say("lab.score.v.no_average", digits(at_end[2], 3))});
  r.document.parts = {costs, t, chart};
  return r;
}

}  // namespace rapt
