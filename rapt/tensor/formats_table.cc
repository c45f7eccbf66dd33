// SPDX-License-Identifier: Apache-2.0
// Blocks of places in tables. Elements in order unless said; half = f16, little-endian. The lists of lattice
// points (grids) are in grids.h.
//
//   mxfp4   = byte e, nibbles[16]                  x = number 2^(e - 128); nibbles as in formats.cc
//   nvfp4   = byte s[4], (nibbles[8]){4}           16 elements each: x = number ue4m3(s) / 2, and the whole
//             tensor times a scale beside it; nibbles: low ones first, then high ones
//   iq4_nl  = half d, nibbles[16]                  x = number d
//   iq4_xs  = half d, u16 high, byte low[4], (nibbles[16]){8}
//             32 each: x = number d (nibble n of low + 16 (bits 2 n of high) - 32)
//   iq3_s   = half d, qs[64], qh[8], signs[32], sc[4]
//             4 each: point of 512 named by a byte of qs and a bit of qh; 32 each: d (1 + 2 nibble of sc)
//   iq3_xxs = half d, qs[64], u32 w[8]             4 each: point of 256; 32 each: d (1/2 + (w >> 28)) / 2,
//             four times seven bits of w, from the lowest, are signs of 8 elements; the eighth makes their
//             number even
//   iq2_s   = half d, qs[32], signs[32], qh[8], sc[8]
//             8 each: point of 1024 named by a byte of qs and two bits of qh; 16 each:
//             d (1/2 + nibble of sc) / 4
//   iq2_xs  = half d, u16 qs[32], sc[8]            8 each: point of 512 in 9 bits, seven signs; d as above
//   iq2_xxs = half d, (byte q[4], u32 w){8}        8 each: point of 256; w as in iq3_xxs, d (1/2 + …) / 4
//   iq1_s   = half d, qs[32], u16 qh[8]            8 each: point of 2048 named by a byte and three bits of
//             qh; 32 each: d (2 s + 1) (point ± 1/8), s and the sign in the highest four bits of qh
//   iq1_m   = qs[32], qh[16], u16 sc[4]            as iq1_s, with a sign for 8 (bit 3 of a nibble of qh),
//             three bits of scale for 16; d is an f16 in the highest nibbles of sc
//   tq1_0   = qs[48], qh[4], half d                five numbers of three values to a byte (four in qh):
//             x = (q - 1) d; the first 32 bytes have 5 x 32 elements, the next 16 5 x 16, qh 4 x 4
//   tq2_0   = qs[64], half d                       x = (q - 1) d; byte 32 h + l holds slice s at bit 2 s
//   q2_0    = half d, qs[16]                       64 elements, four to a byte: x = (q - 1) d
//   q1_0    = half d, qs[16]                       128 elements, eight to a byte: d where a bit is one, or -d
#include "rapt/tensor/formats_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "rapt/tensor/formats_k.h"
#include "rapt/tensor/grids.h"
#include "rapt/tensor/panel_kind.h"

namespace rapt {
namespace {

using Byte = unsigned char;

unsigned u16_at(const Byte* p) { return p[0] | static_cast<unsigned>(p[1]) << 8; }
std::uint32_t u32_at(const Byte* p) { return u16_at(p) | std::uint32_t{u16_at(p + 2)} << 16; }
std::uint16_t half_at(const Byte* p) { return static_cast<std::uint16_t>(u16_at(p)); }
int nibble(const Byte* p, int i) { return p[i / 2] >> i % 2 * 4 & 15; }

// A grid with a byte for each element, the first lowest: its digit, 0 … base - 1.
std::vector<std::uint64_t> points_of(const char* digits, unsigned base, int width) {
  std::vector<std::uint64_t> out;
  for (unsigned n = 0; digits[n / 4] != 0; ++n) {
    const char c = digits[n / 4];
    if (((c <= '9' ? c - '0' : c - 'a' + 10) >> n % 4 & 1) == 0) continue;
    std::uint64_t point = 0;
    unsigned rest = n;
    for (int i = 0; i < width; ++i, rest /= base) point |= std::uint64_t{rest % base} << 8 * i;
    out.push_back(point);
  }
  return out;
}
struct Grids {
  std::vector<std::uint64_t> g256 = points_of(kGrid256, 3, 8), g512 = points_of(kGrid512, 3, 8),
                             g1024 = points_of(kGrid1024, 3, 8), g2048 = points_of(kGrid2048, 3, 8),
                             g256x4 = points_of(kGrid256x4, 8, 4), g512x4 = points_of(kGrid512x4, 8, 4);
};
const Grids& grids() {
  static const Grids all;
  return all;
}

// Elements of a point with their signs: bit i of `signs` says that element i is negative, whose place in the
// table lies `apart` further.
void put_point(std::uint64_t point, unsigned signs, int width, int apart, std::uint8_t* code) {
  for (int i = 0; i < width; ++i)
    code[i] =
        static_cast<std::uint8_t>((point >> 8 * i & 7) + (signs >> i & 1) * static_cast<unsigned>(apart));
}
unsigned even_signs(unsigned seven) { return seven | (static_cast<unsigned>(std::popcount(seven)) & 1) << 7; }
// A scale d (1/2 + s) and so on, as odd number times unit_of.
std::int8_t odd(unsigned s) { return static_cast<std::int8_t>(2 * s + 1); }

void put_nibbles(const Byte* p, int bytes, std::uint8_t* code) {
  for (int i = 0; i < bytes; ++i) code[i] = p[i] & 15, code[i + bytes] = p[i] >> 4;
}

// 2^(e - 128) as bf16, below 2^-126 without a leading one.
std::uint16_t power_of_two(int e) { return static_cast<std::uint16_t>(e > 1 ? (e - 1) << 7 : 0x20 << e); }

void take_mxfp4(const Byte* b, CodedBlock& out) {
  out.half[0] = power_of_two(b[0]);
  put_nibbles(b + 1, 16, out.code);
}
void take_nvfp4(const Byte* b, CodedBlock& out) {
  for (int s = 0; s < 4; ++s) {
    // Four bits of exponent and three of fraction, halved: all of it fits an f16. The highest bit is no sign.
    const int x = b[s] & 0x7F, exponent = x >> 3, fraction = x & 7;
    const float scale = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -10)
                                      : std::ldexp(static_cast<float>(8 + fraction), exponent - 11);
    out.half[s] = b[s] == 0x7F ? 0 : to_f16(scale);
    put_nibbles(b + 4 + 8 * s, 8, out.code + 16 * s);
  }
}
void take_iq4_nl(const Byte* b, CodedBlock& out) {
  out.half[0] = half_at(b);
  put_nibbles(b + 2, 16, out.code);
}
void take_iq4_xs(const Byte* b, CodedBlock& out) {
  out.d = half_at(b);
  for (int n = 0; n < 8; ++n) {
    out.scale[n] =
        static_cast<std::int8_t>(nibble(b + 4, n) + static_cast<int>(u16_at(b + 2) >> 2 * n & 3) * 16 - 32);
    put_nibbles(b + 8 + 16 * n, 16, out.code + 32 * n);
  }
}
void take_iq3_s(const Byte* b, CodedBlock& out) {
  const Byte *qs = b + 2, *qh = b + 66, *signs = b + 74, *sc = b + 106;
  out.d = half_at(b);
  for (int i = 0; i < 8; ++i) out.scale[i] = odd(static_cast<unsigned>(nibble(sc, i)));
  for (int i = 0; i < 64; ++i) {
    const unsigned at = qs[i] | static_cast<unsigned>(qh[i / 8] >> i % 8 & 1) << 8;
    put_point(grids().g512x4[at], static_cast<unsigned>(nibble(signs, i)), 4, 8, out.code + 4 * i);
  }
}
void take_iq3_xxs(const Byte* b, CodedBlock& out) {
  out.d = half_at(b);
  for (int n = 0; n < 8; ++n) {
    const std::uint32_t w = u32_at(b + 66 + 4 * n);
    out.scale[n] = odd(w >> 28);
    for (int i = 0; i < 8; ++i)
      put_point(grids().g256x4[b[2 + 8 * n + i]], even_signs(w >> 7 * (i / 2) & 127) >> i % 2 * 4, 4, 8,
                out.code + 32 * n + 4 * i);
  }
}
void take_iq2_s(const Byte* b, CodedBlock& out) {
  const Byte *qs = b + 2, *signs = b + 34, *qh = b + 66, *sc = b + 74;
  out.d = half_at(b);
  for (int i = 0; i < 16; ++i) out.scale[i] = odd(static_cast<unsigned>(nibble(sc, i)));
  for (int i = 0; i < 32; ++i)
    put_point(grids().g1024[qs[i] | static_cast<unsigned>(qh[i / 4] >> i % 4 * 2 & 3) << 8], signs[i], 8, 4,
              out.code + 8 * i);
}
void take_iq2_xs(const Byte* b, CodedBlock& out) {
  out.d = half_at(b);
  for (int i = 0; i < 16; ++i) out.scale[i] = odd(static_cast<unsigned>(nibble(b + 66, i)));
  for (int i = 0; i < 32; ++i) {
    const unsigned q = u16_at(b + 2 + 2 * i);
    put_point(grids().g512[q & 511], even_signs(q >> 9), 8, 4, out.code + 8 * i);
  }
}
void take_iq2_xxs(const Byte* b, CodedBlock& out) {
  out.d = half_at(b);
  for (int n = 0; n < 8; ++n) {
    const Byte* q = b + 2 + 8 * n;
    const std::uint32_t w = u32_at(q + 4);
    out.scale[n] = odd(w >> 28);
    for (int i = 0; i < 4; ++i)
      put_point(grids().g256[q[i]], even_signs(w >> 7 * i & 127), 8, 4, out.code + 32 * n + 8 * i);
  }
}
void take_iq1_s(const Byte* b, CodedBlock& out) {
  out.d = half_at(b);
  for (int n = 0; n < 8; ++n) {
    const unsigned h = u16_at(b + 34 + 2 * n);
    out.scale[n] = odd(h >> 12 & 7);
    for (int i = 0; i < 4; ++i)
      put_point(grids().g2048[b[2 + 4 * n + i] | (h >> 3 * i & 7) << 8], h >> 15 ? 255 : 0, 8, 4,
                out.code + 32 * n + 8 * i);
  }
}
void take_iq1_m(const Byte* b, CodedBlock& out) {
  unsigned d = 0;
  for (int i = 0; i < 4; ++i) d |= (u16_at(b + 48 + 2 * i) >> 12) << 4 * i;
  out.d = static_cast<std::uint16_t>(d);
  for (int i = 0; i < 16; ++i) out.scale[i] = odd(u16_at(b + 48 + i / 4 * 2) >> i % 4 * 3 & 7);
  for (int i = 0; i < 32; ++i) {
    const auto high = static_cast<unsigned>(nibble(b + 32, i));
    put_point(grids().g2048[b[i] | (high & 7) << 8], high >> 3 ? 255 : 0, 8, 4, out.code + 8 * i);
  }
}

// One scale for all of a block whose numbers are q - 1, in panels of q4_0: q + 7.
void put_scale(const Byte* d, int runs, CodedBlock& out) { std::fill_n(out.half, runs, half_at(d)); }

void take_tq1_0(const Byte* b, CodedBlock& out) {
  put_scale(b + 52, 8, out);
  std::uint8_t* code = out.code;
  // A byte is a fraction of 256 in base 3: its digits are what three times it carries over.
  auto trits = [&](const Byte* from, int bytes, int count) {
    for (unsigned n = 0, power = 1; n < static_cast<unsigned>(count); ++n, power *= 3)
      for (int i = 0; i < bytes; ++i)
        *code++ = static_cast<std::uint8_t>(((from[i] * power & 255) * 3 >> 8) + 7);
  };
  trits(b, 32, 5);
  trits(b + 32, 16, 5);
  trits(b + 48, 4, 4);
}
void take_tq2_0(const Byte* b, CodedBlock& out) {
  put_scale(b + 64, 8, out);
  for (int i = 0; i < 256; ++i)
    out.code[i] = static_cast<std::uint8_t>((b[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3) + 7);
}
void take_q2_0(const Byte* b, CodedBlock& out) {
  put_scale(b, 2, out);
  for (int i = 0; i < 64; ++i) out.code[i] = static_cast<std::uint8_t>((b[2 + i / 4] >> i % 4 * 2 & 3) + 7);
}
void take_q1_0(const Byte* b, CodedBlock& out) {
  put_scale(b, 4, out);
  for (int i = 0; i < 128; ++i) out.code[i] = static_cast<std::uint8_t>((b[2 + i / 8] >> i % 8 & 1) * 2 + 7);
}

}  // namespace

TakeApart take_apart_of(DType format) {
  switch (format) {
    case DType::mxfp4: return take_mxfp4;
    case DType::nvfp4: return take_nvfp4;
    case DType::iq4_nl: return take_iq4_nl;
    case DType::iq4_xs: return take_iq4_xs;
    case DType::iq3_s: return take_iq3_s;
    case DType::iq3_xxs: return take_iq3_xxs;
    case DType::iq2_s: return take_iq2_s;
    case DType::iq2_xs: return take_iq2_xs;
    case DType::iq2_xxs: return take_iq2_xxs;
    case DType::iq1_m: return take_iq1_m;
    case DType::iq1_s: return take_iq1_s;
    case DType::tq2_0: return take_tq2_0;
    case DType::tq1_0: return take_tq1_0;
    case DType::q2_0: return take_q2_0;
    case DType::q1_0: return take_q1_0;
    default: return nullptr;
  }
}

// Every product of a scale, a unit and a number is exact in f32, so their order does not matter.
void decode_coded(DType format, const Byte* block, float* y) {
  const PanelKind k = panel_kind(format);
  const Numbers numbers = numbers_of(format);
  CodedBlock b;
  take_apart_of(format)(block, b);
  const float d = from_f16(b.d) * unit_of(format);
  for (int g = 0; g < k.runs * k.groups(); ++g) {
    const float scale = k.two_level    ? d * static_cast<float>(b.scale[g])
                        : k.bf16_scale ? from_bf16(b.half[g])
                                       : from_f16(b.half[g]);
    for (int i = g * k.depth; i < (g + 1) * k.depth; ++i)
      y[i] = scale * static_cast<float>(k.table ? numbers.at[b.code[i]] : b.code[i] - k.zero);
  }
}

// --------------------------------------------------------------------------------------- numbers to blocks
// The largest power of two that the largest magnitude reaches goes to 8 of the table; then the nearest
// number, the first of two equally near.
void encode_mxfp4(const float* x, Byte* b) {
  constexpr Numbers kNumbers = numbers_of(DType::mxfp4);
  float most = 0;
  for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(x[i]));
  b[0] = most > 0 ? static_cast<Byte>(std::max(std::ilogb(most) - 2 + 127, 0)) : Byte{0};
  const float d = from_bf16(power_of_two(b[0]));
  auto nearest = [&](float v) {
    int best = 0;
    float error = std::fabs(v);
    for (int n = 1; n < 16; ++n)
      if (const float e = std::fabs(static_cast<float>(kNumbers.at[n]) * d - v); e < error)
        best = n, error = e;
    return best;
  };
  for (int i = 0; i < 16; ++i) b[1 + i] = static_cast<Byte>(nearest(x[i]) | nearest(x[i + 16]) << 4);
}

namespace {

constexpr Numbers kIq4 = numbers_of(DType::iq4_nl);

// The place of the nearest number: how many of the middles between neighbours lie below.
int place_of(float v) {
  int n = 0;
  for (int i = 0; i < 15; ++i) n += v > 0.5f * static_cast<float>(kIq4.at[i] + kIq4.at[i + 1]);
  return n;
}

// 32 elements with a scale: errors are weighted by x², as large weights matter more.
struct Fit {
  float scale = 0;
  float saved = 0;  // how much less than that of zeros the weighted error is
};
Fit through(const float* x, float inverse) {
  float qx = 0, qq = 0;
  for (int i = 0; i < 32; ++i) {
    const float q = static_cast<float>(kIq4.at[place_of(x[i] * inverse)]), w = x[i] * x[i];
    qx += w * q * x[i];
    qq += w * q * q;
  }
  return qq > 0 ? Fit{qx / qq, qx * qx / qq} : Fit{};
}
// The largest magnitude at either end of the table, or a little inside or beyond it.
Fit fit(const float* x) {
  float extreme = 0, size = 0;
  for (int i = 0; i < 32; ++i)
    if (const float s = std::fabs(x[i]); s > size) extreme = x[i], size = s;
  Fit best;
  if (!(size > 1e-30f)) return best;
  for (const int end : {-127, 113})  // of kIq4
    for (int step = -7; step <= 7; ++step)
      if (const Fit f = through(x, static_cast<float>(end + step) / extreme); f.saved > best.saved) best = f;
  if (best.scale != 0)
    if (const Fit f = through(x, 1 / best.scale); f.saved > best.saved) best = f;
  return best;
}

// The weighted error with a given scale; places are written where asked for.
float error_of(const float* x, float scale, std::uint8_t* places) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  float error = 0;
  for (int i = 0; i < 32; ++i) {
    const int place = place_of(x[i] * inverse);
    const float e = x[i] - scale * static_cast<float>(kIq4.at[place]);
    error += x[i] * x[i] * e * e;
    places[i] = static_cast<std::uint8_t>(place);
  }
  return error;
}

void put_places(const std::uint8_t* places, Byte* b) {
  for (int i = 0; i < 16; ++i) b[i] = static_cast<Byte>(places[i] | places[i + 16] << 4);
}
float near_half(float x) { return from_f16(to_f16(std::clamp(x, -65504.0f, 65504.0f))); }

// Whether zeros are nearer to 32 numbers: a half so small is coarse.
bool zeros_are_nearer(const float* x, float scale, const std::uint8_t* places) {
  float error = 0, power = 0;
  for (int i = 0; i < 32; ++i) {
    const float e = x[i] - scale * static_cast<float>(kIq4.at[places[i]]);
    error += e * e;
    power += x[i] * x[i];
  }
  return error > power;
}

}  // namespace

void encode_iq4_nl(const float* x, Byte* b) {
  float d = near_half(fit(x).scale);
  std::uint8_t places[32];
  error_of(x, d, places);
  if (zeros_are_nearer(x, d, places)) d = 0;
  put_half(b, d);
  put_places(places, b + 2);
}

// As the k formats are made: every 32 alone, then d, then the whole numbers near it, then d again.
void encode_iq4_xs(const float* x, Byte* b) {
  float scales[8], most = 0, size = 0;
  for (int g = 0; g < 8; ++g) {
    scales[g] = fit(x + 32 * g).scale;
    if (const float s = std::fabs(scales[g]); s > size) most = scales[g], size = s;
  }
  struct Choice {
    float d = 0, error = -1;
    int whole[8] = {};
    std::uint8_t places[256];
  } best;
  for (const float end : {-32.0f, 31.0f}) {
    Choice c;
    c.d = near_half(most / end);
    for (int round = 0; round < 2; ++round) {
      c.error = 0;
      double ux = 0, uu = 0;
      for (int g = 0; g < 8; ++g) {
        const float* group = x + 32 * g;
        const float ratio = c.d != 0 ? scales[g] / c.d : 0;
        const int near = static_cast<int>(std::clamp(std::round(ratio), -32.0f, 31.0f));
        float least = -1;
        std::uint8_t places[32];
        auto consider = [&](int s) {
          const float error = error_of(group, c.d * static_cast<float>(s), places);
          if (least >= 0 && !(error < least)) return;
          least = error;
          c.whole[g] = s;
          std::copy_n(places, 32, c.places + 32 * g);
        };
        for (int s = std::max(near - 1, -32); s <= std::min(near + 1, 31); ++s) consider(s);
        if (zeros_are_nearer(group, c.d * static_cast<float>(c.whole[g]), c.places + 32 * g)) c.whole[g] = 0;
        c.error += least;
        for (int i = 0; i < 32; ++i) {
          const double u = c.whole[g] * kIq4.at[c.places[32 * g + i]], w = double{group[i]} * group[i];
          ux += w * u * group[i];
          uu += w * u * u;
        }
      }
      if (best.error < 0 || c.error < best.error) best = c;
      if (uu > 0) c.d = near_half(static_cast<float>(ux / uu));
    }
  }
  put_half(b, best.d);
  unsigned high = 0;
  for (int i = 4; i < 8; ++i) b[i] = 0;
  for (int g = 0; g < 8; ++g) {
    const auto s = static_cast<unsigned>(best.whole[g] + 32);
    high |= (s >> 4) << 2 * g;
    b[4 + g / 2] = static_cast<Byte>(b[4 + g / 2] | (s & 15) << g % 2 * 4);
    put_places(best.places + 32 * g, b + 8 + 16 * g);
  }
  b[2] = static_cast<Byte>(high & 255);
  b[3] = static_cast<Byte>(high >> 8);
}

}  // namespace rapt
