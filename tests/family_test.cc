// SPDX-License-Identifier: Apache-2.0
// Toy checkpoints of every family, written as their library saves them, against what that library computed
// (tests/golden/families): logits, greedy tokens through a cache, old spellings of released files, errors,
// conversion to GGUF and back.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "rapt/io/safetensors.h"
#include "rapt/load/model_folder.h"
#include "rapt/tensor/formats.h"
#include "rapt/tensor/pack.h"
#include "tests/build_kind.h"
#include "tests/toy_checkpoint.h"

namespace rapt::test {
namespace {

constexpr double kTolerance = 1e-4, kFails = 2e-4;  // GELU by erf or by tanh: 2.5e-4 at least

Device& device() {
  static Device one({.threads = 2});
  return one;
}

Checkpoint open_toy(const Toy& toy, const LoadOptions& options = {}) {
  const TempFolder temp;
  write_folder(toy, temp / "toy");
  return open_checkpoint(temp / "toy", options);
}
double distance(const Toy& toy, const LoadOptions& options = {}) {
  return toy_distance(toy, open_toy(toy, options), device());
}

std::string toy_error(const Toy& toy) {
  return error_of([&] { open_toy(toy); });
}
void expect_words(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* w : words)
    EXPECT_NE(message.find(w), std::string::npos) << "'" << w << "' is not in: " << message;
}

// ------------------------------------------------------------------------------------------------ values
TEST(Family, EveryToyGivesTheLibrarysLogitsAndGreedyTokens) {
  const auto names = toy_names();
  EXPECT_GE(names.size(), 70u);
  for (const std::string& name : names) {
    const Toy toy = read_toy(name);
    const Checkpoint c = open_toy(toy, {.device = &device()});
    EXPECT_LE(toy_distance(toy, c, device()), kTolerance) << name;
    if (const Json* g = toy.json.find("greedy")) {
      const auto got = toy_greedy(toy, c, device(), 64);
      ASSERT_EQ(g->find("tokens")->array().size(), 64u) << name;
      for (std::size_t i = 0; i < 64; ++i)
        ASSERT_EQ(got[i], g->find("tokens")->array()[i].integer()) << name << " at step " << i;
    }
  }
}

// What is in memory, written as a folder, is the same family again and computes the same.
TEST(Family, EveryToyIsWrittenBackAsItsFamily) {
  for (const std::string& name : toy_names()) {
    const Toy toy = read_toy(name);
    const Checkpoint c = open_toy(toy, {.device = &device()});
    const TempFolder temp;
    write_model_folder(*c.model, {}, temp / "written", false);
    const Checkpoint again = open_checkpoint(temp / "written", {.device = &device()});
    // Models that two families say alike: the first is taken.
    static const std::map<std::string, std::string> kAlike = {{"nomic-bert-remote", "nomic-bert"}};
    const auto other = kAlike.find(name);
    EXPECT_EQ(again.family, other == kAlike.end() ? c.family : other->second) << name;
    EXPECT_LE(toy_distance(toy, again, device()), kTolerance) << name;
  }
}

TEST(Family, EveryFamilyHasAToy) {
  std::map<std::string, int> seen;
  for (const std::string& name : toy_names()) ++seen[open_toy(read_toy(name)).family];
  const auto pictures = std::filesystem::path(RAPT_SOURCE_DIR) / "tests" / "golden" / "vision";
  for (const auto& entry : std::filesystem::directory_iterator(pictures))  // compared by vision_test.cc
    for (const Tower tower : {Tower::vision, Tower::text})
      ++seen[open_toy(read_toy("../vision/" + entry.path().stem().string()), {.tower = tower}).family];
  for (const std::string& family : family_names()) EXPECT_GE(seen[family], 1) << family;
}

TEST(Family, InDoublePrecisionTheStoredDigitsAreMet) {
  Device reference({.threads = 1, .isa = "f64"});
  for (const char* name :
       {"gpt2", "bert", "llama3.1", "gemma3", "phi3-longrope", "t5", "marian", "deberta-v3"}) {
    const Toy toy = read_toy(name);
    EXPECT_LE(toy_distance(toy, open_toy(toy, {.real = DType::f64}), reference), 6e-6) << name;
  }
}

// The 300 tokens of a toy through a cache, at once, in three pieces and one by one: the same bits.
TEST(Family, PiecesOfALongTextHaveEqualBits) {
  for (const char* name :
       {"deepseek-v2", "deepseek-v2-lite", "deepseek-v3", "glm4-moe-lite", "minicpm3", "qwen3-next",
        "qwen3-next-released", "qwen3.5", "qwen3.5-text", "lfm2", "lfm2-moe"}) {
    const Toy toy = read_toy(name);
    const Checkpoint c = open_toy(toy);
    std::vector<std::int32_t> tokens;
    for (const Json& t : toy.json.find("sequences")->array()[0].array())
      tokens.push_back(static_cast<std::int32_t>(t.integer()));
    while (tokens.size() < 300) tokens.push_back(tokens[tokens.size() * 7 % 13]);
    const auto read = [&](Dim piece, KvPool* pool) {
      std::vector<double> all;
      for (Dim at = 0; at < static_cast<Dim>(tokens.size()); at += piece) {
        rapt::Run run(device());
        const Dim n = std::min(piece, static_cast<Dim>(tokens.size()) - at);
        const Batch b{
            .tokens = std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)),
            .sequences = {{.first = 0, .count = n, .past = at, .id = 1, .opened = 300}}};
        const Tensor y = forward(run, *c.model, b, nullptr, pool);
        for (Dim i = 0; i < y.elements(); ++i) all.push_back(y.at(i));
      }
      return all;
    };
    const std::vector<double> whole = read(static_cast<Dim>(tokens.size()), nullptr);
    for (const Dim piece : {300, 100, 64, 1}) {
      KvPool pool(*c.model);
      EXPECT_TRUE(read(piece, &pool) == whole) << name << " in pieces of " << piece;
    }
  }
}

// A released file in 16 bits stays in 16 bits; the numbers are those of the rounded weights.
TEST(Family, SixteenBitFilesStayPacked) {
  for (const DType type : {DType::bf16, DType::f16}) {
    const Toy toy = read_toy("qwen3");
    const TempFolder temp;
    write_folder(toy, temp / "toy", type);
    const Checkpoint exact = open_checkpoint(temp / "toy", {.matrices = DType::f32});
    EXPECT_EQ(exact.model->weight("decoder.0.self.q.weight").format, DType::f32);
    Toy rounded = toy;
    for (ToyTensor& t : rounded.tensors)
      for (float& x : t.values) x = type == DType::bf16 ? from_bf16(to_bf16(x)) : from_f16(to_f16(x));
    const Checkpoint wide = open_toy(rounded);
    for (std::size_t i = 0; i < wide.model->weights.size(); ++i) {
      const Weight &a = wide.model->weights[i], &b = exact.model->weights[i];
      ASSERT_EQ(std::memcmp(a.data.get(), b.data.get(), a.bytes()), 0) << a.name;
    }
    const Checkpoint packed = open_checkpoint(temp / "toy");
    const Weight &p = packed.model->weight("decoder.1.ffn.down.weight"),
                 &w = wide.model->weight("decoder.1.ffn.down.weight");
    EXPECT_EQ(p.format, type);
    for (Dim r = 0; r < p.rows; ++r)
      for (Dim c = 0; c < p.cols; ++c) ASSERT_EQ(p.get(r, c), w.get(r, c));
    EXPECT_EQ(packed.model->weight("decoder.norm.weight").format, DType::f32);
  }
}

// gpt-oss as it is released: experts in MXFP4, two numbers in a byte and scales apart.
TEST(Family, ExpertsInMxfp4BlocksOfAFolder) {
  Toy toy = read_toy("gpt-oss");
  // Widths that blocks fit: 36 and 26 become 64 and 32, by other toys' numbers repeated.
  toy.config.set("hidden_size", 64);
  toy.config.set("intermediate_size", 32);
  for (ToyTensor& t : toy.tensors) {
    Dim n = 1;
    for (Dim& d : t.shape) {
      d = d == 36 ? 64 : d == 52 ? 64 : d == 26 ? 32 : d;
      n *= d;
    }
    const std::vector<float> old = t.values;
    t.values.resize(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < t.values.size(); ++i) t.values[i] = old[i * 7 % old.size()];
  }
  // The same numbers twice: as they come back from blocks, in x out, and as the blocks themselves.
  Toy plain = toy;
  const TempFolder temp;
  std::map<std::string, std::pair<std::vector<std::byte>, std::vector<std::byte>>> stored;
  for (ToyTensor& t : plain.tensors) {
    if (!t.name.ends_with("gate_up_proj") && !t.name.ends_with("down_proj")) continue;
    const Dim E = t.shape[0], in = t.shape[1], out = t.shape[2];
    std::vector<float> rows(t.values.size());  // [E,out,in]
    for (Dim e = 0; e < E; ++e)
      for (Dim r = 0; r < out; ++r)
        for (Dim c = 0; c < in; ++c)
          rows[static_cast<std::size_t>((e * out + r) * in + c)] =
              t.values[static_cast<std::size_t>((e * in + c) * out + r)];
    std::vector<std::byte> blocks(bytes_of(DType::mxfp4, E * in * out, t.name)), pairs, scales;
    quantize(DType::mxfp4, rows, blocks);
    dequantize(DType::mxfp4, blocks, rows);
    for (std::size_t b = 0; b < blocks.size(); b += 17) {
      scales.push_back(blocks[b]);
      const auto nibble = [&](std::size_t i) {
        const auto byte = std::to_integer<unsigned>(blocks[b + 1 + i % 16]);
        return i < 16 ? byte & 15u : byte >> 4;
      };
      for (std::size_t i = 0; i < 32; i += 2)
        pairs.push_back(static_cast<std::byte>(nibble(i) | nibble(i + 1) << 4));
    }
    for (Dim e = 0; e < E; ++e)
      for (Dim r = 0; r < out; ++r)
        for (Dim c = 0; c < in; ++c)
          t.values[static_cast<std::size_t>((e * in + c) * out + r)] =
              rows[static_cast<std::size_t>((e * out + r) * in + c)];
    stored[t.name] = {pairs, scales};
  }
  write_folder(plain, temp / "plain");
  std::vector<SafetensorPlan> plan;
  for (const ToyTensor& t : plain.tensors) {
    const auto it = stored.find(t.name);
    if (it == stored.end()) {
      plan.push_back({t.name, DType::f32, t.shape,
                      [&t](FileWriter& out) { out.write(std::as_bytes(std::span(t.values))); }});
      continue;
    }
    const Dim E = t.shape[0], in = t.shape[1], out = t.shape[2];
    plan.push_back(
        {t.name + "_blocks", DType::i8, {E, out, in / 32, 16}, [&p = it->second.first](FileWriter& to) {
           to.write(p);
         }});
    plan.push_back(
        {t.name + "_scales", DType::i8, {E, out, in / 32}, [&p = it->second.second](FileWriter& to) {
           to.write(p);
         }});
  }
  std::filesystem::create_directories(temp / "blocks");
  put_file(temp / "blocks/config.json", plain.config.dump());
  write_safetensors(temp / "blocks/model.safetensors", plan, {}, true);
  const Checkpoint exact = open_checkpoint(temp / "plain"),
                   same = open_checkpoint(temp / "blocks", {.matrices = DType::f32}),
                   packed = open_checkpoint(temp / "blocks");
  for (std::size_t i = 0; i < exact.model->weights.size(); ++i) {
    const Weight &a = exact.model->weights[i], &b = same.model->weights[i], &c = packed.model->weights[i];
    const bool expert = a.name.find(".experts.") != std::string::npos && a.name.ends_with(".weight");
    EXPECT_EQ(c.format, expert ? DType::mxfp4 : DType::f32) << a.name;
    std::vector<float> row(static_cast<std::size_t>(a.cols));
    for (Dim r = 0; r < a.rows; ++r) {
      if (expert) unpack_row(c, r, row);
      for (Dim k = 0; k < a.cols; ++k) {
        ASSERT_EQ(a.get(r, k), b.get(r, k)) << a.name;
        if (expert) ASSERT_EQ(static_cast<float>(a.get(r, k)), row[static_cast<std::size_t>(k)]) << a.name;
      }
    }
  }
  // As GGUF the blocks are the same, in that file's order.
  write_checkpoint(temp / "blocks", temp / "toy.gguf", {});
  const GgufFile file = GgufFile::open(temp / "toy.gguf");
  EXPECT_EQ(file.tensors.find("blk.1.ffn_gate_exps.weight")->dtype(), DType::mxfp4);
  const Checkpoint back = open_checkpoint(temp / "toy.gguf", {.matrices = DType::f32});
  EXPECT_EQ(back.model->weight("decoder.2.moe.experts.3.up.weight").get(5, 7),
            exact.model->weight("decoder.2.moe.experts.3.up.weight").get(5, 7));
  expect_words(error_of([&] { write_checkpoint(temp / "blocks", temp / "again", {}); }), {"MXFP4", ".gguf"});
}

// ------------------------------------------------------------------------------------------------ mutations
void each_part(Recipe& r, const std::function<void(PartRecipe&)>& f) {
  for (auto* stack : {&r.encoder, &r.decoder})
    if (*stack)
      for (auto& [letter, layer] : (*stack)->kinds)
        for (PartRecipe& p : layer.parts) f(p);
}

struct Mutation {
  const char* what;
  std::function<bool(Recipe&)> apply;  // false: does not fit
};

std::vector<Mutation> mutations() {
  auto parts = [](auto change) {
    return [change](Recipe& r) {
      bool any = false;
      each_part(r, [&](PartRecipe& p) { any = change(p) || any; });
      return any;
    };
  };
  auto attention = [parts](auto change) {
    return parts([change](PartRecipe& p) { return p.attention() && change(*p.attention()); });
  };
  auto rope = [attention](auto change) {
    return attention(
        [change](AttnRecipe& a) { return a.pos.kind == PosRecipe::Kind::rope && change(a.pos.rope); });
  };
  return {
      {"RoPE layout", rope([](RopeSpec& r) {
         r.layout = r.layout == RopeLayout::pairs ? RopeLayout::halves : RopeLayout::pairs;
         return true;
       })},
      {"RoPE theta", rope([](RopeSpec& r) {
         r.theta *= 1.3;
         return true;
       })},
      {"RoPE scaling dropped",
       rope([](RopeSpec& r) { return std::exchange(r.scaling, RopeScaling::none) != RopeScaling::none; })},
      {"scale", attention([](AttnRecipe& a) {
         const double now = a.scale.kind == ScaleRecipe::Kind::number
                                ? a.scale.number
                                : 1 / std::sqrt(static_cast<double>(a.head_dim));
         a.scale = {.kind = ScaleRecipe::Kind::number, .number = 1.02 * now};
         return true;
       })},
      {"window + 1", attention([](AttnRecipe& a) { return a.window > 0 && ++a.window; })},
      {"window - 1", attention([](AttnRecipe& a) { return a.window > 1 && --a.window; })},
      {"cap", attention([](AttnRecipe& a) { return std::exchange(a.cap, 0) != 0; })},
      {"QK-norm dropped",
       attention([](AttnRecipe& a) { return std::exchange(a.qk_norm, std::nullopt).has_value(); })},
      {"QK-norm at the other side of RoPE", attention([](AttnRecipe& a) {
         using At = QkNormRecipe::At;
         if (!a.qk_norm || a.qk_norm->norm.weight == NormRecipe::Gain::none) return false;
         a.qk_norm->at = a.qk_norm->at == At::after_pos ? At::before_pos : At::after_pos;
         return true;
       })},
      {"clip dropped", attention([](AttnRecipe& a) { return std::exchange(a.clip, 0) != 0; })},
      {"temperature dropped",
       attention([](AttnRecipe& a) { return std::exchange(a.temperature, std::nullopt).has_value(); })},
      {"ALiBi's slopes", attention([](AttnRecipe& a) {
         return a.pos.kind == PosRecipe::Kind::alibi && (a.pos.alibi_factor *= 1.1, true);
       })},
      {"delta: length of q and k",
       parts([](PartRecipe& p) { return p.delta() && (p.delta()->eps = 0.5, true); })},
      {"delta: the other way to share key heads", parts([](PartRecipe& p) {
         using Share = DeltaRecipe::Share;
         if (!p.delta() || p.delta()->key_heads == 1 || p.delta()->value_heads == p.delta()->key_heads)
           return false;
         p.delta()->share = p.delta()->share == Share::turns ? Share::neighbours : Share::turns;
         return true;
       })},
      {"delta: activation",
       parts([](PartRecipe& p) { return p.delta() && (p.delta()->act = Act::gelu, true); })},
      {"delta: gate",
       parts([](PartRecipe& p) { return p.delta() && (p.delta()->gate = Act::sigmoid, true); })},
      {"delta: its norm stored minus one", parts([](PartRecipe& p) {
         return p.delta() && (p.delta()->norm.weight = NormRecipe::Gain::plus_one, true);
       })},
      {"a factor on branches", parts([](PartRecipe& p) { return std::exchange(p.residual_scale, 1) != 1; })},
      {"bias dropped", attention([](AttnRecipe& a) { return std::exchange(a.bias, {}) != BiasRecipe{}; })},
      {"buckets reach", attention([](AttnRecipe& a) {
         return a.pos.kind == PosRecipe::Kind::bucket && (a.pos.bucket.max *= 2, true);
       })},
      {"vectors of distances reach", attention([](AttnRecipe& a) {
         return a.pos.kind == PosRecipe::Kind::relative && (a.pos.relative.max *= 2, true);
       })},
      {"queries of distances dropped", attention([](AttnRecipe& a) {
         return a.pos.kind == PosRecipe::Kind::relative && std::exchange(a.pos.relative.queries, false);
       })},
      {"keys of distances dropped", attention([](AttnRecipe& a) {
         return a.pos.kind == PosRecipe::Kind::relative && std::exchange(a.pos.relative.keys, false);
       })},
      {"activation", parts([](PartRecipe& p) {
         if (!p.ffn()) return false;
         p.ffn()->act = p.ffn()->act == Act::gelu ? Act::gelu_tanh : Act::gelu;
         return true;
       })},
      {"norm of the sum before it", parts([](PartRecipe& p) {
         // Names differ then, so a weight is missing: the comparison fails as an error.
         return p.norm_sum && (p.norm_in = std::exchange(p.norm_sum, std::nullopt), true);
       })},
      {"plus_one dropped", parts([](PartRecipe& p) {
         return p.norm_in &&
                std::exchange(p.norm_in->weight, NormRecipe::Gain::one) == NormRecipe::Gain::plus_one;
       })},
      {"final norm dropped",
       [](Recipe& r) { return r.decoder && std::exchange(r.decoder->final_norm, std::nullopt).has_value(); }},
      {"embedding scale",
       [](Recipe& r) {
         const bool number = std::exchange(r.embed.scale, 1) != 1;
         return std::exchange(r.embed.scale_sqrt_width, false) || number;
       }},
      {"first position", [](Recipe& r) { return std::exchange(r.embed.first, 0) != 0; }},
      {"sinusoid layout",
       [](Recipe& r) {
         return r.embed.pos == EmbedRecipe::Pos::sinusoid && (r.embed.layout = SinusoidLayout::pairs, true);
       }},
      {"logit cap", [](Recipe& r) { return std::exchange(r.head.cap, 0) != 0; }},
      {"head scale", [](Recipe& r) { return std::exchange(r.head.scale, 1) != 1; }},
      {"head bias dropped", [](Recipe& r) { return std::exchange(r.head.bias, false); }},
      {"token types dropped",
       [](Recipe& r) {
         return r.head.kind == HeadRecipe::Kind::none && r.embed.norm &&
                (r.embed.norm->kind = NormRecipe::Kind::rms, true);
       }},
  };
}

TEST(Family, MutatedRecipesFailTheComparison) {
  RAPT_NOT_SANITIZED("every toy once more for each mutation");
  int tried = 0;
  for (const std::string& name : toy_names()) {
    const Toy toy = read_toy(name);
    const TempFolder temp;
    write_folder(toy, temp / "toy");
    int fitting = 0;
    for (const Mutation& m : mutations()) {
      bool fits = false;
      double moved = INFINITY;
      try {
        moved = toy_distance(
            toy, open_checkpoint(temp / "toy", {.change = [&](Recipe& r) { fits = m.apply(r); }}), device());
      } catch (const Error&) {  // the changed recipe wants other tensors
      }
      if (!fits) continue;
      ++fitting;
      EXPECT_GT(moved, kFails) << name << ": " << m.what;
    }
    EXPECT_GE(fitting, 2) << name;
    tried += fitting;
  }
  EXPECT_GE(tried, 100);
}

// -------------------------------------------------------------------------------------------- old spellings
TEST(Family, ReleasedGpt2HasNoPrefixAndHoldsMasks) {
  Toy toy = read_toy("gpt2");
  toy.rename("transformer.", "");
  for (int i = 0; i < 3; ++i) {
    toy.tensors.push_back({concat("h.", i, ".attn.bias"), {1, 1, 4, 4}, std::vector<float>(16, 1)});
    toy.tensors.push_back({concat("h.", i, ".attn.masked_bias"), {1}, {-1e4f}});
  }
  EXPECT_LE(distance(toy), kTolerance);
}

TEST(Family, ReleasedBertHasGammaAndBetaAndHeadsNobodyReads) {
  for (const bool headless : {false, true}) {
    Toy toy = read_toy(headless ? "minilm" : "bert");
    for (ToyTensor& t : toy.tensors)
      if (t.name.find("LayerNorm") != std::string::npos) {
        const std::size_t dot = t.name.rfind('.');
        t.name = t.name.substr(0, dot) + (t.name.ends_with("weight") ? ".gamma" : ".beta");
      }
    if (headless) {
      toy.rename("e", "bert.e");
      toy.rename("pooler", "bert.pooler");
    }
    toy.tensors.push_back({"bert.embeddings.position_ids", {1, 40}, std::vector<float>(40, 0)});
    toy.tensors.push_back({"cls.seq_relationship.weight", {2, 36}, std::vector<float>(72, 1)});
    toy.tensors.push_back({"cls.seq_relationship.bias", {2}, {1, 1}});
    if (!headless) {  // the tied matrix and its bias once more
      const ToyTensor table = toy.tensor("bert.embeddings.word_embeddings.weight"),
                      bias = toy.tensor("cls.predictions.bias");
      toy.tensors.push_back({"cls.predictions.decoder.weight", table.shape, table.values});
      toy.tensors.push_back({"cls.predictions.decoder.bias", bias.shape, bias.values});
    }
    const Checkpoint c = open_toy(toy);
    EXPECT_LE(toy_distance(toy, c, device()), kTolerance);
    EXPECT_EQ(c.model->recipe.head.kind == HeadRecipe::Kind::none, headless);
  }
}

void old_rope(Json& config, const char* type_key) {
  Json rope = *config.find("rope_parameters");
  config.set("rope_theta", *rope.find("rope_theta"));
  remove_key(rope, "rope_theta");
  const Json kind = *rope.find("rope_type");
  remove_key(rope, "rope_type");
  remove_key(config, "rope_parameters");
  if (kind == Json("default")) {
    config.set("rope_scaling", Json());
    return;
  }
  rope.set(type_key, kind);
  config.set("rope_scaling", rope);
}

TEST(Family, OldRopeKeysMeanTheSame) {
  for (const char* name : {"llama1", "llama3.1", "llama-linear", "llama-dynamic", "llama-yarn", "phi3",
                           "phi3-longrope", "qwen2", "gemma2", "olmo2"})
    for (const char* key : {"type", "rope_type"}) {
      Toy toy = read_toy(name);
      old_rope(toy.config, key);
      EXPECT_LE(distance(toy), kTolerance) << name << " " << key;
    }
  for (const char* word : {"su", "yarn"}) {  // what Phi-3 called longrope
    Toy toy = read_toy("phi3-longrope");
    old_rope(toy.config, "type");
    Json rope = *toy.config.find("rope_scaling");
    rope.set("type", word);
    toy.config.set("rope_scaling", rope);
    EXPECT_LE(distance(toy), kTolerance) << word;
  }
}

TEST(Family, OldGemma3Keys) {
  for (const char* name : {"gemma3", "gemma3-4b"}) {
    Toy toy = read_toy(name);
    const Json rope = *toy.config.find("rope_parameters");
    Json full = *rope.find("full_attention");
    for (const char* key : {"rope_parameters", "layer_types", "_sliding_window_pattern"})
      remove_key(toy.config, key);
    toy.config.set("rope_theta", *full.find("rope_theta"));
    toy.config.set("rope_local_base_freq", *rope.find("sliding_attention")->find("rope_theta"));
    toy.config.set("sliding_window_pattern", 6);
    remove_key(full, "rope_theta");
    toy.config.set("rope_scaling", *full.find("rope_type") == Json("default") ? Json() : full);
    EXPECT_LE(distance(toy), kTolerance) << name;
  }
}

TEST(Family, FilesWithoutLayerTypes) {
  for (const char* name : {"qwen2", "qwen2-window", "gemma2", "qwen3"}) {
    Toy toy = read_toy(name);
    remove_key(toy.config, "layer_types");
    EXPECT_LE(distance(toy), kTolerance) << name;
  }
}

TEST(Family, NullMeansAbsentAndDefaultsAreTheLibrarys) {
  Toy llama = read_toy("smollm2");
  llama.config.set("head_dim", Json());
  llama.config.set("sliding_window", Json());
  llama.config.set("rope_scaling", Json());
  EXPECT_LE(distance(llama), kTolerance);
  Toy mistral = read_toy("mistral");
  mistral.config.set("sliding_window", Json());
  EXPECT_GT(distance(mistral), kFails);  // without a window it is another model
  Toy one = read_toy("llama1");
  remove_key(one.config, "num_key_value_heads");  // as many as heads
  remove_key(one.config, "model_type");  // the class tells the family
  EXPECT_LE(distance(one), kTolerance);
}

TEST(Family, BuffersOfOldLlamaFilesAreKnown) {
  Toy toy = read_toy("llama1");
  for (int i = 0; i < 2; ++i)
    toy.tensors.push_back(
        {concat("model.layers.", i, ".self_attn.rotary_emb.inv_freq"), {6}, std::vector<float>(6, 1)});
  EXPECT_LE(distance(toy), kTolerance);
}

TEST(Family, T5OldFilesHoldCopiesAndAnUnreadTable) {
  Toy toy = read_toy("t5");
  const ToyTensor table = toy.tensor("shared.weight"),
                  bias = toy.tensor("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
  toy.tensors.push_back({"encoder.embed_tokens.weight", table.shape, table.values});
  toy.tensors.push_back({"decoder.embed_tokens.weight", table.shape, table.values});
  toy.tensors.push_back({"lm_head.weight", table.shape, table.values});
  toy.tensors.push_back(
      {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", bias.shape, bias.values});
  remove_key(toy.config, "scale_decoder_outputs");
  EXPECT_LE(distance(toy), kTolerance);
  toy.tensor("encoder.embed_tokens.weight").values[5] += 1;
  expect_words(toy_error(toy), {"shared.weight", "encoder.embed_tokens.weight", "differ"});

  Toy flan = read_toy("t5-v1.1");
  remove_key(flan.config, "scale_decoder_outputs");
  flan.config.set("tie_word_embeddings", false);
  EXPECT_LE(distance(flan), kTolerance);
}

TEST(Family, MarianCopiesOfTheTable) {
  Toy toy = read_toy("marian");
  const ToyTensor table = toy.tensor("model.shared.weight");
  for (const char* name :
       {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"}) {
    std::erase_if(toy.tensors, [&](const ToyTensor& t) { return t.name == name; });
    toy.tensors.push_back({name, table.shape, table.values});
  }
  EXPECT_LE(distance(toy), kTolerance);
}

// -------------------------------------------------------------------------------------- what tensors decide
TEST(Family, TensorsDecideTying) {
  Toy toy = read_toy("smollm2");  // tied
  const ToyTensor table = toy.tensor("model.embed_tokens.weight");
  toy.tensors.push_back({"lm_head.weight", table.shape, table.values});
  const Checkpoint same = open_toy(toy);
  EXPECT_TRUE(same.model->recipe.head.tied);
  EXPECT_LE(toy_distance(toy, same, device()), kTolerance);
  toy.tensors.back().values[0] += 1;  // both there and different: not tied, whatever the config says
  EXPECT_FALSE(open_toy(toy).model->recipe.head.tied);

  Toy untied = read_toy("llama1");
  untied.remove("lm_head.weight");
  expect_words(toy_error(untied), {"lm_head.weight", "missing"});
}

TEST(Family, TensorsDecideBiases) {
  Toy toy = read_toy("qwen2");
  for (int i = 0; i < 2; ++i)
    for (const char* x : {"q", "k", "v"})
      toy.remove(concat("model.layers.", i, ".self_attn.", x, "_proj.bias"));
  EXPECT_EQ(open_toy(toy).model->recipe.decoder->layer(0).parts[0].self()->bias, BiasRecipe{});
  Toy half = read_toy("qwen2");
  half.remove("model.layers.1.self_attn.k_proj.bias");
  expect_words(toy_error(half), {"model.layers.1.self_attn.k_proj.bias", "missing"});
  Toy said = read_toy("llama-bias");
  said.config.set("attention_bias", false);
  expect_words(toy_error(said), {"attention_bias", "must agree"});
}

TEST(Family, MissingExtraAndMisshapenTensorsAreNamed) {
  struct Case {
    const char *toy, *tensor;
  };
  for (const Case& c : {Case{"gpt2", "transformer.h.1.attn.c_attn.weight"},
                        {"bert", "bert.encoder.layer.1.output.dense.weight"},
                        {"minilm", "embeddings.LayerNorm.weight"},
                        {"llama1", "model.layers.0.mlp.up_proj.weight"},
                        {"mistral", "model.norm.weight"},
                        {"qwen2", "model.layers.1.self_attn.v_proj.weight"},
                        {"qwen3", "model.layers.1.self_attn.q_norm.weight"},
                        {"qwen3-gate-element", "model.layers.1.self_attn.q_proj.weight"},
                        {"qwen3-gate-head", "model.layers.0.self_attn.q_proj.weight"},
                        {"gemma2", "model.layers.2.pre_feedforward_layernorm.weight"},
                        {"gemma3", "model.layers.6.self_attn.k_norm.weight"},
                        {"olmo2", "model.layers.0.post_feedforward_layernorm.weight"},
                        {"phi3", "model.layers.1.mlp.gate_up_proj.weight"},
                        {"roberta", "roberta.embeddings.position_embeddings.weight"},
                        {"distilbert", "distilbert.transformer.layer.1.ffn.lin2.weight"},
                        {"mpnet", "mpnet.encoder.relative_attention_bias.weight"},
                        {"modernbert", "model.layers.4.attn.Wqkv.weight"},
                        {"albert", "albert.encoder.embedding_hidden_mapping_in.weight"},
                        {"gpt-neox", "gpt_neox.layers.1.attention.query_key_value.weight"},
                        {"bloom", "transformer.word_embeddings_layernorm.weight"},
                        {"falcon-40b", "transformer.h.0.ln_attn.weight"},
                        {"cohere", "model.layers.1.input_layernorm.weight"},
                        {"glm4", "model.layers.0.mlp.gate_up_proj.weight"},
                        {"opt-350m", "model.decoder.project_in.weight"},
                        {"mpt", "transformer.blocks.1.attn.Wqkv.weight"},
                        {"bart", "model.encoder.embed_positions.weight"},
                        {"marian-two", "model.encoder.embed_tokens.weight"},
                        {"mixtral", "model.layers.1.block_sparse_moe.experts.3.w2.weight"},
                        {"qwen2-moe", "model.layers.2.mlp.shared_expert.down_proj.weight"},
                        {"granitemoe", "model.layers.1.block_sparse_moe.output_linear.weight"},
                        {"glm4-moe", "model.layers.2.mlp.gate.e_score_correction_bias"},
                        {"llama4", "model.layers.3.feed_forward.experts.gate_up_proj"},
                        {"gpt-oss", "model.layers.2.mlp.experts.gate_up_proj_bias"},
                        {"gpt-oss", "model.layers.0.self_attn.sinks"},
                        {"t5", "decoder.block.1.layer.1.EncDecAttention.o.weight"},
                        {"t5-v1.1", "encoder.block.0.layer.1.DenseReluDense.wi_0.weight"},
                        {"deberta-v3", "deberta.encoder.rel_embeddings.weight"},
                        {"deberta-v3-bare", "encoder.LayerNorm.weight"},
                        {"marian", "model.decoder.layers.2.encoder_attn_layer_norm.weight"}}) {
    const Toy good = read_toy(c.toy);
    Toy missing = good, extra = good, misshapen = good;
    missing.remove(c.tensor);
    expect_words(toy_error(missing), {"missing", c.tensor});
    const std::string other = std::string(c.tensor) + "_scale";
    extra.tensors.push_back({other, {3}, {1, 2, 3}});
    expect_words(toy_error(extra), {"read by nothing", other.c_str(), "nearest"});
    ToyTensor& t = misshapen.tensor(c.tensor);
    t.shape[0] -= 1;
    t.values.resize(t.values.size() / static_cast<std::size_t>(t.shape[0] + 1) *
                    static_cast<std::size_t>(t.shape[0]));
    expect_words(toy_error(misshapen), {"shape", c.tensor, "asks for"});
  }
  Toy layers = read_toy("llama1");
  layers.config.set("num_hidden_layers", 1);  // the second layer's tensors are left over
  expect_words(toy_error(layers), {"read by nothing", "model.layers.1."});
  layers.config.set("num_hidden_layers", 3);
  expect_words(toy_error(layers), {"missing", "model.layers.2."});
}

// --------------------------------------------------------------------------------------- beside the weights
// Rows of q_proj: queries of a key head's group, then their gates. Head by head, as Qwen3-Next has them, is
// another model; and a config that says otherwise than the rows is refused.
TEST(Family, GatesStandBehindTheQueriesOfAKeyHead) {
  for (const char* name : {"qwen3-gate-element", "qwen3-gate-head"}) {
    SCOPED_TRACE(name);
    const Toy good = read_toy(name);
    const bool element = std::string_view(name) == "qwen3-gate-element";
    const std::size_t keys = 2, group = 3, d = 10, wide = element ? d : 1, cols = 35;
    Toy by_head = good;
    std::vector<float>& rows = by_head.tensor("model.layers.0.self_attn.q_proj.weight").values;
    const std::vector<float> before = rows;
    const auto move = [&](std::size_t to, std::size_t from) {
      std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(from * cols), cols,
                  rows.begin() + static_cast<std::ptrdiff_t>(to * cols));
    };
    for (std::size_t g = 0; g < keys; ++g)
      for (std::size_t i = 0; i < group; ++i) {
        const std::size_t first = g * group * (d + wide), to = first + i * (d + wide);
        for (std::size_t r = 0; r < d; ++r) move(to + r, first + i * d + r);
        for (std::size_t r = 0; r < wide; ++r) move(to + d + r, first + group * d + i * wide + r);
      }
    EXPECT_GT(distance(by_head), 1e-2);
    Toy plain = good, both = good, bias = good;
    plain.config.set(element ? "elementwise_attn_output_gate" : "headwise_attn_output_gate", false);
    expect_words(toy_error(plain), {"shape", "self_attn.q_proj.weight", "asks for"});
    both.config.set(element ? "headwise_attn_output_gate" : "elementwise_attn_output_gate", true);
    expect_words(toy_error(both), {"attn_output_gate", "not built"});
    bias.config.set("qkv_bias", true);
    expect_words(toy_error(bias), {"qkv_bias", "not built"});
  }
}

TEST(Family, StopsStartsTemplatesAndPoolingComeFromTheirFiles) {
  const TempFolder temp;
  Toy toy = read_toy("llama1");
  toy.config.set("eos_token_id", Json::Array{2, 5});
  write_folder(toy, temp / "a");
  put_file(temp / "a/generation_config.json", R"({"eos_token_id": [7, 2]})");
  put_file(
      temp / "a/tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  Checkpoint c = open_checkpoint(temp / "a");
  EXPECT_EQ(c.stops, (std::vector<std::int32_t>{7, 2, 5}));
  EXPECT_EQ(c.chat_template, "D");
  put_file(temp / "a/chat_template.jinja", "J");
  EXPECT_EQ(open_checkpoint(temp / "a").chat_template, "J");

  write_folder(read_toy("t5"), temp / "b");
  EXPECT_EQ(open_checkpoint(temp / "b").decoder_start, 0);
  write_folder(read_toy("marian"), temp / "c");
  EXPECT_EQ(open_checkpoint(temp / "c").decoder_start, 60);

  put_file(temp / "c/generation_config.json",
           R"({"bad_words_ids": [[60], [3, 4]], "renormalize_logits": true})");
  c = open_checkpoint(temp / "c");
  EXPECT_EQ(c.bad_words, (std::vector<std::vector<std::int32_t>>{{60}, {3, 4}}));
  EXPECT_TRUE(c.renormalize);
  for (const char* bad :
       {R"({"bad_words_ids": [60]})", R"({"bad_words_ids": [[]]})", R"({"bad_words_ids": [[61]]})",
        R"({"bad_words_ids": {}})", R"({"renormalize_logits": 1})"}) {
    put_file(temp / "c/generation_config.json", bad);
    EXPECT_THROW(open_checkpoint(temp / "c"), Error) << bad;
  }

  write_folder(read_toy("minilm"), temp / "d");
  EXPECT_FALSE(open_checkpoint(temp / "d").pool);
  std::filesystem::create_directories(temp / "d/1_Pooling");
  put_file(
      temp / "d/modules.json",
      R"([{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},)"
      R"({"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])");
  put_file(
      temp / "d/1_Pooling/config.json",
      R"({"word_embedding_dimension": 36, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  put_file(temp / "d/sentence_bert_config.json", R"({"max_seq_length": 17})");
  c = open_checkpoint(temp / "d");
  EXPECT_EQ(c.pool, Pool::first);
  EXPECT_TRUE(c.normalize);
  EXPECT_EQ(c.max_tokens, 17);
  // GGUF has no key for it: one of our own carries it there and back
  write_checkpoint(temp / "d", temp / "d.gguf", {});
  write_checkpoint(temp / "d.gguf", temp / "e", {});
  for (const char* name : {"d.gguf", "e"}) {
    c = open_checkpoint(temp / name);
    EXPECT_EQ(c.pool, Pool::first) << name;
    EXPECT_TRUE(c.normalize) << name;
    EXPECT_EQ(c.max_tokens, 17) << name;
  }
  // LaBSE: a matrix and tanh behind the pooling
  const auto modules = [&](const char* act, const char* in) {
    put_file(
        temp / "d/modules.json",
        R"([{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},)"
        R"({"idx":2,"name":"2","path":"2_Dense","type":"sentence_transformers.models.Dense"},{"idx":3,"name":"3","path":"3_Normalize","type":"sentence_transformers.models.Normalize"}])");
    put_file(temp / "d/2_Dense/config.json",
             concat(R"({"in_features": )", in,
                    R"(, "out_features": 5, "bias": true, "activation_function": ")", act, R"("})"));
  };
  std::filesystem::create_directories(temp / "d/2_Dense");
  std::vector<float> matrix(std::size_t{5} * 36), shift(5, 0.25f);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i % 7) * 0.1f - 0.3f;
  const SafetensorPlan dense[] = {
      {"linear.weight",
       DType::f32,
       {5, 36},
       [&](FileWriter& o) { o.write(std::as_bytes(std::span(matrix))); }},
      {"linear.bias", DType::f32, {5}, [&](FileWriter& o) { o.write(std::as_bytes(std::span(shift))); }}};
  write_safetensors(temp / "d/2_Dense/model.safetensors", dense, {}, true);
  modules("torch.nn.modules.activation.Tanh", "36");
  c = open_checkpoint(temp / "d");
  ASSERT_EQ(c.dense.size(), 1u);
  EXPECT_TRUE(c.dense[0].tanh && c.normalize);
  EXPECT_EQ(c.dense[0].weight, matrix);
  EXPECT_EQ(c.dense[0].bias, shift);
  expect_words(error_of([&] { write_checkpoint(temp / "d", temp / "dense.gguf", {}); }), {"Dense", "folder"});
  modules("torch.nn.modules.activation.GELU", "36");
  expect_words(error_of([&] { open_checkpoint(temp / "d"); }), {"2_Dense", "GELU", "Tanh"});
  modules("torch.nn.modules.linear.Identity", "35");
  expect_words(error_of([&] { open_checkpoint(temp / "d"); }), {"in_features is 35", "36"});
  modules("torch.nn.modules.linear.Identity", "36");
  put_file(temp / "d/1_Pooling/config.json",
           R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})");
  expect_words(error_of([&] { open_checkpoint(temp / "d"); }), {"1_Pooling", "2 ways"});
}

TEST(Family, ProgressCountsTheBytesOfTheFile) {
  std::vector<std::uint64_t> seen;
  std::uint64_t total = 0;
  const Toy toy = read_toy("phi3");
  const Checkpoint c = open_toy(
      toy, {.progress = [&](std::uint64_t done, std::uint64_t of) { seen.push_back(done), total = of; }});
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), total);
  EXPECT_EQ(total, c.file_bytes);
}

// ------------------------------------------------------------------------------------------------ GGUF
double checksum(const std::vector<float>& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    sum += values[i] * (static_cast<double>((i + 1) * 2654435761u % (std::uint64_t{1} << 32)) / 4294967296.0);
  return sum;
}

// GGUF keeps BERT and its kin as encoders only.
bool keeps_no_head(const std::string& toy) {
  return toy == "bert" || toy == "distilbert" || toy.ends_with("-classifier");
}

// What the converter writes of these, no program computes.
bool no_program(const std::string& toy) { return toy == "gpt-bigcode-mha" || toy == "deepseek-v3-halves"; }

// What we write equals what llama.cpp's converter writes: names, shapes, order of rows, keys; and reads back
// as the same model.
TEST(Family, GgufFilesEqualTheConverters) {
  int compared = 0;
  for (const std::string& name : toy_names()) {
    const Toy toy = read_toy(name);
    const Json* want = toy.json.find("gguf_tensors");
    if (!want) continue;
    const TempFolder temp;
    write_folder(toy, temp / "toy");
    if (keeps_no_head(name)) {
      expect_words(error_of([&] { write_checkpoint(temp / "toy", temp / "toy.gguf", {}); }),
                   {"head.", "encoder only"});
      continue;
    }
    if (no_program(name)) {
      // Nobody else's form: our names, the recipe inside.
      write_checkpoint(temp / "toy", temp / "toy.gguf", {});
      const Checkpoint own = open_checkpoint(temp / "toy.gguf");
      EXPECT_EQ(own.family, "rapt");
      EXPECT_LE(toy_distance(toy, own, device()), kTolerance) << name;
      continue;
    }
    if (name == "llama-dynamic") {
      expect_words(error_of([&] { write_checkpoint(temp / "toy", temp / "toy.gguf", {}); }), {"dynamic"});
      continue;
    }
    ++compared;
    write_checkpoint(temp / "toy", temp / "toy.gguf", {});
    const GgufFile file = GgufFile::open(temp / "toy.gguf");
    EXPECT_EQ(file.tensors.all().size(), want->array().size()) << name;
    for (const Json& t : want->array()) {
      const TensorView* have = file.tensors.find(t.array()[0].string());
      ASSERT_TRUE(have) << name << ": " << t.array()[0].string();
      std::vector<Dim> shape;
      for (const Json& d : t.array()[1].array()) shape.push_back(d.integer());
      EXPECT_TRUE(std::equal(shape.begin(), shape.end(), have->shape().begin(), have->shape().end()))
          << name << ": " << have->name() << have->shape_text();
      const double sum = t.array()[2].number();
      EXPECT_NEAR(checksum(have->values()), sum, 2e-5 * (1 + std::abs(sum))) << name << ": " << have->name();
    }
    const Checkpoint c = open_checkpoint(temp / "toy.gguf");
    EXPECT_EQ(c.format, "gguf");
    EXPECT_LE(toy_distance(toy, c, device()), kTolerance) << name;
    // And back into a folder, and into a GGUF again.
    write_checkpoint(temp / "toy.gguf", temp / "back", {});
    EXPECT_LE(toy_distance(toy, open_checkpoint(temp / "back"), device()), kTolerance) << name;
    write_checkpoint(temp / "toy.gguf", temp / "again.gguf", {});
    EXPECT_LE(toy_distance(toy, open_checkpoint(temp / "again.gguf"), device()), kTolerance) << name;
  }
  EXPECT_GE(compared, 15);
}

// Where the converter does not say what the toy is.
bool not_compared(const std::string& toy, const Json::Member& key) {
  const auto is = [&](std::string_view end) { return key.key.ends_with(end); };
  if (toy == "nomic-bert-remote") return true;  // it knows released sizes only
  // 4 * width, whatever the config says; the tensors say otherwise.
  if (is(".feed_forward_length"))
    return toy == "gpt2" || toy == "phi" || toy == "gpt-bigcode" || toy.starts_with("falcon");
  if (is(".context_length"))  // fixed, or another size in its place
    return toy.starts_with("falcon") || toy.starts_with("bloom") || toy == "hunyuan" || toy == "glm";
  // No scaling is said by saying nothing.
  if (is(".rope.scaling.type")) return key.value == Json("none");
  if (is(".rope.scaling.factor")) return key.value == Json(1.0) || key.value == Json(1);
  if (is(".rope.scaling.original_context_length")) return toy == "phi3" || toy == "hunyuan";
  // It counts channels of width / heads, this toy's heads are wider.
  if (is(".rope.dimension_count")) return toy == "nemotron" || toy == "glm";
  if (is(".layer_norm_rms_epsilon")) return toy == "glm";  // 1e-5, whatever the config says
  // The whole factor in the place of one that YaRN's own is multiplied by.
  if (is(".rope.scaling.yarn_attn_factor")) return toy == "olmo3";
  if (is(".leading_dense_block_count"))
    return toy == "glm4-moe-lite";  // a list says it, which it does not read
  // A layer that predicts one more token is counted there, and not kept here.
  if (is(".block_count") || is(".nextn_predict_layers")) return toy == "glm4-moe";
  return is(".tensor_data_layout");  // of an earlier converter
}

TEST(Family, GgufKeysEqualTheConverters) {
  for (const std::string& name : toy_names()) {
    const Toy toy = read_toy(name);
    const Json* gguf = toy.json.find("gguf");
    if (!gguf || keeps_no_head(name) || name == "llama-dynamic" || no_program(name)) continue;
    const TempFolder temp;
    write_folder(toy, temp / "toy");
    write_checkpoint(temp / "toy", temp / "toy.gguf", {});
    const GgufFile file = GgufFile::open(temp / "toy.gguf");
    for (const Json::Member& m : gguf->find("keys")->object()) {
      const GgufValue* have = file.find(m.key);
      if (not_compared(name, m)) continue;
      ASSERT_TRUE(have) << name << ": " << m.key << " " << m.value.dump(0);
      if (m.value.is_array()) {
        const auto& list = std::get<GgufValue::Integers>(have->value);
        ASSERT_EQ(list.size(), m.value.array().size()) << name << ": " << m.key;
        for (std::size_t i = 0; i < list.size(); ++i) {
          const Json& e = m.value.array()[i];
          EXPECT_EQ(list[i], e.is_bool() ? static_cast<std::int64_t>(e.boolean()) : e.integer())
              << name << ": " << m.key;
        }
      } else if (m.value.is_string())
        EXPECT_EQ(std::get<std::string>(have->value), m.value.string()) << name << ": " << m.key;
      else if (m.value.is_bool())
        EXPECT_EQ(std::get<bool>(have->value), m.value.boolean()) << name << ": " << m.key;
      else if (std::holds_alternative<std::int64_t>(have->value))
        EXPECT_EQ(static_cast<double>(std::get<std::int64_t>(have->value)), m.value.number())
            << name << ": " << m.key;
      else
        EXPECT_FLOAT_EQ(static_cast<float>(std::get<double>(have->value)),
                        static_cast<float>(m.value.number()))
            << name << ": " << m.key;
    }
  }
}

TEST(Family, QuantizedCopiesHoldTheBlocksOfTheirRows) {
  Toy toy = read_toy("smollm2");  // width 32: rows of 32 are whole blocks, those of 52 are not
  const TempFolder temp;
  write_folder(toy, temp / "toy");
  std::vector<std::string> notes;
  write_checkpoint(temp / "toy", temp / "a.gguf",
                   {.type = DType::q4_1, .note = [&](const std::string& n) { notes.push_back(n); }});
  const GgufFile file = GgufFile::open(temp / "a.gguf");
  EXPECT_EQ(file.tensors.find("blk.0.attn_v.weight")->dtype(), DType::q4_1);
  EXPECT_EQ(file.tensors.find("blk.0.ffn_down.weight")->dtype(), DType::f16);
  EXPECT_EQ(file.tensors.find("token_embd.weight")->dtype(), DType::q8_0);  // it is also the output matrix
  EXPECT_EQ(file.tensors.find("output_norm.weight")->dtype(), DType::f32);
  ASSERT_EQ(notes.size(), 1u);
  expect_words(notes[0], {"rows of 52", "no whole blocks of q4_1", "stored as f16"});
  const ToyTensor& v = toy.tensor("model.layers.0.self_attn.v_proj.weight");
  std::vector<std::byte> blocks(bytes_of(DType::q4_1, static_cast<Dim>(v.values.size()), "v"));
  quantize(DType::q4_1, v.values, blocks);
  EXPECT_TRUE(std::ranges::equal(file.tensors.find("blk.0.attn_v.weight")->bytes(), blocks));

  // Rows of q lie in another order in the file; each keeps its block.
  const Checkpoint exact = open_checkpoint(temp / "a.gguf", {.matrices = DType::f32});
  const ToyTensor& q = toy.tensor("model.layers.1.self_attn.q_proj.weight");
  std::vector<float> row(32);
  const Weight& w = exact.model->weight("decoder.1.self.q.weight");
  for (Dim r = 0; r < w.rows; ++r) {
    std::vector<std::byte> block(bytes_of(DType::q4_1, 32, "q"));
    quantize(DType::q4_1, std::span(q.values).subspan(static_cast<std::size_t>(r) * 32, 32), block);
    dequantize(DType::q4_1, block, row);
    for (Dim c = 0; c < 32; ++c)
      ASSERT_EQ(static_cast<float>(w.get(r, c)), row[static_cast<std::size_t>(c)]) << r << " " << c;
  }
  // A folder has no blocks.
  EXPECT_THROW(write_checkpoint(temp / "toy", temp / "x", {.type = DType::q8_0}), Error);
  EXPECT_THROW(write_checkpoint(temp / "toy", temp / "a.gguf", {}), Error);  // is there already
  // Shards and their index.
  write_checkpoint(temp / "toy", temp / "half", {.type = DType::bf16, .shard_bytes = 4096});
  EXPECT_EQ(open_checkpoint(temp / "half").model->weight("decoder.0.self.q.weight").format, DType::bf16);
}

}  // namespace
}  // namespace rapt::test
