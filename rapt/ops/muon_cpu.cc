// SPDX-License-Identifier: Apache-2.0
// In order: momentum and direction, its norm, five times three products by linear's kernel, the new weight.
#include "rapt/ops/muon.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {

void linear(Queue&, const LinearArgs&) noexcept;
void sum_squares(Queue&, const SumSquaresArgs&) noexcept;

namespace {

constexpr Dim kPanel = 32;                               // tensor/weight.h
constexpr Real kA = Real(3.4445), kB = Real(-4.7750), kC = Real(2.0315);
constexpr int kSteps = 5;

// Panels of x, or of its transpose: panels[p][d][lane] = x[p * 32 + lane][d] or x[d][p * 32 + lane]; lanes
// beyond are zero. x is [.., stride].
void to_panels(Queue& queue, const Real* x, Dim stride, Dim lanes, Dim depth, bool transposed, Real* panels) {
  for_tasks(queue, ceil_div(lanes, kPanel), [&](Dim p, int) {
    const Dim count = least(kPanel, lanes - p * kPanel);
    Real* to = panels + p * depth * kPanel;
    if (count < kPanel)
      for (Dim i = 0; i < depth * kPanel; ++i) to[i] = 0;
    if (transposed) {
      for (Dim d = 0; d < depth; ++d)
        for (Dim l = 0; l < count; ++l) to[d * kPanel + l] = x[d * stride + p * kPanel + l];
      return;
    }
    constexpr Dim kBlock = 16;  // columns that are turned while their lines are in the cache
    for (Dim d = 0; d < depth; d += kBlock)
      for (Dim l = 0; l < count; ++l)
        for (Dim i = d; i < least(d + kBlock, depth); ++i)
          to[i * kPanel + l] = x[(p * kPanel + l) * stride + i];
  });
}

// out = a b^T: a [rows, depth], b in panels with n lanes.
void product(Queue& queue, const Real* a, Dim rows, Dim depth, const Real* panels, Dim n, Real* out) {
  LinearArgs args{};
  args.rows = rows;
  args.k = depth;
  args.x = a;
  args.count = 1;
  args.parts[0].n = n;
  args.parts[0].w = panels;
  args.parts[0].format = kReal;
  args.parts[0].scale = 1;
  args.parts[0].y = out;
  linear(queue, args);
}

}  // namespace

void muon(Queue& queue, const MuonArgs& a) noexcept {
  const bool turned = a.rows > a.cols;  // x is then the transpose
  const Dim m = turned ? a.cols : a.rows, n = turned ? a.rows : a.cols;
  const Dim m32 = ceil_div(m, kPanel) * kPanel, n32 = ceil_div(n, kPanel) * kPanel,
            panels = ceil_div(a.rows, kPanel);
  Real* x = static_cast<Real*>(a.work);  // [m,n]
  Real *x_panels = x + m32 * n32, *turned_panels = x_panels + m32 * n32;
  // [m,m]
  Real *gram = turned_panels + m32 * n32, *gram_panels = gram + m32 * m32, *poly = gram_panels + m32 * m32;
  double* sums = reinterpret_cast<double*>(poly + m32 * m32);

  // The direction, in the weight's order (it is as large as x's panels); rows beyond the last are zero and
  // stay so.
  Real* u = x_panels;
  const Dim stored = panels * kPanel * a.cols;
  for_ranges(queue, stored, kOptimizePiece, [&](Dim begin, Dim end, int) {
    const Real* gradient = static_cast<const Real*>(a.gradient);
    Real* momentum = static_cast<Real*>(a.momentum);
    const V f = vset(Real(a.factor)), rest = vset(Real((1 - a.factor) * a.gradient_scale));
    for (Dim i = begin; i < end; i += W) {  // 32 divides a piece
      const V g = vload(gradient + i) * rest, b = vfma(f, vload(momentum + i), g);
      vstore(momentum + i, b);
      vstore(u + i, vfma(f, b, g));
    }
  });
  OptimizePart part{};
  part.elements = stored;
  part.gradient = u;
  SumSquaresArgs squares{};
  squares.all = {&part, 1, ceil_div(stored, kOptimizePiece)};
  squares.sums = sums;
  sum_squares(queue, squares);
  double sum = 0;
  for (Dim t = 0; t < squares.all.tasks; ++t) sum += sums[t];
  const double norm = sqrt(sum);
  const Real inverse = Real(1 / (norm > 1e-7 ? norm : 1e-7));

  // Element (lane of panel, column) of x, whichever way it is turned.
  auto at = [&](Dim row, Dim col) RAPT_LAMBDA { return turned ? col * n + row : row * n + col; };
  for_tasks(queue, panels, [&](Dim p, int) {
    const Real* from = u + p * kPanel * a.cols;
    for (Dim c = 0; c < a.cols; ++c)
      for (Dim l = 0; l < least(kPanel, a.rows - p * kPanel); ++l)
        x[at(p * kPanel + l, c)] = from[c * kPanel + l] * inverse;
  });

  for (int step = 0; step < kSteps; ++step) {
    to_panels(queue, x, n, m, n, false, x_panels);
    to_panels(queue, x, n, n, m, true, turned_panels);
    product(queue, x, m, n, x_panels, m, gram);
    to_panels(queue, gram, m, m, m, true, gram_panels);
    product(queue, gram, m, m, gram_panels, m, poly);
    for_ranges(queue, m, row_grain(m), [&](Dim begin, Dim end, int) {
      for (Dim r = begin; r < end; ++r) {
        for (Dim c = 0; c < m; ++c) poly[r * m + c] = kB * gram[r * m + c] + kC * poly[r * m + c];
        poly[r * m + r] += kA;
      }
    });
    product(queue, poly, m, m, turned_panels, n, x);
  }

  const double tall = turned ? sqrt(double(a.rows) / double(a.cols)) : 1;
  const Real decay = Real(1 - a.rate * a.decay), step = Real(a.rate * tall);
  for_tasks(queue, panels, [&](Dim p, int) {
    Real* to = static_cast<Real*>(a.weight) + p * kPanel * a.cols;
    for (Dim c = 0; c < a.cols; ++c)
      for (Dim l = 0; l < least(kPanel, a.rows - p * kPanel); ++l)
        to[c * kPanel + l] = to[c * kPanel + l] * decay - step * x[at(p * kPanel + l, c)];
  });
}

}  // namespace rapt::RAPT_ISA
