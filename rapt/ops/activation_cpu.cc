// SPDX-License-Identifier: Apache-2.0
// apply() gives value and slope of a function in forms that keep digits in the tails; glu and gate use it.
#include "rapt/ops/activation.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

constexpr Dim kPiece = 8192;  // elements per task; a multiple of every W

struct Pair {
  V s, rest;  // sigmoid(x) and 1 - sigmoid(x), each to its own last digits
};
RAPT_INLINE Pair sigmoids(V x) {
  const V e = vexp2(vabs(x) * vset(-kLog2e)), big = vset(Real(1)) / (vset(Real(1)) + e), small = e * big;
  const M negative = vlt(x, vzero());
  return {vselect(negative, small, big), vselect(negative, big, small)};
}

// Phi(-a), the normal distribution's tail, for a >= 0 and e = exp(-a^2 / 2). 1 + erf would have no digits
// left out there.
RAPT_INLINE V normal_tail(V a, V e) {
#if RAPT_IS(f64)
  (void)e;
  return 0.5 * erfc(a * 0.70710678118654752440);
#else
  // Phi(-a) / e is smooth in t: within 4e-8 on 0 <= a <= 13.3, then e is 0
  const V t = vset(1.0f) / vfma(a, vset(0.35f), vset(1.0f));
  V p = vset(-0.0291151126f);
  p = vfma(p, t, vset(0.143818876f));
  p = vfma(p, t, vset(-0.25539193f));
  p = vfma(p, t, vset(0.15879757f));
  p = vfma(p, t, vset(-0.0228440855f));
  p = vfma(p, t, vset(0.105392409f));
  p = vfma(p, t, vset(0.119863027f));
  p = vfma(p, t, vset(0.13985757f));
  p = vfma(p, t, vset(0.13962166f));
  return p * t * e;
#endif
}

struct Value {
  V y, slope;
};
// act(x) and its derivative. Inlined, so that whoever uses one of them pays for one. c: cap, factor, or the
// slope inside silu.
template <Act kAct>
RAPT_INLINE Value apply(V x, V c) {
  const V one = vset(Real(1)), half = vset(Real(0.5));
  if constexpr (kAct == Act::relu || kAct == Act::relu2) {
    const V r = vmax(vzero(), x);
    if constexpr (kAct == Act::relu2) return {r * r, r + r};
    else return {r, vselect(vlt(vzero(), x), one, vzero())};
  } else if constexpr (kAct == Act::gelu) {
    const V e = vexp2(x * x * vset(Real(-0.5) * kLog2e)), tail = normal_tail(vabs(x), e);
    const V cdf = vselect(vlt(x, vzero()), tail, one - tail);
    return {x * cdf, vfma(x * e, vset(Real(0.39894228040143267794)), cdf)};
  } else if constexpr (kAct == Act::gelu_tanh) {
    // 0.5 (1 + tanh(u)) = sigmoid(2u), which keeps its digits where tanh(u) is near -1.
    constexpr Real k = Real(2 * 0.79788456080286535588);
    const V z = x * x;
    const Pair p = sigmoids(x * vfma(z, vset(k * Real(0.044715)), vset(k)));
    return {x * p.s, vfma(x * vfma(z, vset(k * Real(3 * 0.044715)), vset(k)), p.s * p.rest, p.s)};
  } else if constexpr (kAct == Act::silu) {
    const Pair p = sigmoids(c * x);
    return {x * p.s, vfma(c * x, p.s * p.rest, p.s)};
  } else if constexpr (kAct == Act::sigmoid) {
    const Pair p = sigmoids(x);
    return {p.s, p.s * p.rest};
  } else if constexpr (kAct == Act::ns_sigmoid) {
    const Pair p = sigmoids(x);
    return {vfma(half, p.s, half), half * p.s * p.rest};
  } else if constexpr (kAct == Act::softplus) {
    return {vmax(vzero(), x) + vlog1p(vexp2(vabs(x) * vset(-kLog2e))), sigmoids(x).s};
  } else if constexpr (kAct == Act::softcap) {
    const Pair p = sigmoids((x + x) / c);  // tanh' = 4 s (1 - s) at 2x; 1 - tanh^2 would lose its digits
    return {c * vtanh(x / c), vset(Real(4)) * p.s * p.rest};
  } else if constexpr (kAct == Act::clip) {
    return {vmin(c, vmax(vzero() - c, x)), vselect(vle(vabs(x), c), one, vzero())};
  } else {
    static_assert(kAct == Act::scale);
    return {c * x, c};
  }
}

// f.operator()<act>(c) for an act of run time. quick_gelu is a silu with slope 1.702, tanh a softcap with
// cap 1 (same bits: x / 1, 1 * y).
template <class F>
RAPT_INLINE void with_act(Act act, double c, const F& f) {
  switch (act) {
    case Act::relu: return f.template operator()<Act::relu>(vset(1));
    case Act::relu2: return f.template operator()<Act::relu2>(vset(1));
    case Act::gelu: return f.template operator()<Act::gelu>(vset(1));
    case Act::gelu_tanh: return f.template operator()<Act::gelu_tanh>(vset(1));
    case Act::silu: return f.template operator()<Act::silu>(vset(Real(c)));
    case Act::quick_gelu: return f.template operator()<Act::silu>(vset(Real(1.702)));
    case Act::sigmoid: return f.template operator()<Act::sigmoid>(vset(1));
    case Act::ns_sigmoid: return f.template operator()<Act::ns_sigmoid>(vset(1));
    case Act::softplus: return f.template operator()<Act::softplus>(vset(1));
    case Act::tanh: return f.template operator()<Act::softcap>(vset(1));
    case Act::softcap: return f.template operator()<Act::softcap>(vset(Real(c)));
    case Act::scale: return f.template operator()<Act::scale>(vset(Real(c)));
    case Act::clip: return f.template operator()<Act::clip>(vset(Real(c)));
  }
}
double own_c(Act act, double c) { return act == Act::silu ? 1 : c; }  // silu takes a slope only inside glu

}  // namespace

void activation(Queue& queue, const ActivationArgs& a) noexcept {
  for_ranges(queue, a.elements, kPiece, [&](Dim begin, Dim end, int) {
    with_act(a.act, own_c(a.act, a.c), [&]<Act kAct>(V c) {
      const Real* x = static_cast<const Real*>(a.x);
      Real* y = static_cast<Real*>(a.y);
      for (Dim i = begin; i < end; i += W)
        vstore_n(y + i, apply<kAct>(vload_n(x + i, end - i), c).y, end - i);
    });
  });
}

void activation_backward(Queue& queue, const ActivationBackwardArgs& a) noexcept {
  if (!a.dx) return;
  for_ranges(queue, a.elements, kPiece, [&](Dim begin, Dim end, int) {
    with_act(a.act, own_c(a.act, a.c), [&]<Act kAct>(V c) {
      const Real *x = static_cast<const Real*>(a.x), *dy = static_cast<const Real*>(a.dy);
      Real* dx = static_cast<Real*>(a.dx);
      for (Dim i = begin; i < end; i += W) {
        const Dim n = end - i;
        const V before = a.write_dx ? vzero() : vload_n(dx + i, n);
        vstore_n(dx + i, vfma(vload_n(dy + i, n), apply<kAct>(vload_n(x + i, n), c).slope, before), n);
      }
    });
  });
}

// ------------------------------------------------------------------------------------------------ glu
namespace {

struct GluInput {
  V gate, up;
  M gate_free, up_free;  // not held by the clamp
};
RAPT_INLINE GluInput clamped(V gate, V up, double clamp) {
  if (clamp <= 0) return {gate, up, veq(vzero(), vzero()), veq(vzero(), vzero())};
  const V c = vset(Real(clamp));
  return {vmin(c, gate), vmin(c, vmax(vzero() - c, up)), vle(gate, c), vle(vabs(up), c)};
}

}  // namespace

void glu(Queue& queue, const GluArgs& a) noexcept {
  for_ranges(queue, a.elements, kPiece, [&](Dim begin, Dim end, int) {
    with_act(a.spec.act, a.spec.alpha, [&]<Act kAct>(V c) {
      const Real *gate = static_cast<const Real*>(a.gate), *up = static_cast<const Real*>(a.up);
      Real* y = static_cast<Real*>(a.y);
      const V offset = vset(Real(a.spec.up_offset));
      for (Dim i = begin; i < end; i += W) {
        const GluInput in = clamped(vload_n(gate + i, end - i), vload_n(up + i, end - i), a.spec.clamp);
        vstore_n(y + i, apply<kAct>(in.gate, c).y * (in.up + offset), end - i);
      }
    });
  });
}

void glu_backward(Queue& queue, const GluBackwardArgs& a) noexcept {
  for_ranges(queue, a.elements, kPiece, [&](Dim begin, Dim end, int) {
    with_act(a.spec.act, a.spec.alpha, [&]<Act kAct>(V c) {
      const Real *gate = static_cast<const Real*>(a.gate), *up = static_cast<const Real*>(a.up),
                 *all_dy = static_cast<const Real*>(a.dy);
      Real *dgate = static_cast<Real*>(a.dgate), *dup = static_cast<Real*>(a.dup);
      const V offset = vset(Real(a.spec.up_offset));
      for (Dim i = begin; i < end; i += W) {
        const Dim n = end - i;
        const GluInput in = clamped(vload_n(gate + i, n), vload_n(up + i, n), a.spec.clamp);
        const Value v = apply<kAct>(in.gate, c);
        const V dy = vload_n(all_dy + i, n);
        if (dgate)
          vstore_n(dgate + i,
                   vload_n(dgate + i, n) + vselect(in.gate_free, dy * (in.up + offset) * v.slope, vzero()),
                   n);
        if (dup) vstore_n(dup + i, vload_n(dup + i, n) + vselect(in.up_free, dy * v.y, vzero()), n);
      }
    });
  });
}

// ------------------------------------------------------------------------------------------------ gate
namespace {

RAPT_INLINE Real first_lane(V v) {
  Real lanes[W];
  vstore(lanes, v);
  return lanes[0];
}

// How g lies over a row of x: `count` stretches of `length` elements, stretch k reading g from k * step on;
// one number for all of a stretch (head) or one per element.
struct Layout {
  Dim count, length, step, width;
  bool per_element;
};
RAPT_INLINE Layout layout_of(const GateSpec& spec, Dim heads, Dim d) {
  const bool element = spec.grain == GateGrain::element;
  if (!spec.shared && element) return {1, heads * d, 0, heads * d, true};
  if (element) return {heads, d, 0, d, true};
  if (!spec.shared) return {heads, d, 1, heads, false};
  return {1, heads * d, 0, 1, false};
}

// One row: to = x * act(g) or x + act(g); backward (kBackward): to += dy * act(g) or dy, where x stands
// for dy.
template <Act kAct, bool kBackward>
RAPT_INLINE void gate_row(const Layout& l, bool add, const Real* x, const Real* g, Real* to, V c) {
  for (Dim k = 0; k < l.count; ++k) {
    const Dim at = k * l.length;
    const V shared = l.per_element ? vzero() : apply<kAct>(vset(g[k * l.step]), c).y;
    for (Dim i = 0; i < l.length; i += W) {
      const Dim n = l.length - i;
      const V in = vload_n(x + at + i, n), a = l.per_element ? apply<kAct>(vload_n(g + i, n), c).y : shared;
      if constexpr (kBackward)
        vstore_n(to + at + i, add ? vload_n(to + at + i, n) + in : vfma(in, a, vload_n(to + at + i, n)), n);
      else vstore_n(to + at + i, add ? in + a : in * a, n);
    }
  }
}

// dg[j] += act'(g[j]) * sum over rows [r0, r1), in order, of the elements under g[j], for j in [j0, j1).
template <Act kAct>
RAPT_INLINE void gate_sums(const GateBackwardArgs& a, const Layout& l, Dim r0, Dim r1, Dim j0, Dim j1,
                           const Real* g, Real* dg, V c) {
  const Real *x = static_cast<const Real*>(a.x), *dy = static_cast<const Real*>(a.dy);
  const Dim row = a.heads * a.d;
  if (l.per_element) {
    for (Dim j = j0; j < j1; j += W) {
      const Dim n = j1 - j;
      V sum = vzero();
      for (Dim r = r0; r < r1; ++r)
        for (Dim k = 0; k < l.count; ++k) {
          const Dim at = r * row + k * l.length + j;
          sum = a.spec.add ? sum + vload_n(dy + at, n) : vfma(vload_n(dy + at, n), vload_n(x + at, n), sum);
        }
      vstore_n(dg + j, vfma(apply<kAct>(vload_n(g + j, n), c).slope, sum, vload_n(dg + j, n)), n);
    }
    return;
  }
  for (Dim j = j0; j < j1; ++j) {
    double sum = 0;
    for (Dim r = r0; r < r1; ++r) {
      const Dim at = r * row + j * l.length;
      V part[2] = {vzero(), vzero()};
      int p = 0;
      for (Dim i = 0; i < l.length; i += W, p ^= 1) {
        const Dim n = l.length - i;
        part[p] = a.spec.add ? part[p] + vload_n(dy + at + i, n)
                             : vfma(vload_n(dy + at + i, n), vload_n(x + at + i, n), part[p]);
      }
      sum += double(vsum(part[0] + part[1]));
    }
    dg[j] += first_lane(apply<kAct>(vset(g[j]), c).slope) * Real(sum);
  }
}

}  // namespace

void gate(Queue& queue, const GateArgs& a) noexcept {
  const Layout l = layout_of(a.spec, a.heads, a.d);
  const Dim row = a.heads * a.d;
  for_ranges(queue, a.rows, row_grain(row), [&](Dim begin, Dim end, int) {
    with_act(a.spec.act, 1, [&]<Act kAct>(V c) {
      for (Dim r = begin; r < end; ++r)
        gate_row<kAct, false>(l, a.spec.add, static_cast<const Real*>(a.x) + r * row,
                              static_cast<const Real*>(a.g) + (a.constant ? 0 : r * l.width),
                              static_cast<Real*>(a.y) + r * row, c);
    });
  });
}

void gate_backward(Queue& queue, const GateBackwardArgs& a) noexcept {
  const Layout l = layout_of(a.spec, a.heads, a.d);
  const Dim row = a.heads * a.d;
  const Real* g = static_cast<const Real*>(a.g);
  Real* dg = static_cast<Real*>(a.dg);
  if (a.dx)
    for_ranges(queue, a.rows, row_grain(row), [&](Dim begin, Dim end, int) {
      with_act(a.spec.act, 1, [&]<Act kAct>(V c) {
        for (Dim r = begin; r < end; ++r)
          gate_row<kAct, true>(l, a.spec.add, static_cast<const Real*>(a.dy) + r * row,
                               g + (a.constant ? 0 : r * l.width), static_cast<Real*>(a.dx) + r * row, c);
      });
    });
  if (!dg) return;
  if (a.constant)  // threads split g; each sum runs over all rows in order
    for_ranges(queue, l.width, l.per_element ? 4 * W : 1, [&](Dim begin, Dim end, int) {
      with_act(a.spec.act, 1, [&]<Act kAct>(V c) { gate_sums<kAct>(a, l, 0, a.rows, begin, end, g, dg, c); });
    });
  else
    for_ranges(queue, a.rows, row_grain(row), [&](Dim begin, Dim end, int) {
      with_act(a.spec.act, 1, [&]<Act kAct>(V c) {
        for (Dim r = begin; r < end; ++r)
          gate_sums<kAct>(a, l, r, r + 1, 0, l.width, g + r * l.width, dg + r * l.width, c);
      });
    });
}

}  // namespace rapt::RAPT_ISA
