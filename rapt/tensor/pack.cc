// SPDX-License-Identifier: Apache-2.0
// From blocks as files hold them to panels (layout: panel_kind.h) and back. A block is first taken apart
// into whole numbers and scales; what the bits of a file's block mean is also written down, as numbers, in
// formats.cc: the tests hold the two against each other. Formats of formats_table.h are taken apart there.
#include "rapt/tensor/pack.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rapt/base/checked.h"
#include "rapt/tensor/formats_table.h"
#include "rapt/tensor/panel_kind.h"

namespace rapt {
namespace {

std::uint16_t u16_at(const std::uint8_t* p) { return static_cast<std::uint16_t>(p[0] | p[1] << 8); }
std::uint8_t u8(int x) { return static_cast<std::uint8_t>(x); }
std::int8_t i8(int x) { return static_cast<std::int8_t>(x); }

std::uint8_t* bytes_at(const Weight& w) { return reinterpret_cast<std::uint8_t*>(w.data.get()); }

// --------------------------------------------------------------------------- a block of a file, taken apart
// A block of 32 or 256 elements, by runs of 32. Its loops are over bytes, with every shift a constant: the
// compiler makes vectors of them.
template <PanelKind k>
struct Parts {
  static constexpr int kCells = k.bits == 8 ? 32 : 16;
  std::uint16_t d = 0, m = 0;                // f16; m: the minimum, or what the minima are multiplied by
  std::uint16_t half[8] = {};                // one-level formats with several scales in a block, or a bf16
  std::int8_t scale[16] = {}, low[16] = {};  // two-level formats: per group of `depth`
  // As a panel has them: 8 bits, or element i in the low nibble and i + 16 in the high one.
  std::uint8_t cells[k.blocks()][kCells];
  std::uint32_t fifth[k.blocks()];           // 5 bits: bit i is that of element i
};

// Eight scales and minima of 6 bits in 12 bytes: the first four of each whole, the last four with their
// upper bits in the first.
void six_bit_pairs(std::int8_t* scale, std::int8_t* low, const std::uint8_t* s) {
  for (int i = 0; i < 4; ++i) {
    scale[i] = i8(s[i] & 63);
    low[i] = i8(s[i + 4] & 63);
    scale[i + 4] = i8((s[i + 8] & 15) | s[i] >> 6 << 4);
    low[i + 4] = i8(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
  }
}

// Bit `run` of 32 bytes, as one word.
std::uint32_t bits_of_run(const std::uint8_t* bytes, int run) {
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes + i * 8, 8);
    eight = eight >> run & 0x0101010101010101;
    // Bit 8i of the word to bit i of its top byte.
    out |= static_cast<std::uint32_t>(eight * 0x0102040810204080 >> 56) << i * 8;
  }
  return out;
}

// The cells of a run of 4-bit numbers whose element i is number(i).
template <class F>
void nibbles(std::uint8_t* cells, const F& number) {
  std::uint8_t out[16];
  for (int i = 0; i < 16; ++i) out[i] = u8(number(i) | number(i + 16) << 4);
  std::memcpy(cells, out, 16);
}

// Two runs to 32 bytes: one in the low nibbles, the next in the high ones.
template <int run>
void k_nibbles(std::uint8_t* cells, const std::uint8_t* qs) {
  nibbles(cells, [&](int i) { return qs[run / 2 * 32 + i] >> run % 2 * 4 & 15; });
}

// f with the numbers 0 to n - 1 as constants.
template <int n, class F>
void each_run(const F& f) {
  [&]<int... run>(std::integer_sequence<int, run...>) {
    (f.template operator()<run>(), ...);
  }(std::make_integer_sequence<int, n>());
}

template <DType format, PanelKind k = panel_kind(format)>
void take_apart(const std::uint8_t* p, Parts<k>& b) {
  if (const TakeApart take = take_apart_of(format)) {
    CodedBlock coded;
    take(p, coded);
    b.d = coded.d;
    std::memcpy(b.half, coded.half, sizeof b.half);
    std::memcpy(b.scale, coded.scale, sizeof b.scale);
    for (int n = 0; n < k.blocks(); ++n) nibbles(b.cells[n], [&](int i) { return coded.code[n * 32 + i]; });
    return;
  }
  // d qs[16]: elements 0-15 in the low nibbles, 16-31 in the high ones
  if constexpr (format == DType::q4_0) {
    b.d = u16_at(p);
    std::memcpy(b.cells, p + 2, 16);
  } else if constexpr (format == DType::q4_1) {  // d m qs[16]
    b.d = u16_at(p);
    b.m = u16_at(p + 2);
    std::memcpy(b.cells, p + 4, 16);
  } else if constexpr (format == DType::q5_0) {  // d fifth bits[4] qs[16]
    b.d = u16_at(p);
    std::memcpy(b.fifth, p + 2, 4);
    std::memcpy(b.cells, p + 6, 16);
  } else if constexpr (format == DType::q5_1) {  // d m fifth bits[4] qs[16]
    b.d = u16_at(p);
    b.m = u16_at(p + 2);
    std::memcpy(b.fifth, p + 4, 4);
    std::memcpy(b.cells, p + 8, 16);
  } else if constexpr (format == DType::q8_0) {  // d q[32], signed
    b.d = u16_at(p);
    for (int i = 0; i < 32; ++i) b.cells[0][i] = p[2 + i] ^ 128;
  } else if constexpr (format == DType::q2_k) {
    // Scale and minimum nibbles [16], four runs of 32 to 32 bytes [64], d dmin.
    b.d = u16_at(p + 80);
    b.m = u16_at(p + 82);
    for (int i = 0; i < 16; ++i) {
      b.scale[i] = i8(p[i] & 15);
      b.low[i] = i8(p[i] >> 4);
    }
    each_run<8>([&]<int run>() {
      nibbles(b.cells[run], [&](int i) { return p[16 + run / 4 * 32 + i] >> run % 4 * 2 & 3; });
    });
  } else if constexpr (format == DType::q3_k) {
    // Third bits [32] (bit r of byte i is for run r), two bits as above [64], scales [12], d.
    b.d = u16_at(p + 108);
    for (int i = 0; i < 16; ++i)  // 6 bits, less 32: four in a nibble of bytes 0-7, two in bytes 8-11
      b.scale[i] = i8((p[96 + i % 8] >> i / 8 * 4 & 15) + (p[104 + i % 4] >> i / 4 * 2 & 3) * 16 - 32);
    each_run<8>([&]<int run>() {
      nibbles(b.cells[run],
              [&](int i) { return (p[32 + run / 4 * 32 + i] >> run % 4 * 2 & 3) | (p[i] >> run & 1) << 2; });
    });
  } else if constexpr (format == DType::q4_k) {  // d dmin scales[12] qs[128]
    b.d = u16_at(p);
    b.m = u16_at(p + 2);
    six_bit_pairs(b.scale, b.low, p + 4);
    each_run<8>([&]<int run>() { k_nibbles<run>(b.cells[run], p + 16); });
  } else if constexpr (format == DType::q5_k) {
    // d dmin scales[12] fifth bits[32] (bit r of byte i is for run r) qs[128]
    b.d = u16_at(p);
    b.m = u16_at(p + 2);
    six_bit_pairs(b.scale, b.low, p + 4);
    each_run<8>([&]<int run>() {
      k_nibbles<run>(b.cells[run], p + 48);
      b.fifth[run] = bits_of_run(p + 16, run);
    });
  } else if constexpr (format == DType::q6_k) {
    // Per 128: four bits [64] (runs 0 1 low, 2 3 high), two bits [32] (four runs to 32 bytes); scales
    // i8[16], d.
    b.d = u16_at(p + 208);
    std::memcpy(b.scale, p + 192, 16);
    each_run<8>([&]<int all>() {
      constexpr int half = all / 4, run = all % 4;
      std::uint8_t out[32];
      for (int i = 0; i < 32; ++i)
        out[i] = u8((p[half * 64 + run % 2 * 32 + i] >> run / 2 * 4 & 15) |
                    (p[128 + half * 32 + i] >> run * 2 & 3) << 4);
      std::memcpy(b.cells[all], out, 32);
    });
  }
}

// ------------------------------------------------------------------------------------- 32 rows side by side
// u32[32][4] as u32[4][32].
void turn(const std::uint8_t (*from)[16], std::uint8_t* to) {
  using Four = std::uint32_t __attribute__((vector_size(16)));
  for (int r = 0; r < 32; r += 4) {
    Four a, b, c, d;
    std::memcpy(&a, from[r], 16);
    std::memcpy(&b, from[r + 1], 16);
    std::memcpy(&c, from[r + 2], 16);
    std::memcpy(&d, from[r + 3], 16);
    const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7),
               cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const Four lines[4] = {
        __builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
        __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5), __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7)};
    for (int j = 0; j < 4; ++j) std::memcpy(to + j * 128 + r * 4, &lines[j], 16);
  }
}

// One block of each of up to 32 rows, which lie `apart` bytes from each other: a head and its blocks. Lanes
// without a row become zero.
template <DType format, PanelKind k = panel_kind(format)>
void pack_column(const std::uint8_t* from, std::size_t apart, int rows, std::uint8_t* to) {
  constexpr int kHalves = k.bits == 8 ? 2 : 1;
  std::uint8_t cells[k.blocks()][kHalves][32][16];
  std::uint32_t fifth[k.bits == 5 ? k.blocks() : 1][32];
  if (rows < 32)
    std::memset(cells, 0, sizeof cells), std::memset(fifth, 0, sizeof fifth), std::memset(to, 0, k.stride());
  Parts<k> b;
  const bool coded = take_apart_of(format) != nullptr;
  const auto put_u16 = [](std::uint8_t* p, std::uint16_t x) { std::memcpy(p, &x, 2); };
  for (int r = 0; r < rows; ++r, from += apart) {
    take_apart<format>(from, b);
    if (k.two_level) {
      put_u16(to + r * 2, b.d);
      if (k.minimum) put_u16(to + 64 + r * 2, b.m);
    }
    for (int n = 0; n < k.blocks(); ++n) {
      std::uint8_t* block = to + k.head() + n * k.block();
      if (!k.two_level) {
        for (int g = 0; g < k.groups(); ++g)
          put_u16(block + g * 64 + r * 2, coded ? b.half[n * k.groups() + g] : b.d);
        if (k.minimum) put_u16(block + 64 + r * 2, b.m);
      }
      for (int g = 0; k.two_level && g < k.groups(); ++g) {
        to[k.scale_at(n) + g * 32 + r] = u8(b.scale[n * k.groups() + g]);
        if (k.minimum) block[k.scales() + g * 32 + r] = u8(b.low[n * k.groups() + g]);
      }
      for (int h = 0; h < kHalves; ++h) std::memcpy(cells[n][h][r], b.cells[n] + h * 16, 16);
      if (k.bits == 5) fifth[n][r] = b.fifth[n];
    }
  }
  for (int n = 0; n < k.blocks(); ++n) {
    std::uint8_t* block = to + k.head() + n * k.block();
    for (int h = 0; h < kHalves; ++h) turn(cells[n][h], block + k.quants_at() + h * 512);
    if (k.bits != 5) continue;
    std::uint8_t* plane = block + k.plane_at();
    for (int g = 0; g < 8; ++g)  // a row has half a byte of each group
      for (int r = 0; r < 32; r += 2)
        plane[g * 16 + r / 2] = u8((fifth[n][r] >> g * 4 & 15) | (fifth[n][r + 1] >> g * 4 & 15) << 4);
  }
}

template <DType format>
void pack_panels(const std::uint8_t* from, Dim rows, Dim per_row, std::uint8_t* to) {
  const std::size_t size = size_of(format), row = static_cast<std::size_t>(per_row) * size;
  for (Dim r = 0; r < rows; r += kPanel, from += kPanel * row)
    for (Dim b = 0; b < per_row; ++b, to += panel_kind(format).stride())
      pack_column<format>(from + static_cast<std::size_t>(b) * size, row,
                          static_cast<int>(std::min(kPanel, rows - r)), to);
}

void check(const Weight& w, const char* what) {
  if (!is_block(w.format) || w.packing != Packing::panels)
    fail(what, ": weight ", w.name, " is ", name_of(w.format),
         w.packing == Packing::panels ? " in panels" : " in rows",
         "; only block formats in panels are read and written here");
}

}  // namespace

std::size_t packed_bytes(DType format, Dim rows, Dim cols) {
  const PanelKind k = panel_kind(format);
  if (k.bits == 0) fail("packed_bytes: ", name_of(format), " is not a block format");
  if (cols < 0 || rows < 0 || cols % k.columns() != 0)
    fail("packed_bytes: rows of ", cols, " elements cannot be stored as ", name_of(format),
         ", whose blocks hold ", k.columns(), "; use another format for this matrix");
  return static_cast<std::size_t>(
      checked_mul(checked_mul((rows + kPanel - 1) / kPanel, cols / k.columns(), "a packed matrix"),
                  Dim{k.stride()}, "a packed matrix"));
}

void pack_rows(Weight& w, Dim first, Dim count, std::span<const std::byte> blocks) {
  check(w, "pack_rows");
  const PanelKind k = panel_kind(w.format);
  if (first < 0 || count < 0 || first + count > w.rows || first % kPanel != 0 ||
      (count % kPanel != 0 && first + count != w.rows))
    fail("pack_rows: rows ", first, " to ", first + count, " of weight ", w.name, " with ", w.rows,
         " rows: whole panels of ", kPanel, " are packed at a time");
  const Dim per_row = w.cols / k.columns();
  const std::size_t size = size_of(w.format);
  if (blocks.size() != static_cast<std::size_t>(count * per_row) * size)
    fail("pack_rows: ", count, " rows of weight ", w.name, " (", name_of(w.format), ", ", w.cols,
         " columns) take ", static_cast<std::size_t>(count * per_row) * size, " bytes, got ", blocks.size());
  const auto* from = reinterpret_cast<const std::uint8_t*>(blocks.data());
  std::uint8_t* to = bytes_at(w) + first / kPanel * per_row * k.stride();
  switch (w.format) {
    case DType::q4_0: return pack_panels<DType::q4_0>(from, count, per_row, to);
    case DType::q4_1: return pack_panels<DType::q4_1>(from, count, per_row, to);
    case DType::q5_0: return pack_panels<DType::q5_0>(from, count, per_row, to);
    case DType::q5_1: return pack_panels<DType::q5_1>(from, count, per_row, to);
    case DType::q8_0: return pack_panels<DType::q8_0>(from, count, per_row, to);
    case DType::q2_k: return pack_panels<DType::q2_k>(from, count, per_row, to);
    case DType::q3_k: return pack_panels<DType::q3_k>(from, count, per_row, to);
    case DType::q4_k: return pack_panels<DType::q4_k>(from, count, per_row, to);
    case DType::q5_k: return pack_panels<DType::q5_k>(from, count, per_row, to);
    case DType::q6_k: return pack_panels<DType::q6_k>(from, count, per_row, to);
    case DType::mxfp4: return pack_panels<DType::mxfp4>(from, count, per_row, to);
    case DType::iq4_nl: return pack_panels<DType::iq4_nl>(from, count, per_row, to);
    case DType::iq4_xs: return pack_panels<DType::iq4_xs>(from, count, per_row, to);
    case DType::iq3_s: return pack_panels<DType::iq3_s>(from, count, per_row, to);
    case DType::iq3_xxs: return pack_panels<DType::iq3_xxs>(from, count, per_row, to);
    case DType::iq2_s: return pack_panels<DType::iq2_s>(from, count, per_row, to);
    case DType::iq2_xs: return pack_panels<DType::iq2_xs>(from, count, per_row, to);
    case DType::iq2_xxs: return pack_panels<DType::iq2_xxs>(from, count, per_row, to);
    case DType::iq1_m: return pack_panels<DType::iq1_m>(from, count, per_row, to);
    case DType::iq1_s: return pack_panels<DType::iq1_s>(from, count, per_row, to);
    case DType::tq2_0: return pack_panels<DType::tq2_0>(from, count, per_row, to);
    case DType::tq1_0: return pack_panels<DType::tq1_0>(from, count, per_row, to);
    case DType::nvfp4: return pack_panels<DType::nvfp4>(from, count, per_row, to);
    case DType::q2_0: return pack_panels<DType::q2_0>(from, count, per_row, to);
    case DType::q1_0: return pack_panels<DType::q1_0>(from, count, per_row, to);
    default: break;
  }
}

void unpack_row(const Weight& w, Dim row, std::span<float> out) {
  check(w, "unpack_row");
  if (row < 0 || row >= w.rows || static_cast<Dim>(out.size()) != w.cols)
    fail("unpack_row: row ", row, " into ", out.size(), " elements: weight ", w.name, " is [", w.rows, ",",
         w.cols, "]");
  const PanelKind k = panel_kind(w.format);
  const Dim per_row = w.cols / k.columns();
  const int lane = static_cast<int>(row % kPanel), groups = k.groups(), depth = k.depth;
  const auto f16_at = [](const std::uint8_t* p) { return from_f16(u16_at(p)); };
  const auto half_at = [&](const std::uint8_t* p) { return k.bf16_scale ? from_bf16(u16_at(p)) : f16_at(p); };
  const Numbers numbers = numbers_of(w.format);
  float* y = out.data();
  for (Dim s = 0; s < per_row; ++s) {
    const std::uint8_t* head = bytes_at(w) + (row / kPanel * per_row + s) * k.stride();
    const float d = k.two_level ? f16_at(head + lane * 2) * unit_of(w.format) : 0,
                low = k.two_level && k.minimum ? f16_at(head + 64 + lane * 2) : 0;
    for (int n = 0; n < k.blocks(); ++n, y += 32) {
      const std::uint8_t *block = head + k.head() + n * k.block(), *quants = block + k.quants_at();
      float scale[2] = {}, add[2] = {};  // the same products as the definitions of the formats make
      for (int g = 0; g < groups; ++g) {
        const int at = g * 32 + lane;
        scale[g] =
            k.two_level ? d * static_cast<float>(i8(head[k.scale_at(n) + at])) : half_at(block + at * 2);
        if (k.minimum)
          add[g] = k.two_level ? -(low * static_cast<float>(i8(block[k.scales() + at])))
                               : f16_at(block + k.scales() + at * 2);
      }
      for (int i = 0; i < 32; ++i) {
        const int g = i / 4, byte = lane * 4 + i % 4;
        int q = k.bits == 8 ? quants[g * 128 + byte] : quants[g % 4 * 128 + byte] >> g / 4 * 4 & 15;
        if (k.bits == 5) q |= (block[k.plane_at() + g * 16 + byte / 8] >> byte % 8 & 1) << 4;
        const float v = scale[i / depth] * static_cast<float>(k.table ? numbers.at[q] : q - k.zero);
        y[i] = k.minimum ? v + add[i / depth] : v;
      }
    }
  }
  if (w.gain != 1)
    for (float& v : out) v *= w.gain;
}

}  // namespace rapt
