// SPDX-License-Identifier: Apache-2.0
// Each function, glu and gate against its formula in double; far out and near zero number by number.
#include "rapt/ops/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(activation)
RAPT_GRADIENT_CHECKED(glu)
RAPT_GRADIENT_CHECKED(gate)

namespace rapt::test {
namespace {

using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;
using Weights = std::vector<Weight>;

constexpr Act kActs[] = {Act::relu,       Act::relu2,   Act::gelu,       Act::gelu_tanh, Act::silu,
                         Act::quick_gelu, Act::sigmoid, Act::ns_sigmoid, Act::softplus,  Act::tanh,
                         Act::softcap,    Act::scale,   Act::clip};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double plain(Act act, double x, double c) {
  switch (act) {
    case Act::relu: return std::max(x, 0.0);
    case Act::relu2: return std::pow(std::max(x, 0.0), 2);
    case Act::gelu: return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Act::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Act::silu: return x * sigmoid(x);
    case Act::quick_gelu: return x * sigmoid(1.702 * x);
    case Act::sigmoid: return sigmoid(x);
    case Act::ns_sigmoid: return 0.5 + 0.5 * sigmoid(x);
    case Act::softplus: return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    case Act::tanh: return std::tanh(x);
    case Act::softcap: return c * std::tanh(x / c);
    case Act::scale: return c * x;
    case Act::clip: return std::clamp(x, -c, c);
  }
  return 0;
}

// relu has a kink at 0 that no difference quotient likes: move inputs away from it.
void leave_zero(Array& a, double around = 0) {
  for (double& v : a.values)
    if (std::abs(v - around) < 1e-3) v = around + 0.25;
}

TEST(Activation, EveryFunctionAtOddSizes) {
  for (Act act : kActs)
    for (Dim n : {1, 15, 33, 200, 9001}) {
      const double c = act == Act::softcap || act == Act::clip ? 1.5 : -0.75;
      OpCase test;
      test.name = concat("activation ", static_cast<int>(act), " of ", n);
      test.inputs = {array({1, n}, 1, 2)};
      leave_zero(test.inputs[0]);
      if (act == Act::clip) leave_zero(test.inputs[0], c), leave_zero(test.inputs[0], -c);
      test.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
        return {activation(run, act, in[0], c)};
      };
      test.reference = [=](const Arrays& in, const Weights&) {
        std::vector<double> y = in[0].values;
        for (double& v : y) v = plain(act, v, c);
        return y;
      };
      check(test);
    }
}

struct Curve {
  std::vector<double> value, slope;
};
Curve curve(const std::string& isa, Act act, double c, const std::vector<double>& x) {
  Device device({.threads = 1, .isa = isa});
  rapt::Run run(device);
  const auto n = static_cast<Dim>(x.size());
  const Tensor in = run.upload({n}, x), ones = run.upload({n}, std::vector<double>(x.size(), 1)),
               dx = run.upload({n}, std::vector<double>(x.size()));
  device.kernels.activation_backward(
      device.queue(), {.act = act, .c = c, .elements = n, .x = in.data, .dy = ones.data, .dx = dx.data});
  return {values_of(activation(run, act, in, c)), values_of(dx)};
}

// A value that two ops read: the second backward finds what the first one wrote and adds to it.
TEST(Activation, BackwardAddsToWhatIsThere) {
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
      const Tensor x = run.upload({3, 11}, normals(33, 5)), y = activation(run, Act::gelu, x);
      auto fill = [&](const Tensor& t, double value) {
        Tensor g = t;
        g.data = static_cast<std::byte*>(run.grad(t));
        for (std::size_t i = 0; i < 33; ++i)
          (g.dtype == DType::f64 ? g.as<double>()[i] = value : g.as<float>()[i] = static_cast<float>(value));
      };
      fill(y, 0.5);
      if (before) fill(x, 2);
      tape.play_back(run);
      Tensor g = x;
      g.data = static_cast<std::byte*>(run.grad(x));
      got[before] = values_of(g);
    }
    for (std::size_t i = 0; i < 33; ++i) EXPECT_NEAR(got[1][i], 2 + got[0][i], 1e-6) << isa << " " << i;
  }
}

// Digit by digit and not in the mean: tiny numbers, tails and saturation, where 1 + erf(x) or 1 - tanh^2(x)
// have no digits left.
TEST(Activation, KeepsItsDigitsFarOutAndNearZero) {
  std::vector<double> x;
  for (double v = 1e-30; v < 30; v *= 1.7) x.insert(x.end(), {static_cast<float>(v), static_cast<float>(-v)});
  for (int i = -3000; i <= 3000; ++i) x.push_back(static_cast<float>(i * 0.01));
  for (Act act : kActs) {
    const double c = act == Act::softcap ? 30 : 1;
    const Curve exact = curve("f64", act, c, x);
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(exact.value[i], plain(act, x[i], c), 1e-15 * (1 + std::abs(x[i]) + x[i] * x[i]))
          << static_cast<int>(act);
    for (const std::string& isa : available_isas()) {
      const Curve got = curve(isa, act, c, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        // An exponent of size t costs a relative error of about t * 2^-24; gelu's grows as x^2
        // (gelu_tanh: x^3, but it is 0 soon).
        const double relative = 6e-7 + 1.5e-7 * x[i] * x[i];
        ASSERT_NEAR(got.value[i], exact.value[i], relative * std::abs(exact.value[i]) + 1e-36)
            << isa << " act " << static_cast<int>(act) << " at " << x[i];
        ASSERT_NEAR(got.slope[i], exact.slope[i], relative * std::abs(exact.slope[i]) + 3e-7)
            << isa << " slope of act " << static_cast<int>(act) << " at " << x[i];
      }
    }
  }
}

TEST(Activation, ShowsANanAndSaturates) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const std::string& isa : available_isas())
    for (Act act : kActs) {
      const Curve y = curve(isa, act, 2, {nan, 1e30, -1e30});
      EXPECT_TRUE(std::isnan(y.value[0])) << isa << " act " << static_cast<int>(act);
      EXPECT_FALSE(std::isnan(y.value[1]) || std::isnan(y.value[2]))
          << isa << " act " << static_cast<int>(act);
      if (act == Act::sigmoid || act == Act::tanh) {
        const Curve ends = curve(isa, act, 1, {inf, -inf});
        EXPECT_EQ(ends.value[0], 1);
        EXPECT_EQ(ends.value[1], act == Act::sigmoid ? 0 : -1);
        EXPECT_EQ(ends.slope[0], 0);
      }
    }
}

TEST(Activation, RefusesACapThatIsNotPositive) {
  Device device({.threads = 1});
  rapt::Run run(device);
  EXPECT_THROW(activation(run, Act::softcap, run.make({3}), 0), Error);
  EXPECT_THROW(activation(run, Act::softcap, run.make({3}), -1), Error);
}

double plain_glu(const GluSpec& spec, double gate, double up) {
  if (spec.clamp > 0) {
    gate = std::min(gate, spec.clamp);
    up = std::max(-spec.clamp, std::min(up, spec.clamp));
  }
  return (spec.act == Act::silu ? gate * sigmoid(spec.alpha * gate) : plain(spec.act, gate, 1)) *
         (up + spec.up_offset);
}

TEST(Glu, EveryActivationWithAndWithoutClamp) {
  const GluSpec specs[] = {{.act = Act::silu},
                           {.act = Act::gelu},
                           {.act = Act::gelu_tanh},
                           {.act = Act::relu},
                           {.act = Act::sigmoid},
                           {.act = Act::relu2, .up_offset = 0.5},
                           {.act = Act::silu, .clamp = 1.25, .alpha = 1.702, .up_offset = 1},
                           {.act = Act::gelu, .clamp = 0.75}};
  for (const GluSpec& spec : specs)
    for (Dim n : {1, 37, 9000}) {
      OpCase c;
      c.name = concat("glu act ", static_cast<int>(spec.act), " clamp ", spec.clamp, " of ", n);
      c.inputs = {array({1, n}, 1, 1.5), array({1, n}, 2, 1.5)};
      leave_zero(c.inputs[0]);
      if (spec.clamp > 0) {
        leave_zero(c.inputs[0], spec.clamp);
        leave_zero(c.inputs[1], spec.clamp);
        leave_zero(c.inputs[1], -spec.clamp);
      }
      c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
        return {glu(run, spec, in[0], in[1])};
      };
      c.reference = [=](const Arrays& in, const Weights&) {
        std::vector<double> y = in[0].values;
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = plain_glu(spec, y[i], in[1].values[i]);
        return y;
      };
      check(c);
    }
}

TEST(Glu, OfOneTensorWithItself) {
  OpCase c;
  c.name = "glu(x, x)";
  c.inputs = {array({3, 21}, 1)};
  c.op = [](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
    return {glu(run, {}, in[0], in[0])};
  };
  c.reference = [](const Arrays& in, const Weights&) {
    std::vector<double> y = in[0].values;
    for (double& v : y) v = v * v * sigmoid(v);
    return y;
  };
  check(c);
}

TEST(Glu, RefusesWhatDoesNotFit) {
  Device device({.threads = 1});
  rapt::Run run(device);
  EXPECT_THROW(glu(run, {}, run.make({2, 3}), run.make({3, 2})), Error);
  EXPECT_THROW(glu(run, {.clamp = -1}, run.make({2, 3}), run.make({2, 3})), Error);
  EXPECT_THROW(glu(run, {.act = Act::gelu, .alpha = 2}, run.make({2, 3}), run.make({2, 3})), Error);
}

Dim gate_index(const GateSpec& spec, Dim h, Dim i, Dim d) {
  if (spec.grain == GateGrain::head) return spec.shared ? 0 : h;
  return spec.shared ? i : h * d + i;
}

TEST(Gate, EveryGrainSharingOperationAndSource) {
  constexpr Dim kRows = 4;
  int turn = 0;
  for (GateGrain grain : {GateGrain::element, GateGrain::head})
    for (bool shared : {false, true})
      for (bool add : {false, true})
        for (bool constant : {false, true})
          for (const auto& size : {std::pair<Dim, Dim>{3, 21}, {1, 1}, {2, 64}}) {
            const Dim heads = size.first, d = size.second;
            constexpr Act kGateActs[] = {Act::sigmoid, Act::ns_sigmoid, Act::silu, Act::softplus, Act::tanh};
            const GateSpec spec{kGateActs[turn++ % 5], grain, shared, add};
            const Dim n = gate_width(spec, heads, d);
            OpCase c;
            c.name =
                concat("gate act ", static_cast<int>(spec.act), " grain ", static_cast<int>(grain),
                       " shared ", shared, " add ", add, " constant ", constant, " heads ", heads, " d ", d);
            // A seed under which no gradient that is one number happens to be near 0.
            c.inputs = {array({kRows, heads, d}, 5)};
            if (constant) c.weights = {weight(1, n, 2)};
            else c.inputs.push_back(array({kRows, n}, 2));
            c.op = [=](rapt::Run& run, const Tensors& in, const Weights& w) -> Tensors {
              return {constant ? gate(run, spec, in[0], w[0]) : gate(run, spec, in[0], in[1])};
            };
            c.reference = [=](const Arrays& in, const Weights& w) {
              std::vector<double> y = in[0].values;
              for (Dim t = 0; t < kRows; ++t)
                for (Dim h = 0; h < heads; ++h)
                  for (Dim i = 0; i < d; ++i) {
                    const Dim j = gate_index(spec, h, i, d);
                    const double g = plain(
                        spec.act,
                        constant ? w[0].get(0, j) : in[1].values[static_cast<std::size_t>(t * n + j)], 1);
                    double& v = y[static_cast<std::size_t>((t * heads + h) * d + i)];
                    v = add ? v + g : v * g;
                  }
              return y;
            };
            check(c);
          }
}

TEST(Gate, RefusesGatesOfTheWrongWidth) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor x = run.make({2, 3, 4});
  EXPECT_EQ(gate_width({}, 3, 4), 12);
  EXPECT_THROW(gate(run, {}, x, run.make({2, 4})), Error);
  EXPECT_THROW(gate(run, {}, x, run.make({1, 12})), Error);
  EXPECT_THROW(gate(run, {.grain = GateGrain::head}, x, make_weight("g", 1, 4, device.real)), Error);
  EXPECT_THROW(gate(run, {}, run.make({2, 12}), run.make({2, 12})), Error);
}

}  // namespace
}  // namespace rapt::test
