// SPDX-License-Identifier: Apache-2.0
// Tiles of the quantized product: up to kTile rows of int8 activations times a panel of 32 outputs. Only
// linear_quant_cpu.cc includes it.
//
// The one float expression that decides the bits, per output and block of 32 (or 16) inputs, blocks
// ascending:
//   y = fma(real(sum of q * x), scale * d, y)  the sum is a whole number and exact, in any order, on any
//                                              instruction set
//   y = fma(minimum, d * real(sum of x), y)    formats with a minimum
// Every path below does exactly this, for one row as for many, so a row's bits depend on neither company nor
// instruction set.
// (AMX int8 tiles would compute the same sums: a line of a panel is a row of B. They belong here, beside
// tile().)
#pragma once
#include "rapt/ops/simd.h"
#include "rapt/tensor/panel_kind.h"

namespace rapt::RAPT_ISA {
namespace {

#if RAPT_IS(avx512)
// rows: 12 sums, 12 results, 2 lines of weights and an activation fit 32 registers
constexpr int kTile = 6;
constexpr int kColumns = 2;  // vectors of outputs
#elif RAPT_IS(avx2)
constexpr int kTile = 3;
constexpr int kColumns = 2;
#else
constexpr int kTile = 4;
constexpr int kColumns = 32;
#endif
constexpr int kPanel = 32;
constexpr int kStrip = kColumns * W;  // outputs of a tile

// Quantized rows, in tiles of kTile: per tile, block after block, `Block`, then per way of folding (below)
// two terms a row.
struct Block {
  int8_t q[kTile][32];
  Real d[kTile];  // x = d * q
};
// What the zero point or the minimum of a format asks of the activations: groups of 32 or 16; per group and
// row either -zero * sum of q (where the integer sum starts) or, for zero = 0, d * sum of q.
struct Fold {
  int groups, zero;
};
union Term {
  int32_t start;
  Real sum;
};
struct Terms {
  Term at[2][kTile];
};

// The kind that a tile is made for: where a block of a file has one level of scales, each 32 columns stand
// for themselves. Formats of one kind share their tiles.
template <DType F>
constexpr PanelKind tile_kind() {
  PanelKind k = panel_kind(F);
  if (!k.two_level) k.runs = 1;
  return k;
}

// Where a tile's numbers come from: a panel as stored, or `Open`: taken apart, one byte a number, scales
// as real.
template <PanelKind K>
struct Stored {
  static constexpr PanelKind kind = K;  // at compile time, and no other way
  static constexpr int kBits = kind.bits, kTop = kind.top, kGroups = kind.groups(), kBlocks = kind.blocks();
  static constexpr bool kMinimum = kind.minimum, kTwoLevel = kind.two_level, kOpen = false,
                        kTable = kind.table, kWide = kind.bf16_scale;
  static constexpr int kHead = kind.head(), kMinimumAt = kind.scales(), kPlaneAt = kind.plane_at(),
                       kQuantsAt = kind.quants_at(), kBlock = kind.block(), kScaleAt = kind.scale_at(0),
                       kScaleStep = kind.scale_at(1) - kind.scale_at(0), kStride = kind.stride();
};
template <int Top, int Groups, bool Minimum>
struct Open {
  static constexpr int kBits = 8, kTop = Top, kGroups = Groups, kBlocks = 1;
  static constexpr bool kMinimum = Minimum, kTwoLevel = false, kOpen = true, kTable = false, kWide = false;
  static constexpr int kHead = 0, kMinimumAt = Groups * kPanel * int(sizeof(Real)), kPlaneAt = 0,
                       kQuantsAt = kMinimumAt * (Minimum ? 2 : 1), kBlock = kQuantsAt + 1024, kScaleAt = 0,
                       kScaleStep = kBlock, kStride = kBlock;
};
template <PanelKind K>
using OpenOf = Open<RAPT_IS(avx2) ? K.top : 255, K.groups(), K.minimum>;

// What a format adds to its kind: the 16 numbers of a table, plus zero, and what d is multiplied by.
struct Meaning {
  uint8_t q[16];
  float unit;
};
template <DType F>
constexpr Meaning meaning_of() {
  Meaning m = {{}, unit_of(F)};
  for (int i = 0; i < 16; ++i)
    m.q[i] = uint8_t(panel_kind(F).table ? numbers_of(F).at[i] + panel_kind(F).zero : i);
  return m;
}

struct TileArgs {
  const uint8_t* w;    // a panel (or its open copy)
  const Meaning* meaning;
  Dim blocks;          // of 32 inputs
  const Block* x;      // of the tile
  const Terms* terms;  // of the tile
  // out: row r, output n at y[r * stride + n]; `left` outputs exist
  Real* y;
  const Real *bias, *residual;  // at the same place, or nullptr
  Real gain, scale;
  Dim stride, left;
  // Of the inputs: y starts at zero; gain, bias, scale and residual are applied. Else y is what the blocks
  // before came to.
  bool begin, end;
};

// ---------------------------------------------------------------------------------------------- vector sets
#if RAPT_IS(avx512) || RAPT_IS(avx2)
#if RAPT_IS(avx512)
RAPT_INLINE I iload_bytes(const void* p) { return _mm512_loadu_si512(p); }
RAPT_INLINE void istore_bytes(void* p, I x) { _mm512_storeu_si512(p, x); }
RAPT_INLINE I iset_words(int32_t x) { return _mm512_set1_epi32(x); }
RAPT_INLINE I table_at(const uint8_t* q) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q)));
}
RAPT_INLINE I looked_up(I table, I nibbles) { return _mm512_shuffle_epi8(table, nibbles); }
RAPT_INLINE I low_nibbles(I x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
RAPT_INLINE I high_nibbles(I x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }
RAPT_INLINE I add_fifth_bits(I x, const uint8_t* bits) {
  return _mm512_mask_add_epi8(x, _load_mask64(reinterpret_cast<__mmask64*>(const_cast<uint8_t*>(bits))), x,
                              _mm512_set1_epi8(16));
}
RAPT_INLINE V vload_i8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// Products of unsigned and signed bytes, summed in fours into the 32-bit lanes.
template <int Top, int Count>
struct Sum {
  I wide;
};
template <int Top, int Count>
RAPT_INLINE void start(Sum<Top, Count>& s, int32_t at) {
  s.wide = _mm512_set1_epi32(at);
}
template <int Top, int Count>
RAPT_INLINE void add(Sum<Top, Count>& s, int, I w, I x) {
  s.wide = _mm512_dpbusd_epi32(s.wide, w, x);
}
template <int Top, int Count>
RAPT_INLINE V real_of(const Sum<Top, Count>& s) {
  return _mm512_cvtepi32_ps(s.wide);
}
#else
RAPT_INLINE I iload_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
RAPT_INLINE void istore_bytes(void* p, I x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
RAPT_INLINE I iset_words(int32_t x) { return _mm256_set1_epi32(x); }
RAPT_INLINE I table_at(const uint8_t* q) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q)));
}
RAPT_INLINE I looked_up(I table, I nibbles) { return _mm256_shuffle_epi8(table, nibbles); }
RAPT_INLINE I low_nibbles(I x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
RAPT_INLINE I high_nibbles(I x) { return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15)); }
RAPT_INLINE I add_fifth_bits(I x, const uint8_t* bits) {
  int32_t four;
  __builtin_memcpy(&four, bits, 4);
  const I spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(four), _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2,
                                                2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  const I own = _mm256_set1_epi64x(int64_t(0x8040201008040201ull));
  return _mm256_or_si256(
      x, _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, own), own), _mm256_set1_epi8(16)));
}
RAPT_INLINE V vload_i8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
// vpmaddubsw adds two products in 16 bits and saturates beyond 32,767. Two products of numbers up to Top and
// +-127 are at most 254 * Top, so kFew of them fit: 8 for 15, 4 for 31, 2 for 63. Bytes up to 255 do not fit
// once: their sign goes to the activation, |q - 128| * 127 * 2 <= 32,512, and the sum is that of q - 128: it
// starts at 0.
template <int Top, int Count>  // Count: how many vectors are added in all
struct Sum {
  I wide, few;
};
template <int Top, int Count>
RAPT_INLINE void start(Sum<Top, Count>& s, int32_t at) {
  s.wide = _mm256_set1_epi32(Top > 128 ? 0 : at);
}
template <int Top, int Count>
RAPT_INLINE void add(Sum<Top, Count>& s, int i, I w, I x) {  // the i-th, from 0
  constexpr int kFew = 32767 / (254 * Top) > 0 ? 32767 / (254 * Top) : 1;
  I two;
  if constexpr (Top > 128) {
    const I q = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    two = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q));
  } else {
    two = _mm256_maddubs_epi16(w, x);
  }
  s.few = i % kFew == 0 ? two : _mm256_add_epi16(s.few, two);
  if (i % kFew == kFew - 1 || i == Count - 1)
    s.wide = _mm256_add_epi32(s.wide, _mm256_madd_epi16(s.few, _mm256_set1_epi16(1)));
}
template <int Top, int Count>
RAPT_INLINE V real_of(const Sum<Top, Count>& s) {
  return _mm256_cvtepi32_ps(s.wide);
}
#endif

// v counts the vectors of a panel from 0 (two tiles of AVX2 make a panel).
RAPT_INLINE V vload_half(const uint8_t* p) { return vload_f16(reinterpret_cast<const uint16_t*>(p)); }
template <class S>
struct Head {  // two-level formats
  V d[kColumns], low[kColumns];
};
template <class S>
RAPT_INLINE void read_head(const uint8_t* head, const Meaning& meaning, int first, Head<S>& s) {
  if constexpr (S::kTwoLevel)
    for (int v = 0; v < kColumns; ++v) {
      s.d[v] = vload_half(head + (first + v) * W * 2);
      if constexpr (S::kTable) s.d[v] = s.d[v] * vset(meaning.unit);
      if constexpr (S::kMinimum) s.low[v] = vzero() - vload_half(head + 64 + (first + v) * W * 2);
    }
}
// S::kTwoLevel: d is the head's vector.
template <class S>
RAPT_INLINE V factor_of(const uint8_t* from, V d, int group, int v) {
  const int at = group * kPanel + v * W;
  if constexpr (S::kOpen) return vload(reinterpret_cast<const Real*>(from) + at);
  else if constexpr (S::kTwoLevel) return d * vload_i8(from + at);
  else if constexpr (S::kWide) return vload_bf16(reinterpret_cast<const uint16_t*>(from) + at);
  else return vload_half(from + at * 2);
}
RAPT_INLINE I four_of(const Block& b, int row, int group) {
  int32_t four;
  __builtin_memcpy(&four, b.q[row] + group * 4, 4);
  return iset_words(four);
}

// Adds one group's part of a block to the results.
template <class S, int R, class Sums>
RAPT_INLINE void add_scaled(const uint8_t* scales, const Head<S>& head, const Block& x, const Terms& t,
                            int group, int first, const Sums (&sums)[R][kColumns], V (&y)[R][kColumns]) {
  for (int v = 0; v < kColumns; ++v) {
    const V scale = factor_of<S>(scales, head.d[v], group, first + v);
    for (int r = 0; r < R; ++r) y[r][v] = vfma(real_of(sums[r][v]), scale * vset(x.d[r]), y[r][v]);
  }
  if constexpr (S::kMinimum)
    for (int v = 0; v < kColumns; ++v) {
      const V minimum = factor_of<S>(scales + S::kMinimumAt, head.low[v], group, first + v);
      for (int r = 0; r < R; ++r) y[r][v] = vfma(minimum, vset(t.at[group][r].sum), y[r][v]);
    }
}

// How far ahead of its use a stored panel is asked for, bytes.
constexpr int kAhead = 4096;

template <class S, int R>
RAPT_INLINE void add_block(const uint8_t* scales, const uint8_t* block, const Head<S>& head, I table,
                           const Block& x, const Terms& t, int first, V (&y)[R][kColumns]) {
  const uint8_t* quants = block + S::kQuantsAt + first * W * 4;
  if constexpr (!S::kOpen)
    for (int line = 0; line < S::kBlock; line += 64 * (32 / kStrip))
      __builtin_prefetch(block + line + kAhead);
  if constexpr (S::kBits == 8) {
    constexpr int kLines = 8 / S::kGroups;
#pragma GCC unroll 2
    for (int g = 0; g < S::kGroups; ++g) {
      Sum<S::kTop, kLines> sums[R][kColumns];
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < kColumns; ++v) start(sums[r][v], S::kMinimum ? 0 : t.at[g][r].start);
#pragma GCC unroll 8
      for (int j = 0; j < kLines; ++j) {
        I w[kColumns];
        for (int v = 0; v < kColumns; ++v) w[v] = iload_bytes(quants + (g * kLines + j) * 128 + v * W * 4);
        for (int r = 0; r < R; ++r) {
          const I four = four_of(x, r, g * kLines + j);
          for (int v = 0; v < kColumns; ++v) add(sums[r][v], j, w[v], four);
        }
      }
      add_scaled<S>(scales, head, x, t, g, first, sums, y);
    }
  } else {
    // Low nibbles are groups 0-3, high nibbles 4-7: two sums where those have scales of their own, or to
    // shorten the chains of few rows.
    constexpr int kSums = S::kGroups == 2 || R <= 2 ? 2 : 1;
    Sum<S::kTop, 8 / kSums> sums[kSums][R][kColumns];
    for (int s = 0; s < kSums; ++s)
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < kColumns; ++v)
          start(sums[s][r][v], S::kMinimum || s >= S::kGroups ? 0 : t.at[s][r].start);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      I low[kColumns], high[kColumns];
      for (int v = 0; v < kColumns; ++v) {
        const I both = iload_bytes(quants + j * 128 + v * W * 4);
        low[v] = low_nibbles(both);
        high[v] = high_nibbles(both);
        if constexpr (S::kTable) low[v] = looked_up(table, low[v]), high[v] = looked_up(table, high[v]);
        if constexpr (S::kBits == 5) {
          const uint8_t* plane = block + S::kPlaneAt + j * 16 + (first + v) * (W / 2);
          low[v] = add_fifth_bits(low[v], plane);
          high[v] = add_fifth_bits(high[v], plane + 64);
        }
      }
      for (int r = 0; r < R; ++r) {
        const I four = four_of(x, r, j), late = four_of(x, r, j + 4);
        for (int v = 0; v < kColumns; ++v) add(sums[0][r][v], kSums == 1 ? 2 * j : j, low[v], four);
        for (int v = 0; v < kColumns; ++v)
          add(sums[kSums - 1][r][v], kSums == 1 ? 2 * j + 1 : j, high[v], late);
      }
    }
    if constexpr (S::kGroups == 1 && kSums == 2)
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < kColumns; ++v) sums[0][r][v].wide = iadd(sums[0][r][v].wide, sums[1][r][v].wide);
    for (int g = 0; g < S::kGroups; ++g) add_scaled<S>(scales, head, x, t, g, first, sums[g], y);
  }
}

template <class S, int R>
void tile(const TileArgs& a) {
  for (int strip = 0; strip < kPanel / kStrip; ++strip) {
    if (strip * kStrip >= a.left) break;
    V y[R][kColumns];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kColumns; ++v) {
        const Dim n = strip * kStrip + v * W;
        y[r][v] = a.begin || n >= a.left ? vzero() : vload_n(a.y + r * a.stride + n, a.left - n);
      }
    const uint8_t* w = a.w;
    const Block* x = a.x;
    const Terms* t = a.terms;
    I table = iset_words(0);
    if constexpr (S::kTable) table = table_at(a.meaning->q);
    for (Dim b = 0; b < a.blocks; b += S::kBlocks, w += S::kStride) {
      Head<S> head;
      read_head<S>(w, *a.meaning, strip * kColumns, head);
      const uint8_t *scales = w + S::kScaleAt, *block = w + S::kHead;
#pragma GCC unroll 1
      for (int n = 0; n < S::kBlocks; ++n, scales += S::kScaleStep, block += S::kBlock)
        add_block<S, R>(scales, block, head, table, *x++, *t++, strip * kColumns, y);
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kColumns; ++v) {
        const Dim n = strip * kStrip + v * W, left = a.left - n;
        if (left <= 0) break;
        V s = y[r][v];
        if (a.end) {
          s = s * vset(a.gain);
          if (a.bias) s = s + vload_n(a.bias + n, left);
          s = s * vset(a.scale);
          if (a.residual) s = vload_n(a.residual + r * a.stride + n, left) + s;
        }
        vstore_n(a.y + r * a.stride + n, s, left);
      }
  }
}

// A panel taken apart, once for many rows.
template <PanelKind K>
void open_panel(const uint8_t* w, const Meaning& meaning, Dim blocks, uint8_t* to) {
  using S = Stored<K>;
  using O = OpenOf<K>;
  for (Dim b = 0; b < blocks; b += S::kBlocks)
    for (int strip = 0; strip < kPanel / kStrip; ++strip) {
      Head<S> head;
      const int first = strip * kColumns;
      const uint8_t* from = w + b / S::kBlocks * S::kStride;
      read_head<S>(from, meaning, first, head);
      const uint8_t* stored = from + S::kScaleAt;
      from += S::kHead;
      I table = iset_words(0);
      if constexpr (S::kTable) table = table_at(meaning.q);
#pragma GCC unroll 1
      for (int n = 0; n < S::kBlocks; ++n, from += S::kBlock, stored += S::kScaleStep) {
        uint8_t* out = to + (b + n) * O::kBlock;
        Real* scales = reinterpret_cast<Real*>(out);
        for (int g = 0; g < S::kGroups; ++g)
          for (int v = 0; v < kColumns; ++v) {
            const int at = g * kPanel + (first + v) * W;
            vstore(scales + at, factor_of<S>(stored, head.d[v], g, first + v));
            if constexpr (S::kMinimum)
              vstore(scales + S::kGroups * kPanel + at,
                     factor_of<S>(stored + S::kMinimumAt, head.low[v], g, first + v));
          }
        for (int v = 0; v < kColumns; ++v) {
          const uint8_t* quants = from + S::kQuantsAt + (first + v) * W * 4;
          uint8_t* bytes = out + O::kQuantsAt + (first + v) * W * 4;
          if constexpr (S::kBits == 8) {
            for (int g = 0; g < 8; ++g) istore_bytes(bytes + g * 128, iload_bytes(quants + g * 128));
          } else {
            for (int j = 0; j < 4; ++j) {
              const I both = iload_bytes(quants + j * 128);
              I low = low_nibbles(both), high = high_nibbles(both);
              if constexpr (S::kTable) low = looked_up(table, low), high = looked_up(table, high);
              if constexpr (S::kBits == 5) {
                const uint8_t* plane = from + S::kPlaneAt + j * 16 + (first + v) * (W / 2);
                low = add_fifth_bits(low, plane);
                high = add_fifth_bits(high, plane + 64);
              }
              istore_bytes(bytes + j * 128, low);
              istore_bytes(bytes + (j + 4) * 128, high);
            }
          }
        }
      }
    }
}

// 32 numbers to d and q, with the sums of each 16 q. The largest magnitude is found among the bits, where a
// NaN is larger than any number: it goes into d, and so into every output of the row. Anything as small as
// kTiny is zero: its 127 / max would be infinite.
constexpr Real kTiny = Real(1e-30);
#if RAPT_IS(avx512)
RAPT_INLINE void quantize(const Real* x, int8_t* q, Real& d, int32_t (&sums)[2]) {
  const V a = vload(x), b = vload(x + 16);
  const I top = _mm512_max_epi32(_mm512_castps_si512(vabs(a)), _mm512_castps_si512(vabs(b)));
  const __m256i half = _mm256_max_epi32(_mm512_castsi512_si256(top), _mm512_extracti64x4_epi64(top, 1));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  const float most = _mm_cvtss_f32(_mm_castsi128_ps(m));
  const float inverse = most <= kTiny ? 0.0f : 127.0f / most;
  d = most <= kTiny ? 0.0f : most / 127.0f;
  const __m128i low = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a * vset(inverse)));
  const __m128i high = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(b * vset(inverse)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), high);
  // Sums of unsigned bytes: q + 128, less 16 * 128.
  const __m256i bytes = _mm256_xor_si256(_mm256_set_m128i(high, low), _mm256_set1_epi8(-128));
  const __m256i eights = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
  const __m256i pairs = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4e));
  sums[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(pairs)) - 16 * 128;
  sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(pairs, 1)) - 16 * 128;
}
#else
RAPT_INLINE void quantize(const Real* x, int8_t* q, Real& d, int32_t (&sums)[2]) {
  const V v[4] = {vload(x), vload(x + 8), vload(x + 16), vload(x + 24)};
  I top = _mm256_castps_si256(vabs(v[0]));
  for (int i = 1; i < 4; ++i) top = _mm256_max_epi32(top, _mm256_castps_si256(vabs(v[i])));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  const float most = _mm_cvtss_f32(_mm_castsi128_ps(m));
  const float inverse = most <= kTiny ? 0.0f : 127.0f / most;
  d = most <= kTiny ? 0.0f : most / 127.0f;
  I n[4];
  for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(v[i] * vset(inverse));
  // The packs work in halves; the last step puts the fours back in order.
  const I bytes = _mm256_permutevar8x32_epi32(
      _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3])),
      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  const I eights = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
  const I pairs = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4e));
  sums[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(pairs)) - 16 * 128;
  sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(pairs, 1)) - 16 * 128;
}
#endif

// ------------------------------------------------------------------------------------------------ plain
#else
RAPT_INLINE Real half_at(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return half_to_real(bits);
}
RAPT_INLINE Real wide_at(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return vload_bf16(&bits);
}
RAPT_INLINE Real fused(Real a, Real b, Real c) {
  return sizeof(Real) == 8 ? Real(fma(a, b, c)) : Real(fmaf(float(a), float(b), float(c)));
}

template <class S, int R>
void tile(const TileArgs& a) {
  static_assert(S::kOpen);
  Real y[R][kPanel] = {};
  const int count = int(least(kPanel, a.left));
  for (int r = 0; !a.begin && r < R; ++r)
    for (int n = 0; n < count; ++n) y[r][n] = a.y[r * a.stride + n];
  constexpr int kLines = 8 / S::kGroups;
  for (Dim b = 0; b < a.blocks; ++b) {
    const uint8_t* block = a.w + b * S::kBlock;
    const Real* scale = reinterpret_cast<const Real*>(block);
    const Real* minimum = reinterpret_cast<const Real*>(block + S::kMinimumAt);
    for (int g = 0; g < S::kGroups; ++g)
      for (int r = 0; r < R; ++r) {
        int32_t sums[kPanel];
        for (int n = 0; n < kPanel; ++n) sums[n] = S::kMinimum ? 0 : a.terms[b].at[g][r].start;
        for (int j = g * kLines; j < (g + 1) * kLines; ++j) {
          const uint8_t* w = block + S::kQuantsAt + j * 128;
          const int8_t* q = a.x[b].q[r] + j * 4;
          for (int n = 0; n < kPanel; ++n)
            sums[n] += w[4 * n] * q[0] + w[4 * n + 1] * q[1] + w[4 * n + 2] * q[2] + w[4 * n + 3] * q[3];
        }
        for (int n = 0; n < kPanel; ++n) {
          y[r][n] = fused(Real(sums[n]), scale[g * kPanel + n] * a.x[b].d[r], y[r][n]);
          if (S::kMinimum) y[r][n] = fused(minimum[g * kPanel + n], a.terms[b].at[g][r].sum, y[r][n]);
        }
      }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < count; ++n) {
      Real s = y[r][n];
      if (a.end) {
        s = s * a.gain;
        if (a.bias) s = s + a.bias[n];
        s = s * a.scale;
        if (a.residual) s = a.residual[r * a.stride + n] + s;
      }
      a.y[r * a.stride + n] = s;
    }
}

template <PanelKind K>
void open_panel(const uint8_t* w, const Meaning& meaning, Dim blocks, uint8_t* to) {
  using S = Stored<K>;
  using O = OpenOf<K>;
  for (Dim b = 0; b < blocks; ++b, to += O::kBlock) {
    const uint8_t* head = w + b / S::kBlocks * S::kStride;
    const uint8_t *block = head + S::kHead + b % S::kBlocks * S::kBlock, *quants = block + S::kQuantsAt,
                  *stored = head + S::kScaleAt + b % S::kBlocks * S::kScaleStep;
    Real* scales = reinterpret_cast<Real*>(to);
    for (int n = 0; n < kPanel; ++n)
      for (int g = 0; g < S::kGroups; ++g) {
        const int at = g * kPanel + n;
        scales[at] = S::kTwoLevel ? half_at(head + n * 2) * Real(meaning.unit) * Real(int8_t(stored[at]))
                     : S::kWide   ? wide_at(stored + at * 2)
                                  : half_at(stored + at * 2);
        if (S::kMinimum)
          scales[S::kGroups * kPanel + at] =
              S::kTwoLevel ? -(half_at(head + 64 + n * 2)) * Real(int8_t(block[S::kMinimumAt + at]))
                           : (half_at(block + S::kMinimumAt + at * 2));
      }
    for (int g = 0; g < 8; ++g)
      for (int i = 0; i < 128; ++i) {
        int q = S::kBits == 8 ? quants[g * 128 + i] : quants[g % 4 * 128 + i] >> g / 4 * 4 & 15;
        if (S::kBits == 5) q |= (block[S::kPlaneAt + g * 16 + i / 8] >> i % 8 & 1) << 4;
        to[O::kQuantsAt + g * 128 + i] = S::kTable ? meaning.q[q] : uint8_t(q);
      }
  }
}

constexpr Real kTiny = Real(1e-30);
RAPT_INLINE Real size_of_real(Real x) { return x < 0 ? -x : x; }
RAPT_INLINE void quantize(const Real* x, int8_t* q, Real& d, int32_t (&sums)[2]) {
  Real most = 0;
  for (int i = 0; i < 32; ++i) {
    const Real m = size_of_real(x[i]);
    if (!(m <= most)) most = m;
    if (most != most) break;
  }
  const Real inverse = most <= kTiny ? Real(0) : Real(127) / most;
  d = most <= kTiny ? Real(0) : most / Real(127);
  sums[0] = sums[1] = 0;
  for (int i = 0; i < 32; ++i) {
    const Real n = x[i] * inverse;  // a little over 127 at the most, unless x is infinite or NaN
    q[i] = size_of_real(n) < 128 ? int8_t(lrint(double(n))) : int8_t(0);
    sums[i / 16] += q[i];
  }
}
#endif

}  // namespace
}  // namespace rapt::RAPT_ISA
