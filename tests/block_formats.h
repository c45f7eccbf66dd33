// SPDX-License-Identifier: Apache-2.0
// Every block format, and where its blocks keep their scales: for tests that make blocks of random bytes.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "rapt/tensor/dtype.h"

namespace rapt::test {

inline std::vector<DType> block_formats(bool made_only = false) {
  std::vector<DType> all;
#define RAPT_BLOCK(type, elements, bytes) \
  if (made_only ? is_made(DType::type) : is_block(DType::type)) all.push_back(DType::type);
  RAPT_DTYPES(RAPT_BLOCK)
#undef RAPT_BLOCK
  return all;
}

// Where a block has an f16. iq1_m has one in the highest nibbles of bytes 49, 51, 53, 55; mxfp4 and nvfp4
// have scales of a byte, at the beginning.
inline std::vector<std::size_t> halves_of(DType t) {
  switch (t) {
    case DType::f16:
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0:
    case DType::iq4_nl:
    case DType::iq4_xs:
    case DType::iq3_s:
    case DType::iq3_xxs:
    case DType::iq2_s:
    case DType::iq2_xs:
    case DType::iq2_xxs:
    case DType::iq1_s:
    case DType::q2_0:
    case DType::q1_0: return {0};
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k: return {0, 2};
    case DType::q2_k: return {80, 82};
    case DType::q3_k: return {108};
    case DType::q6_k: return {208};
    case DType::tq2_0: return {64};
    case DType::tq1_0: return {52};
    default: return {};
  }
}

// No infinity, no NaN among the scales of a block of random bytes.
inline void make_finite(DType t, std::byte* block) {
  for (const std::size_t at : halves_of(t))
    if ((block[at + 1] & std::byte{0x7C}) == std::byte{0x7C}) block[at + 1] &= std::byte{0xBF};
  if (t == DType::iq1_m) block[55] &= std::byte{0xBF};
}

// Scales of a block of random bytes: d, m the minimum's where it has one.
inline void set_scales(DType t, std::byte* block, float d, float m) {
  const std::uint16_t scale = to_f16(d), minimum = to_f16(m);
  const std::vector<std::size_t> at = halves_of(t);
  if (!at.empty()) std::memcpy(block + at[0], &scale, 2);
  if (at.size() > 1) std::memcpy(block + at[1], &minimum, 2);
  if (t == DType::iq1_m)
    for (int i = 0; i < 4; ++i) {
      std::byte& high = block[49 + 2 * i];
      high = (high & std::byte{15}) | static_cast<std::byte>((scale >> 4 * i & 15) << 4);
    }
  if (t == DType::mxfp4) block[0] = static_cast<std::byte>(128 + std::ilogb(d));
  if (t == DType::nvfp4)
    for (int i = 0; i < 4; ++i) block[i] = (block[i] & std::byte{0x8F}) | std::byte{0x10};
}

}  // namespace rapt::test
