// SPDX-License-Identifier: Apache-2.0
// What a training would take of each of its ranks before anything is read or made: memory, what it sends in a
// step, and, of a machine whose numbers are given, time. By formulas; nothing is measured here.
#pragma once
#include <string>
#include <vector>

#include "rapt/use/training.h"

namespace rapt {

// Numbers of a rank and of the machines it runs on.
struct PlanMachine {
  double flops = 0;  // operations a second, at most; 0: no times
  double efficiency = 0.4;  // the share of them that kernels reach
  Dim node = 1;  // ranks of one machine
  double link = 0;  // bytes a second that a rank sends inside of one …
  double network = 0;  // … and to other ones
  // Bytes of a number that products take. 2: such copies beside f32 weights, which belong to the state then.
  double number = 4;
  // Activations, bytes for each token, layer and unit of the width; 0: as a pass of ours keeps them.
  double activation = 0;
  // Models split over ranks, which is planned and not built: columns and rows of matrices over `tensor` ranks
  // of a machine, layers over `pipeline` with `chunks` pieces each, sequences over `context`.
  Dim tensor = 1, pipeline = 1, chunks = 1, context = 1;
};
// "flops=989e12" and so on, into `machine`; several with commas.
void read_plan_machine(const std::string& text, PlanMachine& machine);

struct PlanForm {
  std::string name;
  bool built = false;
  // Bytes. Moments: with f32 weights where products take smaller ones. Gathered: of two layers.
  double weights = 0, gradients = 0, moments = 0, gathered = 0, activations = 0, saving = 0;
  double memory() const { return weights + gradients + moments + gathered + activations + saving; }
  double sent_gradients = 0, sent_weights = 0;  // bytes that a rank sends in a step, the busiest one
  // Seconds of a step: products; gradients and weights, which go on beside them; tensor-parallel sums, which
  // do not; the whole, with the pipeline's bubble.
  double compute = 0, traffic = 0, sums = 0, step = 0;
};

struct TrainPlanned {
  std::string recipe;
  double parameters = 0;
  Dim ranks = 1, copies = 1;  // copies of the model that read batches of their own
  Dim leaves = 1, rows = 0, tokens = 0;  // of a step; tokens of a leaf; of a step
  Dim most_leaves = 0, most_nodes = 0;  // of a rank
  std::vector<PlanForm> forms;  // data parallel, ZeRO-1, -2, -3
  double rate(const PlanForm& form) const {  // tokens a second and rank
    return form.step > 0 ? static_cast<double>(tokens) / form.step / static_cast<double>(ranks) : 0;
  }
};
TrainPlanned plan_training(TrainingPlan plan, Dim ranks, const PlanMachine& machine = {});

// Bytes that a pass over one leaf and its way back keep, from a pass over few rows of a model without weights
// whose kernels do nothing; 0 where it reads pictures.
double plan_step_bytes(const Recipe& resolved, Dim rows, Dim length, bool recompute);

}  // namespace rapt
