// SPDX-License-Identifier: Apache-2.0
// Rules of the feed-forward part, then its lines in a drawing.
#include "rapt/recipe/parts/ffn.h"

#include "rapt/base/checked.h"
#include "rapt/recipe/drawing.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

void resolve(FfnRecipe& f, const PartPlace& place) {
  const std::string& path = place.path;
  if (f.width == 0) f.width = checked_mul(4, place.recipe.width, path);
  if (f.kind == FfnRecipe::Kind::mlp && (f.clamp != 0 || f.alpha != 1 || f.up_offset != 0))
    fail(path, ": clamp, alpha and up_offset belong to kind glu; remove them or change kind");
  if (f.kind == FfnRecipe::Kind::glu && (f.act == Act::ns_sigmoid || f.act == Act::softplus))
    fail(path, ".act: glu with ", name_text(f.act),
         " exists in no model and is not built; use relu, relu2, gelu, gelu_tanh, silu, "
         "quick_gelu, sigmoid or tanh");
  if (f.alpha != 1 && f.act != Act::silu)
    fail(path, ".alpha: the slope inside silu; act is ", name_text(f.act));
}

void draw(Drawing& d, const FfnRecipe& f, Dim C, const std::string&) {
  const std::string bias = f.bias ? " + bias" : "";
  const std::string drop = f.dropout > 0 ? ", " + dropout_text(f.dropout) : "";
  if (f.kind == FfnRecipe::Kind::glu) {
    d.inside("gate, up", concat(with_commas(C), " → ", with_commas(f.width), " each", bias));
    std::string up = f.up_offset != 0 ? concat("(up + ", shortest(f.up_offset), ")") : "up";
    std::string act =
        f.alpha != 1 ? concat("gate · sigmoid(", shortest(f.alpha), " gate)") : act_text(f.act, "gate");
    d.inside("hidden",
             concat(act, " ⊙ ", up, f.clamp > 0 ? concat(", clamped to ", shortest(f.clamp)) : "", drop));
  } else {
    d.inside("up", concat(with_commas(C), " → ", with_commas(f.width), bias));
    d.inside("hidden", concat(act_text(f.act, "up"), drop));
  }
  d.inside("down", concat(with_commas(f.width), " → ", with_commas(C), bias));
}

}  // namespace rapt
