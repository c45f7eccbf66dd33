// SPDX-License-Identifier: Apache-2.0
// Texts are framed, batched by rows, passed once. Masks: only their rows meet the output matrix.
#include "rapt/use/read_texts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rapt/use/sampler.h"

namespace rapt {
namespace {

// Of one pass: enough for the matrices, little enough to stay in the cache.
constexpr std::size_t kRows = 2048;

const Tokenizer& reading_tokenizer(const Checkpoint& c, const char* verb) {
  if (!c.tokenizer) fail(verb, ": ", c.path, " has no tokenizer, so it cannot read text");
  return *c.tokenizer;
}

Dim most_tokens(const Checkpoint& c) {
  const Dim context = c.model->recipe.context;
  return c.max_tokens > 0 ? std::min(context, c.max_tokens) : context;
}

std::vector<float> numbers(const Tensor& logits, Dim row) {
  const Dim n = logits.last();
  std::vector<float> out(static_cast<std::size_t>(n));
  for (Dim i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = static_cast<float>(logits.at(row * n + i));
  return out;
}

void check_finite(std::span<const float> logits, const char* verb) {
  for (const float x : logits)
    if (!std::isfinite(x))
      fail(verb,
           ": the model computed something that is no number (damaged weights, "
           "or numbers beyond the range of its types)");
}

// The text with its masks as tokens: what stands between them is text, whatever it spells.
std::vector<std::int32_t> masked_ids(const Tokenizer& tokenizer, std::string_view text, std::size_t number) {
  const std::string& mask = tokenizer.text_of(tokenizer.mask);
  std::vector<TextPiece> pieces;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(mask, at)) != text.npos; at = found + mask.size()) {
    pieces.push_back({text.substr(at, found - at), false});
    pieces.push_back({text.substr(found, mask.size()), true});
  }
  if (pieces.empty())
    fail_usage("fill: text ", number, " has no mask; write ", mask,
               " where a word is to be found, as in \"to be or ", mask, "\"");
  pieces.push_back({text.substr(at), false});
  return tokenizer.encode(pieces);
}

}  // namespace

FramedTexts frame_texts(const Checkpoint& checkpoint, std::span<const std::string> texts, const char* verb) {
  const Tokenizer& tokenizer = reading_tokenizer(checkpoint, verb);
  const Dim around = static_cast<Dim>(tokenizer.frame({}).size()),
            room = std::max<Dim>(0, most_tokens(checkpoint) - around);
  FramedTexts out;
  for (const std::string& text : texts) {
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    if (static_cast<Dim>(ids.size()) > room) ids.resize(static_cast<std::size_t>(room)), ++out.cut;
    out.ids.push_back(tokenizer.frame(std::move(ids)));
    if (out.ids.back().empty())
      fail(verb, ": text ", out.ids.size(),
           " has no tokens, and the model puts none around it; give it at least one word");
  }
  return out;
}

void each_batch(const FramedTexts& texts, const std::function<void(Batch& batch, std::size_t first)>& pass) {
  for (std::size_t at = 0; at < texts.ids.size();) {
    std::vector<std::int32_t> tokens;
    Batch batch;
    const std::size_t first = at;
    for (; at < texts.ids.size() && (at == first || tokens.size() + texts.ids[at].size() <= kRows); ++at) {
      batch.sequences.push_back({.first = static_cast<Dim>(tokens.size()),
                                 .count = static_cast<Dim>(texts.ids[at].size()),
                                 .id = at - first});
      tokens.insert(tokens.end(), texts.ids[at].begin(), texts.ids[at].end());
    }
    batch.tokens = tokens;
    pass(batch, first);
  }
}

std::string class_name(const Checkpoint& checkpoint, std::size_t index) {
  return index < checkpoint.class_names.size() ? checkpoint.class_names[index] : concat("LABEL_", index);
}

std::vector<std::vector<float>> classify_texts(Device& device, const Checkpoint& checkpoint,
                                               std::span<const std::string> texts,
                                               const ReadProgress& progress, Dim* cut) {
  const Model& model = *checkpoint.model;
  if (model.recipe.head.kind != HeadRecipe::Kind::classes)
    fail("classify: ", checkpoint.path, " (", checkpoint.family,
         ") is no classifier: its result is no class; `rapt train` makes one from ", "LABEL=FILE,LABEL=FILE");
  const FramedTexts framed = frame_texts(checkpoint, texts, "classify");
  if (cut) *cut = framed.cut;
  Run run(device);
  std::vector<std::vector<float>> out;
  each_batch(framed, [&](Batch& batch, std::size_t) {
    run.reset();
    const Tensor logits = forward(run, model, batch);  // [sequences, classes]
    for (Dim i = 0; i < logits[0]; ++i) {
      std::vector<float> p = numbers(logits, i);
      check_finite(p, "classify");
      const double whole = log_sum_exp(p);
      for (float& x : p)
        x = static_cast<float>(p.size() == 1 ? 1 / (1 + std::exp(-static_cast<double>(x)))
                                             : std::exp(x - whole));
      out.push_back(std::move(p));
    }
    if (progress) progress(static_cast<Dim>(out.size()), static_cast<Dim>(texts.size()));
  });
  return out;
}

std::vector<FilledMasks> fill_masks(Device& device, const Checkpoint& checkpoint,
                                    std::span<const std::string> texts, Dim top,
                                    const ReadProgress& progress) {
  const Model& model = *checkpoint.model;
  const Recipe& r = model.recipe;
  const Tokenizer& tokenizer = reading_tokenizer(checkpoint, "fill");
  if (!r.encoder || r.decoder || r.head.kind != HeadRecipe::Kind::vocab)
    fail("fill: ", checkpoint.path, " (", checkpoint.family, ") is no model of masked words: ",
         r.decoder ? "it writes from left to right; use `rapt run`"
                   : "it has no output matrix over its vocabulary");
  if (tokenizer.mask < 0) fail("fill: the tokenizer of ", checkpoint.path, " has no mask token");
  FramedTexts framed;
  std::vector<FilledMasks> out;
  for (const std::string& text : texts) {
    FilledMasks f{
        .ids = tokenizer.frame(masked_ids(tokenizer, text, out.size() + 1)), .places = {}, .guesses = {}};
    if (static_cast<Dim>(f.ids.size()) > most_tokens(checkpoint))
      fail("fill: text ", out.size() + 1, " has ", f.ids.size(), " tokens, the model reads ",
           most_tokens(checkpoint), "; shorten it");
    for (std::size_t i = 0; i < f.ids.size(); ++i)
      if (f.ids[i] == tokenizer.mask) f.places.push_back(static_cast<Dim>(i));
    framed.ids.push_back(f.ids);
    out.push_back(std::move(f));
  }
  Run run(device);
  each_batch(framed, [&](Batch& batch, std::size_t first) {
    std::vector<std::int32_t> rows;  // the output matrix works on those of masks alone
    for (std::size_t i = 0; i < batch.sequences.size(); ++i)
      for (const Dim place : out[first + i].places)
        rows.push_back(static_cast<std::int32_t>(batch.sequences[i].first + place));
    batch.want = {.rows = Want::Rows::chosen, .chosen = rows};
    run.reset();
    const Tensor logits = forward(run, model, batch);
    Dim row = 0;
    for (std::size_t i = 0; i < batch.sequences.size(); ++i)
      for (std::size_t k = 0; k < out[first + i].places.size(); ++k, ++row) {
        const std::vector<float> values = numbers(logits, row);
        check_finite(values, "fill");
        const double whole = log_sum_exp(values);
        std::vector<MaskGuess> guesses;
        for (const auto& [logit, id] : largest(values, std::min<Dim>(top, logits.last())))
          guesses.push_back({id, static_cast<float>(std::exp(logit - whole))});
        out[first + i].guesses.push_back(std::move(guesses));
      }
    if (progress) progress(static_cast<Dim>(first + batch.sequences.size()), static_cast<Dim>(texts.size()));
  });
  return out;
}

std::string guess_text(const Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.kind == Tokenizer::Kind::wordpiece ? tokenizer.text_of(id)
                                                      : tokenizer.decode(std::span(&id, 1), true);
}

std::string filled_text(const Tokenizer& tokenizer, const FilledMasks& filled, std::size_t mask,
                        std::int32_t id) {
  const bool special = filled.places.size() > 1;
  std::vector<std::int32_t> ids = filled.ids;
  ids[static_cast<std::size_t>(filled.places[mask])] = id;
  std::erase_if(ids, [&](std::int32_t i) {
    return i == tokenizer.pad ||
           (!special && (i == tokenizer.unk || tokenizer.role(i) == Tokenizer::Role::control));
  });
  const bool continues = !ids.empty() && tokenizer.kind == Tokenizer::Kind::wordpiece &&
                         tokenizer.text_of(ids[0]).starts_with("##");
  return (continues ? "##" : "") + tokenizer.decode(ids, special);
}

}  // namespace rapt
