// SPDX-License-Identifier: Apache-2.0
// A pass with a tape; the metric's slope is put behind the logits, and the tape is played back.
#include "rapt/inspect/point_gradients.h"

#include <cmath>

#include "rapt/base/team.h"
#include "rapt/base/text.h"

namespace rapt {
namespace {

std::vector<double> row_of(const Tensor& y, Dim row) {
  std::vector<double> out(static_cast<std::size_t>(y.last()));
  for (Dim i = 0; i < y.last(); ++i) out[static_cast<std::size_t>(i)] = y.at(row * y.last() + i);
  return out;
}

}  // namespace

PointGradients point_gradients(Device& device, const Model& model, std::span<const Asked> asked,
                               const Metric& metric, Ids ids, Ids source, double most_bytes) {
  if (ids.empty()) fail_usage("gradients: the text has no tokens");
  const Dim T = static_cast<Dim>(ids.size());
  PointGradients out{.metric = placed(metric, model, T)};
  out.tensors = {
      .model = model.recipe.name, .ids = {ids.begin(), ids.end()}, .source = {source.begin(), source.end()}};
  double bytes = 0;
  for (const Asked& a : asked) {
    if (a.point.kind != Point::Kind::value)
      fail_usage("gradients: ", a.point.name,
                 " is not held while the pass runs, so no gradient comes by; q, k, "
                 "value and z of the same layer have one");
    out.tensors.tensors.push_back(
        {a.name, point_shape(model, a.point, T, static_cast<Dim>(source.size())), {}});
    double size = 4;
    for (Dim n : out.tensors.tensors.back().shape) size *= static_cast<double>(n);
    bytes += size;
  }
  if (bytes > most_bytes)
    fail("gradients: these tensors take ", byte_count(bytes), " for ", T, " tokens, more than the ",
         byte_count(most_bytes), " allowed; ask for fewer points, take a shorter text, or raise the limit");

  Taps taps;
  std::vector<Tensor> held(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i)
    taps.see(asked[i].point.site, [&, i](const Tapped& t) {
      if (is_at(t, asked[i].point)) held[i] = t.value;
    });
  Gradients weights(device.real);
  Tape tape(weights);
  Run run(device);
  run.tape = &tape;
  run.taps = &taps;
  const bool loss = out.metric.kind == Metric::Kind::loss;
  const std::vector<std::int32_t> chosen = {static_cast<std::int32_t>(out.metric.position)};
  Batch batch = batch_of(model, ids);
  if (!loss) batch.want = {.rows = Want::Rows::chosen, .chosen = chosen};
  const Batch from = batch_of(model, source);
  const Tensor y = forward(run, model, batch, source.empty() ? nullptr : &from);

  const Tensor slope = tensor_over(static_cast<std::byte*>(run.grad(y)), nullptr, y.dtype,
                                   {y.size.data(), static_cast<std::size_t>(y.rank)});
  const auto put = [&](Dim row, const std::vector<double>& values, double times) {
    for (Dim i = 0; i < y.last(); ++i)
      slope.set(row * y.last() + i, times * values[static_cast<std::size_t>(i)]);
  };
  if (loss) {
    const std::vector<std::int32_t> truth = truth_of(model, ids);
    double count = 0;
    for (const std::int32_t t : truth) count += t >= 0;
    for (Dim r = 0; r < T; ++r) {
      const Metric one{.kind = Metric::Kind::logprob, .token = truth[static_cast<std::size_t>(r)]};
      if (one.token < 0) continue;
      const std::vector<double> logits = row_of(y, r);
      out.value -= value_of(one, logits) / count;
      put(r, slope_of(one, logits), -1 / count);
    }
  } else {
    const std::vector<double> logits = row_of(y, 0);
    out.metric = named(out.metric, logits);
    out.value = value_of(out.metric, logits);
    put(0, slope_of(out.metric, logits), 1);
  }
  {
    const Lease lease(device.team());
    tape.play_back(run);
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Tensor& t = held[i];
    Captured& to = out.tensors.tensors[i];
    if (!t) fail("gradients: '", to.name, "' did not come by in this pass");
    if (!t.buffer)
      fail_usage("gradients: ", asked[i].point.name,
                 " is computed beside the pass; nothing of the metric goes "
                 "through it");
    to.shape.assign(t.size.begin(), t.size.begin() + t.rank);
    to.values.resize(static_cast<std::size_t>(t.elements()));
    if (!t.buffer->grad) continue;  // nothing of the metric is made of it
    const Tensor g = tensor_over(static_cast<std::byte*>(run.grad(t)), nullptr, t.dtype,
                                 {t.size.data(), static_cast<std::size_t>(t.rank)});
    for (Dim k = 0; k < t.elements(); ++k)
      to.values[static_cast<std::size_t>(k)] = static_cast<float>(g.at(k));
  }
  return out;
}

}  // namespace rapt
