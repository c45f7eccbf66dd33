// SPDX-License-Identifier: Apache-2.0
// Models: opened, described, one pass over a text, vectors, classes, masks, translations, files.
#include "rapt/apps/python/model.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "rapt/apps/python/arrays.h"
#include "rapt/apps/python/edits.h"
#include "rapt/base/text.h"
#include "rapt/inspect/alignment.h"
#include "rapt/io/folder.h"
#include "rapt/load/adapter.h"
#include "rapt/load/model_folder.h"
#include "rapt/load/quant_mix.h"
#include "rapt/nn/size.h"
#include "rapt/text/prompt.h"
#include "rapt/use/conversation.h"
#include "rapt/use/picture_files.h"
#include "rapt/use/read_pictures.h"
#include "rapt/use/read_texts.h"
#include "rapt/use/translate.h"

namespace rapt::python {

DevicePtr shared_device() {
  // Never destroyed: threads may still compute when the process ends.
  static const DevicePtr& device = *new DevicePtr(api::Access::of(api::Device()));
  return device;
}

namespace {

using Ids = std::vector<std::int32_t>;
using Texts = std::vector<std::string>;
namespace fs = std::filesystem;

// ------------------------------------------------------------------------------------ where models come from
ModelPtr open_model(const std::string& name, const DevicePtr& device, bool exact,
                    std::optional<std::pair<Dim, Dim>> streaming, const Texts& lora, nb::object listener) {
  auto state = std::make_shared<api::ModelState>();
  state->device = device ? device : shared_device();
  Progress progress(std::move(listener));
  LoadOptions load{
      .real = state->on().real, .matrices = {}, .change = {}, .progress = {}, .device = &state->on()};
  if (exact) load.matrices = load.real;
  if (streaming)
    load.change = [&](Recipe& r) {
      const auto [keep, asked] = *streaming;
      const Dim window = asked > 0 ? asked : r.context - keep;
      if (window < 1)
        fail_usage("streaming: ", keep, " kept tokens leave no window in a context of ", r.context);
      stream_windows(r, keep, window);
      state->stream = {keep, window};
    };
  if (progress.is_on())
    load.progress = [&](std::uint64_t done, std::uint64_t of) {
      progress.set(static_cast<double>(done), static_cast<double>(of));
    };
  without_gil(progress, [&] {
    const auto opened = std::make_shared<Checkpoint>(open_checkpoint(find_model(name), load));
    for (const std::string& words : lora) opened->adapters.push_back(load_adapter_use(words, *opened));
    state->checkpoint = opened;
  });
  return state;
}

nb::dict info(const ModelPtr& m) {
  const Checkpoint& c = *m->checkpoint;
  const Recipe& r = c.model->recipe;
  nb::dict d;
  d["path"] = c.path, d["family"] = c.family, d["format"] = c.format;
  d["parameters"] = c.model->parameters();
  d["vocabulary"] = r.vocab, d["context"] = r.context, d["width"] = r.width;
  d["encoder_layers"] = c.model->encoder ? c.model->encoder->depth() : 0;
  d["decoder_layers"] = c.model->decoder ? c.model->decoder->depth() : 0;
  std::size_t bytes = 0;
  for (const Weight& w : c.model->weights) bytes += w.bytes();
  d["bytes"] = bytes;
  d["has_tokenizer"] = c.tokenizer != nullptr;
  d["chat_template"] = c.chat_template;
  d["translates"] = r.encoder && r.decoder;
  d["writes"] = r.decoder && r.head.kind == HeadRecipe::Kind::vocab;
  d["reads_pictures"] = r.embed.patches.has_value();
  d["decoder_start"] = c.decoder_start;
  nb::list classes;
  if (r.head.kind == HeadRecipe::Kind::classes)
    for (Dim i = 0; i < r.head.classes; ++i)
      classes.append(text_of(class_name(c, static_cast<std::size_t>(i))));
  d["classes"] = classes;
  return d;
}

Ids prompt(const ModelPtr& m, const std::string& text, bool special) {
  const OutOfPython out(on_main_thread());
  return prompt_ids(*m->checkpoint, text, special);
}

// -------------------------------------------------------------------------------------------------- one pass
// [tokens, vocabulary], [vocabulary] where only the last is wanted; hidden states of a model without head.
nb::object logits(const ModelPtr& m, const Ids& ids, const Ids& source, bool last_only) {
  const Model& model = m->net();
  const bool both = model.encoder && model.decoder;
  if (both && source.empty())
    fail_usage(
        "logits: this model translates; give the tokens of its source, too (source=), and as text what "
        "its decoder reads, with decoder_start first");
  if (!both && !source.empty()) fail_usage("logits: only a model with encoder and decoder reads a source");
  if (model.recipe.embed.patches) fail_usage("logits: this model reads pictures");
  if (ids.empty()) fail_usage("logits: no tokens");
  for (const Ids* list : {&ids, &source})
    for (const std::int32_t id : *list)
      if (id < 0 || id >= model.recipe.vocab)
        fail_usage("logits: token ", id, " is outside the vocabulary of ", model.recipe.vocab);
  Edited edited(*m, Passes::one);
  std::vector<float> values;
  std::vector<Dim> shape;
  without_gil([&] {
    Run run(m->on());
    run.taps = edited.edits();
    const std::vector<AdapterUse>& adapters = m->checkpoint->adapters;
    Batch batch{.tokens = ids, .sequences = {{.count = static_cast<Dim>(ids.size()), .adapters = adapters}}};
    if (last_only && !model.recipe.head.pools()) batch.want = kWantLast;
    const Batch from{.tokens = source,
                     .sequences = {{.count = static_cast<Dim>(source.size()), .adapters = adapters}}};
    const Tensor t = forward(run, model, batch, source.empty() ? nullptr : &from);
    for (int i = last_only && t[0] == 1 ? 1 : 0; i < t.rank; ++i) shape.push_back(t[i]);
    if (t.dtype == DType::f32) {
      const std::span<const float> all = t.as<const float>();
      values.assign(all.begin(), all.end());
    } else {
      for (Dim i = 0; i < t.elements(); ++i) values.push_back(static_cast<float>(t.at(i)));
    }
  });
  edited.check();
  return array_of(std::move(values), shape);
}

nb::object measure_perplexity(const ModelPtr& m, const std::string& text, Dim window, Dim windows,
                              nb::object listener) {
  Progress progress(std::move(listener));
  Edited edited(*m, Passes::many);
  const Perplexity p = without_gil(progress, [&] {
    const Checkpoint& c = *m->checkpoint;
    const Ids ids = text_ids(tokenizer_of(c), text);
    return perplexity(
        m->on(), c, ids, window, windows,
        [&](Dim done, Dim of, double) { progress.set(static_cast<double>(done), static_cast<double>(of)); },
        edited.edits());
  });
  edited.check();
  return nb::make_tuple(p.perplexity, p.error, p.nll, p.chunks, p.tokens);
}

// ---------------------------------------------------------------------------------------- texts and pictures
// `one`: of a single row, without the first axis.
nb::object rows_of(std::vector<std::vector<float>>&& rows, bool one = false) {
  if (one) return array_of(std::move(rows.at(0)));
  const Dim shape[] = {static_cast<Dim>(rows.size()), rows.empty() ? 0 : static_cast<Dim>(rows[0].size())};
  std::vector<float> all;
  all.reserve(static_cast<std::size_t>(shape[0] * shape[1]));
  for (const std::vector<float>& row : rows) all.insert(all.end(), row.begin(), row.end());
  return array_of(std::move(all), shape);
}

std::optional<Pool> pool_named(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::vector<std::string> names = {"mean", "cls", "last"};
  const Pool values[] = {Pool::mean, Pool::first, Pool::last};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return values[i];
  fail_name("pool: '", name, "' is no way to pool; ", name_hint(name, names));
}

// (vectors [texts, width], how many were cut)
nb::object embed(const ModelPtr& m, const Texts& texts, bool one, const std::string& pool,
                 std::optional<bool> normalize, nb::object listener) {
  const std::optional<Pool> how = pool_named(pool);
  Progress progress(std::move(listener));
  Edited edited(*m, Passes::one);
  Dim cut = 0;
  auto rows = without_gil(progress, [&] {
    return embed_texts(
        m->on(), *m->checkpoint, texts, how, normalize,
        [&](Dim done, Dim of) { progress.set(static_cast<double>(done), static_cast<double>(of)); }, &cut,
        edited.edits());
  });
  edited.check();
  return nb::make_tuple(rows_of(std::move(rows), one), cut);
}

nb::object classify(const ModelPtr& m, const Texts& texts, nb::object listener) {
  Progress progress(std::move(listener));
  Edited edited(*m, Passes::one);
  Dim cut = 0;
  auto rows = without_gil(progress, [&] {
    return classify_texts(
        m->on(), *m->checkpoint, texts,
        [&](Dim done, Dim of) { progress.set(static_cast<double>(done), static_cast<double>(of)); }, &cut,
        edited.edits());
  });
  edited.check();
  return nb::make_tuple(rows_of(std::move(rows)), cut);
}

// A picture's file, or its numbers: bytes [height, width, 3], or f32 [channels, height, width] as the model
// wants them.
using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Planes = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using PictureGiven = std::variant<std::string, Bytes, Planes>;

std::vector<PictureGiven> pictures_given(const nb::list& list) {
  std::vector<PictureGiven> out;
  for (const nb::handle x : list) {
    Bytes bytes;
    Planes planes;
    if (nb::isinstance<nb::str>(x)) out.emplace_back(nb::cast<std::string>(x));
    else if (nb::try_cast(x, bytes, false)) out.emplace_back(bytes);
    else if (nb::try_cast(x, planes, false)) out.emplace_back(planes);
    else
      fail_usage(
          "a picture is a file's name, an array of bytes (uint8) of shape (height, width, 3), or one of "
          "f32 of shape (channels, height, width), as the model wants it; both in order (C)");
  }
  return out;
}

PreparedImage prepared(const ImageProcess& process, const PictureGiven& given) {
  if (const auto* path = std::get_if<std::string>(&given)) return read_prepared_image(process, *path);
  if (const auto* bytes = std::get_if<Bytes>(&given)) {
    if (bytes->shape(2) != 3) fail_usage("a picture of bytes has 3 colours, this one has ", bytes->shape(2));
    Image image{
        .width = static_cast<Dim>(bytes->shape(1)), .height = static_cast<Dim>(bytes->shape(0)), .rgb = {}};
    check_image_size("picture", static_cast<std::uint64_t>(image.width),
                     static_cast<std::uint64_t>(image.height));
    image.rgb.assign(bytes->data(), bytes->data() + bytes->size());
    return preprocess(process, image);
  }
  const auto& planes = std::get<Planes>(given);
  PreparedImage out{
      .height = static_cast<Dim>(planes.shape(1)), .width = static_cast<Dim>(planes.shape(2)), .pixels = {}};
  out.pixels.assign(planes.data(), planes.data() + planes.size());
  return out;
}

// Of all pictures, a few in memory at a time: read(pictures) gives a row for each.
template <class F>
std::vector<std::vector<float>> each_picture(const ModelPtr& m, std::span<const PictureGiven> all,
                                             const char* verb, Progress& progress, const F& read) {
  constexpr std::size_t kSide = 16;
  return without_gil(progress, [&] {
    // Numbers as the model wants them need none.
    ImageProcess process;
    if (std::ranges::any_of(all, [](const PictureGiven& p) { return !std::holds_alternative<Planes>(p); })) {
      if (m->checkpoint->path.empty() && m->checkpoint->preprocessor.empty())
        fail_usage(verb,
                   ": this model, which is in memory alone, does not say how pictures are prepared; give "
                   "it arrays of f32 that are");
      process = image_process_of(*m->checkpoint, verb);
    }
    std::vector<std::vector<float>> out;
    for (std::size_t first = 0; first < all.size(); first += kSide) {
      std::vector<PreparedImage> images;
      std::vector<Picture> pictures;
      for (const PictureGiven& given : all.subspan(first, std::min(kSide, all.size() - first)))
        images.push_back(prepared(process, given));
      for (const PreparedImage& image : images)
        pictures.push_back({.pixels = image.pixels, .height = image.height, .width = image.width});
      for (std::vector<float>& row : read(pictures)) out.push_back(std::move(row));
      progress.set(static_cast<double>(out.size()), static_cast<double>(all.size()));
    }
    return out;
  });
}

void refuse_edits(const ModelPtr& m, const char* verb) {
  if (m->edits) fail_usage(verb, ": edits cannot change this; use the model without them");
}

nb::object embed_given(const ModelPtr& m, const nb::list& list, bool one, const std::string& pool,
                       std::optional<bool> normalize, nb::object listener) {
  refuse_edits(m, "embed");
  const std::optional<Pool> how = pool_named(pool);
  const std::vector<PictureGiven> all = pictures_given(list);
  Progress progress(std::move(listener));
  return rows_of(each_picture(m, all, "embed", progress,
                              [&](std::span<const Picture> some) {
                                return embed_pictures(m->on(), *m->checkpoint, some, how,
                                                      normalize.value_or(m->checkpoint->normalize));
                              }),
                 one);
}

nb::object classify_given(const ModelPtr& m, const nb::list& list, nb::object listener) {
  refuse_edits(m, "classify");
  const std::vector<PictureGiven> all = pictures_given(list);
  Progress progress(std::move(listener));
  return rows_of(each_picture(m, all, "classify", progress, [&](std::span<const Picture> some) {
    return classify_pictures(m->on(), *m->checkpoint, some);
  }));
}

// For each mask: [(id, probability, word, the text with it)].
nb::list fill(const ModelPtr& m, const std::string& text, Dim top) {
  Edited edited(*m, Passes::one);
  const FilledMasks filled = without_gil([&] {
    return std::move(fill_masks(m->on(), *m->checkpoint, {&text, 1}, top, {}, edited.edits()).at(0));
  });
  edited.check();
  const Tokenizer& t = tokenizer_of(*m->checkpoint);
  nb::list out;
  for (std::size_t mask = 0; mask < filled.guesses.size(); ++mask) {
    nb::list guesses;
    for (const MaskGuess& g : filled.guesses[mask])
      guesses.append(nb::make_tuple(g.id, g.probability, text_of(guess_text(t, g.id)),
                                    text_of(filled_text(t, filled, mask, g.id))));
    out.append(guesses);
  }
  return out;
}

// ---------------------------------------------------------------------------------------------- translations
struct AlignmentWish {
  int layer = 0, head = -1;
  AlignmentOptions::Layers layers = AlignmentOptions::Layers::usual;
  bool words = true;
};

nb::list texts_of(const Texts& all) {
  nb::list out;
  for (const std::string& s : all) out.append(text_of(s));
  return out;
}

// Options: (beams, length_penalty, gnmt, max_tokens, prefix, side, n_best). `align`: None, or
// (layer or None for the usual one or "all", head, words).
nb::list translate(const ModelPtr& m, const Texts& lines,
                   std::tuple<int, double, bool, Dim, std::string, Dim, int> how, const std::string& cache,
                   nb::object align, nb::object listener) {
  const Checkpoint& c = *m->checkpoint;
  if (!c.model->encoder || !c.model->decoder)
    fail_usage(c.path, " (", c.family,
               ") is no encoder-decoder: it has no source to translate from; generate() "
               "goes on with a text");
  TranslateOptions o;
  o.generate.sampler.temperature = 0;
  bool gnmt = false;
  std::tie(o.generate.beams, o.generate.length_penalty, gnmt, o.generate.max_tokens, o.prefix, o.side,
           o.generate.samples) = how;
  if (gnmt) o.generate.penalty_form = GenerateOptions::PenaltyForm::gnmt;
  if (o.side < 1) fail_usage("translate: ", o.side, " lines side by side; give at least 1");
  check(o.generate);
  std::optional<AlignmentOptions> wish;
  if (!align.is_none()) {
    const nb::tuple t = nb::cast<nb::tuple>(align);
    wish.emplace();
    if (nb::isinstance<nb::str>(t[0])) wish->layers = AlignmentOptions::Layers::all;
    else if (!t[0].is_none()) wish->layers = AlignmentOptions::Layers::one, wish->layer = nb::cast<int>(t[0]);
    wish->head = nb::cast<int>(t[1]);
    wish->words = nb::cast<bool>(t[2]);
  }
  const std::optional<DType> type = dtype_named(cache);
  Progress progress(std::move(listener));
  Edited edited(*m, Passes::many);
  std::atomic<bool> cancel{false};
  std::vector<TranslatedLine> done;
  std::vector<std::optional<Alignment>> looks(lines.size());
  without_gil(cancel, progress.tick(), [&] {
    Session session(m->on(), c, {.cache = type.value_or(DType::f32), .taps = edited.edits()});
    done = translate_lines(
        session, c, lines, o, {},
        [&](std::size_t n) { progress.set(static_cast<double>(n), static_cast<double>(lines.size())); },
        &cancel);
    for (std::size_t i = 0; wish && !cancel && i < done.size(); ++i) {
      const TranslatedLine& t = done[i];
      if (t.answers.empty()) continue;
      Ids target = t.answers[0].ids;
      if (t.answers[0].finish == Finish::stop && c.tokenizer->eos >= 0) target.push_back(c.tokenizer->eos);
      if (!target.empty()) looks[i] = alignment(m->on(), c, t.source, target, *wish);
    }
  });
  edited.check();
  nb::list out;
  for (std::size_t i = 0; i < done.size(); ++i) {
    const TranslatedLine& t = done[i];
    nb::dict d;
    d["text"] = text_of(t.text);
    d["source_ids"] = nb::cast(t.source);
    nb::list answers;
    for (const Generated& g : t.answers)
      answers.append(nb::make_tuple(text_of(g.text), nb::cast(g.ids), g.score,
                                    g.finish == Finish::stop ? "stop" : "length", g.hash));
    d["answers"] = answers;
    if (looks[i]) {
      Alignment& a = *looks[i];
      const Dim shape[] = {static_cast<Dim>(a.target.size()), static_cast<Dim>(a.source.size())};
      std::vector<float> weights(a.weights.begin(), a.weights.end());
      d["alignment"] = nb::make_tuple(texts_of(a.target), texts_of(a.source),
                                      array_of(std::move(weights), shape), nb::cast(a.layers));
    } else {
      d["alignment"] = nb::none();
    }
    out.append(d);
  }
  return out;
}

// ----------------------------------------------------------------------------------------------------- files
ConvertOptions convert_options(const std::string& type, bool replace, std::uint64_t shard_bytes) {
  ConvertOptions o;
  o.force = replace;
  o.shard_bytes = shard_bytes;
  if (type.empty()) return o;
  const std::optional<DType> plain = dtype_named(type);
  o.mix = find_mix(type);
  if (o.mix) o.type = o.mix->type;
  else if (plain && is_float(*plain) && *plain != DType::f64) o.type = plain;
  if (o.type) return o;
  Texts names = {"f32", "f16", "bf16"};
  for (const QuantMix& mix : quant_mixes()) names.emplace_back(mix.name);
  fail_name("type: weights are not stored as '", type, "'; ", name_hint(type, names),
            plain && is_block(*plain) ? concat("; ", rapt::name_of(*plain), " is read, not made") : "");
}

void refuse_existing(const std::string& path, bool replace) {
  std::error_code ignored;
  if (!replace && fs::exists(path, ignored)) fail(path, ": exists already; replace=True takes its place");
}

// What was done otherwise than asked, in words.
nb::list convert(const std::string& from, const std::string& to, const std::string& type, bool replace,
                 std::uint64_t shard_bytes, nb::object listener) {
  ConvertOptions o = convert_options(type, replace, shard_bytes);
  refuse_existing(to, replace);
  Progress progress(std::move(listener));
  o.progress = [&](std::size_t done, std::size_t of) {
    if (const std::atomic<bool>* cancel = CancelScope::now(); cancel && *cancel) throw Cancelled();
    progress.set(static_cast<double>(done), static_cast<double>(of));
  };
  Texts notes;
  o.note = [&](const std::string& text) { notes.push_back(text); };
  without_gil(progress, [&] {
    const std::string path = find_model(from);
    write_checkpoint(path, to, o);
    if (!o.type || !is_block(*o.type)) return;
    for (const auto& [stored, n] : checkpoint_summary(path).types)
      if (is_block(stored) && stored != *o.type) {
        notes.push_back(
            concat(from, " was quantized before (", n.tensors, " tensors in ", rapt::name_of(stored),
                   "): both roundings add up; begin with f32, f16 or bf16 weights where there are "
                   "some"));
        break;
      }
  });
  return texts_of(notes);
}

// A model in memory, or one whose weights were changed, becomes a folder; of that anything can be made.
void write_folder(const ModelPtr& m, const std::string& path, bool replace) {
  refuse_existing(path, replace);
  const Checkpoint& c = *m->checkpoint;
  FolderExtras extras = m->extras;
  if (m->opened) {
    if (c.tokenizer) {
      extras.tokenizer = std::make_shared<TokenizerFiles>(tokenizer_files(*c.tokenizer, c.chat_template));
      extras.bos = c.tokenizer->bos, extras.eos = c.tokenizer->eos, extras.pad = c.tokenizer->pad;
    }
    extras.decoder_start = c.decoder_start;
    extras.class_names = c.class_names;
    extras.preprocessor = c.preprocessor;
  }
  const Lease lease(m->on().team());  // nobody changes a weight meanwhile
  write_model_folder(m->net(), extras, path, replace);
}

nb::list check_file(const std::string& name, bool values) {
  return texts_of(without_gil([&] { return check_checkpoint(find_model(name), values); }));
}

nb::dict summary_of(const std::string& path) {
  nb::dict d;
  const fs::path p(path);
  d["name"] = text_of(p.filename().string());
  d["path"] = text_of(path);
  try {
    const CheckpointSummary s = checkpoint_summary(path);
    d["bytes"] = s.bytes;
    d["parameters"] = count_parameters(s.recipe).total;
    d["type"] = types_text(s);
    d["family"] = s.family;
    d["context"] = s.recipe.context;
    d["chat"] = !s.chat_template.empty();
    d["error"] = nb::none();
  } catch (const Error& e) {
    for (const char* key : {"bytes", "parameters", "type", "family", "context", "chat"}) d[key] = nb::none();
    d["error"] = text_of(e.what());
  }
  return d;
}

nb::list models() {
  nb::list out;
  for (const std::string& path : model_paths()) out.append(summary_of(path));
  return out;
}

}  // namespace

void add_model(nb::module_& m) {
  nb::class_<api::DeviceState>(m, "Device")
      .def("__init__",
           [](api::DeviceState* self, int threads, const std::string& isa) {
             new (self) api::DeviceState(DeviceOptions{.threads = threads, .isa = isa});
           })
      .def_prop_ro("threads", [](const api::DeviceState& d) { return d.device.threads(); })
      .def_prop_ro("isa", [](const api::DeviceState& d) { return std::string(d.device.kernels.isa); });
  m.def("shared_device", &shared_device);
  nb::class_<api::ModelState>(m, "ModelState")
      .def_prop_ro("device", [](const api::ModelState& s) { return s.device; })
      .def_prop_ro("opened", [](const api::ModelState& s) { return s.opened; })
      .def_prop_ro("changes", [](const api::ModelState& s) { return s.net().changes.load(); })
      .def_prop_ro("has_adapters", [](const api::ModelState& s) { return !s.checkpoint->adapters.empty(); })
      .def_prop_ro("has_edits", [](const api::ModelState& s) { return s.edits != nullptr; });
  m.def("open_model", &open_model, "name"_a, "device"_a.none(), "exact"_a, "streaming"_a.none(), "lora"_a,
        "progress"_a.none());
  nb::class_<AdapterUse>(m, "AdapterUse").def_ro("scale", &AdapterUse::scale);
  m.def("open_adapter", [](const ModelPtr& s, const std::string& path, float scale) {
    return without_gil([&] { return AdapterUse{load_adapter(path, *s->checkpoint), scale}; });
  });
  m.def("info", &info);
  m.def("recipe_of", [](const ModelPtr& s) { return recipe_json(s->net().recipe, true); });
  m.def("prompt_ids", &prompt);
  m.def("logits", &logits);
  m.def("perplexity", &measure_perplexity, "model"_a, "text"_a, "window"_a, "windows"_a, "progress"_a.none());
  m.def("embed", &embed, "model"_a, "texts"_a, "one"_a, "pool"_a, "normalize"_a.none(), "progress"_a.none());
  m.def("classify", &classify, "model"_a, "texts"_a, "progress"_a.none());
  m.def("embed_pictures", &embed_given, "model"_a, "pictures"_a, "one"_a, "pool"_a, "normalize"_a.none(),
        "progress"_a.none());
  m.def("classify_pictures", &classify_given, "model"_a, "pictures"_a, "progress"_a.none());
  m.def("fill", &fill);
  m.def("translate", &translate, "model"_a, "lines"_a, "options"_a, "cache"_a, "align"_a.none(),
        "progress"_a.none());
  m.def("convert", &convert, "from"_a, "to"_a, "type"_a, "replace"_a, "shard_bytes"_a, "progress"_a.none());
  m.def("write_folder", [](const ModelPtr& s, const std::string& path, bool replace) {
    without_gil([&] { write_folder(s, path, replace); });
  });
  m.def("check", &check_file);
  m.def("models", &models);
  m.def("find_model", &find_model);
}

}  // namespace rapt::python
