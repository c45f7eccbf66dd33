// SPDX-License-Identifier: Apache-2.0
// Numbers as colours: one scheme for pictures, pages and terminals, defined here alone (a page gets its
// tables from here). Oklab lightness goes from the paper's to the ink's in even steps while the hue turns
// from yellow through red to indigo, so order is seen without colours too; dark pages go the other way.
// Values of both signs leave the paper itself towards blue (below 0) and red (above) in the same steps.
//   t = 0 … 1;  L = 0.985 - 0.735 t (light), 0.215 + 0.745 t (dark);  with u = (L - 0.2) / 0.78:
//   chroma = 0.19 sin(pi min(1, max(0, u)))^0.8 + 0.012,  hue = 280 + 175 u degrees
//   both signs, s = |t|:  L = 1 - 0.565 s (light), 0.178 + 0.637 s (dark);  chroma = 0.17 s^0.7,
//                         hue = 255 below 0, 40 above
//   Oklab -> linear sRGB -> sRGB, clipped, rounded
#pragma once
#include <cstdint>
#include <string>

namespace rapt {

struct Rgb {
  std::uint8_t r = 0, g = 0, b = 0;
  bool operator==(const Rgb&) const = default;
};
Rgb heat_color(double t, bool dark);    // 0 … 1
Rgb signed_color(double t, bool dark);  // -1 … 1
std::string hex_of(Rgb color);          // "0550ae"

// Of a terminal's 256 colours: those next to heat_color(t, true), and to signed_color(t, true), whose
// lightness still rises step by step.
int heat_terminal_color(double t);
int signed_terminal_color(double t);

}  // namespace rapt
