// SPDX-License-Identifier: Apache-2.0
// Rows of a table by token id (or position): embeddings, learned positions, token types. A tied table in
// panels works too.
#pragma once
#include <cstdint>
#include <span>

#include "rapt/run/run.h"

namespace rapt {

// y [T,C] = scale * table[ids]; f32, bf16 or f16 table, or block formats in panels (no tape then). Ids from
// table.rows on are rows of `more` (learned sink tokens; packed in rows). Ids outside both are an error.
Tensor embed(Run& run, std::span<const std::int32_t> ids, const Weight& table, double scale = 1,
             const Weight* more = nullptr);

struct EmbedArgs {
  std::int64_t rows, cols, vocab;  // vocab: rows of the table
  const std::int32_t* ids;
  const void *table, *more;
  DType format, more_format;
  bool panels;
  double scale;
  void* y;
};
struct EmbedBackwardArgs {
  std::int64_t rows, cols, vocab;
  const std::int32_t* ids;
  bool panels;
  double scale;
  const void* dy;
  void *dtable, *dmore;
  std::int64_t more_rows;
};

// Chosen rows of x (the last token of each sequence, the first for a pooler): y [n,C] = x[rows].
Tensor take_rows(Run& run, const Tensor& x, std::span<const std::int32_t> rows);

struct TakeRowsArgs {
  std::int64_t rows, cols;
  const std::int32_t* which;
  const void* x;
  void* y;
};
struct TakeRowsBackwardArgs {
  std::int64_t rows, cols, x_rows;
  const std::int32_t* which;
  const void* dy;
  void* dx;
};

// y [n,C]: the mean of `count` rows of x from `first` on, for each of n ranges; added up row by row, in
// double. Plain loops, no kernel: it reads every row of a batch once.
struct RowRange {
  Dim first = 0, count = 0;
};
Tensor mean_rows(Run& run, const Tensor& x, std::span<const RowRange> ranges);
// One of these means before it is rounded, outside of a pass. mean [C]
void mean_of_rows(const Tensor& x, RowRange range, std::span<double> mean);

}  // namespace rapt
