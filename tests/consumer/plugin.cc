// SPDX-License-Identifier: Apache-2.0
// A shared library with Rapt inside. Returns how many logits three tokens have.
#include "rapt/nn/model.h"

extern "C" long plugin() {
  rapt::Recipe recipe = rapt::preset("gpt2");
  recipe.width = 96, recipe.vocab = 256, recipe.decoder->layers = 2;
  rapt::Device device;
  rapt::Model model(rapt::resolve(recipe), device.real);
  rapt::init(model, 1);
  rapt::Run run(device);
  const std::int32_t tokens[] = {82, 65, 112};
  return rapt::forward(run, model, {.tokens = tokens, .sequences = {{.count = 3}}}).elements();
}
