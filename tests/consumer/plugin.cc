// SPDX-License-Identifier: Apache-2.0
// A shared library with Rapt inside. Returns how many logits three tokens have; an error of Rapt is caught
// in here.
#include "rapt/rapt.h"

extern "C" __attribute__((visibility("default"))) long plugin() {
  try {
    rapt::Model::make("no such preset");
    return -1;
  } catch (const rapt::Error& e) {
    if (e.kind() != rapt::Error::Kind::missing) return -2;
  }
  const rapt::Model model =
      rapt::Model::make("gpt2", {.settings = {"width=96", "vocab=256", "layers=2"}, .seed = 1});
  const rapt::Token tokens[] = {82, 65, 112};
  return static_cast<long>(model.logits(tokens).values.size());
}
