// SPDX-License-Identifier: Apache-2.0
// linear with products of bf16 (Run::products), against plain sums in double of factors rounded by
// tensor/dtype.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "rapt/ops/linear.h"
#include "rapt/ops/op_test.h"

namespace rapt::test {
namespace {

double rounded(double x) { return from_bf16(to_bf16(static_cast<float>(x))); }

constexpr double kScale = 0.5;  // a power of two: where it is multiplied does not change what is rounded
constexpr float kBefore = 3;    // what the gradients hold before they are added to

struct Shape {
  Dim M, N, K;
};

// What linear_add gives, and what its backward adds to gradients.
struct Values {
  std::vector<double> y, dx, dw, dbias, dresidual;  // dw [N,K]
};

struct Inputs {
  std::vector<double> x, residual, dy, w, b;
  explicit Inputs(const Shape& s)
      : x(normals(static_cast<std::size_t>(s.M * s.K), 1)),
        residual(normals(static_cast<std::size_t>(s.M * s.N), 2)),
        dy(normals(static_cast<std::size_t>(s.M * s.N), 3)),
        w(normals(static_cast<std::size_t>(s.N * s.K), 4, 0.5)),
        b(normals(static_cast<std::size_t>(s.N), 5)) {}
};

Values reference(const Shape& s, const Inputs& in, double (*factor)(double)) {
  const auto [M, N, K] =
      std::tuple(static_cast<std::size_t>(s.M), static_cast<std::size_t>(s.N), static_cast<std::size_t>(s.K));
  Inputs r = in;
  for (std::vector<double>* v : {&r.x, &r.w, &r.dy})
    for (double& value : *v) value = factor(value);
  Values out{std::vector<double>(M * N), std::vector<double>(M * K, kBefore),
             std::vector<double>(N * K, kBefore), std::vector<double>(N, kBefore),
             std::vector<double>(M * N, kBefore)};
  for (std::size_t m = 0; m < M; ++m)
    for (std::size_t n = 0; n < N; ++n) {
      double sum = in.b[n];
      for (std::size_t k = 0; k < K; ++k) {
        sum += r.x[m * K + k] * r.w[n * K + k];
        out.dx[m * K + k] += kScale * r.dy[m * N + n] * r.w[n * K + k];
        out.dw[n * K + k] += kScale * r.dy[m * N + n] * r.x[m * K + k];
      }
      out.y[m * N + n] = in.residual[m * N + n] + kScale * sum;
      out.dbias[n] += kScale * in.dy[m * N + n];
      out.dresidual[m * N + n] += in.dy[m * N + n];
    }
  return out;
}

Values computed(const Shape& s, const Inputs& in, const DeviceOptions& where, Precision products) {
  Device device(where);
  Weight w = make_weight("w", s.N, s.K, device.real, Packing::panels),
         b = make_weight("b", 1, s.N, device.real);
  w.index = 0, b.index = 1;
  fill(w, in.w), fill(b, in.b);
  rapt::Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  run.products = products;
  const Tensor x = run.upload({s.M, s.K}, in.x), residual = run.upload({s.M, s.N}, in.residual);
  const Tensor y = linear_add(run, residual, x, w, &b, kScale);
  const auto put = [&](void* to, Dim count, auto value) {
    for (Dim i = 0; i < count; ++i) {
      if (device.real == DType::f64) static_cast<double*>(to)[i] = value(i);
      else static_cast<float*>(to)[i] = static_cast<float>(value(i));
    }
  };
  put(run.grad(y), s.M * s.N, [&](Dim i) { return in.dy[static_cast<std::size_t>(i)]; });
  const auto before = [](Dim) { return kBefore; };
  put(run.grad(x), s.M * s.K, before), put(run.grad(residual), s.M * s.N, before);
  put(run.grad(&w), w.stored(), before), put(run.grad(&b), s.N, before);
  tape.play_back(run);
  Values out{.y = values_of(y)};
  const auto gradient = [&](Tensor t) {
    t.data = static_cast<std::byte*>(run.grad(t));
    return values_of(t);
  };
  out.dx = gradient(x), out.dresidual = gradient(residual);
  for (Dim n = 0; n < s.N; ++n) {
    for (Dim k = 0; k < s.K; ++k) out.dw.push_back(gradients.get(w, n, k));
    out.dbias.push_back(gradients.get(b, 0, n));
  }
  return out;
}

void expect_near(const Values& got, const Values& expected, double most) {
  EXPECT_LE(nmse(got.y, expected.y), most) << "y";
  EXPECT_LE(nmse(got.dx, expected.dx), most) << "dx";
  EXPECT_LE(nmse(got.dw, expected.dw), most) << "dW";
  EXPECT_LE(nmse(got.dbias, expected.dbias), most) << "db";
  EXPECT_LE(nmse(got.dresidual, expected.dresidual), most) << "dresidual";
}

// Odd sizes in every direction, then more than one block: 512 inputs, 512 outputs, 384 and 256 rows, 208
// columns of x.
constexpr Shape kShapes[] = {{1, 1, 1},    {2, 3, 5},     {3, 33, 31},   {5, 7, 33},     {12, 32, 32},
                             {13, 65, 2},  {16, 64, 13},  {25, 31, 64},  {31, 96, 7},    {33, 40, 65},
                             {70, 33, 97}, {3, 40, 1031}, {9, 1031, 40}, {401, 35, 211}, {515, 33, 33}};

TEST(LinearBf16, IsThePlainSumOfRoundedFactors) {
  std::vector<std::string> isas = available_isas();
  isas.emplace_back("f64");
  for (const Shape& s : kShapes) {
    const Inputs in(s);
    const Values expected = reference(s, in, rounded);
    for (const std::string& isa : isas) {
      SCOPED_TRACE(concat("M ", s.M, " N ", s.N, " K ", s.K, " on ", isa));
      expect_near(computed(s, in, {.threads = 2, .isa = isa}, Precision::bf16), expected,
                  isa == "f64" ? 1e-24 : 1e-12);
    }
  }
}

// Not so near to the sum of the factors as they are: eight bits of each.
TEST(LinearBf16, TheErrorOfTheRounding) {
  const Shape s{70, 33, 97};
  const Inputs in(s);
  const Values exact = reference(s, in, [](double x) { return x; });
  const Values got = computed(s, in, {.threads = 1}, Precision::bf16);
  expect_near(got, exact, 1e-5);
  EXPECT_GT(nmse(got.y, exact.y), 1e-7);
  EXPECT_GT(nmse(got.dx, exact.dx), 1e-7);
  EXPECT_GT(nmse(got.dw, exact.dw), 1e-7);
  EXPECT_LE(nmse(got.dbias, exact.dbias), 1e-12);  // no product
  expect_near(computed(s, in, {.threads = 1}, Precision::f32), exact, 1e-12);
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

TEST(LinearBf16, ThreadsDoNotChangeBits) {
  const Shape s{401, 135, 211};
  const Inputs in(s);
  for (const std::string& isa : available_isas()) {
    const Values one = computed(s, in, {.threads = 1, .isa = isa}, Precision::bf16);
    for (int threads = 2; threads <= 4; ++threads) {
      const Values more = computed(s, in, {.threads = threads, .isa = isa}, Precision::bf16);
      EXPECT_TRUE(same_bits(one.y, more.y)) << threads << " threads on " << isa;
      EXPECT_TRUE(same_bits(one.dx, more.dx)) << threads << " threads on " << isa;
      EXPECT_TRUE(same_bits(one.dw, more.dw)) << threads << " threads on " << isa;
      EXPECT_TRUE(same_bits(one.dbias, more.dbias)) << threads << " threads on " << isa;
      EXPECT_TRUE(same_bits(one.dresidual, more.dresidual)) << threads << " threads on " << isa;
    }
  }
}

Weight panels(Dim n, Dim k, std::uint64_t seed, DType format) {
  Weight w = make_weight("w", n, k, format, Packing::panels);
  fill(w, normals(static_cast<std::size_t>(n * k), seed));
  return w;
}

TEST(LinearBf16, ARowsBitsDependOnNothingElse) {
  const Dim N = 99, K = 1031, M = 70;
  const std::vector<double> x = normals(static_cast<std::size_t>(M * K), 1);
  const Weight w = panels(N, K, 2, DType::f32);
  for (const std::string& isa : available_isas()) {
    Device one({.threads = 1, .isa = isa});
    rapt::Run run(one);
    run.products = Precision::bf16;
    const Tensor all = run.upload({M, K}, x);
    std::vector<float> alone;
    for (Dim r = 0; r < M; ++r) {
      const Tensor y = linear(run, all.slice(r, 1), w);
      alone.insert(alone.end(), y.as<float>().begin(), y.as<float>().end());
    }
    for (int threads : {1, 3}) {
      Device device({.threads = threads, .isa = isa});
      rapt::Run other(device);
      other.products = Precision::bf16;
      for (Dim rows = 1; rows <= M; ++rows) {
        const Dim first = (M - rows) / 2;
        const Tensor y = linear(other, all.slice(first, rows), w);
        ASSERT_EQ(0, std::memcmp(y.data, alone.data() + first * N,
                                 static_cast<std::size_t>(rows * N) * sizeof(float)))
            << rows << " rows, " << threads << " threads, " << isa;
      }
    }
  }
}

TEST(LinearBf16, ProjectHasTheBitsOfSeparateCalls) {
  for (const std::string& isa : available_isas()) {
    Device device({.threads = 3, .isa = isa});
    rapt::Run run(device);
    run.products = Precision::bf16;
    const Weight w[] = {panels(200, 70, 1, DType::f32), panels(40, 70, 2, DType::f32),
                        panels(7, 70, 3, DType::f32)};
    const Tensor x = run.upload({40, 70}, normals(40 * 70, 5));
    Tensor out[3];
    const Projection parts[] = {{&w[0]}, {&w[1]}, {&w[2]}};
    project(run, x, parts, out);
    for (int i = 0; i < 3; ++i) {
      const Tensor y = linear(run, x, w[i]);
      EXPECT_EQ(0, std::memcmp(y.data, out[i].data, y.as<float>().size_bytes()))
          << "part " << i << " on " << isa;
    }
  }
}

// Gradients nobody has added to are written, not added to; those of a product of several parts add up.
TEST(LinearBf16, FreshGradientsAndSeveralParts) {
  const Dim M = 21, K = 45, N[] = {70, 8, 33};
  const std::vector<double> x = normals(static_cast<std::size_t>(M * K), 1);
  std::vector<double> dy[3], values[3], dx(x.size());
  for (std::size_t p = 0; p < 3; ++p) {
    dy[p] = normals(static_cast<std::size_t>(M * N[p]), 10 + p),
    values[p] = normals(static_cast<std::size_t>(N[p] * K), 20 + p);
    for (Dim m = 0; m < M; ++m)
      for (Dim n = 0; n < N[p]; ++n)
        for (Dim k = 0; k < K; ++k)
          dx[static_cast<std::size_t>(m * K + k)] += rounded(dy[p][static_cast<std::size_t>(m * N[p] + n)]) *
                                                     rounded(values[p][static_cast<std::size_t>(n * K + k)]);
  }
  for (const std::string& isa : available_isas()) {
    Device device({.threads = 2, .isa = isa});
    rapt::Run run(device);
    Gradients gradients(device.real);
    Tape tape(gradients);
    run.tape = &tape;
    run.products = Precision::bf16;
    std::vector<Weight> w;
    for (std::size_t p = 0; p < 3; ++p) {
      w.push_back(make_weight("w", N[p], K, DType::f32, Packing::panels));
      w.back().index = static_cast<int>(p);
      fill(w.back(), values[p]);
    }
    Tensor in = run.upload({M, K}, x), out[3];
    const Projection parts[] = {{&w[0]}, {&w[1]}, {&w[2]}};
    project(run, in, parts, out);
    for (std::size_t p = 0; p < 3; ++p)
      std::copy(dy[p].begin(), dy[p].end(), static_cast<float*>(run.grad(out[p])));
    tape.play_back(run);
    in.data = static_cast<std::byte*>(run.grad(in));
    EXPECT_LE(nmse(values_of(in), dx), 1e-12) << isa;
    for (std::size_t p = 0; p < 3; ++p) {
      std::vector<double> got, expected;
      for (Dim n = 0; n < N[p]; ++n)
        for (Dim k = 0; k < K; ++k) {
          double sum = 0;
          for (Dim m = 0; m < M; ++m)
            sum += rounded(dy[p][static_cast<std::size_t>(m * N[p] + n)]) *
                   rounded(x[static_cast<std::size_t>(m * K + k)]);
          expected.push_back(sum), got.push_back(gradients.get(w[p], n, k));
        }
      EXPECT_LE(nmse(got, expected), 1e-12) << "part " << p << " on " << isa;
    }
  }
}

// Ties go to even, and what is not finite is seen in the result: a training step must not take it for
// a number.
TEST(LinearBf16, TiesAndWhatIsNotFinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity(),
                   kNan = std::numeric_limits<double>::quiet_NaN();
  const double x[] = {1 + 0x1p-8, 1 + 0x3p-8, -1 - 0x1p-8, 1 + 0x1p-8 + 0x1p-20, kInf, kNan};
  const double expected[] = {1, 1 + 0x1p-6, -1, 1 + 0x1p-7, kInf, kNan};
  Weight w = make_weight("w", 1, 1, DType::f32, Packing::panels);
  w.set(0, 0, 1);
  for (const std::string& isa : available_isas()) {
    Device device({.threads = 1, .isa = isa});
    rapt::Run run(device);
    run.products = Precision::bf16;
    const Tensor y = linear(run, run.upload({6, 1}, x), w);
    for (Dim i = 0; i < 6; ++i) {
      if (std::isnan(expected[i])) EXPECT_TRUE(std::isnan(y.at(i))) << isa;
      else EXPECT_EQ(y.at(i), expected[i]) << isa << " " << i;
    }
  }
}

// Weights that are stored as bf16 are multiplied with x as it is.
TEST(LinearBf16, StoredBf16StaysAsItIs) {
  Device device({.threads = 1});
  rapt::Run plain(device), mixed(device);
  mixed.products = Precision::bf16;
  const Weight w = panels(40, 70, 1, DType::bf16);
  const Tensor x = plain.upload({9, 70}, normals(9 * 70, 2));
  const Tensor a = linear(plain, x, w), b = linear(mixed, x, w);
  EXPECT_EQ(0, std::memcmp(a.data, b.data, a.as<float>().size_bytes()));
}

}  // namespace
}  // namespace rapt::test
