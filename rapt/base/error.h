// SPDX-License-Identifier: Apache-2.0
// One error type for every border: files, recipes, shapes, flags. Kernels are noexcept and never throw.
#pragma once
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

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

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
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
