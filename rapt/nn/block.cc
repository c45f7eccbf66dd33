// SPDX-License-Identifier: Apache-2.0
// A branch's sum is part of its last product where nothing stands between; forgotten layers are run again.
#include "rapt/nn/block.h"

#include "rapt/nn/sites.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/linear.h"

namespace rapt {
namespace {

bool watched(const Run& run, Site site) {
  return run.taps && (run.taps->sees(site) || run.taps->edits(site));
}

}  // namespace

Tensor last_product(Run& run, const LinearLayer& last, const Tensor& x, Sum& sum, Site site) {
  if (!sum.open || watched(run, site) || (run.adapted && run.adapted->adapts(*last.w)))
    return linear(run, x, *last.w, last.b);
  sum.done = true;
  return linear_add(run, sum.residual, x, *last.w, last.b, sum.scale);
}

namespace {

// residual + scale * dropout(norm_out(f(input)))
Tensor branch(Run& run, const Part& p, const Tensor& input, const Tensor& residual, const Pass& pass) {
  Sum sum{residual, p.residual_scale};
  sum.open =
      !p.norm_out && !p.layer_scale && !(run.training && p.dropout > 0) && !watched(run, site::part_out);
  const Tensor y =
      std::visit([&](const auto& body) { return run_part(run, body, input, pass, sum); }, p.body);
  if (sum.done) return y;
  Tensor gained = apply(run, p.norm_out, y);
  if (p.layer_scale)
    gained =
        gate(run, {.act = Act::scale}, gained.reshape({y[0], 1, y[1]}), *p.layer_scale).reshape({y[0], y[1]});
  gained = tap(run, site::part_out, gained);
  return add(run, residual, dropout(run, gained, p.dropout, random_site(run, 0)), p.residual_scale);
}

Tensor run_layer(Run& run, const Layer& layer, const Tensor& input, const Pass& pass) {
  run.part = 0;
  Tensor x = layer.parallel ? tap(run, site::resid_in, input) : input;
  const Tensor shared = layer.parallel ? apply(run, layer.norm_in, x) : Tensor{};
  for (std::size_t i = 0; i < layer.parts.size(); ++i) {
    const Part& p = layer.parts[i];
    run.part = static_cast<int>(i);
    if (!layer.parallel) x = tap(run, site::resid_in, x);
    const Tensor h = apply(run, p.norm_in, layer.parallel ? shared : x);
    x = branch(run, p, h, x, pass);  // parallel: the sum grows, the input stays
    if (p.norm_sum) x = apply(run, p.norm_sum, tap(run, site::resid_sum, x));
  }
  run.part = -1;
  return tap(run, site::resid_out, x);
}

void copy(Run& run, const void* from, void* to, Dim elements) {
  run.call(&Kernels::copy, {.elements = elements, .x = from, .y = to});
}

// A layer whose inside is forgotten after the forward and computed again for the way back.
struct Segment {
  const Layer* layer;
  const Pass* pass;
  Tensor x, y;
  int index;
  Stack stack;
  std::span<const std::uint64_t> row_ids;  // a second run draws the same random numbers
};

void segment_backward(Run& run, const Segment& s) {
  Tape* outer = run.tape;
  // These outlive the segment's scratch, so they must be made before it.
  run.grad(s.x);
  if (s.pass->memory) run.grad(s.pass->memory);
  const void* dy = run.grad(s.y);
  const Arena::Mark mark = run.arena.mark();
  Tape inner(outer->gradients);
  run.tape = &inner;
  const int layer = std::exchange(run.layer, s.index);
  const Stack stack = std::exchange(run.stack, s.stack);
  const auto row_ids = std::exchange(run.row_ids, s.row_ids);
  run.recomputing = true;
  const bool was_muted = run.taps && run.taps->muted;
  if (run.taps) run.taps->muted = true;
  const Tensor y = run_layer(run, *s.layer, s.x, *s.pass);
  copy(run, dy, run.grad(y), y.elements());
  inner.play_back(run);
  if (run.taps) run.taps->muted = was_muted;
  run.recomputing = false;
  run.row_ids = row_ids;
  run.stack = stack;
  run.layer = layer;
  run.tape = outer;
  run.arena.release(mark);
}

}  // namespace

void prepare(Run& run, Pass& pass, const LayerStack& stack) {
  for (const Layer& layer : stack.layers)
    for (const Part& part : layer.parts)
      std::visit([&](const auto& body) { prepare(run, pass, body); }, part.body);
}

Tensor run_stack(Run& run, const LayerStack& stack, Tensor x, const std::shared_ptr<const Pass>& pass) {
  const bool keep_all = run.tape && !run.recompute;
  if (run.tape) run.tape->hold(pass);
  Tensor spare[2];  // without a tape two buffers carry the residual stream from layer to layer
  for (std::size_t i = 0; i < stack.layers.size(); ++i) {
    const Layer& layer = stack.layers[i];
    run.layer = static_cast<int>(i);
    run.check_cancelled();
    run.first_use(layer.first_weight);
    if (keep_all) {
      x = run_layer(run, layer, x, *pass);
    } else {
      Tensor y;
      if (run.tape) {
        y = run.like(x);
      } else {
        if (!spare[i % 2]) spare[i % 2] = run.like(x);
        y = spare[i % 2];
      }
      const Arena::Mark mark = run.arena.mark();
      Tape* tape = std::exchange(run.tape, nullptr);
      const Tensor result = run_layer(run, layer, x, *pass);
      copy(run, result.data, y.data, y.elements());
      run.arena.release(mark);
      run.tape = tape;
      run.record(segment_backward,
                 Segment{&layer, pass.get(), x, y, static_cast<int>(i), run.stack, run.row_ids});
      x = y;
    }
  }
  run.layer = -1;
  if (stack.final_norm) x = tap(run, site::final_norm, apply(run, stack.final_norm, x));
  return dropout(run, x, stack.dropout, 0);
}

}  // namespace rapt
