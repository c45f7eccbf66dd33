// SPDX-License-Identifier: Apache-2.0
// Throwing rapt/error.h's one type from texts and numbers. Borders do; kernels are noexcept and never throw.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

// Who includes this is the library: its rapt::Model is not the public handle (rapt/export.h).
#define RAPT_INSIDE
#include "rapt/error.h"

namespace rapt {

using Dim = std::int64_t;

// Numbers as a stream prints them: whole, or with six significant digits.
void append_number(std::string& out, std::int64_t x);
void append_number(std::string& out, std::uint64_t x);
void append_number(std::string& out, double x);

template <class T>
void append_part(std::string& out, const T& x) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    out += std::string_view(x);
  } else if constexpr (std::is_same_v<T, char>) {
    out += x;
  } else {
    static_assert(std::is_convertible_v<T, std::int64_t> && !std::is_same_v<T, unsigned char> &&
                      !std::is_same_v<T, signed char>,
                  "a text, a character or a number");
    if constexpr (std::is_floating_point_v<T>) append_number(out, static_cast<double>(x));
    else if constexpr (std::is_signed_v<T>) append_number(out, static_cast<std::int64_t>(x));
    else append_number(out, static_cast<std::uint64_t>(x));
  }
}

// Texts and numbers one after the other. No stream: one that finds no memory cuts the text and says nothing,
// and names of tensors are made here.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (append_part(out, parts), ...);
  return out;
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(concat(parts...));
}

template <class... Parts>
[[noreturn]] void fail_usage(const Parts&... parts) {
  throw Error(concat(parts...), Error::Kind::usage);
}

// There is no such file or model.
template <class... Parts>
[[noreturn]] void fail_missing(const Parts&... parts) {
  throw Error(concat(parts...), Error::Kind::missing);
}

// The caller named something that is not there.
template <class... Parts>
[[noreturn]] void fail_name(const Parts&... parts) {
  throw Error(concat(parts...), Error::Kind::name);
}

}  // namespace rapt
