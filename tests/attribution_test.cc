// SPDX-License-Identifier: Apache-2.0
// Edits of attention weights and scores, direct logit attribution, activation patching and gradients at
// points: by value against TransformerLens (tests/golden/make_attribution.py), and by the rules they must
// keep.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "rapt/inspect/attribution.h"
#include "rapt/inspect/capture.h"
#include "rapt/inspect/edits.h"
#include "rapt/inspect/patching.h"
#include "rapt/inspect/point_gradients.h"
#include "rapt/io/npy.h"
#include "tests/memory_checkpoint.h"
#include "tests/toy_checkpoint.h"

namespace rapt {
namespace {

using test::error_of;
using test::holds;

const Json& goldens() {
  static const Json all = [] {
    const std::string path = std::string(RAPT_SOURCE_DIR) + "/tests/golden/use/attribution.json";
    return parse_json(read_text_file(path), path);
  }();
  return all;
}

Capture capture_of(Device& device, const Model& model, const std::vector<std::string>& names, Ids ids,
                   const std::vector<std::string>& edits = {}, Ids source = {}) {
  Taps taps;
  const auto check = install_edits(taps, model, parse_edits(edits));
  Capture out = capture(device, model, ask_points(model, names), ids, source, {.taps = &taps});
  check();
  return out;
}

void expect_close(double got, double want, const std::string& where) {
  EXPECT_NEAR(got, want, 1e-4 * std::max(1.0, std::abs(want))) << where;
}

const std::vector<std::int32_t> kIds = {3, 8, 11, 2, 30, 7, 8};

// ------------------------------------------------------------------------------------- edits of attention
TEST(AttentionEdits, EqualTransformerLens) {
  for (const Json& c : goldens().find("cases")->array()) {
    Device device({.threads = 1});
    const std::string name = c.find("toy")->string();
    const Checkpoint toy = test::open_toy(name, device);
    const std::vector<std::int32_t> ids = test::ids_of(*c.find("tokens")),
                                    other = test::ids_of(*c.find("other"));
    const test::TempFolder folder;
    for (const Json& e : c.find("edits")->array()) {
      std::string text = e.find("edit")->string();
      if (text.ends_with("=other")) {
        const std::string point = "attn_weights.1";
        const Captured held = capture_of(device, *toy.model, {point}, other).tensors[0];
        const Dim T = held.shape[1];
        const bool one = text.find("@h2") != std::string::npos;
        NpyWriter file(folder / "other.npy", one ? std::vector<Dim>{T, T} : held.shape, true);
        file.write(one ? std::span(held.values)
                             .subspan(static_cast<std::size_t>(2 * T * T), static_cast<std::size_t>(T * T))
                       : std::span(held.values));
        file.commit();
        text.replace(text.size() - 5, 5, folder / "other.npy");
      }
      const Captured logits = capture_of(device, *toy.model, {"logits"}, ids, {text}).tensors[0];
      const Json::Array& want = e.find("logits")->array();
      const std::size_t first = logits.values.size() - want.size();
      for (std::size_t i = 0; i < want.size(); ++i)
        expect_close(static_cast<double>(logits.values[first + i]), want[i].number(), name + " " + text);
    }
  }
}

// Every kind of attention: the changed row is the sum of changed weights times values, all others keep their
// bits, and so do rows of a pattern that is what it was.
TEST(AttentionEdits, ChangeTheirRowsAndNoOthers) {
  for (const char* name : {"gpt2", "llama3.1", "gemma2", "mistral", "gpt-oss", "bloom", "mpt", "gptj", "bert",
                           "cohere2", "gemma3", "qwen2"}) {
    Device device({.threads = 2});
    const Checkpoint toy = test::open_toy(name, device);
    const Model& model = *toy.model;
    std::vector<std::int32_t> ids;
    const Dim length = std::min<Dim>(80, model.recipe.context), q = length - 9;  // over a block of keys
    for (Dim i = 0; i < length; ++i) ids.push_back(static_cast<std::int32_t>((i * 7 + 3) % 60));
    const std::vector<std::string> points = {"attn_weights.1", "attn_v.1", "z.1"};
    const Capture plain = capture_of(device, model, points, ids);
    const std::vector<std::string> edits = {concat("attn_weights.1@h1@p", q, "@k", q - 1, ":scale=3"),
                                            concat("attn_weights.1@h1@p", q, "@k", q, ":zero")};
    const Capture got = capture_of(device, model, points, ids, edits);
    const Captured &w = got.of("attn_weights.1"), &v = plain.of("attn_v.1"), &z = got.of("z.1"),
                   &was = plain.of("z.1"), &had = plain.of("attn_weights.1");
    const Dim T = w.shape[1], H = w.shape[0], K = v.shape[1], D = v.shape[2];
    const auto weight = [&](const Captured& x, Dim h, Dim row, Dim k) {
      return static_cast<double>(x.values[static_cast<std::size_t>((h * T + row) * T + k)]);
    };
    EXPECT_EQ(weight(w, 1, q, q), 0) << name;
    EXPECT_NEAR(weight(w, 1, q, q - 1), 3 * weight(had, 1, q, q - 1), 1e-6) << name;
    EXPECT_GT(weight(had, 1, q, q), 0) << name;
    for (Dim row = 0; row < T; ++row)
      for (Dim h = 0; h < H; ++h) {
        const auto at = static_cast<std::size_t>((row * H + h) * D);
        if (h != 1 || row != q) {
          EXPECT_EQ(std::memcmp(&z.values[at], &was.values[at], static_cast<std::size_t>(D) * sizeof(float)),
                    0)
              << name << " head " << h << " row " << row;
          continue;
        }
        for (Dim d = 0; d < D; ++d) {
          double sum = 0;
          for (Dim k = 0; k < T; ++k)
            sum += weight(w, h, row, k) *
                   static_cast<double>(v.values[static_cast<std::size_t>((k * K + h / (H / K)) * D + d)]);
          EXPECT_NEAR(static_cast<double>(z.values[at + static_cast<std::size_t>(d)]), sum, 2e-5) << name;
        }
      }
    const test::TempFolder folder;
    write_capture(capture_of(device, model, {"attn_weights.1"}, ids), folder / "own.npy", false);
    EXPECT_EQ(capture_of(device, model, {"logits"}, ids, {"attn_weights.1:replace=" + (folder / "own.npy")})
                  .tensors[0]
                  .values,
              capture_of(device, model, {"logits"}, ids).tensors[0].values)
        << name;
    // Its own pattern twice as heavy, then half: the sums in plain order are those of the fused kernel.
    const Capture again =
        capture_of(device, model, {"z.1"}, ids, {"attn_weights.1:scale=2", "attn_weights.1:scale=0.50001"});
    for (std::size_t i = 0; i < was.values.size(); ++i)
      EXPECT_NEAR(static_cast<double>(again.tensors[0].values[i]), static_cast<double>(was.values[i]), 2e-4);
  }
}

// What the softmax loses in one key the others gain; an extra logit keeps its part.
TEST(AttentionEdits, MaskedKeysAreAsIfTheyWereNotThere) {
  for (const char* name : {"gpt2", "gpt-oss", "gemma2", "bloom"}) {
    Device device({.threads = 1});
    const Checkpoint toy = test::open_toy(name, device);
    const std::vector<std::string> points = {"attn_weights.1", "attn_stats"};
    const Captured plain = capture_of(device, *toy.model, {"attn_weights.1"}, kIds).tensors[0],
                   got = capture_of(device, *toy.model, {"attn_weights.1"}, kIds,
                                    {"attn_scores.1@h2@p5@k4:mask"})
                             .tensors[0];
    const std::size_t row = (2 * 7 + 5) * 7;
    double before = 0, after = 0;
    for (std::size_t k = 0; k < 7; ++k) {
      before += static_cast<double>(plain.values[row + k]), after += static_cast<double>(got.values[row + k]);
    }
    const double gone = static_cast<double>(plain.values[row + 4]), rest = 1 - gone;
    EXPECT_GT(gone, 0.001) << name;
    EXPECT_EQ(got.values[row + 4], 0) << name;
    for (const std::size_t k : {std::size_t{3}, std::size_t{5}})
      EXPECT_NEAR(static_cast<double>(got.values[row + k]), static_cast<double>(plain.values[row + k]) / rest,
                  1e-5)
          << name;
    EXPECT_NEAR(after, (before - gone) / rest, 1e-5) << name;
    // A row without keys gives zeros.
    const Capture none = capture_of(device, *toy.model, {"z.1"}, kIds, {"attn_scores.1@h2@p5:mask"});
    const Captured& z = none.tensors[0];
    for (Dim d = 0; d < z.shape[2]; ++d)
      EXPECT_EQ(z.values[static_cast<std::size_t>((5 * z.shape[1] + 2) * z.shape[2] + d)], 0) << name;
  }
}

TEST(AttentionEdits, StatisticsAreThoseOfTheChangedRows) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("llama3.1", device);
  Taps taps;
  const auto check = install_edits(taps, *toy.model, std::vector{parse_edit("attn_scores.0@h1@p4@k0:mask")});
  std::vector<double> stats, weights;
  taps.see(site::attn_stats, [&](const Tapped& t) {
    if (t.layer != 0) return;
    for (int i = 0; i < AttentionStat::count; ++i)
      stats.push_back(t.value.at((4 * 4 + 1) * AttentionStat::count + i));
  });
  taps.want_weights(
      site::attn_weights,
      [](const Tapped& t) {
        return t.layer == 0 ? std::vector<Taps::HeadRow>{{1, 4}} : std::vector<Taps::HeadRow>{};
      },
      [&](const Tapped& t) {
        for (Dim i = 0; i < t.value.elements(); ++i) weights.push_back(t.value.at(i));
      });
  look(device, *toy.model, taps, kIds);
  check();
  ASSERT_EQ(weights.size(), 7u);
  double entropy = 0, distance = 0, sum = 0;
  for (std::size_t k = 0; k < 5; ++k) {
    if (weights[k] > 0) entropy -= weights[k] * std::log(weights[k]);
    distance += weights[k] * static_cast<double>(4 - k);
    sum += weights[k];
  }
  EXPECT_EQ(weights[0], 0);
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_NEAR(stats[AttentionStat::entropy], entropy, 1e-5);
  EXPECT_NEAR(stats[AttentionStat::distance], distance, 1e-5);
  EXPECT_NEAR(stats[AttentionStat::self], weights[4], 1e-6);
  EXPECT_NEAR(stats[AttentionStat::previous], weights[3], 1e-6);
  EXPECT_NEAR(stats[AttentionStat::first], weights[1] + weights[2] + weights[3], 1e-6);  // of the first four
  EXPECT_NEAR(stats[AttentionStat::sum], 1, 1e-6);
}

TEST(AttentionEdits, OfLatentAndSlidingAttentionAndOfAMemory) {
  Device device({.threads = 1});
  // Latent attention: taking all weights away leaves nothing; taking none changes no bit.
  const Checkpoint latent = test::open_toy("deepseek-v2-lite", device);
  const Captured none =
                     capture_of(device, *latent.model, {"z.1"}, kIds, {"attn_weights.1@h1:zero"}).tensors[0],
                 plain = capture_of(device, *latent.model, {"z.1"}, kIds).tensors[0];
  for (Dim r = 0; r < none.shape[0]; ++r)
    for (Dim h = 0; h < none.shape[1]; ++h)
      for (Dim d = 0; d < none.shape[2]; ++d) {
        const auto at = static_cast<std::size_t>((r * none.shape[1] + h) * none.shape[2] + d);
        if (h == 1) EXPECT_EQ(none.values[at], 0);
        else EXPECT_EQ(none.values[at], plain.values[at]);
      }
  const Captured twice =
      capture_of(device, *latent.model, {"z.1"}, kIds, {"attn_weights.1@h1:scale=2"}).tensors[0];
  for (Dim d = 0; d < none.shape[2]; ++d) {
    const auto at = static_cast<std::size_t>((3 * none.shape[1] + 1) * none.shape[2] + d);
    EXPECT_NEAR(static_cast<double>(twice.values[at]), 2 * static_cast<double>(plain.values[at]),
                1e-4 * std::max(1.0, std::abs(static_cast<double>(plain.values[at]))));
  }
  // Cross-attention: keys are those of the source.
  const Checkpoint pair = test::open_toy("t5", device);
  const std::vector<std::int32_t> source = {4, 9, 17, 22, 5};
  const Captured cross = capture_of(device, *pair.model, {"decoder.cross_attn_weights.1"}, kIds,
                                    {"decoder.cross_attn_weights.1@h1@p2@k4:replace=0.5"}, source)
                             .tensors[0];
  EXPECT_EQ(cross.shape, (std::vector<Dim>{4, 7, 5}));
  EXPECT_EQ(cross.values[(1 * 7 + 2) * 5 + 4], 0.5f);
  EXPECT_TRUE(holds(error_of([&] {
                      capture_of(device, *pair.model, {"logits"}, kIds,
                                 {"decoder.cross_attn_weights.1@k5:zero"}, source);
                    }),
                    "has keys 0 to 4"));
  // A window: keys that left it are not there to be changed.
  const Checkpoint window = test::open_toy("mistral", device);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back((i * 7 + 3) % 60);
  EXPECT_TRUE(holds(
      error_of([&] { capture_of(device, *window.model, {"logits"}, ids, {"attn_weights.1@p-1@k0:zero"}); }),
      "touched nothing"));
}

TEST(AttentionEdits, MistakesAreToldApart) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const test::TempFolder folder;
  NpyWriter future(folder / "future.npy", {4, 7, 7}, false);
  future.write(std::vector<float>(4 * 7 * 7, 0.1f));
  future.commit();
  NpyWriter shape(folder / "shape.npy", {4, 6, 6}, false);
  shape.write(std::vector<float>(4 * 6 * 6, 0.0f));
  shape.commit();
  for (const auto& [edit, words] : std::vector<std::pair<std::string, std::string>>{
           {"attn_weights.1@3@-1@k0:mask", "mask takes a key away before the softmax"},
           {"z.1:mask", "has none"},
           {"z.1@k0:zero", "has no keys"},
           {"attn_weights.1@c3:zero", "has keys, no channels"},
           {"attn_weights.1:mean", "takes zero, scale, add and replace"},
           {"attn_weights.1@4:zero", "there is no head '4' at attn_weights.1; it has 4"},
           {"attn_weights.1@h1@p7:zero", "positions 0 to 6"},
           {"attn_weights.1@h1@p6@k7:zero", "keys 0 to 6"},
           {"attn_weights.1@h1@p6@k5..3:zero", "keys 0 to 6"},
           {"attn_weights.1@h1@p2@k5:zero", "touched nothing"},
           {"attn_weights.1@h1@p2@first:zero", "is no key"},
           {"attn_weights.1:replace=" + (folder / "future.npy"), "which it does not see"},
           {"attn_weights.1:replace=" + (folder / "shape.npy"), "a tensor of just this shape"}})
    EXPECT_TRUE(holds(error_of([&] { capture_of(device, *toy.model, {"logits"}, kIds, {edit}); }), words))
        << edit << ": " << error_of([&] { capture_of(device, *toy.model, {"logits"}, kIds, {edit}); });
  const Json json =
      parse_json(R"({"point": "attn_scores.1", "head": 2, "pos": -1, "key": "0..2", "op": "mask"})", "");
  Taps taps;
  const auto check = install_edits(taps, *toy.model, std::vector{read_edit(json)});
  const Capture by_json =
      capture(device, *toy.model, ask_points(*toy.model, std::vector<std::string>{"logits"}), kIds, {},
              {.taps = &taps});
  check();
  EXPECT_EQ(
      by_json.tensors[0].values,
      capture_of(device, *toy.model, {"logits"}, kIds, {"attn_scores.1@2@-1@k0..2:mask"}).tensors[0].values);
}

// ------------------------------------------------------------------------------------------- attribution
TEST(Attribution, EqualsTransformerLens) {
  for (const Json& c : goldens().find("cases")->array()) {
    Device device({.threads = 1});
    const std::string name = c.find("toy")->string();
    const Checkpoint toy = test::open_toy(name, device);
    const Metric metric{.kind = Metric::Kind::difference,
                        .token = static_cast<std::int32_t>(c.find("right")->integer()),
                        .other = static_cast<std::int32_t>(c.find("wrong")->integer())};
    const Attribution a = attribution(device, *toy.model, metric, test::ids_of(*c.find("tokens")));
    const Json& want = *c.find("attribution");
    expect_close(a.logit, want.find("logit")->number(), name);
    std::size_t found = 0;
    for (const Contribution& p : a.parts) {
      std::string theirs = p.name == "embeddings"       ? "embed"
                           : p.name == "pos_embeddings" ? "pos_embed"
                           : p.name.starts_with("attn") ? concat(p.layer, "_attn_out")
                                                        : concat(p.layer, "_mlp_out");
      if (p.name.ends_with(".bias")) continue;
      const Json* value = want.find("parts")->find(theirs);
      ASSERT_TRUE(value) << theirs;
      expect_close(p.value, value->number(), name + " " + theirs);
      ++found;
    }
    EXPECT_EQ(found, want.find("parts")->object().size());
    found = 0;
    for (const Contribution& h : a.heads) {
      if (h.head < 0) continue;
      expect_close(h.value, want.find("heads")->find(h.name)->number(), name + " " + h.name);
      ++found;
    }
    EXPECT_EQ(found, want.find("heads")->object().size());
  }
}

TEST(Attribution, PartsAddUpToTheLogitAndHeadsToTheirPart) {
  for (const char* name : {"gpt2", "llama3.1", "gemma2", "gemma3", "qwen3", "gpt-oss", "bloom", "gptj",
                           "mixtral", "deepseek-v2-lite", "olmo2", "t5", "granite", "cohere2", "phi3",
                           "falcon", "qwen3-next", "lfm2", "minicpm"}) {
    Device device({.threads = 1});
    const Checkpoint toy = test::open_toy(name, device);
    const bool pair = toy.model->encoder && toy.model->decoder;
    const std::vector<std::int32_t> source =
        pair ? std::vector<std::int32_t>{4, 9, 17, 22, 5} : std::vector<std::int32_t>{};
    for (const Metric& metric : {Metric{}, Metric{.token = 5, .position = 2},
                                 Metric{.kind = Metric::Kind::difference, .token = 5, .other = 9}}) {
      const Attribution a = attribution(device, *toy.model, metric, kIds, source);
      double size = 1;
      for (const Contribution& p : a.parts) size = std::max(size, std::abs(p.value));
      EXPECT_LE(std::abs(a.rest), 1e-4 * size) << name;
      const Captured logits =
          capture(device, *toy.model, ask_points(*toy.model, std::vector<std::string>{"lm_head", "logits"}),
                  kIds, source)
              .of("lm_head");
      const std::size_t row = static_cast<std::size_t>(a.metric.position * toy.model->recipe.vocab);
      double logit = static_cast<double>(logits.values[row + static_cast<std::size_t>(a.metric.token)]);
      if (a.metric.other >= 0)
        logit -= static_cast<double>(logits.values[row + static_cast<std::size_t>(a.metric.other)]);
      EXPECT_NEAR(a.logit, logit, 1e-5 * size) << name;
      for (const Contribution& p : a.parts) {
        double sum = 0;
        bool heads = false;
        for (const Contribution& h : a.heads)
          if (h.layer == p.layer && h.cross == p.cross && h.number == p.number && p.layer >= 0 &&
              p.name.find("attn_out") != std::string::npos)
            sum += h.value, heads = true;
        if (heads) {
          EXPECT_NEAR(sum, p.value, 1e-4 * size) << name << " " << p.name;
        }
      }
      if (metric.kind == Metric::Kind::logit && metric.token < 0)
        for (Dim v = 0; v < toy.model->recipe.vocab; ++v)
          EXPECT_GE(logits.values[row + static_cast<std::size_t>(a.metric.token)],
                    logits.values[row + static_cast<std::size_t>(v)]);
    }
  }
}

// Learned tokens before the text, a gate behind the output matrix of one layer, kept keys and a window.
TEST(Attribution, LearnedTokensAndGates) {
  const Recipe recipe = parse_recipe(R"({"name":"gated","width":24,"vocab":31,"context":80,
    "embed":{"sink_tokens":2},"decoder":{"layers":2,"pattern":"GL","final_norm":"layer","kinds":{
      "G":{"parts":[{"self":{"norm_in":"rms","heads":4,"gate":[{"at":"out"}]}},{"ffn":{"norm_in":"rms"}}]},
      "L":{"parts":[{"self":{"norm_in":"rms","norm_out":"rms","heads":4,"kv_heads":2,"window":4,"keep":2,"pos":{"rope":{}}}},
                    {"ffn":{"norm_in":"rms"}}]}}}})");
  const Checkpoint made = test::memory_checkpoint(recipe, 5);
  Device device({.threads = 1});
  const Attribution a = attribution(device, *made.model, {.token = 3, .position = 4}, kIds);
  double sum = 0, heads = 0;
  for (const Contribution& c : a.parts) sum += c.value;
  for (const Contribution& c : a.heads) heads += c.value;
  EXPECT_NEAR(sum, a.logit, 1e-4);
  EXPECT_EQ(a.gated, std::vector<std::string>{"attn_out_post.0"});
  for (const Contribution& c : a.parts)
    if (c.name == "attn_out_post.1") {
      EXPECT_NEAR(heads, c.value, 1e-4);
    }
  const Captured logits = capture_of(device, *made.model, {"logits"}, kIds).tensors[0];
  EXPECT_NEAR(a.logit, static_cast<double>(logits.values[4 * 31 + 3]), 1e-5);
  // Patching and gradients count positions behind the learned tokens, too.
  const std::vector<std::int32_t> other = {3, 8, 12, 2, 30, 7, 8};
  const Patching p =
      patching(device, *made.model, {.token = 3, .position = 4}, kIds, other, {.what = {"resid_pre"}});
  EXPECT_NEAR(p.grids[0].recovered[2], 1, 1e-4);
  EXPECT_EQ(p.grids[0].recovered[1], 0);
  const PointGradients g =
      point_gradients(device, *made.model, ask_points(*made.model, std::vector<std::string>{"resid_post.1"}),
                      {.token = 3, .position = 4}, kIds);
  ASSERT_EQ(g.tensors.tensors[0].shape, (std::vector<Dim>{9, 24}));
  for (std::size_t i = 0; i < g.tensors.tensors[0].values.size(); ++i)
    if (i / 24 != 6) {
      EXPECT_EQ(g.tensors.tensors[0].values[i], 0);
    }
  EXPECT_NE(g.tensors.tensors[0].values[6 * 24], 0);
  // Keys of attention, likewise: key 0 is the text's first token.
  const Captured w =
      capture_of(device, *made.model, {"attn_weights.0"}, kIds, {"attn_scores.0@h1@p3@k0:mask"}).tensors[0];
  ASSERT_EQ(w.shape, (std::vector<Dim>{4, 9, 9}));
  for (std::size_t key = 0; key < 6; ++key) EXPECT_EQ(w.values[(1 * 9 + 5) * 9 + key] == 0, key == 2) << key;
}

TEST(Attribution, SaysWhyItCannot) {
  Device device({.threads = 1});
  const Checkpoint bert = test::open_toy("bert", device), gpt2 = test::open_toy("gpt2", device),
                   classes = test::open_toy("roberta-classifier", device);
  EXPECT_TRUE(
      holds(error_of([&] { attribution(device, *bert.model, {}, kIds); }), "no sum of what its parts add"));
  EXPECT_TRUE(holds(error_of([&] { attribution(device, *classes.model, {}, kIds); }), "is a classifier"));
  EXPECT_TRUE(
      holds(error_of([&] { attribution(device, *gpt2.model, {.kind = Metric::Kind::logprob}, kIds); }),
            "take a logit or the difference"));
  EXPECT_TRUE(holds(error_of([&] { attribution(device, *gpt2.model, {.token = 61}, kIds); }),
                    "outside the vocabulary of 61"));
  EXPECT_TRUE(holds(error_of([&] { attribution(device, *gpt2.model, {.position = 7}, kIds); }),
                    "the text has positions 0 to 6"));
}

// ------------------------------------------------------------------------------------------- metrics
TEST(Metrics, AreReadAndRefused) {
  EXPECT_EQ(parse_metric("loss", nullptr), (Metric{.kind = Metric::Kind::loss}));
  EXPECT_EQ(parse_metric("logit", nullptr), Metric{});
  EXPECT_EQ(parse_metric("logit=id:7@2", nullptr), (Metric{.token = 7, .position = 2}));
  EXPECT_EQ(parse_metric("difference=id:7,id:3@-2", nullptr),
            (Metric{.kind = Metric::Kind::difference, .token = 7, .other = 3, .position = -2}));
  const test::LetterTokenizer letters(40);
  EXPECT_EQ(parse_metric("logprob=c", &letters), (Metric{.kind = Metric::Kind::logprob, .token = 4}));
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"logits=c", "did you mean 'logit'"},
           {"difference", "needs two tokens"},
           {"difference=a", "with a comma between"},
           {"difference=a,b,c", "with a comma between"},
           {"difference=a,a", "one and the same"},
           {"loss=a", "write loss"},
           {"logit=cat", "is 3 tokens of this model, one is needed: 'c' (id:4)"},
           {"logit=id:x", "is no token"}})
    EXPECT_TRUE(holds(error_of([&] { parse_metric(text, &letters); }), words))
        << text << ": " << error_of([&] { parse_metric(text, &letters); });
  EXPECT_TRUE(holds(error_of([&] { parse_metric("logit=a", nullptr); }), "no tokenizer"));
}

// ------------------------------------------------------------------------------------------- patching
TEST(Patching, EqualsTransformerLens) {
  for (const Json& c : goldens().find("cases")->array()) {
    Device device({.threads = 1});
    const std::string name = c.find("toy")->string();
    const Checkpoint toy = test::open_toy(name, device);
    const Metric metric{.kind = Metric::Kind::difference,
                        .token = static_cast<std::int32_t>(c.find("right")->integer()),
                        .other = static_cast<std::int32_t>(c.find("wrong")->integer())};
    const Patching p =
        patching(device, *toy.model, metric, test::ids_of(*c.find("other")), test::ids_of(*c.find("tokens")));
    const Json& want = *c.find("patching");
    expect_close(p.clean, want.find("clean")->number(), name);
    expect_close(p.corrupted, want.find("corrupted")->number(), name);
    ASSERT_EQ(p.grids.size(), 4u);
    for (const PatchedGrid& g : p.grids) {
      const Json::Array& rows = want.find(g.what)->array();
      ASSERT_EQ(g.layers.size(), rows.size());
      for (std::size_t l = 0; l < rows.size(); ++l) {
        const Json::Array& row = rows[l].array();
        ASSERT_EQ(static_cast<std::size_t>(g.columns), row.size());
        for (std::size_t i = 0; i < row.size(); ++i) {
          const double value = g.value[l * row.size() + i];
          expect_close(value, row[i].number(), concat(name, " ", g.what, " ", l, " ", i));
          EXPECT_NEAR(g.recovered[l * row.size() + i], (value - p.corrupted) / (p.clean - p.corrupted),
                      1e-12);
        }
      }
    }
  }
}

// A sweep is many edits, and how many run side by side changes no bit.
TEST(Patching, IsAReplaceEditWhateverItsCompany) {
  const std::vector<std::int32_t> clean = {3, 8, 11, 2, 30, 7, 8}, corrupted = {3, 8, 12, 2, 31, 7, 8};
  const test::TempFolder folder;
  for (const char* name : {"gemma2", "qwen3", "bert", "mixtral", "gptj"}) {
    Device device({.threads = 2});
    const Checkpoint toy = test::open_toy(name, device);
    const Metric metric{.kind = Metric::Kind::logprob, .position = 5};
    const Patching alone = patching(device, *toy.model, metric, clean, corrupted, {.rows = 1}),
                   many = patching(device, *toy.model, metric, clean, corrupted);
    for (std::size_t g = 0; g < alone.grids.size(); ++g)
      EXPECT_EQ(alone.grids[g].value, many.grids[g].value) << name;
    for (const auto& [what, point, at, column] : {std::tuple{"resid_pre", "resid_pre.1", "@p2", 2},
                                                  {"attn_out", "attn_out_post.1", "@p4", 4},
                                                  {"ffn_out", "mlp_out_post.1", "@p2", 2},
                                                  {"heads", "z.1", "@h3", 3}}) {
      Captured held = capture_of(device, *toy.model, {point}, clean).tensors[0];
      NpyWriter file(folder / "held.npy", held.shape, true);
      file.write(held.values);
      file.commit();
      const std::string edit = concat(point, at, ":replace=", folder / "held.npy");
      const Captured logits = capture_of(device, *toy.model, {"logits"}, corrupted, {edit}).tensors[0];
      const auto V = static_cast<std::size_t>(toy.model->recipe.vocab);
      const std::vector<double> row(logits.values.begin() + static_cast<Dim>(5 * V),
                                    logits.values.begin() + static_cast<Dim>(6 * V));
      for (const PatchedGrid& g : many.grids)
        if (g.what == what)
          EXPECT_NEAR(g.value[static_cast<std::size_t>(g.columns) + static_cast<std::size_t>(column)],
                      value_of(many.metric, row), 1e-5)
              << name << " " << edit;
    }
    // All of the stream at the text's only place that counts, in the last layer: everything comes back.
    EXPECT_NE(many.clean, many.corrupted);
  }
}

TEST(Patching, SaysWhatIsWrong) {
  Device device({.threads = 1});
  const Checkpoint gpt2 = test::open_toy("gpt2", device), t5 = test::open_toy("t5", device);
  const std::vector<std::int32_t> clean = {3, 8, 11}, longer = {3, 8, 11, 2}, other = {3, 9, 11};
  const auto said = [&](const Model& model, const Metric& metric, Ids a, Ids b,
                        PatchingOptions options = {}) {
    return error_of([&] { patching(device, model, metric, a, b, options); });
  };
  const Metric logit{.token = 5};
  EXPECT_TRUE(holds(said(*gpt2.model, logit, clean, longer), "the texts need equally many") ||
              holds(said(*gpt2.model, logit, clean, longer), "need equally many"));
  EXPECT_TRUE(holds(said(*gpt2.model, logit, clean, clean), "are the same"));
  EXPECT_TRUE(holds(said(*gpt2.model, {.kind = Metric::Kind::loss}, clean, other), "take logit"));
  EXPECT_TRUE(holds(said(*gpt2.model, {.token = 5, .position = 0}, clean, other), "nothing to bring back"));
  EXPECT_TRUE(holds(said(*gpt2.model, logit, clean, other, {.what = {"head"}}), "did you mean 'heads'"));
  EXPECT_TRUE(holds(said(*t5.model, logit, clean, other), "an encoder and a decoder"));
}

// ------------------------------------------------------------------------------------------- gradients
TEST(PointGradients, EqualTransformerLens) {
  for (const Json& c : goldens().find("cases")->array()) {
    Device device({.threads = 1});
    const std::string name = c.find("toy")->string();
    const Checkpoint toy = test::open_toy(name, device);
    const Metric metric{.kind = Metric::Kind::difference,
                        .token = static_cast<std::int32_t>(c.find("right")->integer()),
                        .other = static_cast<std::int32_t>(c.find("wrong")->integer())};
    std::vector<std::string> points;
    for (const Json& g : c.find("gradients")->array()) points.push_back(g.find("point")->string());
    const PointGradients got = point_gradients(device, *toy.model, ask_points(*toy.model, points), metric,
                                               test::ids_of(*c.find("tokens")));
    for (const Json& g : c.find("gradients")->array()) {
      const Captured& t = got.tensors.of(g.find("point")->string());
      const std::string where = name + " " + t.name;
      double squares = 0;
      for (const float v : t.values) squares += static_cast<double>(v) * static_cast<double>(v);
      EXPECT_NEAR(std::sqrt(squares), std::sqrt(g.find("squares")->number()),
                  1e-4 * std::sqrt(g.find("squares")->number()))
          << where;
      const Json::Array &at = g.find("at")->array(), &values = g.find("values")->array();
      for (std::size_t i = 0; i < at.size(); ++i)
        expect_close(static_cast<double>(t.values[static_cast<std::size_t>(at[i].integer())]),
                     values[i].number(), where);
    }
  }
}

// In double precision a gradient is what the metric does when one number changes a little.
TEST(PointGradients, AreFiniteDifferences) {
  for (const char* name : {"gpt2", "llama3.1", "gemma2", "bert", "qwen3", "mixtral"}) {
    Device device({.threads = 1, .isa = "f64"});
    const test::TempFolder folder;
    test::write_folder(test::read_toy(name), folder / "toy");
    const Checkpoint toy = open_checkpoint(folder / "toy", {.real = DType::f64, .device = &device});
    const Model& model = *toy.model;
    const auto value = [&](const Metric& m, const std::vector<std::string>& edits) {
      Taps taps;
      const auto check = install_edits(taps, model, parse_edits(edits));
      rapt::Run run(device);
      run.taps = &taps;
      const Tensor y = forward(run, model, batch_of(model, kIds));
      check();
      const auto row = [&](Dim r) {
        std::vector<double> out;
        for (Dim i = 0; i < y.last(); ++i) out.push_back(y.at(r * y.last() + i));
        return out;
      };
      if (m.kind != Metric::Kind::loss) return value_of(m, row(m.position));
      double sum = 0, count = 0;
      const std::vector<std::int32_t> truth = truth_of(model, kIds);
      for (Dim r = 0; r < y[0]; ++r)
        if (const std::int32_t id = truth[static_cast<std::size_t>(r)]; id >= 0)
          sum -= value_of({.kind = Metric::Kind::logprob, .token = id}, row(r)), ++count;
      return sum / count;
    };
    const std::vector<std::string> points = {"resid_pre.0", "z.1",       "attn_q.0",     "k.1",
                                             "value.0",     "mlp_out.0", "resid_post.1", "logits"};
    for (const Metric& metric :
         {Metric{.kind = Metric::Kind::loss}, Metric{.token = 5, .position = 4},
          Metric{.kind = Metric::Kind::logprob, .token = 9},
          Metric{.kind = Metric::Kind::difference, .token = 5, .other = 9, .position = -2}}) {
      const PointGradients got = point_gradients(device, model, ask_points(model, points), metric, kIds);
      EXPECT_NEAR(got.value, value(got.metric, {}), 1e-9) << name;
      for (const Captured& t : got.tensors.tensors) {
        if (t.name == "logits" && metric.kind != Metric::Kind::loss) continue;  // one row there
        for (const auto& [row, head, channel] : {std::tuple<Dim, Dim, Dim>{1, 0, 3}, {3, 1, 2}}) {
          const bool heads = t.shape.size() == 3;
          const Dim h = heads ? head % t.shape[1] : 0, width = t.shape.back(), many = heads ? t.shape[1] : 1;
          const std::string at =
              concat(t.name, heads ? concat("@h", h) : "", "@p", row, "@c", channel, ":add=");
          const double step = 0.0001220703125;  // a power of two: exact as f32
          const double slope =
              (value(got.metric, {at + "0.0001220703125"}) - value(got.metric, {at + "-0.0001220703125"})) /
              (2 * step);
          const double mine =
              static_cast<double>(t.values[static_cast<std::size_t>((row * many + h) * width + channel)]);
          EXPECT_NEAR(mine, slope, 1e-5 * std::max(0.1, std::abs(slope))) << name << " " << at;
        }
      }
    }
  }
}

TEST(PointGradients, SayWhyTheyAreNotThere) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const auto said = [&](const std::string& point) {
    return error_of(
        [&] { point_gradients(device, *toy.model, ask_points(*toy.model, std::vector{point}), {}, kIds); });
  };
  EXPECT_TRUE(holds(said("attn_weights.1"), "is not held while the pass runs"));
  EXPECT_TRUE(holds(said("attn_scores.1"), "is not held while the pass runs"));
  EXPECT_TRUE(holds(said("attn_normalized.1"), "is not held while the pass runs"));
  EXPECT_EQ(said("z.1"), "");
  // The last row's logit is made of nothing that comes behind it, and of no other row's result.
  const PointGradients got =
      point_gradients(device, *toy.model, ask_points(*toy.model, std::vector<std::string>{"resid_post.-1"}),
                      {.token = 5, .position = 2}, kIds);
  const Captured& t = got.tensors.tensors[0];
  for (Dim r = 0; r < 7; ++r) {
    double sum = 0;
    for (Dim c = 0; c < t.shape[1]; ++c)
      sum += std::abs(static_cast<double>(t.values[static_cast<std::size_t>(r * t.shape[1] + c)]));
    if (r == 2) EXPECT_GT(sum, 0.01);
    else EXPECT_EQ(sum, 0);
  }
}

}  // namespace
}  // namespace rapt
