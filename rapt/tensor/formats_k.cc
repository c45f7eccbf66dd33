// SPDX-License-Identifier: Apache-2.0
// The k formats: blocks of 256 elements in groups of 16 or 32, with a small integer scale (and minimum) for
// each group and a half for the block. Element e = 128 h + 32 s + l lies in half h (0, 1), slice s (0 … 3),
// lane l (0 … 31).
//
//   q2_k = byte scales[16], twos[64], half d, half dmin
//          group of 16: x = d (scale & 15) q - dmin (scale >> 4)
//   q3_k = bits[32], twos[64], six[12], half d
//          group of 16: x = d (six - 32) (q + 4 bit - 4)
//   q4_k = half d, half dmin, pairs[12], fours[128]
//          group of 32: x = d scale q - dmin minimum
//   q5_k = half d, half dmin, pairs[12], bits[32], fours[128]
//          group of 32: x = d scale (q + 16 bit) - dmin minimum
//   q6_k = low[128], high[64], int8 scales[16], half d
//          group of 16: x = d scale (q - 32)
//
//   twos:  byte 32 h + l holds slice s at bit 2 s
//   bits:  byte l holds element 32 k + l at bit k, k = e / 32
//   fours: byte 32 (k / 2) + l holds element 32 k + l: low four bits for even k, high for odd
//   low:   byte 64 h + 32 (s % 2) + l, low four bits for slices 0 and 1, high for 2 and 3;
//          high: byte 32 h + l, bit 2 s
//   six:   low four bits of scale j in byte j % 8 (low half for j < 8), its two high bits in byte 8 + j % 4
//          at bit 2 (j / 4)
//   pairs: scale j and minimum j, six bits each: j < 4 in bytes j and 4 + j; j >= 4 low four bits in byte
//          4 + j (scale in the low half), the two high bits on top of bytes j - 4 (scale) and j (minimum)
#include "rapt/tensor/formats_k.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "rapt/tensor/dtype.h"

namespace rapt {
namespace {

using Byte = unsigned char;

struct Pair {
  int scale, minimum;
};
Pair pair_of(const Byte* p, int j) {
  if (j < 4) return {p[j] & 63, p[j + 4] & 63};
  return {(p[j + 4] & 15) | p[j - 4] >> 6 << 4, p[j + 4] >> 4 | p[j] >> 6 << 4};
}
int six_of(const Byte* p, int j) {
  return (j < 8 ? p[j] & 15 : p[j - 8] >> 4) | (p[8 + j % 4] >> 2 * (j / 4) & 3) << 4;
}

}  // namespace

void decode_q2_k(const Byte* b, float* y) {
  const Byte *scales = b, *twos = b + 16;
  const float d = get_half(b + 80), dmin = get_half(b + 82);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(scales[g] & 15),
                minimum = dmin * static_cast<float>(scales[g] >> 4);
    const Byte* q = twos + 32 * (g / 8) + 16 * (g % 2);
    const int shift = 2 * (g / 2 % 4);
    for (int l = 0; l < 16; ++l) y[16 * g + l] = scale * static_cast<float>(q[l] >> shift & 3) - minimum;
  }
}

void decode_q3_k(const Byte* b, float* y) {
  const Byte *bits = b, *twos = b + 32, *six = b + 96;
  const float d = get_half(b + 108);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(six_of(six, g) - 32);
    const int lane = 16 * (g % 2), shift = 2 * (g / 2 % 4);
    for (int l = lane; l < lane + 16; ++l) {
      const int q = (twos[32 * (g / 8) + l] >> shift & 3) + 4 * (bits[l] >> g / 2 & 1) - 4;
      y[32 * (g / 2) + l] = scale * static_cast<float>(q);
    }
  }
}

void decode_q4_k(const Byte* b, float* y) {
  const float d = get_half(b), dmin = get_half(b + 2);
  for (int k = 0; k < 8; ++k) {
    const Pair p = pair_of(b + 4, k);
    const float scale = d * static_cast<float>(p.scale), minimum = dmin * static_cast<float>(p.minimum);
    const Byte* fours = b + 16 + 32 * (k / 2);
    for (int l = 0; l < 32; ++l)
      y[32 * k + l] = scale * static_cast<float>(fours[l] >> 4 * (k % 2) & 15) - minimum;
  }
}

void decode_q5_k(const Byte* b, float* y) {
  const float d = get_half(b), dmin = get_half(b + 2);
  const Byte* bits = b + 16;
  for (int k = 0; k < 8; ++k) {
    const Pair p = pair_of(b + 4, k);
    const float scale = d * static_cast<float>(p.scale), minimum = dmin * static_cast<float>(p.minimum);
    const Byte* fours = b + 48 + 32 * (k / 2);
    for (int l = 0; l < 32; ++l)
      y[32 * k + l] =
          scale * static_cast<float>((fours[l] >> 4 * (k % 2) & 15) + 16 * (bits[l] >> k & 1)) - minimum;
  }
}

void decode_q6_k(const Byte* b, float* y) {
  const Byte *low = b, *high = b + 128, *scales = b + 192;
  const float d = get_half(b + 208);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(static_cast<signed char>(scales[g]));
    const int h = g / 8, s = g / 2 % 4, lane = 16 * (g % 2);
    for (int l = lane; l < lane + 16; ++l) {
      const int q = (low[64 * h + 32 * (s % 2) + l] >> 4 * (s / 2) & 15) | (high[32 * h + l] >> 2 * s & 3)
                                                                               << 4;
      y[32 * (g / 2) + l] = scale * static_cast<float>(q - 32);
    }
  }
}

// From numbers to blocks. All five are one problem: x ≈ scale·q - minimum for each group, where scale and
// minimum are small integers times the block's d and dmin (q3_k and q6_k have no minimum but signed scales).
// Least squares, where an element counts the more the larger it is (weigh):
// first each group alone as if its scale were any number, then d, then the integers near it, then d again
// for the integers chosen. Errors and perplexity beside the reference's own quantizer: docs/formats.md.
namespace {

constexpr int kBlock = 256, kMostGroups = 16, kMostGroup = 32;

struct Shape {
  int group;  // elements
  int least, most;  // of q
  int scale_least, scale_most, minimum_most;  // of the integers; minimum_most 0: no minimum
  bool even;                                  // see weigh
  constexpr int groups() const { return kBlock / group; }
};
constexpr Shape kQ2{16, 0, 3, 0, 15, 15, false}, kQ3{16, -4, 3, -32, 31, 0, true},
    kQ4{32, 0, 15, 0, 63, 63, true}, kQ5{32, 0, 31, 0, 63, 63, true}, kQ6{16, -32, 31, -128, 127, 0, false};

float sum16(const float* x) {
  float four[4];
  for (int i = 0; i < 4; ++i) four[i] = (x[i] + x[i + 4]) + (x[i + 8] + x[i + 12]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

struct Line {
  float scale = 0, minimum = 0, error = 0;
};

// How much the squared error of each element of a group counts: by its size, and with `even` by the group's
// as well. So the errors are below the reference's both unweighted and weighted by x².
template <Shape k>
void weigh(const float* x, float* w) {
  float squares = 0;
  for (int i = 0; i < k.group; ++i) squares += x[i] * x[i];
  const float size = k.even ? std::sqrt(squares / static_cast<float>(k.group)) : 0;
  for (int i = 0; i < k.group; ++i) w[i] = size + std::fabs(x[i]);
}

// The best q for a line, and the squared error that stays. Adding 1.5·2^23 rounds to the nearest integer.
// Sixteen sums, so that the compiler may use vectors: encode_q4_k went from 180 to 103 ns an element.
template <Shape k>
float assign(const float* x, const float* w, float scale, float minimum, float* q) {
  constexpr float kRound = 12582912.0f;
  const float inverse = scale != 0 ? 1 / scale : 0, least = static_cast<float>(k.least),
              most = static_cast<float>(k.most);
  float errors[16] = {};
  for (int i = 0; i < k.group; i += 16)
    for (int j = 0; j < 16; ++j) {
      const float t = (x[i + j] + minimum) * inverse;
      // A NaN (0 · inf) goes to least.
      const float over = t > least ? t : least, clamped = over < most ? over : most;
      const float near = (clamped + kRound) - kRound;
      q[i + j] = near;
      const float e = x[i + j] - (scale * near - minimum);
      errors[j] += w[i + j] * (e * e);
    }
  return sum16(errors);
}

// The line through (q, x) by least squares, with a minimum that is not negative.
template <Shape k>
Line through(const float* x, const float* w, const float* q) {
  float sums[5][16] = {};
  for (int i = 0; i < k.group; i += 16)
    for (int j = 0; j < 16; ++j) {
      const float wq = w[i + j] * q[i + j];
      sums[0][j] += wq;
      sums[1][j] += wq * q[i + j];
      sums[2][j] += w[i + j] * x[i + j];
      sums[3][j] += wq * x[i + j];
      sums[4][j] += w[i + j];
    }
  const float sq = sum16(sums[0]), sqq = sum16(sums[1]), sx = sum16(sums[2]), sxq = sum16(sums[3]),
              n = sum16(sums[4]), determinant = n * sqq - sq * sq;
  if (k.minimum_most > 0 && determinant > 0) {
    const float scale = (n * sxq - sx * sq) / determinant, minimum = (scale * sq - sx) / n;
    if (scale > 0 && minimum > 0) return {scale, minimum};
  }
  return {sqq > 0 ? sxq / sqq : 0, 0};
}

// One group alone. The starts spread the extremes over a little less and a little more than the levels there
// are; each is then improved by fitting the line to its own rounding.
template <Shape k>
Line fit(const float* x, const float* w) {
  float least = 0, most = 0;
  for (int i = 0; i < k.group; ++i) least = std::min(least, x[i]), most = std::max(most, x[i]);
  float q[kMostGroup];
  Line best{0, 0, assign<k>(x, w, 0, 0, q)};
  auto start = [&](float scale, float minimum) {
    assign<k>(x, w, scale, minimum, q);
    const Line line = through<k>(x, w, q);
    const float error = assign<k>(x, w, line.scale, line.minimum, q);
    if (error < best.error) best = {line.scale, line.minimum, error};
  };
  const float levels = static_cast<float>(k.most - k.least);
  for (int step = -8; step <= 8; ++step) {
    if (k.minimum_most > 0) {
      const float scale = (most - least) / (levels + 0.1f * static_cast<float>(step));
      start(scale, -least);
      // Few levels: cutting off the tail can be better.
      if (k.most < 15 && least < 0) start(scale, -0.8f * least);
    } else {
      const float extreme = -least > most ? least : most,
                  over = (k.most < 15 ? 0.15f : 0.1f) * static_cast<float>(step);
      start(extreme / (static_cast<float>(k.least) + over), 0);
      if (k.most < 15) start(extreme / (static_cast<float>(k.most) + over), 0);
    }
  }
  return best;
}

struct Block {
  float d = 0, dmin = 0, error = 0;
  int scale[kMostGroups] = {}, minimum[kMostGroups] = {};
  float q[kBlock] = {};
};

float rounded_half(float x) {
  return std::isfinite(x) ? from_f16(to_f16(std::clamp(x, -65504.0f, 65504.0f))) : 0;
}

// The integers for a given d and dmin: for each group the best of those around its own line.
template <Shape k>
void choose(const float* x, const float* w, const Line* lines, Block& b) {
  b.error = 0;
  for (int g = 0; g < k.groups(); ++g) {
    const float *group = x + g * k.group, *weights = w + g * k.group;
    float q[kMostGroup], best = -1;
    auto near = [](float value, float unit, int least, int most) {
      return unit != 0 ? static_cast<int>(std::clamp(std::round(value / unit), static_cast<float>(least),
                                                     static_cast<float>(most)))
                       : 0;
    };
    auto consider = [&](int s, int m) {
      const float error =
          assign<k>(group, weights, b.d * static_cast<float>(s), b.dmin * static_cast<float>(m), q);
      if (best >= 0 && !(error < best)) return;
      best = error;
      b.scale[g] = s, b.minimum[g] = m;
      std::copy_n(q, k.group, b.q + g * k.group);
    };
    const int scale = near(lines[g].scale, b.d, k.scale_least, k.scale_most),
              minimum = near(lines[g].minimum, b.dmin, 0, k.minimum_most);
    for (int s = std::max(scale - 1, k.scale_least); s <= std::min(scale + 1, k.scale_most); ++s)
      for (int m = std::max(minimum - 1, 0); m <= std::min(minimum + 1, k.minimum_most); ++m) consider(s, m);
    // Halves so small are coarse: nothing can be the best that is left.
    if (b.d < 0x1p-14f) consider(0, 0);
    b.error += best;
  }
}

// d and dmin by least squares for the integers chosen: x ≈ d (scale q) - dmin minimum.
template <Shape k>
void refit(const float* x, const float* w, Block& b) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
  for (int i = 0; i < kBlock; ++i) {
    const int g = i / k.group;
    const double u = static_cast<double>(b.scale[g]) * b.q[i], v = -b.minimum[g];
    const double wu = w[i] * u, wv = w[i] * v;
    aa += wu * u, ab += wu * v, bb += wv * v, ax += wu * x[i], bx += wv * x[i];
  }
  const double determinant = aa * bb - ab * ab;
  if (k.minimum_most > 0 && determinant > 1e-6 * aa * bb) {
    b.d = rounded_half(static_cast<float>((ax * bb - bx * ab) / determinant));
    b.dmin = rounded_half(static_cast<float>((aa * bx - ab * ax) / determinant));
  } else if (aa > 0) {
    b.d = rounded_half(static_cast<float>((ax - b.dmin * ab) / aa));
  }
}

template <Shape k>
Block search(const float* x) {
  Line lines[kMostGroups];
  float weights[kBlock];
  // The largest; a scale keeps its sign (size: see extreme() in formats.cc).
  float scale = 0, size = 0, minimum = 0;
  for (int g = 0; g < k.groups(); ++g) {
    weigh<k>(x + g * k.group, weights + g * k.group);
    lines[g] = fit<k>(x + g * k.group, weights + g * k.group);
    if (const float s = std::fabs(lines[g].scale); s > size) scale = lines[g].scale, size = s;
    minimum = std::max(minimum, lines[g].minimum);
  }
  Block best;
  best.error = -1;
  const int ends[2] = {k.scale_most, k.scale_least};
  for (const int end : ends) {  // the largest scale at one end or, where scales have signs, at the other
    if (end == 0) continue;
    Block b;
    b.d = rounded_half(scale / static_cast<float>(end));
    b.dmin = k.minimum_most > 0 ? rounded_half(minimum / static_cast<float>(k.minimum_most)) : 0;
    for (int round = 0; round < 3; ++round) {
      choose<k>(x, weights, lines, b);
      if (best.error < 0 || b.error < best.error) best = b;
      refit<k>(x, weights, b);
    }
  }
  return best;
}

// Element e of a block as the number that is stored: 0 … levels.
int stored(const Shape& k, const Block& b, int e) { return static_cast<int>(b.q[e]) - k.least; }

void put_twos(const Shape& k, const Block& b, Byte* twos) {
  for (int j = 0; j < 64; ++j) {
    int byte = 0;
    for (int s = 0; s < 4; ++s) byte |= (stored(k, b, 128 * (j / 32) + 32 * s + j % 32) & 3) << 2 * s;
    twos[j] = static_cast<Byte>(byte);
  }
}
void put_fours(const Shape& k, const Block& b, Byte* fours) {
  for (int j = 0; j < 128; ++j)
    fours[j] = static_cast<Byte>((stored(k, b, 64 * (j / 32) + j % 32) & 15) |
                                 (stored(k, b, 64 * (j / 32) + 32 + j % 32) & 15) << 4);
}
void put_bits(const Shape& k, const Block& b, int bit, Byte* bits) {
  for (int l = 0; l < 32; ++l) {
    int byte = 0;
    for (int j = 0; j < 8; ++j) byte |= (stored(k, b, 32 * j + l) >> bit & 1) << j;
    bits[l] = static_cast<Byte>(byte);
  }
}
void put_pairs(const Block& b, Byte* p) {
  for (int j = 0; j < 4; ++j) {
    p[j] = static_cast<Byte>(b.scale[j] | b.scale[j + 4] >> 4 << 6);
    p[j + 4] = static_cast<Byte>(b.minimum[j] | b.minimum[j + 4] >> 4 << 6);
    p[j + 8] = static_cast<Byte>((b.scale[j + 4] & 15) | (b.minimum[j + 4] & 15) << 4);
  }
}

}  // namespace

void encode_q2_k(const float* x, Byte* b) {
  const Block block = search<kQ2>(x);
  for (int g = 0; g < 16; ++g) b[g] = static_cast<Byte>(block.scale[g] | block.minimum[g] << 4);
  put_twos(kQ2, block, b + 16);
  put_half(b + 80, block.d);
  put_half(b + 82, block.dmin);
}

void encode_q3_k(const float* x, Byte* b) {
  const Block block = search<kQ3>(x);
  put_bits(kQ3, block, 2, b);
  put_twos(kQ3, block, b + 32);
  for (int j = 0; j < 12; ++j) b[96 + j] = 0;
  for (int j = 0; j < 16; ++j) {
    const int six = block.scale[j] + 32;
    b[96 + j % 8] = static_cast<Byte>(b[96 + j % 8] | (six & 15) << (j < 8 ? 0 : 4));
    b[104 + j % 4] = static_cast<Byte>(b[104 + j % 4] | six >> 4 << 2 * (j / 4));
  }
  put_half(b + 108, block.d);
}

void encode_q4_k(const float* x, Byte* b) {
  const Block block = search<kQ4>(x);
  put_half(b, block.d);
  put_half(b + 2, block.dmin);
  put_pairs(block, b + 4);
  put_fours(kQ4, block, b + 16);
}

void encode_q5_k(const float* x, Byte* b) {
  const Block block = search<kQ5>(x);
  put_half(b, block.d);
  put_half(b + 2, block.dmin);
  put_pairs(block, b + 4);
  put_bits(kQ5, block, 4, b + 16);
  put_fours(kQ5, block, b + 48);
}

void encode_q6_k(const float* x, Byte* b) {
  const Block block = search<kQ6>(x);
  for (int j = 0; j < 128; ++j) {  // byte 64 h + 32 t + l: slices t and t + 2
    const int e = 128 * (j / 64) + 32 * (j / 32 % 2) + j % 32;
    b[j] = static_cast<Byte>((stored(kQ6, block, e) & 15) | (stored(kQ6, block, e + 64) & 15) << 4);
  }
  for (int j = 0; j < 64; ++j) {
    int byte = 0;
    for (int s = 0; s < 4; ++s) byte |= stored(kQ6, block, 128 * (j / 32) + 32 * s + j % 32) >> 4 << 2 * s;
    b[128 + j] = static_cast<Byte>(byte);
  }
  for (int g = 0; g < 16; ++g) b[192 + g] = static_cast<Byte>(block.scale[g] & 0xFF);
  put_half(b + 208, block.d);
}

}  // namespace rapt
