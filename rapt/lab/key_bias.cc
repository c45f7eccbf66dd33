// SPDX-License-Identifier: Apache-2.0
// (q_i + b_q).(k_j + b_k) = q_i.k_j + b_q.k_j + [q_i.b_k + b_q.b_k]: the bracket is the same for every key
// of a row, so the row's softmax ignores it. Every part of that sentence is a condition: nothing may stand
// between the bias and the dot product (a rotation, a norm), nothing between the dot product and the softmax
// (a cap), and the softmax must see nothing but such keys (no extra logit or slot).
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

using Place = AttentionRig::Place;

struct Kind {
  const char* name;  // lab.key-bias.k.…
  bool needed;    // the key bias does something
  bool foldable;  // the value bias equals an output bias
  AttnRecipe attn = {};
  Place place = Place::decoder;
  EmbedRecipe::Pos pos = EmbedRecipe::Pos::none;
  bool training = false;
};

AttnRecipe with(const std::function<void(AttnRecipe&)>& change) {
  AttnRecipe a;
  change(a);
  return a;
}
AttnRecipe qk(NormRecipe::Kind kind) {
  return with([&](AttnRecipe& a) { a.qk_norm = QkNormRecipe{.norm = {.kind = kind}}; });
}
AttnRecipe rotated(double part) {
  return with([&](AttnRecipe& a) { a.pos.kind = PosRecipe::Kind::rope, a.pos.rope.part = part; });
}
AttnRecipe extra(ExtraRecipe::Kind kind) {
  return with([&](AttnRecipe& a) { a.extra.kind = kind; });
}

std::vector<Kind> kinds() {
  return {
      {"causal", false, true},
      {"encoder", false, true, {}, Place::encoder},
      {"cross", false, true, {}, Place::cross},
      {"learned", false, true, {}, Place::decoder, EmbedRecipe::Pos::learned},
      {"alibi", false, true, with([](AttnRecipe& a) { a.pos.kind = PosRecipe::Kind::alibi; })},
      {"buckets", false, true, with([](AttnRecipe& a) {
         a.pos = {.kind = PosRecipe::Kind::bucket, .bucket = {.count = 8, .max = 16}};
       })},
      {"dropout", false, false, with([](AttnRecipe& a) { a.dropout = 0.25; }), Place::decoder,
       EmbedRecipe::Pos::none, true},
      {"gate", false, false, with([](AttnRecipe& a) { a.gate = {{}}; })},
      {"v_norm", false, false, with([](AttnRecipe& a) { a.v_norm = NormRecipe{}; })},
      {"rope", true, true, rotated(1)},
      {"half_rope", true, true, rotated(0.5)},
      {"qk_rms", true, true, qk(NormRecipe::Kind::rms)},
      {"qk_layer", true, true, qk(NormRecipe::Kind::layer)},
      {"qk_l2", true, true, qk(NormRecipe::Kind::l2)},
      {"cosine", true, true, with([](AttnRecipe& a) { a.score = AttnRecipe::ScoreKind::cosine; })},
      {"distance", true, true, with([](AttnRecipe& a) { a.score = AttnRecipe::ScoreKind::l2; })},
      {"additive", true, true, with([](AttnRecipe& a) { a.score = AttnRecipe::ScoreKind::additive; })},
      {"off_by_one", true, false, extra(ExtraRecipe::Kind::zero_logit)},
      {"logit", true, false, extra(ExtraRecipe::Kind::learned_logit)},
      {"slot", true, false, extra(ExtraRecipe::Kind::kv_slots)},
      {"cap", true, true, with([](AttnRecipe& a) { a.cap = 3; })},
      {"sigmoid", true, false, with([](AttnRecipe& a) { a.normal = Normal::sigmoid; })},
  };
}

// With weights of zero only the biases speak: under RoPE a row's score then depends on the distance alone.
Chart distance_chart(Device& f64, std::uint64_t seed) {
  AttentionRig rig(f64, rotated(1), seed);
  for (const char* name : {"q.weight", "k.weight"}) {
    Weight& w = rig.weight(name);
    for (Dim i = 0; i < w.size(); ++i) w.set(i / w.cols, i % w.cols, 0);
  }
  Chart chart{.title = say("lab.key-bias.chart"),
              .x_label = say("lab.key-bias.distance"),
              .y_label = say("lab.key-bias.score")};
  for (Dim h = 0; h < AttentionRig::kHeads; ++h) {
    const std::vector<double> row = rig.weights(h).back();
    Curve c{.name = say("lab.key-bias.head", h), .x = {}, .y = {}};
    for (std::size_t i = 0; i < row.size(); ++i) {
      c.x.push_back(static_cast<double>(i));
      c.y.push_back(std::log(row[row.size() - 1 - i] / row.back()));
    }
    chart.curves.push_back(std::move(c));
  }
  return chart;
}

}  // namespace

LabResult key_bias(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  constexpr double kZero = 1e-10, kSome = 1e-3;
  LabResult r;
  Table t{.title = say("lab.key-bias.table"),
          .columns = {say("lab.key-bias.attention"), say("lab.key-bias.gradient"), say("lab.key-bias.drop"),
                      say("lab.key-bias.is"), say("lab.key-bias.fold"), say("lab.key-bias.folds")},
          .rows = {}};
  double free_gradient = 0, free_drop = 0, needed_gradient = HUGE_VAL, needed_drop = HUGE_VAL, fold = 0,
         no_fold = HUGE_VAL;
  double still = 0, ones = 0, rope_drop = 0;
  const std::vector<Kind> all = kinds();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Kind& kind = all[i];
    AttentionRig rig(f64, kind.attn, mix_key(lab.seed, i), kind.place, kind.pos);
    rig.training = kind.training;
    const std::vector<double> whole = rig.out(), g = rig.gradient("k.bias"),
                              b = values_of(rig.weight("k.bias"));
    fill(rig.weight("k.bias"), std::vector<double>(b.size()));
    const double drop = largest_difference(rig.out(), whole), gradient = largest(g);
    fill(rig.weight("k.bias"), b);
    rig.fold_value_bias();
    const double folded = largest_difference(rig.out(), whole);
    (kind.needed ? needed_gradient : free_gradient) =
        kind.needed ? std::min(needed_gradient, gradient) : std::max(free_gradient, gradient);
    (kind.needed ? needed_drop : free_drop) =
        kind.needed ? std::min(needed_drop, drop) : std::max(free_drop, drop);
    (kind.foldable ? fold : no_fold) = kind.foldable ? std::max(fold, folded) : std::min(no_fold, folded);
    if (kind.attn.pos.kind == PosRecipe::Kind::rope && kind.attn.pos.rope.part == 1) rope_drop = drop;
    // The second half of each head does not turn.
    for (std::size_t c = 0; c < g.size() && kind.attn.pos.rope.part == 0.5; ++c)
      if (c % AttentionRig::kHeadDim >= AttentionRig::kHeadDim / 2) still = std::max(still, std::abs(g[c]));
    // A norm's gains are random: it removes the mean before them.
    if (kind.attn.qk_norm && kind.attn.qk_norm->norm.kind == NormRecipe::Kind::layer)
      for (std::size_t h = 0; h < g.size(); h += AttentionRig::kHeadDim) {
        double sum = 0;
        for (std::size_t c = 0; c < AttentionRig::kHeadDim; ++c) sum += g[h + c];
        ones = std::max(ones, std::abs(sum));
      }
    t.rows.push_back(
        {say(concat("lab.key-bias.k.", kind.name)), Cell(gradient), Cell(drop),
         say(gradient < kZero && drop < kZero ? "lab.key-bias.redundant" : "lab.key-bias.needed"),
         Cell(folded), say(folded < kZero ? "lab.yes" : "lab.no")});
  }
  r.findings = {
      below(say("lab.key-bias.f.free"), free_gradient, kZero, "", say("lab.key-bias.p.free")),
      below(say("lab.key-bias.f.free_drop"), free_drop, kZero, ""),
      above(say("lab.key-bias.f.needed"), needed_gradient, kSome, "", say("lab.key-bias.p.needed")),
      above(say("lab.key-bias.f.needed_drop"), needed_drop, kSome, ""),
      below(say("lab.key-bias.f.still"), still, kZero, ""),
      below(say("lab.key-bias.f.ones"), ones, kZero, ""),
      below(say("lab.key-bias.f.fold"), fold, kZero, ""),
      above(say("lab.key-bias.f.no_fold"), no_fold, kSome, ""),
  };
  r.verdict =
      all_hold(r.findings)
          ? sentences({say("lab.key-bias.v.where"), say("lab.key-bias.v.needed", digits(rope_drop, 2))})
          : say("lab.key-bias.v.not");
  r.document.parts.push_back(distance_chart(f64, lab.seed));
  r.document.parts.push_back(Words{say("lab.key-bias.relative")});
  r.document.parts.push_back(std::move(t));
  return r;
}

}  // namespace rapt
