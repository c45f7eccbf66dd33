// SPDX-License-Identifier: Apache-2.0
// The table of kernels: one constant table per instruction set (or GPU). The lists below are the
// registration: a listed kernel that some instruction set lacks does not link, an op without a backward
// cannot be listed as an op.
#pragma once
#include <cstddef>
#include <cstdint>

#include "rapt/tensor/dtype.h"

namespace rapt {

struct Queue;  // where a kernel runs: the threads of a CPU device, the stream of a GPU

// Differentiable ops: X(op, Stem) stands for the kernels `op(Queue&, const StemArgs&)` and
// `op_backward(Queue&, const StemBackwardArgs&)`.
#define RAPT_OPS(X)                \
  X(linear, Linear)                \
  X(grouped_linear, GroupedLinear) \
  X(route, Route)                  \
  X(dispatch, Dispatch)            \
  X(combine, Combine)              \
  X(embed, Embed)                  \
  X(norm, Norm)                    \
  X(batch_norm, BatchNorm)         \
  X(rope, Rope)                    \
  X(activation, Activation)        \
  X(glu, Glu)                      \
  X(add, Add)                      \
  X(copy, Copy)                    \
  X(copy_rows, CopyRows)           \
  X(gate, Gate)                    \
  X(dropout, Dropout)              \
  X(scale_heads, ScaleHeads)       \
  X(take_rows, TakeRows)           \
  X(cross_entropy, CrossEntropy)   \
  X(gru, Gru)                      \
  X(lstm, Lstm)                    \
  X(maxout, Maxout)                \
  X(beside, Beside)                \
  X(align, Align)                  \
  X(disentangle, Disentangle)      \
  X(short_conv, ShortConv)         \
  X(decay, Decay)                  \
  X(gated_delta, GatedDelta)       \
  X(attention, Attention)

// Kernels that are no op of their own: nothing is differentiated through them, or an op chooses them
// (linear: products of bf16).
#define RAPT_PLAIN_KERNELS(X)            \
  X(attention_weights, AttentionWeights) \
  X(attention_values, AttentionValues)   \
  X(kv_write, KvWrite)                   \
  X(adamw, AdamW)                        \
  X(quant_linear, QuantLinear)           \
  X(grouped_quant_linear, GroupedLinear) \
  X(slot_keys, SlotKeys)                 \
  X(sgd, Sgd)                            \
  X(ema, Ema)                            \
  X(sum_squares, SumSquares)             \
  X(muon, Muon)                          \
  X(linear_bf16, Linear)                 \
  X(linear_bf16_backward, LinearBackward)

#define RAPT_DECLARE(name, Stem) \
  struct Stem##Args;             \
  struct Stem##BackwardArgs;
RAPT_OPS(RAPT_DECLARE)
#undef RAPT_DECLARE
#define RAPT_DECLARE(name, Stem) struct Stem##Args;
RAPT_PLAIN_KERNELS(RAPT_DECLARE)
#undef RAPT_DECLARE

struct Kernels {
  const char* isa;
  DType real;  // what activations are made of
#define RAPT_ENTRY(name, Stem)                      \
  void (*name)(Queue&, const Stem##Args&) noexcept; \
  void (*name##_backward)(Queue&, const Stem##BackwardArgs&) noexcept;
  RAPT_OPS(RAPT_ENTRY)
#undef RAPT_ENTRY
#define RAPT_ENTRY(name, Stem) void (*name)(Queue&, const Stem##Args&) noexcept;
  RAPT_PLAIN_KERNELS(RAPT_ENTRY)
#undef RAPT_ENTRY
};

// What kernels may ask of their queue. Plain functions: code compiled for one instruction set must not
// instantiate inline functions of shared headers, or the linker may hand the AVX-512 copy to everybody.
void run_tasks(Queue& queue, std::int64_t tasks,
               void (*task)(void* context, std::int64_t task, int worker) noexcept, void* context) noexcept;
// Memory of one worker, inside a task. nullptr where there is none: the task leaves, and the call of the
// kernel fails (Device::call).
std::byte* scratch_of(Queue& queue, int worker, std::size_t bytes) noexcept;
int threads_of(Queue& queue) noexcept;

}  // namespace rapt
