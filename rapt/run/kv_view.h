// SPDX-License-Identifier: Apache-2.0
// Cached keys and values of one layer as the attention reads them: pages of kPageKeys keys, so that a key block never crosses one.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "rapt/base/error.h"
#include "rapt/tensor/dtype.h"

namespace rapt {

constexpr Dim kPageKeys = 64;  // also the attention's key block: counted from the sequence's first token

// A page holds, for each of kv_heads heads, [kPageKeys][D] keys, then for each head [kPageKeys][Dv] values, in the device's real type.
struct KvView {
  Dim kv_heads = 0, d = 0, dv = 0;
  // For each sequence of the batch: its pages in order. A page that was evicted (nobody may look at it) is nullptr.
  std::vector<std::span<std::byte* const>> pages;
};

}  // namespace rapt
