// SPDX-License-Identifier: Apache-2.0
// Checks the targets and copies them for backward; of each row the largest logit and 1 / sum are kept.
#include "rapt/ops/loss.h"

namespace rapt {
namespace {

struct CrossEntropyTape {
  double smoothing;
  Tensor logits, stats, mean;
  const std::int32_t* targets;
};

// dlogits += dmean / counted rows * (softmax(logits) - (1 - s) * [class is the target] - s / classes)
void cross_entropy_backward(Run& run, const CrossEntropyTape& s) {
  bool write_dlogits = false;
  void* dlogits = run.grad(s.logits, write_dlogits);
  run.call(&Kernels::cross_entropy_backward, {.rows = s.logits[0],
                                              .classes = s.logits[1],
                                              .smoothing = s.smoothing,
                                              .targets = s.targets,
                                              .logits = s.logits.data,
                                              .stats = s.stats.data,
                                              .dmean = run.grad(s.mean),
                                              .dlogits = dlogits,
                                              .write_dlogits = write_dlogits});
}

}  // namespace

Loss cross_entropy(Run& run, const Tensor& logits, std::span<const std::int32_t> targets, double smoothing) {
  if (logits.rank != 2 || !logits.contiguous())
    fail("cross_entropy: logits ", logits.shape(), " should be contiguous [T,V]");
  const Dim rows = logits[0], classes = logits[1];
  if (static_cast<Dim>(targets.size()) != rows)
    fail("cross_entropy: ", targets.size(), " targets for logits ", logits.shape());
  if (!(smoothing >= 0 && smoothing <= 1))
    fail("cross_entropy: label smoothing = ", smoothing, " is outside 0..1");
  for (std::size_t t = 0; t < targets.size(); ++t)
    if (targets[t] < -1 || targets[t] >= classes)
      fail("cross_entropy: target ", targets[t], " of row ", t, " is outside the ", classes,
           " classes; use -1 for a row that does not count");
  const std::int32_t* copied = run.copy_of(targets);
  Tensor mean = run.make({1}), row_loss = run.make({rows}).constant(), stats = run.make({rows, 2}).constant();
  run.call(&Kernels::cross_entropy, {.rows = rows,
                                     .classes = classes,
                                     .smoothing = smoothing,
                                     .targets = copied,
                                     .logits = logits.data,
                                     .row_loss = row_loss.data,
                                     .stats = stats.data,
                                     .mean = mean.data});
  run.record(cross_entropy_backward, CrossEntropyTape{smoothing, logits, stats, mean, copied});
  return {mean, row_loss};
}

}  // namespace rapt
