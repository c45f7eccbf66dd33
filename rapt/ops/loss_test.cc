// SPDX-License-Identifier: Apache-2.0
// Mean, rows and gradients against a softmax in double; large logits, 150,001 classes, rows left out, NaN.
#include "rapt/ops/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(cross_entropy)

namespace rapt::test {
namespace {

using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;
using Weights = std::vector<Weight>;
using Targets = std::vector<std::int32_t>;

// The mean, then each row's own loss.
std::vector<double> reference_loss(const Array& logits, const Targets& targets, double smoothing) {
  const auto V = static_cast<std::size_t>(logits.shape[1]);
  std::vector<double> out = {0};
  double counted = 0;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const double* x = logits.values.data() + t * V;
    double top = x[0], sum = 0, mean = 0;
    for (std::size_t c = 0; c < V; ++c) top = std::max(top, x[c]);
    for (std::size_t c = 0; c < V; ++c) sum += std::exp(x[c] - top);
    for (std::size_t c = 0; c < V; ++c) mean += (top + std::log(sum) - x[c]) / static_cast<double>(V);
    const double loss =
        targets[t] < 0 ? 0 : (1 - smoothing) * (top + std::log(sum) - x[targets[t]]) + smoothing * mean;
    out.push_back(loss);
    out[0] += loss;
    counted += targets[t] >= 0;
  }
  out[0] = counted > 0 ? out[0] / counted : 0;
  return out;
}

Targets some_targets(Dim rows, Dim classes, bool with_ignored) {
  Targets t;
  for (Dim r = 0; r < rows; ++r)
    t.push_back(with_ignored && r % 3 == 1 ? -1 : static_cast<std::int32_t>(r * 7919 % classes));
  return t;
}

TEST(CrossEntropy, OddSizesSmoothingAndIgnoredRows) {
  for (Dim classes : {1, 2, 17, 100, 3001})
    for (double smoothing : {0.0, 0.1, 1.0})
      for (bool ignored : {false, true}) {
        const Targets targets = some_targets(5, classes, ignored);
        OpCase c;
        c.name =
            concat("cross_entropy of ", classes, " classes, smoothing ", smoothing, ", ignored ", ignored);
        c.inputs = {array({5, classes}, 1, 3)};
        c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
          return {cross_entropy(run, in[0], targets, smoothing).mean};
        };
        c.reference = [=](const Arrays& in, const Weights&) {
          return std::vector<double>{reference_loss(in[0], targets, smoothing)[0]};
        };
        check(c);
        c.name += ", rows";
        c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
          return {cross_entropy(run, in[0], targets, smoothing).rows};
        };
        c.reference = [=](const Arrays& in, const Weights&) {
          const auto all = reference_loss(in[0], targets, smoothing);
          return std::vector<double>(all.begin() + 1, all.end());
        };
        c.gradient = false;
        check(c);
      }
}

// Logits far from zero, a sure row, classes that are masked out, and a vocabulary where plain f32 sums
// lose digits.
TEST(CrossEntropy, StaysExactWhereSoftmaxIsHard) {
  OpCase shifted;
  shifted.name = "logits around 1000";
  shifted.inputs = {array({3, 50}, 1, 2, 1000)};
  const Targets targets = {3, 49, 0};
  shifted.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
    return {cross_entropy(run, in[0], targets).mean};
  };
  shifted.reference = [=](const Arrays& in, const Weights&) {
    return std::vector<double>{reference_loss(in[0], targets, 0)[0]};
  };
  shifted.difference_atol = 1e-6;  // the loss sits on 1000: differences of it have fewer digits
  check(shifted);

  OpCase wide = shifted;
  wide.name = "150,001 classes";
  wide.inputs = {array({3, 150001}, 2, 1)};
  wide.gradient = false;
  check(wide);

  for (const std::string& isa : available_isas()) {
    Device device({.threads = 1, .isa = isa});
    rapt::Run run(device);
    Gradients gradients(device.real);
    Tape tape(gradients);
    run.tape = &tape;
    const double inf = std::numeric_limits<double>::infinity();
    const Tensor x = run.upload({2, 4}, std::vector<double>{90, 0, 0, -inf, -inf, 1, -inf, 1});
    const Loss loss = cross_entropy(run, x, Targets{0, 3});
    EXPECT_EQ(loss.rows.at(0), 0);
    EXPECT_NEAR(loss.rows.at(1), std::log(2), 1e-7);
    backward(run, loss.mean);
    Tensor g = x;
    g.data = static_cast<std::byte*>(run.grad(x));
    const double expected[] = {0, 0, 0, 0, 0, 0.25, 0, -0.25};
    for (Dim i = 0; i < 8; ++i) EXPECT_NEAR(g.at(i), expected[i], 1e-7) << isa << " " << i;
  }
}

// What is there already is added to; a fresh gradient is written whole, also where a row does not count.
TEST(CrossEntropy, BackwardAddsOrWrites) {
  std::vector<std::string> isas = available_isas();
  isas.push_back("f64");
  for (const std::string& isa : isas) {
    std::vector<double> got[2];
    for (int before = 0; before < 2; ++before) {
      Device device({.threads = 1, .isa = isa});
      rapt::Run run(device);
      Gradients gradients(device.real);
      Tape tape(gradients);
      run.tape = &tape;
      const Tensor x = run.upload({3, 37}, normals(111, 5));
      const Loss loss = cross_entropy(run, x, Targets{4, -1, 36}, 0.1);
      Tensor g = x;
      if (before) {
        g.data = static_cast<std::byte*>(run.grad(x));
        for (std::size_t i = 0; i < 111; ++i)
          (g.dtype == DType::f64 ? g.as<double>()[i] = 2 : g.as<float>()[i] = 2);
      }
      backward(run, loss.mean);
      g.data = static_cast<std::byte*>(run.grad(x));
      got[before] = values_of(g);
    }
    for (std::size_t i = 0; i < 111; ++i) EXPECT_NEAR(got[1][i], 2 + got[0][i], 1e-6) << isa << " " << i;
    for (std::size_t i = 37; i < 74; ++i) EXPECT_EQ(got[0][i], 0) << isa << " " << i;
  }
}

TEST(CrossEntropy, NoRowCounts) {
  for (const std::string& isa : {std::string("f64"), available_isas().front()}) {
    Device device({.threads = 1, .isa = isa});
    rapt::Run run(device);
    Gradients gradients(device.real);
    Tape tape(gradients);
    run.tape = &tape;
    const Tensor x = run.upload({2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
    const Loss loss = cross_entropy(run, x, Targets{-1, -1}, 0.1);
    EXPECT_EQ(loss.mean.at(0), 0);
    EXPECT_EQ(values_of(loss.rows), (std::vector<double>{0, 0}));
    backward(run, loss.mean);
    Tensor g = x;
    g.data = static_cast<std::byte*>(run.grad(x));
    EXPECT_EQ(values_of(g), std::vector<double>(6, 0.0));
    EXPECT_EQ(cross_entropy(run, run.make({0, 3}), Targets{}).mean.at(0), 0);
  }
}

TEST(CrossEntropy, ANanReachesTheLoss) {
  for (const std::string& isa : available_isas()) {
    Device device({.threads = 1, .isa = isa});
    rapt::Run run(device);
    std::vector<double> x(40, 1.0);
    x[7] = std::nan("");
    EXPECT_TRUE(std::isnan(cross_entropy(run, run.upload({1, 40}, x), Targets{0}).mean.at(0))) << isa;
  }
}

TEST(CrossEntropy, RefusesWhatDoesNotFit) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor x = run.make({2, 3});
  EXPECT_THROW(cross_entropy(run, x, Targets{0}), Error);
  EXPECT_THROW(cross_entropy(run, x, Targets{0, 3}), Error);
  EXPECT_THROW(cross_entropy(run, x, Targets{0, -2}), Error);
  EXPECT_THROW(cross_entropy(run, x, Targets{0, 1}, 1.5), Error);
  EXPECT_THROW(cross_entropy(run, x, Targets{0, 1}, -0.5), Error);
  EXPECT_THROW(cross_entropy(run, run.make({6}), Targets{0, 1}), Error);
}

}  // namespace
}  // namespace rapt::test
