// SPDX-License-Identifier: Apache-2.0
// Every experiment of the laboratory runs and says something finite; the exact ones say what the
// algebra says.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "tests/build_kind.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::error_of;
using test::holds;

LabResult run_one(const char* name, double effort, std::uint64_t seed = 0) {
  Device device({.threads = 1});
  return find_experiment(name).run({.device = device, .seed = seed, .effort = effort});
}

void expect_sound(const LabResult& r, const std::string& name) {
  EXPECT_FALSE(r.findings.empty()) << name;
  EXPECT_FALSE(r.verdict.empty()) << name;
  for (const Finding& f : r.findings) {
    EXPECT_TRUE(std::isfinite(f.measured)) << name << ": " << f.what;
    EXPECT_FALSE(f.what.empty() || f.expected.empty()) << name;
  }
  bool figure = false, table = false;
  for (const auto& part : r.document.parts) {
    figure = figure || std::holds_alternative<HeatMap>(part) || std::holds_alternative<Chart>(part);
    table = table || std::holds_alternative<Table>(part);
  }
  EXPECT_TRUE(table) << name << ": figures are left out of a report in Markdown";
  EXPECT_TRUE(figure) << name << " draws nothing";
  // What it says can be written in every form.
  EXPECT_FALSE(document_text(r.document, false).empty());
  const Document documents[] = {r.document};
  EXPECT_FALSE(documents_html(name, documents).empty());
  EXPECT_EQ(parse_json(document_json(r.document).dump()).find("parts")->array().size(),
            r.document.parts.size());
}

// The training experiments are run by learn_test.cc.
TEST(Lab, EveryExperimentSaysSomethingFinite) {
  RAPT_NOT_SANITIZED("whole experiments");
  struct Entry {
    const char* name;
    LabResult (*run)(const Lab&);
  };
  const Entry all[] = {{"scale", scale},
                       {"key-bias", key_bias},
                       {"value-bias", value_bias},
                       {"query-bias", query_bias},
                       {"norm-bias", norm_bias},
                       {"norm-place", norm_place_math},
                       {"cost", cost},
                       {"residual", residual},
                       {"score", score_math},
                       {"positions", positions_math},
                       {"masks", masks},
                       {"padding", padding_masks},
                       {"code", usual_code},
                       {"softmax", softmax_differences},
                       {"cache-bias", cache_bias},
                       {"gqa", gqa_math}};
  Device device({.threads = 1});
  for (const Entry& n : all) expect_sound(n.run({.device = device, .seed = 1, .effort = 0.05}), n.name);
}

// Experiments of two halves: findings, verdicts and figures of both.
TEST(Lab, HalvesComeTogether) {
  RAPT_NOT_SANITIZED("whole experiments");
  Device device({.threads = 1});
  const LabResult first = positions_extrapolation({.device = device, .effort = 0.003}),
                  both = run_one("positions", 0.003);
  expect_sound(both, "positions");
  EXPECT_GT(both.findings.size(), first.findings.size());
  EXPECT_GT(both.document.parts.size(), first.document.parts.size());
  EXPECT_TRUE(both.verdict.starts_with(first.verdict));
  EXPECT_GT(both.verdict.size(), first.verdict.size());
}

// No training and no clock in these: what the formulas say holds with every seed.
TEST(Lab, ExactExperimentsHold) {
  RAPT_NOT_SANITIZED("whole experiments");
  for (const char* name :
       {"key-bias", "value-bias", "query-bias", "norm-bias", "masks", "padding", "code", "softmax"})
    for (std::uint64_t seed : {0, 5})
      for (const Finding& f : run_one(name, 1, seed).findings)
        EXPECT_TRUE(f.holds || !f.every_seed)
            << name << ", seed " << seed << ": " << f.what << " " << f.measured;
  Device device({.threads = 1});
  for (const Finding& f : positions_math({.device = device}).findings)
    EXPECT_TRUE(f.holds) << f.what << " " << f.measured;
}

TEST(Lab, TheSameSeedGivesTheSameNumbers) {
  RAPT_NOT_SANITIZED("whole experiments");
  const LabResult a = run_one("key-bias", 1, 3), b = run_one("key-bias", 1, 3), c = run_one("key-bias", 1, 4);
  EXPECT_EQ(document_text(a.document, false), document_text(b.document, false));
  EXPECT_NE(document_text(a.document, false), document_text(c.document, false));
}

TEST(Lab, NamesAreFoundAndNearestIsNamed) {
  std::set<std::string> seen;
  for (const Experiment& e : experiments()) {
    EXPECT_TRUE(seen.insert(e.name).second) << e.name;
    EXPECT_EQ(&find_experiment(e.name), &e);
    EXPECT_LT(e.minutes, 5) << e.name;
    EXPECT_TRUE(question_of(e).ends_with("?")) << e.name << ": " << question_of(e);
    EXPECT_TRUE(question_of(e).in(Language::zh).ends_with("？")) << e.name;
    EXPECT_NE(claim_of(e), claim_of(e).in(Language::zh)) << e.name;
  }
  EXPECT_TRUE(holds(error_of([] { find_experiment("kye-bias"); }), "did you mean 'key-bias'"))
      << error_of([] { find_experiment("kye-bias"); });
}

TEST(Lab, ReportsPutSeedsSideBySide) {
  Device device({.threads = 1});
  LabResult one, two;
  one.findings = {{.what = "effect",
                   .measured = 0.5,
                   .unit = "x",
                   .expected = "below 1",
                   .holds = true,
                   .paper = "0.4 (them)"},
                  {.what = "other", .measured = 2e-13, .expected = "0", .holds = true, .every_seed = false}};
  one.verdict = "So it is (0.5).";
  one.document.parts.push_back(Table{"Numbers", {"a"}, {{Cell(1.5)}}});
  LabResult three = two = one;
  two.findings[0].measured = 1.25, two.findings[0].holds = false;
  two.verdict = "So it is not (1.25).";
  three.findings[1].holds = false;
  three.verdict = "So it is (-2.6e-10).";
  const Experiment e{"masks", 1, nullptr};
  const std::string row = concat("| masks | ", question_of(e), " | ");
  const Experiment* ran[] = {&e};
  const std::uint64_t seeds[] = {0, 7, 9};
  LabOrigin origin{.command = "rapt lab toy --seeds 0,7,9",
                   .program = "rapt 9.9",
                   .machine = "2 threads (avx9) of A CPU",
                   .date = "2026-01-02"};
  auto report = [&](std::vector<LabResult> results) {
    return lab_markdown(lab_report(ran, std::span(seeds).first(results.size()), {results}, origin));
  };
  std::string text = report({one, two, three});
  EXPECT_TRUE(holds(text, "| effect | below 1 | 0.5x, yes | 1.25x, no | 0.5x, yes | 0.4 (them) |")) << text;
  EXPECT_TRUE(holds(text, "| other | 0 (either way) | 2.0e-13, yes | 2.0e-13, yes | 2.0e-13, no |  |"))
      << text;
  EXPECT_TRUE(holds(text,
                    "Verdict with seed 0: So it is (0.5).\n\nVerdict with seed 7: So it is not (1.25).\n\n"
                    "Seed 9 says the same with other numbers.\n"))
      << text;
  EXPECT_TRUE(holds(text, row + "0 of 1; either way: 0 of 1 |")) << text;
  EXPECT_TRUE(holds(text, "**Numbers**"));
  EXPECT_TRUE(holds(report({one, three, three}), row + "1 of 1; either way: 0 of 1 |"));
  EXPECT_TRUE(holds(report({one, three, three}), "Seeds 7 and 9 say the same with other numbers.\n"));
  text = report({one, one});
  EXPECT_TRUE(holds(text, "\nVerdict: So it is (0.5).\n") && !holds(text, "the same")) << text;
  two.findings.pop_back();
  EXPECT_THROW(report({one, two}), Error);
  one.findings.erase(one.findings.begin());
  EXPECT_TRUE(holds(report({one}), row + "–; either way: 1 of 1 |")) << report({one});
  one.findings.clear();
  EXPECT_TRUE(holds(report({one}), row + "– |")) << report({one});
  one = three;

  // A reader learns what was run where, and that less than the full effort proves less. Terms are
  // explained where they are used.
  text = report({one});
  EXPECT_TRUE(
      holds(text, "Made by `rapt lab toy --seeds 0,7,9`: rapt 9.9 on 2 threads (avx9) of A CPU, 2026-01-02."))
      << text;
  EXPECT_FALSE(holds(text, "effort") || holds(text, "copying task") || holds(text, "G1 to G5")) << text;
  origin.effort = 0.25;
  LabResult gated = one;
  gated.findings[0].what = "loss with G1";
  text = report({gated});
  EXPECT_TRUE(holds(text, "This was effort 0.25") &&
              holds(text, "Verdict (made for effort 1, this was 0.25): So it is"))
      << text;
  EXPECT_TRUE(holds(text, "G1 to G5: gates") && !holds(text, "copying task")) << text;

  const Document d = lab_document(e, one, {.device = device, .seed = 7}, 1.25);
  EXPECT_EQ(d.name, "masks");
  const std::string shown = document_text(d, false);
  for (const char* words : {"What happens when a mask", "The story: ", "Verdict: So it is (-2.6e-10).",
                            "Seed 7, 1.2 s on 1 thread (", "0.5x"})
    EXPECT_TRUE(holds(shown, words)) << shown;
  EXPECT_EQ(d.facts.find("findings")->array()[0].find("measured")->number(), 0.5);
  EXPECT_EQ(d.facts.find("verdict")->string(), one.verdict);
}

TEST(Lab, Helpers) {
  const double x[] = {1, 2, 3}, y[] = {3, 5, 7};
  EXPECT_DOUBLE_EQ(slope(x, y), 2);
  EXPECT_DOUBLE_EQ(length(std::span(x)), std::sqrt(14.0));
  EXPECT_DOUBLE_EQ(largest_difference(x, y), 4);
  EXPECT_DOUBLE_EQ(relative_difference(y, x), std::sqrt((4.0 + 9 + 16) / 14));
  EXPECT_THROW(largest_difference(x, std::span(y).first(2)), Error);
  EXPECT_TRUE(all_hold({above("a", 2, 1, ""), above("b", 0, 1, "", "", false)}));
  EXPECT_FALSE(all_hold({above("a", 2, 1, ""), above("b", 0, 1, "")}));
}

}  // namespace
}  // namespace rapt
