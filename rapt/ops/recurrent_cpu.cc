// SPDX-License-Identifier: Apache-2.0
// Gates are computed again in backward: that costs a few exponentials, storing them would cost a pass
// through memory.
#include "rapt/ops/recurrent.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

struct GruCell {
  V r, z, n, hn;
};
// Gates of columns [c, c + count) of one row: x and h are its 3n numbers.
RAPT_INLINE GruCell gru_cell(const Real* x, const Real* h, Dim width, Dim c, Dim count) {
  const V r = vsigmoid(vload_n(x + c, count) + vload_n(h + c, count)),
          z = vsigmoid(vload_n(x + width + c, count) + vload_n(h + width + c, count));
  const V hn = vload_n(h + 2 * width + c, count);
  return {r, z, vtanh(vfma(r, hn, vload_n(x + 2 * width + c, count))), hn};
}

struct LstmCell {
  V i, f, g, o;
};
RAPT_INLINE LstmCell lstm_cell(const Real* gates, Dim width, Dim c, Dim count) {
  return {vsigmoid(vload_n(gates + c, count)), vsigmoid(vload_n(gates + width + c, count)),
          vtanh(vload_n(gates + 2 * width + c, count)), vsigmoid(vload_n(gates + 3 * width + c, count))};
}

RAPT_INLINE void add_to(Real* to, V x, Dim n) { vstore_n(to, vload_n(to, n) + x, n); }
RAPT_INLINE V rest(V x) { return vset(Real(1)) - x; }

}  // namespace

void gru(Queue& queue, const GruArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(3 * a.n), [&](Dim begin, Dim end, int) {
    for (Dim b = begin; b < end; ++b) {
      const Real *x = static_cast<const Real*>(a.x_gates) + 3 * b * a.n,
                 *hg = static_cast<const Real*>(a.h_gates) + 3 * b * a.n;
      const Real* h = static_cast<const Real*>(a.h) + b * a.n;
      Real* y = static_cast<Real*>(a.y) + b * a.n;
      for (Dim c = 0; c < a.n; c += W) {
        const Dim n = a.n - c;
        const GruCell g = gru_cell(x, hg, a.n, c, n);
        vstore_n(y + c, vfma(g.z, vload_n(h + c, n), rest(g.z) * g.n), n);
      }
    }
  });
}

void gru_backward(Queue& queue, const GruBackwardArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(3 * a.n), [&](Dim begin, Dim end, int) {
    for (Dim b = begin; b < end; ++b) {
      const Dim at = b * a.n, gates_at = 3 * b * a.n;
      const Real *x = static_cast<const Real*>(a.x_gates) + gates_at,
                 *hg = static_cast<const Real*>(a.h_gates) + gates_at;
      const Real *h = static_cast<const Real*>(a.h) + at, *all_dy = static_cast<const Real*>(a.dy) + at;
      for (Dim c = 0; c < a.n; c += W) {
        const Dim n = a.n - c;
        const GruCell g = gru_cell(x, hg, a.n, c, n);
        const V dy = vload_n(all_dy + c, n);
        const V dz = dy * (vload_n(h + c, n) - g.n) * g.z * rest(g.z), dn = dy * rest(g.z) * rest(g.n * g.n),
                dr = dn * g.hn * g.r * rest(g.r);
        if (a.dx_gates) {
          Real* d = static_cast<Real*>(a.dx_gates) + gates_at + c;
          add_to(d, dr, n);
          add_to(d + a.n, dz, n);
          add_to(d + 2 * a.n, dn, n);
        }
        if (a.dh_gates) {
          Real* d = static_cast<Real*>(a.dh_gates) + gates_at + c;
          add_to(d, dr, n);
          add_to(d + a.n, dz, n);
          add_to(d + 2 * a.n, dn * g.r, n);
        }
        if (a.dh) add_to(static_cast<Real*>(a.dh) + at + c, dy * g.z, n);
      }
    }
  });
}

void lstm(Queue& queue, const LstmArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(4 * a.n), [&](Dim begin, Dim end, int) {
    for (Dim b = begin; b < end; ++b) {
      const Real *gates = static_cast<const Real*>(a.gates) + 4 * b * a.n,
                 *old = static_cast<const Real*>(a.c) + b * a.n;
      Real *h_out = static_cast<Real*>(a.h_out) + b * a.n, *c_out = static_cast<Real*>(a.c_out) + b * a.n;
      for (Dim c = 0; c < a.n; c += W) {
        const Dim n = a.n - c;
        const LstmCell g = lstm_cell(gates, a.n, c, n);
        const V next = vfma(g.f, vload_n(old + c, n), g.i * g.g);
        vstore_n(c_out + c, next, n);
        vstore_n(h_out + c, g.o * vtanh(next), n);
      }
    }
  });
}

void lstm_backward(Queue& queue, const LstmBackwardArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(4 * a.n), [&](Dim begin, Dim end, int) {
    for (Dim b = begin; b < end; ++b) {
      const Dim at = b * a.n;
      const Real *gates = static_cast<const Real*>(a.gates) + 4 * at,
                 *old = static_cast<const Real*>(a.c) + at;
      for (Dim c = 0; c < a.n; c += W) {
        const Dim n = a.n - c;
        const LstmCell g = lstm_cell(gates, a.n, c, n);
        const V t = vtanh(vload_n(static_cast<const Real*>(a.c_out) + at + c, n)),
                dh = vload_n(static_cast<const Real*>(a.dh) + at + c, n);
        const V d = vfma(dh * g.o, rest(t * t), vload_n(static_cast<const Real*>(a.dc_out) + at + c, n));
        if (a.dgates) {
          Real* to = static_cast<Real*>(a.dgates) + 4 * at + c;
          add_to(to, d * g.g * g.i * rest(g.i), n);
          add_to(to + a.n, d * vload_n(old + c, n) * g.f * rest(g.f), n);
          add_to(to + 2 * a.n, d * g.i * rest(g.g * g.g), n);
          add_to(to + 3 * a.n, dh * t * g.o * rest(g.o), n);
        }
        if (a.dc) add_to(static_cast<Real*>(a.dc) + at + c, d * g.f, n);
      }
    }
  });
}

void maxout(Queue& queue, const MaxoutArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(2 * a.n), [&](Dim begin, Dim end, int) {
    for (Dim b = begin; b < end; ++b) {
      const Real* x = static_cast<const Real*>(a.x) + 2 * b * a.n;
      Real* y = static_cast<Real*>(a.y) + b * a.n;
      for (Dim c = 0; c < a.n; c += W) {
        const V first = vload_n(x + c, a.n - c), second = vload_n(x + a.n + c, a.n - c);
        vstore_n(y + c, vselect(vlt(first, second), second, first), a.n - c);
      }
    }
  });
}

void maxout_backward(Queue& queue, const MaxoutBackwardArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(2 * a.n), [&](Dim begin, Dim end, int) {
    for (Dim b = begin; b < end; ++b) {
      const Real *x = static_cast<const Real*>(a.x) + 2 * b * a.n,
                 *all_dy = static_cast<const Real*>(a.dy) + b * a.n;
      Real* dx = static_cast<Real*>(a.dx) + 2 * b * a.n;
      for (Dim c = 0; c < a.n; c += W) {
        const Dim n = a.n - c;
        const M second = vlt(vload_n(x + c, n), vload_n(x + a.n + c, n));
        const V dy = vload_n(all_dy + c, n);
        add_to(dx + c, vselect(second, vzero(), dy), n);
        add_to(dx + a.n + c, vselect(second, dy, vzero()), n);
      }
    }
  });
}

void beside(Queue& queue, const BesideArgs& a) noexcept {
  const Dim cols = a.a_cols + a.b_cols;
  for_ranges(queue, a.rows, row_grain(cols), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r) {
      const Real *x = static_cast<const Real*>(a.a) + a.a_rows[r] * a.a_cols,
                 *z = static_cast<const Real*>(a.b) + a.b_rows[r] * a.b_cols;
      Real* y = static_cast<Real*>(a.y) + r * cols;
      for (Dim c = 0; c < a.a_cols; c += W) vstore_n(y + c, vload_n(x + c, a.a_cols - c), a.a_cols - c);
      for (Dim c = 0; c < a.b_cols; c += W)
        vstore_n(y + a.a_cols + c, vload_n(z + c, a.b_cols - c), a.b_cols - c);
    }
  });
}

// Threads share the columns: a row may be taken twice, and gets both in their order.
void beside_backward(Queue& queue, const BesideBackwardArgs& a) noexcept {
  constexpr Dim kColumns = 64;
  const Dim cols = a.a_cols + a.b_cols;
  auto side = [&](Dim first, Dim n, const int32_t* rows, void* to) {
    if (!to) return;
    for_ranges(queue, n, kColumns, [&](Dim begin, Dim end, int) {
      for (Dim r = 0; r < a.rows; ++r) {
        const Real* dy = static_cast<const Real*>(a.dy) + r * cols + first;
        Real* dx = static_cast<Real*>(to) + rows[r] * n;
        for (Dim c = begin; c < end; c += W) add_to(dx + c, vload_n(dy + c, end - c), end - c);
      }
    });
  };
  side(0, a.a_cols, a.a_rows, a.da);
  side(a.a_cols, a.b_cols, a.b_rows, a.db);
}

}  // namespace rapt::RAPT_ISA
