// SPDX-License-Identifier: Apache-2.0
// The quantized product against a plain loop over the numbers that the blocks stand for, and its bits
// against themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/ops/embed.h"
#include "rapt/ops/linear.h"
#include "rapt/tensor/formats.h"
#include "rapt/tensor/pack.h"
#include "tests/block_formats.h"

namespace rapt {
namespace {

using test::block_formats;

double uniform(std::uint64_t seed, Dim i) {  // in [-1, 1)
  return static_cast<double>(mix_key(seed, static_cast<std::uint64_t>(i)) >> 11) * 0x1p-52 - 1;
}
std::vector<double> numbers(Dim n, std::uint64_t seed) {
  std::vector<double> v(static_cast<std::size_t>(n));
  for (Dim i = 0; i < n; ++i) v[static_cast<std::size_t>(i)] = uniform(seed, i);
  return v;
}

// Every bit pattern of the numbers in a block may come; its f16 scales are moderate.
std::vector<std::byte> random_blocks(DType format, Dim elements, std::uint64_t seed) {
  std::vector<std::byte> b(bytes_of(format, elements, "test"));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<std::byte>(mix_key(seed, i) >> 40);
  for (std::size_t at = 0; at < b.size(); at += size_of(format))
    test::set_scales(format, b.data() + at,
                     static_cast<float>(0.01 + 0.005 * uniform(seed + 2, static_cast<Dim>(at))),
                     static_cast<float>(0.05 * uniform(seed + 1, static_cast<Dim>(at))));
  return b;
}

struct Matrix {
  Weight w;
  std::vector<float> values;  // [rows][cols]
};
Matrix random_matrix(DType format, Dim rows, Dim cols, std::uint64_t seed) {
  Matrix m{make_weight("w", rows, cols, format, Packing::panels),
           std::vector<float>(static_cast<std::size_t>(rows * cols))};
  const auto blocks = random_blocks(format, rows * cols, seed);
  pack_rows(m.w, 0, rows, blocks);
  dequantize(format, blocks, m.values);
  return m;
}
Weight plain(Dim n, std::uint64_t seed) {
  Weight w = make_weight("b", 1, n, DType::f32);
  fill(w, numbers(n, seed));
  return w;
}

std::vector<float> floats_of(const Tensor& t) {
  std::vector<float> v(static_cast<std::size_t>(t.rows() * t.last()));
  if (t.dtype == DType::f32) std::memcpy(v.data(), t.data, v.size() * 4);
  else
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<float>(reinterpret_cast<const double*>(t.data)[i]);
  return v;
}

// x as the op sees it: per 32, the largest magnitude / 127 times a whole number, in the arithmetic of
// the device.
template <class Real>
std::vector<double> rounded(const std::vector<double>& x) {
  std::vector<double> y(x.size());
  for (std::size_t b = 0; b < x.size(); b += 32) {
    Real top = 0;
    for (std::size_t i = b; i < b + 32; ++i) top = std::max(top, std::fabs(static_cast<Real>(x[i])));
    const Real inverse = top > 0 ? 127 / top : 0;
    for (std::size_t i = b; i < b + 32; ++i)
      y[i] = static_cast<double>(top / 127) * std::nearbyint(static_cast<Real>(x[i]) * inverse);
  }
  return y;
}
std::vector<double> rounded(const Device& device, const std::vector<double>& x) {
  return device.real == DType::f64 ? rounded<double>(x) : rounded<float>(x);
}

// sum over k of x[m][k] * w[n][k]
std::vector<double> product(const std::vector<double>& x, const std::vector<float>& w, Dim rows, Dim n,
                            Dim k) {
  std::vector<double> y(static_cast<std::size_t>(rows * n));
  for (Dim r = 0; r < rows; ++r)
    for (Dim j = 0; j < n; ++j) {
      double sum = 0;
      for (Dim i = 0; i < k; ++i)
        sum += x[static_cast<std::size_t>(r * k + i)] *
               static_cast<double>(w[static_cast<std::size_t>(j * k + i)]);
      y[static_cast<std::size_t>(r * n + j)] = sum;
    }
  return y;
}

double nmse(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    power += want[i] * want[i];
  }
  return error / power;
}

std::vector<std::string> every_isa() {
  std::vector<std::string> names = available_isas();
  names.emplace_back("f64");
  return names;
}

TEST(QuantLinear, ValuesOfEveryFormatAtOddSizes) {
  constexpr Dim kShapes[][3] = {{1, 1, 256},   {1, 100, 512}, {2, 31, 256},  {3, 33, 768},
                                {5, 100, 256}, {7, 64, 1536}, {13, 33, 256}, {70, 40, 512}};
  constexpr Dim kShort[][3] = {{1, 33, 32}, {4, 100, 96}, {9, 31, 576}, {8, 2, 160},
                               {5, 33, 64}, {3, 40, 192}, {7, 33, 384}};
  for (DType format : block_formats())
    for (const auto& isa : every_isa()) {
      Device device({.threads = 2, .isa = isa});
      rapt::Run run(device);
      const auto check = [&](Dim m, Dim n, Dim k) {
        const Matrix w = random_matrix(format, n, k, 7);
        const auto x = numbers(m * k, 11);
        const auto got = floats_of(linear(run, run.upload({m, k}, x), w.w));
        EXPECT_LT(nmse(got, product(rounded(device, x), w.values, m, n, k)), 1e-12)
            << name_of(format) << " " << isa << " " << m << " " << n << " " << k;
        // activations that were not rounded; one sum alone may come to little
        if (m * n > 1)
          EXPECT_LT(nmse(got, product(x, w.values, m, n, k)), 1e-3)
              << name_of(format) << " " << isa << " " << m << " " << n << " " << k;
        run.reset();
      };
      for (const auto& [m, n, k] : kShapes) check(m, n, k);
      for (const auto& [m, n, k] : kShort)
        if (k % static_cast<Dim>(info_of(format).block) == 0) check(m, n, k);
    }
}

// nvfp4: the numbers of a tensor are multiplied by one more, which the product takes before its bias.
TEST(QuantLinear, GainOfTheWholeMatrix) {
  const Dim n = 45, k = 192;
  for (const auto& isa : every_isa()) {
    Device device({.threads = 2, .isa = isa});
    rapt::Run run(device);
    Matrix w = random_matrix(DType::nvfp4, n, k, 1);
    w.w.gain = 0.37f;
    for (float& v : w.values) v *= w.w.gain;
    std::vector<float> row(static_cast<std::size_t>(k));
    unpack_row(w.w, 33, row);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), w.values.begin() + 33 * k)) << isa;
    Weight bias = make_weight("b", 1, n, device.real);
    fill(bias, numbers(n, 2));
    for (const Dim m : {Dim{1}, Dim{9}}) {
      const auto x = numbers(m * k, 3);
      const auto got = floats_of(linear(run, run.upload({m, k}, x), w.w, &bias));
      auto want = product(rounded(device, x), w.values, m, n, k);
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += bias.get(0, static_cast<Dim>(i) % n);
      EXPECT_LT(nmse(got, want), 1e-12) << isa;
    }
  }
}

TEST(QuantLinear, BiasScaleAndResidual) {
  for (const auto& isa : every_isa()) {
    Device device({.threads = 2, .isa = isa});
    rapt::Run run(device);
    const Dim m = 9, n = 45, k = 96;
    const Matrix w = random_matrix(DType::q4_1, n, k, 1);
    Weight bias = make_weight("b", 1, n, device.real);
    fill(bias, numbers(n, 2));
    const auto x = numbers(m * k, 3), residual = numbers(m * n, 4);
    const auto got =
        floats_of(linear_add(run, run.upload({m, n}, residual), run.upload({m, k}, x), w.w, &bias, 0.7));
    auto want = product(rounded(device, x), w.values, m, n, k);
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] = residual[i] + 0.7 * (want[i] + bias.get(0, static_cast<Dim>(i) % n));
    EXPECT_LT(nmse(got, want), 1e-12) << isa;
  }
}

// q, k, v of different formats, float ones among them, with biases, in one call: equal to one call each, bit
// for bit.
TEST(QuantLinear, PartsOfOneCallAreTheCallsOneByOne) {
  const Dim k = 256;
  Weight f16 = make_weight("f16", 40, k, DType::f16, Packing::panels);
  fill(f16, numbers(40 * k, 5));
  const Matrix a = random_matrix(DType::q8_0, 70, k, 1), b = random_matrix(DType::q3_k, 33, k, 2),
               c = random_matrix(DType::q4_1, 64, k, 3);
  const Weight bias = plain(33, 6);
  const Projection parts[] = {{&a.w}, {&b.w, &bias}, {&f16}, {&c.w}};
  for (const auto& isa : available_isas())
    for (Dim m : {1, 4, 50}) {
      Device device({.threads = 2, .isa = isa});
      rapt::Run run(device);
      const Tensor x = run.upload({m, k}, numbers(m * k, 4));
      Tensor all[4];
      project(run, x, parts, all);
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(floats_of(all[i]), floats_of(linear(run, x, *parts[i].w, parts[i].bias)))
            << isa << " " << i;
    }
}

// Row by row: alone or in company, with any number of threads, on any instruction set in f32.
TEST(QuantLinear, BitsDependOnTheRowAlone) {
  const Dim n = 100, most = 64;
  for (DType format : block_formats()) {
    // More than the 24 blocks that a panel is read at a time.
    const Dim k = info_of(format).block == 32 ? 800 : 1024;
    const Matrix w = random_matrix(format, n, k, 5);
    const auto x = numbers(most * k, 6);
    std::vector<float> first;
    for (const auto& isa : available_isas())
      for (int threads : {1, 2, 3}) {
        Device device({.threads = threads, .isa = isa});
        rapt::Run run(device);
        for (Dim m : {1, 2, 3, 5, 8, 16, 33, 64}) {
          for (Dim start = 0; start + m <= most; start += m == 1 ? 7 : m) {
            const std::vector<double> part(x.begin() + start * k, x.begin() + (start + m) * k);
            const auto y = floats_of(linear(run, run.upload({m, k}, part), w.w));
            if (first.empty()) {  // all rows at once, once
              first = floats_of(linear(run, run.upload({most, k}, x), w.w));
            }
            ASSERT_EQ(std::memcmp(y.data(), first.data() + start * n, y.size() * 4), 0)
                << name_of(format) << " " << isa << " threads " << threads << " rows " << start << " + " << m;
            run.reset();
          }
        }
      }
  }
}

TEST(QuantLinear, WhatIsNotANumberStaysInItsRow) {
  const Dim k = 64, n = 33;
  const Matrix w = random_matrix(DType::q8_0, n, k, 5);
  for (const auto& isa : every_isa())
    for (double bad : {std::nan(""), HUGE_VAL}) {
      Device device({.threads = 1, .isa = isa});
      rapt::Run run(device);
      auto x = numbers(3 * k, 6);
      x[static_cast<std::size_t>(k + 40)] = bad;
      const auto y = floats_of(linear(run, run.upload({3, k}, x), w.w));
      for (Dim i = 0; i < 3 * n; ++i)
        EXPECT_EQ(std::isfinite(y[static_cast<std::size_t>(i)]), i / n != 1) << isa << " " << i;
    }
}

TEST(QuantLinear, ZerosAndTinyNumbers) {
  const Dim k = 64, n = 33;
  const Matrix w = random_matrix(DType::q4_0, n, k, 5);
  for (const auto& isa : every_isa()) {
    Device device({.threads = 1, .isa = isa});
    rapt::Run run(device);
    std::vector<double> x(static_cast<std::size_t>(2 * k), 0.0);
    for (std::size_t i = 64; i < 128; ++i) x[i] = 1e-37 * static_cast<double>(i);
    for (float v : floats_of(linear(run, run.upload({2, k}, x), w.w))) EXPECT_NEAR(v, 0, 1e-30) << isa;
  }
}

TEST(QuantLinear, Errors) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Matrix w = random_matrix(DType::q8_0, 8, 64, 5);
  const Tensor x = run.upload({2, 64}, numbers(128, 1));
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  try {
    linear(run, x, w.w);
    FAIL() << "a tape was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("float matrices"), std::string::npos) << e.what();
  }
  const std::int32_t ids[] = {1};
  EXPECT_THROW(embed(run, ids, w.w), Error);
  run.tape = nullptr;
  EXPECT_THROW(linear(run, run.upload({2, 32}, numbers(64, 1)), w.w), Error);
  EXPECT_THROW(make_weight("odd", 8, 48, DType::q8_0, Packing::panels), Error);
  const Weight rows = make_weight("rows", 8, 64, DType::q8_0, Packing::rows);
  EXPECT_THROW(linear(run, x, rows), Error);
}

TEST(QuantLinear, EmbedReadsTheExactNumbers) {
  const std::int32_t ids[] = {0, 69, 31, 32, 33, 5, 5, 71, 70};
  for (const auto& isa : every_isa())
    for (DType format : block_formats()) {
      Device device({.threads = 2, .isa = isa});
      rapt::Run run(device);
      const Matrix w = random_matrix(format, 70, 256, 3);
      Weight more = make_weight("more", 2, 256, device.real);
      fill(more, numbers(512, 9));
      const auto y = floats_of(embed(run, ids, w.w, 0.5, &more));
      for (std::size_t r = 0; r < std::size(ids); ++r)
        for (Dim c = 0; c < 256; ++c) {
          const float want = ids[r] < 70 ? w.values[static_cast<std::size_t>(ids[r] * 256 + c)]
                                         : static_cast<float>(more.get(ids[r] - 70, c));
          ASSERT_EQ(y[r * 256 + static_cast<std::size_t>(c)], 0.5f * want)
              << isa << " " << name_of(format) << " " << r << " " << c;
        }
    }
}

TEST(QuantLinear, F16WeightsAndTablesAreTheirNumbers) {
  const Dim m = 13, n = 40, k = 70;
  for (const auto& isa : every_isa()) {
    Device device({.threads = 2, .isa = isa});
    rapt::Run run(device);
    Weight half = make_weight("f16", n, k, DType::f16, Packing::panels),
           full = make_weight("f32", n, k, device.real, Packing::panels);
    auto values = numbers(n * k, 1);
    values[3] = 1e-7;  // subnormal in f16
    fill(half, values);
    for (Dim r = 0; r < n; ++r)
      for (Dim c = 0; c < k; ++c) full.set(r, c, half.get(r, c));
    for (Dim rows : {Dim{1}, m}) {
      const Tensor x = run.upload({rows, k}, numbers(rows * k, 2));
      EXPECT_EQ(floats_of(linear(run, x, half)), floats_of(linear(run, x, full))) << isa;
    }
    const std::int32_t ids[] = {0, 39, 7};
    EXPECT_EQ(floats_of(embed(run, ids, half, 3)), floats_of(embed(run, ids, full, 3))) << isa;
  }
}

}  // namespace
}  // namespace rapt
