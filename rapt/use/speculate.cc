// SPDX-License-Identifier: Apache-2.0
// Chains of places with one hash; what is known of times and hits; the choice of rows.
#include "rapt/use/speculate.h"

#include <algorithm>
#include <utility>

namespace rapt {
namespace {

std::size_t at(Dim i) { return static_cast<std::size_t>(i); }

// Assumed until they are counted.
constexpr std::array<double, kGuessKinds> kAssumed = {0.3,  0.45, 0.55, 0.65, 0.75, 0.85, 0.9,
                                                      0.25, 0.4,  0.6,  0.75, 0.88, 0.95, 0.65};
constexpr double kAssumedWeight = 8, kAllWeight = 4;  // in guesses that were tried
// Of one row beside another, in passes of one row, until it was measured.
constexpr double kAssumedSlope = 0.25;
constexpr double kLeastGain = 1.03;

}  // namespace

int lookup_kind(Dim agree) {
  constexpr std::array<Dim, kLookUpKinds> kFrom = {0, 4, 5, 7, 10, 16, 32};
  return static_cast<int>(std::upper_bound(kFrom.begin(), kFrom.end(), agree) - kFrom.begin()) - 1;
}

int draft_kind(double probability) {
  constexpr std::array<double, kDraftKinds> kFrom = {0, 0.3, 0.5, 0.7, 0.85, 0.95};
  const auto it = std::upper_bound(kFrom.begin(), kFrom.end(), probability);
  return kLookUpKinds + std::max(0, static_cast<int>(it - kFrom.begin()) - 1);
}

void HitRates::add(int kind, bool hit, double most) {
  double &tried = tried_[static_cast<std::size_t>(kind)], &right = hit_[static_cast<std::size_t>(kind)];
  tried += 1;
  right += hit;
  if (tried > most) tried /= 2, right /= 2;
}

double HitRates::of(const HitRates& answer, const HitRates& all, int kind) {
  const auto k = static_cast<std::size_t>(kind);
  const double common = (all.hit_[k] + kAssumedWeight * kAssumed[k]) / (all.tried_[k] + kAssumedWeight);
  return (answer.hit_[k] + kAllWeight * common) / (answer.tried_[k] + kAllWeight);
}

// ------------------------------------------------------------------------------------------------ looking up
// Of the three tokens that end before `end`.
std::size_t LookUp::slot(std::size_t end) const {
  std::uint64_t h = 0;
  for (std::size_t i = end - at(kLeast); i < end; ++i)
    h = (h ^ static_cast<std::uint32_t>(text_[i])) * 0x9E3779B97F4A7C15u;
  return (h >> 32) & (last_.size() - 1);
}

void LookUp::link(std::size_t end) {
  std::int32_t& last = last_[slot(end)];
  before_[end - 1] = last;
  last = static_cast<std::int32_t>(end);
}

void LookUp::push(std::int32_t id) {
  text_.push_back(id);
  before_.push_back(0);  // 0: none, places are counted behind their last token
  if (text_.size() < at(kLeast)) return;
  if (2 * text_.size() <= last_.size()) return link(text_.size());
  last_.assign(std::max<std::size_t>(256, 2 * last_.size()), 0);
  for (std::size_t end = at(kLeast); end <= text_.size(); ++end) link(end);
}

std::vector<Guess> LookUp::guess(Dim most) const {
  std::vector<Guess> out;
  const std::size_t size = text_.size();
  if (size < at(kLeast) + 1 || most < 1) return out;
  Dim best = 0;
  std::size_t place = 0;
  int looked = 0;
  for (auto end = static_cast<std::size_t>(before_[size - 1]); end > 0 && looked < kMostPlaces;
       end = static_cast<std::size_t>(before_[end - 1]), ++looked) {
    Dim agree = 0;
    while (agree < kMostAgree && at(agree) < end && text_[end - 1 - at(agree)] == text_[size - 1 - at(agree)])
      ++agree;
    if (agree <= best) continue;
    best = agree, place = end;
    if (agree == kMostAgree) break;
  }
  if (best < kLeast) return out;
  out.reserve(at(most));
  for (std::size_t i = 0; i < at(most); ++i) {
    const std::size_t from = place + i;
    out.push_back({from < size ? text_[from] : out[from - size].id, lookup_kind(best + static_cast<Dim>(i))});
  }
  return out;
}

// ------------------------------------------------------------------------------------------------ times
void PassTimes::learn(Dim rows, double seconds) {
  if (rows < 1 || rows > kMost || !(seconds > 0)) return;
  Known& k = known_[index(rows)];
  if (unit_ == 0) unit_ = seconds;
  const double ratio = seconds / unit_;
  constexpr int kFew = 3;  // of the first ones the least: something may have been in the way
  if (k.count++ == 0) {
    k.ratio = ratio;
    most_ = std::max(most_, rows);
    return;
  }
  constexpr double kNew = 0.1;
  const double unit = std::clamp(seconds / k.ratio, unit_ / 2, unit_ * 2);
  k.ratio = k.count <= kFew ? std::min(k.ratio, ratio)
                            : (1 - kNew) * k.ratio + kNew * std::clamp(ratio, k.ratio / 2, k.ratio * 1.5);
  unit_ = (1 - kNew) * unit_ + kNew * unit;
}

double PassTimes::at(Dim rows) const {
  if (most_ == 0 || rows < 1) return 0;
  if (knows(rows)) return known_[index(rows)].ratio;
  Dim below = std::min(rows, kMost), above = rows;
  while (below > 0 && !knows(below)) --below;
  while (above <= most_ && !knows(above)) ++above;
  const auto ratio = [&](Dim r) { return known_[index(r)].ratio; };
  if (below == 0) return ratio(above);  // fewer take no longer
  const auto steps = static_cast<double>(rows - below);
  if (above <= most_)
    return ratio(below) + (ratio(above) - ratio(below)) * steps / static_cast<double>(above - below);
  Dim before = below - 1;
  while (before > 0 && !knows(before)) --before;
  double slope = kAssumedSlope * ratio(below) / static_cast<double>(below);
  if (before > 0) slope = (ratio(below) - ratio(before)) / static_cast<double>(below - before);
  return ratio(below) + steps * std::clamp(slope, 0.0, ratio(below) / static_cast<double>(below));
}

Dim PassTimes::reach() const { return std::min(kMost, 2 * most_ + 1); }

// ------------------------------------------------------------------------------------------------ planning
Dim draft_length(double chance, const PassTimes& times, Dim rows, Dim texts, double seconds, Dim most,
                 double& gain) {
  gain = 1;
  if (times.unit() <= 0) return 0;
  const double plain = static_cast<double>(rows) / times.at(rows);
  double tokens = static_cast<double>(rows), path = 1;
  Dim best = 0;
  for (Dim k = 1; k <= most && rows + k * texts <= PassTimes::kMost; ++k) {
    tokens += static_cast<double>(texts) * (path *= chance);
    const double time = times.at(rows + k * texts) + static_cast<double>(k) * seconds / times.unit(),
                 now = tokens / time / plain;
    if (now <= std::max(gain, kLeastGain)) continue;
    gain = now;
    if (rows + k * texts <= times.reach()) best = k;
  }
  return best;
}

std::vector<Dim> SpeculationPlan::plan(std::span<const std::vector<double>> chances, const PassTimes& times,
                                       Dim rows, Dim most) {
  std::vector<Dim> counts(chances.size(), 0);
  const double plain = times.at(rows);
  if (plain <= 0) return counts;
  // All guesses, the likeliest first. Of one answer those are its first ones.
  std::vector<std::pair<double, std::size_t>> all;
  for (std::size_t a = 0; a < chances.size(); ++a) {
    double chance = 1;
    for (const double c : chances[a]) all.emplace_back(chance *= std::min(c, 1.0), a);
  }
  std::sort(all.begin(), all.end(), [](const auto& x, const auto& y) {
    return x.first != y.first ? x.first > y.first : x.second < y.second;
  });
  all.resize(std::min(all.size(), at(std::max<Dim>(0, std::min(most, times.reach() - rows)))));
  const auto best_of = [&](const auto& seconds) {
    double tokens = static_cast<double>(rows), best = kLeastGain * tokens / plain;
    std::size_t count = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      tokens += all[i].first;
      if (const double rate = tokens / seconds(rows + static_cast<Dim>(i) + 1); rate > best)
        best = rate, count = i + 1;
    }
    return count;
  };
  std::size_t count = best_of([&](Dim r) { return times.at(r); });
  if (count > 0) {
    refused_ = 0, patience_ = std::max(kPatience, patience_ / 2);
  } else if (!all.empty() && ++refused_ >= patience_) {
    count = best_of([&](Dim r) {
      return plain * (1 + kAssumedSlope * static_cast<double>(r - rows) / static_cast<double>(rows));
    });
    if (count > 0) refused_ = 0, patience_ = std::min(kMostPatience, 2 * patience_);
  }
  for (std::size_t i = 0; i < count; ++i) ++counts[all[i].second];
  return counts;
}

}  // namespace rapt
