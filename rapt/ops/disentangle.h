// SPDX-License-Identifier: Apache-2.0
// Terms of relative positions in attention scores: queries meet keys that stand for distances
// (Transformer-XL), and keys meet queries that do (DeBERTa's disentangled attention). Distances share rows of
// a table by a logarithmic rule.
//
//   bias[h, i, j] = scale * (q_i . K[r] + k_j . Q[r]),   r = relative_row(position of i - j)
//
// Both terms take the same row r: how far the query stands behind the key. The result is a dense bias for the
// fused attention, and the only place where memory grows with rows * keys: H * T * (keys of the longest
// sequence) numbers, under a tape for every layer. Models with short texts use it.
//
// Products are one chain of fused multiply-adds over the channels of a head. A row's bits depend on its own
// sequence only.
#pragma once
#include "rapt/run/batch.h"
#include "rapt/run/run.h"

namespace rapt {

// The row for a distance (query - key), of 2 * buckets: one each up to buckets / 2, then shared, so that the
// distance max - 1 reaches the last one. Row `buckets` is distance 0; whatever lies beyond takes the first or
// last row. buckets >= 2, max - 1 > buckets / 2.
std::int32_t relative_row(Dim distance, Dim buckets, Dim max);

struct DisentangleSpec {
  Dim buckets = 256, max = 512;
  Dim first = 0;  // the table's row that row 0 of `keys` and `queries` stands for
  // Distances whose rows they do not hold are those of keys that no row sees: they take the first or the
  // last row. Else such a distance is an error.
  bool seen_only = false;
  double scale = 1;
};
struct DisentangleInputs {
  Tensor q, k = {};  // [T,H,D] [S,K,D]; k is read with `queries` only
  Tensor keys = {};  // [rows,K,D] K of the formula; absent: without its term
  Tensor queries = {};  // [rows,H,D] Q of the formula; absent: likewise
};
// Returns [H, T, keys of the longest sequence]; keys that a sequence does not have are 0. Every row sees all
// keys of its part of the plan, or its bias is not read; rows may stand anywhere (RowPlan::position).
Tensor disentangle(Run& run, const DisentangleSpec& spec, const DisentangleInputs& in, const RowPlan& plan);

// ----------------------------------------------------------------------------------------- kernel arguments
constexpr std::int64_t kDisentangleBlock = 64;  // rows or keys whose products with the table are held

struct DisentangleBlock {  // some rows of q, or some keys, of one sequence
  std::int64_t first, count;  // rows of q; keys, counted from the sequence's first
  std::int64_t q_first, q_count;  // rows of q of the sequence
  std::int64_t k_first, k_count;  // its rows of k
  std::int64_t low, high;  // rows of the tables that they meet: [low, high)
};
struct DisentangleShape {
  std::int64_t rows, heads, kv_heads, d, table, longest;
  double scale;
  const DisentangleBlock *q_blocks, *k_blocks;  // in the order of the sequences
  std::int64_t q_block_count, k_block_count;
  const std::int32_t* position;  // per row of q
  const std::int32_t* row_of;  // [2 * longest - 1]: by key - query + longest - 1
  const void *q, *k, *keys, *queries;
};
struct DisentangleArgs {
  DisentangleShape shape;
  void* bias;
  void* work;  // (kv_heads + heads) * d * table reals: the tables with channels first
};
struct DisentangleBackwardArgs {
  DisentangleShape shape;
  const void* dbias;
  void *dq, *dk, *dkeys, *dqueries;  // all are added to; nullptr where nobody wants them
};

}  // namespace rapt
