// SPDX-License-Identifier: Apache-2.0
// Products of a block of rows or keys with the table first, as a small matrix; then each pair takes its one.
// Forward a task owns a block of one head; backward it owns a kv head, and with it all gradients that it adds
// to, sequence by sequence.
#include "rapt/ops/disentangle.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

// c[m][col] = (add: c +) sum over i < n of x[m * xm + i * xn] * y[i * yn + col], i ascending in one chain.
struct Product {
  Real* c;
  Dim cm;
  const Real* x;
  Dim xm, xn;
  const Real* y;
  Dim yn, n;
  bool add;
};

template <int M, bool whole>
RAPT_INLINE void tile(const Product& p, Dim m, Dim col, Dim cols) {
  V sum[M][2];
  for (int r = 0; r < M; ++r) sum[r][0] = sum[r][1] = vzero();
  const Real *x = p.x + m * p.xm, *y = p.y + col;
  for (Dim i = 0; i < p.n; ++i, x += p.xn, y += p.yn) {
    const V a = whole ? vload(y) : vload_n(y, cols), b = whole ? vload(y + W) : vload_n(y + W, cols - W);
    for (int r = 0; r < M; ++r) {
      const V f = vset(x[r * p.xm]);
      sum[r][0] = vfma(f, a, sum[r][0]);
      sum[r][1] = vfma(f, b, sum[r][1]);
    }
  }
  for (int r = 0; r < M; ++r)
    for (int v = 0; v < 2; ++v) {
      const Dim left = cols - v * W;
      if (left <= 0) break;
      Real* c = p.c + (m + r) * p.cm + col + v * W;
      vstore_n(c, p.add ? vload_n(c, left) + sum[r][v] : sum[r][v], left);
    }
}

void multiply(const Product& p, Dim rows, Dim cols) {
  for (Dim col = 0; col < cols; col += 2 * W) {
    const Dim left = cols - col;
    Dim m = 0;
    if (left >= 2 * W) {
      for (; m + 4 <= rows; m += 4) tile<4, true>(p, m, col, left);
      for (; m < rows; ++m) tile<1, true>(p, m, col, left);
    } else {
      for (; m + 4 <= rows; m += 4) tile<4, false>(p, m, col, left);
      for (; m < rows; ++m) tile<1, false>(p, m, col, left);
    }
  }
}

// Rows of the table for keys 0, 1, … of the row of q at `position`.
RAPT_INLINE const int32_t* rows_for(const DisentangleShape& s, Dim row) {
  return s.row_of + s.longest - 1 - s.position[row];
}

RAPT_INLINE Real* block_space(Queue& queue, int worker, const DisentangleShape& s) {
  return reinterpret_cast<Real*>(
      scratch_of(queue, worker, size_t(kDisentangleBlock * s.table) * sizeof(Real)));
}

// [table][heads][d] of one head -> [d][table]
void turn(const Real* from, Dim stride, Dim rows, Dim d, Real* to) {
  for (Dim r = 0; r < rows; ++r)
    for (Dim c = 0; c < d; ++c) to[c * rows + r] = from[r * stride + c];
}

}  // namespace

void disentangle(Queue& queue, const DisentangleArgs& a) noexcept {
  const DisentangleShape& s = a.shape;
  const Dim group = s.heads / s.kv_heads, wide = s.heads * s.d, narrow = s.kv_heads * s.d;
  const auto *q = static_cast<const Real*>(s.q), *k = static_cast<const Real*>(s.k),
             *keys = static_cast<const Real*>(s.keys), *queries = static_cast<const Real*>(s.queries);
  Real *turned_keys = static_cast<Real*>(a.work), *turned_queries = turned_keys + narrow * s.table;
  for_tasks(queue, s.kv_heads + s.heads, [&](Dim task, int) {
    const bool first = task < s.kv_heads;
    const Dim h = first ? task : task - s.kv_heads;
    if (first && keys) turn(keys + h * s.d, narrow, s.table, s.d, turned_keys + h * s.d * s.table);
    if (!first && queries) turn(queries + h * s.d, wide, s.table, s.d, turned_queries + h * s.d * s.table);
  });

  for_tasks(queue, s.heads * s.q_block_count, [&](Dim task, int worker) {
    const Dim h = task / s.q_block_count;
    const DisentangleBlock& b = s.q_blocks[task % s.q_block_count];
    Real* bias = static_cast<Real*>(a.bias) + (h * s.rows + b.first) * s.longest;
    Real* held = keys ? block_space(queue, worker, s) : nullptr;
    if (keys) {
      if (!held) return;
      multiply({.c = held + b.low,
                .cm = s.table,
                .x = q + b.first * wide + h * s.d,
                .xm = wide,
                .xn = 1,
                .y = turned_keys + h / group * s.d * s.table + b.low,
                .yn = s.table,
                .n = s.d,
                .add = false},
               b.count, b.high - b.low);
    }
    const V scale = vset(Real(s.scale));
    for (Dim i = 0; i < b.count; ++i) {
      Real* to = bias + i * s.longest;
      Dim j = 0;
      if (keys) {
        const int32_t* row = rows_for(s, b.first + i);
        const Real* from = held + i * s.table;
        for (; j + W <= b.k_count; j += W) vstore(to + j, scale * vgather(from, row + j));
        for (; j < b.k_count; ++j) to[j] = Real(s.scale) * from[row[j]];
      }
      for (; j < s.longest; ++j) to[j] = 0;
    }
  });

  if (!queries) return;
  for_tasks(queue, s.heads * s.k_block_count, [&](Dim task, int worker) {
    const Dim h = task / s.k_block_count;
    const DisentangleBlock& b = s.k_blocks[task % s.k_block_count];
    Real* held = block_space(queue, worker, s);
    if (!held) return;
    multiply({.c = held + b.low,
              .cm = s.table,
              .x = k + (b.k_first + b.first) * narrow + h / group * s.d,
              .xm = narrow,
              .xn = 1,
              .y = turned_queries + h * s.d * s.table + b.low,
              .yn = s.table,
              .n = s.d,
              .add = false},
             b.count, b.high - b.low);
    for (Dim i = b.q_first; i < b.q_first + b.q_count; ++i) {
      Real* to = static_cast<Real*>(a.bias) + (h * s.rows + i) * s.longest + b.first;
      const int32_t* row = rows_for(s, i) + b.first;
      for (Dim j = 0; j < b.count; ++j) to[j] += Real(s.scale) * held[j * s.table + row[j]];
    }
  });
}

void disentangle_backward(Queue& queue, const DisentangleBackwardArgs& a) noexcept {
  const DisentangleShape& s = a.shape;
  const Dim group = s.heads / s.kv_heads, wide = s.heads * s.d, narrow = s.kv_heads * s.d;
  const auto *q = static_cast<const Real*>(s.q), *k = static_cast<const Real*>(s.k),
             *keys = static_cast<const Real*>(s.keys), *queries = static_cast<const Real*>(s.queries);
  for_tasks(queue, s.kv_heads, [&](Dim g, int worker) {
    Real* held = block_space(queue, worker, s);  // the gradients of the products
    if (!held) return;
    // x: the block's rows of q or k in this head, `apart` from each other; dx likewise; y: the table's rows
    // in this head; dy likewise.
    auto spread = [&](const DisentangleBlock& b, const Real* x, Real* dx, Dim apart, const Real* y, Real* dy,
                      Dim table_apart) {
      const Dim met = b.high - b.low;
      if (dx)
        multiply({.c = dx,
                  .cm = apart,
                  .x = held + b.low,
                  .xm = s.table,
                  .xn = 1,
                  .y = y + b.low * table_apart,
                  .yn = table_apart,
                  .n = met,
                  .add = true},
                 b.count, s.d);
      if (dy)
        multiply({.c = dy + b.low * table_apart,
                  .cm = table_apart,
                  .x = held + b.low,
                  .xm = 1,
                  .xn = s.table,
                  .y = x,
                  .yn = apart,
                  .n = b.count,
                  .add = true},
                 met, s.d);
    };
    auto clear = [&](const DisentangleBlock& b) {
      for (Dim i = 0; i < b.count; ++i)
        for (Dim r = b.low; r < b.high; ++r) held[i * s.table + r] = 0;
    };
    auto at = [](void* base, Dim offset) { return base ? static_cast<Real*>(base) + offset : nullptr; };
    for (Dim h = g * group; h < (g + 1) * group; ++h) {
      const Real* dbias = static_cast<const Real*>(a.dbias) + h * s.rows * s.longest;
      for (Dim block = 0; keys && block < s.q_block_count; ++block) {
        const DisentangleBlock& b = s.q_blocks[block];
        clear(b);
        for (Dim i = 0; i < b.count; ++i) {
          const Real* from = dbias + (b.first + i) * s.longest;
          const int32_t* row = rows_for(s, b.first + i);
          for (Dim j = 0; j < b.k_count; ++j) held[i * s.table + row[j]] += Real(s.scale) * from[j];
        }
        const Dim offset = b.first * wide + h * s.d;
        spread(b, q + offset, at(a.dq, offset), wide, keys + g * s.d, at(a.dkeys, g * s.d), narrow);
      }
      for (Dim block = 0; queries && block < s.k_block_count; ++block) {
        const DisentangleBlock& b = s.k_blocks[block];
        clear(b);
        for (Dim i = b.q_first; i < b.q_first + b.q_count; ++i) {
          const Real* from = dbias + i * s.longest + b.first;
          const int32_t* row = rows_for(s, i) + b.first;
          for (Dim j = 0; j < b.count; ++j) held[j * s.table + row[j]] += Real(s.scale) * from[j];
        }
        const Dim offset = (b.k_first + b.first) * narrow + g * s.d;
        spread(b, k + offset, at(a.dk, offset), narrow, queries + h * s.d, at(a.dqueries, h * s.d), wide);
      }
    }
  });
}

}  // namespace rapt::RAPT_ISA
