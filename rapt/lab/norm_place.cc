// SPDX-License-Identifier: Apache-2.0
// Xiong et al. 2020 at the start of training: the gradient of the last feed-forward matrix does not depend on the depth under post-norm
// (x = norm(x + f(x))) and falls like 1/sqrt(L) under pre-norm (x = x + f(norm(x)), a norm at the end), whose stream grows like sqrt(L).
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
  layer.parts.push_back({.kind = PartRecipe::Kind::self, .attn = {.heads = 4}});
  layer.parts.push_back({.kind = PartRecipe::Kind::ffn, .ffn = {.kind = FfnRecipe::Kind::mlp, .act = Act::relu, .width = 4 * kWidth}});
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
  double last_gradient = 0, first_gradient = 0, stream = 0;  // |d loss / d W2| of the last and of the first layer; mean |x_L|
  std::vector<double> gradients, similar;                    // per layer; cosine of a layer's output with its input
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
  taps.see(Site::embed, [&](const Tapped& t) { before = values_of(t.value); });
  taps.see(Site::resid_out, [&](const Tapped& t) {
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
  for (Dim n = 0; n < kSequences; ++n) batch.sequences.push_back({.first = n * kRows, .count = kRows, .id = static_cast<std::uint64_t>(n)});
  backward(run, cross_entropy(run, forward(run, model, batch), targets).mean);
  for (Dim l = 0; l < layers; ++l)
    d.gradients.push_back(length(gradient_of(gradients, model.weight(concat("decoder.", l, ".ffn.down.weight")))));
  d.first_gradient = d.gradients.front();
  d.last_gradient = d.gradients.back();
  return d;
}

}  // namespace

LabResult norm_place_math(const Lab& lab) {
  LabResult r;
  const std::vector<Dim> depths = lab.effort < 0.5 ? std::vector<Dim>{2, 8} : std::vector<Dim>{2, 4, 8, 16, 32};
  const int draws = lab.effort < 0.5 ? 1 : 3;  // means over random weights: one draw is noisy
  Table t{.title = concat("At the start, width 128, mean of ", draws,
                          " draws: gradient of the last W2, length of the stream, likeness of the last layer's output to its input"),
          .columns = {"layers", "post: gradient", "pre: gradient", "pre x sqrt(L)", "post: |x|", "pre: |x|", "post: cosine", "pre: cosine"},
          .rows = {}};
  Chart chart{
      .title = "Gradient of the last feed-forward matrix by depth", .x_label = "layers", .y_label = "", .curves = {}, .log_y = true};
  Chart inside{.title = concat("Gradient of each feed-forward matrix, ", depths.back(), " layers"),
               .x_label = "layer",
               .y_label = "",
               .curves = {},
               .log_y = true};
  std::vector<double> logs, log_gradient[2], log_stream[2];
  double similar[2] = {}, low_over_high[2] = {};
  chart.curves = {{.name = "post-norm", .x = {}, .y = {}}, {.name = "pre-norm", .x = {}, .y = {}}};
  for (std::size_t i = 0; i < depths.size(); ++i) {
    const Dim L = depths[i];
    if (lab.progress) lab.progress("depth", static_cast<double>(i), static_cast<double>(depths.size()));
    Depth mean[2];
    for (int pre = 0; pre < 2; ++pre) {
      mean[pre].gradients.assign(static_cast<std::size_t>(L), 0);
      for (int n = 0; n < draws; ++n) {
        const Depth d = at_depth(lab.device, pre, L, mix_key(lab.seed, static_cast<std::uint64_t>(100 + n)));
        mean[pre].last_gradient += d.last_gradient / draws;
        mean[pre].first_gradient += d.first_gradient / draws;
        mean[pre].stream += d.stream / draws;
        similar[pre] = (n == 0 ? 0 : similar[pre]) + d.similar.back() / draws;
        for (std::size_t l = 0; l < d.gradients.size(); ++l) mean[pre].gradients[l] += d.gradients[l] / draws;
      }
      low_over_high[pre] = mean[pre].first_gradient / mean[pre].last_gradient;
      chart.curves[static_cast<std::size_t>(pre)].x.push_back(static_cast<double>(L));
      chart.curves[static_cast<std::size_t>(pre)].y.push_back(mean[pre].last_gradient);
      log_gradient[pre].push_back(std::log(mean[pre].last_gradient));
      log_stream[pre].push_back(std::log(mean[pre].stream));
      if (L == depths.back()) {
        Curve c{.name = pre ? "pre-norm" : "post-norm", .x = {}, .y = mean[pre].gradients};
        for (Dim l = 0; l < L; ++l) c.x.push_back(static_cast<double>(l));
        inside.curves.push_back(std::move(c));
      }
    }
    logs.push_back(std::log(static_cast<double>(L)));
    t.rows.push_back({Cell(static_cast<double>(L), 0), Cell(mean[0].last_gradient), Cell(mean[1].last_gradient),
                      Cell(mean[1].last_gradient * std::sqrt(static_cast<double>(L))), Cell(mean[0].stream, 1), Cell(mean[1].stream, 1),
                      Cell(similar[0]), Cell(similar[1])});
  }
  const double post_law = slope(logs, log_gradient[0]), pre_law = slope(logs, log_gradient[1]), growth = slope(logs, log_stream[1]);
  r.findings = {
      below("pre-norm: gradient ~ L^a, a", pre_law, -0.15, "",
            "-0.5 in theory (Xiong et al. 2020); 0.42 to 0.19 from L = 2 to 32 in another program"),
      above("post-norm: gradient ~ L^a, a", post_law, -0.15, "", "0: independent of L (Xiong et al. 2020, theorem 1)"),
      above("pre-norm: |x_L| ~ L^a, a", growth, 0.25, "", "sqrt(L); 15.3 to 50.3 from L = 2 to 32 in another program"),
      below("post-norm: |x_L| over sqrt(d), away from 1",
            std::abs(std::exp(log_stream[0].back()) / std::sqrt(static_cast<double>(kWidth)) - 1), 0.01, ""),
      above("likeness of the last layer's output to its input at the largest depth, pre minus post", similar[1] - similar[0], 0, ""),
  };
  r.verdict =
      concat("At the start and at the last layer post-norm's gradient neither explodes nor vanishes with depth (L^", digits(post_law, 2),
             "), pre-norm's falls (L^", digits(pre_law, 2), ") because its stream grows (L^", digits(growth, 2),
             "): that is why pre-norm needs the final norm, and why its late layers change little (cosine of output and input ",
             digits(similar[1], 3), " against ", digits(similar[0], 3), "). Down the stack of ", depths.back(),
             " layers the first layer's gradient is ", digits(low_over_high[0], 2), " of the last one's under post-norm, ",
             digits(low_over_high[1], 2), " under pre-norm.");
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(chart));
  r.document.parts.push_back(std::move(inside));
  return r;
}

}  // namespace rapt
