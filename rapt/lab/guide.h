// SPDX-License-Identifier: Apache-2.0
// The guide: sentences that people write about attention, each marked right, imprecise or wrong, with the
// command that shows it, a picture, the reason, and the papers' numbers beside ours. Which questions there
// are and what was measured for them is data inside the program (rapt/lab/guide/topics.json, results.json);
// what is said about them is in the dictionaries (guide.TOPIC.QUESTION.says, .why). `rapt guide` and the
// pages of docs/guide are both made of it.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rapt/lab/experiment.h"

namespace rapt {

enum class Mark { right, imprecise, wrong };

struct GuideQuestion {
  std::string name;                    // "logits"
  Mark mark = Mark::right;
  std::string command;                 // what shows it: "rapt lab qk-norm"
  std::string experiment;              // whose results stand beside it; empty: none
  std::vector<std::size_t> findings;   // which of them, from 0; empty: all
  std::vector<std::string> beside;     // the same experiment on other models: a column each
  // Rows of other experiments with the same seeds, below.
  std::vector<std::pair<std::string, std::vector<std::size_t>>> below;
  bool figure = true;                  // the experiment's picture stands here
  std::vector<int> items;              // what it answers of the list of items (docs/guide/items.md)
};
struct GuideTopic {
  std::string name;  // "norms"
  std::vector<GuideQuestion> questions;
};
const std::vector<GuideTopic>& guide_topics();
const GuideTopic& find_topic(std::string_view name);  // fails with the nearest name

// What was measured for the guide: one experiment with its seeds.
struct GuideResult {
  std::vector<std::uint64_t> seeds;
  std::vector<LabResult> results;  // of each seed; the first one's document holds the picture
};
const GuideResult* guide_result(std::string_view experiment);  // null where it was not run
// Of a run of the laboratory, for results.json: findings and verdicts of every seed, one picture.
Json guide_results_json(std::span<const std::string> names, std::span<const std::uint64_t> seeds,
                        const std::vector<std::vector<LabResult>>& results, const LabOrigin& origin);

// One topic as it is shown, picture included.
Document guide_document(const GuideTopic& topic);
// What stands beside a question that is shown alone: the picture and the numbers of its experiment, also
// those that the guide shows with another question of the same experiment.
Document question_document(const GuideTopic& topic, const GuideQuestion& question);
// All of it as files: {path, text}: README.md, en/TOPIC.md, zh/TOPIC.md, images/*.svg.
std::vector<std::pair<std::string, std::string>> guide_files();

struct GuideFile {  // of rapt/lab/guide, inside the program (cmake/assets.cmake)
  std::string_view name, text;
};
std::span<const GuideFile> guide_data();

}  // namespace rapt
