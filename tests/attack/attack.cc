// SPDX-License-Identifier: Apache-2.0
// Mutated files of every kind, opened as a user would open them: each ends in a value or in rapt::Error.
// Made from seeds that this program writes itself (toy models of every family, small vocabularies, packed
// data), spoilt by bytes, by meaning, or in sizes that agree.
//
//   rapt_attack [--count N] [--seed N] [--kind NAME] [--memory-limit MIB]
//
// File number N is the same on every machine: what it finds is repeated by the command that it prints, which
// also prints the error that a single file ends in. Build with the preset `dev`.
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <typeinfo>

#include "rapt/image/image.h"
#include "rapt/image/preprocess.h"
#include "rapt/io/fs.h"
#include "rapt/io/gguf.h"
#include "rapt/io/gzip.h"
#include "rapt/io/npy.h"
#include "rapt/io/safetensors.h"
#include "rapt/load/adapter.h"
#include "rapt/nn/size.h"
#include "rapt/recipe/presets.h"
#include "rapt/tensor/formats.h"
#include "rapt/text/chat_template.h"
#include "rapt/text/tokenizer/from_files.h"
#include "rapt/text/tokenizer/write.h"
#include "rapt/use/data.h"
#include "tests/adapter_tools.h"
#include "tests/attack/memory.h"
#include "tests/attack/mutate.h"
#include "tests/hostile/made_model.h"
#include "tests/image_files.h"
#include "tests/model_tools.h"
#include "tests/toy_checkpoint.h"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace rapt::attack {
namespace {

using test::TempFolder;
using test::Toy;

constexpr std::size_t kMostBytes = 4 << 20;  // of a file made here

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}
void write_whole(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct Wrong : std::runtime_error {  // a value that must not be
  using std::runtime_error::runtime_error;
};
void check(bool holds, const char* what) {
  if (!holds) throw Wrong(what);
}

Device& device() {
  static Device one({.threads = 1});
  return one;
}

// Seeds.

const Toy& toy(Rng& rng) {
  static const std::vector<std::string> names = test::toy_names();
  static std::map<std::string, Toy> made;
  const std::string& name = rng.any(names);
  const auto found = made.find(name);
  return found != made.end() ? found->second : made.emplace(name, test::read_toy(name)).first->second;
}

// The toy as GGUF; "" where the format has no such model.
const std::string& toy_gguf(const Toy& toy) {
  static std::map<std::string, std::string> made;
  const auto found = made.find(toy.name);
  if (found != made.end()) return found->second;
  const TempFolder temp;
  std::string bytes;
  try {
    test::write_folder(toy, temp / "folder");
    write_checkpoint(temp / "folder", temp / "toy.gguf", {});
    bytes = read_whole(temp / "toy.gguf");
  } catch (const Error&) {}
  return made.emplace(toy.name, std::move(bytes)).first->second;
}

constexpr std::string_view kBpe =
    R"({"version":"1.0","added_tokens":[{"id":5,"content":"<s>","special":true},{"id":6,"content":"<x>","lstrip":true,"normalized":true}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace","pattern":{"String":" "},"content":"_"}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Isolated","invert":false},
{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[5],"tokens":["<s>"]}}},"decoder":{"type":"ByteLevel"},
"model":{"type":"BPE","unk_token":null,"vocab":{"a":0,"b":1,"ab":2,"l":3,"ll":4},"merges":["a b",["l","l"]]}})";
constexpr std::string_view kUnigram =
    R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "},
{"type":"Lowercase"},{"type":"StripAccents"},{"type":"NFKD"},{"type":"Strip","strip_left":true,"strip_right":true}]},
"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},"decoder":{"type":"Metaspace"},
"model":{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["<unk>",0],["<0x41>",-9],["▁a",-1.5],["a",-2],["ab",-1.25],["▁",-3]]}})";
constexpr std::string_view kWords =
    R"({"normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},
"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":{"type":"BertProcessing","sep":["[SEP]",2],"cls":["[CLS]",1]},
"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
"model":{"type":"WordPiece","unk_token":"[UNK]","max_input_chars_per_word":100,"vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2,"ab":3,"##l":4,"a":5}}})";

std::string varint(std::uint64_t v) {
  std::string out;
  for (; v >= 128; v >>= 7) out += static_cast<char>(v | 128);
  return out + static_cast<char>(v);
}
std::string field(int number, std::string_view value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(value.size()) + std::string(value);
}
std::string field(int number, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
}
std::string piece(std::string_view text, float score, std::uint64_t type) {
  std::string f(1, static_cast<char>(2 << 3 | 5));
  f.append(reinterpret_cast<const char*>(&score), 4);
  return field(1, field(1, text) + f + field(3, type));
}
std::string sentencepiece_seed(Rng& rng) {
  std::string charsmap(4 + 4 * 512, '\0');  // 'a' becomes "x"
  const auto unit = [&](std::size_t i, std::uint32_t value) {
    std::memcpy(charsmap.data() + 4 + 4 * i, &value, 4);
  };
  const std::uint32_t size = 4 * 512;
  std::memcpy(charsmap.data(), &size, 4);
  unit(0, 256u << 10);
  unit(256 ^ 'a', 1u << 8 | std::uint32_t{'a'} << 10 | 'a');
  unit(256, 1u << 31);
  charsmap += std::string("x\0yz\0", 5);
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("\u2581", -1, 1) +
         piece("a", -2, 1) + piece("ab", -1.5f, 1) + piece("\u2581a", -4, 4) + piece("<0x41>", 0, 6) +
         piece("x", -1, 5) +
         field(2, field(3, std::uint64_t{1 + rng.below(2)}) + field(35, std::uint64_t{rng.below(2)}) +
                      field(41, std::uint64_t{1})) +
         field(3, (rng.chance(2) ? field(2, charsmap) : "") + field(3, std::uint64_t{rng.below(2)}) +
                      field(4, std::uint64_t{1}));
}

constexpr std::string_view kJsonWords[] = {
    "{",       "}", "[", "]",        "\"",   "null",        "true", "-1",   "1e999",   "\\u0000",
    "\\ud800", ",", ":", "\"type\"", "\"\"", "99999999999", "0.5",  "[[[[", "{\"a\":", "\xFF"};

// What is done with what opened.

void use_tokenizer(Rng& rng, const Tokenizer& t) {
  static constexpr std::string_view kTexts[] = {"ab <s>\n'll 12\xC3\xA9", "", "aaaa  bb\t",
                                                "\xE2\x96\x81"
                                                "a<unk>\xFF\xCC\x81",
                                                "[CLS] ab abl"};
  for (const bool special : {false, true}) {
    const std::vector<std::int32_t> ids = t.encode(rng.any(kTexts), special);
    for (const std::int32_t id : ids) check(id >= 0 && id < t.size(), "an id outside the vocabulary");
    TextStream stream(t, special);
    for (const std::int32_t id : t.frame(ids))
      check(valid_utf8(stream.push(id)), "a stream that is not UTF-8");
    check(valid_utf8(stream.finish()), "a stream that does not end in UTF-8");
    t.decode(ids, special);
    for (const std::int32_t id : ids)
      check(special || t.role(id) != Tokenizer::Role::control, "text that became a control token");
  }
  tokenizer_metadata(t);
  tokenizer_files(t);
}

void use_checkpoint(Rng& rng, const std::string& path) {
  const Checkpoint c = open_checkpoint(path, {.device = &device()});
  if (c.tokenizer) use_tokenizer(rng, *c.tokenizer);
  if (c.model->parameters() > 1'000'000) return;
  const Dim lengths[] = {5};
  test::logits_of(device(), *c.model, test::some_texts(c.model->recipe, lengths, 1));
}

// Kinds. Each makes file number N from its seeds and opens it.

std::vector<std::byte> tensor_bytes(Rng& rng, DType type, Dim elements) {
  std::vector<std::byte> out(rapt::bytes_of(type, elements, "a tensor"));
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (float& v : values) v = rng.real();
  if (type == DType::f32) std::memcpy(out.data(), values.data(), out.size());
  else quantize(type, values, out);
  return out;
}

Dim elements_of(std::span<const Dim> shape) {
  Dim n = 1;
  for (const Dim d : shape) n = d > 0 && n < static_cast<Dim>(kMostBytes) ? n * d : n;
  return n;
}

// Metadata and shapes change together; then perhaps a number more.
void spoil_gguf_sizes(Rng& rng, const std::string& seed, const std::string& path) {
  const GgufFile file = GgufFile::parse(bytes_of(seed), "seed");
  const Scale scale = any_scale(rng);
  auto metadata = file.metadata();
  for (auto& [key, value] : metadata)
    if (auto* n = std::get_if<std::int64_t>(&value.value);
        n && !key.starts_with("general.") && !key.starts_with("tokenizer."))
      *n = scale(*n);
  if (rng.chance(2) && !metadata.empty()) {
    auto& value = metadata[rng.below(metadata.size())].second.value;
    if (auto* n = std::get_if<std::int64_t>(&value))
      *n = std::max<std::int64_t>(*n + static_cast<std::int64_t>(rng.below(5)) - 2, 0);
    else if (auto* x = std::get_if<double>(&value))
      *x = static_cast<double>(rng.real()) * (rng.chance(3) ? 1e30 : 2);
  }
  std::vector<GgufTensorPlan> plan;
  std::vector<std::vector<std::byte>> all;
  all.reserve(file.tensors.all().size());
  static constexpr DType kTypes[] = {DType::f32,  DType::f32,  DType::f16, DType::bf16,
                                     DType::q8_0, DType::q4_0, DType::q6_k};
  const DType matrices = rng.any(kTypes);
  for (const TensorView& t : file.tensors.all()) {
    std::vector<Dim> shape(t.shape().begin(), t.shape().end());
    for (Dim& d : shape) d = scale(d);
    if (rng.chance(200)) shape.back() += 1;
    const Dim n = elements_of(shape), block = matrices == DType::q6_k                              ? 256
                                              : matrices == DType::q8_0 || matrices == DType::q4_0 ? 32
                                                                                                   : 1;
    const DType type = shape.size() > 1 && shape.back() % block == 0 ? matrices : DType::f32;
    if (n > (1 << 18)) fail("too large to be worth it");
    all.push_back(tensor_bytes(rng, type, n));
    plan.push_back({t.name(), type, shape, [&bytes = all.back()](FileWriter& out) { out.write(bytes); }});
  }
  write_gguf(path, metadata, plan, true);
}

void gguf_case(Rng& rng, const TempFolder& temp) {
  const std::string& seed = toy_gguf(toy(rng));
  if (seed.empty()) fail("this toy has no form in GGUF");
  const std::string path = temp / "model.gguf";
  if (rng.chance(3)) {
    std::string bytes = seed;
    mutate_bytes(rng, bytes);
    write_whole(path, bytes);
  } else {
    spoil_gguf_sizes(rng, seed, path);
  }
  try {
    check_checkpoint(path);
  } catch (const Error&) {}
  use_checkpoint(rng, path);
}

void folder_case(Rng& rng, const TempFolder& temp) {
  Toy one = toy(rng);
  const Scale scale = rng.chance(4) ? Scale{} : any_scale(rng);
  one.config = scaled(one.config, scale);
  if (rng.chance(2)) one.config = mutate_json(rng, one.config);
  Dim total = 0;
  for (test::ToyTensor& t : one.tensors) {
    for (Dim& d : t.shape) d = scale(d);
    if (rng.chance(200)) t.shape.back() += 1;
    total += elements_of(t.shape);
    if (total > (1 << 19)) fail("too large to be worth it");
    t.values.resize(static_cast<std::size_t>(elements_of(t.shape)));
    for (float& v : t.values) v = rng.real();
  }
  const std::string folder = temp / "folder";
  test::write_folder(one, folder, rng.chance(3) ? DType::bf16 : DType::f32);
  if (rng.chance(3)) write_whole(folder + "/tokenizer.json", rng.chance(2) ? kBpe : kWords);
  if (rng.chance(4)) {
    const char* name = rng.chance(2) ? "/model.safetensors" : "/config.json";
    std::string bytes = read_whole(folder + name);
    mutate_bytes(rng, bytes, kJsonWords);
    write_whole(folder + name, bytes);
  }
  if (rng.chance(8)) write_whole(folder + "/generation_config.json", mutate_json(rng, one.config).dump());
  try {
    check_checkpoint(folder);
  } catch (const Error&) {}
  use_checkpoint(rng, folder);
  if (rng.chance(4)) write_checkpoint(folder, temp / "again.gguf", {.force = true});
}

// An adapter of a sound model: its numbers, shapes, names and configuration.
void adapter_case(Rng& rng, const TempFolder& temp) {
  static const test::PeftToy good = test::read_peft_toy("llama");
  static const Checkpoint c = [] {
    const TempFolder once;
    test::write_folder(good.model, once / "toy");
    return open_checkpoint(once / "toy");
  }();
  Toy one = good.adapter;
  if (rng.chance(2)) one.config = mutate_json(rng, one.config);
  if (rng.chance(2)) {
    test::ToyTensor& t = one.tensors[rng.below(one.tensors.size())];
    t.shape[rng.below(t.shape.size())] = static_cast<Dim>(rng.below(70)) + 1;
    t.values.resize(static_cast<std::size_t>(elements_of(t.shape)));
  }
  if (rng.chance(3)) {
    std::string& name = one.tensors[rng.below(one.tensors.size())].name;
    mutate_bytes(rng, name);
  }
  const std::string folder = temp / "adapter";
  test::write_adapter_folder(one, folder, rng.chance(3) ? DType::bf16 : DType::f32);
  if (rng.chance(3)) {
    const char* name = rng.chance(2) ? "/adapter_model.safetensors" : "/adapter_config.json";
    std::string bytes = read_whole(folder + name);
    mutate_bytes(rng, bytes, kJsonWords);
    write_whole(folder + name, bytes);
  }
  const std::vector<AdapterUse> uses = {{load_adapter(folder, c), rng.real()}};
  rapt::Run run(device());
  const std::int32_t tokens[] = {3, 4, 5};
  forward(run, *c.model, {.tokens = tokens, .sequences = {{.first = 0, .count = 3, .adapters = uses}}});
}

void llama2c_case(Rng& rng, const TempFolder& temp) {
  std::int32_t h[7] = {16, 24, 2, 4, 2, 8, 16};
  for (std::int32_t& n : h)
    if (rng.chance(4)) n = static_cast<std::int32_t>(rng.below(40)) - (rng.chance(8) ? 20 : 0);
  const bool own_head = rng.chance(2);
  const Dim C = h[0], F = h[1], L = h[2], H = h[3], K = h[4], V = h[5], T = h[6];
  if (own_head) h[5] = -h[5];
  const Dim D = H > 0 ? C / H : 1;
  Dim floats = V * C + L * (2 * C + 2 * C * C + 2 * K * D * C + 3 * F * C) + C + T * (D / 2 * 2) +
               (own_head ? V * C : 0);
  floats = std::clamp<Dim>(floats, 0, 1 << 18);
  std::string bytes(reinterpret_cast<const char*>(h), sizeof h);
  for (Dim i = 0; i < floats; ++i) {
    const float x = rng.real();
    bytes.append(reinterpret_cast<const char*>(&x), 4);
  }
  if (rng.chance(4)) mutate_bytes(rng, bytes);
  write_whole(temp / "model.bin", bytes);
  if (rng.chance(2)) {
    std::string words(4, '\0');
    words[0] = 9;
    for (Dim i = 0; i < std::clamp<Dim>(V, 0, 1000); ++i) {
      const std::string text =
          i < 3 ? std::string("<s>")
                : std::string(1, static_cast<char>('a' + i % 26)) + (i > 28 ? std::to_string(i) : "");
      const auto size = static_cast<std::int32_t>(text.size());
      const float score = -static_cast<float>(i);
      words.append(reinterpret_cast<const char*>(&score), 4)
          .append(reinterpret_cast<const char*>(&size), 4)
          .append(text);
    }
    if (rng.chance(2)) mutate_bytes(rng, words);
    write_whole(temp / "tokenizer.bin", words);
  }
  use_checkpoint(rng, temp / "model.bin");
}

void tokenizer_case(Rng& rng, const TempFolder&) {
  std::shared_ptr<const Tokenizer> t;
  const std::string_view json = rng.any(std::array{kBpe, kUnigram, kWords});
  switch (rng.below(6)) {
    case 0: {
      std::string text(json);
      mutate_bytes(rng, text, kJsonWords);
      t = tokenizer_from_json(text, "", "attack");
      break;
    }
    case 1:
    case 2: t = tokenizer_from_json(mutate_json(rng, parse_json(json)).dump(), "", "attack"); break;
    case 3: {
      std::string model = sentencepiece_seed(rng);
      mutate_bytes(rng, model);
      t = rng.chance(3)
              ? tokenizer_from_marian(bytes_of(model), R"({"<unk>":0,"a":1,"ab":2,"</s>":3,"<pad>":4})",
                                      Json(Json::Object{}), "attack")
              : tokenizer_from_sentencepiece(bytes_of(model), "attack");
      break;
    }
    case 4: {
      std::string vocab = R"({"a":0,"b":1,"ab":2,"<|endoftext|>":3})", merges = "#version: 0.2\na b\n";
      mutate_bytes(rng, rng.chance(2) ? vocab : merges, kJsonWords);
      t = tokenizer_from_bpe_files(vocab, merges, Json(Json::Object{}), "attack");
      break;
    }
    default: {
      std::string vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\n##l\na\n";
      mutate_bytes(rng, vocab, kJsonWords);
      t = tokenizer_from_vocab_txt(vocab, Json(Json::Object{}), "attack");
    }
  }
  use_tokenizer(rng, *t);
}

// The sums of a packed file made right again: the layout stands in rapt/use/data_packed.cc.
void repair_sums(std::string& bytes) {
  if (bytes.size() < 88) return;
  const auto get = [&](std::size_t at) {
    std::uint64_t n = 0;
    std::memcpy(&n, bytes.data() + at, 8);
    return static_cast<std::size_t>(std::min<std::uint64_t>(n, kMostBytes));
  };
  const auto put_sum = [&](std::size_t at, std::size_t from, std::size_t to) {
    from = std::min(from, bytes.size());
    to = std::clamp(to, from, bytes.size());
    const std::uint32_t sum = crc32(bytes_of(std::string_view(bytes).substr(from, to - from)));
    std::memcpy(bytes.data() + at, &sum, 4);
  };
  const auto padded = [](std::size_t n) { return (n + 63) / 64 * 64; };
  const std::size_t items = get(40), meta = 128, index = meta + padded(get(64));
  const std::size_t ids = index + padded((items + 1) * 8 + (bytes[12] == 3 ? items * 4 : 0));
  put_sum(72, meta, index);
  put_sum(76, index, ids);
  put_sum(80, ids, bytes.size());
  put_sum(84, 0, 84);
}

void packed_case(Rng& rng, const TempFolder& temp) {
  static std::map<int, std::string> seeds;
  const int kind = static_cast<int>(rng.below(3));
  std::string& seed = seeds[kind];
  if (seed.empty()) {
    const TempFolder texts;
    std::string a, b;
    for (int i = 0; i < 40; ++i)
      a += concat("line ", i, " of a text\n"), b += concat("Zeile ", i, " eines Textes\n");
    write_whole(texts / "a.txt", a);
    write_whole(texts / "b.txt", b);
    DataOptions o;
    o.vocab.kind = VocabKind::bytes;
    o.path = kind == 0   ? texts / "a.txt"
             : kind == 1 ? concat(texts / "a.txt", ",", texts / "b.txt")
                         : concat("x=", texts / "a.txt", ",y=", texts / "b.txt");
    o.objective = kind == 0   ? Objective::causal
                  : kind == 1 ? Objective::translation
                              : Objective::classification;
    write_packed(texts / "packed.bin", o, true);
    seed = read_whole(texts / "packed.bin");
  }
  std::string bytes = seed;
  const std::size_t tail = bytes.size() - std::min<std::size_t>(bytes.size(), 2048);  // index and ids
  switch (rng.below(6)) {
    case 0: mutate_bytes(rng, bytes); break;
    case 1: overwrite_bytes(rng, bytes, 8, 72); break;  // the header's numbers
    case 2: overwrite_bytes(rng, bytes, 128, 1024); break;
    default: overwrite_bytes(rng, bytes, tail, bytes.size());
  }
  if (!rng.chance(8)) repair_sums(bytes);
  const std::string path = temp / "packed.bin";
  write_whole(path, bytes);
  packed_summary(path);
  DataOptions o;
  o.path = path;
  o.length = 1 + static_cast<Dim>(rng.below(40));
  o.objective = kind == 0   ? Objective::causal
                : kind == 1 ? Objective::translation
                            : Objective::classification;
  const auto data = open_data(o);
  for (std::uint64_t i = 0; i < 3; ++i)
    for (const std::int32_t id : data->batch(i).tokens)
      check(id >= 0 && id < data->vocab, "an id outside the vocabulary");
}

void gzip_case(Rng& rng, const TempFolder&) {
  std::string text;
  for (std::size_t i = rng.below(2000); i > 0; --i) text += static_cast<char>('a' + rng.below(4));
  std::string packed(text.size() + 200, '\0');
  z_stream z{};
  deflateInit2(&z, 1 + static_cast<int>(rng.below(9)), Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
  z.next_in = reinterpret_cast<Bytef*>(text.data());
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  deflate(&z, Z_FINISH);
  packed.resize(z.total_out);
  deflateEnd(&z);
  if (rng.chance(3)) packed += packed;
  mutate_bytes(rng, packed);
  gunzip(packed, 1 << 20, "attack");
}

void recipe_case(Rng& rng, const TempFolder&) {
  const auto presets = preset_files();
  const Json seed = parse_json(rng.any(presets).json);
  Json json = scaled(seed, rng.chance(2) ? Scale{} : any_scale(rng));
  for (const auto& [key, small] :
       std::initializer_list<std::pair<const char*, Dim>>{{"width", 24}, {"vocab", 40}, {"context", 32}})
    if (json.find(key) && !rng.chance(8)) json.set(key, small);
  json = mutate_json(rng, json);
  std::string text = json.dump();
  if (rng.chance(5)) mutate_bytes(rng, text, kJsonWords);
  const Recipe recipe = parse_recipe(text, "attack");
  check(parse_recipe(recipe_json(recipe), "again") == recipe, "a recipe that reads otherwise when written");
  const Recipe whole = resolve(recipe);
  const Dim total = count_parameters(whole).total;
  count_cost(whole, 16);
  if (total > 200'000) return;
  Model model(whole);
  init(model, 1);
  const Dim lengths[] = {5};
  test::logits_of(device(), model, test::some_texts(whole, lengths, 1));
}

void npy_case(Rng& rng, const TempFolder& temp) {
  static const std::string seed = [&] {
    const float values[6] = {1, 2, 3, 4, 5, 6};
    NpyWriter out(temp / "seed.npy", {2, 3}, true);
    out.write(values);
    out.commit();
    return read_whole(temp / "seed.npy");
  }();
  static constexpr std::string_view kWordsHere[] = {
      "'<f8'", "'<f4'", "True", "(", ")", ",", "-1", "99999999999999999999", "()", "'descr'"};
  std::string bytes = seed;
  mutate_bytes(rng, bytes, kWordsHere);
  parse_npy(bytes_of(bytes), "attack");
}

void picture_case(Rng& rng, const TempFolder&) {
  static const Json::Array& files = test::need(test::image_golden("files.json"), "cases").array();
  static constexpr std::string_view kWordsHere[] = {
      "IHDR", "IDAT", "PLTE", "tRNS", "IEND", "\xFF\xDA", "\xFF\xC4", "\xFF\xC2", "\xFF\xDB", "\xFF\xD9"};
  std::string bytes = test::from_base64(test::need(rng.any(files), "bytes").string());
  if (rng.chance(2)) mutate_bytes(rng, bytes, kWordsHere);
  else overwrite_bytes(rng, bytes, 8, bytes.size());
  if (!rng.chance(8)) test::repair_png(bytes);
  const Image image = decode_image(bytes_of(bytes), "attack");
  check(static_cast<Dim>(image.rgb.size()) == 3 * image.width * image.height,
        "a picture without all its pixels");
}

void processor_case(Rng& rng, const TempFolder&) {
  static const Json& configs = test::need(test::image_golden("processors.json"), "configs");
  const Json& seed = configs.object()[rng.below(configs.object().size())].value;
  const ImageProcess process = parse_image_process(mutate_json(rng, seed), "attack", "vit");
  const Dim width = 1 + static_cast<Dim>(rng.below(40)), height = 1 + static_cast<Dim>(rng.below(40));
  const PreparedImage out = preprocess(process, test::drawn_picture(width, height, rng.below(9)), "attack");
  check(static_cast<Dim>(out.pixels.size()) == 3 * out.height * out.width,
        "a picture without all its pixels");
  for (const float x : out.pixels) check(std::isfinite(x), "a pixel that is no number");
}

void template_case(Rng& rng, const TempFolder&) {
  static const Json cases =
      parse_json(read_whole(std::string(RAPT_SOURCE_DIR) + "/tests/golden/chat_templates/cases.json"));
  static const Json messages = parse_json(
      R"([{"role":"system","content":"\u0001s"},{"role":"user","content":"\u0001 a\nB, c\u0001"},{"role":"assistant","content":null,
"tool_calls":[{"function":{"name":"\u0001f","arguments":{"k\u0001":[1,2.5,true,null,"\u0001"]}}}]},{"role":"tool","content":[{"type":"text","text":"\u0001t"}]}])");
  static constexpr std::string_view kWordsHere[] = {"{{",
                                                    "}}",
                                                    "{%",
                                                    "%}",
                                                    "{% endfor %}",
                                                    "{% endif %}",
                                                    " | upper",
                                                    " | list",
                                                    " | tojson(indent=3)",
                                                    " | sort",
                                                    " | join(',')",
                                                    " * 100000",
                                                    " ** 9",
                                                    " + ",
                                                    " ~ ",
                                                    "[::-1]",
                                                    "[1:]",
                                                    "(",
                                                    ")",
                                                    "range(99999)",
                                                    "messages",
                                                    " if true else ",
                                                    "not ",
                                                    "loop.index",
                                                    "namespace(a=1)",
                                                    ".split('a')",
                                                    ".replace('', 'xyz')",
                                                    ".format(1, a=2)",
                                                    "'%5d' % 3",
                                                    "{% for i in range(999) %}",
                                                    "varargs",
                                                    "{% macro f(a) %}{{ f(a) }}{% endmacro %}{{ f(1) }}",
                                                    "{% set x = x ~ x %}",
                                                    " is defined",
                                                    " | round(-2)",
                                                    "0x1f",
                                                    "'\xFF'",
                                                    " | map('upper')"};
  const Json::Array& all = cases.find("cases")->array();
  std::string source = rng.any(all).find("template")->string();
  if (rng.chance(4)) {
    const std::string other = rng.any(all).find("template")->string();
    source.insert(rng.below(source.size() + 1), other.substr(rng.below(other.size() + 1)));
  }
  mutate_bytes(rng, source, kWordsHere);
  // It can write the mark itself.
  const bool forged = source.find('\1') != std::string::npos || source.find('\\') != std::string::npos;
  const ChatOptions options{true, "<s>", "</s>", parse_json(R"({"tools":[{"name":"\u0001n"}],"flag":true})"),
                            "2026-11-15"};
  for (const ChatPiece& p : ChatTemplate(source).render(messages, options))
    check(!p.trusted || forged || p.text.find('\1') == std::string::npos,
          "a user's text that comes out as the template's");
}

// Templates and tokenizers that are valid and try to cost much: a small file may take 256 MiB, no more. What
// they cost in time shows in the last line.
void costly_template(Rng& rng) {
  static constexpr std::string_view kTexts[] = {"'a' * 4000000",
                                                "'é' * 1000000",
                                                "'a b' * 1000000",
                                                "(u ~ 'a') * 90000",
                                                "'\\n' * 1000000",
                                                "range(90000) | join(' ')",
                                                "(range(20000) | list) | tojson",
                                                "'%100000d' % 1"};
  static constexpr std::string_view kExpressions[] = {"x.ljust(0)",
                                                      "x.rjust(4100000)",
                                                      "x.zfill(9)",
                                                      "x.upper()",
                                                      "x.title()",
                                                      "x | title",
                                                      "x | capitalize",
                                                      "x | indent(1)",
                                                      "x.split()",
                                                      "x.split('a')",
                                                      "x.rsplit('a', 5)",
                                                      "x.splitlines()",
                                                      "x.strip('ab')",
                                                      "x.strip()",
                                                      "x[::-1]",
                                                      "x[1:]",
                                                      "x[::2]",
                                                      "x[5]",
                                                      "x | length",
                                                      "x | first",
                                                      "x | last",
                                                      "x | list",
                                                      "x | reverse",
                                                      "x | tojson",
                                                      "x | string",
                                                      "x | int",
                                                      "x | float",
                                                      "x ~ i",
                                                      "x + x",
                                                      "x * 1",
                                                      "x == x ~ ''",
                                                      "x in x",
                                                      "'zzzzzzzzzzzzzzzzzb' in x",
                                                      "x.find('b')",
                                                      "x.rfind('b')",
                                                      "x.count('a')",
                                                      "x.replace('a', 'bb')",
                                                      "x.replace('', '-')",
                                                      "x.startswith(x)",
                                                      "x.partition('b')",
                                                      "x.rpartition('bbbbbbbbbbbbbbbbbbbbbb')",
                                                      "{x: i}",
                                                      "{x: i}[x]",
                                                      "[x, x]",
                                                      "[x] * 1000",
                                                      "x % ()",
                                                      "x | format",
                                                      "x.format()",
                                                      "x.isalpha()",
                                                      "x is lower",
                                                      "1[x]",
                                                      "missing[x] is defined",
                                                      "u[x]",
                                                      "{}[x]",
                                                      "range(1500) | map(attribute=x) | list",
                                                      "range(99999) | list",
                                                      "range(99999) | map('string') | list",
                                                      "range(9999) | sort",
                                                      "['b', x, 'a'] | sort",
                                                      "[x, x] | unique | list",
                                                      "[x] | join(x)",
                                                      "x.join(['', ''])",
                                                      "[1] | tojson(indent=x)",
                                                      "[1] | tojson(separators=(x, x))",
                                                      "namespace(a=x)",
                                                      "dict(a=x)",
                                                      "dict([[x, 1]]).items()",
                                                      "{'a': x}.copy()",
                                                      "x | map('upper') | list",
                                                      "x | select | list",
                                                      "x | round",
                                                      "x | trim(x)",
                                                      "x | default(x)",
                                                      "[x, x, x] | sum(start='') ",
                                                      "(x, i) < (x, i)",
                                                      "x < x",
                                                      "[x] == [x ~ '']",
                                                      "strftime_now(x)",
                                                      "x.endswith(('a', 'b', x))",
                                                      "f(x)",
                                                      "f(x, x, k=x)",
                                                      "x.removeprefix('a')",
                                                      "x.removesuffix(x)",
                                                      "loop.cycle(x, x)"};
  std::string source = concat(
      "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{% set u = "
      "messages[0].content %}{% set x = ",
      rng.any(kTexts), " %}{% set ns = namespace(l=[]) %}");
  const std::string expression = concat("(", rng.any(kExpressions), ")");
  source += concat("{% for i in range(", rng.chance(2) ? 99999 : 1000, ") %}");
  switch (rng.below(4)) {
    case 0: source += concat("{% if ", expression, " %}{% endif %}"); break;
    case 1: source += concat("{% set ns.l = ns.l + [", expression, "] %}"); break;
    case 2: source += concat("{% set ns.l = [ns.l, ", expression, "] %}"); break;
    default: source += concat("{% set y %}{{ ", expression, " }}{% endset %}{% set z = ", expression, " %}");
  }
  const ChatMessage message{"user", "hello"};
  ChatTemplate(source + "{% endfor %}")
      .render(std::span(&message, 1), {true, "<s>", "</s>", Json(), "2026-11-15"});
}

void costly_tokenizer(Rng& rng) {
  const auto times = [](std::string_view part, std::size_t n) {
    std::string out;
    for (std::size_t i = 0; i < n; ++i) out += (i ? "," : "") + std::string(part);
    return out;
  };
  static constexpr std::string_view kSteps[] = {
      R"({"type":"NFKD"})",
      R"({"type":"NFC"})",
      R"({"type":"Lowercase"})",
      R"({"type":"StripAccents"})",
      R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})",
      R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":"aaaaaaaaaaaaaaaaaaaaa"})",
      R"({"type":"Prepend","prepend":"aaaaaaaa"})",
      R"({"type":"BertNormalizer"})"};
  static constexpr std::string_view kSplits[] = {
      R"({"type":"Digits","individual_digits":true})", R"({"type":"Whitespace"})",
      R"({"type":"Metaspace","replacement":"aaaaaaaaaaaaaaaa"})", R"({"type":"BertPreTokenizer"})",
      R"({"type":"Split","pattern":{"String":"a"},"behavior":"MergedWithNext","invert":true})"};
  static constexpr std::size_t kSizes[] = {1, 10, 100, 240, 300, 1000, 4000, 9000};
  const std::string token = std::string(rng.any(kSizes), 'a') + "b";
  const std::string short_token = token.substr(token.size() - std::min<std::size_t>(token.size(), 1000));
  std::string model;
  switch (rng.below(3)) {
    case 0:
      model = concat(R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1],["aa",-1],[")", token,
                     R"(",-1]]})");
      break;
    case 1:
      model = concat(
          R"({"type":"WordPiece","unk_token":"u","max_input_chars_per_word":100000,"vocab":{"u":0,"a":1,"##a":2,"##)",
          token, R"(":3}})");
      break;
    default:
      model = concat(R"({"type":"BPE","vocab":{"a":0,"aa":1,"aaaa":2,")", token,
                     R"(":3},"merges":["a a","aa aa"]})");
  }
  std::string json = concat(R"({"model":)", model);
  if (rng.chance(2))
    json += concat(R"(,"added_tokens":[{"id":3,"content":")", short_token,
                   R"(","special":false,"normalized":)", rng.chance(2) ? "true" : "false", "}]");
  if (rng.chance(2))
    json += concat(R"(,"normalizer":{"type":"Sequence","normalizers":[)",
                   times(rng.any(kSteps), 1 + rng.below(rng.chance(2) ? 3 : 200)), "]}");
  if (rng.chance(2))
    json += concat(R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)",
                   times(rng.any(kSplits), 1 + rng.below(rng.chance(2) ? 3 : 200)), "]}");
  std::string text;
  static constexpr std::string_view kTexts[] = {
      "a", "  ", "\xC3\xA9", "1", "a ", "\xEF\xB7\xBA", "aaaaaaaaaaaaaaaaaaaaaaaab"};
  const std::string_view part = rng.any(kTexts);
  while (text.size() < (1 << 20)) text += part;
  tokenizer_from_json(json + "}", "", "attack")->encode(text, true);
}

void made_case(Rng& rng, const TempFolder& temp) {  // sizes that agree, of every family, odd ones too
  std::vector<std::uint8_t> choices(test::kMadeModelBytes);
  for (std::uint8_t& c : choices) c = static_cast<std::uint8_t>(rng.next());
  std::filesystem::create_directories(temp / "made");
  test::open_made_model(choices, temp / "made");
}

void costly_case(Rng& rng, const TempFolder&) {
  rng.chance(2) ? costly_template(rng) : costly_tokenizer(rng);
}

struct Kind {
  std::string_view name;
  void (*run)(Rng&, const TempFolder&);
};
constexpr Kind kKinds[] = {
    {"gguf", gguf_case},           {"folder", folder_case},       {"llama2c", llama2c_case},
    {"adapter", adapter_case},     {"tokenizer", tokenizer_case}, {"packed", packed_case},
    {"gzip", gzip_case},           {"recipe", recipe_case},       {"npy", npy_case},
    {"template", template_case},   {"made", made_case},           {"picture", picture_case},
    {"processor", processor_case}, {"costly", costly_case}};
constexpr std::size_t kMixed = std::size(kKinds) - 1;  // costly ones only where asked for: seconds each

// The command that repeats the file at hand, for whoever dies: sanitizers and signals.
char g_repeat[160] = "";
void say_repeat() {
  if (g_repeat[0] != 0 && write(STDERR_FILENO, g_repeat, std::strlen(g_repeat)) < 0) return;
}
void on_signal(int number) {
  say_repeat();
  std::signal(number, SIG_DFL);
  std::raise(number);
}
int run(std::uint64_t first, std::uint64_t count, const std::string& only, std::size_t limit_mib) {
  if (&__sanitizer_set_death_callback) __sanitizer_set_death_callback(say_repeat);
  else
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(number, on_signal);
  std::signal(SIGABRT, on_signal);
  Memory::limit(limit_mib << 20);
  const TempFolder temp;
  // Of each kind: values, errors.
  std::map<std::string_view, std::pair<std::uint64_t, std::uint64_t>> ends;
  std::uint64_t findings = 0, largest = 0;
  std::pair<double, std::string> slowest;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Kind* kind = &kKinds[Rng(~seed).below(kMixed)];
    for (const Kind& k : kKinds)
      if (k.name == only) kind = &k;
    std::snprintf(g_repeat, sizeof g_repeat, "found: rapt_attack --seed %llu --count 1 --kind %.*s\n",
                  static_cast<unsigned long long>(seed), static_cast<int>(kind->name.size()),
                  kind->name.data());
    const auto finding = [&](const std::string& what) {
      ++findings;
      std::cout << g_repeat << "  " << what << std::endl;
    };
    Rng rng(seed);
    Memory::start();
    const std::clock_t start = std::clock();  // of this process: the machine may be busy
    try {
      kind->run(rng, temp);
      ++ends[kind->name].first;
    } catch (const Error& e) {
      ++ends[kind->name].second;
      if (count == 1) std::cout << "ends in the error: " << e.what() << "\n";
    } catch (const std::bad_alloc&) {
      if (!Memory::exceeded()) finding("out of memory");
    } catch (const std::exception& e) {
      finding(concat("ends in ", typeid(e).name(), ": ", e.what()));
    }
    if (Memory::exceeded()) finding(concat("takes more than ", limit_mib, " MiB"));
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if (seconds > slowest.first) slowest = {seconds, g_repeat + 7};
    largest = std::max<std::uint64_t>(largest, Memory::peak());
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(temp.path()))
      std::filesystem::remove_all(entry.path(), ignored);
  }
  g_repeat[0] = 0;
  for (const auto& [name, n] : ends)
    std::cout << name << ": " << n.first << " values, " << n.second << " errors\n";
  std::cout << count << " files, " << findings << " findings; at most " << (largest >> 20) << " MiB; slowest "
            << slowest.first << " s: " << slowest.second;
  return findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rapt::attack

int main(int argc, char** argv) {
  std::uint64_t seed = 0, count = 1000, limit = 1024;
  std::string kind;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (flag == "--count") count = std::strtoull(argv[i + 1], nullptr, 10);
    else if (flag == "--memory-limit") limit = std::strtoull(argv[i + 1], nullptr, 10);
    else if (flag == "--kind") kind = argv[i + 1];
    else
      return std::cerr << "unknown flag " << flag << "; known: --seed, --count, --kind, --memory-limit\n", 2;
  }
  const auto known = [&](const auto& k) { return k.name == kind; };
  if (!kind.empty() &&
      std::none_of(std::begin(rapt::attack::kKinds), std::end(rapt::attack::kKinds), known)) {
    std::cerr << "unknown kind '" << kind << "'; known:";
    for (const auto& k : rapt::attack::kKinds) std::cerr << " " << k.name;
    return std::cerr << "\n", 2;
  }
  return rapt::attack::run(seed, count, kind, limit);
}
