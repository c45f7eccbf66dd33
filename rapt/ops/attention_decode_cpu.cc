// SPDX-License-Identifier: Apache-2.0
// Few queries against cached keys: a step of decoding. Here KEYS are the lanes of scores and channels the
// lanes of values, so one query fills a vector, and all heads of a kv head share one pass over its pages.
// Every sum is formed in the order of the tile with queries in lanes (attention_forward_cpu.cc), element by
// element: a score is one FMA chain over channels, weights are summed by key mod 4, a value is one FMA chain
// over the keys of a block. So the bits are those of a prompt read in one piece.
#include "rapt/ops/attention_tile.h"

namespace rapt::RAPT_ISA {
namespace {

// A register tile: up to kPairs queries times kWide vectors of keys or channels.
constexpr int kWide = kVectors, kPairs = 6;
constexpr bool in_blocks(DType f) { return f == DType::q8_0 || f == DType::q4_0; }
// Formats in blocks are widened in registers where 32 registers hold tile, scales and a wide enough vector,
// and once per page into L1 otherwise (also where more than one tile of queries would widen them again).
constexpr bool direct(DType f) { return !in_blocks(f) || RAPT_IS(avx512); }
constexpr int pairs_of(DType f) { return in_blocks(f) ? 4 : kPairs; }

RAPT_INLINE Real vfirst(V x) {
#if RAPT_IS(avx512)
  return _mm512_cvtss_f32(x);
#elif RAPT_IS(avx2)
  return _mm256_cvtss_f32(x);
#elif RAPT_IS(neon)
  return vgetq_lane_f32(x, 0);
#else
  return x;
#endif
}
RAPT_INLINE Real vlargest(V x) {
#if RAPT_IS(avx512)
  return _mm512_reduce_max_ps(x);
#elif RAPT_IS(avx2)
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
#elif RAPT_IS(neon)
  return vmaxvq_f32(x);
#else
  return x;
#endif
}
RAPT_INLINE Real exp2_of(Real x) { return vfirst(vexp2(vset(x))); }
RAPT_INLINE Real fma_of(Real a, Real b, Real c) { return vfirst(vfma(vset(a), vset(b), vset(c))); }

// Sums by key mod 4, in order of keys: four chains, whatever the vector.
#if RAPT_IS(avx512) || RAPT_IS(avx2)
struct FourSums {
  __m128 s = _mm_setzero_ps();
  [[gnu::always_inline]] void add(V x, Dim) {
#if RAPT_IS(avx512)
    s = _mm_add_ps(s, _mm512_castps512_ps128(x));
    s = _mm_add_ps(s, _mm512_extractf32x4_ps(x, 1));
    s = _mm_add_ps(s, _mm512_extractf32x4_ps(x, 2));
    s = _mm_add_ps(s, _mm512_extractf32x4_ps(x, 3));
#else
    s = _mm_add_ps(s, _mm256_castps256_ps128(x));
    s = _mm_add_ps(s, _mm256_extractf128_ps(x, 1));
#endif
  }
  [[gnu::always_inline]] Real all() const {
    const __m128 two = _mm_add_ps(s, _mm_movehdup_ps(s));  // 0 + 1, …, 2 + 3
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehl_ps(two, two)));
  }
};
#else
struct FourSums {
  Real s[4] = {};
  [[gnu::always_inline]] void add(V x, Dim key) {
    Real t[W];
    vstore(t, x);
    for (int i = 0; i < W; ++i) s[(key + i) & 3] += t[i];
  }
  [[gnu::always_inline]] Real all() const { return (s[0] + s[1]) + (s[2] + s[3]); }
};
#endif

// c[i][v] += sum over channels of q[i] times the keys of vector v
template <DType F, int H>
RAPT_INLINE void add_keys(V (&c)[H][kWide], const KvLayout& l, const std::byte* head, Dim first,
                          const Real* const* q, Dim channels) {
  auto add = [&](const V(&x)[kWide], Dim d) RAPT_LAMBDA {
    RAPT_UNROLL
    for (int i = 0; i < H; ++i) {
      const V s = vset(q[i][d]);
      RAPT_UNROLL
      for (int v = 0; v < kWide; ++v) c[i][v] = vfma(s, x[v], c[i][v]);
    }
  };
  if constexpr (in_blocks(F)) {
    for (Dim b = 0; b < channels; b += kQuantum) {
      V scale[kWide];
      RAPT_UNROLL
      for (int v = 0; v < kWide; ++v)
        scale[v] = vload_f16(key_scales_of(l, head) + b / kQuantum * kBlock + first + v * W);
      if constexpr (F == DType::q8_0) {
        for (Dim d = b; d < b + kQuantum; ++d) {
          V x[kWide];
          RAPT_UNROLL
          for (int v = 0; v < kWide; ++v)
            x[v] = vload_i8(reinterpret_cast<const int8_t*>(head) + d * kBlock + first + v * W) * scale[v];
          add(x, d);
        }
      } else {
        for (Dim d = b; d < b + kQuantum; d += 2) {
          V x[kWide], y[kWide];
          RAPT_UNROLL
          for (int v = 0; v < kWide; ++v) {
            vload_nibbles(reinterpret_cast<const uint8_t*>(head) + d / 2 * kBlock + first + v * W, x[v],
                          y[v]);
            x[v] = x[v] * scale[v];
            y[v] = y[v] * scale[v];
          }
          add(x, d);
          add(y, d + 1);
        }
      }
    }
  } else {
    for (Dim d = 0; d < channels; ++d) {
      V x[kWide];
      RAPT_UNROLL
      for (int v = 0; v < kWide; ++v) x[v] = vload_as<F>(head, d * kBlock + first + v * W);
      add(x, d);
    }
  }
}

// c[i][v] += sum over keys [k0, k1) of weight p[i] times channels first + v * W …; scales: of the page's
// values, widened
template <DType F, int H>
RAPT_INLINE void add_values(V (&c)[H][kWide], const std::byte* values, Dim dv, const Real* scales, Dim first,
                            const Real* p, Dim k0, Dim k1) {
  for (Dim k = k0; k < k1; ++k) {
    V x[kWide];
    const Dim at = k * dv + first;
    if constexpr (F == DType::q8_0) {
      RAPT_UNROLL
      for (int v = 0; v < kWide; ++v)
        x[v] = vload_i8(reinterpret_cast<const int8_t*>(values) + at + v * W) *
               vset(scales[at / kQuantum + v * W / kQuantum]);
    } else if constexpr (F == DType::q4_0) {
      static_assert(!direct(F) || (W == 16 && kWide % 2 == 0));
      RAPT_UNROLL
      for (int v = 0; v + 1 < kWide; v += 2) {
        const V s = vset(scales[at / kQuantum + v / 2]);
        vload_nibbles(reinterpret_cast<const uint8_t*>(values) + at / 2 + v * W / 2, x[v], x[v + 1]);
        x[v] = x[v] * s;
        x[v + 1] = x[v + 1] * s;
      }
    } else {
      RAPT_UNROLL
      for (int v = 0; v < kWide; ++v) x[v] = vload_as<F>(values, at + v * W);
    }
    RAPT_UNROLL
    for (int i = 0; i < H; ++i) {
      const V s = vset(p[i * kBlock + k]);
      RAPT_UNROLL
      for (int v = 0; v < kWide; ++v) c[i][v] = vfma(s, x[v], c[i][v]);
    }
  }
}

// What is summed up for statistics, relative to the running maximum like the sum itself; then the strongest
// key and its logit.
enum { kEntropy, kFirst, kSelf, kPrevious, kDistance, kSums, kStrongest = kSums, kMaxLogit, kStatNumbers };
static_assert(3 + kStatNumbers == kSplitNumbers);

// The queries of one sequence and kv head.
constexpr Dim kMostPairs = kAttentionFewShared;
struct Pairs {
  Dim count;
  const Real *q[kMostPairs], *q_kept[kMostPairs];            // [d]
  const Real *bias_q[kMostPairs], *kept_bias_q[kMostPairs];    // [bias channels]
  Dim low[kMostPairs], high[kMostPairs], row[kMostPairs], head[kMostPairs];
  Real m[kMostPairs], shift[kMostPairs], l[kMostPairs], alpha[kMostPairs];
  Real stats[kMostPairs][kStatNumbers];
};

struct SplitTask {  // one task: one split of one kv head
  const Arguments& arg;
  const AttentionPart& part;
  Dim kv, dvp;
  Pairs& x;
  // [pairs][64] twice; a page in Reals; [64][dv/32]; biases; [pairs][dvp]
  Real *st = nullptr, *kept_st = nullptr, *wide_k = nullptr, *wide_v = nullptr, *scales = nullptr,
       *relative = nullptr, *out = nullptr;
  bool empty = true, stats = false;
  Dim first_keys = 0;

  // f(H, first pair): pairs in even tiles of up to T
  template <int T, class F>
  [[gnu::always_inline]] void pair_tiles(const F& f) const {
    const Dim tiles_ = ceil_div(x.count, T), size = ceil_div(x.count, tiles_);
    for (Dim i = 0; i < x.count; i += size)
      static_for<1, T + 1>([&](auto H) RAPT_LAMBDA {
        if (least(size, x.count - i) == H) f(H, i);
      });
  }

  // Scores of the vectors of keys that touch [from, upto) -> to [pairs][64]
  template <DType F>
  __attribute__((noinline)) void scores(const std::byte* head, const Real* angles, bool kept, Dim from,
                                        Dim upto, Real* to) const {
    constexpr Dim step = Dim(kWide) * W;
    for (Dim first = from / step * step; first < upto; first += step)
      pair_tiles<pairs_of(F)>([&](auto size, Dim i) RAPT_LAMBDA {
        constexpr int H = decltype(size)::value;
        V c[H][kWide];
        clear(c);
        add_keys<F, H>(c, arg.shape.cache, head, first, (kept ? x.q_kept : x.q) + i, arg.d);
        if (angles)
          add_keys<kReal, H>(c, arg.shape.cache, reinterpret_cast<const std::byte*>(angles), first,
                             (kept ? x.kept_bias_q : x.bias_q) + i, arg.bias_channels);
        RAPT_UNROLL
        for (int h = 0; h < H; ++h) {
          RAPT_UNROLL
          for (int v = 0; v < kWide; ++v) vstore(to + (i + h) * kBlock + first + v * W, c[h][v]);
        }
      });
  }

  // Logit of W keys of one pair: as to_logits() of the tile.
  [[gnu::always_inline]] V logit(Dim i, Dim begin, Dim k, V z) const {
    const Dim row = x.row[i];
    z = z * vset(arg.scale);
    if (arg.cap > 0) z = vtanh(z * vset(arg.cap_inverse)) * vset(arg.cap);
    const V key = vset(Real(begin + k)) + viota();
    auto both = [&](V kept, V others)
                    RAPT_LAMBDA { return vselect(vlt(key, vset(Real(part.keep))), kept, others); };
    const bool some_kept = begin + k < part.keep;
    if (arg.alibi) {
      const V position = vset(Real(arg.shape.position[row]));
      z = z -
          vset(arg.slopes[x.head[i]]) *
              vabs((some_kept ? both(vset(Real(arg.shape.kept_position[row])), position) : position) - key);
    }
    if (arg.shape.bias == Bias::dense) {
      const Dim at =
          ((arg.shape.dense_heads == 1 ? 0 : x.head[i]) * arg.shape.rows + row) * arg.shape.dense_keys;
      z = z + vload_n(arg.dense + at + begin + k, arg.shape.dense_keys - begin - k);
    } else if (arg.table) {
      auto biases = [&](Dim position) RAPT_LAMBDA {
        return vload(relative + (x.head[i] - kv * arg.g) * relative_span(arg) +
                     least(arg.reach + 1, most(-arg.reach - kBlock, begin - position)) + arg.reach + kBlock +
                     k);
      };
      const V others = biases(arg.shape.position[row]);
      z = z + (some_kept ? both(biases(arg.shape.kept_position[row]), others) : others);
    }
    return z;
  }

  // Statistics of one pair and block, of scores that are masked already; as softmax_weights() and
  // position_stats() of the tile.
  __attribute__((noinline)) void add_stats(Dim i, Dim begin, Dim first, Dim upto, Real new_shift,
                                           Real alpha) const {
    const Real* const p = st + i * kBlock;
    Real* const s = x.stats[i];
    const Dim position = arg.shape.position[x.row[i]];
    V entropy = vzero(), distance = vzero();
    for (Dim k = first; k < upto; k += W) {
      const V t = vfma(vload(p + k), vset(arg.scale_log2), vset(new_shift)), e = vexp2(t);
      const V visible = vselect(vlt(vset(Real(k)) + viota(), vset(Real(upto))), e, vzero());
      entropy = vfma(visible, t, entropy);
      distance = vfma(visible, vabs(vset(Real(position - begin - k)) - viota()), distance);
    }
    auto weight = [&](Dim k) {
      return k >= first && k < upto ? exp2_of(fma_of(p[k], arg.scale_log2, new_shift)) : Real(0);
    };
    s[kEntropy] = alpha * (s[kEntropy] + (new_shift - x.shift[i]) * x.l[i]) + vsum(entropy);
    for (int n = kFirst; n < kSums; ++n) s[n] *= alpha;
    for (Dim k = first; k < upto && begin + k < first_keys; ++k) s[kFirst] += weight(k);
    s[kSelf] += weight(position - begin);
    s[kPrevious] += weight(position - begin - 1);
    s[kDistance] += vsum(distance);
  }

  // Weights in place of scores; alpha: the factor for what was summed before.
  __attribute__((noinline)) void weights(Dim begin, Dim from, Dim upto) const {
    const Dim first = from / W * W;
    const V c = vset(arg.scale_log2);
    for (Dim i = 0; i < x.count; ++i) {
      Real* const p = st + i * kBlock;
      const bool full = x.low[i] <= begin + first && begin + kBlock <= x.high[i];
      V maxima = vset(kMasked);
      for (Dim k = first; k < upto; k += W) {
        V z = vload(p + k);
        if (!arg.plain) z = logit(i, begin, k, z);
        if (!full) {
          const V key = vset(Real(begin + k)) + viota();
          z = vselect(vand(vlt(key, vset(Real(x.high[i]))),
                           vor(vle(vset(Real(x.low[i])), key), vlt(key, vset(Real(part.keep))))),
                      z, vset(kMasked));
        }
        if (!full || !arg.plain) vstore(p + k, z);
        maxima = vmax(maxima, z);
      }
      const Real block_max = vlargest(maxima), m = x.m[i] > block_max ? x.m[i] : block_max,
                 new_shift = (m > kFloor ? m : kFloor) * -arg.scale_log2;
      if (stats && block_max > x.m[i]) {
        Dim k = first;
        while (k + 1 < upto && p[k] != block_max) ++k;
        x.stats[i][kStrongest] = Real(begin + k);
      }
      x.m[i] = m;
      const Real alpha = exp2_of(new_shift - x.shift[i]);
      const V shift = vset(new_shift);
      FourSums sum;
      if (stats) add_stats(i, begin, first, upto, new_shift, alpha);  // before the scores become weights
      for (Dim k = first; k < upto; k += W) {
        const V e = vexp2(vfma(vload(p + k), c, shift));
        vstore(p + k, e);
        sum.add(e, k);
      }
      x.l[i] = fma_of(x.l[i], alpha, sum.all());
      x.shift[i] = new_shift;
      x.alpha[i] = alpha;
    }
  }

  template <DType F>
  __attribute__((noinline)) void values(const std::byte* at, Dim from, Dim upto) const {
    constexpr Dim step = Dim(kWide) * W;
    for (Dim first = 0; first < dvp; first += step)
      pair_tiles<pairs_of(F)>([&](auto size, Dim i) RAPT_LAMBDA {
        constexpr int H = decltype(size)::value;
        V c[H][kWide];
        clear(c);
        add_values<F, H>(c, at, arg.dv, scales, first, st + i * kBlock, from, upto);
        RAPT_UNROLL
        for (int h = 0; h < H; ++h) {
          RAPT_UNROLL
          for (int v = 0; v < kWide; ++v) {
            if (first + v * W >= dvp) continue;
            Real* o = out + (i + h) * dvp + first + v * W;
            vstore(o, empty ? c[h][v] : vfma(vload(o), vset(x.alpha[i + h]), c[h][v]));
          }
        }
      });
  }

  void block(Dim begin) {
    Dim from = kBlock, upto = 0;
    for (Dim i = 0; i < x.count; ++i) {
      const Dim low = begin < part.keep ? 0 : most(0, x.low[i] - begin),
                high = least(kBlock, x.high[i] - begin);
      if (low >= high) continue;
      from = least(from, low);
      upto = most(upto, high);
    }
    if (from >= upto) return;
    const KvLayout& layout = arg.shape.cache;
    const std::byte* head = head_of(layout, page_at(arg, part, begin), kv);
    const Real* angles = angles_at(arg, part, begin);
    with_format(layout.format, [&](auto format) {
      constexpr DType F = decltype(format)::value;
      const bool kept = arg.q_kept && begin < part.keep;
      auto all_scores = [&](auto as, const std::byte* keys) {
        constexpr DType G = decltype(as)::value;
        scores<G>(keys, angles, false, from, upto, st);
        if (!kept) return;
        scores<G>(keys, angles, true, from, upto, kept_st);
        for (Dim i = 0; i < x.count; ++i)
          for (Dim k = 0; k < least(kBlock, part.keep - begin); ++k)
            st[i * kBlock + k] = kept_st[i * kBlock + k];
      };
      const bool in_keys = layout.values_in_keys,
                 widen = in_blocks(F) && (!direct(F) || x.count > pairs_of(F) || in_keys);
      if constexpr (in_blocks(F)) {
        if (widen) {
          unpack_keys<F>(layout, head, wide_k);
          all_scores(Format<kReal>{}, reinterpret_cast<const std::byte*>(wide_k));
        }
      }
      if constexpr (direct(F))
        if (!widen) all_scores(Format<F>{}, head);
      weights(begin, from, upto);
      if (in_keys) {
        if constexpr (in_blocks(F))
          turn_values<kReal>(layout, reinterpret_cast<const std::byte*>(wide_k), from, upto, wide_v);
        else turn_values<F>(layout, head, from, upto, wide_v);
        values<kReal>(reinterpret_cast<const std::byte*>(wide_v), from, upto);
        return;
      }
      if constexpr (in_blocks(F)) {
        if (widen) {
          unpack_values<F>(layout, head, from, upto, wide_v);
          values<kReal>(reinterpret_cast<const std::byte*>(wide_v), from, upto);
        } else {
          const Dim n = layout.dv / kQuantum, end = upto * n;
          for (Dim i = from * n / W * W; i < end; i += W)
            vstore(scales + i, vload_f16(value_scales_of(layout, head) + i));
        }
      }
      if constexpr (direct(F))
        if (!widen) values<F>(head + layout.values, from, upto);
    });
    empty = false;
  }
};

// The splits of one kv head, in order, as end_split() and finish() of the tile.
static void merge_splits(const Arguments& arg, const AttentionArgs& a, const Pairs& x, Dim splits,
                         const Real* results, Dim reals) {
  const Dim dvp = padded(arg.dv);
  for (Dim i = 0; i < x.count; ++i) {
    Real shift = -kFloor * arg.scale_log2, l = 0;
    bool merged = arg.shape.extra != Extra::none, summed = false;
    if (merged) {
      shift = (arg.shape.extra == Extra::learned_logit ? arg.extra[x.head[i]] : Real(0)) * -kLog2e;
      l = 1;
    }
    Real* const out = static_cast<Real*>(a.out) + (x.row[i] * arg.heads + x.head[i]) * arg.dv;
    Real total[kStatNumbers] = {}, mass = 0;
    total[kMaxLogit] = kMasked;
    for (Dim s = 0; s < splits; ++s) {
      const Real *r = results + s * reals, *numbers = r + x.count * dvp + kSplitNumbers * i, *o = r + i * dvp;
      if (numbers[2] == 0) continue;
      const Real new_shift = shift < numbers[0] ? shift : numbers[0],
                 total_scale = exp2_of(new_shift - shift), split_scale = exp2_of(new_shift - numbers[0]);
      if (a.stats) {
        const Real* const n = numbers + 3;
        total[kEntropy] = total_scale * (total[kEntropy] + (new_shift - shift) * mass) +
                          split_scale * (n[kEntropy] + (new_shift - numbers[0]) * numbers[1]);
        for (int k = kFirst; k < kSums; ++k) total[k] = total[k] * total_scale + n[k] * split_scale;
        mass = mass * total_scale + numbers[1] * split_scale;
        if (n[kMaxLogit] > total[kMaxLogit])
          total[kMaxLogit] = n[kMaxLogit], total[kStrongest] = n[kStrongest];
      }
      shift = new_shift;
      l = fma_of(l, total_scale, numbers[1] * split_scale);
      for (Dim d = 0; d < arg.dv; d += W) {
        V y = vload(o + d);
        if (summed) y = vfma(vload_n(out + d, arg.dv - d), vset(total_scale), y * vset(split_scale));
        else if (merged) y = y * vset(split_scale);
        vstore_n(out + d, y, arg.dv - d);
      }
      summed = merged = true;
    }
    const V inverse = vset(Real(0) < l ? vfirst(vset(Real(1)) / vset(l)) : Real(0));
    for (Dim d = 0; d < arg.dv; d += W)
      vstore_n(out + d, summed ? vload_n(out + d, arg.dv - d) * inverse + vzero() : vzero(), arg.dv - d);
    if (!a.stats) continue;
    Real* const to = static_cast<Real*>(a.stats) + (x.row[i] * arg.heads + x.head[i]) * AttentionStat::count;
    set_reals(to, 0, AttentionStat::count);
    if (total[kMaxLogit] <= kMasked) continue;
    const Real f = vfirst(inverse), log_l = vfirst(vlog(vset(l > Real(1e-37) ? l : Real(1e-37))));
    to[AttentionStat::entropy] = (mass * log_l - kLn2 * total[kEntropy]) * f;
    to[AttentionStat::first] = total[kFirst] * f;
    to[AttentionStat::self] = total[kSelf] * f;
    to[AttentionStat::previous] = total[kPrevious] * f;
    to[AttentionStat::distance] = total[kDistance] * f;
    to[AttentionStat::strongest] = total[kStrongest];
    to[AttentionStat::max_logit] = total[kMaxLogit] * arg.unit;
    to[AttentionStat::sum] = mass * f;
  }
}

}  // namespace

void attention_decode(Queue& queue, int worker, const AttentionArgs& a, const AttentionPart& part, Dim task,
                      void* work) noexcept {
  const Arguments arg = arguments_of(a.shape);
  const Splits splits = splits_of(arg, part);
  const Dim count = most(1, splits.count), kv = task / count, at = task % count,
            reals = split_reals(arg, part), dvp = padded(arg.dv);
  Real *const results = static_cast<Real*>(work) + padded(arg.kv_heads) + kv * count * reals, *const result =
                                                                                                  results +
                                                                                                  at * reals;
  Pairs x;
  x.count = part.q_count * arg.g;
  const bool widens = in_blocks(arg.shape.cache.format) || arg.shape.values_in_keys;
  const Dim page = widens ? kBlock * (arg.d + arg.dv) + kWide * W : 0,
            scales = widens ? kBlock * arg.dv / kQuantum + W : 0,
            relative = arg.shape.bias == Bias::bucket ? arg.g * relative_span(arg) + W : 0;
  Real* memory = reinterpret_cast<Real*>(scratch_of(
      queue, worker,
      size_t(2 * x.count * (kBlock + arg.bias_channels) + page + scales + relative + W) * sizeof(Real)));
  if (!memory) return;
  SplitTask split{.arg = arg,
                  .part = part,
                  .kv = kv,
                  .dvp = dvp,
                  .x = x,
                  .st = memory,
                  .kept_st = memory + x.count * kBlock,
                  .out = result};
  split.wide_k = split.kept_st + x.count * kBlock;
  split.wide_v = split.wide_k + (widens ? kBlock * arg.d : 0);
  split.scales = split.wide_k + page;
  split.relative = split.scales + scales;
  Real* bias_q = split.relative + relative;
  fill_relative(arg, kv, split.relative);
  for (Dim i = 0; i < x.count; ++i) {
    x.row[i] = part.q_first + i / arg.g;
    x.head[i] = kv * arg.g + i % arg.g;
    const Dim q = (x.row[i] * arg.heads + x.head[i]) * arg.d;
    x.q[i] = arg.q + q;
    x.q_kept[i] = arg.q_kept ? arg.q_kept + q : x.q[i];
    x.bias_q[i] = x.kept_bias_q[i] = nullptr;
    if (arg.bias_channels) {
      fill_bias_channels(arg, kv, x.q[i], bias_q, 1);
      fill_bias_channels(arg, kv, x.q_kept[i], bias_q + arg.bias_channels, 1);
      x.bias_q[i] = bias_q;
      x.kept_bias_q[i] = bias_q + arg.bias_channels;
      bias_q += 2 * arg.bias_channels;
    }
    x.low[i] = arg.shape.low[x.row[i]];
    x.high[i] = arg.shape.high[x.row[i]];
    x.m[i] = kMasked;
    x.shift[i] = -kFloor * arg.scale_log2;
    x.l[i] = 0;
    for (Real& n : x.stats[i]) n = 0;
  }
  split.stats = a.stats != nullptr;
  split.first_keys = a.first_keys;
  if (splits.count > 0) {
    const Dim begin = (at < splits.kept ? at : splits.first + at - splits.kept) * kSplit;
    for (Dim kb = begin; kb < least(begin + kSplit, part.k_count); kb += kBlock) split.block(kb);
  }
  for (Dim i = 0; i < x.count; ++i) {
    Real* const numbers = result + x.count * dvp + kSplitNumbers * i;
    numbers[0] = x.shift[i];
    numbers[1] = x.l[i];
    numbers[2] = split.empty ? Real(0) : Real(1);
    x.stats[i][kMaxLogit] = x.m[i];
    for (int n = 0; n < kStatNumbers; ++n) numbers[3 + n] = x.stats[i][n];
  }
  // Whoever comes last merges: nobody waits, and the order of the sums is that of the splits.
  auto* counter = reinterpret_cast<int32_t*>(static_cast<Real*>(work) + kv);
  if (__atomic_add_fetch(counter, 1, __ATOMIC_ACQ_REL) == count)
    merge_splits(arg, a, x, count, results, reals);
}

}  // namespace rapt::RAPT_ISA
