// SPDX-License-Identifier: Apache-2.0
// Channel i turns with i + half, or with its neighbour. Backward turns the other way and adds.
#include "rapt/ops/rope.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

// (a, b) -> (a cos - b sin, b cos + a sin). Backward turns the other way and adds to what is there.
template <bool kBack>
RAPT_INLINE void turn_halves(const Real* x, const Real* cos, const Real* sin, Dim half, Real* y) {
  for (Dim i = 0; i < half; i += W) {
    const Dim n = half - i;
    const V a = vload_n(x + i, n), b = vload_n(x + half + i, n), c = vload_n(cos + i, n),
            s = vload_n(sin + i, n);
    const V first = kBack ? vload_n(y + i, n) + (a * c + b * s) : a * c - b * s;
    const V second = kBack ? vload_n(y + half + i, n) + (b * c - a * s) : b * c + a * s;
    vstore_n(y + i, first, n);
    vstore_n(y + half + i, second, n);
  }
}
// The compiler takes the neighbours apart with shuffles.
template <bool kBack>
RAPT_INLINE void turn_pairs(const Real* __restrict x, const Real* __restrict cos, const Real* __restrict sin,
                            Dim half, Real* __restrict y) {
  for (Dim i = 0; i < half; ++i) {
    const Real a = x[2 * i], b = x[2 * i + 1], c = cos[i], s = sin[i];
    y[2 * i] = kBack ? y[2 * i] + (a * c + b * s) : a * c - b * s;
    y[2 * i + 1] = kBack ? y[2 * i + 1] + (b * c - a * s) : b * c + a * s;
  }
}

template <bool kBack, class Args>
void turn(Queue& queue, const Args& a, const void* x, void* y) {
  for_ranges(queue, a.rows, row_grain(a.heads * a.d), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r) {
      const Real *cos = static_cast<const Real*>(a.cos) + r * a.half,
                 *sin = static_cast<const Real*>(a.sin) + r * a.half;
      for (Dim h = 0; h < a.heads; ++h) {
        const Real* in = static_cast<const Real*>(x) + (r * a.heads + h) * a.d;
        Real* out = static_cast<Real*>(y) + (r * a.heads + h) * a.d;
        auto pass = [&](Dim from, Dim to) RAPT_LAMBDA {  // channels that do not turn
          for (Dim i = from; i < to; i += W) {
            const V rest = vload_n(in + i, to - i);
            vstore_n(out + i, kBack ? vload_n(out + i, to - i) + rest : rest, to - i);
          }
        };
        pass(0, a.first);
        if (a.layout == RopeLayout::halves) turn_halves<kBack>(in + a.first, cos, sin, a.half, out + a.first);
        else turn_pairs<kBack>(in + a.first, cos, sin, a.half, out + a.first);
        pass(a.first + 2 * a.half, a.d);
      }
    }
  });
}

}  // namespace

void rope(Queue& queue, const RopeArgs& a) noexcept { turn<false>(queue, a, a.x, a.y); }
void rope_backward(Queue& queue, const RopeBackwardArgs& a) noexcept { turn<true>(queue, a, a.dy, a.dx); }

}  // namespace rapt::RAPT_ISA
