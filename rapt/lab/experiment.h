// SPDX-License-Identifier: Apache-2.0
// The laboratory: each "why" of the field as an experiment that anybody can run. An experiment states a
// claim, measures, and draws its verdict from what it measured; the papers' numbers stand beside. A new one
// is one function and one line in experiments.cc.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/device/device.h"
#include "rapt/recipe/recipe.h"
#include "rapt/report/document.h"

namespace rapt {

// What an experiment gets. Everything random comes from `seed`.
struct Lab {
  Device& device;
  std::uint64_t seed = 0;
  // Share of the full number of training steps and samples: tests take less and look at no verdict.
  double effort = 1;
  // Told many times a second where something long is done; what it throws ends the experiment.
  std::function<void(const Text& what, double done, double of)> progress = {};
  // What experiments on text learn; empty: a text of our own (lab_text.h).
  std::string text = {};
  // What a test changes in a variant's model before it is made (gate removed, norm switched): a verdict that
  // does not turn round then would be worth nothing. By the variant's name in English.
  std::function<void(std::string_view variant, Recipe& recipe)> change = {};
};

// One thing that was measured. `holds` comes from the measurement, never from what one hopes for.
struct Finding {
  Text what;  // "attention of idle queries on the first token, softmax against gate"
  double measured = 0;  // the effect as one number, so that seeds can be put side by side
  std::string unit;  // "", "nats", "x", "%"
  Text expected;  // in words: "lower than 1", "0 within 1e-12"
  bool holds = false;
  // What the literature reports, with its name: "0.467 -> 0.048 (Qiu et al. 2025, table 4)"; may be empty.
  Text paper;
  bool every_seed = true;  // false: known to come out either way; reported, promised to nobody
};

struct LabResult {
  std::vector<Finding> findings;
  // A few sentences, chosen and filled by the numbers; says where the common story is wrong.
  Text verdict;
  Document document;  // tables and at least one figure
};

// Question and claim of an experiment that is none of the list: a program's own, which hands its results to
// lab_document.
struct OwnWords {
  Text question, claim;
};

// Its question ("Does a bias on the keys do anything?") and claim (the story as it is told) are sentences of
// the dictionary: lab.NAME.question, lab.NAME.claim.
struct Experiment {
  const char* name;  // "key-bias"
  double minutes;  // on two cores, about
  LabResult (*run)(const Lab& lab);
  const OwnWords* words = nullptr;
};

std::span<const Experiment> experiments();  // in the order of the report
const Experiment& find_experiment(std::string_view name);  // fails with the nearest name

Text question_of(const Experiment& experiment);
Text claim_of(const Experiment& experiment);
Text measured_text(const Finding& finding);  // "0.53x", "1.2 nats"

// Where results come from, for a reader who has nothing but the page.
struct LabOrigin {
  std::string command;  // "rapt lab gqa --effort 0.3"
  std::string program, machine;  // "rapt 0.1.0"; "2 threads (avx2) of Some CPU"
  std::string date;  // "2026-11-16"
  double effort = 1;
};

// The whole as a document: question, claim, what was measured, papers, figures, verdict, seconds.
Document lab_document(const Experiment& experiment, const LabResult& result, const Lab& lab, double seconds,
                      const LabOrigin& origin = {});
// Several seeds of several experiments side by side, a summary first; figures are those of the first seed.
// results[experiment][seed].
std::vector<Document> lab_report(std::span<const Experiment* const> ran, std::span<const std::uint64_t> seeds,
                                 const std::vector<std::vector<LabResult>>& results, const LabOrigin& origin);
// docs/lab.md
std::string lab_markdown(std::vector<Document> report, Language language = Language::en);

// A result to keep, in no language, and read again.
Json lab_data(const LabResult& result);
LabResult lab_result(const Json& data);

}  // namespace rapt
