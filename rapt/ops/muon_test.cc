// SPDX-License-Identifier: Apache-2.0
// Three steps against plain matrix loops in double, three threads against one; a step is nearly orthogonal.
#include "rapt/ops/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "rapt/ops/op_test.h"

namespace rapt::test {
namespace {

using Matrix = std::vector<double>;  // row-major

Matrix times(const Matrix& a, Dim rows, Dim depth, const Matrix& b, Dim cols) {
  Matrix out(static_cast<std::size_t>(rows * cols));
  for (Dim r = 0; r < rows; ++r)
    for (Dim d = 0; d < depth; ++d)
      for (Dim c = 0; c < cols; ++c)
        out[static_cast<std::size_t>(r * cols + c)] +=
            a[static_cast<std::size_t>(r * depth + d)] * b[static_cast<std::size_t>(d * cols + c)];
  return out;
}

Matrix transpose(const Matrix& a, Dim rows, Dim cols) {
  Matrix out(a.size());
  for (Dim r = 0; r < rows; ++r)
    for (Dim c = 0; c < cols; ++c)
      out[static_cast<std::size_t>(c * rows + r)] = a[static_cast<std::size_t>(r * cols + c)];
  return out;
}

Matrix orthogonal(const Matrix& u, Dim rows, Dim cols) {
  if (rows > cols) return transpose(orthogonal(transpose(u, rows, cols), cols, rows), cols, rows);
  double norm = 0;
  for (double x : u) norm += x * x;
  norm = std::max(std::sqrt(norm), 1e-7);
  Matrix x = u;
  for (double& v : x) v /= norm;
  for (int step = 0; step < 5; ++step) {
    const Matrix a = times(x, rows, cols, transpose(x, rows, cols), rows), a2 = times(a, rows, rows, a, rows);
    const Matrix ax = times(a, rows, rows, x, cols), a2x = times(a2, rows, rows, x, cols);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] - 4.7750 * ax[i] + 2.0315 * a2x[i];
  }
  return x;
}

struct Step {
  double rate = 0.02, factor = 0.95, decay = 0.1, scale = 0.5;
};

void plain_step(const Step& o, Dim rows, Dim cols, Matrix& weight, const Matrix& gradient, Matrix& momentum) {
  Matrix u(weight.size());
  for (std::size_t i = 0; i < u.size(); ++i) {
    const double g = o.scale * gradient[i];
    momentum[i] = o.factor * momentum[i] + (1 - o.factor) * g;
    u[i] = o.factor * momentum[i] + (1 - o.factor) * g;
  }
  const Matrix x = orthogonal(u, rows, cols);
  const double tall = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(cols)));
  for (std::size_t i = 0; i < u.size(); ++i)
    weight[i] = weight[i] * (1 - o.rate * o.decay) - o.rate * tall * x[i];
}

struct State {
  Weight weight, momentum;
};

State state_of(const Device& device, Dim rows, Dim cols, const Matrix& weight) {
  State s{make_weight("w", rows, cols, device.real, Packing::panels),
          make_weight("m", rows, cols, device.real, Packing::panels)};
  fill(s.weight, weight);
  return s;
}

void step(Device& device, const Step& o, State& s, const Matrix& gradient) {
  Weight g = make_weight("g", s.weight.rows, s.weight.cols, device.real, Packing::panels);
  fill(g, gradient);
  const Dim need = muon_work(g.rows, g.cols);
  Weight work = make_weight("work", 1, need + 16, device.real);
  // Whatever was there before, and what lies behind stays.
  for (Dim i = 0; i < need + 16; ++i) work.set(0, i, 1e30);
  device.kernels.muon(device.queue(), {.rows = g.rows,
                                       .cols = g.cols,
                                       .weight = s.weight.data.get(),
                                       .gradient = g.data.get(),
                                       .momentum = s.momentum.data.get(),
                                       .rate = o.rate,
                                       .factor = o.factor,
                                       .decay = o.decay,
                                       .gradient_scale = o.scale,
                                       .work = work.data.get()});
  for (Dim i = need; i < need + 16; ++i)
    EXPECT_EQ(work.get(0, i), device.real == DType::f64 ? 1e30 : static_cast<float>(1e30));
}

Matrix values(const Weight& w) {
  Matrix out;
  for (Dim r = 0; r < w.rows; ++r)
    for (Dim c = 0; c < w.cols; ++c) out.push_back(w.get(r, c));
  return out;
}

TEST(Muon, ThreeStepsAsThePlainLoopWhateverTheThreads) {
  std::vector<std::string> all = available_isas();
  all.push_back("f64");
  const Dim shapes[][2] = {{2, 2}, {7, 33}, {33, 7}, {40, 40}, {96, 32}, {31, 70}, {2, 130}};
  for (const auto& [rows, cols] : shapes) {
    const auto n = static_cast<std::size_t>(rows * cols);
    const Matrix start = normals(n, 1);
    Matrix expected = start, momentum(n);
    for (std::uint64_t i = 0; i < 3; ++i) plain_step({}, rows, cols, expected, normals(n, 2 + i), momentum);
    for (const std::string& isa : all) {
      Device one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
      State got = state_of(one, rows, cols, start), threaded = state_of(three, rows, cols, start);
      for (std::uint64_t i = 0; i < 3; ++i)
        step(one, {}, got, normals(n, 2 + i)), step(three, {}, threaded, normals(n, 2 + i));
      // what is compared is the way, not the weights it is small beside
      Matrix moved = values(got.weight), way = expected;
      for (std::size_t i = 0; i < n; ++i) moved[i] -= start[i], way[i] -= start[i];
      EXPECT_LE(nmse(moved, way), isa == "f64" ? 1e-20 : 1e-9) << isa << " " << rows << " x " << cols;
      EXPECT_LE(nmse(values(got.momentum), momentum), isa == "f64" ? 1e-26 : 1e-12)
          << isa << " " << rows << " x " << cols;
      EXPECT_EQ(std::memcmp(got.weight.data.get(), threaded.weight.data.get(), got.weight.bytes()), 0)
          << isa << " " << rows << " x " << cols;
    }
  }
}

// What it is for: every direction of the step has about the same length, whatever the gradient's.
TEST(Muon, TheStepIsNearlyOrthogonalAndPaddingStaysZero) {
  Device device({.threads = 2});
  constexpr Dim kRows = 20, kCols = 50;
  Matrix gradient = normals(kRows * kCols, 5);
  for (Dim r = 0; r < kRows; ++r)
    for (Dim c = 0; c < kCols; ++c) gradient[static_cast<std::size_t>(r * kCols + c)] *= r < 3 ? 20 : 1;
  State s = state_of(device, kRows, kCols, Matrix(kRows * kCols));
  step(device, {.rate = 1, .decay = 0}, s, gradient);
  const Matrix x = values(s.weight), gram = times(x, kRows, kCols, transpose(x, kRows, kCols), kRows);
  for (Dim r = 0; r < kRows; ++r)
    for (Dim c = 0; c < kRows; ++c) {
      const double g = gram[static_cast<std::size_t>(r * kRows + c)];
      if (r == c) EXPECT_TRUE(g > 0.4 && g < 1.5) << g;
      else EXPECT_LT(std::abs(g), 0.4);
    }
  const float* raw = reinterpret_cast<const float*>(s.weight.data.get());
  for (Dim c = 0; c < kCols; ++c)
    for (Dim l = kRows; l < kPanel; ++l) EXPECT_EQ(raw[c * kPanel + l], 0);
}

TEST(Muon, NoGradientOnlyDecays) {
  Device device({.threads = 1});
  State s = state_of(device, 3, 4, Matrix(12, 2.0));
  step(device, {.rate = 0.1, .decay = 0.5}, s, Matrix(12));
  for (double v : values(s.weight)) EXPECT_NEAR(v, 1.9, 1e-6);
}

}  // namespace
}  // namespace rapt::test
