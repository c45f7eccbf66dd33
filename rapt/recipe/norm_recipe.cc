// SPDX-License-Identifier: Apache-2.0
// Rules of a norm fail with the field's path and what to do instead.
#include "rapt/recipe/norm_recipe.h"

namespace rapt {

void check_norm(const NormRecipe& n, const std::string& path, bool causal, bool per_token) {
  using Kind = NormRecipe::Kind;
  if (n.kind == Kind::batch && per_token)
    fail(path,
         ": batch norm takes statistics over tokens, and this norm works inside one token's heads; choose "
         "layer, rms or l2");
  if (n.kind == Kind::batch && causal && !n.leaks_ok)
    fail(path,
         ": batch norm in a causal stack lets training look at later tokens; choose another norm, "
         "or say \"leaks_ok\": true if that is "
         "meant");
  if (n.leaks_ok && n.kind != Kind::batch) fail(path, ".leaks_ok: only batch norm can leak; remove it");
  if (n.kind == Kind::l2 && n.weight == NormRecipe::Gain::plus_one)
    fail(path, ": l2 with weight plus_one exists in no model and is not built; use weight \"one\"");
  if (n.kind == Kind::batch && n.weight == NormRecipe::Gain::plus_one)
    fail(path, ": batch norm with weight plus_one exists in no model and is not built; use weight \"one\"");
  if (n.kind == Kind::l2 && n.bias)
    fail(path, ".bias: l2 gives a direction of length one and has no bias; use layer or rms, or remove it");
  if (n.bias && n.weight == NormRecipe::Gain::none)
    fail(path, ".bias: a bias without a weight beside it is not built; use weight \"one\" or no bias");
}

void check_norm(const std::optional<NormRecipe>& n, const std::string& path, bool causal, bool per_token) {
  if (n) check_norm(*n, path, causal, per_token);
}

std::string norm_text(const NormRecipe& n) {
  std::string s = concat(name_text(n.kind), ", eps ", shortest(n.eps));
  if (n.weight == NormRecipe::Gain::none) s += ", no weight";
  if (n.weight == NormRecipe::Gain::plus_one) s += ", weight + 1";
  if (n.bias) s += ", bias";
  return s;
}

}  // namespace rapt
