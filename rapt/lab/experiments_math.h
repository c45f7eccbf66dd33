// SPDX-License-Identifier: Apache-2.0
// The experiments that need little or no training: exact ones in double, times and counts; the table in
// experiments.cc names them.
#pragma once
#include "rapt/lab/experiment.h"

namespace rapt {

LabResult scale(const Lab& lab);           // why scores are divided by the root of the head's size
LabResult key_bias(const Lab& lab);        // where a bias on the keys does nothing, and where it is needed
LabResult value_bias(const Lab& lab);      // a bias on the values is a bias on the output
LabResult query_bias(const Lab& lab);      // a bias on the queries is a preference among keys
LabResult norm_bias(const Lab& lab);       // which norm cancels a bias before it
// Gradients and sizes by depth at the start, pre- and post-norm.
LabResult norm_place_math(const Lab& lab);
LabResult cost(const Lab& lab);            // n d^2 against n^2 d
LabResult residual(const Lab& lab);        // rows, gradients and training without residual connections
// Dot, scaled, additive, cosine, distance at the start; their times.
LabResult score_math(const Lab& lab);
LabResult positions_math(const Lab& lab);  // sinusoids, rotations, ALiBi: what is exact
LabResult masks(const Lab& lab);           // a missing causal mask, a wrong batch axis
LabResult padding_masks(const Lab& lab);   // shapes of masks; padding that is not masked
LabResult usual_code(const Lab& lab);      // code whose shapes fit and whose values are wrong
LabResult softmax_differences(const Lab& lab);  // a softmax sees differences, not ratios
LabResult cache_bias(const Lab& lab);      // quantized keys with and without their bias
LabResult gqa_math(const Lab& lab);        // bytes and speed by kv heads; conversion by mean

}  // namespace rapt
