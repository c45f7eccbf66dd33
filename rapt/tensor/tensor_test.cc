// SPDX-License-Identifier: Apache-2.0
// Views against the numbers beneath them, every bf16 value there and back, each packing element by element.
#include "rapt/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "rapt/tensor/weight.h"

namespace rapt {
namespace {

struct Numbers {  // 0, 1, 2 … in memory of its own
  explicit Numbers(std::size_t n)
      : values(n), buffer{reinterpret_cast<std::byte*>(values.data()), nullptr, n * sizeof(float)} {
    std::iota(values.begin(), values.end(), 0.0f);
  }
  Tensor tensor(std::vector<Dim> sizes) { return tensor_over(buffer.data, &buffer, DType::f32, sizes); }
  std::vector<float> values;
  Buffer buffer;
};

TEST(Tensor, KnowsItsSizes) {
  Numbers n(24);
  const Tensor t = n.tensor({2, 3, 4});
  EXPECT_TRUE(t);
  EXPECT_FALSE(Tensor{});
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.last(), 4);
  EXPECT_EQ(t[0], 2);
  EXPECT_EQ(t.elements(), 24);
  EXPECT_EQ(t.rows(), 6);
  EXPECT_EQ(t.shape(), "[2,3,4]");
  EXPECT_TRUE(t.contiguous());
  EXPECT_EQ(n.tensor({5, 0}).elements(), 0);
  EXPECT_EQ(n.tensor({5, 0}).rows(), 0);
}

TEST(Tensor, ReshapeIsAnotherViewOfTheSameBuffer) {
  Numbers n(24);
  const Tensor t = n.tensor({2, 3, 4}), r = t.reshape({6, 4});
  EXPECT_EQ(r.data, t.data);
  EXPECT_EQ(r.buffer, t.buffer);
  EXPECT_EQ(r.shape(), "[6,4]");
  EXPECT_EQ(r.reshape({1, 2, 3, 4}).at(23), 23);
  EXPECT_THROW(t.reshape({5, 5}), Error);
  EXPECT_THROW(t.reshape({1, 1, 2, 3, 4}), Error);
  EXPECT_THROW(t.reshape({}), Error);
}

TEST(Tensor, SliceTakesRows) {
  Numbers n(24);
  const Tensor t = n.tensor({4, 6}), s = t.slice(1, 2);
  EXPECT_EQ(s.shape(), "[2,6]");
  EXPECT_EQ(s.at(0), 6);
  EXPECT_EQ(s.at(11), 17);
  EXPECT_EQ(s.buffer, t.buffer);
  EXPECT_EQ(s.slice(1, 1).at(0), 12);
  EXPECT_EQ(t.slice(4, 0).elements(), 0);
  EXPECT_THROW(t.slice(3, 2), Error);
  EXPECT_THROW(t.slice(-1, 2), Error);
  EXPECT_THROW(t.slice(0, -1), Error);
  EXPECT_THROW(t.slice(5, 0), Error);
}

TEST(Tensor, ColumnsAndSwappedAxesAreViews) {
  Numbers n(24);
  const Tensor t = n.tensor({2, 3, 4}), c = t.columns(1, 2), s = t.swapped();
  EXPECT_EQ(c.shape(), "[2,3,2]");
  EXPECT_FALSE(c.contiguous());
  EXPECT_EQ(c.buffer, t.buffer);
  EXPECT_EQ(c.columns(1, 1).slice(1, 1).columns(0, 1).data, t.data + 14 * size_of(t.dtype));
  EXPECT_EQ(s.shape(), "[3,2,4]");
  EXPECT_FALSE(s.contiguous());
  EXPECT_EQ(s.slice(2, 1).data, t.data + 8 * size_of(t.dtype));
  EXPECT_TRUE(t.slice(0, 1).swapped().contiguous());
  EXPECT_THROW(t.columns(3, 2), Error);
  EXPECT_THROW(t.columns(-1, 2), Error);
  EXPECT_THROW(n.tensor({4, 6}).swapped(), Error);
}

TEST(Tensor, AViewWithGapsIsNotContiguous) {
  Numbers n(24);
  Tensor t = n.tensor({4, 6});
  t.size[1] = 3;  // the first three of every six
  EXPECT_FALSE(t.contiguous());
  EXPECT_THROW(t.reshape({12}), Error);
  t.size[0] = 1;  // one row has no gaps
  EXPECT_TRUE(t.contiguous());
}

TEST(Tensor, AConstantHasNoBuffer) {
  Numbers n(2);
  const Tensor t = n.tensor({2});
  EXPECT_EQ(t.constant().buffer, nullptr);
  EXPECT_EQ(t.constant().data, t.data);
}

TEST(Tensor, AtWidensEveryType) {
  std::vector<double> d = {0.1};
  std::vector<std::int32_t> i = {-7};
  std::vector<std::uint16_t> b = {to_bf16(1.5f)};
  const std::vector<Dim> one = {1};
  EXPECT_EQ(tensor_over(reinterpret_cast<std::byte*>(d.data()), nullptr, DType::f64, one).at(0), 0.1);
  EXPECT_EQ(tensor_over(reinterpret_cast<std::byte*>(i.data()), nullptr, DType::i32, one).at(0), -7);
  EXPECT_EQ(tensor_over(reinterpret_cast<std::byte*>(b.data()), nullptr, DType::bf16, one).at(0), 1.5);
}

// ------------------------------------------------------------------------------------------------ bf16

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t u = 0; u < 65536; ++u) {
    const auto bits = static_cast<std::uint16_t>(u);
    const float x = from_bf16(bits);
    if (std::isnan(x)) EXPECT_TRUE(std::isnan(from_bf16(to_bf16(x))));
    else EXPECT_EQ(to_bf16(x), bits);
  }
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(from_bf16(to_bf16(1 + 0x1p-8f)), 1);                // tie: the even one is 1
  EXPECT_EQ(from_bf16(to_bf16(1 + 3 * 0x1p-8f)), 1 + 0x1p-6f);  // tie: up to even
  EXPECT_EQ(from_bf16(to_bf16(1 + 0x1p-8f + 0x1p-20f)), 1 + 0x1p-7f);
  EXPECT_EQ(from_bf16(to_bf16(-1 - 0x1p-8f - 0x1p-20f)), -1 - 0x1p-7f);
  EXPECT_TRUE(std::isinf(from_bf16(to_bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isinf(from_bf16(to_bf16(std::numeric_limits<float>::infinity()))));
  // A NaN whose upper half alone would be infinity.
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

// ------------------------------------------------------------------------------------------------ Weight

TEST(Weight, EveryPackingHoldsEveryElementOnceAndGivesItBack) {
  for (DType format : {DType::f32, DType::f64, DType::bf16})
    for (Packing packing : {Packing::rows, Packing::panels})
      for (auto [rows, cols] : {std::pair<Dim, Dim>{1, 1}, {1, 7}, {31, 3}, {32, 5}, {33, 4}, {70, 9}}) {
        Weight w = make_weight("w", rows, cols, format, packing);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(w.data.get()) % 64, 0u);
        EXPECT_EQ(w.stored(),
                  packing == Packing::rows ? rows * cols : (rows + kPanel - 1) / kPanel * kPanel * cols);
        EXPECT_EQ(w.bytes(), static_cast<std::size_t>(w.stored()) * size_of(format));
        std::set<Dim> places;
        std::vector<double> values;
        for (Dim r = 0; r < rows; ++r)
          for (Dim c = 0; c < cols; ++c) {
            EXPECT_EQ(w.get(r, c), 0);
            EXPECT_LT(w.offset(r, c), w.stored());
            places.insert(w.offset(r, c));
            values.push_back(static_cast<double>((r * 37 + c * 11) % 256 - 128));  // exact in bf16
          }
        EXPECT_EQ(static_cast<Dim>(places.size()), w.size());
        fill(w, values);
        for (Dim r = 0; r < rows; ++r)
          for (Dim c = 0; c < cols; ++c)
            EXPECT_EQ(w.get(r, c), values[static_cast<std::size_t>(r * cols + c)]);
      }
}

TEST(Weight, APanelHoldsThirtyTwoRowsSideBySideAndZerosAtTheEnd) {
  Weight w = make_weight("w", 33, 3, DType::f32, Packing::panels);
  fill(w, std::vector<double>(99, 1.0));
  EXPECT_EQ(w.offset(5, 0), 5);
  EXPECT_EQ(w.offset(5, 1), 32 + 5);
  EXPECT_EQ(w.offset(32, 0), 3 * 32);
  const auto* stored = reinterpret_cast<const float*>(w.data.get());
  EXPECT_EQ(std::accumulate(stored, stored + w.stored(), 0.0), 99);
  EXPECT_EQ(stored[w.offset(32, 0) + 1], 0);
}

TEST(Weight, Bf16Rounds) {
  Weight w = make_weight("w", 1, 1, DType::bf16);
  w.set(0, 0, 1.001);
  EXPECT_EQ(w.get(0, 0), 1);
  w.set(0, 0, 3.14159);
  EXPECT_EQ(w.get(0, 0), 3.140625);
}

TEST(Weight, MatricesDecayAndVectorsDoNot) {
  EXPECT_TRUE(make_weight("w", 4, 4, DType::f32).decay);
  EXPECT_FALSE(make_weight("b", 1, 4, DType::f32).decay);
}

TEST(Weight, RefusesTheWrongNumberOfValues) {
  Weight w = make_weight("w", 2, 3, DType::f32);
  EXPECT_THROW(fill(w, std::vector<double>(5)), Error);
  EXPECT_THROW(fill(w, std::vector<double>(7)), Error);
  const Weight i = make_weight("i", 1, 1, DType::i32);
  EXPECT_THROW(i.get(0, 0), Error);
}

}  // namespace
}  // namespace rapt
