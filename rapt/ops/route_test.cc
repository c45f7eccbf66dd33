// SPDX-License-Identifier: Apache-2.0
// Choice, weights and sums against plain loops, every kind of router; the auxiliary loss against its formula.
#include "rapt/ops/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(route)
RAPT_GRADIENT_CHECKED(dispatch)
RAPT_GRADIENT_CHECKED(combine)

namespace rapt::test {
namespace {

using Score = RouteSpec::Score;
using GroupScore = RouteSpec::GroupScore;

std::vector<double> plain_softmax(const std::vector<double>& z) {
  std::vector<double> p;
  double sum = 0;
  const double top = *std::max_element(z.begin(), z.end());
  for (double v : z) p.push_back(std::exp(v - top)), sum += p.back();
  for (double& v : p) v /= sum;
  return p;
}

// Indices of the `used` largest, the lowest first among equals, then ascending.
std::vector<std::size_t> best_of(const std::vector<double>& v, Dim used) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return v[a] != v[b] ? v[a] > v[b] : a < b; });
  order.resize(static_cast<std::size_t>(used));
  std::sort(order.begin(), order.end());
  return order;
}

struct PlainRoute {
  std::vector<std::size_t> experts;
  std::vector<double> weights;
};
PlainRoute plain_route(const RouteSpec& s, const std::vector<double>& z, const std::vector<double>& choice) {
  std::vector<double> score = z;
  if (s.score == Score::softmax) score = plain_softmax(z);
  if (s.score == Score::sigmoid)
    for (double& v : score) v = 1 / (1 + std::exp(-v));
  std::vector<double> by = score;
  for (std::size_t e = 0; e < choice.size(); ++e) by[e] += choice[e];
  if (s.groups > 1) {
    const std::size_t size = z.size() / static_cast<std::size_t>(s.groups);
    std::vector<double> of;
    for (std::size_t g = 0; g < z.size(); g += size) {
      std::vector<double> in(by.begin() + static_cast<std::ptrdiff_t>(g),
                             by.begin() + static_cast<std::ptrdiff_t>(g + size));
      std::sort(in.rbegin(), in.rend());
      of.push_back(s.group_score == GroupScore::max ? in[0] : in[0] + in[1]);
    }
    const std::vector<std::size_t> best = best_of(of, s.groups_used);
    for (std::size_t e = 0; e < z.size(); ++e)
      if (std::find(best.begin(), best.end(), e / size) == best.end())
        by[e] = s.group_score == GroupScore::max ? 0 : -HUGE_VAL;
  }
  PlainRoute out{best_of(by, s.used), {}};
  for (std::size_t e : out.experts) out.weights.push_back(score[e]);
  if (s.score == Score::chosen) {
    out.weights = plain_softmax(out.weights);
  } else if (s.renormalise) {
    const double sum = std::accumulate(out.weights.begin(), out.weights.end(), 0.0);
    for (double& w : out.weights) w /= s.eps_least ? std::max(sum, s.eps) : sum + s.eps;
  }
  for (double& w : out.weights) w *= s.scale;
  return out;
}

std::vector<double> values_of_row(const Array& a, Dim r) {
  const auto first = a.values.begin() + r * a.shape[1];
  return {first, first + a.shape[1]};
}

struct NamedRouter {
  const char* name;
  RouteSpec spec;
  bool choice = false;
};
std::vector<NamedRouter> routers() {
  return {
      {"Mixtral", {.experts = 8, .used = 2}},
      {"Qwen2-MoE", {.experts = 13, .used = 3, .renormalise = false}},
      {"gpt-oss", {.experts = 11, .used = 4, .score = Score::chosen}},
      {"DeepSeek V2",
       {.experts = 12,
        .used = 3,
        .groups = 4,
        .groups_used = 2,
        .group_score = GroupScore::max,
        .renormalise = false,
        .scale = 16}},
      {"DeepSeek V3",
       {.experts = 12,
        .used = 4,
        .score = Score::sigmoid,
        .groups = 3,
        .groups_used = 2,
        .eps = 1e-20,
        .scale = 2.5},
       true},
      {"ERNIE", {.experts = 9, .used = 3, .eps = 1e-12, .eps_least = true}, true},
      {"a large least sum", {.experts = 9, .used = 2, .eps = 5, .eps_least = true}},
      {"an eps that counts", {.experts = 33, .used = 5, .eps = 0.25}},
      {"Llama 4", {.experts = 16, .used = 1, .score = Score::sigmoid, .renormalise = false}},
      {"all of them", {.experts = 5, .used = 5}},
      {"one", {.experts = 1, .used = 1}},
  };
}

// The experts are the identity here: y = (sum of weights) x, wherever the weights stand.
TEST(Route, WeightsDispatchAndCombineFollowTheFormulas) {
  for (const NamedRouter& n : routers())
    for (const bool at_input : {false, true}) {
      const Dim T = 7, C = 5, E = n.spec.experts;
      OpCase c{.name = n.name, .inputs = {array({T, E}, 3, 1.5), array({T, C}, 4)}};
      if (n.choice) c.weights = {weight(1, E, 5, 0.3)};
      c.op = [&, at_input](rapt::Run& run, const std::vector<Tensor>& in, const std::vector<Weight>& w) {
        const Routing r = route(run, n.spec, in[0], n.choice ? &w[0] : nullptr, {});
        return std::vector<Tensor>{combine(run, dispatch(run, in[1], r, at_input), r, !at_input), r.weights};
      };
      c.reference = [&](const std::vector<Array>& in, const std::vector<Weight>& w) {
        std::vector<double> choice, y, weights;
        for (Dim e = 0; e < E && n.choice; ++e) choice.push_back(w[0].get(0, e));
        for (Dim t = 0; t < T; ++t) {
          const PlainRoute chosen = plain_route(n.spec, values_of_row(in[0], t), choice);
          const double sum = std::accumulate(chosen.weights.begin(), chosen.weights.end(), 0.0);
          for (double x : values_of_row(in[1], t)) y.push_back(sum * x);
          weights.insert(weights.end(), chosen.weights.begin(), chosen.weights.end());
        }
        y.insert(y.end(), weights.begin(), weights.end());
        return y;
      };
      check(c);
    }
}

TEST(Route, ListsAreSortedByExpertThenByRow) {
  Device device({.threads = 3});
  rapt::Run run(device);
  const RouteSpec spec{.experts = 6, .used = 2};
  const Array z = array({50, 6}, 9);
  const Routing r = route(run, spec, run.upload({50, 6}, z.values), nullptr, {});
  ASSERT_EQ(r.begin[0], 0);
  ASSERT_EQ(r.begin[6], 100);
  for (Dim e = 0; e < 6; ++e)
    for (Dim p = r.begin[e]; p < r.begin[e + 1]; ++p) {
      EXPECT_EQ(r.chosen[r.slots[p]], e);
      EXPECT_EQ(r.places[r.slots[p]], p);
      if (p > r.begin[e]) EXPECT_GT(r.slots[p], r.slots[p - 1]);
    }
  for (Dim t = 0; t < 50; ++t) {
    const std::vector<std::size_t> best = best_of(values_of_row(z, t), 2);
    EXPECT_EQ(r.chosen[2 * t], static_cast<std::int32_t>(best[0]));
    EXPECT_EQ(r.chosen[2 * t + 1], static_cast<std::int32_t>(best[1]));
  }
}

TEST(Route, EqualLogitsGoToTheLowestIndexAndNaNsStayInTheirRow) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const std::vector<double> z = {1, 2, 2, 2, 0, 0, 0, 0, NAN, NAN, NAN, NAN, 3, 1, 2, 0};
  const Routing r = route(run, {.experts = 4, .used = 2}, run.upload({4, 4}, z), nullptr, {});
  const std::vector<std::int32_t> chosen(r.chosen, r.chosen + 8);
  EXPECT_EQ(chosen, (std::vector<std::int32_t>{1, 2, 0, 1, 0, 1, 0, 2}));
  EXPECT_TRUE(std::isnan(r.weights.at(4)));
  EXPECT_FALSE(std::isnan(r.weights.at(6)));
}

double auxiliary(const std::vector<std::vector<double>>& z, const std::vector<double>& f) {
  double loss = 0;
  for (const std::vector<double>& row : z) {
    const std::vector<double> p = plain_softmax(row);
    for (std::size_t e = 0; e < p.size(); ++e) loss += f[e] * p[e];
  }
  return static_cast<double>(f.size()) * loss / static_cast<double>(z.size());
}

// factor * E * sum of f P, f held fixed, of one layer and of two that are balanced together.
TEST(Route, TheGradientOfTheAuxiliaryLossIsThatOfItsFormula) {
  for (const Score score : {Score::softmax, Score::sigmoid, Score::chosen})
    for (const bool together : {false, true}) {
      Device device({.threads = 2, .isa = "f64"});
      rapt::Run run(device);
      Gradients gradients(device.real);
      Tape tape(gradients);
      run.tape = &tape;
      const RouteSpec spec{.experts = 5, .used = 2, .score = score};
      const Array a = array({7, 5}, 31), b = array({7, 5}, 32);
      std::int64_t load[5] = {};
      const Balance balance{.factor = 0.01, .load = together ? load : nullptr};
      const Tensor first = run.upload({7, 5}, a.values), second = run.upload({7, 5}, b.values);
      const Routing r = route(run, spec, first, nullptr, balance);
      if (together) route(run, spec, second, nullptr, balance);
      std::vector<std::vector<double>> z;
      for (Dim t = 0; t < 7; ++t) z.push_back(values_of_row(a, t));
      for (Dim t = 0; t < 7 && together; ++t) z.push_back(values_of_row(b, t));
      std::vector<double> f(5);
      for (const std::vector<double>& row : z)
        for (std::size_t e : best_of(row, 2)) f[e] += 1 / static_cast<double>(z.size());
      if (!together) {
        double sum = 0;
        for (double x : f) sum += x;
        EXPECT_NEAR(sum, 2, 1e-12);
      }
      static_cast<void>(r);
      tape.play_back(run);
      const auto* got = static_cast<const double*>(run.grad(first));
      for (std::size_t t = 0; t < 7; ++t)
        for (std::size_t e = 0; e < 5; ++e) {
          auto up = z, down = z;
          up[t][e] += 1e-6, down[t][e] -= 1e-6;
          const double expected = 0.01 * (auxiliary(up, f) - auxiliary(down, f)) / 2e-6;
          EXPECT_NEAR(got[t * 5 + e], expected, 1e-10) << t << " " << e;
        }
    }
}

TEST(Route, WhatDoesNotFitIsRefused) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Tensor z = run.upload({1, 4}, std::vector<double>(4));
  EXPECT_THROW(route(run, {.experts = 5, .used = 1}, z, nullptr, {}), Error);
  EXPECT_THROW(route(run, {.experts = 4, .used = 5}, z, nullptr, {}), Error);
  EXPECT_THROW(route(run, {.experts = 4, .used = 2, .groups = 3}, z, nullptr, {}), Error);
  EXPECT_THROW(route(run, {.experts = 4, .used = 3, .groups = 4, .groups_used = 2}, z, nullptr, {}), Error);
  const Weight choice = make_weight("choice", 1, 3, DType::f32);
  EXPECT_THROW(route(run, {.experts = 4, .used = 1}, z, &choice, {}), Error);
  const Routing r = route(run, {.experts = 4, .used = 2}, z, nullptr, {});
  EXPECT_THROW(combine(run, z, r, true), Error);
  EXPECT_THROW(dispatch(run, run.upload({2, 4}, std::vector<double>(8)), r, false), Error);
}

}  // namespace
}  // namespace rapt::test
