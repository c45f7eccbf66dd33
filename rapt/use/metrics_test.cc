// SPDX-License-Identifier: Apache-2.0
// BLEU, chrF and their words against what sacrebleu made of the same sentences ahead of time
// (tests/golden/make_metrics.py).
#include "rapt/use/metrics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "rapt/base/json.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

Json golden() {
  std::ifstream file(std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/metrics.json");
  std::stringstream text;
  text << file.rdbuf();
  return parse_json(text.str(), "metrics.json");
}

std::vector<std::string> strings(const Json& json) {
  std::vector<std::string> out;
  for (const Json& s : json.array()) out.push_back(s.string());
  return out;
}

TEST(Metrics, WordsAsTokenizer13aCutsThem) {
  const Json json = golden();
  ASSERT_GE(need(json, "tokens").array().size(), 20u);
  for (const Json& one : need(json, "tokens").array())
    EXPECT_EQ(tokenize_13a(need(one, "text").string()), strings(need(one, "tokens")))
        << need(one, "text").string();
}

TEST(Metrics, BleuAndChrfAsSacrebleuComputesThem) {
  const Json json = golden();
  ASSERT_GE(need(json, "corpora").array().size(), 20u);
  for (const Json& corpus : need(json, "corpora").array())
    for (bool lower : {false, true}) {
      const std::string name = need(corpus, "name").string() + (lower ? ", lower" : "");
      const std::vector<std::string> translations = strings(need(corpus, "translations")),
                                     references = strings(need(corpus, "references"));
      const Json& expected = need(corpus, lower ? "lower" : "cased");
      const Bleu b = bleu(translations, references, lower);
      EXPECT_NEAR(b.score, need(expected, "bleu").number(), 1e-9) << name;
      for (std::size_t n = 0; n < 4; ++n)
        EXPECT_NEAR(b.precisions[n], need(expected, "precisions").array()[n].number(), 1e-9)
            << name << " " << n;
      EXPECT_NEAR(b.brevity, need(expected, "brevity").number(), 1e-12) << name;
      EXPECT_EQ(b.length, need(expected, "length").integer()) << name;
      EXPECT_EQ(b.reference_length, need(expected, "reference_length").integer()) << name;
      EXPECT_NEAR(chrf(translations, references, 6, 2, lower), need(expected, "chrf").number(), 1e-9) << name;
      EXPECT_NEAR(chrf(translations, references, 3, 1, lower), need(expected, "chrf 3, beta 1").number(),
                  1e-9)
          << name;
    }
}

TEST(Metrics, SaysWhatDoesNotFit) {
  const std::vector<std::string> one = {"a"}, two = {"a", "b"}, none;
  EXPECT_TRUE(holds(error_of([&] { bleu(one, two); }), "1 translations for 2 references"));
  EXPECT_TRUE(holds(error_of([&] { chrf(two, one); }), "2 translations for 1 references"));
  EXPECT_TRUE(holds(error_of([&] { bleu(none, none); }), "nothing to compare"));
  EXPECT_TRUE(holds(error_of([&] { chrf(one, one, 0); }), "at least 1"));
}

}  // namespace
}  // namespace rapt::test
