// SPDX-License-Identifier: Apache-2.0
// The first family that can say the recipe gives the names. A folder is written beside, then renamed.
#include "rapt/load/model_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>

#include "rapt/base/text.h"
#include "rapt/io/folder.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/family_write.h"
#include "rapt/tensor/pack.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;
using File = std::pair<std::string, std::vector<std::byte>>;

File text_file(const std::string& name, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {name, {bytes.begin(), bytes.end()}};
}

// ------------------------------------------------------------------------------------------------ tensors
struct Target {
  std::string name;
  TensorLayout::Tensor tensor;
  Dim columns = 0;  // of a row
  std::vector<std::pair<const Weight*, TensorUse>> places;
};

std::vector<Target> targets_of(const Family& family, const Model& model) {
  const std::vector<WeightShape> shapes = weight_shapes(model.recipe);
  TensorLayout layout(family, Form::folder, model.recipe);
  for (const WeightShape& w : shapes) layout.add(written_name(family, Form::folder, w.name, model.recipe), w);
  layout.finish();
  std::vector<Target> out;
  for (const std::string& name : layout.keys()) {
    Target t{.name = name, .tensor = layout.tensor(name), .places = {}};
    for (const std::size_t u : t.tensor.users) t.places.emplace_back(&model.weights[u], layout.use(u));
    t.columns = t.tensor.shape.back();
    t.tensor.shape = written_shape(family, name, shapes[t.tensor.users[0]], t.tensor.shape, model.recipe);
    out.push_back(std::move(t));
  }
  return out;
}

void row_of(const Weight& w, Dim r, std::span<float> out) {
  if (is_block(w.format)) return unpack_row(w, r, out);
  if (w.format == DType::f32) {
    const float* from = reinterpret_cast<const float*>(w.data.get()) + w.offset(r, 0);
    const Dim step = w.packing == Packing::panels ? kPanel : 1;
    for (Dim c = 0; c < w.cols; ++c) out[static_cast<std::size_t>(c)] = from[c * step];
    return;
  }
  for (Dim c = 0; c < w.cols; ++c) out[static_cast<std::size_t>(c)] = static_cast<float>(w.get(r, c));
}

// Rows that nobody reads are zeros.
SafetensorBytes tensor_of(const Target& t) {
  SafetensorBytes out{.name = t.name, .dtype = DType::f32, .shape = t.tensor.shape, .bytes = {}};
  Dim elements = 1;
  for (const Dim d : out.shape) elements *= d;
  out.bytes.resize(static_cast<std::size_t>(elements) * sizeof(float));
  auto* values = reinterpret_cast<float*>(out.bytes.data());
  const Dim last = t.columns;
  std::vector<float> row;
  for (const auto& [w, use] : t.places)
    for (Dim r = 0; r < w->rows; ++r) {
      row.resize(static_cast<std::size_t>(w->cols));
      row_of(*w, r, row);
      for (Dim c = 0; c < w->cols; ++c) {
        const Dim at = t.tensor.vector  ? use.row(c)
                       : use.transposed ? (use.slice + c) * last + use.row(r)
                                        : use.row(r) * last + c;
        values[at] = row[static_cast<std::size_t>(c)];
      }
    }
  return out;
}

// A vector that the library keeps in pieces.
std::vector<SafetensorBytes> tensors_of(const Target& t) {
  std::vector<SafetensorBytes> out{tensor_of(t)};
  if (t.name.find(kEachHead) == std::string::npos) return out;
  const SafetensorBytes whole = std::move(out[0]);
  out.clear();
  const std::size_t size = whole.bytes.size() / static_cast<std::size_t>(whole.shape[0]);
  for (Dim h = 0; h < whole.shape[0]; ++h) {
    const auto from = whole.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(h) * size);
    out.push_back({.name = of_head(t.name, h),
                   .dtype = whole.dtype,
                   .shape = {whole.shape[1]},
                   .bytes = {from, from + static_cast<std::ptrdiff_t>(size)}});
  }
  return out;
}

// ---------------------------------------------------------------------------------------------- config.json
// The family's words for dropout: each names the place of the recipe whose number it takes, in the
// first layer.
void set_dropout(Json& config, const Family& family, const Recipe& r) {
  const Json* words = family.json.find("dropout");
  if (!words || !words->is_object()) return;
  const StackRecipe& stack = r.decoder ? *r.decoder : *r.encoder;
  double attn = 0, part = 0, ffn = 0;
  for (const PartRecipe& p : stack.layer(0).parts) {
    part = p.dropout;
    if (p.self()) attn = p.self()->dropout;
    if (p.ffn()) ffn = p.ffn()->dropout;
  }
  for (const Json::Member& m : words->object()) {
    const std::string& place = m.value.string();
    config.set(m.key, place == "embed"  ? r.embed.dropout
                      : place == "attn" ? attn
                      : place == "ffn"  ? ffn
                                        : part);
  }
}

Json id_or_null(std::int32_t id) { return id >= 0 ? Json(static_cast<std::int64_t>(id)) : Json(); }

void set_ids(Json& j, const FolderExtras& e, bool both) {
  for (const auto& [key, id] :
       {std::pair{"bos_token_id", e.bos}, std::pair{"eos_token_id", e.eos}, std::pair{"pad_token_id", e.pad}})
    if (id >= 0 || !j.find(key)) j.set(key, id_or_null(id));  // CLIP's rows are chosen by one
  if (both) j.set("decoder_start_token_id", id_or_null(e.decoder_start));
}

struct Spoken {  // who says this recipe, and how
  const Family* family;
  Translation model;
};
// Several families may say a recipe: the one it came from goes first, then those that extend no other.
Spoken spoken_as(const Recipe& resolved, bool own = false) {
  for (const int turn : {0, 1, 2})
    for (const Family& f : families()) {
      const int rank = f.name == resolved.name ? 0 : f.json.find("extends") ? 2 : 1;
      if (own || rank != turn) continue;
      if (auto t = family_values(f, resolved)) return {&f, std::move(*t)};
    }
  return {&own_family(), {.values = {}, .recipe = resolved}};
}

}  // namespace

std::string family_for(const Recipe& resolved) {
  const Spoken form = spoken_as(resolved);
  return form.family->own ? "" : form.family->name;
}

namespace {

std::vector<File> description(const Model& model, const FolderExtras& extras, const Spoken& form) {
  const Recipe& r = model.recipe;
  const bool classes = r.head.kind == HeadRecipe::Kind::classes, both = r.encoder && r.decoder;
  if (!extras.class_names.empty() &&
      static_cast<Dim>(extras.class_names.size()) != (classes ? r.head.classes : 0))
    fail("model folder: ", extras.class_names.size(), " names of classes, the model has ",
         classes ? r.head.classes : 0);
  for (const auto& [what, id] :
       {std::pair{"bos", extras.bos}, std::pair{"eos", extras.eos}, std::pair{"pad", extras.pad},
        std::pair{"decoder_start", extras.decoder_start}})
    if (id >= r.vocab)
      fail("model folder: ", what, " is token ", id, ", the model's vocabulary has ", r.vocab);

  Json config = config_of(*form.family, form.model);
  set_dropout(config, *form.family, r);
  set_ids(config, extras, both);
  if (classes) set_class_names(config, extras.class_names, r.head.classes);
  config.set("torch_dtype", "float32");

  std::vector<File> out;
  out.push_back(text_file("config.json", config_text(config)));
  if (r.decoder && r.head.kind == HeadRecipe::Kind::vocab) {
    Json generation = Json::Object{};
    set_ids(generation, extras, both);
    out.push_back(text_file("generation_config.json", generation.dump() + "\n"));
  }
  if (extras.tokenizer) {
    if (!extras.tokenizer->tokenizer_json.empty())
      out.push_back(text_file("tokenizer.json", extras.tokenizer->tokenizer_json));
    if (!extras.tokenizer->tokenizer_config_json.empty())
      out.push_back(text_file("tokenizer_config.json", extras.tokenizer->tokenizer_config_json));
  }
  if (!extras.preprocessor.empty()) out.push_back(text_file("preprocessor_config.json", extras.preprocessor));
  out.push_back(text_file("recipe.json", recipe_json(r)));
  return out;
}

}  // namespace

std::vector<File> model_folder_description(const Model& model, const FolderExtras& extras) {
  return description(model, extras, spoken_as(model.recipe, extras.own));
}

std::vector<File> model_folder_files(const Model& model, const FolderExtras& extras) {
  const Spoken form = spoken_as(model.recipe, extras.own);
  std::vector<File> out = description(model, extras, form);
  std::vector<SafetensorBytes> tensors;
  for (const Target& t : targets_of(*form.family, model))
    for (SafetensorBytes& bytes : tensors_of(t)) tensors.push_back(std::move(bytes));
  // Transformers wants to know whose axes these are.
  const std::pair<std::string, std::string> kFormat[] = {{"format", "pt"}};
  out.emplace_back("model.safetensors", safetensors_bytes(tensors, kFormat));
  return out;
}

namespace {

// FOLDER.tmp-PROCESS of a run that was killed while it wrote: only what such a run writes is removed, and
// only when it is gone. The folder that stood there before (.tmp-PROCESS.old) goes when there is a new one.
void remove_leftovers(const fs::path& to) {
  const std::string begin = to.filename().string() + ".tmp-";
  const fs::path parent = to.has_parent_path() ? to.parent_path() : fs::path(".");
  std::error_code error;
  std::vector<fs::path> gone;
  for (const fs::path& path : paths_in(parent, error)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(begin) || !fs::is_directory(fs::symlink_status(path, error))) continue;
    long process = 0;
    const auto [end, bad] = std::from_chars(name.data() + begin.size(), name.data() + name.size(), process);
    const std::string_view rest(end, static_cast<std::size_t>(name.data() + name.size() - end));
    if (bad != std::errc{} || !(rest.empty() || (rest == ".old" && fs::exists(to / "config.json", error))))
      continue;
    bool ours = left_behind(path.string(), process);
    for (const fs::path& inside : paths_in(path, error)) {
      const std::string file = inside.filename().string();
      ours = ours && fs::is_regular_file(inside, error) &&
             (file.ends_with(".json") || file.ends_with(".safetensors") ||
              (file.starts_with('.') && file.ends_with(".tmp")));
    }
    if (ours && !error) gone.push_back(path);
  }
  for (const fs::path& p : gone) remove_tree(p, error);
}

}  // namespace

void write_model_folder(const Model& model, const FolderExtras& extras, const std::string& folder,
                        bool force) {
  const fs::path to = fs::path(folder).lexically_normal().has_filename()
                          ? fs::path(folder).lexically_normal()
                          : fs::path(folder).lexically_normal().parent_path();
  std::error_code error;
  const bool there = fs::exists(fs::symlink_status(to, error));
  if (there && !force) fail(folder, ": exists already; --force overwrites it");
  if (there && !fs::is_empty(to, error) && !fs::exists(to / "config.json", error))
    fail(folder,
         ": is there and is no model folder (it has no config.json), "
         "so it is not replaced; choose another name");
  remove_leftovers(to);
  const std::string mark = concat(".tmp-", ::getpid()), beside = to.string() + mark,
                    before = to.string() + mark + ".old";
  remove_tree(beside, error);
  fs::create_directories(beside, error);
  if (error) fail(beside, ": cannot be made: ", error.message());
  struct Undo {
    const std::string& path;
    int held;
    ~Undo() {
      if (held >= 0) ::close(held);
      try {
        std::error_code ignored;
        if (!path.empty()) remove_tree(path, ignored);
      } catch (const std::bad_alloc&) {  // the next one who writes here removes it
      }
    }
  } undo{beside, ::open(beside.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  ::flock(undo.held, LOCK_EX | LOCK_NB);  // says that somebody still writes it
  for (const auto& [name, bytes] : model_folder_files(model, extras)) {
    FileWriter file((fs::path(beside) / name).string(), false);
    file.write(bytes);
    file.commit();
  }
  if (there) {
    fs::rename(to, before, error);
    if (error) fail(folder, ": cannot be moved aside: ", error.message());
  }
  fs::rename(beside, to, error);
  if (error) {
    const std::string why = error.message();
    if (there) fs::rename(before, to, error);
    fail(folder, ": the finished folder cannot be put there: ", why);
  }
  if (there) remove_tree(before, error);
}

}  // namespace rapt
