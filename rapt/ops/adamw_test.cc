// SPDX-License-Identifier: Apache-2.0
#include "rapt/ops/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rapt/ops/op_test.h"

namespace rapt::test {
namespace {

struct State {
  std::vector<double> weight, mean, variance;
};

// One step on a device, through its own number type.
void step(Device& device, const AdamWArgs& options, State& s, const std::vector<double>& gradient) {
  rapt::Run run(device);
  const auto n = static_cast<Dim>(gradient.size());
  const Tensor w = run.upload({n}, s.weight), g = run.upload({n}, gradient), m = run.upload({n}, s.mean), v = run.upload({n}, s.variance);
  AdamWArgs a = options;
  a.elements = n;
  a.weight = w.data;
  a.gradient = g.data;
  a.mean = m.data;
  a.variance = v.data;
  device.kernels.adamw(device.queue(), a);
  s = {values_of(w), values_of(m), values_of(v)};
}

void plain_step(const AdamWArgs& a, State& s, const std::vector<double>& gradient) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * a.gradient_scale;
    s.mean[i] = a.beta1 * s.mean[i] + (1 - a.beta1) * g;
    s.variance[i] = a.beta2 * s.variance[i] + (1 - a.beta2) * g * g;
    s.weight[i] -= a.rate * (a.decay * s.weight[i] + (s.mean[i] / a.correction1) / (std::sqrt(s.variance[i] / a.correction2) + a.eps));
  }
}

AdamWArgs options_at(int step, double scale = 1) {
  AdamWArgs a{};
  a.rate = 0.05, a.beta1 = 0.9, a.beta2 = 0.98, a.eps = 1e-8, a.decay = 0.1;
  a.correction1 = 1 - std::pow(a.beta1, step), a.correction2 = 1 - std::pow(a.beta2, step);
  a.gradient_scale = scale;
  return a;
}

std::vector<std::string> every_isa() {
  std::vector<std::string> all = available_isas();
  all.push_back("f64");
  return all;
}

// torch.optim.AdamW (2.x, float64), lr 0.05, betas 0.9 and 0.98, eps 1e-8, weight decay 0.1.
TEST(AdamW, FiveStepsAsPyTorchTakesThem) {
  const std::vector<std::vector<double>> gradients = {{-0.19, 0.37, 0.09, 2.84},
                                                      {0.33, -1.17, -2.66, -0.72},
                                                      {0.13, -0.86, 0.9, 0.91},
                                                      {1.06, -0.57, -1.11, 0.31},
                                                      {-0.3, -1.67, -1.46, 1.91}};
  const std::vector<std::vector<double>> weights = {{0.746499997368421, -0.547499998648649, 0.238550005555555, -0.338549999823944},
                                                    {0.727266985154448, -0.519481978590291, 0.273239138409936, -0.360283151522614},
                                                    {0.701913866061067, -0.482570871011157, 0.288021190107015, -0.385381724832253},
                                                    {0.665327209914313, -0.443477565534994, 0.30961156817335, -0.408438894731904},
                                                    {0.641791083607409, -0.400432307951932, 0.337482948795357, -0.438721250177987}};
  for (const std::string& isa : every_isa()) {
    Device device({.threads = 1, .isa = isa});
    State s{{0.7, -0.5, 0.29, -0.29}, std::vector<double>(4), std::vector<double>(4)};
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      step(device, options_at(static_cast<int>(i) + 1), s, gradients[i]);
      for (std::size_t j = 0; j < 4; ++j)
        EXPECT_NEAR(s.weight[j], weights[i][j], isa == "f64" ? 1e-14 : 3e-7) << isa << " step " << i << " weight " << j;
    }
  }
}

TEST(AdamW, OddSizesAgainstThePlainLoopAndWhateverTheThreads) {
  for (const std::string& isa : every_isa())
    for (std::size_t n : {std::size_t{1}, std::size_t{37}, std::size_t{20011}}) {
      State expected{normals(n, 1), std::vector<double>(n), std::vector<double>(n)}, got = expected, threaded = expected;
      Device one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
      for (int i = 1; i <= 3; ++i) {
        const auto gradient = normals(n, 10 + static_cast<std::uint64_t>(i), 100);
        const AdamWArgs options = options_at(i, 0.01);  // clipped to a hundredth
        plain_step(options, expected, gradient);
        step(one, options, got, gradient);
        step(three, options, threaded, gradient);
      }
      const double limit = isa == "f64" ? 1e-26 : 1e-12;
      EXPECT_LE(nmse(got.weight, expected.weight), limit) << isa << " " << n;
      EXPECT_LE(nmse(got.mean, expected.mean), limit) << isa << " " << n;
      EXPECT_LE(nmse(got.variance, expected.variance), limit) << isa << " " << n;
      EXPECT_EQ(got.weight, threaded.weight) << isa << " " << n;
    }
}

TEST(AdamW, NoGradientOnlyDecays) {
  for (const std::string& isa : every_isa()) {
    Device device({.threads = 1, .isa = isa});
    State s{{2, -4, 0}, {0, 0, 0}, {0, 0, 0}};
    step(device, options_at(1), s, {0, 0, 0});
    EXPECT_NEAR(s.weight[0], 2 * 0.995, 1e-6);
    EXPECT_NEAR(s.weight[1], -4 * 0.995, 1e-6);
    EXPECT_EQ(s.weight[2], 0);
  }
}

}  // namespace
}  // namespace rapt::test
