// SPDX-License-Identifier: Apache-2.0
// activation, glu and gate: checks, one kernel call, and for the way back the formula above each backward.
#include "rapt/ops/activation.h"

namespace rapt {
namespace {

struct ActivationTape {
  Act act;
  double c;
  Tensor x, y;
};

// dx += dy * act'(x)
void activation_backward(Run& run, const ActivationTape& s) {
  bool write_dx = false;
  void* dx = run.grad(s.x, write_dx);
  run.call(&Kernels::activation_backward, {.act = s.act,
                                           .c = s.c,
                                           .elements = s.x.elements(),
                                           .x = s.x.data,
                                           .dy = run.grad(s.y),
                                           .dx = dx,
                                           .write_dx = write_dx});
}

}  // namespace

Tensor activation(Run& run, Act act, const Tensor& x, double c) {
  if (!x.contiguous()) fail("activation: x ", x.shape(), " is not contiguous");
  if ((act == Act::softcap || act == Act::clip) && !(c > 0))
    fail("activation: ", act == Act::clip ? "clip needs a positive limit" : "softcap needs a positive cap",
         ", it is ", c);
  Tensor y = run.like(x);
  run.call(&Kernels::activation, {.act = act, .c = c, .elements = x.elements(), .x = x.data, .y = y.data});
  run.record(activation_backward, ActivationTape{act, c, x, y});
  return y;
}

// ------------------------------------------------------------------------------------------------ glu
namespace {

struct GluTape {
  GluSpec spec;
  Tensor gate, up, y;
};

// dgate += dy * (up + offset) * act'(gate);  dup += dy * act(gate);  nothing where the clamp held a value.
void glu_backward(Run& run, const GluTape& s) {
  run.call(&Kernels::glu_backward, {.spec = s.spec,
                                    .elements = s.y.elements(),
                                    .gate = s.gate.data,
                                    .up = s.up.data,
                                    .dy = run.grad(s.y),
                                    .dgate = run.grad(s.gate),
                                    .dup = run.grad(s.up)});
}

}  // namespace

Tensor glu(Run& run, const GluSpec& spec, const Tensor& gate, const Tensor& up) {
  if (gate.rank != up.rank || gate.size != up.size)
    fail("glu: gate ", gate.shape(), " and up ", up.shape(), " differ in shape");
  if (!gate.contiguous() || !up.contiguous()) fail("glu: gate or up ", up.shape(), " is not contiguous");
  if (!(spec.clamp >= 0)) fail("glu: clamp = ", spec.clamp, " is negative; 0 means none");
  if (spec.alpha != 1 && spec.act != Act::silu)
    fail("glu: alpha = ", spec.alpha, " belongs to silu, this unit has another activation");
  Tensor y = run.like(gate);
  run.call(&Kernels::glu,
           {.spec = spec, .elements = y.elements(), .gate = gate.data, .up = up.data, .y = y.data});
  run.record(glu_backward, GluTape{spec, gate, up, y});
  return y;
}

// ------------------------------------------------------------------------------------------------ gate
Dim gate_width(const GateSpec& spec, Dim heads, Dim d) {
  return (spec.shared ? 1 : heads) * (spec.grain == GateGrain::element ? d : 1);
}

namespace {

struct GateTape {
  GateSpec spec;
  Tensor x, y, g;        // g without data where the gate is a weight
  const Weight* weight;
};

// mul: dx += dy * act(g), dg += act'(g) * sum of dy * x;  add: dx += dy, dg += act'(g) * sum of dy; over the
// elements that share g.
void gate_backward(Run& run, const GateTape& s) {
  run.call(&Kernels::gate_backward, {.spec = s.spec,
                                     .rows = s.x[0],
                                     .heads = s.x[1],
                                     .d = s.x[2],
                                     .constant = s.weight != nullptr,
                                     .x = s.x.data,
                                     .g = s.weight ? s.weight->data.get() : s.g.data,
                                     .dy = run.grad(s.y),
                                     .dx = run.grad(s.x),
                                     .dg = s.weight ? run.grad(s.weight) : run.grad(s.g)});
}

Tensor gate_with(Run& run, const GateSpec& spec, const Tensor& x, const Tensor& g, const Weight* weight) {
  if (!x.contiguous()) fail("gate: x ", x.shape(), " is not contiguous");
  Tensor y = run.like(x);
  run.call(&Kernels::gate, {.spec = spec,
                            .rows = x[0],
                            .heads = x[1],
                            .d = x[2],
                            .constant = weight != nullptr,
                            .x = x.data,
                            .g = weight ? weight->data.get() : g.data,
                            .y = y.data});
  run.record(gate_backward, GateTape{spec, x, y, g, weight});
  return y;
}

Dim width_for(const GateSpec& spec, const Tensor& x) {
  if (x.rank != 3) fail("gate: x ", x.shape(), " should be [T,H,D]");
  return gate_width(spec, x[1], x[2]);
}

}  // namespace

Tensor gate(Run& run, const GateSpec& spec, const Tensor& x, const Tensor& g) {
  const Dim n = width_for(spec, x);
  if (!g.contiguous() || g[0] != x[0] || g.elements() != x[0] * n)
    fail("gate: g ", g.shape(), " should be [", x[0], ",", n, "] for x ", x.shape());
  return gate_with(run, spec, x, g, nullptr);
}

Tensor gate(Run& run, const GateSpec& spec, const Tensor& x, const Weight& g) {
  const Dim n = width_for(spec, x);
  if (g.size() != n)
    fail("gate: weight ", g.name, " has ", g.size(), " elements, ", n, " are needed for x ", x.shape());
  return gate_with(run, spec, x, Tensor{}, &g);
}

}  // namespace rapt
