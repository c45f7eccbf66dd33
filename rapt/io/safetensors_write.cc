// SPDX-License-Identifier: Apache-2.0
// Writing safetensors (grammar: safetensors.cc), one file or shards with their index.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>

#include "rapt/base/checked.h"
#include "rapt/base/json.h"
#include "rapt/io/safetensors.h"
#include "rapt/tensor/formats.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

const char* name_in_header(DType type) {
  switch (type) {
    case DType::f32: return "F32";
    case DType::f64: return "F64";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::i8: return "I8";
    case DType::i16: return "I16";
    case DType::i32: return "I32";
    case DType::i64: return "I64";
    default: fail("safetensors: has no type for ", name_of(type), "; write f32, f16 or bf16, or a GGUF file");
  }
}

std::uint64_t check_plan(const SafetensorPlan& t) {
  constexpr std::size_t kMostNameBytes = 1024, kMostDims = 8;
  const std::string tensor = "safetensors: tensor " + quote_name(t.name);
  if (t.name.empty() || t.name.size() > kMostNameBytes || !valid_utf8(t.name) || t.name == "__metadata__")
    fail(tensor, ": the name must be UTF-8 of 1 to ", kMostNameBytes, " bytes and not __metadata__");
  if (t.shape.size() > kMostDims)
    fail(tensor, " has ", t.shape.size(), " dimensions; up to ", kMostDims, " are written");
  name_in_header(t.dtype);
  Dim elements = 1;
  for (const Dim d : t.shape) {
    if (d <= 0) fail(tensor, " has a size of ", d);
    elements = checked_mul(elements, d, tensor);
  }
  return bytes_of(t.dtype, elements, tensor);
}

std::vector<std::uint64_t> check_plans(std::span<const SafetensorPlan> tensors) {
  std::vector<std::uint64_t> sizes;
  std::set<std::string_view> names;
  for (const SafetensorPlan& t : tensors) {
    sizes.push_back(check_plan(t));
    if (!names.insert(t.name).second) fail("safetensors: tensor ", quote_name(t.name), " stands twice");
  }
  return sizes;
}

// The 8-byte length and the header.
std::string header_of(std::span<const SafetensorPlan> tensors, std::span<const std::uint64_t> sizes,
                      std::span<const std::pair<std::string, std::string>> metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    std::set<std::string_view> keys;
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (!valid_utf8(key) || !valid_utf8(value))
        fail("safetensors: metadata ", quote_name(key), " is not UTF-8");
      if (!keys.insert(key).second) fail("safetensors: metadata ", quote_name(key), " stands twice");
      header += (keys.size() > 1 ? "," : "") + json_quote(key) + ":" + json_quote(value);
    }
    header += "}";
  }
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorPlan& t = tensors[i];
    header += header.size() > 1 ? "," : "";
    header += json_quote(t.name) + ":{\"dtype\":\"" + name_in_header(t.dtype) + "\",\"shape\":[";
    for (std::size_t k = 0; k < t.shape.size(); ++k) header += (k ? "," : "") + std::to_string(t.shape[k]);
    const std::uint64_t end = checked_add(begin, sizes[i], "safetensors: the data");
    header += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
    begin = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data begins at a multiple of eight
  const std::uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + header;
}

void write_file(FileWriter& out, std::span<const SafetensorPlan> tensors,
                std::span<const std::uint64_t> sizes,
                std::span<const std::pair<std::string, std::string>> metadata) {
  out.write(header_of(tensors, sizes, metadata));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t start = out.position();
    tensors[i].write(out);
    if (out.position() - start != sizes[i])
      fail("safetensors: tensor ", quote_name(tensors[i].name), ": ", out.position() - start,
           " bytes were given, it takes ", sizes[i]);
  }
}

std::string five(std::size_t n) {
  const std::string s = std::to_string(n);
  return std::string(s.size() < 5 ? 5 - s.size() : 0, '0') + s;
}

}  // namespace

std::string safetensors_header(std::span<const SafetensorPlan> tensors,
                               std::span<const std::pair<std::string, std::string>> metadata) {
  return header_of(tensors, check_plans(tensors), metadata);
}

std::vector<std::size_t> safetensors_cuts(std::span<const std::uint64_t> bytes, std::uint64_t most) {
  std::vector<std::size_t> first = {0};
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (most > 0 && filled > 0 && bytes[i] > most - std::min(filled, most)) first.push_back(i), filled = 0;
    filled = checked_add(filled, bytes[i], "safetensors: a shard");
  }
  return first;
}

std::string safetensors_name(const std::string& stem, std::size_t number, std::size_t files) {
  if (files == 1) return stem + ".safetensors";
  return stem + "-" + five(number + 1) + "-of-" + five(files) + ".safetensors";
}

std::string safetensors_index(std::span<const std::pair<std::string, std::string>> file_of_tensor,
                              std::uint64_t total_bytes) {
  Json::Object map;
  for (const auto& [tensor, file] : file_of_tensor) map.push_back({tensor, Json(file)});
  Json json;
  Json size;
  size.set("total_size", Json(static_cast<std::int64_t>(total_bytes)));
  json.set("metadata", std::move(size));
  json.set("weight_map", Json(std::move(map)));
  return json.dump() + "\n";
}

void write_safetensors(const std::string& path, std::span<const SafetensorPlan> tensors,
                       std::span<const std::pair<std::string, std::string>> metadata, bool force) {
  const auto sizes = check_plans(tensors);
  FileWriter out(path, force);
  write_file(out, tensors, sizes, metadata);
  out.commit();
}

std::vector<std::byte> safetensors_bytes(std::span<const SafetensorBytes> tensors,
                                         std::span<const std::pair<std::string, std::string>> metadata) {
  std::vector<SafetensorPlan> plans;
  for (const SafetensorBytes& t : tensors) plans.push_back({t.name, t.dtype, t.shape, {}});
  const auto sizes = check_plans(plans);
  const std::string header = header_of(plans, sizes, metadata);
  std::uint64_t total = header.size();
  for (const std::uint64_t n : sizes) total = checked_add(total, n, "safetensors: the file");
  std::vector<std::byte> out;
  out.reserve(total);
  const auto append = [&](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  append(std::as_bytes(std::span(header)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].bytes.size() != sizes[i])
      fail("safetensors: tensor ", quote_name(tensors[i].name), ": ", tensors[i].bytes.size(),
           " bytes were given, it takes ", sizes[i]);
    append(tensors[i].bytes);
  }
  return out;
}

void write_safetensors_folder(const std::string& folder, std::span<const SafetensorPlan> tensors,
                              std::uint64_t shard_bytes, bool force) {
  constexpr std::size_t kMostShards = 512;  // each holds a file open until all are written
  const auto sizes = check_plans(tensors);
  const fs::path root(folder);
  std::error_code error;
  fs::create_directories(root, error);
  if (error) fail(folder, ": the folder cannot be made: ", error.message());
  const std::string one = (root / "model.safetensors").string(),
                    index = (root / "model.safetensors.index.json").string();
  for (const std::string& there : {one, index})
    if (!force && fs::exists(there, error)) fail(there, ": exists already; --force overwrites it");
  // Transformers wants to know whose axes these are.
  const std::pair<std::string, std::string> kFormat[] = {{"format", "pt"}};

  const std::vector<std::size_t> first = safetensors_cuts(sizes, shard_bytes);
  std::uint64_t total = 0;
  for (const std::uint64_t n : sizes) total = checked_add(total, n, "safetensors: the model");
  if (first.size() == 1) {
    write_safetensors(one, tensors, kFormat, force);
    if (force) fs::remove(index, error);  // it would speak of files that are no longer the model
    return;
  }
  if (first.size() > kMostShards)
    fail(folder, ": ", first.size(), " shards of ", shard_bytes, " bytes; choose larger ones, up to ",
         kMostShards, " are written");
  std::vector<std::pair<std::string, std::string>> map;
  std::vector<std::unique_ptr<FileWriter>> shards;
  for (std::size_t s = 0; s < first.size(); ++s) {
    const std::size_t from = first[s], to = s + 1 < first.size() ? first[s + 1] : tensors.size();
    const std::string name = safetensors_name("model", s, first.size());
    shards.push_back(std::make_unique<FileWriter>((root / name).string(), force));
    write_file(*shards.back(), tensors.subspan(from, to - from), std::span(sizes).subspan(from, to - from),
               kFormat);
    for (std::size_t i = from; i < to; ++i) map.emplace_back(tensors[i].name, name);
  }
  FileWriter out(index, force);
  out.write(safetensors_index(map, total));
  for (auto& shard : shards) shard->commit();
  out.commit();  // last: only now the folder is a new model
  if (force) fs::remove(one, error);
}

}  // namespace rapt
