// SPDX-License-Identifier: Apache-2.0
// Numbers on their way to Python and back. Results belong to their arrays: one owner in a capsule, shared by
// all arrays of a call, no copy. What goes out is a neutral array (buffer protocol and DLPack, nothing
// imported); python/rapt/_arrays.py makes NumPy's of it where that is installed.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rapt/apps/python/binding.h"

namespace rapt::python {

// `owner` keeps what `data` points to.
template <class T>
nb::object array_of(std::shared_ptr<const void> owner, const T* data, std::span<const std::int64_t> shape) {
  auto* held = new std::shared_ptr<const void>(std::move(owner));
  const nb::capsule capsule(held,
                            [](void* p) noexcept { delete static_cast<std::shared_ptr<const void>*>(p); });
  std::vector<std::size_t> sizes(shape.begin(), shape.end());
  return nb::cast(nb::ndarray<nb::array_api, T, nb::device::cpu>(const_cast<T*>(data), sizes.size(),
                                                                 sizes.data(), capsule));
}
template <class T>
nb::object array_of(std::vector<T>&& values, std::span<const std::int64_t> shape) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  return array_of(owner, owner->data(), shape);
}
template <class T>
nb::object array_of(std::vector<T>&& values) {
  const std::int64_t shape[] = {static_cast<std::int64_t>(values.size())};
  return array_of(std::move(values), shape);
}

// Numbers from Python, never copied on the way: rows of f32, in order.
using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

}  // namespace rapt::python
