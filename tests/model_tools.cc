// SPDX-License-Identifier: Apache-2.0
#include "tests/model_tools.h"

#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"

namespace rapt::test {

void randomise(Model& model, std::uint64_t seed, double gain) {
  auto plus_one = [&](const Weight& w) {
    auto is = [&](const std::optional<NormLayer>& n) {
      return n && n->weight == &w && n->recipe.weight == NormRecipe::Gain::plus_one;
    };
    for (const auto* stack : {&model.encoder, &model.decoder}) {
      if (!*stack) continue;
      if (is((*stack)->final_norm)) return true;
      for (const Layer& l : (*stack)->layers) {
        if (is(l.norm_in)) return true;
        for (const Part& p : l.parts) {
          if (is(p.norm_in) || is(p.norm_out) || is(p.norm_sum)) return true;
          const Attention* a = p.attention();
          if (a && (is(a->q_norm) || is(a->k_norm) || is(a->v_norm) || is(a->z_norm))) return true;
        }
      }
    }
    return is(model.target.norm) || is(model.source.norm) || is(model.head_norm);
  };
  for (Weight& w : model.weights) {
    const std::uint64_t key = mix_key(seed, static_cast<std::uint64_t>(w.index));
    const bool norm = w.name.find("norm") != std::string::npos && w.name.ends_with(".weight");
    const bool positive = norm && !plus_one(w);
    const bool running = w.name.ends_with(".running");
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim c = 0; c < w.cols; ++c) {
        const double x = random_normal(key, static_cast<std::uint64_t>(r * w.cols + c));
        double v = x;
        if (norm) v = (positive ? 1 : 0) + 0.3 * x;
        // Keeps relu2 towers from overflowing f32.
        else if (running) v = c < w.cols / 2 ? 0.3 * x : 20 + 10 * std::abs(x);
        else if (w.name.ends_with(".scale")) v = 1 + 0.2 * x;
        else if (w.name.ends_with(".bias")) v = 0.4 * x;
        else if (w.packing == Packing::panels && w.name != "embed.tokens")
          v = gain * 1.2 * x / std::sqrt(static_cast<double>(w.cols));
        w.set(r, c, static_cast<float>(v));
      }
  }
}

std::vector<SomeText> some_texts(const Recipe& recipe, std::span<const Dim> lengths, std::uint64_t seed) {
  std::vector<SomeText> texts;
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    SomeText t;
    t.id = 100 + n;
    t.prefix = std::min<Dim>(3, lengths[n]);
    auto draw = [&](std::uint64_t what, Dim i, Dim below) {
      return static_cast<std::int32_t>(random_below(
          static_cast<std::uint32_t>(below), mix_key(seed, n * 8 + what), static_cast<std::uint64_t>(i)));
    };
    for (Dim i = 0; i < lengths[n]; ++i) t.tokens.push_back(draw(0, i, recipe.vocab));
    if (recipe.embed.types > 0)
      for (Dim i = 0; i < lengths[n]; ++i) t.types.push_back(draw(1, i, recipe.embed.types));
    if (recipe.encoder && recipe.decoder)
      for (Dim i = 0; i < lengths[n] / 2 + 2; ++i) t.source.push_back(draw(2, i, recipe.vocab));
    texts.push_back(std::move(t));
  }
  return texts;
}

PackedBatch::PackedBatch(std::span<const SomeText> texts) {
  for (const SomeText& t : texts) {
    const Dim count = static_cast<Dim>(t.tokens.size()), sources = static_cast<Dim>(t.source.size());
    batch.sequences.push_back(
        {.first = static_cast<Dim>(tokens.size()), .count = count, .prefix = t.prefix, .id = t.id});
    tokens.insert(tokens.end(), t.tokens.begin(), t.tokens.end());
    types.insert(types.end(), t.types.begin(), t.types.end());
    if (sources > 0) {
      has_source = true;
      source.sequences.push_back(
          {.first = static_cast<Dim>(source_tokens.size()), .count = sources, .id = t.id});
      source_tokens.insert(source_tokens.end(), t.source.begin(), t.source.end());
    }
  }
  batch.tokens = tokens;
  batch.types = types;
  source.tokens = source_tokens;
}

std::vector<TapShare> shares_of(const Model& model, const Batch& batch, const Batch* source) {
  const Dim sinks = model.recipe.embed.sink_tokens;
  const bool all = batch.want.rows == Want::Rows::all,
             classes = model.recipe.head.kind == HeadRecipe::Kind::classes;
  std::vector<TapShare> shares;
  Dim next = 0;
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    const Sequence& s = batch.sequences[i];
    TapShare t;
    t.rows = {next, s.count + (s.past == 0 ? sinks : 0)};
    t.position = s.past == 0 ? 0 : s.past + sinks;
    next += t.rows.count;
    if (!model.decoder) t.source = t.rows;
    else if (source) t.source = {source->sequences[i].first, source->sequences[i].count};
    if (all && !classes) t.wanted = {s.first, s.count};
    else t.wanted = {static_cast<Dim>(i), 1};
    shares.push_back(t);
  }
  return shares;
}

KvPool make_cache(const Model& model) { return KvPool(model); }

std::vector<double> all_values(const Tensor& t) {
  std::vector<double> v(static_cast<std::size_t>(t.elements()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = t.at(static_cast<Dim>(i));
  return v;
}

std::vector<double> logits_of(Device& device, const Model& model, std::span<const SomeText> texts) {
  Run run(device);
  const PackedBatch packed(texts);
  return all_values(forward(run, model, packed.batch, packed.source_or_null()));
}

std::vector<double> logits_cached(Device& device, const Model& model, const SomeText& text, Dim chunk,
                                  KvPool& cache) {
  std::vector<double> all;
  const Dim T = static_cast<Dim>(text.tokens.size());
  Run run(device);
  for (Dim at = 0; at < T;) {
    run.reset();
    const Dim n = std::min(T - at, at == 0 ? std::max(chunk, text.prefix) : chunk);
    Batch b{.tokens =
                std::span(text.tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n))};
    if (!text.types.empty())
      b.types = std::span(text.types).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n));
    b.sequences.push_back(
        {.first = 0, .count = n, .past = at, .prefix = text.prefix, .id = text.id, .opened = T});
    Batch source{.tokens = text.source};
    source.sequences.push_back({.first = 0, .count = static_cast<Dim>(text.source.size()), .id = text.id});
    const std::vector<double> piece =
        all_values(forward(run, model, b, at == 0 && !text.source.empty() ? &source : nullptr, &cache));
    all.insert(all.end(), piece.begin(), piece.end());
    at += n;
  }
  cache.drop(text.id);
  return all;
}

}  // namespace rapt::test
