// SPDX-License-Identifier: Apache-2.0
// How each block format lies in panels of 32 rows: what pack.cc writes and the quantized kernels read.
// Constants only (kernel sources use them at compile time and no other way), so that code built for one
// instruction set takes nothing else from here.
//
//   matrix  = panel*                    32 rows each, zero rows at the end
//   panel   = (head block{8})* where scales are two-level (k formats: one head per 256 columns), else block*
//   head    = d: f16[32], and with a minimum dmin: f16[32]
//   block   = scale: S[G][32], and with a minimum minimum: S[G][32], then plane? quants
//             32 columns; G = 32 / depth
//   S       = f16, or i8 where two-level (a whole number, to be multiplied by d or dmin)
//   plane   = bit[8][32][4]             only for 5 bits: the fifth bit of the numbers, in the order of bytes
//   quants  = u8[8][32][4]              8 groups of 4 columns, 32 rows; 8 bits
//           | u8[4][32][4]              4 and 5 bits: low nibble group j, high nibble group j + 4
//
// A number is q unsigned; the element is scale * (q - zero), or scale * q + minimum, or (two-level)
// d*scale * q - dmin*minimum.
// Every line of 16 rows x 4 columns is 64 bytes: one 512-bit or two 256-bit vectors whose 32-bit lanes are
// rows, which is what vpdpbusd wants beside 4 activations in every lane, and what an AMX int8 tile wants as
// rows of B. All pieces are multiples of 64 bytes. Bytes for each row and 256 columns, file / panel: q4_0
// 144/144, q4_1 160/160, q5_0 176/176, q5_1 192/192, q8_0 272/272, q2_k 84/164, q3_k 110/146, q4_k 144/148,
// q5_k 176/180, q6_k 210/274.
#pragma once
#include "rapt/tensor/dtype.h"

namespace rapt {

struct PanelKind {
  int bits = 0;          // stored: 4, 5 or 8; 0: not a block format
  int top = 0;           // largest q
  int zero = 0;          // subtracted from q; formats with a minimum have none
  int depth = 32;        // columns that share a scale
  bool minimum = false;
  bool two_level = false;

  constexpr int groups() const { return 32 / depth; }
  constexpr int blocks() const { return two_level ? 8 : 1; }  // after one head
  constexpr int head() const { return two_level ? (minimum ? 128 : 64) : 0; }
  // Bytes; the minimum's come to the same.
  constexpr int scales() const { return groups() * 32 * (two_level ? 1 : 2); }
  constexpr int plane_at() const { return minimum ? 2 * scales() : scales(); }
  constexpr int quants_at() const { return plane_at() + (bits == 5 ? 128 : 0); }
  constexpr int block() const { return quants_at() + (bits == 8 ? 1024 : 512); }
  constexpr int stride() const { return head() + blocks() * block(); }  // one head and its blocks
  constexpr int columns() const { return 32 * blocks(); }
};

constexpr PanelKind panel_kind(DType format) {
  switch (format) {
    case DType::q4_0: return {.bits = 4, .top = 15, .zero = 8};
    case DType::q4_1: return {.bits = 4, .top = 15, .minimum = true};
    case DType::q5_0: return {.bits = 5, .top = 31, .zero = 16};
    case DType::q5_1: return {.bits = 5, .top = 31, .minimum = true};
    case DType::q8_0: return {.bits = 8, .top = 255, .zero = 128};
    case DType::q2_k: return {.bits = 4, .top = 3, .depth = 16, .minimum = true, .two_level = true};
    case DType::q3_k: return {.bits = 4, .top = 7, .zero = 4, .depth = 16, .two_level = true};
    case DType::q4_k: return {.bits = 4, .top = 15, .minimum = true, .two_level = true};
    case DType::q5_k: return {.bits = 5, .top = 31, .minimum = true, .two_level = true};
    case DType::q6_k: return {.bits = 8, .top = 63, .zero = 32, .depth = 16, .two_level = true};
    default: return {};
  }
}

}  // namespace rapt
