// SPDX-License-Identifier: Apache-2.0
// A walk of random bytes that knows how far every state is from the end of its rule.
#include "rapt/text/grammar/sample.h"

#include <algorithm>
#include <limits>

namespace rapt {
namespace {

constexpr std::uint64_t kFar = std::numeric_limits<std::uint32_t>::max();

// The fewest bytes from each state to the end of its rule.
std::vector<std::uint64_t> distances(const Grammar& g) {
  std::vector<std::uint64_t> far(g.states.size(), kFar);
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = g.states.size(); i-- > 0;) {
      const Grammar::State& s = g.states[i];
      std::uint64_t best = s.final ? 0 : kFar;
      for (std::uint32_t k = 0; k < s.range_count; ++k)
        best = std::min(best, far[g.ranges[s.ranges + k].to] + 1);
      if (s.dense != Grammar::kNone) {
        for (std::size_t b = 0; b < 256; ++b)
          if (const std::uint32_t to = g.rows[std::size_t{s.dense} * 256 + b]; to != Grammar::kNone)
            best = std::min(best, far[to] + 1);
      }
      for (std::uint32_t k = 0; k < s.call_count; ++k) {
        const Grammar::Call& c = g.calls[s.calls + k];
        best = std::min(best, far[g.rules[c.rule].start] + far[c.to]);
      }
      if (best < far[i]) far[i] = best, again = true;
    }
  }
  return far;
}

}  // namespace

std::string sample_text(const Grammar& g, std::uint64_t seed, std::size_t length) {
  const std::vector<std::uint64_t> far = distances(g);
  std::uint64_t state = (seed ^ seed >> 31) * 0xD6E8FEB86659FD93u;
  const auto draw = [&](std::size_t n) {  // splitmix64
    std::uint64_t x = state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return static_cast<std::size_t>((x ^ x >> 31) % n);
  };
  ReturnStacks stacks;
  const auto rest = [&](const Configurations& all) {
    std::uint64_t best = kFar;
    for (Configuration c : all) {
      std::uint64_t d = far[c.state];
      for (; c.stack != 0; c.stack = stacks[c.stack].below) d += far[stacks[c.stack].state];
      best = std::min(best, d);
    }
    return best;
  };
  Configurations now = {{g.rules[g.root].start, 0}};
  std::string text;
  for (;;) {
    const bool whole =
        std::any_of(now.begin(), now.end(), [&](const Configuration& c) { return may_end(g, stacks, c); });
    std::vector<std::pair<std::uint8_t, Configurations>> ways;
    std::size_t nearest = 0;
    std::uint64_t least = kFar;
    for (int b = 0; b < 256; ++b) {
      Configurations to;
      bool fits = true;
      for (const Configuration& c : now) fits = fits && step(g, stacks, c, static_cast<std::uint8_t>(b), to);
      if (!fits || to.empty()) continue;
      if (const std::uint64_t d = rest(to); d < least) least = d, nearest = ways.size();
      ways.push_back({static_cast<std::uint8_t>(b), std::move(to)});
    }
    const bool close = text.size() >= length;
    if (ways.empty() || (whole && (close || draw(4) == 0))) return text;
    auto& way = ways[close || draw(5) == 0 ? nearest : draw(ways.size())];
    text += static_cast<char>(way.first);
    now = std::move(way.second);
  }
}

}  // namespace rapt
