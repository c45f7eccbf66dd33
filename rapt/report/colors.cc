// SPDX-License-Identifier: Apache-2.0
// Oklch to sRGB in one function; a terminal's colours are fixed tables, indexed by steps of t.
#include "rapt/report/colors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

namespace rapt {
namespace {

Rgb from_oklch(double L, double chroma, double degrees) {
  const double hue = degrees * std::numbers::pi / 180, a = chroma * std::cos(hue), b = chroma * std::sin(hue);
  const double l = std::pow(L + 0.3963377774 * a + 0.2158037573 * b, 3),
               m = std::pow(L - 0.1055613458 * a - 0.0638541728 * b, 3),
               s = std::pow(L - 0.0894841775 * a - 1.2914855480 * b, 3);
  const auto byte = [](double x) {
    const double c = std::clamp(x, 0.0, 1.0);
    return static_cast<std::uint8_t>(
        std::lround(255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * std::pow(c, 1 / 2.4) - 0.055)));
  };
  return {byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          byte(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

// The step of n that t = 0 … 1 falls into.
std::size_t step(double t, std::size_t n) {
  return std::min(n - 1, static_cast<std::size_t>(std::clamp(t, 0.0, 1.0) * static_cast<double>(n)));
}

}  // namespace

Rgb heat_color(double t, bool dark) {
  t = std::clamp(t, 0.0, 1.0);
  const double L = dark ? 0.215 + 0.745 * t : 0.985 - 0.735 * t, u = (L - 0.2) / 0.78;
  return from_oklch(L, 0.19 * std::pow(std::sin(std::numbers::pi * std::clamp(u, 0.0, 1.0)), 0.8) + 0.012,
                    280 + 175 * u);
}

Rgb signed_color(double t, bool dark) {
  const double s = std::min(1.0, std::abs(t));
  return from_oklch(dark ? 0.178 + 0.637 * s : 1 - 0.565 * s, 0.17 * std::pow(s, 0.7), t < 0 ? 255 : 40);
}

std::string hex_of(Rgb c) {
  char text[8];
  std::snprintf(text, sizeof text, "%02x%02x%02x", c.r, c.g, c.b);
  return text;
}

int heat_terminal_color(double t) {
  static constexpr int kSteps[] = {234, 235, 53, 90, 126, 161, 167, 203, 209, 215, 222, 230};
  return kSteps[step(t, std::size(kSteps))];
}

int signed_terminal_color(double t) {
  static constexpr int kBelow[] = {234, 237, 24, 32, 75, 81}, kAbove[] = {234, 237, 95, 131, 173, 209};
  return (t < 0 ? kBelow : kAbove)[step(std::abs(t), std::size(kAbove))];
}

}  // namespace rapt
