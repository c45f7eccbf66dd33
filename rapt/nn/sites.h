// SPDX-License-Identifier: Apache-2.0
// Places of a pass outside of parts. A part defines its own, beside its forward (parts/); those of the attention op stand in ops/attention.h.
#pragma once
#include "rapt/run/taps.h"

namespace rapt::site {

inline constexpr Site tokens{"tokens"};  // rows of the token table, scaled                                [T,C]
inline constexpr Site positions{"positions"};  // what is added to them for their places: learned or sinusoid    [T,C]
inline constexpr Site embed{"embed"};  // what enters the stack                                          [T,C]
inline constexpr Site resid_in{"resid_in"};  // residual stream before a part; of a parallel layer once        [T,C]
inline constexpr Site part_out{"part_out"};  // a part's result after its norm: what the residual stream gains [T,C]
inline constexpr Site resid_sum{"resid_sum"};  // stream after a part whose norm stands on the sum, before it    [T,C]
inline constexpr Site resid_out{"resid_out"};  // residual stream after a layer                                  [T,C]
inline constexpr Site final_norm{"final_norm"};  // [T,C]
inline constexpr Site unembed{"unembed"};  // logits before their cap                                        [T,V]
inline constexpr Site logits{"logits"};  // [T,V]

}  // namespace rapt::site
