// SPDX-License-Identifier: Apache-2.0
// Places of a pass outside of parts. A part defines its own, beside its forward (parts/); those of the
// attention op stand in ops/attention.h.
#pragma once
#include "rapt/run/taps.h"

namespace rapt::site {

// Rows of the token table, scaled                                [T,C].
inline constexpr Site tokens{"tokens"};
// what is added to them for their places: learned or sinusoid    [T,C]
inline constexpr Site positions{"positions"};
// What enters the stack                                          [T,C].
inline constexpr Site embed{"embed"};
// Residual stream before a part; of a parallel layer once        [T,C].
inline constexpr Site resid_in{"resid_in"};
// A part's result after its norm: what the residual stream gains [T,C].
inline constexpr Site part_out{"part_out"};
// Stream after a part whose norm stands on the sum, before it    [T,C].
inline constexpr Site resid_sum{"resid_sum"};
// Residual stream after a layer                                  [T,C].
inline constexpr Site resid_out{"resid_out"};
inline constexpr Site final_norm{"final_norm"};  // [T,C]
// Logits before their cap                                        [T,V].
inline constexpr Site unembed{"unembed"};
inline constexpr Site logits{"logits"};  // [T,V]

}  // namespace rapt::site
