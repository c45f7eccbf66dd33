// SPDX-License-Identifier: Apache-2.0
// What a training left in its folder, read again: metrics.jsonl (docs/training.md), and the recipe and the
// options it was made with. A log that is cut in the middle of a line, has holes where a number was not
// finite, or stops early is read as far as it says something.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/recipe/recipe.h"
#include "rapt/report/picture.h"

namespace rapt {

struct RunLog {
  Curve loss;                // of the steps that changed the weights, smoothed (0.95); a gap: not finite
  Curve held_out;
  struct Look {              // at the attention: an object per layer
    double step = 0;
    Json layers;
  };
  std::vector<Look> looks;
  Dim steps = 0;             // finished ones
  Dim skipped = 0, rewound = 0;
  double seconds = 0;        // of all steps, thrown away ones too
  Json plan, recipe, data;   // as the run wrote them at its start; null in logs of earlier versions
  bool finished = false;     // came to its end, with the plan that stands there
  std::string failed;        // why it ended before that, where it did
  Dim unread = 0;            // lines that are no JSON of ours: a crash cut the last one short
};
RunLog read_run_log(const std::string& path);
// A figure of each look ("entropy"): the mean over the layers that have it, or the largest of them.
Curve over_layers(const RunLog& log, std::string_view key, bool largest);

// A run as it can be compared: its log, and what it was.
struct RunRecord {
  std::string folder;
  RunLog log;
  std::optional<Recipe> recipe;
  Json data = Json::Object{}, options = Json::Object{};  // of the plan
  Dim parameters = 0;                                    // 0: the recipe is not known
};
// Fails where the folder is none of a training, and says what it is instead.
RunRecord read_run(const std::string& folder);
// Folders of trainings: the one that is named, or those inside it (of a sweep), by their names.
std::vector<std::string> run_folders(const std::string& folder);

}  // namespace rapt
