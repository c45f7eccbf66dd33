// SPDX-License-Identifier: Apache-2.0
// Batch and running statistics against plain loops in double; padded rows, even of NaN, must reach nothing.
#include "rapt/ops/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rapt/ops/op_test.h"

RAPT_GRADIENT_CHECKED(batch_norm)

namespace rapt::test {
namespace {

using Marks = std::vector<std::uint8_t>;

struct Statistics {
  std::vector<double> mean, var;  // var: biased
  double count = 0;
};

Statistics statistics_of(const Array& x, const Marks& valid) {
  const auto C = static_cast<std::size_t>(x.shape.back()), T = x.values.size() / C;
  Statistics s{std::vector<double>(C), std::vector<double>(C)};
  for (std::size_t r = 0; r < T; ++r) s.count += valid.empty() || valid[r];
  for (std::size_t c = 0; c < C; ++c) {
    for (std::size_t r = 0; r < T; ++r)
      if (valid.empty() || valid[r]) s.mean[c] += x.values[r * C + c] / s.count;
    for (std::size_t r = 0; r < T; ++r)
      if (valid.empty() || valid[r])
        s.var[c] += (x.values[r * C + c] - s.mean[c]) * (x.values[r * C + c] - s.mean[c]) / s.count;
  }
  return s;
}

std::vector<double> reference_batch_norm(const Array& x, const Statistics& s, double eps, const Weight* w,
                                         const Weight* b, const Marks& valid) {
  const auto C = static_cast<std::size_t>(x.shape.back());
  std::vector<double> y(x.values.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t c = i % C;
    if (!valid.empty() && !valid[i / C]) continue;  // padded rows are 0
    y[i] = (x.values[i] - s.mean[c]) / std::sqrt(s.var[c] + eps) * (w ? w->get(0, static_cast<Dim>(c)) : 1) +
           (b ? b->get(0, static_cast<Dim>(c)) : 0);
  }
  return y;
}

Weight running_of(DType real, const Statistics& s) {
  const auto C = static_cast<Dim>(s.mean.size());
  Weight w = make_weight("running", 2, C, real);
  for (Dim c = 0; c < C; ++c) {
    w.set(0, c, s.mean[static_cast<std::size_t>(c)]);
    w.set(1, c, s.var[static_cast<std::size_t>(c)]);
  }
  return w;
}

TEST(BatchNorm, TrainingAndNotEveryWeightFormPaddingAndOddSize) {
  for (bool training : {true, false})
    for (bool padded : {false, true})
      for (int form = 0; form < 3; ++form)  // no weight, weight, weight and bias
        for (Dim cols : {1, 5, 33, 130}) {
          Marks valid;
          if (padded) valid = {1, 0, 1, 1, 1, 0, 7, 1, 0};
          OpCase c;
          c.name =
              concat("batch_norm training ", training, " padded ", padded, " form ", form, " cols ", cols);
          c.training = training;
          c.inputs = {array({9, cols}, 1, 2.0, 0.5)};
          if (form > 0) c.weights.push_back(weight(1, cols, 2, 0.5, 1));
          if (form > 1) c.weights.push_back(weight(1, cols, 3));
          // The running statistics: they are no differentiable weights, so the case makes
          // them itself.
          Statistics kept;
          kept.mean = normals(static_cast<std::size_t>(cols), 4);
          kept.var = normals(static_cast<std::size_t>(cols), 5);
          for (double& v : kept.var) v = static_cast<float>(0.5 + v * v);
          c.op = [=](rapt::Run& run, const std::vector<Tensor>& in,
                     const std::vector<Weight>& w) -> std::vector<Tensor> {
            const Weight running = running_of(run.device.real, kept);
            Marks gone = valid;
            const Tensor y = batch_norm(run, {}, in[0], w.empty() ? nullptr : &w[0],
                                        w.size() > 1 ? &w[1] : nullptr, running, gone);
            gone.assign(gone.size(), 0);
            return {y};
          };
          c.reference = [=](const std::vector<Array>& in, const std::vector<Weight>& w) {
            return reference_batch_norm(in[0], training ? statistics_of(in[0], valid) : kept, 1e-5,
                                        w.empty() ? nullptr : &w[0], w.size() > 1 ? &w[1] : nullptr, valid);
          };
          check(c);
        }
}

// 3,000 rows: a plain f32 sum in row order would lose digits.
TEST(BatchNorm, ManyRows) {
  OpCase c;
  c.name = "batch_norm of many rows";
  c.training = true;
  c.gradient = false;
  c.inputs = {array({3000, 3}, 1, 1.0, 1.0)};
  c.op = [](rapt::Run& run, const std::vector<Tensor>& in,
            const std::vector<Weight>&) -> std::vector<Tensor> {
    return {batch_norm(run, {}, in[0], nullptr, nullptr, make_weight("running", 2, 3, run.device.real))};
  };
  c.reference = [](const std::vector<Array>& in, const std::vector<Weight>&) {
    return reference_batch_norm(in[0], statistics_of(in[0], {}), 1e-5, nullptr, nullptr, {});
  };
  check(c);
}

TEST(BatchNorm, TrainingMovesTheRunningStatisticsAndOnlyTraining) {
  const Array x = array({6, 19}, 1, 2.0, 0.5);
  const Marks valid = {1, 1, 0, 1, 0, 1};
  const Statistics s = statistics_of(x, valid);
  for (const std::string& isa : available_isas()) {
    Device device({.threads = 2, .isa = isa});
    rapt::Run run(device);
    Statistics start{normals(19, 4), std::vector<double>(19, 2.0)};
    const Weight running = running_of(device.real, start);
    const Tensor in = run.upload({6, 19}, x.values);
    const std::vector<double> eval =
        values_of(batch_norm(run, {.momentum = 0.25}, in, nullptr, nullptr, running, valid));
    for (Dim c = 0; c < 19; ++c) EXPECT_EQ(running.get(1, c), 2.0) << "changed without training";
    run.training = true;
    const std::vector<double> first =
        values_of(batch_norm(run, {.momentum = 0.25}, in, nullptr, nullptr, running, valid));
    for (Dim c = 0; c < 19; ++c) {
      const auto i = static_cast<std::size_t>(c);
      EXPECT_NEAR(running.get(0, c), 0.75 * start.mean[i] + 0.25 * s.mean[i], 1e-6);
      // unbiased: four rows count
      EXPECT_NEAR(running.get(1, c), 0.75 * 2.0 + 0.25 * s.var[i] * 4 / 3, 1e-5);
    }
    EXPECT_EQ(first, values_of(batch_norm(run, {.momentum = 0.25}, in, nullptr, nullptr, running, valid)))
        << "training must not read them";
    EXPECT_NE(first, eval);
  }
}

// Whatever stands in a padded row, even NaN, reaches neither a result nor a gradient.
TEST(BatchNorm, PaddedRowsPassNothing) {
  for (bool training : {true, false}) {
    Device device({.threads = 1, .isa = available_isas().back()});
    rapt::Run run(device);
    Gradients gradients(device.real);
    Tape tape(gradients);
    run.tape = &tape;
    run.training = training;
    std::vector<double> values = normals(4 * 21, 1);
    for (std::size_t c = 0; c < 21; ++c) values[21 + c] = NAN;
    const Weight running = running_of(device.real, {std::vector<double>(21), std::vector<double>(21, 1.0)});
    Weight w = make_weight("w", 1, 21, device.real);
    w.index = 0;
    const Tensor x = run.upload({4, 21}, values),
                 y = batch_norm(run, {}, x, &w, nullptr, running, Marks{1, 0, 1, 1});
    auto* dy = static_cast<float*>(run.grad(y));
    for (Dim i = 0; i < 4 * 21; ++i) dy[i] = static_cast<float>(i % 5) + (i / 21 == 1 ? NAN : 0);
    tape.play_back(run);
    const auto* dx = static_cast<const float*>(run.grad(x));
    for (Dim i = 0; i < 4 * 21; ++i) {
      EXPECT_TRUE(std::isfinite(y.at(i)));
      EXPECT_TRUE(std::isfinite(dx[i]));
      if (i / 21 != 1) continue;
      EXPECT_EQ(y.at(i), 0);
      EXPECT_EQ(dx[i], 0);
    }
    for (Dim c = 0; c < 21; ++c)
      EXPECT_TRUE(std::isfinite(gradients.get(w, 0, c)) && std::isfinite(running.get(0, c)) &&
                  std::isfinite(running.get(1, c)));
  }
}

TEST(BatchNorm, RefusesCausalTrainingUnlessMeant) {
  Device device({.threads = 1});
  rapt::Run run(device);
  const Weight running = make_weight("running", 2, 4, device.real);
  const Tensor x = run.upload({3, 4}, normals(12, 1));
  // running statistics leak nothing
  EXPECT_NO_THROW(batch_norm(run, {.causal = true}, x, nullptr, nullptr, running));
  run.training = true;
  EXPECT_NO_THROW(batch_norm(run, {}, x, nullptr, nullptr, running));
  EXPECT_NO_THROW(batch_norm(run, {.causal = true, .leaks_ok = true}, x, nullptr, nullptr, running));
  try {
    batch_norm(run, {.causal = true}, x, nullptr, nullptr, running);
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("later tokens"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("leaks_ok"), std::string::npos) << e.what();
  }
}

TEST(BatchNorm, RefusesWrongSizesAndTooFewRows) {
  Device device({.threads = 1});
  rapt::Run run(device);
  run.training = true;
  const Weight running = make_weight("running", 2, 4, device.real),
               short_one = make_weight("w", 1, 3, device.real);
  const Tensor x = run.upload({3, 4}, normals(12, 1));
  EXPECT_THROW(batch_norm(run, {}, x, &short_one, nullptr, running), Error);
  EXPECT_THROW(batch_norm(run, {}, x, nullptr, &short_one, running), Error);
  EXPECT_THROW(batch_norm(run, {}, x, nullptr, nullptr, short_one), Error);
  EXPECT_THROW(batch_norm(run, {}, x, nullptr, nullptr, running, Marks{1, 1}), Error);
  EXPECT_THROW(batch_norm(run, {}, x, nullptr, nullptr, running, Marks{0, 0, 1}), Error);
  EXPECT_THROW(batch_norm(run, {}, x.slice(0, 1), nullptr, nullptr, running), Error);
  run.training = false;
  EXPECT_NO_THROW(batch_norm(run, {}, x.slice(0, 1), nullptr, nullptr, running));
}

}  // namespace
}  // namespace rapt::test
