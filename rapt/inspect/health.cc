// SPDX-License-Identifier: Apache-2.0
// Taps add to sums per layer until finish(). Magnitudes are compared by bits; medians are of a sample.
#include "rapt/inspect/health.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "rapt/nn/model.h"

namespace rapt {
namespace {

constexpr Dim kSample = 4096;   // numbers a median is taken of
constexpr double kClosed = 0.1; // a gate value below is closed

struct Sums {
  double heads = 0, sinks = 0;          // (sequence, head) pairs, and those with a sink
  double rows = 0, entropy = 0;         // (row, head) pairs
  double max_logit = -std::numeric_limits<double>::infinity();
  double massive = 0;
  double gates = 0, closed = 0, gate_sum = 0;
  double states = 0, stays = 0;  // (row, head) pairs of a delta rule
};

bool sees_first(const RowPlan& plan, const RowPlan::Part& part, Dim row) {
  const auto r = static_cast<std::size_t>(row);
  return plan.high[r] > 0 && (plan.low[r] <= 0 || part.keep > 0);
}
bool sees_any(const RowPlan& plan, const RowPlan::Part& part, Dim row) {
  const auto r = static_cast<std::size_t>(row);
  return plan.low[r] < plan.high[r] || (part.keep > 0 && plan.high[r] > 0);
}

template <class Real>
void add_stats(const Tapped& t, double threshold, Sums& s) {
  const Dim heads = t.value[1], columns = t.value[2];
  const Real* stats = t.value.as<Real>().data();
  std::vector<double> first(static_cast<std::size_t>(heads));
  for (const RowPlan::Part& part : t.plan->parts) {
    std::fill(first.begin(), first.end(), 0.0);
    Dim rows = 0;
    for (Dim r = part.q_first; r < part.q_first + part.q_count; ++r) {
      if (!sees_any(*t.plan, part, r)) continue;
      const bool counts = sees_first(*t.plan, part, r);
      ++rows;
      for (Dim h = 0; h < heads; ++h) {
        const Real* row = stats + (r * heads + h) * columns;
        if (counts) first[static_cast<std::size_t>(h)] += static_cast<double>(row[AttentionStat::first]);
        s.entropy += static_cast<double>(row[AttentionStat::entropy]);
        s.max_logit = std::max(s.max_logit, static_cast<double>(row[AttentionStat::max_logit]));
      }
      s.rows += static_cast<double>(heads);
    }
    if (rows == 0) continue;
    for (double sum : first) s.sinks += sum / static_cast<double>(rows) > threshold;
    s.heads += static_cast<double>(heads);
  }
}

// A magnitude by its bits: as whole numbers they have the order of the numbers, a NaN stands above all, and
// compilers compare many at once.
template <class Int, class Real>
Int magnitude(Real x) {
  Int bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits & std::numeric_limits<Int>::max();
}
template <class Real, class Int>
double number(Int bits) {
  Real x;
  std::memcpy(&x, &bits, sizeof x);
  return static_cast<double>(x);
}

// Largest magnitude over the lower middle of them all, or of every n-th, n without a common factor with the
// width, so that every channel takes part.
template <class Real, class Int>
void add_residual(const Tensor& t, Sums& s) {
  const std::span<const Real> x = t.as<Real>();
  if (x.empty()) return;
  Int top = 0;
  for (Real v : x) top = std::max(top, magnitude<Int>(v));
  Dim stride = (static_cast<Dim>(x.size()) + kSample - 1) / kSample;
  while (stride > 1 && std::gcd(stride, t.last()) != 1) ++stride;
  std::vector<Int> sample;
  for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(stride))
    sample.push_back(magnitude<Int>(x[i]));
  const auto middle = sample.begin() + (static_cast<std::ptrdiff_t>(sample.size()) - 1) / 2;
  std::nth_element(sample.begin(), middle, sample.end());
  const double median = number<Real>(*middle), ratio = median > 0 ? number<Real>(top) / median : 0;
  if (!(s.massive >= ratio)) s.massive = ratio;  // a NaN is kept
}

template <class Real>
void add_gate(const Tensor& t, Sums& s) {
  const std::span<const Real> x = t.as<Real>();
  constexpr std::size_t kLanes = 8;  // sums side by side: one chain would wait for itself
  std::array<double, kLanes> sums{};
  std::uint32_t closed = 0;
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) sums[l] += static_cast<double>(x[i + l]);
  for (std::size_t l = 0; i + l < x.size(); ++l) sums[l] += static_cast<double>(x[i + l]);
  for (Real v : x) closed += v < static_cast<Real>(kClosed);
  s.gates += static_cast<double>(x.size());
  s.closed += static_cast<double>(closed);
  for (double sum : sums) s.gate_sum += sum;
}

}  // namespace

struct HealthMeter::State {
  State(Taps& taps, double sink_threshold) : threshold(sink_threshold), experts(taps) {}
  double threshold;
  ExpertMeter experts;
  bool watching = false;
  std::size_t sequences = 0, source = 0;
  std::map<std::pair<Stack, int>, Sums> layers;

  Sums& at(const Tapped& t) { return layers[{t.stack, t.layer}]; }

  void stats(const Tapped& t) {
    if (!watching || t.cross || !t.plan) return;
    const std::size_t expected = t.stack == Stack::encoder && source > 0 ? source : sequences;
    if (t.plan->parts.size() != expected)
      fail("health: start() was told of ", expected, " sequences, the pass has ", t.plan->parts.size(),
           "; call start() before each pass");
    if (t.value.dtype == DType::f64) add_stats<double>(t, threshold, at(t));
    else add_stats<float>(t, threshold, at(t));
  }
  void residual(const Tapped& t) {
    if (!watching) return;
    if (t.value.dtype == DType::f64) add_residual<double, std::int64_t>(t.value, at(t));
    else add_residual<float, std::int32_t>(t.value, at(t));
  }
  void decay(const Tapped& t) {
    if (!watching) return;
    Sums& s = at(t);
    s.states += static_cast<double>(t.value.elements());
    for (Dim i = 0; i < t.value.elements(); ++i) s.stays += std::exp(t.value.at(i));
  }
  void gate(const Tapped& t) {
    if (!watching) return;
    if (t.value.dtype == DType::f64) add_gate<double>(t.value, at(t));
    else add_gate<float>(t.value, at(t));
  }
};

HealthMeter::HealthMeter(Taps& taps, double sink_threshold)
    : state_(std::make_shared<State>(taps, sink_threshold)) {
  taps.first_keys = 1;
  taps.see(site::attn_stats, [s = state_](const Tapped& t) { s->stats(t); });
  taps.see(site::resid_out, [s = state_](const Tapped& t) { s->residual(t); });
  taps.see(site::delta_decay, [s = state_](const Tapped& t) { s->decay(t); });
  see_gates(taps, [s = state_](const Tapped& t) { s->gate(t); });
}

void HealthMeter::start(std::span<const Sequence> sequences, std::span<const Sequence> source) {
  state_->watching = true;
  state_->experts.start();
  state_->sequences = sequences.size();
  state_->source = source.size();
}

std::vector<LayerHealth> HealthMeter::finish() {
  std::vector<LayerHealth> out;
  for (const auto& [place, s] : state_->layers) {
    LayerHealth h{.stack = place.first, .layer = place.second, .massive = s.massive};
    h.attends = s.rows > 0;
    if (s.heads > 0) h.sink = s.sinks / s.heads;
    if (s.rows > 0) h.entropy = s.entropy / s.rows, h.max_logit = s.max_logit;
    if (s.states > 0) h.state_stays = s.stays / s.states;
    if (s.gates > 0) h.gate = s.closed / s.gates, h.gate_mean = s.gate_sum / s.gates;
    out.push_back(h);
  }
  for (const ExpertLoad& load : state_->experts.finish())
    for (LayerHealth& h : out)
      if (h.stack == load.stack && h.layer == load.layer)
        h.load_largest = load.largest(), h.load_entropy = load.entropy(), h.balance = load.balance();
  state_->layers.clear();
  state_->watching = false;
  return out;
}

}  // namespace rapt
