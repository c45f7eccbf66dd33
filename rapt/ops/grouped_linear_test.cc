// SPDX-License-Identifier: Apache-2.0
// Against plain loops and, bit for bit, against `linear` with each group's weight: every format, sizes around
// tiles and blocks, groups without rows.
#include "rapt/ops/grouped_linear.h"

#include <gtest/gtest.h>

#include <cstring>

#include "rapt/ops/op_test.h"
#include "rapt/ops/route.h"
#include "rapt/tensor/formats.h"
#include "rapt/tensor/pack.h"
#include "tests/build_kind.h"

RAPT_GRADIENT_CHECKED(grouped_linear)

namespace rapt::test {
namespace {

// Rows of each group: none, one, more than are read in place, more than a block of rows.
struct GroupShape {
  std::vector<std::int32_t> counts;
  Dim k, n[2];
  int parts;
  bool bias;
};

std::vector<std::int32_t> begins(const std::vector<std::int32_t>& counts) {
  std::vector<std::int32_t> begin{0};
  for (std::int32_t c : counts) begin.push_back(begin.back() + c);
  return begin;
}

TEST(GroupedLinear, EachRowMeetsItsGroupsWeight) {
  for (const GroupShape& s :
       {GroupShape{{3, 0, 1, 5}, 7, {5, 9}, 2, true}, GroupShape{{0, 2}, 33, {37, 0}, 1, false},
        GroupShape{{13, 1, 0}, 9, {33, 4}, 2, false}}) {
    const std::vector<std::int32_t> begin = begins(s.counts);
    const Dim rows = begin.back(), G = static_cast<Dim>(s.counts.size());
    OpCase c{.name = concat("grouped ", rows, " ", s.k), .inputs = {array({rows, s.k}, 5)}};
    for (int p = 0; p < s.parts; ++p)
      for (Dim g = 0; g < G; ++g) {
        c.weights.push_back(
            weight(s.n[p], s.k, 10 + static_cast<std::uint64_t>(p * 50 + g), 1, 0, Packing::panels));
        if (s.bias) c.weights.push_back(weight(1, s.n[p], 90 + static_cast<std::uint64_t>(p * 50 + g)));
      }
    const auto at = [&](int p, Dim g) { return static_cast<std::size_t>((p * G + g) * (s.bias ? 2 : 1)); };
    c.op = [&](rapt::Run& run, const std::vector<Tensor>& in, const std::vector<Weight>& w) {
      std::vector<Projection> lists[2];
      std::vector<std::span<const Projection>> parts;
      for (int p = 0; p < s.parts; ++p) {
        for (Dim g = 0; g < G; ++g) lists[p].push_back({&w[at(p, g)], s.bias ? &w[at(p, g) + 1] : nullptr});
        parts.emplace_back(lists[p]);
      }
      std::vector<Tensor> out(parts.size());
      const std::int32_t* list = run.copy_of(std::span<const std::int32_t>(begin));
      grouped_linear(run, in[0], {.count = G, .rows = rows, .begin = list}, parts, out);
      return out;
    };
    c.reference = [&](const std::vector<Array>& in, const std::vector<Weight>& w) {
      std::vector<double> y;
      for (int p = 0; p < s.parts; ++p)
        for (Dim g = 0; g < G; ++g)
          for (Dim r = begin[static_cast<std::size_t>(g)]; r < begin[static_cast<std::size_t>(g) + 1]; ++r)
            for (Dim n = 0; n < s.n[p]; ++n) {
              double sum = s.bias ? w[at(p, g) + 1].get(0, n) : 0;
              for (Dim k = 0; k < s.k; ++k)
                sum += in[0].values[static_cast<std::size_t>(r * s.k + k)] * w[at(p, g)].get(n, k);
              y.push_back(sum);
            }
      return y;
    };
    check(c);
  }
}

Weight stored_matrix(DType format, Dim rows, Dim cols, std::uint64_t seed, const std::string& name) {
  const std::vector<double> values = normals(static_cast<std::size_t>(rows * cols), seed, 0.5);
  Weight w = make_weight(name, rows, cols, format, Packing::panels);
  if (!is_block(format)) {
    fill(w, values);
    return w;
  }
  const std::vector<float> floats(values.begin(), values.end());
  std::vector<std::byte> bytes(bytes_of(format, rows * cols, "test"));
  quantize(format, floats, bytes);
  pack_rows(w, 0, rows, bytes);
  return w;
}

// Rows of x in any order, through `from`, and dispatched: the same bits as `linear` on the rows of a group.
TEST(GroupedLinear, BitsAreThoseOfLinear) {
  std::vector<DType> formats = {DType::f32,  DType::bf16, DType::f16,  DType::q4_0,
                                DType::q8_0, DType::q4_k, DType::q6_k, DType::q5_1};
  if (kSanitized) formats = {DType::f32, DType::q4_0, DType::q4_k};
  constexpr Dim kExperts = 5;
  for (const std::string& isa : available_isas())
    for (const DType format : formats)
      for (const Dim T : {Dim{1}, Dim{2}, Dim{9}, Dim{150}}) {
        if (kSanitized && isa != available_isas().back()) continue;
        SCOPED_TRACE(concat(isa, " ", name_of(format), " ", T));
        const Dim K = T == 9 ? 768 : 256, N = T == 150 ? 96 : 70;
        std::vector<Weight> gate, up, bias;
        for (Dim e = 0; e < kExperts; ++e) {
          const auto seed = static_cast<std::uint64_t>(e);
          gate.push_back(stored_matrix(format, N, K, 100 + seed, concat("gate ", e)));
          // Of one expert another format: both kernels run.
          up.push_back(
              stored_matrix(e == 3 && T == 2 ? DType::f32 : format, N + 5, K, 200 + seed, concat("up ", e)));
          bias.push_back(make_weight("bias", 1, N, DType::f32));
          fill(bias.back(), normals(static_cast<std::size_t>(N), 300 + seed));
        }
        std::vector<Projection> gates, ups;
        for (std::size_t e = 0; e < kExperts; ++e)
          gates.push_back({&gate[e], &bias[e]}), ups.push_back({&up[e], nullptr});
        for (const int threads : {1, 3}) {
          Device device({.threads = threads, .isa = isa});
          rapt::Run run(device);
          const Tensor x = run.upload({T, K}, normals(static_cast<std::size_t>(T * K), 7)),
                       z = run.upload({T, kExperts}, normals(static_cast<std::size_t>(T * kExperts), 8));
          const Routing r = route(run, {.experts = kExperts, .used = 2}, z, nullptr, {});
          RowGroups groups{.count = kExperts, .rows = T * 2, .begin = r.begin};
          const std::span<const Projection> parts[] = {gates, ups};
          Tensor packed[2], direct[2];
          grouped_linear(run, dispatch(run, x, r, false), groups, parts, packed);
          groups.from = r.slots, groups.per = 2;
          grouped_linear(run, x, groups, parts, direct);
          for (int p = 0; p < 2; ++p)
            EXPECT_EQ(std::memcmp(packed[p].data, direct[p].data,
                                  static_cast<std::size_t>(packed[p].elements()) * sizeof(float)),
                      0);
          for (Dim i = 0; i < T * 2; ++i) {
            const Dim e = r.chosen[r.slots[i]];
            const Tensor row = x.slice(r.slots[i] / 2, 1);
            const Tensor one = linear(run, row, gate[static_cast<std::size_t>(e)],
                                      &bias[static_cast<std::size_t>(e)]),
                         two = linear(run, row, up[static_cast<std::size_t>(e)]);
            EXPECT_EQ(std::memcmp(one.data, packed[0].slice(i, 1).data, static_cast<std::size_t>(N) * 4), 0);
            EXPECT_EQ(std::memcmp(two.data, packed[1].slice(i, 1).data, static_cast<std::size_t>(N + 5) * 4),
                      0);
          }
        }
      }
}

TEST(GroupedLinear, WhatDoesNotFitIsRefused) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Weight a = make_weight("a", 4, 32, DType::f32, Packing::panels),
               b = make_weight("b", 5, 32, DType::f32, Packing::panels),
               c = make_weight("c", 4, 32, DType::q4_0, Packing::panels),
               d = make_weight("d", 4, 32, DType::f32, Packing::rows);
  const Tensor x = run.make({2, 32});
  const std::int32_t begin[] = {0, 1, 2};
  Tensor y;
  const auto call = [&](const Weight& second, const Tensor& in, Dim groups = 2) {
    const Projection list[] = {{&a, nullptr}, {&second, nullptr}};
    const std::span<const Projection> part = list;
    grouped_linear(run, in, {.count = groups, .rows = 2, .begin = begin}, {&part, 1}, {&y, 1});
  };
  EXPECT_THROW(call(b, x), Error);
  EXPECT_THROW(call(d, x), Error);
  EXPECT_THROW(call(a, x, 1), Error);
  EXPECT_THROW(call(a, run.make({3, 32})), Error);
  EXPECT_THROW(call(a, run.make({2, 16})), Error);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  EXPECT_THROW(call(c, x), Error);
}

}  // namespace
}  // namespace rapt::test
