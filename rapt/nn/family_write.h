// SPDX-License-Identifier: Apache-2.0
// The way back: a family's values as the keys of a config.json or of a GGUF file.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "rapt/io/gguf.h"
#include "rapt/nn/family.h"

namespace rapt {

using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

// Keys of the architecture. Factors of RoPE frequencies, which GGUF keeps as tensors, go to `factors`.
struct RopeFactors {
  std::string tensor;
  std::vector<float> values;
};
GgufKeys gguf_keys(const Family& family, const Translation& model, std::vector<RopeFactors>& factors);
// config.json without token ids and dtype. Numbers that the library insists on reading as floats stand in it as text until config_text
// writes them: 12.0, where JSON would say 12.
Json config_of(const Family& family, const Translation& model);
std::string config_text(const Json& config);

}  // namespace rapt
