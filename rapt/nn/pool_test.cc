// SPDX-License-Identifier: Apache-2.0
// Pooled rows by hand: what a classifier reads, and what an embedding is normalised from.
#include "rapt/nn/pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/model_tools.h"

namespace rapt::test {
namespace {

TEST(Pool, FirstMeanAndLastOfEachSequence) {
  for (const std::string& isa : {std::string("f64"), available_isas().front()}) {
    Device device({.threads = 1, .isa = isa});
    rapt::Run run(device);
    const Tensor x = run.make({5, 2});
    const double values[] = {1, 10, 2, 20, 6, 60, -0.0, 7, 3, 9};
    for (std::size_t i = 0; i < 10; ++i) {
      if (x.dtype == DType::f64) x.as<double>()[i] = values[i];
      else x.as<float>()[i] = static_cast<float>(values[i]);
    }
    const std::vector<RowRange> sequences = {{0, 3}, {3, 1}, {4, 1}};
    const std::map<Pool, std::vector<double>> want = {{Pool::first, {1, 10, -0.0, 7, 3, 9}},
                                                      {Pool::mean, {3, 30, 0, 7, 3, 9}},
                                                      {Pool::last, {6, 60, -0.0, 7, 3, 9}}};
    for (const auto& [how, rows] : want) {
      const Tensor y = pool_rows(run, how, x, sequences);
      EXPECT_EQ(all_values(y), rows);
      EXPECT_EQ(std::signbit(y.at(2)), how != Pool::mean);  // a row that is taken keeps its bits
      for (std::size_t s = 0; s < 3; ++s)
        EXPECT_EQ(pooled_row(how, x, sequences[s]),
                  std::vector<double>(rows.begin() + 2 * static_cast<Dim>(s),
                                      rows.begin() + 2 * static_cast<Dim>(s) + 2));
    }
    for (const RowRange bad : {RowRange{0, 0}, RowRange{4, 2}, RowRange{-1, 2}}) {
      EXPECT_THROW(pool_rows(run, Pool::mean, x, {&bad, 1}), Error);
      EXPECT_THROW(pooled_row(Pool::mean, x, bad), Error);
    }
  }
}

}  // namespace
}  // namespace rapt::test
