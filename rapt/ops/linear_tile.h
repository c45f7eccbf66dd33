// SPDX-License-Identifier: Apache-2.0
// What the products of linear share (linear_cpu.cc, linear_bf16_cpu.cc): the tile, how work is cut, the ends
// of an output. Private to them. One tile does all three products, forward, dx and dW: rows of broadcasts
// times columns of vectors,
//   out[r][lane] = sum over d of a[r][d] * b[d][lane], one chain of fused multiply-adds per element, d
//                  ascending.
// Blocks of depth (512 inputs or outputs, 256 rows for dW) start a fresh chain and are added in order.
#pragma once
#include "rapt/ops/linear.h"
#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

// A tile is up to kRows x kCols accumulators: 12 x 2 of 32 registers; 6 x 2 of 16.
#if RAPT_IS(avx512)
constexpr int kRows = 12, kCols = 2, kWide = 4;
#elif RAPT_IS(avx2)
constexpr int kRows = 6, kCols = 2, kWide = 4;
#elif RAPT_IS(neon)
constexpr int kRows = 6, kCols = 4, kWide = 2;
#else
constexpr int kRows = 2, kCols = 16, kWide = 1;
#endif
constexpr int kPanel = 32;  // tensor/weight.h
constexpr int kStrip = kCols * W;  // outputs side by side in a tile
constexpr int kStrips = kPanel / kStrip;  // in a panel
constexpr Dim kDepth = 512;  // one chain of additions, forward and dx
constexpr Dim kBatch = 256;  // one chain of additions, dW
constexpr Dim kDirect = 8;  // up to here rows are read in place
// 4 rows and more, read in place: how many inputs ahead the weights are asked for; M = 8 and 2048 x 2048:
// 106 -> 116 GFLOP/s, 4096 x 4096: 86 -> 102. Fewer rows lose a third by it.
constexpr Dim kFetch = 96;
constexpr int kMostRows = kRows > kDirect ? kRows : int(kDirect);

RAPT_INLINE V load(const Real* p) { return vload(p); }
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
RAPT_INLINE V load(const Bf16* p) { return vload_bf16(&p->bits); }
RAPT_INLINE V load(const F16* p) { return vload_f16(&p->bits); }

// What a tile of copied rows asks for on the way, so that the next one finds it in the cache: from + d *
// step bytes. With that and its own place in out asked for at the start, M = 64 and 512 gain 2 % where W
// does not fit the cache.
struct Ahead {
  const char* from;
  Dim step;
};

// P strips at once (several for few rows, so that enough chains are in flight). RS, DS: strides of a, RS =
// 0: given by rs. The sums go to out, rows `os` apart, or are added to what is there.
template <int R, int P, int RS, int DS, class T>
void tile(const Real* a, Dim rs, const T* const* strips, Dim depth, Real* out, Dim os, bool add,
          Ahead ahead) {
  constexpr int kLine = 64;
  if (RS)
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kStrip; v += kLine / int(sizeof(Real))) __builtin_prefetch(out + r * os + v, 1);
  const Dim stride = RS ? RS : rs;
  const T* b[P];
  for (int p = 0; p < P; ++p) b[p] = strips[p];
  V acc[R][P * kCols];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < P * kCols; ++v) acc[r][v] = vzero();
  for (Dim d = 0; d < depth; ++d) {
    V w[P * kCols];
    for (int v = 0; v < P * kCols; ++v) w[v] = load(b[v / kCols] + d * kPanel + v % kCols * W);
    if (RS) __builtin_prefetch(ahead.from + d * ahead.step, 0, 2);
    if (!RS && R >= 4)
      for (int c = 0; c < P * kStrip; c += kLine / int(sizeof(T)))
        __builtin_prefetch(b[c / kStrip] + (d + kFetch) * kPanel + c % kStrip);
    for (int r = 0; r < R; ++r) {
      const V x = vset(a[r * stride + d * DS]);
      for (int v = 0; v < P * kCols; ++v) acc[r][v] = vfma(x, w[v], acc[r][v]);
    }
  }
  if (add)
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < P * kCols; ++v)
        vstore(out + r * os + v * W, vload(out + r * os + v * W) + acc[r][v]);
  else
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < P * kCols; ++v) vstore(out + r * os + v * W, acc[r][v]);
}

template <class T>
using Tile = void (*)(const Real* a, Dim rs, const T* const* strips, Dim depth, Real* out, Dim os, bool add,
                      Ahead ahead);

template <int RS, int DS, class T>
Tile<T> copied_tile(Dim rows) {
  switch (rows) {
    case 1: return tile<1, 1, RS, DS, T>;
    case 2: return tile<2, 1, RS, DS, T>;
#if !RAPT_IS(scalar) && !RAPT_IS(f64)
    case 3: return tile<3, 1, RS, DS, T>;
    case 4: return tile<4, 1, RS, DS, T>;
    case 5: return tile<5, 1, RS, DS, T>;
    case 6: return tile<6, 1, RS, DS, T>;
#endif
#if RAPT_IS(avx512)
    case 7: return tile<7, 1, RS, DS, T>;
    case 8: return tile<8, 1, RS, DS, T>;
    case 9: return tile<9, 1, RS, DS, T>;
    case 10: return tile<10, 1, RS, DS, T>;
    case 11: return tile<11, 1, RS, DS, T>;
    case 12: return tile<12, 1, RS, DS, T>;
#endif
    default: return nullptr;
  }
}

// [begin, end) of piece i when n is cut into `pieces` of nearly equal size.
struct Range {
  Dim begin, end;
};
RAPT_INLINE Range cut(Dim n, Dim pieces, Dim i) { return {n * i / pieces, n * (i + 1) / pieces}; }

// run(out, stride, add) gives the sums of a tile; they are added to `to` [rows][width, of which `left`
// exist] without touching what lies right of it.
template <class F>
RAPT_INLINE void add_tile(Real* to, Dim stride, Dim rows, Dim width, Dim left, bool add, const F& run) {
  if (width <= left) return run(to, stride, add);
  alignas(64) Real sums[kMostRows * kPanel * 4];
  run(sums, width, false);
  for (Dim r = 0; r < rows; ++r)
    for (Dim c = 0; c < left; c += W) {
      const V t = vload(sums + r * width + c);
      vstore_n(to + r * stride + c, add ? vload_n(to + r * stride + c, left - c) + t : t, left - c);
    }
}

// After the last block: bias, scale and residual.
void finish(const LinearPart& part, Dim row, Dim rows, Dim n, Dim width) {
  if (!part.bias && !part.residual && part.scale == 1) return;
  for (Dim r = row; r < row + rows; ++r)
    for (Dim c = n; c < least(n + width, part.n); c += W) {
      const Dim left = part.n - c;
      Real* y = static_cast<Real*>(part.y) + r * part.n + c;
      V t = vload_n(y, left);
      if (part.bias) t = t + vload_n(static_cast<const Real*>(part.bias) + c, left);
      t = t * vset(Real(part.scale));
      if (part.residual) t = vload_n(static_cast<const Real*>(part.residual) + r * part.n + c, left) + t;
      vstore_n(y, t, left);
    }
}

template <class T>
RAPT_INLINE const T* strip_at(const T* w, Dim k, Dim strip) {  // of a weight with k inputs
  return w + strip / kStrips * k * kPanel + strip % kStrips * kStrip;
}

// The outputs of all parts, one part after the other, in units of `width` (strips or panels).
template <class Args>
RAPT_INLINE Dim units_of(const Args& a, Dim width) {
  Dim units = 0;
  for (int p = 0; p < a.count; ++p) units += ceil_div(a.parts[p].n, width);
  return units;
}
// f(p, units of part p) for the units [begin, end) of all parts.
template <class Args, class F>
RAPT_INLINE void for_parts(const Args& a, Dim width, Range units, const F& f) {
  Dim first = 0;
  for (int p = 0; p < a.count; ++p) {
    const Dim count = ceil_div(a.parts[p].n, width);
    const Range mine = {most(units.begin, first) - first, least(units.end, first + count) - first};
    if (mine.begin < mine.end) f(p, mine);
    first += count;
  }
}

// How many pieces to cut n units of equal cost into, when the same is done `others` times: of at least
// `smallest` units, about `tasks` for each thread so that one that was held up does not hold up the others,
// and as many for one as for another.
RAPT_INLINE Dim pieces_for(Queue& queue, Dim n, Dim others, Dim smallest, Dim tasks) {
  const Dim threads = threads_of(queue);
  if (threads == 1) return 1;
  const Dim units = most(smallest, n * others / (tasks * threads));
  return least(n, ceil_div(ceil_div(n, units), threads) * threads);
}
// multiply-adds below which a task is not worth a thread's while: about a microsecond
constexpr Dim kWorth = 65536;

// dbias and dresidual of a range of panels and of at most kBatch rows: one chain of additions for dbias.
void vector_gradients(const LinearBackwardPart& part, Range panels, Range rows) {
  if (!part.dbias && !part.dresidual) return;
  for (Dim panel = panels.begin; panel < panels.end; ++panel) {
    V sums[kPanel / W];
    for (V& sum : sums) sum = vzero();
    for (Dim m = rows.begin; m < rows.end; ++m)
      for (int v = 0; v < kPanel / W; ++v) {
        const Dim n = panel * kPanel + v * W, left = part.n - n;
        if (left <= 0) break;
        const V g = vload_n(static_cast<const Real*>(part.dy) + m * part.n + n, left);
        sums[v] = sums[v] + g * vset(Real(part.scale));
        if (!part.dresidual) continue;
        Real* dr = static_cast<Real*>(part.dresidual) + m * part.n + n;
        vstore_n(dr, part.write_dresidual ? g : vload_n(dr, left) + g, left);
      }
    for (int v = 0; v < kPanel / W && part.dbias; ++v) {
      const Dim n = panel * kPanel + v * W, left = part.n - n;
      Real* db = static_cast<Real*>(part.dbias) + n;
      if (left > 0) vstore_n(db, vload_n(db, left) + sums[v], left);
    }
  }
}

// W x W elements, rows kPanel apart on both sides.
// rows: how many there are, the others count as zero
template <class T>
RAPT_INLINE void transpose_square(const T* from, Dim rows, Real* to) {
#if RAPT_IS(avx512)
  V a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = i < rows ? load(from + i * kPanel) : vzero();
  for (int i = 0; i < 16; i += 2) {  // pairs of rows, pairs of columns
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      const __m512d p = _mm512_castps_pd(b[i + j]), q = _mm512_castps_pd(b[i + j + 2]);
      a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, q));
      a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
    }
  // a[4g + c], quarter h: column 4h + c of rows 4g .. 4g + 3
  for (int c = 0; c < 4; ++c) {
    const V p = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88),
            q = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
    const V r = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xdd),
            s = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xdd);
    vstore(to + c * kPanel, _mm512_shuffle_f32x4(p, q, 0x88));
    vstore(to + (4 + c) * kPanel, _mm512_shuffle_f32x4(r, s, 0x88));
    vstore(to + (8 + c) * kPanel, _mm512_shuffle_f32x4(p, q, 0xdd));
    vstore(to + (12 + c) * kPanel, _mm512_shuffle_f32x4(r, s, 0xdd));
  }
#elif RAPT_IS(avx2)
  V a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = i < rows ? load(from + i * kPanel) : vzero();
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      const __m256d p = _mm256_castps_pd(b[i + j]), q = _mm256_castps_pd(b[i + j + 2]);
      a[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(p, q));
      a[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(p, q));
    }
  for (int c = 0; c < 4; ++c) {
    vstore(to + c * kPanel, _mm256_permute2f128_ps(a[c], a[4 + c], 0x20));
    vstore(to + (4 + c) * kPanel, _mm256_permute2f128_ps(a[c], a[4 + c], 0x31));
  }
#else
  for (int i = 0; i < W; ++i) {
    Real lanes[W];
    vstore(lanes, i < rows ? load(from + i * kPanel) : vzero());
    for (int j = 0; j < W; ++j) to[j * kPanel + i] = lanes[j];
  }
#endif
}

}  // namespace
}  // namespace rapt::RAPT_ISA
