// SPDX-License-Identifier: Apache-2.0
// The example of README.md: a preset made small, run forward over three tokens.
#include <iostream>

#include "rapt/rapt.h"

int main() {
  const std::vector<std::string> small = {"width=96", "vocab=256", "layers=2"};
  // A model is data …
  const rapt::Model model = rapt::Model::make("gpt2", {.settings = small, .seed = 1});
  const rapt::Token tokens[] = {82, 65, 112};
  const rapt::Tensor logits = model.logits(tokens);  // … and one pass over it
  std::cout << model.info().parameters << " weights on " << model.device().isa() << " give logits of ";
  std::cout << logits.rows() << " tokens, " << logits.columns() << " each\n";
}
