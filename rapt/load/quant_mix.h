// SPDX-License-Identifier: Apache-2.0
// Mixes of block types ("q4_k_m"): which tensor of a GGUF file takes which type. The rules are those of
// llama.cpp without an importance matrix, as a table.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/tensor/dtype.h"

namespace rapt {

struct QuantMix {
  const char* name;
  DType type;               // what most matrices take
  std::uint32_t file_type;  // general.file_type
};
std::span<const QuantMix> quant_mixes();
// "q4_k_m", "Q4_K_M"; "q4_k" is q4_k_m, and "q3_k", "q5_k" likewise. nullptr: there is none of this name.
const QuantMix* find_mix(std::string_view name);
const QuantMix& mix_of(DType type);  // a block format that is made

// What the rules ask of a model: keys of its GGUF file.
struct MixedModel {
  std::string arch;
  std::int64_t layers = 0, heads = 0, kv_heads = 0, experts = 0;  // heads: of the first layer
};
struct MixedTensor {
  std::string name;        // as GGUF has it
  std::vector<Dim> shape;  // the slowest axis first
  bool matrix = true;      // false: not looked at, stays as it is
};
struct MixedType {
  bool quantized = false;  // false: the tensor keeps its type (norms, routers, positions, vectors)
  DType wanted{}, got{};   // different where rows are no whole blocks of what the rules want
};
// In the order of the tensors given, whatever that is.
std::vector<MixedType> mixed_types(const QuantMix& mix, const MixedModel& model,
                                   std::span<const MixedTensor> tensors);
// What takes the place of a type whose blocks do not fit rows of `cols`; f16 where none does.
DType fitting_type(DType type, Dim cols);

}  // namespace rapt
