// SPDX-License-Identifier: Apache-2.0
// Checks, then each row's keys are found in the tensors or the cache. Under a tape no two rows share keys.
#include "rapt/ops/align.h"

#include <algorithm>
#include <vector>

namespace rapt {
namespace {

struct AlignTape {
  AlignSpec spec;
  AlignInputs in;
  Tensor context, weights, soft, at;
  const AlignRow* row;
};

// With dw_j = dc.v_j (times the Gaussian g_j): dz_j = s_j (dw_j g_j - sum_i s_i dw_i g_i); dot: dq += dz_j
// k_j, dk_j += dz_j q; additive, t = tanh(q + k_j): dq, dk_j += dz_j w (1 - t^2), dw += dz_j t; dv_j += a_j
// dc; dp = sum_j dw_j a_j (j - p) / sigma^2, dplace += dp p (1 - sigmoid(place)).
void align_backward(Run& run, const AlignTape& s) {
  const Dim rows = s.in.q[0], d = s.in.q[1], longest = s.weights[1];
  AlignBackwardArgs a{.spec = s.spec,
                      .rows = rows,
                      .d = d,
                      .m = s.context[1],
                      .longest = longest,
                      .row = s.row,
                      .q = s.in.q.data,
                      .score = s.in.score ? s.in.score->data.get() : nullptr,
                      .weights = s.weights.data,
                      .soft = s.soft.data,
                      .at = s.at.data,
                      .dcontext = run.grad(s.context),
                      .dq = run.grad(s.in.q),
                      .dk = run.grad(s.in.k),
                      .dv = run.grad(s.in.v),
                      .dscore = run.grad(s.in.score),
                      .dplace = s.in.place ? run.grad(s.in.place) : nullptr,
                      .work = nullptr};
  const Arena::Mark mark = run.arena.mark();  // after the gradients: they stay
  a.work = run.arena.take(static_cast<std::size_t>(rows * (d + 2 * longest)) * size_of(run.device.real));
  run.call(&Kernels::align_backward, a);
  run.arena.release(mark);
}

void check(const Run& run, const AlignSpec& spec, const AlignInputs& in, std::span<const AlignRow> rows,
           Dim m) {
  auto matrix = [&](const char* what, const Tensor& t, Dim cols) {
    if (t.rank != 2 || !t.contiguous() || t[1] != cols)
      fail("align: ", what, " ", t.shape(), " should be contiguous [rows,", cols, "]");
  };
  if (in.q.rank != 2 || !in.q.contiguous()) fail("align: q ", in.q.shape(), " should be contiguous [B,d]");
  if (!in.k != !in.v) fail("align: keys and values are both tensors or both in a cache");
  if (in.k) {
    matrix("k", in.k, in.q[1]);
    matrix("v", in.v, m);
    if (in.k[0] != in.v[0])
      fail("align: k ", in.k.shape(), " and v ", in.v.shape(), " have different numbers of keys");
  } else if (run.tape) {
    fail("align: a pass with a cache cannot be differentiated; train without a cache, or run without a tape");
  }
  if (spec.additive && (!in.score || in.score->size() != in.q[1] || in.score->packing != Packing::rows))
    fail("align: additive scores need a weight of ", in.q[1], " numbers, packed in rows");
  if (in.place) {
    matrix("place", in.place, 1);
    if (in.place[0] != in.q[0]) fail("align: place ", in.place.shape(), " for ", in.q[0], " rows");
    if (!(spec.reach >= 1)) fail("align: a predicted place needs a reach of at least 1, it is ", spec.reach);
  }
  if (static_cast<Dim>(rows.size()) != in.q[0])
    fail("align: ", rows.size(), " rows of a plan for q ", in.q.shape());
  for (const AlignRow& r : rows) {
    if (r.count < 0 || r.first < 0 || r.low < 0 || r.high > r.count || (in.k && r.first + r.count > in.k[0]))
      fail("align: a row sees keys ", r.low, " to ", r.high, " of ", r.count, " from row ", r.first,
           " on, k is ", in.k.shape());
    if (!in.k && r.count > 0 && (!r.k || !r.v)) fail("align: a row without keys and values");
  }
  if (!run.tape) return;
  std::vector<std::pair<Dim, Dim>> spans;
  for (const AlignRow& r : rows) spans.emplace_back(r.first, r.first + r.count);
  std::sort(spans.begin(), spans.end());
  for (std::size_t i = 1; i < spans.size(); ++i)
    if (spans[i].first < spans[i - 1].second)
      fail("align: two rows share keys ", spans[i].first,
           " …; under a tape each row needs its own, give them in two steps");
}

}  // namespace

AlignResult align(Run& run, const AlignSpec& spec, const AlignInputs& in, std::span<const AlignRow> rows,
                  const Tensor& into) {
  const Dim m = in.v ? in.v.last() : in.m;
  check(run, spec, in, rows, m);
  const Dim B = in.q[0], d = in.q[1];
  if (into && (into.rank != 2 || !into.contiguous() || into[0] != B || into[1] != m))
    fail("align: the context [", B, ",", m, "] does not fit into ", into.shape());
  auto* row = run.arena.take_array<AlignRow>(B);
  Dim longest = 0;
  for (Dim b = 0; b < B; ++b) {
    AlignRow r = rows[static_cast<std::size_t>(b)];
    const auto size = static_cast<Dim>(size_of(run.device.real));
    if (in.k) {
      r.k = in.k.data + r.first * d * size;
      r.v = in.v.data + r.first * m * size;
    }
    longest = std::max(longest, static_cast<Dim>(r.count));
    row[b] = r;
  }
  AlignResult out{.context = into ? into : run.make({B, m}),
                  .weights = run.make({B, longest}).constant(),
                  .max_score = run.make({B}).constant()};
  const Tensor soft = in.place ? run.make({B, longest}).constant() : Tensor{},
               at = in.place ? run.make({B}).constant() : Tensor{};
  run.call(&Kernels::align, {.spec = spec,
                             .rows = B,
                             .d = d,
                             .m = m,
                             .longest = longest,
                             .row = row,
                             .q = in.q.data,
                             .score = in.score ? in.score->data.get() : nullptr,
                             .place = in.place.data,
                             .context = out.context.data,
                             .weights = out.weights.data,
                             .max_score = out.max_score.data,
                             .soft = soft.data,
                             .at = at.data});
  run.record(align_backward, AlignTape{spec, in, out.context, out.weights, soft, at, row});
  return out;
}

}  // namespace rapt
