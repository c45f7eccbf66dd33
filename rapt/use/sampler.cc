// SPDX-License-Identifier: Apache-2.0
// Cuts sort the front of the candidates, in growing steps, until it holds all they keep; sums in double.
#include "rapt/use/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "rapt/base/rng.h"

namespace rapt {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr int kTokenTries = 4;  // of a constraint, one by one; then it makes its mask
constexpr Dim kMirostatFit = 100;  // candidates the law is fitted to
constexpr std::uint64_t kDrawSite = 0x64726177;

// Larger logits first; equal ones in the order of their ids, so that nothing depends on how a sort
// treats equals.
bool before(const std::pair<float, std::int32_t>& a, const std::pair<float, std::int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// Sorts as much of the front as `enough(count)` asks for: 256 at first, then eight times as many. Linear
// where the answer lies in front.
template <class T, class Before, class Enough>
void sort_front(std::vector<T>& items, Before less, Enough enough) {
  std::size_t sorted = 0;
  for (std::size_t want = 256;; want *= 8) {
    const std::size_t end = std::min(want, items.size());
    const auto from = items.begin() + static_cast<std::ptrdiff_t>(sorted),
               to = items.begin() + static_cast<std::ptrdiff_t>(end);
    if (to != items.end()) std::nth_element(from, to, items.end(), less);
    std::sort(from, to, less);
    sorted = end;
    if (enough(sorted) || sorted == items.size()) return;
  }
}

float largest_value(std::span<const float> values) {  // sixteen chains, which compilers turn into vectors
  std::array<float, 16> top;
  top.fill(kForbidden);
  std::size_t i = 0;
  for (; i + 16 <= values.size(); i += 16)
    for (std::size_t j = 0; j < 16; ++j) top[j] = values[i + j] > top[j] ? values[i + j] : top[j];
  for (; i < values.size(); ++i) top[0] = std::max(top[0], values[i]);
  return *std::max_element(top.begin(), top.end());
}

void refuse_odd(std::span<const float> logits) {
  std::uint32_t odd = 0;
  for (float x : logits) odd |= (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) == 0x7f800000u;
  if (!odd) return;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i]))
      fail("sampler: the logit of token ", i, " is ", logits[i],
           "; the model computed something that is no number (damaged weights, "
           "or numbers beyond the range of its types)");
}

void check_range(const char* name, double value, double least, double most) {
  if (!(value >= least && value <= most))
    fail_usage("sampler: ", name, " is ", value, "; it must lie between ", least, " and ", most);
}

}  // namespace

std::vector<std::uint64_t> all_tokens(std::size_t vocabulary) {
  std::vector<std::uint64_t> bits((vocabulary + 63) / 64, ~std::uint64_t{0});
  if (vocabulary % 64 != 0) bits.back() >>= 64 - vocabulary % 64;
  return bits;
}

void keep_allowed(std::span<float> row, std::span<const std::uint64_t> allowed, float logit) {
  for (std::size_t word = 0; word * 64 < row.size(); ++word) {
    const std::span<float> part = row.subspan(word * 64, std::min<std::size_t>(64, row.size() - word * 64));
    const std::uint64_t bits = allowed[word];
    if (bits == ~std::uint64_t{0}) continue;
    if (bits == 0) {
      std::ranges::fill(part, logit);
      continue;
    }
    for (std::size_t t = 0; t < part.size(); ++t)
      if (!(bits >> t & 1)) part[t] = logit;
  }
}

void check(const SamplerOptions& o) {
  constexpr double kMost = 1e6;
  for (const auto& [id, value] : o.bias) {
    if (id < 0) fail_usage("sampler: bias for token ", id, "; ids begin at 0");
    if (std::isnan(value) || value == std::numeric_limits<float>::infinity())
      fail_usage("sampler: bias of token ", id, " is ", value,
                 "; give a number, or -inf to forbid the token");
  }
  if (!(o.repeat_penalty > 0 && o.repeat_penalty <= kMost))
    fail_usage("sampler: repeat_penalty is ", o.repeat_penalty, "; it must be above 0 (1: off)");
  check_range("frequency_penalty", o.frequency_penalty, -kMost, kMost);
  check_range("presence_penalty", o.presence_penalty, -kMost, kMost);
  if (o.penalty_last < -1)
    fail_usage("sampler: penalty_last is ", o.penalty_last,
               "; give a number of tokens, 0 for none, -1 for all");
  if (o.top_k < 0) fail_usage("sampler: top_k is ", o.top_k, "; give a number of tokens, 0 for all");
  check_range("typical_p", o.typical_p, 0, 1);
  check_range("top_p", o.top_p, 0, 1);
  check_range("min_p", o.min_p, 0, 1);
  check_range("temperature", o.temperature, 0, kMost);
  if (o.mirostat < 0 || o.mirostat > 2)
    fail_usage("sampler: mirostat is ", o.mirostat, "; there are 1 and 2, 0 is off");
  check_range("mirostat_tau", o.mirostat_tau, 0, 1000);
  check_range("mirostat_eta", o.mirostat_eta, 0, 1000);
  if (o.min_keep < 1) fail_usage("sampler: min_keep is ", o.min_keep, "; at least one token must stay");
}

std::vector<std::pair<float, std::int32_t>> largest(std::span<const float> values, Dim n) {
  std::vector<std::pair<float, std::int32_t>> heap;  // the worst of the best in front
  const std::size_t most = std::min(static_cast<std::size_t>(std::max<Dim>(n, 0)), values.size());
  if (most == 0) return heap;
  heap.reserve(most);
  std::size_t i = 0;
  for (; i < most; ++i) heap.emplace_back(values[i], static_cast<std::int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), before);
  for (; i < values.size(); ++i) {
    if (!(values[i] > heap.front().first)) continue;  // an equal one comes later, so it stands behind
    std::pop_heap(heap.begin(), heap.end(), before);
    heap.back() = {values[i], static_cast<std::int32_t>(i)};
    std::push_heap(heap.begin(), heap.end(), before);
  }
  std::sort_heap(heap.begin(), heap.end(), before);
  return heap;
}

double log_sum_exp(std::span<const float> values) {
  const double top = largest_value(values);
  double sum = 0;
  for (float x : values) sum += std::exp(static_cast<double>(x) - top);
  return top + std::log(sum);
}

Sampler::Sampler(const SamplerOptions& options, std::uint64_t sequence)
    : options_(options),
      key_(mix_key(mix_key(options.seed, kDrawSite), sequence)),
      mirostat_mu_(2 * options.mirostat_tau) {
  check(options);
}

TokenChoice Sampler::choose(std::span<const float> logits, std::span<const std::int32_t> history,
                            Dim position, int top_logprobs, const TokenFilter& filter) {
  if (logits.empty()) fail("sampler: no logits to choose from");
  refuse_odd(logits);
  const SamplerOptions& o = options_;
  const Dim V = static_cast<Dim>(logits.size());

  const bool counts = o.frequency_penalty != 0 || o.presence_penalty != 0, apart = o.answer_begins >= 0,
             penalised = ((o.repeat_penalty != 1 || counts) && o.penalty_last != 0) || (counts && apart);
  std::span<const float> seen = logits;
  if (penalised || !o.bias.empty()) {
    adjusted_.assign(logits.begin(), logits.end());
    seen = adjusted_;
    for (const auto& [id, value] : o.bias) {
      if (id >= V) fail_usage("sampler: bias for token ", id, ", but the vocabulary has ", V, " tokens");
      adjusted_[static_cast<std::size_t>(id)] += value;
    }
  }
  if (penalised) {
    const auto answer = history.subspan(
        std::min(history.size(), static_cast<std::size_t>(std::max<Dim>(0, o.answer_begins))));
    if (o.penalty_last == 0) history = {};
    if (o.penalty_last > 0 && history.size() > static_cast<std::size_t>(o.penalty_last))
      history = history.last(static_cast<std::size_t>(o.penalty_last));
    struct Seen {
      int anywhere = 0, counted = 0;
    };
    std::unordered_map<std::int32_t, Seen> ids;
    for (std::int32_t id : history)
      if (id >= 0 && id < V) ++ids[id].anywhere;
    for (std::int32_t id : apart ? answer : history)
      if (id >= 0 && id < V) ++ids[id].counted;
    for (const auto& [id, n] : ids) {
      float& l = adjusted_[static_cast<std::size_t>(id)];
      const double once = n.anywhere == 0 ? l : l > 0 ? l / o.repeat_penalty : l * o.repeat_penalty;
      l = static_cast<float>(n.counted == 0 ? once
                                            : once - n.counted * o.frequency_penalty - o.presence_penalty);
    }
  }

  TokenChoice choice;
  choice.id = filter.allowed.empty() && !filter.constraint ? pick(seen, position)
                                                           : pick_filtered(seen, position, filter);
  if (top_logprobs >= 0) {
    const double whole = log_sum_exp(logits);
    choice.logprob = static_cast<float>(logits[static_cast<std::size_t>(choice.id)] - whole);
    for (const auto& [logit, id] : largest(logits, top_logprobs))
      choice.top.emplace_back(id, static_cast<float>(logit - whole));
  }
  return choice;
}

// `logits` may be adjusted_.
std::int32_t Sampler::pick_filtered(std::span<const float> logits, Dim position, const TokenFilter& filter) {
  const auto own = [&]() -> std::span<float> {
    if (logits.data() != adjusted_.data()) adjusted_.assign(logits.begin(), logits.end());
    logits = adjusted_;
    return adjusted_;
  };
  if (!filter.allowed.empty()) keep_allowed(own(), filter.allowed, kForbidden);
  if (filter.constraint && options_.temperature == 0) {
    for (int tries = 0; tries < kTokenTries; ++tries) {
      const float top = largest_value(logits);
      if (top == kForbidden) break;
      const auto at = std::find(logits.begin(), logits.end(), top) - logits.begin();
      if (filter.constraint->allows(static_cast<std::int32_t>(at))) return static_cast<std::int32_t>(at);
      own()[static_cast<std::size_t>(at)] = kForbidden;
    }
  }
  if (filter.constraint) {
    bits_ = all_tokens(logits.size());
    filter.constraint->mask(bits_);
    keep_allowed(own(), bits_, kForbidden);
  }
  while (largest_value(logits) != kForbidden) {
    const std::int32_t id = pick(logits, position);
    if (!filter.constraint || filter.constraint->allows(id)) return id;
    own()[static_cast<std::size_t>(id)] = kForbidden;
  }
  fail_usage("sampler: of the tokens that may come next here, bias and forbidden words leave none",
             filter.constraint ? "; the answer must be of a form that begins with others" : "");
}

std::int32_t Sampler::pick(std::span<const float> logits, Dim position) {
  const SamplerOptions& o = options_;
  const Dim V = static_cast<Dim>(logits.size());
  const float top = largest_value(logits);
  if (top == kForbidden) fail("sampler: the bias forbids every token of the vocabulary");
  if (o.temperature == 0)
    return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), top) - logits.begin());

  const bool cuts_k = o.mirostat == 0 && o.top_k > 0 && std::max(o.top_k, o.min_keep) < V;
  if (cuts_k) {
    work_ = largest(logits, std::max(o.top_k, o.min_keep));
  } else {
    work_.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) work_[i] = {logits[i], static_cast<std::int32_t>(i)};
  }
  std::erase_if(work_, [](const Candidate& c) { return c.first == kForbidden; });

  if (o.mirostat == 0) {
    if (o.typical_p < 1) cut_typical();
    if (o.top_p < 1) cut_top_p();
    if (o.min_p > 0) cut_min_p();
    return draw(o.temperature, position);
  }

  const double t = o.temperature;
  double whole = 0;
  for (const Candidate& c : work_) whole += std::exp((static_cast<double>(c.first) - top) / t);
  whole = std::log(whole) + top / t;
  auto surprise = [&](const Candidate& c) { return (whole - c.first / t) / std::log(2.0); };
  std::size_t kept = 1;
  if (o.mirostat == 2) {
    sort_front(work_, before, [&](std::size_t n) { return surprise(work_[n - 1]) > mirostat_mu_; });
    while (kept < work_.size() && surprise(work_[kept]) <= mirostat_mu_) ++kept;
  } else {
    const std::size_t n = work_.size();
    sort_front(work_, before,
               [&](std::size_t sorted) { return sorted >= static_cast<std::size_t>(kMirostatFit); });
    double tb = 0, tt = 0;
    for (std::size_t i = 0; i + 1 < std::min(n, static_cast<std::size_t>(kMirostatFit)); ++i) {
      const double ti = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
      tb += ti * (work_[i].first - work_[i + 1].first) / t;
      tt += ti * ti;
    }
    const double s = tt > 0 ? tb / tt : 1, e = s - 1, size = static_cast<double>(n);
    const double front =
        std::abs(e) < 1e-9 ? 1 / std::log(std::max(size, 2.0)) : e / (1 - std::pow(size, -e));
    const double k = std::pow(front * std::exp2(mirostat_mu_), 1 / s);
    if (k >= size) kept = n;  // also an infinite one
    else if (k > 1) kept = static_cast<std::size_t>(k);
    sort_front(work_, before, [&](std::size_t sorted) { return sorted >= kept; });
  }
  work_.resize(kept);
  double p = 1;
  const std::int32_t id = draw(t, position, &p);
  mirostat_mu_ -= o.mirostat_eta * (-std::log2(p) - o.mirostat_tau);
  return id;
}

// From the candidates in the order they lie in: the first whose running sum passes a uniform number of
// 53 bits.
std::int32_t Sampler::draw(double temperature, Dim position, double* probability) const {
  double top = kForbidden, sum = 0;
  for (const Candidate& c : work_) top = std::max(top, static_cast<double>(c.first));
  for (const Candidate& c : work_) sum += std::exp((c.first - top) / temperature);
  const Random4 r = philox(key_, static_cast<std::uint64_t>(position));
  const double target = static_cast<double>((std::uint64_t{r[0]} << 32 | r[1]) >> 11) * 0x1p-53 * sum;
  double running = 0;
  const Candidate* chosen = &work_.back();
  for (const Candidate& c : work_) {
    running += std::exp((c.first - top) / temperature);
    if (running > target) {
      chosen = &c;
      break;
    }
  }
  if (probability) *probability = std::exp((chosen->first - top) / temperature) / sum;
  return chosen->second;
}

void Sampler::cut_typical() {
  struct Scored {
    double distance;  // |-log p - H|
    double p;
    Candidate candidate;
  };
  double top = kForbidden, sum = 0, entropy = 0;
  for (const Candidate& c : work_) top = std::max(top, static_cast<double>(c.first));
  for (const Candidate& c : work_) sum += std::exp(c.first - top);
  const double whole = top + std::log(sum);
  for (const Candidate& c : work_) entropy += std::exp(c.first - whole) * (whole - c.first);
  std::vector<Scored> scored;
  scored.reserve(work_.size());
  for (const Candidate& c : work_)
    scored.push_back({std::abs(whole - c.first - entropy), std::exp(c.first - whole), c});
  auto nearer = [](const Scored& a, const Scored& b) {
    return a.distance != b.distance ? a.distance < b.distance : before(a.candidate, b.candidate);
  };
  std::size_t kept = 0;
  double running = 0;
  bool full = false;
  sort_front(scored, nearer, [&](std::size_t sorted) {
    while (!full && kept < sorted) {
      running += scored[kept++].p;
      full = running > options_.typical_p && kept >= static_cast<std::size_t>(options_.min_keep);
    }
    return full;
  });
  work_.clear();
  for (std::size_t i = 0; i < kept; ++i) work_.push_back(scored[i].candidate);
}

void Sampler::cut_top_p() {
  double top = kForbidden, sum = 0;
  for (const Candidate& c : work_) top = std::max(top, static_cast<double>(c.first));
  for (const Candidate& c : work_) sum += std::exp(c.first - top);
  std::size_t kept = 0;
  double running = 0;
  bool full = false;
  sort_front(work_, before, [&](std::size_t sorted) {
    while (!full && kept < sorted) {
      running += std::exp(work_[kept++].first - top);
      full = running >= options_.top_p * sum && kept >= static_cast<std::size_t>(options_.min_keep);
    }
    return full;
  });
  work_.resize(kept);
}

void Sampler::cut_min_p() {
  float top = kForbidden;
  for (const Candidate& c : work_) top = std::max(top, c.first);
  const double least = top + std::log(options_.min_p);
  auto passes = [&](const Candidate& c) { return c.first >= least; };
  const auto passing = static_cast<std::size_t>(std::count_if(work_.begin(), work_.end(), passes));
  const std::size_t keep =
      std::max(passing, std::min(work_.size(), static_cast<std::size_t>(options_.min_keep)));
  if (keep == passing) {
    std::erase_if(work_, [&](const Candidate& c) { return !passes(c); });
  } else {
    sort_front(work_, before, [&](std::size_t sorted) { return sorted >= keep; });
    work_.resize(keep);
  }
}

}  // namespace rapt
