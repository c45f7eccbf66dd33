// SPDX-License-Identifier: Apache-2.0
// Weighted sums of a table's rows against plain loops; resampled lines against torch's interpolate, whose
// values stand here.
#include "rapt/ops/mix_rows.h"

#include <gtest/gtest.h>

#include "rapt/ops/op_test.h"

namespace rapt::test {
namespace {

// Rows with many entries, one, and none; one row of the table twice, one never.
RowMix some_mix() {
  RowMix mix;
  for (const std::int32_t row : {4, 0, 4, 2}) mix.add(row, 0.25 + row);
  mix.end_row();
  mix.end_row();
  mix.add(1, -1.5);
  mix.end_row();
  for (std::int32_t row = 0; row < 3; ++row) mix.add(row, 0.125 * row - 0.5);
  mix.end_row();
  return mix;
}

TEST(MixRows, SumsAndGradientsOfOddSizes) {
  for (const Dim cols : {1, 7, 16, 37}) {
    OpCase c;
    c.name = concat("mix_rows cols ", cols);
    c.weights = {weight(6, cols, 3)};
    c.op = [](rapt::Run& run, const std::vector<Tensor>&, const std::vector<Weight>& w) {
      return std::vector<Tensor>{mix_rows(run, w[0], some_mix())};
    };
    c.reference = [](const std::vector<Array>&, const std::vector<Weight>& w) {
      const RowMix mix = some_mix();
      std::vector<double> y;
      for (std::size_t r = 0; r + 1 < mix.begin.size(); ++r)
        for (Dim k = 0; k < w[0].cols; ++k) {
          double sum = 0;
          for (std::int32_t e = mix.begin[r]; e < mix.begin[r + 1]; ++e)
            sum +=
                mix.share[static_cast<std::size_t>(e)] * w[0].get(mix.from[static_cast<std::size_t>(e)], k);
          y.push_back(sum);
        }
      return y;
    };
    check(c);
  }
}

TEST(MixRows, RefusesRowsOutsideAndPanels) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Weight table = make_weight("table", 3, 5, DType::f32);
  RowMix mix;
  mix.add(3, 1);
  mix.end_row();
  EXPECT_THROW(mix_rows(run, table, mix), Error);
  const Weight panels = make_weight("panels", 3, 5, DType::f32, Packing::panels);
  EXPECT_THROW(mix_rows(run, panels, {}), Error);
  EXPECT_THROW(resample_line(0, 3, false), Error);
}

std::vector<double> resampled(const std::vector<double>& line, Dim to, bool antialias) {
  const RowMix mix = resample_line(static_cast<Dim>(line.size()), to, antialias);
  std::vector<double> out;
  for (std::size_t r = 0; r < static_cast<std::size_t>(to); ++r) {
    double sum = 0;
    for (std::int32_t e = mix.begin[r]; e < mix.begin[r + 1]; ++e)
      sum += mix.share[static_cast<std::size_t>(e)] *
             line[static_cast<std::size_t>(mix.from[static_cast<std::size_t>(e)])];
    out.push_back(sum);
  }
  return out;
}

TEST(MixRows, LinesAreResampledAsTorchDoes) {
  const std::vector<double> line = {1, -2, 4, 0.5, 3};
  struct Case {
    Dim to;
    bool antialias;
    std::vector<double> want;
  };
  const Case cases[] = {
      {1, false, {4}},
      {1, true, {1.28463}},
      {2, false, {-1.953125, 0.69726562}},
      {2, true, {0.39423282, 2.1171526}},
      {3, false, {-0.27777778, 4, 2.0185185}},
      {3, true, {-0.32307692, 1.8069767, 2.0384615}},
      {5, false, {1, -2, 4, 0.5, 3}},
      {5, true, {1, -2, 4, 0.5, 3}},
      {7, false, {1.2361516, -1.3702624, -0.59183673, 4, 1.4125364, 1.1822157, 3.196793}},
      {7, true, {1.1747573, -1.0775623, -0.66472303, 4, 1.3396501, 1.3684211, 3.1456311}},
      {11,
       false,
       {1.324568, 0.40383171, -1.6190834, -1.7052968, 1.4079639, 4, 2.8260706, 0.65195342, 0.98309542,
        2.5336213, 3.2704733}},
      {11,
       true,
       {1.2801556, 0.54320113, -1.3467916, -1.7569497, 1.4079639, 4, 2.7133734, 0.62847483, 1.1503244,
        2.6384561, 3.233463}},
  };
  for (const Case& c : cases) {
    const std::vector<double> got = resampled(line, c.to, c.antialias);
    ASSERT_EQ(got.size(), c.want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], c.want[i], 2e-6) << c.to << " " << c.antialias << " at " << i;
  }
}

}  // namespace
}  // namespace rapt::test
