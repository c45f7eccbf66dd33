// SPDX-License-Identifier: Apache-2.0
// y = norm(W x + b): which part of b survives? BatchNorm subtracts each channel's mean over the rows, and b
// is such a mean. LayerNorm subtracts each row's mean over the channels, so it removes the part of b that is
// equal in all channels and no more. RMS and L2 norms subtract nothing.
#include <cmath>

#include "rapt/base/rng.h"
#include "rapt/lab/experiments_math.h"
#include "rapt/lab/measure.h"
#include "rapt/lab/toy.h"
#include "rapt/ops/batch_norm.h"
#include "rapt/ops/linear.h"
#include "rapt/ops/norm.h"

namespace rapt {
namespace {

constexpr Dim kRows = 24, kIn = 16, kOut = 16;

enum class Kind { batch, layer, rms, l2 };

struct Result {
  std::vector<double> y, db;
};

Result run_norm(Device& f64, Kind kind, std::uint64_t seed, const std::vector<double>& bias) {
  Run run(f64);
  Gradients gradients(f64.real);
  Tape tape(gradients);
  run.tape = &tape;
  run.training = true;
  Weight w = normal_weight(f64.real, kOut, kIn, mix_key(seed, 1), 0.3),
         b = make_weight("b", 1, kOut, f64.real), running = make_weight("running", 1, 2 * kOut, f64.real);
  w.index = 0, b.index = 1, running.index = 2;
  fill(b, bias);
  const Tensor x = linear(run, normal_tensor(run, {kRows, kIn}, mix_key(seed, 2)), w, &b);
  const Tensor y = kind == Kind::batch ? batch_norm(run, {.eps = 1e-12}, x, nullptr, nullptr, running)
                                       : norm(run,
                                              {kind == Kind::layer ? NormKind::layer
                                               : kind == Kind::rms ? NormKind::rms
                                                                   : NormKind::l2,
                                               1e-12, false},
                                              x, nullptr);
  backward_from(run, y, mix_key(seed, 3));
  return {values_of(y), gradient_of(gradients, b)};
}

}  // namespace

LabResult norm_bias(const Lab& lab) {
  Device f64({.threads = 1, .isa = "f64"});
  const Text names[] = {say("lab.norm-bias.batch"), "LayerNorm", "RMSNorm", say("lab.norm-bias.l2")};
  LabResult r;
  const std::vector<double> none(static_cast<std::size_t>(kOut)), equal(static_cast<std::size_t>(kOut), 1.0),
      any = normal_values(mix_key(lab.seed, 4), kOut);
  Table t{.title = say("lab.norm-bias.table"),
          .columns = {say("lab.norm-bias.norm"), say("lab.norm-bias.any"), say("lab.norm-bias.equal"),
                      say("lab.norm-bias.gradient"), say("lab.norm-bias.along")},
          .rows = {}};
  Chart chart{.title = say("lab.norm-bias.chart"),
              .x_label = say("lab.norm-bias.size"),
              .y_label = say("lab.norm-bias.change")};
  double change[4], flat[4], gradient[4], along[4];
  for (int k = 0; k < 4; ++k) {
    const auto kind = static_cast<Kind>(k);
    const Result base = run_norm(f64, kind, lab.seed, none), moved = run_norm(f64, kind, lab.seed, any);
    change[k] = relative_difference(moved.y, base.y);
    flat[k] = relative_difference(run_norm(f64, kind, lab.seed, equal).y, base.y);
    gradient[k] = largest(moved.db);
    double sum = 0;
    for (double g : moved.db) sum += g;
    along[k] = std::abs(sum) / std::sqrt(static_cast<double>(kOut));
    t.rows.push_back({names[k], Cell(change[k]), Cell(flat[k]), Cell(gradient[k]), Cell(along[k])});
    Curve c{.name = names[k], .x = {}, .y = {}};
    for (double size = 0; size <= 4; size += 0.25) {
      std::vector<double> b = any;
      for (double& v : b) v *= size;
      c.x.push_back(size);
      c.y.push_back(relative_difference(run_norm(f64, kind, lab.seed, b).y, base.y));
    }
    chart.curves.push_back(std::move(c));
  }
  r.findings = {
      below(say("lab.norm-bias.f.batch"), change[0], 1e-10, ""),
      below(say("lab.norm-bias.f.batch_gradient"), gradient[0], 1e-10, ""),
      below(say("lab.norm-bias.f.layer_equal"), flat[1], 1e-10, ""),
      above(say("lab.norm-bias.f.layer_any"), change[1], 0.01, ""),
      above(say("lab.norm-bias.f.rms_any"), std::min(change[2], change[3]), 0.01, ""),
      above(say("lab.norm-bias.f.rms_equal"), std::min(flat[2], flat[3]), 0.01, ""),
  };
  r.verdict = all_hold(r.findings)
                  ? say("lab.norm-bias.v.so", digits(100 * change[1], 0), digits(100 * change[2], 0))
                  : say("lab.norm-bias.v.not");
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(chart));
  return r;
}

}  // namespace rapt
