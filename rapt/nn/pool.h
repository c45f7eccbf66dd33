// SPDX-License-Identifier: Apache-2.0
// One row that stands for a sequence: its first, its last, or the mean of its rows. For classifiers and for
// embeddings of texts.
#pragma once
#include <span>
#include <vector>

#include "rapt/ops/embed.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

using Pool = HeadRecipe::Pool;

// y [n,C] of x [T,C]: one row for each of n sequences. Part of a pass: it has a backward.
Tensor pool_rows(Run& run, Pool how, const Tensor& x, std::span<const RowRange> sequences);
// One sequence in double, before anything is rounded: what an embedding is normalised from. [C]
std::vector<double> pooled_row(Pool how, const Tensor& x, RowRange sequence);

}  // namespace rapt
