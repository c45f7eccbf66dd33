// SPDX-License-Identifier: Apache-2.0
// Windows are requests to an engine: many of them in one pass, in their order.
#include <algorithm>
#include <cmath>

#include "rapt/ops/loss.h"
#include "rapt/use/generate.h"

namespace rapt {

Perplexity perplexity(Device& device, const Checkpoint& checkpoint, std::span<const std::int32_t> ids,
                      Dim context, Dim chunks,
                      const std::function<void(Dim chunk, Dim of, double so_far)>& progress, Taps* taps) {
  const Model& model = *checkpoint.model;
  const Recipe& r = model.recipe;
  if (!r.decoder || r.encoder || r.head.kind != HeadRecipe::Kind::vocab)
    fail("perplexity: ", checkpoint.path, " (", checkpoint.family,
         ") does not predict the next token of a text; use a decoder");
  if (context < 4)
    fail_usage("perplexity: a context of ", context,
               " tokens; give at least 4, for half of each window is not counted");
  if (context > r.context && r.embed.pos == EmbedRecipe::Pos::learned)
    fail_usage("perplexity: a context of ", context, " tokens, but the model has learned positions for ",
               r.context);
  if (chunks == 0)
    fail_usage("perplexity: 0 chunks; give a number above 0, or leave it away for the whole text");
  const Dim there = static_cast<Dim>(ids.size()) / context;
  if (there < 1)
    fail("perplexity: the text has ", ids.size(), " tokens, one window has ", context,
         "; use a longer text or a smaller window (--ctx-size)");
  const Dim windows = chunks < 0 ? there : std::min(chunks, there);
  const Dim first = context / 2, counted = context - first - 1;
  const Tokenizer* tokenizer = checkpoint.tokenizer.get();
  const std::int32_t bos = tokenizer && tokenizer->add_bos ? tokenizer->bos : -1;

  // One request a window: only the rows that count meet the output matrix.
  Engine engine(device, checkpoint, {.cache = model.real, .context = context, .chunk = 2048});
  Run run(device);
  Perplexity out;
  double sum = 0, squares = 0;
  for (Dim w = 0; w < windows; ++w) {
    const std::span<const std::int32_t> window =
        ids.subspan(static_cast<std::size_t>(w * context), static_cast<std::size_t>(context));
    Request request;
    request.tokens.assign(window.begin(), window.end() - 1);
    if (bos >= 0) request.tokens[0] = bos;
    request.generate.max_tokens = 0;
    request.generate.chunk = context;
    request.taps = taps;
    request.rows.which = Request::Rows::Which::chosen;
    for (Dim i = first; i + 1 < context; ++i) request.rows.chosen.push_back(i);
    request.rows.see = [&, w, window](std::span<const Dim> positions, const Tensor& logits) {
      std::vector<std::int32_t> targets;
      for (const Dim i : positions) targets.push_back(window[static_cast<std::size_t>(i + 1)]);
      run.reset();
      const Loss loss = cross_entropy(run, logits, targets);
      for (Dim i = 0; i < static_cast<Dim>(targets.size()); ++i) {
        const double x = loss.rows.at(i);
        if (!std::isfinite(x))
          fail("perplexity: window ", w, " gives a loss of ", x,
               "; the model computed something that is no number");
        sum += x;
        squares += x * x;
      }
    };
    engine.add(std::move(request));
  }
  while (!engine.idle())
    for (const Event& e : engine.step()) {
      if (e.kind != Event::Kind::done) continue;
      if (e.error) std::rethrow_exception(e.error);
      if (!e.answer->samples.empty() && e.answer->samples[0].finish == Finish::cancelled) throw Cancelled();
      ++out.chunks;
      out.tokens += counted;
      if (progress) progress(out.chunks, windows, std::exp(sum / static_cast<double>(out.tokens)));
    }
  const double count = static_cast<double>(out.tokens);
  out.nll = sum / count;
  out.perplexity = std::exp(out.nll);
  const double variance = squares / count - out.nll * out.nll;
  out.error = variance > 0 && count > 1 ? std::sqrt(variance / (count - 1)) * out.perplexity : 0;
  return out;
}

}  // namespace rapt
