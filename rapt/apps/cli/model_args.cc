// SPDX-License-Identifier: Apache-2.0
#include "rapt/apps/cli/model_args.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "rapt/base/text.h"

namespace rapt::cli {
namespace {

double bytes_on_disk(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    const auto size = std::filesystem::file_size(path, ignored);
    return ignored ? 0 : static_cast<double>(size);
  }
  double sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
    if (entry.path().extension() == ".safetensors") sum += static_cast<double>(entry.file_size(ignored));
  return sum;
}

double memory(const std::string& key) {  // of /proc/meminfo, in bytes; 0 where there is none
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::atof(line.c_str() + key.size() + 1) * 1024;
  return 0;
}

// Weights are packed into memory of their own, about as large as the file.
void check_memory(const std::string& path) {
  const double need = bytes_on_disk(path) * 1.1, all = memory("MemTotal"), free = memory("MemAvailable");
  if (all > 0 && need > all)
    fail(path, ": needs about ", byte_count(need), " of memory, this machine has ", byte_count(all),
         "; use a smaller model or a narrower type (rapt quantize)");
  if (free > 0 && need > free)
    note(concat("note: ", path, " needs about ", byte_count(need), " of memory, ", byte_count(free), " are free: it may be slow"));
}

}  // namespace

CommonArgs common_args(Args& args) {
  CommonArgs c;
  c.threads = static_cast<int>(args.number("threads", 1, 1024).value_or(0));
  c.json = args.flag("json");
  c.quiet = args.flag("quiet");
  if (c.quiet) silence_notes();
  c.verbose = args.flag("verbose");
  return c;
}

void note_threads(const Device& device, const CommonArgs& common) {
  if (device.threads() < common.threads && !common.quiet)
    note(concat("note: ", common.threads, " threads were asked for, the system gave ", device.threads()));
}

OpenModel open_model(const std::string& name, const CommonArgs& common, LoadOptions options) {
  const auto start = std::chrono::steady_clock::now();
  const std::string path = find_model(name);
  check_memory(path);
  OpenModel m;
  m.device = std::make_unique<Device>(DeviceOptions{.threads = common.threads});
  note_threads(*m.device, common);
  Progress bar("loading", common.quiet);
  options.real = m.device->real;
  options.device = m.device.get();
  options.progress = [&](std::uint64_t done, std::uint64_t of) { bar.step(static_cast<double>(done), static_cast<double>(of)); };
  m.checkpoint = open_checkpoint(path, options);
  bar.clear();
  m.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return m;
}

const Tokenizer& tokenizer_of(const Checkpoint& checkpoint) {
  if (!checkpoint.tokenizer)
    fail(
        checkpoint.path,
        " has no tokenizer beside its weights; put tokenizer.json (or the tokenizer.bin of a llama2.c model) there, or give token ids with --ids");
  return *checkpoint.tokenizer;
}

DType weight_type(std::string_view name, std::string_view flag) {
  const std::optional<DType> asked = dtype_named(name);
  std::vector<std::string> names;
#define RAPT_TYPE_NAME(type, elements, bytes) \
  if ((is_float(DType::type) && DType::type != DType::f64) || is_block(DType::type)) names.emplace_back(#type);
  RAPT_DTYPES(RAPT_TYPE_NAME)
#undef RAPT_TYPE_NAME
  if (asked && std::find(names.begin(), names.end(), name_of(*asked)) != names.end()) return *asked;
  fail_usage(flag, ": weights are not stored as '", name, "'; ", name_hint(name, names));
}

DType cache_type(Args& args) {
  const std::optional<std::string> name = args.value("cache-type");
  if (!name) return DType::f32;
  for (DType known : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0})
    if (dtype_named(*name) == known) return known;
  fail_usage("--cache-type: keys and values are kept as f32, f16, bf16, q8_0 or q4_0, not as ", *name);
}

Json bytes_json(std::string_view text) {
  if (valid_utf8(text)) return std::string(text);
  std::string out;
  for (char c : text) out += static_cast<unsigned char>(c) < 128 ? std::string(1, c) : "\xEF\xBF\xBD";
  return out;
}

}  // namespace rapt::cli
