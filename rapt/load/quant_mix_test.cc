// SPDX-License-Identifier: Apache-2.0
// The table of mixes against what llama.cpp's functions choose, tensor by tensor
// (tests/golden/load/quant_mixes.json); then what it has no answer for.
#include "rapt/load/quant_mix.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "rapt/base/json.h"
#include "rapt/io/reader.h"

namespace rapt {
namespace {

std::vector<Dim> shape_of(const Json& sizes) {  // the slowest first
  std::vector<Dim> shape;
  for (const Json& n : sizes.array()) shape.insert(shape.begin(), n.integer());
  return shape;
}

TEST(QuantMix, ChoosesWhatLlamaCppChooses) {
  const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/load/quant_mixes.json";
  const Json golden = parse_json(read_text_file(path), path);
  int compared = 0;
  std::set<DType> seen;
  for (const Json& m : golden.find("models")->array()) {
    SCOPED_TRACE(m.find("name")->string());
    const MixedModel model{.arch = m.find("arch")->string(),
                           .layers = m.find("layers")->integer(),
                           .heads = m.find("heads")->integer(),
                           .kv_heads = m.find("kv_heads")->integer(),
                           .experts = m.find("experts")->integer()};
    std::vector<MixedTensor> tensors;
    std::vector<std::pair<std::string, std::size_t>> rows;  // of the golden file, and a letter there
    const Json::Array& at = m.find("at")->array();
    for (const Json& begin : at)
      for (std::int64_t layer = model.layers; layer-- > 0;)  // any order
        for (const Json::Member& t : m.find("layer")->object()) {
          tensors.push_back({begin.string() + std::to_string(layer) + "." + t.key, shape_of(t.value)});
          rows.emplace_back((at.size() > 1 ? begin.string() : "") + t.key, layer);
        }
    for (const Json::Member& t : m.find("others")->object()) {
      tensors.push_back({t.key, shape_of(t.value)});
      rows.emplace_back(t.key, 0);
    }
    for (const Json::Member& mix : m.find("mixes")->object()) {
      ASSERT_NE(find_mix(mix.key), nullptr) << mix.key;
      const std::vector<MixedType> got = mixed_types(*find_mix(mix.key), model, tensors);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Json* row = mix.value.find(rows[i].first);
        EXPECT_EQ(got[i].quantized, row != nullptr) << mix.key << " " << tensors[i].name;
        if (!row) continue;
        const std::string& letters = row->string();
        const std::string letter(1, letters.size() == 1 ? letters[0] : letters[rows[i].second]);
        const std::string& want = golden.find("types")->find(letter)->string();
        EXPECT_EQ(name_of(got[i].got), want) << mix.key << " " << tensors[i].name;
        seen.insert(got[i].got);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 50000);
  EXPECT_EQ(seen.size(), 13u);  // every block type that is made
}

TEST(QuantMix, Names) {
  std::set<std::string> names;
  for (const QuantMix& mix : quant_mixes()) {
    EXPECT_TRUE(names.insert(mix.name).second) << mix.name;
    EXPECT_EQ(find_mix(mix.name), &mix);
    EXPECT_TRUE(is_made(mix.type));
  }
  EXPECT_STREQ(find_mix("Q4_K")->name, "q4_k_m");
  EXPECT_STREQ(find_mix("q3_k")->name, "q3_k_m");
  EXPECT_EQ(find_mix("q4_k_l"), nullptr);
  EXPECT_EQ(find_mix("iq2_xs"), nullptr);
  EXPECT_EQ(find_mix(""), nullptr);
  EXPECT_EQ(find_mix("f16"), nullptr);
  EXPECT_STREQ(mix_of(DType::q2_k).name, "q2_k");
  EXPECT_THROW(mix_of(DType::iq1_s), Error);
}

TEST(QuantMix, WhatLlamaCppHasNoAnswerFor) {
  // Rows that no block fits: f16. Every matrix in mxfp4; a matrix of one row; our own names.
  EXPECT_EQ(fitting_type(DType::q4_k, 80), DType::f16);
  EXPECT_EQ(fitting_type(DType::iq4_nl, 48), DType::f16);
  EXPECT_EQ(fitting_type(DType::mxfp4, 31), DType::f16);
  EXPECT_EQ(fitting_type(DType::iq4_xs, 96), DType::iq4_nl);
  const std::vector<MixedTensor> tensors = {{"decoder.0.self.v.weight", {64, 256}},
                                            {"decoder.0.ffn.down.weight", {64, 256}},
                                            {"decoder.0.ffn.up.weight", {64, 256}},
                                            {"decoder.0.self.norm.bias", {64}},
                                            {"embed.tokens", {99, 256}},
                                            {"one.weight", {1, 256}},
                                            {"blk.0.attn_q.weight", {64, 256}, false}};
  const auto types = [&](const char* mix) {
    std::string out;
    for (const MixedType& t : mixed_types(*find_mix(mix), {.arch = "rapt"}, tensors))
      out += t.quantized ? std::string(name_of(t.got)) + " " : "- ";
    return out;
  };
  EXPECT_EQ(types("mxfp4"), "mxfp4 mxfp4 mxfp4 - q6_k - - ");
  EXPECT_EQ(types("q4_k_m"), "q6_k q6_k q4_k - q6_k - - ");
}

}  // namespace
}  // namespace rapt
