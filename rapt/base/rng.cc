// SPDX-License-Identifier: Apache-2.0
// Normals by Box-Muller from two words; below n: the high half of a product, with nothing drawn again.
#include "rapt/base/rng.h"

#include <cmath>
#include <numbers>

namespace rapt {

Random4 philox(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  Random4 c = {std::uint32_t(low), std::uint32_t(low >> 32), std::uint32_t(high), std::uint32_t(high >> 32)};
  std::uint32_t k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {std::uint32_t(b >> 32) ^ c[1] ^ k0, std::uint32_t(b), std::uint32_t(a >> 32) ^ c[3] ^ k1,
         std::uint32_t(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

double random_uniform(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  return (philox(key, low, high)[0] >> 8) * 0x1p-24;
}

double random_normal(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  const Random4 r = philox(key, low, high);
  const double u = (r[0] + 0.5) * 0x1p-32, v = r[1] * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

std::uint32_t random_below(std::uint32_t n, std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  return std::uint32_t((std::uint64_t{philox(key, low, high)[0]} * n) >> 32);
}

std::uint64_t mix_key(std::uint64_t key, std::uint64_t with) {
  const Random4 r = philox(key, with, 0x6B6579);
  return std::uint64_t{r[0]} << 32 | r[1];
}

}  // namespace rapt
