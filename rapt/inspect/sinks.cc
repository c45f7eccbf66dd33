// SPDX-License-Identifier: Apache-2.0
#include "rapt/inspect/sinks.h"

#include <algorithm>
#include <cmath>

namespace rapt {

SinkMeter::SinkMeter(Taps& taps, Stack stack, std::vector<int> row_class, int classes)
    : row_class_(std::move(row_class)), classes_(classes) {
  taps.first_keys = 1;
  taps.see(Site::attn_stats, [this, stack](const Tapped& t) {
    if (t.stack != stack || t.cross) return;
    LayerSums& sums = at(t.layer);
    const Dim heads = t.value[1], columns = t.value[2];
    for (Dim r = 0; r < t.value[0]; ++r) {
      const int c = row_class_.at(static_cast<std::size_t>(r));
      if (c < 0) continue;
      Sum& s = sums.classes.at(static_cast<std::size_t>(c));
      for (Dim h = 0; h < heads; ++h) {
        const Dim row = (r * heads + h) * columns;
        s.first += t.value.at(row + AttentionStat::first);
        s.entropy += t.value.at(row + AttentionStat::entropy);
        s.rows += 1;
      }
    }
  });
  // A row of class -1 is a first token: it sees nothing but itself, so it does not count as a query.
  auto is_first = [this](Dim row) { return row_class_.at(static_cast<std::size_t>(row)) < 0; };
  taps.see(Site::v, [this, stack, is_first](const Tapped& t) {
    if (t.stack != stack || t.cross) return;
    LayerSums& sums = at(t.layer);
    const Dim width = t.value[1] * t.value[2];
    for (Dim r = 0; r < t.value[0]; ++r) {
      double square = 0;
      for (Dim c = 0; c < width; ++c) square += t.value.at(r * width + c) * t.value.at(r * width + c);
      (is_first(r) ? sums.first_norm : sums.other_norm) += std::sqrt(square);
      (is_first(r) ? sums.first_count : sums.other_count) += 1;
    }
  });
  taps.see(Site::resid_out, [this, stack, is_first](const Tapped& t) {
    if (t.stack != stack) return;
    LayerSums& sums = at(t.layer);
    for (Dim r = 0; r < t.value[0]; ++r)
      if (is_first(r))
        for (Dim c = 0; c < t.value[1]; ++c) sums.largest = std::max(sums.largest, std::abs(t.value.at(r * t.value[1] + c)));
  });
}

SinkMeter::LayerSums& SinkMeter::at(int layer) {
  while (layers() <= layer) sums_.push_back({.classes = std::vector<Sum>(static_cast<std::size_t>(classes_))});
  return sums_[static_cast<std::size_t>(layer)];
}

double SinkMeter::mean(int layer, int row_class, double Sum::* what) const {
  const Sum& s = sums_.at(static_cast<std::size_t>(layer)).classes.at(static_cast<std::size_t>(row_class));
  return s.rows > 0 ? s.*what / s.rows : 0;
}

double SinkMeter::value_ratio(int layer) const {
  const LayerSums& s = sums_.at(static_cast<std::size_t>(layer));
  return s.other_norm > 0 && s.first_count > 0 ? s.first_norm / s.first_count / (s.other_norm / s.other_count) : 0;
}

double SinkMeter::largest_first(int layer) const { return sums_.at(static_cast<std::size_t>(layer)).largest; }

}  // namespace rapt
