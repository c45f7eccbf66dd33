// SPDX-License-Identifier: Apache-2.0
// Toy models of every preset against values made ahead of time by the reference implementations
// (tests/golden/README.md). Weights are not stored: both sides compute them from the weight's name. The same
// comparison must fail once something is changed on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "rapt/base/json.h"
#include "rapt/nn/model.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::need;

constexpr double kTolerance = 1e-4;           // f32, every instruction set
// The f64 device: the files hold seven digits of numbers below 100.
constexpr double kReferenceTolerance = 6e-6;
constexpr double kFails = 1e-3;               // a mutation moves some number at least this far

struct Golden {
  std::string name, preset;
  Recipe recipe;
  std::vector<std::pair<std::string, double>> gains;  // factor on weights whose name ends so
  bool plus_one = false;                              // norm weights are drawn around 0, not 1
  Dim parameters = 0;
  std::vector<std::vector<std::int32_t>> sequences, sources, types;
  std::vector<std::vector<Dim>> rows;      // rows of each sequence whose result is stored
  std::vector<std::vector<double>> logits; // per sequence: those rows one after the other
};

template <class T>
std::vector<std::vector<T>> lists(const Json* json) {
  std::vector<std::vector<T>> out;
  if (!json) return out;
  for (const Json& list : json->array()) {
    out.emplace_back();
    for (const Json& x : list.array()) out.back().push_back(static_cast<T>(x.number()));
  }
  return out;
}

Golden read_golden(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  const Json json = parse_json(text.str(), path.filename().string());
  Golden g;
  g.name = need(json, "name").string();
  if (const Json* preset = json.find("preset")) g.preset = preset->string();
  g.recipe = parse_recipe(need(json, "recipe").dump(0), g.name);
  for (const Json::Member& m : need(json, "gains").object()) g.gains.emplace_back(m.key, m.value.number());
  g.plus_one = need(json, "plus_one").boolean();
  g.parameters = need(json, "parameters").integer();
  g.sequences = lists<std::int32_t>(&need(json, "sequences"));
  g.sources = lists<std::int32_t>(json.find("source_sequences"));
  g.types = lists<std::int32_t>(json.find("types"));
  g.rows = lists<Dim>(&need(json, "rows"));
  g.logits = lists<double>(&need(json, "logits"));
  return g;
}

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = [] {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(RAPT_SOURCE_DIR) / "tests" / "golden"))
      if (entry.path().extension() == ".json") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<Golden> out;
    for (const auto& path : paths) out.push_back(read_golden(path));
    return out;
  }();
  return all;
}

const Golden& golden(std::string_view name) {
  for (const Golden& g : goldens())
    if (g.name == name) return g;
  fail("no golden file is called '", name, "'");
}

// ------------------------------------------------------------------------------------------ weights by rule
// FNV-1a of the name, then splitmix64 by element (row-major, out x in): a multiple of 2^-23 in [-1, 1).
double draw(std::uint64_t name_hash, Dim element) {
  std::uint64_t z = name_hash + static_cast<std::uint64_t>(element + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 40) * 0x1p-23 - 1;
}

void fill_by_rule(Model& model, const Golden& g) {
  for (Weight& w : model.weights) {
    const std::string_view name = w.name, last = name.substr(name.rfind('.') + 1);
    std::uint64_t hash = 14695981039346656037u;
    for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    double gain = 1;
    for (const auto& [end, factor] : g.gains)
      if (name.ends_with(end)) gain *= factor;
    const bool is_norm = name.find("norm") != std::string_view::npos && last == "weight";
    const bool is_plain = name.starts_with("embed.") || name.find(".slots.") != std::string_view::npos ||
                          last == "extra_logit" || last == "scale" || last == "buckets" || last == "value";
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim c = 0; c < w.cols; ++c) {
        const double u = draw(hash, r * w.cols + c);
        const double value = is_norm          ? (g.plus_one ? 0.5 * u : 1 + 0.5 * u)
                             : last == "bias" ? 0.5 * u
                             : is_plain       ? u
                                              : u * 1.7320508 / std::sqrt(static_cast<double>(w.cols)) * 1.5;
        w.set(r, c, static_cast<double>(static_cast<float>(value * gain)));
      }
  }
}

// ------------------------------------------------------------------------------------------- the comparison
struct PackedBatch {  // sequences one after the other
  std::vector<std::int32_t> tokens, types;
  Batch batch;
  explicit PackedBatch(const std::vector<std::vector<std::int32_t>>& sequences,
                       const std::vector<std::vector<std::int32_t>>& kinds = {}) {
    for (const auto& s : sequences) {
      batch.sequences.push_back({.first = static_cast<Dim>(tokens.size()),
                                 .count = static_cast<Dim>(s.size()),
                                 .id = batch.sequences.size()});
      tokens.insert(tokens.end(), s.begin(), s.end());
    }
    for (const auto& t : kinds) types.insert(types.end(), t.begin(), t.end());
    batch.tokens = tokens;
    batch.types = types;
  }
  PackedBatch(const PackedBatch&) = delete;
  PackedBatch& operator=(const PackedBatch&) = delete;
};

// max |difference| to the stored numbers, all sequences in one packed batch. `change` may spoil the weights.
double distance(const Golden& g, const Recipe& recipe, Device& device,
                const std::function<void(Model&)>& change = {}) {
  Model model(recipe, device.real);
  fill_by_rule(model, g);
  if (change) change(model);
  const PackedBatch target(g.sequences, g.types), source(g.sources);
  rapt::Run run(device);
  // [T,V]
  const Tensor y = forward(run, model, target.batch, g.sources.empty() ? nullptr : &source.batch);
  double worst = 0;
  Dim compared = 0;
  for (std::size_t s = 0; s < g.rows.size(); ++s) {
    const Dim first = target.batch.sequences[s].first,
              V = static_cast<Dim>(g.logits[s].size() / g.rows[s].size());
    if (V != y.last()) fail(g.name, ": ", V, " numbers per row are stored, the model gives ", y.last());
    for (std::size_t i = 0; i < g.rows[s].size(); ++i)
      for (Dim c = 0; c < V; ++c, ++compared) {
        const double difference =
            std::abs(y.at((first + g.rows[s][i]) * V + c) -
                     g.logits[s][i * static_cast<std::size_t>(V) + static_cast<std::size_t>(c)]);
        worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
      }
  }
  if (compared == 0) fail(g.name, ": nothing was compared");
  return worst;
}

TEST(Golden, EveryToyEqualsItsReferenceOnEveryInstructionSet) {
  ASSERT_GE(goldens().size(), 40u);
  std::vector<std::string> isas = available_isas();
  isas.push_back("f64");
  for (const std::string& isa : isas) {
    Device device({.threads = 2, .isa = isa});
    for (const Golden& g : goldens())
      EXPECT_LE(distance(g, g.recipe, device), isa == "f64" ? kReferenceTolerance : kTolerance)
          << g.name << " on " << isa;
  }
}

TEST(Golden, ToysHaveTheReferencesParameters) {
  for (const Golden& g : goldens()) EXPECT_EQ(Model(g.recipe).parameters(), g.parameters) << g.name;
}

// ------------------------------------------------------------------------------------------------ presets
int sharing(const AttnRecipe& a) {
  return a.kv_heads == 0 || a.kv_heads == a.heads ? 0 : a.kv_heads == 1 ? 1 : 2;
}  // MHA, MQA, GQA

// Puts the toy's sizes, and numbers that only had to be smaller to bite, into the preset. What then still
// differs is architecture.
void take_sizes(Recipe& preset, const Recipe& toy) {
  auto positive = [](auto& to, const auto& from) {
    if (to > 0 && from > 0) to = from;
  };
  auto stack = [&](std::optional<StackRecipe>& to, const std::optional<StackRecipe>& from) {
    if (!to || !from) return;
    // One that names every layer is cut to the toy's.
    if (static_cast<Dim>(to->pattern.size()) == to->layers) to->pattern.resize(from->pattern.size());
    to->layers = from->layers;
    to->dropout = from->dropout;
    if (to->recurrent && from->recurrent) {
      RecurrentRecipe& p = *to->recurrent;
      const RecurrentRecipe& q = *from->recurrent;
      p.layers = q.layers;
      p.width = q.width;
      p.dropout = q.dropout;
      if (p.attention && q.attention)
        p.attention->width = q.attention->width, p.attention->reach = q.attention->reach;
    }
    for (auto& [letter, layer] : to->kinds) {
      const auto other = from->kinds.find(letter);
      if (other == from->kinds.end() || other->second.parts.size() != layer.parts.size()) continue;
      for (std::size_t i = 0; i < layer.parts.size(); ++i) {
        PartRecipe& p = layer.parts[i];
        const PartRecipe& q = other->second.parts[i];
        p.dropout = q.dropout;
        if (p.ffn() && q.ffn()) p.ffn()->width = q.ffn()->width, p.ffn()->dropout = q.ffn()->dropout;
        if (p.moe() && q.moe())
          p.moe()->experts = q.moe()->experts, p.moe()->used = q.moe()->used, p.moe()->width = q.moe()->width;
        if (p.moe() && q.moe() && p.moe()->shared && q.moe()->shared)
          p.moe()->shared->width = q.moe()->shared->width;
        if (p.delta() && q.delta()) {
          p.delta()->key_heads = q.delta()->key_heads, p.delta()->value_heads = q.delta()->value_heads;
          p.delta()->key_dim = q.delta()->key_dim, p.delta()->value_dim = q.delta()->value_dim;
        }
        AttnRecipe* a = p.attention();
        const AttnRecipe* b = q.attention();
        if (!a || !b) continue;
        if (sharing(*a) == sharing(*b)) a->kv_heads = b->kv_heads;
        a->heads = b->heads;
        a->head_dim = b->head_dim;
        a->v_dim = b->v_dim;
        if (a->latent && b->latent)
          a->latent->rank = b->latent->rank, a->latent->rope_dim = b->latent->rope_dim;
        a->dropout = b->dropout;
        positive(a->window, b->window);
        positive(a->cap, b->cap);
        positive(a->pos.rope.original, b->pos.rope.original);
        if (a->scale.number != 1 && b->scale.number != 1) a->scale.number = b->scale.number;
        a->pos.bucket.count = b->pos.bucket.count;
        a->pos.bucket.max = b->pos.bucket.max;
      }
    }
  };
  preset.name = toy.name;
  preset.note = toy.note;
  preset.width = toy.width;
  preset.vocab = toy.vocab;
  preset.context = toy.context;
  preset.init = toy.init;
  preset.embed.dropout = toy.embed.dropout;
  stack(preset.encoder, toy.encoder);
  stack(preset.decoder, toy.decoder);
  if (preset.head.scale != 1 && toy.head.scale != 1) preset.head.scale = toy.head.scale;
  positive(preset.head.cap, toy.head.cap);
}

TEST(Golden, PresetsHaveTheArchitectureOfTheirToys) {
  for (const Golden& g : goldens()) {
    if (g.preset.empty()) continue;
    Recipe sized = preset(g.preset);
    take_sizes(sized, g.recipe);
    EXPECT_EQ(recipe_json(resolve(sized)), recipe_json(resolve(g.recipe))) << g.name;
  }
}

TEST(Golden, EveryPresetHasAToy) {
  std::set<std::string> covered;
  for (const Golden& g : goldens()) covered.insert(g.preset);
  for (const std::string& name : preset_names())
    if (!preset(name).embed.patches)  // those that read pictures: vision_test.cc
      EXPECT_TRUE(covered.count(name)) << name << " has no file in tests/golden";
}

// ------------------------------------------------------------------------------------------------ mutations
void each_part(Recipe& r, const std::function<void(PartRecipe&)>& f) {
  for (auto* stack : {&r.encoder, &r.decoder})
    if (*stack)
      for (auto& [letter, layer] : (*stack)->kinds)
        for (PartRecipe& p : layer.parts) f(p);
}

void each_attention(Recipe& r, const std::function<void(AttnRecipe&)>& f) {
  each_part(r, [&](PartRecipe& p) {
    if (p.attention()) f(*p.attention());
  });
}

void each_norm(Recipe& r, const std::function<void(NormRecipe&)>& f) {
  auto at = [&](std::optional<NormRecipe>& n) {
    if (n) f(*n);
  };
  each_part(r, [&](PartRecipe& p) {
    at(p.norm_in), at(p.norm_out), at(p.norm_sum);
    if (p.attention() && p.attention()->qk_norm) f(p.attention()->qk_norm->norm);
  });
  at(r.embed.norm);
  for (auto* stack : {&r.encoder, &r.decoder})
    if (*stack) {
      at((*stack)->final_norm);
      for (auto& [letter, layer] : (*stack)->kinds) at(layer.norm_in);
    }
}

void zero(Model& model, std::string_view name) {
  Weight& w = model.weight(name);
  for (Dim r = 0; r < w.rows; ++r)
    for (Dim c = 0; c < w.cols; ++c) w.set(r, c, 0);
}

// Key heads in the wrong order: those of one layer's keys and values change places.
void reverse_key_heads(Model& model, std::string_view layer, Dim kv_heads) {
  for (const char* end : {".self.k.weight", ".self.v.weight"}) {
    Weight& w = model.weight(concat(layer, end));
    const Dim d = w.rows / kv_heads;
    for (Dim k = 0; k < kv_heads / 2; ++k)
      for (Dim r = 0; r < d; ++r)
        for (Dim c = 0; c < w.cols; ++c) {
          const Dim a = k * d + r, b = (kv_heads - 1 - k) * d + r;
          const double kept = w.get(a, c);
          w.set(a, c, w.get(b, c));
          w.set(b, c, kept);
        }
  }
}

struct Mutation {
  std::string toy, what;
  std::function<void(Recipe&)> recipe = {};
  std::function<void(Model&)> weights = {};
};

std::vector<Mutation> mutations() {
  std::vector<Mutation> all;
  auto add = [&](std::initializer_list<const char*> toys, const char* what,
                 const std::function<void(Recipe&)>& change) {
    for (const char* toy : toys) all.push_back({toy, what, change});
  };
  auto spoil = [&](std::initializer_list<const char*> toys, const std::string& what,
                   const std::function<void(Model&)>& change) {
    for (const char* toy : toys) all.push_back({toy, what, {}, change});
  };
  auto attention = [](auto change) { return [=](Recipe& r) { each_attention(r, change); }; };
  auto parts = [](auto change) { return [=](Recipe& r) { each_part(r, change); }; };
  auto norms = [](auto change) { return [=](Recipe& r) { each_norm(r, change); }; };
  auto move = [](std::optional<NormRecipe>& from, std::optional<NormRecipe>& to) {
    to = from;
    from.reset();
  };

  add({"llama3", "qwen2", "qwen3", "gemma2", "olmo2", "palm"}, "RoPE in pairs",
      attention([](AttnRecipe& a) { a.pos.rope.layout = RopeLayout::pairs; }));
  add({"llama3", "gemma2", "qwen3-next-full"}, "no RoPE", attention([](AttnRecipe& a) { a.pos = {}; }));
  add({"llama3.1", "rope-linear", "rope-dynamic", "rope-yarn", "rope-yarn-mscale", "rope-longrope",
       "gemma3-4b"},
      "RoPE not scaled", attention([](AttnRecipe& a) { a.pos.rope.scaling = RopeScaling::none; }));
  add({"qwen3-next-full"}, "the whole head turned", attention([](AttnRecipe& a) { a.pos.rope.part = 1; }));
  add({"gemma3"}, "one theta", attention([](AttnRecipe& a) { a.pos.rope.theta = 10000; }));
  add({"gpt2", "bert", "llama3", "gemma2", "t5", "marian", "transformer-2017", "vit-22b"}, "scale + 2 %",
      [](Recipe& r) {
        each_attention(r, [&](AttnRecipe& a) {
          const Dim d = a.head_dim > 0 ? a.head_dim : r.width / a.heads;
          const double scale = a.scale.kind == ScaleRecipe::Kind::number
                                   ? a.scale.number
                                   : 1 / std::sqrt(static_cast<double>(d));
          a.scale = {.kind = ScaleRecipe::Kind::number, .number = 1.02 * scale};
        });
      });
  add({"gpt2", "llama3", "qwen3", "t5"}, "pre-norm made post-norm",
      parts([=](PartRecipe& p) { move(p.norm_in, p.norm_sum); }));
  add({"gpt2", "llama3", "qwen3", "t5"}, "norm_in made norm_out",
      parts([=](PartRecipe& p) { move(p.norm_in, p.norm_out); }));
  add({"bert", "marian", "transformer-2017"}, "post-norm made pre-norm",
      parts([=](PartRecipe& p) { move(p.norm_sum, p.norm_in); }));
  add({"olmo2"}, "norm_out made norm_in", parts([=](PartRecipe& p) { move(p.norm_out, p.norm_in); }));
  add({"gemma2", "gemma3"}, "no norm_out", parts([](PartRecipe& p) { p.norm_out.reset(); }));
  add({"gpt2", "llama3", "gemma2", "palm"}, "no final norm",
      [](Recipe& r) { r.decoder->final_norm.reset(); });
  add({"bert"}, "no embedding norm", [](Recipe& r) { r.embed.norm.reset(); });
  add({"gemma2", "gemma3", "qwen3-next-full"}, "plus_one dropped",
      norms([](NormRecipe& n) { n.weight = NormRecipe::Gain::one; }));
  add({"gpt2", "bert", "palm", "vit-22b"}, "LayerNorm made RMSNorm",
      norms([](NormRecipe& n) { n.kind = NormRecipe::Kind::rms; }));
  for (Dim by : {-1, 1})
    add({"mistral", "gemma2", "gemma3"}, by > 0 ? "window + 1" : "window - 1", attention([=](AttnRecipe& a) {
          if (a.window > 0) a.window += by;
        }));
  add({"gemma2"}, "no cap on scores", attention([](AttnRecipe& a) { a.cap = 0; }));
  add({"gemma2"}, "no cap on logits", [](Recipe& r) { r.head.cap = 0; });
  add({"qwen3", "gemma3", "olmo2", "vit-22b", "qwen3-gate-g1"}, "no QK-norm",
      attention([](AttnRecipe& a) { a.qk_norm.reset(); }));
  add({"qwen3", "gemma3"}, "QK-norm after RoPE",
      attention([](AttnRecipe& a) { a.qk_norm->at = QkNormRecipe::At::after_pos; }));
  for (const char* family : {"llama3", "qwen3"})
    for (const char* place : {"g1", "g2", "g3", "g4", "g5", "g1-head", "g1-const"})
      all.push_back(
          {concat(family, "-gate-", place), "no gate", attention([](AttnRecipe& a) { a.gate.clear(); })});
  const auto rules = [](auto change) {
    return [=](Recipe& r) {
      each_part(r, [&](PartRecipe& p) {
        if (p.delta()) change(*p.delta());
      });
    };
  };
  add({"qwen3-next", "delta-char"}, "key heads in turns",
      rules([](DeltaRecipe& d) { d.share = DeltaRecipe::Share::turns; }));
  add({"qwen3-next", "delta-char"}, "another gate", rules([](DeltaRecipe& d) { d.gate = Act::sigmoid; }));
  add({"qwen3-next", "delta-char"}, "no activation that is silu",
      rules([](DeltaRecipe& d) { d.act = Act::relu; }));
  add({"qwen3-next-full", "qwen3-next", "delta-char"}, "no gate",
      attention([](AttnRecipe& a) { a.gate.clear(); }));
  auto experts = [](auto change) {
    return [=](Recipe& r) {
      each_part(r, [&](PartRecipe& p) {
        if (p.moe()) change(*p.moe());
      });
    };
  };
  add({"mixtral", "qwen2-moe", "qwen3-moe"}, "one expert less", experts([](MoeRecipe& m) { m.used = 1; }));
  add({"mixtral", "qwen2-moe", "qwen3-moe"}, "the other way to renormalise",
      experts([](MoeRecipe& m) { m.router.renormalise = !m.router.renormalise; }));
  add({"qwen2-moe"}, "no gate on the shared expert", experts([](MoeRecipe& m) { m.shared->gated = false; }));
  add({"deepseek-v2-lite"}, "latent with another norm",
      attention([](AttnRecipe& a) { a.latent->norm.eps = 0.5; }));
  add({"deepseek-v2-lite"}, "scores without YaRN's factor",
      attention([](AttnRecipe& a) { a.pos.rope.mscale_all_dim = a.pos.rope.mscale = 0.1; }));
  add({"llama3-gate-many"}, "no extra logit", attention([](AttnRecipe& a) { a.extra = {}; }));
  add({"gopher"}, "no distances", attention([](AttnRecipe& a) { a.pos = {}; }));
  add({"t5", "t5-v1.1"}, "no buckets", attention([](AttnRecipe& a) { a.pos = {}; }));
  add({"gemma2", "marian", "transformer-2017"}, "embedding not scaled",
      [](Recipe& r) { r.embed.scale_sqrt_width = false; });
  add({"marian"}, "sinusoid in pairs", [](Recipe& r) { r.embed.layout = SinusoidLayout::pairs; });
  add({"palm", "vit-22b"}, "not parallel", [](Recipe& r) {
    LayerRecipe& layer = (r.decoder ? r.decoder : r.encoder)->kinds.begin()->second;
    layer.parallel = false;
    for (PartRecipe& p : layer.parts) p.norm_in = layer.norm_in;
    layer.norm_in.reset();
  });
  auto align = [](auto change) { return [=](Recipe& r) { change(*r.decoder->recurrent->attention); }; };
  add({"bahdanau"}, "asks with the state after the step",
      align([](AlignRecipe& a) { a.at = AlignRecipe::At::current; }));
  add({"bahdanau"}, "starts from zeros",
      [](Recipe& r) { r.decoder->recurrent->start = RecurrentRecipe::Start::zero; });
  add({"luong-dot", "luong-general"}, "starts from zeros",
      [](Recipe& r) { r.decoder->recurrent->start = RecurrentRecipe::Start::zero; });
  add({"luong-dot", "luong-concat", "luong-local-p"}, "no feeding",
      align([](AlignRecipe& a) { a.feed = false; }));
  add({"luong-general"}, "dot scores", align([](AlignRecipe& a) { a.score = AlignRecipe::Score::dot; }));
  add({"luong-local-m", "luong-local-p"}, "reach + 1", align([](AlignRecipe& a) { a.reach += 1; }));
  add({"luong-local-m", "luong-local-p"}, "no window",
      align([](AlignRecipe& a) { a.window = AlignRecipe::Window::none, a.reach = 10, a.width = 0; }));
  spoil({"bahdanau"}, "GRU's second bias zero", [](Model& m) { zero(m, "encoder.0.back.h.bias"); });
  for (const char* bias : {"q", "v", "o"})
    spoil({"gpt2"}, concat(bias, " bias zero"),
          [=](Model& m) { zero(m, concat("decoder.0.self.", bias, ".bias")); });
  for (const char* bias : {"content", "distance"})
    spoil({"gopher"}, concat(bias, " bias zero"),
          [=](Model& m) { zero(m, concat("decoder.0.self.", bias, ".bias")); });
  spoil({"gpt2"}, "FFN bias zero", [](Model& m) { zero(m, "decoder.1.ffn.up.bias"); });
  spoil({"gpt2"}, "norm bias zero", [](Model& m) { zero(m, "decoder.1.ffn.norm_in.bias"); });
  spoil({"qwen2"}, "key bias zero", [](Model& m) { zero(m, "decoder.0.self.k.bias"); });
  spoil({"bert", "marian"}, "head bias zero", [](Model& m) { zero(m, "head.bias"); });
  spoil({"llama3", "gemma2", "qwen3"}, "key heads in reverse",
        [](Model& m) { reverse_key_heads(m, "decoder.0", 2); });
  return all;
}

TEST(Golden, MutationsFailTheSameComparison) {
  Device device({.threads = 1});
  const std::vector<Mutation> all = mutations();
  EXPECT_GE(all.size(), 60u);
  for (const Mutation& m : all) {
    const Golden& g = golden(m.toy);
    Recipe recipe = g.recipe;
    if (m.recipe) {
      m.recipe(recipe);
      EXPECT_NE(recipe_json(recipe), recipe_json(g.recipe))
          << m.toy << ": '" << m.what << "' changes nothing";
    }
    EXPECT_GT(distance(g, recipe, device, m.weights), kFails) << m.toy << ": " << m.what;
  }
}

// A key's bias adds the same number to a whole row of scores, and softmax does not see it: zeroing it must
// change nothing in GPT-2.
TEST(Golden, PlainSoftmaxDoesNotSeeTheKeyBias) {
  Device device({.threads = 1});
  const Golden& g = golden("gpt2");
  EXPECT_LE(distance(g, g.recipe, device, [](Model& m) { zero(m, "decoder.0.self.k.bias"); }), kTolerance);
}

}  // namespace
}  // namespace rapt
