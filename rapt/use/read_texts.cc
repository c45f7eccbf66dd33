// SPDX-License-Identifier: Apache-2.0
// Texts are framed and read by an engine. Masks: only their rows meet the output matrix.
#include "rapt/use/read_texts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rapt/use/sampler.h"

namespace rapt {
namespace {

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

void need_classes(const Checkpoint& checkpoint) {
  if (checkpoint.model->recipe.head.kind != HeadRecipe::Kind::classes)
    fail("classify: ", checkpoint.path, " (", checkpoint.family,
         ") is no classifier: its result is no class; `rapt train` makes one from ", "LABEL=FILE,LABEL=FILE");
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
    if (static_cast<Dim>(out.ids.back().size()) < checkpoint.pad_to)
      out.ids.back().resize(static_cast<std::size_t>(checkpoint.pad_to), checkpoint.pad);
    if (out.ids.back().empty())
      fail(verb, ": text ", out.ids.size(),
           " has no tokens, and the model puts none around it; give it at least one word");
  }
  return out;
}

Request whole_request(std::vector<std::int32_t> ids) {
  Request r;
  r.tokens = std::move(ids);
  r.generate.max_tokens = 0;
  r.whole = true;
  return r;
}

void read_whole(Device& device, const Checkpoint& checkpoint, const FramedTexts& texts,
                const std::function<void(std::size_t text, Request& request)>& ask,
                const ReadProgress& progress) {
  Engine engine(device, checkpoint, {});
  for (std::size_t i = 0; i < texts.ids.size(); ++i) {
    Request r = whole_request(texts.ids[i]);
    ask(i, r);
    engine.add(std::move(r));
  }
  Dim done = 0;
  while (!engine.idle()) {
    for (const Event& e : engine.step()) {
      if (e.kind != Event::Kind::done) continue;
      if (e.error) std::rethrow_exception(e.error);
      if (!e.answer->samples.empty() && e.answer->samples[0].finish == Finish::cancelled) throw Cancelled();
      ++done;
    }
    if (progress) progress(done, static_cast<Dim>(texts.ids.size()));
  }
}

std::string class_name(const Checkpoint& checkpoint, std::size_t index) {
  return index < checkpoint.class_names.size() ? checkpoint.class_names[index] : concat("LABEL_", index);
}

Request classify_request(const Checkpoint& checkpoint, std::vector<std::int32_t> ids,
                         std::vector<float>& out) {
  need_classes(checkpoint);
  Request r = whole_request(std::move(ids));
  r.rows.which = Request::Rows::Which::all;
  r.rows.see = [&out](std::span<const Dim>, const Tensor& logits) {  // [1, classes]
    std::vector<float> p = numbers(logits, 0);
    check_finite(p, "classify");
    const double all = log_sum_exp(p);
    for (float& x : p)
      x = static_cast<float>(p.size() == 1 ? 1 / (1 + std::exp(-static_cast<double>(x))) : std::exp(x - all));
    out = std::move(p);
  };
  return r;
}

std::vector<std::vector<float>> classify_texts(Device& device, const Checkpoint& checkpoint,
                                               std::span<const std::string> texts,
                                               const ReadProgress& progress, Dim* cut, Taps* taps) {
  need_classes(checkpoint);
  const FramedTexts framed = frame_texts(checkpoint, texts, "classify");
  if (cut) *cut = framed.cut;
  std::vector<std::vector<float>> out(framed.ids.size());
  read_whole(
      device, checkpoint, framed,
      [&](std::size_t text, Request& r) {
        r = classify_request(checkpoint, std::move(r.tokens), out[text]);
        r.taps = taps;
      },
      progress);
  return out;
}

std::vector<FilledMasks> fill_masks(Device& device, const Checkpoint& checkpoint,
                                    std::span<const std::string> texts, Dim top, const ReadProgress& progress,
                                    Taps* taps) {
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
  read_whole(
      device, checkpoint, framed,
      [&](std::size_t text, Request& r) {
        FilledMasks& f = out[text];
        r.taps = taps;
        r.rows.which = Request::Rows::Which::chosen;  // the output matrix works on rows of masks alone
        r.rows.chosen = f.places;
        r.rows.see = [&f, top](std::span<const Dim> places, const Tensor& logits) {
          for (std::size_t k = 0; k < places.size(); ++k) {
            const std::vector<float> values = numbers(logits, static_cast<Dim>(k));
            check_finite(values, "fill");
            const double whole = log_sum_exp(values);
            std::vector<MaskGuess> guesses;
            for (const auto& [logit, id] : largest(values, std::min<Dim>(top, logits.last())))
              guesses.push_back({id, static_cast<float>(std::exp(logit - whole))});
            f.guesses.push_back(std::move(guesses));
          }
        };
      },
      progress);
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
