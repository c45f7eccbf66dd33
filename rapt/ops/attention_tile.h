// SPDX-License-Identifier: Apache-2.0
// What the forward and the backward of attention share: the inner loop, transposes, who sees which key, the logits' options.
// Private to attention's kernels. Few queries against cached keys: attention_decode_cpu.cc, with the same order of additions.
//
// A query is a LANE. The lanes of a group are (row, head) pairs that share one kv head: pair i of a sequence is row i / g, head
// kv * g + i % g, with g = heads / kv_heads. K and V are read as scalars (broadcast loads) in their natural layout; maximum, sum,
// rescale and statistics are lane-wise, so there is no horizontal step, and what happens to a lane depends on its own row and on
// the keys' places in its sequence only. That is the whole proof that a row's bits do not depend on its company.
#pragma once
#include "rapt/ops/attention.h"
#include "rapt/ops/attention_page.h"
#include "rapt/ops/simd.h"

#if defined(__clang__)
#define RAPT_UNROLL _Pragma("unroll")
#define RAPT_UNROLL_2 _Pragma("unroll 2")
#else
#define RAPT_UNROLL _Pragma("GCC unroll 32")
#define RAPT_UNROLL_2 _Pragma("GCC unroll 2")
#endif

namespace rapt::RAPT_ISA {
namespace {

// Accumulators of a register tile. 32 registers: 6 x 4 + 4 operands + 1 broadcast; 16 registers: 6 x 2 + 2 + 1.
#if RAPT_IS(avx512) || RAPT_IS(neon)
constexpr int kVectors = 4, kAccumulators = 24;
#elif RAPT_IS(avx2)
constexpr int kVectors = 2, kAccumulators = 12;
#else
constexpr int kVectors = 4, kAccumulators = 12;
#endif
constexpr int kLanes = kVectors * W;  // (row, head) pairs of a group; divides kAttentionLanes
static_assert(kAttentionLanes % kLanes == 0);
constexpr int tile_of(int vectors) {
  return kAccumulators / vectors > 16 ? 16 : kAccumulators / vectors;
}  // fewer vectors: more broadcasts
constexpr Dim kBlock = 64;     // keys, counted from the sequence's first: part of the definition of the result
static_assert(kBlock == kPageKeys);  // a block never crosses a page
constexpr Dim kSplit = kAttentionSplit;  // likewise
constexpr Real kMasked = Real(-1e30);  // finite, so that 0 * (z - m) stays 0
constexpr Real kFloor = Real(-1e29);   // no maximum is below it: a lane that has seen nothing gives weights 2^(-9e29) = 0 and not 2^0
constexpr Real kLn2 = Real(0.69314718055994530942);

template <int I>
struct Int {
  static constexpr int value = I;
  constexpr operator int() const { return I; }
};
template <int I, int N, class F>
RAPT_INLINE void static_for(const F& f) {
  if constexpr (I < N) {
    f(Int<I>{});
    static_for<I + 1, N>(f);
  }
}

// ------------------------------------------------------------------------------------------------ the inner loop
// c[i][v] += sum over k of a[i*ai + k*ak] * b[k*lb + v*W], every element one FMA chain with k ascending, so an element's bits do not
// depend on the tile it was computed in. Vectors below V0 are left out (they see nothing here).
template <int V0, int M_, int N>
RAPT_INLINE void accumulate(V (&c)[M_][N], const Real* a, Dim ai, Dim ak, const Real* b, Dim lb, Dim n) {
  RAPT_UNROLL_2
  for (Dim k = 0; k < n; ++k, a += ak, b += lb) {
    V x[N];
    RAPT_UNROLL
    for (int v = V0; v < N; ++v) x[v] = vload(b + v * W);
    RAPT_UNROLL
    for (int i = 0; i < M_; ++i) {
      const V s = vset(a[i * ai]);
      RAPT_UNROLL
      for (int v = V0; v < N; ++v) c[i][v] = vfma(s, x[v], c[i][v]);
    }
  }
}
template <int M_, int N>
RAPT_INLINE void clear(V (&c)[M_][N]) {
  RAPT_UNROLL
  for (int i = 0; i < M_; ++i) {
    RAPT_UNROLL
    for (int v = 0; v < N; ++v) c[i][v] = vzero();
  }
}
// [from, to) in tiles of T, then 4, 2 and 1: f(size, first)
template <int T, class F>
RAPT_INLINE void tiles(Dim from, Dim to, const F& f) {
  Dim i = from;
  for (; i + T <= to; i += T) f(Int<T>{}, i);
  if constexpr (T > 4)
    for (; i + 4 <= to; i += 4) f(Int<4>{}, i);
  if constexpr (T > 2)
    for (; i + 2 <= to; i += 2) f(Int<2>{}, i);
  for (; i < to; ++i) f(Int<1>{}, i);
}

// ------------------------------------------------------------------------------------------------ transposes
#if RAPT_IS(avx512)
RAPT_INLINE void transpose(V (&r)[16]) {
  V t[16];
  RAPT_UNROLL
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  RAPT_UNROLL
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 1]), c = _mm512_castps_pd(t[4 * i + 2]),
                  d = _mm512_castps_pd(t[4 * i + 3]);
    r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  RAPT_UNROLL
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
  }
  RAPT_UNROLL
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
  }
}
#elif RAPT_IS(avx2)
RAPT_INLINE void transpose(V (&r)[8]) {
  V t[8];
  RAPT_UNROLL
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  RAPT_UNROLL
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  RAPT_UNROLL
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x20);
    t[4 + i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x31);
  }
  RAPT_UNROLL
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}
#else
RAPT_INLINE void transpose(V (&r)[W]) {
  if constexpr (W > 1) {
    Real t[W * W];
    for (int i = 0; i < W; ++i) vstore(t + i * W, r[i]);
    for (int i = 0; i < W; ++i) {
      Real x[W];
      for (int j = 0; j < W; ++j) x[j] = t[j * W + i];
      r[i] = vload(x);
    }
  }
}
#endif

// n elements of each row[lane] -> xt [n][N*W], a row per lane; lanes from `count` on are zero.
template <int N>
static void to_lanes(const Real* const* row, Dim count, Dim n, Real* xt) {
  for (int v = 0; v < N; ++v)
    for (Dim d = 0; d < n; d += W) {
      const Dim m = least(W, n - d);
      V r[W];
      if (m == W && (v + 1) * W <= count) {
        RAPT_UNROLL
        for (int i = 0; i < W; ++i) r[i] = vload(row[v * W + i] + d);
      } else {
        for (int i = 0; i < W; ++i) r[i] = v * W + i < count ? vload_n(row[v * W + i] + d, m) : vzero();
      }
      transpose(r);
      if (m == W) {
        RAPT_UNROLL
        for (int i = 0; i < W; ++i) vstore(xt + (d + i) * N * W + v * W, r[i]);
      } else {
        for (int i = 0; i < m; ++i) vstore(xt + (d + i) * N * W + v * W, r[i]);
      }
    }
}
// The way back: row[lane][d] = xt[d][lane] * factor[lane] + 0 (a negative zero becomes a zero); kAdd: onto what is there.
template <int N, bool kAdd>
static void to_rows(const Real* xt, const V* factor, Real* const* row, Dim count, Dim n) {
  for (int v = 0; v < N; ++v)
    for (Dim d = 0; d < n; d += W) {
      const Dim m = least(W, n - d);
      V r[W];
      if (m == W) {
        RAPT_UNROLL
        for (int i = 0; i < W; ++i) r[i] = vload(xt + (d + i) * N * W + v * W) * factor[v] + vzero();
      } else {
        for (int i = 0; i < W; ++i) r[i] = i < m ? vload(xt + (d + i) * N * W + v * W) * factor[v] + vzero() : vzero();
      }
      transpose(r);
      if (m == W && (v + 1) * W <= count) {
        RAPT_UNROLL
        for (int i = 0; i < W; ++i) {
          Real* o = row[v * W + i] + d;
          vstore(o, kAdd ? vload(o) + r[i] : r[i]);
        }
      } else {
        for (int i = 0; i < W && v * W + i < count; ++i) {
          Real* o = row[v * W + i] + d;
          vstore_n(o, kAdd ? vload_n(o, m) + r[i] : r[i], m);
        }
      }
    }
}

// ------------------------------------------------------------------------------------------------ one call
struct Job {
  const AttentionShape& s;
  const Real *q, *q_kept, *k, *v, *slot_k, *slot_v, *score_weight, *extra, *slopes, *buckets, *dense, *key_bias;
  Dim heads, kv_heads, g, d, dv, keep, reach, more;  // more: further channels of a key whose bias is not stored
  bool plain;    // softmax of scale * q.k: no pass over the logits
  bool sigmoid, additive, l2, table, alibi;
  Real c, unit;  // the exponent is logit * c, the natural logit is logit * unit, with `logit` as it stands in the block
  Real scale, cap, cap_inverse, drop;
};
RAPT_INLINE const Real* real(const void* p) { return static_cast<const Real*>(p); }
// plain_allowed: false where a later pass needs natural logits anyway.
RAPT_INLINE Job make_job(const AttentionShape& s, bool plain_allowed = true) {
  const bool plain =
      plain_allowed && s.score == Score::dot && s.normal == Normal::softmax && s.cap == 0 && s.bias == Bias::none && s.scale > 1e-6;
  return {.s = s,
          .q = real(s.q),
          .q_kept = real(s.q_kept),
          .k = real(s.k),
          .v = real(s.v),
          .slot_k = real(s.slot_k),
          .slot_v = real(s.slot_v),
          .score_weight = real(s.score_weight),
          .extra = real(s.extra_logit),
          .slopes = real(s.slopes),
          .buckets = real(s.buckets),
          .dense = real(s.dense),
          .key_bias = real(s.key_bias),
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .g = s.heads / s.kv_heads,
          .d = s.d,
          .dv = s.dv,
          .keep = s.keep,
          .reach = s.bucket_reach,
          .more = s.key_bias ? s.bias_rows : 0,
          .plain = plain,
          .sigmoid = s.normal == Normal::sigmoid,
          .additive = s.score == Score::additive,
          .l2 = s.score == Score::l2,
          .table = s.bias == Bias::bucket || s.bias == Bias::dense,
          .alibi = s.bias == Bias::alibi,
          .c = plain ? Real(s.scale) * kLog2e : kLog2e,
          .unit = plain ? Real(s.scale) : Real(1),
          .scale = Real(s.scale),
          .cap = Real(s.cap),
          .cap_inverse = s.cap > 0 ? Real(1 / s.cap) : Real(0),
          .drop = Real(s.dropout)};
}

// A query's numbers for the channels that every kv head's keys share (KvBias): to[0], to[stride], …
RAPT_INLINE void fill_more(const Job& j, Dim kv, const Real* q, Real* to, Dim stride) {
  const Real* b = j.key_bias + kv * j.d;
  const Dim half = j.s.bias_half;
  for (Dim i = 0; i < half; ++i) {
    const Dim x = j.s.bias_neighbours ? 2 * i : i, y = j.s.bias_neighbours ? 2 * i + 1 : i + half;
    to[i * stride] = q[x] * b[x] + q[y] * b[y];
    to[(half + i) * stride] = q[y] * b[x] - q[x] * b[y];
  }
  if (j.more == 2 * half) return;
  Real still = 0;
  for (Dim i = 2 * half; i < j.d; ++i) still += q[i] * b[i];
  to[2 * half * stride] = still;
}

// Up to 64 keys of one sequence (or of the learned slots) for one kv head.
struct Keys {
  const Real *k, *v;
  Dim k_stride, v_stride;
  Dim first, n;  // first: its place in the sequence
  bool slots;
  bool transposed = false;      // k [d][64]: k_stride is 1
  const Real* turns = nullptr;  // more channels [more][64]

  [[gnu::always_inline]] Real key(Dim i, Dim channel) const { return transposed ? k[channel * kBlock + i] : k[i * k_stride + channel]; }
};
// k_memory [64 d] and v_memory [64 dv + W]: for keys of a cache that is not made of Reals.
RAPT_INLINE Keys find_keys(const Job& j, const AttentionPart& part, Dim kv, Dim first, Dim n, bool slots, Real* k_memory, Real* v_memory) {
  if (slots)
    return {j.slot_k + (first * j.kv_heads + kv) * j.d,
            j.slot_v + (first * j.kv_heads + kv) * j.dv,
            j.kv_heads * j.d,
            j.kv_heads * j.dv,
            first,
            n,
            true};
  if (part.pages) {
    const KvLayout& l = j.s.cache;
    const std::byte* head = head_of(l, part.pages[first / kBlock], kv);
    const Real* turns = j.more ? reinterpret_cast<const Real*>(part.turns[first / kBlock]) : nullptr;
    if (l.format == kReal)
      return {reinterpret_cast<const Real*>(head), reinterpret_cast<const Real*>(head + l.values), 1, j.dv, first, n, false, true, turns};
    with_format(l.format, [&](auto format) {
      unpack_keys<decltype(format)::value>(l, head, k_memory);
      unpack_values<decltype(format)::value>(l, head, 0, n, v_memory);
    });
    return {k_memory, v_memory, 1, j.dv, first, n, false, true, turns};
  }
  const Dim row = (part.k_first + first) * j.kv_heads + kv;
  return {j.k + row * j.d, j.v + row * j.dv, j.kv_heads * j.d, j.kv_heads * j.dv, first, n, false};
}
RAPT_INLINE void copy_reals(Real* to, const Real* from, Dim n) {
  Dim i = 0;
  for (; i + W <= n; i += W) vstore(to + i, vload(from + i));
  if (i < n) vstore_n(to + i, vload_n(from + i, n - i), n - i);
}
RAPT_INLINE void set_reals(Real* to, Real x, Dim n) {
  Dim i = 0;
  for (; i + W <= n; i += W) vstore(to + i, vset(x));
  if (i < n) vstore_n(to + i, vset(x), n - i);
}
// Rows of d elements at `stride` into rows at `padded` >= d, zeros behind. Rows of one head lie a power of two apart, which a small
// cache maps onto few sets: copied once per task, they are read from L1 by every group.
RAPT_INLINE void pack_rows(Real* to, Dim padded, const Real* from, Dim stride, Dim d, Dim rows) {
  for (Dim r = 0; r < rows; ++r) {
    copy_reals(to + r * padded, from + r * stride, d);
    for (Dim i = d; i < padded; ++i) to[r * padded + i] = 0;
  }
}

// ------------------------------------------------------------------------------------------------ lanes and what they see
struct Lanes {
  Dim count, kv;                                     // pairs; the lanes behind them repeat the last one's view
  alignas(64) Real low[kLanes], high[kLanes];        // keys [low, high)
  alignas(64) Real position[kLanes], kept[kLanes];   // kept: the position towards keys below `keep`
  alignas(64) Real slope[kLanes];
  alignas(64) uint32_t key[kLanes];                  // for dropout
  int32_t row[kLanes], head[kLanes];
  Dim low_min[kVectors], low_max[kVectors], high_min[kVectors], high_max[kVectors], position_min[kVectors], position_max[kVectors];
  bool ahead[kVectors];                              // some lane sees keys after its own position
};

RAPT_INLINE void find_lanes(const Job& j, const AttentionPart& part, Dim kv, Dim first, Dim count, int vectors, Lanes& g) {
  g.count = count;
  g.kv = kv;
  Dim row = part.q_first + first / j.g, h = first % j.g;
  for (int i = 0; i < vectors * W; ++i) {
    g.row[i] = int32_t(row);
    g.head[i] = int32_t(kv * j.g + h);
    g.low[i] = Real(j.s.low[row]);
    g.high[i] = Real(j.s.high[row]);
    g.position[i] = Real(j.s.position[row]);
    if (j.keep > 0) g.kept[i] = Real(j.s.kept_position[row]);
    if (j.alibi) g.slope[i] = j.slopes[kv * j.g + h];
    if (i + 1 < count && ++h == j.g) {
      h = 0;
      ++row;
    }
  }
  if (j.drop > 0)
    for (int v = 0; v < vectors; ++v)
      for (int i = v * W; i < (v + 1) * W; ++i) {
        uint32_t x = j.s.row_keys[g.row[i]] + uint32_t(g.head[i] + 1) * 0x9E3779B9u;  // a row's key, mixed with the head
        x = (x ^ x >> 16) * 0x85EBCA6Bu;
        g.key[i] = (x ^ x >> 13) * 0xC2B2AE35u;
      }
  for (int v = 0; v < vectors; ++v) {
    Real a = g.low[v * W], b = a, c = g.high[v * W], d = c, e = g.position[v * W], f = e;
    g.ahead[v] = false;
    for (int i = v * W; i < (v + 1) * W; ++i) g.ahead[v] = g.ahead[v] || g.high[i] > g.position[i] + 1;
    for (int i = v * W + 1; i < (v + 1) * W; ++i) {
      a = g.low[i] < a ? g.low[i] : a;
      b = g.low[i] > b ? g.low[i] : b;
      c = g.high[i] < c ? g.high[i] : c;
      d = g.high[i] > d ? g.high[i] : d;
      e = g.position[i] < e ? g.position[i] : e;
      f = g.position[i] > f ? g.position[i] : f;
    }
    g.low_min[v] = Dim(a), g.low_max[v] = Dim(b), g.high_min[v] = Dim(c), g.high_max[v] = Dim(d), g.position_min[v] = Dim(e),
    g.position_max[v] = Dim(f);
  }
}

// What a group sees of one block, in keys counted from the block's first.
template <int N>
struct Sight {
  Dim from;                  // nobody sees a key before it; a multiple of 4 (sums go by key mod 4)
  Dim upto[N];               // vector v sees none from here on; ascending in v
  Dim full_from, full_upto;  // keys that all lanes see, as well as those below `keep` and full_upto
  Dim keep;                  // keys below it are kept ones
  bool full(Dim k, Dim m) const { return (k >= full_from || k + m <= keep) && k + m <= full_upto; }
};
template <int N>
RAPT_INLINE bool look(const Job& j, const Lanes& g, const Keys& b, Sight<N>& s) {
  if (b.slots) {
    s.from = s.full_from = s.keep = 0;
    s.full_upto = b.n;
    for (int v = 0; v < N; ++v) s.upto[v] = b.n;
    return true;
  }
  s.keep = most(0, least(b.n, j.keep - b.first));
  s.from = b.n;
  s.full_from = 0;
  s.full_upto = b.n;
  Dim above = 0;
  for (int v = 0; v < N; ++v) {
    const Dim low = g.low_min[v] - b.first, high = least(b.n, g.high_max[v] - b.first);
    Dim upto = low < high ? high : 0;
    if (s.keep > 0) upto = most(upto, least(s.keep, high));
    if (upto > 0) s.from = least(s.from, s.keep > 0 ? 0 : most(0, low));
    above = most(above, upto);
    s.upto[v] = above;
    s.full_from = most(s.full_from, g.low_max[v] - b.first);
    s.full_upto = least(s.full_upto, g.high_min[v] - b.first);
  }
  s.from &= ~Dim(3);
  return above > 0;
}
// x where the lane sees the key, else `other`.
RAPT_INLINE V where_seen(const Lanes& g, int v, Dim key, bool kept, V x, V other) {
  const V k = vset(Real(key));
  const V r = vselect(vlt(k, vload(g.high + v * W)), x, other);
  return kept ? r : vselect(vle(vload(g.low + v * W), k), r, other);
}
template <int N>
RAPT_INLINE int first_vector(const Sight<N>& s, Dim k) {
  int v = 0;
  while (v < N - 1 && s.upto[v] <= k) ++v;
  return v;
}

// ------------------------------------------------------------------------------------------------ logits with options
// The bias of every relative position for the heads of one kv head: [g][span]; entry i stands for key - position = i - 64 - reach. The
// ends repeat, so that the 64 biases of a lane and a block are neighbours wherever the block lies.
RAPT_INLINE Dim relative_span(const Job& j) { return 2 * j.reach + 1 + 2 * kBlock; }
RAPT_INLINE void fill_relative(const Job& j, Dim kv, Real* to) {
  if (j.s.bias != Bias::bucket) return;
  const Dim span = relative_span(j);
  for (Dim h = 0; h < j.g; ++h)
    for (Dim i = 0; i < span; ++i)
      to[h * span + i] = j.buckets[Dim(j.s.bucket_of[least(2 * j.reach, most(0, i - kBlock))]) * j.heads + kv * j.g + h];
}
// Biases of keys [k0, k1) of a block, a lane per query: bias [64][N*W].
template <int N>
static void fill_bias(const Job& j, const Lanes& g, const Keys& b, Dim k0, Dim k1, bool kept, const Real* relative, Real* bias) {
  if (k0 >= k1) return;
  const Real* row[kLanes];
  for (Dim i = 0; i < g.count; ++i) {
    if (j.s.bias == Bias::dense) {
      row[i] = j.dense + ((j.s.dense_heads == 1 ? 0 : Dim(g.head[i])) * j.s.rows + g.row[i]) * j.s.dense_keys + b.first + k0;
    } else {
      const Dim distance = b.first + k0 - Dim(kept ? g.kept[i] : g.position[i]);
      row[i] =
          relative + (g.head[i] - g.kv * j.g) * relative_span(j) + least(j.reach + 1, most(-j.reach - kBlock, distance)) + j.reach + kBlock;
    }
  }
  to_lanes<N>(row, g.count, k1 - k0, bias + k0 * N * W);
}

// Additive scores: st[key][lane] = sum over d of w[d] tanh(q[d] + k[d]); one chain over d.
template <int N>
static void additive_scores(const Job& j, const Keys& b, Dim k0, Dim k1, const Real* qt, const Real* wt, Real* st) {
  for (Dim k = k0; k < k1; ++k)
    for (int v = 0; v < N; ++v) {
      V s = vzero();
      for (Dim d = 0; d < j.d; ++d) s = vfma(vload(wt + d * N * W + v * W), vtanh(vload(qt + d * N * W + v * W) + vset(b.key(k, d))), s);
      vstore(st + k * N * W + v * W, s);
    }
}

RAPT_INLINE Real square_of(const Real* x, Dim n) {
  V s = vzero();
  for (Dim i = 0; i < n; i += W) {
    const V a = vload_n(x + i, n - i);
    s = vfma(a, a, s);
  }
  return vsum(s);
}

// Scores as they come from q.k (or additive) -> logits z, in natural units, in place: l2, scale, cap, bias; then kMasked where a lane does
// not see the key. slope_of_cap (backward): 1 - tanh^2. k2, q2, q2_kept: squares of keys and queries for l2.
template <int N>
static void to_logits(const Job& j, const Lanes& g, const Keys& b, const Sight<N>& s, const Real* k2, const Real* q2, const Real* q2_kept,
                      const Real* bias, Real* st, Real* slope_of_cap) {
  for (int v = 0; v < N; ++v)
    for (Dim k = s.from; k < s.upto[v]; ++k) {
      Real* at = st + k * N * W + v * W;
      const bool kept = k < s.keep;
      V z = vload(at);
      if (j.l2) z = (vset(Real(2)) * z - vset(k2[k])) - vload((kept ? q2_kept : q2) + v * W);
      z = z * vset(j.scale);
      if (j.cap > 0) {
        const V t = vtanh(z * vset(j.cap_inverse));
        z = t * vset(j.cap);
        if (slope_of_cap) vstore(slope_of_cap + k * N * W + v * W, vset(Real(1)) - t * t);
      }
      if (!b.slots) {
        if (j.alibi) z = z - vload(g.slope + v * W) * vabs(vload((kept ? g.kept : g.position) + v * W) - vset(Real(b.first + k)));
        if (j.table) z = z + vload(bias + k * N * W + v * W);
        if (!s.full(k, 1)) z = where_seen(g, v, b.first + k, kept, z, vset(kMasked));
      }
      vstore(at, z);
    }
}

RAPT_INLINE I drop_column(const Keys& b, Dim k) { return iset(b.slots ? 0xFFFFFFFFu - uint32_t(b.first + k) : uint32_t(b.first + k)); }

// ------------------------------------------------------------------------------------------------ decoding by splits
// The splits that some row of a part sees: those of the kept keys, then those from `first` on.
struct Splits {
  Dim kept, first, count;
};
RAPT_INLINE Splits splits_of(const Job& j, const AttentionPart& part) {
  Dim low = part.k_count, high = 0;
  for (Dim r = part.q_first; r < part.q_first + part.q_count; ++r) {
    low = least(low, j.s.low[r]);
    high = most(high, j.s.high[r]);
  }
  const Dim kept = ceil_div(least(j.keep, high), kSplit), first = most(kept, low / kSplit);
  return {kept, first, kept + most(0, ceil_div(high, kSplit) - first)};
}
// Results of one split: [pairs][padded] sums of values, then of each pair the largest logit (negative, in exponent units), the sum of
// weights, whether anything was seen, and its statistics (attention_decode_cpu.cc).
constexpr Dim kSplitNumbers = 10;
RAPT_INLINE Dim padded(Dim n) { return ceil_div(n, W) * W; }
RAPT_INLINE Dim split_reals(const Job& j, const AttentionPart& part) { return part.q_count * j.g * (padded(j.dv) + kSplitNumbers); }
// Common options only: the others keep queries in lanes at any number of rows.
RAPT_INLINE bool decodes(const Job& j, const AttentionArgs& a) {
  return a.work && !a.norm && !j.additive && !j.l2 && !j.sigmoid && j.drop == 0 && j.s.slots == 0;
}
RAPT_INLINE bool decodes(const Job& j, const AttentionPart& part) {
  return part.pages && part.q_count > 0 && part.q_count * j.g <= kAttentionFew;
}

}  // namespace

// attention_decode_cpu.cc: task [0, kv_heads * splits) of a part; the last one of a kv head merges its splits. work: split_reals() for
// each of [kv_heads][splits], behind one counter per kv head (each the size of a Real) that starts at zero.
void attention_decode(Queue& queue, int worker, const AttentionArgs& a, const AttentionPart& part, Dim task, void* work) noexcept;

}  // namespace rapt::RAPT_ISA
