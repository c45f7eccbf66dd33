// SPDX-License-Identifier: Apache-2.0
// y = x W_e^T + b_e, where each row belongs to one of many groups e with weights of their own: the experts
// of a mixture (route.h says which rows are whose). Rows of a group stand side by side. One region computes
// all groups, with the tiles and orders of additions of linear.h, so a row has the bits that `linear` with
// its group's weight would give it. A group without rows costs nothing. Run::products does not apply:
// factors are not rounded to bf16.
#pragma once
#include <cstdint>
#include <span>

#include "rapt/ops/linear.h"
#include "rapt/run/run.h"

namespace rapt {

struct RowGroups {
  std::int64_t count, rows;  // groups; rows of y
  const std::int32_t* begin;  // [count + 1], of the rows of each group
  // Where given, row p of y is made of row from[p] / per of x: x need not be copied. Not with a tape.
  const std::int32_t* from = nullptr;
  std::int64_t per = 1;
};
// Up to kMostGrouped products of the same x: gate and up. parts[i] has a weight [N_i, K] for every group, in
// panels, of any format that linear reads; bias or none for all of a part.
constexpr int kMostGrouped = 2;
void grouped_linear(Run& run, const Tensor& x, const RowGroups& groups,
                    std::span<const std::span<const Projection>> parts, std::span<Tensor> out);

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
