// SPDX-License-Identifier: Apache-2.0
// Formats whose numbers stand in tables (MXFP4, NVFP4, IQ…) and those with a bit or two for each (TQ…, Q1_0,
// Q2_0): a block of a file taken apart into places and scales, from which both its numbers (formats.cc) and
// its panel (pack.cc) are made.
#pragma once
#include <cstdint>

#include "rapt/tensor/dtype.h"

namespace rapt {

// What panel_kind(format) has for each run of 32 columns, before rows are laid side by side.
struct CodedBlock {
  std::uint16_t d = 0;          // two-level: f16
  std::uint16_t half[8] = {};   // one-level: scale of each group, f16 or bf16
  std::int8_t scale[16] = {};   // two-level: of each group
  std::uint8_t code[256] = {};  // 4 bits each: q, or a place in numbers_of(format)
};
using TakeApart = void (*)(const unsigned char* block, CodedBlock& out);
TakeApart take_apart_of(DType format);  // nullptr: not one of these formats

void decode_coded(DType format, const unsigned char* block, float* y);
void encode_mxfp4(const float* x, unsigned char* block);
void encode_iq4_nl(const float* x, unsigned char* block);
void encode_iq4_xs(const float* x, unsigned char* block);

}  // namespace rapt
