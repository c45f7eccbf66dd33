// SPDX-License-Identifier: Apache-2.0
// A model: recipe and weights. forward() is the only forward pass: training gives the run a tape, inference
// a cache, inspection taps.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <string_view>

#include "rapt/nn/kv_pool.h"
#include "rapt/nn/layers.h"
#include "rapt/nn/patches.h"
#include "rapt/nn/sites.h"
#include "rapt/recipe/recipe.h"
#include "rapt/run/batch.h"
#include "rapt/run/run.h"

namespace rapt {

// A learned query that looks at all rows of a sequence, then a feed-forward net (SigLIP).
struct PoolLayer {
  const Weight* query = nullptr;  // [1,C]
  Attention attention;
  std::optional<NormLayer> norm;
  Ffn ffn;
};

struct Model {
  // Zero weights. `real_type` is the device's; `matrices` may store the matrices narrower (bf16).
  explicit Model(const Recipe& from, DType real_type = DType::f32) : Model(from, real_type, real_type) {}
  Model(const Recipe& from, DType real_type, DType matrices);
  // Weights as `make` makes them: what a loader wants that keeps each matrix in its file's format.
  Model(const Recipe& from, DType real_type, const WeightMaker& make);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const Recipe recipe;  // resolved
  const DType real;
  std::deque<Weight> weights;
  // Counted up by who changes weights of a model that others may run: keys that were computed with the
  // earlier ones and kept are not used any more (Engine).
  std::atomic<std::uint64_t> changes{0};
  std::map<int, double> starts;  // by index: weights that start from one number (init)

  // Views into `weights`.
  const Weight *tokens = nullptr, *types = nullptr, *sinks = nullptr;
  struct Embed {  // what a stack reads; both the same where the recipe has one for all
    const Weight *tokens = nullptr, *positions = nullptr;
    std::optional<NormLayer> norm;
  } source, target;
  LinearLayer project;  // of token vectors narrower than the model
  std::optional<LayerStack> encoder, decoder;
  LinearLayer head, transform;
  std::optional<NormLayer> head_norm;
  std::optional<PatchLayer> patches;  // pictures in the place of tokens
  // One row per sequence: how it is made, and a second classifier of pictures.
  std::optional<PoolLayer> pool;
  std::optional<NormLayer> pool_norm;
  LinearLayer distilled;

  Weight& weight(std::string_view name);  // fails with the nearest name
  Dim parameters() const;
};

// Starting values by the recipe's init scheme. Every number depends on (seed, weight name, place) only.
void init(Model& model, std::uint64_t seed);

// Logits [rows,V] of the rows that Batch::want names; the hidden state [rows,C] where it asks for that or
// the recipe has no head; [sequences, classes] from a classifier, [sequences, width] where the head gives
// vectors: these two choose no rows unless they are hidden ones, and take no cache.
// Encoder-decoder: `source` holds the encoder's tokens, one sequence per sequence of the batch; with a cache
// it is needed at the first step only. With a pool each sequence continues the one of the same id: its
// `past` must be what the pool holds. What the pool cannot take fails before anything is computed, and a pass
// that fails later (or is cancelled: Run::cancel) leaves the pool as it was.
Tensor forward(Run& run, const Model& model, const Batch& batch, const Batch* source = nullptr,
               KvPool* pool = nullptr);

// The last step of forward(), for rows after the last stack's final norm [n,C]: transform, output matrix,
// cap. Without a head: x itself. Of heads that give one row per sequence: for rows that were pooled.
Tensor head_logits(Run& run, const Model& model, Tensor x);

}  // namespace rapt
