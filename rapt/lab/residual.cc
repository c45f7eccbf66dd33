// SPDX-License-Identifier: Apache-2.0
// Attention averages, and averaging again and again makes all rows equal: without residual connections the
// rows of a deep stack collapse onto one (Dong et al. 2021). Measured layer by layer in the engine's own
// forward; an edit takes the residual connections out.
#include <algorithm>
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"

namespace rapt {
namespace {

constexpr Dim kWidth = 64, kRows = 32;

// |x - mean row| / |x|: 0 where all rows are the same.
double apart(const Tensor& x) {
  const std::vector<double> v = values_of(x);
  const auto rows = static_cast<std::size_t>(x[0]), width = static_cast<std::size_t>(x[1]);
  std::vector<double> mean(width), rest = v;
  for (std::size_t i = 0; i < v.size(); ++i) mean[i % width] += v[i] / static_cast<double>(rows);
  for (std::size_t i = 0; i < v.size(); ++i) rest[i] -= mean[i % width];
  return length(rest) / length(v);
}

// Takes the residual connections out of a pass, exactly: the sum of a part's input and result is replaced by
// the result alone, before the next part reads it and where the layer ends.
class NoResidual {
 public:
  explicit NoResidual(Taps& taps) {
    taps.see(site::part_out, [this](const Tapped& t) { result_ = values_of(t.value); });
    const auto replace = [this](const Tapped& t) {
      std::copy(result_.begin(), result_.end(), t.value.as<double>().begin());
    };
    taps.edit(site::resid_in, [replace](const Tapped& t) {
      if (t.part > 0) replace(t);  // the first part's input is the layer's
    });
    taps.edit(site::resid_out, replace);
  }
  NoResidual(const NoResidual&) = delete;

 private:
  std::vector<double> result_;
};

struct Variant {
  const char* name;
  bool residual, feed_forward;
};

std::vector<double> by_depth(Device& f64, const Variant& variant, Dim layers, std::uint64_t seed) {
  const NormRecipe norm{.kind = NormRecipe::Kind::layer, .weight = NormRecipe::Gain::none};
  LayerRecipe layer;
  layer.parts.push_back(
      {.norm_in = norm, .body = AttnRecipe{.heads = 4, .mask = AttnRecipe::MaskKind::full}});
  if (variant.feed_forward)
    layer.parts.push_back(
        {.norm_in = norm,
         .body = FfnRecipe{.kind = FfnRecipe::Kind::mlp, .act = Act::relu, .width = 4 * kWidth}});
  Recipe recipe;
  recipe.name = "residual";
  recipe.width = kWidth;
  recipe.context = kRows;
  recipe.head.kind = HeadRecipe::Kind::none;
  recipe.init.scheme = InitRecipe::Scheme::xavier;
  recipe.encoder = StackRecipe{.layers = layers, .kinds = {{"L", layer}}};
  Model model(recipe, f64.real);
  init(model, seed);

  Run run(f64);
  Taps taps;
  run.taps = &taps;
  std::optional<NoResidual> without;
  if (!variant.residual) without.emplace(taps);
  const Tensor x = normal_tensor(run, {kRows, kWidth}, mix_key(seed, 1));
  std::vector<double> out = {apart(x)};
  taps.see(site::resid_out, [&](const Tapped& t) { out.push_back(apart(t.value)); });
  forward(run, model, {.sequences = {{.first = 0, .count = kRows}}, .rows = x});
  return out;
}

}  // namespace

LabResult residual(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  const Dim layers = lab.effort < 0.5 ? 4 : 12;
  const Variant variants[] = {{"attention only", false, false},
                              {"attention and feed-forward", false, true},
                              {"attention with residual", true, false},
                              {"both with residual", true, true}};
  LabResult r;
  Table t{
      .title = concat("How far the rows are apart: |x - mean row| / |x|, before the first and after each of ",
                      layers, " layers"),
      .columns = {"stack"},
      .rows = {}};
  for (Dim l = 0; l <= layers; l += l < 4 ? 1 : 4)
    t.columns.push_back(l == 0 ? "input" : concat("layer ", l));
  Chart chart{.title = "How far the rows are apart",
              .x_label = "layers",
              .y_label = "|x - mean row| / |x|",
              .curves = {},
              .log_y = true};
  std::vector<std::vector<double>> all;
  for (const Variant& v : variants) {
    all.push_back(by_depth(f64, v, layers, lab.seed));
    std::vector<Cell> row = {v.name};
    Curve c{.name = v.name, .x = {}, .y = all.back()};
    for (Dim l = 0; l <= layers; ++l) {
      c.x.push_back(static_cast<double>(l));
      if (l < 4 || l % 4 == 0) row.push_back(Cell(all.back()[static_cast<std::size_t>(l)]));
    }
    t.rows.push_back(std::move(row));
    chart.curves.push_back(std::move(c));
  }
  // Rounding stops the fall near 1e-16, so stacks are compared where it begins.
  const double pure = all[0].back(), feed = all[1].back(), with = std::min(all[2].back(), all[3].back()),
               early = all[1][2] / all[0][2];
  auto layers_to = [&](const std::vector<double>& stack) {  // until rows differ by less than 1 %
    const auto at = std::find_if(stack.begin(), stack.end(), [](double x) { return x < 0.01; });
    return at == stack.end() ? concat("not within ", layers) : concat("after ", at - stack.begin());
  };
  r.findings = {
      below("rows apart after the last layer, attention alone", pure, 0.01, "",
            "collapses doubly exponentially with depth (Dong et al. 2021)"),
      above("rows apart with residual connections", with, 0.2, ""),
      below("rows apart after the last layer, attention and feed-forward", feed, 0.01, "",
            "not stopped (Dong et al. 2021)"),
      above("rows apart after two layers, with feed-forward against without", early, 1, "x",
            "slowed (Dong et al. 2021)", false),
  };
  r.verdict = concat(
      pure < 0.01 && with > 0.2
          ? "Residual connections do more than carry gradients: in a forward pass, with no gradient at all, "
          : "The collapse did not come, or came in spite of residual connections: ",
      "rows differ by less than 1 % of their length ", layers_to(all[0]), " layers of attention alone and ",
      layers_to(all[1]), " with feed-forward parts (which here ", early < 1 ? "hasten" : "slow", " it, ",
      early < 1 ? "against" : "as in", " Dong et al.: ", digits(early, 2),
      " of the distance without them after two layers); with residual connections they still differ by ",
      digits(100 * with, 0), " % after ", layers, ".");
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(chart));
  return r;
}

}  // namespace rapt
