// SPDX-License-Identifier: Apache-2.0
// Block-quantized matrices as the int8 kernels read them: panels of 32 rows (tensor/weight.h), inside a
// panel block after block of K. One layout for every instruction set and for one row of x or many. The
// layout of each kind stands in pack.cc.
#pragma once
#include <span>

#include "rapt/tensor/weight.h"

namespace rapt {

// The bytes of a packed matrix; rows are filled up to a whole panel, cols must be a multiple of the
// format's block.
std::size_t packed_bytes(DType format, Dim rows, Dim cols);
// Rows [first, first + count) from blocks in file order, row after row. `first` is a multiple of kPanel; so
// is count, except at the end. Different ranges may be packed by different threads.
void pack_rows(Weight& weight, Dim first, Dim count, std::span<const std::byte> blocks);
// One row as numbers: exactly the dequantized values. For embedding tables, tests and export. out has cols
// elements.
void unpack_row(const Weight& weight, Dim row, std::span<float> out);

}  // namespace rapt
