// SPDX-License-Identifier: Apache-2.0
#include "rapt/inspect/show.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "rapt/base/text_width.h"
#include "rapt/nn/model.h"
#include "rapt/nn/size.h"
#include "rapt/recipe/recipe_diff.h"
#include "tests/tools.h"

namespace rapt {
namespace {

using test::holds;

// Counted by transformers 5.22 from the released configurations. Marian: with the bias on the logits and
// without the table of sinusoids, which transformers stores as a buffer and as a parameter. PaLM and
// ViT-22B: their papers say 8.63 and 21.7 billion.
TEST(Show, AModelLargerThanAnyIsRefused) {
  for (const auto& [vocab, width, layers] :
       {std::tuple<Dim, Dim, Dim>{2000000000, 40000, 2}, {100, 100000, 10000}}) {
    Recipe r = preset("gpt2");
    r.vocab = vocab, r.width = width, r.decoder->layers = layers;
    for (PartRecipe& p : r.decoder->kinds.at("L").parts)
      if (AttnRecipe* a = p.self()) a->heads = 10, a->head_dim = width / 10;
    const std::string error = test::error_of([&] { count_parameters(resolve(r)); });
    EXPECT_TRUE(holds(error, "surely a mistake: check width, vocab, layers and heads")) << error;
    EXPECT_EQ(test::error_of([&] { Model model(r); }), error);  // before anything is allocated for it
  }
}

TEST(Show, ParametersOfReleasedModels) {
  const std::map<std::string, Dim> known = {
      {"gpt2", 124439808},     {"bert", 109514298},
      {"llama1", 6738415616},  {"llama2", 6738415616},
      {"llama3", 8030261248},  {"llama3.1", 8030261248},
      {"mistral", 7241732096}, {"qwen2", 494032768},
      {"qwen3", 596049920},    {"gemma2", 2614341888},
      {"gemma3", 999885952},   {"olmo2", 7298617344},
      {"lfm2", 1170340608},    {"qwen3-next", 79674391296},
      {"t5", 60506624},        {"marian", 74410496 - 524288 + 58101},
  };
  for (const auto& [name, n] : known) {
    const ParameterCount count = count_parameters(resolve(preset(name)));
    EXPECT_EQ(count.total, n) << name;
    Dim sum = 0;
    for (const auto& [group, size] : count.groups) sum += size;
    EXPECT_EQ(sum, n) << name;
  }
  auto biases = [](const char* name) { return count_parameters(resolve(preset(name))).biases; };
  EXPECT_EQ(biases("llama3"), 0);
  EXPECT_EQ(biases("qwen2"), 24 * (14 + 2 + 2) * 64);
  EXPECT_EQ(biases("gpt2"), 12 * (4 * 768 + 3072 + 768 + 2 * 768) + 768);  // matrices and norms
  EXPECT_NEAR(static_cast<double>(count_parameters(resolve(preset("palm"))).total), 8.63e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(count_parameters(resolve(preset("vit-22b"))).total), 21.7e9, 0.1e9);
}

// Table 1 of its paper, whose numbers are met only with a matrix for distances in every layer and one table
// for input and output.
TEST(Show, GopherInItsSixSizes) {
  struct Size {
    Dim layers, heads, width;
    double parameters, within;
  };
  for (const Size& s : {Size{8, 16, 512, 44e6, 0.5e6},
                        {12, 12, 768, 117e6, 0.5e6},
                        {12, 12, 1536, 417e6, 0.5e6},
                        {24, 16, 2048, 1.4e9, 0.05e9},
                        {32, 32, 4096, 7.1e9, 0.05e9},
                        {80, 128, 16384, 280e9, 0.5e9}}) {
    Recipe r = preset("gopher");
    r.width = s.width, r.decoder->layers = s.layers;
    r.decoder->kinds["L"].parts[0].self()->heads = s.heads;
    EXPECT_NEAR(static_cast<double>(count_parameters(resolve(r)).total), s.parameters, s.within) << s.width;
  }
  const std::string drawn = draw_recipe(resolve(preset("gopher")));
  EXPECT_TRUE(holds(drawn, "softmax(((q + u)·k + (q + v)·W r) / √128)")) << drawn;
}

// What a gate adds, from the shapes of its paper: n tokens x (heads x d), heads, or d.
TEST(Show, ParametersOfGates) {
  const Dim base = count_parameters(resolve(preset("qwen3"))).total, C = 1024, H = 16, K = 8, D = 128, L = 28;
  const std::map<std::string, Dim> added = {
      {"g1", C * H * D},    {"g1-head", C * H},         {"g1-shared", C * D}, {"g1-const", H * D},
      {"g1-ns", C * H * D}, {"g1-add-silu", C * H * D}, {"g2", C * K * D},    {"g2-head", C * K},
      {"g3", C * K * D},    {"g4", C * H * D},          {"g5", C * C}};
  for (const auto& [name, n] : added)
    EXPECT_EQ(count_parameters(resolve(preset("qwen3-gate-" + name))).total - base, L * n) << name;
}

void shrink(std::optional<StackRecipe>& stack) {
  if (!stack) return;
  if (stack->recurrent) {
    RecurrentRecipe& r = *stack->recurrent;
    r.layers += r.start == RecurrentRecipe::Start::last ? 1 : 0;
    if (r.width > 0) r.width = 5;
    return;
  }
  if (static_cast<Dim>(stack->pattern.size()) == stack->layers && stack->layers > 4)
    stack->pattern.resize(3);  // DLLL…
  stack->layers = static_cast<Dim>(stack->pattern.size()) + 1;
  for (auto& [name, layer] : stack->kinds)
    for (PartRecipe& p : layer.parts) {
      if (FfnRecipe* f = p.ffn()) f->width = 22;
      if (MoeRecipe* m = p.moe()) m->width = 7, m->experts = 5, m->used = 2;
      if (DeltaRecipe* d = p.delta()) d->key_heads = 2, d->value_heads = 4, d->key_dim = 3, d->value_dim = 5;
      AttnRecipe* a = p.attention();
      if (!a) continue;
      const Dim group = a->kv_heads ? std::min<Dim>(4, a->heads / a->kv_heads) : 1;
      a->heads = 4;
      a->kv_heads = 4 / group;
      a->head_dim = 10;
      a->v_dim = 6;
      if (a->latent) a->latent->rank = 8, a->latent->rope_dim = 4;
    }
}

// The same numbers from the weights a model really has, for a small model of every preset and for options no
// preset has.
TEST(Show, TheModelHasAsManyParameters) {
  std::vector<Recipe> recipes;
  for (const std::string& name : preset_names()) {
    Recipe r = preset(name);
    r.width = 12;
    if (!r.embed.patches) r.vocab = 17;
    r.head.attend.heads = 4;
    r.context = 9;
    shrink(r.encoder);
    shrink(r.decoder);
    recipes.push_back(r);
  }
  const std::size_t plain = recipes.size();
  for (std::size_t i = 0; i < plain; i += 5) {  // options on top
    Recipe r = recipes[i];
    if ((r.decoder && r.decoder->recurrent) || r.embed.patches) continue;
    r.embed.sink_tokens = 2;
    for (auto* stack : {&r.encoder, &r.decoder})
      if (*stack)
        for (auto& [name, layer] : (*stack)->kinds)
          for (PartRecipe& p : layer.parts) {
            p.norm_out = NormRecipe{.kind = NormRecipe::Kind::layer, .bias = true};
            AttnRecipe* a = p.attention();
            if (!a) continue;
            a->v_norm = NormRecipe{};
            a->z_norm = NormRecipe{.weight = NormRecipe::Gain::none};
            a->scale = {.kind = ScaleRecipe::Kind::learned, .per = ScaleRecipe::Per::head};
            a->extra = {.kind = ExtraRecipe::Kind::kv_slots, .slots = 3};
            a->bias = {false, true, false, true};
          }
    recipes.push_back(r);
    r.decoder.swap(r.encoder);
    if (r.encoder && !r.decoder) {
      for (auto& [name, layer] : r.encoder->kinds)
        for (PartRecipe& p : layer.parts) {
          p.norm_out = NormRecipe{.kind = NormRecipe::Kind::batch, .leaks_ok = true};
          AttnRecipe* a = p.attention();
          if (!a) continue;
          a->pos = {.kind = PosRecipe::Kind::bucket, .bucket = {.count = 8, .max = 20, .shared = false}};
          a->score = AttnRecipe::ScoreKind::general;
          a->extra = {.kind = ExtraRecipe::Kind::learned_logit};
        }
      recipes.push_back(r);
      for (auto& [name, layer] : r.encoder->kinds)
        for (PartRecipe& p : layer.parts)
          if (AttnRecipe* a = p.attention()) a->score = AttnRecipe::ScoreKind::additive, a->scale = {};
      recipes.push_back(r);
      for (auto& [name, layer] : r.encoder->kinds)
        for (PartRecipe& p : layer.parts)
          if (AttnRecipe* a = p.attention()) {
            a->score = AttnRecipe::ScoreKind::dot;
            a->qk_norm.reset();
            a->gate.clear();
            a->mask = AttnRecipe::MaskKind::full;
            a->window = 0;
            a->cap = 0;
            a->pos = {.kind = PosRecipe::Kind::relative, .relative = {.buckets = 8, .norm = NormRecipe{}}};
          }
      recipes.push_back(r);
    }
  }
  for (const Recipe& r : recipes)
    EXPECT_EQ(count_parameters(resolve(r)).total, Model(r).parameters()) << recipe_json(r);
}

TEST(Show, Costs) {
  // Llama 3 8B: 32 layers, 8 key heads of 128, keys and values.
  const Recipe llama = resolve(preset("llama3"));
  const Cost c = count_cost(llama, 8192);
  EXPECT_EQ(c.kv_values, 32 * 2 * 8 * 128);
  EXPECT_EQ(c.kv_forgotten, 0);
  EXPECT_EQ(c.memory_values, 0);
  // All but norms and embedding.
  EXPECT_EQ(c.token.matrices, 2.0 * (8030261248.0 - 266240 - 128256.0 * 4096));
  EXPECT_EQ(c.token.attention, 32.0 * 2 * 32 * 256 * 8192);
  EXPECT_EQ(count_cost(llama, 100).token.attention, 32.0 * 2 * 32 * 256 * 100);
  // A window bounds what a token sees, not what is written.
  const Cost m = count_cost(resolve(preset("mistral")), 32768);
  EXPECT_EQ(m.kv_forgotten, m.kv_values);
  EXPECT_EQ(m.token.attention, 32.0 * 2 * 32 * 256 * 4096);
  const Cost g = count_cost(resolve(preset("gemma3")), 32768);
  EXPECT_EQ(g.kv_values, 26 * 512);
  EXPECT_EQ(g.kv_forgotten, 22 * 512);
  // Encoder-decoder: keys and values of the memory are made once per source token.
  const Cost t = count_cost(resolve(preset("transformer-2017")), 512);
  const double attn = 4 * 512 * 512, ffn = 2 * 512 * 2048;
  EXPECT_EQ(t.source.matrices, 2 * 6 * (attn + ffn + attn / 2));
  EXPECT_EQ(t.token.matrices, 2 * (6 * (attn + attn / 2 + ffn) + 512.0 * 37000));
  EXPECT_EQ(t.memory_values, 6 * 2 * 512);
  // A recurrent decoder: what a step multiplies with, keys once per source token, one state per sequence.
  const Cost b = count_cost(resolve(preset("bahdanau")), 20);
  EXPECT_EQ(b.source.matrices, 2.0 * (2 * 1536 * (256 + 512) + 512 * 1024));
  EXPECT_EQ(b.token.matrices,
            2.0 * (1536 * (256 + 512 + 1024) + 512 * 512 + 512 * (1024 + 512 + 256) + 256 * 16000));
  EXPECT_EQ(b.memory_values, 1024 + 512);
  EXPECT_EQ(b.kv_values, 0);
  EXPECT_EQ(b.state_values, 512);
  // A gate on k costs a product, a constant one does not.
  const double plain = count_cost(resolve(preset("qwen3")), 1).token.matrices;
  EXPECT_EQ(count_cost(resolve(preset("qwen3-gate-g3")), 1).token.matrices - plain,
            2.0 * 28 * 1024 * 8 * 128);
  EXPECT_EQ(count_cost(resolve(preset("qwen3-gate-g1-const")), 1).token.matrices, plain);
}

TEST(Show, DrawingSaysWhatIsThere) {
  for (const std::string& name : preset_names()) {
    const std::string text = draw_recipe(resolve(preset(name)));
    EXPECT_EQ(text.find('\033'), std::string::npos);
    EXPECT_TRUE(text.starts_with(name)) << text;
    EXPECT_TRUE(holds(text, "parameters")) << text;
  }
  const std::string llama = draw_recipe(resolve(preset("llama3-gate-g1")));
  for (const char* piece : {"q          4,096 → 32×128", "k, v       4,096 → 8×128 each   (GQA)", "θ 500,000",
                            "softmax(q·k / √128)", "z ⊙ sigmoid(W h)   4,096 → 32×128", "8,567,132,160",
                            "256 KiB f32, 128 KiB bf16", "causal"})
    EXPECT_TRUE(holds(llama, piece)) << piece << "\n" << llama;
  const std::string gemma = draw_recipe(resolve(preset("gemma2")));
  for (const char* piece : {"LG…, 13 L + 13 G", "cap 50 (q·k · 0.0625)", "the last 4,096 keys",
                            "G: like L, but", "self.window: 4096 → 0", "weight + 1", "capped at 30"})
    EXPECT_TRUE(holds(gemma, piece)) << piece << "\n" << gemma;
  EXPECT_TRUE(holds(draw_recipe(resolve(preset("palm"))), "all parts read h"));
  EXPECT_TRUE(holds(draw_recipe(resolve(preset("bert"))), "+ type"));
  EXPECT_TRUE(holds(draw_recipe(resolve(preset("t5"))), "32 distances up to 128, one table for all layers"));
  EXPECT_TRUE(holds(draw_recipe(resolve(preset("gpt2")), true), "\033[1m"));
  const std::string qwen = draw_recipe(resolve(preset("qwen3-moe")));
  for (const char* piece : {"router     2,048 → 128, softmax", "8 of 128 experts", "divided by their sum",
                            "active per token", "30,532,122,624", "3,353,032,704"})
    EXPECT_TRUE(holds(qwen, piece)) << piece << "\n" << qwen;
  const std::string latent = draw_recipe(resolve(preset("deepseek-v2-lite")));
  for (const char* piece : {"2,048 → 512 and 64 that turn, one key for all heads", "(MLA)",
                            "512 → 16×128, taken into q", "softmax(q·k / √192 · 1.5896)", "15,706,484,224",
                            "2,661,150,208", "60.8 KiB f32"})  // (512 + 64) * 27 layers * 4 bytes
    EXPECT_TRUE(holds(latent, piece)) << piece << "\n" << latent;
  const std::string next = draw_recipe(resolve(preset("qwen3-next")));
  for (const char* piece :
       {"gated delta rule", "q, k       2,048 → 16×128 each", "v, z       2,048 → 32×128 each",
        "32×[128,128]", "of f32 per sequence, whatever its length"})
    EXPECT_TRUE(holds(next, piece)) << piece << "\n" << next;
  const std::string lfm = draw_recipe(resolve(preset("lfm2")));
  for (const char* piece : {"short convolution", "sum of 3 rows of b ⊙ u", "decoder convolution"})
    EXPECT_TRUE(holds(lfm, piece)) << piece << "\n" << lfm;
  Recipe narrow = preset("bert");  // ALBERT
  narrow.embed.width = 128, narrow.encoder->groups = 1;
  const std::string albert = draw_recipe(resolve(narrow));
  for (const char* piece : {"× 128", "project    128 → 768 + bias", "all with the same weights",
                            "gelu(768 → 128 + bias)", "head       128 →"})
    EXPECT_TRUE(holds(albert, piece)) << piece << "\n" << albert;
  Recipe stacks = preset("marian");
  stacks.embed.source_vocab = 777, stacks.embed.pos = EmbedRecipe::Pos::learned;
  stacks.embed.own_source = true;
  const std::string bart = draw_recipe(resolve(stacks));
  for (const char* piece : {"embed      777 ×", "learned, the encoder's own", "learned, the decoder's own"})
    EXPECT_TRUE(holds(bart, piece)) << piece << "\n" << bart;
  Recipe mixed = preset("mixtral");  // layers of different parts are drawn, not compared
  LayerRecipe dense = mixed.decoder->kinds.at("L");
  dense.parts[1].body = FfnRecipe{.width = 64};
  mixed.decoder->kinds["D"] = dense, mixed.decoder->pattern = "DL";
  const std::string both = draw_recipe(resolve(mixed));
  EXPECT_TRUE(holds(both, "feed-forward") && holds(both, "2 of 8 experts")) << both;
  const std::string bahdanau = draw_recipe(resolve(preset("bahdanau")));
  for (const char* piece :
       {"1 layer of GRU cells, reading both ways", "256 + context → state 512", "of the backward cells",
        "Q: the decoder's state h before the step; K and V: the encoder's states s",
        "v·tanh(W h + U s), hidden 512", "maxout(W [h; x; c])", "per sequence"})
    EXPECT_TRUE(holds(bahdanau, piece)) << piece << "\n" << bahdanau;
  const std::string luong = draw_recipe(resolve(preset("luong-local-p")));
  for (const char* piece : {"within 10 of p", "state h after the step"})
    EXPECT_TRUE(holds(luong, piece)) << piece << "\n" << luong;
}

TEST(Show, DrawingFitsTheWidthAndLosesNothing) {
  auto words = [](const std::string& text) {  // of the drawing, without wires, in order
    std::string out;
    for (char c : text.substr(0, text.find("parameters")))
      if (c > ' ') out += c;
    return out;
  };
  for (const std::string& name : preset_names()) {
    const std::string wide = words(draw_recipe(resolve(preset(name)), false, 100));
    for (const Dim width : {80, 40}) {
      const std::string text = draw_recipe(resolve(preset(name)), false, width);
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        EXPECT_LE(text_width(text.substr(at, end - at)), width) << text.substr(at, end - at);
        at = end + 1;
      }
      EXPECT_EQ(words(text), wide) << text;
    }
  }
}

// For each attention: where its queries, keys and values come from.
TEST(Show, DrawingSaysWhereQueriesKeysAndValuesComeFrom) {
  EXPECT_TRUE(
      holds(draw_recipe(resolve(preset("llama3"))), "Q, K and V of the decoder's stream after norm_in\n"));
  EXPECT_TRUE(holds(draw_recipe(resolve(preset("palm"))), "Q, K and V of h\n"));
  const std::string both = draw_recipe(resolve(preset("transformer-2017")));
  for (const char* piece : {"Q, K and V of the encoder's stream\n", "Q, K and V of the decoder's stream\n",
                            "Q of the decoder's stream; K and V of the encoder's result\n"})
    EXPECT_TRUE(holds(both, piece)) << piece << "\n" << both;
}

TEST(Show, Differences) {
  const Recipe a = resolve(preset("llama3")), b = resolve(preset("llama3.1"));
  const std::vector<Difference> d = diff_recipes(a, b);
  ASSERT_EQ(d.size(), 2u);
  EXPECT_EQ(d[0].path, "context");
  EXPECT_EQ(d[0].a, "8192");
  EXPECT_EQ(d[0].b, "131072");
  EXPECT_EQ(d[1].path, "decoder.kinds.L.parts[0].self.pos.rope.scaling");
  EXPECT_EQ(d[1].a, "\"none\"");
  EXPECT_TRUE(holds(d[1].b, "\"factor\": 8"));
  EXPECT_TRUE(diff_recipes(a, a).empty());
  Recipe renamed = a;
  renamed.name = "other";
  EXPECT_TRUE(diff_recipes(a, renamed).empty());
  EXPECT_EQ(diff_recipes(a, resolve(preset("bert"))).size(), diff_recipes(resolve(preset("bert")), a).size());
}

}  // namespace
}  // namespace rapt
