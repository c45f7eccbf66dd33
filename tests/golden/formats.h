// SPDX-License-Identifier: Apache-2.0
// Made by make_formats.py from the reference's own results; do not edit.
#pragma once
#include <cstdint>

#include "rapt/tensor/dtype.h"

namespace rapt::test {

struct FormatGolden {
  DType type;
  std::uint64_t read;          // checksum of the numbers in the blocks
  std::uint32_t first[6];      // their first bits
  std::uint64_t written;       // checksum of the blocks made from numbers; 0: not compared
};
inline constexpr FormatGolden kFormatGoldens[] = {
    {DType::f16,
     0x69373777fb3b0ebf,
     {0xc45e0000, 0x3d266000, 0xbb6b8000, 0x38a3c000, 0x3a72a000, 0xbcfdc000},
     0x79653a084b75cda2},
    {DType::bf16,
     0xbb3e39f09f18bc96,
     {0x739a0000, 0x0bc00000, 0x2d350000, 0xc0570000, 0x69340000, 0xdc430000},
     0x29e902b46e5d4dbc},
    {DType::q4_0,
     0xf592bde9785b4814,
     {0xb8eb8000, 0xb8eb8000, 0x38eb8000, 0xb9eb8000, 0xb9933000, 0xb96b8000},
     0x722ada2f00e03862},
    {DType::q4_1,
     0x740e09f95eee0ff5,
     {0x3e037980, 0x3dd8d100, 0x3de20b00, 0x3dc1c000, 0x3df47f00, 0x3dd43400},
     0x18f0669691884c39},
    {DType::q5_0,
     0xf855f058095c4912,
     {0xc0dcd400, 0xc0bd4800, 0x3f7c6000, 0xc0ad8200, 0xc0cd0e00, 0xc0ad8200},
     0xac33e766e624ffb1},
    {DType::q5_1,
     0xef376c148cb81819,
     {0x495e8000, 0x48de8000, 0x499bc000, 0x49536000, 0x48c84000, 0x4990a000},
     0x8e1aafa89fdf359e},
    {DType::q8_0,
     0xe5a71d6dba15367a,
     {0x41396280, 0xc0f72e00, 0xc16a6500, 0xc152f480, 0xc150d300, 0x414c9000},
     0x60760897c1895eb7},
    {DType::q2_k,
     0xbb5f223e20db55b4,
     {0xc1ffbf60, 0xc1a94f60, 0xc1a94f60, 0xc1ffbf60, 0xc1a94f60, 0x3ee42800},
     0x0000000000000000},
    {DType::q3_k,
     0x26bdc759e1908b8b,
     {0xbefd2000, 0x3f3dd800, 0x3f7d2000, 0x3f3dd800, 0x3f7d2000, 0x3efd2000},
     0x0000000000000000},
    {DType::q4_k,
     0xf577a871010c1829,
     {0x4a987b00, 0x49e4b87f, 0x49987aff, 0x4a64b87f, 0x4af7c7e0, 0x4ad1a920},
     0x0000000000000000},
    {DType::q5_k,
     0x410d7a94504c4f90,
     {0xc6652000, 0x47a93400, 0x47771800, 0x44660000, 0x4680f000, 0x46450000},
     0x0000000000000000},
    {DType::q6_k,
     0xac0c3342afdc4a45,
     {0xc7f9e400, 0xc7269800, 0x499c2e80, 0x498c9040, 0x48a69800, 0x4991c500},
     0x0000000000000000},
};

}  // namespace rapt::test
