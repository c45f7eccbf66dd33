// SPDX-License-Identifier: Apache-2.0
// One loop over vectors for each op. The gradient of a learned scale adds its rows in order, in double.
#include "rapt/ops/elementwise.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

constexpr Dim kPiece = 8192;  // elements per task; a multiple of every W

// dx += scale * dy
void accumulate(Queue& queue, Dim elements, Real scale, const void* dy, void* dx) noexcept {
  for_ranges(queue, elements, kPiece, [&](Dim begin, Dim end, int) {
    const Real* from = static_cast<const Real*>(dy);
    Real* to = static_cast<Real*>(dx);
    for (Dim i = begin; i < end; i += W)
      vstore_n(to + i, vfma(vset(scale), vload_n(from + i, end - i), vload_n(to + i, end - i)), end - i);
  });
}

// y = x * (0 or 1 / (1 - p)), or the same added to y.
template <bool kAdd>
void drop(Queue& queue, Dim rows, Dim cols, Real p, const uint32_t* keys, const void* x, void* y) noexcept {
  constexpr uint32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for_ranges(queue, rows, row_grain(cols), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r) {
      const Real* from = static_cast<const Real*>(x) + r * cols;
      Real* to = static_cast<Real*>(y) + r * cols;
      const I key = iset(keys[r]);
      for (Dim c = 0; c < cols; c += W) {
        const V dropped = vload_n(from + c, cols - c) * vdrop(key, iadd(iload(lanes), iset(uint32_t(c))), p);
        vstore_n(to + c, kAdd ? vload_n(to + c, cols - c) + dropped : dropped, cols - c);
      }
    }
  });
}

RAPT_INLINE Real limited(Real g, double max) { return max > 0 && g > Real(max) ? Real(max) : g; }

}  // namespace

void add(Queue& queue, const AddArgs& args) noexcept {
  for_ranges(queue, args.elements, kPiece, [&](Dim begin, Dim end, int) {
    const Real *a = static_cast<const Real*>(args.a), *b = static_cast<const Real*>(args.b);
    Real* y = static_cast<Real*>(args.y);
    const V scale = vset(Real(args.scale));
    for (Dim i = begin; i < end; i += W) {
      const V x = vload_n(a + i, end - i);
      // Rounds twice, like the end of linear_add.
      vstore_n(y + i, x + scale * vload_n(b + i, end - i), end - i);
    }
  });
}

// Two passes: a and b may be views of one buffer that overlap.
void add_backward(Queue& queue, const AddBackwardArgs& a) noexcept {
  if (a.da) accumulate(queue, a.elements, 1, a.dy, a.da);
  if (a.db) accumulate(queue, a.elements, Real(a.scale), a.dy, a.db);
}

void copy(Queue& queue, const CopyArgs& args) noexcept {
  for_ranges(queue, args.elements, kPiece, [&](Dim begin, Dim end, int) {
    const Real* x = static_cast<const Real*>(args.x);
    Real* y = static_cast<Real*>(args.y);
    for (Dim i = begin; i < end; i += W) vstore_n(y + i, vload_n(x + i, end - i), end - i);
  });
}
void copy_backward(Queue& queue, const CopyBackwardArgs& a) noexcept {
  if (a.dx) accumulate(queue, a.elements, 1, a.dy, a.dx);
}

void copy_rows(Queue& queue, const CopyRowsArgs& args) noexcept {
  for_ranges(queue, args.a * args.b, row_grain(args.n), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r) {
      const Dim i = r / args.b, j = r % args.b;
      const Real* x = static_cast<const Real*>(args.x) + i * args.x_stride[0] + j * args.x_stride[1];
      Real* y = static_cast<Real*>(args.y) + i * args.y_stride[0] + j * args.y_stride[1];
      for (Dim c = 0; c < args.n; c += W) vstore_n(y + c, vload_n(x + c, args.n - c), args.n - c);
    }
  });
}
void copy_rows_backward(Queue& queue, const CopyRowsBackwardArgs& a) noexcept {
  if (!a.dx) return;
  for_ranges(queue, a.a * a.b, row_grain(a.n), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r) {
      const Dim i = r / a.b, j = r % a.b;
      Real* dx = static_cast<Real*>(a.dx) + i * a.x_stride[0] + j * a.x_stride[1];
      const Real* dy = static_cast<const Real*>(a.dy) + i * a.y_stride[0] + j * a.y_stride[1];
      for (Dim c = 0; c < a.n; c += W)
        vstore_n(dx + c, vload_n(dx + c, a.n - c) + vload_n(dy + c, a.n - c), a.n - c);
    }
  });
}

void dropout(Queue& queue, const DropoutArgs& a) noexcept {
  drop<false>(queue, a.rows, a.cols, Real(a.p), a.row_keys, a.x, a.y);
}

void dropout_backward(Queue& queue, const DropoutBackwardArgs& a) noexcept {
  if (a.dx) drop<true>(queue, a.rows, a.cols, Real(a.p), a.row_keys, a.dy, a.dx);
}

void scale_heads(Queue& queue, const ScaleHeadsArgs& a) noexcept {
  for_ranges(queue, a.rows * a.heads, row_grain(a.d), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r) {  // one head of one row
      const Real* x = static_cast<const Real*>(a.x) + r * a.d;
      Real* y = static_cast<Real*>(a.y) + r * a.d;
      const V g = vset(limited(static_cast<const Real*>(a.g)[a.scales == 1 ? 0 : r % a.heads], a.max));
      for (Dim c = 0; c < a.d; c += W) vstore_n(y + c, vload_n(x + c, a.d - c) * g, a.d - c);
    }
  });
}

void scale_heads_backward(Queue& queue, const ScaleHeadsBackwardArgs& a) noexcept {
  const Real *all_x = static_cast<const Real*>(a.x), *all_dy = static_cast<const Real*>(a.dy),
             *g = static_cast<const Real*>(a.g);
  if (a.dx)
    for_ranges(queue, a.rows * a.heads, row_grain(a.d), [&](Dim begin, Dim end, int) {
      for (Dim r = begin; r < end; ++r) {
        const Real* dy = all_dy + r * a.d;
        Real* dx = static_cast<Real*>(a.dx) + r * a.d;
        const V scale = vset(limited(g[a.scales == 1 ? 0 : r % a.heads], a.max));
        for (Dim c = 0; c < a.d; c += W)
          vstore_n(dx + c, vfma(scale, vload_n(dy + c, a.d - c), vload_n(dx + c, a.d - c)), a.d - c);
      }
    });
  // One task per scale walks its rows in order; a shared scale is one row of heads * d numbers.
  if (a.dg)
    for_tasks(queue, a.scales, [&](Dim h, int) {
      if (a.max > 0 && g[h] > Real(a.max)) return;
      const Dim n = a.scales == 1 ? a.heads * a.d : a.d;
      double sum = 0;
      for (Dim r = 0; r < a.rows; ++r) {
        const Dim at = r * a.heads * a.d + h * a.d;
        V row[2] = {vzero(), vzero()};
        int j = 0;
        for (Dim c = 0; c < n; c += W, j ^= 1)
          row[j] = vfma(vload_n(all_x + at + c, n - c), vload_n(all_dy + at + c, n - c), row[j]);
        sum += double(vsum(row[0] + row[1]));
      }
      static_cast<Real*>(a.dg)[h] += Real(sum);
    });
}

}  // namespace rapt::RAPT_ISA
