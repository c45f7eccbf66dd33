// SPDX-License-Identifier: Apache-2.0
// Sums, dropout, learned scales, and the tap that lets observers see or edit a value.
#pragma once
#include <cstdint>

#include "rapt/run/run.h"

namespace rapt {

// y = a + scale * b, same shape.
Tensor add(Run& run, const Tensor& a, const Tensor& b, double scale = 1);

struct AddArgs {
  std::int64_t elements;
  double scale;
  const void *a, *b;
  void* y;
};
struct AddBackwardArgs {
  std::int64_t elements;
  double scale;
  const void* dy;
  void *da, *db;
};

// x into a view of equal shape; both may be views with gaps (Tensor::columns, Tensor::swapped) of up to three
// axes. Gradients flow back: dx += the view's.
void copy(Run& run, const Tensor& x, const Tensor& into);

struct CopyArgs {
  std::int64_t elements;
  const void* x;
  void* y;
};
struct CopyBackwardArgs {
  std::int64_t elements;
  const void* dy;
  void* dx;
};
// Views with gaps: [a][b] rows of n elements; strides of a and b in elements, of x and of y.
struct CopyRowsArgs {
  std::int64_t a, b, n;
  std::int64_t x_stride[2], y_stride[2];
  const void* x;
  void* y;
};
struct CopyRowsBackwardArgs {
  std::int64_t a, b, n;
  std::int64_t x_stride[2], y_stride[2];
  const void* dy;
  void* dx;
};

// While training, each element is 0 with probability p and x / (1 - p) otherwise; else x itself. `site`
// tells apart the dropouts of one layer. The choice depends on (seed, step, layer, site, sequence, position,
// channel) only.
Tensor dropout(Run& run, const Tensor& x, double p, std::uint64_t site);

// The same with a key of its own for each row (row_keys, or route.h's slot_keys).
Tensor dropout_by(Run& run, const Tensor& x, double p, const std::uint32_t* keys);

struct DropoutArgs {
  std::int64_t rows, cols;
  double p;
  const std::uint32_t* row_keys;
  const void* x;
  void* y;
};
struct DropoutBackwardArgs {
  std::int64_t rows, cols;
  double p;
  const std::uint32_t* row_keys;
  const void* dy;
  void* dx;
};

// y[t,h,:] = x[t,h,:] * min(g[h], max); g has one number, or one per head. The learned scale of cosine
// attention, applied to q.
Tensor scale_heads(Run& run, const Tensor& x, const Weight& g, double max = 0);

struct ScaleHeadsArgs {
  std::int64_t rows, heads, d, scales;  // scales: 1 or heads
  double max;  // 0: none
  const void *x, *g;
  void* y;
};
struct ScaleHeadsBackwardArgs {
  std::int64_t rows, heads, d, scales;
  double max;
  const void *x, *g, *dy;
  void *dx, *dg;
};

// Returns its argument, after showing it to whoever asked. An edit works on a copy; the gradient passes it
// unchanged. rows: which rows x has.
Tensor tap(Run& run, Site site, const Tensor& x, bool cross = false, Tapped::Rows rows = Tapped::Rows::own);
// A second form of a tapped value: the same edits, but nobody is shown it.
Tensor edited(Run& run, Site site, const Tensor& x, bool cross = false,
              Tapped::Rows rows = Tapped::Rows::own);

// One 32-bit key per row for dropout at a site: from run.random, run.layer and run.row_ids (row index where
// those are absent).
const std::uint32_t* row_keys(Run& run, Dim rows, std::uint64_t site);

}  // namespace rapt
