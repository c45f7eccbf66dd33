// SPDX-License-Identifier: Apache-2.0
// A row of the chain: exp of normal numbers, divided by their sum. `floor` is -log of the true probability.
#include "rapt/lab/copy_task.h"

#include <cmath>

#include "rapt/base/rng.h"

namespace rapt {

CopyTask::CopyTask(std::uint64_t seed) : seed_(mix_key(seed, 0xC0B7)), chain_(kTokens * kTokens) {
  for (int a = 0; a < kTokens; ++a) {
    double sum = 0;
    for (int b = 0; b < kTokens; ++b)
      sum += chain_[static_cast<std::size_t>(a * kTokens + b)] =
          std::exp(random_normal(seed_, static_cast<std::uint64_t>(a * kTokens + b)));
    for (int b = 0; b < kTokens; ++b) chain_[static_cast<std::size_t>(a * kTokens + b)] /= sum;
  }
}

CopyTask::Batch CopyTask::sample(std::uint64_t step, Dim count, Dim length) const {
  Batch out;
  for (Dim n = 0; n < count; ++n) {
    const std::uint64_t key = mix_key(mix_key(seed_, step + 1), static_cast<std::uint64_t>(n));
    std::int32_t before = kBegin, last = kBegin;
    for (Dim t = 0; t < length; ++t) {
      const double u = random_uniform(key, static_cast<std::uint64_t>(t));
      const bool trigger = last < kTriggers && before != kBegin;
      std::int32_t next = 0;
      double floor = 0;
      if (last == kBegin) {
        next = static_cast<std::int32_t>(u * kTokens);
        floor = std::log(static_cast<double>(kTokens));
      } else if (trigger) {
        next = before;
      } else {
        const double* row = chain_.data() + last * kTokens;
        double sum = row[0];
        while (sum <= u && next < kTokens - 1) sum += row[++next];
        floor = -std::log(row[next]);
      }
      out.tokens.push_back(last);
      out.targets.push_back(next);
      out.floor.push_back(floor);
      out.kind.push_back(t == 0 ? -1 : trigger ? 1 : 0);
      before = last;
      last = next;
    }
  }
  return out;
}

}  // namespace rapt
