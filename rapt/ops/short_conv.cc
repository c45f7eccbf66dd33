// SPDX-License-Identifier: Apache-2.0
// Sizes are checked; sequences become parts.
#include "rapt/ops/short_conv.h"

#include <algorithm>
#include <vector>

namespace rapt {
namespace {

struct ShortConvTape {
  Tensor x, y;
  const Weight *w, *bias;
  const ShortConvPart* parts;
  Dim part_count;
};

// dx[t] += sum over j of w[j] dy[t + K - 1 - j], within the sequence;  dw[j] += sum over t of
// dy[t] x[t - K + 1 + j];  dbias += sum of dy.
void short_conv_backward(Run& run, const ShortConvTape& s) {
  run.call(&Kernels::short_conv_backward, {.channels = s.x[1],
                                           .kernel = s.w->cols,
                                           .part_count = s.part_count,
                                           .parts = s.parts,
                                           .x = s.x.data,
                                           .w = s.w->data.get(),
                                           .dy = run.grad(s.y),
                                           .dx = run.grad(s.x),
                                           .dw = run.grad(s.w),
                                           .dbias = run.grad(s.bias)});
}

}  // namespace

Tensor short_conv(Run& run, const Tensor& x, const Weight& w, const Weight* bias,
                  std::span<const Sequence> sequences, const Tensor& before) {
  if (x.rank != 2 || !x.contiguous())
    fail("short_conv: x ", x.shape(), " should be contiguous [rows,channels]");
  const Dim D = x[1], K = w.cols, n = static_cast<Dim>(sequences.size());
  if (w.rows != D || w.packing != Packing::rows || w.format != run.device.real)
    fail("short_conv: weight ", w.name, " [", w.rows, ",", w.cols, "] should be [", D,
         ",kernel] in plain rows");
  if (K < 1 || K > kMostConvKernel)
    fail("short_conv: a kernel of ", K, " rows; it should have 1 to ", kMostConvKernel);
  if (bias && bias->size() != D)
    fail("short_conv: bias ", bias->name, " has ", bias->size(), " elements, x has ", D, " channels");
  if (before && (before.rank != 3 || before[0] != n || before[1] != K - 1 || before[2] != D))
    fail("short_conv: the rows before are ", before.shape(), ", they should be [", n, ",", K - 1, ",", D,
         "]");
  if (before && run.tape) fail("short_conv: rows of a cache and a tape together; give one of the two");
  std::vector<ShortConvPart> parts;
  Dim covered = 0;
  for (const Sequence& s : sequences) {
    if (s.first != covered || s.count < 0)
      fail("short_conv: a sequence has rows ", s.first, " …, row ", covered, " is next");
    covered += s.count;
    parts.push_back({s.first, s.count, before ? std::min(s.past, K - 1) : 0});
  }
  if (covered != x[0]) fail("short_conv: the sequences cover ", covered, " rows, x has ", x[0]);
  const ShortConvPart* list = run.copy_of(std::span<const ShortConvPart>(parts));
  Tensor y = run.like(x);
  run.call(&Kernels::short_conv, {.channels = D,
                                  .kernel = K,
                                  .part_count = n,
                                  .parts = list,
                                  .x = x.data,
                                  .w = w.data.get(),
                                  .bias = bias ? bias->data.get() : nullptr,
                                  .before = before ? before.data : nullptr,
                                  .y = y.data});
  run.record(short_conv_backward, ShortConvTape{x, y, &w, bias, list, n});
  return y;
}

}  // namespace rapt
