// SPDX-License-Identifier: Apache-2.0
// How the work of many groups of rows is cut for threads (linear_cpu.cc, linear_quant_cpu.cc). Each group has
// the same number of units (strips or panels of outputs), each as dear as its rows are many; the units of all
// groups lie in a line, which is cut into pieces of equal cost.
#pragma once
#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

struct GroupLine {
  Dim groups, units;
  const int32_t* begin;
  Dim* starts;  // [groups + 1]: where each group begins in the line
  Dim fixed;  // a unit costs its rows and this
  bool empty;  // groups without rows have units, too
  Dim cost(Dim g) const {
    const Dim rows = begin[g + 1] - begin[g];
    return rows > 0 || empty ? rows + fixed : 0;
  }
};
// work: operations behind a cost of 1; a piece should be worth a thread's while.
// f(group, first unit, end, worker)
template <class F>
static void for_units(Queue& queue, const GroupLine& line, Dim work, const F& f) {
  Dim* starts = line.starts;
  starts[0] = 0;
  for (Dim g = 0; g < line.groups; ++g) starts[g + 1] = starts[g] + line.units * line.cost(g);
  const Dim total = starts[line.groups], threads = threads_of(queue);
  constexpr Dim kWorthwhile = 1 << 16, kPieces = 16;  // a microsecond; pieces per thread
  const Dim wanted = threads == 1 ? 1 : least(kPieces * threads, total * work / kWorthwhile);
  const Dim pieces = wanted <= 1 ? 1 : ceil_div(wanted, threads) * threads;
  for_tasks(queue, total > 0 ? pieces : 0, [&](Dim task, int worker) {
    const Dim low = total * task / pieces, high = total * (task + 1) / pieces;
    Dim g = 0;  // the last group that begins at `low` or before
    for (Dim step = Dim(1) << 32; step > 0; step /= 2)
      if (g + step < line.groups && starts[g + step] <= low) g += step;
    for (; g < line.groups && starts[g] < high; ++g) {
      const Dim cost = line.cost(g);
      if (cost == 0) continue;
      const Dim first = ceil_div(most(low - starts[g], 0), cost),
                end = least(line.units, ceil_div(high - starts[g], cost));
      if (first < end) f(g, first, end, worker);
    }
  });
}

}  // namespace
}  // namespace rapt::RAPT_ISA
