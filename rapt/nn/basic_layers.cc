// SPDX-License-Identifier: Apache-2.0
// Weights of norms and linear maps, and which op a norm is.
#include "rapt/nn/basic_layers.h"

#include "rapt/ops/batch_norm.h"
#include "rapt/ops/norm.h"

namespace rapt {

std::optional<NormLayer> build_norm(WeightTable& table, const std::optional<NormRecipe>& norm,
                                    const std::string& name, Dim cols, bool causal) {
  if (!norm) return std::nullopt;
  const bool stored_minus_one = norm->weight == NormRecipe::Gain::plus_one;
  NormLayer n{.recipe = *norm, .causal = causal};
  if (norm->weight != NormRecipe::Gain::none)
    n.weight = table.vector(name + ".weight", cols, stored_minus_one ? 0 : 1);
  if (norm->bias) n.bias = table.vector(name + ".bias", cols);
  if (norm->kind == NormRecipe::Kind::batch) n.running = table.vector(name + ".running", 2 * cols);
  return n;
}

LinearLayer build_linear(WeightTable& table, const std::string& name, Dim rows, Dim cols, bool bias) {
  return {table.matrix(name + ".weight", rows, cols), bias ? table.vector(name + ".bias", rows) : nullptr};
}

Tensor apply(Run& run, const std::optional<NormLayer>& norm, const Tensor& x) {
  if (!norm) return x;
  const NormRecipe& r = norm->recipe;
  if (r.kind == NormRecipe::Kind::batch)
    return batch_norm(
        run,
        {.eps = r.eps, .momentum = run.recomputing ? 0 : 0.1, .causal = norm->causal, .leaks_ok = r.leaks_ok},
        x, norm->weight, norm->bias, *norm->running);
  const NormKind kind = r.kind == NormRecipe::Kind::layer ? NormKind::layer
                        : r.kind == NormRecipe::Kind::rms ? NormKind::rms
                                                          : NormKind::l2;
  return rapt::norm(run, {kind, r.eps, r.weight == NormRecipe::Gain::plus_one}, x, norm->weight, norm->bias);
}

}  // namespace rapt
