// SPDX-License-Identifier: Apache-2.0
// GRU and LSTM cells. The products with the weights are `linear`s before them; here is what follows.
#pragma once
#include "rapt/run/run.h"

namespace rapt {

// x_gates = W x + b [B,3n], h_gates = U h + c [B,3n], in the order reset, update, new:
// r = sigmoid(xr + hr), z = sigmoid(xz + hz), n = tanh(xn + r * hn), h' = (1 - z) * n + z * h.
Tensor gru(Run& run, const Tensor& x_gates, const Tensor& h_gates, const Tensor& h);

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
LstmState lstm(Run& run, const Tensor& gates, const Tensor& c);

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

}  // namespace rapt
