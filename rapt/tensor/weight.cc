// SPDX-License-Identifier: Apache-2.0
// Where weights get memory: large ones on huge pages, small quantised ones in shared chunks. Then elements.
#include "rapt/tensor/weight.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "rapt/tensor/pack.h"

namespace rapt {

std::size_t Weight::bytes() const {
  if (!is_block(format)) return static_cast<std::size_t>(stored()) * size_of(format);
  if (packing == Packing::panels) return packed_bytes(format, rows, cols);
  return static_cast<std::size_t>(size()) / info_of(format).block * size_of(format);
}

namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;

// Zeroed. calloc knows which memory comes fresh from the system and is zero without being written: its pages
// are made by whoever first writes to them, so threads that fill a weight share that work too (half of the
// time to load a model, before).
std::shared_ptr<std::byte> allocate(std::size_t bytes) {
  const std::size_t align = bytes >= kHuge ? kHuge : 64;
  bytes = (bytes + align - 1) / align * align;
  void* const all = std::calloc(1, bytes + align);
  if (!all) return nullptr;
  auto* data = static_cast<std::byte*>(all);
  data += (align - reinterpret_cast<std::uintptr_t>(all) % align) % align;
  if (align == kHuge) madvise(data, bytes, MADV_HUGEPAGE);
  return {data, [all](std::byte*) { std::free(all); }};
}

// A piece of a larger allocation, which lives until the last of its pieces is gone; none is given out twice.
// Pages nobody has written to cost nothing.
std::shared_ptr<std::byte> share(std::size_t bytes) {
  static std::mutex mutex;
  static std::weak_ptr<std::byte> chunk;
  static std::size_t used = 0;
  constexpr std::size_t kChunk = 16 * kHuge;
  const std::lock_guard lock(mutex);
  std::shared_ptr<std::byte> from = chunk.lock();
  bytes = (bytes + 63) / 64 * 64;
  if (!from || used + bytes > kChunk) {
    from = allocate(kChunk);
    if (!from) return nullptr;
    chunk = from;
    used = 0;
  }
  std::byte* at = from.get() + used;
  used += bytes;
  return {from, at};
}

}  // namespace

Weight make_weight(std::string name, Dim rows, Dim cols, DType format, Packing packing) {
  Weight w;
  w.name = std::move(name);
  w.rows = rows;
  w.cols = cols;
  w.format = format;
  w.packing = packing;
  w.decay = rows > 1;
  if (is_block(format) && cols % static_cast<Dim>(info_of(format).block) != 0)
    fail("weight ", w.name, " [", rows, ",", cols, "]: rows of ", cols, " elements cannot be stored as ",
         name_of(format), ", whose blocks hold ", info_of(format).block, "; choose another format for it");
  const std::size_t bytes = std::max<std::size_t>(w.bytes(), 1);
  // Quantized matrices of a small model are smaller than a huge page, and reading them is all that
  // decoding does: they share some.
  w.data = is_block(format) && bytes < kHuge ? share(bytes) : allocate(bytes);
  if (!w.data) fail("out of memory: weight ", w.name, " [", rows, ",", cols, "] needs ", bytes, " bytes");
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
  fail("weight ", name, ": ", name_of(format),
       is_block(format) ? " holds blocks, not single numbers; read it with unpack_row" : " holds no numbers");
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
  fail("weight ", name, ": ", name_of(format),
       is_block(format) ? " holds blocks, not single numbers; fill it with pack_rows" : " holds no numbers");
}

namespace {

// Calls f(offset in row-major bytes, offset in the weight's bytes) for each element.
template <class F>
void each_element(const Weight& w, std::size_t bytes, const F& f) {
  if (is_block(w.format))
    fail("weight ", w.name, ": ", name_of(w.format), " holds blocks, not single numbers");
  const std::size_t size = size_of(w.format);
  if (bytes != static_cast<std::size_t>(w.size()) * size)
    fail("weight ", w.name, ": got ", bytes, " bytes, its shape [", w.rows, ",", w.cols, "] takes ",
         static_cast<std::size_t>(w.size()) * size);
  for (Dim r = 0; r < w.rows; ++r)
    for (Dim c = 0; c < w.cols; ++c)
      f(static_cast<std::size_t>(r * w.cols + c) * size, static_cast<std::size_t>(w.offset(r, c)) * size,
        size);
}

}  // namespace

std::vector<std::byte> row_major(const Weight& w) {
  std::vector<std::byte> out(static_cast<std::size_t>(w.size()) * size_of(w.format));
  each_element(w, out.size(), [&](std::size_t rows, std::size_t stored, std::size_t size) {
    std::memcpy(&out[rows], w.data.get() + stored, size);
  });
  return out;
}

void fill_row_major(Weight& w, std::span<const std::byte> bytes) {
  each_element(w, bytes.size(), [&](std::size_t rows, std::size_t stored, std::size_t size) {
    std::memcpy(w.data.get() + stored, &bytes[rows], size);
  });
}

void fill(Weight& w, std::span<const double> values) {
  if (static_cast<Dim>(values.size()) != w.size())
    fail("weight ", w.name, ": got ", values.size(), " values, its shape [", w.rows, ",", w.cols, "] holds ",
         w.size());
  for (Dim r = 0; r < w.rows; ++r)
    for (Dim c = 0; c < w.cols; ++c) w.set(r, c, values[static_cast<std::size_t>(r * w.cols + c)]);
}

}  // namespace rapt
