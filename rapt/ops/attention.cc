// SPDX-License-Identifier: Apache-2.0
// Checks, and what kernels read copied to the arena; ALiBi slopes, buckets, sizes of pages and work space.
#include "rapt/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "rapt/ops/attention_rows.h"
#include "rapt/ops/elementwise.h"

namespace rapt {
namespace {

constexpr std::uint64_t kDropoutSite = 0x61747400;  // + 1 for cross-attention: a layer may have both
constexpr Dim kKeyChunk = 2048;  // keys per backward task: every chunk costs one partial dQ in memory

struct AttentionTape {
  AttentionShape shape;
  AttentionInputs in;  // its `cache` is never used here
  Tensor out, lse;
  Tensor result;  // what the pass goes on with: out, or a copy with changed rows
};

Dim chunks_of(const AttentionShape& s, Dim key_chunk) {
  Dim n = 0;
  for (Dim p = 0; p < s.part_count; ++p) n += (s.parts[p].k_count + key_chunk - 1) / key_chunk;
  return n * s.kv_heads;
}

void attention_backward(Run& run, const AttentionTape& saved) {
  const AttentionInputs& in = saved.in;
  AttentionBackwardArgs a{};
  a.shape = saved.shape;
  a.out = saved.out.data;
  a.lse = saved.lse.data;
  a.dout = run.grad(saved.result);
  a.dq = run.grad(in.q);
  a.dq_kept = in.q_kept ? run.grad(in.q_kept) : nullptr;
  a.dk = run.grad(in.k);
  a.dv = run.grad(in.v);  // values in keys: there is none, and the keys' gradient takes it
  a.dslot_k = run.grad(in.slot_k);
  a.dslot_v = run.grad(in.slot_v);
  a.dscore_weight = run.grad(in.score_weight);
  a.dextra = a.shape.extra == Extra::learned_logit ? run.grad(in.extra_logit) : nullptr;
  a.dbuckets = a.shape.bias == Bias::bucket ? run.grad(in.buckets) : nullptr;
  a.ddense = a.shape.bias == Bias::dense ? run.grad(in.dense_bias) : nullptr;
  // Few sequences and heads: smaller pieces, so that more than a few threads find work. By shapes only,
  // never by threads.
  a.key_chunk = kKeyChunk;
  while (a.key_chunk > 256 && chunks_of(a.shape, a.key_chunk) < 8) a.key_chunk /= 2;
  const Arena::Mark mark = run.arena.mark();
  a.work = run.arena.take(static_cast<std::size_t>(attention_backward_work(a.shape, a.key_chunk)) *
                          size_of(run.device.real));
  run.call(&Kernels::attention_backward, a);
  run.arena.release(mark);
}

void check_weight(const Run& run, const char* what, const Weight* w, Dim rows, Dim cols) {
  if (!w) fail("attention: ", what, " is missing; it is needed with shape [", rows, ",", cols, "]");
  if (w->size() != rows * cols)
    fail("attention: ", what, " (", w->name, ") has shape [", w->rows, ",", w->cols, "], [", rows, ",", cols,
         "] is needed");
  if (w->format != run.device.real || w->packing != Packing::rows)
    fail("attention: ", what, " (", w->name, ") must be stored as rows of ", name_of(run.device.real),
         ", it is ", name_of(w->format));
}

void check_tensor(const Run& run, const char* what, const Tensor& t, Dim heads, Dim d) {
  if (!t) fail("attention: ", what, " is missing; it is needed with shape [rows,", heads, ",", d, "]");
  if (t.rank != 3 || t[1] != heads || t[2] != d)
    fail("attention: ", what, " has shape ", t.shape(), ", [rows,", heads, ",", d, "] is needed");
  if (!t.contiguous()) fail("attention: ", what, " ", t.shape(), " is not contiguous");
  if (t.dtype != run.device.real)
    fail("attention: ", what, " is ", name_of(t.dtype), ", this device computes in ",
         name_of(run.device.real));
}

void check(const Run& run, const AttentionSpec& spec, const AttentionInputs& in, const RowPlan& plan) {
  if (spec.heads < 1 || spec.kv_heads < 1 || spec.heads % spec.kv_heads != 0)
    fail("attention: ", spec.heads, " heads cannot share ", spec.kv_heads,
         " kv heads evenly; heads must be a multiple of kv_heads");
  if (spec.head_dim < 1 || spec.v_dim < 1)
    fail("attention: head_dim ", spec.head_dim, " and v_dim ", spec.v_dim, " must be at least 1");
  if (!std::isfinite(spec.scale) || spec.cap < 0 || spec.dropout < 0 || spec.dropout >= 1)
    fail("attention: scale ", spec.scale, ", cap ", spec.cap, ", dropout ", spec.dropout,
         ": scale must be finite, cap at least 0, dropout in [0, 1)");
  if (spec.normal == Normal::sigmoid && spec.extra != Extra::none)
    fail(
        "attention: an extra logit means nothing to sigmoid weights, which are not normalised; "
        "use softmax or extra none");
  check_tensor(run, "q", in.q, spec.heads, spec.head_dim);
  const Dim rows = in.q[0];
  if (in.q_kept) {
    check_tensor(run, "q_kept", in.q_kept, spec.heads, spec.head_dim);
    if (in.q_kept[0] != rows)
      fail("attention: q_kept ", in.q_kept.shape(), " and q ", in.q.shape(), " differ");
  }
  const auto n = static_cast<std::size_t>(rows);
  if (plan.low.size() != n || plan.high.size() != n || plan.position.size() != n ||
      plan.kept_position.size() != n)
    fail("attention: the plan is for ", plan.low.size(), " rows, q has ", rows);
  Dim covered = 0;
  for (const RowPlan::Part& p : plan.parts) {
    if (p.q_first != covered || p.q_count < 0 || p.k_count < 0 || p.k_first < 0)
      fail("attention: a part of the plan starts at row ", p.q_first, ", row ", covered, " is next");
    covered += p.q_count;
  }
  if (covered != rows) fail("attention: the plan's parts cover ", covered, " rows, q has ", rows);
  if (in.cache) {
    if (run.tape)
      fail(
          "attention: a pass with a cache cannot be differentiated; "
          "train without a cache, or run without a tape");
    if (in.k || in.v) fail("attention: keys come from the cache or from k and v, not from both");
    const KvView& c = *in.cache;
    const KvLayout& l = c.layout;
    if (l.kv_heads != spec.kv_heads || l.d != spec.head_dim || l.dv != spec.v_dim ||
        l.values_in_keys != spec.values_in_keys)
      fail("attention: the cache holds ", l.kv_heads, " heads of ", l.d, " and ", l.dv,
           l.values_in_keys ? " (in keys)" : "", ", ", spec.kv_heads, " of ", spec.head_dim, " and ",
           spec.v_dim, spec.values_in_keys ? " (in keys)" : "", " are needed");
    if (l.format != run.device.real &&
        (l.format == DType::f64 || l.format == DType::f32 || run.device.real == DType::f64))
      fail("attention: the cache is ", name_of(l.format), ", this device computes in ",
           name_of(run.device.real));
    if (c.bias.bias && (spec.score != Score::dot || c.bias.angles.size() != plan.parts.size()))
      fail("attention: keys stored without their bias need dot scores and the angles of every sequence");
    if (c.bias.bias && (!c.bias.slab ||
                        c.bias.stride < c.bias.rows * kPageKeys * static_cast<Dim>(size_of(run.device.real))))
      fail("attention: pages of angles of ", c.bias.rows, " rows cannot stand ", c.bias.stride, " apart in ",
           c.bias.slab ? "their slab" : "no slab");
    if (c.pages.size() != plan.parts.size())
      fail("attention: the cache shows ", c.pages.size(), " sequences, the plan has ", plan.parts.size());
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      const RowPlan::Part& p = plan.parts[i];
      if (p.k_count > 0 && (!c.slab || c.stride < l.page_bytes))
        fail("attention: pages of ", l.page_bytes, " bytes cannot stand ", c.stride, " apart in ",
             c.slab ? "their slab" : "no slab");
      if (static_cast<Dim>(c.pages[i].size()) * kPageKeys < p.k_count)
        fail("attention: sequence ", i, " has ", p.k_count, " keys but ", c.pages[i].size(), " pages of ",
             kPageKeys);
      Dim low = p.k_count, high = 0;
      for (Dim r = p.q_first; r < p.q_first + p.q_count; ++r) {
        low = std::min<Dim>(low, plan.low[static_cast<std::size_t>(r)]);
        high = std::max<Dim>(high, plan.high[static_cast<std::size_t>(r)]);
      }
      high = std::min(high, p.k_count);
      for (Dim first = 0; first < high; first += kPageKeys) {
        const auto page = static_cast<std::size_t>(first / kPageKeys);
        const bool there = c.pages[i][page] >= 0 &&
                           (!c.bias.bias || (page < c.bias.angles[i].size() && c.bias.angles[i][page] >= 0));
        if (!there && (first < p.keep || first + kPageKeys > low))
          fail("attention: keys ", first, " … of sequence ", i,
               " were evicted, but a row still sees them; the cache must keep what the mask shows");
      }
    }
  } else {
    check_tensor(run, "k", in.k, spec.kv_heads, spec.head_dim);
    if (spec.values_in_keys && (in.v || spec.v_dim > spec.head_dim))
      fail("attention: values are the first ", spec.v_dim, " of the ", spec.head_dim,
           " channels of keys: a v of its own has no place");
    if (!spec.values_in_keys) check_tensor(run, "v", in.v, spec.kv_heads, spec.v_dim);
    if (in.v && in.v[0] != in.k[0])
      fail("attention: k ", in.k.shape(), " and v ", in.v.shape(), " have different numbers of keys");
    for (const RowPlan::Part& p : plan.parts)
      if (p.k_first + p.k_count > in.k[0])
        fail("attention: the plan wants keys ", p.k_first, " … ", p.k_first + p.k_count, ", k has ", in.k[0]);
  }
  if (in.slot_k && spec.values_in_keys) fail("attention: learned slots have values of their own");
  if (!in.slot_k != !in.slot_v) fail("attention: learned slots need both keys and values");
  if (in.slot_k) {
    check_weight(run, "slot_k", in.slot_k, in.slot_k->rows, spec.kv_heads * spec.head_dim);
    check_weight(run, "slot_v", in.slot_v, in.slot_k->rows, spec.kv_heads * spec.v_dim);
  }
  if (spec.score == Score::additive)
    check_weight(run, "score_weight", in.score_weight, spec.heads, spec.head_dim);
  if (spec.extra == Extra::learned_logit) check_weight(run, "extra_logit", in.extra_logit, 1, spec.heads);
  if (spec.bias == Bias::bucket) {
    check_weight(run, "buckets", in.buckets, in.buckets ? in.buckets->rows : 1, spec.heads);
    if (in.buckets->rows < (spec.bucket_both ? 4 : 2))
      fail("attention: ", in.buckets->rows,
           " buckets are too few; at least 2, or 4 where keys after the query have their own");
    if (spec.bucket_max <= in.buckets->rows / (spec.bucket_both ? 4 : 2))
      fail("attention: bucket_max ", spec.bucket_max, " leaves no distance for the logarithmic half of ",
           in.buckets->rows, " buckets; make it larger");
  }
  if (spec.bias == Bias::dense) {
    const Tensor& b = in.dense_bias;
    Dim keys = 0;
    for (const RowPlan::Part& p : plan.parts) keys = std::max(keys, p.k_count);
    if (!b || b.rank != 3 || (b[0] != 1 && b[0] != spec.heads) || b[1] != rows || b[2] < keys ||
        !b.contiguous() || b.dtype != run.device.real)
      fail("attention: dense_bias has shape ", b ? b.shape() : "none", ", [1 or ", spec.heads, ",", rows,
           ",at least ", keys, "] is needed");
  }
}

// Everything the kernels read besides tensors goes into the arena: the plan may be gone before backward.
AttentionShape shape_of(Run& run, const AttentionSpec& spec, const AttentionInputs& in, const RowPlan& plan) {
  AttentionShape s{};
  s.rows = in.q[0];
  s.heads = spec.heads;
  s.kv_heads = spec.kv_heads;
  s.d = spec.head_dim;
  s.dv = spec.v_dim;
  s.few = spec.values_in_keys ? kAttentionFewShared : kAttentionFew;
  s.values_in_keys = spec.values_in_keys;
  s.part_count = static_cast<Dim>(plan.parts.size());
  auto* parts = run.arena.take_array<AttentionPart>(s.part_count);
  auto* low = run.arena.take_array<std::int32_t>(s.rows);
  auto* high = run.arena.take_array<std::int32_t>(s.rows);
  Dim reach = 0;
  bool keeps = false;
  for (Dim i = 0; i < s.part_count; ++i) {
    const RowPlan::Part& p = plan.parts[static_cast<std::size_t>(i)];
    parts[i] = {
        p.q_first,
        p.q_count,
        p.k_first,
        p.k_count,
        in.cache ? in.cache->pages[static_cast<std::size_t>(i)].data() : nullptr,
        in.cache && in.cache->bias.bias ? in.cache->bias.angles[static_cast<std::size_t>(i)].data() : nullptr,
        p.keep};
    keeps = keeps || p.keep > 0;
    for (Dim r = p.q_first; r < p.q_first + p.q_count; ++r) {
      low[r] = std::max(0, plan.low[static_cast<std::size_t>(r)]);
      high[r] =
          static_cast<std::int32_t>(std::clamp<Dim>(plan.high[static_cast<std::size_t>(r)], 0, p.k_count));
      reach = std::max({reach, Dim{plan.position[static_cast<std::size_t>(r)]}, p.k_count});
    }
  }
  s.parts = parts;
  s.low = low;
  s.high = high;
  s.position = run.copy_of(std::span(plan.position));
  s.kept_position = run.copy_of(std::span(plan.kept_position));
  s.slots = in.slot_k ? in.slot_k->rows : 0;
  s.score = spec.score;
  s.normal = spec.normal;
  s.extra = spec.extra;
  s.bias = spec.bias;
  s.scale = spec.scale;
  s.cap = spec.cap;
  s.q = in.q.data;
  s.q_kept = keeps ? in.q_kept.data : nullptr;
  s.k = in.k.data;
  s.v = in.v.data;
  if (in.cache) {
    s.cache = in.cache->layout;
    s.slab = in.cache->slab;
    s.page_stride = in.cache->stride;
    s.angle_slab = in.cache->bias.slab;
    s.angle_stride = in.cache->bias.stride;
    s.key_bias = in.cache->bias.bias;
    s.bias_half = in.cache->bias.half;
    s.bias_rows = in.cache->bias.rows;
    s.bias_neighbours = in.cache->bias.neighbours;
  }
  auto bytes = [](const Weight* w) { return w ? w->data.get() : nullptr; };
  s.slot_k = bytes(in.slot_k);
  s.slot_v = bytes(in.slot_v);
  s.score_weight = bytes(in.score_weight);
  s.extra_logit = bytes(in.extra_logit);
  if (spec.bias == Bias::alibi) {
    std::vector<double> slopes = alibi_slopes(spec.heads, spec.alibi_max);
    for (double& x : slopes) x *= spec.alibi_factor;
    s.slopes = run.upload({spec.heads}, slopes).data;
  }
  if (spec.bias == Bias::bucket) {
    s.buckets = bytes(in.buckets);
    s.bucket_count = in.buckets->rows;
    // Beyond, all share the last bucket.
    s.bucket_reach = std::min(reach, std::max(spec.bucket_max, s.bucket_count));
    auto* of = run.arena.take_array<std::int32_t>(2 * s.bucket_reach + 1);
    for (Dim i = 0; i <= 2 * s.bucket_reach; ++i)
      of[i] = relative_bucket(i - s.bucket_reach, s.bucket_count, spec.bucket_max, spec.bucket_both);
    s.bucket_of = of;
  }
  if (spec.bias == Bias::dense) {
    s.dense = in.dense_bias.data;
    s.dense_heads = in.dense_bias[0];
    s.dense_keys = in.dense_bias[2];
  }
  if (run.training && spec.dropout > 0) {
    s.dropout = spec.dropout;
    s.row_keys = row_keys(run, s.rows, kDropoutSite + (spec.cross ? 1 : 0));
  }
  s.first_of = run.arena.take_array<std::int64_t>(4 * (s.part_count + 1));
  return s;
}

}  // namespace

// Splits of each sequence with few queries: what they see, whichever kernel then takes it.
std::int64_t attention_work(const AttentionShape& s) {
  constexpr Dim kPad = 16;  // the widest vector
  Dim reals = 0;
  for (Dim p = 0; p < s.part_count; ++p) {
    const AttentionPart& part = s.parts[p];
    const Dim pairs = part.q_count * (s.heads / s.kv_heads);
    if (!part.pages || pairs > s.few) continue;
    Dim low = part.k_count, high = 0;
    for (Dim r = part.q_first; r < part.q_first + part.q_count; ++r) {
      low = std::min<Dim>(low, s.low[r]);
      high = std::max<Dim>(high, s.high[r]);
    }
    const Dim splits =
        std::max<Dim>(0, high - low) / kAttentionSplit + std::min<Dim>(part.keep, high) / kAttentionSplit + 4;
    // 10: kSplitNumbers of the kernels
    reals += s.kv_heads * (1 + splits * pairs * (s.dv + kPad + 10)) + 2 * kPad;
  }
  return reals;
}

std::int64_t attention_backward_work(const AttentionShape& s, std::int64_t key_chunk) {
  constexpr Dim kPad = 16;  // the widest vector
  const Dim g = s.heads / s.kv_heads, kept = s.q_kept ? 1 : 0;
  Dim reals = 0, tasks = s.kv_heads;
  for (Dim p = 0; p < s.part_count; ++p) {
    const Dim lanes =
        s.kv_heads * ((s.parts[p].q_count * g + kAttentionLanes - 1) / kAttentionLanes) * kAttentionLanes;
    const Dim chunks = (s.slots > 0) + (s.parts[p].k_count + key_chunk - 1) / key_chunk;
    reals += lanes * (2 * (s.d + s.dv) + 2 * kPad + 3 + kept * (2 * s.d + kPad) + chunks * s.d * (1 + kept));
    tasks += s.kv_heads * chunks;
  }
  // sums of bucket and score weights are doubles
  return reals +
         tasks * 2 * g *
             ((s.bias == Bias::bucket ? s.bucket_count : 0) + (s.score == Score::additive ? s.d : 0)) +
         s.rows * s.heads + 64;
}

std::vector<double> alibi_slopes(Dim heads, double max) {
  // max 8, n a power of two: 2^(-8/n), 2^(-16/n), …. Otherwise those of the power below, then every second
  // one of the power above.
  Dim power = 1;
  while (power * 2 <= heads) power *= 2;
  std::vector<double> slopes;
  for (Dim i = 1; i <= power; ++i)
    slopes.push_back(std::exp2(-max * static_cast<double>(i) / static_cast<double>(power)));
  for (Dim i = 1; static_cast<Dim>(slopes.size()) < heads; i += 2)
    slopes.push_back(std::exp2(-max / 2 * static_cast<double>(i) / static_cast<double>(power)));
  return slopes;
}

std::int32_t relative_bucket(Dim relative, Dim buckets, Dim max_distance, bool both_ways) {
  Dim first = 0;
  if (both_ways) {
    buckets /= 2;
    if (relative > 0) first = buckets;
    relative = std::abs(relative);
  } else {
    relative = std::max<Dim>(0, -relative);
  }
  const Dim exact = buckets / 2;
  if (relative < exact) return static_cast<std::int32_t>(first + relative);
  // Logarithmic from `exact` to max_distance; in f32, as the models were trained: it decides which side of
  // a border a distance falls on.
  const float far =
      std::log(static_cast<float>(relative) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact))) *
      static_cast<float>(buckets - exact);
  return static_cast<std::int32_t>(first + std::min(buckets - 1, exact + static_cast<Dim>(far)));
}

KvLayout kv_layout(DType format, Dim kv_heads, Dim d, Dim dv, bool values_in_keys) {
  if (!is_float(format) && format != DType::q8_0 && format != DType::q4_0)
    fail("a cache of keys and values cannot be ", name_of(format),
         "; f32, bf16, f16, q8_0 and q4_0 are known");
  const auto block = static_cast<Dim>(info_of(format).block), bytes = static_cast<Dim>(info_of(format).bytes);
  if (d % block != 0 || dv % block != 0)
    fail("a ", name_of(format), " cache stores blocks of ", block, " channels, this model's heads have ", d,
         d == dv ? "" : concat(" (keys) and ", dv, " (values)"), "; f32, bf16 and f16 fit heads of any size");
  auto aligned = [](Dim n) { return (n + 63) / 64 * 64; };
  const Dim scale = block > 1 ? 2 : 0;  // bytes of a block's scale, an f16
  KvLayout l{.format = format, .kv_heads = kv_heads, .d = d, .dv = dv};
  l.key_scales = kPageKeys * (d / block) * (bytes - scale);
  l.values = aligned(l.key_scales + kPageKeys * (d / block) * scale);
  l.value_scales = l.values + kPageKeys * (dv / block) * (bytes - scale);
  l.head_bytes = aligned(l.value_scales + kPageKeys * (dv / block) * scale);
  l.values_in_keys = values_in_keys;
  if (values_in_keys) l.head_bytes = l.value_scales = l.values;  // nothing behind the keys
  l.page_bytes = kv_heads * l.head_bytes + 256;  // four of the widest vectors
  return l;
}

Tensor attention(Run& run, const AttentionSpec& spec, const AttentionInputs& in, const RowPlan& plan) {
  check(run, spec, in, plan);
  std::vector<Dim> first_keys;  // of those who watch attn_stats: as a rule one number
  if (run.wants(site::attn_stats)) first_keys = run.taps->first_keys_asked(site::attn_stats);
  Tensor out = run.make({in.q[0], spec.heads, spec.v_dim});
  const Tensor lse = run.tape ? run.make({in.q[0], spec.heads, 2}).constant() : Tensor{};
  const AttentionShape shape = shape_of(run, spec, in, plan);
  const auto compute = [&](const Tensor& to, const Tensor& sums, const Tensor& stats, Dim first) {
    const Arena::Mark mark = run.arena.mark();
    const Dim work = in.cache ? attention_work(shape) : 0;
    run.call(&Kernels::attention,
             {.shape = shape,
              .out = to.data,
              .lse = sums.data,
              .stats = stats.data,
              .first_keys = first,
              .work = work > 0 ? run.arena.take(static_cast<std::size_t>(work) * size_of(run.device.real))
                               : nullptr});
    run.arena.release(mark);
  };
  if (first_keys.empty()) compute(out, lse, {}, 0);
  ChangedRows changed(run, spec, shape);
  for (std::size_t i = 0; i < first_keys.size(); ++i) {
    const Tensor stats = run.make({in.q[0], spec.heads, AttentionStat::count}).constant();
    if (i == 0) compute(out, lse, stats, first_keys[i]);
    else compute(run.make({in.q[0], spec.heads, spec.v_dim}), {}, stats, first_keys[i]);
    changed.put_stats(stats, first_keys[i]);
    run.taps->show({.site = site::attn_stats,
                    .stack = run.stack,
                    .layer = run.layer,
                    .value = stats,
                    .cross = spec.cross,
                    .plan = &plan,
                    .part = run.part,
                    .first_keys = first_keys[i]});
  }
  if (run.wants(site::attn_weights)) {
    Tapped t{.site = site::attn_weights,
             .stack = run.stack,
             .layer = run.layer,
             .value = {},
             .cross = spec.cross,
             .part = run.part};
    for (const Taps::HeadRow& c : run.taps->chosen(t, spec.heads, in.q[0])) {
      Dim keys = 0;
      for (const RowPlan::Part& p : plan.parts)
        if (c.row >= p.q_first && c.row < p.q_first + p.q_count) keys = p.k_count;
      const Tensor weights = run.make({shape.slots + keys}).constant();
      changed.weights_of(c.head, c.row, weights);
      t.value = weights;
      t.head = c.head;
      t.row = c.row;
      t.share = c.share;
      run.taps->show(t);
    }
  }
  // The gradient passes as if nothing had been changed: the way back reads what the kernel gave.
  Tensor result = out;
  if (changed.any()) {
    if (run.tape) {
      result = run.make({out[0], out[1], out[2]});
      run.call(&Kernels::copy, {.elements = out.elements(), .x = out.data, .y = result.data});
    }
    changed.put(result);
  }
  AttentionInputs inputs = in;
  inputs.cache = nullptr;
  run.record(attention_backward, AttentionTape{shape, inputs, out, lse, result});
  return result;
}

Tensor attention_weights(Run& run, const AttentionSpec& from, AttentionInputs in, const RowPlan& plan,
                         Dim head) {
  AttentionSpec spec = from;
  if (!in.cache && !spec.values_in_keys) in.v = in.k, spec.v_dim = spec.head_dim;  // nobody reads values here
  if (in.slot_k && !in.cache) in.slot_v = in.slot_k;
  check(run, spec, in, plan);
  if (plan.parts.size() != 1 || head < 0 || head >= spec.heads)
    fail("attention: weights of head ", head, " of ", plan.parts.size(),
         " sequences were asked for; one sequence and a head below ", spec.heads, " are needed");
  const Tensor weights =
      run.make({in.q[0], (in.slot_k ? in.slot_k->rows : 0) + plan.parts[0].k_count}).constant();
  const Arena::Mark mark = run.arena.mark();
  run.call(&Kernels::attention_weights, {.shape = shape_of(run, spec, in, plan),
                                         .row = 0,
                                         .row_count = in.q[0],
                                         .head = head,
                                         .weights = weights.data});
  run.arena.release(mark);
  return weights;
}

}  // namespace rapt
