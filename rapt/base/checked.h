// SPDX-License-Identifier: Apache-2.0
// Sums and products of sizes that come from outside: too large is an error with a name, never a wrapped number.
#pragma once
#include <concepts>
#include <string_view>

#include "rapt/base/error.h"

namespace rapt {

inline Dim checked_mul(Dim a, Dim b, std::string_view what) {
  Dim c;
  if (__builtin_mul_overflow(a, b, &c)) fail(what, ": ", a, " times ", b, " is larger than any machine can count");
  return c;
}
inline Dim checked_add(Dim a, Dim b, std::string_view what) {
  Dim c;
  if (__builtin_add_overflow(a, b, &c)) fail(what, ": ", a, " plus ", b, " is larger than any machine can count");
  return c;
}

// The same for byte counts of files, which have no sign.
template <std::same_as<std::uint64_t> T>
T checked_mul(T a, T b, std::string_view what) {
  T c;
  if (__builtin_mul_overflow(a, b, &c)) fail(what, ": ", a, " times ", b, " is larger than any machine can count");
  return c;
}
template <std::same_as<std::uint64_t> T>
T checked_add(T a, T b, std::string_view what) {
  T c;
  if (__builtin_add_overflow(a, b, &c)) fail(what, ": ", a, " plus ", b, " is larger than any machine can count");
  return c;
}

}  // namespace rapt
