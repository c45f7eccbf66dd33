// SPDX-License-Identifier: Apache-2.0
// Norms, gates, outlier features, comparison, positions: each against plain loops in double over a residual
// stream computed the plain way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rapt/inspect/compare.h"
#include "rapt/inspect/gates.h"
#include "rapt/inspect/norms.h"
#include "rapt/inspect/outliers.h"
#include "rapt/inspect/positions.h"
#include "rapt/report/document.h"
#include "tests/tools.h"
#include "tests/views_tools.h"

namespace rapt {
namespace {

constexpr Dim C = 24;

double length(const double* x, Dim n) {
  double sum = 0;
  for (Dim i = 0; i < n; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

// RMS norm with a gain, as a Llama's layer has it before its parts.
std::vector<double> normed(const std::vector<double>& x, Model& model, const std::string& weight,
                           double eps) {
  std::vector<double> y;
  for (std::size_t t = 0; t < x.size(); t += C) {
    const double rms = std::sqrt(length(&x[t], C) * length(&x[t], C) / C + eps);
    for (Dim c = 0; c < C; ++c)
      y.push_back(x[t + static_cast<std::size_t>(c)] / rms * model.weight(weight).get(0, c));
  }
  return y;
}

std::vector<double> times(const std::vector<double>& x, const Weight& w) {  // [T][C] -> [T][rows]
  std::vector<double> y;
  for (std::size_t t = 0; t < x.size(); t += C)
    for (Dim r = 0; r < w.rows; ++r) {
      double sum = 0;
      for (Dim c = 0; c < C; ++c) sum += x[t + static_cast<std::size_t>(c)] * w.get(r, c);
      y.push_back(sum);
    }
  return y;
}

double eps_of(const Model& m) { return m.decoder->layers[0].parts[0].norm_in->recipe.eps; }

TEST(Norms, StreamAndPartsFollowFromTheResidualStream) {
  for (const char* name : {"llama3", "gpt2", "t5", "gemma2"}) {  // gemma2: norms behind the parts too
    Device device({.threads = 1});
    Model model(test::toy_recipe(name), device.real);
    test::randomise(model, 3);
    const std::vector<std::int32_t> ids = test::toy_ids(11);
    const std::vector<std::int32_t> source =
        model.encoder && model.decoder ? test::toy_ids(7) : std::vector<std::int32_t>{};
    const Norms n = norms(device, model, ids, source);
    const NormGrid& g = n.grids.back();
    ASSERT_EQ(g.rows, 4);
    // The last layer without its feed-forward part: what attention adds (T5: and cross-attention), and
    // what is missing.
    Model without(model.recipe, device.real);
    test::copy_weights(model, without);
    for (Weight& w : without.weights)
      if (w.name.starts_with("decoder.2.ffn.down") || w.name.starts_with("decoder.2.ffn.norm_out"))
        for (Dim r = 0; r < w.rows; ++r)
          for (Dim c = 0; c < w.cols; ++c) w.set(r, c, 0);
    const std::vector<double> before = test::naive_residual(model, 2, ids, source),
                              half = test::naive_residual(without, 3, ids, source),
                              after = test::naive_residual(model, 3, ids, source);
    for (std::size_t t = 0; t < 11; ++t) {
      std::vector<double> attention, feed;
      for (std::size_t c = t * C; c < (t + 1) * C; ++c)
        attention.push_back(half[c] - before[c]), feed.push_back(after[c] - half[c]);
      EXPECT_NEAR(g.residual[3 * 11 + t], length(&after[t * C], C), 1e-4) << name;
      EXPECT_NEAR(g.residual[2 * 11 + t], length(&before[t * C], C), 1e-4) << name;
      EXPECT_NEAR(g.ffn_out[2 * 11 + t], length(feed.data(), C), 1e-4) << name;
      if (g.cross_out.empty()) {
        EXPECT_NEAR(g.attn_out[2 * 11 + t], length(attention.data(), C), 1e-4) << name;
      } else {
        EXPECT_GT(g.cross_out[2 * 11 + t], 0);
      }
    }
  }
}

TEST(Norms, HeadsFollowFromTheirProjections) {
  Device device({.threads = 1});
  Model model(test::toy_recipe("llama3"), device.real);
  test::randomise(model, 3);
  const std::vector<std::int32_t> ids = test::toy_ids(11);
  const std::vector<double> input =
      normed(test::naive_residual(model, 1, ids), model, "decoder.1.self.norm_in.weight", eps_of(model));
  std::size_t compared = 0;
  for (const HeadNorm& h : norms(device, model, ids).heads) {
    if (h.layer != 1) continue;
    const char* names[] = {"decoder.1.self.q.weight", "decoder.1.self.k.weight", "decoder.1.self.v.weight"};
    const Weight& w = model.weight(names[static_cast<int>(h.of)]);
    const std::vector<double> y = times(input, w);  // a rotation leaves lengths as they are
    double others = 0;
    for (Dim t = 1; t < 11; ++t)
      others += length(&y[static_cast<std::size_t>(t * w.rows + h.head * 6)], 6) / 10;
    EXPECT_NEAR(h.first, length(&y[static_cast<std::size_t>(h.head * 6)], 6), 1e-4);
    EXPECT_NEAR(h.others, others, 1e-4);
    ++compared;
  }
  EXPECT_EQ(compared, 4u + 2u + 2u);
}

// Equal tokens are equal vectors in every layer where places are seen only relative to each other: all keys
// weigh the same, whatever RoPE does.
TEST(Norms, OneRepeatedTokenGivesEqualHiddenStatesUnderRope) {
  Device device({.threads = 1});
  Model model(test::toy_recipe("llama3"), device.real);
  test::randomise(model, 3);
  const std::vector<std::int32_t> ids(64, 5);
  Taps taps;
  double apart = 0, size = 0;
  watch_residual(taps, model, [&](Stack, int, const Tensor& x) {
    for (Dim i = 0; i < x.elements(); ++i) {
      apart = std::max(apart, std::abs(x.at(i) - x.at(i % C)));
      size = std::max(size, std::abs(x.at(i)));
    }
  });
  look(device, model, taps, ids);
  EXPECT_LT(apart, 1e-5);
  EXPECT_GT(size, 0.1);
}

TEST(Gates, ValuesFollowFromTheirWeights) {
  Device device({.threads = 1});
  Recipe recipe = test::toy_recipe("llama3-gate-g1");
  AttnRecipe& a = *recipe.decoder->kinds["L"].parts[0].self();
  using G = GateRecipe;
  a.gate = {{.at = G::At::sdpa},
            {.at = G::At::q, .grain = GateGrain::head},
            {.at = G::At::v, .act = Act::silu},
            {.at = G::At::k, .heads = G::Heads::shared},
            {.at = G::At::out}};
  Model model(recipe, device.real);
  test::randomise(model, 12, 2);
  const std::vector<std::int32_t> ids = test::toy_ids(11);
  const std::vector<double> input =
      normed(test::naive_residual(model, 1, ids), model, "decoder.1.self.norm_in.weight", eps_of(model));
  const std::vector<GateStats> all = gates(device, model, ids);
  std::size_t compared = 0;
  for (const GateStats& g : all) {
    if (g.layer != 1) continue;
    const Weight& w = model.weight(concat("decoder.1.self.gate_", gate_name(g.at), ".weight"));
    const std::vector<double> logits = times(input, w);
    const Dim heads = g.at == G::At::sdpa || g.at == G::At::q ? 4
                      : g.at == G::At::v                      ? 2
                                                              : 1,
              each = w.rows / heads;
    EXPECT_EQ(g.head < 0, heads == 1);
    double mean = 0, closed = 0;
    std::array<Dim, GateStats::kBins> bins{};
    for (Dim t = 0; t < 11; ++t)
      for (Dim i = 0; i < each; ++i) {
        const double x = logits[static_cast<std::size_t>(t * w.rows + std::max(0, g.head) * each + i)],
                     s = 1 / (1 + std::exp(-x));
        const double v = g.at == G::At::v ? x * s : s;
        mean += v, closed += v < 0.1;
        ++bins[static_cast<std::size_t>(std::clamp(v * 10, 0.0, 9.0))];
      }
    const double n = static_cast<double>(11 * each);
    EXPECT_EQ(g.values, 11 * each);
    EXPECT_NEAR(g.mean, mean / n, 1e-4) << gate_name(g.at);
    EXPECT_NEAR(g.closed, closed / n, 1e-9) << gate_name(g.at);
    EXPECT_EQ(g.histogram, bins) << gate_name(g.at);
    ++compared;
  }
  EXPECT_EQ(compared, 4u + 4u + 2u + 1u + 1u);
}

TEST(Gates, ConstantOnesAreReadFromTheirWeightsAndNoneIsAnError) {
  Device device({.threads = 1});
  Model model(test::toy_recipe("llama3-gate-g1-const"), device.real);
  test::randomise(model, 2);
  const std::vector<GateStats> all = gates(device, model, test::toy_ids(5));
  ASSERT_EQ(all.size(), 3u * 4u);
  const GateStats& g = all[5];  // layer 1, head 1
  EXPECT_TRUE(g.constant);
  EXPECT_EQ(g.values, 6);
  double mean = 0;
  for (Dim i = 0; i < 6; ++i)
    mean += 1 / (1 + std::exp(-model.weight("decoder.1.self.gate_sdpa.value").get(0, 6 + i))) / 6;
  EXPECT_NEAR(g.mean, mean, 1e-4);
  const Model plain(test::toy_recipe("llama3"), device.real);
  EXPECT_TRUE(test::holds(test::error_of([&] { gates(device, plain, test::toy_ids(5)); }), "has no gates"));
}

// A layer and part of the same number in the other stack are others.
TEST(Gates, OfBothStacksWhereTheEncoderHasOneLayer) {
  Device device({.threads = 1});
  Recipe recipe = test::toy_recipe("t5", 2);
  recipe.encoder->layers = 1;
  for (StackRecipe* stack : {&*recipe.encoder, &*recipe.decoder})
    for (auto& [name, kind] : stack->kinds) kind.parts[0].self()->gate = {{.at = GateRecipe::At::sdpa}};
  Model model(recipe, device.real);
  test::randomise(model, 3, 2);
  const std::vector<std::int32_t> ids = test::toy_ids(11), source = test::toy_ids(7);
  // By layer of the encoder, then of the decoder: [T][4 heads][6].
  std::vector<std::vector<double>> values;
  Taps taps;
  see_gates(taps, [&](const Tapped& t) { values.push_back(test::all_values(t.value)); });
  look(device, model, taps, ids, source);
  ASSERT_EQ(values.size(), 3u);
  const std::vector<GateStats> all = gates(device, model, ids, source);
  ASSERT_EQ(all.size(), 12u);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const GateStats& g = all[i];
    EXPECT_EQ(g.stack, i < 4 ? Stack::encoder : Stack::decoder);
    EXPECT_EQ(g.at, GateRecipe::At::sdpa);
    EXPECT_EQ(g.head, static_cast<int>(i % 4));
    const std::vector<double>& x = values[i / 4];
    double mean = 0;
    for (std::size_t j = 0; j < x.size(); ++j)
      mean += j / 6 % 4 == i % 4 ? x[j] / (static_cast<double>(x.size()) / 4) : 0;
    EXPECT_NEAR(g.mean, mean, 1e-6);
  }
}

TEST(Outliers, APlantedChannelIsFoundAndTheRoundingErrorIsThatOfPlainLoops) {
  Device device({.threads = 1});
  Model model(test::toy_recipe("llama3", 4), device.real);
  test::randomise(model, 3);
  const std::vector<std::int32_t> ids = test::toy_ids(20);
  for (const char* layer : {"decoder.1.self", "decoder.2.self", "decoder.2.ffn"})
    model.weight(concat(layer, ".norm_in.weight")).set(0, 5, 60);
  // One layer of four, one input of eight: not enough rows.
  model.weight("decoder.1.self.norm_in.weight").set(0, 9, 60);
  const Outliers o = outliers(device, model, ids, {}, {.tokens = 0.2})[0];
  ASSERT_EQ(o.features.size(), 1u);
  EXPECT_EQ(o.features[0].channel, 5);
  EXPECT_NEAR(o.features[0].layers, 0.5, 1e-9);
  ASSERT_FALSE(o.next.empty());
  EXPECT_EQ(o.next[0].channel, 9);
  ASSERT_EQ(o.inputs.size(), 8u);
  const OutlierInput& in = o.inputs[2];  // attention of layer 1
  EXPECT_EQ(in.layer, 1);
  EXPECT_FALSE(in.ffn);
  const std::vector<double> x =
      normed(test::naive_residual(model, 1, ids), model, "decoder.1.self.norm_in.weight", eps_of(model));
  double rows = 0, largest = 0, error[2] = {}, size = 0;
  for (std::size_t t = 0; t < 20; ++t) {
    const double* row = &x[t * C];
    rows += std::abs(row[5]) >= 6;
    double most[2] = {};
    for (Dim c = 0; c < C; ++c)
      most[0] = std::max(most[0], std::abs(row[c])),
      most[1] = c == 5 ? most[1] : std::max(most[1], std::abs(row[c]));
    largest = std::max(largest, most[0]);
    for (Dim c = 0; c < C; ++c) {
      if (c == 5) continue;
      size += row[c] * row[c];
      for (int k = 0; k < 2; ++k)
        error[k] += std::pow(row[c] - std::round(row[c] / (most[k] / 127)) * (most[k] / 127), 2);
    }
  }
  EXPECT_NEAR(in.largest, largest, 1e-3);
  // A number on the edge may be rounded either way.
  EXPECT_NEAR(in.error, std::sqrt(error[0] / size), 2e-3 * in.error);
  EXPECT_NEAR(in.apart, std::sqrt(error[1] / size), 2e-3 * in.apart);
  EXPECT_LT(in.apart, in.error);
  EXPECT_NEAR(o.inputs[0].error, o.inputs[0].apart, 0.5 * o.inputs[0].error);
  EXPECT_GE(o.features[0].tokens * 8 * 20, rows);
}

TEST(Compare, EqualsPlainLoopsOverBothModels) {
  for (const char* name : {"llama3", "bert", "t5"}) {
    Device device({.threads = 1}), second({.threads = 1});
    Model a(test::toy_recipe(name), device.real), b(test::toy_recipe(name), device.real);
    test::randomise(a, 3);
    test::copy_weights(a, b);
    const std::vector<std::int32_t> ids = test::toy_ids(37);
    const bool both = a.encoder && a.decoder;
    const std::vector<std::int32_t> source = both ? test::toy_ids(9) : std::vector<std::int32_t>{};
    const Comparison same = compare(device, a, second, b, ids, source);
    EXPECT_EQ(same.agree, 1);
    EXPECT_EQ(same.kl_at(1), 0);
    for (const ComparedLayer& l : same.layers) {
      EXPECT_EQ(l.error, 0);
      EXPECT_NEAR(l.cosine, 1, 1e-12);
    }
    for (Weight& w : b.weights)
      if (w.name.find(".1.") != std::string::npos)
        for (Dim r = 0; r < w.rows; ++r) w.set(r, 0, w.get(r, 0) * 1.5 + 0.1);
    const Comparison c = compare(device, a, second, b, ids, source);
    ASSERT_TRUE(c.same_shape && c.same_heads && c.predicts) << name;
    const auto run_plain = [&](const Model& m) {
      return test::naive_forward(m, {.tokens = ids, .types = {}, .source = source});
    };
    const std::vector<double> la = run_plain(a), lb = run_plain(b);
    const std::vector<std::int32_t> truth = truth_of(a, ids);
    double loss[2] = {}, said = 0, agree = 0;
    for (std::size_t t = 0; t < 37; ++t) {
      const double *x = &la[t * 31], *y = &lb[t * 31];
      double sx = 0, sy = 0, kl = 0;
      for (int v = 0; v < 31; ++v) sx += std::exp(x[v]), sy += std::exp(y[v]);
      for (int v = 0; v < 31; ++v) kl += std::exp(x[v]) / sx * (x[v] - y[v] - std::log(sx / sy));
      EXPECT_NEAR(c.kl[t], kl, 1e-4) << name;
      agree += std::max_element(x, x + 31) - x == std::max_element(y, y + 31) - y;
      if (truth[t] < 0) continue;
      loss[0] += std::log(sx) - x[truth[t]], loss[1] += std::log(sy) - y[truth[t]], said += 1;
    }
    EXPECT_NEAR(c.agree, agree / 37, 1e-9) << name;
    for (int i = 0; i < 2; ++i)
      EXPECT_NEAR(c.perplexity[i], std::exp(loss[i] / said), 1e-4 * c.perplexity[i]) << name;
    for (const ComparedLayer& l : c.layers) {
      if (l.stack != last_stack(a) || l.row == 0) continue;
      const std::vector<double> x = test::naive_residual(a, l.row, ids, source),
                                y = test::naive_residual(b, l.row, ids, source);
      double difference = 0, size = 0, cosine = 0;
      for (std::size_t t = 0; t < 37; ++t) {
        double ab = 0;
        for (std::size_t i = t * C; i < (t + 1) * C; ++i)
          ab += x[i] * y[i], difference += (x[i] - y[i]) * (x[i] - y[i]), size += x[i] * x[i];
        cosine += ab / length(&x[t * C], C) / length(&y[t * C], C) / 37;
      }
      EXPECT_NEAR(l.cosine, cosine, 1e-4) << name;
      EXPECT_NEAR(l.error, std::sqrt(difference / size), 1e-4) << name;
    }
    // Heads of layer 0 read the same in both; those after it do not.
    for (const ComparedHead& h : c.heads) {
      if (h.stack != last_stack(a) || both) continue;
      if (h.layer == 0) {
        EXPECT_EQ(h.first[0], h.first[1]);
      } else {
        EXPECT_NE(h.entropy[0], h.entropy[1]);
      }
    }
  }
}

// Heads against full matrices, which have rows and keys of the learned sink tokens too.
TEST(Compare, HeadsLookAtTheTextNotAtLearnedSinkTokens) {
  for (const Dim sinks : {0, 2}) {
    Device device({.threads = 1});
    Model model(with_settings(test::toy_recipe("llama3"),
                              std::vector<std::string>{"embed.sink_tokens=" + std::to_string(sinks)}),
                device.real);
    test::randomise(model, 3, 1.6);
    const std::vector<std::int32_t> ids = test::toy_ids(17);
    test::NaiveWeights dense;
    test::naive_forward(model, {.tokens = ids, .types = {}, .source = {}}, &dense);
    const Comparison c = compare(device, model, device, model, ids);
    ASSERT_EQ(c.heads.size(), 3u * 4u);
    for (const ComparedHead& h : c.heads) {
      const std::vector<double>& all = dense.at("decoder." + std::to_string(h.layer) + ".self");
      const Dim n = 17 + sinks;
      double first = 0, entropy = 0;
      for (Dim r = sinks; r < n; ++r) {
        const double* row = &all[static_cast<std::size_t>((h.head * n + r) * n)];
        first += row[sinks] / 17;
        for (Dim k = 0; k < n; ++k) entropy -= row[k] > 0 ? row[k] * std::log(row[k]) / 17 : 0;
      }
      for (int i = 0; i < 2; ++i) {
        EXPECT_NEAR(h.first[i], first, 1e-5) << sinks;
        EXPECT_NEAR(h.entropy[i], entropy, 1e-4) << sinks;
      }
    }
  }
}

TEST(Compare, WhatCannotBeComparedIsLeftOut) {
  Device device({.threads = 1});
  Model a(test::toy_recipe("llama3", 2), device.real), b(test::toy_recipe("llama3", 3), device.real);
  test::randomise(a, 3);
  test::randomise(b, 3);
  const Comparison c = compare(device, a, device, b, test::toy_ids(5));
  EXPECT_FALSE(c.same_shape);
  EXPECT_FALSE(c.same_heads);
  EXPECT_TRUE(c.layers.empty() && c.heads.empty());
  EXPECT_TRUE(c.predicts);
  EXPECT_EQ(c.kl.size(), 5u);
}

TEST(Positions, RopeSinusoidAlibiAndBucketsAreTheirFormulas) {
  Device device({.threads = 1});
  const Positions llama = positions(device, preset("llama3"), nullptr);
  ASSERT_EQ(llama.rope.size(), 1u);
  EXPECT_EQ(llama.rope[0].layers.size(), 32u);
  ASSERT_EQ(llama.rope[0].radians.size(), 64u);
  EXPECT_NEAR(places_per_turn(llama.rope[0].radians[63]),
              2 * std::numbers::pi * std::pow(500000.0, 126.0 / 128), 1);
  // Llama 3.1 slows long waves eightfold and leaves short ones.
  const RopePairs scaled = positions(device, preset("llama3.1"), nullptr).rope[0];
  EXPECT_NEAR(scaled.radians[63], scaled.unscaled[63] / 8, 1e-12);
  EXPECT_EQ(scaled.radians[0], scaled.unscaled[0]);
  // Local and global layers turn differently.
  EXPECT_EQ(positions(device, preset("gemma3"), nullptr).rope.size(), 2u);

  const Positions paper = positions(device, preset("transformer-2017"), nullptr, {.positions = 40});
  ASSERT_TRUE(paper.sinusoid);
  ASSERT_EQ(paper.shown, 40);
  const double width = static_cast<double>(paper.width);
  EXPECT_NEAR(paper.table[static_cast<std::size_t>(37 * paper.width + 10)],
              std::sin(37 * std::pow(10000.0, -10 / width)), 1e-5);
  EXPECT_NEAR(paper.table[static_cast<std::size_t>(37 * paper.width + 11)],
              std::cos(37 * std::pow(10000.0, -10 / width)), 1e-5);
  double cosine = 0;  // of places 3 and 8: the mean of cos(5 * frequency)
  for (Dim i = 0; i < paper.width; i += 2)
    cosine += std::cos(5 * std::pow(10000.0, -static_cast<double>(i) / width)) / (width / 2);
  EXPECT_NEAR(paper.similarity[3 * 40 + 8], cosine, 1e-5);

  Recipe alibi = test::toy_recipe("llama3");
  for (PartRecipe& p : alibi.decoder->kinds["L"].parts)
    if (AttnRecipe* a = p.self())
      a->pos = {.kind = PosRecipe::Kind::alibi}, a->heads = a->kv_heads = 8, a->head_dim = 3, a->v_dim = 0;
  const Positions slopes = positions(device, alibi, nullptr);
  ASSERT_EQ(slopes.alibi.size(), 1u);
  EXPECT_EQ(slopes.alibi[0].layers, (std::vector<int>{0, 1, 2}));
  for (std::size_t h = 0; h < 8; ++h)
    EXPECT_EQ(slopes.alibi[0].slopes[h], std::exp2(-static_cast<double>(h + 1)));

  Model t5(test::toy_recipe("t5"), device.real);
  test::randomise(t5, 3);
  const Positions buckets = positions(device, t5.recipe, &t5);
  ASSERT_EQ(buckets.buckets.size(), 2u);
  const BucketTable &encoder = buckets.buckets[0], &decoder = buckets.buckets[1];
  EXPECT_TRUE(encoder.both_ways);
  EXPECT_FALSE(decoder.both_ways);
  for (const BucketTable* b : {&encoder, &decoder}) {
    ASSERT_EQ(b->distances.size(), b->bucket.size());
    ASSERT_EQ(b->bias.size(), b->bucket.size() * 4);
    for (std::size_t i = 0; i < b->bucket.size(); ++i) {
      const Dim d = b->distances[i];
      EXPECT_EQ(relative_bucket(d, b->count, b->max, b->both_ways), b->bucket[i]);
      if (d == 0) continue;
      // The nearest.
      EXPECT_NE(relative_bucket(d < 0 ? d + 1 : d - 1, b->count, b->max, b->both_ways), b->bucket[i]) << d;
    }
  }
  const Weight& table = t5.weight("decoder.buckets");
  EXPECT_NEAR(decoder.bias[2], table.get(decoder.bucket[0], 2), 1e-6);
}

TEST(Positions, LearnedVectorsComeFromTheWeights) {
  Device device({.threads = 1});
  Model model(test::toy_recipe("gpt2"), device.real);
  test::randomise(model, 3);
  const Positions p = positions(device, model.recipe, &model, {.positions = 10});
  ASSERT_TRUE(p.learned);
  ASSERT_EQ(p.norms.size(), 40u);
  const Weight& w = model.weight("embed.positions");
  std::vector<double> rows;
  for (Dim r : {4, 9})
    for (Dim c = 0; c < C; ++c) rows.push_back(w.get(r, c));
  double dot = 0;
  for (std::size_t c = 0; c < C; ++c) dot += rows[c] * rows[C + c];
  EXPECT_NEAR(p.norms[9], length(&rows[C], C), 1e-5);
  EXPECT_NEAR(p.similarity[4 * 10 + 9], dot / length(rows.data(), C) / length(&rows[C], C), 1e-5);
  EXPECT_TRUE(positions(device, model.recipe, nullptr).table.empty());
}

}  // namespace
}  // namespace rapt
