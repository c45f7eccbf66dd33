// SPDX-License-Identifier: Apache-2.0
// Models in memory as folders and back: every preset, small, with random weights; classifiers; recipe.json
// beside config.json; files that are cut while they are read. That transformers computes the same from such
// folders: tests/golden/make_trained.py.
#include "rapt/load/model_folder.h"
#include "rapt/nn/patches.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "rapt/base/rng.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/checkpoint.h"
#include "rapt/load/family_write.h"
#include "rapt/ops/embed.h"
#include "rapt/use/generate.h"
#include "tests/memory_checkpoint.h"
#include "tests/model_tools.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

namespace fs = std::filesystem;

Device& device() {
  static Device one({.threads = 2});
  return one;
}

// A preset with the same mechanisms and few channels.
Recipe small(const std::string& name) {
  Recipe r = preset(name);
  r.width = 48, r.context = 40;
  if (r.vocab > 0) r.vocab = 61;
  for (auto* stack : {&r.encoder, &r.decoder}) {
    if (!*stack) continue;
    StackRecipe& s = **stack;
    if (s.recurrent) {
      if (s.recurrent->width > 0) s.recurrent->width = 20;
      continue;
    }
    // One that names every layer is cut, the others repeat.
    const bool whole = static_cast<Dim>(s.pattern.size()) == s.layers && s.layers > 4;
    if (whole) s.pattern.resize(3);
    s.layers = s.pattern.size() > 1 ? static_cast<Dim>(s.pattern.size()) + !whole : 2;
    for (auto& [letter, layer] : s.kinds)
      for (PartRecipe& p : layer.parts) {
        if (FfnRecipe* f = p.ffn(); f && f->width > 0) f->width = 52;
        if (MoeRecipe* m = p.moe()) m->width = 20, m->experts = 5, m->used = 2;
        if (MoeRecipe* m = p.moe(); m && m->shared) m->shared->width = 40;
        if (DeltaRecipe* d = p.delta())
          d->key_heads = 2, d->value_heads = 4, d->key_dim = 6, d->value_dim = 5;
        if (!p.attention()) continue;
        AttnRecipe& a = *p.attention();
        a.kv_heads = a.kv_heads == 0 || a.kv_heads == a.heads ? 0 : a.kv_heads == 1 ? 1 : 2;
        a.heads = 4;
        if (a.head_dim > 0) a.head_dim = 10;
        if (a.pos.rope.part < 1) a.head_dim = 16;
        if (a.latent) a.latent->rank = 14, a.latent->rope_dim = 4, a.v_dim = 7;
        if (a.window > 0) a.window = 8;
        if (a.pos.rope.original > 0) a.pos.rope.original = 16;
        if (a.pos.kind == PosRecipe::Kind::bucket) a.pos.bucket.count = 8, a.pos.bucket.max = 20;
        if (a.scale.kind == ScaleRecipe::Kind::number && a.scale.number != 1)
          a.scale.number = 1 / std::sqrt(20.0);
      }
  }
  if (name == "t5") r.head.scale = 1 / std::sqrt(48.0);
  return resolve(r);
}

void each_part(Recipe& r, const std::function<void(PartRecipe&)>& f) {
  for (auto* stack : {&r.encoder, &r.decoder})
    if (*stack)
      for (auto& [letter, layer] : (*stack)->kinds)
        for (PartRecipe& p : layer.parts) f(p);
}

const std::map<std::string, std::string>& said_by() {  // presets and the families that say them
  static const std::map<std::string, std::string> all = {{"bert", "bert"},
                                                         {"gemma2", "gemma2"},
                                                         {"gemma3", "gemma3"},
                                                         {"gpt2", "gpt2"},
                                                         {"llama1", "llama"},
                                                         {"llama2", "llama"},
                                                         {"llama3", "llama"},
                                                         {"llama3.1", "llama"},
                                                         {"marian", "marian"},
                                                         {"mistral", "mistral"},
                                                         {"olmo2", "olmo2"},
                                                         {"qwen2", "qwen2"},
                                                         {"qwen3", "qwen3"},
                                                         {"qwen3-gate-g1", "qwen3-gate-element"},
                                                         {"qwen3-gate-g1-head", "qwen3-gate-head"},
                                                         {"t5", "t5"},
                                                         {"mixtral", "mixtral"},
                                                         {"qwen3-moe", "qwen3-moe"},
                                                         {"vit", "vit"},
                                                         {"deepseek-v2-lite", "deepseek-v2-lite"},
                                                         {"qwen3-next", "qwen3-next"},
                                                         {"lfm2", "lfm2"}};
  return all;
}

std::vector<double> results(const Model& m, std::uint64_t seed) {
  constexpr Dim kLengths[] = {9, 5};
  if (m.recipe.embed.patches) {
    const PatchRecipe& p = *m.recipe.embed.patches;
    const Dim height = p.rows * p.size, width = (p.columns + 1) * p.size;
    std::vector<float> pixels;
    for (Dim i = 0; i < p.channels * height * width; ++i)
      pixels.push_back(static_cast<float>(random_normal(seed, static_cast<std::uint64_t>(i))));
    const Picture picture{pixels, height, width};
    rapt::Run run(device());
    return all_values(forward(run, m, picture_batch(m.recipe, {&picture, 1})));
  }
  return logits_of(device(), m, some_texts(m.recipe, kLengths, seed));
}
void expect_same(const Model& a, const Model& b, std::uint64_t seed) {
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    ASSERT_EQ(a.weights[i].name, b.weights[i].name);
    ASSERT_EQ(std::memcmp(a.weights[i].data.get(), b.weights[i].data.get(), a.weights[i].bytes()), 0)
        << a.weights[i].name;
  }
  if (a.recipe.vocab == 0 && !a.recipe.embed.patches) return;
  const auto x = results(a, seed), y = results(b, seed);
  ASSERT_EQ(x.size(), y.size());
  EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(double)), 0);
}

Json json_of(const std::string& path) { return parse_json(read_text_file(path), path); }
std::string file_text(const std::string& path) { return read_text_file(path); }
std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// --------------------------------------------------------------------------------------------- every preset
TEST(ModelFolder, EveryPresetComesBackBitForBit) {
  const TempFolder temp;
  std::uint64_t seed = 0;
  std::size_t families = 0, own = 0;
  for (const std::string& name : preset_names()) {
    SCOPED_TRACE(name);
    const auto it = said_by().find(name);
    const std::string family = it == said_by().end() ? "" : it->second;
    const Recipe recipe = small(name);
    EXPECT_EQ(family_for(recipe), family);
    Model m(recipe);
    randomise(m, ++seed);
    write_model_folder(m, {}, temp / name, false);
    const Checkpoint c = open_checkpoint(temp / name, {.device = &device()});
    EXPECT_EQ(c.family, family.empty() ? "rapt" : family);
    EXPECT_TRUE(c.model->recipe == m.recipe);  // dropout, starting values and name too
    expect_same(m, *c.model, seed);
    EXPECT_TRUE(checkpoint_recipe(temp / name) == m.recipe);
    EXPECT_GE(check_checkpoint(temp / name).size(), 4u);
    ++(family.empty() ? own : families);
    if (family.empty()) continue;
    // As any program sees it that knows nothing of recipe.json.
    fs::remove(temp / name + "/recipe.json");
    const Checkpoint foreign = open_checkpoint(temp / name, {.device = &device()});
    EXPECT_TRUE(architecture_of(foreign.model->recipe) == architecture_of(m.recipe));
    const auto x = results(m, seed), y = results(*foreign.model, seed);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 2e-5);
  }
  EXPECT_EQ(families, said_by().size());
  EXPECT_GE(own, 20u);
}

// The released sizes too: no weights are made for this.
TEST(ModelFolder, FamiliesKnowThePresetsAsTheyAre) {
  for (const auto& [name, family] : said_by()) EXPECT_EQ(family_for(resolve(preset(name))), family) << name;
  for (const char* name : {"transformer-2017", "palm", "llama3-gate-g1", "qwen3-gate-g5", "vit-22b"})
    EXPECT_EQ(family_for(resolve(preset(name))), "") << name;
}

TEST(ModelFolder, AFamilyIsTakenOnlyWhereItSaysEverything) {
  auto changed = [](const std::string& name, const std::function<void(Recipe&)>& change) {
    Recipe r = small(name);
    change(r);
    return family_for(resolve(r));
  };
  auto biases = [](BiasRecipe b) {
    return [b](Recipe& r) {
      each_part(r, [&](PartRecipe& p) {
        if (AttnRecipe* a = p.self()) a->bias = b;
      });
    };
  };
  EXPECT_EQ(changed("llama2", biases({true, true, true, true})), "llama");
  EXPECT_EQ(changed("llama2", biases({true, true, true, false})), "qwen2");
  EXPECT_EQ(changed("llama2", biases({true, false, false, false})), "");
  EXPECT_EQ(changed("gpt2", biases({true, true, true, false})), "");
  EXPECT_EQ(changed("gpt2", [](Recipe& r) { r.head.tied = false; }), "gpt2");
  EXPECT_EQ(changed("gpt2", [](Recipe& r) { r.embed.dropout = 0.3, r.name = "mine", r.init.std = 0.5; }),
            "gpt2");
  EXPECT_EQ(changed("gpt2", [](Recipe& r) { r.decoder->final_norm->eps = 1e-6; }), "");
  EXPECT_EQ(changed("gpt2", [](Recipe& r) { r.decoder->final_norm.reset(); }), "");
  EXPECT_EQ(changed("gpt2", [](Recipe& r) { r.embed.sink_tokens = 1; }), "");
  EXPECT_EQ(changed("gpt2", [](Recipe& r) { r.head.cap = 30; }), "");
  EXPECT_EQ(changed("llama2", [](Recipe& r) { r.embed.scale_sqrt_width = true; }), "");
  EXPECT_EQ(changed("mistral",
                    [](Recipe& r) {
                      each_part(r, [](PartRecipe& p) {
                        if (p.self()) p.self()->keep = 2;
                      });
                    }),
            "");
  EXPECT_EQ(changed("gemma2",
                    [](Recipe& r) {
                      each_part(r, [](PartRecipe& p) {
                        if (p.self()) p.self()->scale = {};
                      });
                    }),
            "gemma2");
  EXPECT_EQ(changed("gemma2", [](Recipe& r) { r.decoder->pattern = "G", r.decoder->kinds.erase("L"); }),
            "gemma2");
  EXPECT_EQ(changed("bert", [](Recipe& r) { r.head = {.kind = HeadRecipe::Kind::none}; }), "bert");
  EXPECT_EQ(changed("bert", [](Recipe& r) { r.embed.types = 0; }), "distilbert");
  EXPECT_EQ(changed("marian", [](Recipe& r) { r.head.bias = false; }), "");
  EXPECT_EQ(changed("t5", [](Recipe& r) { r.head = {}; }), "t5");
}

TEST(ModelFolder, ConfigSaysWhatTheLibraryReads) {
  const TempFolder temp;
  Model m(small("gpt2"));
  randomise(m, 3);
  TokenizerFiles tokenizer{.tokenizer_json = "", .tokenizer_config_json = "{}\n"};
  write_model_folder(m,
                     {.tokenizer = std::make_shared<TokenizerFiles>(tokenizer), .bos = 0, .eos = 2, .pad = 1},
                     temp / "gpt2", false);
  const Json config = json_of(temp / "gpt2/config.json");
  EXPECT_EQ(config.find("architectures")->array()[0].string(), "GPT2LMHeadModel");
  EXPECT_EQ(config.find("model_type")->string(), "gpt2");
  EXPECT_EQ(config.find("attn_pdrop")->number(), 0.1);
  EXPECT_EQ(config.find("resid_pdrop")->number(), 0.1);
  EXPECT_EQ(config.find("embd_pdrop")->number(), 0.1);
  EXPECT_EQ(config.find("eos_token_id")->integer(), 2);
  EXPECT_EQ(json_of(temp / "gpt2/generation_config.json").find("eos_token_id")->integer(), 2);
  EXPECT_EQ(file_text(temp / "gpt2/tokenizer_config.json"), "{}\n");
  EXPECT_FALSE(fs::exists(temp / "gpt2/tokenizer.json"));
  const SafetensorsFile file = SafetensorsFile::open(temp / "gpt2/model.safetensors");
  ASSERT_TRUE(file.tensors.find("transformer.h.1.attn.c_attn.weight"));
  // In x out, q beside k beside v.
  EXPECT_EQ(file.tensors.find("transformer.h.1.attn.c_attn.weight")->shape_text(), "[48,144]");
  EXPECT_EQ(open_checkpoint(temp / "gpt2").stops, std::vector<std::int32_t>{2});

  Model t(small("marian"));
  randomise(t, 4);
  write_model_folder(t, {.eos = 0, .pad = 60, .decoder_start = 60}, temp / "marian", false);
  EXPECT_EQ(open_checkpoint(temp / "marian").decoder_start, 60);
  EXPECT_EQ(json_of(temp / "marian/config.json").find("dropout")->number(), 0.1);
  EXPECT_TRUE(holds(error_of([&] { model_folder_files(t, {.eos = 61}); }), "eos is token 61"));
}

// ----------------------------------------------------------------------------------- what stands in the way
TEST(ModelFolder, AnExistingFolderIsReplacedOnlyIfAskedAndIfItIsAModel) {
  const TempFolder temp;
  Model a(small("gpt2")), b(small("llama2"));
  randomise(a, 1);
  randomise(b, 2);
  write_model_folder(a, {}, temp / "m", false);
  EXPECT_TRUE(holds(error_of([&] { write_model_folder(b, {}, temp / "m", false); }), "exists already"));
  expect_same(a, *open_checkpoint(temp / "m").model, 1);
  write_model_folder(b, {}, temp / "m/", true);
  expect_same(b, *open_checkpoint(temp / "m").model, 1);
  fs::create_directories(temp / "home");
  put_file(temp / "home/letter.txt", "dear");
  EXPECT_TRUE(holds(error_of([&] { write_model_folder(b, {}, temp / "home", true); }), "no model folder"));
  EXPECT_EQ(file_text(temp / "home/letter.txt"), "dear");
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& e : fs::directory_iterator(temp.path())) ++left;
  EXPECT_EQ(left, 2u);  // nothing half done stays
}

// A run that was killed while it wrote leaves FOLDER.tmp-PROCESS; the next one that writes FOLDER clears it,
// and nothing else.
TEST(ModelFolder, LeftoversOfTheDeadAreCleared) {
  const TempFolder temp;
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  const auto folder = [&](const std::string& name, const char* file) {
    fs::create_directories(temp / name);
    put_file(temp / (name + "/" + file), "x");
    return temp / name;
  };
  const std::string gone = folder(concat("m.tmp-", dead), "config.json"),
                    alive = folder(concat("m.tmp-", ::getppid()), "config.json"),
                    other = folder(concat("n.tmp-", dead), "config.json"),
                    named = folder("m.tmp-x", "config.json"),
                    before = folder(concat("m.tmp-", dead, ".old"), "config.json");
  Model m{resolve(small("gpt2"))};
  randomise(m, 5);
  write_model_folder(m, {}, temp / "m", false);
  EXPECT_FALSE(fs::exists(gone));
  for (const std::string& stays : {alive, other, named, before}) EXPECT_TRUE(fs::exists(stays)) << stays;
  const std::string theirs = folder(concat("m.tmp-", dead), "notes.txt");
  write_model_folder(m, {}, temp / "m", true);
  EXPECT_TRUE(fs::exists(theirs));   // no file of ours
  EXPECT_FALSE(fs::exists(before));  // there is a model in its place
}

TEST(ModelFolder, RecipeAndConfigMustAgree) {
  const TempFolder temp;
  Model m(small("gpt2"));
  randomise(m, 1);
  write_model_folder(m, {}, temp / "m", false);
  const std::string path = temp / "m/recipe.json", good = file_text(path);
  auto opening = [&](const std::string& text) {
    put_file(path, text);
    return error_of([&] { open_checkpoint(temp / "m"); });
  };
  const std::string heads = opening(replaced(good, "\"heads\": 4", "\"heads\": 6"));
  EXPECT_TRUE(holds(heads, "recipe.json") && holds(heads, "heads") && holds(heads, "6") && holds(heads, "4"))
      << heads;
  EXPECT_TRUE(holds(opening(replaced(good, "gelu_tanh", "gelu")), "gelu"));
  EXPECT_TRUE(holds(opening(replaced(good, "\"vocab\": 61", "\"vocab\": 62")), "vocab"));
  EXPECT_TRUE(holds(opening("{ \"width\": "), "recipe.json:1:"));
  EXPECT_TRUE(holds(opening(replaced(good, "\"vocab\"", "\"vocabb\"")), "vocab"));
  // What config.json does not decide is ours.
  EXPECT_EQ(opening(replaced(good, "\"attn_dropout\": 0.1", "\"attn_dropout\": 0.25")), "");
  EXPECT_EQ(open_checkpoint(temp / "m").model->recipe.decoder->layer(0).parts[0].self()->dropout, 0.25);
  put_file(temp / "m/config.json",
           replaced(file_text(temp / "m/config.json"), "\"n_head\": 4", "\"n_head\": 6"));
  EXPECT_TRUE(holds(opening(good), "heads"));
  // Two tables that happen to be equal are still two.
  Recipe untied = small("gpt2");
  untied.head.tied = false;
  const Model zeros(untied);
  write_model_folder(zeros, {}, temp / "zeros", false);
  EXPECT_FALSE(open_checkpoint(temp / "zeros").model->recipe.head.tied);
}

TEST(ModelFolder, OurOwnFormIsCheckedLikeAnyOther) {
  const TempFolder temp;
  Model m(small("llama3-gate-g1"));
  randomise(m, 1);
  write_model_folder(m, {}, temp / "m", false);
  const std::string recipe = temp / "m/recipe.json", weights = temp / "m/model.safetensors",
                    good = file_text(recipe);
  EXPECT_EQ(json_of(temp / "m/config.json").find("model_type")->string(), "rapt");
  auto opening = [&] { return error_of([&] { open_checkpoint(temp / "m"); }); };
  put_file(recipe, replaced(good, "\"layers\": 2", "\"layers\": 3"));
  EXPECT_TRUE(holds(opening(), "'decoder.2.self.norm_in.weight' is missing") ||
              holds(opening(), "decoder.2."))
      << opening();
  put_file(recipe, replaced(good, "\"layers\": 2", "\"layers\": 10000"));
  EXPECT_TRUE(holds(opening(), "is missing")) << opening();
  put_file(recipe, replaced(good, "\"layers\": 2", "\"layers\": 1"));
  EXPECT_TRUE(holds(opening(), "is read by nothing")) << opening();
  put_file(recipe, replaced(good, "\"vocab\": 61", "\"vocab\": 60"));
  EXPECT_TRUE(holds(opening(), "[60,48]")) << opening();
  put_file(recipe, replaced(good, "\"vocab\": 61", "\"vocab\": 2000000000"));
  EXPECT_NE(opening(), "");
  put_file(recipe, replaced(good, "\"heads\": 4", "\"heads\": 5"));
  EXPECT_TRUE(holds(opening(), "recipe.json")) << opening();
  put_file(recipe, good + std::string(2 << 20, ' '));
  EXPECT_NE(opening(), "");
  put_file(recipe, good);
  EXPECT_EQ(opening(), "");
  fs::remove(recipe);
  EXPECT_TRUE(holds(opening(), "recipe.json must describe")) << opening();
  put_file(recipe, good);
  // The same form again, in another type.
  write_checkpoint(temp / "m", temp / "half", {.type = DType::bf16});
  EXPECT_EQ(open_checkpoint(temp / "half").model->weight("decoder.0.self.q.weight").format, DType::bf16);
  EXPECT_TRUE(checkpoint_recipe(temp / "half") == m.recipe);
}

// ------------------------------------------------------------------------------------------------ GGUF
TEST(ModelFolder, WrittenFoldersConvertToGguf) {
  const TempFolder temp;
  for (const char* name : {"gpt2", "llama2", "llama3.1", "qwen3", "gemma3", "t5"}) {
    SCOPED_TRACE(name);
    Recipe r = small(name);
    r.width = 64, r.head.scale = r.head.scale == 1 ? 1 : 0.125;
    each_part(r, [](PartRecipe& p) {
      if (FfnRecipe* f = p.ffn()) f->width = 96;
      if (AttnRecipe* a = p.attention()) a->head_dim = a->v_dim = 16;
    });
    Model m{resolve(r)};
    randomise(m, 5);
    ASSERT_NE(family_for(m.recipe), "");
    write_model_folder(m, {}, temp / name, false);
    write_checkpoint(temp / name, temp / concat(name, ".gguf"), {});
    const Checkpoint exact = open_checkpoint(temp / concat(name, ".gguf"), {.device = &device()});
    const auto x = results(m, 7), y = results(*exact.model, 7);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 2e-4);
    write_checkpoint(temp / name, temp / concat(name, "-q8.gguf"), {.type = DType::q8_0});
    const Checkpoint packed = open_checkpoint(temp / concat(name, "-q8.gguf"));
    EXPECT_EQ(packed.model->weight("decoder.0.self.q.weight").format, DType::q8_0);
    const auto z = results(*packed.model, 7);
    double far = 0, size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) far += (x[i] - z[i]) * (x[i] - z[i]), size += x[i] * x[i];
    EXPECT_LT(far / size, 1e-2);
  }
}

// What no family says keeps its recipe inside the GGUF file.
TEST(ModelFolder, OurOwnFormAsGguf) {
  const TempFolder temp;
  for (const std::string name : {"transformer-2017", "llama3-gate-g1", "palm"}) {
    SCOPED_TRACE(name);
    Recipe r = small(name);
    r.width = 64;
    each_part(r, [](PartRecipe& p) {
      if (FfnRecipe* f = p.ffn()) f->width = 96;
      if (AttnRecipe* a = p.attention())
        a->head_dim = a->v_dim = 16, a->extra = {.kind = ExtraRecipe::Kind::kv_slots, .slots = 2};
    });
    Model m{resolve(r)};
    randomise(m, 5);
    write_model_folder(m, {.eos = 3, .pad = 7, .decoder_start = 7}, temp / name, false);
    const std::string file = temp / (name + ".gguf");
    write_checkpoint(temp / name, file, {});
    const Checkpoint exact = open_checkpoint(file);
    EXPECT_EQ(exact.family, "rapt");
    EXPECT_TRUE(exact.model->recipe == m.recipe);
    EXPECT_EQ(exact.decoder_start, r.encoder ? 7 : -1);
    expect_same(m, *exact.model, 3);
    EXPECT_GE(check_checkpoint(file).size(), 4u);
    write_checkpoint(file, temp / (name + "-back"), {});
    expect_same(m, *open_checkpoint(temp / (name + "-back")).model, 3);
    write_checkpoint(temp / name, temp / (name + "-q8.gguf"), {.type = DType::q8_0});
    const Checkpoint packed = open_checkpoint(temp / (name + "-q8.gguf"));
    EXPECT_EQ(packed.model->weight("decoder.0.self.q.weight").format, DType::q8_0);
    EXPECT_TRUE(packed.model->recipe == m.recipe);
    const auto x = results(m, 7), z = results(*packed.model, 7);
    double far = 0, size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) far += (x[i] - z[i]) * (x[i] - z[i]), size += x[i] * x[i];
    EXPECT_LT(far / size, 1e-2);
  }
}

TEST(ModelFolder, AGgufOfOurOwnNeedsARecipeThatFits) {
  const TempFolder temp;
  const std::vector<float> numbers(8, 1.0f);
  const std::vector<GgufTensorPlan> tensors = {{"embed.tokens", DType::f32, {2, 4}, [&](FileWriter& out) {
                                                  out.write(std::as_bytes(std::span(numbers)));
                                                }}};
  auto opening = [&](const std::optional<std::string>& recipe) {
    std::vector<std::pair<std::string, GgufValue>> keys = {{"general.architecture", GgufValue::text("rapt")}};
    if (recipe) keys.emplace_back("rapt.recipe", GgufValue::text(*recipe));
    write_gguf(temp / "m.gguf", keys, tensors, true, {});
    return error_of([&] { open_checkpoint(temp / "m.gguf"); });
  };
  EXPECT_TRUE(holds(opening(std::nullopt), "rapt.recipe"));
  EXPECT_TRUE(holds(opening("{"), "rapt.recipe"));
  EXPECT_TRUE(holds(opening("{}"), "rapt.recipe"));
  EXPECT_TRUE(holds(opening(std::string((1 << 20) + 1, ' ')), "no recipe is that long"));
  EXPECT_TRUE(holds(opening(R"({"preset": "llama2"})"), "is missing"));
  EXPECT_TRUE(
      holds(opening(R"({"preset": "llama2", "width": 1e9})"), "m.gguf: the model would have more than"));
}

// ---------------------------------------------------------------------------------------------- classifiers
Recipe classifier(const std::string& name, HeadRecipe::Pool pool, Dim classes, bool pooler) {
  Recipe r = small(name);
  r.head = {.kind = HeadRecipe::Kind::classes, .classes = classes, .pool = pool};
  if (pooler) r.head.bias = true, r.head.transform = HeadTransform{.act = Act::tanh, .norm = {}};
  return resolve(r);
}

TEST(Classifier, ComesBackWithItsNames) {
  const TempFolder temp;
  struct Case {
    const char *preset, *family, *architecture;
    HeadRecipe::Pool pool;
    bool pooler;
  };
  using Pool = HeadRecipe::Pool;
  int n = 0;
  for (const Case& c : {Case{"bert", "bert", "BertForSequenceClassification", Pool::first, true},
                        Case{"bert", "rapt", "RaptModel", Pool::mean, true},
                        Case{"bert", "rapt", "RaptModel", Pool::first, false},
                        Case{"gpt2", "gpt2", "GPT2ForSequenceClassification", Pool::last, false},
                        Case{"llama2", "rapt", "RaptModel", Pool::last, false},
                        Case{"t5", "rapt", "RaptModel", Pool::mean, true}}) {
    const std::string at = temp / concat("m", n++);
    SCOPED_TRACE(concat(c.preset, " ", at));
    Model m(classifier(c.preset, c.pool, 3, c.pooler));
    randomise(m, 11);
    write_model_folder(m, {.class_names = {"no", "yes", "über"}}, at, false);
    const Checkpoint back = open_checkpoint(at);
    EXPECT_EQ(back.family, c.family);
    EXPECT_EQ(json_of(at + "/config.json").find("architectures")->array()[0].string(), c.architecture);
    EXPECT_EQ(back.class_names, (std::vector<std::string>{"no", "yes", "über"}));
    EXPECT_EQ(json_of(at + "/config.json").find("label2id")->find("yes")->integer(), 1);
    EXPECT_TRUE(back.model->recipe == m.recipe);
    expect_same(m, *back.model, 1);
    EXPECT_EQ(results(m, 1).size(), 2u * 3u);  // one row for each sequence
    write_model_folder(m, {}, at, true);
    EXPECT_TRUE(open_checkpoint(at).class_names.empty());
    if (back.family != "rapt") {
      fs::remove(at + "/recipe.json");
      EXPECT_TRUE(architecture_of(open_checkpoint(at).model->recipe) == architecture_of(m.recipe));
      EXPECT_TRUE(holds(error_of([&] { write_checkpoint(at, at + ".gguf", {}); }), "head."));
    } else {
      write_model_folder(m, {.class_names = {"no", "yes", "über"}}, at, true);
      write_checkpoint(at, at + ".gguf", {});
      EXPECT_EQ(open_checkpoint(at + ".gguf").class_names, back.class_names);
      write_checkpoint(at + ".gguf", at + "-again", {});
      EXPECT_EQ(open_checkpoint(at + "-again").class_names, back.class_names);
      expect_same(m, *open_checkpoint(at + "-again").model, 1);
    }
  }
}

TEST(Classifier, NamesOfAFileAreChecked) {
  const TempFolder temp;
  Model m(classifier("bert", HeadRecipe::Pool::first, 2, true));
  EXPECT_TRUE(holds(error_of([&] { model_folder_files(m, {.class_names = {"a"}}); }),
                    "1 names of classes, the model has 2"));
  EXPECT_TRUE(
      holds(error_of([&] { model_folder_files(m, {.class_names = {"a", "a"}}); }), "two classes are called"));
  write_model_folder(m, {.class_names = {"a", "b"}}, temp / "m", false);
  const std::string path = temp / "m/config.json", good = file_text(path);
  Json config = parse_json(good, path);
  auto opening = [&](Json names) {
    config.set("id2label", std::move(names));
    put_file(path, config.dump());
    return error_of([&] { open_checkpoint(temp / "m"); });
  };
  EXPECT_TRUE(holds(opening(Json(3)), "id2label: wants an object"));
  EXPECT_TRUE(holds(opening(parse_json(R"({"0": "a"})")), "1 names for 2 classes"));
  EXPECT_TRUE(holds(opening(parse_json(R"({"0": "a", "2": "b"})")), "class 1 has no name"));
  EXPECT_TRUE(holds(opening(parse_json(R"({"0": "a", "1": 7})")), "class 1 has no name"));
  EXPECT_EQ(opening(Json()), "");
}

TEST(Classifier, RefusesWhatMakesNoSense) {
  Model m(classifier("llama2", HeadRecipe::Pool::last, 4, false));
  randomise(m, 2);
  const std::int32_t ids[] = {1, 2, 3};
  rapt::Run run(device());
  Batch batch{.tokens = ids, .sequences = {{.first = 0, .count = 3}}, .want = kWantLast};
  EXPECT_TRUE(holds(error_of([&] { forward(run, m, batch); }), "Batch::want"));
  batch.want = {};
  KvPool cache(m);
  EXPECT_TRUE(holds(error_of([&] { forward(run, m, batch, nullptr, &cache); }), "cache"));
  batch.sequences[0].past = 2;
  EXPECT_TRUE(holds(error_of([&] { forward(run, m, batch); }), "whole sequences"));
  const Checkpoint c = memory_checkpoint(m.recipe, 1);
  EXPECT_TRUE(holds(error_of([&] { Session(device(), c, {}); }), "is a classifier"));
  auto rejected = [](const char* head) {
    return error_of([&] { resolve(parse_recipe(concat(R"({"preset": "llama2", "head": )", head, "}"))); });
  };
  EXPECT_TRUE(holds(rejected(R"({"kind": "classes"})"), "head.classes: is 0"));
  EXPECT_TRUE(holds(rejected(R"({"kind": "classes", "classes": 1})"), "at least 2"));
  EXPECT_TRUE(holds(rejected(R"({"kind": "classes", "classes": 2, "tied": true})"), "head.tied"));
  EXPECT_TRUE(holds(rejected(R"({"classes": 2})"), "head.classes: belongs"));
  EXPECT_TRUE(holds(rejected(R"({"pool": "mean"})"), "head.pool: belongs"));
  EXPECT_TRUE(holds(rejected(R"({"kind": "classes", "classes": 2, "pool": "middle"})"), "middle"));
  EXPECT_EQ(rejected(R"({"kind": "classes", "classes": 2, "transform": {"act": "tanh", "norm": null}})"), "");
}

// Each pooling against the hidden states it takes, and its gradient against differences, in double.
TEST(Classifier, PoolsTheRowsItSays) {
  Device exact({.threads = 1, .isa = "f64"});
  constexpr Dim kLengths[] = {5, 1, 3};
  for (const Dim sinks : {0, 2})
    for (const auto pool : {HeadRecipe::Pool::first, HeadRecipe::Pool::mean, HeadRecipe::Pool::last}) {
      Recipe r = classifier("llama2", pool, 3, true);
      r.embed.sink_tokens = sinks;
      Model m(r, DType::f64);
      randomise(m, 3);
      Recipe bare = r;
      bare.head = {.kind = HeadRecipe::Kind::none};
      Model hidden(bare, DType::f64);
      randomise(hidden, 3);  // the weights before the head have the same places, hence the same numbers
      const std::vector<SomeText> texts = some_texts(r, kLengths, 4);
      const std::vector<double> got = logits_of(exact, m, texts), rows = logits_of(exact, hidden, texts);
      const Dim C = r.width;
      Dim first = 0;
      for (std::size_t s = 0; s < std::size(kLengths); ++s) {
        std::vector<double> one(static_cast<std::size_t>(C)), step(static_cast<std::size_t>(C));
        const Dim n = kLengths[s];
        for (Dim t = 0; t < n; ++t)
          for (Dim c = 0; c < C; ++c) {
            const double v = rows[static_cast<std::size_t>((first + t) * C + c)];
            if (pool == HeadRecipe::Pool::mean)
              one[static_cast<std::size_t>(c)] += v / static_cast<double>(n);
            else if (t == (pool == HeadRecipe::Pool::first ? 0 : n - 1)) one[static_cast<std::size_t>(c)] = v;
          }
        first += n;
        auto dot = [&](const char* w, const char* b, Dim row, const std::vector<double>& x) {
          double sum = m.weight(b).get(0, row);
          for (Dim c = 0; c < C; ++c) sum += m.weight(w).get(row, c) * x[static_cast<std::size_t>(c)];
          return sum;
        };
        for (Dim c = 0; c < C; ++c)
          step[static_cast<std::size_t>(c)] =
              std::tanh(dot("head.pooler.weight", "head.pooler.bias", c, one));
        for (Dim k = 0; k < 3; ++k)
          EXPECT_NEAR(got[s * 3 + static_cast<std::size_t>(k)],
                      dot("head.classes.weight", "head.classes.bias", k, step), 1e-12);
      }
      // Loss: results times fixed numbers; slope along one direction through all weights.
      const PackedBatch packed(texts);
      Gradients gradients(DType::f64);
      auto loss = [&](bool back) {
        rapt::Run run(exact);
        Tape tape(gradients);
        if (back) run.tape = &tape;
        const Tensor out = forward(run, m, packed.batch);
        double sum = 0;
        for (Dim i = 0; i < out.elements(); ++i)
          sum += out.at(i) * random_normal(9, static_cast<std::uint64_t>(i));
        if (back) {
          auto* g = static_cast<double*>(run.grad(out));
          for (Dim i = 0; i < out.elements(); ++i) g[i] = random_normal(9, static_cast<std::uint64_t>(i));
          tape.play_back(run);
        }
        return sum;
      };
      loss(true);
      double slope = 0;
      auto direction = [](const Weight& w, Dim i) {
        return random_normal(77 + static_cast<std::uint64_t>(w.index), static_cast<std::uint64_t>(i));
      };
      for (const Weight& w : m.weights)
        for (Dim i = 0; i < w.size(); ++i)
          slope += gradients.get(w, i / w.cols, i % w.cols) * direction(w, i);
      auto move = [&](double by) {
        for (Weight& w : m.weights)
          for (Dim i = 0; i < w.size(); ++i)
            w.set(i / w.cols, i % w.cols, w.get(i / w.cols, i % w.cols) + by * direction(w, i));
      };
      constexpr double kStep = 1e-6;
      move(kStep);
      const double up = loss(false);
      move(-2 * kStep);
      const double down = loss(false);
      EXPECT_NEAR(slope, (up - down) / (2 * kStep), 1e-4 * (1 + std::abs(slope)));
    }
}

// ---------------------------------------------------------------------------- files cut while they are read
TEST(ModelFolder, AFileCutWhileItIsLoadedEndsInAnError) {
  const TempFolder temp;
  Model m(small("llama2"));
  randomise(m, 1);
  write_model_folder(m, {}, temp / "m", false);
  write_checkpoint(temp / "m", temp / "m.gguf", {});
  for (const std::string& path : {temp / "m", temp / "m.gguf"}) {
    const std::string file = fs::is_directory(path) ? path + "/model.safetensors" : path;
    const std::string whole = file_text(file);
    auto cut = [&] { fs::resize_file(file, 4096); };
    // Between opening and packing.
    const std::string before = error_of([&] { open_checkpoint(path, {.change = [&](Recipe&) { cut(); }}); });
    EXPECT_TRUE(holds(before, "changed while it was read")) << before;
    // In the midst of packing, with one thread and with several.
    for (Device* d : {static_cast<Device*>(nullptr), &device()}) {
      put_file(file, whole);
      int calls = 0;
      const std::string during = error_of([&] {
        open_checkpoint(path, {.progress =
                                   [&](std::uint64_t, std::uint64_t) {
                                     if (++calls == 3) cut();
                                   },
                               .device = d});
      });
      EXPECT_TRUE(holds(during, "was cut before byte")) << during;
    }
    // Written to, with its length kept: only the clock of the file tells.
    put_file(file, whole);
    fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
    const std::string touched = error_of([&] {
      open_checkpoint(path, {.progress = [&](std::uint64_t done, std::uint64_t of) {
                        if (done == of)
                          fs::last_write_time(file, fs::last_write_time(file) + std::chrono::hours(1));
                      }});
    });
    EXPECT_TRUE(holds(touched, "changed while it was read")) << touched;
    put_file(file, whole);
    expect_same(m, *open_checkpoint(path).model, 3);
  }
}

TEST(ModelFolder, AFileCutWhileItIsConvertedEndsInAnError) {
  const TempFolder temp;
  Model m(small("llama2"));
  randomise(m, 1);
  write_model_folder(m, {}, temp / "m", false);
  for (const std::optional<DType> type : {std::optional<DType>(), std::optional<DType>(DType::f16)}) {
    const std::string file = temp / "m/model.safetensors", whole = file_text(file);
    int calls = 0;
    const std::string why = error_of([&] {
      write_checkpoint(temp / "m", temp / "out.gguf",
                       {.type = type, .progress = [&](std::size_t, std::size_t) {
                          if (++calls == 2) fs::resize_file(file, 4096);
                        }});
    });
    EXPECT_TRUE(holds(why, "was cut before byte") || holds(why, "changed while")) << why;
    EXPECT_FALSE(fs::exists(temp / "out.gguf"));
    put_file(file, whole);
  }
}

}  // namespace
}  // namespace rapt::test
