// SPDX-License-Identifier: Apache-2.0
// Counts per layer; probabilities in double.
#include "rapt/inspect/expert_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rapt/inspect/look.h"
#include "rapt/nn/parts/moe.h"

namespace rapt {

double ExpertLoad::balance() const {
  double sum = 0;
  const auto n = static_cast<double>(rows);
  for (std::size_t e = 0; e < chosen.size(); ++e) sum += chosen[e] / n * probability[e] / n;
  return rows > 0 ? static_cast<double>(experts) * sum : 0;
}
double ExpertLoad::largest() const {
  const double all = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  return all > 0 ? *std::max_element(chosen.begin(), chosen.end()) * static_cast<double>(experts) / all : 0;
}
double ExpertLoad::entropy() const {
  const double all = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  double h = 0;
  for (double n : chosen)
    if (n > 0) h -= n / all * std::log(n / all);
  return experts > 1 ? h / std::log(static_cast<double>(experts)) : 1;
}
Dim ExpertLoad::idle() const { return std::count(chosen.begin(), chosen.end(), 0.0); }

void add_logits(ExpertLoad& load, const Tensor& z) {
  load.experts = z[1];
  load.chosen.resize(static_cast<std::size_t>(z[1]));
  load.probability.resize(load.chosen.size());
  std::vector<double> p(load.chosen.size());
  with_values(z, [&](auto values) {
    for (std::size_t at = 0; at < values.size(); at += p.size()) {
      const auto row = values.subspan(at, p.size());
      const auto top = static_cast<double>(*std::max_element(row.begin(), row.end()));
      double sum = 0;
      for (std::size_t e = 0; e < p.size(); ++e) sum += p[e] = std::exp(static_cast<double>(row[e]) - top);
      for (std::size_t e = 0; e < p.size(); ++e) load.probability[e] += p[e] / sum;
    }
  });
}

void add_choices(ExpertLoad& load, const Tensor& chosen) {
  load.used = chosen[1];
  load.rows += chosen[0];
  with_values(chosen, [&](auto values) {
    for (const auto e : values) ++load.chosen[static_cast<std::size_t>(e)];
  });
}

ExpertLoad& ExpertMeter::State::at(const Tapped& t) {
  ExpertLoad& load = loads[{t.stack, t.layer, t.part}];
  load.stack = t.stack, load.layer = t.layer, load.part = t.part;
  return load;
}

ExpertMeter::ExpertMeter(Taps& taps) : state_(std::make_shared<State>()) {
  // The logits of a part pass by before its choices.
  taps.see(site::router, [s = state_](const Tapped& t) {
    if (s->watching) add_logits(s->at(t), t.value);
  });
  taps.see(site::expert_indices, [s = state_](const Tapped& t) {
    if (s->watching) add_choices(s->at(t), t.value);
  });
}

std::vector<ExpertLoad> ExpertMeter::finish() {
  std::vector<ExpertLoad> out;
  for (auto& [place, load] : state_->loads) out.push_back(std::move(load));
  state_->loads.clear();
  state_->watching = false;
  return out;
}

}  // namespace rapt
