// SPDX-License-Identifier: Apache-2.0
// RAPT_IS(name): is this translation unit compiled for instruction set `name`? The build defines RAPT_ISA.
#pragma once
#define RAPT_SET_f64 1
#define RAPT_SET_scalar 2
#define RAPT_SET_avx2 3
#define RAPT_SET_avx512 4
#define RAPT_SET_neon 5
#define RAPT_JOIN2(a, b) a##b
#define RAPT_JOIN(a, b) RAPT_JOIN2(a, b)
#if !defined(RAPT_ISA)
#define RAPT_ISA scalar  // so that every header compiles alone
#endif
#define RAPT_IS(name) (RAPT_JOIN(RAPT_SET_, RAPT_ISA) == RAPT_SET_##name)
