// SPDX-License-Identifier: Apache-2.0
// Whole texts side by side in one pass; the hidden states of each, before any head, are pooled in double.
#include <algorithm>
#include <cmath>

#include "rapt/use/generate.h"
#include "rapt/use/read_texts.h"

namespace rapt {
namespace {

std::vector<double> through(const DenseModule& d, const std::vector<double>& x) {
  std::vector<double> out;
  for (Dim r = 0; r < d.out; ++r) {
    double sum = d.bias.empty() ? 0 : d.bias[static_cast<std::size_t>(r)];
    for (Dim c = 0; c < d.in; ++c)
      sum += static_cast<double>(d.weight[static_cast<std::size_t>(r * d.in + c)]) *
             x[static_cast<std::size_t>(c)];
    out.push_back(d.tanh ? std::tanh(sum) : sum);
  }
  return out;
}

// A pooled row as it is handed out.
std::vector<float> finished(std::vector<double> row, const Checkpoint& checkpoint, bool normalize) {
  for (const DenseModule& d : checkpoint.dense) row = through(d, row);
  double squares = 0;
  for (const double x : row) squares += x * x;
  const double length = normalize ? std::max(std::sqrt(squares), 1e-12) : 1;
  if (!std::isfinite(squares))
    fail(
        "embed: the model computed something that is no number (damaged weights, or numbers beyond the "
        "range of its types)");
  std::vector<float> out;
  for (double x : row) out.push_back(static_cast<float>(x / length));
  return out;
}

}  // namespace

Request embed_request(const Checkpoint& checkpoint, std::vector<std::int32_t> ids, std::vector<float>& out,
                      std::optional<Pool> pool, std::optional<bool> normalize) {
  const Recipe& r = checkpoint.model->recipe;
  if (r.encoder && r.decoder)
    fail("embed: ", checkpoint.path, " (", checkpoint.family,
         ") is an encoder-decoder; use an encoder or a decoder");
  // A head that gives vectors (CLIP) is the model's own way, unless another is asked for.
  const bool own = r.head.kind == HeadRecipe::Kind::vector && !pool;
  const Pool how = pool ? *pool : checkpoint.pool.value_or(r.encoder ? Pool::mean : Pool::last);
  Request request = whole_request(std::move(ids));
  request.rows.which = Request::Rows::Which::all;
  request.rows.hidden = !own;
  request.rows.see = [&checkpoint, &out, how, unit = normalize.value_or(checkpoint.normalize)](
                         std::span<const Dim>, const Tensor& hidden) {
    out = finished(pooled_row(how, hidden, {0, hidden[0]}), checkpoint, unit);
  };
  return request;
}

std::vector<std::vector<float>> embed_texts(Device& device, const Checkpoint& checkpoint,
                                            std::span<const std::string> texts, std::optional<Pool> pool,
                                            std::optional<bool> normalize,
                                            const std::function<void(Dim done, Dim of)>& progress, Dim* cut,
                                            Taps* taps) {
  const FramedTexts framed = frame_texts(checkpoint, texts, "embed");
  if (cut) *cut = framed.cut;
  std::vector<std::vector<float>> out(framed.ids.size());
  read_whole(
      device, checkpoint, framed,
      [&](std::size_t text, Request& r) {
        r = embed_request(checkpoint, std::move(r.tokens), out[text], pool, normalize);
        r.taps = taps;
      },
      progress);
  return out;
}

}  // namespace rapt
