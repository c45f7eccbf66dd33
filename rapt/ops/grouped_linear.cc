// SPDX-License-Identifier: Apache-2.0
// Checks, one list of weights for the kernel of floats and one for that of blocks, backward.
#include "rapt/ops/grouped_linear.h"

namespace rapt {
namespace {

struct GroupedTape {
  Tensor x, y[kMostGrouped];
  RowGroups groups;
  int count;
  Dim n[kMostGrouped];
  const Projection* parts[kMostGrouped];
};

std::int64_t* plan_room(Run& run, const RowGroups& g) {
  return run.arena.take_array<std::int64_t>(2 * (g.count + 1));
}

// dx = dy W_e;  dW_e += dy^T x and db_e += sum of dy, over the rows of group e.
void grouped_linear_backward(Run& run, const GroupedTape& s) {
  GroupedLinearBackwardArgs a{.groups = s.groups.count,
                              .rows = s.groups.rows,
                              .k = s.x.last(),
                              .begin = s.groups.begin,
                              .x = s.x.data,
                              .dx = nullptr,
                              .write_dx = false,
                              .count = s.count,
                              .parts = {},
                              .plan = nullptr};
  a.dx = run.grad(s.x, a.write_dx);
  const void* dy[kMostGrouped] = {};
  for (int i = 0; i < s.count; ++i) dy[i] = run.grad(s.y[i]);
  const Arena::Mark mark = run.arena.mark();  // gradients of tensors outlive this call
  for (int i = 0; i < s.count; ++i) {
    auto* list = run.arena.take_array<GroupGradient>(s.groups.count);
    for (Dim e = 0; e < s.groups.count; ++e) {
      const Projection& p = s.parts[i][e];
      GroupGradient& g = list[e];
      g = {.w = p.w->data.get(), .format = p.w->format, .dw = nullptr, .dbias = nullptr, .write_dw = false};
      g.dw = run.grad(p.w, g.write_dw);
      g.dbias = run.grad(p.bias);
    }
    a.parts[i] = {.n = s.n[i], .weights = list, .dy = dy[i]};
  }
  a.plan = plan_room(run, s.groups);
  run.call(&Kernels::grouped_linear_backward, a);
  run.arena.release(mark);
}

}  // namespace

void grouped_linear(Run& run, const Tensor& x, const RowGroups& groups,
                    std::span<const std::span<const Projection>> parts, std::span<Tensor> out) {
  if (parts.empty() || parts.size() > kMostGrouped || out.size() != parts.size())
    fail("grouped_linear: ", parts.size(), " products and room for ", out.size(), "; 1 to ", kMostGrouped,
         " are possible");
  if (x.rank != 2 || !x.contiguous()) fail("grouped_linear: x ", x.shape(), " should be [rows,K]");
  if (groups.from ? x[0] * groups.per < groups.rows : x[0] != groups.rows)
    fail("grouped_linear: x ", x.shape(), " has not the rows of ", groups.rows, " results");
  if (groups.from && run.tape)
    fail("grouped_linear: with a tape, rows must stand in the order of groups: dispatch them first");
  GroupedLinearArgs floats{.groups = groups.count,
                           .rows = groups.rows,
                           .k = x[1],
                           .begin = groups.begin,
                           .x = x.data,
                           .from = groups.from,
                           .per = groups.per,
                           .count = static_cast<int>(parts.size()),
                           .parts = {},
                           .plan = nullptr,
                           .space = nullptr};
  GroupedLinearArgs blocks = floats;
  GroupedTape s{
      .x = x, .y = {}, .groups = groups, .count = static_cast<int>(parts.size()), .n = {}, .parts = {}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (static_cast<Dim>(parts[i].size()) != groups.count)
      fail("grouped_linear: ", parts[i].size(), " weights for ", groups.count, " groups");
    s.n[i] = parts[i][0].w->rows;
    s.y[i] = out[i] = run.make({groups.rows, s.n[i]});
    if (run.tape) s.parts[i] = run.copy_of(parts[i]);
  }
  const Arena::Mark mark = run.arena.mark();
  bool any_float = false, any_block = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto* reals = run.arena.take_array<GroupWeight>(groups.count);
    auto* quants = run.arena.take_array<GroupWeight>(groups.count);
    for (Dim e = 0; e < groups.count; ++e) {
      const auto& [w, bias] = parts[i][static_cast<std::size_t>(e)];
      check_projection("grouped_linear", run, x, parts[i][static_cast<std::size_t>(e)]);
      if (w->rows != s.n[i])
        fail("grouped_linear: weight ", w->name, " has ", w->rows, " outputs, that of the first group ",
             s.n[i]);
      const bool block = is_block(w->format);
      (block ? any_block : any_float) = true;
      GroupWeight& mine = (block ? quants : reals)[e];
      mine = {.w = w->data.get(),
              .format = w->format,
              .bias = bias ? bias->data.get() : nullptr,
              .gain = w->gain};
      (block ? reals : quants)[e] = {.w = nullptr, .format = w->format, .bias = nullptr, .gain = 1};
    }
    floats.parts[i] = {.n = s.n[i], .weights = reals, .y = out[i].data};
    blocks.parts[i] = {.n = s.n[i], .weights = quants, .y = out[i].data};
  }
  floats.plan = blocks.plan = plan_room(run, groups);
  if (any_float) run.call(&Kernels::grouped_linear, floats);
  if (any_block) {
    blocks.space =
        run.arena.take(static_cast<std::size_t>(grouped_quant_space(groups.count, groups.rows, x[1])));
    run.call(&Kernels::grouped_quant_linear, blocks);
  }
  run.arena.release(mark);
  run.record(grouped_linear_backward, s);
}

}  // namespace rapt
