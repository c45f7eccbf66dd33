// SPDX-License-Identifier: Apache-2.0
// Every option of a training run, once: its key, where it lives, its range, what it means. JSON, --set and
// --help are visitors over it.
#pragma once
#include <array>
#include <limits>
#include <string_view>

#include "rapt/use/train.h"

namespace rapt {

inline constexpr auto names_of(OptimizerOptions::Kind) {
  return std::to_array<std::string_view>({"adamw", "adam", "sgd", "muon"});
}
inline constexpr auto names_of(Schedule::Kind) {
  return std::to_array<std::string_view>({"constant", "cosine", "inverse_sqrt", "wsd"});
}
inline constexpr auto names_of(Precision) { return std::to_array<std::string_view>({"f32", "bf16"}); }

// v(key, member, least, most, meaning): numbers, yes or no, words.
template <class Options, class Visitor>
void train_fields(Options& o, Visitor&& v) {
  constexpr double kMany = 1e15, kAny = std::numeric_limits<double>::max();
  v("steps", o.steps, 1, kMany, "updates of the weights");
  v("accumulate", o.accumulate, 1, 1e6, "batches whose gradients make one step");
  v("seed", o.seed, 0, 9e15, "of starting values, order of data, dropout");
  v("smoothing", o.smoothing, 0, 0.999, "label smoothing");
  v("recompute", o.recompute, 0, 1,
    "forget the inside of a layer and compute it again on the way back: less memory, a third more time");
  v("precision", o.precision, 0, 0,
    "bf16: matrix products of a step round both factors to bf16 and add in f32; all else stays f32");
  v("eval_every", o.eval_every, 0, kMany, "steps between looks at the held-out part; 0: at the end only");
  v("eval_batches", o.eval_batches, 0, kMany, "batches of such a look; 0: all");
  v("save_every", o.save_every, 0, kMany, "steps between saved states; 0: by time and at the end only");
  v("save_minutes", o.save_minutes, 0, 1e9,
    "minutes between saved states, beside save_every; 0: never (nor with average)");
  v("health_every", o.health_every, 0, kMany, "steps between looks at the attention; 0: never");
  v("average", o.average, 0, 1000,
    "the result is the mean of the last so many saved states; 0: the last one");
  v("optimizer.kind", o.optimizer.kind, 0, 0,
    "adamw; adam: decay in the gradient; sgd; muon: on the stacks' matrices, adamw on the rest");
  v("optimizer.rate", o.optimizer.rate, 0, kAny, "largest learning rate");
  v("optimizer.beta1", o.optimizer.beta1, 0, 0.999999, "memory of the mean gradient");
  v("optimizer.beta2", o.optimizer.beta2, 0, 0.999999999, "memory of the squared gradient");
  v("optimizer.eps", o.optimizer.eps, 1e-30, 1, "added to the root of the squared gradient");
  v("optimizer.momentum", o.optimizer.momentum, 0, 0.999999, "sgd, muon");
  v("optimizer.nesterov", o.optimizer.nesterov, 0, 1, "sgd: look ahead");
  v("optimizer.muon_rate", o.optimizer.muon_rate, 0, kAny, "muon: of the matrices");
  v("optimizer.decay", o.optimizer.decay, 0, kAny, "weight decay of matrices and tables");
  v("optimizer.clip", o.optimizer.clip, 0, kAny, "largest norm of the gradient; 0: none");
  v("optimizer.ema", o.optimizer.ema, 0, 0.9999999,
    "moving average of the weights, used for the result; 0: none");
  v("schedule.kind", o.schedule.kind, 0, 0, "how the rate goes on after the warm-up");
  v("schedule.warmup", o.schedule.warmup, 0, kMany, "steps until the full rate");
  v("schedule.floor", o.schedule.floor, 0, 1, "share of the rate that is left at the end (cosine, wsd)");
  v("schedule.decay_share", o.schedule.decay_share, 0, 1, "wsd: share of the steps in which the rate falls");
  v("guard.window", o.guard.window, 2, 1e6, "losses and norms remembered");
  v("guard.z", o.guard.z, 0, 1e6, "a step further than so many deviations above them is skipped; 0: never");
  v("guard.skips", o.guard.skips, 1, 1e6, "so many skipped steps …");
  v("guard.within", o.guard.within, 1, 1e9, "… within so many: back to the last saved state");
  v("guard.slow", o.guard.slow, 0, 1e9, "steps at half the rate after that");
  v("guard.rewinds", o.guard.rewinds, 0, 1e6, "so often; then the run stops");
}

}  // namespace rapt
