// SPDX-License-Identifier: Apache-2.0
// Runs side by side over steps and over learning rates: the curves that experiments on stability draw.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

#include "rapt/lab/toy.h"

namespace rapt {

// What `value` gives of each look.
template <class F>
Curve over_looks(Text name, const Trained& run, const F& value) {
  Curve c{.name = std::move(name)};
  for (const ToyLook& l : run.looks) c.x.push_back(static_cast<double>(l.step)), c.y.push_back(value(l));
  return c;
}

// One value a rate; the axis has the rate's logarithm.
inline Curve over_rates(Text name, const std::vector<double>& rates, std::vector<double> values) {
  Curve c{.name = std::move(name), .y = std::move(values)};
  for (double r : rates) c.x.push_back(std::log10(r));
  return c;
}

inline double largest_logit(const Trained& run) {  // at any look
  double most = 0;
  for (const ToyLook& l : run.looks)
    if (std::isfinite(l.max_logit)) most = std::max(most, l.max_logit);
  return most;
}

// Guessing evenly, where a run came to no loss.
inline double loss_or(const Trained& run, double otherwise) {
  return std::isfinite(run.end().loss) ? std::min(run.end().loss, otherwise) : otherwise;
}

// Mean of the values above the best of them (Wortsman et al. 2023 call it the sensitivity to the rate).
inline double above_best(const std::vector<double>& values) {
  return mean_of(values) - *std::min_element(values.begin(), values.end());
}

}  // namespace rapt
