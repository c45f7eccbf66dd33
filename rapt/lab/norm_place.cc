// SPDX-License-Identifier: Apache-2.0
// Xiong et al. 2020 at the start of training: the gradient of the last feed-forward matrix does not depend
// on the depth under post-norm (x = norm(x + f(x))) and falls like 1/sqrt(L) under pre-norm (x = x +
// f(norm(x)), a norm at the end), whose stream grows like sqrt(L).
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/loss.h"

namespace rapt {
namespace {

constexpr Dim kWidth = 128, kVocab = 64, kRows = 16, kSequences = 2;

Recipe stack_recipe(bool pre, Dim layers) {
  const NormRecipe layer_norm{.kind = NormRecipe::Kind::layer, .eps = 1e-5, .bias = true};
  LayerRecipe layer;
  layer.parts.push_back({.body = AttnRecipe{.heads = 4}});
  layer.parts.push_back(
      {.body = FfnRecipe{.kind = FfnRecipe::Kind::mlp, .act = Act::relu, .width = 4 * kWidth}});
  for (PartRecipe& p : layer.parts) (pre ? p.norm_in : p.norm_sum) = layer_norm;
  Recipe r;
  r.name = pre ? "pre-norm" : "post-norm";
  r.width = kWidth;
  r.vocab = kVocab;
  r.context = kRows;
  r.embed.pos = EmbedRecipe::Pos::sinusoid;
  r.embed.scale_sqrt_width = true;
  r.init.scheme = InitRecipe::Scheme::xavier;
  r.decoder = StackRecipe{.layers = layers, .kinds = {{"L", layer}}};
  if (pre) r.decoder->final_norm = layer_norm;
  return r;
}

struct Depth {
  double stream = 0;  // mean |x_L|
  // Per layer: |d loss / d W2|; cosine of the layer's output with its input.
  std::vector<double> gradients, similar;
};

Depth at_depth(Device& device, bool pre, Dim layers, std::uint64_t seed) {
  Model model(stack_recipe(pre, layers), device.real);
  init(model, seed);
  Run run(device);
  Gradients gradients(device.real);
  Tape tape(gradients);
  Taps taps;
  run.tape = &tape;
  run.taps = &taps;
  Depth d;
  std::vector<double> before;
  auto row_length = [](const std::vector<double>& x, Dim row) {
    return length({x.data() + row * kWidth, static_cast<std::size_t>(kWidth)});
  };
  taps.see(site::embed, [&](const Tapped& t) { before = values_of(t.value); });
  taps.see(site::resid_out, [&](const Tapped& t) {
    const std::vector<double> x = values_of(t.value);
    const Dim rows = t.value[0];
    double cosine = 0;
    d.stream = 0;
    for (Dim r = 0; r < rows; ++r) {
      double dot = 0;
      for (Dim c = 0; c < kWidth; ++c)
        dot += x[static_cast<std::size_t>(r * kWidth + c)] * before[static_cast<std::size_t>(r * kWidth + c)];
      cosine += dot / row_length(x, r) / row_length(before, r) / static_cast<double>(rows);
      d.stream += row_length(x, r) / static_cast<double>(rows);
    }
    d.similar.push_back(cosine);
    before = x;
  });
  std::vector<std::int32_t> tokens, targets;
  for (std::uint64_t i = 0; i < kRows * kSequences; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random_below(kVocab, mix_key(seed, 1), i)));
    targets.push_back(static_cast<std::int32_t>(random_below(kVocab, mix_key(seed, 2), i)));
  }
  Batch batch{.tokens = tokens};
  for (Dim n = 0; n < kSequences; ++n)
    batch.sequences.push_back({.first = n * kRows, .count = kRows, .id = static_cast<std::uint64_t>(n)});
  backward(run, cross_entropy(run, forward(run, model, batch), targets).mean);
  for (Dim l = 0; l < layers; ++l)
    d.gradients.push_back(
        length(gradient_of(gradients, model.weight(concat("decoder.", l, ".ffn.down.weight")))));
  return d;
}

}  // namespace

LabResult norm_place_math(const Lab& lab) {
  LabResult r;
  const std::vector<Dim> depths =
      lab.effort < 0.5 ? std::vector<Dim>{2, 8} : std::vector<Dim>{2, 4, 8, 16, 32};
  const int draws = lab.effort < 0.5 ? 1 : 3;  // means over random weights: one draw is noisy
  Table t{.title = say("lab.norm-place.start", draws),
          .columns = {say("lab.norm-place.layers"), say("lab.norm-place.post_gradient"),
                      say("lab.norm-place.pre_gradient"), say("lab.norm-place.pre_root"),
                      say("lab.norm-place.post_stream"), say("lab.norm-place.pre_stream")},
          .rows = {}};
  Chart chart{.title = say("lab.norm-place.by_depth"),
              .x_label = say("lab.norm-place.layers"),
              .y_label = say("lab.norm-place.gradient"),
              .curves = {},
              .log_y = true};
  Chart inside{.title = say("lab.norm-place.inside", depths.back()),
               .x_label = say("lab.layer"),
               .y_label = say("lab.norm-place.gradient"),
               .curves = {},
               .log_y = true};
  std::vector<double> logs, log_gradient[2], log_stream[2];
  Depth deepest[2];
  chart.curves = {{.name = say("lab.norms.post")}, {.name = say("lab.norms.pre")}};
  for (std::size_t i = 0; i < depths.size(); ++i) {
    const Dim L = depths[i];
    if (lab.progress) lab.progress("depth", static_cast<double>(i), static_cast<double>(depths.size()));
    Depth mean[2];
    for (int pre = 0; pre < 2; ++pre) {
      mean[pre].gradients.assign(static_cast<std::size_t>(L), 0);
      mean[pre].similar.assign(static_cast<std::size_t>(L), 0);
      for (int n = 0; n < draws; ++n) {
        const Depth d = at_depth(lab.device, pre, L, mix_key(lab.seed, static_cast<std::uint64_t>(100 + n)));
        mean[pre].stream += d.stream / draws;
        for (std::size_t l = 0; l < d.gradients.size(); ++l) {
          mean[pre].gradients[l] += d.gradients[l] / draws;
          mean[pre].similar[l] += d.similar[l] / draws;
        }
      }
      chart.curves[static_cast<std::size_t>(pre)].x.push_back(static_cast<double>(L));
      chart.curves[static_cast<std::size_t>(pre)].y.push_back(mean[pre].gradients.back());
      log_gradient[pre].push_back(std::log(mean[pre].gradients.back()));
      log_stream[pre].push_back(std::log(mean[pre].stream));
      if (L == depths.back()) {
        Curve c{.name = say(pre ? "lab.norms.pre" : "lab.norms.post"), .y = mean[pre].gradients};
        for (Dim l = 0; l < L; ++l) c.x.push_back(static_cast<double>(l));
        inside.curves.push_back(std::move(c));
        deepest[pre] = mean[pre];
      }
    }
    logs.push_back(std::log(static_cast<double>(L)));
    t.rows.push_back({Cell(static_cast<double>(L), 0), Cell(mean[0].gradients.back()),
                      Cell(mean[1].gradients.back()),
                      Cell(mean[1].gradients.back() * std::sqrt(static_cast<double>(L))),
                      Cell(mean[0].stream, 1), Cell(mean[1].stream, 1)});
  }
  const double post_law = slope(logs, log_gradient[0]), pre_law = slope(logs, log_gradient[1]),
               growth = slope(logs, log_stream[1]);
  // Gradients and likeness of the last and the first layer at the largest depth.
  double last[2], first[2], late[2], early[2];
  for (int pre = 0; pre < 2; ++pre) {
    first[pre] = deepest[pre].gradients.front(), last[pre] = deepest[pre].gradients.back();
    early[pre] = deepest[pre].similar.front(), late[pre] = deepest[pre].similar.back();
  }
  Table by_layer{
      .title = say("lab.norm-place.by_layer", depths.back()),
      .columns = {say("lab.layer"), say("lab.norm-place.post_gradient"), say("lab.norm-place.pre_gradient"),
                  say("lab.norm-place.post_cosine"), say("lab.norm-place.pre_cosine")},
      .rows = {}};
  for (Dim l = 1; l <= depths.back(); l *= 2) {
    const auto at = static_cast<std::size_t>(l - 1);
    by_layer.rows.push_back({Cell(static_cast<double>(l), 0), Cell(deepest[0].gradients[at]),
                             Cell(deepest[1].gradients[at]), Cell(deepest[0].similar[at]),
                             Cell(deepest[1].similar[at])});
  }
  r.findings = {
      below(say("lab.norm-place.f.pre_law"), pre_law, -0.15, "", say("lab.norm-place.p.pre_law")),
      below(say("lab.norm-place.f.post_law"), std::abs(post_law), 0.2, "", say("lab.norm-place.p.post_law")),
      above(say("lab.norm-place.f.last"), last[0] / last[1], 2, "x", say("lab.norm-place.p.last")),
      above(say("lab.norm-place.f.stream"), growth, 0.25, "", say("lab.norm-place.p.stream")),
      above(say("lab.norm-place.f.cosine"), late[1] - late[0], 0, ""),
  };
  r.verdict =
      all_hold(r.findings)
          ? sentences(
                {say("lab.norm-place.v.post", digits(post_law, 2), digits(last[0], 2), digits(last[1], 2),
                     depths.back()),
                 say("lab.norm-place.v.pre", digits(pre_law, 2), digits(growth, 2), digits(early[1], 2),
                     digits(late[1], 2), digits(early[0], 2), digits(late[0], 2)),
                 say("lab.norm-place.v.first", digits(first[0] / last[0], 2), digits(first[1] / last[1], 2))})
          : say("lab.norm-place.v.not");
  r.document.parts.push_back(std::move(chart));
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(by_layer));
  r.document.parts.push_back(std::move(inside));
  return r;
}

}  // namespace rapt
