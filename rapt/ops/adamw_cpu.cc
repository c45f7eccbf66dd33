// SPDX-License-Identifier: Apache-2.0
#include "rapt/ops/adamw.h"

#include "rapt/ops/simd.h"

namespace rapt::RAPT_ISA {

void adamw(Queue& queue, const AdamWArgs& a) noexcept {
  constexpr Dim kPiece = 8192;  // elements per task; a multiple of every W
  for_ranges(queue, a.elements, kPiece, [&](Dim begin, Dim end, int) {
    Real *weight = static_cast<Real*>(a.weight), *mean = static_cast<Real*>(a.mean), *variance = static_cast<Real*>(a.variance);
    const Real* gradient = static_cast<const Real*>(a.gradient);
    const V b1 = vset(Real(a.beta1)), b2 = vset(Real(a.beta2)), rest1 = vset(Real(1 - a.beta1)), rest2 = vset(Real(1 - a.beta2));
    const V scale = vset(Real(a.gradient_scale)), keep = vset(Real(1 - a.rate * a.decay)), eps = vset(Real(a.eps));
    const V step = vset(Real(a.rate / a.correction1)), shrink = vset(Real(1 / sqrt(a.correction2)));
    for (Dim i = begin; i < end; i += W) {
      const Dim n = end - i;
      const V g = vload_n(gradient + i, n) * scale;
      const V m = vfma(b1, vload_n(mean + i, n), rest1 * g), v = vfma(b2, vload_n(variance + i, n), rest2 * g * g);
      vstore_n(mean + i, m, n);
      vstore_n(variance + i, v, n);
      vstore_n(weight + i, vload_n(weight + i, n) * keep - step * m / vfma(vsqrt(v), shrink, eps), n);
    }
  });
}

}  // namespace rapt::RAPT_ISA
