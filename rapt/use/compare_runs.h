// SPDX-License-Identifier: Apache-2.0
// Trainings side by side: what differs between them, how each ended, and their curves in one picture each.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "rapt/report/document.h"
#include "rapt/use/run_log.h"

namespace rapt {

// What is not the same in all runs: of the recipe by its path, of the options and the data as flags have it.
struct RunDifference {
  std::string key;                  // "decoder.layers", "train.optimizer.rate", "--batch"
  std::vector<std::string> values;  // of each run: JSON, "absent", or "not known"
};
std::vector<RunDifference> run_differences(std::span<const RunRecord> runs);
// How the runs are called: by what differs where that is short ("rate=0.01 seed=0"), else by their folders.
std::vector<std::string> run_names(std::span<const RunRecord> runs,
                                   std::span<const RunDifference> differences);
constexpr std::size_t kMostRuns = 100;
Document compare_runs(std::span<const RunRecord> runs);

}  // namespace rapt
