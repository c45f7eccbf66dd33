// SPDX-License-Identifier: Apache-2.0
// y = x W^T and its backward, by one tile (linear_tile.h):
//            rows  lanes  depth      a                           b
//   forward  m     n      k, by 512  x, in place or copied       a panel of W as it lies in memory
//   dx       m     k      n, by 512  dy, copied                  32 x 32 blocks of W, transposed
//                                                                into scratch
//   dW       k     n      m, by 256  x, 96 columns of it copied  dy, 32 columns of it copied and scaled
// Blocks of depth start a fresh chain and are added in order, so bits depend on neither the number of rows
// nor the cuts below. The copies exist because rows whose distance is a power of two fall into the same few
// cache sets, and because a distance known to the compiler saves eleven pointers; they cost one move per
// element for 2 x (columns of vectors) multiply-adds.
#include "rapt/ops/linear_groups.h"
#include "rapt/ops/linear_tile.h"

namespace rapt::RAPT_ISA {
namespace {

constexpr int kDepthStride = kDepth + 16;      // of copied rows: an odd number of cache lines
constexpr int kChunk = 96;                     // columns of x copied for dW
// Rows copied at a time, forward; 128 the same, 256 2 % slower (M = 512, 1 MB of L2).
constexpr Dim kRowBlock = 96;
// In a task of many rows: its part of y stays in the cache from one block of depth to the next.
constexpr Dim kMostStrips = 16;
constexpr Dim kTurnBlock = 256;  // the same for dx, where every block of rows transposes W again

// How many strips a tile of R rows takes at once when it reads x in place.
constexpr int most_strips(Dim rows) { return rows == 1 ? kWide : rows <= 3 ? (kWide + 1) / 2 : 1; }

template <class T, int P>
Tile<T> direct_tile(Dim rows) {
  switch (rows) {
    case 1: return tile<1, P, 0, 1, T>;
    case 2: return tile < 2, P <= most_strips(2) ? P : 1, 0, 1, T > ;
    case 3: return tile < 3, P <= most_strips(3) ? P : 1, 0, 1, T > ;
    case 4: return tile<4, 1, 0, 1, T>;
    case 5: return tile<5, 1, 0, 1, T>;
    case 6: return tile<6, 1, 0, 1, T>;
    case 7: return tile<7, 1, 0, 1, T>;
    default: return tile<8, 1, 0, 1, T>;
  }
}
template <class T>
Tile<T> direct_tile(Dim rows, Dim strips) {
  switch (strips) {
    case 1: return direct_tile<T, 1>(rows);
    case 2: return direct_tile<T, 2>(rows);
    case 3: return direct_tile<T, 3>(rows);
    default: return direct_tile<T, 4>(rows);
  }
}
// rows x depth of a into scratch, kDepthStride apart, times scale.
void copy_rows(Real* to, const Real* from, Dim stride, Dim rows, Dim depth, Real scale = 1) {
  for (Dim r = 0; r < rows; ++r) {
    const Real* in = from + r * stride;
    Real* out = to + r * kDepthStride;
    Dim d = 0;
    for (; d + 4 * W <= depth; d += 4 * W)
      for (int j = 0; j < 4; ++j) vstore(out + d + j * W, vload(in + d + j * W) * vset(scale));
    for (; d < depth; d += W) vstore_n(out + d, vload_n(in + d, depth - d) * vset(scale), depth - d);
  }
}

// A few rows: every weight is read once, several strips side by side.
template <class T>
void few_rows(const LinearArgs& a, const LinearPart& part, Range strips) {
  const T* w = static_cast<const T*>(part.w);
  const Dim tiles = ceil_div(a.rows, kRows), most_at_once = most_strips(ceil_div(a.rows, tiles));
  const Dim groups = ceil_div(strips.end - strips.begin, most_at_once);
  for (Dim g = 0; g < groups; ++g) {
    const Range group = {strips.begin + cut(strips.end - strips.begin, groups, g).begin,
                         strips.begin + cut(strips.end - strips.begin, groups, g).end};
    const Dim count = group.end - group.begin;
    for (Dim d = 0; d < a.k; d += kDepth) {
      const T* at[4] = {};
      for (Dim p = 0; p < count; ++p) at[p] = strip_at(w, a.k, group.begin + p) + d * kPanel;
      for (Dim t = 0; t < tiles; ++t) {
        const Range rows = cut(a.rows, tiles, t);
        const Dim n = group.begin * kStrip;
        add_tile(static_cast<Real*>(part.y) + rows.begin * part.n + n, part.n, rows.end - rows.begin,
                 count * kStrip, part.n - n, d > 0, [&](Real* out, Dim os, bool add) RAPT_LAMBDA {
                   direct_tile<T>(rows.end - rows.begin, count)(
                       static_cast<const Real*>(a.x) + rows.begin * a.k + d, a.k, at, least(kDepth, a.k - d),
                       out, os, add, {});
                 });
        if (d + kDepth >= a.k) finish(part, rows.begin, rows.end - rows.begin, n, count * kStrip);
      }
    }
  }
}

// Many rows: `copied` holds inputs [d, d + kDepth) of the rows.
template <class T>
void many_rows(const LinearArgs& a, const LinearPart& part, Range strips, Range block, const Real* copied,
               Dim d) {
  const Dim tiles = ceil_div(block.end - block.begin, kRows);
  for (Dim s = strips.begin; s < strips.end; ++s) {
    const T* at = strip_at(static_cast<const T*>(part.w), a.k, s) + d * kPanel;
    const T* next =
        s + 1 < strips.end ? strip_at(static_cast<const T*>(part.w), a.k, s + 1) + d * kPanel : at;
    const Dim step = kPanel * Dim(sizeof(T)) / tiles;
    for (Dim t = 0; t < tiles; ++t) {
      const Range rows = cut(block.end - block.begin, tiles, t);
      const Dim row = block.begin + rows.begin, count = rows.end - rows.begin, n = s * kStrip;
      add_tile(static_cast<Real*>(part.y) + row * part.n + n, part.n, count, kStrip, part.n - n, d > 0,
               [&](Real* out, Dim os, bool add) RAPT_LAMBDA {
                 copied_tile<kDepthStride, 1, T>(count)(
                     copied + rows.begin * kDepthStride, 0, &at, least(kDepth, a.k - d), out, os, add,
                     {reinterpret_cast<const char*>(next) + t * step * kDepth, step});
               });
      if (d + kDepth >= a.k) finish(part, row, count, n, kStrip);
    }
  }
}

}  // namespace

void linear(Queue& queue, const LinearArgs& a) noexcept {
  if (a.rows == 0) return;
  const Dim strips = units_of(a, kStrip), threads = threads_of(queue),
            worth = ceil_div(kWorth, a.rows * a.k * kStrip);
  if (a.rows <= kDirect) {
    const Dim pieces = pieces_for(queue, strips, 1, most(worth, most_strips(a.rows)), 16);
    for_tasks(queue, pieces, [&](Dim task, int) {
      for_parts(a, kStrip, cut(strips, pieces, task), [&](int p, Range mine) {
        const LinearPart& part = a.parts[p];
        if (part.format == DType::bf16) few_rows<Bf16>(a, part, mine);
        else if (part.format == DType::f16) few_rows<F16>(a, part, mine);
        else few_rows<Real>(a, part, mine);
      });
    });
    return;
  }
  // Blocks are smaller only where there are more threads than strips. A worker keeps its copy of a block
  // of rows from task to task, so that tasks may be small: 2 threads, 576 x 576, M = 64 lost 16 % to
  // uneven pieces when each of eight tasks had to copy.
  const Dim blocks = most(ceil_div(a.rows, kRowBlock), least(ceil_div(a.rows, kRows), 2 * threads / strips));
  const Dim pieces = most(pieces_for(queue, strips, blocks, worth, 16), ceil_div(strips, kMostStrips));
  constexpr int kWorkers = 256;
  Dim have[kWorkers];  // per worker: the block it has copied
  for (Dim& h : have) h = -1;
  for_tasks(queue, pieces * blocks, [&](Dim task, int worker) {
    const Range block = cut(a.rows, blocks, task / pieces), range = cut(strips, pieces, task % pieces);
    const Dim rows = block.end - block.begin, slice = rows * kDepthStride;
    Real* copied = reinterpret_cast<Real*>(
        scratch_of(queue, worker, size_t(kRowBlock * kDepthStride * ceil_div(a.k, kDepth)) * sizeof(Real)));
    if (!copied) return;
    const bool copy = worker >= kWorkers || have[worker] != task / pieces;
    if (worker < kWorkers) have[worker] = task / pieces;
    for (Dim d = 0; d < a.k; d += kDepth, copied += slice) {
      if (copy)
        copy_rows(copied, static_cast<const Real*>(a.x) + block.begin * a.k + d, a.k, rows,
                  least(kDepth, a.k - d));
      for_parts(a, kStrip, range, [&](int p, Range mine) {
        const LinearPart& part = a.parts[p];
        if (part.format == DType::bf16) many_rows<Bf16>(a, part, mine, block, copied, d);
        else if (part.format == DType::f16) many_rows<F16>(a, part, mine, block, copied, d);
        else many_rows<Real>(a, part, mine, block, copied, d);
      });
    }
  });
}

// ------------------------------------------------------------------------------------- many groups of rows
namespace {

// One group as a call of its own, with the part numbers of the whole.
LinearArgs group_args(const GroupedLinearArgs& a, Dim g) {
  const Dim first = a.begin[g];
  LinearArgs l{};
  l.rows = a.begin[g + 1] - first;
  l.k = a.k;
  l.x = static_cast<const Real*>(a.x) + (a.from ? 0 : first * a.k);
  l.count = a.count;
  for (int p = 0; p < a.count; ++p) {
    const GroupedPart& part = a.parts[p];
    const GroupWeight& w = part.weights[g];
    l.parts[p].n = part.n;
    l.parts[p].w = w.w;
    l.parts[p].format = w.format;
    l.parts[p].bias = w.bias;
    l.parts[p].scale = 1;
    l.parts[p].y = static_cast<Real*>(part.y) + first * part.n;
  }
  return l;
}
// Row r of the group.
RAPT_INLINE const Real* group_row(const GroupedLinearArgs& a, Dim first, Dim r) {
  return static_cast<const Real*>(a.x) + (a.from ? a.from[first + r] / a.per : first + r) * a.k;
}

void group_few(const GroupedLinearArgs& a, LinearArgs l, Dim first, Range strips, Real* room) {
  if (a.from && l.rows == 1) l.x = group_row(a, first, 0);
  else if (a.from) {
    for (Dim r = 0; r < l.rows; ++r) {
      const Real* from = group_row(a, first, r);
      for (Dim c = 0; c < a.k; c += W) vstore_n(room + r * a.k + c, vload_n(from + c, a.k - c), a.k - c);
    }
    l.x = room;
  }
  for_parts(l, kStrip, strips, [&](int p, Range mine) {
    const LinearPart& part = l.parts[p];
    if (!part.w) return;
    if (part.format == DType::bf16) few_rows<Bf16>(l, part, mine);
    else if (part.format == DType::f16) few_rows<F16>(l, part, mine);
    else few_rows<Real>(l, part, mine);
  });
}

void group_many(const GroupedLinearArgs& a, const LinearArgs& l, Dim first, Range strips, Real* copied) {
  const Dim blocks = ceil_div(l.rows, kRowBlock);
  for (Dim b = 0; b < blocks; ++b) {
    const Range block = cut(l.rows, blocks, b);
    for (Dim d = 0; d < a.k; d += kDepth) {
      for (Dim r = block.begin; r < block.end; ++r)
        copy_rows(copied + (r - block.begin) * kDepthStride, group_row(a, first, r) + d, 0, 1,
                  least(kDepth, a.k - d));
      for_parts(l, kStrip, strips, [&](int p, Range mine) {
        const LinearPart& part = l.parts[p];
        if (!part.w) return;
        if (part.format == DType::bf16) many_rows<Bf16>(l, part, mine, block, copied, d);
        else if (part.format == DType::f16) many_rows<F16>(l, part, mine, block, copied, d);
        else many_rows<Real>(l, part, mine, block, copied, d);
      });
    }
  }
}

}  // namespace

void grouped_linear(Queue& queue, const GroupedLinearArgs& a) noexcept {
  const GroupLine line{.groups = a.groups,
                       .units = units_of(a, kStrip),
                       .begin = a.begin,
                       .starts = a.plan,
                       .fixed = 8,  // reading the weights
                       .empty = false};
  for_units(queue, line, a.k * kStrip, [&](Dim g, Dim begin, Dim end, int worker) {
    const LinearArgs l = group_args(a, g);
    const bool few = l.rows <= kDirect;
    const Dim room = few ? l.rows * a.k : kRowBlock * kDepthStride;
    Real* scratch = reinterpret_cast<Real*>(scratch_of(queue, worker, size_t(room) * sizeof(Real)));
    if (!scratch) return;
    if (few) group_few(a, l, a.begin[g], {begin, end}, scratch);
    else group_many(a, l, a.begin[g], {begin, end}, scratch);
  });
}

namespace {

// [k][32 n] -> [n][32 k] for 32 k; `rows` of them exist.
template <class T>
void transpose_block(const T* from, Dim rows, Real* to) {
  for (int k = 0; k < kPanel; k += W)
    for (int n = 0; n < kPanel; n += W)
      transpose_square(from + k * kPanel + n, rows - k, to + n * kPanel + k);
}

// dx of a block of rows and a range of panels of 32 inputs. Asking for the next panel's blocks of W on the
// way gained nothing (GPT-2, 256 rows).
void input_gradient(const LinearBackwardArgs& a, Range block, Range panels, Real* scratch) {
  Real *copied = scratch, *turned = scratch + kTurnBlock * kDepthStride;
  const Dim tiles = ceil_div(block.end - block.begin, kRows);
  for (int p = 0; p < a.count; ++p) {
    const LinearBackwardPart& part = a.parts[p];
    for (Dim d = 0; d < part.n; d += kDepth) {
      const Dim depth = least(kDepth, part.n - d);
      copy_rows(copied, static_cast<const Real*>(part.dy) + block.begin * part.n + d, part.n,
                block.end - block.begin, depth, Real(part.scale));
      for (Dim panel = panels.begin; panel < panels.end; ++panel) {
        const Dim k = panel * kPanel;
        for (Dim i = 0; i < depth; i += kPanel) {
          const Dim at = ((d + i) / kPanel * a.k + k) * kPanel;
          if (part.format == DType::bf16)
            transpose_block(static_cast<const Bf16*>(part.w) + at, a.k - k, turned + i * kPanel);
          else if (part.format == DType::f16)
            transpose_block(static_cast<const F16*>(part.w) + at, a.k - k, turned + i * kPanel);
          else transpose_block(static_cast<const Real*>(part.w) + at, a.k - k, turned + i * kPanel);
        }
        for (int s = 0; s < kStrips; ++s)
          for (Dim t = 0; t < tiles; ++t) {
            const Range rows = cut(block.end - block.begin, tiles, t);
            const Real* at = turned + s * kStrip;
            const Dim row = block.begin + rows.begin, count = rows.end - rows.begin, column = k + s * kStrip;
            if (column >= a.k) break;
            add_tile(static_cast<Real*>(a.dx) + row * a.k + column, a.k, count, kStrip, a.k - column,
                     !a.write_dx || p > 0 || d > 0, [&](Real* out, Dim os, bool add) RAPT_LAMBDA {
                       copied_tile<kDepthStride, 1, Real>(count)(copied + rows.begin * kDepthStride, 0, &at,
                                                                 depth, out, os, add,
                                                                 {reinterpret_cast<const char*>(at), 0});
                     });
          }
      }
    }
  }
}

// Columns of x copied at a time: at most kChunk, and cut evenly (128 are 64 and 64, not 96 and 32: tasks
// take a chunk each).
RAPT_INLINE Dim chunk_of(Dim k) { return least(kChunk, ceil_div(ceil_div(k, ceil_div(k, kChunk)), 16) * 16); }

// dW of a range of panels (at most kMostPanels) and of inputs; with the first inputs also dbias and
// dresidual.
constexpr Dim kMostPanels = 8;
void weight_gradient(const LinearBackwardArgs& a, const LinearBackwardPart& part, Range panels, Range inputs,
                     Real* scratch) {
  Real *dy = scratch, *x = scratch + kMostPanels * kBatch * kPanel;
  for (Dim m = 0; m < a.rows; m += kBatch) {
    const Dim depth = least(kBatch, a.rows - m);
    for (Dim panel = panels.begin; panel < panels.end; ++panel) {
      Real* to = dy + (panel - panels.begin) * kBatch * kPanel;
      for (Dim i = 0; i < depth; ++i)
        for (int v = 0; v < kPanel; v += W) {
          const Dim n = panel * kPanel + v, left = part.n - n;
          const V g =
              left > 0 ? vload_n(static_cast<const Real*>(part.dy) + (m + i) * part.n + n, left) : vzero();
          vstore(to + i * kPanel + v, g * vset(Real(part.scale)));
        }
    }
    if (inputs.begin == 0) vector_gradients(part, panels, {m, m + depth});
    if (!part.dw) continue;
    const Dim chunk = chunk_of(a.k);
    for (Dim k = inputs.begin; k < inputs.end; k += chunk) {
      const Dim width = least(chunk, inputs.end - k), tiles = ceil_div(width, kRows);
      for (Dim i = 0; i < depth; ++i)
        for (Dim c = 0; c < width; c += W)
          vstore_n(x + i * kChunk + c,
                   vload_n(static_cast<const Real*>(a.x) + (m + i) * a.k + k + c, width - c), width - c);
      for (Dim panel = panels.begin; panel < panels.end; ++panel)
        for (int s = 0; s < kStrips; ++s)
          for (Dim t = 0; t < tiles; ++t) {
            const Range rows = cut(width, tiles, t);
            const Real* at = dy + (panel - panels.begin) * kBatch * kPanel + s * kStrip;
            Real* dw = static_cast<Real*>(part.dw) + (panel * a.k + k + rows.begin) * kPanel + s * kStrip;
            copied_tile<1, kChunk, Real>(rows.end - rows.begin)(x + rows.begin, 0, &at, depth, dw, kPanel,
                                                                !part.write_dw || m > 0,
                                                                {reinterpret_cast<const char*>(at), 0});
          }
    }
  }
}

}  // namespace

void linear_backward(Queue& queue, const LinearBackwardArgs& a) noexcept {
  if (a.rows == 0) return;
  if (a.dx) {
    const Dim panels = ceil_div(a.k, kPanel), blocks = ceil_div(a.rows, kTurnBlock),
              pieces = pieces_for(queue, panels, blocks, 3, 4);
    for_tasks(queue, pieces * blocks, [&](Dim task, int worker) {
      Real* scratch = reinterpret_cast<Real*>(
          scratch_of(queue, worker, size_t(kTurnBlock * kDepthStride + kDepth * kPanel) * sizeof(Real)));
      if (!scratch) return;
      input_gradient(a, cut(a.rows, blocks, task % blocks), cut(panels, pieces, task / blocks), scratch);
    });
  }
  // A region of its own: a residual may be the very tensor x whose gradient was just added to.
  Dim groups = 0;  // of panels
  for (int p = 0; p < a.count; ++p) groups += ceil_div(ceil_div(a.parts[p].n, kPanel), kMostPanels);
  const Dim chunk = chunk_of(a.k), chunks = ceil_div(a.k, chunk),
            pieces = pieces_for(queue, chunks, groups, 1, 4);
  for_tasks(queue, groups * pieces, [&](Dim task, int worker) {
    Real* scratch = reinterpret_cast<Real*>(
        scratch_of(queue, worker, size_t(kMostPanels * kBatch * kPanel + kBatch * kChunk) * sizeof(Real)));
    if (!scratch) return;
    Dim group = task / pieces;
    int p = 0;
    for (Dim count; group >= (count = ceil_div(ceil_div(a.parts[p].n, kPanel), kMostPanels)); ++p)
      group -= count;
    const Dim panels = ceil_div(a.parts[p].n, kPanel);
    const Range range = cut(chunks, pieces, task % pieces);
    weight_gradient(a, a.parts[p], cut(panels, ceil_div(panels, kMostPanels), group),
                    {range.begin * chunk, least(a.k, range.end * chunk)}, scratch);
  });
}

// ------------------------------------------------------------------------------------- many groups of rows
namespace {

LinearBackwardArgs group_args(const GroupedLinearBackwardArgs& a, Dim g) {
  const Dim first = a.begin[g];
  LinearBackwardArgs l{};
  l.rows = a.begin[g + 1] - first;
  l.k = a.k;
  l.x = static_cast<const Real*>(a.x) + first * a.k;
  l.dx = a.dx ? static_cast<Real*>(a.dx) + first * a.k : nullptr;
  l.write_dx = a.write_dx;
  l.count = a.count;
  for (int p = 0; p < a.count; ++p) {
    const GroupedBackwardPart& part = a.parts[p];
    const GroupGradient& w = part.weights[g];
    l.parts[p].n = part.n;
    l.parts[p].w = w.w;
    l.parts[p].format = w.format;
    l.parts[p].scale = 1;
    l.parts[p].dy = static_cast<const Real*>(part.dy) + first * part.n;
    l.parts[p].dw = w.dw;
    l.parts[p].dbias = w.dbias;
    l.parts[p].write_dw = w.write_dw;
  }
  return l;
}

// dW of a group without rows: nothing to add, and zeros where nothing is there yet.
void no_gradient(const LinearBackwardArgs& a, const LinearBackwardPart& part, Range panels, Range inputs) {
  if (!part.dw || !part.write_dw) return;
  for (Dim panel = panels.begin; panel < panels.end; ++panel) {
    Real* dw = static_cast<Real*>(part.dw) + panel * a.k * kPanel;
    for (Dim i = inputs.begin * kPanel; i < inputs.end * kPanel; i += W) vstore(dw + i, vzero());
  }
}

}  // namespace

void grouped_linear_backward(Queue& queue, const GroupedLinearBackwardArgs& a) noexcept {
  Dim outputs = 0, panel_groups = 0;
  for (int p = 0; p < a.count; ++p) {
    outputs += a.parts[p].n;
    panel_groups += ceil_div(ceil_div(a.parts[p].n, kPanel), kMostPanels);
  }
  if (a.dx) {
    const GroupLine line{.groups = a.groups,
                         .units = ceil_div(a.k, kPanel),
                         .begin = a.begin,
                         .starts = a.plan,
                         .fixed = 8,
                         .empty = false};
    for_units(queue, line, outputs * kPanel, [&](Dim g, Dim begin, Dim end, int worker) {
      Real* scratch = reinterpret_cast<Real*>(
          scratch_of(queue, worker, size_t(kTurnBlock * kDepthStride + kDepth * kPanel) * sizeof(Real)));
      if (!scratch) return;
      const LinearBackwardArgs l = group_args(a, g);
      const Dim blocks = ceil_div(l.rows, kTurnBlock);
      for (Dim b = 0; b < blocks; ++b) input_gradient(l, cut(l.rows, blocks, b), {begin, end}, scratch);
    });
  }
  // A unit: up to kMostPanels panels of a part and a chunk of inputs, chunks innermost.
  const Dim chunk = chunk_of(a.k), chunks = ceil_div(a.k, chunk);
  const GroupLine line{.groups = a.groups,
                       .units = panel_groups * chunks,
                       .begin = a.begin,
                       .starts = a.plan,
                       .fixed = 8,
                       .empty = true};
  for_units(queue, line, chunk * outputs / panel_groups, [&](Dim g, Dim begin, Dim end, int worker) {
    Real* scratch = reinterpret_cast<Real*>(
        scratch_of(queue, worker, size_t(kMostPanels * kBatch * kPanel + kBatch * kChunk) * sizeof(Real)));
    if (!scratch) return;
    const LinearBackwardArgs l = group_args(a, g);
    for (Dim unit = begin; unit < end;) {
      Dim which = unit / chunks;
      const Dim till = least(end, (which + 1) * chunks);
      const Range inputs = {(unit - which * chunks) * chunk, least(a.k, (till - which * chunks) * chunk)};
      unit = till;
      int p = 0;
      for (Dim count; which >= (count = ceil_div(ceil_div(l.parts[p].n, kPanel), kMostPanels)); ++p)
        which -= count;
      const Dim panels = ceil_div(l.parts[p].n, kPanel);
      const Range mine = cut(panels, ceil_div(panels, kMostPanels), which);
      if (l.rows == 0) no_gradient(l, l.parts[p], mine, inputs);
      else weight_gradient(l, l.parts[p], mine, inputs, scratch);
    }
  });
}

}  // namespace rapt::RAPT_ISA
