// SPDX-License-Identifier: Apache-2.0
// Verdicts about residual connections, feed-forward parts, masks and padding that can fail: a changed model
// turns a finding and its sentence round.
#include <gtest/gtest.h>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/toy.h"
#include "tests/build_kind.h"
#include "tests/tools.h"

namespace rapt {
namespace {

struct Expectation {
  const char* finding;  // holds as it is, not with the change
  const char *as_it_is, *changed;  // sentences of the verdict, by their first words
  double effort = 1;
};

// The words of a sentence up to its first value.
std::string begins(const char* key) {
  const std::string words = say(key, "\n", "\n", "\n", "\n", "\n");
  return words.substr(0, words.find('\n'));
}

void expect_turned(LabResult (*experiment)(const Lab&), const Expectation& want,
                   const std::function<void(std::string_view, Recipe&)>& change) {
  RAPT_NOT_SANITIZED("whole experiments");
  Device device({.threads = 2});
  for (bool changed : {false, true}) {
    Lab lab{.device = device, .effort = want.effort};
    if (changed) lab.change = change;
    const LabResult r = experiment(lab);
    const auto f = std::find_if(r.findings.begin(), r.findings.end(),
                                [&](const Finding& each) { return each.what == say(want.finding); });
    ASSERT_NE(f, r.findings.end()) << want.finding;
    EXPECT_EQ(f->holds, !changed) << f->what << ": " << f->measured;
    EXPECT_TRUE(test::holds(r.verdict, begins(changed ? want.changed : want.as_it_is))) << r.verdict;
  }
}

std::vector<PartRecipe>& parts(Recipe& r) {
  return (r.decoder ? *r.decoder : *r.encoder).kinds.at("L").parts;
}

// With the residual connections back, the stack that had none learns, too.
TEST(BasicsVerdict, ResidualConnectionsAreWhatTheStackLacks) {
  RAPT_ONLY_LONG("two trainings");
  expect_turned(residual,
                {.finding = "lab.residual.f.learning",
                 .as_it_is = "lab.residual.v.learning",
                 .changed = "lab.residual.v.no_learning",
                 .effort = 0.4},
                [](std::string_view name, Recipe& r) {
                  if (name == say("lab.residual.k.without"))
                    for (PartRecipe& p : parts(r)) p.residual_scale = 1;
                });
}

// … and rows stay apart.
TEST(BasicsVerdict, ResidualConnectionsKeepRowsApart) {
  expect_turned(residual,
                {.finding = "lab.residual.f.pure",
                 .as_it_is = "lab.residual.v.rows",
                 .changed = "lab.residual.v.no_rows",
                 .effort = 0.01},
                [](std::string_view name, Recipe& r) {
                  if (name == say("lab.residual.k.attention"))
                    for (PartRecipe& p : parts(r)) p.residual_scale = 1;
                });
}

// Without its feed-forward parts the model guesses.
TEST(BasicsVerdict, FeedForwardPartsAnswer) {
  RAPT_ONLY_LONG("two trainings");
  expect_turned(feed_forward,
                {.finding = "lab.ffn.f.alone_ffn",
                 .as_it_is = "lab.ffn.v.right",
                 .changed = "lab.ffn.v.not",
                 .effort = 0.25},
                [](std::string_view name, Recipe& r) {
                  if (name == say("lab.ffn.k.both")) parts(r).resize(1);
                });
}

// The mask dropped: the decoder becomes an encoder.
TEST(BasicsVerdict, TheMaskIsWhatHidesLaterTokens) {
  expect_turned(
      masks, {.finding = "lab.masks.f.causal", .as_it_is = "lab.masks.v.wrong", .changed = "lab.masks.v.not"},
      [](std::string_view name, Recipe& r) {
        if (name != "causal") return;
        r.encoder = std::exchange(r.decoder, std::nullopt);
        parts(r)[0].self()->mask = AttnRecipe::MaskKind::full;
      });
}

// A decoder without a mask does see padding at its right.
TEST(BasicsVerdict, PaddingAtTheRightIsSafeBecauseOfTheMask) {
  expect_turned(padding_masks,
                {.finding = "lab.padding.f.decoder_right",
                 .as_it_is = "lab.padding.v.wrong",
                 .changed = "lab.padding.v.not"},
                [](std::string_view name, Recipe& r) {
                  if (name != "decoder") return;
                  r.encoder = std::exchange(r.decoder, std::nullopt);
                  parts(r)[0].self()->mask = AttnRecipe::MaskKind::full;
                });
}

// What these experiments say, they say in both languages.
TEST(BasicsVerdict, EverySentenceHasAChineseOne) {
  RAPT_NOT_SANITIZED("whole experiments");
  Device device({.threads = 2});
  const Lab lab{.device = device, .effort = 0.003};
  for (const auto run :
       {scale, masks, positions_math, positions_extrapolation, key_bias, value_bias, query_bias, cache_bias,
        residual, feed_forward, softmax_differences, padding_masks, usual_code}) {
    const LabResult r = run(lab);
    EXPECT_NE(r.verdict.in(Language::zh), r.verdict);
    for (const Finding& f : r.findings) EXPECT_NE(f.what.in(Language::zh), f.what);
    EXPECT_EQ(document_text(r.document, false, 100, Language::zh).find("lab."), std::string::npos);
  }
}

}  // namespace
}  // namespace rapt
