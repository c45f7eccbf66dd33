// SPDX-License-Identifier: Apache-2.0
// Rows that are fixed weighted sums of a table's rows: learned positions of a picture's patches, as they are
// or resampled to another grid.
#pragma once
#include <cstdint>
#include <vector>

#include "rapt/run/run.h"

namespace rapt {

// A sparse matrix, row by row: row r has entries begin[r] to begin[r + 1] (none: a row of zeros).
struct RowMix {
  std::vector<std::int32_t> begin = {0};
  std::vector<std::int32_t> from;  // rows of the table
  std::vector<double> share;
  Dim rows() const { return static_cast<Dim>(begin.size()) - 1; }
  void add(std::int32_t row, double part) { from.push_back(row), share.push_back(part); }
  void end_row() { begin.push_back(static_cast<std::int32_t>(from.size())); }
};

// y [n,C] = mix * table, added in double in the order of the entries. The table lies in rows, as real. Plain
// loops, no kernel: it is read once per pass. Backward: dtable += mix^T dy, row after row.
Tensor mix_rows(Run& run, const Weight& table, const RowMix& mix);

// How a line of `from` points is resampled to `to`: entry r of the mix gives point r. bicubic: four
// neighbours, a = -0.75, points beyond the ends are the ends (torch's interpolate, align_corners false).
// antialias: a = -0.5, and where points become fewer the filter is wider by as much, cut at the ends (torch's
// antialias, Pillow).
RowMix resample_line(Dim from, Dim to, bool antialias);

}  // namespace rapt
