// SPDX-License-Identifier: Apache-2.0
// Verdicts about scores, heads, shared keys and distance that can fail: a changed model turns a finding and
// its sentence round. And what a look inside the lookup says, against what must be.
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/lookup.h"
#include "tests/build_kind.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::holds;
using Change = std::function<void(std::string_view, Recipe&)>;

LabResult run_changed(LabResult (*experiment)(const Lab&), double effort, Change change) {
  Device device({.threads = 2});
  return experiment({.device = device, .seed = 0, .effort = effort, .change = std::move(change)});
}

// Whether a finding holds and the verdict has that sentence, by its words before the first number.
void expect_said(const LabResult& r, const char* finding, bool so, const char* sentence) {
  bool found = false;
  for (const Finding& f : r.findings) {
    if (f.what != say(finding)) continue;
    found = true;
    EXPECT_EQ(f.holds, so) << f.what << ": " << f.measured;
  }
  EXPECT_TRUE(found) << finding;
  const std::string words = say(sentence, "{", "{", "{", "{", "{");
  EXPECT_TRUE(holds(r.verdict, words.substr(0, words.find('{')))) << sentence << "\n" << r.verdict;
}

// What makes the additive score slow and adds parameters is the additive score.
TEST(ScoreVerdict, NeedsTheAdditiveScore) {
  RAPT_NOT_SANITIZED("times");
  expect_said(run_changed(score_math, 0.4, {}), "lab.score.f.parameters", true, "lab.score.v.parameters");
  const LabResult dot = run_changed(score_math, 0.4, [](std::string_view name, Recipe& r) {
    if (name == std::string(say("lab.score.kind.additive"))) self_attn(r).score = AttnRecipe::ScoreKind::dot;
  });
  expect_said(dot, "lab.score.f.parameters", false, "lab.score.v.no_parameters");
}

// Attention reaches far because it sees far.
TEST(DistanceVerdict, NeedsTheWholeWindow) {
  RAPT_NOT_SANITIZED("whole experiments");
  auto near = [](std::string_view name, Recipe& r) {
    if (name.starts_with("attention")) self_attn(r).window = 8;
  };
  expect_said(run_changed(long_distance, 0.01, {}), "lab.distance.f.attention", true, "lab.distance.v.kept");
  expect_said(run_changed(long_distance, 0.01, near), "lab.distance.f.attention", false,
              "lab.distance.v.lost");
  expect_said(run_changed(rnn, 0.01, {}), "lab.rnn.f.attention", true, "lab.rnn.v.beside");
  const LabResult blind = run_changed(rnn, 0.01, near);
  expect_said(blind, "lab.rnn.f.attention", false, "lab.rnn.v.no_reach");
  expect_said(blind, "lab.rnn.f.vanish", true, "lab.rnn.v.both");
  expect_said(blind, "lab.rnn.f.explode", true, "lab.rnn.v.both");
}

// MQA's heads are told apart by their queries: with one head there is nothing apart.
TEST(GqaVerdict, NeedsSeveralQueries) {
  RAPT_NOT_SANITIZED("whole experiments");
  expect_said(run_changed(gqa_quality, 0.1, {}), "lab.gqa.f.apart", true, "lab.gqa.v.apart");
  const LabResult one = run_changed(gqa_quality, 0.1, [](std::string_view name, Recipe& r) {
    if (name == "MQA") self_attn(r).heads = 1;
  });
  expect_said(one, "lab.gqa.f.apart", false, "lab.gqa.v.alike");
}

// The cache is smaller because keys and values are shared, or because the latent is short.
TEST(CacheVerdict, NeedsSharedKeysOrAShortLatent) {
  RAPT_NOT_SANITIZED("whole experiments");
  expect_said(run_changed(mla, 0.003, {}), "lab.mla.f.cache", true, "lab.mla.v.smaller");
  const LabResult wide = run_changed(mla, 0.003, [](std::string_view name, Recipe& r) {
    if (name == "MLA, latent of 8") self_attn(r).latent->rank = 32;
  });
  expect_said(wide, "lab.mla.f.cache", false, "lab.mla.v.no_smaller");
  expect_said(run_changed(mqa_long, 0.003, {}), "lab.mqa-long.f.cache", true, "lab.mqa-long.v.cache");
  const LabResult own = run_changed(mqa_long, 0.003, [](std::string_view name, Recipe& r) {
    if (name == "one item of 48, MQA") self_attn(r).kv_heads = 8;
  });
  expect_said(own, "lab.mqa-long.f.cache", false, "lab.mqa-long.v.no_cache");
}

// One head less is one head less: what is left out of one head is all of attention.
TEST(Lookup, ALookAddsUp) {
  Device device({.threads = 1});
  Model model(lookup_recipe(1, 2), device.real);
  init(model, 3);
  const ToyTask task = lookup_task(1, 2);
  const LookupLook look = look_at_lookup(device, model, task, 4, 32);
  ASSERT_EQ(look.heads.size(), 2u);
  for (const LookupLook::Head& h : look.heads) {
    EXPECT_NEAR(h.first + h.second + h.rest, 1, 1e-5);
    EXPECT_TRUE(std::isfinite(h.loss_without));
  }
  EXPECT_NEAR(look.loss, look_at(device, model, task, 4, 32, ~std::uint64_t{4}).loss, 1e-6);
  EXPECT_GT(look.apart, 0);
  EXPECT_LT(look.apart, 1);
  EXPECT_GT(look.wrong, 0.5);  // untrained: most are wrong, and nothing stands out
  EXPECT_GT(look.wrong_on_item, 0);
  EXPECT_LT(look.wrong_on_item + look.wrong_on_questions, 1);
  EXPECT_LT(look.wrong_gap, 5);
  Model same(lookup_recipe(1, 1), device.real);
  init(same, 3);
  EXPECT_EQ(look_at_lookup(device, same, task, 4, 32).apart, 0);
}

}  // namespace
}  // namespace rapt
