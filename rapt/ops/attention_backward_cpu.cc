// SPDX-License-Identifier: Apache-2.0
// The backward of attention. Weights are found again from the saved log-sum-exp (weight = 2^(z log2 e +
// shift) * inverse), five products per block. A task owns the gradients of some keys and takes all queries;
// what it adds to dQ is a partial sum of its own, and partial sums are added in the order of the keys: the
// bits do not depend on threads. Lanes, masks and options: attention_tile.h.
//
//   dP = dropout * (dO . V),  dz = P (dP - delta), delta = dO.O   (sigmoid: P (1 - P) dP)
//   ds = dz * (1 - tanh^2) where capped
//   dV += (dropout * P)^T dO,  dK += scale * ds^T Q,  dQ += scale * ds K;  extra logit: -p_extra * delta
#include "rapt/ops/attention_tile.h"

namespace rapt::RAPT_ISA {
namespace {

constexpr Dim kKeys = 256;  // keys whose gradients are built in one pass over the queries; they stay in L2

struct Plan {  // of one call
  Dim dp, dvp;  // rows padded to whole vectors
  Dim operand_reals, partial_reals;
  bool kept, slots;
  // Per part: first query block, first partial sum, first task.
  const int64_t *query_blocks, *partials, *tasks;
  Real *operands, *partial, *extra;
  double *bucket_sums, *weight_sums;  // thousands of terms that nearly cancel
  Dim chunks_of(const AttentionPart& part, Dim key_chunk) const {
    return Dim(slots) + ceil_div(part.k_count, key_chunk);
  }
};

// What the products read of a query block: Q and dO both ways round, log-sum-exp, delta = dO.O.
struct QueryOperands {
  // [d][L] [dv][L] [L][dp] [L][dvp] …
  Real *qt, *dout_t, *q, *dout, *kept_qt, *kept_q, *shift, *inverse, *delta;
};
RAPT_INLINE QueryOperands operands_of(const Arguments& arg, const Plan& plan, Dim query_block) {
  QueryOperands x;
  x.qt = plan.operands + query_block * plan.operand_reals;
  x.dout_t = x.qt + arg.d * kLanes;
  x.q = x.dout_t + arg.dv * kLanes;
  x.dout = x.q + plan.dp * kLanes;
  x.shift = x.dout + plan.dvp * kLanes;
  x.inverse = x.shift + kLanes;
  x.delta = x.inverse + kLanes;
  x.kept_qt = plan.kept ? x.delta + kLanes : x.qt;
  x.kept_q = plan.kept ? x.kept_qt + arg.d * kLanes : x.q;
  return x;
}

struct Memory {  // of one task
  Real *k, *v, *dk, *dv, *pt, *st, *slope, *bias, *relative, *wt, *dwt, *k2;
  double *bucket_sums, *weight_sums;
};

// A query block, and the key blocks that pass it. pt and st hold P, dP and dS, a query per lane.
template <int N>
struct BackwardBlock {
  static constexpr int L = N * W;
  const Arguments& arg;
  const AttentionBackwardArgs& a;
  const Plan& plan;
  const Memory& mem;
  const QueryOperands x;
  Lanes lanes;
  Real q2[kLanes], q2_kept[kLanes];

  BackwardBlock(const Arguments& arguments, const AttentionBackwardArgs& args, const Plan& p, const Memory& m,
                const QueryOperands& operands, const AttentionPart& part, Dim kv, Dim first, Dim count)
      : arg(arguments), a(args), plan(p), mem(m), x(operands) {
    find_lanes(arg, part, kv, first, count, N, lanes);
    if (arg.l2)
      for (Dim i = 0; i < L; ++i) {
        q2[i] = i < count ? square_of(x.q + i * plan.dp, arg.d) : Real(0);
        q2_kept[i] = i < count ? square_of(x.kept_q + i * plan.dp, arg.d) : Real(0);
      }
    if (arg.additive) {
      const Real* row[kLanes];
      for (Dim i = 0; i < count; ++i) row[i] = arg.score_weight + lanes.head[i] * arg.d;
      to_lanes<N>(row, count, arg.d, mem.wt);
      set_reals(mem.dwt, 0, arg.d * L);
    }
  }
  ~BackwardBlock() {
    if (arg.additive && a.dscore_weight)
      for (Dim i = 0; i < lanes.count; ++i)
        for (Dim d = 0; d < arg.d; ++d)
          mem.weight_sums[(lanes.head[i] - lanes.kv * arg.g) * arg.d + d] += double(mem.dwt[d * L + i]);
  }

  void add(const KeyBlock& b, Dim at, Real* dqt, Real* kept_dqt) {
    VisibleKeys<N> vis;
    if (!find_visible<N>(lanes, b, vis)) return;
    const Dim kept_end = plan.kept ? most(vis.from, least(vis.upto[N - 1], vis.keep)) : vis.from;
    if (kept_end > vis.from) {
      VisibleKeys<N> head = vis;
      for (int v = 0; v < N; ++v) head.upto[v] = least(vis.upto[v], kept_end);
      add_interval(b, head, at, x.kept_qt, x.kept_q, kept_dqt);
    }
    vis.from = kept_end;
    if (vis.upto[N - 1] > vis.from) add_interval(b, vis, at, x.qt, x.q, dqt);
  }

  // Keys [vis.from, vis.upto) of a block with one set of queries. at: the block's place in mem.dk
  // and mem.dv.
  __attribute__((noinline)) void add_interval(const KeyBlock& b, const VisibleKeys<N>& vis, Dim at,
                                              const Real* qt, const Real* q, Real* dqt) {
    Real *const pt = mem.pt, *const st = mem.st;
    if (arg.plain) plain_block(b, vis, qt);
    else general_block(b, vis, qt, at, dqt);
    add_key_gradient(vis, b, pt, x.dout, plan.dvp, mem.dv + at * plan.dvp);
    if (arg.additive) {
      additive_gradients(b, vis, at, qt, dqt);
      return;
    }
    add_key_gradient(vis, b, st, q, plan.dp, mem.dk + at * plan.dp);
    // dQ^T += K^T ds^T: the value step of the forward
    tiles<tile_of(N)>(0, arg.d, [&](auto size, Dim d) RAPT_LAMBDA {
      constexpr int T = decltype(size)::value;
      V acc[T][N];
      clear(acc);
      accumulate_visible(acc, vis, b.k + d, b.k_stride, st);
      RAPT_UNROLL
      for (int i = 0; i < T; ++i) {
        RAPT_UNROLL
        for (int v = 0; v < N; ++v)
          vstore(dqt + (d + i) * L + v * W, vload(dqt + (d + i) * L + v * W) + acc[i][v]);
      }
    });
  }

  // Weights straight from the registers of q.k, then ds from those of dO.v.
  [[gnu::always_inline]] void plain_block(const KeyBlock& b, const VisibleKeys<N>& vis, const Real* qt) {
    Real *const pt = mem.pt, *const st = mem.st;
    const Lanes& queries = lanes;
    const V c = vset(arg.scale_log2);
    tiles<tile_of(N)>(vis.from, vis.upto[N - 1], [&](auto size, Dim k) RAPT_LAMBDA {
      constexpr int T = decltype(size)::value;
      const int v0 = first_vector(vis, k);
      static_for<0, N>([&](auto V0) RAPT_LAMBDA {
        if (v0 != V0) return;
        if constexpr (decltype(V0)::value > 0)
          for (int i = 0; i < T; ++i)  // the tiles of `add_key_gradient` may begin earlier and read these
            for (int v = 0; v < V0; ++v) {
              vstore(pt + (k + i) * L + v * W, vzero());
              vstore(st + (k + i) * L + v * W, vzero());
            }
        V t[T][N];
        clear(t);
        accumulate<V0.value>(t, b.k + k * b.k_stride, b.k_stride, 1, qt, L, arg.d);
        const bool full = vis.full(k, T) || b.slots;
        RAPT_UNROLL
        for (int i = 0; i < T; ++i) {
          RAPT_UNROLL
          for (int v = V0; v < N; ++v) {
            V p = vexp2(vfma(t[i][v], c, vload(x.shift + v * W))) * vload(x.inverse + v * W);
            if (!full) p = where_visible(queries, v, b.first + k + i, k + i < vis.keep, p, vzero());
            vstore(pt + (k + i) * L + v * W, p);
          }
        }
        V u[T][N];
        clear(u);
        accumulate<V0.value>(u, b.v + k * b.v_stride, b.v_stride, 1, x.dout_t, L, arg.dv);
        RAPT_UNROLL
        for (int i = 0; i < T; ++i) {
          RAPT_UNROLL
          for (int v = V0; v < N; ++v) {
            const Dim o = (k + i) * L + v * W;
            vstore(st + o, vload(pt + o) * (u[i][v] - vload(x.delta + v * W)));
          }
        }
      });
    });
  }

  // out[i][v] tiles of `rows` of b times xt, stored: the raw products of the options' path.
  void products(const VisibleKeys<N>& vis, const Real* rows, Dim stride, const Real* xt, Dim depth,
                Real* out) {
    tiles<tile_of(N)>(vis.from, vis.upto[N - 1], [&](auto size, Dim k) RAPT_LAMBDA {
      constexpr int T = decltype(size)::value;
      V t[T][N];
      clear(t);
      accumulate<0>(t, rows + k * stride, stride, 1, xt, L, depth);
      RAPT_UNROLL
      for (int i = 0; i < T; ++i) {
        RAPT_UNROLL
        for (int v = 0; v < N; ++v) vstore(out + (k + i) * L + v * W, t[i][v]);
      }
    });
  }

  void general_block(const KeyBlock& b, const VisibleKeys<N>& vis, const Real* qt, Dim at, Real* dqt) {
    Real *const pt = mem.pt, *const st = mem.st;
    const Dim n = vis.upto[N - 1];
    if (arg.additive) additive_scores<N>(arg, b, vis.from, n, qt, mem.wt, pt);
    else products(vis, b.k, b.k_stride, qt, arg.d, pt);
    if (arg.table && !b.slots) {
      fill_bias<N>(arg, lanes, b, vis.from, least(n, vis.keep), true, mem.relative, mem.bias);
      fill_bias<N>(arg, lanes, b, most(vis.from, vis.keep), n, false, mem.relative, mem.bias);
    }
    to_logits<N>(arg, lanes, b, vis, mem.k2 + at, q2, q2_kept, mem.bias, pt, mem.slope);
    products(vis, b.v, b.v_stride, x.dout_t, arg.dv, st);
    const V one = vset(Real(1));
    for (int v = 0; v < N; ++v) {
      const V shift = vload(x.shift + v * W), inverse = vload(x.inverse + v * W),
              delta = vload(x.delta + v * W);
      const I key = arg.dropout > 0 ? iload(lanes.key + v * W) : iset(0);
      for (Dim k = vis.from; k < n; ++k) {
        const Dim o = k * L + v * W;
        if (k >= vis.upto[v]) {  // hidden from the whole vector, and no logit was made of it
          vstore(pt + o, vzero());
          vstore(st + o, vzero());
          continue;
        }
        const V z = vload(pt + o);
        V p = arg.sigmoid ? vsigmoid(z) : vexp2(vfma(z, vset(kLog2e), shift)) * inverse;
        if (!vis.full(k, 1) && !b.slots) p = where_visible(lanes, v, b.first + k, k < vis.keep, p, vzero());
        V dp = vload(st + o), dropped = p;
        if (arg.dropout > 0) {
          const V dropout_mask = vdrop(key, drop_column(b, k), arg.dropout);
          dp = dp * dropout_mask;
          dropped = dropped * dropout_mask;
        }
        vstore(pt + o, dropped);
        vstore(st + o, arg.sigmoid ? p * (one - p) * dp : p * (dp - delta));
      }
    }
    if (!b.slots && (a.ddense || a.dbuckets)) bias_gradients(b, vis);
    if (arg.cap > 0)
      for (int v = 0; v < N; ++v)
        for (Dim k = vis.from; k < vis.upto[v]; ++k)
          vstore(st + k * L + v * W, vload(st + k * L + v * W) * vload(mem.slope + k * L + v * W));
    if (arg.l2) {  // 2 q.k - |k|^2 - |q|^2: what the squares add, in units of 2 * scale
      for (int v = 0; v < N; ++v) {
        V sum = vzero();
        for (Dim k = vis.from; k < n; ++k) sum = sum + vload(st + k * L + v * W);
        for (Dim d = 0; d < arg.d; ++d)
          vstore(dqt + d * L + v * W, vload(dqt + d * L + v * W) - vload(qt + d * L + v * W) * sum);
      }
      for (Dim k = vis.from; k < n; ++k) {
        V sum = vzero();
        for (int v = 0; v < N; ++v) sum = sum + vload(st + k * L + v * W);
        const V f = vset(vsum(sum));
        Real* dk = mem.dk + (at + k) * plan.dp;
        for (Dim d = 0; d < plan.dp; d += W)
          vstore(dk + d, vload(dk + d) - vload(b.k + k * b.k_stride + d) * f);
      }
    }
  }

  void bias_gradients(const KeyBlock& b, const VisibleKeys<N>& vis) {
    const Dim n = vis.upto[N - 1];
    if (a.ddense) {
      Real* row[kLanes];
      V ones[N];
      for (int v = 0; v < N; ++v) ones[v] = vset(Real(1));
      for (Dim i = 0; i < lanes.count; ++i)
        row[i] = static_cast<Real*>(a.ddense) +
                 ((arg.shape.dense_heads == 1 ? 0 : Dim(lanes.head[i])) * arg.shape.rows + lanes.row[i]) *
                     arg.shape.dense_keys +
                 b.first + vis.from;
      to_rows<N, true>(mem.st + vis.from * L, ones, row, lanes.count, n - vis.from);
    }
    if (a.dbuckets)
      for (Dim i = 0; i < lanes.count; ++i) {
        double* sums = mem.bucket_sums + (lanes.head[i] - lanes.kv * arg.g) * arg.shape.bucket_count;
        for (Dim k = vis.from; k < n; ++k) {
          const Dim distance = b.first + k - Dim(k < vis.keep ? lanes.kept_position[i] : lanes.position[i]);
          sums[arg.shape.bucket_of[least(arg.reach, most(-arg.reach, distance)) + arg.reach]] +=
              double(mem.st[k * L + i]);
        }
      }
  }

  // s = sum of w tanh(q + k): dq = dk = ds w (1 - tanh^2), dw = ds tanh.
  void additive_gradients(const KeyBlock& b, const VisibleKeys<N>& vis, Dim at, const Real* qt, Real* dqt) {
    for (Dim d = 0; d < arg.d; ++d) {
      V dq[N], dw[N];
      for (int v = 0; v < N; ++v) dq[v] = dw[v] = vzero();
      for (Dim k = vis.from; k < vis.upto[N - 1]; ++k) {
        const V key = vset(b.k[k * b.k_stride + d]);
        V sum = vzero();
        for (int v = 0; v < N; ++v) {
          const V t = vtanh(vload(qt + d * L + v * W) + key), ds = vload(mem.st + k * L + v * W);
          const V u = ds * vload(mem.wt + d * L + v * W) * (vset(Real(1)) - t * t);
          dq[v] = dq[v] + u;
          dw[v] = vfma(ds, t, dw[v]);
          sum = sum + u;
        }
        mem.dk[(at + k) * plan.dp + d] += vsum(sum);
      }
      for (int v = 0; v < N; ++v) {
        vstore(dqt + d * L + v * W, vload(dqt + d * L + v * W) + dq[v]);
        vstore(mem.dwt + d * L + v * W, vload(mem.dwt + d * L + v * W) + dw[v]);
      }
    }
  }

  // out[key][:] += sum over lanes of w[key][lane] * rows[lane][:]: the lanes of the vectors are columns
  // here, the weights are the scalars.
  [[gnu::always_inline]] void add_key_gradient(const VisibleKeys<N>& vis, const KeyBlock& b, const Real* w,
                                               const Real* rows, Dim width, Real* out) {
    Dim hidden = 0;  // leading lanes that see none of these keys any more
    tiles<tile_of(kVectors)>(vis.from, vis.upto[N - 1], [&](auto size, Dim k) RAPT_LAMBDA {
      constexpr int T = decltype(size)::value;
      if (!b.slots) {
        while (hidden < lanes.count && lanes.high[hidden] <= Real(b.first + k)) ++hidden;
        hidden = most(hidden, Dim(first_vector(vis, k)) * W);
      }
      const Dim q0 = least(hidden, lanes.count);
      auto columns = [&](auto vectors, Dim d) RAPT_LAMBDA {
        constexpr int C = decltype(vectors)::value;
        V acc[T][C];
        clear(acc);
        accumulate<0>(acc, w + k * L + q0, L, 1, rows + q0 * width + d, width, lanes.count - q0);
        RAPT_UNROLL
        for (int i = 0; i < T; ++i) {
          RAPT_UNROLL
          for (int v = 0; v < C; ++v) {
            Real* o = out + (k + i) * width + d + v * W;
            vstore(o, vload(o) + acc[i][v]);
          }
        }
      };
      Dim d = 0;
      for (; d + kVectors * W <= width; d += kVectors * W) columns(Int<kVectors>{}, d);
      for (; d < width; d += W) columns(Int<1>{}, d);
    });
  }
};

RAPT_INLINE Dim part_of(const int64_t* first_of, Dim parts, Dim i) {
  Dim p = 0, end = parts;
  while (end - p > 1) (first_of[(p + end) / 2] <= i ? p : end) = (p + end) / 2;
  return p;
}

}  // namespace

void attention_backward(Queue& queue, const AttentionBackwardArgs& a) noexcept {
  const AttentionShape& s = a.shape;
  const Arguments arg = arguments_of(s, s.dropout == 0);
  const Dim parts = s.part_count;
  Plan plan;
  plan.dp = ceil_div(arg.d, W) * W;
  plan.dvp = ceil_div(arg.dv, W) * W;
  plan.kept = arg.q_kept != nullptr;
  plan.slots = s.slots > 0;
  plan.operand_reals = (arg.d + arg.dv + plan.dp + plan.dvp + 3 + (plan.kept ? arg.d + plan.dp : 0)) * kLanes;
  plan.partial_reals = arg.d * kLanes * (plan.kept ? 2 : 1);
  // With one dense bias for all heads its gradient sums over them: a task then takes the kv heads one
  // after the other.
  const Dim heads_per_task = a.ddense && s.dense_heads == 1 ? s.kv_heads : 1,
            tasks_per_chunk = s.kv_heads / heads_per_task, slot_tasks = plan.slots ? s.kv_heads : 0;
  int64_t *query_blocks = s.first_of, *partials = query_blocks + parts + 1, *tasks = partials + parts + 1;
  query_blocks[0] = partials[0] = tasks[0] = 0;
  for (Dim p = 0; p < parts; ++p) {
    const Dim count = s.kv_heads * ceil_div(s.parts[p].q_count * arg.g, kLanes);
    query_blocks[p + 1] = query_blocks[p] + count;
    partials[p + 1] = partials[p] + count * plan.chunks_of(s.parts[p], a.key_chunk);
    tasks[p + 1] = tasks[p] + tasks_per_chunk * ceil_div(s.parts[p].k_count, a.key_chunk);
  }
  plan.query_blocks = query_blocks, plan.partials = partials, plan.tasks = tasks;
  plan.operands = static_cast<Real*>(a.work);
  plan.partial = plan.operands + query_blocks[parts] * plan.operand_reals;
  const Dim sums = slot_tasks + tasks[parts] * heads_per_task,
            bucket_size = a.dbuckets ? arg.g * s.bucket_count : 0,
            weight_size = a.dscore_weight ? arg.g * arg.d : 0;
  // [slot tasks, then part, chunk, kv head][g][…]
  plan.bucket_sums = reinterpret_cast<double*>(plan.partial + partials[parts] * plan.partial_reals);
  plan.weight_sums = plan.bucket_sums + sums * bucket_size;
  plan.extra = reinterpret_cast<Real*>(plan.weight_sums + sums * weight_size);  // [rows][heads]

  // 1. Queries and gradients of outputs, a query per lane and a query per row; dO . O.
  for_tasks(queue, query_blocks[parts], [&](Dim i, int) {
    const Dim p = part_of(query_blocks, parts, i), per_head = ceil_div(s.parts[p].q_count * arg.g, kLanes),
              kv = (i - query_blocks[p]) / per_head;
    const Dim first = (i - query_blocks[p]) % per_head * kLanes,
              count = least(kLanes, s.parts[p].q_count * arg.g - first);
    const QueryOperands x = operands_of(arg, plan, i);
    const Real* from[kLanes];
    Dim at[kLanes];
    for (Dim n = 0; n < count; ++n)
      at[n] = (s.parts[p].q_first + (first + n) / arg.g) * arg.heads + kv * arg.g + (first + n) % arg.g;
    auto both = [&](const void* source, Dim d, Dim padded, Real* xt, Real* rows) {
      for (Dim n = 0; n < count; ++n) {
        from[n] = real(source) + at[n] * d;
        pack_rows(rows + n * padded, padded, from[n], d, d, 1);
      }
      static_for<1, kVectors + 1>([&](auto N) {
        if (ceil_div(count, W) == N) to_lanes<N.value>(from, count, d, xt);
      });
    };
    both(s.q, arg.d, plan.dp, x.qt, x.q);
    if (plan.kept) both(s.q_kept, arg.d, plan.dp, x.kept_qt, x.kept_q);
    both(a.dout, arg.dv, plan.dvp, x.dout_t, x.dout);
    for (Dim n = 0; n < kLanes; ++n) x.shift[n] = x.inverse[n] = x.delta[n] = 0;
    for (Dim n = 0; n < count; ++n) {
      const Real *norm = real(a.lse) + 2 * at[n], *o = real(a.out) + at[n] * arg.dv,
                 *g = real(a.dout) + at[n] * arg.dv;
      V sum = vzero();
      for (Dim d = 0; d < arg.dv; d += W)
        sum = vfma(vload_n(o + d, arg.dv - d), vload_n(g + d, arg.dv - d), sum);
      x.shift[n] = norm[0];
      x.inverse[n] = norm[1];
      x.delta[n] = vsum(sum);
    }
    if (a.dextra)
      for (int v = 0; v < kVectors; ++v) {
        Real logit[W] = {}, out[W];
        for (int n = 0; n < W && v * W + n < count; ++n)
          logit[n] = arg.extra[kv * arg.g + (first + v * W + n) % arg.g];
        vstore(out, (vzero() - vexp2(vfma(vload(logit), vset(kLog2e), vload(x.shift + v * W))) *
                                   vload(x.inverse + v * W)) *
                        vload(x.delta + v * W));
        for (int n = 0; n < W && v * W + n < count; ++n) plan.extra[at[v * W + n]] = out[n];
      }
  });

  // 2. kKeys keys at a time against all queries.
  const Dim relative = s.bias == Bias::bucket ? arg.g * relative_span(arg) : 0;
  const Dim reals = 2 * kKeys * (plan.dp + plan.dvp) + 4 * kBlock * kLanes +
                    (arg.additive ? 2 * arg.d * kLanes : 0) + kKeys + relative + 64;
  const Real factor = arg.l2 ? 2 * arg.scale : arg.scale;
  for_tasks(queue, slot_tasks + tasks[parts], [&](Dim task, int worker) {
    Memory mem;
    mem.pt = reinterpret_cast<Real*>(scratch_of(queue, worker, size_t(reals) * sizeof(Real)));
    if (!mem.pt) return;
    mem.st = mem.pt + kBlock * kLanes;
    mem.slope = mem.st + kBlock * kLanes;
    mem.bias = mem.slope + kBlock * kLanes;
    mem.k = mem.bias + kBlock * kLanes;
    mem.v = mem.k + kKeys * plan.dp;
    mem.dk = mem.v + kKeys * plan.dvp;
    mem.dv = mem.dk + kKeys * plan.dp;
    mem.wt = mem.dv + kKeys * plan.dvp;
    mem.dwt = mem.wt + (arg.additive ? arg.d * kLanes : 0);
    mem.k2 = mem.dwt + (arg.additive ? arg.d * kLanes : 0);
    mem.relative = mem.k2 + kKeys;

    // All queries of one sequence and kv head against the keys in mem.
    auto add_queries = [&](const AttentionPart& part, Dim p, Dim kv, Dim chunk, Dim begin, Dim end,
                           bool slots) {
      const Dim pairs = part.q_count * arg.g, per_head = ceil_div(pairs, kLanes),
                chunks = plan.chunks_of(part, a.key_chunk);
      for (Dim i = 0; i < per_head; ++i) {
        const Dim count = least(kLanes, pairs - i * kLanes);
        if (!slots) {  // does anybody here see one of these keys?
          Dim low = end, high = 0;
          const Dim row = part.q_first + i * kLanes / arg.g,
                    last = part.q_first + (i * kLanes + count - 1) / arg.g;
          for (Dim r = row; r <= last; ++r) low = least(low, s.low[r]), high = most(high, s.high[r]);
          if (high <= begin || (low >= end && begin >= part.keep)) continue;
        }
        const Dim query_block = kv * per_head + i;
        Real *dqt = plan.partial + (partials[p] + query_block * chunks + chunk) * plan.partial_reals,
             *kept_dqt = plan.kept ? dqt + arg.d * kLanes : dqt;
        static_for<1, kVectors + 1>([&](auto N) {
          if (ceil_div(count, W) != N) return;
          BackwardBlock<N.value> block(arg, a, plan, mem,
                                       operands_of(arg, plan, query_blocks[p] + query_block), part, kv,
                                       i * kLanes, count);
          for (Dim kb = begin; kb < end; kb += kBlock)
            block.add({mem.k + (kb - begin) * plan.dp, mem.v + (kb - begin) * plan.dvp, plan.dp, plan.dvp, kb,
                       least(kBlock, end - kb), slots},
                      kb - begin, dqt, kept_dqt);
        });
      }
    };
    auto load = [&](const AttentionPart& part, Dim kv, Dim begin, Dim end, bool slots) {
      for (Dim kb = begin; kb < end; kb += kBlock) {
        const KeyBlock b =
            find_key_block(arg, part, kv, kb, least(kBlock, end - kb), slots, nullptr, nullptr);
        pack_rows(mem.k + (kb - begin) * plan.dp, plan.dp, b.k, b.k_stride, arg.d, b.n);
        pack_rows(mem.v + (kb - begin) * plan.dvp, plan.dvp, b.v, b.v_stride, arg.dv, b.n);
      }
      if (arg.l2)
        for (Dim k = 0; k < end - begin; ++k) mem.k2[k] = square_of(mem.k + k * plan.dp, arg.d);
      set_reals(mem.dk, 0, (end - begin) * plan.dp);
      set_reals(mem.dv, 0, (end - begin) * plan.dvp);
    };
    // Rows from `row` of [rows][kv_heads][d].
    auto store = [&](void* dk, void* dv, Dim row, Dim kv, Dim n) {
      auto add = [&](void* to, const Real* from, Dim d, Dim width, Dim padded, Real f) {
        if (!to) return;
        for (Dim k = 0; k < n; ++k) {
          Real* o = static_cast<Real*>(to) + ((row + k) * arg.kv_heads + kv) * width;
          for (Dim c = 0; c < d; c += W)
            vstore_n(o + c, vfma(vload(from + k * padded + c), vset(f), vload_n(o + c, d - c)), d - c);
        }
      };
      add(dk, mem.dk, arg.d, arg.d, plan.dp, factor);
      if (s.values_in_keys) add(dk, mem.dv, arg.dv, arg.d, plan.dvp, 1);
      else add(dv, mem.dv, arg.dv, arg.dv, plan.dvp, 1);
    };
    auto clear_partials = [&](const AttentionPart& part, Dim p, Dim kv, Dim chunk) {
      const Dim per_head = ceil_div(part.q_count * arg.g, kLanes), chunks = plan.chunks_of(part, a.key_chunk);
      for (Dim i = 0; i < per_head; ++i)
        set_reals(plan.partial + (partials[p] + (kv * per_head + i) * chunks + chunk) * plan.partial_reals, 0,
                  plan.partial_reals);
    };
    auto begin_sums = [&](Dim index) {
      mem.bucket_sums = plan.bucket_sums + index * bucket_size;
      mem.weight_sums = plan.weight_sums + index * weight_size;
      for (Dim i = 0; i < bucket_size; ++i) mem.bucket_sums[i] = 0;
      for (Dim i = 0; i < weight_size; ++i) mem.weight_sums[i] = 0;
    };

    if (task < slot_tasks) {
      const Dim kv = task;
      begin_sums(task);
      for (Dim p = 0; p < parts; ++p) clear_partials(s.parts[p], p, kv, 0);
      for (Dim begin = 0; begin < s.slots; begin += kKeys) {
        const Dim end = least(s.slots, begin + kKeys);
        load(s.parts[0], kv, begin, end, true);
        for (Dim p = 0; p < parts; ++p) add_queries(s.parts[p], p, kv, 0, begin, end, true);
        store(a.dslot_k, a.dslot_v, begin, kv, end - begin);
      }
      return;
    }
    const Dim p = part_of(tasks, parts, task - slot_tasks),
              chunk = (task - slot_tasks - tasks[p]) / tasks_per_chunk,
              one = (task - slot_tasks - tasks[p]) % tasks_per_chunk;
    const AttentionPart& part = s.parts[p];
    for (Dim kv = one; kv < one + heads_per_task; ++kv) {
      begin_sums(slot_tasks + (task - slot_tasks) * heads_per_task + kv - one);
      fill_relative(arg, kv, mem.relative);
      clear_partials(part, p, kv, Dim(plan.slots) + chunk);
      const Dim last = least(part.k_count, (chunk + 1) * a.key_chunk);
      for (Dim begin = chunk * a.key_chunk; begin < last; begin += kKeys) {
        const Dim end = least(last, begin + kKeys);
        load(part, kv, begin, end, false);
        add_queries(part, p, kv, Dim(plan.slots) + chunk, begin, end, false);
        store(a.dk, a.dv, part.k_first + begin, kv, end - begin);
      }
    }
  });

  // 3. dQ = factor * sum of the partial sums, in order.
  for_tasks(queue, query_blocks[parts], [&](Dim i, int) {
    const Dim p = part_of(query_blocks, parts, i), per_head = ceil_div(s.parts[p].q_count * arg.g, kLanes),
              kv = (i - query_blocks[p]) / per_head;
    const Dim first = (i - query_blocks[p]) % per_head * kLanes,
              count = least(kLanes, s.parts[p].q_count * arg.g - first);
    const Dim chunks = plan.chunks_of(s.parts[p], a.key_chunk);
    if (chunks == 0) return;
    Real* all = plan.partial + (partials[p] + (i - query_blocks[p]) * chunks) * plan.partial_reals;
    for (Dim c = 1; c < chunks; ++c)
      for (Dim n = 0; n < plan.partial_reals; n += W)
        vstore_n(all + n,
                 vload_n(all + n, plan.partial_reals - n) +
                     vload_n(all + c * plan.partial_reals + n, plan.partial_reals - n),
                 plan.partial_reals - n);
    V f[kVectors];
    for (V& x : f) x = vset(factor);
    Real* row[kLanes];
    auto out = [&](void* to, const Real* from) {
      if (!to) return;
      for (Dim n = 0; n < count; ++n)
        row[n] = static_cast<Real*>(to) +
                 ((s.parts[p].q_first + (first + n) / arg.g) * arg.heads + kv * arg.g + (first + n) % arg.g) *
                     arg.d;
      static_for<1, kVectors + 1>([&](auto N) {
        if (ceil_div(count, W) == N) to_rows<N.value, true>(from, f, row, count, arg.d);
      });
    };
    out(a.dq, all);
    if (plan.kept) out(a.dq_kept, all + arg.d * kLanes);
  });

  // 4. What all rows share, head by head, in the order of rows and tasks.
  if (a.dextra || a.dbuckets || a.dscore_weight)
    for_tasks(queue, arg.heads, [&](Dim h, int) {
      const Dim kv = h / arg.g;
      if (a.dextra) {
        double sum = 0;
        for (Dim p = 0; p < parts; ++p)
          for (Dim r = s.parts[p].q_first; r < s.parts[p].q_first + s.parts[p].q_count; ++r)
            sum += double(plan.extra[r * arg.heads + h]);
        static_cast<Real*>(a.dextra)[h] += Real(sum);
      }
      // Slot tasks come one per kv head; then, for each part and chunk, the kv heads.
      auto total = [&](const double* from, Dim size, Dim at) {
        double sum = 0;
        for (Dim i = 0; i < sums; ++i)
          if ((i < slot_tasks ? i : (i - slot_tasks) % arg.kv_heads) == kv) sum += from[i * size + at];
        return Real(sum);
      };
      if (a.dbuckets)
        for (Dim b = 0; b < s.bucket_count; ++b)
          static_cast<Real*>(a.dbuckets)[b * arg.heads + h] +=
              total(plan.bucket_sums, bucket_size, (h - kv * arg.g) * s.bucket_count + b);
      if (a.dscore_weight)
        for (Dim d = 0; d < arg.d; ++d)
          static_cast<Real*>(a.dscore_weight)[h * arg.d + d] +=
              arg.scale * total(plan.weight_sums, weight_size, (h - kv * arg.g) * arg.d + d);
    });
}

}  // namespace rapt::RAPT_ISA
