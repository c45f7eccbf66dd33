// SPDX-License-Identifier: Apache-2.0
// From a recipe to the weights it names. Reads a resolved recipe: nothing is checked again here.
#include "rapt/nn/layers.h"

#include <cmath>

#include "rapt/nn/recurrent.h"

namespace rapt {

const Weight* WeightTable::add(const std::string& name, Dim rows, Dim cols, WeightRole role) {
  Weight w = make_(name, rows, cols, role);
  w.index = static_cast<int>(weights_.size());
  w.decay = role == WeightRole::matrix || (role == WeightRole::table && rows > 1);
  weights_.push_back(std::move(w));
  return &weights_.back();
}
const Weight* WeightTable::matrix(const std::string& name, Dim rows, Dim cols) { return add(name, rows, cols, WeightRole::matrix); }
const Weight* WeightTable::table(const std::string& name, Dim rows, Dim cols) { return add(name, rows, cols, WeightRole::table); }
const Weight* WeightTable::vector(const std::string& name, Dim size) { return add(name, 1, size, WeightRole::vector); }

std::optional<NormLayer> build_norm(WeightTable& table, const std::optional<NormRecipe>& norm, const std::string& name, Dim cols,
                                    bool causal) {
  if (!norm) return std::nullopt;
  NormLayer n{.recipe = *norm, .causal = causal};
  if (norm->weight != NormRecipe::Gain::none) n.weight = table.vector(name + ".weight", cols);
  if (norm->bias) n.bias = table.vector(name + ".bias", cols);
  if (norm->kind == NormRecipe::Kind::batch) n.running = table.vector(name + ".running", 2 * cols);
  return n;
}

namespace {

LinearLayer build_linear(WeightTable& table, const std::string& name, Dim rows, Dim cols, bool bias) {
  return {table.matrix(name + ".weight", rows, cols), bias ? table.vector(name + ".bias", rows) : nullptr};
}

Mask mask_of(const AttnRecipe& a) {
  Mask m;
  using Kind = AttnRecipe::MaskKind;
  if (a.mask != Kind::full) m.right = 0;
  m.prefix = a.mask == Kind::prefix;
  m.chunk = a.mask == Kind::chunk ? a.chunk : 0;
  if (a.window > 0) m.left = a.window - 1;
  m.keep = a.keep;
  return m;
}

Attention build_attention(WeightTable& table, const Recipe& recipe, const AttnRecipe& a, bool cross, const Weight* shared_buckets,
                          const std::string& name) {
  const Dim C = recipe.width, H = a.heads, K = a.kv_heads, D = a.head_dim, Dv = a.v_dim;
  using ScoreKind = AttnRecipe::ScoreKind;
  Attention out;
  out.spec = {
      .heads = H, .kv_heads = K, .head_dim = D, .v_dim = Dv, .cap = a.cap, .normal = a.normal, .dropout = a.dropout, .cross = cross};
  if (!cross) out.mask = mask_of(a);

  const bool additive = a.score == ScoreKind::additive || a.score == ScoreKind::concat;
  out.spec.score = additive ? Score::additive : a.score == ScoreKind::l2 ? Score::l2 : Score::dot;
  out.cosine = a.score == ScoreKind::cosine;
  switch (a.scale.kind) {
    case ScaleRecipe::Kind::automatic: out.spec.scale = out.cosine || additive ? 1 : 1 / std::sqrt(static_cast<double>(D)); break;
    case ScaleRecipe::Kind::number: out.spec.scale = a.scale.number; break;
    case ScaleRecipe::Kind::learned: out.spec.scale = 1; break;
  }

  out.q = build_linear(table, name + ".q", H * D, C, a.bias.q);
  out.k = build_linear(table, name + ".k", K * D, C, a.bias.k);
  out.v = build_linear(table, name + ".v", K * Dv, C, a.bias.v);
  out.o = build_linear(table, name + ".o", C, H * Dv, a.bias.o);
  if (a.score == ScoreKind::general) out.general = table.matrix(name + ".general.weight", D, D);
  if (additive) out.score = table.table(name + ".score.weight", H, D);
  if (a.qk_norm) {
    const QkNormRecipe& n = *a.qk_norm;
    out.norm_full = n.span == QkNormRecipe::Span::full;
    out.norm_after_pos = n.at == QkNormRecipe::At::after_pos;
    const bool all = out.norm_full || n.weights == QkNormRecipe::Weights::per_head;
    out.q_norm = build_norm(table, n.norm, name + ".q_norm", all ? H * D : D);
    out.k_norm = build_norm(table, n.norm, name + ".k_norm", all ? K * D : D);
  }
  out.v_norm = build_norm(table, a.v_norm, name + ".v_norm", Dv);
  out.z_norm = build_norm(table, a.z_norm, name + ".z_norm", Dv);
  if (a.scale.kind == ScaleRecipe::Kind::learned) {
    out.scale = table.vector(name + ".scale", a.scale.per == ScaleRecipe::Per::head ? H : 1);
    out.scale_max = a.scale.max;
  }
  switch (a.extra.kind) {
    case ExtraRecipe::Kind::none: break;
    case ExtraRecipe::Kind::zero_logit: out.spec.extra = Extra::zero_logit; break;
    case ExtraRecipe::Kind::learned_logit:
      out.spec.extra = Extra::learned_logit;
      out.extra_logit = table.vector(name + ".extra_logit", H);
      break;
    case ExtraRecipe::Kind::kv_slots:
      out.slot_k = table.table(name + ".slots.k", a.extra.slots, K * D);
      out.slot_v = table.table(name + ".slots.v", a.extra.slots, K * Dv);
      break;
  }
  switch (a.pos.kind) {
    case PosRecipe::Kind::none: break;
    case PosRecipe::Kind::rope: out.rope = a.pos.rope; break;
    case PosRecipe::Kind::alibi: out.spec.bias = Bias::alibi; break;
    case PosRecipe::Kind::bucket:
      out.spec.bias = Bias::bucket;
      out.spec.bucket_max = a.pos.bucket.max;
      out.spec.bucket_both = a.mask == AttnRecipe::MaskKind::full || a.mask == AttnRecipe::MaskKind::prefix;
      out.buckets = a.pos.bucket.shared ? shared_buckets : table.table(name + ".buckets", a.pos.bucket.count, H);
      break;
  }
  for (const GateRecipe& g : a.gate) {
    using At = GateRecipe::At;
    static constexpr const char* kNames[] = {".gate_sdpa", ".gate_q", ".gate_k", ".gate_v", ".gate_out"};
    GateLayer layer;
    layer.spec = {.act = g.act, .grain = g.grain, .shared = g.heads == GateRecipe::Heads::shared, .add = g.op == GateRecipe::Op::add};
    const Dim heads = g.at == At::out ? 1 : g.at == At::k || g.at == At::v ? K : H;
    const Dim d = g.at == At::out ? C : g.at == At::sdpa || g.at == At::v ? Dv : D;
    const Dim n = gate_width(layer.spec, heads, d);
    const std::string at = name + kNames[static_cast<std::size_t>(g.at)];
    if (g.from == GateRecipe::From::input) layer.w = table.matrix(at + ".weight", n, C);
    else layer.value = table.vector(at + ".value", n);
    out.gate[static_cast<std::size_t>(g.at)] = layer;
  }
  return out;
}

Ffn build_ffn(WeightTable& table, const Recipe& recipe, const FfnRecipe& f, const std::string& name) {
  Ffn out;
  out.recipe = f;
  if (f.kind == FfnRecipe::Kind::glu) out.gate = build_linear(table, name + ".gate", f.width, recipe.width, f.bias);
  out.up = build_linear(table, name + ".up", f.width, recipe.width, f.bias);
  out.down = build_linear(table, name + ".down", recipe.width, f.width, f.bias);
  return out;
}

}  // namespace

LayerStack build_stack(WeightTable& table, const Recipe& recipe, const StackRecipe& stack, const std::string& name) {
  LayerStack out;
  out.dropout = stack.dropout;
  if (stack.recurrent) {
    out.recurrent = build_recurrent(table, recipe, *stack.recurrent, name);
    return out;
  }
  const Weight* shared_buckets = nullptr;
  for (Dim i = 0; i < stack.layers; ++i)
    for (const PartRecipe& p : stack.layer(i).parts)
      if (!shared_buckets && p.kind == PartRecipe::Kind::self && p.attn.pos.kind == PosRecipe::Kind::bucket && p.attn.pos.bucket.shared)
        shared_buckets = table.table(name + ".buckets", p.attn.pos.bucket.count, p.attn.heads);

  const Dim C = recipe.width;
  int slots = 0;
  for (Dim i = 0; i < stack.layers; ++i) {
    const LayerRecipe& l = stack.layer(i);
    bool causal = false;
    for (const PartRecipe& p : l.parts) causal = causal || (p.kind == PartRecipe::Kind::self && p.attn.mask != AttnRecipe::MaskKind::full);
    const std::string at = concat(name, ".", i);
    Layer layer;
    layer.parallel = l.parallel;
    layer.norm_in = build_norm(table, l.norm_in, at + ".norm_in", C, causal);
    std::array<int, 3> seen{};
    for (const PartRecipe& p : l.parts) {
      static constexpr const char* kNames[] = {".self", ".cross", ".ffn"};
      const auto kind = static_cast<std::size_t>(p.kind);
      const std::string part_name = at + kNames[kind] + (seen[kind] ? std::to_string(seen[kind] + 1) : "");
      ++seen[kind];
      Part part;
      part.kind = p.kind;
      part.residual_scale = p.residual_scale;
      part.dropout = p.dropout;
      part.norm_in = build_norm(table, p.norm_in, part_name + ".norm_in", C, causal);
      part.norm_out = build_norm(table, p.norm_out, part_name + ".norm_out", C, causal);
      part.norm_sum = build_norm(table, p.norm_sum, part_name + ".norm_sum", C, causal);
      if (p.kind == PartRecipe::Kind::ffn) {
        part.ffn = build_ffn(table, recipe, p.ffn, part_name);
      } else {
        part.attn = build_attention(table, recipe, p.attn, p.kind == PartRecipe::Kind::cross, shared_buckets, part_name);
        part.attn.slot = slots++;
        if (p.kind == PartRecipe::Kind::cross && !out.cross_slot) out.cross_slot = part.attn.slot;
      }
      layer.parts.push_back(std::move(part));
    }
    out.layers.push_back(std::move(layer));
  }
  out.final_norm = build_norm(table, stack.final_norm, name + ".norm", C);
  return out;
}

}  // namespace rapt
