// SPDX-License-Identifier: Apache-2.0
// Tensors inside a pass by name, and edits of it, against the hooks of transformers
// (tests/golden/make_inside.py) and against the rules they must keep; names that are refused; files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "rapt/base/json.h"
#include "rapt/inspect/capture.h"
#include "rapt/inspect/edits.h"
#include "rapt/io/npy.h"
#include "rapt/io/safetensors.h"
#include "tests/memory_checkpoint.h"
#include "tests/toy_checkpoint.h"

namespace rapt {
namespace {

using test::error_of;
using test::holds;

const Json& goldens() {
  static const Json all = [] {
    const auto path = std::filesystem::path(RAPT_SOURCE_DIR) / "tests" / "golden" / "use" / "inside.json";
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    return parse_json(text.str(), path.filename().string());
  }();
  return all;
}

Capture capture_of(Device& device, const Model& model, const std::vector<std::string>& names,
                   std::span<const std::int32_t> ids, std::span<const std::int32_t> source = {},
                   const Taps* taps = nullptr) {
  return capture(device, model, ask_points(model, names), ids, source, {.taps = taps});
}

std::vector<float> last_row(const Captured& t) { return {t.values.end() - t.shape.back(), t.values.end()}; }

TEST(Inside, TensorsEqualTheReferenceUnderBothNames) {
  for (const Json& c : goldens().find("cases")->array()) {
    Device device({.threads = 1});
    const Checkpoint toy = test::open_toy(c.find("toy")->string(), device);
    const std::vector<std::int32_t> ids = test::ids_of(*c.find("tokens")),
                                    source = test::ids_of(*c.find("source"));
    std::vector<std::string> names;
    for (const Json& p : c.find("points")->array()) {
      names.push_back(p.find("name")->string());
      if (p.find("lens")) names.push_back(p.find("lens")->string());
    }
    const Capture got = capture_of(device, *toy.model, names, ids, source);
    for (const Json& p : c.find("points")->array())
      for (const char* key : {"name", "lens"}) {
        if (!p.find(key)) continue;
        const Captured& t = got.of(p.find(key)->string());
        const std::string where = concat(c.find("toy")->string(), " ", t.name);
        std::vector<Dim> shape;
        for (const Json& n : p.find("shape")->array()) shape.push_back(n.integer());
        ASSERT_EQ(t.shape, shape) << where;
        double sum = 0, magnitude = 0;
        for (float v : t.values) {
          ASSERT_FALSE(std::isnan(v)) << where;
          if (std::isfinite(v)) sum += static_cast<double>(v), magnitude += std::abs(static_cast<double>(v));
        }
        const double reach = p.find("magnitude")->number();
        EXPECT_NEAR(sum, p.find("sum")->number(), 1e-5 * (reach + 10)) << where;
        EXPECT_NEAR(magnitude, reach, 1e-5 * (reach + 10)) << where;
        const Json::Array &at = p.find("at")->array(), &values = p.find("values")->array();
        for (std::size_t i = 0; i < at.size(); ++i)
          EXPECT_NEAR(static_cast<double>(t.values[static_cast<std::size_t>(at[i].integer())]),
                      values[i].number(), 1e-4 * std::max(1.0, std::abs(values[i].number())))
              << where << " element " << at[i].integer();
      }
  }
}

TEST(Inside, EditsEqualTheReferencesHooks) {
  for (const Json& c : goldens().find("cases")->array()) {
    Device device({.threads = 1});
    const Checkpoint toy = test::open_toy(c.find("toy")->string(), device);
    const Model& model = *toy.model;
    const std::vector<std::int32_t> ids = test::ids_of(*c.find("tokens")),
                                    other = test::ids_of(*c.find("other")),
                                    source = test::ids_of(*c.find("source"));
    const test::TempFolder folder;
    NpyWriter direction(folder / "direction.npy", {model.recipe.width}, false);
    std::uint64_t h = 14695981039346656037u;  // the values that draws("direction") gives (make_goldens.py)
    for (char x : std::string("direction")) h = (h ^ static_cast<unsigned char>(x)) * 1099511628211u;
    for (Dim i = 0; i < model.recipe.width; ++i) {
      std::uint64_t z = h + static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      z ^= z >> 31;
      const auto value = static_cast<float>(static_cast<double>(z >> 40) * 0x1p-23 - 1);
      direction.write({&value, 1});
    }
    direction.commit();
    for (const Json& e : c.find("edits")->array()) {
      std::string text = e.find("edit")->string();
      if (text.ends_with("=direction")) text.replace(text.size() - 9, 9, folder / "direction.npy");
      if (text.ends_with("=other")) {  // activation patching: what the point was in another text
        const std::string point = text.substr(0, text.find('@'));
        write_capture(capture_of(device, model, {point}, other, source), folder / "other.safetensors", true);
        text.replace(text.size() - 5, 5, folder / "other.safetensors");
      }
      Taps taps;
      const std::vector<Edit> edits = {parse_edit(text)};
      const auto check = install_edits(taps, model, edits);
      const std::vector<float> got =
          last_row(capture_of(device, model, {"logits"}, ids, source, &taps).tensors[0]);
      check();
      const Json::Array& want = e.find("logits")->array();
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(static_cast<double>(got[i]), want[i].number(),
                    1e-4 * std::max(1.0, std::abs(want[i].number())))
            << c.find("toy")->string() << " " << text;
    }
  }
}

// ------------------------------------------------------------------------------------------------ rules
const std::vector<std::int32_t> kIds = {3, 8, 11, 2, 30, 7, 8};

std::vector<float> logits_with(Device& device, const Model& model, const std::vector<std::string>& edits) {
  Taps taps;
  std::vector<Edit> list;
  for (const std::string& e : edits) list.push_back(parse_edit(e));
  const auto check = install_edits(taps, model, list);
  std::vector<float> out = capture_of(device, model, {"logits"}, kIds, {}, &taps).tensors[0].values;
  check();
  return out;
}

TEST(Inside, WatchingChangesNoBit) {
  Device device({.threads = 1});
  for (const char* name : {"gpt2", "gemma2", "bert", "qwen3"}) {
    const Checkpoint toy = test::open_toy(name, device);
    const std::vector<float> plain = capture_of(device, *toy.model, {"logits"}, kIds).tensors[0].values;
    std::vector<std::string> all;
    for (const PointLine& line : list_points(*toy.model))
      all.push_back(line.first < 0 ? line.name : line.name.substr(0, line.name.size() - 1) + "*");
    const Capture everything = capture_of(device, *toy.model, all, kIds);
    EXPECT_EQ(everything.of("logits").values, plain) << name;
    for (const Captured& t : everything.tensors) EXPECT_FALSE(t.values.empty()) << name << " " << t.name;
  }
}

TEST(Inside, EmptyEditsAndOwnCapturesChangeNoBit) {
  Device device({.threads = 1});
  const test::TempFolder folder;
  for (const char* name : {"gpt2", "gemma2"}) {
    const Checkpoint toy = test::open_toy(name, device);
    const Model& model = *toy.model;
    const std::vector<float> plain = logits_with(device, model, {});
    EXPECT_EQ(logits_with(device, model,
                          {"resid_post.*:scale=1", "z.0@1:scale=1", "q.1:scale=1", "mlp_pre.0:scale=1"}),
              plain);
    // Every point that can be changed, patched with itself.
    for (const PointLine& line : list_points(model)) {
      if (!line.example.fixed.empty()) continue;
      const std::string point = line.first < 0 ? line.name : line.name.substr(0, line.name.size() - 1) + "1";
      write_capture(capture_of(device, model, {point}, kIds), folder / "own.safetensors", true);
      const std::vector<float> own =
          logits_with(device, model, {point + ":replace=" + (folder / "own.safetensors")});
      if (line.example.kind == Point::Kind::scores) {  // captured in double, computed in float
        for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(own[i], plain[i], 1e-4) << name;
      } else {
        EXPECT_EQ(own, plain) << name << " " << point;
      }
      EXPECT_NE(logits_with(device, model, {point + ":add=0.5", point + "@p2:zero"}), plain)
          << name << " " << point;
    }
  }
}

TEST(Inside, SoftmaxOfTheScoresGivesTheWeights) {
  Device device({.threads = 1});
  for (const char* name : {"gemma2", "gpt2"}) {  // a window and a cap
    const Checkpoint toy = test::open_toy(name, device);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 20; ++i) ids.push_back((i * 7 + 3) % 61);
    const Capture got = capture_of(device, *toy.model, {"attn_scores.*", "attn_weights.*"}, ids);
    for (int layer = 0; layer < 3; ++layer) {
      const Captured &scores = got.of(concat("attn_scores.", layer)),
                     &weights = got.of(concat("attn_weights.", layer));
      const auto T = static_cast<std::size_t>(scores.shape[2]);
      for (std::size_t row = 0; row < scores.values.size() / T; ++row) {
        double sum = 0;
        for (std::size_t j = 0; j < T; ++j) sum += std::exp(static_cast<double>(scores.values[row * T + j]));
        for (std::size_t j = 0; j < T; ++j)
          ASSERT_NEAR(std::exp(static_cast<double>(scores.values[row * T + j])) / sum,
                      static_cast<double>(weights.values[row * T + j]), 1e-5);
      }
    }
  }
}

TEST(Inside, SwapChangesPlacesAndTwiceIsNothing) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const test::TempFolder folder;
  const Dim C = toy.model->recipe.width;
  NpyWriter two(folder / "two.npy", {2, C}, false);  // channels 4 and 9
  for (Dim i = 0; i < 2 * C; ++i) {
    const float v = i == 4 || i == C + 9 ? 3.0f : 0.0f;
    two.write({&v, 1});
  }
  two.commit();
  const std::string swap = "resid_post.0:swap=" + (folder / "two.npy");
  Taps taps;
  const std::vector<Edit> edits = {parse_edit(swap)};
  install_edits(taps, *toy.model, edits);
  const Captured plain = capture_of(device, *toy.model, {"resid_post.0"}, kIds).tensors[0];
  const Captured got = capture_of(device, *toy.model, {"resid_post.0"}, kIds, {}, &taps).tensors[0];
  for (Dim r = 0; r < 7; ++r)
    for (Dim c = 0; c < C; ++c) {
      const Dim from = c == 4 ? 9 : c == 9 ? 4 : c;
      EXPECT_NEAR(got.values[static_cast<std::size_t>(r * C + c)],
                  plain.values[static_cast<std::size_t>(r * C + from)], 1e-5);
    }
  EXPECT_NE(logits_with(device, *toy.model, {swap}), logits_with(device, *toy.model, {}));
}

TEST(Inside, ACaptureOfOneTokenIsAVector) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const test::TempFolder folder;
  const std::int32_t one[] = {11};
  const Capture way = capture_of(device, *toy.model, {"resid_post.0"}, one);
  write_capture(way, folder / "way.npy", false);
  Json::Array numbers;
  for (float v : way.tensors[0].values) numbers.emplace_back(static_cast<double>(v));
  Taps taps;
  const std::vector<Edit> edits = {
      read_edit(Json(Json::Object{{"point", "resid_post.0"}, {"op", "add"}, {"value", std::move(numbers)}}))};
  install_edits(taps, *toy.model, edits);
  EXPECT_EQ(logits_with(device, *toy.model, {"resid_post.0:add=" + (folder / "way.npy")}),
            capture_of(device, *toy.model, {"logits"}, kIds, {}, &taps).tensors[0].values);
  Taps many;  // and so it may steer an answer
  install_edits(many, *toy.model, std::vector<Edit>{parse_edit("resid_post.0:add=" + (folder / "way.npy"))},
                Passes::many);
}

TEST(Inside, SwapOfDirectionsThatAreNotOrthogonal) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const test::TempFolder folder;
  const auto C = static_cast<std::size_t>(toy.model->recipe.width);
  std::vector<float> u(2 * C);  // unit vectors with a cosine of 0.6, one of them written longer
  u[4] = 5, u[C + 4] = 0.6f, u[C + 9] = 0.8f;
  NpyWriter two(folder / "two.npy", {2, static_cast<Dim>(C)}, false);
  two.write(u);
  two.commit();
  const std::string swap = "resid_post.0:swap=" + (folder / "two.npy");
  const auto after = [&](const std::vector<std::string>& texts) {
    Taps taps;
    const std::vector<Edit> edits = parse_edits(texts);
    install_edits(taps, *toy.model, edits);
    return capture_of(device, *toy.model, {"resid_post.0"}, kIds, {}, &taps).tensors[0].values;
  };
  const std::vector<float> plain = after({}), once = after({swap}), twice = after({swap, swap});
  for (std::size_t at = 0; at < plain.size(); at += C) {
    const auto along = [&](const std::vector<float>& x, bool second) {
      return second ? 0.6 * static_cast<double>(x[at + 4]) + 0.8 * static_cast<double>(x[at + 9])
                    : static_cast<double>(x[at + 4]);
    };
    EXPECT_NEAR(along(once, false), along(plain, true), 1e-5);
    EXPECT_NEAR(along(once, true), along(plain, false), 1e-5);
    for (std::size_t c = 0; c < C; ++c) {
      EXPECT_NEAR(twice[at + c], plain[at + c], 1e-5);
      if (c != 4 && c != 9) EXPECT_EQ(once[at + c], plain[at + c]);
    }
  }
  std::copy(u.begin(), u.begin() + static_cast<Dim>(C), u.begin() + static_cast<Dim>(C));
  NpyWriter same(folder / "two.npy", {2, static_cast<Dim>(C)}, true);
  same.write(u);
  same.commit();
  EXPECT_TRUE(holds(error_of([&] { after({swap}); }), "one and the same"));
}

// A model that streams turns its queries a second time, towards the kept first keys: an edit must
// reach both.
TEST(Inside, AnEditOfTheQueryReachesItsSecondForm) {
  Device device({.threads = 1});
  Recipe recipe = test::small_decoder();
  for (auto& [name, layer] : recipe.decoder->kinds)
    for (PartRecipe& p : layer.parts)
      if (AttnRecipe* a = p.self()) a->window = 3, a->keep = 2;
  const Checkpoint toy = test::memory_checkpoint(recipe, 5);
  // Zero queries give equal weights over the 2 kept keys and the window of 3, whatever the keys are.
  Taps taps;
  const std::vector<Edit> edits = {parse_edit("attn_q.1@0:zero")};
  const auto check = install_edits(taps, *toy.model, edits);
  const Captured w = capture_of(device, *toy.model, {"attn_weights.1"}, kIds, {}, &taps).tensors[0];
  check();
  for (Dim j : {0, 1, 4, 5, 6}) EXPECT_NEAR(w.values[static_cast<std::size_t>(6 * 7 + j)], 0.2, 1e-6);
  EXPECT_TRUE(
      holds(error_of([&] { logits_with(device, *toy.model, {"attn_q.1:add=1"}); }), "turned to two places"));
  EXPECT_TRUE(holds(error_of([&] { find_points(*toy.model, "attn_scores.1"); }),
                    "second position towards the kept first keys"));
}

TEST(Inside, GatesAreToldApart) {
  Device device({.threads = 1});
  Recipe recipe = test::small_decoder();
  for (auto& [name, layer] : recipe.decoder->kinds)
    for (PartRecipe& p : layer.parts)
      if (AttnRecipe* a = p.self()) a->gate = {{.at = GateRecipe::At::sdpa}, {.at = GateRecipe::At::v}};
  const Checkpoint toy = test::memory_checkpoint(recipe, 6);
  const Model& model = *toy.model;
  const Capture got = capture_of(device, model,
                                 {"attn_gate.1", "attn_gate_act.1", "attn_gate_v.1", "attn_gate_v_act.1",
                                  "attn_in.1", "blocks.1.attn.hook_q_gate"},
                                 kIds);
  const auto sigmoid = [](float x) { return 1 / (1 + std::exp(-static_cast<double>(x))); };
  for (const char* at : {"attn_gate", "attn_gate_v"}) {
    const Captured &raw = got.of(concat(at, ".1")), &act = got.of(concat(at, "_act.1"));
    for (std::size_t i = 0; i < raw.values.size(); ++i)
      ASSERT_NEAR(sigmoid(raw.values[i]), static_cast<double>(act.values[i]), 1e-6);
  }
  EXPECT_EQ(got.of("attn_gate.1").shape, (std::vector<Dim>{7, 32}));
  EXPECT_EQ(got.of("attn_gate_v.1").shape, (std::vector<Dim>{7, 16}));
  EXPECT_EQ(got.of("blocks.1.attn.hook_q_gate").values, got.of("attn_gate.1").values);
  // Of the right matrix: W x for one element.
  const Weight* w = nullptr;
  for (const Weight& each : model.weights)
    if (each.name == "decoder.1.self.gate_v.weight") w = &each;
  ASSERT_TRUE(w);
  double sum = 0;
  for (Dim c = 0; c < 32; ++c)
    sum +=
        w->get(5, c) * static_cast<double>(got.of("attn_in.1").values[static_cast<std::size_t>(3 * 32 + c)]);
  EXPECT_NEAR(got.of("attn_gate_v.1").values[3 * 16 + 5], sum, 1e-5);
  // An edit of one leaves the other.
  Taps taps;
  const std::vector<Edit> edits = {parse_edit("attn_gate_v.1:zero")};
  const auto check = install_edits(taps, model, edits);
  const Capture changed = capture_of(device, model, {"attn_gate.1", "attn_gate_v_act.1"}, kIds, {}, &taps);
  check();
  EXPECT_EQ(changed.of("attn_gate.1").values, got.of("attn_gate.1").values);
  for (float v : changed.of("attn_gate_v_act.1").values) EXPECT_EQ(v, 0.5f);
  EXPECT_TRUE(holds(error_of([&] { logits_with(device, model, {"attn_gate_act.1:zero"}); }),
                    "edit the same point without _act"));
}

// ------------------------------------------------------------------------------------------------ names
TEST(Inside, NamesThatMeanTheSamePoint) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const auto name = [&](const char* text) { return find_points(*toy.model, text).at(0).name; };
  for (const auto& [text, own] : std::initializer_list<std::pair<const char*, const char*>>{
           {"blocks.1.attn.hook_pattern", "attn_weights.1"},
           {"pattern0", "attn_weights.0"},
           {"attn_probs.2", "attn_weights.2"},
           {"attn1", "attn_weights.1"},
           {"k2", "k.2"},
           {"v0", "value.0"},
           {"query1", "q.1"},
           {"pre2", "mlp_pre.2"},
           {"mlp_post1", "mlp_act.1"},
           {"resid_post.-1", "resid_post.2"},
           {"blocks.-3.hook_out", "resid_post.0"},
           {"decoder.resid_pre.1", "resid_pre.1"},
           {"resid_mid1", "resid_mid.1"},
           {"normalized2ln2", "mlp_normalized.2"},
           {"blocks.0.ln2.hook_in", "resid_mid.0"},
           {"blocks.0.ln1.hook_in", "resid_pre.0"},
           {"blocks.1.attn.o.hook_in", "z.1"},
           {"blocks.1.mlp.in.hook_out", "mlp_pre.1"},
           {"hook_embed", "embeddings"},
           {"unembed.hook_out", "lm_head"},
           {"layers_output[-1]", "resid_post.2"},
           {"attention_probabilities[0]", "attn_weights.0"},
           {"token_embeddings", "embeddings"},
           {"l_out-1", "resid_post.1"},
           {"ffn_up-2", "mlp_pre.2"},
           {"kqv_out-0", "z.0"},
           {"attn_out-1", "attn_out.1"},
           {"result_norm", "final_norm"},
           {"embed", "embeddings"}})
    EXPECT_EQ(name(text), own) << text;
  EXPECT_EQ(find_points(*toy.model, "blocks.*.hook_resid_pre").size(), 3u);
  EXPECT_EQ(find_points(*toy.model, "mlps_output[*]").size(), 3u);
  EXPECT_EQ(find_points(*test::open_toy("qwen3", device).model, "ffn_up-0").at(0).name, "mlp_pre_linear.0");
  const std::vector<std::string> starred = {"blocks.*.attn.hook_z"};
  EXPECT_EQ(ask_points(*toy.model, starred)[2].name, "blocks.2.attn.hook_z");
}

TEST(Inside, EveryPointOfTheListIsFoundUnderBothItsNames) {
  Device device({.threads = 1});
  for (const char* toy_name : {"gpt2", "bert", "gemma2", "olmo2", "qwen3", "t5", "marian"}) {
    const Checkpoint toy = test::open_toy(toy_name, device);
    std::size_t lenses = 0;
    for (const PointLine& line : list_points(*toy.model)) {
      const auto at_first = [&](std::string name) {
        if (const std::size_t L = name.find("L"); line.first >= 0)
          name.replace(L, 1, std::to_string(line.first));
        return find_points(*toy.model, name).at(0).name;
      };
      EXPECT_EQ(at_first(line.name), line.example.name) << toy_name;
      if (line.lens.empty()) continue;
      EXPECT_EQ(at_first(line.lens), line.example.name) << toy_name << " " << line.lens;
      ++lenses;
    }
    EXPECT_GE(lenses, 20u) << toy_name;
  }
}

TEST(Inside, NamesThatAreRefusedSayWhy) {
  Device device({.threads = 1});
  const auto why = [&](const char* toy, const char* name) {
    const Checkpoint c = test::open_toy(toy, device);
    return error_of([&] { find_points(*c.model, name); });
  };
  for (const auto& [toy, name, words] :
       std::initializer_list<std::tuple<const char*, const char*, const char*>>{
           {"gpt2", "resid_pst.1", "did you mean 'resid_post'"},
           {"gpt2", "resid_post.3", "layers 0 to 2"},
           {"gpt2", "resid_post.-4", "layers 0 to 2"},
           {"gpt2", "resid_post", "say which, as in resid_post.0"},
           {"gpt2", "hook_resid_post", "say which, as in blocks.0.hook_resid_post"},
           {"gpt2", "embeddings.0", "without a number"},
           {"gpt2", "rot_q.0", "not rotated"},
           {"gpt2", "blocks.0.attn.hook_rot_k", "not rotated"},
           {"gpt2", "q_norm_out.0", "no norm"},
           {"gpt2", "mlp_pre_linear.0", "one projection only"},
           {"gpt2", "attn_gate.0", "no gate"},
           {"gpt2", "cross_z.0", "no cross-attention"},
           {"gpt2", "encoder.z.0", "no encoder"},
           {"gpt2", "blocks.0.attn.hook_result", "multiply z"},
           {"gpt2", "blocks.0.hook_attn_in", "before the norm"},
           {"gpt2", "blocks.0.hook_mlp_in", "before the norm"},
           {"gpt2", "blocks.0.mlp.hook_expert_indices", "no experts"},
           {"gpt2", "router_logits.0", "no experts"},
           {"gpt2", "Qcur-1", "before and after their rotation"},
           {"gpt2", "kq-1", "not scaled yet"},
           {"gpt2", "layers_output[3]", "layers 0 to 2"},
           {"gpt2", "layers_output[x]", "is no point"},
           {"gpt2", "blocks.0.ln3.hook_normalized", "ln1 … ln2"},
           {"gpt2", "blocks.0.hook_normalized_resid_post", "no norm of it stands on the residual stream"},
           {"gpt2", "blocks.0.hook_everything", "is no point"},
           {"gpt2", "", "is no point"},
           {"gpt2", "resid_mid_sum.0", "no norm of it stands on the residual stream"},
           {"llama3.1", "pos_embeddings", "nothing is added"},
           {"bert", "final_norm", "no final norm"},
           {"bert", "blocks.0.hook_resid_post", "resid_post.L (after) or resid_post_sum.L (before)"},
           {"bert", "blocks.0.hook_resid_mid", "resid_mid.L (after) or resid_mid_sum.L (before)"},
           {"t5", "z.0", "write encoder.z.0 or decoder.z.0"},
           {"t5", "blocks.0.attn.hook_z", "write encoder.0.attn.hook_z or decoder.0.attn.hook_z"},
           {"t5", "encoder.cross_z.0", "no cross-attention"},
           {"t5", "encoder.resid_mid_cross.0", "no cross-attention"},
           {"t5", "encoder.logits", "stands on the decoder"},
           {"minilm", "logits", "no head"}})
    EXPECT_TRUE(holds(why(toy, name), words)) << toy << " " << name << ": " << why(toy, name);
  EXPECT_TRUE(holds(why("gpt2", "rot_q.0"), "layer 0 has resid_pre, ")) << "what there is instead";

  const Model palm(
      parse_recipe(R"({ "preset": "palm", "width": 24, "vocab": 40, "decoder": { "layers": 2 } })"));
  EXPECT_TRUE(holds(error_of([&] { find_points(palm, "blocks.1.hook_resid_mid"); }), "added at once"));
  EXPECT_EQ(find_points(palm, "ln_final.hook_out").at(0).name, "final_norm");
}

TEST(Inside, EditsThatAreRefusedSayWhy) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const test::TempFolder folder;
  write_capture(capture_of(device, *toy.model, {"z.1", "z.2"}, std::span(kIds).first(5)),
                folder / "short.safetensors", false);
  const std::string file = folder / "short.safetensors";
  for (const auto& [edit, words] : std::vector<std::pair<std::string, std::string>>{
           {"z.1", "is not of the form"},
           {"z.1:zro", "did you mean 'zero'"},
           {"z.1:scale", "needs a value"},
           {"z.1:zero=1", "take no value"},
           {"z.1:scale=" + file + "#z.1", "scale takes one number"},
           {"z.1:project_out=2", "needs a file with a direction"},
           {"z.1:add=nan", "not finite"},
           {"z.1:add=x.txt", "neither a number nor"},
           {"z.1@4:zero", "there is no head '4' at z.1; it has 4"},
           {"z.1@h0@p7:zero", "positions 0 to 6"},
           {"z.1@h0@p-8:zero", "positions 0 to 6"},
           {"z.1@h0@p5..3:zero", "positions 0 to 6"},
           {"z.1@0@first:zero", "is no position"},
           {"z.1@0@1@2:zero", "more than a head and a position"},
           {"z.1@c0@c1:zero", "more than one channel"},
           {"z.1@0@1@c99:zero", "there is no channel '99'"},
           {"resid_pre.1@h0:zero", "has no heads"},
           {"attn_normalized.1:zero", "computed beside the pass"},
           {"z.0:replace=" + file, "did you mean"},
           {"z.1:replace=" + file, "needs as many tokens"},
           {"resid_mid.1:swap=" + file + "#z.1", "two directions of 36"},
           {"rot_q.1:zero", "not rotated"}})
    EXPECT_TRUE(holds(error_of([&] { logits_with(device, *toy.model, {edit}); }), words))
        << edit << ": " << error_of([&] { logits_with(device, *toy.model, {edit}); });

  Taps taps;  // an edit whose point never comes by
  const std::vector<Edit> edits = {parse_edit("z.1:zero")};
  const auto check = install_edits(taps, *toy.model, edits);
  EXPECT_TRUE(holds(error_of(check), "touched nothing"));
}

TEST(Inside, EditsFromJson) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const auto with = [&](const char* json) {
    Taps taps;
    const std::vector<Edit> edits = {read_edit(parse_json(json))};
    install_edits(taps, *toy.model, edits);
    return capture_of(device, *toy.model, {"logits"}, kIds, {}, &taps).tensors[0].values;
  };
  EXPECT_EQ(with(R"({"point": "z.1", "head": 2, "pos": "all", "op": "zero"})"),
            logits_with(device, *toy.model, {"z.1@2:zero"}));
  EXPECT_EQ(with(R"({"op": "scale", "value": 0.5, "pos": "2..-1", "point": "blocks.0.hook_resid_post"})"),
            logits_with(device, *toy.model, {"resid_post.0@2..-1:scale=0.5"}));
  EXPECT_EQ(with(R"({"op": "replace", "value": [1,2,3,4,5,6,7,8,9], "head": 0, "point": "z.0"})").size(),
            kIds.size() * 61);
  EXPECT_EQ(logits_with(device, *toy.model, {"L1H2:zero"}), logits_with(device, *toy.model, {"z.1@2:zero"}));
  EXPECT_TRUE(
      holds(error_of([&] { with(R"({"point": "z.1", "op": "zero", "posn": 3})"); }), "did you mean 'pos'"));
  EXPECT_TRUE(holds(error_of([&] { with(R"({"point": "z.1"})"); }), "needs a \"point\" and an \"op\""));
  EXPECT_TRUE(holds(error_of([&] { with(R"({"point": 3, "op": "zero"})"); }), "'point' cannot be"));
}

// -------------------------------------------------------------------------------------------- files, limits
TEST(Inside, FilesHoldWhatWasCaptured) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const test::TempFolder folder;
  const Capture got = capture_of(device, *toy.model, {"resid_post.1", "blocks.1.attn.hook_pattern"}, kIds);
  write_capture(got, folder / "all.safetensors", false);
  const SafetensorsFile file = SafetensorsFile::open(folder / "all.safetensors");
  ASSERT_TRUE(file.tensors.find("blocks.1.attn.hook_pattern"));
  EXPECT_EQ(file.tensors.find("blocks.1.attn.hook_pattern")->values(), got.tensors[1].values);
  bool tokens = false;
  for (const auto& [key, value] : file.metadata)
    tokens = tokens || (key == "tokens" && value == "3 8 11 2 30 7 8");
  EXPECT_TRUE(tokens);
  write_capture(got, folder / "dump", false);
  const NpyArray map = read_npy(folder / "dump/blocks.1.attn.hook_pattern.npy");
  EXPECT_EQ(map.shape, (std::vector<Dim>{4, 7, 7}));
  EXPECT_EQ(map.values, got.tensors[1].values);
  EXPECT_TRUE(holds(error_of([&] { write_capture(got, folder / "one.npy", false); }), "holds one tensor"));
  EXPECT_TRUE(holds(error_of([&] { write_capture(got, folder / "one.csv", false); }), ".safetensors file"));
  EXPECT_TRUE(
      holds(error_of([&] { write_capture(got, folder / "all.safetensors", false); }), "exists already"));
}

TEST(Inside, MoreThanTheLimitIsRefusedWithTheNumber) {
  Device device({.threads = 1});
  const Checkpoint toy = test::open_toy("gpt2", device);
  const std::vector<std::string> names = {"attn_weights.0", "z.0"};
  const std::string why = error_of(
      [&] { capture(device, *toy.model, ask_points(*toy.model, names), kIds, {}, {.most_bytes = 1000}); });
  // 4 * 7 * 7 * 4 + 7 * 36 * 4
  EXPECT_TRUE(holds(why, "take 1.75 KiB for 7 tokens (z.0 alone 1008 B)")) << why;
  EXPECT_TRUE(holds(why, "1000 B allowed")) << why;
  EXPECT_TRUE(
      holds(error_of([&] { capture_of(device, *toy.model, {"z.0", "z.*"}, kIds); }), "asked for twice"));
}

TEST(Inside, BrokenArraysAreRefused) {
  const auto why = [](std::string header, std::string_view values) {
    std::string text("\x93NUMPY\x01\x00", 8);
    text += static_cast<char>(header.size() & 255);
    text += static_cast<char>(header.size() >> 8);
    text += header;
    text += values;
    return error_of([&] { parse_npy(std::as_bytes(std::span(text)), "a.npy"); });
  };
  EXPECT_EQ(why("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", std::string_view("\0\0\0\0", 4)),
            "");
  EXPECT_EQ(
      why("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", std::string_view("\0\0\0\0\0\0\0\0", 8)),
      "");
  EXPECT_TRUE(
      holds(why("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", std::string_view("\0\0\0\0", 4)),
            "a.npy"));
  EXPECT_TRUE(holds(why("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", ""), "Fortran"));
  EXPECT_TRUE(holds(why("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", ""), "float32"));
  EXPECT_TRUE(holds(why("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", ""),
                    "longer than"));
  EXPECT_TRUE(holds(why("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999,999999999,), }", ""),
                    "more than"));
  EXPECT_TRUE(holds(why("{'descr': '<f4', 'fortran_order': False, 'shape': (x,), }", ""), "'x' in it"));
  EXPECT_TRUE(holds(why("{'descr': '<f4'}", ""), "no 'shape'"));
  EXPECT_TRUE(holds(error_of([] { parse_npy(std::as_bytes(std::span("hello there", 11)), "b.npy"); }),
                    "no .npy file"));
}

}  // namespace
}  // namespace rapt
