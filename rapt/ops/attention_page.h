// SPDX-License-Identifier: Apache-2.0
// Cache pages: how each format's numbers become vectors. Where they stand: run/kv_view.h. Private to
// attention's kernels.
#pragma once
#include "rapt/ops/attention.h"
#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {
namespace {

constexpr Dim kQuantum = 32;  // elements that share a scale

// --------------------------------------------------------------------------------------- W numbers in a row
RAPT_INLINE V vload_i8(const int8_t* p) {
#if RAPT_IS(avx512)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif RAPT_IS(avx2)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#elif RAPT_IS(neon)
  const int32_t x[4] = {p[0], p[1], p[2], p[3]};
  return vcvtq_f32_s32(vld1q_s32(x));
#else
  return Real(*p);
#endif
}
// Both halves of W bytes, less 8.
RAPT_INLINE void vload_nibbles(const uint8_t* p, V& low, V& high) {
#if RAPT_IS(avx512)
  // A permutation looks at the last four bits of an index only.
  const V table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  low = _mm512_permutexvar_ps(x, table);
  high = _mm512_permutexvar_ps(_mm512_srli_epi32(x, 4), table);
#elif RAPT_IS(avx2)
  const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
                eight = _mm256_set1_epi32(8);
  low = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(x, _mm256_set1_epi32(15)), eight));
  high = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(x, 4), eight));
#else
  Real a[W], b[W];
  for (int i = 0; i < W; ++i) {
    a[i] = Real(int(p[i] & 15) - 8);
    b[i] = Real(int(p[i] >> 4) - 8);
  }
  low = vload(a);
  high = vload(b);
#endif
}
// W elements of a float format.
template <DType F>
RAPT_INLINE V vload_as(const std::byte* p, Dim i) {
  if constexpr (F == DType::bf16) return vload_bf16(reinterpret_cast<const uint16_t*>(p) + i);
  else if constexpr (F == DType::f16) return vload_f16(reinterpret_cast<const uint16_t*>(p) + i);
  else return vload(reinterpret_cast<const Real*>(p) + i);
}

RAPT_INLINE std::byte* page_of(std::byte* slab, Dim stride, int32_t id) { return slab + id * stride; }
RAPT_INLINE const std::byte* head_of(const KvLayout& l, const std::byte* page, Dim kv) {
  return page + kv * l.head_bytes;
}
RAPT_INLINE const uint16_t* key_scales_of(const KvLayout& l, const std::byte* head) {
  return reinterpret_cast<const uint16_t*>(head + l.key_scales);
}
RAPT_INLINE const uint16_t* value_scales_of(const KvLayout& l, const std::byte* head) {
  return reinterpret_cast<const uint16_t*>(head + l.value_scales);
}

// f(Format<F>{}) for the format at hand.
template <DType F>
struct Format {
  static constexpr DType value = F;
};
template <class F>
RAPT_INLINE void with_format(DType format, const F& f) {
  if constexpr (kReal == DType::f64) {
    f(Format<kReal>{});
  } else {
    if (format == kReal) f(Format<kReal>{});
    else if (format == DType::bf16) f(Format<DType::bf16>{});
    else if (format == DType::f16) f(Format<DType::f16>{});
    else if (format == DType::q8_0) f(Format<DType::q8_0>{});
    else f(Format<DType::q4_0>{});
  }
}

// ------------------------------------------------------------------------------ a block of 64 keys, widened
// keys [d][64] of one head, as they stand in the page, in Reals
template <DType F>
static void unpack_keys(const KvLayout& l, const std::byte* head, Real* to) {
  if constexpr (F == DType::q8_0 || F == DType::q4_0) {
    for (Dim b = 0; b < l.d; b += kQuantum)
      for (Dim k = 0; k < kPageKeys; k += W) {
        const V scale = vload_f16(key_scales_of(l, head) + b / kQuantum * kPageKeys + k);
        if constexpr (F == DType::q8_0) {
          for (Dim d = b; d < b + kQuantum; ++d)
            vstore(to + d * kPageKeys + k,
                   vload_i8(reinterpret_cast<const int8_t*>(head) + d * kPageKeys + k) * scale);
        } else {
          for (Dim d = b; d < b + kQuantum; d += 2) {
            V low, high;
            vload_nibbles(reinterpret_cast<const uint8_t*>(head) + d / 2 * kPageKeys + k, low, high);
            vstore(to + d * kPageKeys + k, low * scale);
            vstore(to + (d + 1) * kPageKeys + k, high * scale);
          }
        }
      }
  } else {
    for (Dim i = 0; i < l.d * kPageKeys; i += W) vstore(to + i, vload_as<F>(head, i));
  }
}
// values [first, end) of [64][dv]; whole vectors are stored, so up to W - 1 elements behind the last one
// are touched
template <DType F>
static void unpack_values(const KvLayout& l, const std::byte* head, Dim first, Dim end, Real* to) {
  const std::byte* const from = head + l.values;
  if constexpr (F == DType::q8_0 || F == DType::q4_0) {
    for (Dim b = first * l.dv; b < end * l.dv; b += kQuantum) {
      const V scale = vset(Real(from_f16(value_scales_of(l, head)[b / kQuantum])));
      if constexpr (F == DType::q8_0) {
        for (Dim i = b; i < b + kQuantum; i += W)
          vstore(to + i, vload_i8(reinterpret_cast<const int8_t*>(from) + i) * scale);
      } else {
        for (Dim i = 0; i < kQuantum / 2; i += W) {
          V low, high;
          vload_nibbles(reinterpret_cast<const uint8_t*>(from) + b / 2 + i, low, high);
          vstore(to + b + i, low * scale);
          vstore(to + b + kQuantum / 2 + i, high * scale);
        }
      }
    }
  } else {
    for (Dim i = first * l.dv; i < end * l.dv; i += W) vstore(to + i, vload_as<F>(from, i));
  }
}

}  // namespace
}  // namespace rapt::RAPT_ISA
