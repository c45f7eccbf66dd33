// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/made_model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "rapt/load/checkpoint.h"
#include "rapt/load/family.h"
#include "rapt/tensor/formats.h"
#include "tests/hostile/bytes.h"

namespace rapt::test {
namespace {

class Choices {  // from the fuzzer's bytes; zeros when they are used up
 public:
  Choices(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t b = rest_[0];
    rest_ = rest_.subspan(1);
    return b;
  }
  Dim from(Dim least, Dim most) { return least + byte() % (most - least + 1); }
  bool one_in(int n) { return byte() % n == 1; }

 private:
  std::span<const std::uint8_t> rest_;
};

struct Planned {
  std::string name;
  DType type = DType::f32;
  std::vector<Dim> shape;
};

// The values of a family under the names of its files: sizes that fit each other mostly, anything else
// sometimes.
Json choose_keys(const Family& family, Form form, const std::string& arch, Choices& c) {
  const Dim heads = c.from(1, 4), head_dim = c.from(1, 12), kv_heads = c.one_in(2) ? heads : c.from(1, heads);
  const std::map<std::string_view, Dim> fitting = {{"width", c.one_in(8) ? c.from(1, 64) : heads * head_dim},
                                                   {"layers", c.from(1, 2)},
                                                   {"decoder_layers", c.from(1, 2)},
                                                   {"heads", heads},
                                                   {"decoder_heads", heads},
                                                   {"kv_heads", kv_heads},
                                                   {"head_dim", head_dim},
                                                   {"ffn_width", c.from(1, 40)},
                                                   {"decoder_ffn_width", c.from(1, 40)},
                                                   {"context", c.from(2, 64)},
                                                   {"vocab", c.from(2, 40)}};
  Json keys = Json::Object{};
  const auto set = [&](JsonText name, Json value) {
    keys.set(form == Form::gguf && name.starts_with('.') ? arch + name : std::string(name), std::move(value));
  };
  for (const Json::Member& m : family.json.find("values")->object()) {
    if (!m.value.is_object()) continue;
    const Json* names = m.value.find(form == Form::gguf ? "gguf" : "config");
    if (!names || c.one_in(40)) continue;  // absent: the default
    const Json* type = m.value.find("type");
    const std::string kind = type ? std::string(type->string()) : "integer";
    const auto known = fitting.find(m.key);
    Json value;
    if (kind == "integer")
      value = c.one_in(32)             ? Json(static_cast<std::int64_t>(c.byte()) << c.from(0, 62))
              : known != fitting.end() ? Json(known->second)
                                       : Json(c.from(0, 9));
    else if (kind == "boolean") value = c.one_in(2);
    else if (kind == "act")
      value = c.one_in(40)
                  ? "nothing"
                  : std::array{"silu", "gelu", "relu", "gelu_new"}[static_cast<std::size_t>(c.from(0, 3))];
    else if (kind == "feed")
      value = std::array{"relu", "gated-gelu", "gated-silu"}[static_cast<std::size_t>(c.from(0, 2))];
    else
      value =
          c.one_in(40) ? Json(1e300) : Json(static_cast<double>(c.from(1, 40)) / (m.key == "eps" ? 4096 : 4));
    if (names->is_string()) set(names->string(), value);
    else
      for (const Json& n : names->array()) set(n.string(), value);
  }
  if (form == Form::gguf) {
    if (c.one_in(2))
      set(".rope.dimension_count",
          c.one_in(16) ? Json(3.4e38)
                       : Json(c.one_in(4) ? c.from(1, head_dim + 1) : 2 * c.from(1, head_dim / 2 + 1)));
    if (c.one_in(3))
      set(".rope.freq_base", c.one_in(4) ? Json(1e300) : Json(static_cast<double>(c.from(0, 100))));
    if (c.one_in(4)) {
      set(".rope.scaling.type",
          std::array{"linear", "yarn", "none", "longrope"}[static_cast<std::size_t>(c.from(0, 3))]);
      set(".rope.scaling.factor", static_cast<double>(c.from(0, 16)) / 2);
    }
  } else {
    keys.set("model_type", family.json.find("model_type")->array()[0]);
    if (c.one_in(4)) keys.set("rope_theta", c.one_in(4) ? Json(1e300) : Json(c.from(0, 100)));
    if (c.one_in(4)) keys.set("partial_rotary_factor", static_cast<double>(c.from(0, 8)) / 8);
    if (c.one_in(4))
      keys.set("rope_scaling",
               Json::Object{{"rope_type", std::array{"linear", "dynamic", "yarn", "llama3",
                                                     "longrope"}[static_cast<std::size_t>(c.from(0, 4))]},
                            {"factor", static_cast<double>(c.from(0, 16)) / 2},
                            {"original_max_position_embeddings", c.from(0, 32)},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", static_cast<double>(c.from(0, 8))},
                            {"short_factor", Json::Array{1.0, 1.0}},
                            {"long_factor", Json::Array{1.0, 2.0}}});
  }
  return keys;
}

// The tensors that a model of these keys has.
std::vector<Planned> tensors_of(const Source& source, Choices& c) {
  constexpr DType kTypes[] = {DType::f32,  DType::f32,  DType::f16,  DType::bf16,
                              DType::q8_0, DType::q4_0, DType::q6_k, DType::f64};
  const Recipe recipe = resolve(translate_keys(source).recipe);
  std::vector<Planned> out;
  std::map<std::string, std::size_t> at;
  Dim total = 0;
  for (const WeightShape& w : weight_shapes(recipe)) {
    const auto names = source.family->tensor_names(source.form, w.name);
    if (names.empty()) continue;
    const std::string& name = names[c.one_in(16) ? names.size() - 1 : 0];
    const bool turned = source.family->transposed(source.form, w.name);
    const auto [it, fresh] = at.emplace(name, out.size());
    if (fresh) {
      const std::size_t most = source.form == Form::gguf ? std::size(kTypes) : 4;
      out.push_back({name, kTypes[static_cast<std::size_t>(c.byte()) % most], {}});
      out.back().shape = w.vector ? std::vector<Dim>{w.cols}
                         : turned ? std::vector<Dim>{w.cols, w.rows}
                                  : std::vector<Dim>{w.rows, w.cols};
    } else {
      out[it->second].shape[turned ? 1 : 0] += w.vector ? w.cols : w.rows;
    }
    total += w.rows * w.cols;
    if (total > (1 << 18)) fail("too large for a fuzzer");
  }
  if (c.one_in(8) && !out.empty()) {  // one thing that is wrong
    Planned& t = out[static_cast<std::size_t>(c.byte()) % out.size()];
    switch (c.from(0, 5)) {
      case 5: t.type = source.form == Form::gguf ? DType::i32 : t.type; break;
      case 0: t.shape[0] += c.from(1, 2); break;
      case 1: t.shape.back() = std::max<Dim>(1, t.shape.back() - 1); break;
      case 2: t.name += "x"; break;
      case 3: t.shape.insert(t.shape.begin(), c.from(1, 2)); break;
      default: out.push_back({"extra.weight", DType::f32, {c.from(1, 4)}});
    }
  }
  for (Planned& t : out)
    if (t.shape.back() % static_cast<Dim>(info_of(t.type).block) != 0) t.type = DType::f32;
  return out;
}

Dim bytes_in(const Planned& t) {
  Dim n = 1;
  for (const Dim d : t.shape) n *= d;
  return static_cast<Dim>(bytes_of(t.type, n, t.name));
}

std::string gguf_file(const Json& keys, const std::string& arch, const std::vector<Planned>& tensors) {
  GgufBytes g;
  g.keys = {key("general.architecture", kText, gguf_text(arch)),
            key("tokenizer.ggml.model", kText, gguf_text("none"))};
  for (const Json::Member& m : keys.object()) {
    if (m.value.is_bool())
      g.keys.push_back(key(m.key, kBool, raw(static_cast<std::uint8_t>(m.value.boolean()))));
    else if (m.value.is_string()) g.keys.push_back(key(m.key, kText, gguf_text(m.value.string())));
    else if (m.value.is_real())
      g.keys.push_back(
          key(m.key, kF32, raw(static_cast<float>(m.value.number() > 3e38 ? 3e38 : m.value.number()))));
    else g.keys.push_back(key(m.key, kI64, raw(m.value.integer())));
  }
  for (const Planned& t : tensors) {
    g.tensors.push_back(tensor(t.name, {t.shape.rbegin(), t.shape.rend()}, gguf_type_of(t.type), g.data));
    g.data += static_cast<std::size_t>(bytes_in(t) + 31) / 32 * 32;
  }
  return g.make();
}

std::string safetensors_file(const std::vector<Planned>& tensors) {
  std::string header = "{";
  Dim end = 0;
  for (const Planned& t : tensors) {
    const Dim begin = end;
    end += bytes_in(t);
    std::string shape;
    for (const Dim d : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(d);
    const char* type = t.type == DType::f16 ? "F16" : t.type == DType::bf16 ? "BF16" : "F32";
    header +=
        (begin ? "," : "") + test::entry(t.name, type, "[" + shape + "]", concat("[", begin, ",", end, "]"));
  }
  return test::safetensors(header + "}", static_cast<std::size_t>(end));
}

void damage(std::string& bytes, Choices& c) {
  if (bytes.empty() || !c.one_in(8)) return;
  const std::size_t at = (static_cast<std::size_t>(c.byte()) << 8 | c.byte()) % bytes.size();
  bytes[at] = static_cast<char>(c.byte());
}

void open(const std::string& path, Choices& c) {
  if (c.one_in(4)) check_checkpoint(path, c.one_in(2));
  LoadOptions o;
  if (c.one_in(3)) o.matrices = DType::f32;
  if (c.one_in(8)) o.real = DType::f64;
  if (c.one_in(8)) o.change = [](Recipe& r) { r.context += 3; };
  const Checkpoint opened = open_checkpoint(path, o);
  volatile std::byte sink{};
  for (const Weight& w : opened.model->weights)
    for (std::size_t i = 0; i < w.bytes(); ++i) sink = w.data.get()[i];
  (void)sink;
}

}  // namespace

void open_made_model(std::span<const std::uint8_t> bytes, const std::string& folder) {
  Choices c(bytes.data(), bytes.size());
  const Family& family = families()[static_cast<std::size_t>(c.byte()) % families().size()];
  const std::string arch = family.gguf_arch();
  const Form form = !arch.empty() && !c.one_in(3) ? Form::gguf : Form::folder;
  const TensorTable none;
  Source source{.form = form,
                .where = "fuzz",
                .arch = arch,
                .keys = choose_keys(family, form, arch, c),
                .tensors = &none,
                .family = &family};
  const std::vector<Planned> tensors = tensors_of(source, c);
  if (form == Form::gguf) {
    std::string file_bytes = gguf_file(source.keys, arch, tensors);
    damage(file_bytes, c);
    const int file = ::memfd_create("model.gguf", MFD_CLOEXEC);
    if (file < 0 ||
        ::write(file, file_bytes.data(), file_bytes.size()) != static_cast<ssize_t>(file_bytes.size()))
      std::abort();
    struct Close {
      int file;
      ~Close() { ::close(file); }
    } close{file};
    open(concat("/proc/self/fd/", file), c);
  } else {
    std::string config = source.keys.dump(), weights = safetensors_file(tensors);
    damage(config, c);
    damage(weights, c);
    std::ofstream(folder + "/config.json", std::ios::binary) << config;
    std::ofstream(folder + "/model.safetensors", std::ios::binary) << weights;
    open(folder, c);
  }
}

}  // namespace rapt::test
