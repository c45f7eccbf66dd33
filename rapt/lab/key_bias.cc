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
  const char* name;
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
      {"causal mask", false, true},
      {"no mask (encoder)", false, true, {}, Place::encoder},
      {"cross-attention", false, true, {}, Place::cross},
      {"learned absolute positions", false, true, {}, Place::decoder, EmbedRecipe::Pos::learned},
      {"ALiBi", false, true, with([](AttnRecipe& a) { a.pos.kind = PosRecipe::Kind::alibi; })},
      {"relative buckets (T5)", false, true, with([](AttnRecipe& a) {
         a.pos = {.kind = PosRecipe::Kind::bucket, .bucket = {.count = 8, .max = 16}};
       })},
      {"attention dropout", false, false, with([](AttnRecipe& a) { a.dropout = 0.25; }), Place::decoder,
       EmbedRecipe::Pos::none, true},
      {"gate after attention (G1)", false, false, with([](AttnRecipe& a) { a.gate = {{}}; })},
      {"V-norm", false, false, with([](AttnRecipe& a) { a.v_norm = NormRecipe{}; })},
      {"RoPE", true, true, rotated(1)},
      {"RoPE on half the channels", true, true, rotated(0.5)},
      {"QK RMSNorm", true, true, qk(NormRecipe::Kind::rms)},
      {"QK LayerNorm", true, true, qk(NormRecipe::Kind::layer)},
      {"QK L2 norm", true, true, qk(NormRecipe::Kind::l2)},
      {"cosine score", true, true, with([](AttnRecipe& a) { a.score = AttnRecipe::ScoreKind::cosine; })},
      {"distance score", true, true, with([](AttnRecipe& a) { a.score = AttnRecipe::ScoreKind::l2; })},
      {"additive score", true, true, with([](AttnRecipe& a) { a.score = AttnRecipe::ScoreKind::additive; })},
      {"softmax off by one", true, false, extra(ExtraRecipe::Kind::zero_logit)},
      {"learned sink logit", true, false, extra(ExtraRecipe::Kind::learned_logit)},
      {"learned key/value slot", true, false, extra(ExtraRecipe::Kind::kv_slots)},
      {"soft-capped scores", true, true, with([](AttnRecipe& a) { a.cap = 3; })},
      {"sigmoid attention", true, false, with([](AttnRecipe& a) { a.normal = Normal::sigmoid; })},
  };
}

// With weights of zero only the biases speak: under RoPE a row's score then depends on the distance alone.
Chart distance_chart(Device& f64, std::uint64_t seed) {
  AttentionRig rig(f64, rotated(1), seed);
  for (const char* name : {"q.weight", "k.weight"}) {
    Weight& w = rig.weight(name);
    for (Dim i = 0; i < w.size(); ++i) w.set(i / w.cols, i % w.cols, 0);
  }
  Chart chart{.title = "Score from the biases alone, under RoPE",
              .x_label = "distance to the key",
              .y_label = "score - score of itself"};
  for (Dim h = 0; h < AttentionRig::kHeads; ++h) {
    const std::vector<double> row = rig.weights(h).back();
    Curve c{.name = concat("head ", h), .x = {}, .y = {}};
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
  Table t{.title = "One layer in double, 4 heads on 2 key heads, all numbers random",
          .columns = {"attention", "largest gradient of b_k", "output change without b_k", "b_k is",
                      "error of folding b_v into b_o", "b_v folds"},
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
    t.rows.push_back({kind.name, Cell(gradient), Cell(drop),
                      gradient < kZero && drop < kZero ? "redundant" : "needed", Cell(folded),
                      folded < kZero ? "yes" : "no"});
  }
  r.findings = {
      below("largest gradient of b_k where every key of a row gets the same (masks, cross, ALiBi, T5, "
            "dropout, gate, V-norm)",
            free_gradient, kZero, "", "redundant (Namazifar et al. 2023)"),
      below("output change without b_k there", free_drop, kZero, ""),
      above("smallest gradient of b_k among the other kinds (RoPE, QK-norms, cosine, distance, additive, "
            "extra logits and slots, cap, sigmoid)",
            needed_gradient, kSome, "", "needed under RoPE: Qwen's QKV bias (Su, kexue 9577)"),
      above("smallest output change without b_k among them", needed_drop, kSome, ""),
      below("gradient of b_k on channels that RoPE leaves still", still, kZero, ""),
      below("gradient of b_k along equal channels under QK LayerNorm", ones, kZero, ""),
      below("error of folding b_v into b_o where rows sum to one", fold, kZero, ""),
      above("smallest error of folding b_v where they do not, or something follows", no_fold, kSome, ""),
  };
  r.verdict =
      all_hold(r.findings)
          ? concat(
                "The story holds where the bias gives every key of a row the same score: under any mask, "
                "ALiBi, T5's buckets, dropout or a gate "
                "after attention the gradient of b_k is 0 to rounding. Under RoPE, QK-norm, a soft-cap, an "
                "extra logit or sigmoid attention the "
                "key bias is a real parameter (dropping it under RoPE changes outputs by ",
                digits(rope_drop, 2), "); a loader that drops it breaks Qwen2, Phi and gpt-oss.")
          : "Some kind of attention did not behave as the algebra says; see the table.";
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(
      Words{"Under RoPE the two biases alone make a score that depends on the distance: "
            "a learned relative position."});
  r.document.parts.push_back(distance_chart(f64, lab.seed));
  return r;
}

}  // namespace rapt
