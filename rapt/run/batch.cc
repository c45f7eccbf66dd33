// SPDX-License-Identifier: Apache-2.0
// Masks become one interval [low, high) of keys per row; the kept first keys stand beside it as a number of
// the sequence.
#include "rapt/run/batch.h"

#include <algorithm>

namespace rapt {

Mask Mask::of(const Sequence& s) const {
  Mask m = *this;
  if (streams() && s.stream.window > 0) {
    m.left = s.stream.window - 1;
    m.keep = s.stream.keep;
  }
  return m;
}

RowPlan plan_rows(const Mask& given, std::span<const Sequence> sequences) {
  RowPlan plan;
  for (const Sequence& s : sequences) {
    const Mask mask = given.of(s);
    const Dim length = s.past + s.count;
    plan.parts.push_back({s.first, s.count, s.first, length, mask.keep});
    for (Dim i = 0; i < s.count; ++i) {
      const Dim p = s.past + i;
      Dim low = mask.left >= Mask::kAll ? 0 : std::max<Dim>(0, p - mask.left);
      Dim high = mask.right >= Mask::kAll ? length : std::min(length, p + mask.right + 1);
      if (mask.chunk > 0) low = std::max(low, p / mask.chunk * mask.chunk);
      if (mask.prefix && p < s.prefix) high = std::max(high, std::min(length, s.prefix));
      plan.low.push_back(static_cast<std::int32_t>(low));
      plan.high.push_back(static_cast<std::int32_t>(high));
      plan.position.push_back(static_cast<std::int32_t>(p));
      plan.kept_position.push_back(static_cast<std::int32_t>(
          mask.keep > 0 && mask.left < Mask::kAll ? std::min(p, mask.keep + mask.left) : p));
    }
  }
  return plan;
}

RowPlan plan_cross(std::span<const Sequence> sequences, std::span<const Sequence> memory) {
  if (sequences.size() != memory.size())
    fail("cross-attention: ", sequences.size(), " sequences, but ", memory.size(), " memories to look at");
  RowPlan plan;
  for (std::size_t n = 0; n < sequences.size(); ++n) {
    const Sequence& s = sequences[n];
    plan.parts.push_back({s.first, s.count, memory[n].first, memory[n].count});
    for (Dim i = 0; i < s.count; ++i) {
      plan.low.push_back(0);
      plan.high.push_back(static_cast<std::int32_t>(memory[n].count));
      plan.position.push_back(static_cast<std::int32_t>(s.past + i));
      plan.kept_position.push_back(static_cast<std::int32_t>(s.past + i));
    }
  }
  return plan;
}

}  // namespace rapt
