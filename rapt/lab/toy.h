// SPDX-License-Identifier: Apache-2.0
// Small models that learn small tasks in seconds: what the experiments of the laboratory that train have in
// common. A run is described by a Toy; several run side by side, one thread each, and since no bit depends
// on threads the results do not either.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rapt/lab/copy_task.h"
#include "rapt/lab/experiment.h"
#include "rapt/nn/model.h"

namespace rapt {

// ------------------------------------------------------------------------------------------------ tasks
// A batch of `count` sequences of `length` rows, a pure function of its arguments. Rows that count for
// nothing have target -1.
using ToyTask = std::function<CopyTask::Batch(std::uint64_t step, Dim count, Dim length)>;

// Bigram-Backcopy. Without `begin` the sequences start at the chain's first token: there is no token that
// says nothing.
ToyTask copy_task(std::uint64_t seed, bool begin = true);
// A dictionary in the context: items show a key and its value in one token, questions name `asked` (1 or 2)
// keys that were shown. The answer is the value, or for two keys the pair of their values in the order of
// the question (one of 64). Nothing but attention to the right items, found by what they are and not by
// where they stand, answers it. Only questions count.
ToyTask lookup_task(std::uint64_t seed, int asked);
constexpr Dim kLookupVocab = 8 * 8 + 8 * 8;
// Random tokens; the answer is the token `delay` rows before. Rows without one do not count.
ToyTask delay_task(std::uint64_t seed, Dim delay);
constexpr Dim kDelayVocab = 16;
// Characters of a text, each one's target the next: windows at random places of its first nine tenths. Looks
// (numbers from 2^63 on) read the rest, which training never shows. With `begin` a token of its own, the
// last of the vocabulary, stands before every window, and its row does not count. Every row is idle, the
// floor is 0.
struct TextTask {
  Dim vocab = 0;
  ToyTask task;
};
TextTask text_task(const Lab& lab, bool begin = false, Dim characters = 0);  // 0: all there are

// ------------------------------------------------------------------------------------------------ models
// The model of the sink reproductions: width 48, RMS pre-norm, RoPE, and nothing but attention, since the
// copy task needs no more. What feed-forward parts change, the experiment `gate` measures.
Recipe toy_recipe(Dim layers = 3, Dim heads = 1, Dim vocab = CopyTask::kVocab);
Recipe with_ffn(Recipe recipe, Dim width = 96);  // SwiGLU after each attention
AttnRecipe& self_attn(Recipe& recipe);  // of every layer
FfnRecipe& ffn_of(Recipe& recipe);
void set_norms(Recipe& recipe, const NormRecipe& norm);  // before each part and at the end
Batch toy_batch(const CopyTask::Batch& data, Dim length);
// A model of another recipe with the weights of `from` that have the same name and size; the others are
// drawn anew.
std::unique_ptr<Model> with_weights(const Model& from, const Recipe& recipe);

// ------------------------------------------------------------------------------------------------ training
struct Toy {
  Text name;
  Recipe recipe;
  ToyTask task;
  std::uint64_t seed = 0;
  Dim steps = 1000, batch = 32, length = 32;
  double rate = 3e-3, beta2 = 0.999, decay = 0.01;
  Dim warmup = 20;
  bool cosine = false;  // the rate falls to a tenth; else it stays
  int looks = 0;  // on the way, besides the one at the end
  const Model* start = nullptr;  // weights to begin with (with_weights)
  bool small_tokens = false;  // token embeddings start as small as the other weights; else at unit size
  double plant =
      0;  // not 0: the vector of the last token, the one that begins, starts with this in channel 0
};

// What is seen of a model on fresh data. Per layer unless it says otherwise; kinds of rows:
// CopyTask::Batch::kind.
struct ToyLook {
  Dim step = 0;
  double loss = 0, excess = 0;  // per row that counts; excess: above what nobody can go below
  double idle_excess = 0, trigger_loss = 0;
  // Weight on the first token, mean over such rows and heads, not divided by row sums.
  std::vector<double> idle, trigger;
  std::vector<double> idle_of_sum;  // the same as a share of the row's sum (sigmoid; else the same)
  // Weight of idle rows on the learned tokens before the first; empty without them.
  std::vector<double> idle_learned;
  std::vector<double> key_ratio, value_ratio;  // |k|, |v| of first tokens over that of the others
  // Of idle queries with the first key, and with the others they see (head 0).
  std::vector<double> first_cosine, other_cosine;
  // Of |h| after the layer; median over all tokens and channels.
  std::vector<double> first_peak, other_peak, median;
  // Mean of gate values; empty without a gate that reads the input.
  std::vector<double> gate_idle, gate_active;
  double gate_low = 0, gate_least = 0;  // share of gate values below 0.1, and the smallest
  double max_logit = 0;
  std::vector<double> logits, entropy;  // per layer: largest logit; mean entropy of the weights, nats
};

struct Trained {
  Text name;
  std::unique_ptr<Model> model;
  std::vector<double> losses;  // of each step's batch, above its floor
  // Steps whose loss is more than 0.1 above the median of the 31 before (from step 100 on).
  int spikes = 0;
  bool diverged = false;  // a gradient was not finite; nothing was learnt after that
  std::vector<ToyLook> looks;  // the last one is the result
  const ToyLook& end() const { return looks.back(); }
};

// Steps, batch and samples as the lab's effort has them; the toys come back in their order.
std::vector<Trained> train_toys(const Lab& lab, std::vector<Toy> toys);
ToyLook look_at(Device& device, const Model& model, const ToyTask& task, Dim sequences, Dim length,
                std::uint64_t number = ~std::uint64_t{1});
// The attention of head 0 over one sequence; copying rows are marked with a star.
HeatMap attention_picture(Device& device, const Model& model, const ToyTask& task, Dim length, int layer,
                          Text title);
Dim scaled(const Lab& lab, Dim full, Dim least = 2);  // steps
Dim scaled_batch(const Lab& lab, Dim full);  // sequences: falls ten times later

// ---------------------------------------------------------------------------------------- words and numbers
double mean_of(const std::vector<double>& values);
double most_of(const std::vector<double>& values);
// What rows after the first give the first token where each weighs all it sees alike: mean of 1/2 … 1/length.
double equal_share(Dim length);
std::string digits(double x, int decimals = 3);
std::string joined(const std::vector<double>& values, int decimals = 2);  // 0.16 / 0.72 / 0.72
Finding below(Text what, double measured, double limit, std::string unit, Text paper = {},
              bool every_seed = true);
Finding above(Text what, double measured, double limit, std::string unit, Text paper = {},
              bool every_seed = true);
Finding between(Text what, double measured, double low, double high, std::string unit, Text paper = {},
                bool every_seed = true);
Words toy_words();  // what the model of the sink reproductions is, for the documents of those who use it
Curve loss_curve(const Trained& run);  // smoothed: means of some 50 parts
// Into the document: a chart of the runs' losses.
Chart loss_chart(Text title, const std::vector<Trained>& runs);

}  // namespace rapt
