// SPDX-License-Identifier: Apache-2.0
// safetensors: an 8-byte length, a JSON header, tensors without gaps. Read and write, one file or shards
// with their index.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rapt/io/tensor_file.h"

namespace rapt {

struct SafetensorsFile {
  TensorTable tensors;
  std::vector<std::pair<std::string, std::string>> metadata;

  static SafetensorsFile open(const std::string& path);
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string name);
  static SafetensorsFile parse(Reader in);
};

// model.safetensors of a folder, or all shards that model.safetensors.index.json names (plain file names
// inside the folder; every tensor in exactly the shard the index says). Pickle files (.bin, .pt, .pth) are
// refused with the reason.
TensorTable open_safetensors_folder(const std::string& folder);

struct SafetensorPlan {
  std::string name;
  DType dtype;  // f32, f16, bf16, f64, integers
  std::vector<Dim> shape;
  std::function<void(FileWriter&)> write;
};
struct SafetensorBytes {  // one whose bytes are at hand
  std::string name;
  DType dtype;
  std::vector<Dim> shape;
  std::vector<std::byte> bytes;
};
// A whole file in memory.
std::vector<std::byte> safetensors_bytes(std::span<const SafetensorBytes> tensors,
                                         std::span<const std::pair<std::string, std::string>> metadata = {});
// For whoever writes a file piece by piece: what stands before the tensors' bytes, which follow in this order
// without gaps. `write` is not called.
std::string safetensors_header(std::span<const SafetensorPlan> tensors,
                               std::span<const std::pair<std::string, std::string>> metadata = {});
// Tensors of these many bytes dealt to files in their order, none of more than `most` but for a tensor that
// is larger itself: the first one of each file. most = 0: one file.
std::vector<std::size_t> safetensors_cuts(std::span<const std::uint64_t> bytes, std::uint64_t most);
// model-00002-of-00005.safetensors for number 1 of 5; of one file model.safetensors.
std::string safetensors_name(const std::string& stem, std::size_t number, std::size_t files);
// Which file has which tensor: the text of model.safetensors.index.json.
std::string safetensors_index(std::span<const std::pair<std::string, std::string>> file_of_tensor,
                              std::uint64_t total_bytes);
// One file, or `shard_bytes` > 0: model-00001-of-0000N.safetensors and the index, beside each other in
// `folder`.
void write_safetensors(const std::string& path, std::span<const SafetensorPlan> tensors,
                       std::span<const std::pair<std::string, std::string>> metadata, bool force);
void write_safetensors_folder(const std::string& folder, std::span<const SafetensorPlan> tensors,
                              std::uint64_t shard_bytes, bool force);

}  // namespace rapt
