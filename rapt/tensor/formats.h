// SPDX-License-Identifier: Apache-2.0
// What the bytes of each storage format mean: rows of numbers to and from blocks as GGUF files hold them.
// Plain code, one place; the layouts that kernels read are made from these blocks (tensor/pack.h).
#pragma once
#include <span>

#include "rapt/base/error.h"
#include "rapt/tensor/dtype.h"

namespace rapt {

// Bytes of n elements; fails where n is no multiple of the block, naming `what`.
std::size_t bytes_of(DType type, Dim n, std::string_view what);

// n = out.size() elements, a multiple of the block. Bit-equal to the format's definition in GGUF's reference
// code. Every float and block format; integers widen exactly up to 2^24.
void dequantize(DType type, std::span<const std::byte> blocks, std::span<float> out);
// The reverse, with the reference's rounding for f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, mxfp4 (bit-equal
// blocks) and our own search for the k formats, iq4_nl and iq4_xs; other block formats are not made
// (is_made). `blocks` has bytes_of(type, in.size()).
void quantize(DType type, std::span<const float> in, std::span<std::byte> blocks);

// MXFP4 as Hugging Face keeps it (gpt-oss: NAME_blocks u8 [..., n, 16], NAME_scales u8 [..., n]) to blocks of
// mxfp4: n times 32 elements. There a byte holds two neighbours, the even one in its low nibble, and scales
// lie apart; the numbers are the same.
void mxfp4_from_pairs(std::span<const std::byte> pairs, std::span<const std::byte> scales,
                      std::span<std::byte> blocks);

}  // namespace rapt
