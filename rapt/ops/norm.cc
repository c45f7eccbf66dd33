// SPDX-License-Identifier: Apache-2.0
// Sizes are checked; mean and factor of each row are kept for backward. Heads may have their own weights.
#include "rapt/ops/norm.h"

namespace rapt {
namespace {

struct NormTape {
  NormSpec spec;
  Tensor x, y, stats;
  const Weight *weight, *bias;
};

Dim groups_of(const Weight* w, Dim cols) { return w ? w->size() / cols : 1; }

// With n = (x - mean) * inv and g = dy * w:  dx += inv * (g - mean(g) [layer only] - n * mean(g * n));
// dw += dy * n;  db += dy.
void norm_backward(Run& run, const NormTape& s) {
  const Dim cols = s.x.last();
  run.call(&Kernels::norm_backward, {.kind = s.spec.kind,
                                     .offset = s.spec.plus_one ? 1.0 : 0.0,
                                     .rows = s.x.rows(),
                                     .cols = cols,
                                     .groups = groups_of(s.weight, cols),
                                     .x = s.x.data,
                                     .weight = s.weight ? s.weight->data.get() : nullptr,
                                     .stats = s.stats.data,
                                     .dy = run.grad(s.y),
                                     .dx = run.grad(s.x),
                                     .dweight = run.grad(s.weight),
                                     .dbias = run.grad(s.bias)});
}

}  // namespace

Tensor norm(Run& run, const NormSpec& spec, const Tensor& x, const Weight* weight, const Weight* bias) {
  const Dim cols = x.last(), groups = groups_of(weight, cols);
  if (!x.contiguous()) fail("norm: x ", x.shape(), " is not contiguous");
  if (weight && (weight->size() % cols != 0 || x.rows() % groups != 0))
    fail("norm: weight ", weight->name, " has ", weight->size(), " elements; rows of x ", x.shape(), " have ",
         cols);
  if (bias && bias->size() != (weight ? weight->size() : cols))
    fail("norm: bias ", bias->name, " has ", bias->size(), " elements, ", groups * cols, " are needed");
  Tensor y = run.like(x), stats = run.make({x.rows(), 2}).constant();
  run.call(&Kernels::norm, {.kind = spec.kind,
                            .eps = spec.eps,
                            .offset = spec.plus_one ? 1.0 : 0.0,
                            .rows = x.rows(),
                            .cols = cols,
                            .groups = groups,
                            .x = x.data,
                            .weight = weight ? weight->data.get() : nullptr,
                            .bias = bias ? bias->data.get() : nullptr,
                            .y = y.data,
                            .stats = stats.data});
  run.record(norm_backward, NormTape{spec, x, y, stats, weight, bias});
  return y;
}

}  // namespace rapt
