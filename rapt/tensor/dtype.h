// SPDX-License-Identifier: Apache-2.0
// Element types in memory. Activations are f32 (or f64 on the reference device); weights may be stored narrower.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rapt {

enum class DType : std::uint8_t { f32, f64, bf16, i32 };

constexpr std::size_t size_of(DType t) { return t == DType::f64 ? 8 : t == DType::bf16 ? 2 : 4; }
constexpr const char* name_of(DType t) { return t == DType::f32 ? "f32" : t == DType::f64 ? "f64" : t == DType::bf16 ? "bf16" : "i32"; }

constexpr float from_bf16(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }
constexpr std::uint16_t to_bf16(float x) {  // round to nearest even; NaN stays NaN
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffff) > 0x7f800000) return std::uint16_t(u >> 16 | 0x40);
  return std::uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

}  // namespace rapt
