// SPDX-License-Identifier: Apache-2.0
// Against the formula, pair by pair, in double; the rule of rows; and bits beside neighbours.
#include "rapt/ops/disentangle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(disentangle)

namespace rapt::test {
namespace {

using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;
using Weights = std::vector<Weight>;

RowPlan plan_of(const std::vector<Dim>& lengths) {
  std::vector<Sequence> sequences;
  Dim first = 0;
  for (const Dim n : lengths) {
    sequences.push_back({.first = first, .count = n});
    first += n;
  }
  return plan_rows(Mask{}, sequences);
}

struct Terms {
  bool keys = true, queries = true;
};

// The formula of disentangle.h, pair by pair.
std::vector<double> reference(const DisentangleSpec& spec, const RowPlan& plan, const Arrays& in,
                              Terms terms) {
  const Array &q = in[0], &k = in[1], &table = in[2];
  const Dim T = q.shape[0], H = q.shape[1], K = k.shape[1], D = q.shape[2];
  Dim longest = 0;
  for (const RowPlan::Part& p : plan.parts) longest = std::max(longest, p.k_count);
  std::vector<double> out(static_cast<std::size_t>(H * T * longest));
  auto value = [](const Array& a, Dim row, Dim head, Dim c) {
    return a.values[static_cast<std::size_t>((row * a.shape[1] + head) * a.shape[2] + c)];
  };
  for (const RowPlan::Part& p : plan.parts)
    for (Dim i = p.q_first; i < p.q_first + p.q_count; ++i)
      for (Dim j = 0; j < p.k_count; ++j)
        for (Dim h = 0; h < H; ++h) {
          const Dim g = h / (H / K);
          const Dim r = relative_row(plan.position[static_cast<std::size_t>(i)] - j, spec.buckets, spec.max) -
                        spec.first;
          double sum = 0;
          for (Dim c = 0; c < D; ++c) {
            if (terms.keys) sum += value(q, i, h, c) * value(table, r, g, c);
            if (terms.queries)
              sum += value(k, p.k_first + j, g, c) * value(terms.keys ? in[3] : table, r, h, c);
          }
          out[static_cast<std::size_t>((h * T + i) * longest + j)] = spec.scale * sum;
        }
  return out;
}

OpCase disentangle_case(const std::string& name, const DisentangleSpec& spec, const RowPlan& plan, Dim rows,
                        Dim H, Dim K, Dim D, Terms terms = {}) {
  OpCase c;
  c.name = name;
  const Dim T = static_cast<Dim>(plan.position.size()),
            S = plan.parts.back().k_first + plan.parts.back().k_count;
  c.inputs = {array({T, H, D}, 1), array({S, K, D}, 2)};
  if (terms.keys) c.inputs.push_back(array({rows, K, D}, 3));
  if (terms.queries) c.inputs.push_back(array({rows, H, D}, 4));
  c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
    return {disentangle(run, spec,
                        {.q = in[0],
                         .k = in[1],
                         .keys = terms.keys ? in[2] : Tensor{},
                         .queries = terms.queries ? in[terms.keys ? 3 : 2] : Tensor{}},
                        plan)};
  };
  c.reference = [=](const Arrays& in, const Weights&) { return reference(spec, plan, in, terms); };
  return c;
}

TEST(Disentangle, RowsOfDistances) {
  EXPECT_EQ(relative_row(0, 256, 512), 256);
  for (Dim d = -128; d <= 128; ++d) EXPECT_EQ(relative_row(d, 256, 512), 256 + d);
  // What DeBERTa's own function gives (transformers 5.22.2, make_log_bucket_position).
  EXPECT_EQ(relative_row(129, 256, 512), 256 + 129);
  EXPECT_EQ(relative_row(130, 256, 512), 256 + 130);
  EXPECT_EQ(relative_row(-511, 256, 512), 256 - 255);
  EXPECT_EQ(relative_row(511, 256, 512), 256 + 255);
  EXPECT_EQ(relative_row(512, 256, 512), 511);
  EXPECT_EQ(relative_row(-512, 256, 512), 0);
  EXPECT_EQ(relative_row(Dim{1} << 40, 256, 512), 511);
  EXPECT_EQ(relative_row(-(Dim{1} << 40), 256, 512), 0);
  const int expected[] = {8, 9, 10, 11, 12, 13, 13, 13, 13, 14, 14, 14};  // 8 buckets, max 40
  for (Dim d = 0; d < 12; ++d) EXPECT_EQ(relative_row(d, 8, 40), expected[d]) << d;
  for (const auto& [buckets, max] : {std::pair<Dim, Dim>{256, 512}, {8, 40}, {5, 9}, {2, 5}, {32, 4096}})
    for (Dim d = -3 * max; d < 3 * max; ++d) {
      EXPECT_LE(relative_row(d, buckets, max), relative_row(d + 1, buckets, max));
      if (relative_row(d, buckets, max) > 0 && relative_row(-d, buckets, max) > 0) {
        EXPECT_EQ(relative_row(d, buckets, max) + relative_row(-d, buckets, max), 2 * buckets) << d;
      }
    }
}

TEST(Disentangle, TermsHeadsAndLengths) {
  const DisentangleSpec spec{.buckets = 4, .max = 9, .scale = 0.3};
  const RowPlan plan = plan_of({7, 1, 13, 3});
  check(disentangle_case("both", spec, plan, 8, 2, 2, 5));
  check(disentangle_case("keys", spec, plan, 8, 2, 2, 5, {true, false}));
  check(disentangle_case("queries", spec, plan, 8, 2, 2, 5, {false, true}));
  check(disentangle_case("4 heads, 2 kv heads", spec, plan, 8, 4, 2, 3));
  check(disentangle_case("one channel", spec, plan_of({2}), 8, 1, 1, 1));
  check(disentangle_case("wide", {.buckets = 16, .max = 40, .scale = 1}, plan_of({19, 5}), 32, 3, 1, 37));
}

TEST(Disentangle, PartOfTheTable) {
  // 5 rows reach distances of 4: rows 12 to 20 of 32.
  check(disentangle_case("slice", {.buckets = 16, .max = 40, .first = 12, .scale = 1}, plan_of({5, 3}), 9, 2,
                         2, 4));
}

// Transformer-XL: one row for each distance that is seen, keys of tokens are not needed. Distances that the
// table does not hold take its first or its last row.
TEST(Disentangle, KeysOfSeenDistancesAlone) {
  for (const Dim ahead : {0, 2}) {
    const RowPlan plan = plan_of({7, 1, 13, 3});
    const Dim buckets = 26, rows = ahead + 1 + 9;  // up to 9 tokens before the row
    const DisentangleSpec spec{
        .buckets = buckets, .max = 52, .first = buckets - ahead, .seen_only = true, .scale = 0.3};
    OpCase c;
    c.name = concat("seen distances, ", ahead, " ahead");
    c.inputs = {array({24, 4, 5}, 1), array({rows, 2, 5}, 2)};
    c.op = [=](rapt::Run& run, const Tensors& in, const Weights&) -> Tensors {
      return {disentangle(run, spec, {.q = in[0], .keys = in[1]}, plan)};
    };
    c.reference = [=](const Arrays& in, const Weights&) {
      std::vector<double> out(static_cast<std::size_t>(4 * 24 * 13));
      for (const RowPlan::Part& p : plan.parts)
        for (Dim i = p.q_first; i < p.q_first + p.q_count; ++i)
          for (Dim j = 0; j < p.k_count; ++j)
            for (Dim h = 0; h < 4; ++h) {
              const Dim distance = plan.position[static_cast<std::size_t>(i)] - j,
                        r = std::clamp<Dim>(distance + ahead, 0, rows - 1);
              double sum = 0;
              for (Dim k = 0; k < 5; ++k)
                sum += in[0].values[static_cast<std::size_t>((i * 4 + h) * 5 + k)] *
                       in[1].values[static_cast<std::size_t>((r * 2 + h / 2) * 5 + k)];
              out[static_cast<std::size_t>((h * 24 + i) * 13 + j)] = 0.3 * sum;
            }
      return out;
    };
    check(c);
  }
}

TEST(Disentangle, MoreRowsThanABlock) {
  OpCase c =
      disentangle_case("long", {.buckets = 8, .max = 40, .scale = 0.2}, plan_of({70, 131, 2}), 16, 2, 2, 4);
  check(c);
}

TEST(Disentangle, ChosenRowsInAnyOrder) {
  RowPlan plan = plan_of({3});
  plan.parts[0].k_count = 17;
  plan.position = {16, 0, 9};
  check(disentangle_case("chosen", {.buckets = 4, .max = 9, .scale = 1}, plan, 8, 2, 1, 6));
}

// A sequence has the bits that it has alone, in bias and gradients, whoever stands beside it.
TEST(Disentangle, BitsDoNotDependOnCompany) {
  const Dim H = 3, D = 37, rows = 32;
  const std::vector<Dim> lengths = {70, 5, 90, 1};
  const DisentangleSpec spec{.buckets = 16, .max = 60, .scale = 0.1};
  const Dim T = std::accumulate(lengths.begin(), lengths.end(), Dim{0});
  const Array q = array({T, H, D}, 1), k = array({T, H, D}, 2), keys = array({rows, H, D}, 3),
              queries = array({rows, H, D}, 4);
  struct Result {
    std::vector<double> bias, dq, dk;
    Dim longest;
  };
  auto compute = [&](Dim first, const std::vector<Dim>& some, int threads) {
    Device device({.threads = threads});
    Gradients gradients(device.real);
    Tape tape(gradients);
    rapt::Run run(device);
    run.tape = &tape;
    const Dim n = std::accumulate(some.begin(), some.end(), Dim{0});
    auto rows_of = [&](const Array& a) {
      return run.upload({n, H, D}, std::span(a.values).subspan(static_cast<std::size_t>(first * H * D),
                                                               static_cast<std::size_t>(n * H * D)));
    };
    const DisentangleInputs in{.q = rows_of(q),
                               .k = rows_of(k),
                               .keys = run.upload({rows, H, D}, keys.values),
                               .queries = run.upload({rows, H, D}, queries.values)};
    const Tensor bias = disentangle(run, spec, in, plan_of(some));
    // The loss: the sum of squares, so that gradients are 2 bias.
    auto* g = static_cast<float*>(run.grad(bias));
    for (Dim i = 0; i < bias.elements(); ++i) g[i] = static_cast<float>(2 * bias.at(i));
    tape.play_back(run);
    auto gradient = [&](const Tensor& t) {
      const auto* at = static_cast<const float*>(run.grad(t));
      return std::vector<double>(at, at + t.elements());
    };
    return Result{values_of(bias), gradient(in.q), gradient(in.k), bias[2]};
  };
  const Result all = compute(0, lengths, 2);
  Dim first = 0;
  for (const Dim n : lengths) {
    const Result one = compute(first, {n}, 1);
    for (Dim h = 0; h < H; ++h)
      for (Dim i = 0; i < n; ++i)
        for (Dim j = 0; j < all.longest; ++j) {
          const double got = all.bias[static_cast<std::size_t>((h * T + first + i) * all.longest + j)];
          EXPECT_EQ(got, j < n ? one.bias[static_cast<std::size_t>((h * n + i) * n + j)] : 0);
        }
    for (Dim i = 0; i < n * H * D; ++i) {
      const auto at = static_cast<std::size_t>(first * H * D + i);
      ASSERT_EQ(all.dq[at], one.dq[static_cast<std::size_t>(i)]);
      ASSERT_EQ(all.dk[at], one.dk[static_cast<std::size_t>(i)]);
    }
    first += n;
  }
}

TEST(Disentangle, RefusesWhatDoesNotFit) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const RowPlan plan = plan_of({4, 2});
  const Tensor q = run.make({6, 2, 3}), table = run.make({8, 2, 3}), other = run.make({8, 1, 3});
  const DisentangleSpec spec{.buckets = 4, .max = 9};
  EXPECT_NO_THROW(disentangle(run, spec, {.q = q, .k = q, .keys = table, .queries = table}, plan));
  EXPECT_THROW(disentangle(run, spec, {.q = q, .k = q}, plan), Error);
  EXPECT_NO_THROW(disentangle(run, spec, {.q = q, .keys = table}, plan));
  EXPECT_THROW(disentangle(run, spec, {.q = q, .queries = table}, plan), Error);
  EXPECT_THROW(disentangle(run, spec, {.q = q, .k = q, .keys = other}, plan), Error);
  EXPECT_THROW(disentangle(run, spec, {.q = q, .k = q, .keys = table}, plan_of({4})), Error);
  EXPECT_THROW(disentangle(run, spec, {.q = q, .k = q, .keys = table}, plan_of({4, 3})), Error);
  // Distances of 3 take rows 1 to 7 here, and the table begins at 3.
  EXPECT_THROW(disentangle(run, {.buckets = 4, .max = 9, .first = 3}, {.q = q, .k = q, .keys = table}, plan),
               Error);
  EXPECT_THROW(disentangle(run, {.buckets = 4, .max = 3}, {.q = q, .k = q, .keys = table}, plan), Error);
}

}  // namespace
}  // namespace rapt::test
