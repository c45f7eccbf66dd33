// SPDX-License-Identifier: Apache-2.0
// The cache of whole models: formats, sequences that share their beginning, sequences that are cut, windows
// that move on. Everything is compared with a sequence read afresh, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rapt/nn/kv_pool.h"
#include "tests/build_kind.h"
#include "tests/model_tools.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

constexpr DType kFormats[] = {DType::f32, DType::bf16, DType::f16, DType::q8_0, DType::q4_0};

struct Shape {
  Dim window = 0, keep = 0, sinks = 0;
  bool key_bias = false, translates = false, latent = false;
};
Recipe recipe_of(const Shape& s) {
  AttnRecipe attn{.heads = 6, .kv_heads = 2, .head_dim = 32, .window = s.window, .keep = s.keep};
  attn.pos.kind = PosRecipe::Kind::rope;
  attn.bias.k = s.key_bias;
  if (s.latent) attn.kv_heads = 0, attn.head_dim = 44, attn.latent = LatentRecipe{.rank = 64, .rope_dim = 32};
  Recipe r;
  r.width = 48;
  r.vocab = 31;
  r.context = 4096;
  r.embed.sink_tokens = s.sinks;
  LayerRecipe layer;
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = attn});
  const PartRecipe ffn{.norm_in = NormRecipe{}, .body = FfnRecipe{.width = 40}};
  if (s.translates) {
    LayerRecipe encoder = layer;
    encoder.parts[0].self()->mask = AttnRecipe::MaskKind::full;
    encoder.parts.push_back(ffn);
    r.encoder = StackRecipe{.layers = 1, .kinds = {{"L", encoder}}, .final_norm = NormRecipe{}};
    AttnRecipe cross{.cross = true, .heads = 6, .kv_heads = 2, .head_dim = 32};
    layer.parts.push_back({.norm_in = NormRecipe{}, .body = cross});
  }
  layer.parts.push_back(ffn);
  r.decoder = StackRecipe{.layers = 2, .kinds = {{"L", layer}}, .final_norm = NormRecipe{}};
  return r;
}

struct World {
  Device device{{.threads = 2}};
  Model model;
  std::vector<std::int32_t> tokens, source;
  explicit World(const Shape& s, Dim length = 400) : model(recipe_of(s), device.real) {
    randomise(model, 3);
    const SomeText text = some_texts(model.recipe, {&length, 1}, 7)[0];
    tokens = text.tokens;
    if (s.translates) source = text.source;
  }
  // Tokens [past, end) of `from` in pieces of `chunk`; what the model says about the last of them.
  std::vector<double> read(KvPool& cache, std::uint64_t id, std::span<const std::int32_t> from, Dim end,
                           Dim chunk) {
    std::vector<double> last;
    for (Dim at = cache.length(id); at < end;) {
      rapt::Run run(device);
      const Dim n = std::min(chunk, end - at);
      Batch b{.tokens = from.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)),
              .sequences = {{.first = 0, .count = n, .past = at, .id = id}},
              .want = kWantLast};
      const Batch memory{.tokens = source,
                         .sequences = {{.first = 0, .count = static_cast<Dim>(source.size()), .id = id}}};
      last = all_values(
          forward(run, model, b, at == 0 && !source.empty() && !cache.has(id) ? &memory : nullptr, &cache));
      at += n;
    }
    return last;
  }
};

void fill_with(Weight& w, double value) {
  for (Dim r = 0; r < w.rows; ++r)
    for (Dim c = 0; c < w.cols; ++c) w.set(r, c, value);
}

TEST(KvPool, ChunkedEqualsTokenByTokenInEveryFormat) {
  for (const Shape& shape :
       {Shape{}, Shape{.window = 40, .keep = 3}, Shape{.sinks = 2}, Shape{.key_bias = true},
        Shape{.window = 40, .keep = 3, .key_bias = true}, Shape{.translates = true}, Shape{.latent = true},
        Shape{.window = 40, .keep = 3, .latent = true}}) {
    World w(shape, 150);
    std::vector<std::vector<double>> results;
    for (DType format : kFormats) {
      SCOPED_TRACE(name_of(format));
      KvPool cache(w.model, format);
      const std::vector<double> whole = w.read(cache, 1, w.tokens, 150, 150);
      EXPECT_EQ(whole, w.read(cache, 2, w.tokens, 150, 1));
      EXPECT_EQ(whole, w.read(cache, 3, w.tokens, 150, 37));
      results.push_back(whole);
      EXPECT_TRUE(format == DType::f32 || whole != results[0]) << "the format does nothing";
      double error = 0, power = 0;
      for (std::size_t i = 0; i < whole.size(); ++i)
        error += std::pow(whole[i] - results[0][i], 2), power += std::pow(results[0][i], 2);
      EXPECT_LT(error / power, format == DType::q4_0 ? 0.1 : 2e-3);
      for (std::uint64_t id : {1, 2, 3}) cache.drop(id);
      EXPECT_EQ(cache.pages(), 0u);
      EXPECT_EQ(cache.bytes(), 0u);
    }
  }
}

TEST(KvPool, SharedAndCutSequencesEqualFreshOnes) {
  for (const Shape& shape : {Shape{}, Shape{.sinks = 3}, Shape{.key_bias = true}, Shape{.translates = true},
                             Shape{.latent = true}})
    for (DType format : {DType::f32, DType::q8_0})
      for (Dim length : {1, 61, 64, 130}) {
        // On the border of a page and beside it.
        if (kSanitized && length != 64 && length != 130) continue;
        SCOPED_TRACE(concat(name_of(format), ", ", length, " tokens, ", shape.sinks, " sinks",
                            shape.translates ? ", translating" : ""));
        World w(shape, 260);
        std::vector<std::int32_t> other = w.tokens;  // goes on differently after `length`
        for (std::size_t i = static_cast<std::size_t>(length); i < other.size(); ++i)
          other[i] = (other[i] + 1 + static_cast<std::int32_t>(i)) % 31;
        KvPool cache(w.model, format), fresh(w.model, format);
        const std::vector<double> first = w.read(fresh, 1, w.tokens, 230, 50),
                                  second = w.read(fresh, 2, other, 215, 50);
        w.read(cache, 1, w.tokens, 200, 64);
        const std::size_t before = cache.pages();
        cache.share(1, 2, length);
        EXPECT_EQ(cache.pages(), before);
        EXPECT_EQ(cache.length(2), length);
        EXPECT_EQ(second, w.read(cache, 2, other, 215, 20));
        EXPECT_EQ(first, w.read(cache, 1, w.tokens, 230, 7));  // the one shared from goes on undisturbed
        cache.share(2, 3, length);
        cache.drop(2);
        EXPECT_EQ(first, w.read(cache, 3, w.tokens, 230, 33));
        // cut and continued otherwise, while sequence 3 still holds the same pages
        cache.truncate(1, length);
        EXPECT_EQ(cache.length(1), length);
        EXPECT_EQ(second, w.read(cache, 1, other, 215, 1));
        cache.truncate(3, length);
        EXPECT_EQ(first, w.read(cache, 3, w.tokens, 230, 100));
        cache.truncate(1, 0);
        EXPECT_EQ(first, w.read(cache, 1, w.tokens, 230, 90));
        cache.drop(1);
        cache.drop(3);
        EXPECT_EQ(cache.pages(), 0u);
        EXPECT_EQ(cache.bytes(), 0u);
      }
}

// 96 numbers for each token and layer, whatever the number of heads.
TEST(KvPool, ALatentIsAllThatIsKept) {
  const World w({.latent = true});
  const KvPool cache(w.model);
  EXPECT_EQ(cache.page_bytes(), 2u * (64 * 96 * 4 + 256));
}

TEST(KvPool, PagesAreSharedNotCopied) {
  World w({}, 300);
  KvPool cache(w.model);
  w.read(cache, 1, w.tokens, 256, 256);
  const std::size_t pages = cache.pages(), bytes = cache.bytes();
  EXPECT_EQ(pages, 4u);  // each of two layers
  for (std::uint64_t id = 2; id < 10; ++id) cache.share(1, id, 256);
  EXPECT_EQ(cache.pages(), pages);
  EXPECT_EQ(cache.bytes(), bytes);
  for (std::uint64_t id = 1; id < 10; ++id) w.read(cache, id, w.tokens, 260, 4);
  EXPECT_EQ(cache.pages(), pages + 9);
  cache.drop(1);
  EXPECT_EQ(cache.pages(), pages + 8);
  for (std::uint64_t id = 2; id < 10; ++id) cache.drop(id);
  EXPECT_EQ(cache.pages(), 0u);
}

TEST(KvPool, WindowsMoveOnAtConstantSize) {
  for (DType format : {DType::f32, DType::q8_0}) {
    World w({.window = 100, .keep = 4, .key_bias = true}, 1500);
    KvPool cache(w.model, format);
    const std::vector<double> whole = w.read(cache, 9, w.tokens, 1500, 1500);
    cache.drop(9);
    w.read(cache, 1, w.tokens, 300, 10);
    std::size_t least = ~std::size_t{0}, most = 0, most_bytes = 0;
    std::vector<double> last;
    for (Dim at = 300; at < 1500; at += 5) {
      last = w.read(cache, 1, w.tokens, at + 5, 5);
      least = std::min(least, cache.pages());
      most = std::max(most, cache.pages());
      most_bytes = std::max(most_bytes, cache.bytes());
    }
    EXPECT_EQ(last, whole);
    // Layers, and the angles of keys without their bias.
    const std::size_t kinds = format == DType::q8_0 ? 2 : 1;
    EXPECT_LE(most, kinds * 4);  // the kept page and those that 100 keys touch
    EXPECT_GE(least, kinds * 3);
    EXPECT_EQ(cache.length(1), 1500);

    // A shared window: what one lets go, the other may still see.
    const std::size_t before = cache.pages();
    cache.share(1, 2, 1500);
    EXPECT_EQ(cache.pages(), before);
    w.read(cache, 9, w.tokens, 1450, 1450);
    cache.share(9, 3, 1450);
    const std::vector<double> now = w.read(cache, 9, w.tokens, 1500, 50);
    EXPECT_EQ(now, w.read(cache, 3, w.tokens, 1500, 50));
    EXPECT_EQ(now, last);
    cache.drop(9);
    cache.drop(3);
    EXPECT_EQ(cache.pages(), before);

    // Back, as far as the pages go.
    EXPECT_NE(error_of([&] { cache.truncate(1, 700); }).find("has let go of keys"), std::string::npos);
    EXPECT_NE(error_of([&] { cache.share(1, 5, 700); }).find("drop the sequence and read it again"),
              std::string::npos);
    EXPECT_EQ(cache.length(1), 1500);
    cache.truncate(1, 1490);
    EXPECT_EQ(last, w.read(cache, 1, w.tokens, 1500, 3));
    cache.truncate(1, 0);
    EXPECT_EQ(last, w.read(cache, 1, w.tokens, 1500, 500));
  }
}

// Freed pages keep what was in them until somebody else writes there, and may be anybody's: nothing of it is
// read. Here it is NaN, which would show in whatever touches it.
TEST(KvPool, WhatIsLeftInFreedPagesIsNeverRead) {
  for (const Shape& shape :
       {Shape{}, Shape{.window = 40, .keep = 3}, Shape{.sinks = 2}, Shape{.window = 40, .key_bias = true},
        Shape{.translates = true}, Shape{.latent = true}, Shape{.window = 40, .keep = 3, .latent = true}})
    for (DType format : {DType::f32, DType::f16, DType::q4_0}) {
      SCOPED_TRACE(name_of(format));
      World w(shape, 300);
      KvPool fresh(w.model, format), used(w.model, format);
      const std::vector<double> wanted = w.read(fresh, 1, w.tokens, 150, 37);
      for (Weight& x : w.model.weights) fill_with(x, std::nan(""));
      for (const double x : w.read(used, 1, w.tokens, 300, 300)) ASSERT_TRUE(std::isnan(x));
      used.drop(1);
      randomise(w.model, 3);
      for (const Dim chunk : {5, 150}) {
        EXPECT_EQ(wanted, w.read(used, 2, w.tokens, 150, chunk));
        used.drop(2);
      }
    }
}

TEST(KvPool, SaysWhatIsWrong) {
  World w({}, 20);
  KvPool cache(w.model);
  w.read(cache, 1, w.tokens, 10, 10);
  EXPECT_NE(error_of([&] { cache.truncate(1, 11); }).find("has 10 tokens"), std::string::npos);
  EXPECT_NE(error_of([&] { cache.truncate(1, -1); }).find("cannot end after -1"), std::string::npos);
  EXPECT_NE(error_of([&] { cache.truncate(2, 1); }).find("no sequence 2"), std::string::npos);
  EXPECT_NO_THROW(cache.truncate(2, 0));
  EXPECT_NE(error_of([&] { cache.share(2, 3, 0); }).find("no sequence 2"), std::string::npos);
  EXPECT_NE(error_of([&] { cache.share(1, 1, 5); }).find("with itself"), std::string::npos);
  EXPECT_NE(error_of([&] { cache.share(1, 3, 11); }).find("has 10 tokens"), std::string::npos);
  Recipe odd = recipe_of({});
  odd.decoder->kinds.begin()->second.parts[0].self()->head_dim = 20;
  Model model(odd, w.device.real);
  randomise(model, 1);
  EXPECT_NE(error_of([&] { KvPool(model, DType::q8_0); }).find("f32, bf16 and f16 fit"), std::string::npos);
  rapt::Run run(w.device);
  EXPECT_NE(error_of([&] {
              forward(run, model,
                      {.tokens = std::span(w.tokens).first(3), .sequences = {{.first = 0, .count = 3}}},
                      nullptr, &cache);
            }).find("of another model"),
            std::string::npos);
}

// A device of doubles keeps doubles.
TEST(KvPool, DoublesStayDoubles) {
  Device device({.threads = 1, .isa = "f64"});
  Model model(recipe_of({.key_bias = true}), device.real);
  randomise(model, 3);
  const Dim length = 80;
  const SomeText text = some_texts(model.recipe, {&length, 1}, 3)[0];
  KvPool cache(model, DType::q4_0);
  EXPECT_EQ(cache.format(), DType::f64);
  EXPECT_EQ(logits_of(device, model, {&text, 1}), logits_cached(device, model, text, 1, cache));
}

// Qwen2's case in a model: large biases on keys under RoPE.
TEST(KvPool, KeyBiasesStayOutOfAQuantizedCache) {
  World w({.key_bias = true}, 200);
  for (Weight& x : w.model.weights)
    if (x.name.ends_with("k.bias"))
      for (Dim c = 0; c < x.cols; ++c) x.set(0, c, x.get(0, c) * 40);
  KvPool exact(w.model);
  const std::vector<double> right = w.read(exact, 1, w.tokens, 200, 200);
  for (DType format : {DType::q8_0, DType::q4_0}) {
    double error[2] = {};
    for (bool apart : {false, true}) {
      KvPool cache(w.model, format, KvPool::kNoLimit,
                   apart ? KvPool::KeyBias::apart : KvPool::KeyBias::stored);
      const std::vector<double> got = w.read(cache, 1, w.tokens, 200, 64);
      double power = 0;
      for (std::size_t i = 0; i < got.size(); ++i)
        error[apart] += std::pow(got[i] - right[i], 2), power += std::pow(right[i], 2);
      error[apart] /= power;
    }
    std::printf("logits with large key biases, %s: error %.2e with the bias in the cache, %.2e beside it\n",
                name_of(format), error[0], error[1]);
    EXPECT_LT(error[1], error[0] / 5) << name_of(format);
  }
}

}  // namespace
}  // namespace rapt::test
