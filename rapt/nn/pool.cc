// SPDX-License-Identifier: Apache-2.0
// A first or last row is taken as it is; only a mean is added up.
#include "rapt/nn/pool.h"

namespace rapt {
namespace {

// The rows of a sequence that are pooled.
RowRange pooled_range(Pool how, RowRange s) {
  return how == Pool::mean ? s : RowRange{how == Pool::first ? s.first : s.first + s.count - 1, 1};
}

}  // namespace

Tensor pool_rows(Run& run, Pool how, const Tensor& x, std::span<const RowRange> sequences) {
  if (how == Pool::mean) return mean_rows(run, x, sequences);
  std::vector<std::int32_t> rows;
  for (const RowRange& s : sequences) rows.push_back(static_cast<std::int32_t>(pooled_range(how, s).first));
  return take_rows(run, x, rows);
}

std::vector<double> pooled_row(Pool how, const Tensor& x, RowRange sequence) {
  std::vector<double> mean(static_cast<std::size_t>(x.last()));
  mean_of_rows(x, pooled_range(how, sequence), mean);
  return mean;
}

}  // namespace rapt
