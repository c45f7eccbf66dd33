// SPDX-License-Identifier: Apache-2.0
// Letters of 5 x 7 dots for pictures that have nothing but pixels. ASCII, and a few signs that our labels
// use; what else there is becomes an empty box.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rapt {

// One glyph for each character: seven rows, the leftmost dot in bit 4.
std::vector<std::array<std::uint8_t, 7>> bitmap_text(std::string_view text);

}  // namespace rapt
