// SPDX-License-Identifier: Apache-2.0
// Forward, threads split the rows. Backward, they split the columns and walk all rows, as ids may repeat.
#include "rapt/ops/embed.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

// Columns of one task of a backward pass: whole cache lines, and enough of them that walking the list of
// rows is not the work.
constexpr Dim kColumns = 64;

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
RAPT_INLINE Real real_of(Bf16 x) {
  union {
    uint32_t u;
    float f;
  } y = {uint32_t(x.bits) << 16};
  return y.f;
}
RAPT_INLINE Real real_of(F16 x) { return half_to_real(x.bits); }
RAPT_INLINE Real real_of(Real x) { return x; }
RAPT_INLINE V vload_of(const Bf16* p) { return vload_bf16(&p->bits); }
RAPT_INLINE V vload_of(const F16* p) { return vload_f16(&p->bits); }
RAPT_INLINE V vload_of(const Real* p) { return vload(p); }

// y[c] = scale * x[c * step]: step 1 for a row, kPanel for a lane of a panel.
template <class T>
RAPT_INLINE void copy_row(const T* x, Dim step, Dim cols, Real scale, Real* y) {
  Dim c = 0;
  if (step == 1)
    for (; c + W <= cols; c += W) vstore(y + c, vset(scale) * vload_of(x + c));
  for (; c < cols; ++c) y[c] = scale * real_of(x[c * step]);
}
RAPT_INLINE void copy_row(const void* table, DType format, Dim at, Dim step, Dim cols, Real scale, Real* y) {
  if (format == DType::bf16) copy_row(static_cast<const Bf16*>(table) + at, step, cols, scale, y);
  else if (format == DType::f16) copy_row(static_cast<const F16*>(table) + at, step, cols, scale, y);
  else copy_row(static_cast<const Real*>(table) + at, step, cols, scale, y);
}

// y += scale * x
RAPT_INLINE void add_row(const Real* x, Dim cols, Real scale, Real* y) {
  for (Dim c = 0; c < cols; c += W)
    vstore_n(y + c, vload_n(y + c, cols - c) + vset(scale) * vload_n(x + c, cols - c), cols - c);
}

}  // namespace

void embed(Queue& queue, const EmbedArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(a.cols), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r) {
      const Dim id = a.ids[r];
      Real* y = static_cast<Real*>(a.y) + r * a.cols;
      if (id >= a.vocab)
        copy_row(a.more, a.more_format, (id - a.vocab) * a.cols, 1, a.cols, Real(a.scale), y);
      else if (!a.panels) copy_row(a.table, a.format, id * a.cols, 1, a.cols, Real(a.scale), y);
      else
        copy_row(a.table, a.format, id / kPanel * a.cols * kPanel + id % kPanel, kPanel, a.cols,
                 Real(a.scale), y);
    }
  });
}

// Threads split the columns, each walks all rows in order: ids may repeat, and the sum does not depend on
// the number of threads.
void embed_backward(Queue& queue, const EmbedBackwardArgs& a) noexcept {
  const Real scale = Real(a.scale);
  for_ranges(queue, a.cols, kColumns, [&](Dim begin, Dim end, int) {
    for (Dim r = 0; r < a.rows; ++r) {
      const Dim id = a.ids[r];
      const Real* dy = static_cast<const Real*>(a.dy) + r * a.cols;
      if (id >= a.vocab || !a.panels) {
        Real* d = id >= a.vocab ? static_cast<Real*>(a.dmore) + (id - a.vocab) * a.cols
                                : static_cast<Real*>(a.dtable) + id * a.cols;
        add_row(dy + begin, end - begin, scale, d + begin);
      } else {
        Real* d = static_cast<Real*>(a.dtable) + id / kPanel * a.cols * kPanel + id % kPanel;
        for (Dim c = begin; c < end; ++c) d[c * kPanel] += scale * dy[c];
      }
    }
  });
}

void take_rows(Queue& queue, const TakeRowsArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(a.cols), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r) {
      const Real* x = static_cast<const Real*>(a.x) + a.which[r] * a.cols;
      Real* y = static_cast<Real*>(a.y) + r * a.cols;
      for (Dim c = 0; c < a.cols; c += W) vstore_n(y + c, vload_n(x + c, a.cols - c), a.cols - c);
    }
  });
}

void take_rows_backward(Queue& queue, const TakeRowsBackwardArgs& a) noexcept {
  for_ranges(queue, a.cols, kColumns, [&](Dim begin, Dim end, int) {
    for (Dim r = 0; r < a.rows; ++r)
      add_row(static_cast<const Real*>(a.dy) + r * a.cols + begin, end - begin, Real(1),
              static_cast<Real*>(a.dx) + a.which[r] * a.cols + begin);
  });
}

}  // namespace rapt::RAPT_ISA
