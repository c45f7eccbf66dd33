// SPDX-License-Identifier: Apache-2.0
// Toy checkpoints of tests/golden/families: written as folders the way Hugging Face saves them, values by
// the tensors' names.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "rapt/base/json.h"
#include "rapt/load/checkpoint.h"
#include "tests/tools.h"

namespace rapt::test {

struct ToyTensor {
  std::string name;
  std::vector<Dim> shape;
  std::vector<float> values;
};

struct Toy {
  std::string name;
  Json json, config;
  std::vector<ToyTensor> tensors;
  ToyTensor& tensor(std::string_view tensor_name);
  void rename(std::string_view from, std::string_view to);  // the part of every name that begins so
  void remove(std::string_view tensor_name);
};
Toy read_toy(const std::string& name);
Toy toy_from(const std::string& name, const Json& json);  // "config", "tensors" as such a file has them
std::vector<std::string> toy_names();
void remove_key(Json& object, std::string_view key);

// config.json and model.safetensors (stored as `type`).
void write_folder(const Toy& toy, const std::string& folder, DType type = DType::f32);

// A toy as a checkpoint.
Checkpoint open_toy(const std::string& name, Device& device);
std::vector<std::int32_t> ids_of(const Json& list);

// max |difference| between the stored rows and what a checkpoint computes; infinity for NaN.
double toy_distance(const Toy& toy, const Checkpoint& checkpoint, Device& device);
// Greedy tokens through a cache, one at a time.
std::vector<std::int32_t> toy_greedy(const Toy& toy, const Checkpoint& checkpoint, Device& device,
                                     std::size_t steps);

}  // namespace rapt::test
