// SPDX-License-Identifier: Apache-2.0
// Frequencies of draws against a reference that sorts the whole vocabulary; mirostat id by id.
#include "rapt/use/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "rapt/base/rng.h"

namespace rapt::test {
namespace {

SamplerOptions plain() {  // nothing but the draw
  SamplerOptions o;
  o.top_k = 0, o.typical_p = 1, o.top_p = 1, o.min_p = 0, o.temperature = 1;
  return o;
}

std::vector<float> random_logits(Dim n, std::uint64_t seed, double spread = 2) {
  std::vector<float> l(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < l.size(); ++i) l[i] = static_cast<float>(spread * random_normal(seed, i));
  return l;
}

// Indices by falling value, equal ones as they stand.
template <class Index, class Value>
void sort_by_value(std::vector<Index>& order, Value value) {
  std::vector<std::pair<double, Index>> keyed;
  for (std::size_t i = 0; i < order.size(); ++i) keyed.emplace_back(-value(order[i]), static_cast<Index>(i));
  std::sort(keyed.begin(), keyed.end());
  std::vector<Index> out;
  for (const auto& [k, i] : keyed) out.push_back(order[static_cast<std::size_t>(i)]);
  order = out;
}

std::vector<double> softmax(std::vector<double> l) {
  const double top = *std::max_element(l.begin(), l.end());
  double sum = 0;
  for (double& x : l) sum += x = std::exp(x - top);
  for (double& x : l) x /= sum;
  return l;
}

// The plainest reading of sampler.h: the whole vocabulary sorted at every step. Returns the probability of
// every token.
std::vector<double> reference(std::vector<double> l, const SamplerOptions& o,
                              const std::vector<std::int32_t>& history) {
  for (auto [id, b] : o.bias) l[static_cast<std::size_t>(id)] += b;
  const std::size_t last = o.penalty_last < 0
                               ? history.size()
                               : std::min(history.size(), static_cast<std::size_t>(o.penalty_last));
  std::map<std::int32_t, int> counts;
  for (std::size_t i = history.size() - last; i < history.size(); ++i) ++counts[history[i]];
  for (auto [id, c] : counts) {
    double& x = l[static_cast<std::size_t>(id)];
    x = static_cast<float>((x > 0 ? x / o.repeat_penalty : x * o.repeat_penalty) - c * o.frequency_penalty -
                           o.presence_penalty);
  }
  std::vector<std::size_t> kept(l.size());
  std::iota(kept.begin(), kept.end(), std::size_t{0});
  sort_by_value(kept, [&](std::size_t i) { return l[i]; });
  auto probabilities = [&](double temperature) {
    std::vector<double> values;
    for (std::size_t i : kept) values.push_back(l[i] / temperature);
    return softmax(values);
  };
  if (o.top_k > 0 && static_cast<std::size_t>(o.top_k) < kept.size())
    kept.resize(static_cast<std::size_t>(o.top_k));
  if (o.typical_p < 1) {
    const std::vector<double> p = probabilities(1);
    double entropy = 0, sum = 0;
    for (double x : p) entropy -= x * std::log(x);
    std::vector<std::size_t> order(p.size()), out;
    std::iota(order.begin(), order.end(), std::size_t{0});
    sort_by_value(order, [&](std::size_t i) { return -std::abs(-std::log(p[i]) - entropy); });
    for (std::size_t i : order) {
      out.push_back(kept[i]);
      if ((sum += p[i]) > o.typical_p) break;
    }
    kept = out;
    sort_by_value(kept, [&](std::size_t i) { return l[i]; });
  }
  if (o.top_p < 1) {
    const std::vector<double> p = probabilities(1);
    double sum = 0;
    std::size_t n = 0;
    while (n < p.size() && sum < o.top_p) sum += p[n++];
    kept.resize(std::max<std::size_t>(n, 1));
  }
  if (o.min_p > 0) {
    const std::vector<double> p = probabilities(1);
    std::size_t n = 1;
    while (n < p.size() && p[n] >= o.min_p * p[0]) ++n;
    kept.resize(n);
  }
  const std::vector<double> p = probabilities(o.temperature);
  std::vector<double> out(l.size(), 0);
  for (std::size_t i = 0; i < kept.size(); ++i) out[kept[i]] = p[i];
  return out;
}

// Draws `n` times and compares with the reference: nothing outside its support, and the frequencies within
// five standard deviations.
void expect_distribution(const std::vector<float>& logits, const SamplerOptions& o,
                         const std::vector<std::int32_t>& history, int n = 20000) {
  const std::vector<double> want = reference({logits.begin(), logits.end()}, o, history);
  std::vector<int> got(logits.size(), 0);
  Sampler sampler(o, 7);
  for (int i = 0; i < n; ++i) ++got[static_cast<std::size_t>(sampler.choose(logits, history, i, -1).id)];
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (want[i] == 0) EXPECT_EQ(got[i], 0) << "token " << i << " was cut";
    const double sd = std::sqrt(n * want[i] * (1 - want[i]));
    EXPECT_LE(std::abs(got[i] - n * want[i]), 5 * sd + 1) << "token " << i << ", probability " << want[i];
  }
}

// OpenAI's two penalties look at the answer alone, and at all of it; the third at the last tokens of both.
TEST(Sampler, PenaltiesOfTheAnswerAlone) {
  const std::vector<float> logits = {2, 1.9f, 1.8f, 1.7f};
  const std::vector<std::int32_t> history = {0, 0, 0, 1, 2, 2};  // the answer: 2 2, behind 0 0 0 1
  SamplerOptions o{.frequency_penalty = 1, .presence_penalty = 0.5, .penalty_last = 1, .temperature = 0};
  const auto chosen = [&](std::vector<float> row) { return Sampler(o, 0).choose(row, history, 6, -1).id; };
  o.answer_begins = 4;
  EXPECT_EQ(chosen(logits), 0);                       // what the prompt said costs nothing
  EXPECT_EQ(chosen({-9, -9, 4.4f, 1.8f}), 2);         // 4.4 - 2 * 1 - 0.5 = 1.9
  EXPECT_EQ(chosen({-9, -9, 4.2f, 1.8f}), 3);         // 1.7: both tokens of the answer count
  o.penalty_last = 0;
  EXPECT_EQ(chosen({-9, -9, 4.2f, 1.8f}), 3);
  o.penalty_last = -1, o.repeat_penalty = 2;
  EXPECT_EQ(chosen({2, 1.9f, -9, 1.1f}), 3);          // 2 / 2 and 1.9 / 2: the prompt counts here
  o.answer_begins = -1, o.repeat_penalty = 1;
  EXPECT_EQ(chosen(logits), 3);
}

TEST(Sampler, DrawsFromTheSoftmax) {
  SamplerOptions o = plain();
  const std::vector<float> logits = random_logits(12, 1);
  expect_distribution(logits, o, {});
  o.temperature = 0.5;
  expect_distribution(logits, o, {});
  o.temperature = 3;
  expect_distribution(logits, o, {});
}

TEST(Sampler, EveryCutKeepsWhatItsDefinitionKeeps) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const std::vector<float> logits = random_logits(40, 10 + seed);
    for (const Dim k : {1, 2, 7, 39, 40, 1000}) {
      SamplerOptions o = plain();
      o.top_k = k;
      expect_distribution(logits, o, {}, 4000);
    }
    for (const double p : {0.0, 0.1, 0.5, 0.9, 0.999}) {
      SamplerOptions o = plain();
      o.top_p = p;
      expect_distribution(logits, o, {}, 4000);
      o = plain();
      o.typical_p = p;
      expect_distribution(logits, o, {}, 4000);
      o = plain();
      o.min_p = p;
      expect_distribution(logits, o, {}, 4000);
    }
    SamplerOptions all = plain();
    all.top_k = 20, all.typical_p = 0.95, all.top_p = 0.9, all.min_p = 0.02, all.temperature = 0.7;
    expect_distribution(logits, all, {}, 4000);
  }
}

TEST(Sampler, CutsReachBeyondTheFirstSortedFront) {  // 256, then 2048, then all
  const std::vector<float> logits = random_logits(5000, 3, 0.3);
  for (const double p : {0.02, 0.3, 0.8, 0.99}) {
    for (const bool typical : {false, true}) {
      SamplerOptions o = plain();
      (typical ? o.typical_p : o.top_p) = p;
      const std::vector<double> want = reference({logits.begin(), logits.end()}, o, {});
      Sampler sampler(o, 0);
      std::set<std::int32_t> seen;
      for (int i = 0; i < 300; ++i) {
        const std::int32_t id = sampler.choose(logits, {}, i, -1).id;
        EXPECT_GT(want[static_cast<std::size_t>(id)], 0);
        seen.insert(id);
      }
      EXPECT_GT(seen.size(), 20u);
    }
  }
}

TEST(Sampler, EqualLogitsAreCutByTheirIds) {
  const std::vector<float> logits(50, 1.0f);
  SamplerOptions o = plain();
  o.top_k = 3;
  expect_distribution(logits, o, {}, 2000);  // ids 0, 1, 2
  o = plain();
  o.top_p = 0.1;
  expect_distribution(logits, o, {}, 2000);
}

TEST(Sampler, PenaltiesByValue) {
  const std::vector<float> logits = {2, 1, -1, 0.5f, 3, -2};
  const std::vector<std::int32_t> history = {4, 0, 0, 2, 5, 0, 2};
  for (const Dim last : {-1, 0, 2, 64}) {
    SamplerOptions o = plain();
    o.repeat_penalty = 1.3, o.frequency_penalty = 0.4, o.presence_penalty = 0.2, o.penalty_last = last;
    expect_distribution(logits, o, history, 8000);
  }
  SamplerOptions o = plain();  // by hand: 3 / 2 - 0.5 - 0.25 = 0.75 < 1
  o.temperature = 0, o.repeat_penalty = 2, o.frequency_penalty = 0.5, o.presence_penalty = 0.25;
  EXPECT_EQ(Sampler(o, 0).choose(logits, std::vector<std::int32_t>{4, 0}, 0).id, 1);
  o.penalty_last = 1;  // only token 0 was seen: 3 stays the largest
  EXPECT_EQ(Sampler(o, 0).choose(logits, std::vector<std::int32_t>{4, 0}, 0).id, 4);
}

TEST(Sampler, BiasMovesAndForbids) {
  const std::vector<float> logits = {2, 1, 0, 0};
  SamplerOptions o = plain();
  o.bias = {{0, -std::numeric_limits<float>::infinity()}, {3, 2.5f}};
  o.temperature = 0;
  EXPECT_EQ(Sampler(o, 0).choose(logits, {}, 0).id, 3);
  o.temperature = 1;
  Sampler sampler(o, 0);
  for (int i = 0; i < 500; ++i) EXPECT_NE(sampler.choose(logits, {}, i).id, 0);
  o.mirostat = 2;
  Sampler miro(o, 0);
  for (int i = 0; i < 500; ++i) EXPECT_NE(miro.choose(logits, {}, i).id, 0);
  o.bias.clear();
  for (std::int32_t i = 0; i < 4; ++i) o.bias.emplace_back(i, -std::numeric_limits<float>::infinity());
  EXPECT_THROW(Sampler(o, 0).choose(logits, {}, 0), Error);
  o.bias = {{4, 1.0f}};
  EXPECT_THROW(Sampler(o, 0).choose(logits, {}, 0), Error);
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  SamplerOptions o;
  o.temperature = 0;
  EXPECT_EQ(Sampler(o, 0).choose(std::vector<float>{1, 5, 5, 2}, {}, 0).id, 1);
  std::vector<float> logits = random_logits(1003, 5);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  EXPECT_EQ(Sampler(o, 0).choose(logits, {}, 0).id, best);
}

// Of the filter's tokens the one that the same logits without the others give.
TEST(Sampler, AFilterIsASmallerVocabulary) {
  class Every : public Constraint {  // the tokens of a list
   public:
    explicit Every(std::vector<std::uint64_t> bits) : bits_(std::move(bits)) {}
    std::unique_ptr<Constraint> copy() const override { return nullptr; }
    void mask(std::span<std::uint64_t> allowed) override {
      for (std::size_t i = 0; i < bits_.size(); ++i) allowed[i] &= bits_[i];
    }
    bool allows(std::int32_t id) override {
      ++asked;
      return id != refused && (bits_[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
    }
    void accept(std::int32_t) override {}
    int asked = 0;
    std::int32_t refused = -1;  // all the same

   private:
    std::vector<std::uint64_t> bits_;
  };
  int most = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Dim V = 70 + static_cast<Dim>(seed) * 3;
    const std::vector<float> all = random_logits(V, seed);
    std::vector<std::uint64_t> bits = all_tokens(all.size());
    std::vector<float> some;
    std::vector<std::int32_t> ids;
    for (std::int32_t t = 0; t < V; ++t)
      if (mix_key(seed, static_cast<std::uint64_t>(t)) % 7 < 1 + seed % 6) {
        some.push_back(all[static_cast<std::size_t>(t)]), ids.push_back(t);
      } else {
        bits[static_cast<std::size_t>(t) / 64] &= ~(std::uint64_t{1} << t % 64);
      }
    ASSERT_FALSE(some.empty());
    SamplerOptions o = plain();
    o.seed = seed;
    o.temperature = seed % 3 == 0 ? 0 : 1;
    if (seed % 2 == 0) o.top_p = 0.7;
    if (seed % 5 == 0) o.top_k = 3;
    const TokenChoice wanted = Sampler(o, 1).choose(some, {}, 4, -1);
    Every every(bits);
    for (const TokenFilter& filter : {TokenFilter{.allowed = bits}, TokenFilter{.constraint = &every},
                                      TokenFilter{.allowed = bits, .constraint = &every}}) {
      const TokenChoice got = Sampler(o, 1).choose(all, {}, 4, 0, filter);
      EXPECT_EQ(got.id, ids[static_cast<std::size_t>(wanted.id)]) << seed;
      EXPECT_EQ(got.logprob, Sampler(o, 1).choose(all, {}, 4, 0, {.allowed = bits}).logprob);
    }
    if (o.temperature == 0) most = std::max(most, every.asked);
    else EXPECT_EQ(every.asked, 2);  // once for each choice
    // A token of the mask that is refused is as one that is not there.
    every.refused = ids[static_cast<std::size_t>(wanted.id)];
    std::vector<std::uint64_t> without = bits;
    without[static_cast<std::size_t>(every.refused) / 64] &= ~(std::uint64_t{1} << every.refused % 64);
    if (some.size() == 1) {
      EXPECT_THROW(Sampler(o, 1).choose(all, {}, 4, 0, {.constraint = &every}), Error);
    } else if (o.temperature == 0 || (o.top_p == 1 && o.top_k == 0)) {
      EXPECT_NE(Sampler(o, 1).choose(all, {}, 4, 0, {.constraint = &every}).id, every.refused);
      EXPECT_EQ(Sampler(o, 1).choose(all, {}, 4, 0, {.constraint = &every}).id,
                Sampler(o, 1).choose(all, {}, 4, 0, {.allowed = without}).id);
    }
  }
  EXPECT_GE(most, 5);  // more than are tried one by one: its mask decided
}

TEST(Sampler, LogProbabilitiesAreTheModelsOwn) {
  const std::vector<float> logits = random_logits(300, 9);
  const std::vector<double> p = softmax({logits.begin(), logits.end()});
  SamplerOptions o;
  o.temperature = 0.3, o.bias = {{5, 3.0f}};
  const TokenChoice c = Sampler(o, 1).choose(logits, {}, 0, 4);
  EXPECT_NEAR(c.logprob, std::log(p[static_cast<std::size_t>(c.id)]), 1e-5);
  ASSERT_EQ(c.top.size(), 4u);
  std::vector<double> sorted = p;
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(c.top[i].second, std::log(sorted[i]), 1e-5);
    EXPECT_NEAR(c.top[i].second, std::log(p[static_cast<std::size_t>(c.top[i].first)]), 1e-5);
  }
  EXPECT_EQ(Sampler(o, 1).choose(logits, {}, 0, -1).logprob, 0);
  EXPECT_EQ(Sampler(o, 1).choose(logits, {}, 0, 1000).top.size(), logits.size());
}

// Mirostat as sampler.h states it, on a sorted vocabulary, with the same draws: ids must be equal one
// by one.
TEST(Sampler, MirostatFollowsItsDefinition) {
  for (const int kind : {1, 2}) {
    for (const double temperature : {1.0, 0.7}) {
      SamplerOptions o = plain();
      o.mirostat = kind, o.mirostat_tau = 3, o.mirostat_eta = 0.2, o.seed = 4, o.temperature = temperature;
      Sampler sampler(o, 2);
      double mu = 6;
      std::set<std::size_t> sizes;
      for (int step = 0; step < 60; ++step) {
        const std::vector<float> logits = random_logits(700, 100 + static_cast<std::uint64_t>(step), 1.5);
        std::vector<std::int32_t> order(logits.size());
        std::iota(order.begin(), order.end(), 0);
        auto at = [&](std::int32_t i) {
          return static_cast<double>(logits[static_cast<std::size_t>(i)]) / temperature;
        };
        sort_by_value(order, at);
        std::vector<double> l;
        for (std::int32_t i : order) l.push_back(at(i));
        const std::vector<double> p = softmax(l);
        std::size_t kept = 1;
        if (kind == 2) {
          while (kept < p.size() && -std::log2(p[kept]) <= mu) ++kept;
        } else {
          double tb = 0, tt = 0;
          for (std::size_t i = 0; i < 99; ++i) {
            const double t = std::log(double(i + 2) / double(i + 1));
            tb += t * std::log(p[i] / p[i + 1]);
            tt += t * t;
          }
          const double s = tb / tt, e = s - 1;
          kept = static_cast<std::size_t>(
              std::clamp(std::pow(e * std::exp2(mu) / (1 - std::pow(700.0, -e)), 1 / s), 1.0, 700.0));
        }
        sizes.insert(kept);
        l.resize(kept);
        const std::vector<double> q = softmax(l);
        const Random4 r = philox(mix_key(mix_key(4, 0x64726177), 2), static_cast<std::uint64_t>(step));
        const double u = static_cast<double>((std::uint64_t{r[0]} << 32 | r[1]) >> 11) * 0x1p-53;
        std::size_t chosen = 0;
        for (double running = q[0]; running <= u && chosen + 1 < kept;) running += q[++chosen];
        EXPECT_EQ(sampler.choose(logits, {}, step).id, order[chosen])
            << "mirostat " << kind << ", step " << step;
        mu -= 0.2 * (-std::log2(q[chosen]) - 3);
      }
      EXPECT_GT(sizes.size(), 10u) << "the cut must move";
    }
  }
}

TEST(Sampler, DrawsDependOnSeedSequenceAndPositionOnly) {
  const std::vector<float> logits = random_logits(100, 2);
  SamplerOptions o = plain();
  auto run = [&](std::uint64_t seed, std::uint64_t sequence, Dim from) {
    o.seed = seed;
    Sampler s(o, sequence);
    std::vector<std::int32_t> ids;
    for (Dim i = 0; i < 40; ++i) ids.push_back(s.choose(logits, {}, from + i).id);
    return ids;
  };
  EXPECT_EQ(run(1, 2, 3), run(1, 2, 3));
  EXPECT_NE(run(1, 2, 3), run(2, 2, 3));
  EXPECT_NE(run(1, 2, 3), run(1, 3, 3));
  const auto a = run(1, 2, 0), b = run(1, 2, 10);
  EXPECT_TRUE(std::equal(a.begin() + 10, a.end(), b.begin()));
}

TEST(Sampler, RefusesWhatIsNoNumberAndWhatIsOutOfRange) {
  SamplerOptions o;
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits = random_logits(33, 1);
    logits[17] = odd;
    try {
      Sampler(o, 0).choose(logits, {}, 0);
      FAIL();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("token 17"), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(Sampler(o, 0).choose({}, {}, 0), Error);
  const double nan = std::nan("");
  auto refused = [](auto change, const char* field) {
    SamplerOptions bad;
    change(bad);
    try {
      check(bad);
      ADD_FAILURE() << field << " was accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(field), std::string::npos) << e.what();
      EXPECT_EQ(e.kind(), Error::Kind::usage);
    }
  };
  refused([](auto& s) { s.temperature = -0.1; }, "temperature");
  refused([&](auto& s) { s.temperature = nan; }, "temperature");
  refused([](auto& s) { s.top_k = -1; }, "top_k");
  refused([](auto& s) { s.top_p = 1.01; }, "top_p");
  refused([&](auto& s) { s.min_p = nan; }, "min_p");
  refused([](auto& s) { s.typical_p = -1; }, "typical_p");
  refused([](auto& s) { s.repeat_penalty = 0; }, "repeat_penalty");
  refused([&](auto& s) { s.frequency_penalty = nan; }, "frequency_penalty");
  refused([](auto& s) { s.penalty_last = -2; }, "penalty_last");
  refused([](auto& s) { s.mirostat = 3; }, "mirostat");
  refused([](auto& s) { s.mirostat_tau = -1; }, "mirostat_tau");
  refused([](auto& s) { s.min_keep = 0; }, "min_keep");
  refused([](auto& s) { s.bias = {{-1, 0.f}}; }, "bias");
  refused([&](auto& s) { s.bias = {{1, static_cast<float>(nan)}}; }, "bias");
}

}  // namespace
}  // namespace rapt::test
