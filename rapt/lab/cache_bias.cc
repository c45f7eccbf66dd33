// SPDX-License-Identifier: Apache-2.0
// Some models carry key biases far larger than what their keys vary by (Qwen2.5-7B: norm 605 at layer 0, 22
// in the middle). A cache in blocks of 32 spends its levels on the bias, and what tells keys apart is lost.
// Ours stores keys without it (run/kv_view.h); here one layer decodes with the real caches, with that switch
// off and on, against the f32 cache.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kHeadDim = 128, kVocab = 256, kQueries = 16;

std::unique_ptr<Model> biased_model(DType real, double bias, std::uint64_t seed) {
  AttnRecipe a{.heads = 1, .kv_heads = 1, .head_dim = kHeadDim};
  a.bias.k = true;
  a.pos.kind = PosRecipe::Kind::rope;
  LayerRecipe layer;
  layer.parts.push_back({.body = a});
  Recipe r;
  r.name = "cache-bias";
  r.width = kHeadDim;
  r.vocab = kVocab;
  r.context = 4096;
  r.head.kind = HeadRecipe::Kind::none;
  r.decoder = StackRecipe{.layers = 1, .kinds = {{"L", layer}}};
  auto m = std::make_unique<Model>(r, real);
  init(*m, seed);
  for (Weight& w : m->weights) {  // q and k of unit variance from rows of unit variance
    if (w.rows == 1) continue;
    const double std = w.name == "embed.tokens" ? 1 : 1 / std::sqrt(static_cast<double>(w.cols));
    for (Dim i = 0; i < w.size(); ++i)
      w.set(i / w.cols, i % w.cols,
            std * random_normal(mix_key(seed, static_cast<std::uint64_t>(w.index)),
                                static_cast<std::uint64_t>(i)));
  }
  // Ten heavy channels, spread over the head.
  Weight& b = m->weight("decoder.0.self.k.bias");
  for (std::uint64_t i = 0; i < 10; ++i)
    b.set(0, static_cast<Dim>((i * 13 + random_below(4, mix_key(seed, 77), i)) % kHeadDim),
          bias / std::sqrt(10.0) * (random_uniform(mix_key(seed, 78), i) < 0.5 ? -1 : 1));
  return m;
}

using Rows = std::vector<std::vector<double>>;

Rows attention_rows(Device& device, const Model& model, std::span<const std::int32_t> tokens, DType format,
                    bool apart) {
  KvPool cache(model, format, KvPool::kNoLimit, apart ? KvPool::KeyBias::apart : KvPool::KeyBias::stored);
  Run run(device);
  Taps taps;
  Rows rows;
  const auto n = static_cast<Dim>(tokens.size());
  Batch batch{.tokens = tokens.first(static_cast<std::size_t>(n - kQueries)), .want = kWantLast};
  batch.sequences.push_back({.first = 0, .count = n - kQueries});
  forward(run, model, batch, nullptr, &cache);
  run.reset();
  run.taps = &taps;
  std::vector<Taps::HeadRow> wanted;
  for (Dim i = 0; i < kQueries; ++i) wanted.push_back({0, i});
  taps.want_weights(
      site::attn_weights, [&](const Tapped&) { return wanted; },
      [&](const Tapped& t) { rows.push_back(values_of(t.value)); });
  batch.tokens = tokens.last(kQueries);
  batch.sequences[0] = {.first = 0, .count = kQueries, .past = n - kQueries};
  forward(run, model, batch, nullptr, &cache);
  return rows;
}

double divergence(const Rows& exact, const Rows& other) {  // mean KL of the rows, nats
  double sum = 0;
  for (std::size_t r = 0; r < exact.size(); ++r)
    for (std::size_t j = 0; j < exact[r].size(); ++j)
      if (exact[r][j] > 0) sum += exact[r][j] * std::log(exact[r][j] / std::max(other[r][j], 1e-30));
  return std::max(0.0, sum / static_cast<double>(exact.size()));
}

}  // namespace

LabResult cache_bias(const Lab& lab) {
  LabResult r;
  const Dim keys = lab.effort < 0.5 ? 128 : 512;
  const int draws = lab.effort < 0.5 ? 1 : 4;
  const double sizes[] = {0, 22, 100, 300, 460};
  const DType formats[] = {DType::q8_0, DType::q4_0};
  std::vector<Text> names;
  for (int bits : {8, 4})
    for (const char* kept : {"lab.cache-bias.whole", "lab.cache-bias.apart"})
      names.push_back(say(kept, bits));
  Table t{.title = say("lab.cache-bias.table", keys, draws), .columns = {say("lab.cache-bias.norm")}};
  t.columns.insert(t.columns.end(), names.begin(), names.end());
  Chart chart{.title = say("lab.cache-bias.chart"),
              .x_label = say("lab.cache-bias.norm"),
              .y_label = say("lab.cache-bias.kl"),
              .curves = {},
              .log_y = true};
  for (const Text& name : names) chart.curves.push_back({.name = name, .x = {}, .y = {}});
  double at300[4] = {}, at22[4] = {};
  for (double size : sizes) {
    double kl[4] = {};
    for (int n = 0; n < draws; ++n) {
      const std::uint64_t seed = mix_key(lab.seed, static_cast<std::uint64_t>(n));
      const std::unique_ptr<Model> model = biased_model(lab.device.real, size, seed);
      std::vector<std::int32_t> tokens;
      for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(keys); ++i)
        tokens.push_back(static_cast<std::int32_t>(random_below(kVocab, mix_key(seed, 5), i)));
      const Rows exact = attention_rows(lab.device, *model, tokens, DType::f32, true);
      for (int f = 0; f < 2; ++f)
        for (int apart = 0; apart < 2; ++apart)
          kl[2 * f + apart] +=
              divergence(exact, attention_rows(lab.device, *model, tokens, formats[f], apart)) / draws;
    }
    std::vector<Cell> row = {Cell(size, 0)};
    for (std::size_t i = 0; i < 4; ++i) {
      row.push_back(Cell(kl[i], 4));
      chart.curves[i].x.push_back(size), chart.curves[i].y.push_back(kl[i]);
      if (size == 300) at300[i] = kl[i];
      if (size == 22) at22[i] = kl[i];
    }
    t.rows.push_back(std::move(row));
  }
  r.findings = {
      above(say("lab.cache-bias.f.whole"), at300[2], 0.1, "nats", say("lab.cache-bias.p.whole")),
      below(say("lab.cache-bias.f.apart"), at300[3], 0.1, "nats", say("lab.cache-bias.p.apart")),
      above(say("lab.cache-bias.f.four"), at300[2] / at300[3], 10, "x", say("lab.cache-bias.p.four")),
      above(say("lab.cache-bias.f.eight"), at300[0] / at300[1], 3, "x", say("lab.cache-bias.p.eight")),
      above(say("lab.cache-bias.f.middle"), at22[2] / at22[3], 1, "x", say("lab.cache-bias.p.middle")),
  };
  r.verdict = sentences({say(at300[2] > 0.1 && at300[3] < 0.1 ? "lab.cache-bias.v.wrong"
                             : at300[2] > 0.1                 ? "lab.cache-bias.v.neither"
                                                              : "lab.cache-bias.v.enough"),
                         say("lab.cache-bias.v.numbers", digits(at300[2], 2), digits(at300[3], 3),
                             digits(at300[0], 4), digits(at300[1], 5))});
  r.document.parts.push_back(std::move(chart));
  r.document.parts.push_back(std::move(t));
  return r;
}

}  // namespace rapt
