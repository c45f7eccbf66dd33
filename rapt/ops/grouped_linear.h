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
void grouped_linear(Run& run, const Tensor& x, const RowGroups& groups,
                    std::span<const std::span<const Projection>> parts, std::span<Tensor> out);

}  // namespace rapt
