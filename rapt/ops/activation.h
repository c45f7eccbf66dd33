// SPDX-License-Identifier: Apache-2.0
// Elementwise functions, gated linear units, and gates on attention.
#pragma once
#include "rapt/run/run.h"

namespace rapt {

// clang-format off
enum class Act : int {
  relu, relu2, gelu, gelu_tanh, silu, quick_gelu, sigmoid, ns_sigmoid /* 0.5 + 0.5 sigmoid */, softplus, tanh,
  softcap,  // c * tanh(x / c)
  scale,    // c * x
  clip,     // x within [-c, c]
};
// clang-format on

Tensor activation(Run& run, Act act, const Tensor& x, double c = 1);

struct ActivationArgs {
  Act act;
  double c;
  std::int64_t elements;
  const void* x;
  void* y;
};
struct ActivationBackwardArgs {
  Act act;
  double c;
  std::int64_t elements;
  const void *x, *dy;
  void* dx;
  bool write_dx;  // nothing is there yet: write, do not add
};

// act(gate) * (up + up_offset). With a clamp (gpt-oss): gate at most c, up within [-c, c]; alpha is the
// slope inside silu: g * sigmoid(alpha g).
struct GluSpec {
  Act act = Act::silu;
  double clamp = 0, alpha = 1, up_offset = 0;
};
Tensor glu(Run& run, const GluSpec& spec, const Tensor& gate, const Tensor& up);

struct GluArgs {
  GluSpec spec;
  std::int64_t elements;
  const void *gate, *up;
  void* y;
};
struct GluBackwardArgs {
  GluSpec spec;
  std::int64_t elements;
  const void *gate, *up, *dy;
  void *dgate, *dup;
};

// A gate on x [T,H,D]: x * act(g) or x + act(g). g has one number per element or head, of each head or
// shared by all heads, per row (a tensor [T, n]) or the same for all rows (a weight [n]).
enum class GateGrain : int { element, head };
struct GateSpec {
  Act act = Act::sigmoid;
  GateGrain grain = GateGrain::element;
  bool shared = false;  // one set for all heads
  bool add = false;
};
Dim gate_width(const GateSpec& spec, Dim heads, Dim d);  // n
Tensor gate(Run& run, const GateSpec& spec, const Tensor& x, const Tensor& g);
Tensor gate(Run& run, const GateSpec& spec, const Tensor& x, const Weight& g);

struct GateArgs {
  GateSpec spec;
  std::int64_t rows, heads, d;
  bool constant;  // g is one row
  const void *x, *g;
  void* y;
};
struct GateBackwardArgs {
  GateSpec spec;
  std::int64_t rows, heads, d;
  bool constant;
  const void *x, *g, *dy;
  void *dx, *dg;
};

}  // namespace rapt
