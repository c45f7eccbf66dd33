// SPDX-License-Identifier: Apache-2.0
// Three steps of each kernel against plain loops in double; sums of squares to the bit, in one fixed order.
#include "rapt/ops/optimize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rapt/ops/op_test.h"

namespace rapt::test {
namespace {

std::vector<std::string> every_isa() {
  std::vector<std::string> all = available_isas();
  all.push_back("f64");
  return all;
}

struct One {  // a weight
  std::vector<double> weight, gradient, first, second;
  double decay = 0;
};

// A kernel over several weights at once, through the device's own number type.
template <class F>
void on_device(Device& device, std::vector<One>& all, bool momentum, const F& kernel) {
  rapt::Run run(device);
  std::vector<OptimizePart> parts;
  std::vector<std::array<Tensor, 4>> tensors;
  std::int64_t tasks = 0;
  for (One& one : all) {
    const auto n = static_cast<Dim>(one.weight.size());
    const std::array<Tensor, 4> t = {run.upload({n}, one.weight), run.upload({n}, one.gradient),
                                     run.upload({n}, one.first), run.upload({n}, one.second)};
    parts.push_back({.elements = n,
                     .tasks = tasks,
                     .weight = t[0].data,
                     .gradient = t[1].data,
                     .first = momentum ? t[2].data : nullptr,
                     .second = t[3].data,
                     .decay = one.decay});
    tasks += (n + kOptimizePiece - 1) / kOptimizePiece;
    tensors.push_back(t);
  }
  kernel(OptimizeParts{parts.data(), static_cast<std::int64_t>(parts.size()), tasks});
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].weight = values_of(tensors[i][0]);
    all[i].first = values_of(tensors[i][2]);
    all[i].second = values_of(tensors[i][3]);
  }
}

std::vector<One> some_weights() {
  std::vector<One> all;
  for (std::size_t n : {std::size_t{1}, std::size_t{37}, std::size_t{3}, std::size_t{40011},
                        std::size_t{16384}, std::size_t{64}}) {
    const std::uint64_t seed = 10 * n;
    One one{normals(n, seed), {}, std::vector<double>(n), std::vector<double>(n), n > 10 ? 0.1 : 0};
    all.push_back(one);
  }
  return all;
}

void draw_gradients(std::vector<One>& all, int step) {
  for (One& one : all)
    one.gradient =
        normals(one.weight.size(), one.weight.size() * 10 + 1 + static_cast<std::uint64_t>(step), 100);
}

// Three steps of a kernel against the plain loop, with one thread and with three.
template <class Kernel, class Plain>
void compare(bool momentum, const Kernel& kernel, const Plain& plain) {
  for (const std::string& isa : every_isa()) {
    Device one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
    std::vector<One> expected = some_weights(), got = expected, threaded = expected;
    for (int step = 1; step <= 3; ++step) {
      draw_gradients(expected, step), draw_gradients(got, step), draw_gradients(threaded, step);
      for (One& w : expected) plain(w, step);
      on_device(one, got, momentum, [&](const OptimizeParts& all) { kernel(one, all, step); });
      on_device(three, threaded, momentum, [&](const OptimizeParts& all) { kernel(three, all, step); });
    }
    const double limit = isa == "f64" ? 1e-26 : 1e-12;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(nmse(got[i].weight, expected[i].weight), limit) << isa << " " << got[i].weight.size();
      EXPECT_LE(nmse(got[i].first, expected[i].first), limit) << isa << " " << got[i].weight.size();
      EXPECT_LE(nmse(got[i].second, expected[i].second), limit) << isa << " " << got[i].weight.size();
      EXPECT_EQ(got[i].weight, threaded[i].weight) << isa;
      EXPECT_EQ(got[i].first, threaded[i].first) << isa;
      EXPECT_EQ(got[i].second, threaded[i].second) << isa;
    }
  }
}

TEST(Optimize, AdamAndAdamWOfManyWeightsAsThePlainLoopWhateverTheThreads) {
  constexpr double kRate = 0.05, kB1 = 0.9, kB2 = 0.98, kEps = 1e-8, kScale = 0.01;
  for (bool l2 : {false, true})
    compare(
        true,
        [&](Device& device, const OptimizeParts& all, int step) {
          device.kernels.adamw(device.queue(), {all, kRate, kB1, kB2, kEps, 1 - std::pow(kB1, step),
                                                1 - std::pow(kB2, step), kScale, l2});
        },
        [&](One& w, int step) {
          for (std::size_t i = 0; i < w.weight.size(); ++i) {
            const double g = w.gradient[i] * kScale + (l2 ? w.decay * w.weight[i] : 0);
            w.first[i] = kB1 * w.first[i] + (1 - kB1) * g;
            w.second[i] = kB2 * w.second[i] + (1 - kB2) * g * g;
            const double mean = w.first[i] / (1 - std::pow(kB1, step)),
                         variance = w.second[i] / (1 - std::pow(kB2, step));
            w.weight[i] -= kRate * ((l2 ? 0 : w.decay * w.weight[i]) + mean / (std::sqrt(variance) + kEps));
          }
        });
}

TEST(Optimize, SgdWithAndWithoutMomentumAsThePlainLoop) {
  constexpr double kRate = 0.05, kMomentum = 0.9, kScale = 0.01;
  for (int kind : {0, 1, 2})  // none, plain, Nesterov
    compare(
        kind > 0,
        [&](Device& device, const OptimizeParts& all, int) {
          device.kernels.sgd(device.queue(), {all, kRate, kMomentum, kScale, kind == 2});
        },
        [&](One& w, int) {
          for (std::size_t i = 0; i < w.weight.size(); ++i) {
            const double g = w.gradient[i] * kScale + w.decay * w.weight[i];
            if (kind > 0) w.first[i] = kMomentum * w.first[i] + g;
            w.weight[i] -= kRate * (kind == 0 ? g : kind == 1 ? w.first[i] : g + kMomentum * w.first[i]);
          }
        });
}

TEST(Optimize, MovingAverage) {
  compare(
      true,
      [](Device& device, const OptimizeParts& all, int) { device.kernels.ema(device.queue(), {all, 0.9}); },
      [](One& w, int) {
        for (std::size_t i = 0; i < w.weight.size(); ++i) w.first[i] = 0.9 * w.first[i] + 0.1 * w.weight[i];
      });
}

TEST(Optimize, AdamWWithoutGradientOnlyDecays) {
  for (const std::string& isa : every_isa()) {
    Device device({.threads = 1, .isa = isa});
    std::vector<One> all = {{{2, -4, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, 0.1}};
    on_device(device, all, true, [&](const OptimizeParts& parts) {
      device.kernels.adamw(device.queue(), {parts, 0.05, 0.9, 0.98, 1e-8, 0.1, 0.02, 1, false});
    });
    EXPECT_NEAR(all[0].weight[0], 2 * 0.995, 1e-6);
    EXPECT_NEAR(all[0].weight[1], -4 * 0.995, 1e-6);
    EXPECT_EQ(all[0].weight[2], 0);
  }
}

std::vector<double> sums_of(Device& device, std::vector<One>& all) {
  std::vector<double> sums;
  on_device(device, all, true, [&](const OptimizeParts& parts) {
    sums.assign(static_cast<std::size_t>(parts.tasks), -1);
    device.kernels.sum_squares(device.queue(), {parts, sums.data()});
  });
  return sums;
}

// Lane i % 32, then halves: the order is part of the result, to the bit, on every instruction set.
double plain_sum(const double* g, std::size_t n) {
  double lane[32] = {};
  for (std::size_t i = 0; i < n; ++i) lane[i % 32] += g[i] * g[i];
  for (int half = 16; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

TEST(Optimize, SumOfSquaresInOneFixedOrder) {
  std::vector<One> all = some_weights();
  draw_gradients(all, 1);
  std::vector<double> expected;
  for (const One& one : all)
    for (std::size_t at = 0; at < one.gradient.size(); at += kOptimizePiece)
      expected.push_back(
          plain_sum(&one.gradient[at], std::min<std::size_t>(kOptimizePiece, one.gradient.size() - at)));
  for (const std::string& isa : every_isa())
    for (int threads : {1, 3}) {
      Device device({.threads = threads, .isa = isa});
      EXPECT_EQ(sums_of(device, all), expected) << isa << " " << threads;
    }
}

TEST(Optimize, SumOfSquaresIsFiniteWhereEveryElementIs) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const std::string& isa : every_isa()) {
    Device device({.threads = 1, .isa = isa});
    for (std::size_t place : {std::size_t{0}, std::size_t{31}, std::size_t{64}, std::size_t{99}}) {
      std::vector<One> all = {{normals(100, 1), normals(100, 2), normals(100, 3), normals(100, 4)}};
      double& g = all[0].gradient[place];
      g = 3.4e38;  // its square is no f32
      EXPECT_NEAR(sums_of(device, all)[0] / 1.156e77, 1, 1e-3) << isa;
      g = 1e-30;   // … nor is this one's
      EXPECT_TRUE(std::isfinite(sums_of(device, all)[0])) << isa;
      for (double bad : {kInf, -kInf, std::nan("")}) {
        g = bad;
        EXPECT_FALSE(std::isfinite(sums_of(device, all)[0])) << isa << " " << bad << " at " << place;
      }
    }
    std::vector<One> small = {{{0, 0}, {1e-30, 0}, {0, 0}, {0, 0}}};
    EXPECT_NEAR(sums_of(device, small)[0], 1e-60, 1e-66) << isa;
  }
}

}  // namespace
}  // namespace rapt::test
