// SPDX-License-Identifier: Apache-2.0
// What a public name carries: RAPT_API makes it visible outside the shared library, where everything else
// is hidden.
//
// Public names stand in rapt::api. Users write rapt::Model, since that namespace is inline for them. In the
// library's own sources, where rapt/base/error.h defines RAPT_INSIDE, it is not: there rapt::Model is the
// inside, and rapt::api::Model the type that users know.
#pragma once

#if defined(__GNUC__)
#define RAPT_API __attribute__((visibility("default")))
#else
#define RAPT_API
#endif

#ifdef RAPT_INSIDE
#define RAPT_FACE api
#else
#define RAPT_FACE inline api
#endif
