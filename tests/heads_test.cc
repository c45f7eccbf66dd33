// SPDX-License-Identifier: Apache-2.0
// The figures of heads against the definition on their full maps, which other tests compare with a plain reference.
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/inspect/heads.h"
#include "rapt/nn/recipe_set.h"
#include "tests/model_tools.h"

namespace rapt {
namespace {

TEST(Heads, FiguresFollowFromTheMaps) {
  for (const char* name : {"llama3", "bert", "t5", "qwen3-gate-g1"}) {
    Device device({.threads = 1, .isa = "f64"});
    Model model(with_settings(preset(name), std::vector<std::string>{"width=24", "layers=2", "heads=4", "kv_heads=2", "head_dim=6",
                                                                     "ffn=20", "vocab=31", "context=40"}),
                device.real);
    test::randomise(model, 3);
    const bool both = model.encoder && model.decoder;
    std::vector<std::int32_t> ids, source;
    for (int i = 0; i < 19; ++i) ids.push_back((i * 7 + 3) % 31);
    if (both) source.assign(ids.begin(), ids.begin() + 11);
    const std::vector<HeadStats> stats = head_stats(device, model, ids, source);
    ASSERT_EQ(stats.size(), both ? 16u : 8u) << name;
    for (const HeadStats& s : stats) {
      const std::vector<double> map = head_map(device, model, ids, s.stack, s.layer, s.head, source);
      const Dim n = s.stack == Stack::encoder && both ? 11 : 19;
      ASSERT_EQ(static_cast<Dim>(map.size()), n * n);
      double first = 0, self = 0, previous = 0, entropy = 0;
      for (Dim r = 1; r < n; ++r) {
        const double* row = &map[static_cast<std::size_t>(r * n)];
        double sum = 0;
        for (Dim k = 0; k < n; ++k) sum += row[k], entropy -= row[k] > 0 ? row[k] * std::log(row[k]) / static_cast<double>(n - 1) : 0;
        EXPECT_NEAR(sum, 1, 1e-12);
        first += row[0] / static_cast<double>(n - 1), self += row[r] / static_cast<double>(n - 1),
            previous += row[r - 1] / static_cast<double>(n - 1);
      }
      EXPECT_NEAR(s.first, first, 1e-10) << name;
      EXPECT_NEAR(s.self, self, 1e-10) << name;
      EXPECT_NEAR(s.previous, previous, 1e-10) << name;
      EXPECT_NEAR(s.entropy, entropy, 1e-9) << name;
    }
  }
}

}  // namespace
}  // namespace rapt
