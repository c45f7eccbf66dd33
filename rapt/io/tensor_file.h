// SPDX-License-Identifier: Apache-2.0
// Tensors of a file that were found valid: name, type, shape, bytes. Only a loader can make a TensorView, so
// whoever holds one holds bytes that are there; nothing in the project takes an offset and a size.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/io/reader.h"
#include "rapt/tensor/dtype.h"

namespace rapt {

class TensorView {
 public:
  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  // Sizes with the slowest axis first, as PyTorch and NumPy write them (GGUF stores them the other
  // way round).
  std::span<const Dim> shape() const { return shape_; }
  Dim elements() const { return elements_; }
  Dim last() const { return shape_.empty() ? 1 : shape_.back(); }
  Dim rows() const { return last() ? elements_ / last() : 0; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::span<const std::byte> row_bytes(Dim first, Dim count) const;  // rows of the last axis; checked
  // The same bytes, read from the file into `room` (where they come from no file: as they lie). What
  // loading uses: a file that is cut meanwhile ends in an error.
  std::span<const std::byte> read_rows(Dim first, Dim count, std::vector<std::byte>& room) const;
  std::string shape_text() const;                                    // "[49152,576]"
  std::vector<float> values() const;                                 // all elements as numbers

 private:
  friend class TensorTable;
  TensorView() = default;
  std::string name_;
  DType dtype_ = DType::f32;
  std::vector<Dim> shape_;
  Dim elements_ = 0;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const MappedFile> file_;
};

// The tensors of one checkpoint, from one file or many shards. Names are unique. Keeps the files mapped
// while it lives.
class TensorTable {
 public:
  TensorTable() = default;
  TensorTable(TensorTable&&) = default;
  TensorTable& operator=(TensorTable&&) = default;

  const TensorView* find(std::string_view name) const;
  const std::vector<TensorView>& all() const { return tensors_; }
  std::uint64_t bytes() const;  // of all tensors
  // Fails where a file of it was written to, cut or replaced since it was opened.
  void check_unchanged() const;

  // For loaders (io/ only): validated entries go in here; a second tensor of the same name is refused.
  void hold(const MappedFile& file);  // after add(): the file its tensors lie in
  void add(const Reader& from, std::string name, DType dtype, std::vector<Dim> shape,
           std::span<const std::byte> bytes);
  void merge(TensorTable&& other, std::string_view where);

 private:
  std::vector<TensorView> tensors_;
  // ordered: names that share a hash cannot slow it down
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
};

}  // namespace rapt
