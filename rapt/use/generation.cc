// SPDX-License-Identifier: Apache-2.0
// Ranges of options, and tokens that may not come.
#include "rapt/use/generation.h"

#include <algorithm>
#include <bit>

namespace rapt {

void check(const GenerateOptions& o) {
  check(o.sampler);
  if (o.samples < 1) fail_usage("generate: ", o.samples, " samples; ask for at least one");
  if (o.beams < 0) fail_usage("generate: ", o.beams, " beams; give a number above 0, or 0 for none");
  constexpr int kMost = 4096;
  if (o.samples > kMost || o.beams > kMost)
    fail_usage("generate: ", std::max(o.samples, o.beams), o.samples > kMost ? " samples" : " beams",
               "; at most ", kMost, " side by side");
  if (o.beams > 0 && o.samples > o.beams)
    fail_usage("generate: ", o.samples, " samples of ", o.beams,
               " beams; a search gives at most as many answers as it has beams");
  if (!(o.length_penalty >= -100 && o.length_penalty <= 100))
    fail_usage("generate: length_penalty is ", o.length_penalty, "; it must lie between -100 and 100");
  if (o.chunk < 1) fail_usage("generate: prompt chunks of ", o.chunk, " tokens; give at least 1");
  if (o.max_tokens < -1)
    fail_usage("generate: max_tokens is ", o.max_tokens, "; give a number, or -1 for no limit");
  if (o.top_logprobs < 0) fail_usage("generate: top_logprobs is ", o.top_logprobs);
}

void add_choice(std::uint64_t& hash, std::int32_t id, float logit) {
  for (const std::uint32_t word : {static_cast<std::uint32_t>(id), std::bit_cast<std::uint32_t>(logit)})
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (word >> shift & 0xFF)) * 1099511628211u;
}

void apply_mask(const TokenMask& mask, std::span<const std::int32_t> answer,
                std::span<std::uint64_t> allowed) {
  if (!mask) return;
  mask(answer, allowed);
  if (std::ranges::all_of(allowed, [](std::uint64_t word) { return word == 0; }))
    fail("generate: the mask forbids every token of the vocabulary behind ", answer.size(), " tokens");
}

void forbid(std::span<const std::vector<std::int32_t>> words, std::span<const std::int32_t> ids,
            std::span<std::uint64_t> allowed) {
  for (const std::vector<std::int32_t>& word : words) {
    if (word.empty() || word.back() < 0 || static_cast<std::size_t>(word.back()) / 64 >= allowed.size())
      continue;
    const std::size_t before = word.size() - 1;
    if (before > ids.size() ||
        !std::equal(word.begin(), word.end() - 1, ids.end() - static_cast<std::ptrdiff_t>(before)))
      continue;
    const auto last = static_cast<std::size_t>(word.back());
    allowed[last / 64] &= ~(std::uint64_t{1} << last % 64);
  }
}

}  // namespace rapt
