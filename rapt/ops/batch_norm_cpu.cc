// SPDX-License-Identifier: Apache-2.0
// Threads split the columns; a task walks all rows of a strip of four vectors, so that one row of it is four
// cache lines.
#include "rapt/ops/batch_norm.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

constexpr int kStrip = 4;
// Rows summed before they join the total: the error of a long sum grows with 64 + rows/64 instead of rows.
constexpr Dim kBlock = 64;

struct Strip {
  V v[kStrip];
};
RAPT_INLINE void clear(Strip& s) {
  for (int j = 0; j < kStrip; ++j) s.v[j] = vzero();
}
// The strip's j-th vector of columns that start at c and end at `end`.
RAPT_INLINE V load(const Real* row, Dim c, Dim end, int j) {
  return vload_n(row + c + j * W, end - c - j * W);
}
RAPT_INLINE void store(Real* row, Dim c, Dim end, int j, V x) {
  vstore_n(row + c + j * W, x, end - c - j * W);
}

// Sums over valid rows, in row order, of f(row, j) for every vector j of the strip.
template <class F>
RAPT_INLINE Strip row_sums(Dim rows, const uint8_t* valid, const F& f) {
  Strip total;
  clear(total);
  for (Dim first = 0; first < rows; first += kBlock) {
    Strip block;
    clear(block);
    for (Dim r = first; r < least(rows, first + kBlock); ++r)
      if (!valid || valid[r])
        for (int j = 0; j < kStrip; ++j) block.v[j] = block.v[j] + f(r, j);
    for (int j = 0; j < kStrip; ++j) total.v[j] = total.v[j] + block.v[j];
  }
  return total;
}

RAPT_INLINE Dim count_valid(Dim rows, const uint8_t* valid) {
  if (!valid) return rows;
  Dim count = 0;
  for (Dim r = 0; r < rows; ++r) count += valid[r] != 0;
  return count;
}

}  // namespace

void batch_norm(Queue& queue, const BatchNormArgs& a) noexcept {
  const Dim cols = a.cols, count = count_valid(a.rows, a.valid);
  const Real* x = static_cast<const Real*>(a.x);
  const Real *weight = static_cast<const Real*>(a.weight), *bias = static_cast<const Real*>(a.bias);
  Real *y = static_cast<Real*>(a.y), *stats = static_cast<Real*>(a.stats),
       *running = static_cast<Real*>(a.running);
  for_ranges(queue, cols, kStrip * W, [&](Dim c, Dim end, int) {
    Strip mean, var;
    if (a.training) {
      mean =
          row_sums(a.rows, a.valid, [&](Dim r, int j) RAPT_LAMBDA { return load(x + r * cols, c, end, j); });
      for (int j = 0; j < kStrip; ++j) mean.v[j] = mean.v[j] / vset(Real(count));
      var = row_sums(a.rows, a.valid, [&](Dim r, int j) RAPT_LAMBDA {
        const V d = load(x + r * cols, c, end, j) - mean.v[j];
        return d * d;
      });
      const V old_share = vset(Real(1 - a.momentum)), momentum = vset(Real(a.momentum)),
              unbiased = vset(Real(a.momentum / double(count - 1)));
      for (int j = 0; j < kStrip; ++j) {
        store(running, c, end, j, old_share * load(running, c, end, j) + momentum * mean.v[j]);
        store(running + cols, c, end, j, old_share * load(running + cols, c, end, j) + unbiased * var.v[j]);
        var.v[j] = var.v[j] / vset(Real(count));
      }
    } else {
      for (int j = 0; j < kStrip; ++j) {
        mean.v[j] = load(running, c, end, j);
        var.v[j] = load(running + cols, c, end, j);
      }
    }
    Strip inv, gain, shift;
    for (int j = 0; j < kStrip; ++j) {
      inv.v[j] = vset(Real(1)) / vsqrt(var.v[j] + vset(Real(a.eps)));
      gain.v[j] = weight ? load(weight, c, end, j) : vset(Real(1));
      shift.v[j] = bias ? load(bias, c, end, j) : vzero();
      store(stats, c, end, j, mean.v[j]);
      store(stats + cols, c, end, j, inv.v[j]);
    }
    for (Dim r = 0; r < a.rows; ++r)
      for (int j = 0; j < kStrip; ++j) {
        const V n = (load(x + r * cols, c, end, j) - mean.v[j]) * inv.v[j];
        store(y + r * cols, c, end, j, !a.valid || a.valid[r] ? n * gain.v[j] + shift.v[j] : vzero());
      }
  });
}

void batch_norm_backward(Queue& queue, const BatchNormBackwardArgs& a) noexcept {
  const Dim cols = a.cols, count = count_valid(a.rows, a.valid);
  const Real *x = static_cast<const Real*>(a.x), *dy = static_cast<const Real*>(a.dy),
             *stats = static_cast<const Real*>(a.stats);
  const Real* weight = static_cast<const Real*>(a.weight);
  Real *dx = static_cast<Real*>(a.dx), *dweight = static_cast<Real*>(a.dweight),
       *dbias = static_cast<Real*>(a.dbias);
  for_ranges(queue, cols, kStrip * W, [&](Dim c, Dim end, int) {
    Strip mean, inv;
    for (int j = 0; j < kStrip; ++j) {
      mean.v[j] = load(stats, c, end, j);
      inv.v[j] = load(stats + cols, c, end, j);
    }
    auto normed = [&](Dim r, int j)
                      RAPT_LAMBDA { return (load(x + r * cols, c, end, j) - mean.v[j]) * inv.v[j]; };
    const Strip sum =
        row_sums(a.rows, a.valid, [&](Dim r, int j) RAPT_LAMBDA { return load(dy + r * cols, c, end, j); });
    const Strip sum_n = row_sums(a.rows, a.valid, [&](Dim r, int j) RAPT_LAMBDA {
      return load(dy + r * cols, c, end, j) * normed(r, j);
    });
    for (int j = 0; j < kStrip; ++j) {
      if (dbias) store(dbias, c, end, j, load(dbias, c, end, j) + sum.v[j]);
      if (dweight) store(dweight, c, end, j, load(dweight, c, end, j) + sum_n.v[j]);
    }
    if (!dx) return;
    Strip scale, mean_dy, mean_dyn;
    for (int j = 0; j < kStrip; ++j) {
      scale.v[j] = weight ? load(weight, c, end, j) * inv.v[j] : inv.v[j];
      mean_dy.v[j] = a.training ? sum.v[j] / vset(Real(count)) : vzero();
      mean_dyn.v[j] = a.training ? sum_n.v[j] / vset(Real(count)) : vzero();
    }
    for (Dim r = 0; r < a.rows; ++r)
      if (!a.valid || a.valid[r])
        for (int j = 0; j < kStrip; ++j) {
          const V g = load(dy + r * cols, c, end, j) - mean_dy.v[j] - normed(r, j) * mean_dyn.v[j];
          store(dx + r * cols, c, end, j, load(dx + r * cols, c, end, j) + scale.v[j] * g);
        }
  });
}

}  // namespace rapt::RAPT_ISA
