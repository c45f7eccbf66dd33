// SPDX-License-Identifier: Apache-2.0
// Layers and stacks: where norms stand around a part, how parts are added, and what is kept for the
// way back.
#pragma once
#include <memory>

#include "rapt/nn/layers.h"

namespace rapt {

// Works out what the parts of a stack will ask for.
void prepare(Run& run, Pass& pass, const LayerStack& stack);

// x [T,C] -> [T,C]. Without a tape each layer's scratch is given back; with run.recompute only layer inputs
// are kept.
Tensor run_stack(Run& run, const LayerStack& stack, Tensor x, const std::shared_ptr<const Pass>& pass);

}  // namespace rapt
