// SPDX-License-Identifier: Apache-2.0
// Adapters drawn for a model in memory; those of PEFT (tests/golden/adapters) as files.
#pragma once
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "rapt/base/rng.h"
#include "rapt/io/safetensors.h"
#include "rapt/nn/adapted.h"
#include "rapt/tensor/formats.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {

// Three of four matrices, with A and B of about the size that a training gives them times ten.
inline std::shared_ptr<Adapter> drawn_adapter(const Model& model, std::uint64_t seed, Dim rank,
                                              DType format = DType::f32) {
  auto out = std::make_shared<Adapter>();
  out->model = &model;
  out->path = concat("drawn ", seed);
  out->hash = {mix_key(seed, 1), mix_key(seed, 2)};
  out->by_weight.assign(model.weights.size(), -1);
  const auto adaptable = adaptable_weights(model);
  for (const Weight& w : model.weights) {
    const auto it = adaptable.find(&w);
    const std::uint64_t key = mix_key(seed, static_cast<std::uint64_t>(w.index));
    if (it == adaptable.end() || random_below(4, key, 0) == 0) continue;
    const auto draw = [&](Weight weight, std::uint64_t which) {
      for (Dim r = 0; r < weight.rows; ++r)
        for (Dim c = 0; c < weight.cols; ++c)
          weight.set(
              r, c,
              0.3 * random_normal(mix_key(key, which), static_cast<std::uint64_t>(r * weight.cols + c)));
      return weight;
    };
    out->by_weight[static_cast<std::size_t>(w.index)] = static_cast<std::int32_t>(out->terms.size());
    out->terms.push_back(
        {.of = &w,
         .a = std::make_shared<Weight>(draw(make_weight("a", rank, w.cols, format, Packing::panels), 1)),
         .b = draw(make_weight("b", w.rows, rank, format, Packing::panels), 2),
         .scale = 0.5f,
         .rows = it->second});
  }
  return out;
}

struct PeftToy {
  Toy adapter, model;
};
inline PeftToy read_peft_toy(const std::string& name) {
  const std::string path = concat(RAPT_SOURCE_DIR, "/tests/golden/adapters/", name, ".json");
  PeftToy out{toy_from(name, parse_json(read_text_file(path), name)), {}};
  out.model = read_toy(std::string(need(out.adapter.json, "toy").string()));
  // The model's own matrices beside factors of them; a tied output matrix is the table of tokens.
  if (const Json* copies = out.adapter.json.find("copies"))
    for (const Json& name : copies->array()) {
      ToyTensor copy = out.model.tensor("model.embed_tokens.weight");
      copy.name = name.string();
      out.adapter.tensors.push_back(std::move(copy));
    }
  return out;
}

inline void write_adapter_folder(const Toy& adapter, const std::string& folder, DType type = DType::f32) {
  std::filesystem::create_directories(folder);
  put_file(folder + "/adapter_config.json", adapter.config.dump());
  std::vector<SafetensorPlan> plan;
  for (const ToyTensor& t : adapter.tensors)
    plan.push_back({t.name, type, t.shape, [&t, type](FileWriter& out) {
                      std::vector<std::byte> bytes(bytes_of(type, static_cast<Dim>(t.values.size()), t.name));
                      if (type == DType::f32) std::memcpy(bytes.data(), t.values.data(), bytes.size());
                      else quantize(type, t.values, bytes);
                      out.write(bytes);
                    }});
  write_safetensors(folder + "/adapter_model.safetensors", plan, {}, true);
}

}  // namespace rapt::test
