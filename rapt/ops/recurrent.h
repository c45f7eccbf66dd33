// SPDX-License-Identifier: Apache-2.0
// GRU and LSTM cells, and what running them step by step takes. Rows of all steps lie in one buffer, a step
// works on a view of it: `into` says where a result goes. The products with the weights are `linear`s, or
// `linear_step`s, before the cells. A plain cell, tanh(W x + U h + b), is such a product and `activation`.
#pragma once
#include <span>

#include "rapt/ops/activation.h"
#include "rapt/run/run.h"

namespace rapt {

// x_gates = W x + b [B,3n], h_gates = U h + c [B,3n], in the order reset, update, new:
// r = sigmoid(xr + hr), z = sigmoid(xz + hz), n = tanh(xn + r * hn), h' = (1 - z) * n + z * h.
Tensor gru(Run& run, const Tensor& x_gates, const Tensor& h_gates, const Tensor& h, const Tensor& into = {});

struct GruArgs {
  std::int64_t rows, n;
  const void *x_gates, *h_gates, *h;
  void* y;
};
struct GruBackwardArgs {
  std::int64_t rows, n;
  const void *x_gates, *h_gates, *h, *dy;
  void *dx_gates, *dh_gates, *dh;
};

// gates = W x + U h + b [B,4n], in the order input, forget, new, output:
// c' = sigmoid(f) * c + sigmoid(i) * tanh(g), h' = sigmoid(o) * tanh(c').
struct LstmState {
  Tensor h, c;
};
LstmState lstm(Run& run, const Tensor& gates, const Tensor& c, const LstmState& into = {});

struct LstmArgs {
  std::int64_t rows, n;
  const void *gates, *c;
  void *h_out, *c_out;
};
struct LstmBackwardArgs {
  std::int64_t rows, n;
  const void *gates, *c, *c_out, *dh, *dc_out;
  void *dgates, *dc;
};

// y_j = max(x_j, x_{n+j}): x [B,2n] -> [B,n] (maxout with two pieces; Bahdanau's pairs of neighbours are
// these pairs in another order).
Tensor maxout(Run& run, const Tensor& x, const Tensor& into = {});

struct MaxoutArgs {
  std::int64_t rows, n;
  const void* x;
  void* y;
};
struct MaxoutBackwardArgs {
  std::int64_t rows, n;
  const void *x, *dy;
  void* dx;
};

// y[r] = a[a_rows[r]] beside b[b_rows[r]]: both directions of an encoder, whose rows stand in different
// orders. [n, Ca + Cb]
Tensor beside(Run& run, const Tensor& a, std::span<const std::int32_t> a_rows, const Tensor& b,
              std::span<const std::int32_t> b_rows);

struct BesideArgs {
  std::int64_t rows, a_cols, b_cols;
  const std::int32_t *a_rows, *b_rows;
  const void *a, *b;
  void* y;
};
struct BesideBackwardArgs {
  std::int64_t rows, a_cols, b_cols;
  const std::int32_t *a_rows, *b_rows;
  const void* dy;
  void *da, *db;
};

// y = residual + x W^T + bias of one step, bit for bit `linear` or `linear_add`; several products of
// one x at once. Backward gives dx and dresidual; the weights' gradients come from weights_later, in one
// product over all steps.
struct StepProduct {
  const Weight *w, *bias;
  Tensor into;           // [B,N]
  Tensor residual = {};  // [B,N] or absent
};
void linear_step(Run& run, const Tensor& x, std::span<const StepProduct> products);
// To be called before the first step: dW += dy^T x, dbias += sum of dy, when all steps have gone back. Row r
// of y belongs to row rows[r] of x, or to row r where `rows` is empty.
void weights_later(Run& run, const Tensor& x, std::span<const std::int32_t> rows, const Weight& w,
                   const Weight* bias, const Tensor& y);

// The ops of the same names, into a view, as copy (elementwise.h).
void activation(Run& run, Act act, const Tensor& x, const Tensor& into);
void dropout(Run& run, const Tensor& x, double p, std::uint64_t site, const Tensor& into);

}  // namespace rapt
