// SPDX-License-Identifier: Apache-2.0
// The right token of a row is the next one for decoders, its own for encoders.
#include "rapt/inspect/look.h"

#include <algorithm>
#include <cmath>

#include "rapt/ops/loss.h"

namespace rapt {

std::string row_name(int row) { return row == 0 ? "embed" : std::to_string(row - 1); }

Stack last_stack(const Model& model) { return model.decoder ? Stack::decoder : Stack::encoder; }

const LayerStack& stack_of(const Model& model, Stack stack) {
  return stack == Stack::encoder ? *model.encoder : *model.decoder;
}

Tensor text_rows(const Model& model, Stack stack, const Tensor& value) {
  const Dim before = stack == last_stack(model) ? model.recipe.embed.sink_tokens : 0;
  return before > 0 ? value.slice(before, value[0] - before) : value;
}

const Part& part_of(const Model& model, const Tapped& t) {
  return stack_of(model, t.stack)
      .layers[static_cast<std::size_t>(t.layer)]
      .parts[static_cast<std::size_t>(t.part)];
}
int part_number(const Part& part) { return part.of > 1 ? part.number + 1 : 0; }
std::string layer_label(int layer, int number) {
  return number > 0 ? concat(layer, ".", number) : std::to_string(layer);
}

Batch batch_of(const Model& model, Ids ids) {
  if (ids.picture) return picture_batch(model.recipe, {ids.picture, 1});
  return {.tokens = ids, .sequences = {{.first = 0, .count = static_cast<Dim>(ids.size())}}};
}

void look(Device& device, const Model& model, Taps& taps, Ids ids, Ids source) {
  if (ids.empty()) fail("inspect: the text has no tokens");
  Run run(device);
  run.taps = &taps;
  Batch text = batch_of(model, ids);
  const Batch from = batch_of(model, source);
  if (!model.recipe.head.pools()) text.want = kWantLast;
  forward(run, model, text, source.empty() ? nullptr : &from);
}

void watch_residual(Taps& taps, const Model& model, const SeeRow& see) {
  for (const auto* stack : {&model.encoder, &model.decoder})
    if (*stack && (*stack)->recurrent)
      fail("inspect: model ", model.recipe.name,
           " is made of recurrent cells; it has no residual stream to look at");
  taps.see(site::embed,
           [&model, see](const Tapped& t) { see(t.stack, 0, text_rows(model, t.stack, t.value)); });
  taps.see(site::resid_out,
           [&model, see](const Tapped& t) { see(t.stack, t.layer + 1, text_rows(model, t.stack, t.value)); });
}

void need_vocabulary(const Model& model, std::string_view view) {
  const HeadRecipe::Kind kind = model.recipe.head.kind;
  if (kind == HeadRecipe::Kind::none)
    fail(view, ": model ", model.recipe.name,
         " has no output matrix (it gives hidden states), so there are no tokens to read off; norms "
         "and massive work without one");
  if (kind == HeadRecipe::Kind::vector)
    fail(view, ": model ", model.recipe.name, " gives one vector for what it reads, no tokens");
  if (kind == HeadRecipe::Kind::classes)
    fail(view, ": model ", model.recipe.name,
         " is a classifier: its head reads one row of the text and gives classes, no tokens");
}

void through_head(Device& device, const Model& model, const Tensor& x,
                  const std::function<void(Dim first, const Tensor& logits)>& see) {
  Run run(device);
  for (Dim first = 0; first < x[0]; first += kHeadRows) {
    run.reset();
    const Tensor rows = x.slice(first, std::min(kHeadRows, x[0] - first)).constant();
    see(first, head_logits(run, model, apply(run, stack_of(model, last_stack(model)).final_norm, rows)));
  }
}

std::vector<std::int32_t> truth_of(const Model& model, Ids ids) {
  std::vector<std::int32_t> truth(ids.begin(), ids.end());
  if (!model.decoder || ids.empty()) return truth;
  truth.erase(truth.begin());
  truth.push_back(-1);
  return truth;
}

std::vector<double> token_losses(Device& device, const Model& model, Taps& taps, Ids ids, Ids source) {
  need_vocabulary(model, "inspect");
  const std::vector<std::int32_t> truth = truth_of(model, ids);
  const int last = stack_of(model, last_stack(model)).depth();
  std::vector<double> losses;
  Taps both = taps;  // the caller's edits and eyes, and ours
  watch_residual(both, model, [&](Stack stack, int row, const Tensor& x) {
    if (stack != last_stack(model) || row != last) return;
    Run run(device);
    through_head(device, model, x, [&](Dim first, const Tensor& logits) {
      run.reset();
      const auto rows = static_cast<std::size_t>(logits[0]);
      const Loss loss =
          cross_entropy(run, logits, std::span(truth).subspan(static_cast<std::size_t>(first), rows));
      for (std::size_t i = 0; i < rows; ++i)
        if (truth[static_cast<std::size_t>(first) + i] >= 0)
          losses.push_back(loss.rows.at(static_cast<Dim>(i)));
    });
  });
  look(device, model, both, ids, source);
  return losses;
}

}  // namespace rapt
