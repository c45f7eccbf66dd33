// SPDX-License-Identifier: Apache-2.0
// route, dispatch, combine, and the keys of packed rows.
#include "rapt/ops/route.h"

#include <algorithm>

namespace rapt {

// ------------------------------------------------------------------------------------------------ route
namespace {

struct RouteTape {
  RouteSpec spec;
  Tensor z, weights;
  const std::int32_t* chosen;
  double balance;
  const std::int64_t* load;
};

// ds_i = scale / D (g_i - sum over S of g_j s_j / D) with D the divisor, or scale g_i; then through softmax,
// over all experts, or sigmoid. The auxiliary loss: dp_e = factor E load_e / N^2, through softmax.
void route_backward(Run& run, const RouteTape& s) {
  run.call(&Kernels::route_backward, {.spec = s.spec,
                                      .rows = s.z[0],
                                      .z = s.z.data,
                                      .chosen = s.chosen,
                                      .dweights = run.grad(s.weights),
                                      .dz = run.grad(s.z),
                                      .balance = s.balance,
                                      .load = s.load});
}

void check(const RouteSpec& s, const Tensor& z, const Weight* choice, DType real) {
  if (z.rank != 2 || z[1] != s.experts || !z.contiguous())
    fail("route: logits ", z.shape(), " should be [rows,", s.experts, "], one per expert");
  if (s.used < 1 || s.used > s.experts)
    fail("route: ", s.used, " of ", s.experts, " experts cannot be chosen");
  if (s.groups < 1 || s.experts % s.groups != 0 || s.groups_used < 1 || s.groups_used > s.groups ||
      s.used > s.experts / s.groups * s.groups_used)
    fail("route: ", s.used, " experts in ", s.groups_used, " of ", s.groups, " groups of ", s.experts,
         " experts cannot be chosen");
  constexpr Dim kMost = 2147483647;
  if (z[0] > kMost / s.used) fail("route: ", z[0], " rows with ", s.used, " experts each are too many");
  if (choice && (choice->size() != s.experts || choice->format != real || choice->packing != Packing::rows))
    fail("route: ", choice->name, " should have ", s.experts, " numbers of ", name_of(real), ", it has ",
         choice->size(), " of ", name_of(choice->format));
}

}  // namespace

Routing route(Run& run, const RouteSpec& spec, const Tensor& z, const Weight* choice,
              const Balance& balance) {
  check(spec, z, choice, run.device.real);
  const Dim T = z[0], slots = T * spec.used;
  auto* chosen = run.arena.take_array<std::int32_t>(slots);
  auto* begin = run.arena.take_array<std::int32_t>(spec.experts + 1);
  auto* order = run.arena.take_array<std::int32_t>(slots);
  auto* places = run.arena.take_array<std::int32_t>(slots);
  std::int64_t* load = balance.load;
  if (balance.factor != 0 && !load) {
    load = run.arena.take_array<std::int64_t>(spec.experts);
    std::fill_n(load, spec.experts, 0);
  }
  const Routing r{.weights = run.make({T, spec.used}),
                  .rows = T,
                  .used = spec.used,
                  .experts = spec.experts,
                  .chosen = chosen,
                  .begin = begin,
                  .slots = order,
                  .places = places};
  run.call(&Kernels::route, {.spec = spec,
                             .rows = T,
                             .z = z.data,
                             .choice = choice ? choice->data.get() : nullptr,
                             .weights = r.weights.data,
                             .chosen = chosen,
                             .begin = begin,
                             .slots = order,
                             .places = places,
                             .load = balance.counted ? nullptr : load});
  run.record(route_backward, RouteTape{spec, z, r.weights, chosen, balance.factor, load});
  return r;
}

// ---------------------------------------------------------------------------------------- dispatch, combine
namespace {

struct MoveTape {
  Tensor x, y;
  Routing routing;
  bool weighted;
};

// dx = sum over the slots of a row of w dy;  dw = dy x, summed over channels
void dispatch_backward(Run& run, const MoveTape& s) {
  const Routing& r = s.routing;
  run.call(&Kernels::dispatch_backward, {.rows = r.rows,
                                         .used = r.used,
                                         .cols = s.x.last(),
                                         .slots = r.slots,
                                         .places = r.places,
                                         .x = s.x.data,
                                         .weights = s.weighted ? r.weights.data : nullptr,
                                         .dy = run.grad(s.y),
                                         .dx = run.grad(s.x),
                                         .dweights = s.weighted ? run.grad(r.weights) : nullptr});
}

// dx of a packed row = w dy of its row;  dw = dy x, summed over channels
void combine_backward(Run& run, const MoveTape& s) {
  const Routing& r = s.routing;
  bool write = false;
  void* dx = run.grad(s.x, write);
  run.call(&Kernels::combine_backward, {.rows = r.rows,
                                        .used = r.used,
                                        .cols = s.x.last(),
                                        .places = r.places,
                                        .x = s.x.data,
                                        .weights = s.weighted ? r.weights.data : nullptr,
                                        .dy = run.grad(s.y),
                                        .dx = dx,
                                        .dweights = s.weighted ? run.grad(r.weights) : nullptr,
                                        .write_dx = write});
}

void check(const char* op, const Tensor& x, const Routing& r, Dim rows) {
  if (x.rank != 2 || x[0] != rows || !x.contiguous())
    fail(op, ": x ", x.shape(), " should be [", rows, ",C], for ", r.rows, " rows with ", r.used,
         " experts each");
  if (r.weights.rank != 2 || r.weights[0] != r.rows || r.weights[1] != r.used)
    fail(op, ": weights ", r.weights.shape(), " should be [", r.rows, ",", r.used, "]");
}

}  // namespace

Tensor dispatch(Run& run, const Tensor& x, const Routing& r, bool weighted) {
  check("dispatch", x, r, r.rows);
  Tensor y = run.make({r.rows * r.used, x[1]});
  run.call(&Kernels::dispatch, {.rows = r.rows,
                                .used = r.used,
                                .cols = x[1],
                                .slots = r.slots,
                                .places = r.places,
                                .x = x.data,
                                .weights = weighted ? r.weights.data : nullptr,
                                .y = y.data});
  run.record(dispatch_backward, MoveTape{x, y, r, weighted});
  return y;
}

Tensor combine(Run& run, const Tensor& x, const Routing& r, bool weighted) {
  check("combine", x, r, r.rows * r.used);
  Tensor y = run.make({r.rows, x[1]});
  run.call(&Kernels::combine, {.rows = r.rows,
                               .used = r.used,
                               .cols = x[1],
                               .places = r.places,
                               .x = x.data,
                               .weights = weighted ? r.weights.data : nullptr,
                               .y = y.data});
  run.record(combine_backward, MoveTape{x, y, r, weighted});
  return y;
}

const std::uint32_t* slot_keys(Run& run, const Routing& r, const std::uint32_t* row_keys) {
  const Dim slots = r.rows * r.used;
  auto* keys = run.arena.take_array<std::uint32_t>(slots);
  run.call(&Kernels::slot_keys, {.slots = slots,
                                 .used = r.used,
                                 .order = r.slots,
                                 .chosen = r.chosen,
                                 .row_keys = row_keys,
                                 .keys = keys});
  return keys;
}

}  // namespace rapt
