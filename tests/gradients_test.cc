// SPDX-License-Identifier: Apache-2.0
// Every op of RAPT_OPS has a gradient check: its test says RAPT_GRADIENT_CHECKED(op) (ops/op_test.h). An op
// without one leaves a symbol below undefined, and the tests do not link.
#include <gtest/gtest.h>

#include "rapt/device/device.h"

namespace rapt {

namespace gradient_checked {
#define RAPT_REQUIRE(op, Stem) extern const int op;
RAPT_OPS(RAPT_REQUIRE)
#undef RAPT_REQUIRE
}  // namespace gradient_checked

namespace {

TEST(Gradients, OfEveryOpAreChecked) {
  int checked = 0, ops = 0;
#define RAPT_COUNT(op, Stem) checked += gradient_checked::op, ++ops;
  RAPT_OPS(RAPT_COUNT)
#undef RAPT_COUNT
  EXPECT_EQ(checked, ops);
}

TEST(KernelTable, HasNoHoleOnAnyInstructionSet) {
  std::vector<std::string> isas = available_isas();
  isas.push_back("f64");
  for (const std::string& isa : isas) {
    const Kernels& k = kernels_for(isa);
    EXPECT_EQ(isa, k.isa);
    EXPECT_EQ(k.real, isa == "f64" ? DType::f64 : DType::f32);
#define RAPT_CHECK(op, Stem)                  \
  EXPECT_NE(k.op, nullptr) << isa << " " #op; \
  EXPECT_NE(k.op##_backward, nullptr) << isa << " " #op "_backward";
    RAPT_OPS(RAPT_CHECK)
#undef RAPT_CHECK
#define RAPT_CHECK(name, Stem) EXPECT_NE(k.name, nullptr) << isa << " " #name;
    RAPT_PLAIN_KERNELS(RAPT_CHECK)
#undef RAPT_CHECK
  }
  EXPECT_THROW(kernels_for("abacus"), Error);
}

}  // namespace
}  // namespace rapt
