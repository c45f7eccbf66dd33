// SPDX-License-Identifier: Apache-2.0
// The bits do not depend on company, on the quantized path: weights in blocks and caches in every format. A
// text's logits are equal by memcmp read in one pass or in chunks or token by token, alone or beside others,
// with any number of threads, after a beginning that was shared with another sequence. The same comparisons
// run over a deliberately broken product, and must catch it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rapt/base/rng.h"
#include "rapt/ops/linear.h"
#include "rapt/tensor/formats.h"
#include "rapt/tensor/pack.h"
#include "tests/bits_tools.h"
#include "tests/build_kind.h"
#include "tests/model_tools.h"

namespace rapt::test {
namespace {

// Rows of 256 and more: what the k formats need. One layer streams, one sees everything, one has experts, one
// a latent.
Recipe recipe(Dim experts_used = 2) {
  AttnRecipe all{.heads = 4, .kv_heads = 2, .head_dim = 64};
  all.pos.kind = PosRecipe::Kind::rope;
  all.bias = {true, true, true, false};
  AttnRecipe streams = all;
  streams.window = 20;
  streams.keep = 3;
  Recipe r = small_decoder("blocks", 256, all, {.width = 512}, {});
  LayerRecipe layer;
  layer.parts = {self(streams, {}), feed({.width = 256}, {})};
  LayerRecipe experts = layer;
  experts.parts[1].body =
      MoeRecipe{.experts = 5, .used = experts_used, .width = 256, .shared = SharedExpertRecipe{}};
  // Of a latent: a matrix for each head, of 256 columns as well.
  AttnRecipe made{.heads = 3, .head_dim = 288, .v_dim = 256};
  made.pos.kind = PosRecipe::Kind::rope;
  made.latent = LatentRecipe{.rank = 256, .rope_dim = 32};
  LayerRecipe latent = layer;
  latent.parts[0] = self(made, {});
  r.decoder->layers = 4;
  r.decoder->pattern = "LSEA";
  r.decoder->kinds.emplace("S", layer);
  r.decoder->kinds.emplace("E", experts);
  r.decoder->kinds.emplace("A", latent);
  return r;
}

// The matrices of `from` in a block format, everything else as it is.
std::unique_ptr<Model> in_blocks(const Model& from, DType format) {
  auto model = std::make_unique<Model>(
      from.recipe, from.real, [&](std::string name, Dim rows, Dim cols, WeightRole role) {
        const bool exact = role != WeightRole::matrix || stays_real(name);
        Weight w = make_weight(std::move(name), rows, cols, exact ? from.real : format,
                               role == WeightRole::matrix ? Packing::panels : Packing::rows);
        w.decay = role != WeightRole::vector;
        return w;
      });
  for (std::size_t i = 0; i < from.weights.size(); ++i) {
    const Weight& source = from.weights[i];
    Weight& w = model->weights[i];
    if (w.name != source.name) fail("weights come in another order: ", w.name, " and ", source.name);
    if (!is_block(w.format)) {
      for (Dim r = 0; r < w.rows; ++r)
        for (Dim c = 0; c < w.cols; ++c) w.set(r, c, source.get(r, c));
      continue;
    }
    std::vector<float> values(static_cast<std::size_t>(w.size()));
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim c = 0; c < w.cols; ++c)
        values[static_cast<std::size_t>(r * w.cols + c)] = static_cast<float>(source.get(r, c));
    std::vector<std::byte> blocks(bytes_of(format, w.size(), w.name));
    quantize(format, values, blocks);
    pack_rows(w, 0, w.rows, blocks);
  }
  return model;
}

// `text` and others continue their sequences in the same passes, each in pieces of its own size; the
// text's logits.
std::vector<double> logits_beside(Device& device, const Model& model, const SomeText& text,
                                  std::span<const SomeText> others, std::size_t place, Dim chunk,
                                  KvPool& cache) {
  std::vector<double> out;
  const Dim T = static_cast<Dim>(text.tokens.size());
  Run run(device);
  std::vector<Dim> done(others.size(), 0);
  for (Dim at = 0; at < T;) {
    run.reset();
    const Dim n = std::min(chunk, T - at);
    std::vector<std::int32_t> tokens;
    Batch b;
    Dim mine = 0;
    for (std::size_t i = 0; i <= others.size(); ++i) {
      const auto add = [&](const SomeText& t, Dim past, Dim count) {
        b.sequences.push_back({.first = static_cast<Dim>(tokens.size()),
                               .count = count,
                               .past = past,
                               .id = t.id,
                               .opened = static_cast<Dim>(t.tokens.size())});
        tokens.insert(tokens.end(), t.tokens.begin() + past, t.tokens.begin() + past + count);
      };
      if (i == place) {
        mine = static_cast<Dim>(tokens.size());
        add(text, at, n);
      }
      if (i == others.size()) break;
      const Dim left = static_cast<Dim>(others[i].tokens.size()) - done[i],
                count = std::min<Dim>(left, 1 + static_cast<Dim>(i) * 3);
      if (count == 0) continue;
      add(others[i], done[i], count);
      done[i] += count;
    }
    b.tokens = tokens;
    const std::vector<double> all = all_values(forward(run, model, b, nullptr, &cache));
    const auto V = static_cast<std::ptrdiff_t>(model.recipe.vocab);
    out.insert(out.end(), all.begin() + mine * V, all.begin() + (mine + n) * V);
    at += n;
  }
  cache.drop(text.id);
  for (const SomeText& t : others) cache.drop(t.id);
  return out;
}

// The text goes on after a beginning that another sequence computed.
std::vector<double> logits_shared(Device& device, const Model& model, const SomeText& text, Dim shared,
                                  KvPool& cache, const std::vector<double>& alone) {
  SomeText first = text;
  first.id = 31;
  Run run(device);
  const auto pass = [&](std::uint64_t id, Dim from, Dim to) {
    run.reset();
    Batch b{.tokens = std::span(text.tokens)
                          .subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from))};
    b.sequences.push_back({.first = 0,
                           .count = to - from,
                           .past = from,
                           .id = id,
                           .opened = static_cast<Dim>(text.tokens.size())});
    return all_values(forward(run, model, b, nullptr, &cache));
  };
  const Dim T = static_cast<Dim>(text.tokens.size());
  pass(first.id, 0, shared);
  cache.share(first.id, text.id, shared);
  pass(first.id, shared, std::min(T, shared + 5));  // the other one goes on as well: into pages of its own
  // Not computed again, so not compared.
  std::vector<double> out(alone.begin(), alone.begin() + shared * model.recipe.vocab);
  const std::vector<double> rest = pass(text.id, shared, T);
  out.insert(out.end(), rest.begin(), rest.end());
  cache.drop(first.id);
  cache.drop(text.id);
  return out;
}

constexpr DType kWeights[] = {DType::q4_0,  DType::q4_1,   DType::q5_0,  DType::q5_1, DType::q8_0,
                              DType::q2_k,  DType::q3_k,   DType::q4_k,  DType::q5_k, DType::q6_k,
                              DType::mxfp4, DType::iq4_nl, DType::iq4_xs};
constexpr DType kCaches[] = {DType::f32, DType::bf16, DType::f16, DType::q8_0, DType::q4_0};

Count compare_everything(const Kernels& table, std::span<const DType> formats) {
  Count count;
  Model plain(recipe(), table.real);
  randomise(plain, 3);
  const Dim length[] = {75};
  SomeText text = some_texts(plain.recipe, length, 5)[0];
  text.prefix = 0;
  const Dim lengths[] = {9, 1, 40, 17};
  std::vector<SomeText> others = some_texts(plain.recipe, lengths, 6);
  for (std::size_t i = 0; i < others.size(); ++i) others[i].id = 200 + i;

  for (DType format : formats) {
    const std::unique_ptr<Model> model = in_blocks(plain, format);
    Device one(table, {.threads = 1});
    const std::vector<double> no_cache = logits_of(one, *model, {&text, 1});
    for (DType type : kCaches) {
      KvPool first(*model, type);
      const std::vector<double> alone = logits_cached(one, *model, text, length[0], first);
      if (type == DType::f32) count.compare(no_cache, alone);
      for (int threads = 1; threads <= 3; ++threads) {
        Device device(table, {.threads = threads});
        for (Dim chunk : {1, 7, 32}) {
          KvPool cache(*model, type);
          count.compare(alone, logits_cached(device, *model, text, chunk, cache));
        }
        for (std::size_t place : {std::size_t{0}, others.size() / 2, others.size()}) {
          KvPool cache(*model, type);
          count.compare(alone,
                        logits_beside(device, *model, text, others, place, place == 0 ? 75 : 11, cache));
        }
        for (Dim shared : {5, 64, 70}) {
          KvPool cache(*model, type);
          count.compare(alone, logits_shared(device, *model, text, shared, cache, alone));
        }
      }
    }
  }
  return count;
}

TEST(Bits, QuantizedWeightsAndCachesDoNotDependOnCompany) {
  RAPT_NOT_SANITIZED("bits of hundreds of passes compared");
  for (const std::string& isa : available_isas()) {
    if (isa == "scalar") continue;  // same source; slow
    const Count count = compare_everything(kernels_for(isa), kWeights);
    std::printf("%s: %d comparisons, %d differ\n", isa.c_str(), count.compared, count.different);
    EXPECT_GE(count.compared, 1300);
    EXPECT_EQ(count.different, 0) << isa;
  }
}

// ---------------------------------------------------------------------------------------- broken on purpose
// All rows of a pass are rounded with the scale of the largest: what an engine does that quantizes
// activations by tensor.
void (*right_product)(Queue&, const QuantLinearArgs&) noexcept = nullptr;
void product_with_common_scale(Queue& queue, const QuantLinearArgs& args) noexcept {
  std::vector<float> x(static_cast<const float*>(args.x),
                       static_cast<const float*>(args.x) + args.rows * args.k);
  float most = 0;
  for (float v : x) most = std::max(most, std::abs(v));
  const float scale = most / 127;
  if (scale > 0)
    for (float& v : x) v = scale * std::nearbyint(v / scale);
  QuantLinearArgs a = args;
  a.x = x.data();
  right_product(queue, a);
}

TEST(Bits, ActivationsRoundedByThePassAreCaught) {
  RAPT_NOT_SANITIZED("bits of hundreds of passes compared");
  Kernels broken = kernels_for(available_isas().back());
  right_product = broken.quant_linear;
  broken.quant_linear = product_with_common_scale;
  const DType some[] = {DType::q4_1};
  const Count count = compare_everything(broken, some);
  std::printf("activations rounded by the pass: %d of %d differ\n", count.different, count.compared);
  EXPECT_GT(count.different, count.compared / 2);
}

// A product that returns noise would pass all of this: the logits stay near those of the same numbers as f32
// weights. What remains is the rounding of activations to int8.
TEST(Bits, QuantizedLogitsAreNearThoseOfTheSameNumbersInFloat) {
  RAPT_NOT_SANITIZED("bits of hundreds of passes compared");
  Device device({.threads = 2});
  const Recipe all = recipe(5);  // of all experts: rounding chooses others
  Model plain(all, device.real);
  randomise(plain, 3);
  const Dim length[] = {30};
  const SomeText text = some_texts(plain.recipe, length, 5)[0];
  for (DType format : kWeights) {
    const std::unique_ptr<Model> blocks = in_blocks(plain, format);
    Model same(all, device.real);
    for (std::size_t i = 0; i < same.weights.size(); ++i) {
      Weight& w = same.weights[i];
      const Weight& source = blocks->weights[i];
      std::vector<float> row(static_cast<std::size_t>(w.cols));
      for (Dim r = 0; r < w.rows; ++r) {
        if (is_block(source.format)) unpack_row(source, r, row);
        for (Dim c = 0; c < w.cols; ++c)
          w.set(r, c, is_block(source.format) ? row[static_cast<std::size_t>(c)] : source.get(r, c));
      }
    }
    const std::vector<double> exact = logits_of(device, same, {&text, 1}),
                              got = logits_of(device, *blocks, {&text, 1});
    double off = 0, norm = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      off += (got[i] - exact[i]) * (got[i] - exact[i]);
      norm += exact[i] * exact[i];
    }
    EXPECT_LT(std::sqrt(off / norm), 0.03) << name_of(format);
    EXPECT_GT(off, 0) << name_of(format);
  }
}

}  // namespace
}  // namespace rapt::test
