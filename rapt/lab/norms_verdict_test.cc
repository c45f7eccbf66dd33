// SPDX-License-Identifier: Apache-2.0
// Verdicts on norms can come out the other way: a changed model turns the finding and the sentence round.
#include <gtest/gtest.h>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/toy.h"
#include "tests/build_kind.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::holds;

LabResult run_with(LabResult (*experiment)(const Lab&), double effort,
                   std::function<void(std::string_view, Recipe&)> change = {}) {
  Device device({.threads = 2});
  return experiment({.device = device, .effort = effort, .change = std::move(change)});
}

TEST(NormVerdicts, QueriesAndKeysWithoutTheirNormGrowAlike) {
  RAPT_ONLY_LONG("two trainings");
  RAPT_NOT_SANITIZED("a long training");
  const LabResult real = run_with(qk_norm, 0.1), changed = run_with(qk_norm, 0.1, [](auto name, Recipe& r) {
                                                   if (name.starts_with("QK-norm"))
                                                     self_attn(r).qk_norm.reset();
                                                 });
  EXPECT_TRUE(real.findings[0].holds) << real.findings[0].measured;
  EXPECT_TRUE(real.findings[2].holds) << real.findings[2].measured;
  EXPECT_TRUE(holds(real.verdict, "attention then is one-hot")) << real.verdict;
  EXPECT_FALSE(changed.findings[0].holds) << changed.findings[0].measured;
  EXPECT_FALSE(changed.findings[2].holds) << changed.findings[2].measured;
  EXPECT_TRUE(holds(changed.verdict, "did not become one-hot because of it")) << changed.verdict;
}

TEST(NormVerdicts, AModelThatHasNormsAfterAllDoesNotExplode) {
  RAPT_ONLY_LONG("two trainings");
  RAPT_NOT_SANITIZED("a long training");
  const LabResult real = run_with(no_norm, 0.1),
                  changed = run_with(no_norm, 0.1, [](auto name, Recipe& r) {
                    if (name.starts_with("no norm, rate"))
                      set_norms(r, {.kind = NormRecipe::Kind::layer, .bias = true});
                  });
  for (std::size_t i : {0, 1, 2}) {
    EXPECT_TRUE(real.findings[i].holds) << real.findings[i].what << " " << real.findings[i].measured;
    EXPECT_FALSE(changed.findings[i].holds)
        << changed.findings[i].what << " " << changed.findings[i].measured;
  }
  EXPECT_TRUE(holds(real.verdict, "no rate saves it")) << real.verdict;
  EXPECT_TRUE(holds(changed.verdict, "It trains all the same")) << changed.verdict;
}

TEST(NormVerdicts, WithoutBatchStatisticsNothingLeaks) {
  RAPT_NOT_SANITIZED("a long training");
  const LabResult real = run_with(batchnorm, 0.02),
                  changed = run_with(batchnorm, 0.02, [](auto name, Recipe& r) {
                    if (name.starts_with("BatchNorm")) set_norms(r, {});
                  });
  EXPECT_TRUE(real.findings[0].holds) << real.findings[0].measured;
  EXPECT_TRUE(holds(real.verdict, "a later token changes earlier logits")) << real.verdict;
  EXPECT_FALSE(changed.findings[0].holds) << changed.findings[0].measured;
  EXPECT_TRUE(holds(changed.verdict, "changed earlier logits by no more than 0.000")) << changed.verdict;
}

TEST(NormVerdicts, TwoPreNormModelsHaveEqualLayers) {
  RAPT_NOT_SANITIZED("a long training");
  const LabResult real = run_with(depth, 0.05),
                  changed = run_with(depth, 0.05, [](auto, Recipe& r) {
                    for (PartRecipe& p : r.decoder->kinds.at("L").parts)
                      if (p.norm_sum) p.norm_in = p.norm_sum, p.norm_sum = {};
                    r.decoder->final_norm = r.decoder->kinds.at("L").parts.at(0).norm_in;
                  });
  EXPECT_TRUE(real.findings[3].holds) << real.findings[3].measured;
  EXPECT_FALSE(changed.findings[3].holds) << changed.findings[3].measured;
  EXPECT_TRUE(holds(real.verdict, "kept better by pre-norm")) << real.verdict;
  EXPECT_TRUE(holds(changed.verdict, "kept better by post-norm")) << changed.verdict;
}

}  // namespace
}  // namespace rapt
