// SPDX-License-Identifier: Apache-2.0
// prepare() makes plans of rows and tables of angles once for all layers; attend() takes one layer.
#include "rapt/nn/attend.h"

#include <algorithm>

#include "rapt/nn/kv_cache.h"
#include "rapt/ops/batch_norm.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/linear.h"

namespace rapt {
namespace {

template <class List, class Same>
auto* find(List& list, const Same& same) {
  const auto it = std::find_if(list.begin(), list.end(), same);
  return it == list.end() ? nullptr : &*it;
}

const RowPlan& plan_for(const Pass& pass, const Attention& a) {
  if (a.spec.cross) return pass.cross;
  return find(pass.plans, [&](const Pass::Masked& m) { return m.mask == a.mask; })->plan;
}

const Pass::Rotated& table_for(const Pass& pass, const Attention& a) {
  return *find(pass.tables, [&](const Pass::Rotated& r) { return r.spec == *a.rope && r.head_dim == a.spec.head_dim && r.mask == a.mask; });
}

Tensor qk_norm(Run& run, const Attention& a, const std::optional<NormLayer>& norm, const Tensor& x) {
  if (!norm) return x;
  if (!a.norm_full) return apply(run, norm, x);
  return apply(run, norm, x.reshape({x[0], x[1] * x[2]})).reshape({x[0], x[1], x[2]});
}

}  // namespace

Tensor apply(Run& run, const std::optional<NormLayer>& norm, const Tensor& x) {
  if (!norm) return x;
  const NormRecipe& r = norm->recipe;
  if (r.kind == NormRecipe::Kind::batch)
    return batch_norm(run, {.eps = r.eps, .momentum = run.recomputing ? 0 : 0.1, .causal = norm->causal, .leaks_ok = r.leaks_ok}, x,
                      norm->weight, norm->bias, *norm->running);
  const NormKind kind = r.kind == NormRecipe::Kind::layer ? NormKind::layer
                        : r.kind == NormRecipe::Kind::rms ? NormKind::rms
                                                          : NormKind::l2;
  return rapt::norm(run, {kind, r.eps, r.weight == NormRecipe::Gain::plus_one}, x, norm->weight, norm->bias);
}

Tensor apply(Run& run, const std::optional<GateLayer>& g, const Tensor& input, const Tensor& x) {
  if (!g) return x;
  if (g->value) return gate(run, g->spec, x, *g->value);
  const Tensor logits = tap(run, Site::gate_in, linear(run, input, *g->w));
  if (run.wants(Site::gate)) tap(run, Site::gate, activation(run, g->spec.act, logits.constant()));
  return gate(run, g->spec, x, logits);
}

void prepare(Run& run, Pass& pass, const LayerStack& stack) {
  for (const Layer& layer : stack.layers)
    for (const Part& part : layer.parts) {
      if (part.kind == PartRecipe::Kind::ffn) continue;
      const Attention& a = part.attn;
      if (a.spec.cross) {
        if (pass.cross.parts.empty()) pass.cross = plan_cross(pass.sequences, pass.memory_sequences);
        continue;
      }
      if (!find(pass.plans, [&](const Pass::Masked& m) { return m.mask == a.mask; }))
        pass.plans.push_back({a.mask, plan_rows(a.mask, pass.sequences)});
      if (!a.rope ||
          find(pass.tables, [&](const Pass::Rotated& r) { return r.spec == *a.rope && r.head_dim == a.spec.head_dim && r.mask == a.mask; }))
        continue;
      const RowPlan& plan = plan_for(pass, a);
      std::vector<Dim> lengths;
      for (const Sequence& s : pass.sequences)
        lengths.insert(lengths.end(), static_cast<std::size_t>(s.count), s.opened > 0 ? s.opened : s.past + s.count);
      Pass::Rotated r{*a.rope, a.spec.head_dim, a.mask, rope_table(run, *a.rope, a.spec.head_dim, plan.position, lengths), {}};
      if (plan.kept_position != plan.position) r.kept = rope_table(run, *a.rope, a.spec.head_dim, plan.kept_position, lengths);
      pass.tables.push_back(std::move(r));
    }
}

Tensor finish_queries(Run& run, const Attention& a, const Tensor& x, const Tensor& projected, const RopeTable& table, const RopeTable& kept,
                      Tensor* q_kept) {
  const AttentionSpec& s = a.spec;
  const Dim T = x[0];
  Tensor q = tap(run, Site::q_proj, projected.reshape({T, s.heads, s.head_dim}), s.cross);
  q = apply(run, a.gate_at(GateRecipe::At::q), x, q);
  if (a.general) q = linear(run, q.reshape({T * s.heads, s.head_dim}), *a.general).reshape({T, s.heads, s.head_dim});
  if (a.cosine) q = rapt::norm(run, {NormKind::l2, 1e-12, false}, q, nullptr);
  if (!a.norm_after_pos) q = tap(run, Site::q_normed, qk_norm(run, a, a.q_norm, q), s.cross);
  auto turn = [&](const RopeTable& by) {
    Tensor turned = by.cos ? rope(run, q, by) : q;
    if (a.norm_after_pos) turned = qk_norm(run, a, a.q_norm, turned);
    return a.scale ? scale_heads(run, turned, *a.scale, a.scale_max) : turned;
  };
  const Tensor result = tap(run, Site::q, turn(table), s.cross);
  if (kept.cos) *q_kept = edited(run, Site::q, turn(kept), s.cross);
  return result;
}

Tensor finish_keys(Run& run, const Attention& a, const Tensor& source, const Tensor& projected, const RopeTable& table) {
  const AttentionSpec& s = a.spec;
  Tensor k = tap(run, Site::k_proj, projected.reshape({source[0], s.kv_heads, s.head_dim}), s.cross);
  k = apply(run, a.gate_at(GateRecipe::At::k), source, k);
  if (a.cosine) k = rapt::norm(run, {NormKind::l2, 1e-12, false}, k, nullptr);
  if (!a.norm_after_pos) k = tap(run, Site::k_normed, qk_norm(run, a, a.k_norm, k), s.cross);
  if (table.cos) k = rope(run, k, table);
  if (a.norm_after_pos) k = qk_norm(run, a, a.k_norm, k);
  return tap(run, Site::k, k, s.cross);
}

Tensor attend(Run& run, const Attention& a, const Tensor& input, const Pass& pass) {
  using At = GateRecipe::At;
  const AttentionSpec& s = a.spec;
  const Tensor x = tap(run, Site::attn_in, input, s.cross);
  const bool cached_memory = s.cross && !pass.memory;
  const Tensor& source = s.cross ? pass.memory : x;
  const bool bias_apart = pass.cache && pass.cache->bias_apart(a);  // keys go into the cache without their bias
  const Dim T = x[0];
  AttentionInputs in;

  // Project: each input is read once.
  Tensor qkv[3];
  if (s.cross) {
    qkv[0] = linear(run, x, *a.q.w, a.q.b);
    if (!cached_memory) project(run, source, {{{a.k.w, a.k.b}, {a.v.w, a.v.b}}}, {qkv + 1, 2});
  } else {
    const Projection parts[] = {{a.q.w, a.q.b}, {a.k.w, bias_apart ? nullptr : a.k.b}, {a.v.w, a.v.b}};
    project(run, x, parts, qkv);
  }

  const RopeTable none;
  const RopeTable &table = a.rope ? table_for(pass, a).table : none, &kept = a.rope ? table_for(pass, a).kept : none;
  in.q = finish_queries(run, a, x, qkv[0], table, kept, &in.q_kept);
  if (!cached_memory) {
    in.k = finish_keys(run, a, source, qkv[1], table);
    const Tensor v = tap(run, Site::v_proj, qkv[2].reshape({source[0], s.kv_heads, s.v_dim}), s.cross);
    in.v = tap(run, Site::v, apply(run, a.v_norm, apply(run, a.gate_at(At::v), source, v)), s.cross);
  }
  KvView cached;
  if (pass.cache) {
    const std::span<const Sequence> owners = s.cross ? std::span<const Sequence>(pass.memory_sequences) : pass.sequences;
    if (!cached_memory) pass.cache->write(run, a, owners, in.k, in.v, a.rope ? &table : nullptr);
    cached = pass.cache->view(a, owners);
    in.cache = &cached;
    in.k = in.v = {};
  }

  in.extra_logit = a.extra_logit;
  in.buckets = a.buckets;
  in.slot_k = a.slot_k;
  in.slot_v = a.slot_v;
  in.score_weight = a.score;
  Tensor z = attention(run, s, in, plan_for(pass, a));                                       // [T,H,Dv]
  z = apply(run, a.z_norm, apply(run, a.gate_at(At::sdpa), x, z));
  return tap(run, Site::z, z, s.cross).reshape({T, s.heads * s.v_dim});
}

}  // namespace rapt
