// SPDX-License-Identifier: Apache-2.0
// Models of the public face: every function is a call or two of the inside.
#include <algorithm>

#include "rapt/api/state.h"
#include "rapt/base/text.h"
#include "rapt/load/quant_mix.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/text/prompt.h"
#include "rapt/use/conversation.h"
#include "rapt/use/read_texts.h"
#include "rapt/use/weights.h"

namespace rapt::api {

Tensor copy_tensor(std::string name, const rapt::Tensor& t) {
  Tensor out{.name = std::move(name), .shape = {}, .values = {}};
  for (int d = 0; d < t.rank; ++d) out.shape.push_back(t[d]);
  out.values.reserve(static_cast<std::size_t>(t.elements()));
  for (Dim i = 0; i < t.elements(); ++i) out.values.push_back(static_cast<float>(t.at(i)));
  return out;
}

// ----------------------------------------------------------------------------------- where models come from

Model Model::open(const std::string& name, const OpenOptions& options) {
  auto state = std::make_shared<ModelState>();
  state->device = Access::of(options.device);
  LoadOptions load{
      .real = state->on().real, .matrices = {}, .change = {}, .progress = {}, .device = &state->on()};
  if (options.exact) load.matrices = load.real;
  if (options.streaming)
    load.change = [&](Recipe& r) {
      const Dim window =
          options.streaming->window > 0 ? options.streaming->window : r.context - options.streaming->keep;
      if (window < 1)
        fail_usage("streaming: ", options.streaming->keep, " kept tokens leave no window in a context of ",
                   r.context);
      stream_windows(r, options.streaming->keep, window);
      state->stream = {options.streaming->keep, window};
    };
  if (options.progress)
    load.progress = [&](std::uint64_t done, std::uint64_t of) {
      options.progress(static_cast<double>(done) / static_cast<double>(of));
    };
  state->checkpoint = std::make_shared<Checkpoint>(open_checkpoint(find_model(name), load));
  return Model(std::move(state));
}

Model Model::make(const std::string& recipe, const MakeOptions& options) {
  auto state = std::make_shared<ModelState>();
  state->device = Access::of(options.device);
  const Recipe from = recipe.starts_with('{') ? parse_recipe(recipe) : find_recipe(recipe);
  auto checkpoint = std::make_shared<Checkpoint>();
  checkpoint->model =
      std::make_unique<rapt::Model>(resolve(with_settings(from, options.settings)), state->on().real);
  init(*checkpoint->model, options.seed);
  checkpoint->family = "rapt";
  state->checkpoint = std::move(checkpoint);
  state->opened = false;
  return Model(std::move(state));
}

std::vector<std::string> presets() { return preset_names(); }

// ----------------------------------------------------------------------------------------------- what it is

ModelInfo Model::info() const {
  const Checkpoint& c = *state_->checkpoint;
  const Recipe& r = c.model->recipe;
  ModelInfo out{
      .path = c.path, .family = c.family, .format = c.format, .recipe = recipe_json(r, true), .classes = {}};
  out.parameters = c.model->parameters();
  out.vocabulary = r.vocab, out.context = r.context, out.width = r.width;
  if (c.model->encoder) out.encoder_layers = c.model->encoder->depth();
  if (c.model->decoder) out.decoder_layers = c.model->decoder->depth();
  out.tokenizer = c.tokenizer != nullptr;
  out.chat_template = !c.chat_template.empty();
  out.translates = r.encoder && r.decoder;
  if (c.tokenizer) out.bos = c.tokenizer->bos, out.eos = c.tokenizer->eos;
  out.decoder_start = c.decoder_start;
  if (r.head.kind == HeadRecipe::Kind::classes)
    for (Dim i = 0; i < r.head.classes; ++i)
      out.classes.push_back(class_name(c, static_cast<std::size_t>(i)));
  return out;
}

Device Model::device() const { return Access::handle(state_->device); }

std::vector<std::string> Model::weights() const {
  std::vector<std::string> names;
  for (const Weight& w : state_->net().weights) names.push_back(w.name);
  return names;
}

Tensor Model::weight(const std::string& name) const {
  const Weight& w = find_weight(state_->net(), name);
  return {.name = name, .shape = {w.rows, w.cols}, .values = weight_numbers(w)};
}

// ------------------------------------------------------------------------------------------------ tokens

std::vector<Token> Model::tokenize(std::string_view text, const TokenizeOptions& options) const {
  const Tokenizer& t = tokenizer_of(*state_->checkpoint);
  std::vector<Token> ids = t.encode(text, options.special);
  return options.frame ? t.frame(std::move(ids)) : ids;
}

std::string Model::detokenize(std::span<const Token> tokens, bool special) const {
  return tokenizer_of(*state_->checkpoint).decode(tokens, special);
}

std::string Model::token_text(Token token) const { return tokenizer_of(*state_->checkpoint).bytes_of(token); }

std::vector<Token> Model::prompt(std::string_view text) const {
  return prompt_ids(*state_->checkpoint, text);
}

std::vector<Token> Model::chat_prompt(const std::vector<Message>& messages) const {
  const Checkpoint& c = *state_->checkpoint;
  const std::optional<ChatTemplate> chat = open_chat_template(c);
  if (!chat)
    fail(c.path,
         " has no chat template; Session::generate continues a text, "
         "or put the template's words around it yourself");
  std::vector<ChatMessage> list;
  for (const Message& m : messages) list.push_back({m.role, m.content});
  return chat_ids(tokenizer_of(c), *chat, list);
}

// ------------------------------------------------------------------------------------------------ one pass

Tensor Model::logits(std::span<const Token> tokens, std::span<const Token> source) const {
  const rapt::Model& model = state_->net();
  if (model.encoder && model.decoder && source.empty())
    fail_usage(
        "logits: this model translates; give the tokens of its source, and in `tokens` what the "
        "decoder reads, decoder_start first");
  if (!(model.encoder && model.decoder) && !source.empty())
    fail_usage("logits: only a model with encoder and decoder reads a source");
  if (tokens.empty()) fail_usage("logits: no tokens");
  rapt::Run run(state_->on());
  const Batch batch{.tokens = tokens, .sequences = {{.count = static_cast<Dim>(tokens.size())}}};
  const Batch from{.tokens = source, .sequences = {{.count = static_cast<Dim>(source.size())}}};
  return copy_tensor("logits", forward(run, model, batch, source.empty() ? nullptr : &from));
}

Perplexity Model::perplexity(std::string_view text, const PerplexityOptions& options) const {
  const Checkpoint& c = *state_->checkpoint;
  const std::vector<Token> ids = text_ids(tokenizer_of(c), text);
  Taps taps;
  const auto check_edits = install_edits(taps, *c.model, edits_of(options.edits), Passes::many);
  const rapt::Perplexity p = rapt::perplexity(state_->on(), c, ids, options.window, options.windows, {},
                                              options.edits.empty() ? nullptr : &taps);
  check_edits();
  return {.value = p.perplexity, .error = p.error, .loss = p.nll, .windows = p.chunks, .tokens = p.tokens};
}

Tensor Model::embed(const std::vector<std::string>& texts, const EmbedOptions& options) const {
  std::optional<Pool> pool;
  if (options.pooling != Pooling::own) pool = static_cast<Pool>(static_cast<int>(options.pooling) - 1);
  Tensor out{.name = "embeddings",
             .shape = {static_cast<Dim>(texts.size()), state_->net().recipe.width},
             .values = {}};
  for (const std::vector<float>& row :
       embed_texts(state_->on(), *state_->checkpoint, texts, pool, options.normalize))
    out.values.insert(out.values.end(), row.begin(), row.end());
  return out;
}
static_assert(static_cast<int>(Pooling::first) == static_cast<int>(Pool::first) + 1 &&
              static_cast<int>(Pooling::mean) == static_cast<int>(Pool::mean) + 1 &&
              static_cast<int>(Pooling::last) == static_cast<int>(Pool::last) + 1);

std::vector<std::vector<ClassScore>> Model::classify(const std::vector<std::string>& texts) const {
  std::vector<std::vector<ClassScore>> out;
  for (const std::vector<float>& row : classify_texts(state_->on(), *state_->checkpoint, texts)) {
    out.emplace_back();
    for (std::size_t i = 0; i < row.size(); ++i)
      out.back().push_back({class_name(*state_->checkpoint, i), row[i]});
  }
  return out;
}

std::vector<std::vector<MaskWord>> Model::fill(const std::string& text, int top) const {
  const Tokenizer& t = tokenizer_of(*state_->checkpoint);
  const FilledMasks filled = fill_masks(state_->on(), *state_->checkpoint, {&text, 1}, top).at(0);
  std::vector<std::vector<MaskWord>> out;
  for (std::size_t mask = 0; mask < filled.guesses.size(); ++mask) {
    out.emplace_back();
    for (const MaskGuess& g : filled.guesses[mask])
      out.back().push_back({g.id, g.probability, guess_text(t, g.id), filled_text(t, filled, mask, g.id)});
  }
  return out;
}

// ------------------------------------------------------------------------------------------------ files

void Model::save(const std::string& path, const SaveOptions& options) const {
  std::optional<DType> type;
  const QuantMix* mix = find_mix(options.type);
  if (mix) type = mix->type;
  else if (!options.type.empty()) type = dtype_named(options.type);
  if (!options.type.empty() && !type)
    fail_usage("save: '", options.type, "' is no type of weights: f32, f16, q8_0, q4_k_m …");
  if (state_->opened) {
    write_checkpoint(
        state_->checkpoint->path, path,
        {.type = type, .mix = mix, .force = options.replace, .progress = {}, .note = {}, .dry_run = {}});
    return;
  }
  if (type || path.ends_with(".gguf"))
    fail_usage(
        "save: a model that was made or trained becomes a folder of f32 weights first; opened from "
        "there, it can be saved as anything");
  write_model_folder(state_->net(), state_->extras, path, options.replace);
}

}  // namespace rapt::api
