// SPDX-License-Identifier: Apache-2.0
// Cached keys and values of one layer as the attention reads them: pages of kPageKeys keys, so that a key
// block never crosses one. Pages are numbers: sequences may share them, and they lie in any order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/tensor/dtype.h"

namespace rapt {

constexpr Dim kPageKeys = 64;  // also the attention's key block: counted from the sequence's first token

// Where things stand in a page. A head's keys and values are neighbours, since one task reads both. Keys are
// transposed: a step of decoding has few queries, so keys are what fills a vector.
//   f64 f32 bf16 f16  keys [D][64], values [64][Dv]
//   q8_0              keys int8 [D][64], scales f16 [D/32][64]; values int8 [64][Dv], scales f16 [64][Dv/32]
//   q4_0              keys [D/2][64] bytes: channels 2i (low half) and 2i + 1; scales as q8_0; values
//                     [64][Dv/32] times 16 bytes: channels i (low half) and i + 16; scales as q8_0
// What is read back is what tensor/formats.h defines for the rows of each key and head. Latent attention: the
// value of a key is its first dv channels, and a page has no values of its own.
struct KvLayout {
  DType format = DType::f32;
  Dim kv_heads = 0, d = 0, dv = 0;
  Dim key_scales = 0, values = 0, value_scales = 0;  // bytes from the head's keys
  // A page ends in bytes that nothing is stored in: whole tiles may be read.
  Dim head_bytes = 0, page_bytes = 0;
  bool values_in_keys = false;
};

// Keys that were stored without the bias of their projection (it is large in some models, and rounding K
// would then lose the rest). Rotated, the bias b of a kv head gives every key j the same shape: q . R_j b =
// sum over pairs of cos_j (qa ba + qb bb) + sin_j (qb ba - qa bb), plus q . b of the channels that do not
// turn. So a key has `rows` bias channels, equal for all heads:
// the cosines, the sines (the angles), and a one where some channels stand still; a query's numbers for them
// follow from q and b.
struct KvBias {
  const void* bias = nullptr;  // [K,D] in the device's real type; nullptr: keys are whole
  Dim half = 0, rows = 0;  // pairs; 2 * half, or 2 * half + 1
  bool neighbours = false;  // pairs are (2i, 2i + 1), else (i, i + half)
  // Pages [rows][64] in the device's real type: page p begins at slab + p * stride (bytes).
  std::byte* slab = nullptr;
  Dim stride = 0;
  std::vector<std::span<const std::int32_t>> angles = {};  // for each sequence: the ids of its pages
};

struct KvView {
  KvLayout layout;
  std::byte* slab = nullptr;  // page p of this layer begins at slab + p * stride
  Dim stride = 0;  // bytes
  // For each sequence of the batch: the ids of its pages in order; -1: evicted, nobody may look at it
  std::vector<std::span<const std::int32_t>> pages;
  KvBias bias = {};
};

}  // namespace rapt
