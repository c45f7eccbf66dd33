// SPDX-License-Identifier: Apache-2.0
// Rows of keys and values into cache pages, rounded to the cache's format as tensor/formats.h defines it.
#include <string.h>

#include "rapt/ops/attention_page.h"

namespace rapt::RAPT_ISA {
namespace {

RAPT_INLINE uint16_t rounded_bf16(float x) {  // to nearest even; NaN stays NaN
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  if ((u & 0x7fffffff) > 0x7f800000) return uint16_t(u >> 16 | 0x40);
  return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// 32 numbers -> their codes (q8_0: -127 … 127; q4_0: 0 … 15) and their scale. What is no number is 0: no
// whole number is its like.
RAPT_INLINE uint16_t quantize_8(const Real* from, int8_t* to) {
  float x[kQuantum], amax = 0;
  for (int i = 0; i < kQuantum; ++i) {
    x[i] = float(from[i]);
    amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
  }
  const float scale = amax / 127, inverse = scale != 0 ? 1 / scale : 0;
  for (int i = 0; i < kQuantum; ++i) {  // half away from zero, as roundf
    const float product = x[i] * inverse, y = product == product ? product : 0;
    const int whole = int(y);
    const float rest = y - float(whole);
    to[i] = int8_t(whole + (rest >= 0.5f) - (rest <= -0.5f));
  }
  return to_f16(scale);
}
RAPT_INLINE uint16_t quantize_4(const Real* from, uint8_t* to) {
  float amax = 0, largest = 0;
  for (int i = 0; i < kQuantum; ++i) {
    const float x = float(from[i]);
    if (amax < fabsf(x)) {
      amax = fabsf(x);
      largest = x;
    }
  }
  const float scale = largest / -8, inverse = scale != 0 ? 1 / scale : 0;
  for (int i = 0; i < kQuantum; ++i) {
    const float y = float(from[i]) * inverse + 8.5f;
    const int code = y > 0 ? int8_t(int(y)) : 0;
    to[i] = uint8_t(code < 15 ? code : 15);
  }
  return to_f16(scale);
}

// One key and one value of one head into place `key` of a page; v nullptr: values are in keys.
template <DType F>
RAPT_INLINE void write_key(const KvLayout& l, std::byte* head, Dim key, const Real* k, const Real* v) {
  std::byte* const values = head + l.values;
  if constexpr (F == DType::q8_0 || F == DType::q4_0) {
    auto* ks = reinterpret_cast<uint16_t*>(head + l.key_scales);
    auto* vs = reinterpret_cast<uint16_t*>(head + l.value_scales);
    uint8_t code[kQuantum];
    auto* const bytes = reinterpret_cast<uint8_t*>(head);
    auto* const value_bytes = reinterpret_cast<uint8_t*>(values);
    for (Dim b = 0; b < l.d / kQuantum; ++b) {
      const Dim d = b * kQuantum;
      if constexpr (F == DType::q8_0) {
        ks[b * kPageKeys + key] = quantize_8(k + d, reinterpret_cast<int8_t*>(code));
        for (Dim i = 0; i < kQuantum; ++i) bytes[(d + i) * kPageKeys + key] = code[i];
      } else {
        ks[b * kPageKeys + key] = quantize_4(k + d, code);
        for (Dim i = 0; i < kQuantum; i += 2)
          bytes[(d + i) / 2 * kPageKeys + key] = uint8_t(code[i] | code[i + 1] << 4);
      }
    }
    for (Dim b = 0; v && b < l.dv / kQuantum; ++b) {
      const Dim at = key * l.dv + b * kQuantum;
      if constexpr (F == DType::q8_0) {
        vs[at / kQuantum] = quantize_8(v + b * kQuantum, reinterpret_cast<int8_t*>(value_bytes) + at);
      } else {
        vs[at / kQuantum] = quantize_4(v + b * kQuantum, code);
        for (Dim i = 0; i < kQuantum / 2; ++i)
          value_bytes[at / 2 + i] = uint8_t(code[i] | code[i + kQuantum / 2] << 4);
      }
    }
  } else if constexpr (F == DType::bf16 || F == DType::f16) {
    auto narrow = [](Real x) { return F == DType::bf16 ? rounded_bf16(float(x)) : to_f16(float(x)); };
    for (Dim d = 0; d < l.d; ++d) reinterpret_cast<uint16_t*>(head)[d * kPageKeys + key] = narrow(k[d]);
    for (Dim d = 0; v && d < l.dv; ++d) reinterpret_cast<uint16_t*>(values)[key * l.dv + d] = narrow(v[d]);
  } else {
    for (Dim d = 0; d < l.d; ++d) reinterpret_cast<Real*>(head)[d * kPageKeys + key] = k[d];
    for (Dim d = 0; v && d < l.dv; ++d) reinterpret_cast<Real*>(values)[key * l.dv + d] = v[d];
  }
}

}  // namespace

void kv_write(Queue& queue, const KvWriteArgs& a) noexcept {
  const KvLayout& l = a.layout;
  // A task is the rows of one sequence that fall into one page: neighbouring keys share cache lines.
  auto pages_of = [](const AttentionPart& p) {
    return ceil_div(p.k_count, kPageKeys) - (p.k_count - p.q_count) / kPageKeys;
  };
  Dim tasks = 0;
  for (Dim p = 0; p < a.part_count; ++p) tasks += a.parts[p].q_count > 0 ? pages_of(a.parts[p]) : 0;
  for_tasks(queue, tasks, [&](Dim task, int) {
    Dim p = 0;
    for (;; ++p) {
      const Dim n = a.parts[p].q_count > 0 ? pages_of(a.parts[p]) : 0;
      if (task < n) break;
      task -= n;
    }
    const AttentionPart& part = a.parts[p];
    const Dim past = part.k_count - part.q_count, page = past / kPageKeys + task;
    const Dim begin = most(past, page * kPageKeys), end = least(part.k_count, (page + 1) * kPageKeys);
    std::byte* const place = page_of(a.slab, a.page_stride, part.pages[page]);
    with_format(l.format, [&](auto format) {
      for (Dim h = 0; h < l.kv_heads; ++h)
        for (Dim key = begin; key < end; ++key) {
          const Dim row = (part.q_first + key - past) * l.kv_heads + h;
          write_key<decltype(format)::value>(l, place + h * l.head_bytes, key % kPageKeys,
                                             static_cast<const Real*>(a.k) + row * l.d,
                                             a.v ? static_cast<const Real*>(a.v) + row * l.dv : nullptr);
        }
    });
  });
}

}  // namespace rapt::RAPT_ISA
