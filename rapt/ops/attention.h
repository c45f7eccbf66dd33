// SPDX-License-Identifier: Apache-2.0
// Attention in one fused op: what must not leave the tile. Scores, scale, soft-cap, bias, one key interval
// per row plus kept first keys, softmax with an optional extra logit or sigmoid, dropout, statistics. No
// T x T matrix is stored, forward or backward. Masks as intervals: run/batch.h. Everything around it
// (projections, norms, gates, RoPE): nn/parts/attention.h.
//
//   score(q, k) = q.k                          dot
//               = 2 q.k - |k|^2 - |q|^2        l2
//               = sum_d w_d tanh(q_d + k_d)    additive (Bahdanau; Luong's concat after its projections)
//   z = cap * tanh(scale * score / cap) + bias     (no cap: scale * score + bias)
//   p = softmax over the visible keys, learned slots and the extra logit   |   sigmoid(z), not normalised
//   out = sum_j dropout(p_j) v_j
//
// Order of additions (part of the result): key blocks of 64 and splits of kAttentionSplit keys counted from
// the sequence's first token; each split starts a fresh softmax state; splits merge in index order. Learned
// slots form a split of their own before them. So a row's bits depend on its own sequence only. A row that
// sees nothing gives zeros and passes no gradient.
#pragma once
#include "rapt/run/batch.h"
#include "rapt/run/kv_view.h"
#include "rapt/run/run.h"

namespace rapt {

namespace site {

// AttentionStat per row and head                 [T,H,AttentionStat::count]
inline constexpr Site attn_stats{"attn_stats"};
// Chosen rows only, see Taps::want_weights and Taps::edit_rows                 [keys].
inline constexpr Site attn_weights{"attn_weights"};
// What the softmax reads: scaled, capped, with bias; -infinity where a row does not see a key. For edits of
// rows only, see Taps::edit_rows                 [keys].
inline constexpr Site attn_scores{"attn_scores"};

}  // namespace site

enum class Score : int { dot, l2, additive };
enum class Normal : int { softmax, sigmoid };
enum class Extra : int { none, zero_logit, learned_logit };
enum class Bias : int { none, alibi, bucket, dense };

struct AttentionSpec {
  // kv_heads == heads is MHA, 1 is MQA, between is GQA: one path
  Dim heads = 0, kv_heads = 0, head_dim = 0, v_dim = 0;
  double scale = 1;
  double cap = 0;  // 0: none
  Score score = Score::dot;
  Normal normal = Normal::softmax;
  Extra extra = Extra::none;
  Bias bias = Bias::none;
  double alibi_max = 8, alibi_factor = 1;  // alibi: slopes (alibi_slopes)
  Dim bucket_max = 128;        // bucket: distances beyond share the last one
  bool bucket_both = false;    // bucket: keys after the query have buckets of their own (encoders)
  double dropout = 0;
  bool cross = false;          // for taps
  bool values_in_keys = false; // the value of a key is its first v_dim channels (latent attention): no v
};

struct AttentionInputs {
  Tensor q;                              // [T,H,D]
  // [T,H,D]: the query for the first `keep` keys of sequences that keep some (streaming); absent: q
  Tensor q_kept = {};
  // [S,K,D] [S,K,Dv]; absent where `cache` is given, v also where values are in keys
  Tensor k = {}, v = {};
  const KvView* cache = nullptr;
  const Weight* extra_logit = nullptr;   // [H]
  const Weight* buckets = nullptr;       // [buckets, H]
  Tensor dense_bias = {};                // [1 or H, T, keys of the longest sequence]
  // [slots, K*D] [slots, K*Dv]: seen by every row, not rotated, no distance bias
  const Weight *slot_k = nullptr, *slot_v = nullptr;
  const Weight* score_weight = nullptr;  // additive: [H, D]
};

// Returns [T,H,Dv]. Shows site::attn_stats and site::attn_weights to taps that ask. Dropout only in
// training. Rows whose weights or scores somebody changes (Taps::edit_rows) are computed anew, in plain
// order; all others keep their bits, and so does a row that an edit leaves as it was.
Tensor attention(Run& run, const AttentionSpec& spec, const AttentionInputs& in, const RowPlan& plan);

// The weights of every row of one sequence (the plan's only part) in one head, [T, slots + keys], before
// dropout: computed anew, in plain order, from the queries and keys that an attention() read. `in.v` is
// not needed.
Tensor attention_weights(Run& run, const AttentionSpec& spec, AttentionInputs in, const RowPlan& plan,
                         Dim head);

// ALiBi's slope of each head: a geometric sequence down to 2^-max, also for head counts that are no power
// of two.
std::vector<double> alibi_slopes(Dim heads, double max = 8);
// T5's bucket of a relative position (key - query).
std::int32_t relative_bucket(Dim relative, Dim buckets, Dim max_distance, bool both_ways);

// ----------------------------------------------------------------------------------------- kernel arguments
// Queries that a kernel takes together divide it: what scratch memory is counted in.
constexpr std::int64_t kAttentionLanes = 64;
// Keys that share one softmax state: also what one task of decoding takes, so 3 kv heads keep 2 threads busy
// from depth 256 on. Merging costs a row 2 Dv operations per split, beside 256 (D + Dv) multiply-adds
// (docs/decisions/0005).
constexpr std::int64_t kAttentionSplit = 256;
// (row, head) pairs of a sequence and kv head up to which keys stand in lanes (decoding). Where values are in
// keys all heads share one, and a step of decoding has as many pairs as heads: DeepSeek V3 has 128.
constexpr std::int64_t kAttentionFew = 32, kAttentionFewShared = 128;

struct AttentionPart {  // one sequence; k_count is its number of keys
  std::int64_t q_first, q_count, k_first, k_count;
  const std::int32_t* pages = nullptr;  // nullptr: rows k_first … of k and v
  const std::int32_t* angles = nullptr;  // KvBias::angles
  std::int64_t keep = 0;  // first keys that all its rows see
};

struct AttentionShape {
  std::int64_t rows, heads, kv_heads, d, dv;
  std::int64_t few;  // kAttentionFew or kAttentionFewShared
  bool values_in_keys;  // v is nullptr then
  const AttentionPart* parts;
  std::int64_t part_count;
  // Per row; key j is seen where j < high and (j >= low or j < keep of its part).
  const std::int32_t *low, *high, *position, *kept_position;
  std::int64_t slots;
  Score score;
  Normal normal;
  Extra extra;
  Bias bias;
  double scale, cap;
  const void *q, *q_kept, *k, *v;  // q_kept: nullptr or like q; k, v nullptr where pages are used
  KvLayout cache;  // of the pages
  std::byte* slab;  // page p begins at slab + p * page_stride (bytes)
  std::int64_t page_stride;
  std::byte* angle_slab;  // likewise
  std::int64_t angle_stride;
  const void* key_bias;  // nullptr, or KvBias::bias with its shape
  std::int64_t bias_half, bias_rows;
  bool bias_neighbours;
  const void *slot_k, *slot_v, *score_weight, *extra_logit;
  const void* slopes;  // alibi [H]; z += -slope * |position - key|
  const void* buckets;  // bucket: table [n, H]
  // bucket: [2 * bucket_reach + 1], the bucket of relative position i - bucket_reach
  const std::int32_t* bucket_of;
  std::int64_t bucket_count, bucket_reach;
  const void* dense;  // dense [dense_heads, rows, dense_keys]
  std::int64_t dense_heads, dense_keys;
  double dropout;  // 0: none
  const std::uint32_t* row_keys;  // per row, for dropout
  std::int64_t* first_of;  // [4][part_count + 1], the kernel's own: where the work of a part begins
};

struct AttentionArgs {
  AttentionShape shape;
  void* out;  // [T,H,Dv]
  // [T,H,2] or nullptr: the log-sum-exp of a row's logits for backward, as (-m log2 e, 1 / l); 1 / l =
  // 0: saw nothing
  void* lse;
  void* stats;  // [T,H,AttentionStat::count] or nullptr
  std::int64_t first_keys;  // for AttentionStat::first
  void* work;  // attention_work() elements of the device's real type, or nullptr: no decoding by splits
};
std::int64_t attention_work(const AttentionShape& shape);

struct AttentionBackwardArgs {
  AttentionShape shape;
  const void *out, *lse, *dout;
  // All are added to; nullptr where nobody wants them.
  void *dq, *dq_kept, *dk, *dv, *dslot_k, *dslot_v, *dscore_weight, *dextra, *dbuckets, *ddense;
  // One task owns the gradients of `key_chunk` keys; what it adds to dq is a partial sum, added in order.
  // Chosen by shapes only, so that the bits do not depend on threads. `work`: attention_backward_work()
  // elements of the device's real type.
  std::int64_t key_chunk;
  void* work;
};
std::int64_t attention_backward_work(const AttentionShape& shape, std::int64_t key_chunk);

struct AttentionWeightsArgs {
  AttentionShape shape;
  std::int64_t row, row_count, head;  // rows of one sequence, one head
  void* weights;  // [row_count][slots + keys of the sequence], before dropout; unseen keys 0
  bool scores = false;  // what the softmax reads instead; unseen keys hold any number
};

struct AttentionValuesArgs {  // weights as above times values, added up in plain order
  AttentionShape shape;
  std::int64_t row, row_count, head;
  const void* weights;  // the value of a key with weight 0 is not read
  void* out;  // [T,H,Dv]: these rows of this head are written
};

struct KvWriteArgs {  // rows of k and v into their places in the pages
  KvLayout layout;
  std::int64_t part_count;
  // q_first, q_count: rows of k and v; k_count: length afterwards (the rows are its last q_count keys)
  const AttentionPart* parts;
  const void *k, *v;
  std::byte* slab;  // page p begins at slab + p * page_stride (bytes)
  std::int64_t page_stride;
};

// The pages of one layer. Fails where a format in blocks does not divide the heads.
KvLayout kv_layout(DType format, Dim kv_heads, Dim d, Dim dv, bool values_in_keys = false);

}  // namespace rapt
