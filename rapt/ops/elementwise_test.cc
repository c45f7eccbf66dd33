// SPDX-License-Identifier: Apache-2.0
// Sums, scales and dropout (its hash written again) against plain loops; what taps show and edits change.
#include "rapt/ops/elementwise.h"

#include <gtest/gtest.h>

#include <array>

#include <algorithm>
#include <cmath>
#include <set>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(add)
RAPT_GRADIENT_CHECKED(copy)
RAPT_GRADIENT_CHECKED(copy_rows)
RAPT_GRADIENT_CHECKED(dropout)
RAPT_GRADIENT_CHECKED(scale_heads)

namespace rapt::test {
namespace {

using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;
using Weights = std::vector<Weight>;

TEST(Add, OddSizesAndScales) {
  for (Dim n : {1, 15, 33, 8192, 20001})
    for (double scale : {1.0, -0.25}) {
      OpCase c;
      c.name = concat("add of ", n, " scale ", scale);
      c.inputs = {array({1, n}, 1), array({1, n}, 2)};
      c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
        return {add(run, in[0], in[1], scale)};
      };
      c.reference = [=](const Arrays& in, const Weights&) {
        std::vector<double> y = in[0].values;
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += scale * in[1].values[i];
        return y;
      };
      check(c);
    }
}

TEST(Add, ViewsOfOneBufferThatOverlap) {
  OpCase c;
  c.name = "x[0:4] + 2 x[1:5] + x[0:4]";
  c.inputs = {array({5, 19}, 1)};
  c.op = [](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
    const Tensor a = in[0].slice(0, 4), b = in[0].slice(1, 4);
    return {add(run, add(run, a, b, 2), a)};
  };
  c.reference = [](const Arrays& in, const Weights&) {
    std::vector<double> y(4 * 19);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = 2 * in[0].values[i] + 2 * in[0].values[i + 19];
    return y;
  };
  check(c);
}

TEST(Add, RefusesOtherShapes) {
  Device device({.threads = 1});
  rapt::Run run(device);
  EXPECT_THROW(add(run, run.make({2, 4}), run.make({4, 2})), Error);
  EXPECT_THROW(add(run, run.make({2, 4}), run.make({8})), Error);
  Tensor strided = run.make({4, 4});
  strided.size[1] = 2;
  EXPECT_THROW(add(run, strided, strided), Error);
}

TEST(Copy, IntoARowOfALargerTensor) {
  for (Dim n : {1, 15, 8200}) {
    OpCase c;
    c.name = concat("copy of ", n);
    c.inputs = {array({2, n}, 1), array({1, n}, 2)};
    c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
      const Tensor all = run.make({3, n});
      copy(run, in[0], all.slice(0, 2));
      copy(run, in[1], all.slice(2, 1));
      return {all};
    };
    c.reference = [](const Arrays& in, const Weights&) {
      std::vector<double> y = in[0].values;
      y.insert(y.end(), in[1].values.begin(), in[1].values.end());
      return y;
    };
    check(c);
  }
}

// Views with gaps: channels of heads, and heads before rows.
TEST(Copy, BetweenViewsWithGaps) {
  for (const auto& [T, H, n] : {std::array<Dim, 3>{1, 3, 5}, {4, 3, 17}, {70, 2, 130}}) {
    OpCase c;
    c.name = concat("copy of views, ", T, " rows, ", H, " heads of ", n);
    c.inputs = {array({T, H, n + 3}, 1), array({H, T, n}, 2), array({T, n}, 3)};
    c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
      const Tensor joined = run.make({T, H, 2 * n + 3}), turned = run.make({H, T, n}),
                   cut = run.make({T, n - 1});
      copy(run, in[1].swapped(), joined.columns(0, n));
      copy(run, in[0], joined.columns(n, n + 3));
      copy(run, in[0].columns(2, n).swapped(), turned);
      copy(run, in[2].columns(1, n - 1), cut);
      return {joined, turned, cut};
    };
    c.reference = [=](const Arrays& in, const Weights&) {
      std::vector<double> y;
      const auto at = [](const Array& a, Dim i, Dim j, Dim k) {
        return a.values[static_cast<std::size_t>((i * a.shape[1] + j) * a.shape[2] + k)];
      };
      for (Dim t = 0; t < T; ++t)
        for (Dim h = 0; h < H; ++h)
          for (Dim k = 0; k < 2 * n + 3; ++k)
            y.push_back(k < n ? at(in[1], h, t, k) : at(in[0], t, h, k - n));
      for (Dim h = 0; h < H; ++h)
        for (Dim t = 0; t < T; ++t)
          for (Dim k = 0; k < n; ++k) y.push_back(at(in[0], t, h, k + 2));
      for (Dim t = 0; t < T; ++t)
        for (Dim k = 1; k < n; ++k) y.push_back(in[2].values[static_cast<std::size_t>(t * n + k)]);
      return y;
    };
    check(c);
  }
}

TEST(Copy, RefusesOtherShapes) {
  Device device({.threads = 1});
  rapt::Run run(device);
  EXPECT_THROW(copy(run, run.make({2, 4}), run.make({4, 2})), Error);
}

// The hash of simd.h, once more and plainly.
double drop_factor(std::uint32_t row_key, std::uint32_t column, double p) {
  std::uint32_t x = row_key + column * 0x9E3779B9u;
  x = (x ^ x >> 16) * 0x85EBCA6Bu;
  x = (x ^ x >> 13) * 0xC2B2AE35u;
  x ^= x >> 16;
  return (x >> 8) * 0x1p-24 < p ? 0 : 1 / (1 - p);
}

TEST(Dropout, FollowsTheHashAndItsGradientTheSameMask) {
  for (const std::vector<Dim>& shape : {std::vector<Dim>{5, 1}, {3, 37}, {4, 3, 21}, {2, 2, 3, 17}})
    for (double p : {0.1, 0.5, 0.9}) {
      const double rounded = static_cast<float>(p);
      Device device({.threads = 1});
      rapt::Run keys(device);
      const std::uint32_t* key = row_keys(keys, shape[0], 7);
      OpCase c;
      c.name = concat("dropout rank ", shape.size(), " p ", p);
      c.inputs = {array(shape, 1)};
      c.training = true;
      c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
        return {dropout(run, in[0], p, 7)};
      };
      c.reference = [=](const Arrays& in, const Weights&) {
        std::vector<double> y = in[0].values;
        const std::size_t cols = y.size() / static_cast<std::size_t>(shape[0]);
        for (std::size_t i = 0; i < y.size(); ++i)
          y[i] *= drop_factor(key[i / cols], static_cast<std::uint32_t>(i % cols), rounded);
        return y;
      };
      check(c);
    }
}

std::vector<double> dropped_ones(Dim rows, Dim cols, double p, std::uint64_t site,
                                 std::span<const std::uint64_t> ids = {}, RandomState random = {},
                                 int layer = 0) {
  Device device({.threads = 2});
  rapt::Run run(device);
  run.training = true;
  run.row_ids = ids;
  run.random = random;
  run.layer = layer;
  const Tensor x = run.upload({rows, cols}, std::vector<double>(static_cast<std::size_t>(rows * cols), 1.0));
  return values_of(dropout(run, x, p, site));
}

TEST(Dropout, DropsTheAskedShare) {
  constexpr Dim kRows = 400, kCols = 500;
  for (double p : {0.05, 0.3, 0.8}) {
    const auto y = dropped_ones(kRows, kCols, p, 1);
    const double n = static_cast<double>(y.size()),
                 zeros = static_cast<double>(std::count(y.begin(), y.end(), 0.0));
    EXPECT_NEAR(zeros / n, p, 5 * std::sqrt(p * (1 - p) / n));
    // Rows and columns are drawn independently: their own shares scatter as coin flips do.
    double row_scatter = 0, col_scatter = 0;
    for (Dim r = 0; r < kRows; ++r) {
      double count = 0;
      for (Dim c = 0; c < kCols; ++c) count += y[static_cast<std::size_t>(r * kCols + c)] == 0;
      row_scatter += std::pow(count - p * kCols, 2) / (kCols * p * (1 - p));
    }
    for (Dim c = 0; c < kCols; ++c) {
      double count = 0;
      for (Dim r = 0; r < kRows; ++r) count += y[static_cast<std::size_t>(r * kCols + c)] == 0;
      col_scatter += std::pow(count - p * kRows, 2) / (kRows * p * (1 - p));
    }
    EXPECT_NEAR(row_scatter / kRows, 1, 5 * std::sqrt(2.0 / kRows));
    EXPECT_NEAR(col_scatter / kCols, 1, 5 * std::sqrt(2.0 / kCols));
  }
}

TEST(Dropout, ARowsChoiceIsKeyedByItsIdNotByItsPlace) {
  const std::vector<std::uint64_t> here = {11, 22, 33, 44}, there = {33, 99, 11};
  const auto a = dropped_ones(4, 100, 0.5, 3, here), b = dropped_ones(3, 100, 0.5, 3, there);
  const auto row = [](const std::vector<double>& y, Dim r) {
    return std::vector<double>(y.begin() + r * 100, y.begin() + (r + 1) * 100);
  };
  EXPECT_EQ(row(a, 0), row(b, 2));
  EXPECT_EQ(row(a, 2), row(b, 0));
  EXPECT_NE(row(a, 0), row(a, 1));
  EXPECT_NE(row(a, 1), row(b, 1));
  // Site, seed, step and layer each draw anew.
  const std::set<std::vector<double>> all = {
      a, dropped_ones(4, 100, 0.5, 4, here), dropped_ones(4, 100, 0.5, 3, here, {1, 0}),
      dropped_ones(4, 100, 0.5, 3, here, {0, 1}), dropped_ones(4, 100, 0.5, 3, here, {}, 1)};
  EXPECT_EQ(all.size(), 5u);
  EXPECT_EQ(a, dropped_ones(4, 100, 0.5, 3, here));
}

TEST(Dropout, IsTheIdentityOutsideTrainingAndRefusesNonsense) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor x = run.make({2, 3});
  EXPECT_EQ(dropout(run, x, 0.5, 1).data, x.data);
  run.training = true;
  EXPECT_EQ(dropout(run, x, 0, 1).data, x.data);
  EXPECT_NE(dropout(run, x, 0.5, 1).data, x.data);
  for (double p : {-0.1, 1.0, 1.5, 1 - 1e-12, std::nan("")}) EXPECT_THROW(dropout(run, x, p, 1), Error) << p;
  EXPECT_EQ(dropout(run, run.make({0, 3}), 0.5, 1).elements(), 0);
}

TEST(RowKeys, AreDistinctAndFallBackToTheRowIndex) {
  Device device({.threads = 1});
  rapt::Run run(device);
  constexpr Dim kRows = 2000;
  const std::uint32_t* plain = row_keys(run, kRows, 5);
  // 32 bits: a collision is a rarity
  EXPECT_GE(std::set<std::uint32_t>(plain, plain + kRows).size(), static_cast<std::size_t>(kRows - 3));
  const std::vector<std::uint64_t> other_length(7, 1);
  run.row_ids = other_length;
  EXPECT_TRUE(std::equal(plain, plain + kRows, row_keys(run, kRows, 5)));
  std::vector<std::uint64_t> ids(kRows);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  run.row_ids = ids;
  EXPECT_TRUE(std::equal(plain, plain + kRows, row_keys(run, kRows, 5)));
  EXPECT_FALSE(std::equal(plain, plain + kRows, row_keys(run, kRows, 6)));
}

TEST(ScaleHeads, OneScaleOrOnePerHeadWithAndWithoutALimit) {
  for (Dim heads : {1, 3})
    for (Dim scales : {Dim{1}, heads})
      for (Dim d : {1, 16, 37})
        for (double max : {0.0, 1.25}) {
          OpCase c;
          c.name = concat("scale_heads heads ", heads, " scales ", scales, " d ", d, " max ", max);
          c.inputs = {array({4, heads, d}, 1)};
          c.weights = {weight(1, scales, 2, 0.5, 1.3)};
          c.op = [=](rapt::Run& run, const Tensors& in, const Weights& w) -> Tensors {
            return {scale_heads(run, in[0], w[0], max)};
          };
          c.reference = [=](const Arrays& in, const Weights& w) {
            std::vector<double> y = in[0].values;
            for (std::size_t i = 0; i < y.size(); ++i) {
              const double g = w[0].get(0, scales == 1 ? 0 : static_cast<Dim>(i) / d % heads);
              y[i] *= max > 0 ? std::min(g, max) : g;
            }
            return y;
          };
          check(c);
        }
}

TEST(ScaleHeads, RefusesTheWrongNumberOfScales) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Weight two = make_weight("two", 1, 2, device.real), one = make_weight("one", 1, 1, device.real);
  EXPECT_THROW(scale_heads(run, run.make({2, 3, 4}), two), Error);
  EXPECT_THROW(scale_heads(run, run.make({2, 4}), one), Error);
  EXPECT_THROW(scale_heads(run, run.make({2, 3, 4}), one, -1), Error);
}

TEST(Tap, ShowsTheValueItselfAndSaysWhere) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor x = run.upload({1, 3}, std::vector<double>{1, 2, 3});
  EXPECT_EQ(tap(run, Site{"q"}, x).data, x.data);  // nobody watches
  Taps taps;
  run.taps = &taps;
  run.stack = Stack::encoder;
  run.layer = 4;
  int seen = 0;
  taps.see(Site{"q"}, [&](const Tapped& t) {
    ++seen;
    EXPECT_EQ(t.site, Site{"q"});
    EXPECT_EQ(t.stack, Stack::encoder);
    EXPECT_EQ(t.layer, 4);
    EXPECT_TRUE(t.cross);
    EXPECT_EQ(t.value.data, x.data);
  });
  EXPECT_EQ(tap(run, Site{"q"}, x, true).data, x.data);
  EXPECT_EQ(tap(run, Site{"k"}, x, true).data, x.data);
  EXPECT_EQ(seen, 1);
  taps.muted = true;
  tap(run, Site{"q"}, x, true);
  EXPECT_EQ(seen, 1);
}

TEST(Tap, AnEditChangesACopyAndTheGradientPassesIt) {
  for (const std::string& isa : {std::string("f64"), available_isas().back()}) {
    Device device({.threads = 1, .isa = isa});
    rapt::Run run(device);
    Gradients gradients(device.real);
    Tape tape(gradients);
    Taps taps;
    run.tape = &tape;
    run.taps = &taps;
    const Tensor x = run.upload({1, 1}, std::vector<double>{3});
    std::vector<double> seen;
    taps.edit(Site{"z"}, [&](const Tapped& t) {
      if (t.value.dtype == DType::f64) t.value.as<double>()[0] *= 10;
      else t.value.as<float>()[0] *= 10;
    });
    taps.see(Site{"z"}, [&](const Tapped& t) { seen.push_back(t.value.at(0)); });
    const Tensor y = tap(run, Site{"z"}, x);
    EXPECT_EQ(x.at(0), 3);
    EXPECT_EQ(y.at(0), 30);
    EXPECT_EQ(seen, std::vector<double>{30});  // observers see the edited value
    taps.muted = true;
    EXPECT_EQ(tap(run, Site{"z"}, x).at(0), 30);  // recomputing: edits apply, nobody is shown
    EXPECT_EQ(seen.size(), 1u);
    backward(run, add(run, y, x, 2));
    Tensor g = x;
    g.data = static_cast<std::byte*>(run.grad(x));
    EXPECT_EQ(g.at(0), 3);  // one through the tap, two beside it
  }
}

}  // namespace
}  // namespace rapt::test
