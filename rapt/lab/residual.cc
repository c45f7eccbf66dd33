// SPDX-License-Identifier: Apache-2.0
// What residual connections are for, in three measurements. Forward: attention averages, and averaging again
// and again makes all rows equal (Dong et al. 2021). Backward: what of the last layer's gradient reaches the
// first. Training: a deep stack learns a text with and without. "Without" is a recipe too: in
// norm(x + s f(x)) with a very large s the x is gone, and the same with s = 1 is post-norm.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/activation.h"
#include "rapt/ops/attention.h"
#include "rapt/ops/elementwise.h"
#include "rapt/ops/linear.h"

namespace rapt {
namespace {

constexpr Dim kWidth = 64, kRows = 32;

// |x - mean row| / |x|: 0 where all rows are the same.
double apart(const std::vector<double>& v, std::size_t width) {
  const double rows = static_cast<double>(v.size() / width);
  std::vector<double> mean(width), rest = v;
  for (std::size_t i = 0; i < v.size(); ++i) mean[i % width] += v[i] / rows;
  for (std::size_t i = 0; i < v.size(); ++i) rest[i] -= mean[i % width];
  return length(v) > 0 ? length(rest) / length(v) : 0;
}

// Norms move behind the sum, which is the branch alone but for one part in `scale`.
void take_residual_out(std::vector<PartRecipe>& parts, double scale) {
  for (PartRecipe& p : parts) {
    std::swap(p.norm_in, p.norm_sum);
    p.residual_scale = scale;
  }
}

struct Variant {
  const char* name;  // lab.residual.k.…
  bool residual, feed_forward;
};

Recipe deep(const Lab& lab, const Variant& variant, Dim layers) {
  const NormRecipe norm{.kind = NormRecipe::Kind::layer, .weight = NormRecipe::Gain::none};
  LayerRecipe layer;
  layer.parts.push_back(
      {.norm_in = norm, .body = AttnRecipe{.heads = 4, .mask = AttnRecipe::MaskKind::full}});
  if (variant.feed_forward)
    layer.parts.push_back(
        {.norm_in = norm,
         .body = FfnRecipe{.kind = FfnRecipe::Kind::mlp, .act = Act::relu, .width = 4 * kWidth}});
  if (!variant.residual) take_residual_out(layer.parts, 1e12);
  Recipe recipe;
  recipe.name = "residual";
  recipe.width = kWidth;
  recipe.context = kRows;
  recipe.head.kind = HeadRecipe::Kind::none;
  recipe.init.scheme = InitRecipe::Scheme::xavier;
  recipe.encoder = StackRecipe{.layers = layers, .kinds = {{"L", layer}}};
  if (lab.change) lab.change(say(concat("lab.residual.k.", variant.name)), recipe);
  return recipe;
}

struct Seen {
  std::vector<double> rows;  // how far rows are apart, before the first layer and after each
  double gradient = 0;  // |d/d first input| / |d/d last output|
};

Seen see(Device& f64, const Recipe& recipe, std::uint64_t seed) {
  Model model(recipe, f64.real);
  init(model, seed);
  Run run(f64);
  Gradients gradients(f64.real);
  Tape tape(gradients);
  Taps taps;
  run.taps = &taps;
  run.tape = &tape;
  const Tensor x = normal_tensor(run, {kRows, kWidth}, mix_key(seed, 1));
  Seen out{.rows = {apart(values_of(x), kWidth)}};
  taps.see(site::resid_out, [&](const Tapped& t) { out.rows.push_back(apart(values_of(t.value), kWidth)); });
  const Tensor y = forward(run, model, {.sequences = {{.first = 0, .count = kRows}}, .rows = x});
  backward_from(run, y, mix_key(seed, 2));
  out.gradient = length(gradient_of(run, x)) / length(gradient_of(run, y));
  return out;
}

// The same without norms, op by op: a recipe without them cannot lose its sums. Weights start at `std`; 0: so
// that sizes stay on the average.
double gradient_without_norms(Device& f64, Dim layers, bool residual, double std, std::uint64_t seed) {
  constexpr Dim kHeads = 4, kHidden = 4 * kWidth;
  Run run(f64);
  Gradients gradients(f64.real);
  Tape tape(gradients);
  run.tape = &tape;
  std::vector<Weight> weights;
  weights.reserve(static_cast<std::size_t>(6 * layers));
  auto matrix = [&](Dim rows, Dim cols, double gain) -> const Weight& {
    const double size = std > 0 ? std : gain / std::sqrt(static_cast<double>(cols));
    weights.push_back(normal_weight(f64.real, rows, cols, mix_key(seed, 100 + weights.size()), size));
    weights.back().index = static_cast<int>(weights.size()) - 1;
    return weights.back();
  };
  const RowPlan plan = plan_rows(Mask{}, {{Sequence{.first = 0, .count = kRows}}});
  const AttentionSpec spec{.heads = kHeads,
                           .kv_heads = kHeads,
                           .head_dim = kWidth / kHeads,
                           .v_dim = kWidth / kHeads,
                           .scale = 1 / std::sqrt(static_cast<double>(kWidth / kHeads))};
  const Tensor input = normal_tensor(run, {kRows, kWidth}, mix_key(seed, 1));
  Tensor x = input;
  for (Dim l = 0; l < layers; ++l) {
    auto heads = [&] {
      return linear(run, x, matrix(kWidth, kWidth, 1)).reshape({kRows, kHeads, kWidth / kHeads});
    };
    const AttentionInputs in{.q = heads(), .k = heads(), .v = heads()};
    Tensor y =
        linear(run, attention(run, spec, in, plan).reshape({kRows, kWidth}), matrix(kWidth, kWidth, 1));
    x = residual ? add(run, x, y) : y;
    y = activation(run, Act::relu, linear(run, x, matrix(kHidden, kWidth, 1)));
    y = linear(run, y, matrix(kWidth, kHidden, std::sqrt(2.0)));
    x = residual ? add(run, x, y) : y;
  }
  backward_from(run, x, mix_key(seed, 2));
  return length(gradient_of(run, input)) / length(gradient_of(run, x));
}

// What a model knows that cannot tell rows apart: how often each letter comes.
double letters_entropy(const ToyTask& task, Dim vocab) {
  const CopyTask::Batch some = task(0, 256, 32);
  std::vector<double> count(static_cast<std::size_t>(vocab));
  for (std::int32_t t : some.targets)
    if (t >= 0) count[static_cast<std::size_t>(t)] += 1;
  double all = 0, entropy = 0;
  for (double n : count) all += n;
  for (double n : count) entropy -= n > 0 ? n / all * std::log(n / all) : 0;
  return entropy;
}

}  // namespace

LabResult residual(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  const Dim layers = lab.effort < 0.5 ? 4 : 12;
  const Variant variants[] = {{"attention", false, false},
                              {"attention_ffn", false, true},
                              {"attention_residual", true, false},
                              {"both_residual", true, true}};
  LabResult r;
  Table t{.title = say("lab.residual.table", layers), .columns = {say("lab.residual.stack")}};
  for (Dim l = 0; l <= layers; l += l < 4 ? 1 : 4)
    t.columns.push_back(l == 0 ? say("lab.residual.input") : say("lab.residual.layer", l));
  Chart chart{.title = say("lab.residual.chart"),
              .x_label = say("lab.residual.layers"),
              .y_label = say("lab.residual.apart"),
              .curves = {},
              .log_y = true};
  std::vector<std::vector<double>> all;
  for (const Variant& v : variants) {
    all.push_back(see(f64, deep(lab, v, layers), lab.seed).rows);
    const Text name = say(concat("lab.residual.k.", v.name));
    std::vector<Cell> row = {name};
    Curve c{.name = name, .x = {}, .y = all.back()};
    for (Dim l = 0; l <= layers; ++l) {
      c.x.push_back(static_cast<double>(l));
      if (l < 4 || l % 4 == 0) row.push_back(Cell(all.back()[static_cast<std::size_t>(l)]));
    }
    t.rows.push_back(std::move(row));
    chart.curves.push_back(std::move(c));
  }

  // What of the gradient comes back to the first layer.
  const std::vector<Dim> depths =
      lab.effort < 0.5 ? std::vector<Dim>{1, 4} : std::vector<Dim>{1, 2, 4, 8, 12, 16, 24};
  Chart back{.title = say("lab.residual.back"),
             .x_label = say("lab.residual.layers"),
             .y_label = say("lab.residual.back_y"),
             .curves = {},
             .log_y = true};
  Table back_table{.title = say("lab.residual.back"), .columns = {say("lab.residual.stack")}};
  for (Dim depth : depths) back_table.columns.push_back(say("lab.residual.layer", depth));
  for (const char* name : {"normed_with", "normed_without", "plain_with", "plain_without"})
    back.curves.push_back({.name = say(concat("lab.residual.k.", name)), .x = {}, .y = {}});
  for (Dim depth : depths) {
    if (lab.progress)
      lab.progress(say("lab.residual.layer", depth), static_cast<double>(depth),
                   static_cast<double>(depths.back()) + 1);
    const double gradients[] = {see(f64, deep(lab, variants[3], depth), lab.seed).gradient,
                                see(f64, deep(lab, variants[1], depth), lab.seed).gradient,
                                gradient_without_norms(f64, depth, true, 0.02, lab.seed),
                                gradient_without_norms(f64, depth, false, 0.02, lab.seed)};
    for (std::size_t i = 0; i < 4; ++i) {
      back.curves[i].x.push_back(static_cast<double>(depth));
      back.curves[i].y.push_back(gradients[i]);
    }
  }
  for (const Curve& c : back.curves) {
    back_table.rows.push_back({c.name});
    for (double g : c.y) back_table.rows.back().push_back(Cell(g));
  }

  // A deep stack learns a text.
  const TextTask text = text_task(lab);
  const double letters = letters_entropy(text.task, text.vocab);
  std::vector<Toy> toys;
  for (double scale : {0.0, 1.0, 1e6}) {  // 0: pre-norm; 1: post-norm; else no residual connection is left
    Recipe recipe = with_ffn(toy_recipe(12, 4, text.vocab));
    if (scale > 0) take_residual_out(recipe.decoder->kinds.at("L").parts, scale);
    toys.push_back({.name = say(scale == 0   ? "lab.residual.k.pre"
                                : scale == 1 ? "lab.residual.k.post"
                                             : "lab.residual.k.without"),
                    .recipe = recipe,
                    .task = text.task,
                    .seed = lab.seed,
                    .steps = 200,
                    .batch = 16,
                    .rate = 2e-3});
  }
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));
  Chart learning = loss_chart(say("lab.residual.learning"), runs);
  learning.y_label = say("lab.residual.loss"), learning.log_y = false;
  Table learned{.title = say("lab.residual.learning"),
                .columns = {say("lab.residual.stack"), say("lab.residual.held_out")}};
  for (const Trained& run : runs) learned.rows.push_back({run.name, Cell(run.end().loss)});
  learned.rows.push_back({say("lab.residual.k.letters"), Cell(letters)});

  // Rounding stops the fall near 1e-16, so stacks are compared where it begins.
  const double pure = all[0].back(), feed = all[1].back(), with = std::min(all[2].back(), all[3].back()),
               early = all[1][2] / all[0][2];
  const double kept = back.curves[3].y.back() / back.curves[3].y.front(),
               balanced = gradient_without_norms(f64, depths.back(), false, 0, lab.seed) /
                          gradient_without_norms(f64, depths.front(), false, 0, lab.seed),
               normed = back.curves[1].y.back() / back.curves[0].y.back(),
               worse = runs[2].end().loss - std::min(runs[0].end().loss, runs[1].end().loss),
               known = letters - runs[2].end().loss;
  auto layers_to = [&](const std::vector<double>& stack) {  // until rows differ by less than 1 %
    const auto at = std::find_if(stack.begin(), stack.end(), [](double x) { return x < 0.01; });
    return at == stack.end() ? say("lab.residual.not_within", layers)
                             : say("lab.residual.after", at - stack.begin());
  };
  r.findings = {
      below(say("lab.residual.f.pure"), pure, 0.01, "", say("lab.residual.p.pure")),
      above(say("lab.residual.f.with"), with, 0.2, ""),
      below(say("lab.residual.f.feed"), feed, 0.01, "", say("lab.residual.p.feed")),
      above(say("lab.residual.f.early"), early, 1, "x", say("lab.residual.p.early"), false),
      below(say("lab.residual.f.plain_gradient"), kept, 0.01, "x"),
      above(say("lab.residual.f.balanced"), balanced, 0.01, "x", "", false),
      below(say("lab.residual.f.normed_gradient"), normed, 1, "x", "", false),
      above(say("lab.residual.f.learning"), worse, 0.3, "nats"),
      below(say("lab.residual.f.letters"), known, 0.3, "nats"),
  };
  r.verdict = sentences({say(kept < 0.01 ? "lab.residual.v.gradient" : "lab.residual.v.no_gradient",
                             depths.back(), Cell(kept).text, digits(back.curves[2].y.back(), 2)),
                         say(balanced > 0.01 ? "lab.residual.v.mended" : "lab.residual.v.not_mended",
                             digits(balanced, 2), digits(normed, 2)),
                         say(pure < 0.01 && with > 0.2 ? "lab.residual.v.rows" : "lab.residual.v.no_rows",
                             layers_to(all[0]), layers_to(all[1]), digits(100 * with, 0), layers),
                         say(early < 1 ? "lab.residual.v.hasten" : "lab.residual.v.slow", digits(early, 2)),
                         say(worse > 0.3 ? "lab.residual.v.learning" : "lab.residual.v.no_learning",
                             digits(runs[2].end().loss, 2), digits(runs[0].end().loss, 2),
                             digits(runs[1].end().loss, 2), digits(letters, 2))});
  r.document.parts = {std::move(learning), std::move(chart), std::move(back),
                      std::move(learned),  std::move(t),     std::move(back_table)};
  return r;
}

}  // namespace rapt
