// SPDX-License-Identifier: Apache-2.0
// Converting: tensor by tensor from one form's names, order and conventions to the other's, in whatever type
// is asked for.
#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>

#include "rapt/base/team.h"
#include "rapt/base/text.h"
#include "rapt/io/folder.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/checkpoint.h"
#include "rapt/load/checkpoint_files.h"
#include "rapt/load/family_write.h"
#include "rapt/load/quant_mix.h"
#include "rapt/tensor/formats.h"
#include "rapt/text/tokenizer/write.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

// GGUF's number for it: 0 none, 1 mean, 2 cls, 3 last.
std::uint32_t pooling_type(std::optional<Pool> pool) {
  return !pool ? 0 : *pool == Pool::mean ? 1 : *pool == Pool::first ? 2 : 3;
}

struct Piece {  // a weight: where it comes from, and where it goes
  TensorUse use, to;
  Dim rows = 0, cols = 0;
  bool vector = false;
  float add = 0;          // norms: 1 is added or taken away
  // Value heads of a delta rule that stand in another order there: rows of each (0: they do not), or columns.
  struct Heads {
    Dim size = 0, keys = 1, values = 1;
    bool columns = false, to_turns = false;
    // Where what stands at `i` of the target comes from.
    Dim from(Dim i) const {
      const Dim head = i / size, repeat = values / keys;
      const Dim theirs = to_turns ? head % keys * repeat + head / keys : head % repeat * keys + head / repeat;
      return theirs * size + i % size;
    }
  } heads = {};
  Dim row(Dim r) const { return heads.size > 0 && !heads.columns ? heads.from(r) : r; }
};

struct Output {  // one tensor of the target
  std::string name;
  DType dtype = DType::f32;
  std::vector<Dim> shape;
  bool transposed = false;
  Dim before = 0;  // rows of zeros in front: nobody reads them
  Dim part = 0;  // a vector in pieces: the number of this one
  bool matrix = false;  // may be stored in blocks
  std::vector<Piece> pieces;
};

// Row r of a weight as numbers.
void weight_row(const Piece& p, Dim r, std::span<float> out, std::vector<std::byte>& room) {
  dequantize(p.use.dtype(), p.use.read_rows(p.use.row(p.row(r)), 1, room), out);
  if (p.heads.size > 0 && p.heads.columns) {
    const std::vector<float> before(out.begin(), out.end());
    for (Dim c = 0; c < p.cols; ++c)
      out[static_cast<std::size_t>(c)] = before[static_cast<std::size_t>(p.heads.from(c))];
  }
  if (p.use.gain != 1)
    for (float& x : out) x *= p.use.gain;
  if (p.add != 0)
    for (float& x : out) x += p.add;
}

// Rows [first, first + count) of a piece as numbers, in the target's order (pairs of a head's channels).
void piece_values(const Piece& p, Dim first, Dim count, std::vector<float>& out) {
  out.resize(static_cast<std::size_t>(count * p.cols));
  std::vector<std::byte> room;
  for (Dim r = 0; r < count; ++r) {
    Dim ours = first + r;
    if (const Dim D = p.to.head_dim; D > 0) {  // the inverse of TensorUse::row
      const Dim half = D / 2, d = ours % D;
      ours = ours - d + (d % 2 == 0 ? d / 2 : half + d / 2);
    }
    weight_row(p, ours,
               std::span(out).subspan(static_cast<std::size_t>(r * p.cols), static_cast<std::size_t>(p.cols)),
               room);
  }
}

void encode(DType type, std::span<const float> values, std::vector<std::byte>& out, const std::string& name) {
  out.resize(bytes_of(type, static_cast<Dim>(values.size()), name));
  if (type == DType::f32) std::memcpy(out.data(), values.data(), out.size());
  else quantize(type, values, out);
}

class Writer {
 public:
  Writer() : team_(processors()) {}

  void write(const Output& o, FileWriter& out) {
    const FloatMode mode;  // numbers are converted as the team converts them
    if (o.pieces[0].vector) return write_vectors(o, out);
    const bool plain = std::all_of(o.pieces.begin(), o.pieces.end(), [](const Piece& p) {
      return p.to.chunk == 0 && !p.to.transposed && !p.use.transposed;
    });
    if (!plain) return write_scattered(o, out);
    if (o.before > 0) {
      std::vector<std::byte> bytes;
      encode(o.dtype, std::vector<float>(static_cast<std::size_t>(o.before * o.pieces[0].cols)), bytes,
             o.name);
      out.write(bytes);
    }
    for (const Piece& p : o.pieces) write_rows(p, o, out);
  }

 private:
  static constexpr Dim kRows = 64;

  static Dim elements(const Output& o) {
    Dim n = 1;
    for (const Dim d : o.shape) n *= d;
    return n;
  }

  static void write_vectors(const Output& o, FileWriter& out) {
    const Dim size = elements(o);
    std::vector<float> all(static_cast<std::size_t>((o.part + 1) * size));
    for (const Piece& p : o.pieces) {
      const std::vector<float> theirs = vector_numbers(p.use);
      all.resize(std::max(all.size(), static_cast<std::size_t>(p.to.row(p.cols - 1) + 1)));
      for (Dim c = 0; c < p.cols; ++c)
        all[static_cast<std::size_t>(p.to.row(c))] = number_to(
            p.to, number_from(p.use, theirs[static_cast<std::size_t>(p.use.row(p.row(c)))]) + p.add);
    }
    std::vector<std::byte> bytes;
    encode(o.dtype,
           std::span(all).subspan(static_cast<std::size_t>(o.part * size), static_cast<std::size_t>(size)),
           bytes, o.name);
    out.write(bytes);
  }

  // Every weight to its rows or columns, one matrix after the other where there are three axes.
  static void write_scattered(const Output& o, FileWriter& out) {
    const std::size_t axes = o.shape.size();
    const Dim slices = axes > 2 ? o.shape[0] : 1, rows = o.shape[axes - 2], last = o.shape[axes - 1];
    std::vector<float> all(static_cast<std::size_t>(rows * last)), row;
    std::vector<std::byte> bytes, room;
    for (Dim slice = 0; slice < slices; ++slice) {
      std::fill(all.begin(), all.end(), 0.0f);
      const Dim from = slice * rows;  // rows of the file before this matrix
      for (const Piece& p : o.pieces) {
        const Dim first = p.to.transposed ? p.to.slice : p.to.row(0);
        if (first < from || first >= from + rows) continue;
        const std::vector<float> theirs =
            p.use.transposed ? slice_numbers(p.use, p.cols) : std::vector<float>();
        row.resize(static_cast<std::size_t>(p.cols));
        for (Dim r = 0; r < p.rows; ++r) {
          if (p.use.transposed)
            for (Dim c = 0; c < p.cols; ++c)
              row[static_cast<std::size_t>(c)] =
                  theirs[static_cast<std::size_t>(c * p.use.last() + p.use.row(r))] + p.add;
          else weight_row(p, r, row, room);
          for (Dim c = 0; c < p.cols; ++c)
            all[static_cast<std::size_t>(p.to.transposed ? (p.to.slice - from + c) * last + p.to.row(r)
                                                         : (p.to.row(r) - from) * last + c)] =
                row[static_cast<std::size_t>(c)];
        }
      }
      encode(o.dtype, all, bytes, o.name);
      out.write(bytes);
    }
  }

  void write_rows(const Piece& p, const Output& o, FileWriter& out) {
    const bool as_is = o.dtype == p.use.dtype() && p.use.plain() && p.to.head_dim == 0 && p.add == 0 &&
                       p.use.gain == 1 && p.heads.size == 0;
    if (as_is) {
      constexpr Dim kAtOnce = 1024;
      std::vector<std::byte> room;
      for (Dim r = 0; r < p.rows; r += kAtOnce)
        out.write(p.use.read_rows(p.use.first + r, std::min(kAtOnce, p.rows - r), room));
      return;
    }
    const Dim tasks = (p.rows + kRows - 1) / kRows, at_once = 16 * team_.threads();
    std::vector<std::vector<std::byte>> done(static_cast<std::size_t>(std::min(tasks, at_once)));
    for (Dim base = 0; base < tasks; base += at_once) {
      const Dim n = std::min(at_once, tasks - base);
      team_.each(n, [&](Dim task) {
        const Dim first = (base + task) * kRows, count = std::min(kRows, p.rows - first);
        std::vector<float> values;
        piece_values(p, first, count, values);
        encode(o.dtype, values, done[static_cast<std::size_t>(task)], o.name);
      });
      for (Dim i = 0; i < n; ++i) out.write(done[static_cast<std::size_t>(i)]);
    }
  }

  Team team_;
};

// ------------------------------------------------------------------------------------------------ types
struct Types {
  Form to;
  const ConvertOptions& options;
  // "q4_k: stored as q5_0": how often, rows of
  std::map<std::string, std::pair<std::size_t, Dim>> changed;

  DType of(DType from, bool matrix, Dim cols) {
    if (!matrix) return DType::f32;
    DType want = options.type.value_or(from);
    if (to == Form::folder && !options.type && is_block(want)) return DType::f32;
    if (want == DType::f64 || !(is_float(want) || is_block(want))) want = DType::f32;
    const DType got = fitting_type(want, cols);
    if (!mixed()) tell(want, got, cols);
    return got;
  }
  // Block types into GGUF: choose() decides.
  bool mixed() const { return to == Form::gguf && options.type && is_block(*options.type); }
  void tell(DType want, DType got, Dim cols) {
    if (got == want || !options.note) return;
    auto& [count, width] = changed[concat(name_of(want), ": stored as ", name_of(got))];
    ++count;
    width = cols;
  }
  // Every matrix gets its type by the rules of the mix. Those that are not quantized stay as a GGUF file has
  // them, and come as f32 from elsewhere.
  void choose(const MixedModel& model, bool same, std::vector<Output>& outputs) {
    std::vector<MixedTensor> tensors;
    for (const Output& o : outputs) tensors.push_back({o.name, o.shape, o.matrix && !o.transposed});
    const std::vector<MixedType> found = mixed_types(mix(), model, tensors);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      Output& o = outputs[i];
      if (!o.matrix || o.transposed) continue;
      if (!found[i].quantized) {
        o.dtype = same ? o.pieces[0].use.view->dtype() : DType::f32;
        continue;
      }
      o.dtype = found[i].got;
      // What the rules give more bits is not what was asked for, and may come wider still.
      if (found[i].wanted == mix().type) tell(found[i].wanted, found[i].got, o.shape.back());
    }
  }
  const QuantMix& mix() const { return options.mix ? *options.mix : mix_of(*options.type); }
  void report() const {
    for (const auto& [what, n] : changed)
      options.note(concat(n.first, n.first == 1 ? " matrix has" : " matrices have", " rows of ", n.second,
                          ", no whole blocks of ", what));
  }
};

bool is_matrix(const WeightShape& w) {
  if (w.vector || stays_real(w.name)) return false;
  if (w.name.starts_with("embed.") && !w.name.ends_with("tokens") && w.name != "embed.project.weight" &&
      w.name != "embed.patches.weight")
    return false;
  if (w.name == "head.pool.query") return false;
  return !w.name.ends_with(".buckets") && !w.name.ends_with(".relative") &&
         !w.name.ends_with(".score.weight") && w.name.find(".slots.") == std::string::npos;
}

// Value heads that are neighbours in one form and stand in turns in the other.
Piece::Heads moved_heads(const Family& family, Form from, Form to, const WeightShape& w,
                         const Recipe& recipe) {
  Piece::Heads out;
  if (family.heads_in_turns(from) == family.heads_in_turns(to) || !w.name.starts_with("decoder.")) return out;
  for (const PartRecipe& p : recipe.decoder->layer(std::atol(w.name.c_str() + 8)).parts) {
    const DeltaRecipe* d = p.delta();
    const std::size_t at = w.name.find(".delta.");
    if (!d || at == std::string::npos || d->value_heads == d->key_heads) continue;
    const std::string_view rest = std::string_view(w.name).substr(at + 7);
    out = {.size = 0, .keys = d->key_heads, .values = d->value_heads, .to_turns = family.heads_in_turns(to)};
    if (rest == "v.weight" || rest == "z.weight" || rest == "v_conv") out.size = d->value_dim;
    if (rest == "b.weight" || rest == "a.weight" || rest == "a_log" || rest == "dt_bias") out.size = 1;
    if (rest == "out.weight") out.size = d->value_dim, out.columns = true;
  }
  return out;
}

// ------------------------------------------------------------------------------------------------ plans
std::vector<Output> cross_plan(const CheckpointFiles& f, const Family& family, const Translation& t, Form to,
                               Types& types) {
  const Source& s = f.source;
  const TensorPlan plan = plan_tensors(s, t.recipe);
  TensorLayout layout(family, to, t.recipe);
  for (const auto& [w, use] : plan) {
    try {
      layout.add(written_name(family, to, w.name, t.recipe), w);
    } catch (const Error& e) {
      fail(f.path, ": ", e.what());
    }
  }
  layout.finish();
  std::vector<Output> out;
  for (const std::string& name : layout.keys()) {
    const TensorLayout::Tensor& tensor = layout.tensor(name);
    const auto& [first, from] = plan[tensor.users[0]];
    Output o{.name = name,
             .dtype = types.of(from.dtype(), is_matrix(first), first.cols),
             .shape = written_shape(family, name, first, tensor.shape, t.recipe),
             .transposed = tensor.transposed,
             .before = tensor.before,
             .matrix = is_matrix(first)};
    if (o.transposed && is_block(o.dtype)) o.dtype = DType::f32;
    for (const std::size_t u : tensor.users) {
      const auto& [w, use] = plan[u];
      Piece p{
          .use = use, .to = layout.use(u), .rows = w.vector ? 1 : w.rows, .cols = w.cols, .vector = w.vector};
      if (is_norm_weight(w.name) && !s.family->plain_gain(w.name))
        p.add =
            static_cast<float>(s.family->offset_gain(s.form)) - static_cast<float>(family.offset_gain(to));
      p.heads = moved_heads(*s.family, s.form, to, w, t.recipe);
      if (p.to.head_dim % 2 != 0)
        fail(f.path, ": GGUF keeps the channels of a head in pairs, and heads of ", p.to.head_dim,
             " channels have none; it stays a folder");
      o.pieces.push_back(std::move(p));
    }
    if (name.find(kEachHead) == std::string::npos) {
      out.push_back(std::move(o));
      continue;
    }
    const Dim heads = o.shape[0];
    o.shape.erase(o.shape.begin());
    for (o.part = 0; o.part < heads; ++o.part) {
      o.name = of_head(name, o.part);
      out.push_back(o);
    }
  }
  return out;
}

// The same form again: names and order stay, only types change.
std::vector<Output> same_plan(const CheckpointFiles& f, const Translation& t, Types& types) {
  const Source& s = f.source;
  std::map<const TensorView*, bool> matrices;
  for (const auto& [w, use] : plan_tensors(s, t.recipe)) {
    if (use.scales)
      fail(f.path, ": tensor '", use.view->name(),
           "' is in MXFP4, which a folder keeps in two tensors; convert it to a .gguf file");
    matrices[use.view] = is_matrix(w);
  }
  if (s.form == Form::folder &&
      s.family->json.find("tower")) {  // the other of two models, where there is one
    Source other = s;
    other.family = &family_of_config(s.keys, s.where, f.tower == Tower::text ? Tower::vision : Tower::text);
    if (other.family != s.family)
      for (const auto& [w, use] : plan_tensors(other, translate(other).recipe))
        matrices.emplace(use.view, is_matrix(w));
  }
  std::vector<Output> out;
  for (const TensorView& v : s.tensors->all()) {
    const auto it = matrices.find(&v);
    const bool known = it != matrices.end();
    if (!known && !is_float(v.dtype()) && s.form == Form::folder) continue;  // buffers nobody reads
    const bool matrix = known && it->second;
    Output o{.name = v.name(),
             .dtype = matrix ? types.of(v.dtype(), true, v.last()) : v.dtype(),
             .matrix = matrix};
    o.shape.assign(v.shape().begin(), v.shape().end());
    Piece p{.use = {.view = &v}, .rows = v.rows(), .cols = v.last(), .vector = v.shape().size() < 2};
    if (p.vector) p.rows = 1;
    o.pieces.push_back(p);
    out.push_back(std::move(o));
  }
  return out;
}

// general.file_type: llama.cpp's numbers of formats that are read and never made.
std::uint32_t read_type(DType type) {
  switch (type) {
    case DType::iq2_xxs: return 19;
    case DType::iq2_xs: return 20;
    case DType::iq3_xxs: return 23;
    case DType::iq1_s: return 24;
    case DType::iq3_s: return 26;
    case DType::iq2_s: return 28;
    case DType::iq1_m: return 31;
    case DType::tq1_0: return 36;
    case DType::tq2_0: return 37;
    case DType::nvfp4: return 39;
    case DType::q1_0: return 40;
    case DType::q2_0: return 41;
    default: return 0;
  }
}

std::uint32_t file_type(const Types& types, std::span<const Output> tensors) {
  if (types.mixed()) return types.mix().file_type;
  std::map<DType, std::uint64_t> bytes;
  for (const Output& o : tensors)
    if (o.shape.size() > 1) {
      std::uint64_t n = 1;
      for (const Dim d : o.shape) n *= static_cast<std::uint64_t>(d);
      bytes[o.dtype] += n;
    }
  DType most = types.options.type.value_or(DType::f32);
  if (!types.options.type) {
    std::uint64_t best = 0;
    for (const auto& [t, n] : bytes)
      if (n > best) best = n, most = t;
  }
  if (is_block(most)) return is_made(most) ? mix_of(most).file_type : read_type(most);
  return most == DType::f16 ? 1 : most == DType::bf16 ? 32 : 0;
}

// ------------------------------------------------------------------------------------------------ GGUF
void set_key(GgufKeys& keys, const std::string& key, GgufValue value) {
  for (auto& [name, old] : keys)
    if (name == key) {
      old = std::move(value);
      return;
    }
  keys.emplace_back(key, std::move(value));
}

MixedModel mixed_model(const GgufKeys& keys) {
  MixedModel m;
  const auto find = [&](const std::string& key) -> const GgufValue* {
    for (const auto& [name, value] : keys)
      if (name == key) return &value;
    return nullptr;
  };
  const auto number = [&](const std::string& key, std::int64_t otherwise) {
    const GgufValue* v = find(m.arch + key);
    if (!v) return otherwise;
    if (const auto* n = std::get_if<std::int64_t>(&v->value)) return *n;
    const auto* list = std::get_if<GgufValue::Integers>(&v->value);
    return list && !list->empty() ? list->front() : otherwise;
  };
  if (const GgufValue* arch = find("general.architecture"))
    if (const auto* text = std::get_if<std::string>(&arch->value)) m.arch = *text;
  m.layers = number(".block_count", 0);
  m.heads = number(".attention.head_count", 0);
  m.kv_heads = number(".attention.head_count_kv", m.heads);
  m.experts = number(".expert_count", 0);
  return m;
}

void to_gguf(const CheckpointFiles& f, const Translation& t, const std::string& to,
             const ConvertOptions& options) {
  const Source& s = f.source;
  Types types{Form::gguf, options, {}};
  const bool same = f.gguf.has_value();
  // A family without a GGUF form of its own goes by ours: our names, and the recipe as a text.
  const Family& family = same || !s.family->gguf_arch().empty() ? *s.family : own_family();
  std::vector<RopeFactors> factors;
  GgufKeys keys;
  std::vector<Output> outputs;
  if (same) {
    outputs = same_plan(f, t, types);
    for (const auto& [key, value] : f.gguf->metadata())
      if (!key.starts_with("split.")) keys.emplace_back(key, value);
  } else {
    const bool llama2c = f.format == "llama2.c";
    outputs = llama2c ? same_plan(f, t, types) : cross_plan(f, family, t, Form::gguf, types);
    keys.emplace_back("general.architecture", GgufValue::text(family.gguf_arch()));
    keys.emplace_back("general.type", GgufValue::text("model"));
    const std::string stem = fs::path(f.path).lexically_normal().filename().empty()
                                 ? fs::path(f.path).lexically_normal().parent_path().filename().string()
                                 : fs::path(f.path).filename().string();
    keys.emplace_back("general.name", GgufValue::text(stem));
    for (auto& k : gguf_keys(family, t, factors)) keys.push_back(std::move(k));
    const Checkpoint beside = describe_checkpoint(f, t.recipe);
    if (!beside.dense.empty())
      fail(f.path,
           ": its Dense modules have no place in a GGUF file, and without them its vectors are others; it "
           "stays a folder");
    if (t.recipe.encoder && !t.recipe.decoder)
      keys.emplace_back(family.gguf_arch() + ".pooling_type", GgufValue::u32(pooling_type(beside.pool)));
    if (beside.max_tokens > 0)
      keys.emplace_back(kOwnLengthKey, GgufValue::u32(static_cast<std::uint32_t>(beside.max_tokens)));
    if (beside.decoder_start >= 0)
      keys.emplace_back(family.gguf_arch() + ".decoder_start_token_id",
                        GgufValue::u32(static_cast<std::uint32_t>(beside.decoder_start)));
    if (t.recipe.embed.patches && family.own) {  // with what says the usual where it says nothing
      Json how = beside.preprocessor.empty() ? Json(Json::Object{}) : parse_json(beside.preprocessor);
      if (!s.family->own) how.set("model_type", s.family->json.find("model_type")->array().back());
      if (!how.object().empty()) keys.emplace_back(kOwnPreprocessorKey, GgufValue::text(how.dump(0)));
    }
    if (beside.pad_to > 0)
      keys.emplace_back(kOwnPadKey, GgufValue::u32(static_cast<std::uint32_t>(beside.pad)));
    for (const auto& [key, number] :
         {std::pair{"rapt.logit_scale", beside.logit_scale}, std::pair{"rapt.logit_bias", beside.logit_bias}})
      if (number) keys.emplace_back(key, GgufValue::f32(static_cast<float>(*number)));
    if (!beside.class_names.empty() && family.own) {
      Json names = Json::Object{};
      for (std::size_t i = 0; i < beside.class_names.size(); ++i)
        names.set(std::to_string(i), beside.class_names[i]);
      keys.emplace_back(kOwnClassesKey, GgufValue::text(names.dump(0)));
    }
    if (beside.tokenizer && family.own && !gguf_says(*beside.tokenizer)) {
      const TokenizerFiles texts = tokenizer_files(*beside.tokenizer, "");
      keys.emplace_back(kOwnTokenizerKey, GgufValue::text(texts.tokenizer_json));
      keys.emplace_back(kOwnTokenizerConfigKey, GgufValue::text(texts.tokenizer_config_json));
      set_key(keys, "tokenizer.ggml.model", GgufValue::text("none"));
    } else if (beside.tokenizer)
      for (auto& k : tokenizer_metadata(*beside.tokenizer, t.recipe.vocab))
        set_key(keys, k.first, std::move(k.second));
    else set_key(keys, "tokenizer.ggml.model", GgufValue::text("none"));
    if (!beside.chat_template.empty())
      set_key(keys, "tokenizer.chat_template", GgufValue::text(beside.chat_template));
  }
  if (types.mixed()) types.choose(mixed_model(keys), same, outputs);
  if (options.dry_run) {
    for (const Output& o : outputs) options.dry_run(o.name, o.shape, o.dtype);
    if (options.note) types.report();
    return;
  }
  set_key(keys, "general.file_type", GgufValue::u32(file_type(types, outputs)));
  set_key(keys, "general.quantization_version", GgufValue::u32(2));
  Writer writer;
  std::vector<GgufTensorPlan> plan;
  for (const RopeFactors& list : factors)
    plan.push_back(
        {list.tensor, DType::f32, {static_cast<Dim>(list.values.size())}, [&list](FileWriter& out) {
           out.write(std::as_bytes(std::span(list.values)));
         }});
  for (const Output& o : outputs)
    plan.push_back({o.name, o.dtype, o.shape, [&o, &s, &writer](FileWriter& out) {
                      writer.write(o, out);
                      s.tensors->check_unchanged();
                    }});
  if (options.note) types.report();
  write_gguf(to, keys, plan, options.force, options.progress);
}

// ------------------------------------------------------------------------------------------------ folders
void write_file(const fs::path& path, std::string_view text, bool force) {
  FileWriter out(path.string(), force);
  out.write(text);
  out.commit();
}

const char* torch_name(DType type) {
  return type == DType::f16 ? "float16" : type == DType::bf16 ? "bfloat16" : "float32";
}

Json ids_json(const std::vector<std::int32_t>& ids) {
  if (ids.size() == 1) return static_cast<std::int64_t>(ids[0]);
  Json::Array out;
  for (const std::int32_t id : ids) out.push_back(static_cast<std::int64_t>(id));
  return out;
}

void to_folder(const CheckpointFiles& f, const Translation& t, const std::string& to,
               const ConvertOptions& options) {
  const Source& s = f.source;
  if (options.type && is_block(*options.type))
    fail_usage("--type ", name_of(*options.type),
               ": a Hugging Face folder holds f32, f16 or bf16; write a .gguf file for block types");
  if (fs::exists(to) && !options.force) fail(to, ": exists already; --force overwrites it");
  Types types{Form::folder, options, {}};
  const bool same = f.format == "folder";
  std::vector<Output> outputs =
      same ? same_plan(f, t, types) : cross_plan(f, *s.family, t, Form::folder, types);
  DType most = DType::f32;
  for (const Output& o : outputs)
    if (o.shape.size() > 1 && o.dtype != DType::f32) most = o.dtype;
  for (Output& o : outputs)  // one type for all of it: that is what the library loads
    if (is_float(o.dtype)) o.dtype = most == DType::f32 ? DType::f32 : o.dtype;
  fs::create_directories(to);
  const fs::path folder = to;
  if (same) {
    Json config = s.keys;
    config.set(config.find("torch_dtype") ? "torch_dtype" : "dtype", torch_name(most));
    write_file(folder / "config.json", config.dump() + "\n", options.force);
    for (const char* name : {"recipe.json",
                             "generation_config.json",
                             "preprocessor_config.json",
                             "processor_config.json",
                             "tokenizer.json",
                             "tokenizer_config.json",
                             "special_tokens_map.json",
                             "added_tokens.json",
                             "vocab.json",
                             "merges.txt",
                             "vocab.txt",
                             "tokenizer.model",
                             "spiece.model",
                             "source.spm",
                             "target.spm",
                             "chat_template.jinja",
                             "modules.json",
                             "sentence_bert_config.json",
                             "config_sentence_transformers.json",
                             "1_Pooling/config.json",
                             "2_Dense/config.json",
                             "2_Dense/model.safetensors",
                             "3_Dense/config.json",
                             "3_Dense/model.safetensors"})
      if (const fs::path from = fs::path(f.path) / name; fs::exists(from)) {
        fs::create_directories((folder / name).parent_path());
        write_file(folder / name, read_text_file(from.string()), options.force);
      }
  } else {
    const Checkpoint beside = describe_checkpoint(f, t.recipe);
    Json config = config_of(*s.family, t);
    config.set("torch_dtype", torch_name(most));
    if (beside.tokenizer) {
      const Tokenizer& k = *beside.tokenizer;
      for (const auto& [key, id] : {std::pair{"bos_token_id", k.bos}, std::pair{"eos_token_id", k.eos},
                                    std::pair{"pad_token_id", k.pad}})
        config.set(key, id >= 0 ? Json(static_cast<std::int64_t>(id)) : Json());
      const TokenizerFiles texts = tokenizer_files(k, beside.chat_template);
      write_file(folder / "tokenizer.json", texts.tokenizer_json, options.force);
      write_file(folder / "tokenizer_config.json", texts.tokenizer_config_json, options.force);
    } else {
      for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) config.set(key, Json());
    }
    if (beside.decoder_start >= 0) {
      config.set("decoder_start_token_id", static_cast<std::int64_t>(beside.decoder_start));
      if (!beside.tokenizer) config.set("pad_token_id", static_cast<std::int64_t>(beside.decoder_start));
    }
    if (!beside.class_names.empty()) set_class_names(config, beside.class_names, t.recipe.head.classes);
    write_file(folder / "config.json", config_text(config), options.force);
    if (s.family->own) write_file(folder / "recipe.json", recipe_json(t.recipe), options.force);
    if (!beside.preprocessor.empty())
      write_file(folder / "preprocessor_config.json", beside.preprocessor + "\n", options.force);
    if (!beside.stops.empty()) {
      Json generation = Json::Object{};
      generation.set("eos_token_id", ids_json(beside.stops));
      write_file(folder / "generation_config.json", generation.dump() + "\n", options.force);
    }
    if (beside.pool) {
      Json pooling = Json::Object{};
      pooling.set("word_embedding_dimension", t.recipe.width);
      pooling.set("pooling_mode_mean_tokens", beside.pool == Pool::mean);
      pooling.set("pooling_mode_cls_token", beside.pool == Pool::first);
      pooling.set("pooling_mode_lasttoken", beside.pool == Pool::last);
      fs::create_directories(folder / "1_Pooling");
      write_file(folder / "1_Pooling" / "config.json", pooling.dump() + "\n", options.force);
      Json::Array modules;
      auto module = [&](const char* path, const char* type) {
        Json m = Json::Object{};
        m.set("idx", static_cast<std::int64_t>(modules.size()));
        m.set("name", std::to_string(modules.size()));
        m.set("path", path);
        m.set("type", concat("sentence_transformers.models.", type));
        modules.push_back(std::move(m));
      };
      module("", "Transformer");
      module("1_Pooling", "Pooling");
      if (beside.normalize) module("2_Normalize", "Normalize");
      write_file(folder / "modules.json", Json(modules).dump() + "\n", options.force);
      if (beside.max_tokens > 0) {
        Json limits = Json::Object{};
        limits.set("max_seq_length", beside.max_tokens);
        limits.set("do_lower_case", false);
        write_file(folder / "sentence_bert_config.json", limits.dump() + "\n", options.force);
      }
    }
  }
  Writer writer;
  std::vector<SafetensorPlan> plan;
  std::size_t done = 0;
  for (const Output& o : outputs)
    plan.push_back({o.name, o.dtype, o.shape, [&](FileWriter& out) {
                      writer.write(o, out);
                      s.tensors->check_unchanged();
                      if (options.progress) options.progress(++done, outputs.size());
                    }});
  if (options.note) types.report();
  write_safetensors_folder(to, plan, options.shard_bytes, options.force);
}

}  // namespace

void write_checkpoint(const std::string& from, const std::string& to, const ConvertOptions& options) {
  const auto files = open_files(from);
  const Translation t = translate_files(*files);
  if (fs::exists(to) && fs::equivalent(files->path, to))
    fail_usage(to, ": is what is being read; choose another name");
  if (options.type && !is_float(*options.type) && !is_made(*options.type))
    fail_usage("--type ", name_of(*options.type),
               is_block(*options.type) ? ": is read, not made" : ": weights are not stored so");
  if (to.ends_with(".gguf")) return to_gguf(*files, t, to, options);
  std::error_code ignored;
  const bool there = fs::exists(to, ignored),
             empty = there && fs::is_directory(to, ignored) && fs::is_empty(to, ignored);
  try {
    to_folder(*files, t, to, options);
  } catch (...) {  // a full disk: what was written so far is no model and helps nobody
    if (!there) remove_tree(to, ignored);
    if (empty)
      for (const fs::path& p : paths_in(to, ignored)) remove_tree(p, ignored);
    throw;
  }
}

}  // namespace rapt
