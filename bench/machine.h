// SPDX-License-Identifier: Apache-2.0
// What the machine gives at this moment, measured beside a benchmark: fused multiply-adds in registers, of
// f32 and of pairs of bf16.
#pragma once
#include <algorithm>
#include <chrono>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "rapt/device/device.h"

namespace rapt::bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#if defined(__x86_64__)
constexpr int kFmaRounds = 2000, kFmaChains = 12;

__attribute__((target("avx512f"))) inline void fma_512() {
  __m512 c[kFmaChains], a = _mm512_set1_ps(1), s = _mm512_set1_ps(1e-9f);
  for (auto& x : c) x = a;
  for (int i = 0; i < kFmaRounds; ++i) {
    asm volatile("" : "+v"(a), "+v"(s));
#pragma GCC unroll 12
    for (auto& x : c) x = _mm512_fmadd_ps(a, s, x);
  }
  for (auto& x : c) asm volatile("" ::"v"(x));
}
__attribute__((target("avx2,fma"))) inline void fma_256() {
  __m256 c[kFmaChains], a = _mm256_set1_ps(1), s = _mm256_set1_ps(1e-9f);
  for (auto& x : c) x = a;
  for (int i = 0; i < kFmaRounds; ++i) {
    asm volatile("" : "+x"(a), "+x"(s));
#pragma GCC unroll 12
    for (auto& x : c) x = _mm256_fmadd_ps(a, s, x);
  }
  for (auto& x : c) asm volatile("" ::"x"(x));
}
__attribute__((target("avx512f,avx512bf16"))) inline void pairs_512() {
  __m512 c[kFmaChains];
  __m512i a = _mm512_set1_epi32(0x3f803f80), s = _mm512_set1_epi32(0x30803080);
  for (auto& x : c) x = _mm512_set1_ps(1);
  for (int i = 0; i < kFmaRounds; ++i) {
    asm volatile("" : "+v"(a), "+v"(s));
#pragma GCC unroll 12
    for (auto& x : c) x = _mm512_dpbf16_ps(x, (__m512bh)a, (__m512bh)s);
  }
  for (auto& x : c) asm volatile("" ::"v"(x));
}

// FLOP/s over all threads of the device, handed out in small pieces like real work; the best of many
// short runs.
inline double peak(Device& device, double seconds, void (*piece)(), int lanes) {
  constexpr Dim kPieces = 256;
  double best = 0;
  for (const double end = now() + seconds; now() < end;) {
    const double start = now();
    run_tasks(
        device.queue(), kPieces, [](void* f, Dim, int) noexcept { (*static_cast<void (**)()>(f))(); },
        &piece);
    best =
        std::max(best, static_cast<double>(kPieces) * kFmaRounds * kFmaChains * 2 * lanes / (now() - start));
  }
  return best;
}
inline double fma_peak(Device& device, double seconds) {
  return __builtin_cpu_supports("avx512f") ? peak(device, seconds, fma_512, 16)
                                           : peak(device, seconds, fma_256, 8);
}
// Of bf16 factors; where the processor has no instruction for them, that of f32.
inline double bf16_peak(Device& device, double seconds) {
  return __builtin_cpu_supports("avx512bf16") ? peak(device, seconds, pairs_512, 32)
                                              : fma_peak(device, seconds);
}
#else
inline double fma_peak(Device&, double) { return 0; }
inline double bf16_peak(Device&, double) { return 0; }
#endif

}  // namespace rapt::bench
