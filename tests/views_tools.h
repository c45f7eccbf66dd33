// SPDX-License-Identifier: Apache-2.0
// Plain references for views of a model: its first layers as a model of their own, which the naive forward
// computes in double.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "rapt/recipe/recipe_set.h"
#include "tests/model_tools.h"
#include "tests/naive_model.h"

namespace rapt::test {

inline Recipe toy_recipe(const std::string& preset_name, Dim layers = 3) {
  return with_settings(
      preset(preset_name),
      std::vector<std::string>{"width=24", "layers=" + std::to_string(layers), "heads=4", "kv_heads=2",
                               "head_dim=6", "ffn=20", "vocab=31", "context=40"});
}

inline std::vector<std::int32_t> toy_ids(Dim n, Dim vocab = 31) {
  std::vector<std::int32_t> ids;
  for (Dim i = 0; i < n; ++i) ids.push_back(static_cast<std::int32_t>((i * 7 + i * i + 3) % vocab));
  return ids;
}

inline void copy_weights(const Model& from, Model& to) {
  for (Weight& w : to.weights)
    for (const Weight& v : from.weights)
      if (v.name == w.name)
        for (Dim r = 0; r < w.rows; ++r)
          for (Dim c = 0; c < w.cols; ++c) w.set(r, c, v.get(r, c));
}

// The same weights, but only the first `layers` of the stack that the head reads. `bare`: its hidden states,
// without final norm and head.
inline std::unique_ptr<Model> shallow(const Model& full, Dim layers, bool bare) {
  Recipe r = full.recipe;
  StackRecipe& stack = r.decoder ? *r.decoder : *r.encoder;
  stack.layers = layers;
  if (static_cast<Dim>(stack.pattern.size()) > layers) stack.pattern.resize(static_cast<std::size_t>(layers));
  std::erase_if(stack.kinds,
                [&](const auto& kind) { return stack.pattern.find(kind.first) == std::string::npos; });
  if (bare) {
    stack.final_norm.reset();
    r.head = {.kind = HeadRecipe::Kind::none};
  }
  auto model = std::make_unique<Model>(r, full.real);
  copy_weights(full, *model);
  return model;
}

// The residual stream after `layers` layers [T][C], in double.
inline std::vector<double> naive_residual(const Model& full, Dim layers, const std::vector<std::int32_t>& ids,
                                          const std::vector<std::int32_t>& source = {}) {
  return naive_forward(*shallow(full, layers, true), {.tokens = ids, .types = {}, .source = source});
}

}  // namespace rapt::test
