// SPDX-License-Identifier: Apache-2.0
// What the forward and the backward of attention share: the inner loop, transposes, who sees which key, the
// logits' options.
// Private to attention's kernels. Few queries against cached keys: attention_decode_cpu.cc, with the same
// order of additions.
//
// A query is a LANE. The lanes of a query block are (row, head) pairs that share one kv head: pair i of a
// sequence is row i / g, head kv * g + i % g, with g = heads / kv_heads. K and V are read as scalars
// (broadcast loads) in their natural layout; maximum, sum, rescale and statistics are lane-wise, so there is
// no horizontal step, and what happens to a lane depends on its own row and on the keys' places in its
// sequence only. That is the whole proof that a row's bits do not depend on its company.
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

// Accumulators of a register tile. 32 registers: 6 x 4 + 4 operands + 1 broadcast; 16 registers: 6 x 2 + 2
// + 1.
#if RAPT_IS(avx512) || RAPT_IS(neon)
constexpr int kVectors = 4, kAccumulators = 24;
#elif RAPT_IS(avx2)
constexpr int kVectors = 2, kAccumulators = 12;
#else
constexpr int kVectors = 4, kAccumulators = 12;
#endif
constexpr int kLanes = kVectors * W;  // (row, head) pairs of a query block; divides kAttentionLanes
static_assert(kAttentionLanes % kLanes == 0);
constexpr int tile_of(int vectors) {
  return kAccumulators / vectors > 16 ? 16 : kAccumulators / vectors;
}  // fewer vectors: more broadcasts
// Keys, counted from the sequence's first: part of the definition of the result.
constexpr Dim kBlock = 64;
static_assert(kBlock == kPageKeys);  // a block never crosses a page
constexpr Dim kSplit = kAttentionSplit;  // likewise
constexpr Real kMasked = Real(-1e30);  // finite, so that 0 * (z - m) stays 0
// No maximum is below it: a lane that has seen nothing gives weights 2^(-9e29) = 0 and not 2^0.
constexpr Real kFloor = Real(-1e29);
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

// ------------------------------------------------------------------------------------------- the inner loop
// c[i][v] += sum over k of a[i*ai + k*ak] * b[k*lb + v*W], every element one FMA chain with k ascending, so
// an element's bits do not depend on the tile it was computed in. Vectors below V0 are left out (they see
// nothing here).
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

// ----------------------------------------------------------------------------------------------- transposes
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
    const __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 1]),
                  c = _mm512_castps_pd(t[4 * i + 2]), d = _mm512_castps_pd(t[4 * i + 3]);
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
// The way back: row[lane][d] = xt[d][lane] * factor[lane] + 0 (a negative zero becomes a zero); kAdd: onto
// what is there.
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
        for (int i = 0; i < W; ++i)
          r[i] = i < m ? vload(xt + (d + i) * N * W + v * W) * factor[v] + vzero() : vzero();
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
// Its arguments (AttentionShape): pointers to Reals, the options as flags, and the constants that follow
// from them.
struct Arguments {
  const AttentionShape& shape;
  const Real *q, *q_kept, *k, *v, *slot_k, *slot_v, *score_weight, *extra, *slopes, *buckets, *dense,
      *key_bias;
  Dim heads, kv_heads, g, d, dv, reach;
  Dim bias_channels;  // a key has them besides its d where its bias is not stored (KvBias); 0: none
  bool plain;    // softmax of scale * q.k: no pass over the logits
  bool sigmoid, additive, l2, table, alibi;
  // The exponent is logit * scale_log2, the natural logit is logit * unit, with `logit` as it stands in
  // the block.
  Real scale_log2, unit;
  Real scale, cap, cap_inverse, dropout;
};
RAPT_INLINE const Real* real(const void* p) { return static_cast<const Real*>(p); }
// plain_allowed: false where a later pass needs natural logits anyway.
RAPT_INLINE Arguments arguments_of(const AttentionShape& s, bool plain_allowed = true) {
  const bool plain = plain_allowed && s.score == Score::dot && s.normal == Normal::softmax && s.cap == 0 &&
                     s.bias == Bias::none && s.scale > 1e-6;
  return {.shape = s,
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
          .reach = s.bucket_reach,
          .bias_channels = s.key_bias ? s.bias_rows : 0,
          .plain = plain,
          .sigmoid = s.normal == Normal::sigmoid,
          .additive = s.score == Score::additive,
          .l2 = s.score == Score::l2,
          .table = s.bias == Bias::bucket || s.bias == Bias::dense,
          .alibi = s.bias == Bias::alibi,
          .scale_log2 = plain ? Real(s.scale) * kLog2e : kLog2e,
          .unit = plain ? Real(s.scale) : Real(1),
          .scale = Real(s.scale),
          .cap = Real(s.cap),
          .cap_inverse = s.cap > 0 ? Real(1 / s.cap) : Real(0),
          .dropout = Real(s.dropout)};
}

// A query's numbers for the channels that every kv head's keys share (KvBias): to[0], to[stride], …
RAPT_INLINE void fill_bias_channels(const Arguments& arg, Dim kv, const Real* q, Real* to, Dim stride) {
  const Real* b = arg.key_bias + kv * arg.d;
  const Dim half = arg.shape.bias_half;
  for (Dim i = 0; i < half; ++i) {
    const Dim x = arg.shape.bias_neighbours ? 2 * i : i, y = arg.shape.bias_neighbours ? 2 * i + 1 : i + half;
    to[i * stride] = q[x] * b[x] + q[y] * b[y];
    to[(half + i) * stride] = q[y] * b[x] - q[x] * b[y];
  }
  if (arg.bias_channels == 2 * half) return;
  Real still = 0;
  for (Dim i = 2 * half; i < arg.d; ++i) still += q[i] * b[i];
  to[2 * half * stride] = still;
}

// A key block: up to 64 keys and values of one sequence (or of the learned slots) for one kv head.
struct KeyBlock {
  const Real *k, *v;
  Dim k_stride, v_stride;
  Dim first, n;  // first: its place in the sequence
  bool slots;
  bool transposed = false;  // k [d][64]: k_stride is 1
  const Real* angles = nullptr;  // bias channels [bias_channels][64]: cosines, sines of the keys

  [[gnu::always_inline]] Real key(Dim i, Dim channel) const {
    return transposed ? k[channel * kBlock + i] : k[i * k_stride + channel];
  }
};
RAPT_INLINE const std::byte* page_at(const Arguments& arg, const AttentionPart& part, Dim key) {
  return page_of(arg.shape.slab, arg.shape.page_stride, part.pages[key / kBlock]);
}
RAPT_INLINE const Real* angles_at(const Arguments& arg, const AttentionPart& part, Dim key) {
  if (!arg.bias_channels) return nullptr;
  return reinterpret_cast<const Real*>(
      page_of(arg.shape.angle_slab, arg.shape.angle_stride, part.angles[key / kBlock]));
}
// Values in keys: keys [first, end) of [d][64] -> their first dv channels as [64][dv], widened.
template <DType F>
static void turn_values(const KvLayout& l, const std::byte* keys, Dim first, Dim end, Real* to) {
  for (Dim k = first / W * W; k < end; k += W)
    for (Dim d = 0; d < l.dv; d += W) {
      const Dim m = least(W, l.dv - d);
      V r[W];
      if (m == W) {
        RAPT_UNROLL
        for (int i = 0; i < W; ++i) r[i] = vload_as<F>(keys, (d + i) * kBlock + k);
      } else {
        for (int i = 0; i < W; ++i) r[i] = i < m ? vload_as<F>(keys, (d + i) * kBlock + k) : vzero();
      }
      transpose(r);
      if (m == W) {
        RAPT_UNROLL
        for (int i = 0; i < W; ++i) vstore(to + (k + i) * l.dv + d, r[i]);
      } else {
        for (int i = 0; i < W; ++i) vstore_n(to + (k + i) * l.dv + d, r[i], m);
      }
    }
}
// k_memory [64 d] and v_memory [64 dv + W]: for keys of a cache that is not made of Reals, and for values in
// keys. v_memory nullptr: nobody reads the values.
RAPT_INLINE KeyBlock find_key_block(const Arguments& arg, const AttentionPart& part, Dim kv, Dim first, Dim n,
                                    bool slots, Real* k_memory, Real* v_memory) {
  if (slots)
    return {arg.slot_k + (first * arg.kv_heads + kv) * arg.d,
            arg.slot_v + (first * arg.kv_heads + kv) * arg.dv,
            arg.kv_heads * arg.d,
            arg.kv_heads * arg.dv,
            first,
            n,
            true};
  if (part.pages) {
    const KvLayout& l = arg.shape.cache;
    const std::byte* head = head_of(l, page_at(arg, part, first), kv);
    const Real* angles = angles_at(arg, part, first);
    if (l.values_in_keys) {
      const Real* keys = reinterpret_cast<const Real*>(head);
      if (l.format != kReal) {
        with_format(l.format, [&](auto format) { unpack_keys<decltype(format)::value>(l, head, k_memory); });
        keys = k_memory;
      }
      if (v_memory) turn_values<kReal>(l, reinterpret_cast<const std::byte*>(keys), 0, n, v_memory);
      return {keys, v_memory, 1, arg.dv, first, n, false, true, angles};
    }
    if (l.format == kReal)
      return {reinterpret_cast<const Real*>(head),
              reinterpret_cast<const Real*>(head + l.values),
              1,
              arg.dv,
              first,
              n,
              false,
              true,
              angles};
    with_format(l.format, [&](auto format) {
      unpack_keys<decltype(format)::value>(l, head, k_memory);
      if (v_memory) unpack_values<decltype(format)::value>(l, head, 0, n, v_memory);
    });
    return {k_memory, v_memory, 1, arg.dv, first, n, false, true, angles};
  }
  const Dim row = (part.k_first + first) * arg.kv_heads + kv;
  const bool in_keys = arg.shape.values_in_keys;
  return {arg.k + row * arg.d,
          in_keys ? arg.k + row * arg.d : arg.v + row * arg.dv,
          arg.kv_heads * arg.d,
          arg.kv_heads * (in_keys ? arg.d : arg.dv),
          first,
          n,
          false};
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
// Rows of d elements at `stride` into rows at `padded` >= d, zeros behind. Rows of one head lie a power of
// two apart, which a small cache maps onto few sets: copied once per task, they are read from L1 by every
// query block.
RAPT_INLINE void pack_rows(Real* to, Dim padded, const Real* from, Dim stride, Dim d, Dim rows) {
  for (Dim r = 0; r < rows; ++r) {
    copy_reals(to + r * padded, from + r * stride, d);
    for (Dim i = d; i < padded; ++i) to[r * padded + i] = 0;
  }
}

// ---------------------------------------------------------------------------------- lanes and what they see
struct Lanes {
  Dim count, kv;  // pairs; the lanes behind them repeat the last one's view
  Dim keep;       // of their sequence
  alignas(64) Real low[kLanes], high[kLanes];  // keys [low, high)
  alignas(64) Real position[kLanes], kept_position[kLanes];  // kept_position: towards keys below `keep`
  alignas(64) Real slope[kLanes];
  alignas(64) uint32_t key[kLanes];  // for dropout
  int32_t row[kLanes], head[kLanes];
  Dim low_min[kVectors], low_max[kVectors], high_min[kVectors], high_max[kVectors], position_min[kVectors],
      position_max[kVectors];
  bool sees_later[kVectors];  // some lane sees keys after its own position
};

RAPT_INLINE void find_lanes(const Arguments& arg, const AttentionPart& part, Dim kv, Dim first, Dim count,
                            int vectors, Lanes& lanes) {
  lanes.count = count;
  lanes.kv = kv;
  lanes.keep = part.keep;
  Dim row = part.q_first + first / arg.g, h = first % arg.g;
  for (int i = 0; i < vectors * W; ++i) {
    lanes.row[i] = int32_t(row);
    lanes.head[i] = int32_t(kv * arg.g + h);
    lanes.low[i] = Real(arg.shape.low[row]);
    lanes.high[i] = Real(arg.shape.high[row]);
    lanes.position[i] = Real(arg.shape.position[row]);
    if (part.keep > 0) lanes.kept_position[i] = Real(arg.shape.kept_position[row]);
    if (arg.alibi) lanes.slope[i] = arg.slopes[kv * arg.g + h];
    if (i + 1 < count && ++h == arg.g) {
      h = 0;
      ++row;
    }
  }
  if (arg.dropout > 0)
    for (int v = 0; v < vectors; ++v)
      for (int i = v * W; i < (v + 1) * W; ++i) {
        // A row's key, mixed with the head.
        uint32_t x = arg.shape.row_keys[lanes.row[i]] + uint32_t(lanes.head[i] + 1) * 0x9E3779B9u;
        x = (x ^ x >> 16) * 0x85EBCA6Bu;
        lanes.key[i] = (x ^ x >> 13) * 0xC2B2AE35u;
      }
  for (int v = 0; v < vectors; ++v) {
    Real a = lanes.low[v * W], b = a, c = lanes.high[v * W], d = c, e = lanes.position[v * W], f = e;
    lanes.sees_later[v] = false;
    for (int i = v * W; i < (v + 1) * W; ++i)
      lanes.sees_later[v] = lanes.sees_later[v] || lanes.high[i] > lanes.position[i] + 1;
    for (int i = v * W + 1; i < (v + 1) * W; ++i) {
      a = lanes.low[i] < a ? lanes.low[i] : a;
      b = lanes.low[i] > b ? lanes.low[i] : b;
      c = lanes.high[i] < c ? lanes.high[i] : c;
      d = lanes.high[i] > d ? lanes.high[i] : d;
      e = lanes.position[i] < e ? lanes.position[i] : e;
      f = lanes.position[i] > f ? lanes.position[i] : f;
    }
    lanes.low_min[v] = Dim(a), lanes.low_max[v] = Dim(b), lanes.high_min[v] = Dim(c),
    lanes.high_max[v] = Dim(d), lanes.position_min[v] = Dim(e), lanes.position_max[v] = Dim(f);
  }
}

// The interval of a key block that a query block sees, in keys counted from the block's first.
template <int N>
struct VisibleKeys {
  Dim from;  // nobody sees a key before it; a multiple of 4 (sums go by key mod 4)
  Dim upto[N];  // vector v sees none from here on; ascending in v
  Dim full_from, full_upto;  // keys that all lanes see, as well as those below `keep` and full_upto
  Dim keep;  // keys below it are kept ones
  bool full(Dim k, Dim m) const { return (k >= full_from || k + m <= keep) && k + m <= full_upto; }
};
template <int N>
RAPT_INLINE bool find_visible(const Lanes& lanes, const KeyBlock& b, VisibleKeys<N>& vis) {
  if (b.slots) {
    vis.from = vis.full_from = vis.keep = 0;
    vis.full_upto = b.n;
    for (int v = 0; v < N; ++v) vis.upto[v] = b.n;
    return true;
  }
  vis.keep = most(0, least(b.n, lanes.keep - b.first));
  vis.from = b.n;
  vis.full_from = 0;
  vis.full_upto = b.n;
  Dim above = 0;
  for (int v = 0; v < N; ++v) {
    const Dim low = lanes.low_min[v] - b.first, high = least(b.n, lanes.high_max[v] - b.first);
    Dim upto = low < high ? high : 0;
    if (vis.keep > 0) upto = most(upto, least(vis.keep, high));
    if (upto > 0) vis.from = least(vis.from, vis.keep > 0 ? 0 : most(0, low));
    above = most(above, upto);
    vis.upto[v] = above;
    vis.full_from = most(vis.full_from, lanes.low_max[v] - b.first);
    vis.full_upto = least(vis.full_upto, lanes.high_min[v] - b.first);
  }
  vis.from &= ~Dim(3);
  return above > 0;
}
// x where the lane sees the key, else `other`.
RAPT_INLINE V where_visible(const Lanes& lanes, int v, Dim key, bool kept, V x, V other) {
  const V k = vset(Real(key));
  const V r = vselect(vlt(k, vload(lanes.high + v * W)), x, other);
  return kept ? r : vselect(vle(vload(lanes.low + v * W), k), r, other);
}
template <int N>
RAPT_INLINE int first_vector(const VisibleKeys<N>& vis, Dim k) {
  int v = 0;
  while (v < N - 1 && vis.upto[v] <= k) ++v;
  return v;
}

// c[i][v] += sum over the visible keys of rows[key][i] * wt[key][v]: weights times values (O, forward), dS
// times keys (dQ, backward).
template <int M_, int N>
RAPT_INLINE void accumulate_visible(V (&c)[M_][N], const VisibleKeys<N>& vis, const Real* rows, Dim stride,
                                    const Real* wt) {
  Dim k = vis.from;
  static_for<0, N>([&](auto V0) RAPT_LAMBDA {
    if (vis.upto[V0] > k) {
      accumulate<V0.value>(c, rows + k * stride, 1, stride, wt + k * N * W, N * W, vis.upto[V0] - k);
      k = vis.upto[V0];
    }
  });
}

// -------------------------------------------------------------------------------------- logits with options
// The bias of every relative position for the heads of one kv head: [g][span]; entry i stands for key -
// position = i - 64 - reach. The ends repeat, so that the 64 biases of a lane and a block are neighbours
// wherever the block lies.
RAPT_INLINE Dim relative_span(const Arguments& arg) { return 2 * arg.reach + 1 + 2 * kBlock; }
RAPT_INLINE void fill_relative(const Arguments& arg, Dim kv, Real* to) {
  if (arg.shape.bias != Bias::bucket) return;
  const Dim span = relative_span(arg);
  for (Dim h = 0; h < arg.g; ++h)
    for (Dim i = 0; i < span; ++i)
      to[h * span + i] =
          arg.buckets[Dim(arg.shape.bucket_of[least(2 * arg.reach, most(0, i - kBlock))]) * arg.heads +
                      kv * arg.g + h];
}
// Biases of keys [k0, k1) of a block, a lane per query: bias [64][N*W].
template <int N>
static void fill_bias(const Arguments& arg, const Lanes& lanes, const KeyBlock& b, Dim k0, Dim k1, bool kept,
                      const Real* relative, Real* bias) {
  if (k0 >= k1) return;
  const Real* row[kLanes];
  for (Dim i = 0; i < lanes.count; ++i) {
    if (arg.shape.bias == Bias::dense) {
      row[i] = arg.dense +
               ((arg.shape.dense_heads == 1 ? 0 : Dim(lanes.head[i])) * arg.shape.rows + lanes.row[i]) *
                   arg.shape.dense_keys +
               b.first + k0;
    } else {
      const Dim distance = b.first + k0 - Dim(kept ? lanes.kept_position[i] : lanes.position[i]);
      row[i] = relative + (lanes.head[i] - lanes.kv * arg.g) * relative_span(arg) +
               least(arg.reach + 1, most(-arg.reach - kBlock, distance)) + arg.reach + kBlock;
    }
  }
  to_lanes<N>(row, lanes.count, k1 - k0, bias + k0 * N * W);
}

// Additive scores: st[key][lane] = sum over d of w[d] tanh(q[d] + k[d]); one chain over d.
template <int N>
static void additive_scores(const Arguments& arg, const KeyBlock& b, Dim k0, Dim k1, const Real* qt,
                            const Real* wt, Real* st) {
  for (Dim k = k0; k < k1; ++k)
    for (int v = 0; v < N; ++v) {
      V s = vzero();
      for (Dim d = 0; d < arg.d; ++d)
        s = vfma(vload(wt + d * N * W + v * W), vtanh(vload(qt + d * N * W + v * W) + vset(b.key(k, d))), s);
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

// Scores as they come from q.k (or additive) -> logits z, in natural units, in place: l2, scale, cap, bias;
// then kMasked where a lane does not see the key. slope_of_cap (backward): 1 - tanh^2. k2, q2, q2_kept:
// squares of keys and queries for l2.
template <int N>
static void to_logits(const Arguments& arg, const Lanes& lanes, const KeyBlock& b, const VisibleKeys<N>& vis,
                      const Real* k2, const Real* q2, const Real* q2_kept, const Real* bias, Real* st,
                      Real* slope_of_cap) {
  for (int v = 0; v < N; ++v)
    for (Dim k = vis.from; k < vis.upto[v]; ++k) {
      Real* at = st + k * N * W + v * W;
      const bool kept = k < vis.keep;
      V z = vload(at);
      if (arg.l2) z = (vset(Real(2)) * z - vset(k2[k])) - vload((kept ? q2_kept : q2) + v * W);
      z = z * vset(arg.scale);
      if (arg.cap > 0) {
        const V t = vtanh(z * vset(arg.cap_inverse));
        z = t * vset(arg.cap);
        if (slope_of_cap) vstore(slope_of_cap + k * N * W + v * W, vset(Real(1)) - t * t);
      }
      if (!b.slots) {
        if (arg.alibi)
          z = z -
              vload(lanes.slope + v * W) * vabs(vload((kept ? lanes.kept_position : lanes.position) + v * W) -
                                                vset(Real(b.first + k)));
        if (arg.table) z = z + vload(bias + k * N * W + v * W);
        if (!vis.full(k, 1)) z = where_visible(lanes, v, b.first + k, kept, z, vset(kMasked));
      }
      vstore(at, z);
    }
}

RAPT_INLINE I drop_column(const KeyBlock& b, Dim k) {
  return iset(b.slots ? 0xFFFFFFFFu - uint32_t(b.first + k) : uint32_t(b.first + k));
}

// --------------------------------------------------------------------------------------- decoding by splits
// The splits that some row of a part sees: those of the kept keys, then those from `first` on.
struct Splits {
  Dim kept, first, count;
};
RAPT_INLINE Splits splits_of(const Arguments& arg, const AttentionPart& part) {
  Dim low = part.k_count, high = 0;
  for (Dim r = part.q_first; r < part.q_first + part.q_count; ++r) {
    low = least(low, arg.shape.low[r]);
    high = most(high, arg.shape.high[r]);
  }
  const Dim kept = ceil_div(least(part.keep, high), kSplit), first = most(kept, low / kSplit);
  return {kept, first, kept + most(0, ceil_div(high, kSplit) - first)};
}
// Results of one split: the accumulators [pairs][padded], then of each pair its shift (-m in exponent
// units), the sum of weights l, whether anything was seen, and its statistics (attention_decode_cpu.cc).
constexpr Dim kSplitNumbers = 10;
RAPT_INLINE Dim padded(Dim n) { return ceil_div(n, W) * W; }
RAPT_INLINE Dim split_reals(const Arguments& arg, const AttentionPart& part) {
  return part.q_count * arg.g * (padded(arg.dv) + kSplitNumbers);
}
// Common options only: the others keep queries in lanes at any number of rows.
RAPT_INLINE bool decodes(const Arguments& arg, const AttentionArgs& a) {
  return a.work && !a.lse && !arg.additive && !arg.l2 && !arg.sigmoid && arg.dropout == 0 &&
         arg.shape.slots == 0;
}
RAPT_INLINE bool decodes(const Arguments& arg, const AttentionPart& part) {
  return part.pages && part.q_count > 0 && part.q_count * arg.g <= arg.shape.few;
}

}  // namespace

// attention_decode_cpu.cc: task [0, kv_heads * splits) of a part; the last one of a kv head merges its
// splits. work: split_reals() for each of [kv_heads][splits], behind one counter per kv head (each the size
// of a Real) that starts at zero.
void attention_decode(Queue& queue, int worker, const AttentionArgs& a, const AttentionPart& part, Dim task,
                      void* work) noexcept;

}  // namespace rapt::RAPT_ISA
