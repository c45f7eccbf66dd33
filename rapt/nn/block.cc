// SPDX-License-Identifier: Apache-2.0
// A branch's sum is part of its last product where nothing stands between; forgotten layers are run again.
#include "rapt/nn/block.h"

#include "rapt/ops/elementwise.h"
#include "rapt/ops/linear.h"

namespace rapt {
namespace {

// Sites that need random numbers inside one layer: part number and use.
std::uint64_t random_site(std::size_t part, int use) { return part * 8 + static_cast<std::uint64_t>(use); }

Tensor ffn_hidden(Run& run, const Ffn& f, const Tensor& input, std::size_t part) {
  const FfnRecipe& r = f.recipe;
  const Tensor x = tap(run, Site::ffn_in, input);
  Tensor hidden;
  if (r.kind == FfnRecipe::Kind::glu) {
    Tensor both[2];
    const Projection parts[] = {{f.gate.w, f.gate.b}, {f.up.w, f.up.b}};
    project(run, x, parts, both);
    hidden = glu(run, {r.act, r.clamp, r.alpha, r.up_offset}, tap(run, Site::ffn_pre, both[0]), tap(run, Site::ffn_linear, both[1]));
  } else {
    hidden = activation(run, r.act, tap(run, Site::ffn_pre, linear(run, x, *f.up.w, f.up.b)));
  }
  return tap(run, Site::ffn_hidden, dropout(run, hidden, r.dropout, random_site(part, 1)));
}

// residual + scale * dropout(norm_out(f(input)))
Tensor branch(Run& run, const Part& p, const Tensor& input, const Tensor& residual, const Pass& pass, std::size_t index) {
  const bool is_ffn = p.kind == PartRecipe::Kind::ffn, cross = p.kind == PartRecipe::Kind::cross;
  const Tensor inner = is_ffn ? ffn_hidden(run, p.ffn, input, index) : attend(run, p.attn, input, pass);
  const LinearLayer& last = is_ffn ? p.ffn.down : p.attn.o;
  const auto& gate_out = p.attn.gate_at(GateRecipe::At::out);
  const Site site = is_ffn ? Site::ffn_out : Site::attn_out;
  const auto watched = [&](Site at) { return run.taps && (run.taps->sees(at) || run.taps->edits(at)); };
  const bool plain = !p.norm_out && !(run.training && p.dropout > 0) && (is_ffn || !gate_out);
  // The sum rides on the product's last step. Observers of the product get it apart, computed by the same chain: the same bits.
  if (plain && !watched(site) && !watched(Site::part_out)) return linear_add(run, residual, inner, *last.w, last.b, p.residual_scale);
  Tensor y = linear(run, inner, *last.w, last.b);                                              // [T,C]
  if (!is_ffn) y = apply(run, gate_out, input, y.reshape({y[0], 1, y[1]})).reshape({y[0], y[1]});  // one head as wide as the model
  y = tap(run, Site::part_out, apply(run, p.norm_out, tap(run, site, y, cross)), cross);
  return add(run, residual, dropout(run, y, p.dropout, random_site(index, 0)), p.residual_scale);
}

Tensor run_layer(Run& run, const Layer& layer, const Tensor& input, const Pass& pass) {
  run.part = 0;
  Tensor x = layer.parallel ? tap(run, Site::resid_in, input) : input;
  const Tensor shared = layer.parallel ? apply(run, layer.norm_in, x) : Tensor{};
  for (std::size_t i = 0; i < layer.parts.size(); ++i) {
    const Part& p = layer.parts[i];
    run.part = static_cast<int>(i);
    if (!layer.parallel) x = tap(run, Site::resid_in, x);
    const Tensor h = apply(run, p.norm_in, layer.parallel ? shared : x);
    x = branch(run, p, h, x, pass, i);  // parallel: the sum grows, the input stays
    if (p.norm_sum) x = apply(run, p.norm_sum, tap(run, Site::resid_sum, x));
  }
  run.part = -1;
  return tap(run, Site::resid_out, x);
}

void copy(Run& run, const void* from, void* to, Dim elements) { run.call(&Kernels::copy, {.elements = elements, .x = from, .y = to}); }

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

Tensor run_stack(Run& run, const LayerStack& stack, Tensor x, const std::shared_ptr<const Pass>& pass) {
  const bool keep_all = run.tape && !run.recompute;
  if (run.tape) run.tape->hold(pass);
  Tensor spare[2];  // without a tape two buffers carry the residual stream from layer to layer
  for (std::size_t i = 0; i < stack.layers.size(); ++i) {
    const Layer& layer = stack.layers[i];
    run.layer = static_cast<int>(i);
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
      run.record(segment_backward, Segment{&layer, pass.get(), x, y, static_cast<int>(i), run.stack, run.row_ids});
      x = y;
    }
  }
  run.layer = -1;
  if (stack.final_norm) x = tap(run, Site::final_norm, apply(run, stack.final_norm, x));
  return dropout(run, x, stack.dropout, 0);
}

}  // namespace rapt
