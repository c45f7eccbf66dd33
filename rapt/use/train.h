// SPDX-License-Identifier: Apache-2.0
// Training: any legal recipe, with the one forward and its tape. A step is a pure function of (weights,
// optimizer state, step, batch number), so a run that was killed and resumed has the bits of one that was
// not. Nothing that is not finite ever reaches the weights.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/comm/comm.h"
#include "rapt/inspect/health.h"
#include "rapt/nn/model.h"
#include "rapt/use/data.h"
#include "rapt/use/optimizer.h"
#include "rapt/use/store.h"
#include "rapt/use/timeline.h"

namespace rapt {

// What makes a step suspicious, and what is done about it.
struct GuardOptions {
  Dim window = 128;        // losses and gradient norms remembered
  // Log of loss or norm further above the window's mean than so many deviations: the step is skipped
  // (0: never).
  double z = 6;
  // So many skipped steps within so many: back to the last saved state, past the batches that did it.
  Dim skips = 3, within = 50;
  Dim slow = 100;          // after going back: so many steps at half the rate
  Dim rewinds = 3;         // so many times; then the run stops with a report
};

struct TrainOptions {
  // A step reads `accumulate` batches: its leaves (leaves.h).
  Dim steps = 1000, accumulate = 1;
  std::uint64_t seed = 0;
  OptimizerOptions optimizer;
  Schedule schedule;                     // total: steps
  double smoothing = 0;                  // of labels
  bool recompute = false;
  // Of the products of linear in a step; weights, gradients, moments and judging stay f32.
  Precision precision = Precision::f32;
  Dim eval_every = 0, eval_batches = 0;  // 0: at the end only; 0: the whole held-out part
  Dim save_every = 0;                    // steps; 0: by time and at the end only
  // A state is saved after so many minutes without one, too; 0: never. Not with `average`, whose states
  // are chosen by steps alone.
  double save_minutes = 5;
  Dim health_every = 100;                // 0: never
  // > 0: the final weights are the mean of the last so many saved states
  Dim average = 0;
  GuardOptions guard;
  // Of gradients that ranks exchange at once, about; no bit depends on it, and states do not know it.
  std::size_t bucket_bytes = std::size_t{25} << 20;
};

struct StepReport {
  Dim step = 0;                              // finished steps, this one included
  std::uint64_t batch = 0;                   // number of the first batch it read
  double loss = 0, norm = 0, rate = 0;
  Dim tokens = 0;                            // rows computed
  double seconds = 0;
  enum class Fate { done, skipped, rewound } fate = Fate::done;
  std::string why;                           // of a skip or rewind
  std::vector<LayerHealth> health;           // where this step was looked at
};

struct Judgement {                      // held-out part
  double loss = 0, accuracy = 0;        // per target that counts; accuracy: the most probable one is right
  Dim counted = 0;
};

// Loss over a batch and the gradients of all weights, which are forgotten before: for steps by hand. The
// weights stay as they are. With `random` as in training: dropout, drawn from it and the names of the
// sequences; running statistics of a batch norm move.
double batch_gradients(Device& device, const Model& model, const TrainBatch& batch, Gradients& gradients,
                       double smoothing = 0, const std::optional<RandomState>& random = {});

// Memory of a training whatever its batches are, in bytes: numbers of `real` for weights, gradients (those
// that wait for their sibling in the tree of leaves, too), moments and averages, and the pieces that saving
// makes.
struct TrainMemory {
  double parameters = 0, weights = 0, gradients = 0, moments = 0, saving = 0;
  double total() const { return weights + gradients + moments + saving; }
};
TrainMemory train_memory(const Recipe& resolved, const OptimizerOptions& optimizer, DType real = DType::f32,
                         Dim accumulate = 1);
// Fails where that is more than `available` bytes (0: not known), before anything is made.
void check_train_memory(const Recipe& resolved, const OptimizerOptions& optimizer, DType real,
                        std::uint64_t available, Dim accumulate = 1);

// Larger files of a state are cut, by their tensors alone: several ranks, as many as there are, share them.
constexpr std::uint64_t kStateFile = 1'000'000'000;

class Trainer {
 public:
  struct State;  // train_parts.h
  // With `comm`, one of several ranks, each with a model, data and options that are alike: step() is a step
  // of them all, and its bits are those of one rank. Each computes some of a step's leaves, moves some of the
  // weights (ranks.h) and looks at some of the held-out part. judge(), files(), restore(), rewind() and
  // finish() are calls of them all, too, with the same results on every rank and for any number of them;
  // stores are read by rank 0 alone.
  Trainer(Device& device, Model& model, const TrainData& data, const TrainOptions& options,
          Comm* comm = nullptr);
  ~Trainer();

  StepReport step();  // one step, guarded; never throws for a bad loss
  // What so many steps from here on do is noted there, which must outlive them.
  void note_times(Timeline* timeline, Dim steps);
  Judgement judge(Dim batches = 0);  // with the averaged weights where there are any
  Dim steps() const;
  std::uint64_t next_batch() const;  // number of the first one that the next step reads
  const TrainOptions& options() const;
  Comm& comm() const;
  // Scratch memory of a step over the first batch, in bytes: passes over at most `rows` of its rows, and a
  // line through them.
  double step_bytes(Dim rows = 48, std::size_t piece = std::size_t{128} << 20);
  // Fails where a step, and the pieces that saving makes, need more than `available` bytes (0: not known).
  void check_memory(std::uint64_t available);

  // Everything a resumed run needs, as files and small values; and back, bit for bit. Fails where the
  // state is of another recipe, other data or other options that would change the run. `extra`: further
  // files of the state. `most`: a file of more bytes is cut between its tensors.
  std::unique_ptr<StateFiles> state_files(std::vector<StoredFile> extra = {},
                                          std::uint64_t most = kStateFile) const;
  std::vector<StoredFile> files(std::uint64_t most = kStateFile) const;  // whole, on every rank
  Json state() const;
  // More steps than the state's run had are allowed, and another instruction set: returns, in words, where
  // that means other bits than an unbroken run would have.
  std::vector<std::string> restore(const Store& store, const Stored& stored);
  // Weights and optimizer of a saved state, but the data goes on behind what was read, at half the rate
  // for a while. Returns how often.
  Dim rewind(const Store& store, const Stored& stored);

  // A step whose gradients somebody else made (batch_gradients): clipped, at the rate that the schedule has
  // now. It counts as one of the run; the data stays where it is. Fails, and changes nothing, where they are
  // not finite.
  StepReport apply(const Gradients& gradients);
  Optimizer& optimizer();

  // At the end of a run: the moving average, or the mean of the last saved states, takes the place of the
  // weights where the options say so.
  void finish(const Store& store);

 private:
  void average_states(const Store& store);

  std::unique_ptr<State> state_;
};

struct TrainEvents {  // all may be absent; of several ranks, rank 0 hears them
  std::function<void(const StepReport&)> step;
  std::function<void(Dim step, const Judgement&)> judged;
  std::function<void(const Stored&)> saved;
  std::function<void(const std::string&)> say;  // every decision, in words
  std::function<double()> clock;  // minutes, for save_minutes; absent: the machine's
  // That make a saved state a model folder of its own. Alike on all ranks.
  std::function<std::vector<StoredFile>()> extra_files;
  std::uint64_t state_file = kStateFile;  // the largest file of a state; alike on all ranks
};

// The run step by step, for programs with a loop of their own, between whose steps they may do what they
// like. The trainer, its options and the store must outlive it. Of several ranks each has one; every call is
// one of them all. Rank 0 decides when a state is due, and its store is the one that is read.
class TrainLoop {
 public:
  // Resumes from the newest valid state of `store`, or saves the beginning.
  TrainLoop(Trainer& trainer, const TrainOptions& options, Store& store, TrainEvents events);
  bool done() const { return trainer_.steps() >= options_.steps; }
  // One step, and what is due after it: a look at the held-out part, a state saved, or back to the last one.
  StepReport step();
  void save();  // where something happened since the last state
  // Whether some rank was asked to stop.
  bool stopped(const std::atomic<int>& stop);
  // Saves; of a run that came to its end, judges where nobody did, and returns true.
  bool end();

 private:
  void say(const std::string& text) const;
  double minutes() const;
  std::optional<Stored> newest();
  void save_state();
  void judge();
  void go_back(const StepReport& report);

  Trainer& trainer_;
  const TrainOptions& options_;
  Store& store_;
  Comm& comm_;
  const TrainEvents events_;
  Dim saved_ = 0, judged_ = -1;  // steps of the last state, and of the last look
  double saved_at_ = 0;
  std::vector<int> blind_;  // ranks that did not see rank 0's folder, as it was last said
};

// The whole run: resumes, steps, judges, saves, rewinds. `stop`: set from a signal handler, of any rank; the
// step is finished, the state saved, and the run returns false.
bool train(Trainer& trainer, const TrainOptions& options, Store& store, const TrainEvents& events,
           const std::atomic<int>& stop);

// Options from JSON ({"steps": 2000, "optimizer": {"rate": 1e-3}} or {"optimizer.rate": 1e-3}) and back
// (keys with dots); unknown keys are errors with the nearest name. The table of them: train_options.h.
TrainOptions parse_train_options(const Json& json, const std::string& where);
Json train_options_json(const TrainOptions& options);

}  // namespace rapt
