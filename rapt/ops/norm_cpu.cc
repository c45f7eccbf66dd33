// SPDX-License-Identifier: Apache-2.0
// First the mean of a row, then squares of differences from it. For dw, threads split the columns.
#include "rapt/ops/norm.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

// Sums of a row go to four vector accumulators in turn, then together: short chains, and an order that the
// row's length fixes.
template <class F>
RAPT_INLINE Real row_sum(Dim cols, const F& f) {
  V a[4] = {vzero(), vzero(), vzero(), vzero()};
  Dim c = 0;
  for (; c + 4 * W <= cols; c += 4 * W)
    for (int j = 0; j < 4; ++j) a[j] = a[j] + f(c + j * W, Dim(W));
  for (int j = 0; c < cols; c += W, ++j) a[j] = a[j] + f(c, cols - c);
  return vsum((a[0] + a[1]) + (a[2] + a[3]));
}

}  // namespace

void norm(Queue& queue, const NormArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(a.cols), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r) {
      const Real* x = static_cast<const Real*>(a.x) + r * a.cols;
      Real* y = static_cast<Real*>(a.y) + r * a.cols;
      Real mean = 0;
      if (a.kind == NormKind::layer)
        mean = row_sum(a.cols, [&](Dim c, Dim n) RAPT_LAMBDA { return vload_n(x + c, n); }) / Real(a.cols);
      const V m = vset(mean);
      Real square = row_sum(a.cols, [&](Dim c, Dim n) RAPT_LAMBDA {
        const V d = vload_n(x + c, n) - (n >= W ? m : vselect_n(n, m, vzero()));
        return d * d;
      });
      if (a.kind != NormKind::l2) square /= Real(a.cols);
      const Real inv = 1 / real_sqrt(square + Real(a.eps));
      const Real* w = a.weight ? static_cast<const Real*>(a.weight) + r % a.groups * a.cols : nullptr;
      const Real* b = a.bias ? static_cast<const Real*>(a.bias) + r % a.groups * a.cols : nullptr;
      for (Dim c = 0; c < a.cols; c += W) {
        const Dim n = a.cols - c;
        V t = (vload_n(x + c, n) - m) * vset(inv);
        if (w) t = t * (vload_n(w + c, n) + vset(Real(a.offset)));
        if (b) t = t + vload_n(b + c, n);
        vstore_n(y + c, t, n);
      }
      Real* stats = static_cast<Real*>(a.stats) + 2 * r;
      stats[0] = mean;
      stats[1] = inv;
    }
  });
}

void norm_backward(Queue& queue, const NormBackwardArgs& a) noexcept {
  const Real *all_x = static_cast<const Real*>(a.x), *all_dy = static_cast<const Real*>(a.dy),
             *stats = static_cast<const Real*>(a.stats);
  if (a.dx)
    for_ranges(queue, a.rows, row_grain(a.cols), [&](Dim begin, Dim end, int) {
      for (Dim r = begin; r < end; ++r) {
        const Real *x = all_x + r * a.cols, *dy = all_dy + r * a.cols;
        Real* dx = static_cast<Real*>(a.dx) + r * a.cols;
        const Real* w = a.weight ? static_cast<const Real*>(a.weight) + r % a.groups * a.cols : nullptr;
        const V m = vset(stats[2 * r]), inv = vset(stats[2 * r + 1]);
        auto g = [&](Dim c, Dim n) RAPT_LAMBDA {
          return w ? vload_n(dy + c, n) * (vload_n(w + c, n) + vset(Real(a.offset))) : vload_n(dy + c, n);
        };
        const Real count = a.kind == NormKind::l2 ? Real(1) : Real(a.cols);
        const Real sum_g = a.kind == NormKind::layer ? row_sum(a.cols, g) / count : 0;
        const Real sum_gn =
            row_sum(a.cols,
                    [&](Dim c, Dim n) RAPT_LAMBDA { return g(c, n) * ((vload_n(x + c, n) - m) * inv); }) /
            count;
        for (Dim c = 0; c < a.cols; c += W) {
          const Dim n = a.cols - c;
          const V normed = (vload_n(x + c, n) - m) * inv;
          vstore_n(dx + c, vload_n(dx + c, n) + inv * (g(c, n) - vset(sum_g) - normed * vset(sum_gn)), n);
        }
      }
    });
  // Weight gradients: threads split the columns, each walks all rows in order, so the sum does not depend
  // on their number.
  if (a.dweight || a.dbias)
    for_ranges(queue, a.cols, 4 * W, [&](Dim begin, Dim end, int) {
      for (Dim group = 0; group < a.groups; ++group)
        for (Dim c = begin; c < end; c += W) {
          const Dim n = end - c;
          V dw = vzero(), db = vzero();
          for (Dim r = group; r < a.rows; r += a.groups) {
            const V dy = vload_n(all_dy + r * a.cols + c, n);
            dw = vfma(dy, (vload_n(all_x + r * a.cols + c, n) - vset(stats[2 * r])) * vset(stats[2 * r + 1]),
                      dw);
            db = db + dy;
          }
          const Dim at = group * a.cols + c;
          if (a.dweight)
            vstore_n(static_cast<Real*>(a.dweight) + at, vload_n(static_cast<Real*>(a.dweight) + at, n) + dw,
                     n);
          if (a.dbias)
            vstore_n(static_cast<Real*>(a.dbias) + at, vload_n(static_cast<Real*>(a.dbias) + at, n) + db, n);
        }
    });
}

}  // namespace rapt::RAPT_ISA
