// SPDX-License-Identifier: Apache-2.0
// The vector of one instruction set. Kernel sources (*_cpu.cc) are compiled once per set with RAPT_ISA
// naming it, and everything here lives in that set's own namespace with internal linkage: nothing of it can
// be picked up by code built for another set. `Real` is float; for RAPT_ISA=f64 it is double and W is 1: the
// same sources are then the reference that gradients are checked in. Only kernel sources include
// this header.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "rapt/device/kernels.h"
#include "rapt/ops/isa.h"

#if RAPT_IS(avx2) || RAPT_IS(avx512)
#include <immintrin.h>
#elif RAPT_IS(neon)
#include <arm_neon.h>
#endif

#define RAPT_INLINE [[gnu::always_inline]] static inline
// Between the parameters of a lambda and its body: the inliner is not trusted with tiles.
#define RAPT_LAMBDA __attribute__((always_inline))

namespace rapt::RAPT_ISA {

using Dim = int64_t;

RAPT_INLINE Dim least(Dim a, Dim b) { return a < b ? a : b; }
RAPT_INLINE Dim most(Dim a, Dim b) { return a > b ? a : b; }
RAPT_INLINE Dim ceil_div(Dim a, Dim b) { return (a + b - 1) / b; }

// f(task, worker) for every task on the queue's threads. Which thread runs a task must not change any bit.
template <class F>
static void for_tasks(Queue& queue, Dim tasks, const F& f) {
  run_tasks(
      queue, tasks, [](void* c, Dim task, int worker) noexcept { (*static_cast<const F*>(c))(task, worker); },
      const_cast<F*>(&f));
}
// f(begin, end, worker) over [0, n) in pieces of about `grain`; for row-wise kernels, where any cut gives
// the same bits.
template <class F>
static void for_ranges(Queue& queue, Dim n, Dim grain, const F& f) {
  if (grain < 1) grain = 1;
  for_tasks(queue, ceil_div(n, grain),
            [&](Dim task, int worker) { f(task * grain, least(n, (task + 1) * grain), worker); });
}
// How many rows of `cols` elements make a piece worth a thread's while (about 8,000 elements).
RAPT_INLINE Dim row_grain(Dim cols) { return most(1, 8192 / most(1, cols)); }

// An f16 number, by its bits: infinities and subnormals too.
RAPT_INLINE float half_to_real(uint16_t h) {
  union {
    uint32_t u;
    float f;
  } x, least_normal;
  least_normal.u = 113u << 23;
  x.u = (h & 0x7fffu) << 13;
  const uint32_t exponent = x.u & (0x7c00u << 13);
  x.u += 112u << 23;
  if (exponent == 0x7c00u << 13) {
    x.u += 112u << 23;
  } else if (exponent == 0) {
    x.u += 1u << 23;
    x.f -= least_normal.f;
  }
  x.u |= (h & 0x8000u) << 16;
  return x.f;
}

// --------------------------------------------------------------------------------- scalar, float and double
#if RAPT_IS(scalar) || RAPT_IS(f64)
#if RAPT_IS(f64)
using Real = double;
constexpr DType kReal = DType::f64;
#define RAPT_LIBM(name) name
#else
using Real = float;
constexpr DType kReal = DType::f32;
#define RAPT_LIBM(name) name##f
#endif
constexpr int W = 1;
using V = Real;
using M = bool;
using I = uint32_t;  // lanes of 32-bit integers, for hashing

RAPT_INLINE V vload(const Real* p) { return *p; }
RAPT_INLINE void vstore(Real* p, V x) { *p = x; }
RAPT_INLINE V vload_n(const Real* p, Dim n) { return n > 0 ? *p : Real(0); }
RAPT_INLINE void vstore_n(Real* p, V x, Dim n) {
  if (n > 0) *p = x;
}
RAPT_INLINE V vload_bf16(const uint16_t* p) {
  union {
    uint32_t u;
    float f;
  } x = {uint32_t(*p) << 16};
  return x.f;
}
RAPT_INLINE V vload_f16(const uint16_t* p) { return half_to_real(*p); }
RAPT_INLINE V vset(Real x) { return x; }
RAPT_INLINE V vzero() { return 0; }
RAPT_INLINE V vfma(V a, V b, V c) { return a * b + c; }
RAPT_INLINE V vmax(V a, V b) { return a > b ? a : b; }
RAPT_INLINE V vmin(V a, V b) { return a < b ? a : b; }
RAPT_INLINE V vabs(V a) { return RAPT_LIBM(fabs)(a); }
RAPT_INLINE V vsqrt(V a) { return RAPT_LIBM(sqrt)(a); }
RAPT_INLINE V vexp2(V a) { return RAPT_LIBM(exp2)(a); }
RAPT_INLINE V vlog(V a) { return RAPT_LIBM(log)(a); }
RAPT_INLINE V vlog1p(V a) { return RAPT_LIBM(log1p)(a); }
RAPT_INLINE V vtanh(V a) { return RAPT_LIBM(tanh)(a); }
RAPT_INLINE Real vsum(V a) { return a; }
RAPT_INLINE M vlt(V a, V b) { return a < b; }
RAPT_INLINE M vle(V a, V b) { return a <= b; }
RAPT_INLINE M veq(V a, V b) { return a == b; }
RAPT_INLINE M vand(M a, M b) { return a && b; }
RAPT_INLINE M vor(M a, M b) { return a || b; }
RAPT_INLINE bool vany(M a) { return a; }
RAPT_INLINE V vselect(M m, V a, V b) { return m ? a : b; }  // a where m, else b
RAPT_INLINE V vgather(const Real* base, const int32_t* index) { return base[*index]; }
RAPT_INLINE I iset(uint32_t x) { return x; }
RAPT_INLINE I iload(const uint32_t* p) { return *p; }
RAPT_INLINE I iadd(I a, I b) { return a + b; }
RAPT_INLINE I imul(I a, I b) { return a * b; }
RAPT_INLINE I ixor(I a, I b) { return a ^ b; }
template <int N> RAPT_INLINE I ishr(I a) { return a >> N; }
RAPT_INLINE V ireal(I a) { return Real(int32_t(a)); }  // of a signed lane
#undef RAPT_LIBM

// ----------------------------------------------------------------------------------------------- AVX2 + FMA
#elif RAPT_IS(avx2)
using Real = float;
constexpr DType kReal = DType::f32;
constexpr int W = 8;
using V = __m256;
using M = __m256;
using I = __m256i;

RAPT_INLINE __m256i lanes_below(Dim n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(least(most(n, 0), 8))),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
RAPT_INLINE V vload(const Real* p) { return _mm256_loadu_ps(p); }
RAPT_INLINE void vstore(Real* p, V x) { _mm256_storeu_ps(p, x); }
RAPT_INLINE V vload_n(const Real* p, Dim n) {
  return n >= W ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, lanes_below(n));
}
RAPT_INLINE void vstore_n(Real* p, V x, Dim n) {
  if (n >= W) _mm256_storeu_ps(p, x);
  else _mm256_maskstore_ps(p, lanes_below(n), x);
}
RAPT_INLINE V vload_bf16(const uint16_t* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
RAPT_INLINE V vload_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
RAPT_INLINE V vset(Real x) { return _mm256_set1_ps(x); }
RAPT_INLINE V vzero() { return _mm256_setzero_ps(); }
RAPT_INLINE V vfma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
RAPT_INLINE V vmax(V a, V b) { return _mm256_max_ps(a, b); }
RAPT_INLINE V vmin(V a, V b) { return _mm256_min_ps(a, b); }
RAPT_INLINE V vabs(V a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
RAPT_INLINE V vsqrt(V a) { return _mm256_sqrt_ps(a); }
RAPT_INLINE M vlt(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
RAPT_INLINE M vle(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
RAPT_INLINE M veq(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
RAPT_INLINE M vand(M a, M b) { return _mm256_and_ps(a, b); }
RAPT_INLINE M vor(M a, M b) { return _mm256_or_ps(a, b); }
RAPT_INLINE bool vany(M a) { return _mm256_movemask_ps(a) != 0; }
RAPT_INLINE V vselect(M m, V a, V b) { return _mm256_blendv_ps(b, a, m); }
RAPT_INLINE Real vsum(V a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
RAPT_INLINE V vgather(const Real* base, const int32_t* index) {
  return _mm256_i32gather_ps(base, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index)), 4);
}
RAPT_INLINE I iset(uint32_t x) { return _mm256_set1_epi32(int(x)); }
RAPT_INLINE I iload(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
RAPT_INLINE I iadd(I a, I b) { return _mm256_add_epi32(a, b); }
RAPT_INLINE I imul(I a, I b) { return _mm256_mullo_epi32(a, b); }
RAPT_INLINE I ixor(I a, I b) { return _mm256_xor_si256(a, b); }
template <int N> RAPT_INLINE I ishr(I a) { return _mm256_srli_epi32(a, N); }
RAPT_INLINE V ireal(I a) { return _mm256_cvtepi32_ps(a); }

// t = n + f, f in [0, 1]: 2^f by polynomial, 2^n through the exponent bits.
RAPT_INLINE V vexp2_scale(V p, V n) {
  return p * _mm256_castsi256_ps(
                 _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
RAPT_INLINE V vfloor(V a) { return _mm256_floor_ps(a); }
RAPT_INLINE V vmantissa(V x, V* exponent) {  // x = m * 2^e with m in [0.75, 1.5), x normal and positive
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f400000)), 23);
  *exponent = _mm256_cvtepi32_ps(e);
  return _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23)));
}

// ------------------------------------------------------------------------------------------------ AVX-512
#elif RAPT_IS(avx512)
using Real = float;
constexpr DType kReal = DType::f32;
constexpr int W = 16;
using V = __m512;
using M = __mmask16;
using I = __m512i;

RAPT_INLINE M lanes_below(Dim n) { return n >= 16 ? M(0xffff) : n <= 0 ? M(0) : M((1u << n) - 1); }
RAPT_INLINE V vload(const Real* p) { return _mm512_loadu_ps(p); }
RAPT_INLINE void vstore(Real* p, V x) { _mm512_storeu_ps(p, x); }
RAPT_INLINE V vload_n(const Real* p, Dim n) { return _mm512_maskz_loadu_ps(lanes_below(n), p); }
RAPT_INLINE void vstore_n(Real* p, V x, Dim n) { _mm512_mask_storeu_ps(p, lanes_below(n), x); }
RAPT_INLINE V vload_bf16(const uint16_t* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
RAPT_INLINE V vload_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
RAPT_INLINE V vset(Real x) { return _mm512_set1_ps(x); }
RAPT_INLINE V vzero() { return _mm512_setzero_ps(); }
RAPT_INLINE V vfma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
RAPT_INLINE V vmax(V a, V b) { return _mm512_max_ps(a, b); }
RAPT_INLINE V vmin(V a, V b) { return _mm512_min_ps(a, b); }
RAPT_INLINE V vabs(V a) { return _mm512_abs_ps(a); }
// All lanes; g++ 12 warns about its own plain form.
RAPT_INLINE V vsqrt(V a) { return _mm512_maskz_sqrt_ps(M(0xffff), a); }
RAPT_INLINE M vlt(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
RAPT_INLINE M vle(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
RAPT_INLINE M veq(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
RAPT_INLINE M vand(M a, M b) { return M(a & b); }
RAPT_INLINE M vor(M a, M b) { return M(a | b); }
RAPT_INLINE bool vany(M a) { return a != 0; }
RAPT_INLINE V vselect(M m, V a, V b) { return _mm512_mask_blend_ps(m, b, a); }
RAPT_INLINE Real vsum(V a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
RAPT_INLINE V vgather(const Real* base, const int32_t* index) {
  return _mm512_i32gather_ps(_mm512_loadu_si512(index), base, 4);
}
RAPT_INLINE I iset(uint32_t x) { return _mm512_set1_epi32(int(x)); }
RAPT_INLINE I iload(const uint32_t* p) { return _mm512_loadu_si512(p); }
RAPT_INLINE I iadd(I a, I b) { return _mm512_add_epi32(a, b); }
RAPT_INLINE I imul(I a, I b) { return _mm512_mullo_epi32(a, b); }
RAPT_INLINE I ixor(I a, I b) { return _mm512_xor_si512(a, b); }
template <int N> RAPT_INLINE I ishr(I a) { return _mm512_srli_epi32(a, N); }
RAPT_INLINE V ireal(I a) { return _mm512_cvtepi32_ps(a); }
RAPT_INLINE V vfloor(V a) { return _mm512_roundscale_ps(a, 1); }
RAPT_INLINE V vmantissa(V x, V* exponent) {
  const V m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  *exponent = _mm512_getexp_ps(_mm512_div_ps(x, m));
  return m;
}

// ------------------------------------------------------------------------------------------------ NEON
#elif RAPT_IS(neon)
using Real = float;
constexpr DType kReal = DType::f32;
constexpr int W = 4;
using V = float32x4_t;
using M = uint32x4_t;
using I = uint32x4_t;

RAPT_INLINE V vload(const Real* p) { return vld1q_f32(p); }
RAPT_INLINE void vstore(Real* p, V x) { vst1q_f32(p, x); }
RAPT_INLINE V vload_n(const Real* p, Dim n) {
  if (n >= W) return vld1q_f32(p);
  Real t[W] = {};
  for (Dim i = 0; i < n; ++i) t[i] = p[i];
  return vld1q_f32(t);
}
RAPT_INLINE void vstore_n(Real* p, V x, Dim n) {
  if (n >= W) return vst1q_f32(p, x);
  Real t[W];
  vst1q_f32(t, x);
  for (Dim i = 0; i < n; ++i) p[i] = t[i];
}
RAPT_INLINE V vload_bf16(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p)), 16));
}
RAPT_INLINE V vload_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
RAPT_INLINE V vset(Real x) { return vdupq_n_f32(x); }
RAPT_INLINE V vzero() { return vdupq_n_f32(0); }
RAPT_INLINE V vfma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
RAPT_INLINE V vmax(V a, V b) { return vmaxq_f32(a, b); }
RAPT_INLINE V vmin(V a, V b) { return vminq_f32(a, b); }
RAPT_INLINE V vabs(V a) { return vabsq_f32(a); }
RAPT_INLINE V vsqrt(V a) { return vsqrtq_f32(a); }
RAPT_INLINE M vlt(V a, V b) { return vcltq_f32(a, b); }
RAPT_INLINE M vle(V a, V b) { return vcleq_f32(a, b); }
RAPT_INLINE M veq(V a, V b) { return vceqq_f32(a, b); }
RAPT_INLINE M vand(M a, M b) { return vandq_u32(a, b); }
RAPT_INLINE M vor(M a, M b) { return vorrq_u32(a, b); }
RAPT_INLINE bool vany(M a) { return vmaxvq_u32(a) != 0; }
RAPT_INLINE V vselect(M m, V a, V b) { return vbslq_f32(m, a, b); }
RAPT_INLINE Real vsum(V a) { return vaddvq_f32(a); }
RAPT_INLINE V vgather(const Real* base, const int32_t* i) {
  const Real t[W] = {base[i[0]], base[i[1]], base[i[2]], base[i[3]]};
  return vld1q_f32(t);
}
RAPT_INLINE I iset(uint32_t x) { return vdupq_n_u32(x); }
RAPT_INLINE I iload(const uint32_t* p) { return vld1q_u32(p); }
RAPT_INLINE I iadd(I a, I b) { return vaddq_u32(a, b); }
RAPT_INLINE I imul(I a, I b) { return vmulq_u32(a, b); }
RAPT_INLINE I ixor(I a, I b) { return veorq_u32(a, b); }
template <int N> RAPT_INLINE I ishr(I a) { return vshrq_n_u32(a, N); }
RAPT_INLINE V ireal(I a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
RAPT_INLINE V vexp2_scale(V p, V n) {
  return p * vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
RAPT_INLINE V vfloor(V a) { return vrndmq_f32(a); }
RAPT_INLINE V vmantissa(V x, V* exponent) {
  const int32x4_t bits = vreinterpretq_s32_f32(x),
                  e = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32(0x3f400000)), 23);
  *exponent = vcvtq_f32_s32(e);
  return vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(e, 23)));
}
#endif

// ----------------------------------------------------------------------------------- functions, vector sets
// vmin(limit, x) and vmax(limit, x) keep a NaN of x, the other order drops it.
#if !RAPT_IS(scalar) && !RAPT_IS(f64)
// 2^t within 2 ulp; 2^0 = 1 exactly, anything below -126 is 0.
RAPT_INLINE V vexp2(V t) {
#if RAPT_IS(avx512)
  // t - floor(t); vscalefps then multiplies by 2^floor(t): no clamp, no integer part
  const V f = _mm512_reduce_ps(t, 1);
#else
  const V clamped = vmin(vset(127.0f), vmax(vset(-127.0f), t)), n = vfloor(clamped), f = clamped - n;
#endif
  V p = vset(0x1.e974f8p-10f);
  p = vfma(p, f, vset(0x1.277856p-7f));
  p = vfma(p, f, vset(0x1.c91ce6p-5f));
  p = vfma(p, f, vset(0x1.ebdb56p-3f));
  p = vfma(p, f, vset(0x1.62e4bap-1f));
  p = vfma(p, f, vset(1.0f));
#if RAPT_IS(avx512)
  return _mm512_scalef_ps(p, t);
#else
  return vexp2_scale(p, n);
#endif
}
// ln(x) for normal x > 0: 2 atanh((m - 1) / (m + 1)).
RAPT_INLINE V vlog(V x) {
  V e;
  const V m = vmantissa(x, &e), s = (m - vset(1.0f)) / (m + vset(1.0f)), q = s * s;
  V p = vset(2.0f / 11);
  p = vfma(p, q, vset(2.0f / 9));
  p = vfma(p, q, vset(2.0f / 7));
  p = vfma(p, q, vset(2.0f / 5));
  p = vfma(p, q, vset(2.0f / 3));
  p = vfma(p, q, vset(2.0f));
  return vfma(e, vset(0.693147181f), p * s);
}
// ln(1 + x) for x in [0, 1], to the last digits of a small x: 2 atanh(x / (2 + x)).
RAPT_INLINE V vlog1p(V x) {
  const V s = x / (x + vset(2.0f)), q = s * s;
  V p = vset(0.281783344f);
  p = vfma(p, q, vset(0.279606029f));
  p = vfma(p, q, vset(0.400249103f));
  p = vfma(p, q, vset(0.666663147f));
  p = vfma(p, q, vset(2.0f));
  return p * s;
}
RAPT_INLINE V vtanh(V x) {
  const V a = vabs(x), z = x * x;
  // Odd polynomial (within 2e-8) below 0.625, where 1 - 2 / (e^2x + 1) would lose its digits.
  V p = vset(-0.00611318875f);
  p = vfma(p, z, vset(0.0210100793f));
  p = vfma(p, z, vset(-0.0538540693f));
  p = vfma(p, z, vset(0.133327945f));
  p = vfma(p, z, vset(-0.333333292f));
  const V small = vfma(p * z, x, x);
  const V e = vexp2(vmin(vset(12.0f), a) * vset(2.885390082f)),
          big = vset(1.0f) - vset(2.0f) / (e + vset(1.0f));
  return vselect(vlt(a, vset(0.625f)), small, vselect(vlt(x, vzero()), vzero() - big, big));
}
#endif

// a in the first n lanes, b in the others
RAPT_INLINE V vselect_n(Dim n, V a, V b) {
#if RAPT_IS(scalar) || RAPT_IS(f64)
  return n > 0 ? a : b;
#elif RAPT_IS(avx2)
  return vselect(_mm256_castsi256_ps(lanes_below(n)), a, b);
#elif RAPT_IS(avx512)
  return vselect(lanes_below(n), a, b);
#else
  constexpr uint32_t lanes[4] = {0, 1, 2, 3};
  return vselect(vcltq_u32(vld1q_u32(lanes), vdupq_n_u32(uint32_t(least(most(n, 0), W)))), a, b);
#endif
}
RAPT_INLINE Real real_sqrt(Real x) {
  return sizeof(Real) == 8 ? Real(sqrt(double(x))) : Real(sqrtf(float(x)));
}

constexpr Real kLog2e = Real(1.44269504088896340736);

RAPT_INLINE V vexp(V x) { return vexp2(x * vset(kLog2e)); }
RAPT_INLINE V vsigmoid(V x) {
  // 1 / (1 + e^-|x|), mirrored: no overflow on either side.
  const V e = vexp2(vabs(x) * vset(-kLog2e)), s = vset(Real(1)) / (vset(Real(1)) + e);
  return vselect(vlt(x, vzero()), e * s, s);
}
// Lanes 0, 1, 2 …
RAPT_INLINE V viota() {
  constexpr Real lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return vload(lanes);
}

// A random 32-bit word per lane from a row's key and a column: the finalizer of a multiplicative hash, equal
// on every set.
RAPT_INLINE I ihash(I row_key, I column) {
  I x = iadd(row_key, imul(column, iset(0x9E3779B9u)));
  x = ixor(x, ishr<16>(x));
  x = imul(x, iset(0x85EBCA6Bu));
  x = ixor(x, ishr<13>(x));
  x = imul(x, iset(0xC2B2AE35u));
  return ixor(x, ishr<16>(x));
}
// 0 with probability p, else 1 / (1 - p). Twenty-four bits decide.
RAPT_INLINE V vdrop(I row_key, I column, Real p) {
  const V u = ireal(ishr<8>(ihash(row_key, column))) * vset(Real(0x1p-24));
  return vselect(vlt(u, vset(p)), vzero(), vset(Real(1) / (Real(1) - p)));
}

}  // namespace rapt::RAPT_ISA
