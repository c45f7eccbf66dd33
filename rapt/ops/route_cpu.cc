// SPDX-License-Identifier: Apache-2.0
// Scores and choice row by row, then one pass over the slots sorts them by expert. Sums over experts run in
// vector lanes, those over a row's slots in their order.
#include "rapt/ops/route.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

RAPT_INLINE Real infinity() { return Real(__builtin_inf()); }

// p = softmax(z); n numbers.
void softmax(const Real* z, Dim n, Real* p) {
  Real top = z[0];
  for (Dim i = 1; i < n; ++i) top = z[i] > top ? z[i] : top;
  V sum = vzero();
  for (Dim i = 0; i < n; i += W) {
    const V e = vselect_n(n - i, vexp(vload_n(z + i, n - i) - vset(top)), vzero());
    vstore_n(p + i, e, n - i);
    sum = sum + e;
  }
  const V inverse = vset(Real(1) / vsum(sum));
  for (Dim i = 0; i < n; i += W) vstore_n(p + i, vload_n(p + i, n - i) * inverse, n - i);
}

void scores(const RouteSpec& spec, const Real* z, Real* s) {
  if (spec.score == RouteSpec::Score::softmax) return softmax(z, spec.experts, s);
  for (Dim i = 0; i < spec.experts; i += W)
    vstore_n(s + i, vsigmoid(vload_n(z + i, spec.experts - i)), spec.experts - i);
}

// The `used` largest of n numbers, in ascending order of their index. Of equals the first wins; a NaN is
// smaller than all that came before it.
void choose(const Real* v, Dim n, Dim used, int32_t* out) {
  Dim have = 0;
  for (Dim i = 0; i < n; ++i) {
    Dim at = have;
    while (at > 0 && v[i] > v[out[at - 1]]) --at;
    if (at == used) continue;
    have = least(have + 1, used);
    for (Dim j = have - 1; j > at; --j) out[j] = out[j - 1];
    out[at] = int32_t(i);
  }
  for (Dim i = 1; i < used; ++i) {
    const int32_t x = out[i];
    Dim at = i;
    for (; at > 0 && out[at - 1] > x; --at) out[at] = out[at - 1];
    out[at] = x;
  }
}

// v: what experts are chosen by; those outside of the best groups lose. `of`, `which`: room for the groups.
void keep_groups(const RouteSpec& spec, Real* v, Real* of, int32_t* which) {
  const Dim size = spec.experts / spec.groups;
  const bool top2 = spec.group_score == RouteSpec::GroupScore::top2;
  for (Dim g = 0; g < spec.groups; ++g) {
    Real best = -infinity(), next = -infinity();
    for (Dim i = g * size; i < (g + 1) * size; ++i) {
      if (v[i] > best) next = best, best = v[i];
      else if (v[i] > next) next = v[i];
    }
    of[g] = top2 ? best + next : best;
  }
  choose(of, spec.groups, spec.groups_used, which);
  Dim at = 0;
  for (Dim g = 0; g < spec.groups; ++g) {
    if (at < spec.groups_used && which[at] == g) {
      ++at;
      continue;
    }
    for (Dim i = g * size; i < (g + 1) * size; ++i) v[i] = top2 ? -infinity() : Real(0);
  }
}

// The divisor of renormalised weights, and whether it moves with their sum.
struct Divisor {
  Real value;
  bool moves;
};
RAPT_INLINE Divisor divisor(const RouteSpec& spec, Real sum) {
  if (!spec.renormalise) return {1, false};
  if (!spec.eps_least) return {sum + Real(spec.eps), true};
  return sum > Real(spec.eps) ? Divisor{sum, true} : Divisor{Real(spec.eps), false};
}

// Room of a worker: three rows of experts and the groups.
struct Room {
  Real *s, *v, *groups;
  int32_t* which;
};
RAPT_INLINE bool room_of(Queue& queue, int worker, const RouteSpec& spec, Room& room) {
  const Dim n = spec.experts + W;
  std::byte* data =
      scratch_of(queue, worker, size_t(3 * n) * sizeof(Real) + size_t(spec.groups) * sizeof(int32_t));
  if (!data) return false;
  room.s = reinterpret_cast<Real*>(data);
  room.v = room.s + n;
  room.groups = room.v + n;
  room.which = reinterpret_cast<int32_t*>(room.groups + n);
  return true;
}

void route_row(const RouteSpec& spec, const Real* z, const Real* choice, const Room& room, Real* weights,
               int32_t* chosen) {
  const bool over_chosen = spec.score == RouteSpec::Score::chosen;
  if (!over_chosen) scores(spec, z, room.s);
  if (choice || spec.groups > 1) {
    const Real* from = over_chosen ? z : room.s;
    for (Dim i = 0; i < spec.experts; ++i) room.v[i] = from[i] + (choice ? choice[i] : Real(0));
    if (spec.groups > 1) keep_groups(spec, room.v, room.groups, room.which);
    choose(room.v, spec.experts, spec.used, chosen);
  } else {
    choose(z, spec.experts, spec.used, chosen);
  }
  if (over_chosen) {
    for (Dim j = 0; j < spec.used; ++j) room.v[j] = z[chosen[j]];
    softmax(room.v, spec.used, room.s);
    for (Dim j = 0; j < spec.used; ++j) weights[j] = room.s[j] * Real(spec.scale);
    return;
  }
  Real sum = 0;
  for (Dim j = 0; j < spec.used; ++j) sum += room.s[chosen[j]];
  const Real by = divisor(spec, sum).value;
  for (Dim j = 0; j < spec.used; ++j) weights[j] = room.s[chosen[j]] / by * Real(spec.scale);
}

// dz of a row += that of softmax: p (dp - sum of p dp); p, dp: [experts].
void softmax_gradient(const Real* p, const Real* dp, Dim n, Real* dz) {
  V sum = vzero();
  for (Dim i = 0; i < n; i += W) sum = vfma(vload_n(p + i, n - i), vload_n(dp + i, n - i), sum);
  const V mean = vset(vsum(sum));
  for (Dim i = 0; i < n; i += W)
    vstore_n(dz + i, vfma(vload_n(p + i, n - i), vload_n(dp + i, n - i) - mean, vload_n(dz + i, n - i)),
             n - i);
}

void route_row_backward(const RouteSpec& spec, const Real* z, const int32_t* chosen, const Real* dw,
                        const Room& room, Real* dz) {
  const Dim used = spec.used;
  const Real scale = Real(spec.scale);
  if (spec.score == RouteSpec::Score::chosen) {
    for (Dim j = 0; j < used; ++j) room.v[j] = z[chosen[j]];
    softmax(room.v, used, room.s);
    Real mean = 0;
    for (Dim j = 0; j < used; ++j) mean += room.s[j] * dw[j];
    for (Dim j = 0; j < used; ++j) dz[chosen[j]] += scale * room.s[j] * (dw[j] - mean);
    return;
  }
  scores(spec, z, room.s);
  Real sum = 0;
  for (Dim j = 0; j < used; ++j) sum += room.s[chosen[j]];
  const Divisor by = divisor(spec, sum);
  Real mean = 0;
  for (Dim j = 0; j < used && by.moves; ++j) mean += dw[j] * room.s[chosen[j]] / by.value;
  const auto ds = [&](Dim j) { return scale / by.value * (dw[j] - mean); };
  if (spec.score == RouteSpec::Score::sigmoid) {
    for (Dim j = 0; j < used; ++j) {
      const Real s = room.s[chosen[j]];
      dz[chosen[j]] += ds(j) * s * (Real(1) - s);
    }
    return;
  }
  for (Dim i = 0; i < spec.experts; ++i) room.v[i] = 0;
  for (Dim j = 0; j < used; ++j) room.v[chosen[j]] = ds(j);
  softmax_gradient(room.s, room.v, spec.experts, dz);
}

}  // namespace

void route(Queue& queue, const RouteArgs& a) noexcept {
  const RouteSpec& spec = a.spec;
  for_ranges(queue, a.rows, most(1, 4096 / spec.experts), [&](Dim begin, Dim end, int worker) {
    Room room;
    if (!room_of(queue, worker, spec, room)) {  // the call fails; what follows reads the list
      for (Dim i = begin * spec.used; i < end * spec.used; ++i) a.chosen[i] = int32_t(i % spec.used);
      return;
    }
    for (Dim t = begin; t < end; ++t)
      route_row(spec, static_cast<const Real*>(a.z) + t * spec.experts, static_cast<const Real*>(a.choice),
                room, static_cast<Real*>(a.weights) + t * spec.used, a.chosen + t * spec.used);
  });
  const Dim slots = a.rows * spec.used;
  int32_t* begin = a.begin;
  for (Dim e = 0; e <= spec.experts; ++e) begin[e] = 0;
  for (Dim i = 0; i < slots; ++i) ++begin[a.chosen[i] + 1];
  for (Dim e = 0; e < spec.experts; ++e) {
    if (a.load) a.load[e] += begin[e + 1];
    begin[e + 1] += begin[e];
  }
  for (Dim i = 0; i < slots; ++i) {
    const int32_t at = begin[a.chosen[i]]++;
    a.slots[at] = int32_t(i);
    a.places[i] = at;
  }
  for (Dim e = spec.experts; e > 0; --e) begin[e] = begin[e - 1];  // each was moved to its end
  begin[0] = 0;
}

void route_backward(Queue& queue, const RouteBackwardArgs& a) noexcept {
  if (!a.dz) return;
  const RouteSpec& spec = a.spec;
  double total = 0;  // rows that were counted, in all layers that are balanced together
  if (a.balance != 0)
    for (Dim e = 0; e < spec.experts; ++e) total += double(a.load[e]);
  total /= double(spec.used);
  for_ranges(queue, a.rows, most(1, 4096 / spec.experts), [&](Dim begin, Dim end, int worker) {
    Room room;
    if (!room_of(queue, worker, spec, room)) return;
    for (Dim t = begin; t < end; ++t) {
      const Real* z = static_cast<const Real*>(a.z) + t * spec.experts;
      Real* dz = static_cast<Real*>(a.dz) + t * spec.experts;
      route_row_backward(spec, z, a.chosen + t * spec.used,
                         static_cast<const Real*>(a.dweights) + t * spec.used, room, dz);
      if (a.balance == 0) continue;
      softmax(z, spec.experts, room.s);
      for (Dim e = 0; e < spec.experts; ++e)
        room.v[e] = Real(a.balance * double(spec.experts) * double(a.load[e]) / (total * total));
      softmax_gradient(room.s, room.v, spec.experts, dz);
    }
  });
}

// ---------------------------------------------------------------------------------------- dispatch, combine
namespace {

RAPT_INLINE Real dot(const Real* a, const Real* b, Dim n) {
  V sum[2] = {vzero(), vzero()};
  int p = 0;
  for (Dim i = 0; i < n; i += W, p ^= 1) sum[p] = vfma(vload_n(a + i, n - i), vload_n(b + i, n - i), sum[p]);
  return vsum(sum[0] + sum[1]);
}

// to[c] = (add ? to[c] : 0) + sum over the slots of a row, in their order, of weight * packed row.
RAPT_INLINE void sum_slots(const int32_t* places, const Real* weights, Dim used, const Real* packed, Dim cols,
                           Real* to, bool add) {
  for (Dim c = 0; c < cols; c += W) {
    const Dim n = cols - c;
    V sum = vzero();
    for (Dim j = 0; j < used; ++j) {
      const V x = vload_n(packed + Dim(places[j]) * cols + c, n);
      sum = weights ? vfma(vset(weights[j]), x, sum) : sum + x;
    }
    vstore_n(to + c, add ? vload_n(to + c, n) + sum : sum, n);
  }
}

}  // namespace

void dispatch(Queue& queue, const DispatchArgs& a) noexcept {
  const Real *x = static_cast<const Real*>(a.x), *weights = static_cast<const Real*>(a.weights);
  for_ranges(queue, a.rows * a.used, row_grain(a.cols), [&](Dim begin, Dim end, int) {
    for (Dim p = begin; p < end; ++p) {
      const Dim slot = a.slots[p];
      const Real* from = x + slot / a.used * a.cols;
      Real* to = static_cast<Real*>(a.y) + p * a.cols;
      const V w = vset(weights ? weights[slot] : Real(1));
      for (Dim c = 0; c < a.cols; c += W) vstore_n(to + c, vload_n(from + c, a.cols - c) * w, a.cols - c);
    }
  });
}

void dispatch_backward(Queue& queue, const DispatchBackwardArgs& a) noexcept {
  const Real *x = static_cast<const Real*>(a.x), *weights = static_cast<const Real*>(a.weights),
             *dy = static_cast<const Real*>(a.dy);
  Real *dx = static_cast<Real*>(a.dx), *dweights = static_cast<Real*>(a.dweights);
  for_ranges(queue, a.rows, row_grain(a.cols * a.used), [&](Dim begin, Dim end, int) {
    for (Dim t = begin; t < end; ++t) {
      const int32_t* places = a.places + t * a.used;
      if (dx)
        sum_slots(places, weights ? weights + t * a.used : nullptr, a.used, dy, a.cols, dx + t * a.cols,
                  true);
      for (Dim j = 0; j < a.used && dweights; ++j)
        dweights[t * a.used + j] += dot(dy + Dim(places[j]) * a.cols, x + t * a.cols, a.cols);
    }
  });
}

void combine(Queue& queue, const CombineArgs& a) noexcept {
  const Real* weights = static_cast<const Real*>(a.weights);
  for_ranges(queue, a.rows, row_grain(a.cols * a.used), [&](Dim begin, Dim end, int) {
    for (Dim t = begin; t < end; ++t)
      sum_slots(a.places + t * a.used, weights ? weights + t * a.used : nullptr, a.used,
                static_cast<const Real*>(a.x), a.cols, static_cast<Real*>(a.y) + t * a.cols, false);
  });
}

void combine_backward(Queue& queue, const CombineBackwardArgs& a) noexcept {
  const Real *x = static_cast<const Real*>(a.x), *weights = static_cast<const Real*>(a.weights);
  Real *all_dx = static_cast<Real*>(a.dx), *dweights = static_cast<Real*>(a.dweights);
  for_ranges(queue, a.rows, row_grain(a.cols * a.used), [&](Dim begin, Dim end, int) {
    for (Dim t = begin; t < end; ++t) {
      const Real* dy = static_cast<const Real*>(a.dy) + t * a.cols;
      for (Dim j = 0; j < a.used; ++j) {
        const Dim slot = t * a.used + j, at = Dim(a.places[slot]) * a.cols;
        if (dweights) dweights[slot] += dot(dy, x + at, a.cols);
        if (!all_dx) continue;
        Real* dx = all_dx + at;
        const V w = vset(weights ? weights[slot] : Real(1));
        for (Dim c = 0; c < a.cols; c += W) {
          const Dim n = a.cols - c;
          vstore_n(dx + c, vfma(vload_n(dy + c, n), w, a.write_dx ? vzero() : vload_n(dx + c, n)), n);
        }
      }
    }
  });
}

void slot_keys(Queue& queue, const SlotKeysArgs& a) noexcept {
  for_ranges(queue, a.slots, 8192, [&](Dim begin, Dim end, int) {
    for (Dim p = begin; p < end; ++p) {
      const int32_t slot = a.order[p];
      uint32_t key = a.row_keys[slot / a.used] + uint32_t(a.chosen[slot] + 1) * 0x9E3779B9u;
      key = (key ^ key >> 16) * 0x85EBCA6Bu;
      key = (key ^ key >> 13) * 0xC2B2AE35u;
      a.keys[p] = key ^ key >> 16;
    }
  });
}

}  // namespace rapt::RAPT_ISA
