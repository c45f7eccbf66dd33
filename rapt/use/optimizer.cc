// SPDX-License-Identifier: Apache-2.0
// A step: weights as one list of pieces for a kernel, then Muon matrix by matrix, then the moving average.
#include "rapt/use/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "rapt/ops/muon.h"
#include "rapt/ops/optimize.h"

namespace rapt {
namespace {

using Kind = OptimizerOptions::Kind;

// Weights as one list of pieces of work.
struct WorkList {
  std::vector<OptimizePart> parts;
  std::int64_t tasks = 0;

  OptimizePart& add(const Weight& w, Dim begin, Dim end) {
    parts.push_back({.elements = end - begin,
                     .tasks = tasks,
                     .weight = w.data.get() + static_cast<std::size_t>(begin) * size_of(w.format)});
    tasks += pieces(end - begin);
    return parts.back();
  }
  static std::int64_t pieces(Dim elements) { return (elements + kOptimizePiece - 1) / kOptimizePiece; }
  OptimizeParts all() const { return {parts.data(), static_cast<std::int64_t>(parts.size()), tasks}; }
};

}  // namespace

bool is_muon(const OptimizerOptions& o, const Weight& w) {
  return o.kind == Kind::muon && w.packing == Packing::panels && w.rows > 1 && w.cols > 1 &&
         (w.name.starts_with("encoder.") || w.name.starts_with("decoder."));
}

void check_optimizer(const OptimizerOptions& o) {
  auto within = [](const char* name, double x, double low, double high, bool open) {
    if (!(x >= low) || !(open ? x < high : x <= high))
      fail("optimizer: ", name, " is ", x, "; it must lie between ", low, " and ", high,
           open ? ", the latter excluded" : "");
  };
  constexpr double kMost = 1e6;
  within("rate", o.rate, 0, kMost, false);
  within("muon_rate", o.muon_rate, 0, kMost, false);
  within("beta1", o.beta1, 0, 1, true);
  within("beta2", o.beta2, 0, 1, true);
  within("eps", o.eps, 1e-30, 1, false);  // with 0, a gradient of 0 would give 0 / 0
  within("momentum", o.momentum, 0, 1, true);
  within("decay", o.decay, 0, kMost, false);
  within("clip", o.clip, 0, 1e30, false);
  within("ema", o.ema, 0, 1, true);
  if (o.kind == Kind::sgd && o.nesterov && o.momentum == 0)
    fail("optimizer: nesterov needs a momentum above 0");
}

int state_numbers(const OptimizerOptions& o, bool stack_matrix) {
  const int moments = o.kind == Kind::sgd                    ? (o.momentum > 0 ? 1 : 0)
                      : o.kind == Kind::muon && stack_matrix ? 1
                                                             : 2;
  return moments + (o.ema > 0 ? 1 : 0);
}

// The numbers of a weight that this optimizer moves.
std::byte* Optimizer::moved(const Weight& w, const State& state) {
  return w.data.get() + static_cast<std::size_t>(state.begin) * size_of(w.format);
}

Optimizer::Optimizer(Model& model, const OptimizerOptions& from, const Shard* shard)
    : options(from), model_(model), state_(model.weights.size()) {
  check_optimizer(options);
  for (std::size_t i = 0; i < state_.size(); ++i) state_[i].end = shard ? 0 : model.weights[i].stored();
  if (shard)
    for (const ShardRange& r : *shard) {
      state_[static_cast<std::size_t>(r.weight)].begin = r.begin;
      state_[static_cast<std::size_t>(r.weight)].end = r.end;
    }
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const Weight& w = model.weights[i];
    State& s = state_[i];
    if (!is_parameter(w)) continue;
    if (w.format != model.real)
      fail("optimizer: weight ", w.name, " is stored as ", name_of(w.format), "; training needs ",
           name_of(model.real), " weights: load the model with float matrices");
    const bool whole = s.end - s.begin == w.stored();
    if (s.begin == s.end && !whole) continue;
    auto state = [&](const char* what) {
      return whole ? make_weight(w.name + what, w.rows, w.cols, model.real, w.packing)
                   : make_weight(w.name + what, 1, s.end - s.begin, model.real);
    };
    s.muon = is_muon(options, w);
    if (s.muon || options.kind == Kind::sgd) {
      if (s.muon || options.momentum > 0) s.first = state(".momentum");
    } else {
      s.first = state(".mean");
      s.second = state(".variance");
    }
    if (has_ema()) {
      s.average = state(".average");
      std::memcpy(s.average.data.get(), moved(w, s), s.average.bytes());
    }
  }
}

std::vector<double> Optimizer::squares(Device& device, const Parts& gradients) const {
  const Lease lease(device.team());
  WorkList all;
  for (std::size_t i = 0; i < state_.size(); ++i)
    if (gradients[i]) all.add(model_.weights[i], state_[i].begin, state_[i].end).gradient = gradients[i];
  std::vector<double> sums(static_cast<std::size_t>(all.tasks));
  device.call(&Kernels::sum_squares, {.all = all.all(), .sums = sums.data()});
  return sums;
}

double Optimizer::norm_of(const std::vector<double>& squares, const std::vector<bool>& live) const {
  const FloatMode mode;
  double total = 0;
  auto next = squares.begin();
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    double sum = 0;
    for (std::int64_t n = WorkList::pieces(model_.weights[i].stored()); n > 0; --n) sum += *next++;
    total += sum;
  }
  return std::sqrt(total);
}

Optimizer::Parts Optimizer::parts_of(const Gradients& gradients) const {
  Parts out;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const std::byte* g = gradients.find(model_.weights[i]);
    out.push_back(g ? g + static_cast<std::size_t>(state_[i].begin) * size_of(gradients.real()) : nullptr);
  }
  return out;
}

double Optimizer::norm(Device& device, const Gradients& gradients) const {
  std::vector<bool> live;
  for (const Weight& w : model_.weights) live.push_back(gradients.find(w) != nullptr);
  return norm_of(squares(device, parts_of(gradients)), live);
}

void Optimizer::step(Device& device, const Gradients& gradients, double norm, double rate_factor) {
  step(device, parts_of(gradients), norm, rate_factor);
}

void Optimizer::step(Device& device, const Parts& gradients, double norm, double rate_factor) {
  const Lease lease(device.team());
  if (!std::isfinite(norm))
    fail("optimizer: the gradients' norm is ", norm, "; no step is taken, the weights stay as they are");
  if (swapped_)
    fail(
        "optimizer: a step was asked for while the averaged weights stand in the model; "
        "call swap_ema() once more first");
  if (device.real != model_.real)
    fail("optimizer: the model's weights are ", name_of(model_.real), ", the device computes in ",
         name_of(device.real));
  ++model_.changes;
  const double scale = options.clip > 0 ? std::min(1.0, options.clip / (norm + 1e-6)) : 1;
  WorkList plain;
  std::int64_t work = 0;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const Weight& w = model_.weights[i];
    State& s = state_[i];
    const std::byte* g = gradients[i];
    if (!g || !is_parameter(w)) continue;
    if (s.muon) {
      work = std::max(work, muon_work(w.rows, w.cols));
      continue;
    }
    OptimizePart& p = plain.add(w, s.begin, s.end);
    p.gradient = g;
    p.first = s.first.data.get();
    p.second = s.second.data.get();
    p.decay = w.decay ? options.decay : 0;
  }
  WorkList averages;
  for (std::size_t i = 0; i < state_.size(); ++i)
    if (state_[i].average.data)
      averages.add(model_.weights[i], state_[i].begin, state_[i].end).first = state_[i].average.data.get();
  const Weight space = work > 0 ? make_weight("muon's work", 1, work, model_.real) : Weight{};
  ++steps_;  // from here on nothing asks for memory: a step is made whole or not at all
  if (options.kind == Kind::sgd) {
    device.call(&Kernels::sgd, {.all = plain.all(),
                                .rate = options.rate * rate_factor,
                                .momentum = options.momentum,
                                .gradient_scale = scale,
                                .nesterov = options.nesterov});
  } else {
    device.call(&Kernels::adamw, {.all = plain.all(),
                                  .rate = options.rate * rate_factor,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .eps = options.eps,
                                  .correction1 = 1 - std::pow(options.beta1, static_cast<double>(steps_)),
                                  .correction2 = 1 - std::pow(options.beta2, static_cast<double>(steps_)),
                                  .gradient_scale = scale,
                                  .l2 = options.kind == Kind::adam});
  }
  if (work > 0) {
    for (std::size_t i = 0; i < state_.size(); ++i) {
      const Weight& w = model_.weights[i];
      if (!state_[i].muon || !gradients[i]) continue;
      device.call(&Kernels::muon, {.rows = w.rows,
                                   .cols = w.cols,
                                   .weight = w.data.get(),
                                   .gradient = gradients[i],
                                   .momentum = state_[i].first.data.get(),
                                   .rate = options.muon_rate * rate_factor,
                                   .factor = options.momentum,
                                   .decay = w.decay ? options.decay : 0,
                                   .gradient_scale = scale,
                                   .work = space.data.get()});
    }
  }
  if (!has_ema()) return;
  if (steps_ == 1)
    for (std::size_t i = 0; i < state_.size(); ++i) {
      const Weight& average = state_[i].average;
      if (average.data) std::memcpy(average.data.get(), moved(model_.weights[i], state_[i]), average.bytes());
    }
  else device.call(&Kernels::ema, {.all = averages.all(), .factor = options.ema});
}

void Optimizer::each_state(const std::function<void(const std::string& name, Weight& state)>& f) {
  each_part([&](const Weight&, const std::string& name, Weight& state, Dim) { f(name, state); });
}

void Optimizer::each_part(
    const std::function<void(const Weight& of, const std::string& name, Weight& state, Dim begin)>& f) {
  if (swapped_)
    fail(
        "optimizer: the state was asked for while the averaged weights stand in the model; "
        "call swap_ema() once more first");
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const Weight& w = model_.weights[i];
    if (!is_parameter(w)) continue;
    const bool momentum = options.kind == Kind::sgd || is_muon(options, w);
    if (momentum && (is_muon(options, w) || options.momentum > 0))
      f(w, w.name + ".momentum", state_[i].first, state_[i].begin);
    if (!momentum) {
      f(w, w.name + ".mean", state_[i].first, state_[i].begin);
      f(w, w.name + ".variance", state_[i].second, state_[i].begin);
    }
    if (has_ema()) f(w, w.name + ".average", state_[i].average, state_[i].begin);
  }
}

void Optimizer::swap_ema() {
  if (!has_ema()) fail("optimizer: no moving average of the weights is kept; set ema above 0");
  for (std::size_t i = 0; i < state_.size(); ++i)
    if (state_[i].average.data) {
      std::byte *average = state_[i].average.data.get(), *weight = moved(model_.weights[i], state_[i]);
      std::swap_ranges(average, average + state_[i].average.bytes(), weight);
    }
  ++model_.changes;
  swapped_ = !swapped_;
}

double Schedule::at(std::int64_t step) const {
  const double s = static_cast<double>(step), w = static_cast<double>(warmup);
  if (step < warmup) return (s + 1) / w;
  switch (kind) {
    case Kind::constant: return 1;
    case Kind::inverse_sqrt: return std::sqrt(std::max(1.0, w) / (s + 1));
    case Kind::cosine: {
      const double t =
          std::min(1.0, (s - w) / static_cast<double>(std::max<std::int64_t>(1, total - warmup)));
      return floor + (1 - floor) * 0.5 * (1 + std::cos(std::numbers::pi * t));
    }
    case Kind::wsd: {
      const double length = std::clamp(decay_share, 0.0, 1.0) * static_cast<double>(total),
                   begin = static_cast<double>(total) - length;
      if (s < begin) return 1;
      return 1 - (1 - floor) * (length > 0 ? std::min(1.0, (s - begin) / length) : 1);
    }
  }
  return 1;
}

}  // namespace rapt
