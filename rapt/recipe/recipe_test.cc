// SPDX-License-Identifier: Apache-2.0
// Recipes against their own JSON, bad JSON and illegal recipes against the words of their errors.
#include "rapt/recipe/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "rapt/recipe/recipe_schema.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::error_of;
using test::holds;

// A small legal decoder; tests change one thing.
Recipe tiny() {
  return parse_recipe(R"({ "name": "tiny", "width": 16, "vocab": 11, "context": 32,
    "decoder": { "layers": 2, "kinds": { "L": { "parts": [
      { "self": { "heads": 4, "kv_heads": 2, "pos": "rope", "norm_in": "rms" } },
      { "ffn": { "norm_in": "rms" } } ] } }, "final_norm": "rms" } })");
}
Recipe tiny_encoder_decoder() {
  Recipe r = tiny();
  r.encoder = r.decoder;
  r.encoder->kinds["L"].parts[0].self()->mask = AttnRecipe::MaskKind::full;
  PartRecipe cross = r.decoder->kinds["L"].parts[0];
  cross.attention()->cross = true;
  cross.attention()->pos = {};
  r.decoder->kinds["L"].parts.insert(r.decoder->kinds["L"].parts.begin() + 1, cross);
  return r;
}
AttnRecipe& encoder_attn(Recipe& r) { return *r.encoder->kinds["L"].parts[0].attention(); }
Recipe tiny_relative() {
  Recipe r = tiny_encoder_decoder();
  encoder_attn(r).pos = {.kind = PosRecipe::Kind::relative, .relative = {.buckets = 8, .max = 20}};
  return r;
}
AttnRecipe& attn(Recipe& r) { return *r.decoder->kinds["L"].parts[0].attention(); }
FfnRecipe& ffn(Recipe& r) { return *r.decoder->kinds["L"].parts.back().ffn(); }
DeltaRecipe& delta(Recipe& r) {  // in the place of attention
  PartRecipe& first = r.decoder->kinds["L"].parts.front();
  if (!first.delta()) first.body = DeltaRecipe{.key_heads = 2, .key_dim = 6};
  return *first.delta();
}
ConvRecipe& conv(Recipe& r) {
  PartRecipe& first = r.decoder->kinds["L"].parts.front();
  if (!first.conv()) first.body = ConvRecipe{};
  return *first.conv();
}
MoeRecipe& moe(Recipe& r) {  // in the place of the feed-forward part
  PartRecipe& last = r.decoder->kinds["L"].parts.back();
  if (!last.moe()) last.body = MoeRecipe{.experts = 8, .used = 2, .width = 12};
  return *last.moe();
}
PartRecipe& part(Recipe& r, std::size_t i) { return r.decoder->kinds["L"].parts[i]; }
void latent(Recipe& r) {  // that would be fine
  AttnRecipe& a = attn(r);
  a.latent = LatentRecipe{.rank = 8, .rope_dim = 4};
  a.kv_heads = 0, a.head_dim = 10, a.v_dim = 0;
  a.pos = {.kind = PosRecipe::Kind::rope};
}

std::string resolve_error(const Recipe& r) {
  return error_of([&] { resolve(r); });
}
std::string parse_error(const std::string& json) {
  return error_of([&] { resolve(parse_recipe(json, "r.json")); });
}

TEST(Recipe, FillsInWhatZeroStandsFor) {
  const Recipe r = resolve(tiny());
  const AttnRecipe& a = *r.decoder->kinds.at("L").parts[0].self();
  EXPECT_EQ(a.head_dim, 4);
  EXPECT_EQ(a.v_dim, 4);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_EQ(r.decoder->kinds.at("L").parts[1].ffn()->width, 64);
  EXPECT_EQ(resolve(r), r);
}

TEST(Recipe, RelativePositionsSurviveJson) {
  Recipe r = tiny_relative();
  EXPECT_EQ(parse_recipe(recipe_json(r)), r) << recipe_json(r);
  EXPECT_EQ(automatic_scale(*resolve(r).encoder->kinds["L"].parts[0].self()), 3 * 4);
  encoder_attn(r).pos.relative = {.buckets = 16,
                                  .max = 99,
                                  .keys = false,
                                  .norm = NormRecipe{.kind = NormRecipe::Kind::layer, .eps = 1e-7}};
  EXPECT_EQ(resolve_error(r), "");
  for (const bool all : {false, true}) EXPECT_EQ(parse_recipe(recipe_json(r, all)), r) << recipe_json(r, all);
  EXPECT_EQ(automatic_scale(*resolve(r).encoder->kinds["L"].parts[0].self()), 2 * 4);
}

// Every field away from its default survives being written and read.
TEST(Recipe, EverythingSurvivesJson) {
  Recipe r = tiny_encoder_decoder();
  r.note = "a \"note\" with ü";
  r.embed = {.scale = 1,
             .scale_sqrt_width = true,
             .norm = NormRecipe{NormRecipe::Kind::layer, 1e-12, NormRecipe::Gain::plus_one, true},
             .types = 2,
             .sink_tokens = 3,
             .pos = EmbedRecipe::Pos::sinusoid,
             .layout = SinusoidLayout::halves,
             .table = SinusoidTable::marian,
             .dropout = 0.1};
  AttnRecipe& a = attn(r);
  a.score = AttnRecipe::ScoreKind::dot;
  a.normal = Normal::sigmoid;
  a.scale = {.kind = ScaleRecipe::Kind::learned, .number = 3, .per = ScaleRecipe::Per::head, .max = 10};
  a.v_dim = 6;
  a.bias = {true, false, true, false};
  a.qk_norm = QkNormRecipe{.norm = {.kind = NormRecipe::Kind::l2},
                           .weights = QkNormRecipe::Weights::per_head,
                           .at = QkNormRecipe::At::after_pos};
  a.v_norm = NormRecipe{.weight = NormRecipe::Gain::none};
  a.z_norm = NormRecipe{};
  a.pos.rope = {.theta = 5e5,
                .part = 0.5,
                .layout = RopeLayout::pairs,
                .scaling = RopeScaling::yarn,
                .factor = 4,
                .original = 64,
                .beta_fast = 16,
                .beta_slow = 2,
                .truncate = false,
                .attention_factor = 1.1,
                .mscale = 0.7,
                .mscale_all_dim = 0.6};
  a.mask = AttnRecipe::MaskKind::causal;
  a.window = 8;
  a.cap = 20;
  a.extra = {.kind = ExtraRecipe::Kind::kv_slots, .slots = 2};
  a.gate = {{.at = GateRecipe::At::q, .act = Act::tanh},
            {.at = GateRecipe::At::v,
             .from = GateRecipe::From::constant,
             .grain = GateGrain::head,
             .heads = GateRecipe::Heads::shared,
             .act = Act::softplus,
             .op = GateRecipe::Op::add}};
  a.dropout = 0.2;
  part(r, 0).norm_out = NormRecipe{.kind = NormRecipe::Kind::batch, .leaks_ok = true};
  part(r, 0).residual_scale = 0.5;
  part(r, 0).dropout = 0.3;
  part(r, 1).attention()->scale = {.kind = ScaleRecipe::Kind::number, .number = 0.25};
  ffn(r) = {.act = Act::silu,
            .width = 24,
            .bias = true,
            .clamp = 7,
            .alpha = 1.702,
            .up_offset = 1,
            .dropout = 0.1};
  r.encoder->kinds["L"].parts[0].self()->pos = {.kind = PosRecipe::Kind::bucket, .bucket = {16, 40, false}};
  r.encoder->dropout = 0.1;
  r.head = {.tied = true, .bias = true, .scale = 0.5, .cap = 30, .transform = HeadTransform{}};
  r.init = {.scheme = InitRecipe::Scheme::xavier, .std = 0.1, .scale_residual = true};
  EXPECT_EQ(resolve_error(r), "");
  for (const bool all : {false, true}) {
    const std::string json = recipe_json(r, all);
    EXPECT_EQ(parse_recipe(json), r) << json;
    EXPECT_EQ(recipe_json(parse_recipe(json), all), json);
  }
  // The scalings that are not above.
  for (const RopeSpec& spec : {RopeSpec{.scaling = RopeScaling::linear, .factor = 2},
                               RopeSpec{.scaling = RopeScaling::ntk, .factor = 2},
                               RopeSpec{.scaling = RopeScaling::dynamic, .factor = 2, .original = 64},
                               RopeSpec{.scaling = RopeScaling::llama3, .factor = 2, .original = 64},
                               RopeSpec{.scaling = RopeScaling::longrope,
                                        .original = 64,
                                        .max_context = 128,
                                        .short_factor = {1, 1.5},
                                        .long_factor = {2, 4}},
                               RopeSpec{.part = 0.5, .scaling = RopeScaling::proportional}}) {
    Recipe s = tiny();
    attn(s).pos.rope = spec;
    EXPECT_EQ(resolve_error(s), "");
    EXPECT_EQ(parse_recipe(recipe_json(s)), s) << recipe_json(s);
  }
}

TEST(Recipe, ShortWaysOfWriting) {
  const Recipe r = parse_recipe(
      R"json({ "width": 8, "vocab": 4, "context": 4, "embed": { "scale": "sqrt(width)", "pos": "sinusoid" }, "decoder": { "kinds": { "L": { "parts": [
    { "self": { "norm_in": "layer", "bias": "qkv", "pos": { "alibi": {} }, "scale": 1, "extra": { "kv_slots": 3 } } } ] } } } })json");
  const AttnRecipe& a = *r.decoder->kinds.at("L").parts[0].self();
  EXPECT_EQ(r.decoder->kinds.at("L").parts[0].norm_in->kind, NormRecipe::Kind::layer);
  EXPECT_EQ(a.bias, (BiasRecipe{true, true, true, false}));
  EXPECT_EQ(a.pos.kind, PosRecipe::Kind::alibi);
  EXPECT_EQ(a.scale.kind, ScaleRecipe::Kind::number);
  EXPECT_EQ(a.extra.slots, 3);
  EXPECT_TRUE(r.embed.scale_sqrt_width);
  EXPECT_EQ(r.embed.pos, EmbedRecipe::Pos::sinusoid);
}

TEST(Recipe, AChangeOnTopOfAPreset) {
  const Recipe base = preset("llama3.1");
  const Recipe r = parse_recipe(
      R"({ "preset": "llama3.1", "name": "mine", "width": 64, "decoder": { "layers": 2, "final_norm": null, "kinds": { "L": { "parts": {
    "self": { "heads": 4, "kv_heads": 0, "pos": { "rope": { "scaling": { "llama3": { "factor": 32 } } } } } } } } } })");
  const AttnRecipe& a = *r.decoder->kinds.at("L").parts[0].self();
  EXPECT_EQ(r.name, "mine");
  EXPECT_EQ(r.note, "");
  EXPECT_EQ(r.vocab, base.vocab);
  EXPECT_EQ(a.pos.rope.factor, 32);
  EXPECT_EQ(a.pos.rope.original, 8192);  // the rest of the scaling stays
  EXPECT_EQ(a.pos.rope.theta, 500000);
  EXPECT_FALSE(r.decoder->final_norm);
  EXPECT_EQ(r.decoder->kinds.at("L").parts[1], base.decoder->kinds.at("L").parts[1]);
  // Sizes follow the new width.
  EXPECT_EQ(resolve(r).decoder->kinds.at("L").parts[0].self()->head_dim, 16);
  // Another choice leaves nothing of the old one behind.
  const Recipe other = parse_recipe(
      R"({ "preset": "llama3.1", "decoder": { "kinds": { "L": { "parts": { "self": { "pos": "alibi" } } } } } })");
  EXPECT_EQ(other.decoder->kinds.at("L").parts[0].self()->pos, (PosRecipe{.kind = PosRecipe::Kind::alibi}));
  // A kind can be removed, a list replaces.
  const Recipe one =
      parse_recipe(R"({ "preset": "gemma3", "decoder": { "pattern": "G", "kinds": { "L": null } } })");
  EXPECT_EQ(resolve(one).decoder->kinds.size(), 1u);
}

TEST(Recipe, EveryPresetIsLegalAndSurvivesJson) {
  ASSERT_GE(preset_names().size(), 35u);
  for (const std::string& name : preset_names()) {
    const Recipe r = preset(name), full = resolve(r);
    EXPECT_EQ(r.name, name);
    EXPECT_FALSE(r.note.empty()) << name;
    EXPECT_EQ(r.note.find('\n'), std::string::npos);
    for (const Recipe& x : {r, full})
      for (const bool all : {false, true}) EXPECT_EQ(parse_recipe(recipe_json(x, all)), x) << name;
    EXPECT_EQ(find_recipe(name), r);
  }
}

TEST(Recipe, FindsFilesAndHelpsWithNames) {
  EXPECT_TRUE(holds(error_of([] { find_recipe("lama3"); }), "did you mean 'llama3'"));
  EXPECT_TRUE(holds(error_of([] { find_recipe("nowhere/x.json"); }), "no such file"));
  EXPECT_TRUE(holds(error_of([] { find_recipe("/"); }), "folder"));
  const test::TempFolder folder;
  const std::string path = folder / "recipe.json";
  std::ofstream(path) << "{ \"preset\": \"gpt2\",\n \"widht\": 3 }";
  EXPECT_TRUE(
      holds(error_of([&] { find_recipe(path); }), path + ":2:11: widht: unknown key; did you mean 'width'?"));
}

TEST(Recipe, LayersFollowThePattern) {
  const Recipe r = resolve(preset("gemma3"));
  for (Dim i = 0; i < 26; ++i)
    EXPECT_EQ(r.decoder->layer(i).parts[0].self()->window, i % 6 == 5 ? 0 : 512) << i;
  EXPECT_THROW(r.decoder->layer(26), Error);
  EXPECT_THROW(r.decoder->layer(-1), Error);
}

// ------------------------------------------------------------------------------------ what JSON may not say
TEST(Recipe, BadJsonIsNamedWithItsPlace) {
  const std::string head = R"({ "width": 16, "vocab": 11, "context": 32, )";
  const std::string self = R"("decoder": { "kinds": { "L": { "parts": [ { "self": )", end = " } ] } } } }";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "a recipe is an object"},
      {"{ \"width\": 1, \"width\": 2 }", "r.json:1:15: the key \"width\" stands twice"},
      {"{ \"preset\": \"lama3\" }", "did you mean 'llama3'"},
      {"{ \"preset\": 3 }", "preset: wants the name of a preset, has a number"},
      {head + "\"decodr\": {} }", "decodr: unknown key; did you mean 'decoder'"},
      {head + self + R"({ "head": 4 })" + end,
       "decoder.kinds.L.parts[0].self.head: unknown key; did you mean 'heads'"},
      {head + self + R"({ "heads": "4" })" + end, "self.heads: wants a whole number, has a string"},
      {head + self + R"({ "heads": 4.5 })" + end, "self.heads: wants a whole number, has 4.5"},
      {head + self + R"({ "heads": 0 })" + end, "self.heads: must be at least 1, is 0 (query heads)"},
      {head + self + R"({ "heads": -4 })" + end, "must be at least 1"},
      {head + self + R"({ "heads": 1e12 })" + end, "must be at most 2147483647"},
      {head + self + R"({ "heads": null })" + end, "has null"},
      {head + self + R"({ "score": "dto" })" + end, "unknown value \"dto\"; did you mean 'dot'"},
      {head + self + R"({ "score": 3 })" + end, "wants one of dot, general"},
      {head + self + R"({ "dropout": 1 })" + end, "self.dropout: must be below 1, is 1"},
      {head + self + R"({ "attn_dropout": -0.1 })" + end, "must be at least 0"},
      {head + self + R"({ "cap": -1 })" + end, "self.cap: must be at least 0"},
      {head + self + R"({ "keep": -1 })" + end, "self.keep: must be at least 0"},
      {head + self + R"({ "bias": "qk" })" + end, "self.bias: unknown value \"qk\""},
      {head + self + R"({ "bias": true })" + end,
       "self.bias: wants an object or one of none, all, qkv, has true or false"},
      {head + self + R"({ "pos": "ropes" })" + end, "self.pos: unknown value \"ropes\"; did you mean 'rope'"},
      {head + self + R"({ "pos": 3 })" + end,
       "self.pos: wants one of none, rope, alibi, bucket, relative, grid, xl, has a number"},
      {head + self + R"({ "pos": { "rope": {}, "bucket": {} } })" + end, "exactly one key"},
      {head + self + R"({ "pos": { "rope": { "part": 0 } } })" + end, "pos.rope.part: must be above 0"},
      {head + self + R"({ "pos": { "rope": { "part": 1.5 } } })" + end, "pos.rope.part: must be at most 1"},
      {head + self + R"({ "pos": { "rope": { "theta": 0 } } })" + end, "theta: must be above 0"},
      {head + self + R"({ "pos": { "rope": { "scaling": { "yarn": { "low_freq": 2 } } } } })" + end,
       "scaling.yarn.low_freq: unknown key"},
      {head + self + R"({ "pos": { "alibi": { "slope": 2 } } })" + end, "alibi.slope: unknown key"},
      {head + self + R"({ "scale": "big" })" + end,
       "self.scale: unknown value \"big\"; known: auto, learned"},
      {head + self + R"({ "scale": 0 })" + end, "self.scale: must not be 0"},
      {head + self + R"({ "scale": { "number": 2 } })" + end, "unknown value \"number\""},
      {head + self + R"({ "scale": { "learned": { "init": 0 } } })" + end,
       "scale.learned.init: must not be 0"},
      {head + self + R"({ "extra": "kv_slots" })" + end, "extra.kv_slots: wants a number"},
      {head + self + R"({ "extra": { "kv_slots": 0 } })" + end, "extra.kv_slots: must be at least 1"},
      {head + self + R"({ "gate": {} })" + end, "self.gate: wants a list of gates"},
      {head + self + R"({ "gate": [{ "act": "softcap" }] })" + end, "gate[0].act: unknown value \"softcap\""},
      {head + self + R"({ "norm_in": "rsm" })" + end, "norm_in: unknown value \"rsm\"; did you mean 'rms'"},
      {head + self + R"({ "norm_in": { "eps": 0 } })" + end, "norm_in.eps: must be above 0"},
      {head + self + R"({ "width": 4 })" + end, "self.width: unknown key"},  // a field of ffn
      {head + R"("decoder": { "layers": 0 } })", "decoder.layers: must be at least 1"},
      {head + R"("decoder": { "kinds": [] } })", "decoder.kinds: wants an object"},
      {head + R"("decoder": { "kinds": { "L": { "parts": [ { "mixture": {} } ] } } } })",
       "parts[0]: unknown part \"mixture\""},
      {head + R"("decoder": { "kinds": { "L": { "parts": [ { "self": {}, "ffn": {} } ] } } } })",
       "parts[0]: wants an object with one key"},
      {head + R"("decoder": { "kinds": { "L": { "parts": { "self": {} } } } } })",
       "parts.self: this layer has no such part to change"},
      {head + R"("embed": { "scale": "sqrt" } })", "embed.scale: unknown value \"sqrt\""},
      {head + R"("embed": { "types": -1 } })", "embed.types: must be at least 0"},
      {head + R"("embed": { "sink_tokens": -1 } })", "embed.sink_tokens: must be at least 0"},
      {head + R"("init": { "std": 0 } })", "init.std: must be above 0"},
  };
  for (const auto& [json, message] : cases) {
    const std::string e = parse_error(json);
    EXPECT_TRUE(holds(e, message)) << json << "\n  gave:   " << e << "\n  wanted: " << message;
    EXPECT_TRUE(e.starts_with("r.json:1:")) << e;
  }
}

// -------------------------------------------------------------------------------- what does not go together
struct Illegal {
  const char* reason;  // words of the message
  std::function<void(Recipe&)> change;
};

TEST(Recipe, IllegalRecipesAreRefusedWithTheirReason) {
  using Mask = AttnRecipe::MaskKind;
  using Score = AttnRecipe::ScoreKind;
  using Pos = PosRecipe::Kind;
  using Norm = NormRecipe;
  using At = GateRecipe::At;
  const std::vector<Illegal> cases = {
      // the whole
      {"needs an encoder, a decoder or both", [](Recipe& r) { r.decoder.reset(); }},
      {"width: must be at least 1, is 0", [](Recipe& r) { r.width = 0; }},
      {"context: must be at least 1, is 0", [](Recipe& r) { r.context = 0; }},
      {"vocab: is 0, but the head gives logits", [](Recipe& r) { r.vocab = 0; }},
      {"embed.sink_tokens: they stand beside tokens",
       [](Recipe& r) { r.vocab = 0, r.head.kind = HeadRecipe::Kind::none, r.embed.sink_tokens = 1; }},
      {"head.tied: a head of kind none has no output matrix",
       [](Recipe& r) { r.head = {.kind = HeadRecipe::Kind::none, .tied = true}; }},
      {"head.cap: a head of kind none has no output matrix",
       [](Recipe& r) { r.head = {.kind = HeadRecipe::Kind::none, .cap = 30}; }},
      {"embed.scale: sqrt(width) and the number 2",
       [](Recipe& r) { r.embed.scale_sqrt_width = true, r.embed.scale = 2; }},
      {"sines and cosines come in pairs, width 15 is odd",
       [](Recipe& r) { r.embed.pos = EmbedRecipe::Pos::sinusoid, r.width = 15, attn(r).head_dim = 4; }},
      {"marian's frequencies need a width of at least 4",
       [](Recipe& r) {
         r.embed.pos = EmbedRecipe::Pos::sinusoid, r.embed.table = SinusoidTable::marian, r.width = 2,
         attn(r).head_dim = 4;
       }},
      {"are more than 2,147,483,647 in all",
       [](Recipe& r) { attn(r).heads = 1 << 20, attn(r).kv_heads = 1, attn(r).head_dim = 1 << 20; }},
      {"decoder.layers: must be at most 10000", [](Recipe& r) { r.decoder->layers = Dim{1} << 40; }},
      // stacks and layers
      {"decoder.layers: must be at least 1", [](Recipe& r) { r.decoder->layers = 0; }},
      {"decoder.pattern: is empty", [](Recipe& r) { r.decoder->pattern = ""; }},
      {"\"LLL\" has 3 letters for 2 layers", [](Recipe& r) { r.decoder->pattern = "LLL"; }},
      {"names 'G', but kinds has no such layer", [](Recipe& r) { r.decoder->pattern = "LG"; }},
      {"decoder.kinds.G: the pattern \"L\" never uses it",
       [](Recipe& r) { r.decoder->kinds["G"] = r.decoder->kinds["L"]; }},
      {"'local' is no letter", [](Recipe& r) { r.decoder->kinds["local"] = r.decoder->kinds["L"]; }},
      {"'1' is no letter",
       [](Recipe& r) { r.decoder->kinds["1"] = r.decoder->kinds["L"], r.decoder->pattern = "L1"; }},
      {"parts: a layer needs at least one part", [](Recipe& r) { r.decoder->kinds["L"].parts.clear(); }},
      {"kinds.L.norm_in: belongs to parallel layers",
       [](Recipe& r) { r.decoder->kinds["L"].norm_in = Norm{}; }},
      {"the layer has a norm_in for all parts already",
       [](Recipe& r) { r.decoder->kinds["L"].parallel = true, r.decoder->kinds["L"].norm_in = Norm{}; }},
      {"norm_sum: parts of a parallel layer are added together",
       [](Recipe& r) { r.decoder->kinds["L"].parallel = true, part(r, 0).norm_sum = Norm{}; }},
      {"residual_scale: must not be 0", [](Recipe& r) { part(r, 0).residual_scale = 0; }},
      {"dropout: must be below 1", [](Recipe& r) { part(r, 1).dropout = 1; }},
      {"there is no encoder whose result could be looked at",
       [](Recipe& r) { attn(r).cross = true, attn(r).pos = {}; }},
      {"nothing would read the encoder",
       [](Recipe& r) {
         r = tiny_encoder_decoder(),
         r.decoder->kinds["L"].parts.erase(r.decoder->kinds["L"].parts.begin() + 1);
       }},
      {"encoder.kinds.L.parts[0].cross: an encoder has no memory",
       [](Recipe& r) {
         r = tiny_encoder_decoder(), r.encoder->kinds["L"].parts[0].attention()->pos = {},
         r.encoder->kinds["L"].parts[0].attention()->cross = true;
       }},
      // norms
      {"batch norm in a causal stack lets training look at later tokens",
       [](Recipe& r) { part(r, 0).norm_in = Norm{.kind = Norm::Kind::batch}; }},
      {"decoder.final_norm: batch norm in a causal stack",
       [](Recipe& r) { r.decoder->final_norm = Norm{.kind = Norm::Kind::batch}; }},
      {"embed.norm: batch norm in a causal stack",
       [](Recipe& r) { r.embed.norm = Norm{.kind = Norm::Kind::batch}; }},
      {"leaks_ok: only batch norm can leak", [](Recipe& r) { part(r, 0).norm_in = Norm{.leaks_ok = true}; }},
      {"l2 with weight plus_one",
       [](Recipe& r) { part(r, 0).norm_in = Norm{.kind = Norm::Kind::l2, .weight = Norm::Gain::plus_one}; }},
      {"batch norm with weight plus_one",
       [](Recipe& r) {
         part(r, 0).norm_in =
             Norm{.kind = Norm::Kind::batch, .weight = Norm::Gain::plus_one, .leaks_ok = true};
       }},
      {"l2 gives a direction of length one and has no bias",
       [](Recipe& r) { part(r, 0).norm_in = Norm{.kind = Norm::Kind::l2, .bias = true}; }},
      {"a bias without a weight",
       [](Recipe& r) { part(r, 0).norm_in = Norm{.weight = Norm::Gain::none, .bias = true}; }},
      {"qk_norm.norm: batch norm takes statistics over tokens",
       [](Recipe& r) { attn(r).qk_norm = QkNormRecipe{.norm = {.kind = Norm::Kind::batch}}; }},
      {"v_norm: batch norm takes statistics over tokens",
       [](Recipe& r) { attn(r).v_norm = Norm{.kind = Norm::Kind::batch}; }},
      {"z_norm: batch norm takes statistics over tokens",
       [](Recipe& r) { attn(r).z_norm = Norm{.kind = Norm::Kind::batch}; }},
      {"weights per_head belongs to span head",
       [](Recipe& r) {
         attn(r).qk_norm =
             QkNormRecipe{.span = QkNormRecipe::Span::full, .weights = QkNormRecipe::Weights::per_head};
       }},
      {"per_head, but the norm has no weight",
       [](Recipe& r) {
         attn(r).qk_norm =
             QkNormRecipe{.norm = {.weight = Norm::Gain::none}, .weights = QkNormRecipe::Weights::per_head};
       }},
      // sizes of attention
      {"4 heads cannot share 3 key heads evenly", [](Recipe& r) { attn(r).kv_heads = 3; }},
      {"width 16 is not divisible by 5 heads", [](Recipe& r) { attn(r).heads = 5, attn(r).kv_heads = 1; }},
      {"head_dim 5 cannot be turned", [](Recipe& r) { attn(r).head_dim = 5; }},
      {"that is 3 channels, cannot be turned",
       [](Recipe& r) { attn(r).head_dim = 12, attn(r).pos.rope.part = 0.25; }},
      {"that is 0 channels, cannot be turned", [](Recipe& r) { attn(r).pos.rope.part = 0.1; }},
      // scores
      {"additive scores have none", [](Recipe& r) { attn(r).score = Score::additive; }},
      {"additive scores have none", [](Recipe& r) { attn(r).score = Score::concat; }},
      {"a matrix stands between q and k", [](Recipe& r) { attn(r).score = Score::general; }},
      {"cosine scores already norm q and k",
       [](Recipe& r) { attn(r).score = Score::cosine, attn(r).qk_norm = QkNormRecipe{}; }},
      {"only where that is a product",
       [](Recipe& r) {
         attn(r).score = AttnRecipe::ScoreKind::l2, attn(r).scale = {.kind = ScaleRecipe::Kind::learned};
       }},
      {"starts at 4, above its max 2",
       [](Recipe& r) { attn(r).scale = {.kind = ScaleRecipe::Kind::learned, .number = 4, .max = 2}; }},
      {"scale: must be a finite number",
       [](Recipe& r) { attn(r).scale = {.kind = ScaleRecipe::Kind::number, .number = HUGE_VAL}; }},
      {"scale: must be a finite number",
       [](Recipe& r) { attn(r).scale = {.kind = ScaleRecipe::Kind::number, .number = std::nan("")}; }},
      {"cap: must be at least 0", [](Recipe& r) { attn(r).cap = -50; }},
      {"no sum that an extra logit could join",
       [](Recipe& r) {
         attn(r).normal = Normal::sigmoid, attn(r).extra.kind = ExtraRecipe::Kind::zero_logit;
       }},
      {"no sum that an extra logit could join",
       [](Recipe& r) {
         attn(r).normal = Normal::sigmoid, attn(r).extra.kind = ExtraRecipe::Kind::learned_logit;
       }},
      // latent attention
      {"kv_heads: with latent every head has a key",
       [](Recipe& r) {
         attn(r).latent.emplace(), attn(r).heads = 4, attn(r).kv_heads = 2, attn(r).head_dim = 96;
       }},
      {"head_dim: 8 channels, of which 64 turn",
       [](Recipe& r) { attn(r).latent.emplace(), attn(r).head_dim = 8; }},
      {"heads: is 5000, surely a mistake with latent", [](Recipe& r) { latent(r), attn(r).heads = 5000; }},
      {"they cannot have qk_norm", [](Recipe& r) { latent(r), attn(r).qk_norm.emplace(); }},
      {"they cannot have v_norm", [](Recipe& r) { latent(r), attn(r).v_norm.emplace(); }},
      {"they cannot have clip", [](Recipe& r) { latent(r), attn(r).clip = 3; }},
      {"they cannot have a gate on v",
       [](Recipe& r) { latent(r), attn(r).gate = {{.at = GateRecipe::At::v}}; }},
      {"they cannot have extra kv_slots",
       [](Recipe& r) { latent(r), attn(r).extra.kind = ExtraRecipe::Kind::kv_slots; }},
      {"use score dot, not cosine",
       [](Recipe& r) { latent(r), attn(r).score = AttnRecipe::ScoreKind::cosine; }},
      {"latent.rope_dim: channels that turn need pos rope",
       [](Recipe& r) { latent(r), attn(r).pos.kind = PosRecipe::Kind::none; }},
      {"remove part from pos.rope", [](Recipe& r) { latent(r), attn(r).pos.rope.part = 0.5; }},
      {"latent.rope_dim: 0 channels turn", [](Recipe& r) { latent(r), attn(r).latent->rope_dim = 0; }},
      {"bias.v: values are made of the latent", [](Recipe& r) { latent(r), attn(r).bias.v = true; }},
      {"latent: it is built for self-attention",
       [](Recipe& r) {
         r = tiny_encoder_decoder();
         AttnRecipe& a = *part(r, 1).attention();
         a.latent.emplace().rope_dim = 0;
       }},
      // which keys
      {"may not see later ones", [](Recipe& r) { attn(r).mask = Mask::full; }},
      {"window: only causal and full self-attention have a window",
       [](Recipe& r) { attn(r).mask = Mask::prefix, attn(r).window = 8; }},
      {"a chunk is its own limit",
       [](Recipe& r) { attn(r).mask = Mask::chunk, attn(r).chunk = 8, attn(r).window = 8; }},
      {"encoder.kinds.L.parts[0].self.keep: only causal self-attention",
       [](Recipe& r) {
         r = tiny_encoder_decoder();
         AttnRecipe& a = *r.encoder->kinds["L"].parts[0].self();
         a.window = 8, a.keep = 2;
       }},
      {"cross.temperature: it grows with a row's position",
       [](Recipe& r) { r = tiny_encoder_decoder(), part(r, 1).attention()->temperature.emplace(); }},
      {"groups: 3 groups of weights for 2 layers", [](Recipe& r) { r.decoder->groups = 3; }},
      {"groups: layers that share weights are of one kind",
       [](Recipe& r) {
         r.decoder->kinds["G"] = r.decoder->kinds["L"];
         r.decoder->pattern = "LG", r.decoder->groups = 1;
       }},
      {"embed.source_vocab: only an encoder-decoder", [](Recipe& r) { r.embed.source_vocab = 7; }},
      {"embed.own_source: only an encoder-decoder", [](Recipe& r) { r.embed.own_source = true; }},
      {"embed.width: token vectors have 8 channels", [](Recipe& r) { r.embed.width = 8; }},
      {"embed.sink_tokens: they are as wide as the model",
       [](Recipe& r) {
         r.embed.width = 8, r.embed.sink_tokens = 1;
         r.head.transform.emplace();
       }},
      {"keep: first keys are kept beside a window", [](Recipe& r) { attn(r).keep = 4; }},
      {"keep: only causal self-attention keeps",
       [](Recipe& r) { attn(r).keep = 4, attn(r).mask = Mask::prefix; }},
      {"with learned positions in the embedding",
       [](Recipe& r) { attn(r).keep = 4, attn(r).window = 8, r.embed.pos = EmbedRecipe::Pos::learned; }},
      {"with sinusoid positions in the embedding",
       [](Recipe& r) { attn(r).keep = 4, attn(r).window = 8, r.embed.pos = EmbedRecipe::Pos::sinusoid; }},
      {"mask chunk needs the length", [](Recipe& r) { attn(r).mask = Mask::chunk; }},
      {"chunk: only mask chunk has one", [](Recipe& r) { attn(r).chunk = 8; }},
      {"cross.mask: cross-attention sees the whole memory",
       [](Recipe& r) { r = tiny_encoder_decoder(), part(r, 1).attention()->mask = Mask::prefix; }},
      {"cross.window: only self-attention",
       [](Recipe& r) { r = tiny_encoder_decoder(), part(r, 1).attention()->window = 8; }},
      {"cross.keep: only self-attention",
       [](Recipe& r) { r = tiny_encoder_decoder(), part(r, 1).attention()->keep = 8; }},
      // positions
      {"cross.pos: rows and memory of cross-attention have no common positions",
       [](Recipe& r) { r = tiny_encoder_decoder(), part(r, 1).attention()->pos.kind = Pos::rope; }},
      {"cross.pos: rows and memory",
       [](Recipe& r) { r = tiny_encoder_decoder(), part(r, 1).attention()->pos.kind = Pos::alibi; }},
      {"cross.pos: rows and memory",
       [](Recipe& r) { r = tiny_encoder_decoder(), part(r, 1).attention()->pos.kind = Pos::bucket; }},
      {"7 is odd; rows of this mask also see later keys",
       [](Recipe& r) {
         r = tiny_encoder_decoder(),
         r.encoder->kinds["L"].parts[0].self()->pos = {.kind = Pos::bucket, .bucket = {.count = 7}};
       }},
      {"must lie beyond the 16 distances",
       [](Recipe& r) { attn(r).pos = {.kind = Pos::bucket, .bucket = {.count = 32, .max = 16}}; }},
      {"1 buckets are too few",
       [](Recipe& r) { attn(r).pos = {.kind = Pos::bucket, .bucket = {.count = 1}}; }},
      {"layers share one table",
       [](Recipe& r) {
         attn(r).pos = {.kind = Pos::bucket};
         r.decoder->kinds["G"] = r.decoder->kinds["L"];
         r.decoder->kinds["G"].parts[0].self()->pos.bucket.count = 16;
         r.decoder->pattern = "LG";
       }},
      {"built for encoders", [](Recipe& r) { attn(r).pos = {.kind = Pos::relative}; }},
      {"the mask is causal; use mask full in an encoder",
       [](Recipe& r) { r = tiny_relative(), encoder_attn(r).mask = Mask::causal; }},
      {"cross.pos: rows and memory",
       [](Recipe& r) { r = tiny_encoder_decoder(), part(r, 1).attention()->pos.kind = Pos::relative; }},
      {"built without a window", [](Recipe& r) { r = tiny_relative(), encoder_attn(r).window = 4; }},
      {"use score dot, not l2", [](Recipe& r) { r = tiny_relative(), encoder_attn(r).score = Score::l2; }},
      {"cannot have qk_norm", [](Recipe& r) { r = tiny_relative(), encoder_attn(r).qk_norm.emplace(); }},
      {"cannot have a learned scale",
       [](Recipe& r) { r = tiny_relative(), encoder_attn(r).scale.kind = ScaleRecipe::Kind::learned; }},
      {"cannot have clip", [](Recipe& r) { r = tiny_relative(), encoder_attn(r).clip = 3; }},
      {"cannot have temperature",
       [](Recipe& r) { r = tiny_relative(), encoder_attn(r).temperature.emplace(); }},
      {"cannot have a gate on q or k",
       [](Recipe& r) { r = tiny_relative(), encoder_attn(r).gate = {{.at = GateRecipe::At::k}}; }},
      {"would limit q.k and not its terms", [](Recipe& r) { r = tiny_relative(), encoder_attn(r).cap = 5; }},
      {"nothing is left",
       [](Recipe& r) {
         r = tiny_relative(),
         encoder_attn(r).pos.relative.keys = encoder_attn(r).pos.relative.queries = false;
       }},
      {"buckets: 1 is too few",
       [](Recipe& r) { r = tiny_relative(), encoder_attn(r).pos.relative.buckets = 1; }},
      {"max: 5 must lie beyond the 4 distances",
       [](Recipe& r) { r = tiny_relative(), encoder_attn(r).pos.relative = {.buckets = 8, .max = 5}; }},
      {"pos.relative.norm",
       [](Recipe& r) {
         r = tiny_relative(),
         encoder_attn(r).pos.relative.norm = NormRecipe{.kind = NormRecipe::Kind::batch};
       }},
      {"pos.relative: layers share one table",
       [](Recipe& r) {
         r = tiny_relative();
         r.encoder->kinds["G"] = r.encoder->kinds["L"];
         r.encoder->kinds["G"].parts[0].self()->pos.relative.max = 99;
         r.encoder->pattern = "LG";
       }},
      {"pos.xl: it is built for causal and full masks, the mask is prefix",
       [](Recipe& r) { attn(r).pos = {.kind = Pos::xl}, attn(r).mask = Mask::prefix; }},
      {"would stand at a second distance",
       [](Recipe& r) { attn(r).pos = {.kind = Pos::xl}, attn(r).window = 4, attn(r).keep = 1; }},
      {"pos.xl: its terms are products like q.k; use score dot, not l2",
       [](Recipe& r) { attn(r).pos = {.kind = Pos::xl}, attn(r).score = Score::l2; }},
      {"pos.xl: cap would act on q.k", [](Recipe& r) { attn(r).pos = {.kind = Pos::xl}, attn(r).cap = 5; }},
      {"pos.xl: temperature would act on q.k",
       [](Recipe& r) { attn(r).pos = {.kind = Pos::xl}, attn(r).temperature.emplace(); }},
      {"pos.xl: a learned scale would act on q.k",
       [](Recipe& r) {
         attn(r).pos = {.kind = Pos::xl}, attn(r).scale.kind = ScaleRecipe::Kind::learned;
       }},
      {"scaling.llama3.original: must be above 0",
       [](Recipe& r) { attn(r).pos.rope.scaling = RopeScaling::llama3; }},
      {"scaling.llama3: high_freq 1 must be above low_freq 1",
       [](Recipe& r) {
         attn(r).pos.rope = {.scaling = RopeScaling::llama3, .factor = 8, .original = 64, .high_freq = 1};
       }},
      {"beta_fast 1 is below beta_slow 32",
       [](Recipe& r) {
         attn(r).pos.rope = {.scaling = RopeScaling::yarn, .original = 64, .beta_fast = 1, .beta_slow = 32};
       }},
      {"yarn needs a theta above 1",
       [](Recipe& r) { attn(r).pos.rope = {.theta = 0.5, .scaling = RopeScaling::yarn, .original = 64}; }},
      {"short_factor: has 1 entries; one per turned pair is needed: 2",
       [](Recipe& r) {
         attn(r).pos.rope = {
             .scaling = RopeScaling::longrope, .original = 64, .short_factor = {1}, .long_factor = {1, 1}};
       }},
      {"only R = 2 channels turn; 4 are needed",
       [](Recipe& r) { attn(r).pos.rope = {.part = 0.5, .scaling = RopeScaling::ntk, .factor = 2}; }},
      // gates
      {"gate[1]: a second gate at sdpa", [](Recipe& r) { attn(r).gate = {{}, {}}; }},
      {"after the output projection there are no heads; use grain",
       [](Recipe& r) { attn(r).gate = {{.at = At::out, .grain = GateGrain::head}}; }},
      {"no heads to share a gate",
       [](Recipe& r) { attn(r).gate = {{.at = At::out, .heads = GateRecipe::Heads::shared}}; }},
      {"gate[0].act: a recipe cannot have this value",
       [](Recipe& r) { attn(r).gate = {{.act = Act::softcap}}; }},
      {"gate[0].act: a recipe cannot have this value",
       [](Recipe& r) { attn(r).gate = {{.act = Act::scale}}; }},
      // feed-forward
      {"ffn.act: a recipe cannot have this value", [](Recipe& r) { ffn(r).act = Act::softcap; }},
      {"glu with softplus exists in no model", [](Recipe& r) { ffn(r).act = Act::softplus; }},
      {"clamp, alpha and up_offset belong to kind glu",
       [](Recipe& r) { ffn(r).kind = FfnRecipe::Kind::mlp, ffn(r).clamp = 7; }},
      {"clamp: must be at least 0", [](Recipe& r) { ffn(r).clamp = -7; }},
      {"alpha: the slope inside silu; act is gelu",
       [](Recipe& r) { ffn(r).act = Act::gelu, ffn(r).alpha = 1.7; }},
      {"ffn.width: must be at least 0", [](Recipe& r) { ffn(r).width = -1; }},
      // experts
      {"delta.key_heads: must be at least 1", [](Recipe& r) { delta(r).key_heads = 0; }},
      {"delta.value_heads: 3 is no multiple of the 2 key heads", [](Recipe& r) { delta(r).value_heads = 3; }},
      {"delta.key_dim: the width",
       [](Recipe& r) { delta(r).key_heads = r.width + 1, delta(r).key_dim = 0; }},
      {"delta.conv: must be at least 1", [](Recipe& r) { delta(r).conv = 0; }},
      {"delta.conv: must be at most 64", [](Recipe& r) { delta(r).conv = 65; }},
      {"delta.norm: ", [](Recipe& r) { delta(r).norm.kind = NormRecipe::Kind::batch; }},
      {"conv.kernel: must be at least 1", [](Recipe& r) { conv(r).kernel = 0; }},
      {"conv.kernel: must be at most 64", [](Recipe& r) { conv(r).kernel = 65; }},
      {"moe.experts: must be at least 1", [](Recipe& r) { moe(r).experts = 0; }},
      {"moe.used: must be at least 1", [](Recipe& r) { moe(r).used = 0; }},
      {"moe.used: a row cannot use 9 of 8 experts", [](Recipe& r) { moe(r).used = 9; }},
      {"moe.experts: is 100000, surely a mistake", [](Recipe& r) { moe(r).experts = 100000; }},
      {"moe.act: glu with softplus", [](Recipe& r) { moe(r).act = Act::softplus; }},
      {"moe.router.over: sigmoid looks at each logit alone",
       [](Recipe& r) {
         moe(r).router = {.score = RouterRecipe::Score::sigmoid, .over = RouterRecipe::Over::chosen};
       }},
      {"moe.router.renormalise: weights over the chosen add up to 1",
       [](Recipe& r) { moe(r).router = {.over = RouterRecipe::Over::chosen, .renormalise = false}; }},
      {"moe.router.groups: groups are compared by scores over all",
       [](Recipe& r) {
         moe(r).router = {.over = RouterRecipe::Over::chosen, .groups = GroupsRecipe{.count = 2}};
       }},
      {"moe.router.eps: stands in the sum",
       [](Recipe& r) { moe(r).router = {.renormalise = false, .eps = 1e-6}; }},
      {"moe.router.eps: must be at least 0", [](Recipe& r) { moe(r).router.eps = -1; }},
      {"moe.router.eps_as: says how eps is used",
       [](Recipe& r) { moe(r).router.eps_as = RouterRecipe::Eps::least; }},
      {"moe.router.scale: must not be 0", [](Recipe& r) { moe(r).router.scale = 0; }},
      {"8 experts cannot be cut into 3 groups",
       [](Recipe& r) { moe(r).router.groups = GroupsRecipe{.count = 3}; }},
      {"a row cannot use 3 of 2 groups",
       [](Recipe& r) { moe(r).router.groups = GroupsRecipe{.count = 2, .used = 3}; }},
      {"moe.used: 1 groups of 4 experts cannot give 5",
       [](Recipe& r) { moe(r).used = 5, moe(r).router.groups = GroupsRecipe{.count = 2}; }},
      {"top2 adds the best two of a group",
       [](Recipe& r) { moe(r).router.groups = GroupsRecipe{.count = 8, .used = 2}; }},
      {"moe.balance: must be at least 0", [](Recipe& r) { moe(r).balance = -1; }},
      {"moe.balance_over: belongs to balance",
       [](Recipe& r) { moe(r).balance_over = MoeRecipe::Pooling::stack; }},
      {"moe.balance_over: layers are balanced together",
       [](Recipe& r) {
         moe(r).balance = 0.01, moe(r).balance_over = MoeRecipe::Pooling::stack;
         r.decoder->pattern = "LM", r.decoder->kinds["M"] = r.decoder->kinds["L"];
         r.decoder->kinds["M"].parts.back().moe()->experts = 4;
       }},
      {"moe.shared.width: must be at least 0",
       [](Recipe& r) { moe(r).shared = SharedExpertRecipe{.width = -2}; }},
  };
  ASSERT_GE(cases.size(), 40u);
  ASSERT_EQ(resolve_error(tiny()), "");
  ASSERT_EQ(resolve_error(tiny_encoder_decoder()), "");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Recipe r = tiny();
    cases[i].change(r);
    const std::string e = resolve_error(r);
    EXPECT_TRUE(holds(e, cases[i].reason))
        << "case " << i << "\n  gave:   " << e << "\n  wanted: " << cases[i].reason;
    EXPECT_TRUE(e.starts_with("recipe \"tiny\": ")) << e;
  }
}

TEST(Recipe, ExpertsSurviveJsonAndAreFilledIn) {
  Recipe r = tiny();
  moe(r) = {.experts = 12,
            .used = 3,
            .kind = FfnRecipe::Kind::glu,
            .act = Act::silu,
            .bias = true,
            .clamp = 7,
            .alpha = 1.702,
            .up_offset = 1,
            .dropout = 0.25,
            .router = {.score = RouterRecipe::Score::sigmoid,
                       .bias = true,
                       .choice_bias = true,
                       .groups = GroupsRecipe{.count = 4, .used = 2, .score = GroupsRecipe::Score::max},
                       .eps = 0.5,
                       .eps_as = RouterRecipe::Eps::least,
                       .scale = 2.5,
                       .weight_at = RouterRecipe::WeightAt::input},
            .shared = SharedExpertRecipe{.gated = true},
            .balance = 0.125,
            .balance_over = MoeRecipe::Pooling::stack};
  for (const bool all : {false, true}) EXPECT_EQ(parse_recipe(recipe_json(r, all)), r) << recipe_json(r, all);
  const Recipe whole = resolve(r);
  const MoeRecipe& m = *whole.decoder->kinds.at("L").parts.back().moe();
  EXPECT_EQ(m.width, 64);
  EXPECT_EQ(m.shared->width, 64);
  EXPECT_EQ(resolve(whole), whole);
}

// Combinations that look odd and are meant to work.
TEST(Recipe, UnusualButLegal) {
  using Score = AttnRecipe::ScoreKind;
  const std::vector<std::function<void(Recipe&)>> cases = {
      [](Recipe& r) { attn(r).score = Score::l2; },
      [](Recipe& r) { attn(r).score = Score::cosine, attn(r).cap = 5; },
      [](Recipe& r) {
        attn(r).score = Score::additive, attn(r).pos = {.kind = PosRecipe::Kind::alibi},
        attn(r).qk_norm = QkNormRecipe{}, attn(r).cap = 5;
      },
      [](Recipe& r) { attn(r).score = Score::general, attn(r).pos = {.kind = PosRecipe::Kind::bucket}; },
      [](Recipe& r) {
        attn(r).normal = Normal::sigmoid, attn(r).cap = 5,
        attn(r).extra = {.kind = ExtraRecipe::Kind::kv_slots};
      },
      [](Recipe& r) { attn(r).window = 8, attn(r).keep = 4; },
      [](Recipe& r) { attn(r).window = 1; },
      [](Recipe& r) { attn(r).mask = AttnRecipe::MaskKind::chunk, attn(r).chunk = 8; },
      [](Recipe& r) { attn(r).mask = AttnRecipe::MaskKind::prefix; },
      [](Recipe& r) {
        attn(r).gate = {{.at = GateRecipe::At::q},
                        {.at = GateRecipe::At::k},
                        {.at = GateRecipe::At::v},
                        {.at = GateRecipe::At::sdpa},
                        {.at = GateRecipe::At::out}};
      },
      [](Recipe& r) {
        attn(r).gate = {{.from = GateRecipe::From::constant,
                         .grain = GateGrain::head,
                         .heads = GateRecipe::Heads::shared}};
      },
      [](Recipe& r) { part(r, 0).norm_in = NormRecipe{.kind = NormRecipe::Kind::batch, .leaks_ok = true}; },
      [](Recipe& r) { r.decoder->kinds["L"].parallel = true; },
      [](Recipe& r) { r.decoder->kinds["L"].parts.push_back(part(r, 0)); },
      // feed-forward only
      [](Recipe& r) { r.decoder->kinds["L"].parts.erase(r.decoder->kinds["L"].parts.begin()); },
      // An encoder with a causal mask.
      [](Recipe& r) { r.encoder = std::move(r.decoder), r.decoder.reset(); },
      [](Recipe& r) {
        r = tiny_encoder_decoder(), part(r, 1).attention()->gate = {{.at = GateRecipe::At::k}},
        part(r, 1).attention()->mask = AttnRecipe::MaskKind::full;
      },
      [](Recipe& r) { r.vocab = 0, r.head.kind = HeadRecipe::Kind::none; },
      // One expert, and all of several; groups of one; beside a feed-forward part.
      [](Recipe& r) { moe(r).experts = moe(r).used = 1; },
      [](Recipe& r) { moe(r).used = 8, moe(r).router.groups = GroupsRecipe{.count = 4, .used = 4}; },
      [](Recipe& r) {
        moe(r).router.groups = GroupsRecipe{.count = 8, .used = 2, .score = GroupsRecipe::Score::max};
      },
      [](Recipe& r) { r.decoder->kinds["L"].parts.push_back({.body = MoeRecipe{.experts = 3, .used = 2}}); },
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Recipe r = tiny();
    cases[i](r);
    EXPECT_EQ(resolve_error(r), "") << "case " << i;
  }
}

#ifdef RAPT_SOURCE_DIR
TEST(Recipe, DocsSayWhatTheTableSays) {
  std::ifstream in(std::string(RAPT_SOURCE_DIR) + "/docs/recipe.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), recipe_schema())
      << "docs/recipe.md is out of date; write it again: build/rapt show --schema > docs/recipe.md";
}
#endif

}  // namespace
}  // namespace rapt
