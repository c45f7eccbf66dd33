// SPDX-License-Identifier: Apache-2.0
// y = x W^T + b, with what fuses into its ends. Weights are packed in panels (tensor/weight.h).
//
// Order of additions (part of the result): one chain of fused multiply-adds per output over each 512 inputs,
// chains added in order, whatever the number of rows; bias, then residual. So a row's bits do not depend on
// the batch.
//
// With Run::products bf16 both factors of all three products (x and W; dy times scale and W; x and dy times
// scale) are rounded to bf16, to nearest even, and their products, which are exact then, are added in f32 as
// above: blocks of 512 (dW: of 256 rows) in order. Where the processor multiplies pairs (vdpbf16ps) a chain
// takes two numbers at a time, in an order of its own and with denormals as zero; so bits are those of a
// processor, not of an instruction set's name, but depend on neither batch nor threads. Bias, residual and
// their gradients stay as they are, and so do products with weights that are not stored as real.
//
// Weights in block formats: each 32 inputs of a row of x are rounded to int8 with a scale of their own
// (largest magnitude / 127), products of a block are summed as whole numbers, and the blocks are added in
// order, one fused multiply-add each (quant_tile.h). For inference only: a tape is refused. Bits do not
// depend on the batch here either, nor on the instruction set.
#pragma once
#include <initializer_list>
#include <span>

#include "rapt/run/run.h"

// Where the pass has rows with adapters (Run::adapted) that change w, linear and project add scale * B (A x)
// to these rows alone, after the bias: A x and B (A x) as above, times the scale, one adapter after the
// other. linear_add is then linear and add, whose bits are the same. For inference only.
namespace rapt {

// x [.., K], w [N,K] in panels, f32, bf16, f16 or a block format -> [.., N]
Tensor linear(Run& run, const Tensor& x, const Weight& w, const Weight* bias = nullptr);
// residual + scale * (x W^T + b)
Tensor linear_add(Run& run, const Tensor& residual, const Tensor& x, const Weight& w,
                  const Weight* bias = nullptr, double scale = 1);
// Several products of the same x in one region: q, k, v or gate and up. At most kMostParts.
struct Projection {
  const Weight* w;
  const Weight* bias = nullptr;
};
constexpr int kMostParts = 4;
void project(Run& run, const Tensor& x, std::span<const Projection> parts, std::span<Tensor> out);
// Fails where a weight or its bias cannot be multiplied with the rows of x; `op`: for whom.
void check_projection(const char* op, const Run& run, const Tensor& x, const Projection& p);

struct LinearPart {
  std::int64_t n;         // outputs
  const void* w;          // panels
  DType format;           // of w
  const void* bias;       // [n] or nullptr
  const void* residual;   // [rows, n] or nullptr
  double scale;           // of the product and bias, before the residual is added
  void* y;                // [rows, n]
  double gain = 1;        // block formats: of the product, before the bias
};
struct LinearArgs {
  std::int64_t rows, k;
  const void* x;  // [rows, k]
  int count;
  LinearPart parts[4];
  void* space = nullptr;  // bf16 only: bf16_space(rows, k) reals
};
struct QuantLinearArgs {
  std::int64_t rows, k;  // k: a multiple of 32
  const void* x;         // [rows, k]
  int count;
  LinearPart parts[4];  // block formats
  void* space;          // quant_space bytes, for the rows as int8
};
// 32 int8, a scale and two terms of each part, as real, per 32
constexpr std::int64_t quant_space(std::int64_t rows, std::int64_t k) {
  return (rows + 8) * (k / 32) * (32 + 8 + 4 * 2 * 8);
}
struct LinearBackwardPart {
  std::int64_t n;
  const void* w;
  DType format;
  double scale;
  const void* dy;   // [rows, n]
  void *dw, *dbias; // in the order of w and bias, as real; nullptr where not wanted
  void* dresidual;  // [rows, n] or nullptr
  bool write_dw, write_dresidual;  // nothing is there yet: write, do not add
};
struct LinearBackwardArgs {
  std::int64_t rows, k;
  const void* x;
  void* dx;  // nullptr where not wanted; all parts add to it
  bool write_dx;
  int count;
  LinearBackwardPart parts[4];
  void* space = nullptr;  // bf16 only: bf16_space(rows, k) reals, and twice that of every part's n
};
// Room for a rounded copy of [rows, width] in any of the layouts of linear_bf16_cpu.cc; whole cache lines.
constexpr std::int64_t bf16_space(std::int64_t rows, std::int64_t width) {
  return (rows + 1) * ((width + width / 32 + 751) / 16 * 16);
}

// Kernels of grouped_linear.h: many groups of rows with weights of their own.
constexpr int kMostGrouped = 2;  // products of the same rows
struct GroupWeight {
  const void* w;  // panels; nullptr: another kernel's
  DType format;
  const void* bias;
  double gain;
};
struct GroupedPart {
  std::int64_t n;
  const GroupWeight* weights;  // [groups]
  void* y;  // [rows, n]
};
struct GroupedLinearArgs {
  std::int64_t groups, rows, k;
  const std::int32_t* begin;
  const void* x;
  const std::int32_t* from;  // or nullptr
  std::int64_t per;
  int count;
  GroupedPart parts[kMostGrouped];
  std::int64_t* plan;  // room: 2 * (groups + 1)
  void* space;  // block formats only: grouped_quant_space bytes
};
constexpr std::int64_t grouped_quant_space(std::int64_t groups, std::int64_t rows, std::int64_t k) {
  return quant_space(rows + 8 * (groups < rows ? groups : rows), k);
}

struct GroupGradient {
  const void* w;
  DType format;
  void *dw, *dbias;
  bool write_dw;  // nothing is there yet: write, do not add
};
struct GroupedBackwardPart {
  std::int64_t n;
  const GroupGradient* weights;
  const void* dy;
};
struct GroupedLinearBackwardArgs {
  std::int64_t groups, rows, k;
  const std::int32_t* begin;
  const void* x;
  void* dx;  // nullptr where not wanted; all parts add to it
  bool write_dx;
  int count;
  GroupedBackwardPart parts[kMostGrouped];
  std::int64_t* plan;
};

}  // namespace rapt
