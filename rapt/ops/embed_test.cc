// SPDX-License-Identifier: Apache-2.0
// Rows by id against plain lookups, with ids repeated and at a panel's edge; means against plain sums.
#include "rapt/ops/embed.h"

#include <gtest/gtest.h>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(embed)
RAPT_GRADIENT_CHECKED(take_rows)

namespace rapt::test {
namespace {

using Ids = std::vector<std::int32_t>;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Weights of a case: the table, then perhaps `more`. The list of ids dies with the call, as a caller's may.
OpCase embed_case(const Ids& ids, double scale) {
  OpCase c;
  c.op = [=](rapt::Run& run, const std::vector<Tensor>&,
             const std::vector<Weight>& w) -> std::vector<Tensor> {
    Ids gone = ids;
    const Tensor y = embed(run, gone, w[0], scale, w.size() > 1 ? &w[1] : nullptr);
    gone.assign(gone.size(), -1);
    return {y};
  };
  c.reference = [=](const std::vector<Array>&, const std::vector<Weight>& w) {
    std::vector<double> y;
    for (std::int32_t id : ids)
      for (Dim k = 0; k < w[0].cols; ++k)
        y.push_back(scale * (id < w[0].rows ? w[0].get(id, k) : w[1].get(id - w[0].rows, k)));
    return y;
  };
  return c;
}

TEST(Embed, EveryPackingFormatAndOddSize) {
  for (Packing packing : {Packing::rows, Packing::panels})
    for (bool bf16 : {false, true})
      for (bool more : {false, true})
        for (Dim cols : {1, 7, 16, 33, 130}) {
          Ids ids = {5, 0, 40, 5, 31, 32, 5, 40};  // repeated, first, last, both sides of a panel's edge
          if (more) ids.insert(ids.end(), {41, 43, 41});
          OpCase c = embed_case(ids, cols == 7 ? 1 : 1.5);
          c.name = concat("embed packing ", static_cast<int>(packing), " bf16 ", bf16, " more ", more,
                          " cols ", cols);
          c.bf16 = bf16;  // the harness narrows panels only; rows in bf16: the next test
          c.weights = {weight(41, cols, 1, 1, 0, packing)};
          if (more) c.weights.push_back(weight(3, cols, 2));
          check(c);
        }
}

TEST(Embed, ReadsABf16TableInRowsOnEverySet) {
  std::vector<std::string> sets = available_isas();
  sets.push_back("f64");
  for (const std::string& isa : sets) {
    Device device({.threads = 1, .isa = isa});
    rapt::Run run(device);
    Weight table = make_weight("table", 4, 37, DType::bf16), more = make_weight("more", 2, 37, DType::bf16);
    fill(table, normals(4 * 37, 1));
    fill(more, normals(2 * 37, 2));
    const Ids ids = {3, 0, 5};
    const Tensor y = embed(run, ids, table, 2, &more);
    for (Dim c = 0; c < 37; ++c) {
      EXPECT_EQ(y.at(c), 2 * table.get(3, c)) << isa;
      EXPECT_EQ(y.at(37 + c), 2 * table.get(0, c)) << isa;
      EXPECT_EQ(y.at(74 + c), 2 * more.get(1, c)) << isa;
    }
  }
}

TEST(Embed, ARowDoesNotDependOnItsNeighbours) {
  Device device({.threads = 2});
  rapt::Run run(device);
  Weight table = make_weight("table", 50, 100, device.real, Packing::panels);
  fill(table, normals(50 * 100, 1));
  Ids ids;
  for (std::int32_t i = 0; i < 300; ++i) ids.push_back(i * 7 % 50);
  const Tensor all = embed(run, ids, table, 0.3);
  for (std::size_t r : {std::size_t{0}, std::size_t{150}, std::size_t{299}}) {
    const Tensor one = embed(run, std::span(ids).subspan(r, 1), table, 0.3);
    EXPECT_EQ(values_of(one), values_of(all.slice(static_cast<Dim>(r), 1)));
  }
  EXPECT_EQ(embed(run, Ids{}, table).elements(), 0);
}

TEST(Embed, RefusesIdsOutsideTheTable) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Weight table = make_weight("tokens", 10, 4, device.real),
               more = make_weight("sinks", 2, 4, device.real);
  const std::string high = message_of([&] { embed(run, Ids{1, 10}, table); });
  EXPECT_NE(high.find("id 10 at row 1"), std::string::npos) << high;
  EXPECT_NE(high.find("tokens of 10 rows"), std::string::npos) << high;
  EXPECT_NO_THROW(embed(run, Ids{10, 11}, table, 1, &more));
  EXPECT_THROW(embed(run, Ids{12}, table, 1, &more), Error);
  EXPECT_THROW(embed(run, Ids{-1}, table, 1, &more), Error);
}

TEST(Embed, RefusesTablesItCannotRead) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Weight table = make_weight("tokens", 10, 4, DType::f32),
               narrow = make_weight("sinks", 2, 3, DType::f32);
  const Weight panels = make_weight("sinks", 2, 4, DType::f32, Packing::panels),
               wide = make_weight("tokens", 10, 4, DType::f64);
  EXPECT_THROW(embed(run, Ids{0}, table, 1, &narrow), Error);
  EXPECT_THROW(embed(run, Ids{0}, table, 1, &panels), Error);
  EXPECT_THROW(embed(run, Ids{0}, wide), Error);
}

TEST(TakeRows, RowsInAnyOrderAndMoreThanOnce) {
  for (Dim cols : {1, 5, 16, 67, 200}) {
    const Ids which = {4, 0, 4, 6, 4};
    OpCase c;
    c.name = concat("take_rows cols ", cols);
    c.inputs = {array({7, cols}, 1)};
    c.op = [=](rapt::Run& run, const std::vector<Tensor>& in,
               const std::vector<Weight>&) -> std::vector<Tensor> {
      Ids gone = which;
      const Tensor y = take_rows(run, in[0], gone);
      gone.assign(gone.size(), -1);
      return {y};
    };
    c.reference = [=](const std::vector<Array>& in, const std::vector<Weight>&) {
      std::vector<double> y;
      for (std::int32_t r : which)
        for (Dim k = 0; k < cols; ++k) y.push_back(in[0].values[static_cast<std::size_t>(r * cols + k)]);
      return y;
    };
    check(c);
  }
}

TEST(MeanRows, OfEachRangeAndItsGradient) {
  for (Dim cols : {1, 5, 67}) {
    const std::vector<RowRange> ranges = {{2, 4}, {0, 1}, {1, 6}};  // overlapping, one row, to the end
    OpCase c;
    c.name = concat("mean_rows cols ", cols);
    c.inputs = {array({7, cols}, 1)};
    c.op = [=](rapt::Run& run, const std::vector<Tensor>& in,
               const std::vector<Weight>&) -> std::vector<Tensor> {
      std::vector<RowRange> gone = ranges;
      const Tensor y = mean_rows(run, in[0], gone);
      gone.assign(gone.size(), {-1, -1});
      return {y};
    };
    c.reference = [=](const std::vector<Array>& in, const std::vector<Weight>&) {
      std::vector<double> y;
      for (const auto& [first, count] : ranges)
        for (Dim k = 0; k < cols; ++k) {
          double sum = 0;
          for (Dim r = first; r < first + count; ++r)
            sum += in[0].values[static_cast<std::size_t>(r * cols + k)];
          y.push_back(sum / static_cast<double>(count));
        }
      return y;
    };
    check(c);
  }
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor x = run.upload({3, 1}, std::vector<double>{1, 2, 3});
  for (const RowRange& bad : {RowRange{0, 4}, RowRange{-1, 2}, RowRange{1, 0}, RowRange{3, 1},
                              RowRange{Dim{1} << 62, Dim{1} << 62}})
    EXPECT_THROW(mean_rows(run, x, {&bad, 1}), Error);
}

TEST(TakeRows, AConstantGetsNoGradientAndBadRowsAreRefused) {
  Device device({.threads = 1});
  rapt::Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  run.tape = &tape;
  const Tensor x = run.upload({3, 1}, std::vector<double>{1, 2, 3});
  const Tensor y = take_rows(run, x.constant(), Ids{2});
  EXPECT_EQ(y.at(0), 3);
  EXPECT_NO_THROW(backward(run, y));
  EXPECT_THROW(take_rows(run, x, Ids{3}), Error);
  EXPECT_THROW(take_rows(run, x, Ids{-1}), Error);
}

}  // namespace
}  // namespace rapt::test
