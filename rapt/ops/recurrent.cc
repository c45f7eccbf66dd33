// SPDX-License-Identifier: Apache-2.0
// Each op and its backward. A step leaves dW out; weights_later makes that of all steps in one product.
#include "rapt/ops/recurrent.h"

#include <array>
#include <cmath>

#include "rapt/ops/elementwise.h"
#include "rapt/ops/embed.h"
#include "rapt/ops/linear.h"

namespace rapt {
namespace {

void check_shape(const char* op, const char* what, const Tensor& t, Dim rows, Dim cols) {
  if (t.rank != 2 || !t.contiguous() || t[0] != rows || t[1] != cols)
    fail(op, ": ", what, " ", t.shape(), " should be contiguous [", rows, ",", cols, "]");
}

Tensor place_for(Run& run, const char* op, const Tensor& into, Dim rows, Dim cols) {
  if (!into) return run.make({rows, cols});
  check_shape(op, "the place for the result", into, rows, cols);
  return into;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ gru
namespace {

struct GruTape {
  Tensor x_gates, h_gates, h, y;
};

// With dz = dy (h - n) z (1 - z), dn = dy (1 - z) (1 - n^2), dr = dn hn r (1 - r):
// dx_gates += dr, dz, dn;  dh_gates += dr, dz, dn r;  dh += dy z.
void gru_backward(Run& run, const GruTape& s) {
  run.call(&Kernels::gru_backward, {.rows = s.h[0],
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

Tensor gru(Run& run, const Tensor& x_gates, const Tensor& h_gates, const Tensor& h, const Tensor& into) {
  if (h.rank != 2 || !h.contiguous()) fail("gru: h ", h.shape(), " should be contiguous [B,n]");
  check_shape("gru", "x_gates", x_gates, h[0], 3 * h[1]);
  check_shape("gru", "h_gates", h_gates, h[0], 3 * h[1]);
  const Tensor y = place_for(run, "gru", into, h[0], h[1]);
  run.call(
      &Kernels::gru,
      {.rows = h[0], .n = h[1], .x_gates = x_gates.data, .h_gates = h_gates.data, .h = h.data, .y = y.data});
  run.record(gru_backward, GruTape{x_gates, h_gates, h, y});
  return y;
}

// ------------------------------------------------------------------------------------------------ lstm
namespace {

struct LstmTape {
  Tensor gates, c, h_out, c_out;
};

// With t = tanh(c') and d = dc' + dh' o (1 - t^2):
// di = d g i (1 - i), df = d c f (1 - f), dg = d i (1 - g^2), do = dh' t o (1 - o);  dc += d f.
void lstm_backward(Run& run, const LstmTape& s) {
  run.call(&Kernels::lstm_backward, {.rows = s.c[0],
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

LstmState lstm(Run& run, const Tensor& gates, const Tensor& c, const LstmState& into) {
  if (c.rank != 2 || !c.contiguous()) fail("lstm: c ", c.shape(), " should be contiguous [B,n]");
  check_shape("lstm", "gates", gates, c[0], 4 * c[1]);
  const LstmState next{place_for(run, "lstm", into.h, c[0], c[1]),
                       place_for(run, "lstm", into.c, c[0], c[1])};
  run.call(&Kernels::lstm, {.rows = c[0],
                            .n = c[1],
                            .gates = gates.data,
                            .c = c.data,
                            .h_out = next.h.data,
                            .c_out = next.c.data});
  run.record(lstm_backward, LstmTape{gates, c, next.h, next.c});
  return next;
}

// ------------------------------------------------------------------------------------------------ maxout
namespace {

struct MaxoutTape {
  Tensor x, y;
};

// dy goes to the larger of the two, to the first where they are equal.
void maxout_backward(Run& run, const MaxoutTape& s) {
  if (void* dx = run.grad(s.x))
    run.call(&Kernels::maxout_backward,
             {.rows = s.y[0], .n = s.y[1], .x = s.x.data, .dy = run.grad(s.y), .dx = dx});
}

}  // namespace

Tensor maxout(Run& run, const Tensor& x, const Tensor& into) {
  if (x.rank != 2 || !x.contiguous() || x[1] % 2 != 0)
    fail("maxout: x ", x.shape(), " should be contiguous [B,2n]");
  const Tensor y = place_for(run, "maxout", into, x[0], x[1] / 2);
  run.call(&Kernels::maxout, {.rows = y[0], .n = y[1], .x = x.data, .y = y.data});
  run.record(maxout_backward, MaxoutTape{x, y});
  return y;
}

// ------------------------------------------------------------------------------------------------ beside
namespace {

struct BesideTape {
  Tensor a, b, y;
  const std::int32_t *a_rows, *b_rows;
};

// da[a_rows] += the first columns of dy, db[b_rows] += the others, row after row.
void beside_backward(Run& run, const BesideTape& s) {
  run.call(&Kernels::beside_backward, {.rows = s.y[0],
                                       .a_cols = s.a[1],
                                       .b_cols = s.b[1],
                                       .a_rows = s.a_rows,
                                       .b_rows = s.b_rows,
                                       .dy = run.grad(s.y),
                                       .da = run.grad(s.a),
                                       .db = run.grad(s.b)});
}

void check_rows(const char* op, const char* what, const Tensor& x, std::span<const std::int32_t> rows) {
  if (x.rank != 2 || !x.contiguous()) fail(op, ": ", what, " ", x.shape(), " should be contiguous [rows,C]");
  for (const std::int32_t r : rows)
    if (r < 0 || r >= x[0]) fail(op, ": row ", r, " is outside ", what, " ", x.shape());
}

}  // namespace

Tensor beside(Run& run, const Tensor& a, std::span<const std::int32_t> a_rows, const Tensor& b,
              std::span<const std::int32_t> b_rows) {
  check_rows("beside", "a", a, a_rows);
  check_rows("beside", "b", b, b_rows);
  if (a_rows.size() != b_rows.size())
    fail("beside: ", a_rows.size(), " rows of a for ", b_rows.size(), " of b");
  const Tensor y = run.make({static_cast<Dim>(a_rows.size()), a[1] + b[1]});
  const BesideTape tape{a, b, y, run.copy_of(a_rows), run.copy_of(b_rows)};
  run.call(&Kernels::beside, {.rows = y[0],
                              .a_cols = a[1],
                              .b_cols = b[1],
                              .a_rows = tape.a_rows,
                              .b_rows = tape.b_rows,
                              .a = a.data,
                              .b = b.data,
                              .y = y.data});
  run.record(beside_backward, tape);
  return y;
}

// --------------------------------------------------------------------------------------- products of a step
namespace {

struct LinearStepTape {
  Tensor x;
  std::array<StepProduct, kMostParts> products;
  int count;
};

// dx += dy W, dresidual += dy
void linear_step_backward(Run& run, const LinearStepTape& s) {
  LinearBackwardArgs a{
      .rows = s.x[0], .k = s.x[1], .x = s.x.data, .dx = run.grad(s.x), .count = s.count, .parts = {}};
  for (int i = 0; i < s.count; ++i) {
    const StepProduct& p = s.products[static_cast<std::size_t>(i)];
    a.parts[i] = {.n = p.w->rows,
                  .w = p.w->data.get(),
                  .format = p.w->format,
                  .scale = 1,
                  .dy = run.grad(p.into),
                  .dw = nullptr,
                  .dbias = nullptr,
                  .dresidual = p.residual ? run.grad(p.residual) : nullptr};
  }
  run.call(&Kernels::linear_backward, a);
}

struct WeightsLaterTape {
  Tensor x, y;
  const std::int32_t* rows;  // nullptr: all, in order
  const Weight *w, *bias;
};

void weights_later_backward(Run& run, const WeightsLaterTape& s) {
  void *dy = run.grad(s.y), *dw = run.grad(s.w), *dbias = run.grad(s.bias);
  const Dim rows = s.y[0], k = s.x[1];
  const Arena::Mark mark = run.arena.mark();
  const void* x = s.x.data;
  if (s.rows) {
    void* taken = run.arena.take(static_cast<std::size_t>(rows * k) * size_of(run.device.real));
    run.call(&Kernels::take_rows, {.rows = rows, .cols = k, .which = s.rows, .x = s.x.data, .y = taken});
    x = taken;
  }
  LinearBackwardArgs a{.rows = rows, .k = k, .x = x, .dx = nullptr, .count = 1, .parts = {}};
  a.parts[0] = {.n = s.w->rows,
                .w = s.w->data.get(),
                .format = s.w->format,
                .scale = 1,
                .dy = dy,
                .dw = dw,
                .dbias = dbias,
                .dresidual = nullptr};
  run.call(&Kernels::linear_backward, a);
  run.arena.release(mark);
}

void check_weight(const Run& run, const Tensor& x, const Weight& w, const Weight* bias) {
  if (x.rank != 2 || !x.contiguous() || x[1] != w.cols)
    fail("linear_step: x ", x.shape(), " should be contiguous [B,", w.cols, "] for ", w.name);
  if (w.packing != Packing::panels ||
      (w.format != run.device.real && w.format != DType::bf16 && w.format != DType::f16))
    fail("linear_step: weight ", w.name, " is stored as ", name_of(w.format),
         w.packing == Packing::panels ? "" : " in rows",
         "; recurrent stacks read float matrices in panels: load them as f32, bf16 or f16");
  if (bias && (bias->size() != w.rows || bias->packing != Packing::rows || bias->format != run.device.real))
    fail("linear_step: bias ", bias->name, " does not fit weight ", w.name);
}

}  // namespace

void linear_step(Run& run, const Tensor& x, std::span<const StepProduct> products) {
  if (products.empty() || products.size() > kMostParts)
    fail("linear_step: ", products.size(), " products; 1 to ", kMostParts, " are possible");
  LinearStepTape s{.x = x, .products = {}, .count = static_cast<int>(products.size())};
  LinearArgs a{.rows = x[0], .k = x[1], .x = x.data, .count = s.count, .parts = {}};
  for (std::size_t i = 0; i < products.size(); ++i) {
    const StepProduct& p = products[i];
    check_weight(run, x, *p.w, p.bias);
    check_shape("linear_step", "the place for the result", p.into, x[0], p.w->rows);
    if (p.residual) check_shape("linear_step", "residual", p.residual, x[0], p.w->rows);
    s.products[i] = p;
    a.parts[i] = {.n = p.w->rows,
                  .w = p.w->data.get(),
                  .format = p.w->format,
                  .bias = p.bias ? p.bias->data.get() : nullptr,
                  .residual = p.residual.data,
                  .scale = 1,
                  .y = p.into.data};
  }
  run.call(&Kernels::linear, a);
  run.record(linear_step_backward, s);
}

void weights_later(Run& run, const Tensor& x, std::span<const std::int32_t> rows, const Weight& w,
                   const Weight* bias, const Tensor& y) {
  if (!run.tape) return;
  check_weight(run, x, w, bias);
  check_rows("weights_later", "x", x, rows);
  check_shape("weights_later", "y", y, rows.empty() ? x[0] : static_cast<Dim>(rows.size()), w.rows);
  run.record(weights_later_backward,
             WeightsLaterTape{x, y, rows.empty() ? nullptr : run.copy_of(rows), &w, bias});
}

// ----------------------------------------------------------------------------------------------- into views
namespace {

struct IntoTape {
  Tensor x, y;
  Act act;
  double p;
  const std::uint32_t* keys;
};

void activation_into_backward(Run& run, const IntoTape& s) {
  if (void* dx = run.grad(s.x))
    run.call(
        &Kernels::activation_backward,
        {.act = s.act, .c = 1, .elements = s.y.elements(), .x = s.x.data, .dy = run.grad(s.y), .dx = dx});
}
void dropout_into_backward(Run& run, const IntoTape& s) {
  run.call(&Kernels::dropout_backward, {.rows = s.y[0],
                                        .cols = s.y[1],
                                        .p = s.p,
                                        .row_keys = s.keys,
                                        .dy = run.grad(s.y),
                                        .dx = run.grad(s.x)});
}

}  // namespace

void activation(Run& run, Act act, const Tensor& x, const Tensor& into) {
  check_shape("activation", "the place for the result", into, x[0], x[1]);
  run.call(&Kernels::activation, {.act = act, .c = 1, .elements = x.elements(), .x = x.data, .y = into.data});
  run.record(activation_into_backward, IntoTape{x, into, act, 0, nullptr});
}

void dropout(Run& run, const Tensor& x, double p, std::uint64_t site, const Tensor& into) {
  const double rounded = static_cast<float>(p);
  if (!(p >= 0 && rounded < 1)) fail("dropout: p = ", p, " is not a probability in [0, 1)");
  if (!run.training || rounded == 0) return copy(run, x, into);
  check_shape("dropout", "the place for the result", into, x[0], x[1]);
  const std::uint32_t* keys = row_keys(run, x[0], site);
  run.call(&Kernels::dropout,
           {.rows = x[0], .cols = x[1], .p = rounded, .row_keys = keys, .x = x.data, .y = into.data});
  run.record(dropout_into_backward, IntoTape{x, into, Act::relu, rounded, keys});
}

}  // namespace rapt
