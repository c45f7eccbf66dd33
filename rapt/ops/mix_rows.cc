// SPDX-License-Identifier: Apache-2.0
// mix_rows and its backward: forward a task per row, backward a task per block of columns, so that no order of
// additions depends on threads.
#include "rapt/ops/mix_rows.h"

#include <algorithm>
#include <cmath>

namespace rapt {
namespace {

constexpr Dim kColumns = 16;  // of a task on the way back: a cache line of f32

struct MixTape {
  Tensor y;
  const Weight* table;
  const std::int32_t *begin, *from;
  const double* share;
  void* dtable = nullptr;
  const void* dy = nullptr;
};

template <class Real>
void mix_row(const MixTape& s, Dim row) noexcept {
  const Dim C = s.y.last();
  const auto* table = reinterpret_cast<const Real*>(s.table->data.get());
  auto* y = reinterpret_cast<Real*>(s.y.data) + row * C;
  for (Dim c0 = 0; c0 < C; c0 += kColumns) {
    const Dim n = std::min(kColumns, C - c0);
    double sum[kColumns] = {};
    for (std::int32_t e = s.begin[row]; e < s.begin[row + 1]; ++e) {
      const Real* x = table + s.from[e] * C + c0;
      for (Dim c = 0; c < n; ++c) sum[c] += s.share[e] * static_cast<double>(x[c]);
    }
    for (Dim c = 0; c < n; ++c) y[c0 + c] = static_cast<Real>(sum[c]);
  }
}

template <class Real>
void mix_columns(const MixTape& s, Dim block) noexcept {
  const Dim C = s.y.last(), c0 = block * kColumns, n = std::min(kColumns, C - c0);
  const auto* dy = static_cast<const Real*>(s.dy);
  auto* dtable = static_cast<Real*>(s.dtable);
  for (Dim r = 0; r < s.y.rows(); ++r)
    for (std::int32_t e = s.begin[r]; e < s.begin[r + 1]; ++e) {
      const auto share = static_cast<Real>(s.share[e]);
      for (Dim c = c0; c < c0 + n; ++c) dtable[s.from[e] * C + c] += share * dy[r * C + c];
    }
}

void mix_rows_backward(Run& run, const MixTape& saved) {
  MixTape s = saved;
  s.dtable = run.grad(s.table);
  s.dy = run.grad(s.y);
  run_tasks(
      run.queue(), (s.y.last() + kColumns - 1) / kColumns,
      [](void* context, std::int64_t block, int) noexcept {
        const auto& tape = *static_cast<const MixTape*>(context);
        if (tape.y.dtype == DType::f64) mix_columns<double>(tape, block);
        else mix_columns<float>(tape, block);
      },
      &s);
}

double cubic(double x, double a) {
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

}  // namespace

Tensor mix_rows(Run& run, const Weight& table, const RowMix& mix) {
  if (table.packing != Packing::rows || table.format != run.device.real)
    fail("mix_rows: table ", table.name, " is ", name_of(table.format),
         table.packing == Packing::rows ? "" : " in panels", "; it is read in rows, as ",
         name_of(run.device.real));
  for (const std::int32_t row : mix.from)
    if (row < 0 || row >= table.rows)
      fail("mix_rows: row ", row, " is outside table ", table.name, " of ", table.rows, " rows");
  const Tensor y = run.make({mix.rows(), table.cols});
  MixTape s{y, &table, run.copy_of(std::span(mix.begin)), run.copy_of(std::span(mix.from)),
            run.copy_of(std::span(mix.share))};
  run_tasks(
      run.queue(), y.rows(),
      [](void* context, std::int64_t row, int) noexcept {
        const auto& tape = *static_cast<const MixTape*>(context);
        if (tape.y.dtype == DType::f64) mix_row<double>(tape, row);
        else mix_row<float>(tape, row);
      },
      &s);
  run.record(mix_rows_backward, s);
  return y;
}

RowMix resample_line(Dim from, Dim to, bool antialias) {
  if (from < 1 || to < 1) fail("resample_line: from ", from, " points to ", to, "; both need at least one");
  RowMix out;
  const double step = static_cast<double>(from) / static_cast<double>(to);
  for (Dim i = 0; i < to; ++i) {
    const double centre = step * (static_cast<double>(i) + 0.5);
    if (!antialias) {
      const double at = centre - 0.5, base = std::floor(at);
      for (int k = -1; k <= 2; ++k) {
        const Dim row = std::clamp(static_cast<Dim>(base) + k, Dim{0}, from - 1);
        out.add(static_cast<std::int32_t>(row), cubic(at - base - k, -0.75));
      }
    } else {
      const double wide = std::max(step, 1.0), reach = 2 * wide;
      const Dim first = std::max(static_cast<Dim>(centre - reach + 0.5), Dim{0}),
                last = std::min(static_cast<Dim>(centre + reach + 0.5), from);
      double sum = 0;
      const auto weight = [&](Dim row) {
        return cubic((static_cast<double>(row) + 0.5 - centre) / wide, -0.5);
      };
      for (Dim row = first; row < last; ++row) sum += weight(row);
      for (Dim row = first; row < last; ++row) out.add(static_cast<std::int32_t>(row), weight(row) / sum);
    }
    out.end_row();
  }
  return out;
}

}  // namespace rapt
