// SPDX-License-Identifier: Apache-2.0
// Weights, then the forward: attend() reads like the formula, and an absent option returns its argument.
// Then what can be seen, and costs.
#include "rapt/nn/parts/attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "rapt/nn/kv_pool.h"
#include "rapt/nn/sites.h"
#include "rapt/ops/disentangle.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/embed.h"
#include "rapt/ops/grouped_linear.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/norm.h"

namespace rapt {
namespace {

using At = GateRecipe::At;

Mask mask_of(const AttnRecipe& a) {
  Mask m;
  using Kind = AttnRecipe::MaskKind;
  if (a.mask != Kind::full) m.right = 0;
  m.prefix = a.mask == Kind::prefix;
  m.chunk = a.mask == Kind::chunk ? a.chunk : 0;
  if (a.window > 0) m.left = a.window - 1;
  if (a.window > 0 && a.mask == Kind::full) m.right = a.window - 1;
  m.keep = a.keep;
  return m;
}

}  // namespace

void build_shared(PartBuilder& builder, const AttnRecipe& a) {
  if (a.pos.kind == PosRecipe::Kind::relative && !builder.shared_relative) {
    const Dim C = builder.recipe.width;
    builder.shared_relative = builder.table.table(builder.stack + ".relative", 2 * a.pos.relative.buckets, C);
    builder.shared_relative_norm =
        build_norm(builder.table, a.pos.relative.norm, builder.stack + ".relative_norm", C);
  }
  if (builder.shared_buckets || a.pos.kind != PosRecipe::Kind::bucket || !a.pos.bucket.shared) return;
  builder.shared_buckets = builder.table.table(builder.stack + ".buckets", a.pos.bucket.count, a.heads);
}

namespace {

void build_latent(PartBuilder& builder, const AttnRecipe& a, Attention& out) {
  WeightTable& table = builder.table;
  const std::string& name = builder.name;
  const LatentRecipe& l = *a.latent;
  const Dim C = builder.recipe.width, n = a.head_dim - l.rope_dim, from = l.q_rank > 0 ? l.q_rank : C;
  LatentLayer to{.rank = l.rank, .rope_dim = l.rope_dim, .nope = n, .v_dim = a.v_dim};
  if (l.q_rank > 0) {
    to.q_a = build_linear(table, name + ".q_a", l.q_rank, C, a.bias.q);
    to.q_norm = build_norm(table, l.q_norm, name + ".q_a_norm", l.q_rank);
  }
  out.q = build_linear(table, name + (l.q_rank > 0 ? ".q_b" : ".q"), a.heads * a.head_dim, from,
                       a.bias.q && l.q_rank == 0);
  out.k = build_linear(table, name + ".kv_a", l.rank + l.rope_dim, C, a.bias.k);
  to.norm = build_norm(table, l.norm, name + ".kv_a_norm", l.rank);
  // One matrix per head, as experts have: each is a group of rows of grouped_linear.
  for (Dim h = 0; h < a.heads; ++h) {
    to.k.push_back({table.matrix(concat(name, ".k.heads.", h, ".weight"), l.rank, n)});
    to.v.push_back({table.matrix(concat(name, ".v.heads.", h, ".weight"), a.v_dim, l.rank)});
  }
  out.latent = std::move(to);
  out.spec.kv_heads = 1;
  out.spec.head_dim = l.rank + l.rope_dim;
  out.spec.v_dim = l.rank;
  out.spec.values_in_keys = true;
}

}  // namespace

Attention build(PartBuilder& builder, const AttnRecipe& a) {
  WeightTable& table = builder.table;
  const std::string& name = builder.name;
  const Dim C = builder.recipe.width, H = a.heads, K = a.kv_heads, D = a.head_dim, Dv = a.v_dim;
  using ScoreKind = AttnRecipe::ScoreKind;
  Attention out;
  out.spec = {.heads = H,
              .kv_heads = K,
              .head_dim = D,
              .v_dim = Dv,
              .cap = a.cap,
              .normal = a.normal,
              .dropout = a.dropout,
              .cross = a.cross};
  if (!a.cross) out.mask = mask_of(a);

  const bool additive = a.score == ScoreKind::additive || a.score == ScoreKind::concat;
  out.spec.score = additive ? Score::additive : a.score == ScoreKind::l2 ? Score::l2 : Score::dot;
  out.cosine = a.score == ScoreKind::cosine;
  switch (a.scale.kind) {
    case ScaleRecipe::Kind::automatic:
      out.spec.scale = automatic_scale(a) == 0 ? 1 : 1 / std::sqrt(static_cast<double>(automatic_scale(a)));
      out.spec.scale *= yarn_score_factor(a);
      break;
    case ScaleRecipe::Kind::number: out.spec.scale = a.scale.number; break;
    case ScaleRecipe::Kind::learned: out.spec.scale = 1; break;
  }

  if (a.latent) {
    build_latent(builder, a, out);
  } else {
    out.q = build_linear(table, name + ".q", H * D, C, a.bias.q);
    out.k = build_linear(table, name + ".k", K * D, C, a.bias.k);
    out.v = build_linear(table, name + ".v", K * Dv, C, a.bias.v);
  }
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
    out.scale = table.vector(name + ".scale", a.scale.per == ScaleRecipe::Per::head ? H : 1, a.scale.number);
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
    case PosRecipe::Kind::grid: out.grid = a.pos.grid_theta; break;
    case PosRecipe::Kind::alibi:
      out.spec.bias = Bias::alibi;
      out.spec.alibi_max = a.pos.alibi_max;
      out.spec.alibi_factor = a.pos.alibi_factor;
      break;
    case PosRecipe::Kind::bucket:
      out.spec.bias = Bias::bucket;
      out.spec.bucket_max = a.pos.bucket.max;
      out.spec.bucket_both = a.mask == AttnRecipe::MaskKind::full || a.mask == AttnRecipe::MaskKind::prefix;
      out.buckets = a.pos.bucket.shared ? builder.shared_buckets
                                        : table.table(name + ".buckets", a.pos.bucket.count, H);
      break;
    case PosRecipe::Kind::relative:
      out.spec.bias = Bias::dense;
      out.relative = {a.pos.relative, builder.shared_relative, builder.shared_relative_norm};
      break;
    case PosRecipe::Kind::xl:
      out.spec.bias = Bias::dense;
      out.distance = {table.matrix(name + ".distance.weight", K * D, C),
                      table.vector(name + ".content.bias", H * D),
                      table.vector(name + ".distance.bias", H * D)};
      break;
  }
  for (const GateRecipe& g : a.gate) {
    static constexpr const char* kNames[] = {".gate_sdpa", ".gate_q", ".gate_k", ".gate_v", ".gate_out"};
    GateLayer layer{.at = g.at};
    layer.spec = {.act = g.act,
                  .grain = g.grain,
                  .shared = g.heads == GateRecipe::Heads::shared,
                  .add = g.op == GateRecipe::Op::add};
    const auto [heads, channels] = gate_shape(a, g.at, C);
    const Dim n = gate_width(layer.spec, heads, channels);
    const std::string at = name + kNames[static_cast<std::size_t>(g.at)];
    if (g.from == GateRecipe::From::input) layer.w = table.matrix(at + ".weight", n, C);
    else layer.value = table.vector(at + ".value", n);
    out.gate[static_cast<std::size_t>(g.at)] = layer;
  }
  out.clip = a.clip;
  out.temperature = a.temperature;
  out.slot = builder.slots++;
  return out;
}

std::optional<CachedKeys> cached_keys(const Attention& a) {
  const AttentionSpec& s = a.spec;
  const bool bare = !a.latent && !s.cross && s.score == Score::dot && a.rope && a.k.b && !a.k_norm &&
                    !a.cosine && a.clip == 0 && !a.gate_at(At::k);
  return CachedKeys{
      a.slot, s.kv_heads, s.head_dim, s.v_dim, a.mask, s.cross, bare ? &*a.rope : nullptr, s.values_in_keys};
}

// ------------------------------------------------------------------------------------------------ forward
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

const Pass::Rotated* find_table(const Pass& pass, const Attention& a) {
  return find(pass.tables, [&](const Pass::Rotated& r) {
    return r.spec == *a.rope && r.head_dim == a.turned() && r.mask == a.mask;
  });
}

const Pass::Turned* find_turned(const Pass& pass, const Attention& a) {
  return find(pass.turned,
              [&](const Pass::Turned& t) { return t.theta == *a.grid && t.head_dim == a.spec.head_dim; });
}

// Angles of a patch: those of its row, then those of its column; a learned token has none.
RopeTable turned_by_place(Run& run, double theta, Dim head_dim, std::span<const Pass::Place> places) {
  const Dim quarter = head_dim / 4, half = 2 * quarter, rows = static_cast<Dim>(places.size());
  const RopeTable out{run.make({rows, half}).constant(), run.make({rows, half}).constant()};
  for (Dim t = 0; t < rows; ++t)
    for (Dim i = 0; i < half; ++i) {
      const Pass::Place& p = places[static_cast<std::size_t>(t)];
      const double frequency =
                       std::pow(theta, -static_cast<double>(i % quarter) / static_cast<double>(quarter)),
                   at = i < quarter ? p.row : p.column,
                   angle = std::isnan(at) ? 0 : 2 * std::numbers::pi * at * frequency;
      out.cos.set(t * half + i, std::cos(angle));
      out.sin.set(t * half + i, std::sin(angle));
    }
  return out;
}

Tapped::Rows key_rows(const Attention& a) {  // of k and v
  return a.spec.cross ? Tapped::Rows::memory : Tapped::Rows::own;
}

Tensor clipped(Run& run, const Attention& a, const Tensor& x) {
  return a.clip > 0 ? activation(run, Act::clip, x, a.clip) : x;
}

// Llama 4: queries grow with their position.
Tensor heated(Run& run, const Attention& a, const Tensor& q, std::span<const std::int32_t> position) {
  if (!a.temperature) return q;
  const TemperatureRecipe& t = *a.temperature;
  std::vector<double> factors;
  for (const std::int32_t p : position)
    factors.push_back(1 + t.factor * std::log1p(std::floor(static_cast<double>(p + t.first) /
                                                           static_cast<double>(t.length))));
  const Tensor by = run.upload({static_cast<Dim>(factors.size()), 1}, factors).constant();
  return gate(run, {.act = Act::scale, .grain = GateGrain::head, .shared = true}, q, by);
}

Tensor qk_norm(Run& run, const Attention& a, const std::optional<NormLayer>& norm, const Tensor& x) {
  if (!norm) return x;
  if (!a.norm_full) return apply(run, norm, x);
  return apply(run, norm, x.reshape({x[0], x[1] * x[2]})).reshape({x[0], x[1], x[2]});
}

// The queries' latent -> normed -> projected.
Tensor queries_of_latent(Run& run, const Attention& a, const Tensor& x) {
  const Tensor c = tap(run, site::q_latent, apply(run, a.latent->q_norm, x));
  return linear(run, c, *a.q.w, a.q.b);
}

// x [T,H,K] times each head's own matrix [N,K] -> [T,H,N]. The rows of a head stand side by side for it;
// where there is one row, they do already.
Tensor per_head(Run& run, const Tensor& x, const std::vector<Projection>& heads, const Tensor& into = {}) {
  const Dim T = x[0], H = x[1];
  auto* begin = run.arena.take_array<std::int32_t>(H + 1);
  for (Dim h = 0; h <= H; ++h) begin[h] = static_cast<std::int32_t>(h * T);
  Tensor rows = x;
  if (T != 1 || !x.contiguous()) {
    rows = run.make({H, T, x[2]});
    copy(run, x.swapped(), rows);
  }
  const std::span<const Projection> part = heads;
  Tensor y;
  grouped_linear(run, rows.reshape({H * T, x[2]}), {.count = H, .rows = H * T, .begin = begin}, {&part, 1},
                 {&y, 1});
  const Dim N = y[1];
  if (!into && T == 1) return y.reshape({T, H, N});
  const Tensor out = into ? into : run.make({T, H, N});
  copy(run, y.reshape({H, T, N}).swapped(), out);
  return out;
}

// Queries [T,H,n+r] as the latent reads them: [W_k q_n | q_r], [T,H,R+r].
Tensor absorb(Run& run, const Attention& a, const Tensor& q) {
  if (!a.latent) return q;
  const LatentLayer& l = *a.latent;
  const Tensor out = run.make({q[0], q[1], l.rank + l.rope_dim});
  per_head(run, q.columns(0, l.nope), l.k, out.columns(0, l.rank));
  if (l.rope_dim > 0) copy(run, q.columns(l.nope, l.rope_dim), out.columns(l.rank, l.rope_dim));
  return out;
}

}  // namespace

Tensor project_queries(Run& run, const Attention& a, const Tensor& x) {
  if (!a.latent || !a.latent->q_a.w) return linear(run, x, *a.q.w, a.q.b);
  return queries_of_latent(run, a, linear(run, x, *a.latent->q_a.w, a.latent->q_a.b));
}
Tensor project_keys(Run& run, const Attention& a, const Tensor& source) {
  return linear(run, source, *a.k.w, a.k.b);
}

Tensor apply(Run& run, const std::optional<GateLayer>& g, const Tensor& input, const Tensor& x,
             Tapped::Rows rows) {
  if (!g) return x;
  if (g->value) return gate(run, g->spec, x, *g->value);
  const Tensor logits = tap(run, site::gate_in(g->at), linear(run, input, *g->w), false, rows);
  if (run.wants(site::gate(g->at)))
    tap(run, site::gate(g->at), activation(run, g->spec.act, logits.constant()), false, rows);
  return gate(run, g->spec, x, logits);
}

void prepare(Run& run, Pass& pass, const Attention& a) {
  if (a.spec.cross) {
    if (pass.cross.parts.empty()) pass.cross = plan_cross(pass.sequences, pass.memory_sequences);
    return;
  }
  if (!find(pass.plans, [&](const Pass::Masked& m) { return m.mask == a.mask; }))
    pass.plans.push_back({a.mask, plan_rows(a.mask, pass.sequences)});
  if (a.grid && !find_turned(pass, a))
    pass.turned.push_back(
        {*a.grid, a.spec.head_dim, turned_by_place(run, *a.grid, a.spec.head_dim, pass.places)});
  if (!a.rope || find_table(pass, a)) return;
  const RowPlan& plan = plan_for(pass, a);
  std::vector<Dim> lengths;
  for (const Sequence& s : pass.sequences)
    lengths.insert(lengths.end(), static_cast<std::size_t>(s.count),
                   s.opened > 0 ? s.opened : s.past + s.count);
  Pass::Rotated r{
      *a.rope, a.turned(), a.mask, rope_table(run, *a.rope, a.turned(), plan.position, lengths), {}};
  if (plan.kept_position != plan.position)
    r.kept = rope_table(run, *a.rope, a.turned(), plan.kept_position, lengths);
  pass.tables.push_back(std::move(r));
}

Tensor finish_queries(Run& run, const Attention& a, const Tensor& x, const Tensor& projected,
                      std::span<const std::int32_t> position, const RopeTable& table, const RopeTable& kept,
                      Tensor* q_kept) {
  const AttentionSpec& s = a.spec;
  const Dim T = x[0];
  Tensor q = tap(run, site::q_proj, projected.reshape({T, s.heads, a.q_dim()}), s.cross);
  q = apply(run, a.gate_at(GateRecipe::At::q), x, q);
  if (a.general)
    q = linear(run, q.reshape({T * s.heads, s.head_dim}), *a.general).reshape({T, s.heads, s.head_dim});
  if (a.cosine) q = rapt::norm(run, {NormKind::l2, 1e-12, false}, q, nullptr);
  if (!a.norm_after_pos) q = tap(run, site::q_normed, qk_norm(run, a, a.q_norm, q), s.cross);
  q = clipped(run, a, q);
  auto turn = [&](const RopeTable& by, auto shown) {
    Tensor turned = by.cos ? rope(run, q, by, a.latent ? a.latent->nope : 0) : q;
    if (a.norm_after_pos)
      turned = shown(run, site::q_normed, qk_norm(run, a, a.q_norm, turned), s.cross, Tapped::Rows::own);
    turned = heated(run, a, turned, position);
    return absorb(run, a, a.scale ? scale_heads(run, turned, *a.scale, a.scale_max) : turned);
  };
  const Tensor result = tap(run, site::q, turn(table, tap), s.cross);
  if (kept.cos) *q_kept = edited(run, site::q, turn(kept, edited), s.cross);
  return result;
}

namespace {

// [c | k_r] [S,1,R+r]: the latent normed, the key of all heads turned.
Tensor latent_keys(Run& run, const LatentLayer& l, const Tensor& projected, const RopeTable& table) {
  const Dim S = projected[0];
  const Tensor raw = run.make({S, 1, l.rank}), out = run.make({S, 1, l.rank + l.rope_dim});
  copy(run, projected.columns(0, l.rank), raw);
  const Tensor c = tap(run, site::latent, apply(run, l.norm, raw.reshape({S, l.rank})));
  if (l.rope_dim == 0) return c.reshape({S, 1, l.rank});
  copy(run, c.reshape({S, 1, l.rank}), out.columns(0, l.rank));
  copy(run, projected.columns(l.rank, l.rope_dim), out.columns(l.rank, l.rope_dim));
  return table.cos ? rope(run, out, table, l.rank) : out;
}

}  // namespace

Tensor finish_keys(Run& run, const Attention& a, const Tensor& source, const Tensor& projected,
                   const RopeTable& table) {
  const AttentionSpec& s = a.spec;
  const Tapped::Rows rows = key_rows(a);
  Tensor k = tap(run, site::k_proj, projected.reshape({source[0], s.kv_heads, s.head_dim}), s.cross, rows);
  if (a.latent) return tap(run, site::k, latent_keys(run, *a.latent, k, table), s.cross, rows);
  k = apply(run, a.gate_at(GateRecipe::At::k), source, k, rows);
  if (a.cosine) k = rapt::norm(run, {NormKind::l2, 1e-12, false}, k, nullptr);
  if (!a.norm_after_pos) k = tap(run, site::k_normed, qk_norm(run, a, a.k_norm, k), s.cross, rows);
  k = clipped(run, a, k);
  if (table.cos) k = rope(run, k, table);
  if (a.norm_after_pos) k = tap(run, site::k_normed, qk_norm(run, a, a.k_norm, k), s.cross, rows);
  return tap(run, site::k, k, s.cross, rows);
}

namespace {

Dim most_keys(const RowPlan& plan) {
  Dim longest = 1;
  for (const RowPlan::Part& p : plan.parts) longest = std::max(longest, p.k_count);
  return longest;
}

Tensor with_vector(Run& run, const Tensor& q, const Weight& v) {  // q + v, a vector of each head
  return gate(run, {.act = Act::scale, .add = true}, q, v);
}

// (q_i + v) . W r of every key that a row sees: one key for each distance.
Tensor distance_bias(Run& run, const Attention& a, const Tensor& q, const RowPlan& plan) {
  const AttentionSpec& s = a.spec;
  const Dim longest = most_keys(plan), ahead = std::min(longest - 1, a.mask.right),
            behind = std::min(longest - 1, a.mask.left), buckets = 2 * longest;  // a row for each distance
  std::vector<std::int32_t> distances(static_cast<std::size_t>(ahead + 1 + behind));
  std::iota(distances.begin(), distances.end(), static_cast<std::int32_t>(-ahead));
  const Tensor r = sinusoid(run, SinusoidLayout::halves, SinusoidTable::paper, a.distance->keys->cols,
                            distances);                                                      // [R,C]
  const Tensor keys = linear(run, r, *a.distance->keys).reshape({r[0], s.kv_heads, s.head_dim});
  return disentangle(
      run,
      {.buckets = buckets, .max = 2 * buckets, .first = buckets - ahead, .seen_only = true, .scale = s.scale},
      {.q = with_vector(run, q, *a.distance->distance), .keys = keys}, plan);
}

}  // namespace

Tensor content_queries(Run& run, const Attention& a, const Tensor& q) {
  return a.distance ? with_vector(run, q, *a.distance->content) : q;
}

Tensor relative_bias(Run& run, const Attention& a, const Tensor& q, const Tensor& k, const RowPlan& plan) {
  if (a.distance) return distance_bias(run, a, q, plan);
  if (!a.relative) return {};
  const auto& [recipe, table, norm] = *a.relative;
  const AttentionSpec& s = a.spec;
  // Only vectors of distances that there are: a short text needs few of them.
  const Dim longest = most_keys(plan);
  const std::int32_t first = relative_row(1 - longest, recipe.buckets, recipe.max),
                     last = relative_row(longest - 1, recipe.buckets, recipe.max);
  std::vector<std::int32_t> which(static_cast<std::size_t>(last - first + 1));
  std::iota(which.begin(), which.end(), first);
  const Tensor distances = apply(run, norm, embed(run, which, *table));                     // [R,C]
  DisentangleInputs in{.q = q, .k = k};
  if (recipe.keys)
    in.keys = linear(run, distances, *a.k.w, a.k.b).reshape({distances[0], s.kv_heads, s.head_dim});
  if (recipe.queries)
    in.queries = linear(run, distances, *a.q.w, a.q.b).reshape({distances[0], s.heads, s.head_dim});
  return disentangle(run, {.buckets = recipe.buckets, .max = recipe.max, .first = first, .scale = s.scale},
                     in, plan);
}

namespace {

// Values in keys are nobody's own tensor; those who look get a copy.
void show_latent_values(Run& run, const Attention& a, const Tensor& k) {
  const Tensor v = run.make({k[0], 1, a.spec.v_dim}).constant();
  copy(run, k.constant().columns(0, a.spec.v_dim), v);
  tap(run, site::v, v);
}

}  // namespace

Tensor attend(Run& run, const Attention& a, const Tensor& input, const Pass& pass) {
  const AttentionSpec& s = a.spec;
  const Tensor x = tap(run, site::attn_in, input, s.cross);
  const bool cached_memory = s.cross && !pass.memory;
  const Tensor& source = s.cross ? pass.memory : x;
  // Keys go into the cache without their bias.
  const bool bias_apart = pass.cache && pass.cache->bias_apart(a);
  const Dim T = x[0];
  AttentionInputs in;

  // Project: each input is read once.
  Tensor qkv[3];
  if (s.cross) {
    qkv[0] = linear(run, x, *a.q.w, a.q.b);
    if (!cached_memory) project(run, source, {{{a.k.w, a.k.b}, {a.v.w, a.v.b}}}, {qkv + 1, 2});
  } else if (a.latent) {
    const LinearLayer& first = a.latent->q_a.w ? a.latent->q_a : a.q;
    const Projection parts[] = {{first.w, first.b}, {a.k.w, a.k.b}};
    project(run, x, parts, {qkv, 2});
    if (a.latent->q_a.w) qkv[0] = queries_of_latent(run, a, qkv[0]);
  } else {
    const Projection parts[] = {{a.q.w, a.q.b}, {a.k.w, bias_apart ? nullptr : a.k.b}, {a.v.w, a.v.b}};
    project(run, x, parts, qkv);
  }

  const RopeTable none;
  const RopeTable &table = a.rope   ? find_table(pass, a)->table
                           : a.grid ? find_turned(pass, a)->table
                                    : none,
                  &kept = a.rope ? find_table(pass, a)->kept : none;
  in.q = finish_queries(run, a, x, qkv[0], plan_for(pass, a).position, table, kept, &in.q_kept);
  if (!cached_memory) {
    in.k = finish_keys(run, a, source, qkv[1], table);
  }
  if (a.latent && run.wants(site::v)) show_latent_values(run, a, in.k);
  if (!cached_memory && !a.latent) {
    const Tapped::Rows rows = key_rows(a);
    Tensor v = tap(run, site::v_proj, qkv[2].reshape({source[0], s.kv_heads, s.v_dim}), s.cross, rows);
    v = clipped(run, a, apply(run, a.v_norm, apply(run, a.gate_at(At::v), source, v, rows)));
    in.v = tap(run, site::v, v, s.cross, rows);
  }
  KvView cached;
  if (pass.cache) {
    const std::span<const Sequence> owners =
        s.cross ? std::span<const Sequence>(pass.memory_sequences) : pass.sequences;
    if (!cached_memory) pass.cache->write(run, a, owners, in.k, in.v, a.rope ? &table : nullptr);
    cached = pass.cache->view(a);
    in.cache = &cached;
    in.k = in.v = {};
  }

  in.extra_logit = a.extra_logit;
  in.buckets = a.buckets;
  in.slot_k = a.slot_k;
  in.slot_v = a.slot_v;
  in.score_weight = a.score;
  in.dense_bias = relative_bias(run, a, in.q, in.k, plan_for(pass, a));
  in.q = content_queries(run, a, in.q);
  Tensor z = attention(run, s, in, plan_for(pass, a));                                       // [T,H,Dv]
  if (a.latent) z = per_head(run, z, a.latent->v);
  z = apply(run, a.z_norm, apply(run, a.gate_at(At::sdpa), x, z));
  return tap(run, site::z, z, s.cross).reshape({T, s.heads * a.z_dim()});
}

Tensor run_part(Run& run, const Attention& a, const Tensor& input, const Pass& pass, Sum& sum) {
  const std::optional<GateLayer>& gate = a.gate_at(At::out);
  if (gate) sum.open = false;
  Tensor y = last_product(run, a.o, attend(run, a, input, pass), sum, site::attn_out);         // [T,C]
  if (sum.done) return y;
  // One head as wide as the model.
  y = apply(run, gate, input, y.reshape({y[0], 1, y[1]})).reshape({y[0], y[1]});
  return tap(run, site::attn_out, y, a.spec.cross);
}

// ----------------------------------------------------------------------------------------- what can be seen
namespace {

using Kind = PointKind;
constexpr const char* kGate = "the gate is applied in one step; edit the same point without _act";

std::string no_q_norm(const Attention& a) { return a.q_norm ? "" : "its queries and keys have no norm"; }
std::string no_q_norm_in(const Attention& a) {
  if (!a.q_norm) return no_q_norm(a);
  return a.gate_at(At::q) || a.gate_at(At::k) || a.general || a.cosine || a.norm_after_pos
             ? "its norm does not read the projection itself, and what it reads is not held"
             : "";
}
std::string no_rotation(const Attention& a) {
  if (!a.rope && !a.grid)
    return "its queries and keys are not rotated: attn_q and attn_k are what its attention reads";
  return a.norm_after_pos || a.scale || a.latent
             ? "something stands behind its rotation: attn_q and attn_k are what its attention reads"
             : "";
}
template <At at>
std::string no_gate(const Attention& a) {
  const auto& gate = a.gate_at(at);
  if (!gate) return "its attention has no gate there";
  return gate->value ? "its gate is a constant" : "";
}
std::string no_scores(const Attention& a) {
  if (a.relative || a.distance)
    return "its scores have terms of relative positions, which plain scores do not know; attn_weights has "
           "them";
  if (a.mask.keep > 0 && (a.rope || a.spec.bias != Bias::none))
    return "its rows stand at a second position towards the kept first keys, which plain scores do not know; "
           "attn_weights has them";
  return "";
}

std::string no_latent(const Attention& a) { return a.latent ? "" : "its keys and values have no latent"; }
std::string no_q_latent(const Attention& a) {
  return a.latent && a.latent->q_a.w ? "" : "its queries have no latent";
}
std::string no_value_proj(const Attention& a) {
  return a.latent ? "values of its heads are never formed: latent is what they are made of" : "";
}
std::string no_values(const Attention& a) {
  return a.latent ? "its values are the first channels of its keys: attn_k" : "";
}

// Axes: H heads, K kv heads, D head size, V value size, as the attention reads them; P of a projected query,
// Z of a head's result, L and Q latents; values of the gate at: s sdpa, q, k, v, o out.
// clang-format off
const PartPoint<Attention> kPoints[] = {
  {"attn_norm_scale", site::resid_in, "T1", "", nullptr, Kind::norm_scale, kComputedBeside},
  {"attn_normalized", site::resid_in, "TC", "", nullptr, Kind::normalized, kComputedBeside},
  {"attn_in", site::attn_in, "TC", "attn.hook_in"},
  {"q_latent", site::q_latent, "TQ", "", no_q_latent},
  {"latent", site::latent, "SL", "", no_latent},
  {"q", site::q_proj, "THP", "attn.hook_q attn.q.hook_out"},
  {"k", site::k_proj, "SKD", "attn.hook_k attn.k.hook_out"},
  {"value", site::v_proj, "SKV", "attn.hook_v attn.v.hook_out", no_value_proj},
  {"q_norm_in", site::q_proj, "THD", "attn.q_norm.hook_in", no_q_norm_in},
  {"k_norm_in", site::k_proj, "SKD", "attn.k_norm.hook_in", no_q_norm_in},
  {"q_norm_out", site::q_normed, "THD", "attn.q_norm.hook_out attn.hook_q_normed", no_q_norm},
  {"k_norm_out", site::k_normed, "SKD", "attn.k_norm.hook_out attn.hook_k_normed", no_q_norm},
  {"rot_q", site::q, "THD", "attn.hook_rot_q", no_rotation},
  {"rot_k", site::k, "SKD", "attn.hook_rot_k", no_rotation},
  {"attn_q", site::q, "THD", ""},
  {"attn_k", site::k, "SKD", ""},
  {"attn_v", site::v, "SKV", "", no_values},
  {"attn_gate_q", site::gate_in(At::q), "Tq", "", no_gate<At::q>},
  {"attn_gate_q_act", site::gate(At::q), "Tq", "", no_gate<At::q>, Kind::value, kGate},
  {"attn_gate_k", site::gate_in(At::k), "Sk", "", no_gate<At::k>},
  {"attn_gate_k_act", site::gate(At::k), "Sk", "", no_gate<At::k>, Kind::value, kGate},
  {"attn_gate_v", site::gate_in(At::v), "Sv", "", no_gate<At::v>},
  {"attn_gate_v_act", site::gate(At::v), "Sv", "", no_gate<At::v>, Kind::value, kGate},
  {"attn_scores", site::q, "HTS", "attn.hook_attn_scores", no_scores, Kind::scores},
  {"attn_weights", site::attn_weights, "HTS", "attn.hook_pattern", nullptr, Kind::weights},
  {"attn_gate", site::gate_in(At::sdpa), "Ts", "attn.hook_q_gate", no_gate<At::sdpa>},
  {"attn_gate_act", site::gate(At::sdpa), "Ts", "", no_gate<At::sdpa>, Kind::value, kGate},
  {"z", site::z, "THZ", "attn.hook_z attn.o.hook_in"},
  {"attn_gate_out", site::gate_in(At::out), "To", "", no_gate<At::out>},
  {"attn_gate_out_act", site::gate(At::out), "To", "", no_gate<At::out>, Kind::value, kGate},
  {"attn_out", site::attn_out, "TC", "attn.hook_out"},
  {"attn_out_post", site::part_out, "TC", "hook_attn_out"},
};
// clang-format on

}  // namespace

std::span<const PartPoint<Attention>> part_points(Of<Attention>) { return kPoints; }

void see_gates(Taps& taps, const Taps::See& f) {
  for (const At at : {At::sdpa, At::q, At::k, At::v, At::out}) taps.see(site::gate(at), f);
}

Dim axis_size(const Attention& a, char axis) {
  const auto gate = [&](At at) { return a.gate_at(at)->w->rows; };
  switch (axis) {
    case 'H': return a.spec.heads;
    case 'K': return a.spec.kv_heads;
    case 'D': return a.spec.head_dim;
    case 'V': return a.spec.v_dim;
    case 'P': return a.q_dim();
    case 'Z': return a.z_dim();
    case 'L': return a.latent->rank;
    case 'Q': return a.latent->q_a.w->rows;
    case 's': return gate(At::sdpa);
    case 'q': return gate(At::q);
    case 'k': return gate(At::k);
    case 'v': return gate(At::v);
    default: return gate(At::out);
  }
}

// ------------------------------------------------------------------------------------------------ costs
PartCost cost(const Attention& a, Dim context) {
  const AttentionSpec& s = a.spec;
  PartCost c;
  const auto gate = [&](At at) { return a.gate_at(at) ? operations(a.gate_at(at)->w) : 0; };
  const double of_keys = operations(a.k.w) + operations(a.v.w) + gate(At::k) + gate(At::v);
  c.matrices = operations(a.q.w) + operations(a.o.w) + gate(At::q) + gate(At::sdpa) + gate(At::out) +
               static_cast<double>(s.heads) * operations(a.general);
  (s.cross ? c.source : c.matrices) += of_keys;
  if (a.latent) {
    c.matrices += operations(a.latent->q_a.w);
    for (const auto* list : {&a.latent->k, &a.latent->v})
      for (const Projection& p : *list) c.matrices += operations(p.w);
  }
  Dim keys = context;  // that a token sees which has `context` tokens before and with it
  if (a.mask.left != Mask::kAll) keys = std::min(keys, a.mask.left + 1 + a.mask.keep);
  if (a.mask.chunk > 0) keys = std::min(keys, a.mask.chunk);
  if (a.slot_k) keys += s.cross ? 0 : a.slot_k->rows;
  c.attention = 2 * static_cast<double>(s.heads * (s.head_dim + s.v_dim)) * static_cast<double>(keys);
  if (a.relative)
    c.attention += 2 * static_cast<double>((a.relative->recipe.terms() - 1) * s.heads * s.head_dim * keys);
  if (a.distance) {  // a pass over a text makes one key of a distance for each of its tokens
    c.attention += 2 * static_cast<double>(s.heads * s.head_dim * keys);
    c.matrices += operations(a.distance->keys);
  }
  const Dim values = s.kv_heads * (s.head_dim + (s.values_in_keys ? 0 : s.v_dim));
  (s.cross ? c.memory_values : c.kv_values) = values;
  if (!s.cross && (a.mask.left != Mask::kAll || a.mask.chunk > 0)) c.kv_forgotten = values;
  return c;
}

}  // namespace rapt
