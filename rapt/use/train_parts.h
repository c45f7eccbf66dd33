// SPDX-License-Identifier: Apache-2.0
// What a Trainer keeps between its calls, for the files that are its parts: train.cc (a step), train_files.cc
// and train_state.cc (states to files and back).
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "rapt/load/family.h"
#include "rapt/ops/loss.h"
#include "rapt/ops/optimize.h"
#include "rapt/run/run.h"
#include "rapt/use/exchange.h"
#include "rapt/use/leaves.h"
#include "rapt/use/ranks.h"
#include "rapt/use/train.h"

namespace rapt {

// Log of a value and how unusual the next one is. Below `floor` all values count as alike: a run that has
// learned its task has losses that jump by factors and mean nothing. `least`: the smallest deviation that is
// believed. Norms that hardly moved for 128 steps say little about the next batch, which may be shorter or
// harder: six deviations must be a factor that clipping alone would not take care of.
class GuardWindow {
 public:
  GuardWindow(Dim size, double floor, double least)
      : size_(static_cast<std::size_t>(size)), floor_(floor), least_(least) {}

  double z(double value) const {  // deviations above the mean; 0 until the window is full
    if (values_.size() < size_ || size_ < 2) return 0;
    double mean = 0, square = 0;
    for (double v : values_) mean += v;
    mean /= static_cast<double>(values_.size());
    for (double v : values_) square += (v - mean) * (v - mean);
    const double deviation = std::max(std::sqrt(square / static_cast<double>(values_.size())), least_);
    return (std::log(value + floor_) - mean) / deviation;
  }
  void push(double value) {
    values_.push_back(std::log(value + floor_));
    if (values_.size() > size_) values_.pop_front();
  }
  Json json() const {
    Json::Array out;
    for (double v : values_) out.emplace_back(v);
    return out;
  }
  void read(const Json& json) {
    values_.clear();
    for (const Json& v : json.array()) values_.push_back(v.number());
  }

 private:
  std::size_t size_;
  double floor_, least_;
  std::deque<double> values_;
};

// Bytes of a piece of a state's file, but for rows, and panels of them, that are larger.
constexpr std::size_t kStatePiece = std::size_t{4} << 20;
// What saving takes: a piece as it was gathered, and as it is written.
double saving_bytes(const std::vector<WeightShape>& shapes, DType real);

// The mean over the targets of a batch; `smoothing` of labels.
Loss loss_of(Run& run, const Model& model, const TrainBatch& b, double smoothing);

struct Trainer::State {
  Device& device;
  Model& model;
  const TrainData& data;
  const TrainOptions options;
  const std::unique_ptr<Comm> own_comm;
  Comm& comm;
  const std::shared_ptr<const GradientLayout> layout;
  const Deal deal;
  Optimizer optimizer;
  Gradients gradients;  // of the leaf that is computed, then of the step
  LeafGradients leaves;
  std::optional<Exchange> exchange;  // of several ranks
  Tape tape;
  Run run;
  Taps taps;
  HealthMeter health;
  GuardWindow losses, norms;

  Dim step = 0;
  std::uint64_t cursor = 0;  // number of the next batch
  std::uint64_t attempts = 0;  // steps tried, skipped ones included
  std::deque<std::uint64_t> skips;  // attempts that were skipped, the last `within`
  Dim slow = 0;  // steps still to go at half the rate
  Dim rewinds = 0;

  State(Device& d, Model& m, const TrainData& from, const TrainOptions& o, Comm* ranks)
      : device(d),
        model(m),
        data(from),
        options(o),
        own_comm(ranks ? nullptr : alone()),
        comm(ranks ? *ranks : *own_comm),
        layout(std::make_shared<GradientLayout>(gradient_layout(m, o.bucket_bytes))),
        deal(deal_weights(m, *layout, comm.size(), [&](const Weight& w) { return is_muon(o.optimizer, w); })),
        optimizer(m, o.optimizer, one_rank() ? nullptr : &deal.shards[static_cast<std::size_t>(comm.rank())]),
        gradients(d.real, layout),
        leaves(d, m, layout),
        tape(gradients),
        run(d),
        health(taps),
        losses(o.guard.window, 0.05, 0.05),
        norms(o.guard.window, 0.1 * (o.optimizer.clip > 0 ? o.optimizer.clip : 1), 0.25) {
    run.tape = &tape;
    run.training = true;
    run.recompute = o.recompute;
    run.products = o.precision;
    tape.passed = [this](int first) { pass(first); };
    if (!one_rank()) exchange.emplace(comm, d, m, *layout, deal);
  }

  Timeline* timeline = nullptr;
  Dim timed = 0;  // steps that are still noted there

  // The leaf that is computed has all of its gradients of the weights from `first` on.
  void pass(int first) {
    leaves.pass(gradients, first);
    if (exchange && exchange->started()) exchange->pass(first);
  }

  bool one_rank() const { return comm.size() == 1; }

  std::vector<double> compute(const std::vector<TrainBatch>& batches, Dim first, Dim counted, bool looked);

  // The gradient's norm over all ranks, of what `exchange` has.
  double rank_norm() {
    const auto pieces = [](const ShardRange& r) {
      return static_cast<std::size_t>((r.end - r.begin + kOptimizePiece - 1) / kOptimizePiece);
    };
    std::vector<std::size_t> counts;
    for (const Shard& shard : deal.shards) {
      counts.push_back(0);
      for (const ShardRange& r : shard)
        if (exchange->live[static_cast<std::size_t>(r.weight)]) counts.back() += pieces(r);
    }
    const std::vector<double> all = gather<double>(comm, optimizer.squares(device, exchange->at), counts);
    // From the order of ranks to that of weights.
    std::vector<std::vector<double>> of_weights(model.weights.size());
    auto next = all.begin();
    for (const Shard& shard : deal.shards)
      for (const ShardRange& r : shard) {
        if (!exchange->live[static_cast<std::size_t>(r.weight)]) continue;
        const auto end = next + static_cast<std::ptrdiff_t>(pieces(r));
        auto& list = of_weights[static_cast<std::size_t>(r.weight)];
        list.insert(list.end(), next, end);
        next = end;
      }
    std::vector<double> squares;
    for (const auto& list : of_weights) squares.insert(squares.end(), list.begin(), list.end());
    return optimizer.norm_of(squares, exchange->live);
  }

  // The averaged weights for the present ones, or back, on all ranks.
  void swap_averages() {
    optimizer.swap_ema();
    gather_weights(comm, model, *layout, deal);
  }

  Loss loss(Run& with, const TrainBatch& b) {
    return loss_of(with, model, b, with.training ? options.smoothing : 0);
  }
};

}  // namespace rapt
