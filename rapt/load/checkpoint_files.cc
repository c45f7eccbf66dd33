// SPDX-License-Identifier: Apache-2.0
// Opens GGUF files, Hugging Face folders and llama2.c files as one Source: keys and tensors under the names
// of a form.
//
//   llama2.c, version 0, little-endian:
//     i32 width, ffn width, layers, heads, key heads, vocabulary (negative: its own output matrix), context
//     f32 tokens[V,C] att_norm[L,C] q[L,C,C] k[L,KD,C] v[L,KD,C] o[L,C,C] ffn_norm[L,C] gate[L,F,C]
//         down[L,C,F] up[L,F,C] norm[C] cos[T,D/2] sin[T,D/2] (tables nobody needs)
//         output[V,C] (own matrix only)
#include "rapt/load/checkpoint_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "rapt/base/checked.h"
#include "rapt/base/text.h"
#include "rapt/io/folder.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/checkpoint.h"
#include "rapt/load/family_write.h"
#include "rapt/recipe/recipe_diff.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}
bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

constexpr std::size_t kMostRecipe = 1 << 20;

// "FOLDER:vision": one of two towers. A file or folder that is really called so stays what it is.
std::pair<std::string, std::optional<Tower>> split_tower(const std::string& name) {
  for (const auto& [word, tower] : {std::pair{":vision", Tower::vision}, std::pair{":text", Tower::text}})
    if (name.ends_with(word) && !is_there(name))
      return {name.substr(0, name.size() - std::string_view(word).size()), tower};
  return {name, std::nullopt};
}

std::string read_magic(const std::string& path) {
  char bytes[4] = {};
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const ssize_t n = file < 0 ? 0 : ::read(file, bytes, sizeof bytes);
  if (file >= 0) ::close(file);
  return {bytes, static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
}

// 1e-5 is written into a GGUF as the nearest float; the shortest number that means this float is what
// was meant.
double meant(double x) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(x)).ptr;
  double out = x;
  std::from_chars(text, end, out);
  return out;
}

// A vocabulary's lists stay where they are; the rest are numbers and words.
Json json_of(const GgufValue& v) {
  constexpr std::size_t kLongest = 65536;
  const bool single = (v.type == GgufValue::Type::array ? v.element : v.type) == GgufValue::Type::f32;
  auto number = [&](double x) { return Json(single ? meant(x) : x); };
  if (const auto* b = std::get_if<bool>(&v.value)) return *b;
  if (const auto* i = std::get_if<std::int64_t>(&v.value)) return *i;
  if (const auto* d = std::get_if<double>(&v.value)) return number(*d);
  if (const auto* s = std::get_if<std::string>(&v.value)) return *s;
  Json::Array out;
  if (const auto* list = std::get_if<GgufValue::Integers>(&v.value); list && list->size() <= kLongest)
    for (const std::int64_t x : *list) out.push_back(x);
  if (const auto* list = std::get_if<GgufValue::Numbers>(&v.value); list && list->size() <= kLongest)
    for (const double x : *list) out.push_back(number(x));
  return out;
}

void open_gguf(CheckpointFiles& f) {
  f.format = "gguf";
  f.gguf = GgufFile::open(f.path);
  Source& s = f.source;
  s.form = Form::gguf;
  s.where = f.path;
  s.arch = f.gguf->text("general.architecture");
  if (const std::string type = f.gguf->text_or("general.type", "model"); type != "model")
    fail(f.path, ": general.type is ", json_quote(type),
         ": no whole model (an adapter or a projector belongs to one)");
  s.keys = Json::Object{};
  Json::Object keys;
  for (const auto& [key, value] : f.gguf->metadata())
    if (!key.starts_with("tokenizer.") || key == "tokenizer.ggml.token_type_count")
      keys.push_back({key, json_of(value)});
  s.keys = std::move(keys);
  s.tensors = &f.gguf->tensors;
  if (s.arch != own_family().name) {
    s.family = &family_of_gguf(s.keys, s.arch, f.path);
    return;
  }
  s.family = &own_family();
  const std::string& text = f.gguf->text(kOwnRecipeKey);
  if (text.size() > kMostRecipe)
    fail(f.path, ": ", kOwnRecipeKey, " has ", text.size(), " bytes; no recipe is that long");
  f.recipe = parse_recipe(text, concat(f.path, ": ", kOwnRecipeKey));
}

void open_folder(CheckpointFiles& f) {
  f.format = "folder";
  const fs::path folder = f.path;
  Source& s = f.source;
  s.form = Form::folder;
  s.where = (folder / "config.json").string();
  if (!is_there(folder / "config.json")) {
    if (is_there(folder / "params.json"))
      fail(f.path,
           ": params.json without config.json: the original format of Meta or Mistral; take the Hugging Face "
           "form of the model");
    fail(f.path,
         ": this folder has no config.json, so it is no Hugging Face checkpoint, and neither is it one that "
         "`rapt train` made (model/, step-N), nor holds it one GGUF file; give a folder with config.json and "
         "model.safetensors, or a GGUF file");
  }
  check_links(f.path);
  s.keys = read_json_file(s.where, 16 << 20);
  if (!s.keys.is_object()) fail(s.where, ": wants an object { … }, has ", s.keys.type_name());
  s.family = &family_of_config(s.keys, s.where, f.tower);
  if (const Json* q = s.keys.find("quantization_config"); q && !q->is_null())
    fail(s.where,
         ": quantization_config: packed weights of other libraries (GPTQ, AWQ, bitsandbytes) are not read; "
         "take the unquantized checkpoint or a GGUF file");
  if (const fs::path p = folder / "recipe.json"; is_there(p))
    f.recipe = parse_recipe(read_text_file(p.string(), kMostRecipe), p.string());
  else if (s.family->own)
    fail(f.path,
         ": config.json says \"rapt\", so recipe.json must describe the model, "
         "and there is none; copy the whole folder");
  f.table = open_safetensors_folder(f.path);
  s.tensors = &f.table;
  f.generation = read_json_file((folder / "generation_config.json").string(), 16 << 20);
}

void open_llama2c(CheckpointFiles& f) {
  f.format = "llama2.c";
  const MappedFile file(f.path);
  Reader r(file);
  static constexpr const char* kNames[] = {"width",     "ffn width",  "layers", "heads",
                                           "key heads", "vocabulary", "context"};
  Dim h[7];
  for (int i = 0; i < 7; ++i) h[i] = r.get<std::int32_t>(kNames[i]);
  if (h[0] == 0x616b3432)
    fail(f.path, ": a llama2.c file of version ", h[1],
         "; only version 0 (plain f32) is read: export it with --version 0");
  const bool own_head = h[5] < 0;
  const Dim C = h[0], F = h[1], L = h[2], H = h[3], K = h[4], V = own_head ? -h[5] : h[5], T = h[6];
  for (int i = 0; i < 7; ++i)
    if ((i == 5 ? V : h[i]) < 1 || (i == 5 ? V : h[i]) > (1 << 24))
      fail(f.path, ": byte ", 4 * i, ": ", kNames[i], " is ", h[i],
           ", so this is no llama2.c file (a .bin with PyTorch weights is not read: take safetensors)");
  if (L > 1000 || C % H != 0 || H % K != 0)
    fail(f.path, ": ", H, " heads, ", K, " key heads, width ", C, " and ", L,
         " layers do not fit each other: no llama2.c file");
  const Dim D = C / H, KD = K * D;
  auto take = [&](const std::string& name, std::vector<Dim> shape) {
    Dim n = 4;
    for (const Dim d : shape) n = checked_mul(n, d, f.path);
    const auto bytes = r.skip(static_cast<std::uint64_t>(n), name);
    f.table.add(r, name, DType::f32, std::move(shape), bytes);
  };
  auto layers = [&](const char* name, std::vector<Dim> shape) {
    for (Dim i = 0; i < L; ++i) take(concat("blk.", i, ".", name, ".weight"), shape);
  };
  take("token_embd.weight", {V, C});
  layers("attn_norm", {C});
  layers("attn_q", {C, C});
  layers("attn_k", {KD, C});
  layers("attn_v", {KD, C});
  layers("attn_output", {C, C});
  layers("ffn_norm", {C});
  layers("ffn_gate", {F, C});
  layers("ffn_down", {C, F});
  layers("ffn_up", {F, C});
  take("output_norm.weight", {C});
  r.skip(static_cast<std::uint64_t>(checked_mul(checked_mul(4, T, f.path), D / 2 * 2, f.path)),
         "tables of cosines and sines");
  if (own_head) take("output.weight", {V, C});
  if (r.left() > 0) r.refuse(r.left(), " bytes are left over: this is no llama2.c file of version 0");
  f.table.hold(file);

  Source& s = f.source;
  s.form = Form::gguf;  // rows of q and k lie as a GGUF's do
  s.where = f.path;
  s.arch = "llama";
  s.keys = Json::Object{};
  for (const auto& [key, value] :
       {std::pair{"llama.embedding_length", C}, std::pair{"llama.block_count", L},
        std::pair{"llama.attention.head_count", H}, std::pair{"llama.attention.head_count_kv", K},
        std::pair{"llama.feed_forward_length", F}, std::pair{"llama.context_length", T},
        std::pair{"llama.vocab_size", V}})
    s.keys.set(key, value);
  s.keys.set("llama.attention.layer_norm_rms_epsilon", 1e-5);
  s.tensors = &f.table;
  s.family = &family_of_gguf(s.keys, s.arch, f.path);
}

// Templates by name, of which "default" is meant.
std::string template_in(const Json* j, const std::string& where) {
  if (!j || j->is_null()) return "";
  if (j->is_string()) return j->string();
  if (!j->is_array())
    fail(where, ": chat_template: wants a string or a list of named templates, has ", j->type_name());
  std::string out;
  for (const Json& entry : j->array()) {
    const Json *name = entry.find("name"), *text = entry.find("template");
    if (!name || !text || !name->is_string() || !text->is_string())
      fail(where, ": chat_template: every entry of the list needs a name and a template");
    if (name->string() == "default") return text->string();
    if (out.empty()) out = text->string();
  }
  return out;
}

}  // namespace

Json read_json_file(const std::string& path, std::uint64_t most) {
  if (!is_there(path)) return {};
  return parse_json(read_text_file(path, most), path);
}

std::unique_ptr<CheckpointFiles> open_files(const std::string& name, Tower tower) {
  auto files = std::make_unique<CheckpointFiles>();
  const auto [found, named] = split_tower(find_model(name));
  files->path = found;
  files->tower = named.value_or(tower);
  if (is_folder(files->path)) {
    open_folder(*files);
    return files;
  }
  const MappedFile file(files->path);
  std::vector<std::byte> start(std::min<std::size_t>(file.bytes().size(), 64));
  file.copy(0, start);
  const bool gguf = start.size() >= 4 && std::memcmp(start.data(), "GGUF", 4) == 0;
  const fs::path path = files->path;
  if (!gguf && (path.extension() == ".safetensors" || path.filename() == "config.json" ||
                path.filename() == "model.safetensors.index.json"))
    fail(files->path, ": this is one file of a checkpoint; give its folder: ",
         json_quote(path.parent_path().empty() ? "." : path.parent_path().string()));
  if (!gguf && path.extension() == ".bin") {
    try {
      open_llama2c(*files);
    } catch (const Error&) {  // only now: a width of 640 begins like a pickle
      if (const std::string what = foreign_format(start); !what.empty()) fail(files->path, ": ", what);
      throw;
    }
  } else {
    open_gguf(*files);
  }
  return files;
}

Translation translate_files(const CheckpointFiles& f) {
  if (!f.recipe) return translate(f.source);
  const std::string where =
      f.gguf ? concat(f.path, ": ", kOwnRecipeKey) : (fs::path(f.path) / "recipe.json").string();
  Recipe said;
  try {
    said = resolve(*f.recipe);
  } catch (const Error& e) {
    fail(where, ": ", e.what());
  }
  if (f.source.family->own) return {.values = {}, .recipe = said};
  Translation t = translate(f.source);
  // An untied matrix may hold the numbers of the table: right after the start of both with zeros, say.
  if (said.head.kind == HeadRecipe::Kind::vocab && !said.head.tied && f.source.tensor("head.weight"))
    t.recipe.head.tied = false;
  const auto differences = diff_recipes(architecture_of(t.recipe), architecture_of(said));
  if (!differences.empty())
    fail(where, ": describes another model than config.json and the tensors beside it: ", differences[0].path,
         " is ", differences[0].b, ", they say ", differences[0].a,
         differences.size() > 1 ? concat(" (and ", differences.size() - 1, " more)") : "",
         "; one of the files was changed alone. Without recipe.json the folder is read as config.json says");
  t.recipe = said;
  return t;
}

std::string chat_template_of(const CheckpointFiles& f) {
  if (f.gguf) return f.gguf->text_or("tokenizer.chat_template", "");
  if (f.format != "folder") return "";
  const fs::path folder = f.path;
  if (const fs::path p = folder / "chat_template.jinja"; is_there(p))
    return read_text_file(p.string(), 1 << 20);
  const std::string config = (folder / "tokenizer_config.json").string(),
                    own = (folder / "chat_template.json").string();
  const Json inside = read_json_file(config), other = read_json_file(own);
  const std::string text = template_in(inside.find("chat_template"), config);
  return text.empty() ? template_in(other.find("chat_template"), own) : text;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const CheckpointFiles& f, Dim vocab) {
  if (f.gguf) {
    const std::string kind = f.gguf->text_or("tokenizer.ggml.model", "none");
    if (const std::string own = f.gguf->text_or(kOwnTokenizerKey, ""); !own.empty())
      return tokenizer_from_json(own, f.gguf->text_or(kOwnTokenizerConfigKey, ""),
                                 concat(f.path, ": ", kOwnTokenizerKey));
    return kind == "none" || kind == "no_vocab" ? nullptr : tokenizer_from_gguf(*f.gguf);
  }
  if (f.format == "folder") return tokenizer_from_folder(f.path);
  const fs::path folder = fs::path(f.path).parent_path();
  std::vector<fs::path> found = {folder / concat("tok", vocab, ".bin"), folder / "tokenizer.bin"};
  std::error_code ignored;
  for (const fs::path& p : paths_in(folder.empty() ? "." : folder, ignored))
    if (p.filename().string().starts_with("tok") && p.extension() == ".bin") found.push_back(p);
  for (const fs::path& p : found)
    if (is_there(p)) return tokenizer_from_llama2c(read_file(p.string()), vocab, p.string());
  return nullptr;
}

// ------------------------------------------------------------------------------------------------ names
namespace {

// The newest state of a training (step-N, step-N.gK) that is a model folder; "" where there is none.
std::string newest_state(const fs::path& folder) {
  std::pair<Dim, Dim> newest{-1, 0};
  std::string out;
  std::error_code error;
  for (const fs::path& path : paths_in(folder, error)) {
    const std::string name = path.filename().string();
    if (!name.starts_with("step-") || !is_there(path / "config.json")) continue;
    std::pair<Dim, Dim> state{-1, 1};
    const char* const last = name.data() + name.size();
    auto read = std::from_chars(name.data() + 5, last, state.first);
    if (last - read.ptr > 2 && std::string_view(read.ptr, 2) == ".g")
      read = std::from_chars(read.ptr + 2, last, state.second);
    if (read.ec == std::errc{} && read.ptr == last && state > newest) newest = state, out = path.string();
  }
  return out;
}

// The only *.gguf of a folder; "" where there is none, or more than one.
std::string single_gguf(const fs::path& folder) {
  std::string out;
  std::error_code error;
  for (const fs::path& path : paths_in(folder, error)) {
    if (path.extension() != ".gguf") continue;
    if (!out.empty()) return "";
    out = path.string();
  }
  return out;
}

// The checkpoint that a path leads to: a file, a folder with config.json; in a folder without one, the model
// or the newest state that `rapt train` left there, or the only GGUF file. "" where it is none of these.
std::string checkpoint_at(const fs::path& path) {
  if (path.empty() || !is_there(path)) return "";
  if (!is_folder(path) || is_there(path / "config.json") || is_there(path / "params.json"))
    return path.string();
  if (is_there(path / "model" / "config.json")) return (path / "model").string();
  if (const std::string state = newest_state(path); !state.empty()) return state;
  return single_gguf(path);
}

std::vector<fs::path> model_folders() {
  const char* set = std::getenv("RAPT_MODELS");
  std::vector<fs::path> out;
  for (std::string_view rest = set ? set : ""; !rest.empty();) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    if (colon > 0) out.emplace_back(rest.substr(0, colon));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return out;
}

std::string whole_name(const std::string& name) {
  if (name.empty()) return "";
  for (const fs::path& folder : model_folders())
    for (const fs::path& p : {folder / name, folder / (name + ".gguf")})
      if (const std::string found = checkpoint_at(p); !found.empty()) return found;
  return "";
}

// The folder of the file that this code was loaded from: the program, or a shared library (Python's module).
fs::path own_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&is_there), &info) || !info.dli_fname) return {};
  return fs::path(info.dli_fname).parent_path();
}

// Models that come with the program lie beside it, or in share/rapt where it is installed; those of a module
// in its folder models. "" where there is none of that name.
std::string beside_program(const std::string& name) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error || name.empty() || name.find('/') != std::string::npos) return "";
  for (const fs::path& p :
       {folder / (name + ".gguf"), folder.parent_path() / "share" / "rapt" / (name + ".gguf"),
        own_folder() / "models" / (name + ".gguf")})
    if (is_there(p)) return p.string();
  return "";
}

struct NamesInFolders {
  std::vector<std::string> all, begun;  // every model's name; those that begin so, in any case of letters
  std::string first;                    // the path of begun[0]
};
NamesInFolders names_in_folders(const std::string& beginning) {
  auto lower = [](std::string s) {
    for (char& c : s) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return s;
  };
  NamesInFolders out;
  for (const fs::path& folder : model_folders()) {
    std::error_code error;
    for (const fs::path& p : paths_in(folder, error)) {
      if (!is_folder(p) && p.extension() != ".gguf" && p.extension() != ".bin") continue;
      const std::string name = p.filename().string(), found = checkpoint_at(p);
      if (found.empty() || std::find(out.all.begin(), out.all.end(), name) != out.all.end()) continue;
      out.all.push_back(name);
      if (beginning.empty() || !lower(name).starts_with(lower(beginning))) continue;
      if (out.begun.empty()) out.first = found;
      out.begun.push_back(name);
    }
  }
  std::sort(out.all.begin(), out.all.end());
  std::sort(out.begun.begin(), out.begun.end());
  return out;
}

// The rule of find_model(); "" where nothing has the name, or where a preset has it and presets count.
std::string find_named(const std::string& name, bool presets) {
  if (const auto [stem, tower] = split_tower(name); tower) {
    const std::string found = find_named(stem, presets);
    return found.empty() ? "" : found + name.substr(stem.size());
  }
  if (const std::string here = checkpoint_at(name); !here.empty()) return here;
  if (const std::string whole = whole_name(name); !whole.empty()) return whole;
  if (presets) {
    const std::vector<std::string> all = preset_names();
    if (std::find(all.begin(), all.end(), name) != all.end()) return "";
  }
  if (const std::string own = beside_program(name); !own.empty()) return own;
  const NamesInFolders names = names_in_folders(name);
  if (names.begun.size() == 1) return names.first;
  if (is_folder(name)) return name;  // whoever opens it says what it lacks
  if (names.begun.size() > 1)
    fail_usage(name, ": begins the names of ", join(names.begun), "; write more of the one that is meant");
  return "";
}

bool may_be_model(const fs::path& p) {
  std::error_code ignored;
  if (fs::is_directory(p, ignored))
    return fs::exists(p / "config.json", ignored) || fs::exists(p / "model" / "config.json", ignored);
  return p.extension() == ".gguf" || (p.extension() == ".bin" && !p.filename().string().starts_with("tok"));
}

[[noreturn]] void fail_not_found(const std::string& name) {
  if (model_folders().empty())
    fail_missing(name,
                 ": there is no such file or folder (RAPT_MODELS is not set; it may name folders of models)");
  const std::vector<std::string> names = names_in_folders("").all;
  fail_missing(name, ": there is no such file or folder, and none in RAPT_MODELS; ",
               names.empty() ? "there are no models in it" : name_hint(name, names));
}

}  // namespace

std::vector<std::string> model_paths() {
  std::vector<std::string> out;
  for (const fs::path& folder : model_folders()) {
    std::vector<std::string> here;
    std::error_code ignored;
    for (const fs::path& p : paths_in(folder, ignored))
      if (may_be_model(p)) here.push_back(p.string());
    std::sort(here.begin(), here.end());
    out.insert(out.end(), here.begin(), here.end());
  }
  for (const char* name : {"default", "default-gated"}) try {
      if (const std::string own = find_model(name); fs::path(own).is_absolute()) out.push_back(own);
    } catch (const Error&) {}
  return out;
}

std::string types_text(const CheckpointSummary& s) {
  std::vector<std::pair<std::size_t, std::string>> types;
  for (const auto& [type, n] : s.types)
    if (is_block(type) || (is_float(type) && type != DType::f32))
      types.emplace_back(n.tensors, name_of(type));
  if (types.empty()) return "f32";
  std::sort(types.rbegin(), types.rend());
  std::vector<std::string> names;
  for (const auto& [n, name] : types) names.push_back(name);
  return join(names, "/");
}

std::string find_model(const std::string& name) {
  std::string found = find_named(name, false);
  if (found.empty()) fail_not_found(name);
  return found;
}

std::string find_model_unless_recipe(const std::string& name) {
  const fs::path path = name;
  const bool weights =
      path.extension() == ".gguf" || path.extension() == ".bin" || path.extension() == ".safetensors";
  if (is_there(path) && !is_folder(path)) return weights || read_magic(name) == "GGUF" ? name : "";
  std::string found = find_named(name, true);
  if (found.empty() && weights) fail_not_found(name);
  return found;
}

}  // namespace rapt
