// SPDX-License-Identifier: Apache-2.0
// A row: largest logit, sum of exponentials, loss. Backward makes softmax again from the first two.
#include "rapt/ops/loss.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

// Sums of up to kBlock numbers stay in f32, in four accumulators; blocks are added in double. 150,000
// classes then cost no digits.
constexpr Dim kBlock = 1024;

template <class F>
RAPT_INLINE double blocked_sum(Dim n, const F& f) {
  double sum = 0;
  for (Dim at = 0; at < n; at += kBlock) {
    const Dim end = least(n, at + kBlock);
    V a[4] = {vzero(), vzero(), vzero(), vzero()};
    Dim c = at;
    for (; c + 4 * W <= end; c += 4 * W)
      for (int j = 0; j < 4; ++j) a[j] = a[j] + f(c + j * W, Dim(W));
    for (int j = 0; c < end; c += W, ++j) a[j] = a[j] + f(c, end - c);
    sum += double(vsum((a[0] + a[1]) + (a[2] + a[3])));
  }
  return sum;
}

Real largest(const Real* x, Dim n) {
  V m[4] = {vset(x[0]), vset(x[0]), vset(x[0]), vset(x[0])};
  Dim c = 0;
  for (; c + 4 * W <= n; c += 4 * W)
    for (int j = 0; j < 4; ++j) m[j] = vmax(m[j], vload(x + c + j * W));
  for (; c < n; c += W) m[0] = vmax(m[0], vselect_n(n - c, vload_n(x + c, n - c), vset(x[0])));
  Real lanes[W];
  vstore(lanes, vmax(vmax(m[0], m[1]), vmax(m[2], m[3])));
  Real best = lanes[0];
  for (int j = 1; j < W; ++j) best = lanes[j] > best ? lanes[j] : best;
  return best;
}

Dim counted(const int32_t* targets, Dim rows) {
  Dim n = 0;
  for (Dim t = 0; t < rows; ++t) n += targets[t] >= 0;
  return n;
}

}  // namespace

void cross_entropy(Queue& queue, const CrossEntropyArgs& a) noexcept {
  Real *row_loss = static_cast<Real*>(a.row_loss), *stats = static_cast<Real*>(a.stats);
  for_ranges(queue, a.rows, row_grain(a.classes), [&](Dim begin, Dim end, int) {
    for (Dim t = begin; t < end; ++t) {
      row_loss[t] = stats[2 * t] = stats[2 * t + 1] = 0;
      if (a.targets[t] < 0) continue;
      const Real* x = static_cast<const Real*>(a.logits) + t * a.classes;
      const Real top = largest(x, a.classes);
      const V m = vset(top);
      const double sum = blocked_sum(a.classes, [&](Dim c, Dim n) RAPT_LAMBDA {
        return vselect_n(n, vexp(vload_n(x + c, n) - m), vzero());
      });
      const double log_of_sum = log(sum);
      stats[2 * t] = top;
      stats[2 * t + 1] = Real(1 / sum);
      // Differences from the largest logit first: log-sum and target may both be large and
      // nearly equal.
      double loss = (1 - a.smoothing) * (log_of_sum + (double(top) - double(x[a.targets[t]])));
      if (a.smoothing > 0)
        loss += a.smoothing * (log_of_sum + blocked_sum(a.classes, [&](Dim c, Dim n) RAPT_LAMBDA {
                                              return vselect_n(n, m - vload_n(x + c, n), vzero());
                                            }) / double(a.classes));
      row_loss[t] = Real(loss);
    }
  });
  double sum = 0;
  for (Dim t = 0; t < a.rows; ++t) sum += double(row_loss[t]);
  const Dim n = counted(a.targets, a.rows);
  *static_cast<Real*>(a.mean) = n ? Real(sum / double(n)) : 0;
}

void cross_entropy_backward(Queue& queue, const CrossEntropyBackwardArgs& a) noexcept {
  const Dim n_rows = counted(a.targets, a.rows);
  if (!a.dlogits) return;
  const Real scale = n_rows ? Real(double(*static_cast<const Real*>(a.dmean)) / double(n_rows)) : Real(0);
  for_ranges(queue, a.rows, row_grain(a.classes), [&](Dim begin, Dim end, int) {
    for (Dim t = begin; t < end; ++t) {
      const Real* x = static_cast<const Real*>(a.logits) + t * a.classes;
      Real* dx = static_cast<Real*>(a.dlogits) + t * a.classes;
      if (a.targets[t] < 0) {
        for (Dim c = 0; a.write_dlogits && c < a.classes; c += W) vstore_n(dx + c, vzero(), a.classes - c);
        continue;
      }
      const Real* stats = static_cast<const Real*>(a.stats) + 2 * t;
      const V top = vset(stats[0]), inverse = vset(stats[1]), s = vset(scale),
              uniform = vset(Real(a.smoothing / double(a.classes)));
      for (Dim c = 0; c < a.classes; c += W) {
        const Dim n = a.classes - c;
        vstore_n(dx + c,
                 vfma(vexp(vload_n(x + c, n) - top) * inverse - uniform, s,
                      a.write_dlogits ? vzero() : vload_n(dx + c, n)),
                 n);
      }
      dx[a.targets[t]] -= Real(1 - a.smoothing) * scale;
    }
  });
}

}  // namespace rapt::RAPT_ISA
