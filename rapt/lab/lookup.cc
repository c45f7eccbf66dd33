// SPDX-License-Identifier: Apache-2.0
// One pass sees the weights of every question; one more pass a head says what it was good for.
#include "rapt/lab/lookup.h"

#include <algorithm>
#include <cmath>

#include "rapt/nn/parts/attention.h"
#include "rapt/ops/loss.h"

namespace rapt {

Recipe lookup_recipe(Dim layers, Dim heads) {
  Recipe r = with_ffn(toy_recipe(layers, heads, kLookupVocab));
  self_attn(r).pos.kind = PosRecipe::Kind::none;
  return r;
}

namespace {

// Half the sum of |a - b|: 0 for equal rows of weights, 1 for rows that have no key in common.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]) / 2;
  return sum;
}

}  // namespace

LookupLook look_at_lookup(Device& device, const Model& model, const ToyTask& task, Dim sequences,
                          Dim length) {
  constexpr std::int32_t kItems = 64, kValues = 8;
  const CopyTask::Batch data = task(~std::uint64_t{4}, sequences, length);
  const Dim heads = model.recipe.decoder->layer(0).parts[0].self()->heads, rows = sequences * length;
  auto token = [&](Dim row) { return data.tokens[static_cast<std::size_t>(row)]; };
  LookupLook out{.heads = std::vector<LookupLook::Head>(static_cast<std::size_t>(heads))};
  auto first_of = [&](Dim row) { return (token(row) - kItems) / kValues; };  // the keys a question asks for
  auto second_of = [&](Dim row) { return (token(row) - kItems) % kValues; };
  double questions = 0, pairs = 0, wrong = 0;
  for (Dim r = 0; r < rows; ++r) questions += data.targets[static_cast<std::size_t>(r)] >= 0;

  Run run(device);
  Taps taps;
  run.taps = &taps;
  std::vector<std::vector<double>> weights(static_cast<std::size_t>(rows * heads));
  auto weights_of = [&](Dim row, Dim head) -> std::vector<double>& {
    return weights[static_cast<std::size_t>(row * heads + head)];
  };
  taps.want_weights(
      site::attn_weights,
      [&](const Tapped& where) {
        std::vector<Taps::HeadRow> wanted;
        for (Dim r = 0; where.layer == 0 && r < rows; ++r)
          for (Dim h = 0; token(r) >= kItems && h < heads; ++h) wanted.push_back({h, r});
        return wanted;
      },
      [&](const Tapped& t) {
        LookupLook::Head& head = out.heads[static_cast<std::size_t>(t.head)];
        for (Dim i = 0; i < t.value.elements(); ++i) {
          const std::int32_t seen = token(t.row / length * length + i);
          const double w = t.value.at(i);
          weights_of(t.row, t.head).push_back(w);
          (seen < kItems && seen / kValues == first_of(t.row)    ? head.first
           : seen < kItems && seen / kValues == second_of(t.row) ? head.second
                                                                 : head.rest) += w / questions;
        }
      });
  const Tensor logits = forward(run, model, toy_batch(data, length));
  const Loss loss = cross_entropy(run, logits, data.targets);
  out.loss = loss.mean.at(0);
  for (Dim r = 0; r < rows; ++r) {
    const std::int32_t answer = data.targets[static_cast<std::size_t>(r)];
    if (answer < 0) continue;
    for (Dim a = 0; a < heads; ++a)
      for (Dim b = 0; b < a; ++b, ++pairs) out.apart += apart(weights_of(r, a), weights_of(r, b));
    Dim best = 0;
    for (Dim v = 1; v < logits.last(); ++v)
      if (logits.at(r * logits.last() + v) > logits.at(r * logits.last() + best)) best = v;
    out.wrong += (best != answer) / questions;
    for (Dim h = 0; best != answer && h < heads; ++h, ++wrong) {
      const std::vector<double>& w = weights_of(r, h);
      double most = 0, right_most = 1e-30;
      for (std::size_t i = 0; i < w.size(); ++i) {
        const std::int32_t seen = token(r / length * length + static_cast<Dim>(i));
        const bool wanted =
            seen < kItems && (seen / kValues == first_of(r) || seen / kValues == second_of(r));
        if (wanted) out.wrong_on_item += w[i], right_most = std::max(right_most, w[i]);
        if (seen >= kItems) out.wrong_on_questions += w[i];
        most = std::max(most, w[i]);
      }
      out.wrong_gap += std::log(most / right_most);
    }
  }
  for (double* mean : {&out.wrong_on_item, &out.wrong_on_questions, &out.wrong_gap})
    *mean /= std::max(wrong, 1.0);
  out.apart /= std::max(pairs, 1.0);
  for (Dim h = 0; h < heads; ++h) {
    Taps without;
    without.edit(site::z, [&](const Tapped& t) {
      Tensor z = t.value;
      const Dim d = z[2];
      for (Dim r = 0; t.layer == 0 && r < z[0]; ++r)
        for (Dim c = 0; c < d; ++c) z.set((r * z[1] + h) * d + c, 0);
    });
    run.reset();
    run.taps = &without;
    out.heads[static_cast<std::size_t>(h)].loss_without =
        cross_entropy(run, forward(run, model, toy_batch(data, length)), data.targets).mean.at(0);
  }
  return out;
}

}  // namespace rapt
