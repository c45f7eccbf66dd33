// SPDX-License-Identifier: Apache-2.0
// Ways to spoil a file, drawn from a number: bytes, JSON by its meaning, and sizes that change together, so
// that what is read further inside meets odd numbers too.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/base/json.h"

namespace rapt::attack {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x1234567) {}
  std::uint64_t next();
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(next() % n); }
  bool chance(int one_in) { return below(static_cast<std::size_t>(one_in)) == 0; }
  float real() { return static_cast<float>(static_cast<double>(next() >> 40) * 0x1p-23 - 1); }  // -1 … 1
  template <class List>
  const auto& any(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  std::uint64_t state_;
};

// One to eight changes: bits, bytes, whole integers, pieces that go, come twice or are words of the format;
// or the end is missing.
void mutate_bytes(Rng& rng, std::string& bytes, std::span<const std::string_view> words = {});
// One to four bytes or integers between two places; nothing moves.
void overwrite_bytes(Rng& rng, std::string& bytes, std::size_t from, std::size_t to);
// One to four values of a JSON text changed: numbers at the edge of their range, other types, keys that go
// or come twice.
Json mutate_json(Rng& rng, const Json& json);

// Sizes that change together: every multiple of `from` becomes as many times `to`. Width 32 with heads of 8
// becomes width 20 with heads of 5, everywhere at once.
struct Scale {
  Dim from = 1, to = 1;
  Dim operator()(Dim n) const { return n > 0 && n % from == 0 ? n / from * to : n; }
};
Scale any_scale(Rng& rng);
Json scaled(const Json& json, const Scale& scale);  // every whole number in it

}  // namespace rapt::attack
