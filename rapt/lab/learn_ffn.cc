// SPDX-License-Identifier: Apache-2.0
// Why feed-forward parts. For fixed weights attention is linear in the values, and a token that is alone has
// the weights fixed: it gets W_O W_V x. So a model of attention only is compared with one that has
// feed-forward parts, at an equal number of weights: on a text, and on a function of one token that no
// linear map gives.
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_learn.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/nn/size.h"
#include "rapt/ops/loss.h"
#include "rapt/use/optimizer.h"

namespace rapt {
namespace {

// |f(ax + by) - a f(x) - b f(y)| / |f(ax + by)| of one part without norm, for a token that is alone.
double not_linear(Device& f64, AnyPartRecipe body, std::uint64_t seed) {
  constexpr Dim kPartWidth = 32;
  LayerRecipe layer;
  layer.parts.push_back({.body = std::move(body)});
  Recipe recipe;
  recipe.name = "part";
  recipe.width = kPartWidth;
  recipe.context = 1;
  recipe.head.kind = HeadRecipe::Kind::none;
  recipe.init.std = 0.2;
  recipe.encoder = StackRecipe{.layers = 1, .kinds = {{"L", layer}}};
  Model model(recipe, f64.real);
  init(model, seed);
  auto part = [&](const std::vector<double>& x) {  // what the part adds
    Run run(f64);
    std::vector<double> y = values_of(forward(
        run, model, {.sequences = {{.first = 0, .count = 1}}, .rows = run.upload({1, kPartWidth}, x)}));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] -= x[i];
    return y;
  };
  constexpr double kA = 1.5, kB = -0.7;
  const std::vector<double> x = normal_values(mix_key(seed, 1), kPartWidth),
                            y = normal_values(mix_key(seed, 2), kPartWidth);
  std::vector<double> both = x, sum = part(x);
  const std::vector<double> of_y = part(y);
  for (std::size_t i = 0; i < both.size(); ++i) {
    both[i] = kA * x[i] + kB * y[i];
    sum[i] = kA * sum[i] + kB * of_y[i];
  }
  return relative_difference(sum, part(both));
}

// Two layers with feed-forward parts have as many weights in their matrices as five without.
Recipe attention_and_ffn(Dim width, Dim heads, Dim vocab) {
  Recipe r = with_ffn(toy_recipe(2, heads, vocab), 2 * width);
  r.width = width;
  return r;
}
Recipe attention_only(Dim width, Dim heads, Dim vocab) {
  Recipe r = toy_recipe(5, heads, vocab);
  r.width = width;
  return r;
}

// Do the first two numbers of a token have the same sign? Each token of `length` has its own answer; the
// others are no help.
struct SignRun {
  Text name;
  Recipe recipe;
  Dim length = 1;
  std::vector<double> losses;
  double right = 0;  // share of answers on fresh tokens
};

void learn_signs(const Lab& lab, Device& device, SignRun& of) {
  constexpr Dim kRows = 256;
  const Dim width = of.recipe.width, steps = scaled(lab, 600);
  Model model(of.recipe, device.real);
  init(model, lab.seed);
  Optimizer optimizer(model, {.rate = 1e-2, .decay = 0.01});
  const Schedule schedule{
      .kind = Schedule::Kind::cosine, .warmup = std::min<Dim>(20, steps), .total = steps + 1};
  Gradients gradients(device.real);
  Tape tape(gradients);
  Run run(device);
  run.tape = &tape;
  for (Dim step = 0; step <= steps; ++step) {
    run.reset();
    gradients.zero();
    const bool last = step == steps;
    const Dim rows = last ? 8 * kRows : kRows;
    run.tape = last ? nullptr : &tape;
    const std::vector<double> x =
        normal_values(mix_key(mix_key(lab.seed, 0x516), static_cast<std::uint64_t>(step)), rows * width);
    Batch batch{.rows = run.upload({rows, width}, x)};
    std::vector<std::int32_t> targets;
    for (Dim r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(r * width);
      targets.push_back(x[at] * x[at + 1] > 0);
      if (r % of.length == 0)
        batch.sequences.push_back({.first = r, .count = of.length, .id = static_cast<std::uint64_t>(r)});
    }
    const Tensor logits = forward(run, model, batch);
    for (Dim r = 0; last && r < rows; ++r)
      of.right += ((logits.at(2 * r + 1) > logits.at(2 * r)) == (targets[static_cast<std::size_t>(r)] == 1)) /
                  static_cast<double>(rows);
    if (last) break;
    const Loss loss = cross_entropy(run, logits, targets);
    of.losses.push_back(loss.mean.at(0));
    backward(run, loss.mean);
    optimizer.step(device, gradients, optimizer.norm(device, gradients), schedule.at(step));
  }
}

}  // namespace

LabResult feed_forward(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  const double attention =
                   not_linear(f64, AttnRecipe{.heads = 4, .mask = AttnRecipe::MaskKind::full}, lab.seed),
               ffn = not_linear(f64, FfnRecipe{.width = 64}, lab.seed);

  const TextTask text = text_task(lab);
  const Text names[] = {say("lab.ffn.k.both"), say("lab.ffn.k.attention")};
  std::vector<Toy> toys;
  for (int i = 0; i < 2; ++i)
    toys.push_back(
        {.name = names[i],
         .recipe = i == 0 ? attention_and_ffn(48, 4, text.vocab) : attention_only(48, 4, text.vocab),
         .task = text.task,
         .seed = lab.seed,
         .steps = 600,
         .cosine = true});
  Dim weights[2];
  for (int i = 0; i < 2; ++i) weights[i] = count_parameters(toys[static_cast<std::size_t>(i)].recipe).total;
  const std::vector<Trained> runs = train_toys(lab, std::move(toys));

  std::vector<SignRun> signs;
  for (Dim length : {1, 16})
    for (int i = 0; i < 2; ++i) {
      Recipe recipe = i == 0 ? attention_and_ffn(16, 2, 2) : attention_only(16, 2, 2);
      if (lab.change) lab.change(names[i], recipe);
      signs.push_back({.name = names[i], .recipe = std::move(recipe), .length = length});
    }
  Device one(lab.device.kernels, DeviceOptions{.threads = 1});
  for (SignRun& s : signs) learn_signs(lab, one, s);

  LabResult r;
  Table t{.title = say("lab.ffn.table"),
          .columns = {say("lab.variant"), say("lab.ffn.weights"), say("lab.ffn.text_loss"),
                      say("lab.ffn.alone_right"), say("lab.ffn.among_right", signs[2].length)}};
  for (std::size_t i = 0; i < 2; ++i)
    t.rows.push_back({runs[i].name, Cell(static_cast<double>(weights[i]), 0), Cell(runs[i].end().loss),
                      Cell(100 * signs[i].right, 1), Cell(100 * signs[i + 2].right, 1)});
  Chart learning{.title = say("lab.ffn.signs"), .x_label = say("lab.step"), .y_label = say("lab.ffn.loss")};
  for (std::size_t i = 0; i < 2; ++i) {  // tokens that are alone
    Trained as_run{.name = signs[i].name};
    as_run.losses = signs[i].losses;
    learning.curves.push_back(loss_curve(as_run));
  }
  Chart on_text = loss_chart(say("lab.ffn.text"), runs);
  on_text.y_label = say("lab.ffn.text_loss"), on_text.log_y = false;
  const double gain = runs[1].end().loss - runs[0].end().loss;
  r.findings = {
      below(say("lab.ffn.f.attention"), attention, 1e-12, ""),
      above(say("lab.ffn.f.ffn"), ffn, 0.1, ""),
      below(say("lab.ffn.f.alone_attention"), 100 * signs[1].right, 60, "%"),
      above(say("lab.ffn.f.alone_ffn"), 100 * signs[0].right, 85, "%"),
      above(say("lab.ffn.f.among"), 100 * (signs[2].right - signs[3].right), 0, "points", "", false),
      above(say("lab.ffn.f.text"), gain, 0, "nats", "", false),
  };
  r.verdict = sentences(
      {all_hold(r.findings)
           ? say("lab.ffn.v.right", digits(100 * signs[1].right, 0), digits(100 * signs[0].right, 0))
           : say("lab.ffn.v.not", digits(100 * signs[1].right, 0), digits(100 * signs[0].right, 0)),
       say(signs[3].right > 0.6 ? "lab.ffn.v.by_weights" : "lab.ffn.v.not_by_weights", signs[2].length,
           digits(100 * signs[3].right, 0), digits(100 * signs[2].right, 0)),
       say(gain > 0.01    ? "lab.ffn.v.text"
           : gain > -0.01 ? "lab.ffn.v.text_same"
                          : "lab.ffn.v.text_worse",
           digits(runs[0].end().loss, 3), digits(runs[1].end().loss, 3))});
  r.document.parts = {std::move(learning), std::move(t), std::move(on_text)};
  return r;
}

}  // namespace rapt
