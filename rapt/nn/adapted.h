// SPDX-License-Identifier: Apache-2.0
// Which matrices of a model adapters may change (run/adapter.h), and which rows of a pass use them.
#pragma once
#include <map>
#include <span>

#include "rapt/nn/model.h"
#include "rapt/run/adapter.h"

namespace rapt {

// Every matrix that meets the rows of its stack, of the memory, or of the head by `linear`, each its own way.
// Not those of experts, of latent keys and values, of distances, of embeddings, of poolers.
std::map<const Weight*, Adapter::Rows> adaptable_weights(const Model& model);

// Ranges of a list of rows: those of the sequences, neighbours with the same adapters together.
AdaptedRows::List adapted_list(std::span<const Sequence> sequences);

}  // namespace rapt
