// SPDX-License-Identifier: Apache-2.0
// One attention layer around the fused op: project, gate, norm, rotate, cache, attend, gate, project. Reads like its formula.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "rapt/nn/layers.h"
#include "rapt/ops/rope.h"
#include "rapt/run/batch.h"
#include "rapt/run/run.h"

namespace rapt {

class KvCache;

// What the layers of one stack share in one pass: who the rows are, and what only depends on that. Made whole before the first layer.
struct Pass {
  std::vector<Sequence> sequences;         // of the rows that run through this stack
  Tensor memory;                           // decoder: the encoder's result, or absent where its keys are in the cache
  std::vector<Sequence> memory_sequences;  // its rows; ids are those of `sequences`
  KvCache* cache = nullptr;

  struct Masked {
    Mask mask;
    RowPlan plan;
  };
  struct Rotated {
    RopeSpec spec;
    Dim head_dim;
    Mask mask;
    RopeTable table, kept;  // `kept`: at the positions rows take towards kept keys; absent where they are the same
  };
  std::vector<Masked> plans;
  std::vector<Rotated> tables;
  RowPlan cross;
};

// Works out what a stack's attention layers will ask for.
void prepare(Run& run, Pass& pass, const LayerStack& stack);

// Norm as the layer's recipe wants it; x [.., C] or [T,H,D] with per-head weights.
Tensor apply(Run& run, const std::optional<NormLayer>& norm, const Tensor& x);
// x [T,H,D] * act(W input), x + act(W input), or with a constant in the place of W input.
Tensor apply(Run& run, const std::optional<GateLayer>& gate, const Tensor& input, const Tensor& x);

// Projected queries of the rows x, and keys of `source`, as the attention reads them: gated, normed, turned by `table` (without one: as they
// are). `kept`, where given, turns the queries to where they stand towards the kept first keys: *q_kept.
Tensor finish_queries(Run& run, const Attention& a, const Tensor& x, const Tensor& projected, const RopeTable& table,
                      const RopeTable& kept = {}, Tensor* q_kept = nullptr);
Tensor finish_keys(Run& run, const Attention& a, const Tensor& source, const Tensor& projected, const RopeTable& table);

// x [T,C] -> z [T, H*Dv], before the output projection.
Tensor attend(Run& run, const Attention& a, const Tensor& x, const Pass& pass);

}  // namespace rapt
