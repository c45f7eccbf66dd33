// SPDX-License-Identifier: Apache-2.0
// The table of one instruction set: every kernel of the lists in device/kernels.h, found by its name in this
// set's namespace.
#include "rapt/device/kernels.h"
#include "rapt/ops/isa.h"

namespace rapt::RAPT_ISA {

#define RAPT_DECLARE(name, Stem)                 \
  void name(Queue&, const Stem##Args&) noexcept; \
  void name##_backward(Queue&, const Stem##BackwardArgs&) noexcept;
RAPT_OPS(RAPT_DECLARE)
#undef RAPT_DECLARE
#define RAPT_DECLARE(name, Stem) void name(Queue&, const Stem##Args&) noexcept;
RAPT_PLAIN_KERNELS(RAPT_DECLARE)
#undef RAPT_DECLARE

#define RAPT_STRING2(x) #x
#define RAPT_STRING(x) RAPT_STRING2(x)
extern const Kernels kKernels;
// clang-format off
const Kernels kKernels = {
    .isa = RAPT_STRING(RAPT_ISA),
    .real = RAPT_IS(f64) ? DType::f64 : DType::f32,
#define RAPT_FILL(name, Stem) .name = name, .name##_backward = name##_backward,
    RAPT_OPS(RAPT_FILL)
#undef RAPT_FILL
#define RAPT_FILL(name, Stem) .name = name,
    RAPT_PLAIN_KERNELS(RAPT_FILL)
#undef RAPT_FILL
};
// clang-format on

}  // namespace rapt::RAPT_ISA
