// SPDX-License-Identifier: Apache-2.0
// Optimizers over a model's weights. Weights change only here; state lies in the order of the weight,
// whatever its packing. All numbers are sums in one fixed order: threads do not change a bit. Formulas:
// ops/optimize.h (as torch.optim has them), ops/muon.h.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "rapt/nn/model.h"
#include "rapt/run/tape.h"
#include "rapt/use/ranks.h"

namespace rapt {

struct OptimizerOptions {
  // adam: decay is added to the gradient (L2); muon: matrices of the stacks; the rest adamw
  enum class Kind { adamw, adam, sgd, muon };
  Kind kind = Kind::adamw;
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double momentum = 0.9;      // sgd, 0: none; muon: 0.95 is usual
  bool nesterov = false;      // sgd; muon always
  double muon_rate = 0.02;    // of the matrices that muon moves; `rate` is that of the others
  // On matrices and tables; norms, biases and other vectors do not decay. adamw, muon: beside the step;
  // else L2.
  double decay = 0.1;
  double clip = 1;  // largest norm of all gradients together; 0: no limit
  double ema = 0;  // > 0: a moving average of the weights with this factor is kept beside them
};

void check_optimizer(const OptimizerOptions& options);  // fails where a number is out of its range

// A matrix inside a stack, which muon moves as a whole; embeddings, heads, tables of biases and vectors are
// moved by AdamW.
bool is_muon(const OptimizerOptions& options, const Weight& weight);

// Numbers of state that the optimizer keeps for a weight: moments, the moving average.
int state_numbers(const OptimizerOptions& options, bool stack_matrix);

class Optimizer {
 public:
  // With `shard`, it moves these numbers alone and keeps state for no others.
  Optimizer(Model& model, const OptimizerOptions& options, const Shard* shard = nullptr);

  // The norm of all gradients together; finite where every element is. Look at it before step(): a norm
  // that is not finite must not reach the weights.
  double norm(Device& device, const Gradients& gradients) const;
  // One step with `rate_factor` times the base rates. Gradients are clipped, given their norm, by min(1,
  // clip / (norm + 1e-6)). A weight without a gradient stays as it is. Fails, and changes nothing, where
  // the norm is not finite.
  void step(Device& device, const Gradients& gradients, double norm, double rate_factor = 1);
  // Of gradients by weight: the numbers that this optimizer moves, nullptr: none (Exchange::at).
  using Parts = std::vector<const std::byte*>;
  void step(Device& device, const Parts& gradients, double norm, double rate_factor = 1);
  // Sums of squares of the pieces of these, in order; norm_of() adds those of all pieces of all weights that
  // are `live`, as norm() does.
  std::vector<double> squares(Device& device, const Parts& gradients) const;
  double norm_of(const std::vector<double>& squares, const std::vector<bool>& live) const;
  std::int64_t steps() const { return steps_; }

  // Every number of the state by name ("decoder.0.self.q.weight.mean", ".variance", ".momentum",
  // ".average"), for saving and for loading in place. The count of steps apart. There from the start, zero
  // before the first step.
  void each_state(const std::function<void(const std::string& name, Weight& state)>& f);
  // The same with a shard: `state` has the numbers `begin` and on of what belongs to `of`, none where nothing
  // of it is moved here; names and order are those of one rank.
  void each_part(
      const std::function<void(const Weight& of, const std::string& name, Weight& state, Dim begin)>& f);
  void set_steps(std::int64_t steps) { steps_ = steps; }
  // The averaged weights in the place of the present ones, and back: call it twice. The average begins
  // with the weights after the first step. With a shard: its numbers alone.
  void swap_ema();
  bool averaged() const { return swapped_; }  // they stand there
  bool has_ema() const { return options.ema > 0; }

  OptimizerOptions options;

 private:
  struct State {
    Weight first, second, average;  // mean and variance, or momentum; the moving average
    Dim begin = 0, end = 0;  // the numbers of the weight that are moved
    bool muon = false;
  };
  static std::byte* moved(const Weight& w, const State& state);
  Parts parts_of(const Gradients& gradients) const;

  Model& model_;
  std::vector<State> state_;
  std::int64_t steps_ = 0;
  bool swapped_ = false;
};

// Share of the base rate at a step s, counted from 0. Warm-up: (s+1) / warmup, 1 in its last step. Then
// constant, or
//   cosine        floor + (1 - floor) (1 + cos(pi t)) / 2, t = (s - warmup) / (total - warmup): nanoGPT's
//   inverse_sqrt  sqrt(warmup / (s+1))
//   wsd           1, and in the last part of the run linearly towards floor
struct Schedule {
  enum class Kind { constant, cosine, inverse_sqrt, wsd };
  Kind kind = Kind::cosine;
  std::int64_t warmup = 0, total = 1;
  double floor = 0.1;  // cosine, wsd: what is left at the end
  double decay_share = 0.2;  // wsd: the last part of the run, in which the rate falls (linearly)
  // inverse_sqrt: min((s+1)^-0.5, (s+1) warmup^-1.5) sqrt(warmup): 1 at the end of the warm-up
  double at(std::int64_t step) const;
};

}  // namespace rapt
