// SPDX-License-Identifier: Apache-2.0
// Batches are as large as 2,048 tokens and logits of 256 MiB allow.
#include "rapt/use/evaluate_text.h"

#include <algorithm>
#include <cmath>

#include "rapt/base/clock.h"
#include "rapt/use/read_texts.h"

namespace rapt {

Objective text_objective(const Model& model) {
  return !model.encoder ? Objective::causal : model.decoder ? Objective::translation : Objective::masked;
}

TextLoss text_loss(Device& device, const Checkpoint& c, const std::string& file,
                   const TextLossOptions& options) {
  const Model& model = *c.model;
  const Recipe& r = model.recipe;
  tokenizer_of(c);
  if (r.head.kind != HeadRecipe::Kind::vocab)
    fail("eval: ", c.path, " has no head over its vocabulary; ",
         r.head.kind == HeadRecipe::Kind::classes ? "use --classify" : "it predicts nothing");
  TextLoss out;
  out.objective = text_objective(model);

  DataOptions o;
  o.path = file;
  const bool packed = is_packed(file);  // with its own tokenizer and held-out part
  if (!packed) o.held_out = file, o.tokenizer = c.path;
  o.objective = out.objective;
  o.length = out.context = options.context.value_or(std::min<Dim>(r.context, 1024));
  if (o.length > r.context && r.embed.pos == EmbedRecipe::Pos::learned)
    fail_usage("--ctx-size ", o.length, ": ", c.path, " has learned positions for ", r.context, " tokens");
  o.batch =
      std::max<Dim>(1, std::min(2048 / o.length, (Dim{64} << 20) / std::max<Dim>(1, o.length * r.vocab)));
  // Masks are drawn anew for every seed: windows of one epoch in any order, one per batch, are each
  // window once.
  out.drawn = out.objective == Objective::masked && !packed;
  if (out.drawn) o.batch = 1, o.windows = DataOptions::Windows::shuffled, o.seed = options.seed;
  o.progress = options.reading;
  const std::unique_ptr<TrainData> data = open_data(o);
  if (data->vocab > r.vocab)
    fail("eval: the text has tokens up to ", data->vocab, ", the model's vocabulary ends at ", r.vocab);
  out.batches = out.drawn ? static_cast<Dim>(std::llround(1 / data->epochs(1))) : data->held_out();
  if (out.batches < 1)
    fail("eval: ", file, " holds nothing to measure",
         packed ? " (it was packed without a held-out part)" : "");
  if (options.batches > 0) out.batches = std::min(out.batches, options.batches);

  const auto started = Clock::now();
  static_cast<DataEvaluation&>(out) = evaluate(
      device, model, out.batches,
      [&](Dim i) {
        TrainBatch b = out.drawn ? data->batch(static_cast<std::uint64_t>(i)) : data->held_out_batch(i);
        if (out.objective == Objective::translation && c.decoder_start >= 0)
          for (const Sequence& s : b.sequences) b.tokens[static_cast<std::size_t>(s.first)] = c.decoder_start;
        return b;
      },
      [&](Dim done, const Evaluation& sofar) {
        if (options.progress) options.progress(done, out.batches, sofar);
      },
      c.adapters);
  out.seconds = seconds_since(started);
  if (out.counted == 0)
    fail("eval: no token of ", file,
         " counts: it is shorter than two tokens, or nothing in it was hidden; take a longer text");
  return out;
}

std::vector<std::string> class_names_of(const Checkpoint& c) {
  const HeadRecipe& head = c.model->recipe.head;
  if (head.kind != HeadRecipe::Kind::classes)
    fail("eval: ", c.path, " (", c.family, ") tells no classes apart; --loss or --perplexity measure it");
  std::vector<std::string> names = c.class_names;
  for (Dim i = static_cast<Dim>(names.size()); i < head.classes; ++i) names.push_back(std::to_string(i));
  return names;
}

ClassEvaluation evaluate_classes(Device& device, const Checkpoint& c, std::span<const std::string> texts,
                                 std::span<const std::int32_t> classes,
                                 const std::function<void(Dim done, Dim of)>& progress, Dim* cut) {
  if (texts.size() != classes.size())
    fail("eval: ", texts.size(), " texts with ", classes.size(), " classes; one for each");
  class_names_of(c);
  const FramedTexts framed = frame_texts(c, texts, "eval");
  if (cut) *cut = framed.cut;
  Run run(device);
  ClassEvaluation out;
  read_whole(
      device, c, framed,
      [&](std::size_t text, Request& r) {
        r.rows.which = Request::Rows::Which::all;
        r.rows.see = [&, text](std::span<const Dim>, const Tensor& logits) {  // [1, classes]
          const std::span<const std::int32_t> target = classes.subspan(text, 1);
          run.reset();
          out.add(logits, cross_entropy(run, logits, target).rows, target);
          out.need_finite();
          out.said.push_back(best_class(logits, 0));
        };
      },
      progress);
  return out;
}

}  // namespace rapt
