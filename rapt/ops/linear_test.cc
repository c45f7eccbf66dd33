// SPDX-License-Identifier: Apache-2.0
// Products and gradients against plain loops in double; a row's bits alone against those in any batch.
#include "rapt/ops/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(linear)

namespace rapt::test {
namespace {

// residual + scale * (x W^T + b)
std::vector<double> reference_linear(const Array& x, const Weight& w, const Weight* b = nullptr,
                                     const Array* residual = nullptr, double scale = 1) {
  const std::size_t K = static_cast<std::size_t>(w.cols), N = static_cast<std::size_t>(w.rows),
                    M = x.values.size() / K;
  std::vector<double> y(M * N);
  for (std::size_t m = 0; m < M; ++m)
    for (std::size_t n = 0; n < N; ++n) {
      double sum = 0;
      for (std::size_t k = 0; k < K; ++k)
        sum += x.values[m * K + k] * w.get(static_cast<Dim>(n), static_cast<Dim>(k));
      if (b) sum += b->get(0, static_cast<Dim>(n));
      y[m * N + n] = (residual ? residual->values[m * N + n] : 0) + scale * sum;
    }
  return y;
}

Weight panels(Dim n, Dim k, std::uint64_t seed) { return weight(n, k, seed, 0.5, 0, Packing::panels); }

// What is asked for besides the product.
struct Extras {
  bool bf16 = false, bias = false, residual = false;
  double scale = 1;
};

OpCase linear_case(Dim m, Dim n, Dim k, const Extras& e) {
  OpCase c;
  c.name = concat("linear M ", m, " N ", n, " K ", k, e.bf16 ? " bf16" : "", e.bias ? " bias" : "",
                  e.residual ? " residual" : "", " scale ", e.scale);
  c.bf16 = e.bf16;
  c.inputs = {array({m, k}, 1)};
  if (e.residual) c.inputs.push_back(array({m, n}, 2));
  c.weights = {panels(n, k, 3)};
  if (e.bias) c.weights.push_back(weight(1, n, 4));
  c.op = [=](rapt::Run& run, const std::vector<Tensor>& in,
             const std::vector<Weight>& w) -> std::vector<Tensor> {
    const Weight* b = e.bias ? &w[1] : nullptr;
    return {e.residual ? linear_add(run, in[1], in[0], w[0], b, e.scale) : linear(run, in[0], w[0], b)};
  };
  c.reference = [=](const std::vector<Array>& in, const std::vector<Weight>& w) {
    return reference_linear(in[0], w[0], e.bias ? &w[1] : nullptr, e.residual ? &in[1] : nullptr, e.scale);
  };
  return c;
}

TEST(Linear, ValuesAndGradientsAtOddSizes) {
  constexpr Dim kShapes[][3] = {{1, 1, 1},    {1, 100, 7}, {2, 3, 5},    {3, 33, 31},  {4, 64, 13},
                                {5, 7, 33},   {6, 130, 8}, {7, 31, 64},  {8, 13, 100}, {9, 5, 64},
                                {12, 32, 32}, {13, 33, 2}, {25, 65, 40}, {31, 100, 3}, {33, 31, 17},
                                {64, 8, 96},  {100, 2, 97}};
  int i = 0;
  for (const auto& [m, n, k] : kShapes)
    for (int form = 0; form < 2; ++form, ++i)
      check(linear_case(
          m, n, k,
          {.bf16 = i % 4 == 1, .bias = i % 3 != 0, .residual = form == 1, .scale = form == 1 ? 0.7 : 1}));
}

// More than one block of inputs (512), outputs (512 in dx) and rows (256 in dW); finite differences would
// take minutes here, the f64 device is checked by them above and decides.
TEST(Linear, ManyBlocks) {
  constexpr Dim kShapes[][3] = {{1, 70, 1030}, {3, 8, 513},   {8, 33, 1030},   {13, 35, 1025}, {300, 13, 33},
                                {2, 1030, 31}, {40, 600, 70}, {259, 100, 100}, {530, 33, 520}};
  int i = 0;
  for (const auto& [m, n, k] : kShapes) {
    OpCase c = linear_case(
        m, n, k,
        {.bf16 = i % 3 == 1, .bias = i % 2 == 0, .residual = i % 2 == 1, .scale = i % 2 == 1 ? -1.25 : 1});
    c.gradient = false;
    check(c);
    ++i;
  }
}

// What backward adds to gradients that hold kHeld.
constexpr float kHeld = 3;
struct Added {
  std::vector<float> dx, dresidual, dw, dbias;
  bool operator==(const Added&) const = default;
};

// dx, dW, db and dresidual by plain loops, for shapes with more than one block in every direction.
TEST(Linear, BackwardOfManyBlocksAddsToTheGradients) {
  const Dim M = 300, N = 550, K = 530;
  const double scale = 0.5;
  const std::vector<double> x = normals(static_cast<std::size_t>(M * K), 1),
                            dy = normals(static_cast<std::size_t>(M * N), 2),
                            values = normals(static_cast<std::size_t>(N * K), 3);
  for (const std::string& isa : available_isas())
    for (bool bf16 : {false, true}) {
      Weight w = make_weight("w", N, K, bf16 ? DType::bf16 : DType::f32, Packing::panels),
             b = make_weight("b", 1, N, DType::f32);
      w.index = 0;
      b.index = 1;
      fill(w, values);
      auto added = [&](int threads) {
        Device device({.threads = threads, .isa = isa});
        rapt::Run run(device);
        Gradients gradients(device.real);
        Tape tape(gradients);
        run.tape = &tape;
        const Tensor in = run.upload({M, K}, x), residual = run.make({M, N});
        std::fill_n(residual.as<float>().data(), M * N, 0.0f);
        const Tensor y = linear_add(run, residual, in, w, &b, scale);
        std::copy(dy.begin(), dy.end(), static_cast<float*>(run.grad(y)));
        struct Place {
          void* gradient;
          Dim count;
        } places[] = {{run.grad(in), M * K},
                      {run.grad(residual), M * N},
                      {run.grad(&w), w.stored()},
                      {run.grad(&b), N}};
        for (const Place& p : places) std::fill_n(static_cast<float*>(p.gradient), p.count, kHeld);
        tape.play_back(run);
        auto copy = [&](const Place& p) {
          return std::vector<float>(static_cast<float*>(p.gradient),
                                    static_cast<float*>(p.gradient) + p.count);
        };
        return Added{copy(places[0]), copy(places[1]), copy(places[2]), copy(places[3])};
      };
      const Added one = added(1);
      for (int threads = 2; threads <= 4; ++threads)
        EXPECT_TRUE(one == added(threads)) << threads << " threads change bits of a gradient on " << isa;
      std::vector<double> got, expected;
      for (Dim m = 0; m < M; m += 37)
        for (Dim k = 0; k < K; ++k) {
          double sum = 0;
          for (Dim n = 0; n < N; ++n) sum += dy[static_cast<std::size_t>(m * N + n)] * w.get(n, k);
          expected.push_back(kHeld + scale * sum);
          got.push_back(one.dx[static_cast<std::size_t>(m * K + k)]);
        }
      EXPECT_LE(nmse(got, expected), 1e-12) << "dx on " << isa;
      got.clear(), expected.clear();
      for (Dim n = 0; n < N; n += 23)
        for (Dim k = 0; k < K; ++k) {
          double sum = 0;
          for (Dim m = 0; m < M; ++m)
            sum += dy[static_cast<std::size_t>(m * N + n)] * x[static_cast<std::size_t>(m * K + k)];
          expected.push_back(kHeld + scale * sum);
          got.push_back(one.dw[static_cast<std::size_t>(w.offset(n, k))]);
        }
      EXPECT_LE(nmse(got, expected), 1e-12) << "dW on " << isa;
      got.clear(), expected.clear();
      for (Dim n = 0; n < N; ++n) {
        double sum = 0;
        for (Dim m = 0; m < M; ++m) sum += dy[static_cast<std::size_t>(m * N + n)];
        expected.push_back(kHeld + scale * sum);
        got.push_back(one.dbias[static_cast<std::size_t>(n)]);
      }
      EXPECT_LE(nmse(got, expected), 1e-12) << "db on " << isa;
      got.clear(), expected.clear();
      for (std::size_t i = 0; i < dy.size(); ++i) {
        expected.push_back(kHeld + dy[i]);
        got.push_back(one.dresidual[i]);
      }
      EXPECT_LE(nmse(got, expected), 1e-13) << "dresidual on " << isa;
    }
}

TEST(Linear, ProjectOfThree) {
  for (bool bf16 : {false, true})
    for (Dim rows : {1, 5, 20}) {
      OpCase c;
      c.name = concat("project of three, rows ", rows);
      c.bf16 = bf16;
      c.inputs = {array({rows, 45}, 1)};
      c.weights = {panels(70, 45, 2), panels(8, 45, 3), panels(33, 45, 4), weight(1, 70, 5),
                   weight(1, 33, 6)};
      c.op = [](rapt::Run& run, const std::vector<Tensor>& in, const std::vector<Weight>& w) {
        std::vector<Tensor> out(3);
        const Projection parts[] = {{&w[0], &w[3]}, {&w[1]}, {&w[2], &w[4]}};
        project(run, in[0], parts, out);
        return out;
      };
      c.reference = [](const std::vector<Array>& in, const std::vector<Weight>& w) {
        std::vector<double> all = reference_linear(in[0], w[0], &w[3]);
        for (double v : reference_linear(in[0], w[1])) all.push_back(v);
        for (double v : reference_linear(in[0], w[2], &w[4])) all.push_back(v);
        return all;
      };
      check(c);
    }
}

TEST(Linear, ResidualMayBeTheInputItself) {
  OpCase c;
  c.name = "x + 0.5 x W^T";
  c.inputs = {array({11, 40}, 1)};
  c.weights = {panels(40, 40, 2)};
  c.op = [](rapt::Run& run, const std::vector<Tensor>& in,
            const std::vector<Weight>& w) -> std::vector<Tensor> {
    return {linear_add(run, in[0], in[0], w[0], nullptr, 0.5)};
  };
  c.reference = [](const std::vector<Array>& in, const std::vector<Weight>& w) {
    return reference_linear(in[0], w[0], nullptr, &in[0], 0.5);
  };
  check(c);
}

Weight stored(Dim n, Dim k, std::uint64_t seed, DType format) {
  Weight w = make_weight("w", n, k, format, Packing::panels);
  fill(w, normals(static_cast<std::size_t>(n * k), seed));
  return w;
}

TEST(Linear, ARowsBitsDependOnNothingElse) {
  const Dim N = 99, K = 1030;
  const std::vector<double> x = normals(static_cast<std::size_t>(64 * K), 1),
                            residual = normals(static_cast<std::size_t>(64 * N), 2);
  for (const std::string& isa : available_isas())
    for (DType format : {DType::f32, DType::bf16}) {
      const Weight w = stored(N, K, 3, format);
      Weight b = make_weight("b", 1, N, DType::f32);
      fill(b, normals(static_cast<std::size_t>(N), 4));
      Device one({.threads = 1, .isa = isa});
      rapt::Run run(one);
      const Tensor all = run.upload({64, K}, x), res = run.upload({64, N}, residual);
      std::vector<float> alone;
      for (Dim r = 0; r < 64; ++r) {
        const Tensor y = linear_add(run, res.slice(r, 1), all.slice(r, 1), w, &b, 0.3);
        alone.insert(alone.end(), y.as<float>().begin(), y.as<float>().end());
      }
      for (int threads = 1; threads <= 4; ++threads) {
        Device device({.threads = threads, .isa = isa});
        rapt::Run other(device);
        for (Dim rows = 1; rows <= 64; ++rows) {
          const Dim first = (64 - rows) / 2;
          const Tensor y = linear_add(other, res.slice(first, rows), all.slice(first, rows), w, &b, 0.3);
          ASSERT_EQ(0, std::memcmp(y.data, alone.data() + first * N,
                                   static_cast<std::size_t>(rows * N) * sizeof(float)))
              << rows << " rows, " << threads << " threads, " << isa << ", " << name_of(format);
        }
      }
    }
}

TEST(Linear, ProjectHasTheBitsOfSeparateCalls) {
  for (const std::string& isa : available_isas())
    for (Dim rows : {1, 2, 3, 8, 9, 40}) {
      Device device({.threads = 3, .isa = isa});
      rapt::Run run(device);
      const Weight w[] = {stored(200, 600, 1, DType::f32), stored(40, 600, 2, DType::bf16),
                          stored(7, 600, 3, DType::f32), stored(33, 600, 4, DType::bf16)};
      const Tensor x = run.upload({rows, 600}, normals(static_cast<std::size_t>(rows * 600), 5));
      Tensor out[4];
      const Projection parts[] = {{&w[0]}, {&w[1]}, {&w[2]}, {&w[3]}};
      project(run, x, parts, out);
      for (int i = 0; i < 4; ++i) {
        const Tensor y = linear(run, x, w[i]);
        EXPECT_EQ(0, std::memcmp(y.data, out[i].data, y.as<float>().size_bytes()))
            << "part " << i << ", " << rows << " rows, " << isa;
      }
    }
}

TEST(Linear, Refuses) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor x = run.make({3, 8});
  const Weight w = make_weight("w", 5, 8, device.real, Packing::panels),
               rows = make_weight("rows", 5, 8, device.real),
               narrow = make_weight("narrow", 5, 7, device.real, Packing::panels);
  const Weight f64 = make_weight("f64", 5, 8, DType::f64, Packing::panels),
               bias = make_weight("b", 1, 5, device.real), bias4 = make_weight("b4", 1, 4, device.real);
  const Weight bias_bf16 = make_weight("b16", 1, 5, DType::bf16);
  EXPECT_NO_THROW(linear(run, x, w, &bias));
  EXPECT_THROW(linear(run, x, rows), Error);
  EXPECT_THROW(linear(run, x, narrow), Error);
  EXPECT_THROW(linear(run, x, f64), Error);
  EXPECT_THROW(linear(run, x, w, &bias4), Error);
  EXPECT_THROW(linear(run, x, w, &bias_bf16), Error);
  EXPECT_THROW(linear_add(run, run.make({3, 4}), x, w), Error);
  EXPECT_THROW(linear_add(run, run.make({2, 5}), x, w), Error);
  EXPECT_THROW(linear_add(run, {}, x, w), Error);
  const Weight more[] = {w, w, w, w, w};
  Tensor out[5];
  const Projection parts[] = {{&more[0]}, {&more[1]}, {&more[2]}, {&more[3]}, {&more[4]}},
                   twice[] = {{&w}, {&w}};
  EXPECT_NO_THROW(project(run, x, std::span(parts).first(4), std::span(out).first(4)));
  EXPECT_THROW(project(run, x, parts, out), Error);
  EXPECT_THROW(project(run, x, std::span(parts).first(0), std::span(out).first(0)), Error);
  EXPECT_THROW(project(run, x, std::span(parts).first(3), std::span(out).first(2)), Error);
  EXPECT_THROW(project(run, x, twice, std::span(out).first(2)), Error);
}

}  // namespace
}  // namespace rapt::test
