// SPDX-License-Identifier: Apache-2.0
// linear with both factors of its three products rounded to bf16 (docs/decisions/0015). Everything that is
// read again and again is rounded once into a layout of elements E, all of x and dy into the op's space, a
// block of W into the worker's scratch:
//            rows  lanes  depth      a                             b
//   forward  m     n      k, by 512  x   [block of k][m][kStride]  a panel of W        [k][32]
//   dx       m     k      n, by 512  dy  [block of n][m][kStride]  blocks of W turned  [n][32 of k]
//   dW       k     n      m, by 256  x   [chunk of k][m][kChunk]   dy                  [panel of n][m][32]
// E is a pair of neighbours along the depth where the processor multiplies such pairs (half as long then;
// AMX tiles would read the same layouts), else the rounded number itself, for the tile of linear_cpu.cc. W
// is rounded again for each block of rows: about 5 instructions for 32 numbers that 384 then use.
#include "rapt/ops/linear_tile.h"

namespace rapt::RAPT_ISA {
namespace {

// Rows that share a rounded block of W; with 1 KB of depth each they stay in 1 MB of L2.
constexpr Dim kRowBlock = 384;
constexpr int kChunk = 208;     // columns of x side by side for dW: an odd number of cache lines
constexpr Dim kPackRows = 16;   // in a task that rounds x and dy

template <class E>
constexpr Dim kPer = 1;  // numbers along the depth in an element
template <class E>
constexpr int kStride = int(kDepth / kPer<E>) + 16;  // between rows: an odd number of cache lines

// ------------------------------------------------------------------------------------ one number an element
RAPT_INLINE Real rounded(Real x) {  // to nearest, ties to even; a NaN stays one
  union {
    float f;
    uint32_t u;
  } b = {float(x)};
  b.u = (b.u & 0x7fffffffu) > 0x7f800000u ? (b.u | 0x400000u) & 0xffff0000u
                                          : (b.u + 0x7fffu + (b.u >> 16 & 1u)) & 0xffff0000u;
  return b.f;
}

// Numbers of one row, `depth` of them.
void pack_row(Real* to, const Real* from, Dim depth, Real scale) {
  for (Dim d = 0; d < depth; ++d) to[d] = rounded(from[d] * scale);
}
// [depth][columns], rows `stride` apart, to [depth][ts]; zeros up to `width`.
void pack_columns(Real* to, Dim ts, const Real* from, Dim stride, Dim depth, Dim columns, Dim width,
                  Real scale) {
  for (Dim d = 0; d < depth; ++d)
    for (Dim c = 0; c < width; ++c)
      to[d * ts + c] = c < columns ? rounded(from[d * stride + c] * scale) : Real(0);
}
// A block of a panel, [32 k][32 n] with `rows` of the k, to [n][32 k].
void turn(Real* to, const Real* from, Dim rows) {
  for (Dim n = 0; n < kPanel; ++n)
    for (Dim k = 0; k < kPanel; ++k) to[n * kPanel + k] = k < rows ? rounded(from[k * kPanel + n]) : Real(0);
}
template <int RS, int DS>
void product(Dim rows, const Real* a, const Real* b, Dim depth, Real* out, Dim os, bool add, Ahead ahead) {
  copied_tile<RS, DS, Real>(rows)(a, 0, &b, depth, out, os, add, ahead);
}

// ----------------------------------------------------------------------------------------- pairs, vdpbf16ps
#if RAPT_IS(avx512)
struct Pair {
  uint32_t bits;  // the first number in the low half
};
template <>
constexpr Dim kPer<Pair> = 2;

[[gnu::target("avx512bf16")]] void pack_row(Pair* to, const Real* from, Dim depth, Real scale) {
  for (Dim d = 0; d < depth; d += 2 * W) {
    const V low = vload_n(from + d, depth - d) * vset(scale),
            high = vload_n(from + d + W, depth - d - W) * vset(scale);
    _mm512_storeu_si512(to + d / 2, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}
[[gnu::target("avx512bf16")]] void pack_columns(Pair* to, Dim ts, const Real* from, Dim stride, Dim depth,
                                                Dim columns, Dim width, Real scale) {
  alignas(64) uint16_t order[2 * W];
  for (int i = 0; i < 2 * W; ++i) order[i] = uint16_t(i % 2 * W + i / 2);
  const I zip = _mm512_load_si512(order);
  const V s = vset(scale);
  for (Dim d = 0; d < depth; d += 2, from += 2 * stride, to += ts)
    for (Dim c = 0; c < width; c += W) {
      const V even = vload_n(from + c, columns - c) * s,
              odd = d + 1 < depth ? vload_n(from + stride + c, columns - c) * s : vzero();
      _mm512_storeu_si512(to + c, _mm512_permutexvar_epi16(zip, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
    }
}
[[gnu::target("avx512bf16")]] void turn(Pair* to, const Real* from, Dim rows) {
  alignas(64) Real pairs[kPanel * kPanel];  // bits of pairs of n: [k][16]
  for (Dim k = 0; k < least(rows, kPanel); ++k)
    _mm512_store_si512(pairs + k * kPanel,
                       (__m512i)_mm512_cvtne2ps_pbh(vload(from + k * kPanel + W), vload(from + k * kPanel)));
  for (int k = 0; k < kPanel; k += W)
    transpose_square(pairs + k * kPanel, rows - k, reinterpret_cast<Real*>(to + k));
}

template <int R, int RS, int DS>
[[gnu::target("avx512bf16")]] void pair_tile(const Pair* a, const Pair* b, Dim depth, Real* out, Dim os,
                                             bool add, Ahead ahead) {
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kCols; ++v) __builtin_prefetch(out + r * os + v * W, 1);
  V acc[R][kCols];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kCols; ++v) acc[r][v] = vzero();
  for (Dim d = 0; d < depth; ++d) {
    I w[kCols];
    for (int v = 0; v < kCols; ++v) w[v] = _mm512_loadu_si512(b + d * kPanel + v * W);
    __builtin_prefetch(ahead.from + d * ahead.step, 0, 2);
    for (int r = 0; r < R; ++r) {
      const I x = iset(a[r * RS + d * DS].bits);
      for (int v = 0; v < kCols; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], (__m512bh)x, (__m512bh)w[v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kCols; ++v) {
      Real* to = out + r * os + v * W;
      vstore(to, add ? vload(to) + acc[r][v] : acc[r][v]);
    }
}
template <int RS, int DS, int R = kRows>
void product(Dim rows, const Pair* a, const Pair* b, Dim depth, Real* out, Dim os, bool add, Ahead ahead) {
  if (rows == R) return pair_tile<R, RS, DS>(a, b, depth, out, os, add, ahead);
  if constexpr (R > 1) product<RS, DS, R - 1>(rows, a, b, depth, out, os, add, ahead);
}
#endif

// --------------------------------------------------------------------------------------- the three products
// Rows of [.., width] for the tile's a: blocks of depth one after the other, in each all rows.
template <class E>
void pack_rows(E* to, const Real* from, Dim width, Range rows, Dim all_rows, Real scale) {
  for (Dim d = 0; d < width; d += kDepth, to += all_rows * kStride<E>)
    for (Dim m = rows.begin; m < rows.end; ++m)
      pack_row(to + m * kStride<E>, from + m * width + d, least(kDepth, width - d), scale);
}

// Sums of rows [block.begin, block.end) and a panel of 32 columns, `left` of which exist. a: all rows; b:
// [depth][32]; next: the W that is asked for on the way. after(row, rows, column, width) is called for each
// tile of out.
template <class E, class F>
RAPT_INLINE void panel_product(const E* a, const E* b, Range block, Dim depth, Real* out, Dim os, Dim left,
                               bool add, const Real* next, const F& after) {
  const Dim rows = block.end - block.begin, tiles = ceil_div(rows, kRows), steps = ceil_div(depth, kPer<E>);
  const Dim ahead = next ? kPanel * Dim(sizeof(Real)) * kPer<E> / tiles : 0;
  const char* from = reinterpret_cast<const char*>(next ? next : out);
  for (int s = 0; s < kStrips && s * kStrip < left; ++s)
    for (Dim t = 0; t < tiles; ++t) {
      const Dim row = block.begin + cut(rows, tiles, t).begin,
                count = block.begin + cut(rows, tiles, t).end - row, column = s * kStrip;
      add_tile(out + row * os + column, os, count, kStrip, left - column, add,
               [&](Real* to, Dim stride, bool more) RAPT_LAMBDA {
                 product<kStride<E>, 1>(count, a + row * kStride<E>, b + column, steps, to, stride, more,
                                        {from + t * steps * ahead, ahead});
               });
      after(row, count, column, kStrip);
    }
}

template <class E>
void forward(Queue& queue, const LinearArgs& a) {
  E* x = static_cast<E*>(a.space);
  for_ranges(queue, a.rows, kPackRows, [&](Dim begin, Dim end, int) {
    pack_rows(x, static_cast<const Real*>(a.x), a.k, {begin, end}, a.rows, Real(1));
  });
  const Dim panels = units_of(a, kPanel), blocks = ceil_div(a.rows, kRowBlock);
  const Dim pieces = pieces_for(queue, panels, blocks, ceil_div(kWorth, a.rows * a.k * kPanel), 4);
  for_tasks(queue, pieces * blocks, [&](Dim task, int worker) {
    const Range block = cut(a.rows, blocks, task / pieces);
    E* b = reinterpret_cast<E*>(scratch_of(queue, worker, size_t(kDepth * kPanel) * sizeof(E)));
    if (!b) return;
    for_parts(a, kPanel, cut(panels, pieces, task % pieces), [&](int p, Range mine) {
      const LinearPart& part = a.parts[p];
      for (Dim d = 0; d < a.k; d += kDepth) {
        const Dim depth = least(kDepth, a.k - d);
        for (Dim panel = mine.begin; panel < mine.end; ++panel) {
          const Real* w = static_cast<const Real*>(part.w) + (panel * a.k + d) * kPanel;
          pack_columns(b, kPanel, w, kPanel, depth, kPanel, kPanel, Real(1));
          const bool last = d + kDepth >= a.k;
          panel_product(x + d / kDepth * a.rows * kStride<E>, b, block, depth,
                        static_cast<Real*>(part.y) + panel * kPanel, part.n, part.n - panel * kPanel, d > 0,
                        panel + 1 < mine.end ? w + a.k * kPanel : nullptr,
                        [&](Dim row, Dim rows, Dim column, Dim width) RAPT_LAMBDA {
                          if (last) finish(part, row, rows, panel * kPanel + column, width);
                        });
        }
      }
    });
  });
}

// Where the rounded copies of a backward lie.
template <class E>
struct RoundedOperands {
  E* x;
  E *dy_rows[kMostParts], *dy_columns[kMostParts];
};

template <class E>
void input_gradient(Queue& queue, const LinearBackwardArgs& a, const RoundedOperands<E>& packed) {
  const Dim panels = ceil_div(a.k, kPanel), blocks = ceil_div(a.rows, kRowBlock),
            pieces = pieces_for(queue, panels, blocks, 1, 4);
  for_tasks(queue, pieces * blocks, [&](Dim task, int worker) {
    const Range block = cut(a.rows, blocks, task % blocks), mine = cut(panels, pieces, task / blocks);
    E* turned = reinterpret_cast<E*>(scratch_of(queue, worker, size_t(kDepth * kPanel) * sizeof(E)));
    if (!turned) return;
    for (int p = 0; p < a.count; ++p) {
      const LinearBackwardPart& part = a.parts[p];
      for (Dim d = 0; d < part.n; d += kDepth) {
        const Dim depth = least(kDepth, part.n - d);
        for (Dim panel = mine.begin; panel < mine.end; ++panel) {
          const Dim k = panel * kPanel;
          for (Dim i = 0; i < depth; i += kPanel)
            turn(turned + i / kPer<E> * kPanel,
                 static_cast<const Real*>(part.w) + ((d + i) / kPanel * a.k + k) * kPanel, a.k - k);
          panel_product(packed.dy_rows[p] + d / kDepth * a.rows * kStride<E>, turned, block, depth,
                        static_cast<Real*>(a.dx) + k, a.k, a.k - k, !a.write_dx || p > 0 || d > 0, nullptr,
                        [](Dim, Dim, Dim, Dim) {});
        }
      }
    }
  });
}

// Columns of x side by side: at most kChunk, cut evenly.
RAPT_INLINE Dim chunk_of(Dim k) { return least(kChunk, ceil_div(ceil_div(k, ceil_div(k, kChunk)), W) * W); }

// With the first chunk of inputs also dbias and dresidual, from dy as it is.
template <class E>
void weight_gradients(Queue& queue, const LinearBackwardArgs& a, const RoundedOperands<E>& packed) {
  const Dim chunk = chunk_of(a.k), chunks = ceil_div(a.k, chunk), panels = units_of(a, kPanel),
            deep = ceil_div(a.rows, kPer<E>);
  const Dim pieces = pieces_for(queue, panels, chunks, 1, 4);
  for_tasks(queue, pieces * chunks, [&](Dim task, int) {
    const Dim k = task / pieces * chunk, width = least(chunk, a.k - k), tiles = ceil_div(width, kRows);
    const E* x = packed.x + task / pieces * deep * kChunk;
    for_parts(a, kPanel, cut(panels, pieces, task % pieces), [&](int p, Range mine) {
      const LinearBackwardPart& part = a.parts[p];
      if (k == 0)
        for (Dim m = 0; m < a.rows; m += kBatch) vector_gradients(part, mine, {m, least(m + kBatch, a.rows)});
      if (!part.dw) return;
      for (Dim panel = mine.begin; panel < mine.end; ++panel)
        for (int s = 0; s < kStrips; ++s)
          for (Dim t = 0; t < tiles; ++t) {
            const Range rows = cut(width, tiles, t);
            Real* dw = static_cast<Real*>(part.dw) + (panel * a.k + k + rows.begin) * kPanel + s * kStrip;
            for (Dim m = 0; m < a.rows; m += kBatch) {
              const Dim at = m / kPer<E>, steps = ceil_div(least(kBatch, a.rows - m), kPer<E>);
              const E* dy = packed.dy_columns[p] + (panel * deep + at) * kPanel + s * kStrip;
              product<1, kChunk>(rows.end - rows.begin, x + at * kChunk + rows.begin, dy, steps, dw, kPanel,
                                 !part.write_dw || m > 0, {reinterpret_cast<const char*>(dy), 0});
            }
          }
    });
  });
}

template <class E>
void backward(Queue& queue, const LinearBackwardArgs& a) {
  RoundedOperands<E> packed{};
  Real* space = static_cast<Real*>(a.space);
  const auto take = [&](Dim width) {
    Real* here = space;
    space += bf16_space(a.rows, width);
    return reinterpret_cast<E*>(here);
  };
  packed.x = take(a.k);
  for (int p = 0; p < a.count; ++p)
    packed.dy_rows[p] = take(a.parts[p].n), packed.dy_columns[p] = take(a.parts[p].n);
  const Dim chunk = chunk_of(a.k), deep = ceil_div(a.rows, kPer<E>);
  for_ranges(queue, a.rows, kPackRows, [&](Dim begin, Dim end, int) {  // begin is even: no pair is cut
    const Real* x = static_cast<const Real*>(a.x) + begin * a.k;
    const Dim at = begin / kPer<E>;
    for (Dim k = 0; k < a.k; k += chunk)
      pack_columns(packed.x + (k / chunk * deep + at) * kChunk, kChunk, x + k, a.k, end - begin,
                   least(chunk, a.k - k), chunk, Real(1));
    for (int p = 0; p < a.count; ++p) {
      const LinearBackwardPart& part = a.parts[p];
      const Real* dy = static_cast<const Real*>(part.dy);
      if (a.dx) pack_rows(packed.dy_rows[p], dy, part.n, {begin, end}, a.rows, Real(part.scale));
      if (!part.dw) continue;
      for (Dim n = 0; n < part.n; n += kPanel)
        pack_columns(packed.dy_columns[p] + (n / kPanel * deep + at) * kPanel, kPanel,
                     dy + begin * part.n + n, part.n, end - begin, part.n - n, kPanel, Real(part.scale));
    }
  });
  if (a.dx) input_gradient(queue, a, packed);
  // A region of its own: a residual may be the very tensor x whose gradient was just added to.
  weight_gradients(queue, a, packed);
}

#if RAPT_IS(avx512)
bool has_pairs() { return __builtin_cpu_supports("avx512bf16"); }
#endif

}  // namespace

void linear_bf16(Queue& queue, const LinearArgs& a) noexcept {
  if (a.rows == 0) return;
#if RAPT_IS(avx512)
  if (has_pairs()) return forward<Pair>(queue, a);
#endif
  forward<Real>(queue, a);
}

void linear_bf16_backward(Queue& queue, const LinearBackwardArgs& a) noexcept {
  if (a.rows == 0) return;
#if RAPT_IS(avx512)
  if (has_pairs()) return backward<Pair>(queue, a);
#endif
  backward<Real>(queue, a);
}

}  // namespace rapt::RAPT_ISA
