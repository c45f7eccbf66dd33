// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers (Philox 4x32, ten rounds): the number is a pure function of its key and
// counter, so it does not depend on threads, batch or order of calls.
#pragma once
#include <array>
#include <cstdint>

namespace rapt {

using Random4 = std::array<std::uint32_t, 4>;

Random4 philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high = 0);

// Uniform in [0, 1) with 24 bits; standard normal by Box and Muller.
double random_uniform(std::uint64_t key, std::uint64_t low, std::uint64_t high = 0);
double random_normal(std::uint64_t key, std::uint64_t low, std::uint64_t high = 0);
// An integer in [0, n).
std::uint32_t random_below(std::uint32_t n, std::uint64_t key, std::uint64_t low, std::uint64_t high = 0);
// 64 bits mixed from two: derives one key from another and a name or an index.
std::uint64_t mix_key(std::uint64_t key, std::uint64_t with);

}  // namespace rapt
