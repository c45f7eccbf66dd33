// SPDX-License-Identifier: Apache-2.0
// The health meter against a dense reference in double: attention weights, queries, keys and activations are
// tapped one by one and every figure is computed from them by its definition.
#include "rapt/inspect/health.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "rapt/nn/model.h"
#include "rapt/ops/loss.h"
#include "tests/model_tools.h"
#include "tests/tools.h"

namespace rapt::test {
namespace {

using Place = std::pair<Stack, int>;

struct Dense {  // what one pass showed
  std::map<Place, std::map<std::pair<Dim, Dim>, std::vector<double>>> weights;  // by (row, head)
  std::map<Place, std::vector<double>> q, k, gate, residual;
  std::map<Place, Dim> heads, kv_heads, d;
};

LayerRecipe layer_of(const AttnRecipe& attn, bool cross = false) {
  LayerRecipe layer;
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = attn});
  AttnRecipe plain{.cross = true, .heads = 4};
  plain.mask = AttnRecipe::MaskKind::full;
  if (cross) layer.parts.push_back({.norm_in = NormRecipe{}, .body = plain});
  layer.parts.push_back({.norm_in = NormRecipe{}, .body = FfnRecipe{.width = 40}});
  return layer;
}

Recipe recipe_of() {
  Recipe r;
  r.width = 24;
  r.vocab = 31;
  r.context = 128;
  return r;
}

AttnRecipe rotary(Dim window = 0, Dim keep = 0) {
  AttnRecipe a{.heads = 4, .kv_heads = 2, .window = window, .keep = keep};
  a.pos.kind = PosRecipe::Kind::rope;
  return a;
}

AttnRecipe full() {
  AttnRecipe a{.heads = 4};
  a.mask = AttnRecipe::MaskKind::full;
  return a;
}

Recipe decoder(const AttnRecipe& attn) {
  Recipe r = recipe_of();
  r.decoder = StackRecipe{.layers = 2, .kinds = {{"L", layer_of(attn)}}, .final_norm = NormRecipe{}};
  return r;
}

Dense look(Device& device, const Model& model, const PackedBatch& packed) {
  Dense dense;
  rapt::Run run(device);
  Taps taps;
  run.taps = &taps;
  Dim rows = 0;
  auto keep = [](std::map<Place, std::vector<double>>& to) {
    return [&to](const Tapped& t) {
      if (t.cross) return;
      for (double v : all_values(t.value)) to[{t.stack, t.layer}].push_back(v);
    };
  };
  taps.see(site::q, [&](const Tapped& t) {
    if (t.cross) return;
    rows = t.value[0];
    dense.heads[{t.stack, t.layer}] = t.value[1];
    dense.d[{t.stack, t.layer}] = t.value[2];
    keep(dense.q)(t);
  });
  taps.see(site::k, [&](const Tapped& t) {
    if (t.cross) return;
    dense.kv_heads[{t.stack, t.layer}] = t.value[1];
    keep(dense.k)(t);
  });
  see_gates(taps, keep(dense.gate));
  taps.see(site::resid_out, keep(dense.residual));
  taps.want_weights(
      site::attn_weights,
      [&](const Tapped& where) {
        std::vector<Taps::HeadRow> all;
        if (where.cross) return all;
        for (Dim r = 0; r < rows; ++r)
          for (Dim h = 0; h < dense.heads.at({where.stack, where.layer}); ++h) all.push_back({h, r});
        return all;
      },
      [&](const Tapped& t) { dense.weights[{t.stack, t.layer}][{t.row, t.head}] = all_values(t.value); });
  forward(run, model, packed.batch, packed.source_or_null());
  return dense;
}

double lower_median(std::vector<double> x) {
  for (double& v : x) v = std::abs(v);
  std::sort(x.begin(), x.end());
  return x[(x.size() - 1) / 2];
}

// Every figure by its definition. A row at position p sees key j of its sequence where `sees` says so.
LayerHealth reference(const Dense& dense, const Place& place, std::span<const Sequence> sequences,
                      const std::function<bool(Dim, Dim)>& sees, double threshold) {
  LayerHealth out{.stack = place.first, .layer = place.second};
  const Dim heads = dense.heads.at(place), group = heads / dense.kv_heads.at(place), d = dense.d.at(place);
  const auto &q = dense.q.at(place), &k = dense.k.at(place), &residual = dense.residual.at(place);
  double sinks = 0, pairs = 0, entropy = 0, rows = 0;
  out.max_logit = -HUGE_VAL;
  for (const Sequence& s : sequences)
    for (Dim h = 0; h < heads; ++h) {
      double sum = 0, count = 0;
      for (Dim p = 0; p < s.count; ++p) {
        const std::vector<double>& w = dense.weights.at(place).at({s.first + p, h});
        if (sees(p, 0)) sum += w[0];
        count += 1;
        for (double x : w) entropy -= x > 0 ? x * std::log(x) : 0;
        rows += 1;
        for (Dim j = 0; j < s.count; ++j) {
          if (!sees(p, j)) continue;
          double dot = 0;
          for (Dim c = 0; c < d; ++c)
            dot += q[static_cast<std::size_t>(((s.first + p) * heads + h) * d + c)] *
                   k[static_cast<std::size_t>(((s.first + j) * (heads / group) + h / group) * d + c)];
          out.max_logit = std::max(out.max_logit, dot / std::sqrt(static_cast<double>(d)));
        }
      }
      EXPECT_GT(std::abs(sum / count - threshold), 1e-4) << "too close to call";
      sinks += sum / count > threshold;
      pairs += 1;
    }
  out.sink = sinks / pairs;
  out.entropy = entropy / rows;
  double top = 0;
  for (double v : residual) top = std::max(top, std::abs(v));
  out.massive = top / lower_median(residual);
  if (const auto gate = dense.gate.find(place); gate != dense.gate.end()) {
    double closed = 0, all = 0;
    for (double v : gate->second) closed += v < 0.1, all += v;
    out.gate = closed / static_cast<double>(gate->second.size());
    out.gate_mean = all / static_cast<double>(gate->second.size());
  }
  return out;
}

// `twice`: with a tape and recomputation, there and back.
std::vector<LayerHealth> measured(Device& device, const Model& model, const PackedBatch& packed,
                                  double threshold = 0.3, bool twice = false) {
  rapt::Run run(device);
  Taps taps;
  run.taps = &taps;
  HealthMeter meter(taps, threshold);
  meter.start(packed.batch.sequences, packed.source.sequences);
  Gradients gradients(device.real);
  Tape tape(gradients);
  if (twice) run.tape = &tape, run.recompute = true;
  const Tensor logits = forward(run, model, packed.batch, packed.source_or_null());
  if (twice) backward(run, cross_entropy(run, logits, packed.tokens).mean);
  return meter.finish();
}

void expect_equal(const LayerHealth& got, const LayerHealth& want, double limit, const std::string& where) {
  EXPECT_EQ(got.stack, want.stack) << where;
  EXPECT_EQ(got.layer, want.layer) << where;
  EXPECT_DOUBLE_EQ(got.sink, want.sink) << where;
  auto near = [&](double a, double b, const char* what) {
    EXPECT_NEAR(a, b, limit * std::max(1.0, std::abs(b))) << where << " " << what;
  };
  near(got.entropy, want.entropy, "entropy");
  near(got.max_logit, want.max_logit, "max_logit");
  near(got.massive, want.massive, "massive");
  near(got.gate, want.gate, "gate");
  near(got.gate_mean, want.gate_mean, "gate_mean");
}

const Dim kLengths[] = {17, 1, 30, 5, 2, 9};

struct Case {
  std::string name;
  Recipe recipe;
  std::function<bool(Dim, Dim)> decoder_sees, encoder_sees;
};

std::vector<Case> cases() {
  auto causal = [](Dim p, Dim j) { return j <= p; };
  auto all = [](Dim, Dim) { return true; };
  std::vector<Case> out;
  out.push_back({"decoder", decoder(rotary()), causal, all});
  out.push_back({"window", decoder(rotary(6)), [](Dim p, Dim j) { return j <= p && j > p - 6; }, all});
  AttnRecipe gated = rotary();
  gated.gate = {{.at = GateRecipe::At::sdpa},
                {.at = GateRecipe::At::q, .grain = GateGrain::head},
                {.at = GateRecipe::At::k},
                {.at = GateRecipe::At::v},
                {.at = GateRecipe::At::out}};
  out.push_back({"gates", decoder(gated), causal, all});
  Recipe encoder = recipe_of();
  encoder.encoder = StackRecipe{.layers = 2, .kinds = {{"L", layer_of(full())}}, .final_norm = NormRecipe{}};
  out.push_back({"encoder", encoder, causal, all});
  Recipe both = encoder;
  both.decoder =
      StackRecipe{.layers = 2, .kinds = {{"L", layer_of(rotary(), true)}}, .final_norm = NormRecipe{}};
  out.push_back({"both", both, causal, all});
  return out;
}

TEST(Health, EveryFigureAsItsDefinitionSays) {
  double mixed = 0;
  for (const Case& c : cases())
    for (const char* isa : {"f64", ""}) {
      Device device({.threads = 2, .isa = isa});
      Model model(c.recipe, device.real);
      randomise(model, 3, 2);
      const PackedBatch packed(some_texts(model.recipe, kLengths, 11));
      const Dense dense = look(device, model, packed);
      const std::vector<LayerHealth> got = measured(device, model, packed);
      const std::string name = c.name + (*isa ? " f64" : " f32");
      std::vector<Place> places;
      for (const auto& [place, ignored] : dense.weights) places.push_back(place);
      ASSERT_EQ(got.size(), places.size()) << name;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const bool encoder = places[i].first == Stack::encoder;
        const auto& sequences =
            encoder && packed.has_source ? packed.source.sequences : packed.batch.sequences;
        const LayerHealth want =
            reference(dense, places[i], sequences, encoder ? c.encoder_sees : c.decoder_sees, 0.3);
        expect_equal(got[i], want, *isa ? 1e-9 : 2e-4, concat(name, " ", i));
        mixed += want.sink > 0 && want.sink < 1;
        if (c.name == "gates") EXPECT_TRUE(got[i].gate > 0 && got[i].gate < 1) << got[i].gate;
        else EXPECT_EQ(got[i].gate, -1);
      }
    }
  EXPECT_GT(mixed, 10);  // the toys tell heads apart
}

TEST(Health, RecomputationAndThreadsShowTheSame) {
  for (const Case& c : cases()) {
    Device one({.threads = 1}), three({.threads = 3});
    Model model(c.recipe, one.real);
    randomise(model, 3, 2);
    const PackedBatch packed(some_texts(model.recipe, kLengths, 11));
    const auto plain = measured(one, model, packed), twice = measured(three, model, packed, 0.3, true);
    ASSERT_EQ(plain.size(), twice.size());
    for (std::size_t i = 0; i < plain.size(); ++i) expect_equal(twice[i], plain[i], 0, c.name);
  }
}

// The first six rows of a window of six see the first key, the others give it nothing. Kept first keys are
// seen by all.
TEST(Health, RowsThatDoNotSeeTheFirstKeyGiveItNothing) {
  Device device({.threads = 1, .isa = "f64"});
  const Dim length[] = {40};
  double sink[2];
  for (bool keep : {false, true}) {
    // Zero weights: every row spreads evenly over what it sees.
    Model model(decoder(rotary(6, keep ? 1 : 0)), device.real);
    const PackedBatch packed(some_texts(model.recipe, length, 1));
    // 1, 1/2 … 1/6 and 34 times nothing have the mean 0.061; with the kept key 34 rows of 1/7 follow,
    // and the mean is 0.183.
    sink[keep] = measured(device, model, packed, 0.1)[0].sink;
    const double mean = (1 + 1 / 2. + 1 / 3. + 1 / 4. + 1 / 5. + 1 / 6. + (keep ? 34 / 7. : 0)) / 40;
    EXPECT_EQ(measured(device, model, packed, mean - 1e-9)[0].sink, 1) << keep;
    EXPECT_EQ(measured(device, model, packed, mean + 1e-9)[0].sink, 0) << keep;
  }
  EXPECT_EQ(sink[0], 0);
  EXPECT_EQ(sink[1], 1);
}

// One token repeated gives equal states, so a model with rotary positions spreads evenly and has no sink (Gu
// et al. 2025, table 1).
TEST(Health, ARepeatedTokenHasNoSink) {
  Device device({.threads = 1});
  Model model(decoder(rotary()), device.real);
  randomise(model, 3, 2);
  SomeText text{.tokens = std::vector<std::int32_t>(64, 7)};
  const PackedBatch packed({&text, 1});
  // Equal keys for every position: what is left of a sink would be the meter's.
  for (Weight& w : model.weights)
    if (w.name.ends_with(".k.weight"))
      for (Dim i = 0; i < w.size(); ++i) w.set(i / w.cols, i % w.cols, 0);
  double entropy = 0;
  for (int t = 1; t <= 64; ++t) entropy += std::log(t) / 64;
  for (const LayerHealth& h : measured(device, model, packed)) {
    EXPECT_EQ(h.sink, 0);
    EXPECT_NEAR(h.entropy, entropy, 1e-4);
    EXPECT_EQ(h.max_logit, 0);
  }
  EXPECT_EQ(measured(device, model, packed, 0.07)[0].sink, 1);  // the mean of 1/t is 0.0741
}

TEST(Health, SeveralPassesAreOneResultAndNothingIsLeftBehind) {
  Device device({.threads = 1});
  Model model(decoder(rotary()), device.real);
  randomise(model, 3, 2);
  const Dim first_lengths[] = {17, 1}, second_lengths[] = {30};
  const PackedBatch first(some_texts(model.recipe, first_lengths, 11)),
      second(some_texts(model.recipe, second_lengths, 12));
  const LayerHealth a = measured(device, model, first)[1], b = measured(device, model, second)[1];
  rapt::Run run(device);
  Taps taps;
  run.taps = &taps;
  HealthMeter meter(taps);
  forward(run, model, first.batch);  // not announced
  EXPECT_TRUE(meter.finish().empty());
  meter.start(first.batch.sequences);
  forward(run, model, first.batch);
  meter.start(second.batch.sequences);
  forward(run, model, second.batch);
  const LayerHealth both = meter.finish()[1];
  EXPECT_DOUBLE_EQ(both.sink, (2 * a.sink + b.sink) / 3);
  EXPECT_NEAR(both.entropy, (18 * a.entropy + 30 * b.entropy) / 48, 1e-9);
  EXPECT_EQ(both.max_logit, std::max(a.max_logit, b.max_logit));
  EXPECT_EQ(both.massive, std::max(a.massive, b.massive));
  EXPECT_TRUE(meter.finish().empty());
  meter.start(first.batch.sequences);
  EXPECT_TRUE(holds(error_of([&] { forward(run, model, second.batch); }), "told of 2 sequences"));
}

TEST(Health, SinkTokensAndLargeStreams) {
  Device device({.threads = 2});
  Recipe recipe = decoder(rotary());
  recipe.embed.sink_tokens = 2;
  Model model(recipe, device.real);
  randomise(model, 4, 2);
  const Dim lengths[] = {100, 90, 120};
  const PackedBatch packed(some_texts(model.recipe, lengths, 11));
  const Dense dense = look(device, model, packed);
  const std::vector<LayerHealth> got = measured(device, model, packed);
  ASSERT_EQ(got.size(), 2u);
  for (const LayerHealth& h : got) {  // 316 rows of 24 are more than the sample
    const std::vector<double>& x = dense.residual.at({h.stack, h.layer});
    double top = 0;
    for (double v : x) top = std::max(top, std::abs(v));
    EXPECT_NEAR(h.massive, top / lower_median(x), 0.1 * h.massive);
  }
}

}  // namespace
}  // namespace rapt::test
