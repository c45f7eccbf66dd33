// SPDX-License-Identifier: Apache-2.0
// Shapes, strides and views: reshape refuses memory with gaps, a slice takes rows of the first dimension.
#include "rapt/tensor/tensor.h"

#include <utility>

namespace rapt {

Dim Tensor::elements() const {
  Dim n = 1;
  for (int i = 0; i < rank; ++i) n *= (*this)[i];
  return n;
}

bool Tensor::contiguous() const {
  Dim expected = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const auto a = static_cast<std::size_t>(i);
    if (size[a] != 1 && stride[a] != expected) return false;
    expected *= size[a];
  }
  return true;
}

std::string Tensor::shape() const {
  std::string s = "[";
  for (int i = 0; i < rank; ++i) s += (i ? "," : "") + std::to_string((*this)[i]);
  return s + "]";
}

Tensor tensor_over(std::byte* data, Buffer* buffer, DType dtype, std::span<const Dim> sizes) {
  if (sizes.empty() || sizes.size() > Tensor::kRank)
    fail("tensor: rank ", sizes.size(), " is outside 1..", Tensor::kRank);
  Tensor t;
  t.data = data;
  t.buffer = buffer;
  t.dtype = dtype;
  t.rank = static_cast<int>(sizes.size());
  Dim stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    t.size[i] = sizes[i];
    t.stride[i] = stride;
    stride *= sizes[i];
  }
  return t;
}

Tensor Tensor::reshape(std::initializer_list<Dim> sizes) const {
  if (!contiguous()) fail("reshape: ", shape(), " is not contiguous");
  Tensor t = tensor_over(data, buffer, dtype, {sizes.begin(), sizes.size()});
  if (t.elements() != elements())
    fail("reshape: ", shape(), " has ", elements(), " elements, ", t.shape(), " has ", t.elements());
  return t;
}

Tensor Tensor::slice(Dim first, Dim count) const {
  if (first < 0 || count < 0 || first + count > size[0])
    fail("slice: rows ", first, " to ", first + count, " of ", shape());
  Tensor t = *this;
  t.data += static_cast<std::size_t>(first * stride[0]) * size_of(dtype);
  t.size[0] = count;
  return t;
}

Tensor Tensor::columns(Dim first, Dim count) const {
  if (first < 0 || count < 0 || first + count > last())
    fail("columns: ", first, " to ", first + count, " of ", shape());
  Tensor t = *this;
  t.data += static_cast<std::size_t>(first) * size_of(dtype);
  t.size[static_cast<std::size_t>(rank - 1)] = count;
  return t;
}

Tensor Tensor::swapped() const {
  if (rank != 3) fail("swapped: ", shape(), " has not three axes");
  Tensor t = *this;
  std::swap(t.size[0], t.size[1]);
  std::swap(t.stride[0], t.stride[1]);
  return t;
}

double Tensor::at(Dim i) const {
  const auto n = static_cast<std::size_t>(i);
  switch (dtype) {
    case DType::f32: return as<float>()[n];
    case DType::f64: return as<double>()[n];
    case DType::bf16: return from_bf16(as<std::uint16_t>()[n]);
    case DType::i32: return as<std::int32_t>()[n];
    default: break;
  }
  return 0;
}

}  // namespace rapt
