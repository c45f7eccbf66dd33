// SPDX-License-Identifier: Apache-2.0
// All of these read and write each number once, so memory sets their pace: what counts is one pass, and one
// region for all weights (a small model has fifty, and a region costs some microseconds).
#include "rapt/ops/optimize.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

// f(part, begin, end, task) for every piece of every part.
template <class F>
void for_pieces(Queue& queue, const OptimizeParts& all, const F& f) {
  for_tasks(queue, all.tasks, [&](Dim task, int) {
    Dim low = 0, high = all.count;  // the last part that begins at or before this task
    while (high - low > 1) {
      const Dim middle = (low + high) / 2;
      (all.parts[middle].tasks <= task ? low : high) = middle;
    }
    const OptimizePart& p = all.parts[low];
    const Dim begin = (task - p.tasks) * kOptimizePiece;
    f(p, begin, least(p.elements, begin + kOptimizePiece), task);
  });
}

// f(load, store, i) for the vectors of [begin, end): whole ones, then what is left.
template <class F>
RAPT_INLINE void for_vectors(Dim begin, Dim end, const F& f) {
  Dim i = begin;
  for (; i + W <= end; i += W)
    f([](const Real* p) RAPT_LAMBDA { return vload(p); }, [](Real* p, V x) RAPT_LAMBDA { vstore(p, x); }, i);
  const Dim n = end - i;
  if (n > 0)
    f([n](const Real* p) RAPT_LAMBDA { return vload_n(p, n); },
      [n](Real* p, V x) RAPT_LAMBDA { vstore_n(p, x, n); }, i);
}

template <bool kL2>
void adamw_piece(const AdamWArgs& a, const OptimizePart& p, Dim begin, Dim end) {
  Real *weight = static_cast<Real*>(p.weight), *mean = static_cast<Real*>(p.first),
       *variance = static_cast<Real*>(p.second);
  const Real* gradient = static_cast<const Real*>(p.gradient);
  const V b1 = vset(Real(a.beta1)), b2 = vset(Real(a.beta2)), rest1 = vset(Real(1 - a.beta1)),
          rest2 = vset(Real(1 - a.beta2));
  const V scale = vset(Real(a.gradient_scale)), decay = vset(Real(kL2 ? p.decay : 1 - a.rate * p.decay)),
          eps = vset(Real(a.eps));
  const V step = vset(Real(a.rate / a.correction1)), shrink = vset(Real(1 / sqrt(a.correction2)));
  for_vectors(begin, end, [&](auto load, auto store, Dim i) RAPT_LAMBDA {
    const V w = load(weight + i);
    V g = load(gradient + i) * scale;
    if (kL2) g = vfma(decay, w, g);
    const V m = vfma(b1, load(mean + i), rest1 * g), v = vfma(b2, load(variance + i), rest2 * g * g);
    store(mean + i, m);
    store(variance + i, v);
    store(weight + i, (kL2 ? w : w * decay) - step * m / vfma(vsqrt(v), shrink, eps));
  });
}

// kMomentum 0: none, 1: plain, 2: Nesterov's
template <int kMomentum>
void sgd_piece(const SgdArgs& a, const OptimizePart& p, Dim begin, Dim end) {
  Real *weight = static_cast<Real*>(p.weight), *momentum = static_cast<Real*>(p.first);
  const Real* gradient = static_cast<const Real*>(p.gradient);
  const V scale = vset(Real(a.gradient_scale)), decay = vset(Real(p.decay)), mu = vset(Real(a.momentum)),
          back = vset(Real(-a.rate));
  for_vectors(begin, end, [&](auto load, auto store, Dim i) RAPT_LAMBDA {
    const V w = load(weight + i), g = vfma(decay, w, load(gradient + i) * scale);
    V d = g;
    if (kMomentum) {
      const V b = vfma(mu, load(momentum + i), g);
      store(momentum + i, b);
      d = kMomentum == 2 ? vfma(mu, b, g) : b;
    }
    store(weight + i, vfma(back, d, w));
  });
}

constexpr int kLanes = 32;

double sum_piece(const Real* g, Dim n) {
  double lane[kLanes] = {};
  Dim i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lane[l] += double(g[i + l]) * double(g[i + l]);
  for (int l = 0; i + l < n; ++l) lane[l] += double(g[i + l]) * double(g[i + l]);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

}  // namespace

void adamw(Queue& queue, const AdamWArgs& a) noexcept {
  for_pieces(queue, a.all, [&](const OptimizePart& p, Dim begin, Dim end, Dim) {
    if (a.l2) adamw_piece<true>(a, p, begin, end);
    else adamw_piece<false>(a, p, begin, end);
  });
}

void sgd(Queue& queue, const SgdArgs& a) noexcept {
  for_pieces(queue, a.all, [&](const OptimizePart& p, Dim begin, Dim end, Dim) {
    if (!p.first) sgd_piece<0>(a, p, begin, end);
    else if (a.nesterov) sgd_piece<2>(a, p, begin, end);
    else sgd_piece<1>(a, p, begin, end);
  });
}

void ema(Queue& queue, const EmaArgs& a) noexcept {
  for_pieces(queue, a.all, [&](const OptimizePart& p, Dim begin, Dim end, Dim) {
    const Real* weight = static_cast<const Real*>(p.weight);
    Real* average = static_cast<Real*>(p.first);
    const V rest = vset(Real(1 - a.factor));
    for_vectors(begin, end, [&](auto load, auto store, Dim i) RAPT_LAMBDA {
      const V old = load(average + i);
      store(average + i, vfma(rest, load(weight + i) - old, old));
    });
  });
}

void sum_squares(Queue& queue, const SumSquaresArgs& a) noexcept {
  for_pieces(queue, a.all, [&](const OptimizePart& p, Dim begin, Dim end, Dim task) {
    a.sums[task] = sum_piece(static_cast<const Real*>(p.gradient) + begin, end - begin);
  });
}

}  // namespace rapt::RAPT_ISA
