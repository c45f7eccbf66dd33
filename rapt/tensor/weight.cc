// SPDX-License-Identifier: Apache-2.0
#include "rapt/tensor/weight.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace rapt {

Weight make_weight(std::string name, Dim rows, Dim cols, DType format, Packing packing) {
  Weight w;
  w.name = std::move(name);
  w.rows = rows;
  w.cols = cols;
  w.format = format;
  w.packing = packing;
  w.decay = rows > 1;
  const std::size_t align = w.bytes() >= (std::size_t{2} << 20) ? std::size_t{2} << 20 : 64;
  const std::size_t bytes = (std::max<std::size_t>(w.bytes(), 1) + align - 1) / align * align;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(align, bytes));
  if (!data) fail("out of memory: weight ", w.name, " [", rows, ",", cols, "] needs ", bytes, " bytes");
  if (align > 64) madvise(data, bytes, MADV_HUGEPAGE);
  std::memset(data, 0, bytes);
  w.data = std::shared_ptr<std::byte>(data, [](std::byte* p) { std::free(p); });
  return w;
}

double Weight::get(Dim row, Dim col) const {
  const std::byte* p = data.get();
  const auto i = static_cast<std::size_t>(offset(row, col));
  switch (format) {
    case DType::f32: return reinterpret_cast<const float*>(p)[i];
    case DType::f64: return reinterpret_cast<const double*>(p)[i];
    case DType::bf16: return from_bf16(reinterpret_cast<const std::uint16_t*>(p)[i]);
    case DType::f16: return from_f16(reinterpret_cast<const std::uint16_t*>(p)[i]);
    default: break;
  }
  fail("weight ", name, ": format ", name_of(format), " holds no numbers");
}

void Weight::set(Dim row, Dim col, double value) {
  std::byte* p = data.get();
  const auto i = static_cast<std::size_t>(offset(row, col));
  switch (format) {
    case DType::f32: reinterpret_cast<float*>(p)[i] = static_cast<float>(value); return;
    case DType::f64: reinterpret_cast<double*>(p)[i] = value; return;
    case DType::bf16: reinterpret_cast<std::uint16_t*>(p)[i] = to_bf16(static_cast<float>(value)); return;
    case DType::f16: reinterpret_cast<std::uint16_t*>(p)[i] = to_f16(static_cast<float>(value)); return;
    default: break;
  }
  fail("weight ", name, ": format ", name_of(format), " holds no numbers");
}

void fill(Weight& w, std::span<const double> values) {
  if (static_cast<Dim>(values.size()) != w.size())
    fail("weight ", w.name, ": got ", values.size(), " values, its shape [", w.rows, ",", w.cols, "] holds ", w.size());
  for (Dim r = 0; r < w.rows; ++r)
    for (Dim c = 0; c < w.cols; ++c) w.set(r, c, values[static_cast<std::size_t>(r * w.cols + c)]);
}

}  // namespace rapt
