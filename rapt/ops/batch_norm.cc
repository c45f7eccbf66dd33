// SPDX-License-Identifier: Apache-2.0
// Refuses a leak that nobody allowed, and training on under two rows; statistics are kept for backward.
#include "rapt/ops/batch_norm.h"

namespace rapt {
namespace {

struct BatchNormTape {
  bool training;
  Tensor x, y, stats;
  const Weight *weight, *bias;
  const std::uint8_t* valid;
};

// With n = (x - mean) * inv and g = dy * w:  training: dx += inv * (g - mean(g) - n * mean(g * n)), means
// over the valid rows; otherwise mean and inv are constants: dx += inv * g.  dw += dy * n;  db += dy.
void batch_norm_backward(Run& run, const BatchNormTape& s) {
  run.call(&Kernels::batch_norm_backward, {.training = s.training,
                                           .rows = s.x.rows(),
                                           .cols = s.x.last(),
                                           .valid = s.valid,
                                           .x = s.x.data,
                                           .weight = s.weight ? s.weight->data.get() : nullptr,
                                           .stats = s.stats.data,
                                           .dy = run.grad(s.y),
                                           .dx = run.grad(s.x),
                                           .dweight = run.grad(s.weight),
                                           .dbias = run.grad(s.bias)});
}

void check_weight(const Run& run, const char* what, const Weight& w, Dim elements) {
  if (w.size() != elements || w.format != run.device.real || w.packing != Packing::rows)
    fail("batch_norm: ", what, " ", w.name, " has ", w.size(), " elements of ", name_of(w.format), "; ",
         elements, " of ", name_of(run.device.real), ", packed in rows, are needed");
}

}  // namespace

Tensor batch_norm(Run& run, const BatchNormSpec& spec, const Tensor& x, const Weight* weight,
                  const Weight* bias, const Weight& running, std::span<const std::uint8_t> valid) {
  const Dim cols = x.last(), rows = x.rows();
  if (!x.contiguous()) fail("batch_norm: x ", x.shape(), " is not contiguous");
  if (weight) check_weight(run, "weight", *weight, cols);
  if (bias) check_weight(run, "bias", *bias, cols);
  check_weight(run, "running statistics", running, 2 * cols);
  if (!valid.empty() && static_cast<Dim>(valid.size()) != rows)
    fail("batch_norm: ", valid.size(), " marks of valid rows for x ", x.shape(), ", which has ", rows,
         " rows: give one per row, or none");
  if (run.training) {
    if (spec.causal && !spec.leaks_ok)
      fail(
          "batch_norm: training a causal model with batch statistics leaks: later tokens and other "
          "sequences enter the mean and variance of every token, so the model sees what "
          "it must predict and its loss says nothing about generation. Use a layer or RMS norm, or set "
          "leaks_ok if the leak is what you study");
    Dim count = valid.empty() ? rows : 0;
    for (std::uint8_t v : valid) count += v != 0;
    if (count < 2)
      fail("batch_norm: ", count, " valid rows in x ", x.shape(),
           ": training needs at least 2 for a variance; use a larger batch, or run without training to use "
           "the running statistics");
  }
  const std::uint8_t* marks = valid.empty() ? nullptr : run.copy_of(valid);
  Tensor y = run.like(x), stats = run.make({2, cols}).constant();
  run.call(&Kernels::batch_norm, {.eps = spec.eps,
                                  .momentum = spec.momentum,
                                  .training = run.training,
                                  .rows = rows,
                                  .cols = cols,
                                  .valid = marks,
                                  .x = x.data,
                                  .weight = weight ? weight->data.get() : nullptr,
                                  .bias = bias ? bias->data.get() : nullptr,
                                  .running = running.data.get(),
                                  .y = y.data,
                                  .stats = stats.data});
  run.record(batch_norm_backward, BatchNormTape{run.training, x, y, stats, weight, bias, marks});
  return y;
}

}  // namespace rapt
