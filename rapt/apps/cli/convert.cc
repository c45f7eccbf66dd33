// SPDX-License-Identifier: Apache-2.0
// rapt convert, quantize and check: model files as files.
#include <cctype>
#include <filesystem>

#include "rapt/apps/cli/model_args.h"
#include "rapt/base/text.h"
#include "rapt/io/folder.h"

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

double size_of_path(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored))
    return static_cast<double>(std::filesystem::file_size(path, ignored));
  double sum = 0;
  for (const std::filesystem::path& p : paths_in(path, ignored))
    if (std::filesystem::is_regular_file(p, ignored))
      sum += static_cast<double>(std::filesystem::file_size(p, ignored));
  return sum;
}

int write(Args& args, bool quantize) {
  const CommonArgs common = common_args(args);
  ConvertOptions o;
  if (const auto type = args.value("type")) o.type = weight_type(*type, "--type");
  if (!quantize)
    if (const auto size = args.value("shard-size")) o.shard_bytes = parse_bytes(*size, "--shard-size");
  o.force = args.flag("force");
  const std::vector<std::string> paths = args.operands(2, 2, "two paths: what to read and what to write");
  if (quantize && !o.type) fail_usage("--type is missing: q8_0, q4_0, q4_k …");
  Progress bar("writing", common.quiet);
  o.progress = [&](std::size_t done, std::size_t of) {
    bar.step(static_cast<double>(done), static_cast<double>(of), concat(done, " of ", of, " tensors"));
  };
  const std::string from = find_model(paths[0]);
  std::vector<std::string> remarks;
  o.note = [&](const std::string& text) { remarks.push_back(text); };
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
    "Usage: rapt quantize IN OUT --type TYPE [--force]\n"
    "\n"
    "IN is a GGUF file or a Hugging Face folder, OUT a GGUF file (NAME.gguf). Matrices take TYPE; norms,\n"
    "biases and what a block type cannot hold (rows that are no multiple of its block) stay as wide as\n"
    "they need to be. OUT is written beside its place and renamed.\n"
    "\n"
    "  --type TYPE   f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k … q6_k\n"
    "  --force       overwrite OUT\n"
    "  --json        sizes as JSON\n"
    "  -q, --quiet   no progress, no message\n"
    "\n"
    "Examples:\n"
    "  rapt quantize model-f16.gguf model-q4_0.gguf --type q4_0\n"
    "  rapt quantize ./SmolLM2-135M model.gguf --type q8_0\n",
    [](Args& args) { return write(args, true); }};

const Verb kConvert = {
    "convert", "from one kind of model file to another",
    "Usage: rapt convert IN OUT [--type TYPE] [--shard-size 5GB] [--force]\n"
    "\n"
    "OUT that ends in .gguf becomes a GGUF file, anything else a Hugging Face folder (config.json,\n"
    "safetensors, tokenizer). Weights stay as they are unless --type is given; a folder has no block\n"
    "types, so there they become f32.\n"
    "\n"
    "  --type TYPE       of the matrices: f32, f16, bf16; into GGUF also q8_0, q4_0 …\n"
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
