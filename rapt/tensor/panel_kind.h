// SPDX-License-Identifier: Apache-2.0
// How each block format lies in panels of 32 rows: what pack.cc writes and the quantized kernels read.
// Constants only (kernel sources use them at compile time and no other way), so that code built for one
// instruction set takes nothing else from here.
//
//   matrix  = panel*                    32 rows each, zero rows at the end
//   panel   = (head block{8})* where scales are two-level (one head per 256 columns), else block*
//   head    = d: f16[32], and with a minimum dmin: f16[32], and where `scales_in_head` scale: i8[8][32]
//   block   = scale: S[G][32], and with a minimum minimum: S[G][32], then plane? quants
//             32 columns; G = 32 / depth; no scale where the head has it
//   S       = f16, or bf16 (`bf16_scale`: powers of two), or i8 where two-level (a whole number, to be
//             multiplied by d or dmin)
//   plane   = bit[8][32][4]             only for 5 bits: the fifth bit of the numbers, in the order of bytes
//   quants  = u8[8][32][4]              8 groups of 4 columns, 32 rows; 8 bits
//           | u8[4][32][4]              4 and 5 bits: low nibble group j, high nibble group j + 4
//
// A number is q unsigned; the element is scale * (q - zero), or scale * q + minimum, or (two-level)
// d*scale * q - dmin*minimum. With a `table` a nibble n stands for numbers_of(format).at[n], a whole number,
// which takes the place of q - zero; d is multiplied by unit_of(format), a power of two.
// Every line of 16 rows x 4 columns is 64 bytes: one 512-bit or two 256-bit vectors whose 32-bit lanes are
// rows, which is what vpdpbusd wants beside 4 activations in every lane, and what an AMX int8 tile wants as
// rows of B. All pieces are multiples of 64 bytes. Bytes for each row and 256 columns, file / panel: q4_0
// 144/144, q4_1 160/160, q5_0 176/176, q5_1 192/192, q8_0 272/272, q2_k 84/164, q3_k 110/146, q4_k 144/148,
// q5_k 176/180, q6_k 210/274, mxfp4 136/144, iq4_nl 144/144, iq4_xs 136/138, nvfp4 144/160; every number of
// the smaller ones takes a nibble: iq3_s 110/138, iq3_xxs 98/138, iq2_s 82/146, iq2_xs 74/146, iq2_xxs
// 66/138, iq1_m 56/146, iq1_s 50/138, tq2_0 66/144, tq1_0 54/144, q2_0 72/144, q1_0 36/144.
#pragma once
#include "rapt/tensor/dtype.h"

namespace rapt {

struct PanelKind {
  int bits = 0;                  // stored: 4, 5 or 8; 0: not a block format
  int top = 0;                   // largest q
  int zero = 0;                  // subtracted from q; formats with a minimum have none
  int depth = 32;                // columns that share a scale
  bool minimum = false;
  bool two_level = false;
  int runs = two_level ? 8 : 1;  // blocks of 32 columns that one block of a file becomes
  bool table = false;            // 4 bits: a nibble is a place in a table of whole numbers
  bool bf16_scale = false;       // one-level scales are bf16 instead of f16

  constexpr int groups() const { return 32 / depth; }
  constexpr int blocks() const { return runs; }  // after one head where there is one
  // A line of 32 scales would put every second block of quants across two cache lines.
  constexpr bool scales_in_head() const { return two_level && !minimum && depth == 32; }
  constexpr int head() const { return !two_level ? 0 : scales_in_head() ? 64 + 8 * 32 : minimum ? 128 : 64; }
  // Bytes; the minimum's come to the same.
  constexpr int scales() const { return scales_in_head() ? 0 : groups() * 32 * (two_level ? 1 : 2); }
  // Where the scales of block n begin, from the beginning of its head.
  constexpr int scale_at(int n) const { return scales_in_head() ? 64 + n * 32 : head() + n * block(); }
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
    // Numbers of -1 to 2 and one scale for all are what q4_0 can say as well.
    case DType::q1_0: return {.bits = 4, .top = 15, .zero = 8, .runs = 4};
    case DType::q2_0: return {.bits = 4, .top = 15, .zero = 8, .runs = 2};
    case DType::tq1_0:
    case DType::tq2_0: return {.bits = 4, .top = 15, .zero = 8, .runs = 8};
    case DType::mxfp4: return {.bits = 4, .top = 24, .zero = 12, .table = true, .bf16_scale = true};
    case DType::nvfp4: return {.bits = 4, .top = 24, .zero = 12, .depth = 16, .runs = 2, .table = true};
    case DType::iq4_nl: return {.bits = 4, .top = 241, .zero = 128, .table = true};
    case DType::iq4_xs: return {.bits = 4, .top = 241, .zero = 128, .two_level = true, .table = true};
    // Formats whose numbers differ share a kind, and with it the kernel, where the largest of them serves.
    case DType::iq2_xxs:
    case DType::iq3_xxs: return {.bits = 4, .top = 124, .zero = 62, .two_level = true, .table = true};
    case DType::iq1_s:
    case DType::iq3_s: return {.bits = 4, .top = 30, .zero = 15, .two_level = true, .table = true};
    case DType::iq1_m:
    case DType::iq2_xs:
    case DType::iq2_s:
      return {.bits = 4, .top = 86, .zero = 43, .depth = 16, .two_level = true, .table = true};
    default: return {};
  }
}

// What the nibbles of a kind with a table stand for.
struct Numbers {
  signed char at[16];
};
constexpr Numbers numbers_of(DType format) {
  switch (format) {
    case DType::mxfp4:
    case DType::nvfp4: return {{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};
    case DType::iq4_nl:
    case DType::iq4_xs: return {{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};
    case DType::iq3_s: return {{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}};
    case DType::iq3_xxs: return {{4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}};
    case DType::iq2_s:
    case DType::iq2_xs:
    case DType::iq2_xxs: return {{8, 25, 43, 0, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
    // Eighths: -1, 0, 1 and an eighth more; less.
    case DType::iq1_m:
    case DType::iq1_s: return {{-7, 1, 9, 0, -9, -1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
    default: return {};
  }
}
constexpr float unit_of(DType format) {
  switch (format) {
    case DType::iq3_xxs: return 0.25f;
    case DType::iq2_s:
    case DType::iq2_xs:
    case DType::iq2_xxs:
    case DType::iq1_m:
    case DType::iq1_s: return 0.125f;
    default: return 1;
  }
}

}  // namespace rapt
