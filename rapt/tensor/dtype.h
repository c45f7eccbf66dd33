// SPDX-License-Identifier: Apache-2.0
// Element types in memory and in files. Activations are f32 (or f64 on the reference device); weights and
// caches may be stored narrower, in blocks of elements that share their scales. What the bytes of a block
// mean: tensor/formats.h.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rapt {

// X(name, elements in a block, bytes of a block)
#define RAPT_DTYPES(X) \
  X(f32, 1, 4)         \
  X(f64, 1, 8)         \
  X(bf16, 1, 2)        \
  X(f16, 1, 2)         \
  X(i8, 1, 1)          \
  X(i16, 1, 2)         \
  X(i32, 1, 4)         \
  X(i64, 1, 8)         \
  X(q4_0, 32, 18)      \
  X(q4_1, 32, 20)      \
  X(q5_0, 32, 22)      \
  X(q5_1, 32, 24)      \
  X(q8_0, 32, 34)      \
  X(q2_k, 256, 84)     \
  X(q3_k, 256, 110)    \
  X(q4_k, 256, 144)    \
  X(q5_k, 256, 176)    \
  X(q6_k, 256, 210)    \
  X(mxfp4, 32, 17)     \
  X(iq4_nl, 32, 18)    \
  X(iq4_xs, 256, 136)  \
  X(iq3_s, 256, 110)   \
  X(iq3_xxs, 256, 98)  \
  X(iq2_s, 256, 82)    \
  X(iq2_xs, 256, 74)   \
  X(iq2_xxs, 256, 66)  \
  X(iq1_m, 256, 56)    \
  X(iq1_s, 256, 50)    \
  X(tq2_0, 256, 66)    \
  X(tq1_0, 256, 54)    \
  X(nvfp4, 64, 36)     \
  X(q2_0, 64, 18)      \
  X(q1_0, 128, 18)

enum class DType : std::uint8_t {
#define RAPT_NAME(name, elements, bytes) name,
  RAPT_DTYPES(RAPT_NAME)
#undef RAPT_NAME
};

struct DTypeInfo {
  const char* name;
  std::size_t block, bytes;  // elements in a block, bytes of a block
};
constexpr DTypeInfo info_of(DType t) {
  switch (t) {
#define RAPT_CASE(name, elements, bytes) \
  case DType::name: return {#name, elements, bytes};
    RAPT_DTYPES(RAPT_CASE)
#undef RAPT_CASE
  }
  return {"?", 1, 1};
}
constexpr const char* name_of(DType t) { return info_of(t).name; }
constexpr bool is_block(DType t) { return info_of(t).block > 1; }  // elements share scales
constexpr bool is_float(DType t) {
  return t == DType::f32 || t == DType::f64 || t == DType::bf16 || t == DType::f16;
}
// Block formats that numbers are turned into. The others are read from files and computed with, never made.
constexpr bool is_made(DType t) { return is_block(t) && t < DType::iq3_s; }
// Of an element; of a block where is_block.
constexpr std::size_t size_of(DType t) { return info_of(t).bytes; }
// "q4_k", "Q4_K" and "bf16", "BF16": case does not matter
std::optional<DType> dtype_named(std::string_view name);

constexpr float from_bf16(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }
constexpr std::uint16_t to_bf16(float x) {  // round to nearest even; NaN stays NaN
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffff) > 0x7f800000) return std::uint16_t(u >> 16 | 0x40);
  return std::uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
float from_f16(std::uint16_t x);
std::uint16_t to_f16(float x);  // round to nearest even

}  // namespace rapt
