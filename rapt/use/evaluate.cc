// SPDX-License-Identifier: Apache-2.0
// Batches are requests to an engine; then the count of what was right.
#include "rapt/use/evaluate.h"

#include <algorithm>
#include <cmath>

#include "rapt/use/engine.h"

namespace rapt {
namespace {

template <class Real>
std::int32_t best_of(std::span<const Real> row) {
  return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace

std::int32_t best_class(const Tensor& logits, Dim row) {
  const auto classes = static_cast<std::size_t>(logits.last()), at = static_cast<std::size_t>(row) * classes;
  return logits.dtype == DType::f64 ? best_of<double>(logits.as<const double>().subspan(at, classes))
                                    : best_of<float>(logits.as<const float>().subspan(at, classes));
}

void Evaluation::add(const Tensor& logits, const Tensor& losses, std::span<const std::int32_t> targets) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    loss += losses.at(static_cast<Dim>(i));
    right += best_class(logits, static_cast<Dim>(i)) == targets[i];
    ++counted;
  }
}

void Evaluation::need_finite() const {
  if (!std::isfinite(loss))
    fail("eval: a loss is ", loss,
         "; the model computed something that is no number (rapt check looks at every weight of a file)");
}

DataEvaluation evaluate(Device& device, const Model& model, Dim count,
                        const std::function<TrainBatch(Dim i)>& batch,
                        const std::function<void(Dim done, const Evaluation& sofar)>& done,
                        const std::vector<AdapterUse>& adapters) {
  Engine engine(device, model, {});
  Run run(device);
  DataEvaluation out;
  std::vector<Dim> seen;  // how often each target was
  const bool classes = model.recipe.head.kind == HeadRecipe::Kind::classes;
  for (Dim i = 0; i < count; ++i) {
    const TrainBatch b = batch(i);
    // Sequences are requests; their rows come in the order of the batch.
    for (std::size_t n = 0; n < b.sequences.size(); ++n) {
      const Sequence& s = b.sequences[n];
      const auto of = [](const auto& list, const Sequence& part) {
        return std::span(list).subspan(static_cast<std::size_t>(part.first),
                                       static_cast<std::size_t>(part.count));
      };
      const std::span<const std::int32_t> targets =
          classes ? std::span(b.targets).subspan(n, 1) : of(b.targets, s);
      Request r;
      r.tokens.assign(of(b.tokens, s).begin(), of(b.tokens, s).end());
      if (!b.source.empty()) {
        const auto source = of(b.source, b.source_sequences[n]);
        r.source.assign(source.begin(), source.end());
      }
      r.prefix = s.prefix;
      r.adapters = adapters;
      r.generate.max_tokens = 0;
      r.whole = true;
      r.rows.which = Request::Rows::Which::all;
      r.rows.see = [&, targets](std::span<const Dim>, const Tensor& logits) {
        run.reset();
        out.add(logits, cross_entropy(run, logits, targets).rows, targets);
        out.need_finite();
        seen.resize(static_cast<std::size_t>(logits.last()));
      };
      engine.add(std::move(r));
    }
    while (!engine.idle())
      for (const Event& e : engine.step())
        if (e.error) std::rethrow_exception(e.error);
    for (const std::int32_t t : b.targets)
      if (t >= 0) ++seen[static_cast<std::size_t>(t)];
    if (done) done(i + 1, out);
  }
  if (out.counted > 0)
    out.commonest =
        static_cast<double>(*std::max_element(seen.begin(), seen.end())) / static_cast<double>(out.counted);
  return out;
}

}  // namespace rapt
