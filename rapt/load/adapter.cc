// SPDX-License-Identifier: Apache-2.0
// Two forms are read into one list of pairs (A, B, scale) by the name of a matrix in that form; then each
// pair finds the weights that lie in this matrix, and B's rows theirs.
//
//   PEFT  adapter_config.json: peft_type "LORA", lora_alpha, use_rslora, alpha_pattern …
//         adapter_model.safetensors: base_model.model.NAME.lora_A.weight [r,K], ….lora_B.weight [N,r]
//   GGUF  general.type "adapter", adapter.type "lora", adapter.lora.alpha
//         NAME.weight.lora_a [r,K], NAME.weight.lora_b [N,r]
#include "rapt/load/adapter.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "rapt/base/sha256.h"
#include "rapt/base/text.h"
#include "rapt/io/gguf.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/checkpoint_files.h"
#include "rapt/nn/adapted.h"
#include "rapt/tensor/pack.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

constexpr Dim kMostRank = 4096;

// The two factors of one matrix's change, by its name in the adapter's form.
struct LoraPair {
  const TensorView *a = nullptr, *b = nullptr;
  double alpha = 0;         // 0: GGUF without one, scale 1
  bool rank_stable = false; // alpha / sqrt(r)
};

struct AdapterFile {
  std::string where;  // for messages
  Form form = Form::folder;
  std::optional<GgufFile> gguf;
  std::optional<SafetensorsFile> safetensors;
  const TensorTable* tensors = nullptr;
  std::map<std::string, LoraPair> pairs;
  // PEFT saves the model's own output matrix beside factors of it (NAME.base_layer.weight).
  std::map<std::string, const TensorView*> copies;
};

void put_factor(AdapterFile& f, std::string name, bool is_b, const TensorView& t) {
  LoraPair& p = f.pairs[std::move(name)];
  const TensorView*& half = is_b ? p.b : p.a;
  if (half)
    fail(f.where, ": tensors ", quote_name(half->name()), " and ", quote_name(t.name()),
         " are the same factor of one matrix; a file holds one adapter");
  half = &t;
}

[[noreturn]] void refuse_tensor(const AdapterFile& f, const TensorView& t) {
  const std::string& name = t.name();
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  if (has("lora_magnitude_vector"))
    fail(f.where, ": tensor ", quote_name(name),
         ": DoRA changes the length of a matrix's rows, too, which is not built; merge the adapter into its "
         "model (merge_and_unload) and load that");
  if (has("lora_embedding_"))
    fail(f.where, ": tensor ", quote_name(name),
         " changes a table of embeddings; only matrices of layers and the head can be changed by an adapter: "
         "merge it into its model (merge_and_unload)");
  if (name.ends_with(".bias"))
    fail(f.where, ": tensor ", quote_name(name),
         ": biases that came out of the training are not read; merge the adapter into its model "
         "(merge_and_unload)");
  fail(f.where, ": tensor ", quote_name(name), " ", t.shape_text(),
       f.form == Form::gguf ? " is neither lora_a nor lora_b of a matrix"
                            : " is neither lora_A nor lora_B of a matrix; what was trained and saved whole "
                              "(modules_to_save) is not read: merge the adapter into its model "
                              "(merge_and_unload)");
}

// ------------------------------------------------------------------------------------------------ PEFT
// Switches of the configuration behind which something else is computed than W + scale * B A.
void refuse_variants(const Json& config, const std::string& where) {
  static constexpr std::pair<const char*, const char*> kRefused[] = {
      {"use_dora", "DoRA changes the length of a matrix's rows, too"},
      {"use_qalora", "QALoRA pools the inputs"},
      {"use_bdlora", "its factors lie in blocks"},
      {"lora_bias", "lora_B has a bias"},
      {"layer_replication", "layers are used several times"},
      {"alora_invocation_tokens", "it acts only behind certain tokens"},
      {"kasa_config", "its product has a third factor"},
      {"arrow_config", "it chooses between adapters"},
      {"monteclora_config", "its factors are drawn"},
      {"trainable_token_indices", "vectors of tokens were trained"},
      {"target_parameters", "experts were trained"},
  };
  for (const auto& [key, why] : kRefused) {
    const Json* v = config.find(key);
    const bool off = !v || v->is_null() || *v == Json(false) || (v->is_array() && v->array().empty());
    if (!off)
      fail(where, ": ", key, " is ", v->dump(0).substr(0, 80), ": ", why,
           ", which is not built; merge the adapter into its model (merge_and_unload) and load that");
  }
  const Json* bias = config.find("bias");
  if (bias && bias->is_string() && bias->string() != "none")
    fail(where, ": bias is ", json_quote(bias->string()),
         ": biases that came out of the training are not read; merge the adapter into its model "
         "(merge_and_unload)");
  const Json* start = config.find("init_lora_weights");
  if (!start || start->is_null() || start->is_bool()) return;
  for (const std::string_view known : {"gaussian", "eva", "orthogonal", "mica"})
    if (start->is_string() && start->string() == known) return;
  fail(where, ": init_lora_weights is ", start->dump(0).substr(0, 80),
       ": such a training changes the model's own weights before it begins, and the adapter fits only "
       "those; convert it to a plain one (path_initial_model_for_weight_conversion of save_pretrained)");
}

double lora_number(const Json& config, std::string_view key, const std::string& where) {
  const Json* v = config.find(key);
  if (!v || !v->is_number() || !std::isfinite(v->number()))
    fail(where, ": ", key, ": wants a number, has ", v ? v->dump(0).substr(0, 80) : "nothing");
  return v->number();
}

// {"q_proj": 8}: of modules whose name is this, or ends so behind a dot. PEFT reads regular expressions here.
std::vector<std::pair<std::string, double>> alpha_patterns(const Json& config, const std::string& where) {
  std::vector<std::pair<std::string, double>> out;
  const Json* all = config.find("alpha_pattern");
  if (!all || all->is_null()) return out;
  if (!all->is_object()) fail(where, ": alpha_pattern: wants an object, has ", all->type_name());
  for (const Json::Member& m : all->object()) {
    const std::string key(m.key);
    if (key.find_first_of("\\^$*+?()[]{}|") != std::string::npos)
      fail(where, ": alpha_pattern: ", json_quote(key),
           " is a regular expression; only the ends of modules' names are read");
    out.emplace_back(key, lora_number(*all, m.key, where));
  }
  return out;
}

void open_peft(AdapterFile& f, const fs::path& folder, const std::string& weights) {
  const std::string at = (folder / "adapter_config.json").string();
  check_link(folder.string(), at);
  check_link(folder.string(), weights);
  const Json config = read_json_file(at, 1 << 20);
  if (!config.is_object())
    fail(at, ": ",
         config.is_null() ? "this file is missing; it says how strongly an adapter acts"
                          : "wants an object { … }");
  const Json* type = config.find("peft_type");
  if (!type || !type->is_string() || type->string() != "LORA")
    fail(at, ": peft_type is ", type ? type->dump(0).substr(0, 80) : "missing",
         "; adapters of LoRA are read");
  refuse_variants(config, at);
  const double alpha = lora_number(config, "lora_alpha", at);
  const Json* stable = config.find("use_rslora");
  const bool rank_stable = stable && *stable == Json(true);
  const auto patterns = alpha_patterns(config, at);

  f.where = weights;
  f.safetensors = SafetensorsFile::open(weights);
  f.tensors = &f.safetensors->tensors;
  for (const TensorView& t : f.tensors->all()) {
    // NAME.lora_A.weight, or NAME.lora_A.ADAPTER.weight of older versions
    const std::string& name = t.name();
    constexpr std::string_view kPrefix = "base_model.model.", kCopy = ".base_layer.weight";
    if (name.starts_with(kPrefix) && name.ends_with(kCopy)) {
      const std::size_t length = name.size() - kPrefix.size() - kCopy.size();
      f.copies[name.substr(kPrefix.size(), length) + ".weight"] = &t;
      continue;
    }
    std::size_t at_half = std::string::npos;
    bool is_b = false;
    for (const bool b : {false, true})
      if (const std::size_t n = name.rfind(b ? ".lora_B." : ".lora_A."); n != std::string::npos)
        at_half = n, is_b = b;
    constexpr std::size_t kHalf = 8;
    const std::string rest = at_half == std::string::npos ? "" : name.substr(at_half + kHalf);
    if (rest != "weight" && !(rest.ends_with(".weight") && std::ranges::count(rest, '.') == 1))
      refuse_tensor(f, t);
    std::string module = name.substr(0, at_half);
    if (module.starts_with(kPrefix)) module.erase(0, kPrefix.size());
    double its = alpha;
    for (const auto& [end, value] : patterns)
      if (module == end || module.ends_with("." + end)) {
        its = value;
        break;
      }
    LoraPair& p = f.pairs[module + ".weight"];
    p.alpha = its, p.rank_stable = rank_stable;
    put_factor(f, module + ".weight", is_b, t);
  }
}

// ------------------------------------------------------------------------------------------------ GGUF
void open_gguf_adapter(AdapterFile& f, const std::string& path, const Family& family) {
  f.where = path;
  f.form = Form::gguf;
  f.gguf = GgufFile::open(path);
  const GgufFile& g = *f.gguf;
  f.tensors = &g.tensors;
  if (const std::string type = g.text_or("general.type", "model"); type != "adapter")
    fail(path, ": general.type is ", json_quote(type), "; an adapter says \"adapter\"");
  if (const std::string type = g.text_or("adapter.type", ""); type != "lora")
    fail(path, ": adapter.type is ", json_quote(type), "; adapters of LoRA are read");
  if (g.find("adapter.alora.invocation_tokens"))
    fail(path, ": adapter.alora.invocation_tokens: it acts only behind certain tokens, which is not built");
  if (const std::string& arch = g.text("general.architecture"); arch != family.gguf_arch())
    fail(path, ": general.architecture is ", json_quote(arch), ", the model is ",
         family.gguf_arch().empty() ? concat("a ", family.name, ", which has no GGUF form")
                                    : json_quote(family.gguf_arch()),
         "; an adapter belongs to the model that it was trained on");
  const double alpha = g.number_or("adapter.lora.alpha", 0);
  for (const TensorView& t : f.tensors->all()) {
    const std::string& name = t.name();
    const bool a = name.ends_with(".lora_a"), b = name.ends_with(".lora_b");
    if (!a && !b) refuse_tensor(f, t);
    constexpr std::size_t kHalf = 7;
    const std::string matrix = name.substr(0, name.size() - kHalf);
    f.pairs[matrix].alpha = alpha;
    put_factor(f, matrix, b, t);
  }
}

// ------------------------------------------------------------------------------------------------ places
const Family& adapter_family(const Checkpoint& c) {
  for (const Family& f : families())
    if (f.name == c.family) return f;
  return own_family();
}

// The matrices of the model by their names in one form.
struct MatrixNames {
  TensorLayout layout;
  std::vector<std::size_t> weights;  // by the layout's number of a user: the model's weight
  std::map<std::string, std::string> keys;  // every name it may have -> the layout's key
  std::map<std::string, std::size_t> heads;  // names of a head whose matrix is the table of tokens

  MatrixNames(const Family& family, Form form, const Model& model) : layout(family, form, model.recipe) {
    const std::vector<WeightShape> shapes = weight_shapes(model.recipe);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::vector<std::string> names = family.tensor_names(form, shapes[i].name);
      if (names.empty()) continue;
      layout.add(names[0], shapes[i]);
      weights.push_back(i);
      for (const std::string& name : names) keys.emplace(name, names[0]);
    }
    layout.finish();
    if (model.head.w && model.head.w == model.tokens)
      for (const std::string& name : family.tensor_names(form, "head.weight"))
        heads.emplace(name, static_cast<std::size_t>(model.tokens->index));
  }
  std::vector<std::string> all() const {
    std::vector<std::string> out;
    for (const auto& [name, key] : keys) out.push_back(name);
    return out;
  }
};

void need_finite_factor(const std::string& where, const TensorView& t, std::span<const float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      fail(where, ": tensor ", quote_name(t.name()), ": element ", i, " is ", values[i],
           "; such an adapter computes nothing: the file is damaged, or its training diverged");
}

// Stored as the file has it where `linear` reads that, else as the device's numbers.
DType factor_format(const TensorView& t, DType real) {
  return real == DType::f32 && (t.dtype() == DType::f16 || t.dtype() == DType::bf16) ? t.dtype() : real;
}

struct PlacedWeight {
  const Weight* w;
  TensorUse use;  // which rows of B
};

class AdapterMaker {
 public:
  AdapterMaker(const Checkpoint& c, AdapterFile& file, Adapter& out)
      : model_(*c.model),
        file_(file),
        out_(out),
        family_(adapter_family(c)),
        names_(family_, file.form, model_),
        adaptable_(adaptable_weights(model_)) {}

  void make() {
    out_.by_weight.assign(model_.weights.size(), -1);
    if (file_.pairs.empty()) fail(file_.where, ": there is no tensor in it, so it changes nothing");
    for (const auto& [name, copy] : file_.copies) compare(name, *copy);
    for (const auto& [name, pair] : file_.pairs) add(name, pair);
    file_.tensors->check_unchanged();
  }

 private:
  // A copy of the model's matrix, as far as its format holds it; trained anew, it would be another model.
  void compare(const std::string& name, const TensorView& t) {
    Dim rows = 0, cols = 0;
    const std::vector<PlacedWeight> places = places_of(name, t, rows, cols);
    double distance = 0, size = 0;
    if (t.shape().size() == 2 && t.shape()[0] == rows && t.shape()[1] == cols && is_float(t.dtype())) {
      const std::vector<float> theirs = t.values();
      std::vector<float> own(static_cast<std::size_t>(cols));
      for (const auto& [w, use] : places)
        for (Dim r = 0; r < w->rows; ++r) {
          if (is_block(w->format)) unpack_row(*w, r, own);
          for (Dim c = 0; c < cols; ++c) {
            const double x = is_block(w->format) ? own[static_cast<std::size_t>(c)] : w->get(r, c),
                         d = x - theirs[static_cast<std::size_t>(use.row(r) * cols + c)];
            distance += d * d, size += x * x;
          }
        }
    } else {
      distance = INFINITY;
    }
    const double most = is_block(places[0].w->format) ? 0.3 : 0.005;  // of a 2-bit type, of bf16
    if (!(distance <= most * most * size))
      fail(file_.where, ": tensor ", quote_name(t.name()), " ", t.shape_text(), " is not the model's own ",
           places[0].w->name, " [", rows, ",", cols,
           "]: it was resized or trained as a whole, which is not read; merge the adapter into its model "
           "(merge_and_unload)");
  }

  void add(const std::string& name, const LoraPair& p) {
    const TensorView& any = p.a ? *p.a : *p.b;
    if (!p.a || !p.b)
      fail(file_.where, ": tensor ", quote_name(any.name()), ": its other factor, lora_", p.a ? "B" : "A",
           ", is missing (is the download complete?)");
    Dim rows = 0, cols = 0;
    const std::vector<PlacedWeight> places = places_of(name, any, rows, cols);
    for (const TensorView* t : {p.a, p.b}) {
      if (!is_float(t->dtype()) && !is_block(t->dtype()))
        fail(file_.where, ": tensor ", quote_name(t->name()), " holds ", name_of(t->dtype()),
             "; factors are numbers with a point");
      if (t->shape().size() != 2)
        fail(file_.where, ": tensor ", quote_name(t->name()), " has shape ", t->shape_text(),
             "; a factor of a matrix has two axes");
    }
    const Dim rank = p.a->shape()[0];
    if (rank < 1 || rank > kMostRank || p.b->shape()[1] != rank || p.a->shape()[1] != cols ||
        p.b->shape()[0] != rows)
      fail(file_.where, ": tensors ", quote_name(p.a->name()), " ", p.a->shape_text(), " and ",
           quote_name(p.b->name()), " ", p.b->shape_text(), ": the model's matrix is [", rows, ",", cols,
           "], so they must be [r,", cols, "] and [", rows, ",r] with one rank r from 1 to ", kMostRank,
           "; an adapter belongs to the model that it was trained on");
    const double r = static_cast<double>(rank), scale = p.alpha == 0 && file_.form == Form::gguf
                                                            ? 1
                                                            : p.alpha / (p.rank_stable ? std::sqrt(r) : r);
    const std::vector<float> a = p.a->values(), b = p.b->values();
    need_finite_factor(file_.where, *p.a, a);
    need_finite_factor(file_.where, *p.b, b);
    const auto down = std::make_shared<Weight>(make_weight(
        places[0].w->name + ".lora_a", rank, cols, factor_format(*p.a, model_.real), Packing::panels));
    fill(*down, std::vector<double>(a.begin(), a.end()));
    for (const auto& [w, use] : places) {
      Adapter::Term t{
          .of = w, .a = down, .b = {}, .scale = static_cast<float>(scale), .rows = adaptable_.at(w)};
      t.b =
          make_weight(w->name + ".lora_b", w->rows, rank, factor_format(*p.b, model_.real), Packing::panels);
      std::vector<double> own;
      for (Dim i = 0; i < w->rows; ++i) {
        const auto from = b.begin() + use.row(i) * rank;
        own.insert(own.end(), from, from + rank);
      }
      fill(t.b, own);
      out_.by_weight[static_cast<std::size_t>(w->index)] = static_cast<std::int32_t>(out_.terms.size());
      out_.terms.push_back(std::move(t));
    }
  }

  // Whose rows lie in the matrix of this name, which is [rows,cols].
  std::vector<PlacedWeight> places_of(const std::string& name, const TensorView& t, Dim& rows, Dim& cols) {
    std::vector<PlacedWeight> out;
    if (const auto head = names_.heads.find(name); head != names_.heads.end()) {
      const Weight& w = model_.weights[head->second];
      rows = w.rows, cols = w.cols;
      out.push_back({&w, {}});
    } else {
      const auto key = names_.keys.find(name);
      if (key == names_.keys.end()) {
        const std::vector<std::string> all = names_.all();
        fail(file_.where, ": tensor ", quote_name(t.name()), " changes ", quote_name(name), ", which a ",
             family_.name,
             " model of this size does not have; the nearest that it has: ", quote_name(nearest(name, all)));
      }
      const TensorLayout::Tensor& tensor = names_.layout.tensor(key->second);
      if (tensor.vector || tensor.joined || tensor.shape.size() != 2) refuse_place(t, name);
      rows = tensor.shape[tensor.transposed ? 1 : 0], cols = tensor.shape[tensor.transposed ? 0 : 1];
      for (const std::size_t u : tensor.users) {
        const Weight& w = model_.weights[names_.weights[u]];
        out.push_back({&w, names_.layout.use(u)});
        if (&w == model_.tokens) refuse_place(t, name);
      }
    }
    for (const auto& [w, use] : out) {
      if (!adaptable_.contains(w)) refuse_place(t, name);
      if (out_.by_weight[static_cast<std::size_t>(w->index)] >= 0)
        fail(file_.where, ": tensor ", quote_name(t.name()), " changes ", w->name,
             " a second time, under another name");
      if (use.slice != 0 || w->cols != cols || use.row(0) < 0 || use.row(w->rows - 1) >= rows)
        refuse_place(t, name);
    }
    return out;
  }

  [[noreturn]] void refuse_place(const TensorView& t, const std::string& name) const {
    fail(file_.where, ": tensor ", quote_name(t.name()), " changes ", quote_name(name),
         ", which no adapter can change here: only matrices of attention, of feed-forward parts and their "
         "like, and the output matrix; not those of single experts, of latent keys, of embeddings, of "
         "classifiers. Merge the adapter into its model (merge_and_unload)");
  }

  const Model& model_;
  AdapterFile& file_;
  Adapter& out_;
  const Family& family_;
  const MatrixNames names_;
  const std::map<const Weight*, Adapter::Rows> adaptable_;
};

std::string_view stored_bytes(const Weight& w) {
  return {reinterpret_cast<const char*>(w.data.get()), w.bytes()};
}

std::array<std::uint64_t, 2> adapter_hash(const Adapter& adapter) {
  std::string all;
  for (const std::int32_t i : adapter.by_weight) {
    if (i < 0) continue;
    const Adapter::Term& t = adapter.terms[static_cast<std::size_t>(i)];
    all += concat(t.of->name, " ", name_of(t.a->format), " ", name_of(t.b.format), " ",
                  std::uint64_t{std::bit_cast<std::uint32_t>(t.scale)}, "\n");
    for (const Weight* w : {t.a.get(), &t.b}) {
      const auto digest = sha256(stored_bytes(*w));
      all.append(reinterpret_cast<const char*>(digest.data()), digest.size());
    }
  }
  const auto digest = sha256(all);
  std::array<std::uint64_t, 2> out{};
  std::memcpy(out.data(), digest.data(), sizeof out);
  return out;
}

}  // namespace

std::shared_ptr<const Adapter> load_adapter(const std::string& path, const Checkpoint& checkpoint) {
  AdapterFile file;
  std::error_code ignored;
  const fs::path at = path;
  if (!fs::exists(at, ignored)) fail_missing(path, ": there is no such file or folder; an adapter is wanted");
  if (fs::is_directory(at, ignored)) {
    const fs::path weights = at / "adapter_model.safetensors";
    if (!fs::exists(weights, ignored))
      fail(path, ": adapter_model.safetensors is missing",
           fs::exists(at / "adapter_model.bin", ignored)
               ? "; adapter_model.bin is a pickle, which can run code and is not read: save the adapter anew "
                 "with safetensors"
               : ", so it is no folder of an adapter as PEFT saves it");
    open_peft(file, at, weights.string());
  } else if (at.extension() == ".safetensors") {
    open_peft(file, at.has_parent_path() ? at.parent_path() : ".", path);
  } else {
    open_gguf_adapter(file, path, adapter_family(checkpoint));
  }
  auto out = std::make_shared<Adapter>();
  out->model = checkpoint.model.get();
  out->path = path;
  AdapterMaker(checkpoint, file, *out).make();
  out->hash = adapter_hash(*out);
  return out;
}

AdapterUse load_adapter_use(const std::string& words, const Checkpoint& checkpoint) {
  std::error_code ignored;
  const std::size_t equals = words.rfind('=');
  if (equals == std::string::npos || fs::exists(words, ignored)) return {load_adapter(words, checkpoint), 1};
  const std::string number = words.substr(equals + 1);
  AdapterUse out;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.scale);
  if (error != std::errc{} || end != number.data() + number.size() || !std::isfinite(out.scale))
    fail_usage("adapter ", words, ": '", number, "' is no scale; write FILE or FILE=0.5");
  out.adapter = load_adapter(words.substr(0, equals), checkpoint);
  return out;
}

}  // namespace rapt
