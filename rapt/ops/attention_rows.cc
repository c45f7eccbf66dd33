// SPDX-License-Identifier: Apache-2.0
// Scores, their changes, softmax, changes of weights, values: a few rows of one head at a time.
#include "rapt/ops/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace rapt {
namespace {

constexpr Dim kRows = 64;  // whose weights are in memory at once

// Scores of one row become weights; the extra logit takes its share.
void softmax(const AttentionShape& s, const AttentionRow& sight, Dim head, const Tensor& row) {
  const Dim n = row.elements();
  const auto seen = [&](Dim i) { return i < sight.slots || sight.sees(i - sight.slots); };
  if (s.normal == Normal::sigmoid) {
    for (Dim i = 0; i < n; ++i) row.set(i, seen(i) ? 1 / (1 + std::exp(-row.at(i))) : 0);
    return;
  }
  double extra = -std::numeric_limits<double>::infinity();
  if (s.extra == Extra::zero_logit) extra = 0;
  if (s.extra == Extra::learned_logit)
    extra = row.dtype == DType::f64 ? static_cast<const double*>(s.extra_logit)[head]
                                    : static_cast<double>(static_cast<const float*>(s.extra_logit)[head]);
  double most = extra;
  for (Dim i = 0; i < n; ++i)
    if (seen(i)) most = std::max(most, row.at(i));
  double sum = std::isfinite(extra) ? std::exp(extra - most) : 0;
  const auto weight = [&](Dim i) {  // of a key that nobody sees, or that was masked: 0
    return seen(i) && std::isfinite(row.at(i)) ? std::exp(row.at(i) - most) : 0.0;
  };
  for (Dim i = 0; i < n; ++i) sum += weight(i);
  for (Dim i = 0; i < n; ++i) row.set(i, sum > 0 ? weight(i) / sum : 0);
}

}  // namespace

ChangedRows::ChangedRows(Run& run, const AttentionSpec& spec, const AttentionShape& shape)
    : run_(run), spec_(spec), shape_(shape) {
  if (!run.taps || !run.taps->edits_rows()) return;
  touched_.resize(static_cast<std::size_t>(shape.rows * shape.heads));
  Tapped t{.site = site::attn_weights,
           .stack = run.stack,
           .layer = run.layer,
           .value = {},
           .cross = spec.cross,
           .part = run.part};
  for (Dim p = 0; p < shape.part_count; ++p)
    for (Dim row = shape.parts[p].q_first; row < shape.parts[p].q_first + shape.parts[p].q_count; ++row) {
      const AttentionRow sight = row_of(p, row);
      t.attention = &sight, t.row = row;
      for (t.head = 0; t.head < shape.heads; ++t.head) {
        t.site = site::attn_scores;
        if (run.taps->touches_row(t)) slot(t.head, row) |= kScores;
        t.site = site::attn_weights;
        if (run.taps->touches_row(t)) slot(t.head, row) |= kWeights;
        any_ = any_ || touched(t.head, row) != 0;
      }
    }
  if (any_ && run.training && spec.dropout > 0)
    fail("attention: weights cannot be changed in a pass that drops some of them at random (dropout ",
         spec.dropout, "); run it without training");
  if (!any_) touched_.clear();
}

AttentionRow ChangedRows::row_of(Dim part, Dim row) const {
  return {.slots = shape_.slots,
          .low = shape_.low[row],
          .high = shape_.high[row],
          .keep = shape_.parts[part].keep,
          .rows = shape_.rows};
}

Dim ChangedRows::part_of(Dim row) const {
  Dim p = 0;
  while (row >= shape_.parts[p].q_first + shape_.parts[p].q_count) ++p;
  return p;
}

std::vector<bool> ChangedRows::compute(Dim part, Dim head, Dim row, Dim count, const Tensor& weights) {
  const std::uint8_t what = touched(head, row);
  const auto ask = [&](bool scores) {
    run_.call(&Kernels::attention_weights, {.shape = shape_,
                                            .row = row,
                                            .row_count = count,
                                            .head = head,
                                            .weights = weights.data,
                                            .scores = scores});
  };
  std::vector<bool> changed(static_cast<std::size_t>(count));
  const std::size_t bytes = static_cast<std::size_t>(weights.last()) * size_of(weights.dtype);
  const auto change = [&](Site site) {
    std::vector<std::byte> before(bytes);
    for (Dim r = 0; r < count; ++r) {
      const Tensor one = weights.slice(r, 1).reshape({weights.last()});
      const AttentionRow sight = row_of(part, row + r);
      if (site == site::attn_scores)
        for (Dim i = sight.slots; i < one.elements(); ++i)
          if (!sight.sees(i - sight.slots)) one.set(i, -std::numeric_limits<double>::infinity());
      std::memcpy(before.data(), one.data, bytes);
      run_.taps->change_row({.site = site,
                             .stack = run_.stack,
                             .layer = run_.layer,
                             .value = one,
                             .cross = spec_.cross,
                             .head = head,
                             .row = row + r,
                             .part = run_.part,
                             .attention = &sight});
      const auto at = static_cast<std::size_t>(r);
      changed[at] = changed[at] || std::memcmp(before.data(), one.data, bytes) != 0;
      if (site == site::attn_scores) softmax(shape_, sight, head, one);
    }
  };
  ask((what & kScores) != 0);
  if (what & kScores) change(site::attn_scores);
  if (what & kWeights) change(site::attn_weights);
  return changed;
}

template <class F>
void ChangedRows::each(const F& f) {
  for (Dim p = 0; p < shape_.part_count; ++p) {
    const Dim first = shape_.parts[p].q_first, end = first + shape_.parts[p].q_count;
    for (Dim head = 0; head < shape_.heads; ++head)
      for (Dim row = first; row < end;) {
        Dim count = 1;
        while (count < kRows && row + count < end && touched(head, row + count) == touched(head, row))
          ++count;
        if (touched(head, row) != 0) {
          const Arena::Mark mark = run_.arena.mark();
          const Tensor weights = run_.make({count, shape_.slots + shape_.parts[p].k_count}).constant();
          const std::vector<bool> changed = compute(p, head, row, count, weights);
          f(p, head, row, count, weights, changed);
          run_.arena.release(mark);
        }
        row += count;
      }
  }
}

void ChangedRows::weights_of(Dim head, Dim row, const Tensor& to) {
  if (touched(head, row) != 0) {
    compute(part_of(row), head, row, 1, to.reshape({1, to.elements()}));
    return;
  }
  run_.call(&Kernels::attention_weights,
            {.shape = shape_, .row = row, .row_count = 1, .head = head, .weights = to.data});
}

void ChangedRows::put(const Tensor& out) {
  each([&](Dim, Dim head, Dim row, Dim count, const Tensor& weights, const std::vector<bool>& changed) {
    for (Dim r = 0; r < count;) {  // those that stay what they were keep their bits
      Dim n = 0;
      while (r + n < count && changed[static_cast<std::size_t>(r + n)]) ++n;
      if (n > 0)
        run_.call(&Kernels::attention_values, {.shape = shape_,
                                               .row = row + r,
                                               .row_count = n,
                                               .head = head,
                                               .weights = weights.slice(r, n).data,
                                               .out = out.data});
      r += n + 1;
    }
  });
}

void ChangedRows::put_stats(const Tensor& stats, Dim first_keys) {
  if (!any_) return;
  using S = AttentionStat;
  each([&](Dim, Dim head, Dim row, Dim count, const Tensor& weights, const std::vector<bool>& changed) {
    for (Dim r = 0; r < count; ++r) {
      if (!changed[static_cast<std::size_t>(r)]) continue;
      const Dim at = ((row + r) * shape_.heads + head) * S::count, n = weights.last(),
                position = shape_.position[row + r];
      double of[S::count] = {}, strongest = 0;
      for (Dim i = shape_.slots; i < n; ++i) {
        const double w = weights.at(r * n + i);
        const Dim key = i - shape_.slots;
        if (w == 0) continue;
        of[S::sum] += w;
        if (w > 0) of[S::entropy] -= w * std::log(w);
        if (key < first_keys) of[S::first] += w;
        if (key == position) of[S::self] = w;
        if (key + 1 == position) of[S::previous] = w;
        of[S::distance] += w * std::abs(static_cast<double>(position - key));
        if (w > strongest) strongest = w, of[S::strongest] = static_cast<double>(key);
      }
      if (shape_.normal == Normal::sigmoid && of[S::sum] > 0) {  // shares of the row's sum
        of[S::entropy] = of[S::entropy] / of[S::sum] + std::log(of[S::sum]);
        for (const int i : {S::first, S::self, S::previous, S::distance}) of[i] /= of[S::sum];
      }
      of[S::max_logit] = stats.at(at + S::max_logit);  // of the scores as they were
      for (int i = 0; i < S::count; ++i) stats.set(at + i, of[i]);
    }
  });
}

}  // namespace rapt
