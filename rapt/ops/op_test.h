// SPDX-License-Identifier: Apache-2.0
// The harness every op is tested with. A case gives inputs, weights, the op and a plain reference in double;
// the harness checks
//   the f64 device against the reference, the f64 backward against central differences through the same
//     forward,
//   every f32 instruction set against the reference (NMSE 1e-12) and its backward against the f64 one
//     (NMSE 1e-11),
//   and that neither the tape nor the number of threads changes a bit.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rapt/run/run.h"

namespace rapt::test {

struct Array {  // an input of an op
  std::vector<Dim> shape;
  std::vector<double> values;
  bool differentiable = true;
};

struct OpCase {
  std::string name;
  std::vector<Array> inputs;
  // f64; the harness converts (bf16 weights: set `bf16`, values are rounded first)
  std::vector<Weight> weights;
  bool bf16 = false;
  // Returns the outputs that are compared and differentiated.
  std::function<std::vector<Tensor>(Run&, const std::vector<Tensor>& in, const std::vector<Weight>& w)> op;
  // All outputs one after the other, from the same (f32-representable) values.
  std::function<std::vector<double>(const std::vector<Array>& in, const std::vector<Weight>& w)> reference;
  bool training = false;
  bool gradient = true;
  double forward_nmse = 1e-12, backward_nmse = 1e-11;
  double difference_atol = 1e-7, difference_rtol = 1e-5;
};

void check(const OpCase& c);

// Numbers to test with: normal, scaled, from a seed; every value is representable in f32.
std::vector<double> normals(std::size_t n, std::uint64_t seed, double scale = 1, double shift = 0);
Array array(std::vector<Dim> shape, std::uint64_t seed, double scale = 1, double shift = 0);
Weight weight(Dim rows, Dim cols, std::uint64_t seed, double scale = 1, double shift = 0,
              Packing packing = Packing::rows);
// Sum of squared errors / sum of squares.
double nmse(std::span<const double> got, std::span<const double> expected);
std::vector<double> values_of(const Tensor& t);

}  // namespace rapt::test

// Placed once in the test of each op that is listed in RAPT_OPS: without it the tests do not link
// (tests/gradients_test.cc).
#define RAPT_GRADIENT_CHECKED(op)    \
  namespace rapt::gradient_checked { \
  extern const int op;               \
  const int op = 1;                  \
  }
