// SPDX-License-Identifier: Apache-2.0
// Names of types in any case, and f16 to f32 and back by bits: nearest, ties to even.
#include "rapt/tensor/dtype.h"

namespace rapt {

std::optional<DType> dtype_named(std::string_view name) {
  auto same = [&](std::string_view known) {
    if (known.size() != name.size()) return false;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const char c = name[i];
      if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != known[i]) return false;
    }
    return true;
  };
#define RAPT_TRY(known, elements, bytes) \
  if (same(#known)) return DType::known;
  RAPT_DTYPES(RAPT_TRY)
#undef RAPT_TRY
  return std::nullopt;
}

float from_f16(std::uint16_t x) {
  const std::uint32_t sign = std::uint32_t{x & 0x8000u} << 16, magnitude = x & 0x7fffu;
  // Infinity, NaN.
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float small = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal or zero: exact
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(small));
}

std::uint16_t to_f16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x), sign = u >> 16 & 0x8000u,
                      magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  // 65520 and more round to infinity
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude >= 0x38800000u) {  // normal: 2^-14 and more
    const std::uint32_t shifted = magnitude - 0x38000000u;
    return static_cast<std::uint16_t>(sign | ((shifted + 0xfffu + (shifted >> 13 & 1)) >> 13));
  }
  // Subnormal: the sum with 1/2 puts the last bit kept at the last bit of a float, so the addition rounds.
  const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000u));
}

}  // namespace rapt
