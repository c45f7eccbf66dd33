// SPDX-License-Identifier: Apache-2.0
// Latent attention in whole models: what can be seen inside against keys and values formed head by head, what
// the cache keeps, and its files, whose matrices of heads lie turned.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "rapt/inspect/attention_map.h"
#include "rapt/inspect/capture.h"
#include "rapt/load/checkpoint.h"
#include "rapt/load/model_folder.h"
#include "rapt/nn/size.h"
#include "rapt/ops/op_test.h"
#include "tests/model_tools.h"
#include "tests/naive_model.h"
#include "tests/tools.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

// 3 heads of 8 + 4 channels, a latent of 10, queries of one of 9.
Recipe latent_decoder(Dim rank = 10, Dim q_rank = 9, Dim nope = 8, Dim turned = 4) {
  AttnRecipe a{.heads = 3, .head_dim = nope + turned, .v_dim = 7};
  a.pos = {.kind = PosRecipe::Kind::rope, .rope = {.layout = RopeLayout::pairs}};
  a.latent = LatentRecipe{.rank = rank, .q_rank = q_rank, .rope_dim = turned};
  LayerRecipe layer;
  layer.parts = {{.norm_in = NormRecipe{}, .body = a},
                 {.norm_in = NormRecipe{}, .body = FfnRecipe{.width = 20}}};
  Recipe r;
  r.name = "latent", r.width = 24, r.vocab = 31, r.context = 64;
  r.decoder = StackRecipe{.layers = 2, .kinds = {{"L", layer}}, .final_norm = NormRecipe{}};
  return resolve(r);
}

struct LatentWorld {
  Device device{{.threads = 2}};
  Model model;
  std::vector<std::int32_t> tokens;
  explicit LatentWorld(const Recipe& r) : model(r, device.real) {
    randomise(model, 3);
    const Dim length = 13;
    tokens = some_texts(model.recipe, {&length, 1}, 5)[0].tokens;
  }
};

TEST(Latent, PointsHaveTheShapesOfTheirNames) {
  LatentWorld w(latent_decoder());
  const std::vector<std::string> names = {"q_latent.0",    "latent.0",      "q.0", "k.0",
                                          "attn_q.0",      "attn_k.0",      "z.0", "attn_out.0",
                                          "attn_scores.0", "attn_weights.0"};
  const Capture c = capture(w.device, w.model, ask_points(w.model, names), w.tokens, {}, {});
  const std::vector<std::vector<Dim>> shapes = {{13, 9},     {13, 10},    {13, 3, 12}, {13, 1, 14},
                                                {13, 3, 14}, {13, 1, 14}, {13, 3, 7},  {13, 24},
                                                {3, 13, 13}, {3, 13, 13}};
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(c.of(names[i]).shape, shapes[i]) << names[i];
  // The latent is the beginning of every key.
  for (std::size_t t = 0; t < 13; ++t)
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_EQ(c.of("attn_k.0").values[t * 14 + i], c.of("latent.0").values[t * 10 + i]);
  // Weights are the softmax of scores.
  const std::vector<float>&z = c.of("attn_scores.0").values, &p = c.of("attn_weights.0").values;
  for (std::size_t r = 0; r < 39; ++r) {
    double sum = 0;
    for (std::size_t j = 0; j < 13; ++j) sum += std::exp(static_cast<double>(z[r * 13 + j]));
    for (std::size_t j = 0; j < 13; ++j)
      EXPECT_NEAR(p[r * 13 + j], std::exp(static_cast<double>(z[r * 13 + j])) / sum, 1e-6);
  }
  for (const char* name : {"value.0", "attn_v.0", "rot_q.0", "k_norm_out.0"})
    EXPECT_THROW(ask_points(w.model, std::vector<std::string>{name}), Error) << name;
  LatentWorld plain(latent_decoder(10, 0));
  EXPECT_THROW(ask_points(plain.model, std::vector<std::string>{"q_latent.0"}), Error);
}

// Rows of the map, computed anew from what each layer read, against keys formed head by head.
TEST(Latent, MapsEqualThoseOfExpandedKeys) {
  for (const Dim q_rank : {Dim{0}, Dim{9}}) {
    LatentWorld w(latent_decoder(10, q_rank));
    NaiveWeights expected;
    naive_forward(w.model, {w.tokens, {}, {}, 0}, &expected);
    const AttentionRecord record(w.device, w.model, w.tokens);
    std::vector<Dim> rows(13);
    std::iota(rows.begin(), rows.end(), 0);
    for (const AttentionPlace& place : record.places()) {
      const std::vector<double>& want = expected.at(concat("decoder.", place.layer, ".self"));
      record.rows(place, -1, rows, [&](Dim row, int head, std::span<const float> weights) {
        for (std::size_t j = 0; j < weights.size(); ++j)
          EXPECT_NEAR(weights[j], want[static_cast<std::size_t>((head * 13 + row) * 13) + j], 2e-6);
      });
    }
  }
}

TEST(Latent, TheCacheKeepsTheLatentAndTheSharedKey) {
  const Recipe r = latent_decoder();
  EXPECT_EQ(count_cost(r, 32).kv_values, 2 * (10 + 4));
  EXPECT_EQ(count_parameters(r).total, 31 * 24 * 2 + 24 +
                                           2 * (24 + (9 * 24 + 9) + 9 * 3 * 12 + (14 * 24 + 10) +
                                                3 * 10 * (8 + 7) + 3 * 7 * 24 + 24 + 3 * 20 * 24));
}

// A GGUF with one matrix for keys and values (MiniCPM3), in blocks: keys are turned as numbers, values stay.
TEST(Latent, TurnedMatricesSurviveFilesAndBlocks) {
  Recipe r = latent_decoder(64, 32, 32, 32);
  for (PartRecipe& p : r.decoder->kinds.at("L").parts)
    if (AttnRecipe* a = p.self()) a->pos.rope.layout = RopeLayout::halves, a->v_dim = 8;
  r.head.tied = true;
  LatentWorld w(resolve(r));
  const TempFolder temp;
  write_model_folder(w.model, {}, temp / "folder", false);
  const Dim length = 13;
  const std::vector<SomeText> texts = {{.tokens = w.tokens}};
  const std::vector<double> exact = logits_of(w.device, w.model, texts);
  const auto distance = [&](const Checkpoint& c) {
    return nmse(logits_of(w.device, *c.model, texts), exact);
  };
  EXPECT_EQ(static_cast<Dim>(w.tokens.size()), length);
  const Checkpoint folder = open_checkpoint(temp / "folder", {.device = &w.device});
  EXPECT_EQ(folder.family, "minicpm3");
  EXPECT_EQ(distance(folder), 0);
  write_checkpoint(temp / "folder", temp / "plain.gguf", {});
  EXPECT_EQ(distance(open_checkpoint(temp / "plain.gguf", {.device = &w.device})), 0);
  write_checkpoint(temp / "folder", temp / "blocks.gguf", {.type = DType::q8_0});
  const Checkpoint blocks = open_checkpoint(temp / "blocks.gguf", {.device = &w.device});
  EXPECT_EQ(blocks.model->weight("decoder.0.self.k.heads.1.weight").format, DType::f16);
  EXPECT_EQ(blocks.model->weight("decoder.0.self.v.heads.1.weight").format, DType::q8_0);
  EXPECT_LE(distance(blocks), 1e-3);
  write_checkpoint(temp / "blocks.gguf", temp / "back", {});
  EXPECT_LE(distance(open_checkpoint(temp / "back", {.device = &w.device})), 1e-3);
}

}  // namespace
}  // namespace rapt::test
