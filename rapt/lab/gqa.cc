// SPDX-License-Identifier: Apache-2.0
// Fewer key and value heads: the cache shrinks in proportion, decoding reads less. And what happens to a
// model with a head of its own for each query when its key and value heads are replaced by their group's
// mean (Ainslie et al. 2023) or by the group's first head.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kWidth = 256, kHeads = 8, kHeadDim = 32, kVocab = 64;

Recipe decoder(Dim kv_heads, Dim layers) {
  AttnRecipe a{.heads = kHeads, .kv_heads = kv_heads, .head_dim = kHeadDim};
  a.pos.kind = PosRecipe::Kind::rope;
  const NormRecipe rms{};
  LayerRecipe layer;
  layer.parts.push_back({.norm_in = rms, .body = a});
  layer.parts.push_back({.norm_in = rms, .body = FfnRecipe{.width = 512}});
  Recipe r;
  r.name = concat("kv", kv_heads);
  r.width = kWidth;
  r.vocab = kVocab;
  r.context = 8192;
  r.init.std = 0.08;
  r.decoder = StackRecipe{.layers = layers, .kinds = {{"L", layer}}, .final_norm = rms};
  return r;
}

std::vector<std::int32_t> some_tokens(Dim n, std::uint64_t seed) {
  std::vector<std::int32_t> t;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(n); ++i)
    t.push_back(static_cast<std::int32_t>(random_below(kVocab, seed, i)));
  return t;
}

struct Decode {
  double bytes_per_token = 0, token_ms = 0;
};

Decode decode(Device& device, Dim kv_heads, Dim depth, int steps, std::uint64_t seed) {
  Model model(decoder(kv_heads, 2), device.real);
  init(model, seed);
  KvPool cache(model);
  const std::vector<std::int32_t> tokens = some_tokens(depth + steps, mix_key(seed, 1));
  Run run(device);
  auto feed = [&](Dim past, Dim count) {
    Batch batch{
        .tokens = std::span(tokens).subspan(static_cast<std::size_t>(past), static_cast<std::size_t>(count)),
        .want = kWantLast};
    batch.sequences.push_back({.first = 0, .count = count, .past = past});
    run.reset();
    forward(run, model, batch, nullptr, &cache);
  };
  for (Dim at = 0; at < depth; at += 256) feed(at, std::min<Dim>(256, depth - at));
  Decode d;
  d.bytes_per_token = static_cast<double>(cache.bytes()) / static_cast<double>(depth);
  Dim at = depth;
  d.token_ms = 1e3 * shortest_time(steps, [&] { feed(at++, 1); });
  return d;
}

// The model with `kv` key and value heads made from those of `from`.
std::unique_ptr<Model> converted(const Model& from, Dim kv, bool by_mean) {
  auto to = std::make_unique<Model>(decoder(kv, from.recipe.decoder->layers), from.real);
  const Dim group = kHeads / kv;
  for (Weight& w : to->weights) {
    const Weight& old = from.weights[static_cast<std::size_t>(w.index)];
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim c = 0; c < w.cols; ++c) {
        double v = 0;
        if (old.rows == w.rows) v = old.get(r, c);
        else
          for (Dim g = 0; g < (by_mean ? group : 1); ++g)
            v += old.get((r / kHeadDim * group + g) * kHeadDim + r % kHeadDim, c) /
                 static_cast<double>(by_mean ? group : 1);
        w.set(r, c, v);
      }
  }
  return to;
}

}  // namespace

LabResult gqa_math(const Lab& lab) {
  LabResult r;
  const bool small = lab.effort < 0.5;
  const Dim depth = small ? 128 : 2048;
  Table t{.title = say("lab.gqa.decode", depth),
          .columns = {say("lab.gqa.kv_heads"), say("lab.gqa.bytes"), say("lab.gqa.ms"), say("lab.gqa.speed")},
          .rows = {}};
  Chart chart{.title = say("lab.gqa.decode_chart"),
              .x_label = say("lab.gqa.kv_heads"),
              .y_label = say("lab.gqa.ms"),
              .curves = {{.name = say("lab.gqa.depth", depth), .x = {}, .y = {}}}};
  std::vector<Decode> all;
  Device one(lab.device.kernels, {.threads = 1});
  for (Dim kv : {8, 4, 2, 1}) all.push_back(decode(one, kv, depth, small ? 2 : 40, lab.seed));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double kv = static_cast<double>(8 >> i);
    t.rows.push_back({Cell(kv, 0), Cell(all[i].bytes_per_token, 0), Cell(all[i].token_ms),
                      Cell(all[0].token_ms / all[i].token_ms, 2)});
    chart.curves[0].x.push_back(kv), chart.curves[0].y.push_back(all[i].token_ms);
  }
  std::reverse(chart.curves[0].x.begin(), chart.curves[0].x.end());
  std::reverse(chart.curves[0].y.begin(), chart.curves[0].y.end());

  // Conversion of a model whose heads have nothing to do with each other: the hardest case.
  Model whole(decoder(kHeads, 2), lab.device.real);
  init(whole, lab.seed);
  const std::vector<std::int32_t> tokens = some_tokens(64, mix_key(lab.seed, 2));
  auto attended = [&](const Model& m) {  // what the first layer's attention adds
    Run run(lab.device);
    Taps taps;
    run.taps = &taps;
    std::vector<double> out;
    taps.see(site::attn_out, [&](const Tapped& s) {
      if (s.layer == 0) out = values_of(s.value);
    });
    Batch batch{.tokens = tokens};
    batch.sequences.push_back({.first = 0, .count = 64});
    forward(run, m, batch);
    return out;
  };
  const std::vector<double> exact = attended(whole);
  Table c{.title = say("lab.gqa.replaced"),
          .columns = {say("lab.gqa.kv_heads"), say("lab.gqa.of_mean"), say("lab.gqa.of_first")},
          .rows = {}};
  double mean_error = 0, first_error = 0;
  for (Dim kv : {8, 4, 2, 1}) {
    const double by_mean = relative_difference(attended(*converted(whole, kv, true)), exact),
                 by_first = relative_difference(attended(*converted(whole, kv, false)), exact);
    c.rows.push_back({Cell(static_cast<double>(kv), 0), Cell(by_mean), Cell(by_first)});
    if (kv == 2) mean_error = by_mean, first_error = by_first;
  }
  const double cache = all[3].bytes_per_token / all[0].bytes_per_token;
  const double faster = all[0].token_ms / all[3].token_ms;
  r.findings = {
      below(say("lab.gqa.f.cache"), std::abs(8 * cache - 1), 0.05, ""),
      above(say("lab.gqa.f.speed"), faster, 1, "x", say("lab.gqa.p.shazeer"), false),
      below(say("lab.gqa.f.error"), mean_error / first_error, 1, "x", say("lab.gqa.p.mean")),
  };
  r.verdict = sentences({say("lab.gqa.v.cache", digits(cache, 3), depth, digits(faster, 2)),
                         say(mean_error < first_error ? "lab.gqa.v.mean" : "lab.gqa.v.first",
                             digits(mean_error, 2), digits(first_error, 2))});
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(chart));
  r.document.parts.push_back(std::move(c));
  return r;
}

}  // namespace rapt
