// SPDX-License-Identifier: Apache-2.0
// add, copy, tap, dropout, scale_heads. Dropout keeps no mask: the key of a row draws the same
// numbers again.
#include "rapt/ops/elementwise.h"

namespace rapt {
namespace {

void check_contiguous(const char* op, const Tensor& x) {
  if (!x.contiguous()) fail(op, ": x ", x.shape(), " is not contiguous; copy it first");
}
Dim row_count(const Tensor& x) { return x.rank > 1 ? x[0] : 1; }
Dim row_width(const Tensor& x) { return row_count(x) ? x.elements() / row_count(x) : 0; }

}  // namespace

// ------------------------------------------------------------------------------------------------ add
namespace {

struct AddTape {
  Tensor a, b, y;
  double scale;
};

// da += dy;  db += scale * dy
void add_backward(Run& run, const AddTape& s) {
  run.call(&Kernels::add_backward, {.elements = s.y.elements(),
                                    .scale = s.scale,
                                    .dy = run.grad(s.y),
                                    .da = run.grad(s.a),
                                    .db = run.grad(s.b)});
}

}  // namespace

Tensor add(Run& run, const Tensor& a, const Tensor& b, double scale) {
  if (a.rank != b.rank || a.size != b.size)
    fail("add: a ", a.shape(), " and b ", b.shape(), " differ in shape");
  check_contiguous("add", a);
  check_contiguous("add", b);
  Tensor y = run.like(a);
  run.call(&Kernels::add, {.elements = y.elements(), .scale = scale, .a = a.data, .b = b.data, .y = y.data});
  run.record(add_backward, AddTape{a, b, y, scale});
  return y;
}

// ------------------------------------------------------------------------------------------------ copy, tap
namespace {

struct CopyTape {
  Tensor x, y;
};

// [a][b] rows of n elements: what a view of up to three axes is. Of x, then of y.
struct CopyRowsTape {
  Tensor x, y;
};
template <class Args>
Args rows_args(const Tensor& x, const Tensor& y) {
  Args args{};
  const int skip = 3 - x.rank;  // axes that are not there count 1
  const auto of = [&](const Tensor& t, int axis, bool stride) {
    if (axis < skip) return Dim{stride ? 0 : 1};
    const auto i = static_cast<std::size_t>(axis - skip);
    return stride ? t.stride[i] : t.size[i];
  };
  args.a = of(x, 0, false), args.b = of(x, 1, false), args.n = x.last();
  for (int axis = 0; axis < 2; ++axis) {
    args.x_stride[axis] = of(x, axis, true);
    args.y_stride[axis] = of(y, axis, true);
  }
  return args;
}

// dx += dy
void copy_rows_backward(Run& run, const CopyRowsTape& s) {
  auto args = rows_args<CopyRowsBackwardArgs>(s.x, s.y);
  args.dy = run.grad(s.y);
  args.dx = run.grad(s.x);
  run.call(&Kernels::copy_rows_backward, args);
}

// dx += dy
void copy_backward(Run& run, const CopyTape& s) {
  run.call(&Kernels::copy_backward, {.elements = s.y.elements(), .dy = run.grad(s.y), .dx = run.grad(s.x)});
}

}  // namespace

void copy(Run& run, const Tensor& x, const Tensor& into) {
  if (x.rank != into.rank || x.size != into.size)
    fail("copy: x ", x.shape(), " and the place for it ", into.shape(), " differ in shape");
  if (x.contiguous() && into.contiguous()) {
    run.call(&Kernels::copy, {.elements = x.elements(), .x = x.data, .y = into.data});
    run.record(copy_backward, CopyTape{x, into});
    return;
  }
  if (x.rank > 3) fail("copy: views with gaps have up to three axes, x is ", x.shape());
  auto args = rows_args<CopyRowsArgs>(x, into);
  args.x = x.data;
  args.y = into.data;
  run.call(&Kernels::copy_rows, args);
  run.record(copy_rows_backward, CopyRowsTape{x, into});
}

namespace {

Tapped tapped(const Run& run, Site site, const Tensor& value, bool cross, Tapped::Rows rows) {
  return {.site = site,
          .stack = run.stack,
          .layer = run.layer,
          .value = value,
          .cross = cross,
          .part = run.part,
          .rows = rows};
}

}  // namespace

Tensor edited(Run& run, Site site, const Tensor& x, bool cross, Tapped::Rows rows) {
  if (!run.taps || !run.taps->edits(site)) return x;
  check_contiguous("tap", x);
  const Tensor y = run.like(x);
  run.call(&Kernels::copy, {.elements = y.elements(), .x = x.data, .y = y.data});
  run.taps->change(tapped(run, site, y, cross, rows));
  run.record(copy_backward, CopyTape{x, y});
  return y;
}

Tensor tap(Run& run, Site site, const Tensor& x, bool cross, Tapped::Rows rows) {
  const Tensor y = edited(run, site, x, cross, rows);
  if (run.wants(site)) run.taps->show(tapped(run, site, y, cross, rows));
  return y;
}

// ------------------------------------------------------------------------------------------------ dropout
namespace {

struct DropoutTape {
  Tensor x, y;
  double p;
  const std::uint32_t* keys;
};

// dx += dy * what x was multiplied by: the same keys draw the same numbers again, nothing else is stored.
void dropout_backward(Run& run, const DropoutTape& s) {
  run.call(&Kernels::dropout_backward, {.rows = row_count(s.x),
                                        .cols = row_width(s.x),
                                        .p = s.p,
                                        .row_keys = s.keys,
                                        .dy = run.grad(s.y),
                                        .dx = run.grad(s.x)});
}

// The finalizer of splitmix64: every input bit reaches every output bit.
std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

}  // namespace

const std::uint32_t* row_keys(Run& run, Dim rows, std::uint64_t site) {
  const std::uint64_t key = run.random_key(site);
  const bool named = static_cast<Dim>(run.row_ids.size()) == rows;
  auto* keys = run.arena.take_array<std::uint32_t>(rows);
  for (Dim r = 0; r < rows; ++r) {
    const std::uint64_t id = named ? run.row_ids[static_cast<std::size_t>(r)] : static_cast<std::uint64_t>(r);
    keys[r] = static_cast<std::uint32_t>(scramble(key + scramble(id + 0x9E3779B97F4A7C15)) >> 32);
  }
  return keys;
}

Tensor dropout(Run& run, const Tensor& x, double p, std::uint64_t site) {
  const double rounded = static_cast<float>(p);  // so that f32 and f64 drop the same elements
  if (!(p >= 0 && rounded < 1)) fail("dropout: p = ", p, " is not a probability in [0, 1)");
  if (!run.training || rounded == 0) return x;
  return dropout_by(run, x, p, row_keys(run, row_count(x), site));
}

Tensor dropout_by(Run& run, const Tensor& x, double p, const std::uint32_t* keys) {
  const double rounded = static_cast<float>(p);
  check_contiguous("dropout", x);
  Tensor y = run.like(x);
  run.call(
      &Kernels::dropout,
      {.rows = row_count(x), .cols = row_width(x), .p = rounded, .row_keys = keys, .x = x.data, .y = y.data});
  run.record(dropout_backward, DropoutTape{x, y, rounded, keys});
  return y;
}

// ---------------------------------------------------------------------------------------------- scale_heads
namespace {

struct ScaleHeadsTape {
  Tensor x, y;
  const Weight* g;
  double max;
};

// dx += dy * min(g, max);  dg[h] += sum over rows and channels of dy * x, nothing where g is above max.
void scale_heads_backward(Run& run, const ScaleHeadsTape& s) {
  run.call(&Kernels::scale_heads_backward, {.rows = s.x[0],
                                            .heads = s.x[1],
                                            .d = s.x[2],
                                            .scales = s.g->size(),
                                            .max = s.max,
                                            .x = s.x.data,
                                            .g = s.g->data.get(),
                                            .dy = run.grad(s.y),
                                            .dx = run.grad(s.x),
                                            .dg = run.grad(s.g)});
}

}  // namespace

Tensor scale_heads(Run& run, const Tensor& x, const Weight& g, double max) {
  if (x.rank != 3) fail("scale_heads: x ", x.shape(), " should be [T,H,D]");
  check_contiguous("scale_heads", x);
  if (g.size() != 1 && g.size() != x[1])
    fail("scale_heads: weight ", g.name, " has ", g.size(), " elements; 1 or one per head of x ", x.shape(),
         " is needed");
  if (!(max >= 0)) fail("scale_heads: max = ", max, " is negative; 0 means no limit");
  Tensor y = run.like(x);
  run.call(&Kernels::scale_heads, {.rows = x[0],
                                   .heads = x[1],
                                   .d = x[2],
                                   .scales = g.size(),
                                   .max = max,
                                   .x = x.data,
                                   .g = g.data.get(),
                                   .y = y.data});
  run.record(scale_heads_backward, ScaleHeadsTape{x, y, &g, max});
  return y;
}

}  // namespace rapt
