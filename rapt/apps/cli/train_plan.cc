// SPDX-License-Identifier: Apache-2.0
// rapt train --plan: what a training would take of each rank, as a table or as JSON.
#include <array>
#include <cmath>

#include "rapt/apps/cli/train.h"
#include "rapt/base/text.h"

namespace rapt::cli {
namespace {

std::string left(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string seconds(double s) {
  return s < 1e-3 ? concat(fixed(1e6 * s, 0), " us")
         : s < 1  ? concat(fixed(1e3 * s, 1), " ms")
                  : concat(fixed(s, 2), " s");
}

Json form_json(const TrainPlanned& plan, const PlanForm& f) {
  Json j = Json::Object{};
  j.set("name", f.name);
  j.set("built", f.built);
  for (const auto& [key, value] : {std::pair{"memory", f.memory()},
                                   {"weights", f.weights},
                                   {"gradients", f.gradients},
                                   {"moments", f.moments},
                                   {"gathered", f.gathered},
                                   {"activations", f.activations},
                                   {"saving", f.saving},
                                   {"sent_gradients", f.sent_gradients},
                                   {"sent_weights", f.sent_weights}})
    j.set(key, value);
  if (f.step == 0) return j;
  for (const auto& [key, value] : {std::pair{"compute_seconds", f.compute},
                                   {"traffic_seconds", f.traffic},
                                   {"tensor_seconds", f.sums},
                                   {"step_seconds", f.step},
                                   {"tokens_per_second_and_rank", plan.rate(f)}})
    j.set(key, value);
  return j;
}

}  // namespace

void print_train_plan(const TrainArgs& a) {
  const TrainPlanned plan = plan_training(a.plan, *a.plan_ranks, a.machine);
  if (a.common.json) {
    Json j = Json::Object{};
    j.set("recipe", plan.recipe);
    j.set("parameters", plan.parameters);
    j.set("ranks", plan.ranks);
    j.set("copies", plan.copies);
    j.set("leaves", plan.leaves);
    j.set("tokens", plan.tokens);
    Json::Array forms;
    for (const PlanForm& f : plan.forms) forms.push_back(form_json(plan, f));
    j.set("forms", forms);
    return print(j.dump() + "\n");
  }
  constexpr std::size_t kName = 22, kCell = 14;
  std::string out =
      concat(plan.recipe, ": ", short_count(plan.parameters), " parameters on ", counted(plan.ranks, "rank"),
             "\na step: ", plan.leaves, plan.leaves == 1 ? " batch" : " batches", " of ",
             with_commas(plan.rows), " tokens, at most ", plan.most_leaves, " on a rank\n\n");
  const auto row = [&](const char* name, const auto& cell) {
    out += padded(name, kName);
    for (const PlanForm& f : plan.forms) out += left(cell(f), kCell);
    out += "\n";
  };
  const auto bytes = [&](const char* name, double PlanForm::* of) {
    bool any = false;
    for (const PlanForm& f : plan.forms) any = any || f.*of > 0;
    if (any) row(name, [&](const PlanForm& f) { return f.*of > 0 ? byte_count(f.*of) : std::string("-"); });
  };
  row("memory of a rank", [](const PlanForm& f) { return f.name + (f.built ? "" : " *"); });
  bytes("  weights", &PlanForm::weights);
  bytes("  gradients", &PlanForm::gradients);
  bytes("  moments", &PlanForm::moments);
  bytes("  gathered layers", &PlanForm::gathered);
  bytes("  activations (about)", &PlanForm::activations);
  bytes("  copies while saving", &PlanForm::saving);
  row("  together", [](const PlanForm& f) { return byte_count(f.memory()); });
  out += "\nsent by a rank in a step\n";
  bytes("  gradients", &PlanForm::sent_gradients);
  bytes("  weights", &PlanForm::sent_weights);
  if (plan.ranks == 1) out += "  nothing\n";
  if (plan.forms[0].step > 0) {
    out += "\ntime of a step (on paper)\n";
    row("  products", [](const PlanForm& f) { return seconds(f.compute); });
    row("  beside them, traffic", [](const PlanForm& f) { return seconds(f.traffic); });
    row("  the step", [](const PlanForm& f) { return seconds(f.step); });
    row("  tokens/s and rank", [&](const PlanForm& f) { return with_commas(std::llround(plan.rate(f))); });
  }
  out += "\n* is not built: ranks share optimizer state as ZeRO-1 does.\n";
  print(out);
}

}  // namespace rapt::cli
