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
constexpr const char* kNames[] = {"BatchNorm (training)", "LayerNorm", "RMSNorm", "L2 norm"};

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
  LabResult r;
  const std::vector<double> none(static_cast<std::size_t>(kOut)), equal(static_cast<std::size_t>(kOut), 1.0),
      any = normal_values(mix_key(lab.seed, 4), kOut);
  Table t{.title = "y = norm(W x + b) in double",
          .columns = {"norm", "change by any bias", "by one equal in all channels", "gradient of b",
                      "its part along equal channels"},
          .rows = {}};
  Chart chart{.title = "Change of the normed output by a random bias",
              .x_label = "size of the bias",
              .y_label = "relative change"};
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
    t.rows.push_back({kNames[k], Cell(change[k]), Cell(flat[k]), Cell(gradient[k]), Cell(along[k])});
    Curve c{.name = kNames[k], .x = {}, .y = {}};
    for (double size = 0; size <= 4; size += 0.25) {
      std::vector<double> b = any;
      for (double& v : b) v *= size;
      c.x.push_back(size);
      c.y.push_back(relative_difference(run_norm(f64, kind, lab.seed, b).y, base.y));
    }
    chart.curves.push_back(std::move(c));
  }
  r.findings = {
      below("change by any bias before BatchNorm", change[0], 1e-10, ""),
      below("gradient of that bias", gradient[0], 1e-10, ""),
      below("change by a bias equal in all channels before LayerNorm", flat[1], 1e-10, ""),
      above("change by any other bias before LayerNorm", change[1], 0.01, ""),
      above("change by any bias before RMSNorm or L2 norm, the smaller", std::min(change[2], change[3]), 0.01,
            ""),
      above("change by an equal one there, the smaller", std::min(flat[2], flat[3]), 0.01, ""),
  };
  r.verdict =
      all_hold(r.findings)
          ? concat(
                "Wrong: the norm that cancels a bias before it is BatchNorm. LayerNorm takes away only "
                "what is equal in all channels (a random bias still changes "
                "its output by ",
                digits(100 * change[1], 0), " %), RMSNorm nothing (", digits(100 * change[2], 0),
                " %); and in a pre-norm block no norm follows Q, K and V anyway, except a QK-norm.")
          : "A norm did not treat the bias as its formula says; see the table.";
  r.document.parts.push_back(std::move(t));
  r.document.parts.push_back(std::move(chart));
  return r;
}

}  // namespace rapt
