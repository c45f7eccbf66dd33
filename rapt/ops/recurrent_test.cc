// SPDX-License-Identifier: Apache-2.0
// Cells against their formulas and against numbers of PyTorch; steps into views against the plain ops.
#include "rapt/ops/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rapt/ops/elementwise.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(gru)
RAPT_GRADIENT_CHECKED(lstm)
RAPT_GRADIENT_CHECKED(maxout)
RAPT_GRADIENT_CHECKED(beside)

namespace rapt::test {
namespace {

using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;
using Weights = std::vector<Weight>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<double> reference_gru(const Array& x_gates, const Array& h_gates, const Array& h) {
  const auto n = static_cast<std::size_t>(h.shape[1]);
  std::vector<double> y(h.values.size());
  for (std::size_t b = 0; b < y.size() / n; ++b)
    for (std::size_t i = 0; i < n; ++i) {
      const double *x = x_gates.values.data() + 3 * b * n + i, *u = h_gates.values.data() + 3 * b * n + i;
      const double r = sigmoid(x[0] + u[0]), z = sigmoid(x[n] + u[n]),
                   next = std::tanh(x[2 * n] + r * u[2 * n]);
      y[b * n + i] = (1 - z) * next + z * h.values[b * n + i];
    }
  return y;
}

std::vector<double> reference_lstm(const Array& gates, const Array& c) {  // h, then c
  const auto n = static_cast<std::size_t>(c.shape[1]);
  std::vector<double> out(2 * c.values.size());
  for (std::size_t b = 0; b < c.values.size() / n; ++b)
    for (std::size_t i = 0; i < n; ++i) {
      const double* g = gates.values.data() + 4 * b * n + i;
      const double next = sigmoid(g[n]) * c.values[b * n + i] + sigmoid(g[0]) * std::tanh(g[2 * n]);
      out[b * n + i] = sigmoid(g[3 * n]) * std::tanh(next);
      out[c.values.size() + b * n + i] = next;
    }
  return out;
}

OpCase gru_case() {
  OpCase c;
  c.op = [](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
    return {gru(run, in[0], in[1], in[2])};
  };
  c.reference = [](const Arrays& in, const Weights&) { return reference_gru(in[0], in[1], in[2]); };
  return c;
}
OpCase lstm_case() {
  OpCase c;
  c.op = [](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
    const LstmState s = lstm(run, in[0], in[1]);
    return {s.h, s.c};
  };
  c.reference = [](const Arrays& in, const Weights&) { return reference_lstm(in[0], in[1]); };
  return c;
}

TEST(Recurrent, BothCellsAtOddSizes) {
  for (Dim n : {1, 3, 16, 37})
    for (Dim rows : {1, 5}) {
      OpCase g = gru_case(), l = lstm_case();
      g.name = concat("gru [", rows, ",", n, "]");
      g.inputs = {array({rows, 3 * n}, 1), array({rows, 3 * n}, 2), array({rows, n}, 3)};
      check(g);
      l.name = concat("lstm [", rows, ",", n, "]");
      l.inputs = {array({rows, 4 * n}, 1), array({rows, n}, 2)};
      check(l);
    }
}

// Two steps in a row: the state of the first is read by the second, and both h' and c' carry gradient back.
TEST(Recurrent, GradientsFlowThroughTime) {
  OpCase c;
  c.name = "two steps of gru and lstm";
  c.inputs = {array({2, 3 * 5}, 1), array({2, 3 * 5}, 2), array({2, 5}, 3), array({2, 4 * 5}, 4)};
  c.op = [](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
    const Tensor h = gru(run, in[0], in[1], gru(run, in[1], in[0], in[2]));
    const LstmState s = lstm(run, in[3], lstm(run, in[3], h).c);
    return {s.h, s.c};
  };
  c.reference = [](const Arrays& in, const Weights&) {
    const Array first{{2, 5}, reference_gru(in[1], in[0], in[2])},
        h{{2, 5}, reference_gru(in[0], in[1], first)};
    const auto once = reference_lstm(in[3], h);
    return reference_lstm(in[3], {{2, 5}, std::vector<double>(once.begin() + 10, once.end())});
  };
  check(c);
}

// Values of PyTorch's GRUCell and LSTMCell (2.x, float64) for random weights; the products with them are
// given here.
TEST(Recurrent, AgreesWithPyTorch) {
  OpCase g = gru_case();
  g.name = "gru as in PyTorch";
  g.gradient = false;
  g.inputs = {{{2, 9},
               {0.6543, 0.5404, -2.2938, -2.4799, -3.5728, 0.8861, -1.6034, -2.6424, 1.5334, 1.5619, 0.6948,
                -1.0986, -1.2993, 1.1564, 0.0335, -2.0862, -1.311, -1.334}},
              {{2, 9},
               {-0.1113, -1.1294, 1.3906, 1.1264, -1.3973, -0.6616, -0.9044, -1.0814, 1.3624, -1.8502,
                -2.7207, 2.5915, 0.7961, -2.9419, 0.7605, -2.4431, -0.742, 0.6889}},
              {{2, 3}, {-0.31, 0.4, -0.56, -0.81, 2, -0.45}}};
  g.reference = [](const Arrays&, const Weights&) {
    return std::vector<double>{-0.838108808030747, -0.985706165959511, 0.114350963684662,
                               -0.926046022287931, -0.470469112684526, -0.511578201640685};
  };
  check(g);

  OpCase l = lstm_case();
  l.name = "lstm as in PyTorch";
  l.gradient = false;
  l.inputs = {{{2, 12}, {0.9132, 2.643,  -1.2872, 0.2108, 0.2297, 0.4465, 1.4954,  2.3945,
                         4.3534, 1.0406, -1.2992, 3.3866, 3.2567, 3.6704, -0.5376, -2.7371,
                         2.5843, 1.7151, 2.0806,  2.269,  0.7653, 0.7823, 3.2248,  4.8236}},
              {{2, 3}, {-1.07, 0.24, -0.98, -0.19, 0.82, 0.98}}};
  l.reference = [](const Arrays&, const Weights&) {
    return std::vector<double>{0.0400027076889909, 0.1676982546356,   -0.351978556781606, 0.498675619789629,
                               0.901647983388329,  0.782450801209982, 0.0541863421097457, 1.05189197637954,
                               -0.38135507779845,  0.921796865737609, 1.7170008160045,    1.06808852508384};
  };
  check(l);
}

TEST(Recurrent, Maxout) {
  for (Dim n : {1, 5, 16, 37}) {
    OpCase c;
    c.name = concat("maxout ", n);
    c.inputs = {array({3, 2 * n}, 1)};
    c.op = [](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors { return {maxout(run, in[0])}; };
    c.reference = [n](const Arrays& in, const Weights&) {
      std::vector<double> y;
      for (Dim r = 0; r < 3; ++r)
        for (Dim i = 0; i < n; ++i) {
          const auto at = static_cast<std::size_t>(2 * n * r + i);
          y.push_back(std::max(in[0].values[at], in[0].values[at + static_cast<std::size_t>(n)]));
        }
      return y;
    };
    check(c);
  }
}

// Rows in different orders, one taken twice, one not at all.
TEST(Recurrent, BesideTakesRowsOfBoth) {
  OpCase c;
  c.name = "beside";
  c.inputs = {array({4, 19}, 1), array({3, 70}, 2)};
  const std::vector<std::int32_t> a_rows = {2, 0, 2, 1}, b_rows = {0, 2, 1, 1};
  c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
    return {beside(run, in[0], a_rows, in[1], b_rows)};
  };
  c.reference = [=](const Arrays& in, const Weights&) {
    std::vector<double> y;
    for (std::size_t r = 0; r < 4; ++r) {
      const auto a = in[0].values.begin() + 19 * a_rows[r], b = in[1].values.begin() + 70 * b_rows[r];
      y.insert(y.end(), a, a + 19);
      y.insert(y.end(), b, b + 70);
    }
    return y;
  };
  check(c);
}

// Two steps whose second reads what the first wrote, into views of one buffer; the weights' gradients come
// in one product at the end.
Tensor two_steps(rapt::Run& run, const Tensors& in, const Weights& w) {
  const Dim n = 7;
  const std::vector<std::int32_t> before = {0, 1, 2, 3, 4};  // the second step's two rows read the first's
  const Tensor h = run.make({3 + 5, n}), y = run.make({5, n}), dropped = run.make({5, n});
  copy(run, in[0], h.slice(0, 3));
  weights_later(run, h, before, w[0], &w[1], y);
  auto step = [&](Dim from, Dim rows, Dim to) {
    linear_step(run, h.slice(from, rows), {{{&w[0], &w[1], y.slice(to, rows), in[1].slice(to, rows)}}});
    dropout(run, y.slice(to, rows), 0.3, 9, dropped.slice(to, rows));
    activation(run, Act::tanh, dropped.slice(to, rows), h.slice(3 + to, rows));
  };
  step(0, 3, 0);
  step(3, 2, 3);
  return h.slice(3, 5);
}

TEST(Recurrent, StepsIntoViewsAreThePlainOps) {
  OpCase c;
  c.name = "two steps into views";
  c.training = true;
  c.inputs = {array({3, 7}, 1), array({5, 7}, 2)};
  c.weights = {weight(7, 7, 3, 0.5, 0, Packing::panels), weight(1, 7, 4)};
  c.op = [](rapt::Run& run, const Tensors& in, const Weights& w) -> Tensors {
    return {two_steps(run, in, w)};
  };
  // By the f64 device's own plain ops, which have tests of their own.
  c.reference = [](const Arrays& in, const Weights& w) {
    Device device({.threads = 1, .isa = "f64"});
    rapt::Run run(device);
    run.training = true;
    std::vector<double> y;
    auto put = [&](const Tensor& t) {
      for (Dim i = 0; i < t.elements(); ++i) y.push_back(t.at(i));
    };
    const Tensor h = run.upload({3, 7}, in[0].values), x = run.upload({5, 7}, in[1].values);
    auto plain = [&](const Tensor& from, Dim rows, Dim at) {
      return activation(run, Act::tanh,
                        rapt::dropout(run, linear_add(run, x.slice(at, rows), from, w[0], &w[1]), 0.3, 9));
    };
    const Tensor first = plain(h, 3, 0);
    put(first);
    put(plain(first.slice(0, 2), 2, 3));
    return y;
  };
  check(c);
}

TEST(Recurrent, RefusesStepsOfTheWrongShape) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor x = run.make({2, 4}), y = run.make({2, 3}), wide = run.make({2, 8});
  Weight w = make_weight("w", 3, 4, DType::f32, Packing::panels),
         rows = make_weight("rows", 3, 4, DType::f32, Packing::rows);
  EXPECT_NO_THROW(linear_step(run, x, {{{&w, nullptr, y}}}));
  EXPECT_THROW(linear_step(run, y, {{{&w, nullptr, y}}}), Error);
  EXPECT_THROW(linear_step(run, x, {{{&w, nullptr, x}}}), Error);
  EXPECT_THROW(linear_step(run, x, {{{&w, nullptr, y, wide}}}), Error);
  EXPECT_THROW(linear_step(run, x, {{{&rows, nullptr, y}}}), Error);
  EXPECT_THROW(maxout(run, y), Error);
  EXPECT_THROW(maxout(run, wide, y), Error);
  const std::vector<std::int32_t> one = {0}, two = {0, 1}, beyond = {2};
  EXPECT_THROW(beside(run, x, one, y, two), Error);
  EXPECT_THROW(beside(run, x, beyond, y, one), Error);
  EXPECT_THROW(copy(run, x, y), Error);
  EXPECT_THROW(dropout(run, x, 1.0, 1, run.make({2, 4})), Error);
}

TEST(Recurrent, RefusesGatesOfTheWrongShape) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor h = run.make({2, 4}), three = run.make({2, 12}), four = run.make({2, 16}),
               short_one = run.make({1, 12});
  EXPECT_THROW(gru(run, three, four, h), Error);
  EXPECT_THROW(gru(run, four, three, h), Error);
  EXPECT_THROW(gru(run, three, short_one, h), Error);
  EXPECT_THROW(gru(run, three, three, run.make({8})), Error);
  EXPECT_THROW(lstm(run, three, h), Error);
  EXPECT_THROW(lstm(run, four, run.make({8})), Error);
}

}  // namespace
}  // namespace rapt::test
