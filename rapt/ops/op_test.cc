// SPDX-License-Identifier: Apache-2.0
// check(): f64 against the reference, its gradients against differences, then f32 on one thread and three.
#include "rapt/ops/op_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rapt/base/rng.h"
#include "tests/build_kind.h"

namespace rapt::test {

std::vector<double> normals(std::size_t n, std::uint64_t seed, double scale, double shift) {
  std::vector<double> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(random_normal(seed, i) * scale + shift);
  return v;
}

Array array(std::vector<Dim> shape, std::uint64_t seed, double scale, double shift) {
  std::size_t n = 1;
  for (Dim d : shape) n *= static_cast<std::size_t>(d);
  return {std::move(shape), normals(n, seed, scale, shift)};
}

Weight weight(Dim rows, Dim cols, std::uint64_t seed, double scale, double shift, Packing packing) {
  Weight w = make_weight("w", rows, cols, DType::f64, packing);
  fill(w, normals(static_cast<std::size_t>(rows * cols), seed, scale, shift));
  return w;
}

double nmse(std::span<const double> got, std::span<const double> expected) {
  if (got.size() != expected.size()) return HUGE_VAL;
  double error = 0, power = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return HUGE_VAL;
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    power += expected[i] * expected[i];
  }
  return power > 0 ? error / power : error;
}

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> v(static_cast<std::size_t>(t.elements()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = t.at(static_cast<Dim>(i));
  return v;
}

namespace {

struct Result {
  std::vector<double> outputs;
  std::vector<std::vector<double>> gradients;  // of the inputs, then of the weights
};

Tensor upload(Run& run, const Array& a) {
  std::initializer_list<Dim> shapes[] = {
      {a.shape[0]},
      {a.shape[0], a.shape.size() > 1 ? a.shape[1] : 1},
      {a.shape[0], a.shape.size() > 1 ? a.shape[1] : 1, a.shape.size() > 2 ? a.shape[2] : 1},
      {a.shape[0], a.shape.size() > 1 ? a.shape[1] : 1, a.shape.size() > 2 ? a.shape[2] : 1,
       a.shape.size() > 3 ? a.shape[3] : 1}};
  Tensor t = run.upload(shapes[a.shape.size() - 1], a.values);
  return a.differentiable ? t : t.constant();
}

std::vector<Weight> convert(const OpCase& c, DType real) {
  std::vector<Weight> out;
  for (const Weight& w : c.weights) {
    const DType format = c.bf16 && w.packing == Packing::panels && real != DType::f64 ? DType::bf16 : real;
    Weight copy = make_weight(w.name, w.rows, w.cols, format, w.packing);
    copy.index = static_cast<int>(out.size());
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim k = 0; k < w.cols; ++k) copy.set(r, k, w.get(r, k));
    out.push_back(std::move(copy));
  }
  return out;
}

// The loss is the sum of all outputs times fixed random numbers.
double cotangent(std::size_t i) { return static_cast<float>(random_normal(77, i)); }

Result evaluate(const OpCase& c, Device& device, const std::vector<Array>& inputs,
                const std::vector<Weight>& weights, bool with_tape) {
  Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  if (with_tape) run.tape = &tape;
  run.training = c.training;
  std::vector<Tensor> in;
  for (const Array& a : inputs) in.push_back(upload(run, a));
  const std::vector<Tensor> out = c.op(run, in, weights);
  Result result;
  for (const Tensor& t : out)
    for (double v : values_of(t)) result.outputs.push_back(v);
  if (!with_tape) return result;
  std::size_t next = 0;
  for (const Tensor& t : out) {
    void* g = run.grad(t);
    for (Dim i = 0; i < t.elements(); ++i, ++next) {
      if (t.dtype == DType::f64) static_cast<double*>(g)[i] = cotangent(next);
      else static_cast<float*>(g)[i] = static_cast<float>(cotangent(next));
    }
  }
  tape.play_back(run);
  for (const Tensor& t : in) {
    std::vector<double> g;
    if (t.buffer) {
      Tensor view = t;
      view.data = static_cast<std::byte*>(run.grad(t));
      g = values_of(view);
    }
    result.gradients.push_back(std::move(g));
  }
  for (const Weight& w : weights) {
    std::vector<double> g;
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim k = 0; k < w.cols; ++k) g.push_back(gradients.get(w, r, k));
    result.gradients.push_back(std::move(g));
  }
  return result;
}

double loss_of(const Result& r) {
  double sum = 0;
  for (std::size_t i = 0; i < r.outputs.size(); ++i) sum += r.outputs[i] * cotangent(i);
  return sum;
}

void check_differences(const OpCase& c, Device& device, const Result& analytic) {
  constexpr double kStep = 1e-6;
  // Elements per input: spread over it by a stride that shares no factor with common sizes.
  // Values are the release's business; a sanitizer has seen the kernels of f64 after a few.
  const std::size_t most = kSanitized ? 2 : 64;
  std::vector<Array> inputs = c.inputs;
  std::vector<Weight> weights = convert(c, DType::f64);
  const std::size_t count = inputs.size() + weights.size();
  for (std::size_t k = 0; k < count; ++k) {
    if (k < inputs.size() && !inputs[k].differentiable) continue;
    const std::size_t n = analytic.gradients[k].size(), tries = std::min(n, most);
    for (std::size_t j = 0; j < tries; ++j) {
      const std::size_t i = n <= most ? j : j * 7919 % n;
      const Weight* w = k < inputs.size() ? nullptr : &weights[k - inputs.size()];
      double* value = w ? reinterpret_cast<double*>(w->data.get()) +
                              w->offset(static_cast<Dim>(i) / w->cols, static_cast<Dim>(i) % w->cols)
                        : &inputs[k].values[i];
      const double old = *value;
      *value = old + kStep;
      const double up = loss_of(evaluate(c, device, inputs, weights, false));
      *value = old - kStep;
      const double down = loss_of(evaluate(c, device, inputs, weights, false));
      *value = old;
      const double difference = (up - down) / (2 * kStep), got = analytic.gradients[k][i];
      EXPECT_NEAR(got, difference, c.difference_atol + c.difference_rtol * std::abs(difference))
          << c.name << ": gradient of " << (w ? "weight " : "input ") << (w ? k - inputs.size() : k)
          << ", element " << i;
    }
  }
}

bool equal_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

}  // namespace

void check(const OpCase& c) {
  SCOPED_TRACE(c.name);
  OpCase rounded = c;
  if (c.bf16)
    for (Weight& w : rounded.weights) {
      if (w.packing != Packing::panels) continue;
      Weight copy = make_weight(w.name, w.rows, w.cols, DType::f64, w.packing);
      for (Dim r = 0; r < w.rows; ++r)
        for (Dim k = 0; k < w.cols; ++k) copy.set(r, k, from_bf16(to_bf16(static_cast<float>(w.get(r, k)))));
      w = copy;
    }
  Device exact({.threads = 1, .isa = "f64"});
  const std::vector<double> reference =
      rounded.reference ? rounded.reference(rounded.inputs, rounded.weights) : std::vector<double>{};
  const Result f64 = evaluate(rounded, exact, rounded.inputs, convert(rounded, DType::f64), c.gradient);
  const std::vector<double>& expected = rounded.reference ? reference : f64.outputs;
  EXPECT_LE(nmse(f64.outputs, expected), 1e-24) << c.name << ": f64 against the plain reference";
  if (c.gradient) check_differences(rounded, exact, f64);

  std::vector<std::string> isas = available_isas();
  if (kSanitized) isas = {isas.back()};  // the only set that is compiled with checks
  for (const std::string& isa : isas) {
    SCOPED_TRACE(isa);
    Device one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
    const std::vector<Weight> weights = convert(rounded, DType::f32);
    const Result plain = evaluate(rounded, one, rounded.inputs, weights, false);
    EXPECT_LE(nmse(plain.outputs, expected), c.forward_nmse) << c.name << " on " << isa;
    if (!c.gradient) {
      EXPECT_TRUE(equal_bits(plain.outputs, evaluate(rounded, three, rounded.inputs, weights, false).outputs))
          << c.name << ": threads change bits on " << isa;
      continue;
    }
    const Result taped = evaluate(rounded, one, rounded.inputs, weights, true),
                 threaded = evaluate(rounded, three, rounded.inputs, weights, true);
    EXPECT_TRUE(equal_bits(plain.outputs, taped.outputs)) << c.name << ": the tape changes bits on " << isa;
    EXPECT_TRUE(equal_bits(taped.outputs, threaded.outputs)) << c.name << ": threads change bits on " << isa;
    for (std::size_t k = 0; k < f64.gradients.size(); ++k) {
      EXPECT_LE(nmse(taped.gradients[k], f64.gradients[k]), c.backward_nmse)
          << c.name << ": gradient " << k << " on " << isa;
      EXPECT_TRUE(equal_bits(taped.gradients[k], threaded.gradients[k]))
          << c.name << ": threads change gradient " << k << " on " << isa;
    }
  }
}

}  // namespace rapt::test
