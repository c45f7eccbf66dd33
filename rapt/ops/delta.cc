// SPDX-License-Identifier: Apache-2.0
// Sizes are checked; with a tape the states before every chunk are kept.
#include "rapt/ops/delta.h"

#include <vector>

namespace rapt {
namespace {

struct DecayTape {
  Tensor a, g;
  const Weight *a_log, *dt_bias;
};

// da = -e^{a_log} sigmoid(a + dt_bias) dg;  ddt_bias += sum of da;  da_log += sum of g dg.
void decay_backward(Run& run, const DecayTape& s) {
  run.call(&Kernels::decay_backward, {.rows = s.a[0],
                                      .n = s.a[1],
                                      .a = s.a.data,
                                      .a_log = s.a_log->data.get(),
                                      .dt_bias = s.dt_bias->data.get(),
                                      .g = s.g.data,
                                      .dg = run.grad(s.g),
                                      .da = run.grad(s.a),
                                      .da_log = run.grad(s.a_log),
                                      .ddt_bias = run.grad(s.dt_bias)});
}

struct GatedDeltaTape {
  GatedDeltaShape shape;
  GatedDeltaInputs in;
  Tensor o;
};

// Chunk by chunk from the end, dS the gradient of the state after it, r_i = u_i / beta_i:
//   du_j = sum_{i>=j} e^{c_i-c_j} (q_i.k_j) do_i - sum_{i>j} e^{c_i-c_j} (k_i.k_j) dr_i
//          + e^{c_last-c_j} dS^T k_j
//   dr_j = beta_j du_j = dv_j;  dbeta_j = du_j . r_j;  the rest is linear in k, q and S0 (delta_cpu.cc).
void gated_delta_backward(Run& run, const GatedDeltaTape& s) {
  run.call(&Kernels::gated_delta_backward, {.shape = s.shape,
                                            .dout = run.grad(s.o),
                                            .dq = run.grad(s.in.q),
                                            .dk = run.grad(s.in.k),
                                            .dv = run.grad(s.in.v),
                                            .dg = run.grad(s.in.g),
                                            .dbeta = run.grad(s.in.beta)});
}

void check(const Run& run, const GatedDeltaSpec& spec, const GatedDeltaInputs& in) {
  const auto tensor = [&](const char* what, const Tensor& t, std::initializer_list<Dim> sizes) {
    bool fits = t && t.rank == static_cast<int>(sizes.size()) && t.contiguous() && t.dtype == run.device.real;
    for (int i = 0; fits && i < t.rank; ++i) fits = t[i] == sizes.begin()[i];
    if (!fits)
      fail("gated_delta: ", what, " ", t ? t.shape() : "(absent)", " does not fit ", spec.key_heads,
           " key heads of ", spec.key_dim, " and ", spec.value_heads, " value heads of ", spec.value_dim);
  };
  if (spec.key_heads < 1 || spec.value_heads < 1 || spec.key_dim < 1 || spec.value_dim < 1 ||
      spec.value_heads % spec.key_heads != 0)
    fail("gated_delta: ", spec.value_heads, " value heads are no multiple of ", spec.key_heads, " key heads");
  const Dim T = in.q ? in.q[0] : 0;
  tensor("q", in.q, {T, spec.key_heads, spec.key_dim});
  tensor("k", in.k, {T, spec.key_heads, spec.key_dim});
  tensor("v", in.v, {T, spec.value_heads, spec.value_dim});
  tensor("g", in.g, {T, spec.value_heads});
  tensor("beta", in.beta, {T, spec.value_heads});
}

}  // namespace

Tensor decay(Run& run, const Tensor& a, const Weight& a_log, const Weight& dt_bias) {
  if (a.rank != 2 || !a.contiguous() || a_log.size() != a[1] || dt_bias.size() != a[1])
    fail("decay: a ", a.shape(), " with ", a_log.size(), " numbers a_log and ", dt_bias.size(), " dt_bias");
  Tensor g = run.like(a);
  run.call(&Kernels::decay, {.rows = a[0],
                             .n = a[1],
                             .a = a.data,
                             .a_log = a_log.data.get(),
                             .dt_bias = dt_bias.data.get(),
                             .g = g.data});
  run.record(decay_backward, DecayTape{a, g, &a_log, &dt_bias});
  return g;
}

Tensor gated_delta(Run& run, const GatedDeltaSpec& spec, const GatedDeltaInputs& in,
                   std::span<const Sequence> sequences, const ChunkPages* pages, Tensor* norms) {
  check(run, spec, in);
  if (pages && run.tape) fail("gated_delta: a cache and a tape together; give one of the two");
  if (pages && pages->sequences.size() != sequences.size())
    fail("gated_delta: pages of ", pages->sequences.size(), " sequences, there are ", sequences.size());
  std::vector<GatedDeltaPart> parts;
  Dim covered = 0, chunks = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    if (s.first != covered || s.count < 0)
      fail("gated_delta: a sequence has rows ", s.first, " …, row ", covered, " is next");
    covered += s.count;
    GatedDeltaPart part{s.first, s.count, 0, nullptr, nullptr, chunks};
    chunks += std::max<Dim>(0, (s.count + kChunkRows - 1) / kChunkRows - 1);
    if (pages) {
      const Dim end = s.past + s.count;
      const ChunkPages::Sequence& its = pages->sequences[i];
      if (static_cast<Dim>(its.rows.size()) * kChunkRows < end ||
          static_cast<Dim>(its.states.size()) < end / kChunkRows)
        fail("gated_delta: pages of ", its.rows.size(), " chunks and ", its.states.size(), " states for ",
             end, " rows");
      part.past = s.past;
      part.row_pages = its.rows.data();
      part.state_pages = its.states.data();
    }
    parts.push_back(part);
  }
  if (covered != in.q[0]) fail("gated_delta: the sequences cover ", covered, " rows, q has ", in.q[0]);
  Tensor o = run.like(in.v);
  if (norms) *norms = run.make({in.q[0], spec.value_heads}).constant();
  GatedDeltaShape shape{.key_heads = spec.key_heads,
                        .value_heads = spec.value_heads,
                        .key_dim = spec.key_dim,
                        .value_dim = spec.value_dim,
                        .scale = spec.scale,
                        .turns = spec.turns,
                        .part_count = static_cast<Dim>(parts.size()),
                        .parts = run.copy_of(std::span<const GatedDeltaPart>(parts)),
                        .q = in.q.data,
                        .k = in.k.data,
                        .v = in.v.data,
                        .g = in.g.data,
                        .beta = in.beta.data,
                        .states = nullptr};
  if (run.tape)
    shape.states =
        run.arena.take(static_cast<std::size_t>(chunks * spec.state_values()) * size_of(run.device.real));
  run.call(&Kernels::gated_delta, {.shape = shape,
                                   .o = o.data,
                                   .norms = norms ? norms->data : nullptr,
                                   .cached = pages != nullptr,
                                   .rows = pages ? pages->rows : nullptr,
                                   .state_pages = pages ? pages->states : nullptr,
                                   .row_stride = pages ? pages->row_stride : 0,
                                   .state_stride = pages ? pages->state_stride : 0});
  run.record(gated_delta_backward, GatedDeltaTape{shape, in, o});
  return o;
}

}  // namespace rapt
