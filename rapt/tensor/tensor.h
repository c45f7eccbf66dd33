// SPDX-License-Identifier: Apache-2.0
// A view of activations. It owns nothing: memory belongs to the run's arena, gradients to the buffer.
#pragma once
#include <array>
#include <initializer_list>
#include <span>
#include <string>

#include "rapt/base/error.h"
#include "rapt/tensor/dtype.h"

namespace rapt {

// One allocation. Its gradient is made when backward first asks; views of the buffer share it by offset.
struct Buffer {
  std::byte* data = nullptr;
  std::byte* grad = nullptr;
  std::size_t bytes = 0;
};

struct Tensor {
  static constexpr int kRank = 4;

  std::byte* data = nullptr;
  Buffer* buffer = nullptr;  // absent: a constant, gets no gradient
  std::array<Dim, kRank> size{}, stride{};  // in elements; the last stride is 1
  int rank = 0;
  DType dtype = DType::f32;

  explicit operator bool() const { return data != nullptr; }
  Dim last() const { return size[static_cast<std::size_t>(rank - 1)]; }
  Dim elements() const;
  Dim rows() const { return last() ? elements() / last() : 0; }  // everything but the last axis
  Dim operator[](int axis) const { return size[static_cast<std::size_t>(axis)]; }
  bool contiguous() const;
  std::string shape() const;  // "[3,4]" for messages

  Tensor reshape(std::initializer_list<Dim> sizes) const;     // contiguous tensors only
  Tensor slice(Dim first, Dim count) const;                   // along the first axis
  Tensor columns(Dim first, Dim count) const;                 // along the last axis: a view with gaps
  Tensor swapped() const;                                     // [A,B,C] as [B,A,C]: likewise
  Tensor constant() const {                                   // the same values, without gradient
    Tensor t = *this;
    t.buffer = nullptr;
    return t;
  }

  template <class T>
  std::span<T> as() const {  // the elements of a contiguous tensor
    return {reinterpret_cast<T*>(data), static_cast<std::size_t>(elements())};
  }
  double at(Dim index) const;  // element of a contiguous tensor, widened; for tests and small readouts
  void set(Dim index, double value) const {  // element of a contiguous tensor of f32 or f64
    if (dtype == DType::f64) as<double>()[static_cast<std::size_t>(index)] = value;
    else as<float>()[static_cast<std::size_t>(index)] = static_cast<float>(value);
  }
};

Tensor tensor_over(std::byte* data, Buffer* buffer, DType dtype, std::span<const Dim> sizes);

}  // namespace rapt
