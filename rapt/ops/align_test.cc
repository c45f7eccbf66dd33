// SPDX-License-Identifier: Apache-2.0
// Against the formula, key by key, in double; and the bits of a row alone from a cache against a batch.
#include "rapt/ops/align.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(align)

namespace rapt::test {
namespace {

using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;
using Weights = std::vector<Weight>;

// The formula of align.h, key by key.
std::vector<double> reference(const AlignSpec& spec, const std::vector<AlignRow>& rows, const Array& q,
                              const Array& k, const Array& v, const Weight* score, const Array* place) {
  const auto d = static_cast<std::size_t>(q.shape[1]), m = static_cast<std::size_t>(v.shape[1]);
  std::vector<double> out(rows.size() * m);
  for (std::size_t b = 0; b < rows.size(); ++b) {
    const AlignRow& r = rows[b];
    double p = 0, sum = 0;
    if (place) p = static_cast<double>(r.count) / (1 + std::exp(-place->values[b]));
    std::vector<double> e(static_cast<std::size_t>(r.count));
    for (Dim j = r.low; j < r.high; ++j) {
      const double from = static_cast<double>(j) - p;
      if (place && std::abs(from) > spec.reach) continue;
      double s = 0;
      for (std::size_t c = 0; c < d; ++c) {
        const double x = q.values[b * d + c], y = k.values[static_cast<std::size_t>(r.first + j) * d + c];
        s += spec.additive ? score->get(0, static_cast<Dim>(c)) * std::tanh(x + y) : x * y;
      }
      sum += e[static_cast<std::size_t>(j)] = std::exp(s);
    }
    for (Dim j = r.low; j < r.high; ++j) {
      const double from = static_cast<double>(j) - p,
                   gauss = place ? std::exp(-from * from / (2 * spec.reach * spec.reach / 4)) : 1;
      if (e[static_cast<std::size_t>(j)] > 0)
        for (std::size_t c = 0; c < m; ++c)
          out[b * m + c] += e[static_cast<std::size_t>(j)] / sum * gauss *
                            v.values[static_cast<std::size_t>(r.first + j) * m + c];
    }
  }
  return out;
}

OpCase align_case(const std::string& name, const AlignSpec& spec, const std::vector<AlignRow>& rows, Dim d,
                  Dim m, bool place) {
  OpCase c;
  c.name = name;
  Dim keys = 0;
  for (const AlignRow& r : rows) keys = std::max(keys, static_cast<Dim>(r.first + r.count));
  const Dim B = static_cast<Dim>(rows.size());
  c.inputs = {array({B, d}, 1), array({keys, d}, 2), array({keys, m}, 3)};
  if (place) c.inputs.push_back(array({B, 1}, 4));
  if (spec.additive) c.weights = {weight(1, d, 5)};
  c.op = [=](rapt::Run& run, const Tensors& in, const Weights& w) -> Tensors {
    return {align(run, spec,
                  {.q = in[0],
                   .k = in[1],
                   .v = in[2],
                   .score = spec.additive ? &w[0] : nullptr,
                   .place = place ? in[3] : Tensor{}},
                  rows)
                .context};
  };
  c.reference = [=](const Arrays& in, const Weights& w) {
    return reference(spec, rows, in[0], in[1], in[2], spec.additive ? &w[0] : nullptr,
                     place ? &in[3] : nullptr);
  };
  return c;
}

// Sequences of different length, one in another order, a window, a single key, and a row that sees nothing.
const std::vector<AlignRow> kRows = {{.first = 3, .count = 7, .low = 0, .high = 7},
                                     {.first = 0, .count = 3, .low = 1, .high = 3},
                                     {.first = 10, .count = 1, .low = 0, .high = 1},
                                     {.first = 11, .count = 19, .low = 0, .high = 19},
                                     {.first = 30, .count = 4, .low = 4, .high = 4}};

TEST(Align, ScoresAndWindowsAtOddSizes) {
  for (const auto& [d, m] : {std::pair<Dim, Dim>{1, 1}, {5, 3}, {16, 33}, {37, 16}})
    for (const bool additive : {false, true}) {
      const std::string size = concat(additive ? "additive" : "dot", " d ", d, " m ", m);
      check(align_case(size, {.additive = additive}, kRows, d, m, false));
      check(align_case(size + " around a place", {.additive = additive, .reach = 3}, kRows, d, m, true));
    }
}

TEST(Align, ManyRowsOverTwoThreads) {
  std::vector<AlignRow> rows;
  for (Dim i = 0; i < 40; ++i) rows.push_back({.first = i * 9, .count = 9, .low = 0, .high = 9});
  check(align_case("40 rows", {.additive = true}, rows, 24, 24, false));
}

// The weights of a row are the same numbers whoever stands beside it, from tensors as from a cache.
TEST(Align, BitsDoNotDependOnCompany) {
  Device device({.threads = 2});
  rapt::Run run(device);
  const Dim d = 37, m = 19;
  auto upload = [&](const Array& a) { return run.upload({a.shape[0], a.shape[1]}, a.values); };
  const Tensor q = upload(array({5, d}, 1)), k = upload(array({34, d}, 2)), v = upload(array({34, m}, 3)),
               place = upload(array({5, 1}, 4));
  for (const bool predicted : {false, true}) {
    const AlignSpec spec{.reach = 3};
    const AlignResult all =
        align(run, spec, {.q = q, .k = k, .v = v, .place = predicted ? place : Tensor{}}, kRows);
    for (Dim b = 0; b < 5; ++b) {
      AlignRow row = kRows[static_cast<std::size_t>(b)];
      row.k = k.slice(row.first, 1).data;
      row.v = v.slice(row.first, 1).data;
      const AlignResult one =
          align(run, spec, {.q = q.slice(b, 1), .m = m, .place = predicted ? place.slice(b, 1) : Tensor{}},
                {&row, 1});
      EXPECT_EQ(std::memcmp(one.context.data, all.context.slice(b, 1).data,
                            static_cast<std::size_t>(m) * sizeof(float)),
                0);
      double sum = 0;
      for (Dim j = 0; j < row.count; ++j) {
        EXPECT_EQ(one.weights.at(j), all.weights.at(b * all.weights[1] + j));
        sum += one.weights.at(j);
        if (j < row.low || j >= row.high) {
          EXPECT_EQ(one.weights.at(j), 0);
        }
      }
      if (!predicted) {
        EXPECT_NEAR(sum, row.high > row.low ? 1 : 0, 1e-6);
      }
    }
  }
}

TEST(Align, RefusesWhatDoesNotFit) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor q = run.make({2, 4}), k = run.make({6, 4}), v = run.make({6, 3}), narrow = run.make({6, 2});
  const std::vector<AlignRow> rows = {{.first = 0, .count = 3, .high = 3},
                                      {.first = 3, .count = 3, .high = 3}};
  const std::vector<AlignRow> beyond = {{.first = 0, .count = 3, .high = 3},
                                        {.first = 4, .count = 3, .high = 3}};
  const std::vector<AlignRow> shared = {{.first = 0, .count = 3, .high = 3},
                                        {.first = 2, .count = 3, .high = 3}};
  EXPECT_NO_THROW(align(run, {}, {.q = q, .k = k, .v = v}, rows));
  EXPECT_THROW(align(run, {}, {.q = q, .k = narrow, .v = v}, rows), Error);
  EXPECT_THROW(align(run, {}, {.q = q, .k = k, .v = {}}, rows), Error);
  EXPECT_THROW(align(run, {}, {.q = q, .k = k, .v = v}, beyond), Error);
  EXPECT_THROW(align(run, {}, {.q = q, .k = k, .v = v}, {rows.data(), 1}), Error);
  EXPECT_THROW(align(run, {.additive = true}, {.q = q, .k = k, .v = v}, rows), Error);
  EXPECT_THROW(align(run, {.reach = 0}, {.q = q, .k = k, .v = v, .place = run.make({2, 1})}, rows), Error);
  EXPECT_NO_THROW(align(run, {}, {.q = q, .k = k, .v = v}, shared));  // two may look at one memory,
  Gradients gradients(DType::f32);
  Tape tape(gradients);
  run.tape = &tape;
  // But not add to its gradients at once.
  EXPECT_THROW(align(run, {}, {.q = q, .k = k, .v = v}, shared), Error);
}

}  // namespace
}  // namespace rapt::test
