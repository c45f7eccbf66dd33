// SPDX-License-Identifier: Apache-2.0
#include "rapt/ops/recurrent.h"

namespace rapt {
namespace {

void check_shape(const char* op, const char* what, const Tensor& t, Dim rows, Dim cols) {
  if (t.rank != 2 || !t.contiguous() || t[0] != rows || t[1] != cols)
    fail(op, ": ", what, " ", t.shape(), " should be contiguous [", rows, ",", cols, "]");
}

}  // namespace

// ------------------------------------------------------------------------------------------------ gru
namespace {

struct GruSaved {
  Tensor x_gates, h_gates, h, y;
};

// With dz = dy (h - n) z (1 - z), dn = dy (1 - z) (1 - n^2), dr = dn hn r (1 - r):
// dx_gates += dr, dz, dn;  dh_gates += dr, dz, dn r;  dh += dy z.
void gru_backward(Run& run, const GruSaved& s) {
  run.kernels().gru_backward(run.queue(), {.rows = s.h[0],
                                           .n = s.h[1],
                                           .x_gates = s.x_gates.data,
                                           .h_gates = s.h_gates.data,
                                           .h = s.h.data,
                                           .dy = run.grad(s.y),
                                           .dx_gates = run.grad(s.x_gates),
                                           .dh_gates = run.grad(s.h_gates),
                                           .dh = run.grad(s.h)});
}

}  // namespace

Tensor gru(Run& run, const Tensor& x_gates, const Tensor& h_gates, const Tensor& h) {
  if (h.rank != 2 || !h.contiguous()) fail("gru: h ", h.shape(), " should be contiguous [B,n]");
  check_shape("gru", "x_gates", x_gates, h[0], 3 * h[1]);
  check_shape("gru", "h_gates", h_gates, h[0], 3 * h[1]);
  Tensor y = run.like(h);
  run.kernels().gru(run.queue(), {.rows = h[0], .n = h[1], .x_gates = x_gates.data, .h_gates = h_gates.data, .h = h.data, .y = y.data});
  run.record(gru_backward, GruSaved{x_gates, h_gates, h, y});
  return y;
}

// ------------------------------------------------------------------------------------------------ lstm
namespace {

struct LstmSaved {
  Tensor gates, c, h_out, c_out;
};

// With t = tanh(c') and d = dc' + dh' o (1 - t^2):
// di = d g i (1 - i), df = d c f (1 - f), dg = d i (1 - g^2), do = dh' t o (1 - o);  dc += d f.
void lstm_backward(Run& run, const LstmSaved& s) {
  run.kernels().lstm_backward(run.queue(), {.rows = s.c[0],
                                            .n = s.c[1],
                                            .gates = s.gates.data,
                                            .c = s.c.data,
                                            .c_out = s.c_out.data,
                                            .dh = run.grad(s.h_out),
                                            .dc_out = run.grad(s.c_out),
                                            .dgates = run.grad(s.gates),
                                            .dc = run.grad(s.c)});
}

}  // namespace

LstmState lstm(Run& run, const Tensor& gates, const Tensor& c) {
  if (c.rank != 2 || !c.contiguous()) fail("lstm: c ", c.shape(), " should be contiguous [B,n]");
  check_shape("lstm", "gates", gates, c[0], 4 * c[1]);
  const LstmState next{run.like(c), run.like(c)};
  run.kernels().lstm(run.queue(), {.rows = c[0], .n = c[1], .gates = gates.data, .c = c.data, .h_out = next.h.data, .c_out = next.c.data});
  run.record(lstm_backward, LstmSaved{gates, c, next.h, next.c});
  return next;
}

}  // namespace rapt
