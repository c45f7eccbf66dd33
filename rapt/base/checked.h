// SPDX-License-Identifier: Apache-2.0
// Numbers that come from outside. Sums and products of sizes: too large is an error with a name, never a
// wrapped number.
#pragma once
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "rapt/base/error.h"

namespace rapt {

inline Dim checked_mul(Dim a, Dim b, std::string_view what) {
  Dim c;
  if (__builtin_mul_overflow(a, b, &c))
    fail(what, ": ", a, " times ", b, " is larger than any machine can count");
  return c;
}
inline Dim checked_add(Dim a, Dim b, std::string_view what) {
  Dim c;
  if (__builtin_add_overflow(a, b, &c))
    fail(what, ": ", a, " plus ", b, " is larger than any machine can count");
  return c;
}

// The same for byte counts of files, which have no sign.
template <std::same_as<std::uint64_t> T>
T checked_mul(T a, T b, std::string_view what) {
  T c;
  if (__builtin_mul_overflow(a, b, &c))
    fail(what, ": ", a, " times ", b, " is larger than any machine can count");
  return c;
}
template <std::same_as<std::uint64_t> T>
T checked_add(T a, T b, std::string_view what) {
  T c;
  if (__builtin_add_overflow(a, b, &c))
    fail(what, ": ", a, " plus ", b, " is larger than any machine can count");
  return c;
}

// The whole number that a number with a point is; none where it has a fraction, is none, or lies beyond 64
// bits (which a plain cast would turn into anything).
inline std::optional<Dim> whole_number(double x) {
  if (!(x >= -0x1p63 && x < 0x1p63) || x != std::floor(x)) return std::nullopt;
  return static_cast<Dim>(x);
}
// Cut to what T holds; no number is 0.
template <class T>
T saturated(double x) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
  else {
    constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
    if (x != x) return 0;
    return x <= static_cast<double>(kLeast)  ? kLeast
           : x >= static_cast<double>(kMost) ? kMost
                                             : static_cast<T>(x);
  }
}

}  // namespace rapt
