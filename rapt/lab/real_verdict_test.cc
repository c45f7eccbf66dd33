// SPDX-License-Identifier: Apache-2.0
// Experiments on real models, on small ones into which what they look for was planted, or was not: findings
// and verdicts turn with it.
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/lab/real_heads.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kWidth = 64, kVocab = 64;

Recipe small_recipe(bool gated = false) {
  AttnRecipe a{.heads = 2, .head_dim = 32};
  a.pos.kind = PosRecipe::Kind::rope;
  if (gated) a.gate.push_back({});
  LayerRecipe layer;
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = a});
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = FfnRecipe{.width = 64}});
  Recipe r;
  r.name = "small";
  r.width = kWidth;
  r.vocab = kVocab;
  r.context = 512;
  r.init.std = 0.1;
  r.decoder = StackRecipe{.layers = 3, .kinds = {{"L", layer}}, .final_norm = NormRecipe{}};
  return r;
}

// A model whose tokens are drawn; `plant` changes its weights.
RealSubject subject(Device& device, const Recipe& recipe, const std::function<void(Model&)>& plant = {}) {
  RealSubject s{.name = "small", .vocab = kVocab};
  s.open = [&device, recipe, plant](std::optional<DType>) {
    Checkpoint c;
    c.model = std::make_unique<Model>(recipe, device.real);
    init(*c.model, 7);
    if (plant) plant(*c.model);
    return c;
  };
  for (Dim i = 0; i < 700; ++i) s.prose.push_back(static_cast<std::int32_t>(1 + (i * i + 3 * (i / 7)) % 63));
  const auto piece = [&](Dim from) { return TokenIds(s.prose.begin() + from, s.prose.begin() + from + 128); };
  s.texts = {{"one", RealText::Kind::natural, piece(0)},
             {"two", RealText::Kind::natural, piece(200)},
             {"random", RealText::Kind::random, piece(400)},
             {"repeated", RealText::Kind::repeated, TokenIds(128, 5)}};
  for (RealText& t : s.texts)
    if (t.kind == RealText::Kind::natural) t.ids[0] = 0;
  s.tokens = 256;
  return s;
}

// Token 0, which begins texts, gets a huge number in one channel from the start.
void plant_massive(Model& model) {
  for (Weight& w : model.weights)
    if (w.name == "embed.tokens") w.set(0, 11, 4000);
}

// Whatever the text: 100 windows of the small model's prose begin with token 0.
RealSubject begun(Device& device, const std::function<void(Model&)>& plant = {}) {
  RealSubject s = subject(device, small_recipe(), plant);
  s.before = {0};
  return s;
}

bool says(const LabResult& r, std::string_view words) { return r.verdict.find(words) != std::string::npos; }

TEST(RealLab, APlantedMassiveChannelIsFound) {
  Device device({.threads = 2});
  const Lab lab{.device = device};
  const LabResult with = real_massive(lab, begun(device, plant_massive)),
                  without = real_massive(lab, begun(device));
  EXPECT_TRUE(with.findings[0].holds) << with.verdict;
  EXPECT_NEAR(with.findings[1].measured, 1, 1e-9) << "the same channel in every text";
  EXPECT_TRUE(says(with, "has massive activations: channel 11 is 4,00")) << with.verdict;
  EXPECT_FALSE(without.findings[0].holds);
  EXPECT_TRUE(says(without, "Nothing in small meets the criterion")) << without.verdict;
  EXPECT_NE(with.verdict.in(Language::zh), std::string(with.verdict));
  // A constant set to its mean changes nothing; the norm of the first row has only that number, so without it
  // the row is another one.
  EXPECT_NEAR(with.findings[3].measured, 1, 1e-4);
  EXPECT_GT(std::abs(with.findings[2].measured - 1), 10 * std::abs(with.findings[3].measured - 1));
}

// A head is called after what it does beyond equal weights only.
TEST(RealLab, KindsAreMeasuredAgainstEqualWeights) {
  HeadMetrics m, twice;
  m.sink = 0.9, m.even_sink = 0.05, m.distance = 40;
  EXPECT_EQ(kind_of(m, 50, twice), HeadKindName::sink);
  m.even_sink = 0.8;  // a text of two tokens: equal weights give nearly as much
  EXPECT_EQ(kind_of(m, 50, twice), HeadKindName::none);
  m.distance = 5;
  EXPECT_EQ(kind_of(m, 50, twice), HeadKindName::local);
  twice.induction = 0.95, twice.even_induction = 0.9;
  EXPECT_EQ(kind_of(m, 50, twice), HeadKindName::local);
  twice.even_induction = 0.02;
  EXPECT_EQ(kind_of(m, 50, twice), HeadKindName::induction);
  m.label = "uniform 0.97";
  EXPECT_EQ(kind_of(m, 50, twice), HeadKindName::uniform);
}

TEST(RealLab, HeadsOfAModelWithoutQueriesAreUniform) {
  Device device({.threads = 2});
  const Lab lab{.device = device};
  const RealSubject s = subject(device, small_recipe(), [](Model& model) {
    for (Weight& w : model.weights)
      if (w.name.ends_with("q.weight"))
        for (Dim r = 0; r < w.rows; ++r)
          for (Dim c = 0; c < w.cols; ++c) w.set(r, c, 0);
  });
  const LabResult r = real_heads(lab, s);
  EXPECT_TRUE(says(r, "6 uniform; 0 have no name")) << r.verdict;
  // All keys stand behind an earlier one of their kind: raw weights call every head induction.
  EXPECT_TRUE(says(r, "raw weights call 6 heads induction, against equal weights 0")) << r.verdict;
}

TEST(RealLab, OneTokenRepeatedHasNoSink) {
  Device device({.threads = 2});
  const Lab lab{.device = device};
  const LabResult plain = real_sink(lab, subject(device, small_recipe()));
  EXPECT_TRUE(plain.findings[2].holds);
  EXPECT_EQ(plain.findings[2].measured, 0);
  EXPECT_TRUE(says(plain, "has no sink heads")) << plain.verdict;
}

TEST(RealLab, APlantedChannelCostsInt8) {
  Device device({.threads = 2});
  const Lab lab{.device = device};
  // A channel of what layers read that is large at every token, by the gains of the norms.
  const auto plant = [](Model& model) {
    for (Weight& w : model.weights)
      if (w.name.find("norm") != std::string::npos && w.cols == kWidth) w.set(0, 9, 400);
  };
  const LabResult with = real_quant(lab, subject(device, small_recipe(), plant)),
                  without = real_quant(lab, subject(device, small_recipe()));
  // Rows: nothing, a step per tensor, massive tokens kept, columns kept. An untrained model may also say less
  // wrong things for being rounded: how far its loss moves is what counts.
  const auto moved = [](const LabResult& r, std::size_t row) {
    for (const auto& part : r.document.parts)
      if (const Table* t = std::get_if<Table>(&part)) return std::abs(t->rows[row][3].number);
    return std::nan("");
  };
  EXPECT_LT(moved(without, 1), 0.02);
  EXPECT_GT(moved(with, 1), 0.2);
  EXPECT_GT(moved(with, 2), 0.2) << "the channel is large at every token";
  EXPECT_LT(moved(with, 3), 0.02) << "columns kept";
  EXPECT_TRUE(says(without, "costs this model little")) << without.verdict;
}

TEST(RealLab, GatesAreSeenAndMissed) {
  Device device({.threads = 2});
  const Lab lab{.device = device};
  const auto shut = [](Model& model) {
    for (Weight& w : model.weights)
      if (w.name.ends_with("gate_sdpa.weight"))
        for (Dim r = 0; r < w.rows; ++r)
          for (Dim c = 0; c < w.cols; ++c) w.set(r, c, 3 * w.get(r, c));
  };
  const LabResult open = real_gate(lab, subject(device, small_recipe(true))),
                  wide = real_gate(lab, subject(device, small_recipe(true), shut));
  EXPECT_NEAR(open.findings[0].measured, 0.5, 0.1);
  EXPECT_TRUE(says(open, "These gates are not sparse")) << open.verdict;
  EXPECT_GT(wide.findings[1].measured, open.findings[1].measured);
  try {
    real_gate(lab, subject(device, small_recipe()));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("has no gates"), std::string::npos) << e.what();
  }
}

TEST(RealLab, StreamingVerdictFollowsTheNumbers) {
  StreamingReport r{.tokens = 4096, .samples = 100, .window = 252};
  const auto row = [](Dim keep, double perplexity) {
    StreamingRow x{.keep = keep, .nll = std::log(perplexity), .perplexity = perplexity};
    for (int i = 0; i < 3; ++i) x.pages[i] = 8, x.bytes[i] = 1 << 20, x.token_seconds[i] = 0.01;
    return x;
  };
  r.rows = {row(0, 60), row(1, 20), row(4, 19.9)};
  const LabResult needed = streaming_result(r, "m");
  EXPECT_TRUE(needed.findings[0].holds && says(needed, "3.02 times less")) << needed.verdict;
  EXPECT_TRUE(says(needed, "too much here"));
  r.rows = {row(0, 20), row(1, 20), row(4, 19.9)};
  const LabResult spare = streaming_result(r, "m");
  EXPECT_FALSE(spare.findings[0].holds);
  EXPECT_TRUE(says(spare, "hardly needs its first tokens")) << spare.verdict;
  r.rows = {row(0, 60), row(1, 30), row(4, 20)};
  EXPECT_TRUE(says(streaming_result(r, "m"), "One token does not do"));
}

}  // namespace
}  // namespace rapt
