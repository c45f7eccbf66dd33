// SPDX-License-Identifier: Apache-2.0
// The forward of attention and the weights of one row. Lanes, masks and options: attention_tile.h.
#include "rapt/ops/attention_tile.h"

namespace rapt::RAPT_ISA {
namespace {

constexpr int kQueryBlocks = RAPT_IS(avx512) ? 4 : 8;  // query blocks that share one pass over K and V

// Rows of one head further apart than this fall onto few sets of L2 and are copied together first. Up to 4
// KB apart, copying cost 3 to 5 % at T = 128 and gained nothing at 2,048 (bench/attention, Zen 4): the
// broadcasts hide the latency of L2.
constexpr Dim kFar = 4096 / Dim(sizeof(Real));

// What is summed up for statistics, relative to the running maximum like the sum itself.
enum { kEntropy, kMass, kFirst, kSelf, kPrevious, kDistance, kSums };

constexpr Real kIndex[kBlock] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

struct Memory {  // of one task, shared by its query blocks
  Real *st, *bias, *k, *v, *relative, *blocks, *row;
  Real k2[kBlock];
};

// A query block: N*W queries, and their online softmax while the key blocks pass. m, l, O as in
// FlashAttention; a block of scores S, then of weights P, is Memory::st. All are transposed (t): a query is
// a lane.
template <int N, bool kStats>
struct QueryBlock {
  static constexpr int L = N * W;
  Real *qt, *kept_qt, *wt, *ot, *total;     // [d + bias channels][L] likewise [d][L] [dv][L] [dv][L]
  V m[N], shift[N], l[N];        // of this split: running maximum, -m in exponent units, sum of weights
  V total_shift[N], total_l[N];  // of the splits before
  // Nothing seen in this split; some split (or the extra logit) is in the total.
  bool empty, merged;
  bool summed;                   // `total` holds values
  V sums[kSums][N], total_sums[kSums][N], max_logit[N], strongest[N], strongest_logit[N];
  Real q2[kLanes], q2_kept[kLanes];
  Lanes lanes;

  static Dim reals(const Arguments& arg) {
    return ((arg.d + arg.bias_channels) * (1 + (arg.q_kept != nullptr)) + arg.d * arg.additive + 2 * arg.dv) *
           L;
  }

  void begin(const Arguments& arg, const AttentionPart& part, Dim kv, Dim first, Dim count, Real* memory) {
    find_lanes(arg, part, kv, first, count, N, lanes);
    qt = memory;
    ot = qt + (arg.d + arg.bias_channels) * L;
    total = ot + arg.dv * L;
    kept_qt = wt = total + arg.dv * L;
    const Real* row[kLanes];
    auto load = [&](const Real* x, Real* xt, Real* squares) {
      for (Dim i = 0; i < count; ++i) row[i] = x + (Dim(lanes.row[i]) * arg.heads + lanes.head[i]) * arg.d;
      to_lanes<N>(row, count, arg.d, xt);
      if (arg.bias_channels) set_reals(xt + arg.d * L, 0, arg.bias_channels * L);
      for (Dim i = 0; arg.bias_channels && i < count; ++i)
        fill_bias_channels(arg, kv, row[i], xt + arg.d * L + i, L);
      if (arg.l2)
        for (int i = 0; i < L; ++i) squares[i] = i < count ? square_of(row[i], arg.d) : Real(0);
    };
    load(arg.q, qt, q2);
    if (arg.q_kept && part.keep > 0) {
      load(arg.q_kept, kept_qt, q2_kept);
      wt += (arg.d + arg.bias_channels) * L;
    } else {
      kept_qt = qt;
      for (int i = 0; i < L; ++i) q2_kept[i] = q2[i];
    }
    if (arg.additive) {
      for (Dim i = 0; i < count; ++i) row[i] = arg.score_weight + lanes.head[i] * arg.d;
      to_lanes<N>(row, count, arg.d, wt);
    }
    merged = arg.shape.extra != Extra::none;
    summed = false;
    for (int v = 0; v < N; ++v) {
      total_shift[v] = vset(-kFloor * arg.scale_log2);
      total_l[v] = vzero();
      if (merged) {
        Real logit[W];
        for (int i = 0; i < W; ++i)
          logit[i] = arg.shape.extra == Extra::learned_logit ? arg.extra[lanes.head[v * W + i]] : Real(0);
        total_shift[v] = vload(logit) * vset(-kLog2e);
        total_l[v] = vset(Real(1));
      }
      if constexpr (kStats) {
        for (int i = 0; i < kSums; ++i) total_sums[i][v] = vzero();
        max_logit[v] = strongest_logit[v] = vset(kMasked);
        strongest[v] = vzero();
      }
    }
    begin_split(arg);
  }

  void begin_split(const Arguments& arg) {
    empty = true;
    for (int v = 0; v < N; ++v) {
      m[v] = vset(kMasked);
      shift[v] = vset(-kFloor * arg.scale_log2);
      l[v] = vzero();
      if constexpr (kStats)
        for (int i = 0; i < kSums; ++i) sums[i][v] = vzero();
    }
  }

  // Scores of keys [k0, k1), transposed: st[key][lane]. Where nothing follows (plain), masked and with
  // their maximum.
  [[gnu::always_inline]] void scores(const Arguments& arg, const Lanes& queries, const KeyBlock& b,
                                     const VisibleKeys<N>& vis, const Real* x, Dim k0, Dim k1, Real* st,
                                     V (&row_max)[N]) {
    tiles<tile_of(N)>(k0, k1, [&](auto size, Dim k) RAPT_LAMBDA {
      constexpr int T = decltype(size)::value;
      const int v0 = first_vector(vis, k);
      static_for<0, N>([&](auto V0) RAPT_LAMBDA {
        if (v0 != V0) return;
        V t[T][N];
        clear(t);
        if (b.transposed) {
          accumulate<V0.value>(t, b.k + k, 1, kBlock, x, L, arg.d);
          if (b.angles) accumulate<V0.value>(t, b.angles + k, 1, kBlock, x + arg.d * L, L, arg.bias_channels);
        } else {
          accumulate<V0.value>(t, b.k + k * b.k_stride, b.k_stride, 1, x, L, arg.d);
        }
        if (arg.plain) {
          if (!vis.full(k, T)) {
            RAPT_UNROLL
            for (int i = 0; i < T; ++i) {
              RAPT_UNROLL
              for (int v = V0; v < N; ++v)
                t[i][v] =
                    where_visible(queries, v, b.first + k + i, k + i < vis.keep, t[i][v], vset(kMasked));
            }
          }
          RAPT_UNROLL
          for (int v = V0; v < N; ++v) {
            V new_m = row_max[v];
            RAPT_UNROLL
            for (int i = 0; i < T; ++i) new_m = vmax(new_m, t[i][v]);
            row_max[v] = new_m;
          }
        }
        RAPT_UNROLL
        for (int i = 0; i < T; ++i) {
          RAPT_UNROLL
          for (int v = V0; v < N; ++v) vstore(st + (k + i) * L + v * W, t[i][v]);
        }
      });
    });
  }

  // One key block.
  __attribute__((noinline)) void add(const Arguments& arg, const KeyBlock& b, Memory& mem) {
    VisibleKeys<N> vis;
    if (!find_visible<N>(lanes, b, vis)) return;
    Real* const st = mem.st;
    const Dim n = vis.upto[N - 1];
    // 1. logits and their maximum
    V new_m[N];
    for (int v = 0; v < N; ++v) new_m[v] = m[v];
    const Dim kept_end = arg.q_kept ? most(vis.from, least(n, vis.keep)) : vis.from;
    if (arg.additive) {
      additive_scores<N>(arg, b, vis.from, kept_end, kept_qt, wt, st);
      additive_scores<N>(arg, b, kept_end, n, qt, wt, st);
    } else {
      if (kept_end > vis.from) scores(arg, lanes, b, vis, kept_qt, vis.from, kept_end, st, new_m);
      scores(arg, lanes, b, vis, qt, kept_end, n, st, new_m);
    }
    if (!arg.plain) {
      if (arg.table && !b.slots) {
        fill_bias<N>(arg, lanes, b, vis.from, least(n, vis.keep), true, mem.relative, mem.bias);
        fill_bias<N>(arg, lanes, b, most(vis.from, vis.keep), n, false, mem.relative, mem.bias);
      }
      to_logits<N>(arg, lanes, b, vis, mem.k2, q2, q2_kept, mem.bias, st, nullptr);
      for (int v = 0; v < N; ++v)
        for (Dim k = vis.from; k < vis.upto[v]; ++k) new_m[v] = vmax(new_m[v], vload(st + k * L + v * W));
    }
    if constexpr (kStats)
      if (!b.slots)
        for (int v = 0; v < N; ++v) find_strongest(b, vis, v, new_m[v], st);
    for (int v = 0; v < N; ++v) m[v] = new_m[v];
    // 2. weights in place
    V alpha[N];
    for (int v = 0; v < N; ++v) {
      alpha[v] = vset(Real(1));
      if (vis.upto[v] == 0) continue;
      if (arg.sigmoid) sigmoid_weights(arg, b, vis, v, st);
      else alpha[v] = softmax_weights(arg, b, vis, v, st);
    }
    if (arg.dropout > 0)
      for (int v = 0; v < N; ++v) {
        const I key = iload(lanes.key + v * W);
        for (Dim k = vis.from; k < vis.upto[v]; ++k)
          vstore(st + k * L + v * W, vload(st + k * L + v * W) * vdrop(key, drop_column(b, k), arg.dropout));
      }
    // 3. values: ot[d][lane] = ot * alpha + sum of this block. A fresh sum per block keeps the
    //    chains short.
    Real* const out = ot;
    const bool first = empty;
    tiles<tile_of(N)>(0, arg.dv, [&](auto size, Dim d) RAPT_LAMBDA {
      constexpr int T = decltype(size)::value;
      V acc[T][N];
      clear(acc);
      accumulate_visible(acc, vis, b.v + d, b.v_stride, st);
      RAPT_UNROLL
      for (int i = 0; i < T; ++i) {
        RAPT_UNROLL
        for (int v = 0; v < N; ++v) {
          Real* o = out + (d + i) * L + v * W;
          vstore(o, first ? acc[i][v] : vfma(vload(o), alpha[v], acc[i][v]));
        }
      }
    });
    empty = false;
  }

  // The first key of this block that reached `new_m`, for lanes in which that is a new maximum.
  // Searching the few lanes that rose one by one was no faster.
  [[gnu::always_inline]] void find_strongest(const KeyBlock& b, const VisibleKeys<N>& vis, int v, V new_m,
                                             const Real* st) {
    const M rose = vlt(strongest_logit[v], new_m);
    if (!vany(rose)) return;
    V at[4];  // four short chains instead of a long one
    for (V& x : at) x = vset(Real(kBlock));
    Dim k = vis.upto[v] - 1;
    for (; (k & 3) != 3; --k)
      at[k & 3] = vselect(veq(vload(st + k * L + v * W), new_m), vset(kIndex[k]), at[k & 3]);
    for (; k >= vis.from; k -= 4) {
      RAPT_UNROLL
      for (int i = 0; i < 4; ++i)
        at[i] = vselect(veq(vload(st + (k - 3 + i) * L + v * W), new_m), vset(kIndex[k - 3 + i]), at[i]);
    }
    strongest[v] =
        vselect(rose, vset(Real(b.first)) + vmin(vmin(at[0], at[1]), vmin(at[2], at[3])), strongest[v]);
    strongest_logit[v] = vmax(strongest_logit[v], new_m);
  }

  // Softmax: weights relative to the new maximum, their sum by key mod 4; returns alpha, the factor for
  // what was summed before.
  [[gnu::always_inline]] V softmax_weights(const Arguments& arg, const KeyBlock& b, const VisibleKeys<N>& vis,
                                           int v, Real* st) {
    const V c = vset(arg.scale_log2), new_shift = vmax(m[v], vset(kFloor)) * vset(-arg.scale_log2),
            delta = new_shift - shift[v], alpha = vexp2(delta);
    V sum[4] = {vzero(), vzero(), vzero(), vzero()}, es[4] = {vzero(), vzero(), vzero(), vzero()},
      quads = vzero();
    Real* p = st + v * W;
    auto one = [&](Dim k, int i) RAPT_LAMBDA {
      const V t = vfma(vload(p + k * L), c, new_shift), e = vexp2(t);
      vstore(p + k * L, e);
      sum[i] = sum[i] + e;
      if constexpr (kStats) es[i] = vfma(e, t, es[i]);
      return e;
    };
    Dim k = vis.from;
    for (; k + 4 <= vis.upto[v]; k += 4) {
      const V a = one(k, 0), b_ = one(k + 1, 1), c_ = one(k + 2, 2), d = one(k + 3, 3);
      if constexpr (kStats)
        // First moment of the keys: k here, k mod 4 from the sums.
        quads = vfma((a + b_) + (c_ + d), vset(kIndex[k]), quads);
    }
    if (k < vis.upto[v]) {
      V rest[4] = {vzero(), vzero(), vzero(), vzero()};
      const Dim first = k;
      for (int i = 0; k < vis.upto[v]; ++k, ++i) rest[i] = one(k, i);
      if constexpr (kStats)
        quads = vfma((rest[0] + rest[1]) + (rest[2] + rest[3]), vset(kIndex[first]), quads);
    }
    const V block = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    if constexpr (kStats) {
      // Sum of p * log2 p, p relative.
      sums[kEntropy][v] = alpha * vfma(delta, l[v], sums[kEntropy][v]) + ((es[0] + es[1]) + (es[2] + es[3]));
      for (int i = kFirst; i < kSums; ++i) sums[i][v] = sums[i][v] * alpha;
      position_stats(b, vis, v, p, block,
                     quads + ((sum[1] + vset(Real(2)) * sum[2]) + vset(Real(3)) * sum[3]));
    }
    l[v] = vfma(l[v], alpha, block);
    shift[v] = new_shift;
    return alpha;
  }

  [[gnu::always_inline]] void sigmoid_weights(const Arguments&, const KeyBlock& b, const VisibleKeys<N>& vis,
                                              int v, Real* st) {
    V sum = vzero(), es = vzero(), moment = vzero();
    Real* p = st + v * W;
    for (Dim k = vis.from; k < vis.upto[v]; ++k) {
      const V e = vsigmoid(vload(p + k * L));
      vstore(p + k * L, e);
      if constexpr (kStats) {
        sum = sum + e;
        es = vfma(e, vlog(vmax(e, vset(Real(1e-37)))), es);
        moment = vfma(e, vset(kIndex[k]), moment);
      }
    }
    if constexpr (kStats) {
      sums[kEntropy][v] = sums[kEntropy][v] + es;
      position_stats(b, vis, v, p, sum, moment);
      l[v] = l[v] + sum;
    }
  }

  // Statistics that ask where a key stands. p: weights of this block, their sum and first moment.
  [[gnu::always_inline]] void position_stats(const KeyBlock& b, const VisibleKeys<N>& vis, int v,
                                             const Real* p, V sum, V moment) {
    if (b.slots) return;
    for (Dim k = vis.from; b.first + k < first_keys && k < vis.upto[v]; ++k)
      sums[kFirst][v] = sums[kFirst][v] + vload(p + k * L);
    // Of the query, from the block's first key.
    const V place = vload(lanes.position + v * W) - vset(Real(b.first));
    const Dim near = lanes.position_min[v] - b.first, far = lanes.position_max[v] - b.first;
    // A key's distance is +-(place - k) for a lane that stands outside the block or sees no key after
    // itself; else it is summed key by key.
    V distance = vabs(vfma(place, sum, vzero() - moment));
    if (lanes.sees_later[v] && near < kBlock - 1 && far > 0) {
      V inside[4] = {vzero(), vzero(), vzero(), vzero()};
      auto one = [&](Dim k, int i) RAPT_LAMBDA {
        inside[i] = vfma(vload(p + k * L), vabs(place - vset(kIndex[k])), inside[i]);
      };
      Dim k = vis.from;
      for (; k + 4 <= vis.upto[v]; k += 4) {
        one(k, 0);
        one(k + 1, 1);
        one(k + 2, 2);
        one(k + 3, 3);
      }
      for (int i = 0; k < vis.upto[v]; ++k, ++i) one(k, i);
      const M sees_later_keys = vlt(vload(lanes.position + v * W) + vset(Real(1)), vload(lanes.high + v * W));
      const M stands_in_block = vand(vlt(vzero(), place), vlt(place, vset(Real(kBlock - 1))));
      distance = vselect(vand(sees_later_keys, stands_in_block),
                         (inside[0] + inside[1]) + (inside[2] + inside[3]), distance);
    }
    sums[kDistance][v] = sums[kDistance][v] + distance;
    V self = sums[kSelf][v], previous = sums[kPrevious][v];
    // A vector's rows are neighbours: few keys. Gathers were no faster.
    for (Dim k = most(vis.from, near - 1); k < least(vis.upto[v], far + 1); ++k) {
      const V x = vload(p + k * L);
      self = vselect(veq(place, vset(kIndex[k])), x, self);
      previous = vselect(veq(place, vset(kIndex[k] + Real(1))), x, previous);
    }
    sums[kSelf][v] = self;
    sums[kPrevious][v] = previous;
  }

  // The split joins the total.
  __attribute__((noinline)) void end_split(const Arguments& arg) {
    if (empty) return;
    V total_scale[N], split_scale[N];
    for (int v = 0; v < N; ++v) {
      total_scale[v] = split_scale[v] = vset(Real(1));
      V total_delta = vzero(), split_delta = vzero();
      if (!arg.sigmoid) {
        const V new_shift = vmin(total_shift[v], shift[v]);
        total_delta = new_shift - total_shift[v];
        split_delta = new_shift - shift[v];
        total_scale[v] = vexp2(total_delta);
        split_scale[v] = vexp2(split_delta);
        total_shift[v] = new_shift;
      }
      if constexpr (kStats) {
        sums[kMass][v] = l[v];
        total_sums[kEntropy][v] =
            total_scale[v] * vfma(total_delta, total_sums[kMass][v], total_sums[kEntropy][v]) +
            split_scale[v] * vfma(split_delta, l[v], sums[kEntropy][v]);
        for (int i = kMass; i < kSums; ++i)
          total_sums[i][v] = total_sums[i][v] * total_scale[v] + sums[i][v] * split_scale[v];
        max_logit[v] = vmax(max_logit[v], m[v]);
      }
      total_l[v] = vfma(total_l[v], total_scale[v], l[v] * split_scale[v]);
    }
    if (!summed) {
      if (merged)  // only the extra logit came before
        for (Dim d = 0; d < arg.dv; ++d)
          for (int v = 0; v < N; ++v) vstore(ot + d * L + v * W, vload(ot + d * L + v * W) * split_scale[v]);
      Real* const swap = ot;
      ot = total;
      total = swap;
    } else {
      for (Dim d = 0; d < arg.dv; ++d)
        for (int v = 0; v < N; ++v) {
          Real *a = total + d * L + v * W, *x = ot + d * L + v * W;
          vstore(a, vfma(vload(a), total_scale[v], vload(x) * split_scale[v]));
        }
    }
    summed = merged = true;
    begin_split(arg);
  }

  void finish(const Arguments& arg, const AttentionArgs& a) {
    V inverse[N];
    for (int v = 0; v < N; ++v)
      inverse[v] = arg.sigmoid ? vset(Real(1))
                               : vselect(vlt(vzero(), total_l[v]), vset(Real(1)) / total_l[v], vzero());
    if (!summed) set_reals(total, 0, arg.dv * L);
    Real* row[kLanes];
    for (Dim i = 0; i < lanes.count; ++i)
      row[i] = static_cast<Real*>(a.out) + (Dim(lanes.row[i]) * arg.heads + lanes.head[i]) * arg.dv;
    to_rows<N, false>(total, inverse, row, lanes.count, arg.dv);
    if (a.lse)
      for (int v = 0; v < N; ++v) {
        Real shift_[W], inverse_[W];
        vstore(shift_, vselect(vlt(vzero(), total_l[v]), total_shift[v], vzero()));
        vstore(inverse_, inverse[v]);
        for (int i = 0; i < W && v * W + i < lanes.count; ++i) {
          Real* norm =
              static_cast<Real*>(a.lse) + 2 * (Dim(lanes.row[v * W + i]) * arg.heads + lanes.head[v * W + i]);
          norm[0] = shift_[i];
          norm[1] = inverse_[i];
        }
      }
    if constexpr (kStats) {
      constexpr int C = AttentionStat::count;
      for (int v = 0; v < N; ++v) {
        const V(&x)[kSums][N] = total_sums;
        const V mass = x[kMass][v], some = vmax(mass, vset(Real(1e-37)));
        const M sees_some = vlt(vset(kMasked), max_logit[v]);
        const V f = arg.sigmoid ? vset(Real(1)) / some : inverse[v];
        const V log_l = vlog(arg.sigmoid ? some : vmax(total_l[v], vset(Real(1e-37))));
        const V entropy =
            arg.sigmoid ? log_l - x[kEntropy][v] * f : (mass * log_l - vset(kLn2) * x[kEntropy][v]) * f;
        const V all[C] = {entropy,
                          x[kFirst][v] * f,
                          x[kSelf][v] * f,
                          x[kPrevious][v] * f,
                          x[kDistance][v] * f,
                          strongest[v],
                          max_logit[v] * vset(arg.unit),
                          arg.sigmoid ? mass : mass * f};
        auto to = [&](int i) {
          return static_cast<Real*>(a.stats) +
                 (Dim(lanes.row[v * W + i]) * arg.heads + lanes.head[v * W + i]) * C;
        };
        if constexpr (W >= C) {
          V r[W];
          RAPT_UNROLL
          for (int i = 0; i < W; ++i)
            r[i] = i < C ? vselect(sees_some, all[i < C ? i : 0], vzero()) : vzero();
          transpose(r);
          RAPT_UNROLL
          for (int i = 0; i < W; ++i)
            if (v * W + i < lanes.count) vstore_n(to(i), r[i], C);
        } else {
          for (int c = 0; c < C; ++c) {
            Real column[W];
            vstore(column, vselect(sees_some, all[c], vzero()));
            for (int i = 0; i < W && v * W + i < lanes.count; ++i) to(i)[c] = column[i];
          }
        }
      }
    }
  }

  Dim first_keys = 0;
};

// `count` pairs of one sequence and kv head from pair `first`, all in query blocks of N vectors, against
// everything they see.
template <int N, bool kStats>
static void attend(const Arguments& arg, const AttentionArgs& a, const AttentionPart& part, Dim kv, Dim first,
                   Dim count, Memory& mem) {
  constexpr int L = N * W;
  QueryBlock<N, kStats> block[N == kVectors ? kQueryBlocks : 1];
  const Dim blocks = ceil_div(count, L);
  Dim low = part.k_count, high = 0;
  for (Dim i = 0; i < blocks; ++i) {
    QueryBlock<N, kStats>& g = block[i];
    g.first_keys = a.first_keys;
    g.begin(arg, part, kv, first + i * L, least(L, count - i * L),
            mem.blocks + i * QueryBlock<N, kStats>::reals(arg));
    for (int v = 0; v < N; ++v) {
      low = least(low, g.lanes.low_min[v]);
      high = most(high, g.lanes.high_max[v]);
    }
  }
  auto add_keys = [&](Dim begin, Dim end, Dim keys, bool slots) {
    for (Dim kb = begin; kb < end; kb += kBlock) {
      if (!slots && kb >= part.keep && kb + kBlock <= low) continue;
      KeyBlock b = find_key_block(arg, part, kv, kb, least(kBlock, keys - kb), slots, mem.k, mem.v);
      if (blocks > 1 && b.k_stride > kFar) {
        pack_rows(mem.k, arg.d, b.k, b.k_stride, arg.d, b.n);
        b.k = mem.k;
        b.k_stride = arg.d;
      }
      if (blocks > 1 && b.v_stride > kFar) {
        pack_rows(mem.v, arg.dv, b.v, b.v_stride, arg.dv, b.n);
        b.v = mem.v;
        b.v_stride = arg.dv;
      }
      if (arg.l2)
        for (Dim k = 0; k < b.n; ++k) {
          for (Dim d = 0; b.transposed && d < arg.d; ++d) mem.row[d] = b.key(k, d);
          mem.k2[k] = square_of(b.transposed ? mem.row : b.k + k * b.k_stride, arg.d);
        }
      for (Dim i = 0; i < blocks; ++i) block[i].add(arg, b, mem);
    }
    for (Dim i = 0; i < blocks; ++i) block[i].end_split(arg);
  };
  if (arg.shape.slots > 0) add_keys(0, arg.shape.slots, arg.shape.slots, true);
  for (Dim split = part.keep > 0 ? 0 : low / kSplit * kSplit; split < high; split += kSplit)
    add_keys(split, least(high, split + kSplit), part.k_count, false);
  for (Dim i = 0; i < blocks; ++i) block[i].finish(arg, a);
}

}  // namespace

void attention(Queue& queue, const AttentionArgs& a) noexcept {
  const Arguments arg = arguments_of(a.shape);
  const AttentionShape& s = a.shape;
  // A task is up to kQueryBlocks query blocks of one sequence and kv head, few enough that every thread
  // gets several; or, where a sequence has few rows and its keys lie in pages, one split of them. Neither
  // changes any bit.
  const Dim blocks = most(1, least(kQueryBlocks, s.rows * s.heads / (Dim(kLanes) * 8 * threads_of(queue)))),
            pairs = blocks * kLanes;
  const bool by_splits = decodes(arg, a);
  Dim* const work_of = s.first_of + s.part_count + 1;
  s.first_of[0] = work_of[0] = 0;
  for (Dim p = 0; p < s.part_count; ++p) {
    const AttentionPart& part = s.parts[p];
    s.first_of[p + 1] = s.first_of[p] + s.kv_heads * ceil_div(part.q_count * arg.g, pairs);
    work_of[p + 1] = work_of[p];
    if (!by_splits || !decodes(arg, part)) continue;
    const Dim splits = most(1, splits_of(arg, part).count);
    s.first_of[p + 1] = s.first_of[p] + s.kv_heads * splits;
    work_of[p + 1] += padded(s.kv_heads) + s.kv_heads * splits * split_reals(arg, part);
    // counters: a zero is a zero in every type
    set_reals(static_cast<Real*>(a.work) + work_of[p], 0, s.kv_heads);
  }
  const Dim lane_reals = QueryBlock<kVectors, false>::reals(arg),
            relative = s.bias == Bias::bucket ? arg.g * relative_span(arg) : 0;
  const Dim reals =
      blocks * lane_reals + 2 * kBlock * kLanes + kBlock * (arg.d + arg.dv) + arg.d + relative + 64;
  for_tasks(queue, s.first_of[s.part_count], [&](Dim task, int worker) {
    Dim p = 0, end = s.part_count;  // the part this task belongs to
    while (end - p > 1) (s.first_of[(p + end) / 2] <= task ? p : end) = (p + end) / 2;
    const AttentionPart& part = s.parts[p];
    if (work_of[p + 1] > work_of[p]) {
      attention_decode(queue, worker, a, part, task - s.first_of[p], static_cast<Real*>(a.work) + work_of[p]);
      return;
    }
    const Dim all = part.q_count * arg.g, chunks = ceil_div(all, pairs), at = task - s.first_of[p];
    const Dim kv = at / chunks, first = (chunks - 1 - at % chunks) * pairs,
              count = least(pairs, all - first);  // a causal head's longest task first
    Memory mem;
    mem.st = reinterpret_cast<Real*>(scratch_of(queue, worker, size_t(reals) * sizeof(Real)));
    if (!mem.st) return;
    mem.bias = mem.st + kBlock * kLanes;
    mem.blocks = mem.bias + kBlock * kLanes;
    mem.k = mem.blocks + blocks * lane_reals;
    mem.v = mem.k + kBlock * arg.d;
    mem.row = mem.v + kBlock * arg.dv + W;
    mem.relative = mem.row + arg.d;
    fill_relative(arg, kv, mem.relative);
    // Full query blocks together, a last short one in as few vectors as it needs.
    const Dim full = count / kLanes * kLanes, rest = ceil_div(count - full, W);
    auto go = [&](auto stats) {
      constexpr bool kStats = decltype(stats)::value != 0;
      if (full) attend<kVectors, kStats>(arg, a, part, kv, first, full, mem);
      static_for<1, kVectors + 1>([&](auto N) {
        if (rest == N) attend<N.value, kStats>(arg, a, part, kv, first + full, count - full, mem);
      });
    };
    if (a.stats) go(Int<1>{});
    else go(Int<0>{});
  });
}

namespace {

// Scores q.k of up to kRowGroup rows of one head against keys [k0, k1) that lie in rows: z[row][key]. Tiles
// of rows and keys, so that a load feeds several products; each score is one chain over the channels,
// whatever the tile.
constexpr Dim kRowGroup = 16;
constexpr int kRowTile = 4, kKeyTile = kAccumulators >= 24 ? 4 : 2;
template <int R, int K>
RAPT_INLINE void dot_tile(const Real* const* q, const Real* k, Dim k_stride, Dim d, Real* z, Dim z_stride) {
  V t[R][K];
  clear(t);
  auto step = [&](auto load) RAPT_LAMBDA {
    V x[R];
    RAPT_UNROLL
    for (int r = 0; r < R; ++r) x[r] = load(q[r]);
    RAPT_UNROLL
    for (int i = 0; i < K; ++i) {
      const V y = load(k + i * k_stride);
      RAPT_UNROLL
      for (int r = 0; r < R; ++r) t[r][i] = vfma(x[r], y, t[r][i]);
    }
  };
  Dim c = 0;
  for (; c + W <= d; c += W) step([&](const Real* p) RAPT_LAMBDA { return vload(p + c); });
  if (c < d) step([&](const Real* p) RAPT_LAMBDA { return vload_n(p + c, d - c); });
  RAPT_UNROLL
  for (int r = 0; r < R; ++r) {
    RAPT_UNROLL
    for (int i = 0; i < K; ++i) z[r * z_stride + i] = vsum(t[r][i]);
  }
}
static void dot_rows(const Real* const* q, Dim rows, const Real* k, Dim k_stride, Dim keys, Dim d, Real* z,
                     Dim z_stride) {
  for (Dim r = 0; r < rows; r += kRowTile) {
    if (r + kRowTile > rows) {
      for (; r < rows; ++r)
        for (Dim i = 0; i < keys; ++i)
          dot_tile<1, 1>(q + r, k + i * k_stride, k_stride, d, z + r * z_stride + i, z_stride);
      return;
    }
    Dim i = 0;
    for (; i + kKeyTile <= keys; i += kKeyTile)
      dot_tile<kRowTile, kKeyTile>(q + r, k + i * k_stride, k_stride, d, z + r * z_stride + i, z_stride);
    for (; i < keys; ++i)
      dot_tile<kRowTile, 1>(q + r, k + i * k_stride, k_stride, d, z + r * z_stride + i, z_stride);
  }
}

// The score of one row and key, of any kind and from any place. `b` holds the block of the last key where
// keys lie in pages.
struct OneScore {
  const Arguments& arg;
  const AttentionPart& part;
  Dim kv;
  const Real *q, *q_kept, *w;
  Real *row, *bias_q, *k_memory;
  KeyBlock b{};

  Real operator()(Dim i) {
    const bool slot = i < arg.shape.slots, paged = !slot && part.pages;
    const Dim key = i - arg.shape.slots, block = key / kBlock * kBlock;
    if (slot) b = find_key_block(arg, part, kv, i, 1, true, nullptr, nullptr);
    else if (!paged) b = find_key_block(arg, part, kv, key, 1, false, nullptr, nullptr);
    else if (!b.transposed || b.first != block)
      b = find_key_block(arg, part, kv, block, least(kBlock, part.k_count - block), false, k_memory, nullptr);
    for (Dim d = 0; paged && d < arg.d; ++d) row[d] = b.key(key % kBlock, d);
    const Real *k = paged ? row : b.k, *x = !slot && key < part.keep ? q_kept : q;
    V sum = vzero();
    for (Dim d = 0; d < arg.d; d += W) {
      const V qd = vload_n(x + d, arg.d - d), kd = vload_n(k + d, arg.d - d);
      if (arg.additive) sum = vfma(vload_n(w + d, arg.d - d), vtanh(qd + kd), sum);
      else if (arg.l2) sum = sum - (qd - kd) * (qd - kd);
      else sum = vfma(qd, kd, sum);
    }
    Real z = vsum(sum);
    if (paged && arg.bias_channels) {
      fill_bias_channels(arg, kv, x, bias_q, 1);
      for (Dim d = 0; d < arg.bias_channels; ++d) z += bias_q[d] * b.angles[d * kBlock + key % kBlock];
    }
    return z;
  }
};

// Scores of one row in z[from, to) become weights, or what the softmax reads; everything else is zero.
static void row_weights(const Arguments& arg, Dim keep, Dim at, Dim head, Dim from, Dim to, Dim n,
                        bool logits, Real* z) {
  const AttentionShape& s = arg.shape;
  const Dim low = s.low[at], high = s.high[at];
  set_reals(z, 0, from);
  set_reals(z + to, 0, n - to);
  auto map = [&](auto f) RAPT_LAMBDA {
    for (Dim i = from; i < to; i += W) vstore_n(z + i, f(vload_n(z + i, to - i)), to - i);
  };
  if (arg.cap > 0)
    map([&](V x) RAPT_LAMBDA { return vtanh(x * vset(arg.scale) * vset(arg.cap_inverse)) * vset(arg.cap); });
  else map([&](V x) RAPT_LAMBDA { return x * vset(arg.scale); });
  Real max_logit = s.extra == Extra::none            ? kMasked
                   : s.extra == Extra::learned_logit ? arg.extra[head]
                                                     : Real(0);
  const Real logit = max_logit;
  for (Dim i = from; i < to; ++i) {
    const Dim key = i - s.slots;
    if (key >= 0) {
      if (key >= high || (key < low && key >= keep)) {
        z[i] = kMasked;
        continue;
      }
      const Dim distance = key - (key < keep ? s.kept_position[at] : s.position[at]);
      if (arg.alibi) z[i] -= arg.slopes[head] * Real(distance < 0 ? -distance : distance);
      if (s.bias == Bias::bucket)
        z[i] += arg.buckets[Dim(s.bucket_of[least(arg.reach, most(-arg.reach, distance)) + arg.reach]) *
                                arg.heads +
                            head];
      if (s.bias == Bias::dense)
        z[i] += arg.dense[((s.dense_heads == 1 ? 0 : head) * s.rows + at) * s.dense_keys + key];
    }
    if (z[i] > max_logit) max_logit = z[i];
  }
  if (logits) return;
  if (arg.sigmoid) {
    map([&](V x) RAPT_LAMBDA { return vsigmoid(x); });
    return;
  }
  const V shift = vset(max_logit > kFloor ? max_logit : kFloor);
  V sums = vzero();
  for (Dim i = from; i < to; i += W) {
    const V e = vexp(vload_n(z + i, to - i) - shift);
    vstore_n(z + i, e, to - i);
    sums = sums + vload_n(z + i, to - i);
  }
  Real extra[W] = {logit};
  vstore(extra, vexp(vload(extra) - shift));
  const Real sum = vsum(sums) + (s.extra == Extra::none ? Real(0) : extra[0]);
  const V inverse = vset(sum > 0 ? 1 / sum : Real(0));
  map([&](V x) RAPT_LAMBDA { return x * inverse; });
}

}  // namespace

// Rows in plain order: their bits are their own and never stand for the fused result.
void attention_weights(Queue& queue, const AttentionWeightsArgs& a) noexcept {
  const Arguments arg = arguments_of(a.shape);
  const AttentionShape& s = a.shape;
  Dim p = 0;
  while (a.row >= s.parts[p].q_first + s.parts[p].q_count || a.row < s.parts[p].q_first) ++p;
  const AttentionPart& part = s.parts[p];
  const Dim kv = a.head / arg.g, n = s.slots + part.k_count;
  const bool kept = arg.q_kept && part.keep > 0;
  const bool tiled = s.score == Score::dot && !part.pages && s.slots == 0 && !kept;
  for_tasks(queue, ceil_div(a.row_count, kRowGroup), [&](Dim task, int worker) {
    const Dim first = a.row + task * kRowGroup, rows = least(kRowGroup, a.row + a.row_count - first);
    Real* const z = static_cast<Real*>(a.weights) + task * kRowGroup * n;
    const Real* q[kRowGroup];
    auto begin_of = [&](Dim at) { return s.slots > 0 || part.keep > 0 ? 0 : s.low[at]; };
    auto end_of = [&](Dim at) { return most(begin_of(at), s.slots + s.high[at]); };
    Dim low = n, high = 0;
    for (Dim r = 0; r < rows; ++r) {
      q[r] = arg.q + ((first + r) * arg.heads + a.head) * arg.d;
      low = least(low, begin_of(first + r));
      high = most(high, end_of(first + r));
    }
    if (tiled) {
      for (Dim k = low; k < high; k += kBlock) {
        const KeyBlock b = find_key_block(arg, part, kv, k, least(kBlock, high - k), false, nullptr, nullptr);
        dot_rows(q, rows, b.k, b.k_stride, b.n, arg.d, z + k, n);
      }
    } else {
      Real* const row = reinterpret_cast<Real*>(
          scratch_of(queue, worker, size_t(arg.d + arg.bias_channels + kBlock * arg.d + W) * sizeof(Real)));
      if (!row) return;
      for (Dim r = 0; r < rows; ++r) {
        const Dim at = first + r;
        OneScore score{.arg = arg,
                       .part = part,
                       .kv = kv,
                       .q = q[r],
                       .q_kept = kept ? arg.q_kept + (at * arg.heads + a.head) * arg.d : q[r],
                       .w = arg.additive ? arg.score_weight + a.head * arg.d : nullptr,
                       .row = row,
                       .bias_q = row + arg.d,
                       .k_memory = row + arg.d + arg.bias_channels};
        for (Dim i = begin_of(at); i < end_of(at); ++i) {
          const Dim key = i - s.slots;
          z[r * n + i] = key < 0 || key < part.keep || key >= s.low[at] ? score(i) : Real(0);
        }
      }
    }
    for (Dim r = 0; r < rows; ++r)
      row_weights(arg, part.keep, first + r, a.head, begin_of(first + r), end_of(first + r), n, a.scores,
                  z + r * n);
  });
}

// Every channel is one chain over the keys of a block, and blocks are added in order.
void attention_values(Queue& queue, const AttentionValuesArgs& a) noexcept {
  const Arguments arg = arguments_of(a.shape);
  const AttentionShape& s = a.shape;
  Dim p = 0;
  while (a.row >= s.parts[p].q_first + s.parts[p].q_count || a.row < s.parts[p].q_first) ++p;
  const AttentionPart& part = s.parts[p];
  const Dim kv = a.head / arg.g, n = s.slots + part.k_count;
  for_tasks(queue, ceil_div(a.row_count, kRowGroup), [&](Dim task, int worker) {
    const Dim first = task * kRowGroup, rows = least(kRowGroup, a.row_count - first);
    Real* const keys = reinterpret_cast<Real*>(
        scratch_of(queue, worker, size_t(kBlock * (arg.d + arg.dv) + W) * sizeof(Real)));
    if (!keys) return;
    const Real* const weights = real(a.weights) + first * n;
    auto out_of = [&](Dim r) {
      return static_cast<Real*>(a.out) + ((a.row + first + r) * arg.heads + a.head) * arg.dv;
    };
    for (Dim r = 0; r < rows; ++r) set_reals(out_of(r), 0, arg.dv);
    auto add = [&](Dim from, Dim count, bool slots) {
      const Dim at = slots ? from : s.slots + from;
      bool any = false;  // pages that nobody may look at have no weight
      for (Dim r = 0; r < rows && !any; ++r)
        for (Dim k = 0; k < count; ++k) any = any || weights[r * n + at + k] != 0;
      if (!any) return;
      const KeyBlock b = find_key_block(arg, part, kv, from, count, slots, keys, keys + kBlock * arg.d);
      for (Dim r = 0; r < rows; ++r) {
        const Real* w = weights + r * n + at;
        Real* out = out_of(r);
        for (Dim d = 0; d < arg.dv; d += W) {
          const Dim m = least(W, arg.dv - d);
          V sum = vzero();
          for (Dim k = 0; k < count; ++k)
            if (w[k] != 0) sum = vfma(vset(w[k]), vload_n(b.v + k * b.v_stride + d, m), sum);
          vstore_n(out + d, vload_n(out + d, m) + sum, m);
        }
      }
    };
    for (Dim k = 0; k < s.slots; k += kBlock) add(k, least(kBlock, s.slots - k), true);
    for (Dim k = 0; k < part.k_count; k += kBlock) add(k, least(kBlock, part.k_count - k), false);
  });
}

}  // namespace rapt::RAPT_ISA
