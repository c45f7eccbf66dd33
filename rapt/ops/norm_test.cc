// SPDX-License-Identifier: Apache-2.0
// Every kind and form of weight, at odd widths, against the formula in double, by the harness of op_test.h.
#include "rapt/ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(norm)

namespace rapt::test {
namespace {

std::vector<double> reference_norm(const NormSpec& spec, const Array& x, const Weight* w, const Weight* b) {
  const auto C = static_cast<std::size_t>(x.shape.back());
  std::vector<double> y(x.values.size());
  for (std::size_t r = 0; r < y.size() / C; ++r) {
    const double* in = x.values.data() + r * C;
    double mean = 0, square = 0;
    if (spec.kind == NormKind::layer)
      for (std::size_t c = 0; c < C; ++c) mean += in[c] / static_cast<double>(C);
    for (std::size_t c = 0; c < C; ++c) square += (in[c] - mean) * (in[c] - mean);
    if (spec.kind != NormKind::l2) square /= static_cast<double>(C);
    const double inv = 1 / std::sqrt(square + spec.eps);
    for (std::size_t c = 0; c < C; ++c) {
      const Dim at = static_cast<Dim>(w ? (r * C + c) % static_cast<std::size_t>(w->size()) : c);
      const double gain = w ? w->get(0, at) + (spec.plus_one ? 1 : 0) : 1;
      y[r * C + c] = (in[c] - mean) * inv * gain + (b ? b->get(0, at) : 0);
    }
  }
  return y;
}

TEST(Norm, EveryKindWeightFormAndOddSize) {
  for (NormKind kind : {NormKind::layer, NormKind::rms, NormKind::l2})
    for (Dim cols : {1, 3, 17, 64, 100, 257})
      // No weight, weight, weight stored minus one with bias, per-head weights.
      for (int form = 0; form < 4; ++form) {
        const NormSpec spec{kind, 1e-5, form == 2};
        const Dim heads = form == 3 ? 3 : 1;
        OpCase c;
        c.name = concat("norm kind ", static_cast<int>(kind), " cols ", cols, " form ", form);
        c.inputs = {array({5, heads, cols}, 1, 2.0, 0.5)};
        if (form > 0) c.weights.push_back(weight(1, heads * cols, 2, 0.5, form == 2 ? 0 : 1));
        if (form == 2) c.weights.push_back(weight(1, heads * cols, 3));
        c.op = [=](rapt::Run& run, const std::vector<Tensor>& in,
                   const std::vector<Weight>& w) -> std::vector<Tensor> {
          return {norm(run, spec, in[0], w.empty() ? nullptr : &w[0], w.size() > 1 ? &w[1] : nullptr)};
        };
        c.reference = [=](const std::vector<Array>& in, const std::vector<Weight>& w) {
          return reference_norm(spec, in[0], w.empty() ? nullptr : &w[0], w.size() > 1 ? &w[1] : nullptr);
        };
        // One number alone (two, for layer) is normed to 1 whatever it is: its gradient is what eps
        // leaves, and f32 cannot hold that.
        c.gradient = cols > 2;
        check(c);
      }
}

TEST(Norm, RefusesAWeightOfTheWrongSize) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Weight w = make_weight("w", 1, 5, device.real);
  EXPECT_THROW(norm(run, {}, run.make({2, 4}), &w), Error);
}

}  // namespace
}  // namespace rapt::test
