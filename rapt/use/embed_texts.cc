// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "rapt/nn/attend.h"
#include "rapt/use/generate.h"
#include "rapt/use/read_texts.h"

namespace rapt {
namespace {

// The rows [count, C] of one sequence as one vector. Sums in double, rows in order.
std::vector<float> pooled(const Tensor& hidden, Dim first, Dim count, Pool pool, bool normalize) {
  const Dim C = hidden.last();
  std::vector<double> v(static_cast<std::size_t>(C), 0);
  const Dim from = pool == Pool::last ? first + count - 1 : first, rows = pool == Pool::mean ? count : 1;
  for (Dim t = from; t < from + rows; ++t)
    for (Dim c = 0; c < C; ++c) v[static_cast<std::size_t>(c)] += hidden.at(t * C + c);
  double squares = 0;
  for (double& x : v) {
    x /= static_cast<double>(rows);
    squares += x * x;
  }
  const double length = normalize ? std::max(std::sqrt(squares), 1e-12) : 1;
  if (!std::isfinite(squares))
    fail("embed: the model computed something that is no number (damaged weights, or numbers beyond the range of its types)");
  std::vector<float> out;
  for (double x : v) out.push_back(static_cast<float>(x / length));
  return out;
}

}  // namespace

std::vector<std::vector<float>> embed_texts(Device& device, const Checkpoint& checkpoint, std::span<const std::string> texts,
                                            std::optional<Pool> pool, std::optional<bool> normalize,
                                            const std::function<void(Dim done, Dim of)>& progress, Dim* cut) {
  const Model& model = *checkpoint.model;
  const Recipe& r = model.recipe;
  if (r.encoder && r.decoder)
    fail("embed: ", checkpoint.path, " (", checkpoint.family, ") is an encoder-decoder; use an encoder or a decoder");
  Pool how = pool.value_or(checkpoint.pool);
  if (how == Pool::none) how = r.encoder ? Pool::mean : Pool::last;
  const bool unit = normalize.value_or(checkpoint.normalize);
  const FramedTexts framed = frame_texts(checkpoint, texts, "embed");
  if (cut) *cut = framed.cut;

  // With a head the hidden state is seen on its way; the head then works on one row per text only.
  const bool head = r.head.kind != HeadRecipe::Kind::none;
  const LayerStack& stack = model.encoder ? *model.encoder : *model.decoder;
  const int last_layer = stack.depth() - 1;
  Tensor seen;
  Taps taps;
  if (head)
    taps.see(Site::resid_out, [&](const Tapped& t) {
      if (t.layer == last_layer) seen = t.value;
    });
  if (head && r.embed.sink_tokens > 0)
    fail("embed: model ", r.name, " puts learned tokens before its text; they cannot be told apart from it here");

  Run run(device);
  run.taps = head ? &taps : nullptr;
  std::vector<std::vector<float>> out;
  each_batch(framed, [&](Batch& batch, std::size_t) {
    batch.last_only = r.head.kind == HeadRecipe::Kind::vocab;
    run.reset();
    Tensor hidden = forward(run, model, batch);
    if (head) hidden = apply(run, stack.final_norm, seen);
    for (const Sequence& s : batch.sequences) out.push_back(pooled(hidden, s.first, s.count, how, unit));
    if (progress) progress(static_cast<Dim>(out.size()), static_cast<Dim>(texts.size()));
  });
  return out;
}

}  // namespace rapt
