// SPDX-License-Identifier: Apache-2.0
// Where the file is held, read_rows copies from it, past the map. add() checks every tensor once more.
#include "rapt/io/tensor_file.h"

#include "rapt/base/checked.h"
#include "rapt/tensor/formats.h"

namespace rapt {

std::span<const std::byte> TensorView::row_bytes(Dim first, Dim count) const {
  if (first < 0 || count < 0 || first > rows() || count > rows() - first)
    fail("tensor ", quote_name(name_), " ", shape_text(), " has ", rows(), " rows, not ", count, " from ",
         first, " on");
  const std::size_t row = bytes_of(dtype_, last(), name_);
  return bytes_.subspan(static_cast<std::size_t>(first) * row, static_cast<std::size_t>(count) * row);
}

std::span<const std::byte> TensorView::read_rows(Dim first, Dim count, std::vector<std::byte>& room) const {
  const auto bytes = row_bytes(first, count);
  if (!file_) return bytes;
  room.resize(bytes.size());
  file_->copy(static_cast<std::uint64_t>(bytes.data() - file_->bytes().data()), room);
  return room;
}

std::string TensorView::shape_text() const {
  std::string out = "[";
  for (const Dim d : shape_) out += (out.size() > 1 ? "," : "") + std::to_string(d);
  return out + "]";
}

std::vector<float> TensorView::values() const {
  std::vector<float> out(static_cast<std::size_t>(elements_));
  std::vector<std::byte> room;
  dequantize(dtype_, read_rows(0, rows(), room), out);
  return out;
}

const TensorView* TensorTable::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

std::uint64_t TensorTable::bytes() const {
  std::uint64_t n = 0;
  for (const TensorView& t : tensors_) n += t.bytes().size();
  return n;
}

void TensorTable::hold(const MappedFile& file) {
  files_.push_back(std::make_shared<const MappedFile>(file));
  const std::byte *begin = file.bytes().data(), *end = begin + file.bytes().size();
  for (TensorView& t : tensors_)
    if (t.bytes_.data() >= begin && t.bytes_.data() + t.bytes_.size() <= end) t.file_ = files_.back();
}

void TensorTable::check_unchanged() const {
  for (const auto& f : files_) f->check_unchanged();
}

// The loaders checked all of this with better words; here it is checked once more, for whatever loader
// comes next.
void TensorTable::add(const Reader& from, std::string name, DType dtype, std::vector<Dim> shape,
                      std::span<const std::byte> bytes) {
  TensorView t;
  t.elements_ = 1;
  for (const Dim d : shape) {
    if (d <= 0) from.refuse("tensor ", quote_name(name), " has a size of ", d);
    t.elements_ = checked_mul(t.elements_, d, concat(from.name(), ": tensor ", quote_name(name)));
  }
  const Dim last = shape.empty() ? 1 : shape.back();
  if (last % static_cast<Dim>(info_of(dtype).block) != 0)
    from.refuse("tensor ", quote_name(name), ": rows of ", last, " elements are no whole blocks of ",
                name_of(dtype));
  const std::size_t want = bytes_of(dtype, t.elements_, name);
  if (want != bytes.size())
    from.refuse("tensor ", quote_name(name), " takes ", want, " bytes, not ", bytes.size());
  if (!by_name_.emplace(name, tensors_.size()).second)
    from.refuse("tensor ", quote_name(name), " stands twice in the file");
  t.name_ = std::move(name);
  t.dtype_ = dtype;
  t.shape_ = std::move(shape);
  t.bytes_ = bytes;
  tensors_.push_back(std::move(t));
}

void TensorTable::merge(TensorTable&& other, std::string_view where) {
  for (TensorView& t : other.tensors_) {
    if (!by_name_.emplace(t.name_, tensors_.size()).second)
      fail(where, ": tensor ", quote_name(t.name_), " stands in another file of the model too");
    tensors_.push_back(std::move(t));
  }
  for (auto& f : other.files_) files_.push_back(std::move(f));
  other = TensorTable();
}

}  // namespace rapt
