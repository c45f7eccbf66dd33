// SPDX-License-Identifier: Apache-2.0
// The rule of rows, checks, and blocks of rows and keys with the part of the table that each meets.
#include "rapt/ops/disentangle.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace rapt {
namespace {

struct DisentangleTape {
  DisentangleShape shape;
  DisentangleInputs in;
  Tensor bias;
};

// With g = scale * dbias, and dA[i, r], dB[j, r] its sums over the pairs that meet row r: dq_i += dA[i] K,
// dK_r += sum_i dA[i, r] q_i; dk_j += dB[j] Q, dQ_r += sum_j dB[j, r] k_j.
void disentangle_backward(Run& run, const DisentangleTape& s) {
  run.call(&Kernels::disentangle_backward, {.shape = s.shape,
                                            .dbias = run.grad(s.bias),
                                            .dq = run.grad(s.in.q),
                                            .dk = s.in.k ? run.grad(s.in.k) : nullptr,
                                            .dkeys = s.in.keys ? run.grad(s.in.keys) : nullptr,
                                            .dqueries = s.in.queries ? run.grad(s.in.queries) : nullptr});
}

void check(const Run& run, const DisentangleSpec& spec, const DisentangleInputs& in, const RowPlan& plan) {
  auto tensor = [&](const char* what, const Tensor& t, Dim heads, Dim d) {
    if (!t || t.rank != 3 || t[1] != heads || t[2] != d || !t.contiguous() || t.dtype != run.device.real)
      fail("disentangle: ", what, " ", t ? t.shape() : "(absent)", " should be contiguous [rows,", heads, ",",
           d, "] of ", name_of(run.device.real));
  };
  if (!in.keys && !in.queries) fail("disentangle: neither keys nor queries of distances are given");
  const Tensor& k = in.k || in.queries ? in.k : in.keys;
  if (!in.q || in.q.rank != 3 || !k || k.rank != 3 || in.q[1] % k[1] != 0)
    fail("disentangle: q ", in.q ? in.q.shape() : "(absent)", " and k ", k ? k.shape() : "(absent)",
         " should be [rows,heads,channels], the heads of q a multiple of those of k");
  const Dim H = in.q[1], K = k[1], D = in.q[2];
  tensor("q", in.q, H, D);
  if (in.k) tensor("k", in.k, K, D);
  if (in.keys) tensor("keys", in.keys, K, D);
  if (in.queries) tensor("queries", in.queries, H, D);
  if (in.keys && in.queries && in.keys[0] != in.queries[0])
    fail("disentangle: keys ", in.keys.shape(), " and queries ", in.queries.shape(), " of distances differ");
  if (spec.buckets < 2 || spec.max - 1 <= spec.buckets / 2)
    fail("disentangle: ", spec.buckets, " buckets up to distance ", spec.max,
         "; at least 2 are needed, and distances beyond their half");
  if (static_cast<Dim>(plan.position.size()) != in.q[0])
    fail("disentangle: the plan is for ", plan.position.size(), " rows, q has ", in.q[0]);
  Dim covered = 0;
  for (const RowPlan::Part& p : plan.parts) {
    if (p.q_first != covered || p.q_count < 0 || p.k_first < 0 || p.k_count < 0 ||
        (in.k && p.k_first + p.k_count > in.k[0]))
      fail("disentangle: a part of the plan has rows ", p.q_first, " … and keys ", p.k_first, " … ",
           p.k_first + p.k_count, "; row ", covered, " is next", in.k ? ", k is " + in.k.shape() : "");
    covered += p.q_count;
    for (Dim r = p.q_first; r < covered && r < in.q[0]; ++r)
      if (const Dim at = plan.position[static_cast<std::size_t>(r)]; at < 0 || at >= p.k_count)
        fail("disentangle: row ", r, " stands at ", at, ", its sequence has ", p.k_count, " keys");
  }
  if (covered != in.q[0]) fail("disentangle: the plan's parts cover ", covered, " rows, q has ", in.q[0]);
}

}  // namespace

std::int32_t relative_row(Dim distance, Dim buckets, Dim max) {
  const Dim half = buckets / 2, far = std::abs(distance);
  Dim row = distance;
  if (far > half) {
    const double part = std::log(static_cast<double>(far) / static_cast<double>(half)) /
                        std::log(static_cast<double>(max - 1) / static_cast<double>(half));
    row = static_cast<Dim>(std::ceil(part * static_cast<double>(half - 1))) + half;
    if (distance < 0) row = -row;
  }
  return static_cast<std::int32_t>(std::clamp<Dim>(row + buckets, 0, 2 * buckets - 1));
}

Tensor disentangle(Run& run, const DisentangleSpec& spec, const DisentangleInputs& in, const RowPlan& plan) {
  check(run, spec, in, plan);
  DisentangleShape s{.rows = in.q[0],
                     .heads = in.q[1],
                     .kv_heads = in.k ? in.k[1] : in.keys[1],
                     .d = in.q[2],
                     .table = in.keys ? in.keys[0] : in.queries[0],
                     .longest = 0,
                     .scale = spec.scale,
                     .q_blocks = nullptr,
                     .k_blocks = nullptr,
                     .q_block_count = 0,
                     .k_block_count = 0,
                     .position = run.copy_of(std::span(plan.position)),
                     .row_of = nullptr,
                     .q = in.q.data,
                     .k = in.k.data,
                     .keys = in.keys.data,
                     .queries = in.queries.data};
  for (const RowPlan::Part& p : plan.parts)
    if (p.q_count > 0) s.longest = std::max<Dim>(s.longest, p.k_count);
  auto* row_of = run.arena.take_array<std::int32_t>(std::max<Dim>(1, 2 * s.longest - 1));
  for (Dim i = 0; i < 2 * s.longest - 1; ++i) {
    Dim row = relative_row(s.longest - 1 - i, spec.buckets, spec.max) - spec.first;
    if (spec.seen_only) row = std::clamp<Dim>(row, 0, s.table - 1);
    if (row < 0 || row >= s.table)
      fail("disentangle: distance ", s.longest - 1 - i, " takes row ", row + spec.first,
           ", the tables hold rows ", spec.first, " to ", spec.first + s.table - 1);
    row_of[i] = static_cast<std::int32_t>(row);
  }
  s.row_of = row_of;

  std::vector<DisentangleBlock> of_rows, of_keys;
  for (const RowPlan::Part& p : plan.parts) {
    if (p.q_count == 0) continue;
    auto range = [&](Dim first_row, Dim rows, Dim first_key, Dim keys) {  // rows fall as keys rise
      const auto at = plan.position.begin() + first_row;
      const auto [nearest, farthest] = std::minmax_element(at, at + rows);
      return std::pair<Dim, Dim>(row_of[first_key + keys - 1 - *nearest + s.longest - 1],
                                 row_of[first_key - *farthest + s.longest - 1] + 1);
    };
    for (Dim i = 0; i < p.q_count; i += kDisentangleBlock) {
      const Dim n = std::min<Dim>(kDisentangleBlock, p.q_count - i);
      const auto [low, high] = range(p.q_first + i, n, 0, p.k_count);
      of_rows.push_back({p.q_first + i, n, p.q_first, p.q_count, p.k_first, p.k_count, low, high});
    }
    for (Dim j = 0; j < p.k_count; j += kDisentangleBlock) {
      const Dim n = std::min<Dim>(kDisentangleBlock, p.k_count - j);
      const auto [low, high] = range(p.q_first, p.q_count, j, n);
      of_keys.push_back({j, n, p.q_first, p.q_count, p.k_first, p.k_count, low, high});
    }
  }
  s.q_blocks = run.copy_of(std::span<const DisentangleBlock>(of_rows));
  s.k_blocks = run.copy_of(std::span<const DisentangleBlock>(of_keys));
  s.q_block_count = static_cast<Dim>(of_rows.size());
  s.k_block_count = static_cast<Dim>(of_keys.size());

  Tensor bias = run.make({s.heads, s.rows, s.longest});
  const Arena::Mark mark = run.arena.mark();
  void* work = run.arena.take(static_cast<std::size_t>((s.kv_heads + s.heads) * s.d * s.table) *
                              size_of(run.device.real));
  run.call(&Kernels::disentangle, {.shape = s, .bias = bias.data, .work = work});
  run.arena.release(mark);
  run.record(disentangle_backward, DisentangleTape{s, in, bias});
  return bias;
}

}  // namespace rapt
