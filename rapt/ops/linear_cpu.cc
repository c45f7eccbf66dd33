// SPDX-License-Identifier: Apache-2.0
// y = x W^T and its backward. One tile does all three products: rows of broadcasts times columns of vectors,
//   out[r][lane] = sum over d of a[r][d] * b[d][lane], one chain of fused multiply-adds per element, d ascending.
//              rows   lanes  depth          a                                  b
//   forward    m      n      k, by 512      x, in place or copied              a panel of W as it lies in memory
//   dx         m      k      n, by 512      dy, copied                         32 x 32 blocks of W, transposed into scratch
//   dW         k      n      m, by 256      x, 96 columns of it copied         dy, 32 columns of it copied and scaled
// Blocks of depth start a fresh chain and are added in order, so bits depend on neither the number of rows nor the cuts below.
// The copies exist because rows whose distance is a power of two fall into the same few cache sets, and because a distance known
// to the compiler saves eleven pointers; they cost one move per element for 2 x (columns of vectors) multiply-adds.
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
constexpr int kPanel = 32;                     // tensor/weight.h
constexpr int kStrip = kCols * W;              // outputs side by side in a tile
constexpr int kStrips = kPanel / kStrip;       // in a panel
constexpr Dim kDepth = 512;                    // one chain of additions, forward and dx
constexpr int kDepthStride = kDepth + 16;      // of copied rows: an odd number of cache lines
constexpr Dim kBatch = 256;                    // one chain of additions, dW
constexpr int kChunk = 96;                     // columns of x copied for dW
constexpr Dim kRowBlock = 96;                  // rows copied at a time, forward; 128 the same, 256 2 % slower (M = 512, 1 MB of L2)
constexpr Dim kMostStrips = 16;  // in a task of many rows: its part of y stays in the cache from one block of depth to the next
constexpr Dim kTurnBlock = 256;  // the same for dx, where every block of rows transposes W again
constexpr Dim kDirect = 8;  // up to here rows are read in place
constexpr Dim kFetch = 96;  // 4 rows and more, read in place: how many inputs ahead the weights are asked for; M = 8 and
    // 2048 x 2048: 106 -> 116 GFLOP/s, 4096 x 4096: 86 -> 102. Fewer rows lose a third by it.
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

// What a tile of copied rows asks for on the way, so that the next one finds it in the cache: from + d * step bytes.
// With that and its own place in out asked for at the start, M = 64 and 512 gain 2 % where W does not fit the cache.
struct Ahead {
  const char* from;
  Dim step;
};

// P strips at once (several for few rows, so that enough chains are in flight). RS, DS: strides of a, RS = 0: given by rs.
// The sums go to out, rows `os` apart, or are added to what is there.
template <int R, int P, int RS, int DS, class T>
void tile(const Real* a, Dim rs, const T* const* strips, Dim depth, Real* out, Dim os, bool add, Ahead ahead) {
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
      for (int c = 0; c < P * kStrip; c += kLine / int(sizeof(T))) __builtin_prefetch(b[c / kStrip] + (d + kFetch) * kPanel + c % kStrip);
    for (int r = 0; r < R; ++r) {
      const V x = vset(a[r * stride + d * DS]);
      for (int v = 0; v < P * kCols; ++v) acc[r][v] = vfma(x, w[v], acc[r][v]);
    }
  }
  if (add)
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < P * kCols; ++v) vstore(out + r * os + v * W, vload(out + r * os + v * W) + acc[r][v]);
  else
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < P * kCols; ++v) vstore(out + r * os + v * W, acc[r][v]);
}

template <class T>
using Tile = void (*)(const Real* a, Dim rs, const T* const* strips, Dim depth, Real* out, Dim os, bool add, Ahead ahead);

// How many strips a tile of R rows takes at once when it reads x in place.
constexpr int most_strips(Dim rows) { return rows == 1 ? kWide : rows <= 3 ? (kWide + 1) / 2 : 1; }

template <class T, int P>
Tile<T> direct_tile(Dim rows) {
  switch (rows) {
    case 1: return tile<1, P, 0, 1, T>;
    case 2: return tile < 2, P <= most_strips(2) ? P : 1, 0, 1, T > ;
    case 3: return tile < 3, P <= most_strips(3) ? P : 1, 0, 1, T > ;
    case 4: return tile<4, 1, 0, 1, T>;
    case 5: return tile<5, 1, 0, 1, T>;
    case 6: return tile<6, 1, 0, 1, T>;
    case 7: return tile<7, 1, 0, 1, T>;
    default: return tile<8, 1, 0, 1, T>;
  }
}
template <class T>
Tile<T> direct_tile(Dim rows, Dim strips) {
  switch (strips) {
    case 1: return direct_tile<T, 1>(rows);
    case 2: return direct_tile<T, 2>(rows);
    case 3: return direct_tile<T, 3>(rows);
    default: return direct_tile<T, 4>(rows);
  }
}
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

// rows x depth of a into scratch, kDepthStride apart, times scale.
void copy_rows(Real* to, const Real* from, Dim stride, Dim rows, Dim depth, Real scale = 1) {
  for (Dim r = 0; r < rows; ++r) {
    const Real* in = from + r * stride;
    Real* out = to + r * kDepthStride;
    Dim d = 0;
    for (; d + 4 * W <= depth; d += 4 * W)
      for (int j = 0; j < 4; ++j) vstore(out + d + j * W, vload(in + d + j * W) * vset(scale));
    for (; d < depth; d += W) vstore_n(out + d, vload_n(in + d, depth - d) * vset(scale), depth - d);
  }
}

// run(out, stride, add) gives the sums of a tile; they are added to `to` [rows][columns left of width] without touching what lies right of it.
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

// A few rows: every weight is read once, several strips side by side.
template <class T>
void few_rows(const LinearArgs& a, const LinearPart& part, Range strips) {
  const T* w = static_cast<const T*>(part.w);
  const Dim tiles = ceil_div(a.rows, kRows), most_at_once = most_strips(ceil_div(a.rows, tiles));
  const Dim groups = ceil_div(strips.end - strips.begin, most_at_once);
  for (Dim g = 0; g < groups; ++g) {
    const Range group = {strips.begin + cut(strips.end - strips.begin, groups, g).begin,
                         strips.begin + cut(strips.end - strips.begin, groups, g).end};
    const Dim count = group.end - group.begin;
    for (Dim d = 0; d < a.k; d += kDepth) {
      const T* at[4] = {};
      for (Dim p = 0; p < count; ++p) at[p] = strip_at(w, a.k, group.begin + p) + d * kPanel;
      for (Dim t = 0; t < tiles; ++t) {
        const Range rows = cut(a.rows, tiles, t);
        const Dim n = group.begin * kStrip;
        add_tile(static_cast<Real*>(part.y) + rows.begin * part.n + n, part.n, rows.end - rows.begin, count * kStrip, part.n - n, d > 0,
                 [&](Real* out, Dim os, bool add) RAPT_LAMBDA {
                   direct_tile<T>(rows.end - rows.begin, count)(static_cast<const Real*>(a.x) + rows.begin * a.k + d, a.k, at,
                                                                least(kDepth, a.k - d), out, os, add, {});
                 });
        if (d + kDepth >= a.k) finish(part, rows.begin, rows.end - rows.begin, n, count * kStrip);
      }
    }
  }
}

// Many rows: `copied` holds inputs [d, d + kDepth) of the rows.
template <class T>
void many_rows(const LinearArgs& a, const LinearPart& part, Range strips, Range block, const Real* copied, Dim d) {
  const Dim tiles = ceil_div(block.end - block.begin, kRows);
  for (Dim s = strips.begin; s < strips.end; ++s) {
    const T* at = strip_at(static_cast<const T*>(part.w), a.k, s) + d * kPanel;
    const T* next = s + 1 < strips.end ? strip_at(static_cast<const T*>(part.w), a.k, s + 1) + d * kPanel : at;
    const Dim step = kPanel * Dim(sizeof(T)) / tiles;
    for (Dim t = 0; t < tiles; ++t) {
      const Range rows = cut(block.end - block.begin, tiles, t);
      const Dim row = block.begin + rows.begin, count = rows.end - rows.begin, n = s * kStrip;
      add_tile(static_cast<Real*>(part.y) + row * part.n + n, part.n, count, kStrip, part.n - n, d > 0,
               [&](Real* out, Dim os, bool add) RAPT_LAMBDA {
                 copied_tile<kDepthStride, 1, T>(count)(copied + rows.begin * kDepthStride, 0, &at, least(kDepth, a.k - d), out, os, add,
                                                        {reinterpret_cast<const char*>(next) + t * step * kDepth, step});
               });
      if (d + kDepth >= a.k) finish(part, row, count, n, kStrip);
    }
  }
}

// f(part, strips of it) for the strips [begin, end) of all parts one after the other.
template <class F>
RAPT_INLINE void for_parts(const LinearArgs& a, Range strips, const F& f) {
  Dim first = 0;
  for (int p = 0; p < a.count; ++p) {
    const Dim count = ceil_div(a.parts[p].n, kStrip);
    const Range mine = {most(strips.begin, first) - first, least(strips.end, first + count) - first};
    if (mine.begin < mine.end) f(a.parts[p], mine);
    first += count;
  }
}

// How many pieces to cut n units of equal cost into, when the same is done `others` times: of at least `smallest` units, about
// `tasks` for each thread so that one that was held up does not hold up the others, and as many for one as for another.
RAPT_INLINE Dim pieces_for(Queue& queue, Dim n, Dim others, Dim smallest, Dim tasks) {
  const Dim threads = threads_of(queue);
  if (threads == 1) return 1;
  const Dim units = most(smallest, n * others / (tasks * threads));
  return least(n, ceil_div(ceil_div(n, units), threads) * threads);
}
constexpr Dim kWorth = 65536;  // multiply-adds below which a task is not worth a thread's while: about a microsecond

}  // namespace

void linear(Queue& queue, const LinearArgs& a) noexcept {
  if (a.rows == 0) return;
  Dim strips = 0;
  for (int p = 0; p < a.count; ++p) strips += ceil_div(a.parts[p].n, kStrip);
  const Dim threads = threads_of(queue), worth = ceil_div(kWorth, a.rows * a.k * kStrip);
  if (a.rows <= kDirect) {
    const Dim pieces = pieces_for(queue, strips, 1, most(worth, most_strips(a.rows)), 16);
    for_tasks(queue, pieces, [&](Dim task, int) {
      for_parts(a, cut(strips, pieces, task), [&](const LinearPart& part, Range mine) {
        if (part.format == DType::bf16) few_rows<Bf16>(a, part, mine);
        else if (part.format == DType::f16) few_rows<F16>(a, part, mine);
        else few_rows<Real>(a, part, mine);
      });
    });
    return;
  }
  // Blocks are smaller only where there are more threads than strips. A worker keeps its copy of a block of rows from task to task,
  // so that tasks may be small: 2 threads, 576 x 576, M = 64 lost 16 % to uneven pieces when each of eight tasks had to copy.
  const Dim blocks = most(ceil_div(a.rows, kRowBlock), least(ceil_div(a.rows, kRows), 2 * threads / strips));
  const Dim pieces = most(pieces_for(queue, strips, blocks, worth, 16), ceil_div(strips, kMostStrips));
  constexpr int kWorkers = 256;
  Dim have[kWorkers];  // per worker: the block it has copied
  for (Dim& h : have) h = -1;
  for_tasks(queue, pieces * blocks, [&](Dim task, int worker) {
    const Range block = cut(a.rows, blocks, task / pieces), range = cut(strips, pieces, task % pieces);
    const Dim rows = block.end - block.begin, slice = rows * kDepthStride;
    Real* copied =
        reinterpret_cast<Real*>(scratch_of(queue, worker, size_t(kRowBlock * kDepthStride * ceil_div(a.k, kDepth)) * sizeof(Real)));
    const bool copy = worker >= kWorkers || have[worker] != task / pieces;
    if (worker < kWorkers) have[worker] = task / pieces;
    for (Dim d = 0; d < a.k; d += kDepth, copied += slice) {
      if (copy) copy_rows(copied, static_cast<const Real*>(a.x) + block.begin * a.k + d, a.k, rows, least(kDepth, a.k - d));
      for_parts(a, range, [&](const LinearPart& part, Range mine) {
        if (part.format == DType::bf16) many_rows<Bf16>(a, part, mine, block, copied, d);
        else if (part.format == DType::f16) many_rows<F16>(a, part, mine, block, copied, d);
        else many_rows<Real>(a, part, mine, block, copied, d);
      });
    }
  });
}

namespace {

// W x W elements, rows kPanel apart on both sides.
template <class T>
RAPT_INLINE void transpose_square(const T* from, Dim rows, Real* to) {  // rows: how many there are, the others count as zero
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
    const V p = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88), q = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
    const V r = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xdd), s = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xdd);
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

// [k][32 n] -> [n][32 k] for 32 k; `rows` of them exist.
template <class T>
void transpose_block(const T* from, Dim rows, Real* to) {
  for (int k = 0; k < kPanel; k += W)
    for (int n = 0; n < kPanel; n += W) transpose_square(from + k * kPanel + n, rows - k, to + n * kPanel + k);
}

// dx of a block of rows and a range of panels of 32 inputs. Asking for the next panel's blocks of W on the way gained nothing (GPT-2, 256 rows).
void input_gradient(const LinearBackwardArgs& a, Range block, Range panels, Real* scratch) {
  Real *copied = scratch, *turned = scratch + kTurnBlock * kDepthStride;
  const Dim tiles = ceil_div(block.end - block.begin, kRows);
  for (int p = 0; p < a.count; ++p) {
    const LinearBackwardPart& part = a.parts[p];
    for (Dim d = 0; d < part.n; d += kDepth) {
      const Dim depth = least(kDepth, part.n - d);
      copy_rows(copied, static_cast<const Real*>(part.dy) + block.begin * part.n + d, part.n, block.end - block.begin, depth,
                Real(part.scale));
      for (Dim panel = panels.begin; panel < panels.end; ++panel) {
        const Dim k = panel * kPanel;
        for (Dim i = 0; i < depth; i += kPanel) {
          const Dim at = ((d + i) / kPanel * a.k + k) * kPanel;
          if (part.format == DType::bf16) transpose_block(static_cast<const Bf16*>(part.w) + at, a.k - k, turned + i * kPanel);
          else if (part.format == DType::f16) transpose_block(static_cast<const F16*>(part.w) + at, a.k - k, turned + i * kPanel);
          else transpose_block(static_cast<const Real*>(part.w) + at, a.k - k, turned + i * kPanel);
        }
        for (int s = 0; s < kStrips; ++s)
          for (Dim t = 0; t < tiles; ++t) {
            const Range rows = cut(block.end - block.begin, tiles, t);
            const Real* at = turned + s * kStrip;
            const Dim row = block.begin + rows.begin, count = rows.end - rows.begin, column = k + s * kStrip;
            if (column >= a.k) break;
            add_tile(static_cast<Real*>(a.dx) + row * a.k + column, a.k, count, kStrip, a.k - column, !a.write_dx || p > 0 || d > 0,
                     [&](Real* out, Dim os, bool add) RAPT_LAMBDA {
                       copied_tile<kDepthStride, 1, Real>(count)(copied + rows.begin * kDepthStride, 0, &at, depth, out, os, add,
                                                                 {reinterpret_cast<const char*>(at), 0});
                     });
          }
      }
    }
  }
}

// Columns of x copied at a time: at most kChunk, and cut evenly (128 are 64 and 64, not 96 and 32: tasks take a chunk each).
RAPT_INLINE Dim chunk_of(Dim k) { return least(kChunk, ceil_div(ceil_div(k, ceil_div(k, kChunk)), 16) * 16); }

// dW of a range of panels (at most kMostPanels) and of inputs; with the first inputs also dbias and dresidual.
constexpr Dim kMostPanels = 8;
void weight_gradient(const LinearBackwardArgs& a, const LinearBackwardPart& part, Range panels, Range inputs, Real* scratch) {
  Real *dy = scratch, *x = scratch + kMostPanels * kBatch * kPanel;
  for (Dim m = 0; m < a.rows; m += kBatch) {
    const Dim depth = least(kBatch, a.rows - m);
    for (Dim panel = panels.begin; panel < panels.end; ++panel) {
      Real* to = dy + (panel - panels.begin) * kBatch * kPanel;
      for (Dim i = 0; i < depth; ++i)
        for (int v = 0; v < kPanel; v += W) {
          const Dim n = panel * kPanel + v, left = part.n - n;
          const V g = left > 0 ? vload_n(static_cast<const Real*>(part.dy) + (m + i) * part.n + n, left) : vzero();
          vstore(to + i * kPanel + v, g * vset(Real(part.scale)));
          if (inputs.begin == 0 && part.dresidual && left > 0) {
            Real* dr = static_cast<Real*>(part.dresidual) + (m + i) * part.n + n;
            vstore_n(dr, part.write_dresidual ? g : vload_n(dr, left) + g, left);
          }
        }
      if (inputs.begin == 0 && part.dbias)
        for (int v = 0; v < kPanel; v += W) {
          const Dim n = panel * kPanel + v, left = part.n - n;
          if (left <= 0) break;
          V sum = vzero();
          for (Dim i = 0; i < depth; ++i) sum = sum + vload(to + i * kPanel + v);
          Real* db = static_cast<Real*>(part.dbias) + n;
          vstore_n(db, vload_n(db, left) + sum, left);
        }
    }
    if (!part.dw) continue;
    const Dim chunk = chunk_of(a.k);
    for (Dim k = inputs.begin; k < inputs.end; k += chunk) {
      const Dim width = least(chunk, inputs.end - k), tiles = ceil_div(width, kRows);
      for (Dim i = 0; i < depth; ++i)
        for (Dim c = 0; c < width; c += W)
          vstore_n(x + i * kChunk + c, vload_n(static_cast<const Real*>(a.x) + (m + i) * a.k + k + c, width - c), width - c);
      for (Dim panel = panels.begin; panel < panels.end; ++panel)
        for (int s = 0; s < kStrips; ++s)
          for (Dim t = 0; t < tiles; ++t) {
            const Range rows = cut(width, tiles, t);
            const Real* at = dy + (panel - panels.begin) * kBatch * kPanel + s * kStrip;
            Real* dw = static_cast<Real*>(part.dw) + (panel * a.k + k + rows.begin) * kPanel + s * kStrip;
            copied_tile<1, kChunk, Real>(rows.end - rows.begin)(x + rows.begin, 0, &at, depth, dw, kPanel, !part.write_dw || m > 0,
                                                                {reinterpret_cast<const char*>(at), 0});
          }
    }
  }
}

}  // namespace

void linear_backward(Queue& queue, const LinearBackwardArgs& a) noexcept {
  if (a.rows == 0) return;
  if (a.dx) {
    const Dim panels = ceil_div(a.k, kPanel), blocks = ceil_div(a.rows, kTurnBlock), pieces = pieces_for(queue, panels, blocks, 3, 4);
    for_tasks(queue, pieces * blocks, [&](Dim task, int worker) {
      Real* scratch =
          reinterpret_cast<Real*>(scratch_of(queue, worker, size_t(kTurnBlock * kDepthStride + kDepth * kPanel) * sizeof(Real)));
      input_gradient(a, cut(a.rows, blocks, task % blocks), cut(panels, pieces, task / blocks), scratch);
    });
  }
  // A region of its own: a residual may be the very tensor x whose gradient was just added to.
  Dim groups = 0;  // of panels
  for (int p = 0; p < a.count; ++p) groups += ceil_div(ceil_div(a.parts[p].n, kPanel), kMostPanels);
  const Dim chunk = chunk_of(a.k), chunks = ceil_div(a.k, chunk), pieces = pieces_for(queue, chunks, groups, 1, 4);
  for_tasks(queue, groups * pieces, [&](Dim task, int worker) {
    Real* scratch =
        reinterpret_cast<Real*>(scratch_of(queue, worker, size_t(kMostPanels * kBatch * kPanel + kBatch * kChunk) * sizeof(Real)));
    Dim group = task / pieces;
    int p = 0;
    for (Dim count; group >= (count = ceil_div(ceil_div(a.parts[p].n, kPanel), kMostPanels)); ++p) group -= count;
    const Dim panels = ceil_div(a.parts[p].n, kPanel);
    const Range range = cut(chunks, pieces, task % pieces);
    weight_gradient(a, a.parts[p], cut(panels, ceil_div(panels, kMostPanels), group), {range.begin * chunk, least(a.k, range.end * chunk)},
                    scratch);
  });
}

}  // namespace rapt::RAPT_ISA
