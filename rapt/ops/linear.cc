// SPDX-License-Identifier: Apache-2.0
// compute() is behind linear, linear_add and project: checks, then the plain, bf16 or block kernel, then what
// adapters add.
#include "rapt/ops/linear.h"

#include "rapt/ops/elementwise.h"

namespace rapt {
namespace {

struct LinearTape {
  Tensor x, residual;  // residual: no data where there is none
  Tensor y[kMostParts];
  Projection parts[kMostParts];
  int count;
  double scale;
  bool bf16;  // products of rounded factors
};

// dx += scale dy W;  dW += scale dy^T x;  db += scale sum over rows of dy;  dresidual += dy.
void linear_backward(Run& run, const LinearTape& s) {
  LinearBackwardArgs a{.rows = s.x.rows(),
                       .k = s.x.last(),
                       .x = s.x.data,
                       .dx = nullptr,
                       .write_dx = false,
                       .count = s.count,
                       .parts = {}};
  if (a.rows == 0) {
    for (int i = 0; i < s.count; ++i) run.grad(s.parts[i].w), run.grad(s.parts[i].bias);
    return;
  }
  // Before the residual's, which may be the same: what dx wrote is then added to.
  a.dx = run.grad(s.x, a.write_dx);
  bool write_dw = false, write_dresidual = false;
  for (int i = 0; i < s.count; ++i) {
    const Projection& p = s.parts[i];
    a.parts[i] = {.n = p.w->rows,
                  .w = p.w->data.get(),
                  .format = p.w->format,
                  .scale = s.scale,
                  .dy = run.grad(s.y[i]),
                  .dw = run.grad(p.w, write_dw),
                  .dbias = run.grad(p.bias),
                  .dresidual = s.residual ? run.grad(s.residual, write_dresidual) : nullptr,
                  .write_dw = write_dw,
                  .write_dresidual = write_dresidual};
  }
  if (!s.bf16) return run.call(&Kernels::linear_backward, a);
  Dim space = bf16_space(a.rows, a.k);
  for (int i = 0; i < s.count; ++i) space += 2 * bf16_space(a.rows, a.parts[i].n);
  const Arena::Mark mark = run.arena.mark();
  a.space = run.arena.take(static_cast<std::size_t>(space) * size_of(run.device.real));
  run.call(&Kernels::linear_bf16_backward, a);
  run.arena.release(mark);
}

Tensor output(Run& run, const Tensor& x, Dim n) {  // x's shape with another last axis
  switch (x.rank) {
    case 1: return run.make({n});
    case 2: return run.make({x[0], n});
    case 3: return run.make({x[0], x[1], n});
    default: return run.make({x[0], x[1], x[2], n});
  }
}

// y += scale * B (A x) for the rows of each range whose adapter changes one of the weights.
void add_adapters(const char* op, Run& run, const Tensor& x, std::span<const Projection> parts,
                  std::span<const Tensor> out) {
  const std::size_t real = size_of(run.device.real);
  const auto bytes = [&](Dim elements) { return static_cast<std::size_t>(elements) * real; };
  for (std::size_t kind = 0; kind < run.adapted->lists.size(); ++kind) {
    const AdaptedRows::List& list = run.adapted->lists[kind];
    for (const AdaptedRows::Range& range : list.ranges) {
      const Adapter::Term* terms[kMostParts] = {};
      const void* down[kMostParts] = {};  // A x of each part; parts that share A share it
      LinearArgs first{.rows = range.count,
                       .k = x.last(),
                       .x = x.data + bytes(range.first * x.last()),
                       .count = 0,
                       .parts = {}};
      const Arena::Mark mark = run.arena.mark();
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const Adapter::Term* t = range.adapter->find(*parts[i].w);
        if (!t || static_cast<std::size_t>(t->rows) != kind) continue;
        if (x.rows() != list.rows)
          fail(op, ": weight ", t->of->name, " meets ", x.rows(), " rows where the pass has ", list.rows,
               ", so nobody can tell which of them use the adapter ", range.adapter->path);
        terms[i] = t;
        for (std::size_t j = 0; j < i && !down[i]; ++j)
          if (terms[j] && terms[j]->a == t->a) down[i] = down[j];
        if (down[i]) continue;
        LinearPart& part = first.parts[first.count++];
        part = {.n = t->a->rows,
                .w = t->a->data.get(),
                .format = t->a->format,
                .bias = nullptr,
                .residual = nullptr,
                .scale = 1,
                .y = run.arena.take(bytes(range.count * t->a->rows))};
        down[i] = part.y;
      }
      if (first.count > 0) run.call(&Kernels::linear, first);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (!terms[i]) continue;
        const Weight& b = terms[i]->b;
        void* const up = run.arena.take(bytes(range.count * b.rows));
        run.call(&Kernels::linear,
                 {.rows = range.count,
                  .k = b.cols,
                  .x = down[i],
                  .count = 1,
                  .parts = {{.n = b.rows,
                             .w = b.data.get(),
                             .format = b.format,
                             .bias = nullptr,
                             .residual = nullptr,
                             .scale = static_cast<double>(terms[i]->scale) * static_cast<double>(range.scale),
                             .y = up}}});
        std::byte* const y = out[i].data + bytes(range.first * b.rows);
        run.call(&Kernels::add, {.elements = range.count * b.rows, .scale = 1, .a = y, .b = up, .y = y});
      }
      run.arena.release(mark);
    }
  }
}

void compute(const char* op, Run& run, const Tensor& x, std::span<const Projection> parts,
             std::span<Tensor> out, const Tensor& residual, double scale) {
  if (parts.empty() || parts.size() > kMostParts)
    fail(op, ": ", parts.size(), " products asked for in one call; 1 to ", kMostParts, " are possible");
  if (out.size() != parts.size())
    fail(op, ": ", parts.size(), " products but room for ", out.size(), " results");
  if (!x.contiguous()) fail(op, ": x ", x.shape(), " is not contiguous");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_projection(op, run, x, parts[i]);
    for (std::size_t j = 0; j < i; ++j)  // their gradients would be added by two threads at once
      if (parts[i].w == parts[j].w || (parts[i].bias && parts[i].bias == parts[j].bias))
        fail(op, ": weight ", parts[i].w->name,
             " or its bias is given twice; compute it once and use the result twice");
  }
  if (residual &&
      (residual.last() != parts[0].w->rows || residual.rows() != x.rows() || !residual.contiguous()))
    fail(op, ": residual ", residual.shape(), " does not fit the ", x.rows(), " rows of ", parts[0].w->rows,
         " that x ", x.shape(), " and weight ", parts[0].w->name, " give");
  LinearTape s{.x = x,
               .residual = residual,
               .y = {},
               .parts = {},
               .count = static_cast<int>(parts.size()),
               .scale = scale,
               .bf16 = false};
  LinearArgs a{.rows = x.rows(), .k = x.last(), .x = x.data, .count = 0, .parts = {}};
  QuantLinearArgs q{.rows = x.rows(), .k = x.last(), .x = x.data, .count = 0, .parts = {}, .space = nullptr};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [w, bias] = s.parts[i] = parts[i];
    s.y[i] = out[i] = output(run, x, w->rows);
    LinearPart& part = is_block(w->format) ? q.parts[q.count++] : a.parts[a.count++];
    part = {.n = w->rows,
            .w = w->data.get(),
            .format = w->format,
            .bias = bias ? bias->data.get() : nullptr,
            .residual = residual.data,
            .scale = scale,
            .y = out[i].data,
            .gain = w->gain};
  }
  s.bf16 = run.products == Precision::bf16;
  for (const Projection& p : parts) s.bf16 = s.bf16 && p.w->format == run.device.real;
  const Arena::Mark mark = run.arena.mark();
  if (s.bf16) {
    a.space = run.arena.take(static_cast<std::size_t>(bf16_space(a.rows, a.k)) * size_of(run.device.real));
    run.call(&Kernels::linear_bf16, a);
  } else if (a.count > 0) {
    run.call(&Kernels::linear, a);
  }
  if (q.count > 0) {
    q.space = run.arena.take(static_cast<std::size_t>(quant_space(q.rows, q.k)));
    run.call(&Kernels::quant_linear, q);
  }
  run.arena.release(mark);
  if (run.adapted) add_adapters(op, run, x, parts, out);
  run.record(linear_backward, s);
}

}  // namespace

void check_projection(const char* op, const Run& run, const Tensor& x, const Projection& p) {
  const Weight& w = *p.w;
  if (w.packing != Packing::panels)
    fail(op, ": weight ", w.name, " is stored in rows; pack it in panels when it is made (Packing::panels)");
  if (is_block(w.format)) {
    if (run.tape)
      fail(op, ": weight ", w.name, " is stored as ", name_of(w.format),
           ", through which nothing is differentiated; to train or to take gradients, "
           "load the model with float matrices");
    if (w.cols % 32 != 0)
      fail(op, ": weight ", w.name, " [", w.rows, ",", w.cols, "] is stored as ", name_of(w.format),
           " but its rows of ", w.cols, " are no multiple of 32; load it as f16 or f32");
  } else if (w.format != run.device.real && w.format != DType::bf16 && w.format != DType::f16) {
    fail(op, ": weight ", w.name, " is stored as ", name_of(w.format), "; this device reads ",
         name_of(run.device.real), ", bf16, f16 and block formats: convert it");
  }
  if (w.cols != x.last())
    fail(op, ": weight ", w.name, " [", w.rows, ",", w.cols, "] takes rows of ", w.cols, ", x ", x.shape(),
         " has rows of ", x.last());
  if (!p.bias) return;
  if (p.bias->size() != w.rows)
    fail(op, ": bias ", p.bias->name, " has ", p.bias->size(), " elements, weight ", w.name, " has ", w.rows,
         " outputs");
  if (p.bias->packing != Packing::rows || p.bias->format != run.device.real)
    fail(op, ": bias ", p.bias->name, " must be plain ", name_of(run.device.real), ", it is ",
         name_of(p.bias->format), p.bias->packing == Packing::rows ? "" : " in panels");
}

void project(Run& run, const Tensor& x, std::span<const Projection> parts, std::span<Tensor> out) {
  compute("project", run, x, parts, out, {}, 1);
}

Tensor linear(Run& run, const Tensor& x, const Weight& w, const Weight* bias) {
  const Projection part{&w, bias};
  Tensor y;
  compute("linear", run, x, {&part, 1}, {&y, 1}, {}, 1);
  return y;
}

Tensor linear_add(Run& run, const Tensor& residual, const Tensor& x, const Weight& w, const Weight* bias,
                  double scale) {
  if (!residual) fail("linear_add: there is no residual; call linear");
  if (run.adapted && run.adapted->adapts(w))
    return add(run, residual, linear(run, x, w, bias), scale);  // rounds as the kernel's end does
  const Projection part{&w, bias};
  Tensor y;
  compute("linear_add", run, x, {&part, 1}, {&y, 1}, residual, scale);
  return y;
}

}  // namespace rapt
