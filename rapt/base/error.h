// SPDX-License-Identifier: Apache-2.0
// One error type for every border: files, recipes, shapes, flags. Kernels are noexcept and never throw.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace rapt {

using Dim = std::int64_t;

// A message says what is wrong, where, why, and what to do about it. `usage` errors end a program with 2, others with 1.
class Error : public std::runtime_error {
 public:
  enum class Kind { failure, usage };
  explicit Error(const std::string& message, Kind kind = Kind::failure) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

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
    static_assert(std::is_convertible_v<T, std::int64_t> && !std::is_same_v<T, unsigned char> && !std::is_same_v<T, signed char>,
                  "a text, a character or a number");
    if constexpr (std::is_floating_point_v<T>) append_number(out, static_cast<double>(x));
    else if constexpr (std::is_signed_v<T>) append_number(out, static_cast<std::int64_t>(x));
    else append_number(out, static_cast<std::uint64_t>(x));
  }
}

// Texts and numbers one after the other. No stream: one that finds no memory cuts the text and says nothing, and names of tensors are
// made here.
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

}  // namespace rapt
