// SPDX-License-Identifier: Apache-2.0
// LoRA adapters from files: a folder of PEFT (adapter_config.json, adapter_model.safetensors), or a GGUF file
// as llama.cpp's convert_lora_to_gguf writes it. Names of matrices are those of the model's own files, in
// the form of the adapter, through the model's family: q, k and v of one joined matrix, GPT-2's transposed
// ones and rows in pairs order find their places as the weights do.
#pragma once
#include <memory>
#include <string>

#include "rapt/load/checkpoint.h"
#include "rapt/run/adapter.h"

namespace rapt {

// Fails with the tensor's name where it is none of this model's, misshapen, not finite, or more than a
// low-rank product beside a matrix (DoRA, biases, embeddings, experts, modules that were saved whole).
// `checkpoint`'s model must outlive what is made.
std::shared_ptr<const Adapter> load_adapter(const std::string& path, const Checkpoint& checkpoint);

// "FILE" or "FILE=0.5": with a scale.
AdapterUse load_adapter_use(const std::string& words, const Checkpoint& checkpoint);

}  // namespace rapt
