// SPDX-License-Identifier: Apache-2.0
// Lines of the short convolution in a drawing.
#include "rapt/recipe/parts/conv.h"

#include "rapt/recipe/drawing.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

void draw(Drawing& d, const ConvRecipe& r, Dim C, const std::string&) {
  const std::string bias = r.bias ? " + bias" : "";
  d.inside("b, c, u", concat(with_commas(C), " → ", with_commas(C), " each", bias));
  d.inside("mix", concat("c ⊙ sum of ", r.kernel, " rows of b ⊙ u, every channel by itself", bias,
                         r.dropout > 0 ? ", " + dropout_text(r.dropout) : ""));
  d.inside("out", concat(with_commas(C), " → ", with_commas(C), bias));
}

}  // namespace rapt
