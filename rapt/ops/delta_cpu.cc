// SPDX-License-Identifier: Apache-2.0
// A task is one key head of one sequence, with its value heads, chunk after chunk. Products with S0 take a
// few rows at a time, so that the state is read once for all of them.
#include "rapt/ops/delta.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {

// ------------------------------------------------------------------------------------------------ decay
namespace {

// ln(1 + e^x)
RAPT_INLINE V soft_plus(V x) { return vmax(x, vzero()) + vlog1p(vexp(vzero() - vabs(x))); }

}  // namespace

void decay(Queue& queue, const DecayArgs& a) noexcept {
  const Real *log_rate = static_cast<const Real*>(a.a_log), *shift = static_cast<const Real*>(a.dt_bias);
  for_ranges(queue, a.rows, row_grain(a.n), [&](Dim begin, Dim end, int) {
    for (Dim r = begin; r < end; ++r)
      for (Dim c = 0; c < a.n; c += W) {
        const Dim n = a.n - c;
        const V x = vload_n(static_cast<const Real*>(a.a) + r * a.n + c, n) + vload_n(shift + c, n);
        const V g = vzero() - vexp(vload_n(log_rate + c, n)) * soft_plus(x);
        vstore_n(static_cast<Real*>(a.g) + r * a.n + c, g, n);
      }
  });
}

void decay_backward(Queue& queue, const DecayBackwardArgs& a) noexcept {
  const Real *log_rate = static_cast<const Real*>(a.a_log), *shift = static_cast<const Real*>(a.dt_bias);
  for_tasks(queue, ceil_div(a.n, W), [&](Dim task, int) {
    const Dim c = task * W, n = a.n - c;
    const V rate = vexp(vload_n(log_rate + c, n)), by = vload_n(shift + c, n);
    V of_log = vzero(), of_shift = vzero();
    for (Dim r = 0; r < a.rows; ++r) {
      const Dim at = r * a.n + c;
      const V dg = vload_n(static_cast<const Real*>(a.dg) + at, n);
      const V da = vzero() - rate * vsigmoid(vload_n(static_cast<const Real*>(a.a) + at, n) + by) * dg;
      if (a.da) {
        Real* to = static_cast<Real*>(a.da) + at;
        vstore_n(to, vload_n(to, n) + da, n);
      }
      of_shift = of_shift + da;
      of_log = vfma(vload_n(static_cast<const Real*>(a.g) + at, n), dg, of_log);
    }
    if (a.da_log) {
      Real* to = static_cast<Real*>(a.da_log) + c;
      vstore_n(to, vload_n(to, n) + of_log, n);
    }
    if (a.ddt_bias) {
      Real* to = static_cast<Real*>(a.ddt_bias) + c;
      vstore_n(to, vload_n(to, n) + of_shift, n);
    }
  });
}

// ------------------------------------------------------------------------------------------------ one chunk
namespace {

constexpr Dim N = kChunkRows;

struct Sizes {
  Dim dk, dv, repeat;  // value heads of a key head
  Dim head() const {
    return dk * N + repeat * (dv + 2) * N;
  }  // of a page: keys, then u and c of each value head
};

// A key head's part of a page, or of scratch that looks like one.
struct HeadRows {
  Real* keys;  // [dk][64]
  Sizes z;
  Real* u(Dim h) const { return keys + z.dk * N + h * (z.dv + 2) * N; }  // [64][dv]
  Real* c(Dim h) const { return u(h) + z.dv * N; }  // [2][64]: c, and what it lacks in digits
};

// c of row i. Where much is forgotten c is far below 0, and the differences of rows that forget little would
// be lost: so it has two numbers.
RAPT_INLINE void add_decay(Real* c, Dim i, Real g) {
  const double sum = (i > 0 ? double(c[i - 1]) + double(c[N + i - 1]) : 0.0) + double(g);
  c[i] = Real(sum);
  c[N + i] = Real(sum - double(c[i]));
}
// e^{c_i - c_j} for the rows j … j + W - 1, which are not behind i.
RAPT_INLINE V decay_since(const Real* c, Dim i, Dim j) {
  return vexp(vmin((vset(c[i]) - vload(c + j)) + (vset(c[N + i]) - vload(c + N + j)), vzero()));
}

// rows x (k, q) dot keys: R rows of q and k, against keys [0, keys) in whole vectors.
template <int R>
RAPT_INLINE void dot_rows(const Sizes& z, const Real* keys_t, const Real* k, const Real* q, Dim step,
                          Dim keys, Real* kk, Real* qk) {
  for (Dim j = 0; j < keys; j += W) {
    V of_k[R], of_q[R];
    for (int r = 0; r < R; ++r) of_k[r] = of_q[r] = vzero();
    for (Dim d = 0; d < z.dk; ++d) {
      const V key = vload(keys_t + d * N + j);
      for (int r = 0; r < R; ++r) {
        of_k[r] = vfma(vset(k[r * step + d]), key, of_k[r]);
        of_q[r] = vfma(vset(q[r * step + d]), key, of_q[r]);
      }
    }
    for (int r = 0; r < R; ++r) {
      vstore(kk + r * N + j, of_k[r]);
      vstore(qk + r * N + j, of_q[r]);
    }
  }
}

// s [dk][dv]: out_k = s^T k and out_q = s^T q of R rows.
template <int R>
RAPT_INLINE void through_state(const Sizes& z, const Real* s, const Real* k, const Real* q, Dim step,
                               Real* out_k, Real* out_q) {
  for (Dim c = 0; c < z.dv; c += 2 * W) {
    const Dim n = z.dv - c, m = n - W;
    V of_k[R][2], of_q[R][2];
    for (int r = 0; r < R; ++r) of_k[r][0] = of_k[r][1] = of_q[r][0] = of_q[r][1] = vzero();
    for (Dim d = 0; d < z.dk; ++d) {
      const V s0 = vload_n(s + d * z.dv + c, n), s1 = vload_n(s + d * z.dv + c + W, m);
      for (int r = 0; r < R; ++r) {
        const V a = vset(k[r * step + d]), b = vset(q[r * step + d]);
        of_k[r][0] = vfma(a, s0, of_k[r][0]);
        of_k[r][1] = vfma(a, s1, of_k[r][1]);
        of_q[r][0] = vfma(b, s0, of_q[r][0]);
        of_q[r][1] = vfma(b, s1, of_q[r][1]);
      }
    }
    for (int r = 0; r < R; ++r) {
      vstore_n(out_k + r * z.dv + c, of_k[r][0], n);
      vstore_n(out_k + r * z.dv + c + W, of_k[r][1], m);
      vstore_n(out_q + r * z.dv + c, of_q[r][0], n);
      vstore_n(out_q + r * z.dv + c + W, of_q[r][1], m);
    }
  }
}

// f(first row, number of rows as a constant) over rows [begin, end), four at a time.
template <class F>
RAPT_INLINE void by_fours(Dim begin, Dim end, const F& f) {
  Dim i = begin;
  for (; i + 4 <= end; i += 4) f.template operator()<4>(i);
  switch (end - i) {
    case 3: f.template operator()<3>(i); break;
    case 2: f.template operator()<2>(i); break;
    case 1: f.template operator()<1>(i); break;
    default: break;
  }
}

// Row i of a value head: u, o, and r = u / beta where it is asked for. `ak`, `aq`: S0^T k and S0^T q, or
// absent.
RAPT_INLINE void one_row(const Sizes& z, const HeadRows& rows, Dim h, Dim i, const Real* kk, const Real* qk,
                         const Real* v, Real beta, Real scale, const Real* ak, const Real* aq, Real* o,
                         Real* rest) {
  Real *all_u = rows.u(h), *c = rows.c(h);
  Real by_k[N], by_q[N];
  const V decayed = vexp(vset(c[i]));
  for (Dim j = 0; j <= i; j += W) {
    const V e = decay_since(c, i, j);
    vstore(by_k + j, vzero() - e * vload(kk + j));
    vstore(by_q + j, e * vload(qk + j));
  }
  constexpr int kSide = 4;  // vectors side by side: u and o are eight chains of additions then
  for (Dim at = 0; at < z.dv; at += kSide * W) {
    V u[kSide], sum[kSide];
    for (int x = 0; x < kSide; ++x) {
      const Dim from = at + x * W, n = z.dv - from;
      u[x] = vload_n(v + from, n);
      sum[x] = vzero();
      if (!ak) continue;
      u[x] = u[x] - decayed * vload_n(ak + from, n);
      sum[x] = decayed * vload_n(aq + from, n);
    }
    for (Dim j = 0; j < i; ++j) {
      const V wk = vset(by_k[j]), wq = vset(by_q[j]);
      for (int x = 0; x < kSide; ++x) {
        const V past = vload_n(all_u + j * z.dv + at + x * W, z.dv - at - x * W);
        u[x] = vfma(wk, past, u[x]);
        sum[x] = vfma(wq, past, sum[x]);
      }
    }
    for (int x = 0; x < kSide; ++x) {
      const Dim to = at + x * W, n = z.dv - to;
      if (rest) vstore_n(rest + to, u[x], n);
      u[x] = vset(beta) * u[x];
      vstore_n(all_u + i * z.dv + to, u[x], n);
      if (o) vstore_n(o + to, vset(scale) * vfma(vset(by_q[i]), u[x], sum[x]), n);
    }
  }
}

// to = e^{c_last} s0 + sum over j of e^{c_last - c_j} k_j u_j^T, of a whole chunk. `work`: [dk][64].
RAPT_INLINE void move_state(const Sizes& z, const HeadRows& rows, Dim h, const Real* s0, Real* work,
                            Real* to) {
  const Real *u = rows.u(h), *c = rows.c(h);
  const V decayed = vexp(vset(c[N - 1]));
  for (Dim j = 0; j < N; j += W) {
    const V e = decay_since(c, N - 1, j);
    for (Dim d = 0; d < z.dk; ++d) vstore(work + d * N + j, e * vload(rows.keys + d * N + j));
  }
  by_fours(0, z.dk, [&]<int R>(Dim d) RAPT_LAMBDA {
    for (Dim at = 0; at < z.dv; at += 2 * W) {
      const Dim n = z.dv - at, m = n - W;
      V sum[R][2];
      for (int r = 0; r < R; ++r) {
        const Dim from = (d + r) * z.dv + at;
        sum[r][0] = s0 ? decayed * vload_n(s0 + from, n) : vzero();
        sum[r][1] = s0 ? decayed * vload_n(s0 + from + W, m) : vzero();
      }
      for (Dim j = 0; j < N; ++j) {
        const V u0 = vload_n(u + j * z.dv + at, n), u1 = vload_n(u + j * z.dv + at + W, m);
        for (int r = 0; r < R; ++r) {
          const V k = vset(work[(d + r) * N + j]);
          sum[r][0] = vfma(k, u0, sum[r][0]);
          sum[r][1] = vfma(k, u1, sum[r][1]);
        }
      }
      for (int r = 0; r < R; ++r) {
        vstore_n(to + (d + r) * z.dv + at, sum[r][0], n);
        vstore_n(to + (d + r) * z.dv + at + W, sum[r][1], m);
      }
    }
  });
}

// |S| after each of rows [low, high) of the chunk, by the recurrence. `work`: [dk][dv].
void state_norms(const Sizes& z, const HeadRows& rows, Dim h, const Real* s0, Dim low, Dim high, Real* work,
                 Real* norms, Dim step) {
  const Real *u = rows.u(h), *c = rows.c(h);
  for (Dim i = 0; i < z.dk * z.dv; ++i) work[i] = s0 ? s0[i] : Real(0);
  for (Dim i = 0; i < high; ++i) {
    const V decayed = vexp(vset(i > 0 ? (c[i] - c[i - 1]) + (c[N + i] - c[N + i - 1]) : c[0]));
    V sum = vzero();
    for (Dim d = 0; d < z.dk; ++d) {
      const V k = vset(rows.keys[d * N + i]);
      for (Dim at = 0; at < z.dv; at += W) {
        const Dim n = z.dv - at;
        Real* s = work + d * z.dv + at;
        const V now = vfma(k, vload_n(u + i * z.dv + at, n), decayed * vload_n(s, n));
        vstore_n(s, now, n);
        sum = vfma(now, now, sum);
      }
    }
    if (i >= low) norms[(i - low) * step] = real_sqrt(vsum(sum));
  }
}

// The h-th value head of a key head.
RAPT_INLINE Dim value_head(const GatedDeltaShape& s, Dim key_head, Dim h) {
  return s.turns ? h * s.key_heads + key_head : key_head * (s.value_heads / s.key_heads) + h;
}

// What every chunk of a task needs: dots and products of its rows.
struct Work {
  Real *kk, *qk;  // [64][64]
  Real *ak, *aq;  // [64][dv]
  static Dim size(const Sizes& z) { return 2 * N * N + 2 * N * z.dv; }
  static Work in(Real* at, const Sizes& z) {
    return {at, at + N * N, at + 2 * N * N, at + 2 * N * N + N * z.dv};
  }
};

// Keys of rows [low, high) into the head's place, and all dots of these rows with keys up to their own.
RAPT_INLINE void take_keys(const Sizes& z, const HeadRows& rows, const Real* k, const Real* q, Dim step,
                           Dim low, Dim high, const Work& work) {
  for (Dim i = low; i < high; ++i)
    for (Dim d = 0; d < z.dk; ++d) rows.keys[d * N + i] = k[(i - low) * step + d];
  by_fours(low, high, [&]<int R>(Dim i) RAPT_LAMBDA {
    dot_rows<R>(z, rows.keys, k + (i - low) * step, q + (i - low) * step, step, i + R, work.kk + i * N,
                work.qk + i * N);
  });
}

RAPT_INLINE void take_products(const Sizes& z, const Real* s0, const Real* k, const Real* q, Dim step,
                               Dim low, Dim high, const Work& work) {
  by_fours(low, high, [&]<int R>(Dim i) RAPT_LAMBDA {
    through_state<R>(z, s0, k + (i - low) * step, q + (i - low) * step, step, work.ak + i * z.dv,
                     work.aq + i * z.dv);
  });
}

}  // namespace

// ------------------------------------------------------------------------------------------------ forward
void gated_delta(Queue& queue, const GatedDeltaArgs& a) noexcept {
  const GatedDeltaShape& shape = a.shape;
  const Sizes z{shape.key_dim, shape.value_dim, shape.value_heads / shape.key_heads};
  const Dim key_step = shape.key_heads * z.dk, value_step = shape.value_heads * z.dv,
            heads = shape.value_heads;
  const Dim state = z.dk * z.dv;
  const Dim scratch = z.head() + Work::size(z) + 2 * z.repeat * state + z.dk * N + (a.norms ? state : 0);
  const auto page = [&](Dim p, const GatedDeltaPart& part) {
    return reinterpret_cast<Real*>(a.rows + part.row_pages[p] * a.row_stride);
  };
  const auto state_page = [&](Dim p, const GatedDeltaPart& part) {
    return reinterpret_cast<Real*>(a.state_pages + part.state_pages[p] * a.state_stride);
  };
  for_tasks(queue, shape.part_count * shape.key_heads, [&](Dim task, int worker) {
    const GatedDeltaPart& part = shape.parts[task / shape.key_heads];
    const Dim key_head = task % shape.key_heads;
    Real* memory = reinterpret_cast<Real*>(scratch_of(queue, worker, size_t(scratch) * sizeof(Real)));
    if (!memory) return;
    const HeadRows spare{memory, z};
    const Work work = Work::in(memory + z.head(), z);
    Real* const states = memory + z.head() + Work::size(z);
    Real *const turned = states + 2 * z.repeat * state, *const norm_work = turned + z.dk * N;
    const Dim end = part.past + part.count;
    const Dim first_kept = a.cached ? end / N - 1 : end;  // chunks from here on are written into pages
    for (Dim p = part.past / N; p * N < end; ++p) {
      const Dim low = most(part.past, p * N) - p * N, high = least(end, (p + 1) * N) - p * N;
      const Dim row = part.first + p * N + low - part.past;  // of the pass
      HeadRows rows = spare;
      if (a.cached && (p >= first_kept || low > 0)) {
        Real* there = page(p, part) + key_head * z.head();
        if (p >= first_kept) {
          rows.keys = there;
        } else {
          for (Dim i = 0; i < z.head(); ++i) spare.keys[i] = there[i];
        }
      }
      const Real *k = static_cast<const Real*>(shape.k) + row * key_step + key_head * z.dk,
                 *q = static_cast<const Real*>(shape.q) + row * key_step + key_head * z.dk;
      take_keys(z, rows, k, q, key_step, low, high, work);
      for (Dim h = 0; h < z.repeat; ++h) {
        const Dim head = value_head(shape, key_head, h);
        Real *now = states + (2 * h + p % 2) * state, *next = states + (2 * h + (p + 1) % 2) * state;
        const Real* s0 = p == 0 ? nullptr : p > part.past / N ? now : state_page(p - 1, part) + head * state;
        if (shape.states && s0) {
          Real* to = static_cast<Real*>(shape.states) + ((part.first_chunk + p - 1) * heads + head) * state;
          for (Dim i = 0; i < state; ++i) to[i] = s0[i];
        }
        if (s0) take_products(z, s0, k, q, key_step, low, high, work);
        Real* c = rows.c(h);
        for (Dim i = low; i < high; ++i) {
          const Dim at = row + i - low;
          const Real g = static_cast<const Real*>(shape.g)[at * heads + head];
          add_decay(c, i, g);
          one_row(z, rows, h, i, work.kk + i * N, work.qk + i * N,
                  static_cast<const Real*>(shape.v) + at * value_step + head * z.dv,
                  static_cast<const Real*>(shape.beta)[at * heads + head], Real(shape.scale),
                  s0 ? work.ak + i * z.dv : nullptr, work.aq + i * z.dv,
                  static_cast<Real*>(a.o) + at * value_step + head * z.dv, nullptr);
        }
        if (a.norms)
          state_norms(z, rows, h, s0, low, high, norm_work, static_cast<Real*>(a.norms) + row * heads + head,
                      heads);
        if (high < N) continue;
        if (a.cached && p == end / N - 1) {
          Real* to = state_page(p, part) + head * state;
          move_state(z, rows, h, s0, turned, to);
          for (Dim i = 0; end > (p + 1) * N && i < state; ++i) next[i] = to[i];
        } else if (end > (p + 1) * N) {
          move_state(z, rows, h, s0, turned, next);
        }
      }
    }
  });
}

// ------------------------------------------------------------------------------------------------ backward
namespace {

RAPT_INLINE void add_scaled(Real* y, Real a, const Real* x, Dim n) {
  for (Dim i = 0; i < n; i += W)
    vstore_n(y + i, vfma(vset(a), vload_n(x + i, n - i), vload_n(y + i, n - i)), n - i);
}
RAPT_INLINE Real dot(const Real* x, const Real* y, Dim n) {
  V sum = vzero();
  for (Dim i = 0; i < n; i += W) sum = vfma(vload_n(x + i, n - i), vload_n(y + i, n - i), sum);
  return vsum(sum);
}
RAPT_INLINE Real exp_of(Real x) {
  Real lanes[W];
  vstore(lanes, vexp(vset(x)));
  return lanes[0];
}

// Pointers of one key head and value head at the first row of a chunk; steps lead to the next row.
struct BackwardRows {
  Dim n;  // rows
  const Real *k, *q, *v, *g, *beta, *dout;
  Real *dk, *dq, *dv, *dg, *dbeta;
  Dim key_step, value_step, heads;
};
struct BackwardWork {
  Real *rest, *dout, *dr;  // [64][dv]
  Real *of_q, *of_k;  // [64][64] e^{c_i-c_j} times dots of q and k with keys; then of do_i and dr_i with u_j
  Real *du, *row;  // [dv], [dk]
  Real *dc, *decayed, *to_end;  // [64]
  static Dim size(const Sizes& z) { return 3 * N * z.dv + 2 * N * N + z.dv + z.dk + 3 * N; }
  static BackwardWork in(Real* at, const Sizes& z) {
    BackwardWork w;
    w.rest = at;
    w.dout = w.rest + N * z.dv;
    w.dr = w.dout + N * z.dv;
    w.of_q = w.dr + N * z.dv;
    w.of_k = w.of_q + N * N;
    w.du = w.of_k + N * N;
    w.row = w.du + z.dv;
    w.dc = w.row + z.dk;
    w.decayed = w.dc + N;
    w.to_end = w.decayed + N;
    return w;
  }
};

// One value head of one chunk. s0: the state before it, or absent; ds: the gradient of the state after it,
// which becomes that of s0. `after`: there is one.
void chunk_backward(const Sizes& z, const BackwardRows& b, const HeadRows& rows, Dim h, const Work& forward,
                    const BackwardWork& w, Real scale, const Real* s0, Real* ds, bool after) {
  const Dim n = b.n;
  const Real *u = rows.u(h), *c = rows.c(h);
  for (Dim i = 0; i < n; ++i) {
    w.dc[i] = 0;
    w.decayed[i] = exp_of(c[i]);
    w.to_end[i] = exp_of((c[n - 1] - c[i]) + (c[N + n - 1] - c[N + i]));
    for (Dim j = 0; j <= i; ++j) {
      const Real e = exp_of((c[i] - c[j]) + (c[N + i] - c[N + j]));
      w.of_q[i * N + j] = e * forward.qk[i * N + j];
      w.of_k[i * N + j] = e * forward.kk[i * N + j];
    }
    for (Dim d = 0; d < z.dv; ++d) w.dout[i * z.dv + d] = scale * b.dout[i * b.value_step + d];
  }
  for (Dim j = n - 1; j >= 0; --j) {
    for (Dim d = 0; d < z.dv; ++d) w.du[d] = 0;
    if (after)
      for (Dim d = 0; d < z.dk; ++d)
        add_scaled(w.du, w.to_end[j] * b.k[j * b.key_step + d], ds + d * z.dv, z.dv);
    for (Dim i = j; i < n; ++i) add_scaled(w.du, w.of_q[i * N + j], w.dout + i * z.dv, z.dv);
    for (Dim i = j + 1; i < n; ++i) add_scaled(w.du, -w.of_k[i * N + j], w.dr + i * z.dv, z.dv);
    const Real beta = b.beta[j * b.heads];
    if (b.dbeta) b.dbeta[j * b.heads] += dot(w.du, w.rest + j * z.dv, z.dv);
    for (Dim d = 0; d < z.dv; ++d) w.dr[j * z.dv + d] = beta * w.du[d];
    if (b.dv) add_scaled(b.dv + j * b.value_step, Real(1), w.dr + j * z.dv, z.dv);
  }
  // Pairs of rows: their exponents, and what passes through their dots.
  for (Dim i = 0; i < n; ++i)
    for (Dim j = 0; j <= i; ++j) {
      const Real x = dot(w.dout + i * z.dv, u + j * z.dv, z.dv),
                 y = j < i ? dot(w.dr + i * z.dv, u + j * z.dv, z.dv) : Real(0);
      const Real change = x * w.of_q[i * N + j] - y * w.of_k[i * N + j],
                 e = exp_of((c[i] - c[j]) + (c[N + i] - c[N + j]));
      w.dc[i] += change;
      w.dc[j] -= change;
      if (b.dq) add_scaled(b.dq + i * b.key_step, e * x, b.k + j * b.key_step, z.dk);
      if (!b.dk) continue;
      add_scaled(b.dk + j * b.key_step, e * x, b.q + i * b.key_step, z.dk);
      if (j == i) continue;
      add_scaled(b.dk + i * b.key_step, -e * y, b.k + j * b.key_step, z.dk);
      add_scaled(b.dk + j * b.key_step, -e * y, b.k + i * b.key_step, z.dk);
    }
  // Through the state before the chunk, and into the one after it.
  for (Dim i = 0; i < n; ++i) {
    if (s0) {
      for (Dim d = 0; d < z.dk; ++d) w.row[d] = w.decayed[i] * dot(s0 + d * z.dv, w.dout + i * z.dv, z.dv);
      w.dc[i] += dot(b.q + i * b.key_step, w.row, z.dk);
      if (b.dq) add_scaled(b.dq + i * b.key_step, Real(1), w.row, z.dk);
      for (Dim d = 0; d < z.dk; ++d) w.row[d] = w.decayed[i] * dot(s0 + d * z.dv, w.dr + i * z.dv, z.dv);
      w.dc[i] -= dot(b.k + i * b.key_step, w.row, z.dk);
      if (b.dk) add_scaled(b.dk + i * b.key_step, Real(-1), w.row, z.dk);
    }
    if (!after) continue;
    for (Dim d = 0; d < z.dk; ++d) w.row[d] = w.to_end[i] * dot(ds + d * z.dv, u + i * z.dv, z.dv);
    const Real change = dot(b.k + i * b.key_step, w.row, z.dk);
    w.dc[n - 1] += change;
    w.dc[i] -= change;
    if (b.dk) add_scaled(b.dk + i * b.key_step, Real(1), w.row, z.dk);
  }
  if (after && s0) w.dc[n - 1] += w.decayed[n - 1] * dot(s0, ds, z.dk * z.dv);
  for (Dim d = 0; d < z.dk; ++d) {
    Real* to = ds + d * z.dv;
    for (Dim v = 0; v < z.dv; ++v) to[v] = after ? w.decayed[n - 1] * to[v] : Real(0);
    for (Dim i = 0; i < n; ++i) {
      add_scaled(to, w.decayed[i] * b.q[i * b.key_step + d], w.dout + i * z.dv, z.dv);
      add_scaled(to, -w.decayed[i] * b.k[i * b.key_step + d], w.dr + i * z.dv, z.dv);
    }
  }
  if (!b.dg) return;
  Real sum = 0;
  for (Dim i = n - 1; i >= 0; --i) {
    sum += w.dc[i];
    b.dg[i * b.heads] += sum;
  }
}

}  // namespace

void gated_delta_backward(Queue& queue, const GatedDeltaBackwardArgs& a) noexcept {
  const GatedDeltaShape& shape = a.shape;
  const Sizes z{shape.key_dim, shape.value_dim, shape.value_heads / shape.key_heads};
  const Dim key_step = shape.key_heads * z.dk, value_step = shape.value_heads * z.dv,
            heads = shape.value_heads;
  const Dim state = z.dk * z.dv;
  const Dim scratch = z.head() + Work::size(z) + BackwardWork::size(z) + z.repeat * state;
  for_tasks(queue, shape.part_count * shape.key_heads, [&](Dim task, int worker) {
    const GatedDeltaPart& part = shape.parts[task / shape.key_heads];
    const Dim key_head = task % shape.key_heads;
    Real* memory = reinterpret_cast<Real*>(scratch_of(queue, worker, size_t(scratch) * sizeof(Real)));
    if (!memory) return;
    const HeadRows rows{memory, z};
    const Work work = Work::in(memory + z.head(), z);
    const BackwardWork back = BackwardWork::in(memory + z.head() + Work::size(z), z);
    Real* const all_ds = memory + z.head() + Work::size(z) + BackwardWork::size(z);
    const Dim chunks = ceil_div(part.count, N);
    for (Dim p = chunks - 1; p >= 0; --p) {
      const Dim row = part.first + p * N, n = least(part.count - p * N, N),
                keys = row * key_step + key_head * z.dk;
      BackwardRows b{};
      b.n = n;
      b.key_step = key_step, b.value_step = value_step, b.heads = heads;
      const auto in = [](const void* base, Dim offset) { return static_cast<const Real*>(base) + offset; };
      const auto out = [](void* base, Dim offset) {
        return base ? static_cast<Real*>(base) + offset : nullptr;
      };
      b.k = in(shape.k, keys), b.q = in(shape.q, keys);
      b.dk = out(a.dk, keys), b.dq = out(a.dq, keys);
      take_keys(z, rows, b.k, b.q, key_step, 0, n, work);
      for (Dim h = 0; h < z.repeat; ++h) {
        const Dim head = value_head(shape, key_head, h), values = row * value_step + head * z.dv,
                  one = row * heads + head;
        b.v = in(shape.v, values), b.g = in(shape.g, one), b.beta = in(shape.beta, one);
        b.dout = in(a.dout, values);
        b.dv = out(a.dv, values), b.dg = out(a.dg, one), b.dbeta = out(a.dbeta, one);
        const Real* s0 =
            p > 0 ? in(shape.states, ((part.first_chunk + p - 1) * heads + head) * state) : nullptr;
        if (s0) take_products(z, s0, b.k, b.q, key_step, 0, n, work);
        Real* c = rows.c(h);
        for (Dim i = 0; i < n; ++i) {
          add_decay(c, i, b.g[i * heads]);
          one_row(z, rows, h, i, work.kk + i * N, work.qk + i * N, b.v + i * value_step, b.beta[i * heads],
                  Real(1), s0 ? work.ak + i * z.dv : nullptr, work.aq + i * z.dv, nullptr,
                  back.rest + i * z.dv);
        }
        chunk_backward(z, b, rows, h, work, back, Real(shape.scale), s0, all_ds + h * state, p + 1 < chunks);
      }
    }
  });
}

}  // namespace rapt::RAPT_ISA
