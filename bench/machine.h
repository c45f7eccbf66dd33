// SPDX-License-Identifier: Apache-2.0
// What the machine gives at this moment, measured beside a benchmark: fused multiply-adds in registers.
#pragma once
#include <algorithm>
#include <chrono>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "rapt/device/device.h"

namespace rapt::bench {

inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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

// FLOP/s over all threads of the device, handed out in small pieces like real work; the best of many short runs.
inline double fma_peak(Device& device, double seconds) {
  const bool wide = __builtin_cpu_supports("avx512f");
  constexpr Dim kPieces = 256;
  double best = 0;
  for (const double end = now() + seconds; now() < end;) {
    const double start = now();
    if (wide) run_tasks(device.queue(), kPieces, [](void*, Dim, int) noexcept { fma_512(); }, nullptr);
    else run_tasks(device.queue(), kPieces, [](void*, Dim, int) noexcept { fma_256(); }, nullptr);
    best = std::max(best, static_cast<double>(kPieces) * kFmaRounds * kFmaChains * (wide ? 32 : 16) / (now() - start));
  }
  return best;
}
#else
inline double fma_peak(Device&, double) { return 0; }
#endif

}  // namespace rapt::bench
