// SPDX-License-Identifier: Apache-2.0
// Blocks of 32 elements, and plain types. The k formats (blocks of 256) stand in formats_k.cc, those with
// tables in formats_table.cc.
//
//   half = f16; nibbles[16]: byte j holds element j in its low and element j + 16 in its high four bits;
//          bits[4]: bit j of element j
//   q4_0 = half d, nibbles             x = (n - 8) d
//   q4_1 = half d, half m, nibbles     x = n d + m
//   q5_0 = half d, bits, nibbles       x = (n + 16 bit - 16) d
//   q5_1 = half d, half m, bits, nib.  x = (n + 16 bit) d + m
//   q8_0 = half d, int8[32]            x = n d
// Products and sums are rounded one by one (no fused multiply-add), as the definition does.
#include "rapt/tensor/formats.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "rapt/tensor/formats_k.h"
#include "rapt/tensor/formats_table.h"

namespace rapt {

float get_half(const unsigned char* p) { return from_f16(static_cast<std::uint16_t>(p[0] | p[1] << 8)); }
void put_half(unsigned char* p, float x) {
  const std::uint16_t h = to_f16(x);
  p[0] = static_cast<unsigned char>(h & 0xFF);
  p[1] = static_cast<unsigned char>(h >> 8);
}

namespace {

using Byte = unsigned char;

std::uint32_t bits32(const Byte* p) { return p[0] | p[1] << 8 | p[2] << 16 | std::uint32_t{p[3]} << 24; }

void decode_q4_0(const Byte* b, float* y) {
  const float d = get_half(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((b[2 + j] & 15) - 8) * d;
    y[j + 16] = static_cast<float>((b[2 + j] >> 4) - 8) * d;
  }
}
void decode_q4_1(const Byte* b, float* y) {
  const float d = get_half(b), m = get_half(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(b[4 + j] & 15) * d + m;
    y[j + 16] = static_cast<float>(b[4 + j] >> 4) * d + m;
  }
}
void decode_q5_0(const Byte* b, float* y) {
  const float d = get_half(b);
  const std::uint32_t high = bits32(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(static_cast<int>((b[6 + j] & 15u) | (high >> j & 1) << 4) - 16) * d;
    y[j + 16] = static_cast<float>(static_cast<int>((b[6 + j] >> 4) | (high >> (j + 16) & 1) << 4) - 16) * d;
  }
}
void decode_q5_1(const Byte* b, float* y) {
  const float d = get_half(b), m = get_half(b + 2);
  const std::uint32_t high = bits32(b + 4);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((b[8 + j] & 15u) | (high >> j & 1) << 4) * d + m;
    y[j + 16] = static_cast<float>((b[8 + j] >> 4) | (high >> (j + 16) & 1) << 4) * d + m;
  }
}
void decode_q8_0(const Byte* b, float* y) {
  const float d = get_half(b);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(static_cast<signed char>(b[2 + j])) * d;
}

// The integer towards zero, in eight bits; what no integer can hold (a scale that underflowed made it
// infinite) is 0.
int low_byte(float x) { return x > -1e9f && x < 1e9f ? static_cast<int>(x) & 0xFF : 0; }
int level(float x, int most) { return std::min(most, int{static_cast<signed char>(low_byte(x))}) & 0xFF; }

// The value of the largest magnitude, with its sign; the first of several. Its size is a variable of its
// own: clang 19 compiles `if (fabs(x) > fabs(best)) best = x` from best = 0 wrongly where it unrolls the
// whole loop.
float extreme(const float* x) {
  float best = 0, size = 0;
  for (int j = 0; j < 32; ++j)
    if (const float s = std::fabs(x[j]); s > size) best = x[j], size = s;
  return best;
}
struct Range {
  float least = FLT_MAX, most = -FLT_MAX;
  explicit Range(const float* x) {
    for (int j = 0; j < 32; ++j) {
      if (x[j] < least) least = x[j];
      if (x[j] > most) most = x[j];
    }
  }
};
float inverse(float d) { return d != 0 ? 1.0f / d : 0.0f; }

void encode_q4_0(const float* x, Byte* b) {
  const float d = extreme(x) / -8, id = inverse(d);
  put_half(b, d);
  for (int j = 0; j < 16; ++j)
    b[2 + j] = static_cast<Byte>(level(x[j] * id + 8.5f, 15) | level(x[j + 16] * id + 8.5f, 15) << 4);
}
void encode_q4_1(const float* x, Byte* b) {
  const Range r(x);
  const float d = (r.most - r.least) / 15, id = inverse(d);
  put_half(b, d);
  put_half(b + 2, r.least);
  for (int j = 0; j < 16; ++j)
    b[4 + j] = static_cast<Byte>(level((x[j] - r.least) * id + 0.5f, 15) |
                                 level((x[j + 16] - r.least) * id + 0.5f, 15) << 4);
}
// Five bits: q[32] as nibbles and, before them, their fifth bits.
void put_five(const int* q, Byte* b) {
  std::uint32_t high = 0;
  for (int j = 0; j < 16; ++j) {
    b[4 + j] = static_cast<Byte>((q[j] & 15) | (q[j + 16] & 15) << 4);
    high |= static_cast<std::uint32_t>(q[j] >> 4 & 1) << j | static_cast<std::uint32_t>(q[j + 16] >> 4 & 1)
                                                                 << (j + 16);
  }
  for (int k = 0; k < 4; ++k) b[k] = static_cast<Byte>(high >> 8 * k & 0xFF);
}
void encode_q5_0(const float* x, Byte* b) {
  const float d = extreme(x) / -16, id = inverse(d);
  int q[32];
  for (int j = 0; j < 32; ++j) q[j] = level(x[j] * id + 16.5f, 31);
  put_half(b, d);
  put_five(q, b + 2);
}
void encode_q5_1(const float* x, Byte* b) {
  const Range r(x);
  const float d = (r.most - r.least) / 31, id = inverse(d);
  int q[32];
  for (int j = 0; j < 32; ++j) q[j] = low_byte((x[j] - r.least) * id + 0.5f);
  put_half(b, d);
  put_half(b + 2, r.least);
  put_five(q, b + 4);
}
void encode_q8_0(const float* x, Byte* b) {
  const float d = std::fabs(extreme(x)) / 127, id = inverse(d);
  put_half(b, d);
  for (int j = 0; j < 32; ++j) b[2 + j] = static_cast<Byte>(low_byte(std::round(x[j] * id)));
}

template <class From, class To, class Convert>
void each(const Byte* from, std::span<To> to, Convert convert) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    From v;
    std::memcpy(&v, from + i * sizeof(From), sizeof(From));  // data of a file can begin at any byte
    to[i] = convert(v);
  }
}
template <class To, class Convert>
void each_out(std::span<const float> from, Byte* to, Convert convert) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const To v = convert(from[i]);
    std::memcpy(to + i * sizeof(To), &v, sizeof(To));
  }
}

template <DType type>
void decode_coded(const Byte* b, float* y) {
  rapt::decode_coded(type, b, y);
}

using Decode = void (*)(const Byte*, float*);
using Encode = void (*)(const float*, Byte*);
struct Codec {
  Decode decode;
  Encode encode;
};
Codec codec_of(DType type) {
  switch (type) {
    case DType::q4_0: return {decode_q4_0, encode_q4_0};
    case DType::q4_1: return {decode_q4_1, encode_q4_1};
    case DType::q5_0: return {decode_q5_0, encode_q5_0};
    case DType::q5_1: return {decode_q5_1, encode_q5_1};
    case DType::q8_0: return {decode_q8_0, encode_q8_0};
    case DType::q2_k: return {decode_q2_k, encode_q2_k};
    case DType::q3_k: return {decode_q3_k, encode_q3_k};
    case DType::q4_k: return {decode_q4_k, encode_q4_k};
    case DType::q5_k: return {decode_q5_k, encode_q5_k};
    case DType::q6_k: return {decode_q6_k, encode_q6_k};
    case DType::mxfp4: return {decode_coded<DType::mxfp4>, encode_mxfp4};
    case DType::iq4_nl: return {decode_coded<DType::iq4_nl>, encode_iq4_nl};
    case DType::iq4_xs: return {decode_coded<DType::iq4_xs>, encode_iq4_xs};
    case DType::iq3_s: return {decode_coded<DType::iq3_s>, nullptr};
    case DType::iq3_xxs: return {decode_coded<DType::iq3_xxs>, nullptr};
    case DType::iq2_s: return {decode_coded<DType::iq2_s>, nullptr};
    case DType::iq2_xs: return {decode_coded<DType::iq2_xs>, nullptr};
    case DType::iq2_xxs: return {decode_coded<DType::iq2_xxs>, nullptr};
    case DType::iq1_m: return {decode_coded<DType::iq1_m>, nullptr};
    case DType::iq1_s: return {decode_coded<DType::iq1_s>, nullptr};
    case DType::tq2_0: return {decode_coded<DType::tq2_0>, nullptr};
    case DType::tq1_0: return {decode_coded<DType::tq1_0>, nullptr};
    case DType::nvfp4: return {decode_coded<DType::nvfp4>, nullptr};
    case DType::q2_0: return {decode_coded<DType::q2_0>, nullptr};
    case DType::q1_0: return {decode_coded<DType::q1_0>, nullptr};
    default: return {nullptr, nullptr};
  }
}

void check_size(const char* doing, DType type, std::size_t elements, std::size_t bytes) {
  const std::size_t want = bytes_of(type, static_cast<Dim>(elements), doing);
  if (bytes != want)
    fail(doing, ": ", elements, " elements of ", name_of(type), " take ", want, " bytes, not ", bytes);
}

}  // namespace

std::size_t bytes_of(DType type, Dim n, std::string_view what) {
  const DTypeInfo info = info_of(type);
  if (n < 0 || n % static_cast<Dim>(info.block) != 0)
    fail(what, ": ", n, " elements are no whole blocks of ", info.name, ", which hold ", info.block, " each");
  std::size_t bytes;
  if (__builtin_mul_overflow(static_cast<std::size_t>(n) / info.block, info.bytes, &bytes))
    fail(what, ": ", n, " elements of ", info.name, " are larger than any machine can count");
  return bytes;
}

void dequantize(DType type, std::span<const std::byte> blocks, std::span<float> out) {
  check_size("dequantize", type, out.size(), blocks.size());
  const Byte* from = reinterpret_cast<const Byte*>(blocks.data());
  auto widen = [](auto v) { return static_cast<float>(v); };
  switch (type) {
    case DType::f32:
      if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
      return;
    case DType::f64: return each<double>(from, out, widen);
    case DType::bf16: return each<std::uint16_t>(from, out, from_bf16);
    case DType::f16: return each<std::uint16_t>(from, out, from_f16);
    case DType::i8: return each<std::int8_t>(from, out, widen);
    case DType::i16: return each<std::int16_t>(from, out, widen);
    case DType::i32: return each<std::int32_t>(from, out, widen);
    case DType::i64: return each<std::int64_t>(from, out, widen);
    default: break;
  }
  const DTypeInfo info = info_of(type);
  const Decode decode = codec_of(type).decode;
  for (std::size_t i = 0; i < out.size() / info.block; ++i)
    decode(from + i * info.bytes, out.data() + i * info.block);
}

void quantize(DType type, std::span<const float> in, std::span<std::byte> blocks) {
  check_size("quantize", type, in.size(), blocks.size());
  Byte* to = reinterpret_cast<Byte*>(blocks.data());
  switch (type) {
    case DType::f32:
      if (!in.empty()) std::memcpy(to, in.data(), in.size_bytes());
      return;
    case DType::f64: return each_out<double>(in, to, [](float x) { return double{x}; });
    case DType::bf16: return each_out<std::uint16_t>(in, to, to_bf16);
    case DType::f16: return each_out<std::uint16_t>(in, to, to_f16);
    default: break;
  }
  const DTypeInfo info = info_of(type);
  const Encode encode = codec_of(type).encode;
  if (!encode && is_block(type))
    fail("quantize: ", info.name, " is read, not made; choose q2_k, q3_k, iq4_xs or another type");
  if (!encode) fail("quantize: numbers are not stored as ", info.name, "; choose a float or a block format");
  for (const float x : in)
    if (!std::isfinite(x)) fail("quantize: a value is ", x, "; ", info.name, " holds finite numbers only");
  for (std::size_t i = 0; i < in.size() / info.block; ++i)
    encode(in.data() + i * info.block, to + i * info.bytes);
}

void mxfp4_from_pairs(std::span<const std::byte> pairs, std::span<const std::byte> scales,
                      std::span<std::byte> blocks) {
  const std::size_t n = scales.size();
  if (pairs.size() / 16 != n || pairs.size() % 16 != 0 || blocks.size() != n * size_of(DType::mxfp4))
    fail("mxfp4: ", pairs.size(), " bytes of numbers and ", n, " scales, into ", blocks.size(),
         " bytes; a scale belongs to 16 bytes and becomes a block of ", size_of(DType::mxfp4));
  for (std::size_t b = 0; b < n; ++b) {
    const std::byte* from = pairs.data() + b * 16;
    std::byte* to = blocks.data() + b * size_of(DType::mxfp4);
    const auto element = [&](std::size_t i) { return (from[i / 2] >> i % 2 * 4) & std::byte{15}; };
    to[0] = scales[b];
    for (std::size_t i = 0; i < 16; ++i) to[1 + i] = element(i) | element(i + 16) << 4;
  }
}

}  // namespace rapt
