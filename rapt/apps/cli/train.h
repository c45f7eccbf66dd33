// SPDX-License-Identifier: Apache-2.0
// What `rapt train` does once, and its sweep many times.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "rapt/apps/cli/model_args.h"
#include "rapt/use/train_plan.h"
#include "rapt/use/training.h"

namespace rapt::cli {

class TrainRank;   // train_ranks.h
class TrainWatch;  // train_watch.h

// Everything that was asked for, before anything is opened.
struct TrainArgs {
  CommonArgs common;
  TrainingPlan plan;
  std::string out, prompt;
  bool own_prompt = false;  // --sample
  bool force = false;
  bool watch = false, stay = false;  // --watch, --watch-stay
  std::optional<Dim> port;
  TrainWatch* page = nullptr;  // who shows it
  std::string timeline;        // a file for what the first steps do, when
  std::optional<Dim> plan_ranks;  // --plan: nothing is trained
  PlanMachine machine;
};
TrainArgs train_args(Args& args);

// What it would take of each rank, on standard output.
void print_train_plan(const TrainArgs& args);

struct TrainResult {
  Dim steps = 0, parameters = 0;
  Objective objective = Objective::causal;
  bool pictures = false;
  TrainingRun::Finished end;
};
// A run from its first or last saved state to its end; nothing where a signal stopped it, after saving. With
// `rank`, as one of several: only rank 0 has a result.
std::optional<TrainResult> train_once(Device& device, const TrainArgs& args, TrainRank* rank = nullptr);

// Every combination of the values behind --sweep, each in a folder of its own inside --out; `args` has the
// other flags still. Returns the exit code.
int train_sweep(const Args& args, const std::vector<std::string>& sweeps);

}  // namespace rapt::cli
