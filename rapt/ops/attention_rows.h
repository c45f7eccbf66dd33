// SPDX-License-Identifier: Apache-2.0
// Rows of attention that somebody changes (Taps::edit_rows). The fused kernel never stores weights: those of
// these rows alone are computed anew, changed, and summed with the values into the rows' place in the result.
#pragma once
#include <cstdint>
#include <vector>

#include "rapt/ops/attention.h"

namespace rapt {

class ChangedRows {
 public:
  // Asks who changes what. Everything must outlive it.
  ChangedRows(Run& run, const AttentionSpec& spec, const AttentionShape& shape);
  bool any() const { return any_; }
  // The weights of one row, [slots + keys], changed where somebody changes them.
  void weights_of(Dim head, Dim row, const Tensor& to);
  void put(const Tensor& out);  // [T,H,Dv]: the rows that are changed
  void put_stats(const Tensor& stats, Dim first_keys);  // [T,H,AttentionStat::count]: likewise

 private:
  enum : std::uint8_t { kScores = 1, kWeights = 2 };
  std::uint8_t touched(Dim head, Dim row) const {
    return touched_.empty() ? 0 : touched_[static_cast<std::size_t>(head * shape_.rows + row)];
  }
  std::uint8_t& slot(Dim head, Dim row) {
    return touched_[static_cast<std::size_t>(head * shape_.rows + row)];
  }
  AttentionRow row_of(Dim part, Dim row) const;
  Dim part_of(Dim row) const;
  // Rows of one part that are touched alike. Returns for each whether it was changed.
  std::vector<bool> compute(Dim part, Dim head, Dim row, Dim count, const Tensor& weights);
  // f(part, head, first row, count, weights [count, slots + keys], which were changed), a few rows at a time
  template <class F>
  void each(const F& f);

  Run& run_;
  const AttentionSpec& spec_;
  const AttentionShape& shape_;
  bool any_ = false;
  std::vector<std::uint8_t> touched_;  // [heads][rows]
};

}  // namespace rapt
