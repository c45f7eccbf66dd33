// SPDX-License-Identifier: Apache-2.0
// Channels stand in the lanes, keys come one after the other. A task owns rows, and with them the gradients
// of their keys.
#include "rapt/ops/align.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

RAPT_INLINE void add_to(Real* to, V x, Dim n) { vstore_n(to, vload_n(to, n) + x, n); }

// Two chains of sums: the latency of one would be waited for.
RAPT_INLINE Real dot(const Real* a, const Real* b, Dim n) {
  V sum[2] = {vzero(), vzero()};
  int i = 0;
  for (Dim c = 0; c < n; c += W, i ^= 1) sum[i] = vfma(vload_n(a + c, n - c), vload_n(b + c, n - c), sum[i]);
  return vsum(sum[0] + sum[1]);
}

RAPT_INLINE Real additive(const Real* w, const Real* q, const Real* k, Dim n) {
  V sum[2] = {vzero(), vzero()};
  int i = 0;
  for (Dim c = 0; c < n; c += W, i ^= 1)
    sum[i] = vfma(vload_n(w + c, n - c), vtanh(vload_n(q + c, n - c) + vload_n(k + c, n - c)), sum[i]);
  return vsum(sum[0] + sum[1]);
}

// exp(-(j - p)^2 / (2 sigma^2)) of W keys from j on
RAPT_INLINE V gaussian(Dim j, Real p, Real sigma) {
  const V x = viota() + vset(Real(j) - p);
  return vexp(x * x * vset(Real(-1) / (2 * sigma * sigma)));
}

struct Window {
  Dim low, high;
};
// The keys within `reach` of p.
RAPT_INLINE Window around(const AlignRow& r, Real p, Real reach) {
  Dim low = Dim(p - reach), high = Dim(p + reach) + 1;
  if (Real(low) < p - reach) ++low;
  return {most(low, r.low), least(high, r.high)};
}

}  // namespace

void align(Queue& queue, const AlignArgs& a) noexcept {
  for_ranges(queue, a.rows, row_grain(a.longest * (a.d + a.m) / 8), [&](Dim begin, Dim end, int) {
    for (Dim b = begin; b < end; ++b) {
      const AlignRow& r = a.row[b];
      const Real *q = static_cast<const Real*>(a.q) + b * a.d, *k = static_cast<const Real*>(r.k),
                 *v = static_cast<const Real*>(r.v);
      Real *s = static_cast<Real*>(a.weights) + b * a.longest,
           *context = static_cast<Real*>(a.context) + b * a.m;
      for (Dim j = 0; j < a.longest; ++j) s[j] = 0;
      for (Dim c = 0; c < a.m; c += W) vstore_n(context + c, vzero(), a.m - c);
      static_cast<Real*>(a.max_score)[b] = 0;
      Window w{r.low, r.high};
      Real p = 0;
      if (a.place) {
        Real lanes[16];
        vstore(lanes, vsigmoid(vset(static_cast<const Real*>(a.place)[b])));
        p = Real(r.count) * lanes[0];
        static_cast<Real*>(a.at)[b] = p;
        w = around(r, p, Real(a.spec.reach));
        Real* soft = static_cast<Real*>(a.soft) + b * a.longest;
        for (Dim j = 0; j < a.longest; ++j) soft[j] = 0;
      }
      if (w.low >= w.high) continue;

      Real largest = -INFINITY;
      for (Dim j = w.low; j < w.high; ++j) {
        s[j] = a.spec.additive ? additive(static_cast<const Real*>(a.score), q, k + j * a.d, a.d)
                               : dot(q, k + j * a.d, a.d);
        if (!(s[j] <= largest)) largest = s[j];  // a NaN is kept
      }
      static_cast<Real*>(a.max_score)[b] = largest;
      V sums = vzero();
      for (Dim j = w.low; j < w.high; j += W) {
        const Dim n = w.high - j;
        const V e = vselect_n(n, vexp(vload_n(s + j, n) - vset(largest)), vzero());
        vstore_n(s + j, e, n);
        sums = sums + e;
      }
      const V whole = vset(Real(1) / vsum(sums));
      for (Dim j = w.low; j < w.high; j += W) vstore_n(s + j, vload_n(s + j, w.high - j) * whole, w.high - j);
      if (a.place) {
        Real* soft = static_cast<Real*>(a.soft) + b * a.longest;
        for (Dim j = w.low; j < w.high; j += W) {
          const V x = vload_n(s + j, w.high - j);
          vstore_n(soft + j, x, w.high - j);
          vstore_n(s + j, x * gaussian(j, p, Real(a.spec.reach) / 2), w.high - j);
        }
      }
      for (Dim c = 0; c < a.m; c += W) {
        V sum = vzero();
        for (Dim j = w.low; j < w.high; ++j) sum = vfma(vset(s[j]), vload_n(v + j * a.m + c, a.m - c), sum);
        vstore_n(context + c, sum, a.m - c);
      }
    }
  });
}

void align_backward(Queue& queue, const AlignBackwardArgs& a) noexcept {
  Real* dscores = static_cast<Real*>(a.work);  // [rows,d]: a row's part of dscore
  for_ranges(queue, a.rows, row_grain(a.longest * (a.d + a.m) / 8), [&](Dim begin, Dim end, int) {
    for (Dim b = begin; b < end; ++b) {
      const AlignRow& r = a.row[b];
      const Real *q = static_cast<const Real*>(a.q) + b * a.d, *k = static_cast<const Real*>(r.k),
                 *v = static_cast<const Real*>(r.v);
      const Real *weights = static_cast<const Real*>(a.weights) + b * a.longest,
                 *dc = static_cast<const Real*>(a.dcontext) + b * a.m;
      const Real* s = a.soft ? static_cast<const Real*>(a.soft) + b * a.longest : weights;
      Real *dz = static_cast<Real*>(a.work) + a.rows * a.d + b * 2 * a.longest, *gauss = dz + a.longest;
      for (Dim c = 0; c < a.d; c += W) vstore_n(dscores + b * a.d + c, vzero(), a.d - c);
      Window w{r.low, r.high};
      Real p = 0;
      if (a.at) {
        p = static_cast<const Real*>(a.at)[b];
        w = around(r, p, Real(a.spec.reach));
      }
      if (w.low >= w.high) continue;

      const Real sigma = Real(a.spec.reach) / 2;
      if (a.at)
        for (Dim j = w.low; j < w.high; j += W) vstore_n(gauss + j, gaussian(j, p, sigma), w.high - j);
      Real mean = 0, dp = 0;
      for (Dim j = w.low; j < w.high; ++j) {
        Real dw = dot(dc, v + j * a.m, a.m);
        if (a.at) {
          dp += dw * weights[j] * (Real(j) - p) / (sigma * sigma);
          dw *= gauss[j];
        }
        dz[j] = dw;
        mean += s[j] * dw;
      }
      for (Dim j = w.low; j < w.high; ++j) dz[j] = s[j] * (dz[j] - mean);
      if (a.dplace) static_cast<Real*>(a.dplace)[b] += dp * p * (1 - p / Real(r.count));
      if (a.dv) {
        Real* dv = static_cast<Real*>(a.dv) + r.first * a.m;
        for (Dim j = w.low; j < w.high; ++j)
          for (Dim c = 0; c < a.m; c += W)
            vstore_n(dv + j * a.m + c,
                     vfma(vset(weights[j]), vload_n(dc + c, a.m - c), vload_n(dv + j * a.m + c, a.m - c)),
                     a.m - c);
      }
      Real *dq = a.dq ? static_cast<Real*>(a.dq) + b * a.d : nullptr,
           *dk = a.dk ? static_cast<Real*>(a.dk) + r.first * a.d : nullptr;
      for (Dim c = 0; c < a.d; c += W) {
        const Dim n = a.d - c;
        const V x = vload_n(q + c, n);
        V to_q = vzero(), to_score = vzero();
        for (Dim j = w.low; j < w.high; ++j) {
          const V key = vload_n(k + j * a.d + c, n), z = vset(dz[j]);
          if (a.spec.additive) {
            const V t = vtanh(x + key),
                    e = z * vload_n(static_cast<const Real*>(a.score) + c, n) * (vset(Real(1)) - t * t);
            to_score = vfma(z, t, to_score);
            to_q = to_q + e;
            if (dk) add_to(dk + j * a.d + c, e, n);
          } else {
            to_q = vfma(z, key, to_q);
            if (dk) vstore_n(dk + j * a.d + c, vfma(z, x, vload_n(dk + j * a.d + c, n)), n);
          }
        }
        if (dq) add_to(dq + c, to_q, n);
        vstore_n(dscores + b * a.d + c, to_score, n);
      }
    }
  });
  if (!a.dscore || !a.spec.additive) return;
  for_ranges(queue, a.d, 256, [&](Dim begin, Dim end, int) {
    Real* to = static_cast<Real*>(a.dscore);
    for (Dim b = 0; b < a.rows; ++b)
      for (Dim c = begin; c < end; c += W) add_to(to + c, vload_n(dscores + b * a.d + c, end - c), end - c);
  });
}

}  // namespace rapt::RAPT_ISA
