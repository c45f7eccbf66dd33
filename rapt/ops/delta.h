// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (Gated DeltaNet: Qwen3-Next, Qwen3.5): every value head h has a state S [d_k,d_v],
// which starts at 0 and is read and corrected once per row, with the key head h / (value_heads / key_heads),
// or h % key_heads (turns):
//
//   S' = e^g S;   u = beta (v - S'^T k);   S = S' + k u^T;   o = scale S^T q
//
// It is computed in chunks of kChunkRows rows, counted from the sequence's first row. With S0 the state
// before the chunk and c_i the sum of g over its rows up to i, row i of the chunk is
//
//   u_i = beta_i (v_i - e^{c_i} S0^T k_i - sum_{j<i} e^{c_i - c_j} (k_i.k_j) u_j)
//   o_i = scale (e^{c_i} S0^T q_i + sum_{j<=i} e^{c_i - c_j} (q_i.k_j) u_j)
//
// and the state moves on at the end of a whole chunk only: S = e^{c_last} S0 + sum_j e^{c_last - c_j} k_j
// u_j^T. g <= 0, so no exponent is positive. Every product and sum is one chain in the order of channels or
// rows, so a row's bits do not depend on how many rows come with it.
//
// Between passes a cache keeps two kinds of pages (nn/kv_pool.h), all in the device's real type: of the rows
// of a chunk, for every key head its keys [d_k][64], and for each of its value heads u [64][d_v] and c
// [2][64] (with the digits it lacks); and the state at the end of a chunk, [value_heads][d_k][d_v].
#pragma once
#include <span>

#include "rapt/run/batch.h"
#include "rapt/run/run.h"

namespace rapt {

constexpr std::int64_t kChunkRows = 64;  // a page of a cache (kPageKeys)

// g = -e^{a_log} softplus(a + dt_bias). a [T,n], a_log and dt_bias [n].
Tensor decay(Run& run, const Tensor& a, const Weight& a_log, const Weight& dt_bias);

struct DecayArgs {
  std::int64_t rows, n;
  const void *a, *a_log, *dt_bias;
  void* g;
};
struct DecayBackwardArgs {
  std::int64_t rows, n;
  const void *a, *a_log, *dt_bias, *g, *dg;
  void *da, *da_log, *ddt_bias;  // all are added to
};

struct GatedDeltaSpec {
  Dim key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  double scale = 1;
  bool turns = false;
  bool operator==(const GatedDeltaSpec&) const = default;
  Dim row_values() const {
    return key_heads * key_dim + value_heads * (value_dim + 2);
  }  // a page has 64 of it
  Dim state_values() const { return value_heads * key_dim * value_dim; }
};
struct GatedDeltaInputs {
  Tensor q, k;  // [T,key_heads,d_k], of length 1 each (or less)
  Tensor v;  // [T,value_heads,d_v]
  Tensor g, beta;  // [T,value_heads]
};
// Pages of one layer, of all sequences of a pass. A pass reads the state at the end of the chunk before its
// first row, and the rows of the chunk that this row belongs to. It writes, of a sequence that has `end` rows
// afterwards, rows of chunks from end / 64 - 1 on, and the state of chunk end / 64 - 1 where it completes it.
struct ChunkPages {
  std::byte *rows = nullptr, *states = nullptr;  // page p begins at rows + p * row_stride (bytes)
  Dim row_stride = 0, state_stride = 0;
  struct Sequence {
    std::span<const std::int32_t> rows, states;  // the ids of its pages, chunk by chunk
  };
  std::vector<Sequence> sequences;
};
// Returns o [T,value_heads,d_v]. `pages`: with a cache, where a sequence stands at Sequence::past. `norms`:
// where given, becomes |S| (Frobenius) after every row [T,value_heads], computed beside.
Tensor gated_delta(Run& run, const GatedDeltaSpec& spec, const GatedDeltaInputs& in,
                   std::span<const Sequence> sequences, const ChunkPages* pages = nullptr,
                   Tensor* norms = nullptr);

// ----------------------------------------------------------------------------------------- kernel arguments
struct GatedDeltaPart {  // one sequence
  std::int64_t first, count, past;
  const std::int32_t *row_pages, *state_pages;
  std::int64_t first_chunk;  // with a tape: where its states stand among all
};
struct GatedDeltaShape {
  std::int64_t key_heads, value_heads, key_dim, value_dim;
  double scale;
  bool turns;
  std::int64_t part_count;
  const GatedDeltaPart* parts;
  const void *q, *k, *v, *g, *beta;
  void* states;  // with a tape: S before every chunk but the first [chunks][value_heads][d_k][d_v]
};
struct GatedDeltaArgs {
  GatedDeltaShape shape;
  void *o, *norms;
  bool cached;
  std::byte *rows, *state_pages;
  std::int64_t row_stride, state_stride;
};
struct GatedDeltaBackwardArgs {
  GatedDeltaShape shape;
  const void* dout;
  void *dq, *dk, *dv, *dg, *dbeta;  // all are added to; nullptr where nobody wants them
};

}  // namespace rapt
