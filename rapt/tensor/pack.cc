// SPDX-License-Identifier: Apache-2.0
// From blocks as files hold them to panels (layout: panel_kind.h) and back. A block is first taken apart into whole numbers and scales;
// what the bits of a file's block mean is also written down, as numbers, in formats.cc: the tests hold the two against each other.
#include "rapt/tensor/pack.h"

#include <cstring>

#include "rapt/base/checked.h"
#include "rapt/tensor/panel_kind.h"

namespace rapt {
namespace {

// One block of a file, of 32 or 256 elements.
struct Parts {
  std::uint16_t d = 0, m = 0;            // f16; m: the minimum, or what the minima are multiplied by
  std::int8_t scale[16] = {}, low[16] = {};  // two-level formats: per group of `depth`
  std::uint8_t q[256];
};

std::uint16_t u16_at(const std::uint8_t* p) { return static_cast<std::uint16_t>(p[0] | p[1] << 8); }
std::uint8_t u8(int x) { return static_cast<std::uint8_t>(x); }
std::int8_t i8(int x) { return static_cast<std::int8_t>(x); }

// 16 bytes: elements 0-15 in the low nibbles, 16-31 in the high ones; their fifth bits in 4 bytes.
void nibbles_32(Parts& b, const std::uint8_t* qs, const std::uint8_t* high) {
  for (int i = 0; i < 32; ++i) b.q[i] = u8((i < 16 ? qs[i] & 15 : qs[i - 16] >> 4) | (high ? (high[i / 8] >> i % 8 & 1) << 4 : 0));
}
// Eight scales and minima of 6 bits in 12 bytes: the first four of each whole, the last four with their upper bits in the first.
void six_bit_pairs(Parts& b, const std::uint8_t* s) {
  for (int i = 0; i < 4; ++i) {
    b.scale[i] = i8(s[i] & 63);
    b.low[i] = i8(s[i + 4] & 63);
    b.scale[i + 4] = i8((s[i + 8] & 15) | s[i] >> 6 << 4);
    b.low[i + 4] = i8(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
  }
}
// Runs of 32 elements, two to 32 bytes: one in the low nibbles, the next in the high ones. Fifth bits: bit r of byte i is for run r.
void nibbles_256(Parts& b, const std::uint8_t* qs, const std::uint8_t* high) {
  for (int i = 0; i < 256; ++i) {
    const int run = i / 32;
    b.q[i] = u8((qs[run / 2 * 32 + i % 32] >> run % 2 * 4 & 15) | (high ? (high[i % 32] >> run & 1) << 4 : 0));
  }
}

void take_apart(DType format, const std::uint8_t* p, Parts& b) {
  switch (format) {
    case DType::q4_0:  // d qs[16]
      b.d = u16_at(p);
      return nibbles_32(b, p + 2, nullptr);
    case DType::q4_1:  // d m qs[16]
      b.d = u16_at(p);
      b.m = u16_at(p + 2);
      return nibbles_32(b, p + 4, nullptr);
    case DType::q5_0:  // d high[4] qs[16]
      b.d = u16_at(p);
      return nibbles_32(b, p + 6, p + 2);
    case DType::q5_1:  // d m high[4] qs[16]
      b.d = u16_at(p);
      b.m = u16_at(p + 2);
      return nibbles_32(b, p + 8, p + 4);
    case DType::q8_0:  // d q[32], signed
      b.d = u16_at(p);
      for (int i = 0; i < 32; ++i) b.q[i] = p[2 + i] ^ 128;
      return;
    case DType::q2_k:  // scale and minimum nibbles [16], four runs of 32 to 32 bytes [64], d dmin
      b.d = u16_at(p + 80);
      b.m = u16_at(p + 82);
      for (int i = 0; i < 16; ++i) {
        b.scale[i] = i8(p[i] & 15);
        b.low[i] = i8(p[i] >> 4);
      }
      for (int i = 0; i < 256; ++i) b.q[i] = u8(p[16 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3);
      return;
    case DType::q3_k:  // third bits [32] (bit r of byte i is for run r), two bits as above [64], scales [12], d
      b.d = u16_at(p + 108);
      for (int i = 0; i < 16; ++i)  // 6 bits, less 32: four in a nibble of bytes 0-7, two in bytes 8-11
        b.scale[i] = i8((p[96 + i % 8] >> i / 8 * 4 & 15) + (p[104 + i % 4] >> i / 4 * 2 & 3) * 16 - 32);
      for (int i = 0; i < 256; ++i) b.q[i] = u8((p[32 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3) | (p[i % 32] >> i / 32 & 1) << 2);
      return;
    case DType::q4_k:  // d dmin scales[12] qs[128]
      b.d = u16_at(p);
      b.m = u16_at(p + 2);
      six_bit_pairs(b, p + 4);
      return nibbles_256(b, p + 16, nullptr);
    case DType::q5_k:  // d dmin scales[12] high[32] qs[128]
      b.d = u16_at(p);
      b.m = u16_at(p + 2);
      six_bit_pairs(b, p + 4);
      return nibbles_256(b, p + 48, p + 16);
    case DType::q6_k:  // per 128: four bits [64] (runs 0 1 low, 2 3 high), two bits [32] (four runs to 32 bytes); scales i8[16], d
      b.d = u16_at(p + 208);
      std::memcpy(b.scale, p + 192, 16);
      for (int i = 0; i < 256; ++i) {
        const int half = i / 128, run = i / 32 % 4;
        b.q[i] = u8((p[half * 64 + run % 2 * 32 + i % 32] >> run / 2 * 4 & 15) | (p[128 + half * 32 + i % 32] >> run * 2 & 3) << 4);
      }
      return;
    default: break;
  }
}

std::uint8_t* bytes_at(const Weight& w) { return reinterpret_cast<std::uint8_t*>(w.data.get()); }
void put_u16(std::uint8_t* p, std::uint16_t x) { std::memcpy(p, &x, 2); }

// Lane `row` of a head and its blocks.
void put(const PanelKind& k, const Parts& b, int row, std::uint8_t* to) {
  if (k.two_level) {
    put_u16(to + row * 2, b.d);
    if (k.minimum) put_u16(to + 64 + row * 2, b.m);
  }
  for (int n = 0; n < k.blocks(); ++n) {
    std::uint8_t* block = to + k.head() + n * k.block();
    const std::uint8_t* q = b.q + n * 32;
    if (!k.two_level) {
      put_u16(block + row * 2, b.d);
      if (k.minimum) put_u16(block + 64 + row * 2, b.m);
    }
    for (int g = 0; k.two_level && g < k.groups(); ++g) {
      block[g * 32 + row] = u8(b.scale[n * k.groups() + g]);
      if (k.minimum) block[k.scales() + g * 32 + row] = u8(b.low[n * k.groups() + g]);
    }
    std::uint8_t* quants = block + k.quants_at();
    if (k.bits == 8) {
      for (int g = 0; g < 8; ++g) std::memcpy(quants + g * 128 + row * 4, q + g * 4, 4);
      continue;
    }
    for (int j = 0; j < 4; ++j) {
      std::uint32_t low, high;
      std::memcpy(&low, q + j * 4, 4);
      std::memcpy(&high, q + 16 + j * 4, 4);
      const std::uint32_t both = (low & 0x0f0f0f0f) | (high & 0x0f0f0f0f) << 4;
      std::memcpy(quants + j * 128 + row * 4, &both, 4);
    }
    if (k.bits != 5) continue;
    for (int g = 0; g < 8; ++g) {  // a row has half a byte of each group
      std::uint8_t& cell = block[k.plane_at() + g * 16 + row / 2];
      int four = 0;
      for (int i = 0; i < 4; ++i) four |= (q[g * 4 + i] >> 4) << i;
      cell = u8((cell & (row % 2 ? 0x0f : 0xf0)) | four << row % 2 * 4);
    }
  }
}

void check(const Weight& w, const char* what) {
  if (!is_block(w.format) || w.packing != Packing::panels)
    fail(what, ": weight ", w.name, " is ", name_of(w.format), w.packing == Packing::panels ? " in panels" : " in rows",
         "; only block formats in panels are read and written here");
}

}  // namespace

std::size_t packed_bytes(DType format, Dim rows, Dim cols) {
  const PanelKind k = panel_kind(format);
  if (k.bits == 0) fail("packed_bytes: ", name_of(format), " is not a block format");
  if (cols < 0 || rows < 0 || cols % k.columns() != 0)
    fail("packed_bytes: rows of ", cols, " elements cannot be stored as ", name_of(format), ", whose blocks hold ", k.columns(),
         "; use another format for this matrix");
  return static_cast<std::size_t>(
      checked_mul(checked_mul((rows + kPanel - 1) / kPanel, cols / k.columns(), "a packed matrix"), Dim{k.stride()}, "a packed matrix"));
}

void pack_rows(Weight& w, Dim first, Dim count, std::span<const std::byte> blocks) {
  check(w, "pack_rows");
  const PanelKind k = panel_kind(w.format);
  if (first < 0 || count < 0 || first + count > w.rows || first % kPanel != 0 || (count % kPanel != 0 && first + count != w.rows))
    fail("pack_rows: rows ", first, " to ", first + count, " of weight ", w.name, " with ", w.rows, " rows: whole panels of ", kPanel,
         " are packed at a time");
  const Dim per_row = w.cols / k.columns();
  const std::size_t size = size_of(w.format);
  if (blocks.size() != static_cast<std::size_t>(count * per_row) * size)
    fail("pack_rows: ", count, " rows of weight ", w.name, " (", name_of(w.format), ", ", w.cols, " columns) take ",
         static_cast<std::size_t>(count * per_row) * size, " bytes, got ", blocks.size());
  const auto* from = reinterpret_cast<const std::uint8_t*>(blocks.data());
  Parts parts;
  for (Dim r = first; r < first + count; ++r)
    for (Dim b = 0; b < per_row; ++b, from += size) {
      take_apart(w.format, from, parts);
      put(k, parts, static_cast<int>(r % kPanel), bytes_at(w) + (r / kPanel * per_row + b) * k.stride());
    }
}

void unpack_row(const Weight& w, Dim row, std::span<float> out) {
  check(w, "unpack_row");
  if (row < 0 || row >= w.rows || static_cast<Dim>(out.size()) != w.cols)
    fail("unpack_row: row ", row, " into ", out.size(), " elements: weight ", w.name, " is [", w.rows, ",", w.cols, "]");
  const PanelKind k = panel_kind(w.format);
  const Dim per_row = w.cols / k.columns();
  const int lane = static_cast<int>(row % kPanel), groups = k.groups(), depth = k.depth;
  const auto f16_at = [](const std::uint8_t* p) { return from_f16(u16_at(p)); };
  float* y = out.data();
  for (Dim s = 0; s < per_row; ++s) {
    const std::uint8_t* head = bytes_at(w) + (row / kPanel * per_row + s) * k.stride();
    const float d = k.two_level ? f16_at(head + lane * 2) : 0, low = k.two_level && k.minimum ? f16_at(head + 64 + lane * 2) : 0;
    for (int n = 0; n < k.blocks(); ++n, y += 32) {
      const std::uint8_t *block = head + k.head() + n * k.block(), *quants = block + k.quants_at();
      float scale[2] = {}, add[2] = {};  // the same products as the definitions of the formats make
      for (int g = 0; g < groups; ++g) {
        const int at = g * 32 + lane;
        scale[g] = k.two_level ? d * static_cast<float>(i8(block[at])) : f16_at(block + at * 2);
        if (k.minimum) add[g] = k.two_level ? -(low * static_cast<float>(i8(block[k.scales() + at]))) : f16_at(block + k.scales() + at * 2);
      }
      for (int i = 0; i < 32; ++i) {
        const int g = i / 4, byte = lane * 4 + i % 4;
        int q = k.bits == 8 ? quants[g * 128 + byte] : quants[g % 4 * 128 + byte] >> g / 4 * 4 & 15;
        if (k.bits == 5) q |= (block[k.plane_at() + g * 16 + byte / 8] >> byte % 8 & 1) << 4;
        const float v = scale[i / depth] * static_cast<float>(q - k.zero);
        y[i] = k.minimum ? v + add[i / depth] : v;
      }
    }
  }
}

}  // namespace rapt
