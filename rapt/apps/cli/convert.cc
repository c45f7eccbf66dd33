// SPDX-License-Identifier: Apache-2.0
// rapt convert, quantize and check: model files as files.
#include <cctype>
#include <filesystem>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/io/folder.h"
#include "rapt/load/quant_mix.h"
#include "rapt/tensor/formats.h"

namespace rapt::cli {
namespace {

std::uint64_t parse_bytes(const std::string& text, std::string_view flag) {  // 5G, 500M, 1000000
  std::size_t end = 0;
  double n = 0;
  try {
    n = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  std::string unit = text.substr(end);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (unit.ends_with("B")) unit.pop_back();
  const double factor = unit.empty() ? 1 : unit == "K" ? 1e3 : unit == "M" ? 1e6 : unit == "G" ? 1e9 : 0;
  if (end == 0 || factor == 0 || !(n > 0) || n * factor > 1e15)
    fail_usage(flag, ": '", text, "' is no size; write 5GB, 500MB or a number of bytes");
  return static_cast<std::uint64_t>(n * factor);
}

double size_of_path(std::string path) {
  for (const std::string_view tower : {":vision", ":text"})  // of a folder that holds two models
    if (path.ends_with(tower) && !std::filesystem::exists(path)) path.resize(path.size() - tower.size());
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored))
    return static_cast<double>(std::filesystem::file_size(path, ignored));
  double sum = 0;
  for (const std::filesystem::path& p : paths_in(path, ignored))
    if (std::filesystem::is_regular_file(p, ignored))
      sum += static_cast<double>(std::filesystem::file_size(p, ignored));
  return sum;
}

// "f16", or a mix; where there is neither, all that there is.
void read_type(const std::string& name, ConvertOptions& o) {
  const std::optional<DType> plain = dtype_named(name);
  o.mix = find_mix(name);
  if (o.mix) o.type = o.mix->type;
  else if (plain && is_float(*plain) && *plain != DType::f64) o.type = plain;
  if (o.type) return;
  std::vector<std::string> names = {"f32", "f16", "bf16"};
  for (const QuantMix& mix : quant_mixes()) names.emplace_back(mix.name);
  const std::string hint = name_hint(name, names), all = concat("known: ", join(names));
  fail_usage("--type: weights are not stored as '", name, "'; ", hint == all ? "" : hint + " ", all,
             plain && is_block(*plain) ? concat("; ", name_of(*plain), " is read, not made") : "");
}

// What would be written: a line for every tensor, and how much it comes to.
int dry_run(const std::string& from, const std::string& to, ConvertOptions& o, const CommonArgs& common,
            const std::vector<std::string>& remarks) {
  if (!to.ends_with(".gguf")) fail_usage("--dry-run: ", to, ": only GGUF files (NAME.gguf) are planned");
  std::string lines;
  Json::Array tensors;
  double bytes = 0, elements = 0;
  o.dry_run = [&](const std::string& name, std::span<const Dim> shape, DType type) {
    Dim n = 1;
    std::vector<std::string> sizes;
    Json::Array axes;
    for (const Dim d : shape) n *= d, sizes.push_back(std::to_string(d)), axes.emplace_back(d);
    elements += static_cast<double>(n);
    bytes += static_cast<double>(bytes_of(type, n, name));
    lines += concat(name, " [", join(sizes, ","), "] ", name_of(type), "\n");
    Json j = Json::Object{};
    j.set("name", name);
    j.set("shape", std::move(axes));
    j.set("type", std::string(name_of(type)));
    tensors.push_back(std::move(j));
  };
  write_checkpoint(from, to, o);
  if (common.json) {
    Json j = Json::Object{};
    j.set("bytes", bytes);
    j.set("tensors", std::move(tensors));
    print(j.dump() + "\n");
    return 0;
  }
  print(for_stdout(lines));
  for (const std::string& text : remarks) note("note: " + text);
  if (!common.quiet)
    note(concat(byte_count(bytes), ", ", fixed(8 * bytes / elements, 2),
                " bits an element; nothing was written"));
  return 0;
}

int write(Args& args, bool quantize) {
  const CommonArgs common = common_args(args);
  ConvertOptions o;
  if (const auto type = args.value("type")) read_type(*type, o);
  if (!quantize)
    if (const auto size = args.value("shard-size")) o.shard_bytes = parse_bytes(*size, "--shard-size");
  o.force = args.flag("force");
  const bool dry = quantize && args.flag("dry-run");
  const std::vector<std::string> paths = args.operands(2, 2, "two paths: what to read and what to write");
  if (quantize && !o.type) fail_usage("--type is missing: q8_0, q4_k_m, q4_0 …");
  Progress bar("writing", common.quiet);
  o.progress = [&](std::size_t done, std::size_t of) {
    bar.step(static_cast<double>(done), static_cast<double>(of), concat(done, " of ", of, " tensors"));
  };
  const std::string from = find_model(paths[0]);
  std::vector<std::string> remarks;
  o.note = [&](const std::string& text) { remarks.push_back(text); };
  if (dry) return dry_run(from, paths[1], o, common, remarks);
  write_checkpoint(from, paths[1], o);
  bar.clear();
  if (o.type && is_block(*o.type))
    for (const auto& [type, n] : checkpoint_summary(from).types)
      if (is_block(type) && type != *o.type) {
        remarks.push_back(
            concat(paths[0], " was quantized before (", counted(static_cast<Dim>(n.tensors), "tensor"),
                   " in ", name_of(type),
                   "): both roundings add up; begin with f32, f16 or bf16 weights where there are some"));
        break;
      }
  for (const std::string& text : remarks) note("note: " + text);
  const double before = size_of_path(from), after = size_of_path(paths[1]);
  if (common.json) {
    Json j = Json::Object{};
    j.set("from", from);
    j.set("to", paths[1]);
    j.set("from_bytes", before);
    j.set("to_bytes", after);
    print(j.dump() + "\n");
  } else if (!common.quiet) {
    note(concat(paths[1], ": ", byte_count(after), ", from ", byte_count(before)));
  }
  return 0;
}

int check(Args& args) {
  const CommonArgs common = common_args(args);
  const std::string path = args.operands(1, 1, "one model file or folder")[0];
  if (!common.json) {
    std::string found;
    for (const std::string& line : check_checkpoint(find_model(path))) found += line + "\n";
    if (!common.quiet) print(for_stdout(found) + "ok\n");
    return 0;
  }
  Json j = Json::Object{};
  j.set("path", path);
  try {
    Json::Array lines;
    for (const std::string& line : check_checkpoint(find_model(path))) lines.emplace_back(line);
    j.set("ok", true);
    j.set("findings", std::move(lines));
  } catch (const Error& e) {
    j.set("ok", false);
    j.set("error", std::string(e.what()));
  }
  print(j.dump() + "\n");
  return j.find("ok")->boolean() ? 0 : 1;
}

}  // namespace

extern const Verb kQuantize, kConvert, kCheck;

const Verb kQuantize = {
    "quantize", "write a model with narrower weights",
    "Usage: rapt quantize IN OUT --type TYPE [--dry-run] [--force]\n"
    "\n"
    "IN is a GGUF file or a Hugging Face folder, OUT a GGUF file (NAME.gguf). TYPE says which matrix takes\n"
    "which type, by llama.cpp's rules: what gives the logits gets q6_k, and in the mixes _s, _m, _l some\n"
    "matrices get more bits than others. Vectors and routers stay as they are; rows that are no multiple\n"
    "of a type's block take the next wider type that fits. OUT is written beside its place and renamed.\n"
    "\n"
    "  --type TYPE   f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k_s, q5_0, q5_1, q4_k_m, q4_k_s, q4_0, q4_1,\n"
    "                iq4_nl, iq4_xs, q3_k_l, q3_k_m, q3_k_s, q2_k, q2_k_s; mxfp4 for every matrix,\n"
    "                mxfp4_moe for experts (all else q8_0). q5_k, q4_k and q3_k mean the mix _m\n"
    "  --dry-run     write nothing; print every tensor with the type it would get\n"
    "  --force       overwrite OUT\n"
    "  --json        sizes as JSON\n"
    "  -q, --quiet   no progress, no message\n"
    "\n"
    "Examples:\n"
    "  rapt quantize model-f16.gguf model-q4_0.gguf --type q4_0\n"
    "  rapt quantize ./SmolLM2-135M model.gguf --type q4_k_m\n",
    [](Args& args) { return write(args, true); }};

const Verb kConvert = {
    "convert", "from one kind of model file to another",
    "Usage: rapt convert IN OUT [--type TYPE] [--shard-size 5GB] [--force]\n"
    "\n"
    "OUT that ends in .gguf becomes a GGUF file, anything else a Hugging Face folder (config.json,\n"
    "safetensors, tokenizer). Weights stay as they are unless --type is given; a folder has no block\n"
    "types, so there they become f32.\n"
    "\n"
    "  --type TYPE       of the matrices: f32, f16, bf16; into GGUF also q8_0, q4_k_m …\n"
    "  --shard-size S    folders: files of at most this size\n"
    "  --force           overwrite OUT\n"
    "  --json            sizes as JSON\n"
    "  -q, --quiet       no progress, no message\n"
    "\n"
    "Examples:\n"
    "  rapt convert ./SmolLM2-135M model.gguf\n"
    "  rapt convert model.gguf ./folder --type bf16 --shard-size 2GB\n",
    [](Args& args) { return write(args, false); }};

const Verb kCheck = {
    "check", "is this model file whole and understood?",
    "Usage: rapt check MODEL [--json] [--quiet]\n"
    "\n"
    "Reads a GGUF file, a Hugging Face folder or a llama2.c file: every tensor's name, type, shape and\n"
    "place, the configuration, the tokenizer, and every number of every weight, which must be finite. No\n"
    "model is built. Prints what it found, one line each, and ok; ends with 1 and the reason where\n"
    "something is wrong.\n"
    "\n"
    "  --json        what it found as JSON\n"
    "  -q, --quiet   nothing where all is well\n"
    "\n"
    "Examples:\n"
    "  rapt check model.gguf\n"
    "  for f in *.gguf; do rapt check \"$f\" --quiet || echo \"$f is broken\"; done\n",
    check};

}  // namespace rapt::cli
