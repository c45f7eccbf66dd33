// SPDX-License-Identifier: Apache-2.0
// The first half of each window goes into the cache, so the output matrix works on the counted half alone.
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
         "; use a longer text or a smaller --ctx-size");
  const Dim windows = chunks < 0 ? there : std::min(chunks, there);
  const Dim first = context / 2, counted = context - first - 1;
  const Tokenizer* tokenizer = checkpoint.tokenizer.get();
  const std::int32_t bos = tokenizer && tokenizer->add_bos ? tokenizer->bos : -1;

  // Several windows in one pass: about 2,048 rows, and logits of at most 256 MiB. The first half goes
  // ahead into the cache, so that the output matrix is applied to the rows that count only; the bits are
  // those of one pass.
  const Dim group = std::max<Dim>(
      1, std::min({windows, 2048 / context, (Dim{64} << 20) / std::max<Dim>(1, counted * r.vocab)}));
  Run run(device);
  run.taps = taps;
  KvCache cache(model.real);
  Perplexity out;
  double sum = 0, squares = 0;
  for (Dim at = 0; at < windows; at += group) {
    const Dim n = std::min(group, windows - at);
    std::vector<std::int32_t> head, tail, targets;
    Batch before, after;
    for (Dim w = 0; w < n; ++w) {
      const std::span<const std::int32_t> window =
          ids.subspan(static_cast<std::size_t>((at + w) * context), static_cast<std::size_t>(context));
      const auto id = static_cast<std::uint64_t>(w);
      before.sequences.push_back(
          {.first = w * first, .count = first, .past = 0, .id = id, .opened = context});
      after.sequences.push_back(
          {.first = w * counted, .count = counted, .past = first, .id = id, .opened = context});
      for (Dim i = 0; i < first; ++i)
        head.push_back(i == 0 && bos >= 0 ? bos : window[static_cast<std::size_t>(i)]);
      for (Dim i = first; i + 1 < context; ++i) {
        tail.push_back(window[static_cast<std::size_t>(i)]);
        targets.push_back(window[static_cast<std::size_t>(i + 1)]);
      }
    }
    before.tokens = head;
    before.want = kWantLast;
    after.tokens = tail;
    run.reset();
    forward(run, model, before, nullptr, &cache);
    run.reset();
    const Tensor logits = forward(run, model, after, nullptr, &cache);
    const Loss loss = cross_entropy(run, logits, targets);
    for (Dim w = 0; w < n; ++w) {
      for (Dim i = w * counted; i < (w + 1) * counted; ++i) {
        const double x = loss.rows.at(i);
        if (!std::isfinite(x))
          fail("perplexity: window ", at + w, " gives a loss of ", x,
               "; the model computed something that is no number");
        sum += x;
        squares += x * x;
      }
      cache.drop(static_cast<std::uint64_t>(w));
      out.chunks = at + w + 1;
      out.tokens += counted;
      if (progress) progress(out.chunks, windows, std::exp(sum / static_cast<double>(out.tokens)));
    }
  }
  const double count = static_cast<double>(out.tokens);
  out.nll = sum / count;
  out.perplexity = std::exp(out.nll);
  const double variance = squares / count - out.nll * out.nll;
  out.error = variance > 0 && count > 1 ? std::sqrt(variance / (count - 1)) * out.perplexity : 0;
  return out;
}

}  // namespace rapt
