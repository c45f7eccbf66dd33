// SPDX-License-Identifier: Apache-2.0
// One query against the memory of its sequence: the attention of recurrent decoders (Bahdanau 2015, Luong
// 2015), one step at a time. The fused `attention` puts queries into vector lanes and has one here, so this
// op puts channels there. Weights are kept: a step has few.
//
//   score(q, k) = q.k                          dot (Luong's general: k = W_a h, made once per source)
//               = sum_d w_d tanh(q_d + k_d)    additive (Luong's concat is the same sum)
//   s = softmax over the keys [low, high) of the row
//   a = s, or with a predicted place p = keys * sigmoid(place): keys with |j - p| <= reach only, a_j = s_j
//       exp(-(j - p)^2 / (2 sigma^2)), sigma = reach / 2, not normalised again (Luong's local-p; keys are
//       counted from 0)
//   context = sum_j a_j v_j
//
// A row's bits depend on the row only. A row that sees no key gives zeros.
#pragma once
#include <span>

#include "rapt/run/run.h"

namespace rapt {

struct AlignSpec {
  bool additive = false;
  double reach = 0;  // with `place`
};
struct AlignRow {
  std::int64_t first = 0, count = 0;  // rows of k and v
  std::int64_t low = 0, high = 0;     // keys seen, counted from the memory's first
  const void *k = nullptr, *v = nullptr;  // where k and v are no tensors: the memory's first row (a cache)
};
struct AlignInputs {
  Tensor q;                        // [B,d]
  Tensor k = {}, v = {};           // [S,d] [S,m]; absent: AlignRow::k, v, and d and m from `m`
  Dim m = 0;                       // width of v where it is no tensor
  const Weight* score = nullptr;   // additive: [1,d]
  Tensor place = {};               // [B,1]; absent: no predicted place
};
struct AlignResult {
  Tensor context;    // [B,m]
  Tensor weights;    // [B,longest]: a; keys that a row does not have are 0
  Tensor max_score;  // [B]: of the keys seen
};
// `into`: where the context goes, or absent. Under a tape no two rows may share keys: each row is the only
// one that adds to their gradients.
AlignResult align(Run& run, const AlignSpec& spec, const AlignInputs& in, std::span<const AlignRow> rows,
                  const Tensor& into = {});

struct AlignArgs {
  AlignSpec spec;
  std::int64_t rows, d, m, longest;
  const AlignRow* row;  // k and v filled in
  const void *q, *score, *place;
  void *context, *weights, *max_score;
  void *soft, *at;  // with a place: s [B,longest] and p [B], for backward; else nullptr
};
struct AlignBackwardArgs {
  AlignSpec spec;
  std::int64_t rows, d, m, longest;
  const AlignRow* row;
  const void *q, *score, *weights, *soft, *at, *dcontext;
  void *dq, *dk, *dv, *dscore, *dplace;  // dk, dv: of the tensors' first row
  void* work;  // rows * (d + 2 * longest) numbers
};

}  // namespace rapt
