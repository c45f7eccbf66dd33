// SPDX-License-Identifier: Apache-2.0
// Rules of the gated delta rule, then its lines in a drawing.
#include "rapt/recipe/parts/delta.h"

#include <algorithm>

#include "rapt/base/checked.h"
#include "rapt/recipe/drawing.h"
#include "rapt/recipe/recipe.h"

namespace rapt {

void resolve(DeltaRecipe& r, const PartPlace& place) {
  const std::string& path = place.path;
  if (r.value_heads == 0) r.value_heads = r.key_heads;
  if (r.value_heads % r.key_heads != 0)
    fail(path, ".value_heads: ", r.value_heads, " is no multiple of the ", r.key_heads, " key heads");
  if (r.value_heads == r.key_heads) r.share = DeltaRecipe::Share::neighbours;  // the same
  if (r.key_dim == 0) {
    if (place.recipe.width % r.key_heads != 0)
      fail(path, ".key_dim: the width ", place.recipe.width, " cannot be cut into ", r.key_heads,
           " heads; set key_dim, or change key_heads");
    r.key_dim = place.recipe.width / r.key_heads;
  }
  if (r.value_dim == 0) r.value_dim = r.key_dim;
  const Dim keys = checked_mul(r.key_heads, r.key_dim, path),
            values = checked_mul(r.value_heads, r.value_dim, path);
  if (std::max(keys, values) > static_cast<Dim>(kMostSize))
    fail(path, ": heads of ", std::max(keys, values), " channels together are more than ",
         with_commas(static_cast<Dim>(kMostSize)));
  if (checked_mul(values, r.key_dim, path) > static_cast<Dim>(kMostSize))
    fail(path, ": states of ", r.value_heads, " times ", r.key_dim, " x ", r.value_dim,
         " numbers are more than ", with_commas(static_cast<Dim>(kMostSize)));
  check_norm(r.norm, path + ".norm", true, true);
}

void draw(Drawing& d, const DeltaRecipe& r, Dim C, const std::string&) {
  d.inside("q, k", concat(with_commas(C), " → ", heads_by(r.key_heads, r.key_dim), " each"));
  d.inside("v, z", concat(with_commas(C), " → ", heads_by(r.value_heads, r.value_dim), " each",
                          r.share == DeltaRecipe::Share::turns ? ", key heads in turns" : ""));
  d.inside("b, a", concat(with_commas(C), " → ", with_commas(r.value_heads), " each"));
  d.inside("conv", concat("q, k, v = ", act_text(r.act, concat("sum of ", r.conv, " rows")),
                          ", every channel by itself; q and k of length 1"));
  d.inside("forget", "g = -exp(a_log) · softplus(a + dt_bias), per value head");
  d.inside("state", concat(r.value_heads, "×[", r.key_dim, ",", r.value_dim,
                           "] S = e^g S + k uᵀ, u = sigmoid(b) · (v - e^g Sᵀk)"));
  d.inside("read", concat("o = Sᵀq / √", r.key_dim, ", norm(o) ⊙ ", act_text(r.gate, "z"), "; norm ",
                          norm_text(r.norm), r.dropout > 0 ? ", " + dropout_text(r.dropout) : ""));
  d.inside("out", concat(with_commas(r.value_heads * r.value_dim), " → ", with_commas(C)));
}

}  // namespace rapt
