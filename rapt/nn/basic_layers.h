// SPDX-License-Identifier: Apache-2.0
// What parts are made of: linear maps and norms as structs of weights. An absent norm or bias is an empty
// optional or a null pointer, and means the identity.
#pragma once
#include <optional>
#include <string>

#include "rapt/nn/weight_table.h"
#include "rapt/recipe/norm_recipe.h"
#include "rapt/run/run.h"

namespace rapt {

struct NormLayer {
  NormRecipe recipe;
  const Weight *weight = nullptr, *bias = nullptr;
  const Weight* running = nullptr;  // batch norm: [2,C] mean and variance
  bool causal = false;              // batch norm: stands in a causal stack
};

struct LinearLayer {
  const Weight *w = nullptr, *b = nullptr;
};

std::optional<NormLayer> build_norm(WeightTable& table, const std::optional<NormRecipe>& norm,
                                    const std::string& name, Dim cols, bool causal = false);
LinearLayer build_linear(WeightTable& table, const std::string& name, Dim rows, Dim cols, bool bias);

// Norm as the layer's recipe wants it; x [.., C] or [T,H,D] with per-head weights.
Tensor apply(Run& run, const std::optional<NormLayer>& norm, const Tensor& x);

}  // namespace rapt
