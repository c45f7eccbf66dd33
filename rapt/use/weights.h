// SPDX-License-Identifier: Apache-2.0
// Weights of a model as plain rows of numbers, whatever their format and packing, and back; a copy of a whole
// model as numbers.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "rapt/load/checkpoint.h"

namespace rapt {

const Weight& find_weight(const Model& model, std::string_view name);  // fails with the nearest name
std::vector<float> weight_numbers(const Weight& weight);  // [rows,cols]
// Other numbers for a weight, in its own format; no pass of the device runs meanwhile. Fails where its format
// is one of blocks, or the count is another one. Sharing stays: memory that others look at is not written to.
void set_weight(Device& device, Model& model, std::string_view name, std::span<const float> numbers);
// The gradient of a weight, row by row; nothing where none was added.
std::vector<float> gradient_numbers(const Weight& weight, const Gradients& gradients);
void set_gradient(const Weight& weight, Gradients& gradients, std::span<const float> numbers);

// Everything a checkpoint says, with weights of its own as numbers of `real`.
Checkpoint copy_checkpoint(const Checkpoint& from, DType real);

}  // namespace rapt
