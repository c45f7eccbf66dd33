// SPDX-License-Identifier: Apache-2.0
// Against the formula, number by number, in double; and bits of rows that come a few at a time.
#include "rapt/ops/short_conv.h"

#include <gtest/gtest.h>

#include <cstring>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(short_conv)

namespace rapt::test {
namespace {

using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;
using Weights = std::vector<Weight>;

std::vector<Sequence> sequences_of(const std::vector<Dim>& lengths) {
  std::vector<Sequence> out;
  Dim first = 0;
  for (const Dim n : lengths) {
    out.push_back({.first = first, .count = n});
    first += n;
  }
  return out;
}

OpCase conv_case(const std::string& name, const std::vector<Dim>& lengths, Dim channels, Dim kernel,
                 bool bias) {
  const std::vector<Sequence> sequences = sequences_of(lengths);
  OpCase c;
  c.name = name;
  c.inputs = {array({sequences.back().first + sequences.back().count, channels}, 1)};
  c.weights.push_back(weight(channels, kernel, 2));
  if (bias) c.weights.push_back(weight(1, channels, 3));
  c.op = [=](rapt::Run& run, const Tensors& in, const Weights& w) -> Tensors {
    return {short_conv(run, in[0], w[0], bias ? &w[1] : nullptr, sequences)};
  };
  c.reference = [=](const Arrays& in, const Weights& w) {
    std::vector<double> y;
    for (const Sequence& s : sequences)
      for (Dim t = 0; t < s.count; ++t)
        for (Dim d = 0; d < channels; ++d) {
          double sum = bias ? w[1].get(0, d) : 0;
          for (Dim j = 0; j < kernel; ++j)
            if (const Dim from = t - kernel + 1 + j; from >= 0)
              sum += w[0].get(d, j) * in[0].values[static_cast<std::size_t>((s.first + from) * channels + d)];
          y.push_back(sum);
        }
    return y;
  };
  return c;
}

TEST(ShortConv, KernelsAndLengths) {
  check(conv_case("4 rows", {7, 1, 13, 2}, 5, 4, false));
  check(conv_case("3 rows and a bias", {3, 70}, 37, 3, true));
  check(conv_case("one row", {4}, 3, 1, true));
  check(conv_case("longer than the text", {5, 2}, 17, 9, false));
  check(conv_case("more rows than a task", {131}, 3, 4, false));
}

TEST(ShortConv, BitsDoNotDependOnPieces) {
  const Dim T = 150, D = 37, K = 4;
  const Array x = array({T, D}, 1);
  for (const std::string& isa : available_isas()) {
    SCOPED_TRACE(isa);
    Device device({.threads = 2, .isa = isa});
    rapt::Run run(device);
    Weight w = make_weight("w", D, K, DType::f32, Packing::rows);
    const std::vector<double> values = normals(static_cast<std::size_t>(D * K), 2);
    for (Dim i = 0; i < D * K; ++i) w.set(i / K, i % K, values[static_cast<std::size_t>(i)]);
    const std::vector<Sequence> whole = sequences_of({T});
    const Tensor all = run.upload({T, D}, x.values), expected = short_conv(run, all, w, nullptr, whole);
    for (const Dim piece : {1, 2, 3, 64, 100}) {
      for (Dim first = 0; first < T; first += piece) {
        const Dim n = std::min(piece, T - first);
        const Tensor before = run.make({1, K - 1, D});
        std::memset(before.data, 0x7f, static_cast<std::size_t>(before.elements()) * sizeof(float));  // NaN
        for (Dim j = std::max<Dim>(0, K - 1 - first); j < K - 1; ++j)
          for (Dim d = 0; d < D; ++d) before.set(j * D + d, all.at((first - (K - 1) + j) * D + d));
        const std::vector<Sequence> rows = {{.first = 0, .count = n, .past = first}};
        const Tensor y = short_conv(run, all.slice(first, n), w, nullptr, rows, before);
        EXPECT_EQ(std::memcmp(y.data, expected.slice(first, n).data,
                              static_cast<std::size_t>(n * D) * sizeof(float)),
                  0)
            << piece << " rows from " << first;
      }
    }
  }
}

TEST(ShortConv, RefusesWhatDoesNotFit) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Weight w = make_weight("w", 6, 4, DType::f32, Packing::rows),
               wide = make_weight("wide", 6, 65, DType::f32, Packing::rows);
  const Tensor x = run.make({5, 6}), narrow = run.make({5, 5});
  EXPECT_NO_THROW(short_conv(run, x, w, nullptr, sequences_of({3, 2})));
  EXPECT_THROW(short_conv(run, narrow, w, nullptr, sequences_of({3, 2})), Error);
  EXPECT_THROW(short_conv(run, x, wide, nullptr, sequences_of({3, 2})), Error);
  EXPECT_THROW(short_conv(run, x, w, nullptr, sequences_of({3, 3})), Error);
  EXPECT_THROW(short_conv(run, x, w, nullptr, sequences_of({3})), Error);
  EXPECT_THROW(short_conv(run, x, w, &wide, sequences_of({5})), Error);
  EXPECT_THROW(short_conv(run, x, w, nullptr, sequences_of({5}), run.make({1, 2, 6})), Error);
}

}  // namespace
}  // namespace rapt::test
