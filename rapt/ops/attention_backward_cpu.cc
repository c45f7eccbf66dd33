// SPDX-License-Identifier: Apache-2.0
// The backward of attention. Weights are found again from the saved norm (weight = 2^(z log2 e + neg) * inverse), five products per
// block. A task owns the gradients of some keys and walks all queries; what it adds to dQ is a partial sum of its own, and partial
// sums are added in the order of the keys: the bits do not depend on threads. Lanes, masks and options: attention_tile.h.
//
//   dP = dropout * (dO . V),  dz = P (dP - dO.O)   (sigmoid: P (1 - P) dP),  ds = dz * (1 - tanh^2) where capped
//   dV += (dropout * P)^T dO,  dK += scale * ds^T Q,  dQ += scale * ds K;  extra logit: -p_extra * dO.O
#include "rapt/ops/attention_tile.h"

namespace rapt::RAPT_ISA {
namespace {

constexpr Dim kKeys = 256;  // keys whose gradients are built in one walk over the queries; they stay in L2

struct Plan {  // of one call
  Dim dp, dvp;                   // rows padded to whole vectors
  Dim group_reals, partial_reals;
  bool kept, slots;
  const int64_t *groups, *partials, *tasks;  // per part: first group, first partial sum, first task
  Real *packed, *partial, *extra;
  double *bucket_sums, *weight_sums;  // thousands of terms that nearly cancel
  Dim chunks_of(const AttentionPart& part, Dim key_chunk) const { return Dim(slots) + ceil_div(part.k_count, key_chunk); }
};

// A group's queries and gradients of outputs, both ways round.
struct Packed {
  Real *qt, *gt, *q, *g, *kept_qt, *kept_q, *neg, *inverse, *dot;  // [d][L] [dv][L] [L][dp] [L][dvp] …
};
RAPT_INLINE Packed packed_of(const Job& j, const Plan& plan, Dim group) {
  Packed x;
  x.qt = plan.packed + group * plan.group_reals;
  x.gt = x.qt + j.d * kLanes;
  x.q = x.gt + j.dv * kLanes;
  x.g = x.q + plan.dp * kLanes;
  x.neg = x.g + plan.dvp * kLanes;
  x.inverse = x.neg + kLanes;
  x.dot = x.inverse + kLanes;
  x.kept_qt = plan.kept ? x.dot + kLanes : x.qt;
  x.kept_q = plan.kept ? x.kept_qt + j.d * kLanes : x.q;
  return x;
}

struct Memory {  // of one task
  Real *k, *v, *dk, *dv, *pt, *st, *slope, *bias, *relative, *wt, *dwt, *k2;
  double *bucket_sums, *weight_sums;
};

template <int N>
struct Walker {
  static constexpr int L = N * W;
  const Job& j;
  const AttentionBackwardArgs& a;
  const Plan& plan;
  const Memory& mem;
  const Packed x;
  Lanes g;
  Real q2[kLanes], q2_kept[kLanes];

  Walker(const Job& job, const AttentionBackwardArgs& args, const Plan& p, const Memory& m, const Packed& packed, const AttentionPart& part,
         Dim kv, Dim first, Dim count)
      : j(job), a(args), plan(p), mem(m), x(packed) {
    find_lanes(j, part, kv, first, count, N, g);
    if (j.l2)
      for (Dim i = 0; i < L; ++i) {
        q2[i] = i < count ? square_of(x.q + i * plan.dp, j.d) : Real(0);
        q2_kept[i] = i < count ? square_of(x.kept_q + i * plan.dp, j.d) : Real(0);
      }
    if (j.additive) {
      const Real* row[kLanes];
      for (Dim i = 0; i < count; ++i) row[i] = j.score_weight + g.head[i] * j.d;
      to_lanes<N>(row, count, j.d, mem.wt);
      set_reals(mem.dwt, 0, j.d * L);
    }
  }
  ~Walker() {
    if (j.additive && a.dscore_weight)
      for (Dim i = 0; i < g.count; ++i)
        for (Dim d = 0; d < j.d; ++d) mem.weight_sums[(g.head[i] - g.kv * j.g) * j.d + d] += double(mem.dwt[d * L + i]);
  }

  void block(const Keys& b, Dim at, Real* dqt, Real* kept_dqt) {
    Sight<N> s;
    if (!look<N>(j, g, b, s)) return;
    const Dim kept_end = plan.kept ? most(s.from, least(s.upto[N - 1], s.keep)) : s.from;
    if (kept_end > s.from) {
      Sight<N> head = s;
      for (int v = 0; v < N; ++v) head.upto[v] = least(s.upto[v], kept_end);
      range(b, head, at, x.kept_qt, x.kept_q, kept_dqt);
    }
    s.from = kept_end;
    if (s.upto[N - 1] > s.from) range(b, s, at, x.qt, x.q, dqt);
  }

  // Keys [s.from, s.upto) of a block with one set of queries. at: the block's place in mem.dk and mem.dv.
  __attribute__((noinline)) void range(const Keys& b, const Sight<N>& s, Dim at, const Real* qt, const Real* q, Real* dqt) {
    Real *const pt = mem.pt, *const st = mem.st;
    if (j.plain) plain_block(b, s, qt);
    else general_block(b, s, qt, at, dqt);
    onto(s, b, pt, x.g, plan.dvp, mem.dv + at * plan.dvp);
    if (j.additive) {
      additive_gradients(b, s, at, qt, dqt);
      return;
    }
    onto(s, b, st, q, plan.dp, mem.dk + at * plan.dp);
    tiles<tile_of(N)>(0, j.d, [&](auto size, Dim d) RAPT_LAMBDA {  // dQ^T += K^T ds^T: the value step of the forward
      constexpr int T = decltype(size)::value;
      V acc[T][N];
      clear(acc);
      Dim k = s.from;
      static_for<0, N>([&](auto V0) RAPT_LAMBDA {
        if (s.upto[V0] > k) {
          accumulate<V0.value>(acc, b.k + k * b.k_stride + d, 1, b.k_stride, st + k * L, L, s.upto[V0] - k);
          k = s.upto[V0];
        }
      });
      RAPT_UNROLL
      for (int i = 0; i < T; ++i) {
        RAPT_UNROLL
        for (int v = 0; v < N; ++v) vstore(dqt + (d + i) * L + v * W, vload(dqt + (d + i) * L + v * W) + acc[i][v]);
      }
    });
  }

  // Weights straight from the registers of q.k, then ds from those of dO.v.
  [[gnu::always_inline]] void plain_block(const Keys& b, const Sight<N>& s, const Real* qt) {
    Real *const pt = mem.pt, *const st = mem.st;
    const Lanes& lanes = g;
    const V c = vset(j.c);
    tiles<tile_of(N)>(s.from, s.upto[N - 1], [&](auto size, Dim k) RAPT_LAMBDA {
      constexpr int T = decltype(size)::value;
      const int v0 = first_vector(s, k);
      static_for<0, N>([&](auto V0) RAPT_LAMBDA {
        if (v0 != V0) return;
        if constexpr (decltype(V0)::value > 0)
          for (int i = 0; i < T; ++i)  // the tiles of `onto` may begin earlier and read these
            for (int v = 0; v < V0; ++v) {
              vstore(pt + (k + i) * L + v * W, vzero());
              vstore(st + (k + i) * L + v * W, vzero());
            }
        V t[T][N];
        clear(t);
        accumulate<V0.value>(t, b.k + k * b.k_stride, b.k_stride, 1, qt, L, j.d);
        const bool full = s.full(k, T) || b.slots;
        RAPT_UNROLL
        for (int i = 0; i < T; ++i) {
          RAPT_UNROLL
          for (int v = V0; v < N; ++v) {
            V p = vexp2(vfma(t[i][v], c, vload(x.neg + v * W))) * vload(x.inverse + v * W);
            if (!full) p = where_seen(lanes, v, b.first + k + i, k + i < s.keep, p, vzero());
            vstore(pt + (k + i) * L + v * W, p);
          }
        }
        V u[T][N];
        clear(u);
        accumulate<V0.value>(u, b.v + k * b.v_stride, b.v_stride, 1, x.gt, L, j.dv);
        RAPT_UNROLL
        for (int i = 0; i < T; ++i) {
          RAPT_UNROLL
          for (int v = V0; v < N; ++v) {
            const Dim o = (k + i) * L + v * W;
            vstore(st + o, vload(pt + o) * (u[i][v] - vload(x.dot + v * W)));
          }
        }
      });
    });
  }

  // out[i][v] tiles of `rows` of b times xt, stored: the raw products of the options' path.
  void products(const Sight<N>& s, const Real* rows, Dim stride, const Real* xt, Dim depth, Real* out) {
    tiles<tile_of(N)>(s.from, s.upto[N - 1], [&](auto size, Dim k) RAPT_LAMBDA {
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

  void general_block(const Keys& b, const Sight<N>& s, const Real* qt, Dim at, Real* dqt) {
    Real *const pt = mem.pt, *const st = mem.st;
    const Dim n = s.upto[N - 1];
    if (j.additive) additive_scores<N>(j, b, s.from, n, qt, mem.wt, pt);
    else products(s, b.k, b.k_stride, qt, j.d, pt);
    if (j.table && !b.slots) {
      fill_bias<N>(j, g, b, s.from, least(n, s.keep), true, mem.relative, mem.bias);
      fill_bias<N>(j, g, b, most(s.from, s.keep), n, false, mem.relative, mem.bias);
    }
    to_logits<N>(j, g, b, s, mem.k2 + at, q2, q2_kept, mem.bias, pt, mem.slope);
    products(s, b.v, b.v_stride, x.gt, j.dv, st);
    const V one = vset(Real(1));
    for (int v = 0; v < N; ++v) {
      const V neg = vload(x.neg + v * W), inverse = vload(x.inverse + v * W), dot = vload(x.dot + v * W);
      const I key = j.drop > 0 ? iload(g.key + v * W) : iset(0);
      for (Dim k = s.from; k < n; ++k) {
        const Dim o = k * L + v * W;
        if (k >= s.upto[v]) {  // hidden from the whole vector, and no logit was made of it
          vstore(pt + o, vzero());
          vstore(st + o, vzero());
          continue;
        }
        const V z = vload(pt + o);
        V p = j.sigmoid ? vsigmoid(z) : vexp2(vfma(z, vset(kLog2e), neg)) * inverse;
        if (!s.full(k, 1) && !b.slots) p = where_seen(g, v, b.first + k, k < s.keep, p, vzero());
        V dp = vload(st + o), dropped = p;
        if (j.drop > 0) {
          const V keep = vdrop(key, drop_column(b, k), j.drop);
          dp = dp * keep;
          dropped = dropped * keep;
        }
        vstore(pt + o, dropped);
        vstore(st + o, j.sigmoid ? p * (one - p) * dp : p * (dp - dot));
      }
    }
    if (!b.slots && (a.ddense || a.dbuckets)) bias_gradients(b, s);
    if (j.cap > 0)
      for (int v = 0; v < N; ++v)
        for (Dim k = s.from; k < s.upto[v]; ++k) vstore(st + k * L + v * W, vload(st + k * L + v * W) * vload(mem.slope + k * L + v * W));
    if (j.l2) {  // 2 q.k - |k|^2 - |q|^2: what the squares add, in units of 2 * scale
      for (int v = 0; v < N; ++v) {
        V sum = vzero();
        for (Dim k = s.from; k < n; ++k) sum = sum + vload(st + k * L + v * W);
        for (Dim d = 0; d < j.d; ++d) vstore(dqt + d * L + v * W, vload(dqt + d * L + v * W) - vload(qt + d * L + v * W) * sum);
      }
      for (Dim k = s.from; k < n; ++k) {
        V sum = vzero();
        for (int v = 0; v < N; ++v) sum = sum + vload(st + k * L + v * W);
        const V f = vset(vsum(sum));
        Real* dk = mem.dk + (at + k) * plan.dp;
        for (Dim d = 0; d < plan.dp; d += W) vstore(dk + d, vload(dk + d) - vload(b.k + k * b.k_stride + d) * f);
      }
    }
  }

  void bias_gradients(const Keys& b, const Sight<N>& s) {
    const Dim n = s.upto[N - 1];
    if (a.ddense) {
      Real* row[kLanes];
      V ones[N];
      for (int v = 0; v < N; ++v) ones[v] = vset(Real(1));
      for (Dim i = 0; i < g.count; ++i)
        row[i] = static_cast<Real*>(a.ddense) + ((j.s.dense_heads == 1 ? 0 : Dim(g.head[i])) * j.s.rows + g.row[i]) * j.s.dense_keys +
                 b.first + s.from;
      to_rows<N, true>(mem.st + s.from * L, ones, row, g.count, n - s.from);
    }
    if (a.dbuckets)
      for (Dim i = 0; i < g.count; ++i) {
        double* sums = mem.bucket_sums + (g.head[i] - g.kv * j.g) * j.s.bucket_count;
        for (Dim k = s.from; k < n; ++k) {
          const Dim distance = b.first + k - Dim(k < s.keep ? g.kept[i] : g.position[i]);
          sums[j.s.bucket_of[least(j.reach, most(-j.reach, distance)) + j.reach]] += double(mem.st[k * L + i]);
        }
      }
  }

  // s = sum of w tanh(q + k): dq = dk = ds w (1 - tanh^2), dw = ds tanh.
  void additive_gradients(const Keys& b, const Sight<N>& s, Dim at, const Real* qt, Real* dqt) {
    for (Dim d = 0; d < j.d; ++d) {
      V dq[N], dw[N];
      for (int v = 0; v < N; ++v) dq[v] = dw[v] = vzero();
      for (Dim k = s.from; k < s.upto[N - 1]; ++k) {
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

  // out[key][:] += sum over lanes of w[key][lane] * rows[lane][:]: the lanes of the vectors are columns here, the weights are the scalars.
  [[gnu::always_inline]] void onto(const Sight<N>& s, const Keys& b, const Real* w, const Real* rows, Dim width, Real* out) {
    Dim seen = 0;  // leading lanes that see none of these keys any more
    tiles<tile_of(kVectors)>(s.from, s.upto[N - 1], [&](auto size, Dim k) RAPT_LAMBDA {
      constexpr int T = decltype(size)::value;
      if (!b.slots) {
        while (seen < g.count && g.high[seen] <= Real(b.first + k)) ++seen;
        seen = most(seen, Dim(first_vector(s, k)) * W);
      }
      const Dim q0 = least(seen, g.count);
      auto columns = [&](auto vectors, Dim d) RAPT_LAMBDA {
        constexpr int C = decltype(vectors)::value;
        V acc[T][C];
        clear(acc);
        accumulate<0>(acc, w + k * L + q0, L, 1, rows + q0 * width + d, width, g.count - q0);
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
  const Job j = make_job(s, s.dropout == 0);
  const Dim parts = s.part_count;
  Plan plan;
  plan.dp = ceil_div(j.d, W) * W;
  plan.dvp = ceil_div(j.dv, W) * W;
  plan.kept = j.q_kept != nullptr;
  plan.slots = s.slots > 0;
  plan.group_reals = (j.d + j.dv + plan.dp + plan.dvp + 3 + (plan.kept ? j.d + plan.dp : 0)) * kLanes;
  plan.partial_reals = j.d * kLanes * (plan.kept ? 2 : 1);
  // With one dense bias for all heads its gradient sums over them: a task then takes the kv heads one after the other.
  const Dim together = a.ddense && s.dense_heads == 1 ? s.kv_heads : 1, apart = s.kv_heads / together,
            slot_tasks = plan.slots ? s.kv_heads : 0;
  int64_t *groups = s.first_of, *partials = groups + parts + 1, *tasks = partials + parts + 1;
  groups[0] = partials[0] = tasks[0] = 0;
  for (Dim p = 0; p < parts; ++p) {
    const Dim count = s.kv_heads * ceil_div(s.parts[p].q_count * j.g, kLanes);
    groups[p + 1] = groups[p] + count;
    partials[p + 1] = partials[p] + count * plan.chunks_of(s.parts[p], a.key_chunk);
    tasks[p + 1] = tasks[p] + apart * ceil_div(s.parts[p].k_count, a.key_chunk);
  }
  plan.groups = groups, plan.partials = partials, plan.tasks = tasks;
  plan.packed = static_cast<Real*>(a.work);
  plan.partial = plan.packed + groups[parts] * plan.group_reals;
  const Dim sums = slot_tasks + tasks[parts] * together, bucket_size = a.dbuckets ? j.g * s.bucket_count : 0,
            weight_size = a.dscore_weight ? j.g * j.d : 0;
  plan.bucket_sums =
      reinterpret_cast<double*>(plan.partial + partials[parts] * plan.partial_reals);  // [slot tasks, then part, chunk, kv head][g][…]
  plan.weight_sums = plan.bucket_sums + sums * bucket_size;
  plan.extra = reinterpret_cast<Real*>(plan.weight_sums + sums * weight_size);  // [rows][heads]

  // 1. Queries and gradients of outputs, a query per lane and a query per row; dO . O.
  for_tasks(queue, groups[parts], [&](Dim i, int) {
    const Dim p = part_of(groups, parts, i), per_head = ceil_div(s.parts[p].q_count * j.g, kLanes), kv = (i - groups[p]) / per_head;
    const Dim first = (i - groups[p]) % per_head * kLanes, count = least(kLanes, s.parts[p].q_count * j.g - first);
    const Packed x = packed_of(j, plan, i);
    const Real* from[kLanes];
    Dim at[kLanes];
    for (Dim n = 0; n < count; ++n) at[n] = (s.parts[p].q_first + (first + n) / j.g) * j.heads + kv * j.g + (first + n) % j.g;
    auto both = [&](const void* source, Dim d, Dim padded, Real* xt, Real* rows) {
      for (Dim n = 0; n < count; ++n) {
        from[n] = real(source) + at[n] * d;
        pack_rows(rows + n * padded, padded, from[n], d, d, 1);
      }
      static_for<1, kVectors + 1>([&](auto N) {
        if (ceil_div(count, W) == N) to_lanes<N.value>(from, count, d, xt);
      });
    };
    both(s.q, j.d, plan.dp, x.qt, x.q);
    if (plan.kept) both(s.q_kept, j.d, plan.dp, x.kept_qt, x.kept_q);
    both(a.dout, j.dv, plan.dvp, x.gt, x.g);
    for (Dim n = 0; n < kLanes; ++n) x.neg[n] = x.inverse[n] = x.dot[n] = 0;
    for (Dim n = 0; n < count; ++n) {
      const Real *norm = real(a.norm) + 2 * at[n], *o = real(a.out) + at[n] * j.dv, *g = real(a.dout) + at[n] * j.dv;
      V sum = vzero();
      for (Dim d = 0; d < j.dv; d += W) sum = vfma(vload_n(o + d, j.dv - d), vload_n(g + d, j.dv - d), sum);
      x.neg[n] = norm[0];
      x.inverse[n] = norm[1];
      x.dot[n] = vsum(sum);
    }
    if (a.dextra)
      for (int v = 0; v < kVectors; ++v) {
        Real logit[W] = {}, out[W];
        for (int n = 0; n < W && v * W + n < count; ++n) logit[n] = j.extra[kv * j.g + (first + v * W + n) % j.g];
        vstore(out,
               (vzero() - vexp2(vfma(vload(logit), vset(kLog2e), vload(x.neg + v * W))) * vload(x.inverse + v * W)) * vload(x.dot + v * W));
        for (int n = 0; n < W && v * W + n < count; ++n) plan.extra[at[v * W + n]] = out[n];
      }
  });

  // 2. kKeys keys at a time against all queries.
  const Dim relative = s.bias == Bias::bucket ? j.g * relative_span(j) : 0;
  const Dim reals = 2 * kKeys * (plan.dp + plan.dvp) + 4 * kBlock * kLanes + (j.additive ? 2 * j.d * kLanes : 0) + kKeys + relative + 64;
  const Real factor = j.l2 ? 2 * j.scale : j.scale;
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
    mem.dwt = mem.wt + (j.additive ? j.d * kLanes : 0);
    mem.k2 = mem.dwt + (j.additive ? j.d * kLanes : 0);
    mem.relative = mem.k2 + kKeys;

    // All queries of one sequence and kv head against the keys in mem.
    auto walk = [&](const AttentionPart& part, Dim p, Dim kv, Dim chunk, Dim begin, Dim end, bool slots) {
      const Dim pairs = part.q_count * j.g, per_head = ceil_div(pairs, kLanes), chunks = plan.chunks_of(part, a.key_chunk);
      for (Dim i = 0; i < per_head; ++i) {
        const Dim count = least(kLanes, pairs - i * kLanes);
        if (!slots) {  // does anybody here see one of these keys?
          Dim low = end, high = 0;
          const Dim row = part.q_first + i * kLanes / j.g, last = part.q_first + (i * kLanes + count - 1) / j.g;
          for (Dim r = row; r <= last; ++r) low = least(low, s.low[r]), high = most(high, s.high[r]);
          if (high <= begin || (low >= end && begin >= j.keep)) continue;
        }
        const Dim group = kv * per_head + i;
        Real *dqt = plan.partial + (partials[p] + group * chunks + chunk) * plan.partial_reals,
             *kept_dqt = plan.kept ? dqt + j.d * kLanes : dqt;
        static_for<1, kVectors + 1>([&](auto N) {
          if (ceil_div(count, W) != N) return;
          Walker<N.value> walker(j, a, plan, mem, packed_of(j, plan, groups[p] + group), part, kv, i * kLanes, count);
          for (Dim kb = begin; kb < end; kb += kBlock)
            walker.block(
                {mem.k + (kb - begin) * plan.dp, mem.v + (kb - begin) * plan.dvp, plan.dp, plan.dvp, kb, least(kBlock, end - kb), slots},
                kb - begin, dqt, kept_dqt);
        });
      }
    };
    auto load = [&](const AttentionPart& part, Dim kv, Dim begin, Dim end, bool slots) {
      for (Dim kb = begin; kb < end; kb += kBlock) {
        const Keys b = find_keys(j, part, kv, kb, least(kBlock, end - kb), slots, nullptr, nullptr);
        pack_rows(mem.k + (kb - begin) * plan.dp, plan.dp, b.k, b.k_stride, j.d, b.n);
        pack_rows(mem.v + (kb - begin) * plan.dvp, plan.dvp, b.v, b.v_stride, j.dv, b.n);
      }
      if (j.l2)
        for (Dim k = 0; k < end - begin; ++k) mem.k2[k] = square_of(mem.k + k * plan.dp, j.d);
      set_reals(mem.dk, 0, (end - begin) * plan.dp);
      set_reals(mem.dv, 0, (end - begin) * plan.dvp);
    };
    auto store = [&](void* dk, void* dv, Dim row, Dim kv, Dim n) {  // rows from `row` of [rows][kv_heads][d]
      auto add = [&](void* to, const Real* from, Dim d, Dim padded, Real f) {
        if (!to) return;
        for (Dim k = 0; k < n; ++k) {
          Real* o = static_cast<Real*>(to) + ((row + k) * j.kv_heads + kv) * d;
          for (Dim c = 0; c < d; c += W) vstore_n(o + c, vfma(vload(from + k * padded + c), vset(f), vload_n(o + c, d - c)), d - c);
        }
      };
      add(dk, mem.dk, j.d, plan.dp, factor);
      add(dv, mem.dv, j.dv, plan.dvp, 1);
    };
    auto clear_partials = [&](const AttentionPart& part, Dim p, Dim kv, Dim chunk) {
      const Dim per_head = ceil_div(part.q_count * j.g, kLanes), chunks = plan.chunks_of(part, a.key_chunk);
      for (Dim i = 0; i < per_head; ++i)
        set_reals(plan.partial + (partials[p] + (kv * per_head + i) * chunks + chunk) * plan.partial_reals, 0, plan.partial_reals);
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
        for (Dim p = 0; p < parts; ++p) walk(s.parts[p], p, kv, 0, begin, end, true);
        store(a.dslot_k, a.dslot_v, begin, kv, end - begin);
      }
      return;
    }
    const Dim p = part_of(tasks, parts, task - slot_tasks), chunk = (task - slot_tasks - tasks[p]) / apart,
              one = (task - slot_tasks - tasks[p]) % apart;
    const AttentionPart& part = s.parts[p];
    for (Dim kv = one; kv < one + together; ++kv) {
      begin_sums(slot_tasks + (task - slot_tasks) * together + kv - one);
      fill_relative(j, kv, mem.relative);
      clear_partials(part, p, kv, Dim(plan.slots) + chunk);
      const Dim last = least(part.k_count, (chunk + 1) * a.key_chunk);
      for (Dim begin = chunk * a.key_chunk; begin < last; begin += kKeys) {
        const Dim end = least(last, begin + kKeys);
        load(part, kv, begin, end, false);
        walk(part, p, kv, Dim(plan.slots) + chunk, begin, end, false);
        store(a.dk, a.dv, part.k_first + begin, kv, end - begin);
      }
    }
  });

  // 3. dQ = factor * sum of the partial sums, in order.
  for_tasks(queue, groups[parts], [&](Dim i, int) {
    const Dim p = part_of(groups, parts, i), per_head = ceil_div(s.parts[p].q_count * j.g, kLanes), kv = (i - groups[p]) / per_head;
    const Dim first = (i - groups[p]) % per_head * kLanes, count = least(kLanes, s.parts[p].q_count * j.g - first);
    const Dim chunks = plan.chunks_of(s.parts[p], a.key_chunk);
    if (chunks == 0) return;
    Real* all = plan.partial + (partials[p] + (i - groups[p]) * chunks) * plan.partial_reals;
    for (Dim c = 1; c < chunks; ++c)
      for (Dim n = 0; n < plan.partial_reals; n += W)
        vstore_n(all + n, vload_n(all + n, plan.partial_reals - n) + vload_n(all + c * plan.partial_reals + n, plan.partial_reals - n),
                 plan.partial_reals - n);
    V f[kVectors];
    for (V& x : f) x = vset(factor);
    Real* row[kLanes];
    auto out = [&](void* to, const Real* from) {
      if (!to) return;
      for (Dim n = 0; n < count; ++n)
        row[n] = static_cast<Real*>(to) + ((s.parts[p].q_first + (first + n) / j.g) * j.heads + kv * j.g + (first + n) % j.g) * j.d;
      static_for<1, kVectors + 1>([&](auto N) {
        if (ceil_div(count, W) == N) to_rows<N.value, true>(from, f, row, count, j.d);
      });
    };
    out(a.dq, all);
    if (plan.kept) out(a.dq_kept, all + j.d * kLanes);
  });

  // 4. What all rows share, head by head, in the order of rows and tasks.
  if (a.dextra || a.dbuckets || a.dscore_weight)
    for_tasks(queue, j.heads, [&](Dim h, int) {
      const Dim kv = h / j.g;
      if (a.dextra) {
        double sum = 0;
        for (Dim p = 0; p < parts; ++p)
          for (Dim r = s.parts[p].q_first; r < s.parts[p].q_first + s.parts[p].q_count; ++r) sum += double(plan.extra[r * j.heads + h]);
        static_cast<Real*>(a.dextra)[h] += Real(sum);
      }
      // Slot tasks come one per kv head; then, for each part and chunk, the kv heads.
      auto total = [&](const double* from, Dim size, Dim at) {
        double sum = 0;
        for (Dim i = 0; i < sums; ++i)
          if ((i < slot_tasks ? i : (i - slot_tasks) % j.kv_heads) == kv) sum += from[i * size + at];
        return Real(sum);
      };
      if (a.dbuckets)
        for (Dim b = 0; b < s.bucket_count; ++b)
          static_cast<Real*>(a.dbuckets)[b * j.heads + h] += total(plan.bucket_sums, bucket_size, (h - kv * j.g) * s.bucket_count + b);
      if (a.dscore_weight)
        for (Dim d = 0; d < j.d; ++d)
          static_cast<Real*>(a.dscore_weight)[h * j.d + d] += j.scale * total(plan.weight_sums, weight_size, (h - kv * j.g) * j.d + d);
    });
}

}  // namespace rapt::RAPT_ISA
