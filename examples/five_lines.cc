// SPDX-License-Identifier: Apache-2.0
// The example of README.md: a preset made small, run forward over three tokens.
#include <iostream>

#include "rapt/nn/model.h"

int main() {
  rapt::Recipe recipe = rapt::preset("gpt2");                // a model is data …
  recipe.width = 96, recipe.vocab = 256, recipe.decoder->layers = 2;
  rapt::Device device;                                       // … the best instruction set of this machine …
  rapt::Model model(rapt::resolve(recipe), device.real);
  rapt::init(model, /*seed=*/1);
  rapt::Run run(device);                                     // … and one pass, here without tape, taps or cache
  const std::int32_t tokens[] = {82, 65, 112};
  rapt::Tensor logits = rapt::forward(run, model, {.tokens = tokens, .sequences = {{.count = 3}}});
  std::cout << model.parameters() << " weights on " << device.kernels.isa << " give logits " << logits.shape() << "\n";
}
