// SPDX-License-Identifier: Apache-2.0
// Loading: recipe first, then every weight from its tensor, in the file's format where kernels read it.
#include "rapt/load/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "rapt/base/memory.h"
#include "rapt/base/text.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/checkpoint_files.h"
#include "rapt/load/family_write.h"
#include "rapt/nn/size.h"
#include "rapt/run/run.h"
#include "rapt/tensor/formats.h"
#include "rapt/tensor/pack.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

// ----------------------------------------------------------------------------------------------- one weight
// What one thread needs to fill weights, kept from task to task: fresh memory costs more than what is done
// in it.
struct FillRoom {
  std::vector<std::byte> read, ordered, blocks;
  std::vector<float> values;
};

// Rows of numbers into a weight of any format; `first` begins a panel.
void store_rows(Weight& w, Dim first, Dim count, std::span<const float> values,
                std::vector<std::byte>& scratch) {
  if (is_block(w.format)) {
    scratch.resize(bytes_of(w.format, count * w.cols, w.name));
    quantize(w.format, values, scratch);
    pack_rows(w, first, count, scratch);
    return;
  }
  std::byte* data = w.data.get();
  auto write = [&](auto* to, auto&& convert) {
    const float* from = values.data();
    if (w.packing == Packing::rows)
      for (Dim i = 0; i < count * w.cols; ++i) to[first * w.cols + i] = convert(from[i]);
    else
      // Lane by lane: what is written lies together.
      for (Dim r = 0; r < count; r += kPanel, from += kPanel * w.cols) {
        auto* at = to + w.offset(first + r, 0);
        const Dim lanes = std::min(kPanel, count - r);
        for (Dim c = 0; c < w.cols; ++c)
          for (Dim l = 0; l < lanes; ++l) at[c * kPanel + l] = convert(from[l * w.cols + c]);
      }
  };
  switch (w.format) {
    case DType::f32: return write(reinterpret_cast<float*>(data), [](float x) { return x; });
    case DType::f64:
      return write(reinterpret_cast<double*>(data), [](float x) { return static_cast<double>(x); });
    case DType::bf16:
      return write(reinterpret_cast<std::uint16_t*>(data), [](float x) { return to_bf16(x); });
    case DType::f16: return write(reinterpret_cast<std::uint16_t*>(data), [](float x) { return to_f16(x); });
    default: fail("weight ", w.name, ": nothing is stored as ", name_of(w.format));
  }
}

struct Filler {
  Weight& w;
  const TensorUse& use;
  bool vector;
  std::vector<float> whole{};  // a transposed matrix, all of it

  // Rows [first, first + count), at most a few panels.
  void rows(Dim first, Dim count, FillRoom& room) const {
    auto& [read, bytes, scratch, values] = room;
    if (vector) {  // one row of ours is the last axis of theirs
      values = vector_numbers(use);
      std::vector<float> own(static_cast<std::size_t>(w.cols));
      for (Dim c = 0; c < w.cols; ++c)
        own[static_cast<std::size_t>(c)] = number_from(use, values[static_cast<std::size_t>(use.row(c))]);
      store_rows(w, 0, 1, own, scratch);
      return;
    }
    if (use.transposed) {
      values.resize(static_cast<std::size_t>(count * w.cols));
      const Dim across = use.last();
      for (Dim r = 0; r < count; ++r)
        for (Dim c = 0; c < w.cols; ++c)
          values[static_cast<std::size_t>(r * w.cols + c)] =
              whole[static_cast<std::size_t>(c * across + use.row(first + r))];
      return store_scaled(first, count, room);
    }
    std::span<const std::byte> source;
    if (use.head_dim > 0) {
      // Pairs order stays within a head: the heads these rows touch are read at once.
      const Dim D = use.head_dim, from = first / D * D,
                to = std::min((first + count + D - 1) / D * D, w.rows);
      const auto heads = use.read_rows(use.first + from, to - from, read);
      const std::size_t row = heads.size() / static_cast<std::size_t>(to - from);
      bytes.clear();
      for (Dim r = first; r < first + count; ++r) {
        const auto one = heads.subspan(static_cast<std::size_t>(use.row(r) - use.first - from) * row, row);
        bytes.insert(bytes.end(), one.begin(), one.end());
      }
      source = bytes;
    } else if (use.chunk > 0) {
      bytes.clear();
      for (Dim r = first; r < first + count;) {
        const Dim n = std::min(use.chunk - r % use.chunk, first + count - r);
        const auto run = use.read_rows(use.row(r), n, read);
        bytes.insert(bytes.end(), run.begin(), run.end());
        r += n;
      }
      source = bytes;
    } else {
      source = use.read_rows(use.first + first, count, read);
    }
    if (is_block(w.format) && w.format == use.dtype() && w.packing == Packing::panels)
      return pack_rows(w, first, count, source);  // its gain: load_model
    values.resize(static_cast<std::size_t>(count * w.cols));
    dequantize(use.dtype(), source, values);
    store_scaled(first, count, room);
  }
  void store_scaled(Dim first, Dim count, FillRoom& room) const {
    if (use.gain != 1)
      for (float& v : room.values) v *= use.gain;
    store_rows(w, first, count, room.values, room.blocks);
  }
};

// Rows at a time: whole panels, of about as many bytes as a core's cache holds beside what is made of them.
// Heads in pairs order are read whole, so several panels of them.
Dim task_rows(const Weight& w, const TensorUse& use) {
  constexpr Dim kTaskBytes = 128 << 10;
  const Dim panel = static_cast<Dim>(bytes_of(use.dtype(), kPanel * use.last(), w.name));
  return kPanel * (use.transposed || use.head_dim > 0 ? 8 : std::clamp<Dim>(kTaskBytes / panel, 1, 64));
}

// Every weight from its tensor, all of them in one region: many are too small to keep several threads busy.
// `done` is told the bytes of tensors that were packed, by one thread at a time.
void fill_weights(std::deque<Weight>& weights, const TensorPlan& plan, Device* device,
                  const std::function<void(std::uint64_t)>& done) {
  std::optional<Lease> lease;  // numbers are converted in one mode, by whichever thread
  if (device) lease.emplace(device->team());
  std::mutex lock;
  std::vector<std::unique_ptr<FillRoom>> rooms;  // as many as ever were in use at a time
  struct Task {
    std::size_t filler;
    Dim first, count;
  };
  std::vector<Filler> fillers;
  std::vector<Task> tasks;
  double bytes = 0;
  const std::atomic<bool>* const cancel = CancelScope::now();
  const auto run = [&] {
    const auto one = [&](Dim i) {
      if (cancel && cancel->load(std::memory_order_relaxed)) throw Cancelled();
      const Task& task = tasks[static_cast<std::size_t>(i)];
      const Filler& f = fillers[task.filler];
      std::unique_ptr<FillRoom> room;
      {
        const std::lock_guard hold(lock);
        if (!rooms.empty()) room = std::move(rooms.back()), rooms.pop_back();
      }
      if (!room) room = std::make_unique<FillRoom>();
      f.rows(task.first, task.count, *room);
      const double share =
          static_cast<double>(task.count * f.w.cols) /
          static_cast<double>(f.use.view->elements() * (f.use.scales ? 2 : 1));  // two numbers in a byte
      const std::lock_guard hold(lock);
      rooms.push_back(std::move(room));
      bytes += share * static_cast<double>(f.use.view->bytes().size());
      done(static_cast<std::uint64_t>(std::llround(bytes)));
    };
    if (device) device->team().each(static_cast<Dim>(tasks.size()), one);
    else
      for (std::size_t i = 0; i < tasks.size(); ++i) one(static_cast<Dim>(i));
    fillers.clear();
    tasks.clear();
  };
  const auto add = [&](std::size_t i) {
    Filler f{weights[i], plan[i].second, plan[i].first.vector};
    if (f.use.transposed) f.whole = slice_numbers(f.use, f.w.cols);
    const Dim step = task_rows(f.w, f.use);
    for (Dim r = 0; r < f.w.rows; r += step)
      tasks.push_back({fillers.size(), r, std::min(step, f.w.rows - r)});
    fillers.push_back(std::move(f));
  };
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!plan[i].second.transposed) add(i);
  run();
  for (std::size_t i = 0; i < weights.size(); ++i)  // held in memory as numbers: one at a time
    if (plan[i].second.transposed) add(i), run();
}

// ------------------------------------------------------------------------------------------------ the model
DType format_for(const LoadOptions& o, const Weight& w, DType file) {
  // Vectors, and tables but that of the tokens.
  if (w.packing == Packing::rows && w.name != "embed.tokens" && w.name != "embed.source_tokens")
    return o.real;
  if (o.real != DType::f32 || stays_real(w.name)) return o.real;
  const DType wanted = o.matrices.value_or(file);
  if (is_block(wanted) && w.cols % static_cast<Dim>(info_of(wanted).block) != 0) return o.real;
  return wanted == DType::f64 || wanted == DType::f32 ? o.real : wanted;
}

// The model is built once, without storage; then the formats of its weights are chosen, and only what fits
// into memory gets some.
std::unique_ptr<Model> load_model(const Source& source, const Recipe& recipe, const LoadOptions& options,
                                  bool all) {
  auto [model, plan] = plan_model(source, resolve(recipe), options.real, all);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Weight& w = model->weights[i];
    const TensorUse& use = plan[i].second;
    // Blocks that lie across (keys of latent attention in some files) are read as numbers: no second
    // rounding.
    w.format = format_for(options, w, use.transposed && is_block(use.dtype()) ? DType::f16 : use.dtype());
    if (is_block(w.format)) w.packing = Packing::panels;
    if (is_block(w.format) && w.format == plan[i].second.dtype()) w.gain = plan[i].second.gain;
    bytes += w.bytes();
  }
  if (const std::uint64_t free = available_memory(); free > 0 && bytes > free)
    fail(source.where, ": the weights take ", byte_count(static_cast<double>(bytes)), " of memory, ",
         byte_count(static_cast<double>(free)),
         " are available; close other programs or take a smaller type (rapt quantize)");
  for (Weight& w : model->weights) w.data = make_weight(w.name, w.rows, w.cols, w.format, w.packing).data;
  source.tensors->check_unchanged();
  const std::uint64_t of = source.tensors->bytes();
  fill_weights(model->weights, plan, options.device, [&](std::uint64_t done) {
    if (options.progress) options.progress(done, of);
  });
  // Written to meanwhile: what was packed may be half of one model and half of another.
  source.tensors->check_unchanged();
  return std::move(model);
}

// --------------------------------------------------------------------------------------- beside the weights
void add_ids(std::vector<std::int32_t>& out, const Json* j, Dim vocab, const std::string& where,
             std::string_view key) {
  if (!j || j->is_null()) return;
  if (j->is_array()) {
    for (const Json& e : j->array()) add_ids(out, &e, vocab, where, key);
    return;
  }
  if (!j->is_integer()) fail(where, ": ", key, ": wants a token id or a list of them, has ", j->type_name());
  if (j->integer() < 0 || j->integer() >= vocab) return;  // -1 and ids of other vocabularies mean none
  const auto id = static_cast<std::int32_t>(j->integer());
  if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
}

void read_generation(Checkpoint& c, const CheckpointFiles& f, Dim vocab) {
  const std::string where = f.path + "/generation_config.json";
  if (const Json* j = f.generation.find("renormalize_logits"); j && !j->is_null()) {
    if (!j->is_bool()) fail(where, ": renormalize_logits: wants true or false, has ", j->type_name());
    c.renormalize = j->boolean();
  }
  const Json* words = f.generation.find("bad_words_ids");
  if (!words || words->is_null()) return;
  if (!words->is_array())
    fail(where, ": bad_words_ids: wants a list of lists of token ids, has ", words->type_name());
  for (const Json& word : words->array()) {
    if (!word.is_array() || word.array().empty())
      fail(where, ": bad_words_ids: wants lists of at least one token id, has ", word.dump(0));
    c.bad_words.emplace_back();
    for (const Json& id : word.array()) {
      if (!id.is_integer() || id.integer() < 0 || id.integer() >= vocab)
        fail(where, ": bad_words_ids: ", id.dump(0), " is no token of the vocabulary of ", vocab);
      c.bad_words.back().push_back(static_cast<std::int32_t>(id.integer()));
    }
  }
}

void read_ids(Checkpoint& c, const CheckpointFiles& f, const Recipe& recipe) {
  const Dim vocab = recipe.vocab;
  std::vector<std::int32_t> start;
  if (f.format == "folder") {
    add_ids(c.stops, f.generation.find("eos_token_id"), vocab, f.path + "/generation_config.json",
            "eos_token_id");
    add_ids(c.stops, f.source.find("eos_token_id"), vocab, f.source.where, "eos_token_id");
    for (const char* key : {"decoder_start_token_id", "pad_token_id"}) {
      add_ids(start, f.source.find(key), vocab, f.source.where, key);
      add_ids(start, f.generation.find(key), vocab, f.path + "/generation_config.json", key);
    }
  } else if (f.gguf) {
    add_ids(start, f.source.find(".decoder_start_token_id"), vocab, f.path, "decoder_start_token_id");
  }
  if (c.tokenizer) {
    for (const std::int32_t id : c.tokenizer->stops)
      if (std::find(c.stops.begin(), c.stops.end(), id) == c.stops.end() && id >= 0 && id < vocab)
        c.stops.push_back(id);
    if (start.empty() && c.tokenizer->pad >= 0) start.push_back(c.tokenizer->pad);
  }
  if (recipe.encoder && recipe.decoder && !start.empty()) c.decoder_start = start[0];
  if (recipe.encoder && recipe.decoder && f.generation.is_object()) read_generation(c, f, vocab);
}

// id2label of a classifier: {"0": "no", "1": "yes"}. The library's own LABEL_0 … are no names.
void read_class_names(Checkpoint& c, const CheckpointFiles& f, const Recipe& recipe) {
  if (recipe.head.kind != HeadRecipe::Kind::classes) return;
  Json own;
  if (f.gguf)
    if (const std::string text = f.gguf->text_or(kOwnClassesKey, ""); !text.empty())
      own = parse_json(text, concat(f.path, ": ", kOwnClassesKey));
  const Json* list = f.gguf ? &own : f.source.find("id2label");
  if (!list || list->is_null()) return;
  if (!list->is_object())
    fail(f.source.where, ": id2label: wants an object { \"0\": \"name\", … }, has ", list->type_name());
  const auto count = static_cast<std::size_t>(recipe.head.classes);
  if (list->object().size() != count)
    fail(f.source.where, ": id2label: has ", list->object().size(), " names for ", count, " classes");
  bool named = false;
  for (std::size_t i = 0; i < count; ++i) {
    const Json* name = list->find(std::to_string(i));
    if (!name || !name->is_string()) fail(f.source.where, ": id2label: class ", i, " has no name");
    named = named || name->string() != concat("LABEL_", i);
    c.class_names.push_back(name->string());
  }
  if (!named) c.class_names.clear();
}

void read_max_tokens(Checkpoint& c, const Json* n, const std::string& where, std::string_view key,
                     const Recipe& recipe) {
  if (!n || n->is_null()) return;
  if (!n->is_integer() || n->integer() < 1)
    fail(where, ": ", key, ": wants a whole number above 0, has ", n->dump(0));
  c.max_tokens = std::min<Dim>(n->integer(), recipe.context);
}

DenseModule read_dense(const std::string& folder, const std::string& path, Dim width) {
  const std::string at = (fs::path(folder) / path / "config.json").string();
  check_link(folder, at);
  const Json config = read_json_file(at, 1 << 20);
  if (!config.is_object()) fail(at, ": this file is missing; modules.json names it");
  const auto size = [&](const char* key) {
    const Json* n = config.find(key);
    if (!n || !n->is_integer() || n->integer() < 1 || n->integer() > 65536)
      fail(at, ": ", key, ": wants a whole number from 1 to 65536", n ? ", has " + n->dump(0) : "");
    return static_cast<Dim>(n->integer());
  };
  DenseModule out{.in = size("in_features"), .out = size("out_features"), .weight = {}, .bias = {}};
  if (out.in != width)
    fail(at, ": in_features is ", out.in, ", what stands before it gives ", width, " numbers");
  const Json *act = config.find("activation_function"), *bias = config.find("bias");
  const std::string name = act && act->is_string() ? std::string(act->string()) : "";
  out.tanh = name.ends_with(".Tanh");
  if (!out.tanh && !name.ends_with(".Identity"))
    fail(at, ": activation_function ", act ? act->dump(0) : "is missing", "; Identity and Tanh are built");
  const TensorTable tensors = open_safetensors_folder((fs::path(folder) / path).string());
  const auto read = [&](const char* tensor, std::vector<Dim> shape) {
    const TensorView* t = tensors.find(tensor);
    if (!t || !is_float(t->dtype()) || !std::ranges::equal(t->shape(), shape))
      fail(at, ": tensor '", tensor, "' is ", t ? "of another shape or type: " + t->shape_text() : "missing",
           "; the config asks for ", out.out, " numbers of ", out.in);
    return t->values();
  };
  out.weight = read("linear.weight", {out.out, out.in});
  if (!bias || *bias == Json(true)) out.bias = read("linear.bias", {out.out});
  return out;
}

std::string preprocessor_of(const CheckpointFiles& f) {
  if (f.gguf) return f.gguf->text_or(kOwnPreprocessorKey, "");
  if (f.format != "folder") return "";
  const auto read = [&](const char* name) {
    const std::string at = (fs::path(f.path) / name).string();
    if (fs::exists(at)) check_link(f.path, at);
    return read_json_file(at, 1 << 20);
  };
  const Json whole = read("processor_config.json"), plain = read("preprocessor_config.json");
  const Json* inner = whole.find("image_processor");
  return inner && inner->is_object() ? inner->dump(0) : plain.is_object() ? plain.dump(0) : "";
}

// What a picture and a text need to be compared, and how long a text is made.
void read_pairing(Checkpoint& c, const CheckpointFiles& f, const Recipe& recipe) {
  for (const auto& [name, to] :
       {std::pair{"logit_scale", &c.logit_scale}, std::pair{"logit_bias", &c.logit_bias}}) {
    if (const Json* own = f.gguf ? f.source.keys.find(concat("rapt.", name)) : nullptr; own)
      *to = own->number();
    const TensorView* t = f.source.tensors->find(name);
    if (!t) continue;
    if (t->elements() != 1 || !is_float(t->dtype()))
      fail(f.source.where, ": tensor '", name, "' has shape ", t->shape_text(), "; it is one number");
    *to = static_cast<double>(t->values()[0]);
  }
  if (recipe.vocab == 0) return;
  const Json* pads = f.gguf ? f.source.keys.find(kOwnPadKey) : f.source.family->json.find("pad_texts");
  if (!pads) return;
  c.pad_to = recipe.context;
  const Json* id = f.gguf ? pads : f.source.find("pad_token_id");
  c.pad = c.tokenizer && c.tokenizer->pad >= 0 && !f.gguf ? c.tokenizer->pad
          : id && id->is_integer() && id->integer() >= 0 && id->integer() < recipe.vocab
              ? static_cast<std::int32_t>(id->integer())
              : 1;
}

// sentence-transformers: modules.json lists Transformer, Pooling, Dense, Normalize, each with its folder.
void read_pooling(Checkpoint& c, const CheckpointFiles& f, const Recipe& recipe) {
  if (f.gguf) {
    const Json* type = f.source.find(".pooling_type");
    if (!type) return;
    if (!type->is_integer() || type->integer() < 0 || type->integer() > 4)
      fail(f.path, ": ", f.source.arch, ".pooling_type: 0 (none) to 3 (last), has ", type->dump(0));
    if (type->integer() == 4)
      fail(f.path, ": ", f.source.arch, ".pooling_type 4 (rank) is a classifier, which is not built");
    if (type->integer() > 0)
      c.pool = std::array{Pool::mean, Pool::first, Pool::last}[static_cast<std::size_t>(type->integer() - 1)];
    c.normalize = c.pool.has_value();
    read_max_tokens(c, f.source.keys.find(kOwnLengthKey), f.path, kOwnLengthKey, recipe);
    return;
  }
  if (f.format != "folder") return;
  const std::string list_at = (fs::path(f.path) / "modules.json").string();
  const Json modules = read_json_file(list_at, 1 << 20);
  if (modules.is_null()) return;
  if (!modules.is_array()) fail(list_at, ": wants a list of modules, has ", modules.type_name());
  for (const Json& m : modules.array()) {
    const Json *type = m.find("type"), *path = m.find("path");
    if (!type || !type->is_string() || !path || !path->is_string())
      fail(list_at, ": every module needs a type and a path");
    const std::string& kind = type->string();
    if (kind.ends_with(".Transformer")) continue;
    if (kind.ends_with(".Normalize")) {
      c.normalize = true;
      continue;
    }
    if (!kind.ends_with(".Pooling") && !kind.ends_with(".Dense"))
      fail(list_at, ": module ", json_quote(kind),
           " is not built; Transformer, Pooling, Dense and Normalize are");
    if (path->string().find('/') != std::string::npos || path->string().find("..") != std::string::npos)
      fail(list_at, ": path ", json_quote(path->string()), " leaves the folder");
    if (kind.ends_with(".Dense")) {
      if (!c.pool || c.normalize) fail(list_at, ": Dense stands between Pooling and Normalize");
      const Dim width = c.dense.empty() ? recipe.width : c.dense.back().out;
      c.dense.push_back(read_dense(f.path, std::string(path->string()), width));
      continue;
    }
    const std::string at = (fs::path(f.path) / std::string(path->string()) / "config.json").string();
    check_link(f.path, at);
    const Json pooling = read_json_file(at, 1 << 20);
    if (!pooling.is_object()) fail(at, ": this file is missing; modules.json names it");
    std::vector<std::string> modes;
    for (const Json::Member& one : pooling.object())
      if (one.key.starts_with("pooling_mode_") && one.value == Json(true))
        modes.push_back(one.key.substr(13));
    if (const Json* word = pooling.find("pooling_mode"); word && word->is_string()) modes = {word->string()};
    if (modes.size() != 1)
      fail(at, ": names ", modes.size(), " ways of pooling; exactly one is built at a time");
    if (modes[0] == "mean_tokens" || modes[0] == "mean") c.pool = Pool::mean;
    else if (modes[0] == "cls_token" || modes[0] == "cls") c.pool = Pool::first;
    else if (modes[0] == "lasttoken" || modes[0] == "last") c.pool = Pool::last;
    else fail(at, ": pooling ", json_quote(modes[0]), " is not built; mean, cls and last are");
  }
  const std::string own = (fs::path(f.path) / "sentence_bert_config.json").string();
  const Json limits = read_json_file(own, 1 << 20);
  read_max_tokens(c, limits.find("max_seq_length"), own, "max_seq_length", recipe);
}

}  // namespace

namespace {

// Ids without a row in the table of tokens: special ones are common (pictures, padding) and harmless until
// used; words are not.
void check_vocabulary(const Checkpoint& c, const Recipe& recipe) {
  using Role = Tokenizer::Role;
  if (!c.tokenizer) return;
  for (Dim id = recipe.vocab; id < c.tokenizer->size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (c.tokenizer->role(token) == Role::normal || c.tokenizer->role(token) == Role::byte)
      fail(c.path, ": the tokenizer has ", c.tokenizer->size(), " tokens, the model's table ", recipe.vocab,
           " rows: token ", id, " (", quote_name(c.tokenizer->text_of(token)),
           ") has none. They belong to different models; take both files from one");
  }
}

}  // namespace

Checkpoint describe_checkpoint(const CheckpointFiles& files, const Recipe& recipe) {
  Checkpoint c;
  c.path = files.path;
  c.family = files.source.family->name;
  c.format = files.format;
  c.file_bytes = files.source.tensors->bytes();
  if (recipe.vocab > 0) c.tokenizer = tokenizer_of(files, recipe.vocab);
  check_vocabulary(c, recipe);
  c.chat_template = chat_template_of(files);
  read_pooling(c, files, recipe);
  read_ids(c, files, recipe);
  read_class_names(c, files, recipe);
  read_pairing(c, files, recipe);
  if (recipe.embed.patches) c.preprocessor = preprocessor_of(files);
  return c;
}

Checkpoint open_checkpoint(const std::string& path, const LoadOptions& options) {
  const auto files = open_files(path, options.tower);
  Translation t = translate_files(*files);
  const bool changed = static_cast<bool>(options.change);
  if (changed) {
    plan_tensors(files->source, t.recipe);  // every tensor has its place in the model as it was released
    options.change(t.recipe);
  }
  Checkpoint c = describe_checkpoint(*files, t.recipe);
  c.model = load_model(files->source, t.recipe, options, !changed);
  return c;
}

Recipe checkpoint_recipe(const std::string& path) {
  const auto files = open_files(path);
  Translation t = translate_files(*files);
  plan_tensors(files->source, t.recipe);
  return t.recipe;
}

namespace {

void check_values(const std::string& where, const TensorView& t) {
  constexpr Dim kAtOnce = 1 << 18;
  const Dim rows = std::max<Dim>(1, kAtOnce / t.last());
  std::vector<std::byte> room;
  std::vector<float> values;
  for (Dim r = 0; r < t.rows(); r += rows) {
    const Dim n = std::min(rows, t.rows() - r);
    values.resize(static_cast<std::size_t>(n * t.last()));
    dequantize(t.dtype(), t.read_rows(r, n, room), values);
    const auto bad = std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
    if (bad == values.end()) continue;
    const Dim i = bad - values.begin();
    fail(where, ": tensor ", quote_name(t.name()), " ", t.shape_text(), ": row ", r + i / t.last(),
         ", column ", i % t.last(), " is ", *bad,
         "; such a model computes nothing: the file is damaged, or its training diverged");
  }
}

CheckpointSummary summary_of(const CheckpointFiles& files, const Recipe& recipe) {
  const Source& s = files.source;
  CheckpointSummary out{.path = files.path,
                        .format = files.format,
                        .family = s.family->name,
                        .name = {},
                        .chat_template = {},
                        .recipe = recipe};
  if (files.gguf) out.name = files.gguf->text_or("general.name", "");
  out.chat_template = chat_template_of(files);
  out.bytes = s.tensors->bytes();
  for (const TensorView& v : s.tensors->all()) {
    CheckpointSummary::Stored& n = out.types[v.dtype()];
    ++n.tensors;
    n.bytes += v.bytes().size();
  }
  return out;
}

}  // namespace

CheckpointSummary checkpoint_summary(const std::string& path) {
  const auto files = open_files(path);
  return summary_of(*files, translate_files(*files).recipe);
}

std::vector<std::string> check_checkpoint(const std::string& path, bool values) {
  const auto files = open_files(path);
  const Source& s = files->source;
  const Translation t = translate_files(*files);
  const TensorPlan plan = plan_tensors(s, t.recipe);
  const CheckpointSummary summary = summary_of(*files, t.recipe);
  const Checkpoint c = describe_checkpoint(*files, t.recipe);
  if (values) {
    std::set<const TensorView*> seen;
    for (const auto& [shape, use] : plan)
      if (seen.insert(use.view).second) check_values(s.where, *use.view);
    s.tensors->check_unchanged();
  }
  std::vector<std::string> out;
  out.push_back(concat(files->path, ": ", files->format,
                       files->gguf ? concat(" version ", files->gguf->version) : "", ", family ",
                       s.family->name));
  out.push_back(concat(counted(static_cast<Dim>(s.tensors->all().size()), "tensor"), ", ",
                       byte_count(static_cast<double>(s.tensors->bytes())), ", every one read or known",
                       values ? ", every number finite" : ""));
  Dim unread = 0;
  std::string example;
  for (const TensorView& v : s.tensors->all())
    if (s.family->ignored(s.form, v.name()) ||
        s.family->beyond(s.form, v.name(),
                         (t.recipe.decoder ? t.recipe.decoder : t.recipe.encoder)->layers)) {
      if (unread++ == 0) example = v.name();
    }
  if (unread > 0)
    out.push_back(concat("  ", unread, " of them not read: ", quote_name(example), unread > 1 ? " …" : ""));
  for (const auto& [type, n] : summary.types)
    out.push_back(concat("  ", name_of(type), ": ", counted(static_cast<Dim>(n.tensors), "tensor"), ", ",
                         byte_count(static_cast<double>(n.bytes))));
  out.push_back(concat(short_count(static_cast<double>(count_parameters(t.recipe).total)),
                       " parameters, width ", t.recipe.width, ", vocabulary ", t.recipe.vocab, ", context ",
                       t.recipe.context));
  out.push_back(c.tokenizer
                    ? concat("tokenizer: ", c.tokenizer->name, ", ", counted(c.tokenizer->size(), "token"))
                    : "no tokenizer");
  if (c.tokenizer && c.tokenizer->size() > t.recipe.vocab)
    out.push_back(concat("  the last ", c.tokenizer->size() - t.recipe.vocab,
                         " of them are special and have no row in the table of ", t.recipe.vocab,
                         ": a text with one is refused"));
  if (s.family->json.find("tower") && s.form == Form::folder && s.keys.find("text_config") &&
      s.keys.find("vision_config"))
    out.push_back(concat("one of two models: this one reads ",
                         t.recipe.embed.patches ? "pictures; " : "texts; ", files->path,
                         t.recipe.embed.patches ? ":text" : ":vision", " is the other"));
  if (!c.chat_template.empty()) out.push_back("chat template: yes");
  if (c.pool) out.push_back("sentence encoder");
  if (t.recipe.head.kind == HeadRecipe::Kind::classes)
    out.push_back(concat("classifier of ", t.recipe.head.classes, " classes",
                         c.class_names.empty() ? "" : ": " + join(c.class_names)));
  if (files->recipe)
    out.push_back(s.family->own ? "described by its own recipe" : "recipe.json agrees with config.json");
  return out;
}

std::vector<std::string> family_names() {
  std::vector<std::string> out;
  for (const Family& f : families()) out.push_back(f.name);
  return out;
}

const Tokenizer& tokenizer_of(const Checkpoint& checkpoint) {
  if (!checkpoint.tokenizer)
    fail(
        checkpoint.path,
        " has no tokenizer beside its weights; put tokenizer.json (or the tokenizer.bin of a llama2.c model) "
        "there, or give token ids with --ids");
  return *checkpoint.tokenizer;
}

}  // namespace rapt
