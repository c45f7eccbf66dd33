// SPDX-License-Identifier: Apache-2.0
// A task is a block of channels, with its weights turned so that channels are lanes; of many rows it is cut
// further.
#include "rapt/ops/short_conv.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

constexpr Dim kRowsOfTask = 64;

// The weights of channels [d, d + W), channels as lanes: [kernel][W].
RAPT_INLINE void turn_taps(const Real* w, Dim kernel, Dim d, Dim n, Real* turned) {
  for (Dim j = 0; j < kernel; ++j)
    for (Dim l = 0; l < W; ++l) turned[j * W + l] = l < n ? w[(d + l) * kernel + j] : Real(0);
}

}  // namespace

void short_conv(Queue& queue, const ShortConvArgs& a) noexcept {
  const Dim D = a.channels, K = a.kernel, blocks = ceil_div(D, W);
  const Real *x = static_cast<const Real*>(a.x), *w = static_cast<const Real*>(a.w),
             *bias = static_cast<const Real*>(a.bias), *before = static_cast<const Real*>(a.before);
  Real* y = static_cast<Real*>(a.y);
  Dim rows = 0, row_pieces = 0;
  for (Dim p = 0; p < a.part_count; ++p) {
    rows += a.parts[p].count;
    row_pieces += ceil_div(a.parts[p].count, kRowsOfTask);
  }
  // So many vectors of channels that the rows of a task are worth a thread's while.
  const Dim grain = most(1, 16384 / (W * K * most(1, least(rows, kRowsOfTask)))),
            pieces = ceil_div(blocks, grain);
  for_tasks(queue, pieces * row_pieces, [&](Dim task, int) {
    Dim p = 0, piece = task / pieces;
    for (; piece >= ceil_div(a.parts[p].count, kRowsOfTask); ++p)
      piece -= ceil_div(a.parts[p].count, kRowsOfTask);
    const ShortConvPart& part = a.parts[p];
    const Real* old = before ? before + p * (K - 1) * D : nullptr;
    const Dim begin = piece * kRowsOfTask, end = least(part.count, begin + kRowsOfTask);
    const Dim first = task % pieces * grain;
    Real turned[kMostConvKernel * W];
    for (Dim b = first; b < least(blocks, first + grain); ++b) {
      const Dim d = b * W, n = D - d;
      turn_taps(w, K, d, n, turned);
      for (Dim t = begin; t < end; ++t) {
        V sum = bias ? vload_n(bias + d, n) : vzero();
        for (Dim j = most(0, K - 1 - t - part.past); j < K; ++j) {
          const Dim from = t - K + 1 + j;
          const Real* row = from < 0 ? old + (K - 1 + from) * D : x + (part.first + from) * D;
          sum = vfma(vload(turned + j * W), vload_n(row + d, n), sum);
        }
        vstore_n(y + (part.first + t) * D + d, sum, n);
      }
    }
  });
}

void short_conv_backward(Queue& queue, const ShortConvBackwardArgs& a) noexcept {
  const Dim D = a.channels, K = a.kernel;
  const Real *x = static_cast<const Real*>(a.x), *w = static_cast<const Real*>(a.w),
             *dy = static_cast<const Real*>(a.dy);
  Real *dx = static_cast<Real*>(a.dx), *dw = static_cast<Real*>(a.dw), *dbias = static_cast<Real*>(a.dbias);
  for_tasks(queue, ceil_div(D, W), [&](Dim task, int) {
    const Dim d = task * W, n = D - d;
    Real turned[kMostConvKernel * W];
    turn_taps(w, K, d, n, turned);
    for (Dim j = 0; j < K; ++j) {
      const V tap = vload(turned + j * W);
      V sum = vzero();
      for (Dim p = 0; p < a.part_count; ++p) {
        const ShortConvPart part = a.parts[p];
        for (Dim t = K - 1 - j; t < part.count; ++t) {  // rows whose x[t - K + 1 + j] is of the sequence
          const Dim at = (part.first + t) * D + d, from = (part.first + t - K + 1 + j) * D + d;
          const V g = vload_n(dy + at, n);
          if (dx) vstore_n(dx + from, vfma(tap, g, vload_n(dx + from, n)), n);
          sum = vfma(g, vload_n(x + from, n), sum);
        }
      }
      if (!dw) continue;
      Real lanes[W];
      vstore(lanes, sum);
      for (Dim l = 0; l < least(n, W); ++l) dw[(d + l) * K + j] += lanes[l];
    }
    if (!dbias) return;
    V sum = vzero();
    for (Dim p = 0; p < a.part_count; ++p)
      for (Dim t = 0; t < a.parts[p].count; ++t) sum = sum + vload_n(dy + (a.parts[p].first + t) * D + d, n);
    vstore_n(dbias + d, vload_n(dbias + d, n) + sum, n);
  });
}

}  // namespace rapt::RAPT_ISA
