// SPDX-License-Identifier: Apache-2.0
// The mixture of experts: route, the chosen experts' products over the rows of each, sum. Fields, rules and
// drawing: recipe/parts.
#pragma once
#include <vector>

#include "rapt/nn/parts/ffn.h"
#include "rapt/nn/parts/part.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/route.h"

namespace rapt {

namespace site {

// What it reads is ffn_in, its result ffn_out.
inline constexpr Site router{"router"};  // logits, with their bias                       [T,E]
inline constexpr Site expert_weights{"expert_weights"};  // of the chosen                               [T,k]
inline constexpr Site expert_indices{"expert_indices"};  // of the chosen, ascending; no edits          [T,k]

}  // namespace site

struct Moe {
  MoeRecipe recipe;
  RouteSpec spec;
  LinearLayer router;
  const Weight* choice = nullptr;
  std::vector<Projection> gate, up, down;  // of every expert; gate: empty for mlp
  Ffn shared;  // up.w absent: none
  const Weight* shared_gate = nullptr;
};

inline void build_shared(PartBuilder&, const MoeRecipe&) {}
Moe build(PartBuilder& builder, const MoeRecipe& m);
inline std::optional<CachedKeys> cached_keys(const Moe&) { return std::nullopt; }
inline std::optional<CachedChunks> cached_chunks(const Moe&) { return std::nullopt; }
void prepare(Run& run, Pass& pass, const Moe& m);
Tensor run_part(Run& run, const Moe& m, const Tensor& input, const Pass& pass, Sum& sum);
std::span<const PartPoint<Moe>> part_points(Of<Moe>);
Dim axis_size(const Moe& m, char axis);  // E experts, k of them used
PartCost cost(const Moe& m, Dim context);

}  // namespace rapt
