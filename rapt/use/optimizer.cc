// SPDX-License-Identifier: Apache-2.0
#include "rapt/use/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rapt/ops/adamw.h"

namespace rapt {
namespace {

template <class Real>
double sum_of_squares(const std::byte* p, Dim n) {
  const Real* g = reinterpret_cast<const Real*>(p);
  double sum = 0;
  for (Dim i = 0; i < n; ++i) sum += static_cast<double>(g[i]) * g[i];
  return sum;
}

}  // namespace

double Optimizer::step(Device& device, const Gradients& gradients, double rate_factor) {
  double square = 0;
  for (const Weight& w : model_.weights)
    if (const std::byte* g = gradients.find(w)) {
      if (w.format != model_.real)
        fail("optimizer: weight ", w.name, " is stored as ", name_of(w.format), "; training needs ", name_of(model_.real), " weights");
      square += model_.real == DType::f64 ? sum_of_squares<double>(g, w.stored()) : sum_of_squares<float>(g, w.stored());
    }
  const double norm = std::sqrt(square);
  if (!std::isfinite(norm)) return norm;
  ++steps_;
  const double scale = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1;
  for (std::size_t i = 0; i < model_.weights.size(); ++i) {
    Weight& w = model_.weights[i];
    const std::byte* g = gradients.find(w);
    if (!g) continue;
    State& s = state_[i];
    if (!s.mean.data) {
      s.mean = make_weight(w.name, w.rows, w.cols, model_.real, w.packing);
      s.variance = make_weight(w.name, w.rows, w.cols, model_.real, w.packing);
    }
    device.kernels.adamw(device.queue(), {.elements = w.stored(),
                                          .weight = w.data.get(),
                                          .gradient = g,
                                          .mean = s.mean.data.get(),
                                          .variance = s.variance.data.get(),
                                          .rate = options_.rate * rate_factor,
                                          .beta1 = options_.beta1,
                                          .beta2 = options_.beta2,
                                          .eps = options_.eps,
                                          .decay = w.decay ? options_.decay : 0,
                                          .correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps_)),
                                          .correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps_)),
                                          .gradient_scale = scale});
  }
  return norm;
}

double cosine_rate(std::int64_t step, std::int64_t warmup, std::int64_t total, double floor) {
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double t = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(std::max<std::int64_t>(1, total - warmup)));
  return floor + (1 - floor) * 0.5 * (1 + std::cos(std::numbers::pi * t));
}

}  // namespace rapt
